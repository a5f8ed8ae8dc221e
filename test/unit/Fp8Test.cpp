//===- Fp8Test.cpp - Caches of f8E4M3FN with scales --------------------------===//
//
// What a kernel stores is a correct rounding, and what it attends to is what it
// has stored. Mutants that forget a scale, take another head's, or round nothing
// must be caught.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/NumericsHarness.h"
#include <catch2/catch.hpp>

using namespace cfc;
using namespace cfc::test;
using mlir::Value;

namespace {
constexpr int64_t kCapacity = 400;
constexpr Tolerance kLimits = {1e-3, 8e-3};

/// An attention of a request with `tokens` new tokens.
struct Shape {
  int64_t heads = 2, group = 2, dim = 64, vDim = 64, tokens = 1;
  std::string cache = "f8E4M3FN";

  std::string text() const {
    std::string starts = tokens > 1 ? "%starts: tensor<2xi32>, " : "",
                by = tokens > 1 ? " queries %starts" : "";
    std::string ofV = vDim == dim ? "" : fmt::format("v_dim = {}, ", vDim);
    return fmt::format(R"(
attn.graph @f8(%q: tensor<{0}x{1}xf16>, %k: tensor<{0}x{2}xf16>, %v: tensor<{0}x{3}xf16>, {4}
    %cache: !attn.kv_cache<heads = {5}, dim = {6}, {7}{8}>, %slot: tensor<{0}xi64>, %ks: tensor<{5}xf32>, %vs: tensor<{5}xf32>,
    %len: !attn.lengths<1, capacity = {9}>) -> (tensor<{0}x{10}xf16> {{attn.name = "o"}}, tensor<{0}x{11}xf32> {{attn.name = "lse"}}) {{
  %c = attn.kv_append %cache, %k, %v at %slot{12} scales %ks, %vs
  %o, %lse = attn.attention %q, %c, %len{12} scales %ks, %vs {{scale = 0.2}}
  attn.return %o, %lse
}})",
                       tokens, heads * group * dim, heads * dim, heads * vDim, starts, heads, dim, ofV, cache,
                       kCapacity, heads * group * vDim, heads * group, by);
  }
};

TensorMap inputsOf(const Graph &graph, const Shape &shape, int64_t length, uint64_t seed) {
  TensorMap inputs = graph.inputs(seed, length, kCapacity);
  for (int64_t i = 0; i < shape.tokens; ++i)
    inputs.at("slot").as<int64_t>()[i] = length + i;
  if (shape.tokens > 1) {
    inputs.at("starts").as<int32_t>()[0] = 0;
    inputs.at("starts").as<int32_t>()[1] = int32_t(shape.tokens);
  }
  // Far enough apart that another head's shows.
  for (const char *name : {"ks", "vs"})
    for (int64_t h = 0; h < shape.heads; ++h)
      inputs.at(name).as<float>()[h] = (name[0] == 'k' ? 0.03f : 0.02f) * float(1 + h);
  return inputs;
}

/// What is wrong with a run, or "".
std::string wrong(const Shape &shape, int64_t length, const GraphRun::Mutate &mutate = {},
                  const std::string &plan = "auto") {
  Graph graph(shape.text());
  GraphRun run(graph, plan, true, mutate);
  TensorMap inputs = inputsOf(graph, shape, length, 5);
  return mismatch(graph, run, inputs, run.launch(inputs, 3), kLimits);
}

/// Byte of the table where an address begins its way; -1: it does not.
int64_t tableOffset(Value address) {
  while (auto offset = address.getDefiningOp<simt::OffsetOp>())
    address = offset.getBase();
  auto pointer = address.getDefiningOp<simt::LoadPtrOp>();
  auto entry = pointer ? pointer.getAddress().getDefiningOp<simt::OffsetOp>() : simt::OffsetOp();
  llvm::APInt bytes;
  bool known = entry && mlir::matchPattern(entry.getBytes(), mlir::m_ConstantInt(&bytes));
  return known ? bytes.getSExtValue() : -1;
}

/// The loads of scale `name`: those by which rows are divided that are stored, or the others.
std::vector<simt::LoadOp> scaleLoads(mlir::ModuleOp module, const runtime::GraphSpec &graph,
                                     const std::string &name, bool divides) {
  int64_t at = -1;
  for (size_t i = 0; i < graph.table.size(); ++i)
    if (graph.tensors[graph.table[i].tensor].name == name)
      at = int64_t(64 + 8 * i);
  return findOps<simt::LoadOp>(module, [&](simt::LoadOp load) {
    bool divisor = llvm::any_of(load.getResult().getUsers(),
                                [](mlir::Operation *user) { return mlir::isa<mlir::arith::DivFOp>(user); });
    return load.getType().isF32() && tableOffset(load.getAddress()) == at && divisor == divides;
  });
}

