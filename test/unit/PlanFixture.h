//===- PlanFixture.h - Graphs of the templates and their plans --------------===//
#pragma once
#include "compiler/lower/AttnPlan.h"
#include "compiler/plan/Explain.h"
#include "dialects/kernel/Kernel.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"
#include <catch2/catch.hpp>

namespace cfc::test {

/// A graph of the templates and what the planner says of it.
class Planned {
public:
  explicit Planned(const std::string &name = "llama2_7b_attention") {
    context.loadDialect<attn::AttnDialect, kernel::KernelDialect>();
    handler.emplace(&context, [this](mlir::Diagnostic &diagnostic) {
      message += diagnostic.str() + "\n";
      if (auto at = mlir::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
        place = llvm::formatv("{0}:{1}:{2}", at.getFilename().getValue(), at.getLine(), at.getColumn());
      return mlir::success();
    });
    module = mlir::parseSourceFile<mlir::ModuleOp>(CFC_GRAPHS "/" + name + ".mlir", &context);
    INFO(message);
    REQUIRE(module);
    message.clear();
  }
  attn::GraphOp graph() { return *module->getOps<attn::GraphOp>().begin(); }
  std::optional<Plan> plan(const PlanOptions &options = {}) {
    message.clear();
    exitCode = 0;
    mlir::FailureOr<Plan> made = planGraph(graph(), machine, options, exitCode);
    if (failed(made))
      return std::nullopt;
    return made;
  }
  std::optional<Plan> random(uint64_t seed) {
    PlanOptions options;
    options.randomSeed = seed;
    return plan(options);
  }
  /// The plan for so many cached tokens; there must be one.
  Plan of(int64_t length, Layout weights = PlanOptions().weights) {
    PlanOptions options;
    options.length = length;
    options.weights = weights;
    std::optional<Plan> made = plan(options);
    INFO(message);
    REQUIRE(made);
    return *made;
  }
  /// The plan with these lines given.
  std::optional<Plan> given(const std::string &lines) {
    PlanOptions options;
    std::string error;
    options.given = parsePlan("graph " + graph().getSymName().str() + "\n" + lines, "given", error);
    INFO(error);
    REQUIRE(options.given);
    return plan(options);
  }

  mlir::MLIRContext context;
  std::optional<mlir::ScopedDiagnosticHandler> handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Machine machine = *knownMachine("h200");
  std::string message;
  std::string place; ///< of the last message: file:line:column
  int exitCode = 0;
};

} // namespace cfc::test
