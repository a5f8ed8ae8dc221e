//===- ReferenceExample.h - A graph from its text, with inputs from numbers ----===//
#pragma once
#include "dialects/attn/Reference.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include <catch2/catch.hpp>
#include <deque>

namespace cfc::attn {
using Numbers = std::vector<double>;

// A graph from its text, with inputs from lists of numbers.
class Example {
public:
  explicit Example(const std::string &text) {
    context.loadDialect<AttnDialect>();
    handler.emplace(&context, [this](mlir::Diagnostic &diag) {
      message += diag.str() + "\n";
      return mlir::success();
    });
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    INFO(message);
    REQUIRE(module);
  }
  GraphOp graph() { return *module->getOps<GraphOp>().begin(); }

  const void *elements(ElementKind kind, const Numbers &numbers) {
    std::vector<char> &bytes = storage.emplace_back(numbers.size() * elementSize(kind));
    for (size_t i = 0; i < numbers.size(); ++i)
      fromDouble(kind, numbers[i], bytes.data() + i * elementSize(kind));
    return bytes.data();
  }
  void set(const char *name, ElementKind kind, llvm::ArrayRef<int64_t> shape, const Numbers &numbers) {
    inputs.tensors[name] = {kind, llvm::SmallVector<int64_t>(shape), elements(kind, numbers)};
  }
  void set(const char *name, int64_t number) { set(name, ElementKind::I32, 1, {double(number)}); }
  void setSlot(int64_t slot) { set("slot", ElementKind::I64, 1, {double(slot)}); }
  // One KV head of `dim`, tokens one after another.
  void setCache(ElementKind kind, int64_t dim, int64_t heads, const Numbers &k, const Numbers &v) {
    auto row = static_cast<int64_t>(dim * elementSize(kind));
    inputs.caches["cache"] = {elements(kind, k), elements(kind, v), row, row * heads,
                              static_cast<int64_t>(k.size()) / (dim * heads)};
  }
  ReferenceResult run() {
    auto result = evaluate(graph(), inputs);
    INFO(message);
    REQUIRE(succeeded(result));
    return std::move(*result);
  }
  Numbers result(unsigned index = 0) { return run().results[index]; }

  mlir::MLIRContext context;
  std::optional<mlir::ScopedDiagnosticHandler> handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::deque<std::vector<char>> storage;
  ReferenceInputs inputs;
  std::string message;
};

inline void checkNear(const Numbers &got, const Numbers &wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == Approx(wanted[i]).margin(1e-12));
}

} // namespace cfc::attn