/// The scale counts as 1.
GraphRun::Mutate forgets(const std::string &name, bool divides) {
  return [=](mlir::ModuleOp module, const runtime::GraphSpec &graph) {
    for (simt::LoadOp load : scaleLoads(module, graph, name, divides)) {
      mlir::OpBuilder b(load);
      auto one = mlir::arith::ConstantOp::create(b, load.getLoc(), b.getF32FloatAttr(1));
      load.getResult().replaceAllUsesWith(one.getResult());
    }
  };
}
} // namespace

TEST_CASE("f8 caches: what is stored is rounded correctly, and attended to as it is stored") {
  for (const Shape &shape : {Shape{}, Shape{2, 3, 40, 24}, Shape{1, 1, 72, 72, 3}, Shape{2, 9, 32, 136, 2},
                             Shape{2, 2, 64, 64, 1, "f16"}})
    for (int64_t length : {0, 1, 63, 65, 300}) {
      INFO(shape.text() << length);
      CHECK(wrong(shape, length) == "");
      CHECK(wrong(shape, length, {}, "random:4") == "");
    }
}

TEST_CASE("f8 mutants: forgotten scales") {
  for (int64_t tokens : {1, 3})
    for (const char *name : {"ks", "vs"})
      for (bool divides : {true, false}) {
        Shape shape{2, 2, 64, 64, tokens};
        INFO(name << divides << tokens);
        CHECK(wrong(shape, 100, forgets(name, divides)) != "");
        if (divides || tokens == 1) // several new tokens take the scale by which they are divided
          CHECK(wrong(shape, 0, forgets(name, divides)) != "");
      }
}

TEST_CASE("f8 mutants: another head's scale") {
  for (const char *name : {"ks", "vs"})
    for (bool divides : {true, false}) {
      auto first = [=](mlir::ModuleOp module, const runtime::GraphSpec &graph) {
        for (simt::LoadOp load : scaleLoads(module, graph, name, divides)) {
          auto at = load.getAddress().getDefiningOp<simt::OffsetOp>();
          REQUIRE(at);
          load.getAddressMutable().assign(at.getBase());
        }
      };
      CHECK(wrong({}, 100, first) != "");
    }
}

TEST_CASE("f8 mutants: the new tokens as they were before they were stored") {
  auto unrounded = [](mlir::ModuleOp module, const runtime::GraphSpec &) {
    size_t changed = 0;
    for (simt::PackE4m3Op pack : findOps<simt::PackE4m3Op>(module))
      for (mlir::Operation *user : pack->getUsers())
        if (auto unpack = mlir::dyn_cast<simt::UnpackE4m3Op>(user))
          for (mlir::Operation *low : unpack->getUsers())
            for (mlir::Operation *half : low->getUsers())
              for (mlir::Operation *wide : llvm::make_early_inc_range(half->getUsers())) {
                REQUIRE(mlir::isa<mlir::arith::ExtFOp>(wide));
                wide->getResult(0).replaceAllUsesWith(pack.getLo());
                ++changed;
              }
    REQUIRE(changed > 0);
  };
  CHECK(wrong({2, 2, 64, 64, 3}, 0, unrounded) != "");
  CHECK(wrong({2, 2, 64, 64, 3}, 2, unrounded) != "");
}

TEST_CASE("f8 mutants: rows that threads copy") {
  // The producer, whose operations come first, swizzles no more; consumers do.
  auto elsewhere = [](mlir::ModuleOp module, const runtime::GraphSpec &) {
    auto swizzles = findOps<mlir::arith::XOrIOp>(module, [](mlir::arith::XOrIOp op) {
      return llvm::any_of(op->getUsers(), [](auto *user) { return mlir::isa<mlir::arith::MulIOp>(user); });
    });
    swizzles.front().replaceAllUsesWith(swizzles.front().getLhs());
  };
  CHECK(wrong({1, 1, 40, 40}, 70, elsewhere) != "");

  // V's words are written where K, by a copy, comes next.
  auto unfenced = [](mlir::ModuleOp module, const runtime::GraphSpec &) {
    eraseOps<simt::FenceProxyAsyncOp>(module, [](simt::FenceProxyAsyncOp) { return true; });
  };
  const char *plan = "graph f8\nkernel 0: part = 1, warps = 4, ring_stages = 3, chunks = 1\n";
  Shape mixed{1, 1, 64, 24};
  CHECK(wrong(mixed, 390, {}, plan) == "");
  CHECK_THROWS_WITH(wrong(mixed, 390, unfenced, plan), Catch::Contains("proxy"));
}
