//===- HeldTest.cpp - First tiles in registers while the last kernel runs -------===//
//
// What a kernel holds of its first stream changes neither a bit nor who waits
// for whom: whatever sets, items and clusters there are.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/KernelValues.h"
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;
using namespace mlir;

namespace {
struct Case {
  int items, clusters; ///< that run at a time
  int rows, columns;   ///< of an item
  int warps, stages, tileColumns, slots;
  const char *type = "f16";   ///< of the weights
  const char *layout = "";    ///< attributes of the weights
  const char *otherKeys = ""; ///< of the plan
};
constexpr const char *kPacked = " {kernel.layout = \"packed\"}";

std::string kernel(const Case &c, int held) {
  return fmt::format(R"(
kernel.func @items(%x: memref<{0}xf16>, %w: memref<{2}x{0}x{10}>{11}, %y: memref<{2}xf32>)
    axes(item = {3} @grid, warp = {4} @warp)
    plan(ring_stages = {5}, tile_columns = {6}, clusters = {7}, pdl = 1, held = {8}{12}) {{
  %t = kernel.read %x : memref<{0}xf16> -> !kernel.tile<{0}xf16>
  kernel.for_items %i over item {{
    %s = kernel.load %w rows [{1}] at %i : memref<{2}x{0}x{10}> -> !kernel.stream<{1}x{0}x{10}>
    %m = kernel.matmul %s, %t slots {9} : !kernel.stream<{1}x{0}x{10}>, !kernel.tile<{0}xf16> -> !kernel.tile<{1}xf32>
    kernel.write %m, %y at %i : !kernel.tile<{1}xf32>, memref<{2}xf32>
  }}
  kernel.return
}})",
                     c.columns, c.rows, c.rows * c.items, c.items, c.warps, c.stages, c.tileColumns,
                     c.clusters, held, c.slots, c.type, c.layout, c.otherKeys);
}

/// Inputs of a case, and what they give.
struct Data {
  std::vector<double> x, w, want;
  double tolerance; ///< beside weights of bf16 the activation is rounded to it
  explicit Data(const Case &c)
      : x(randomValues(c.columns, 1, 1, ElementKind::F16)),
        w(randomValues(size_t(c.columns) * c.rows * c.items, 0.1, 3,
                       std::string(c.type) == "bf16" ? ElementKind::BF16 : ElementKind::F16)),
        want(product(w, x)), tolerance(std::string(c.type) == "bf16" ? 5e-3 : 1e-4) {}
  bool isRight(KernelRun &run, uint64_t seed) const {
    run.set("x", x);
    run.set("w", w);
    run.set("y", std::vector<double>(want.size(), NAN));
    auto report = run.launch(seed);
    UNSCOPED_INFO(textOf(report));
    return report.ok && relativeError(run.get("y"), want) < tolerance;
  }
};

/// Branches that take a tile of registers where it is held: nothing is done there.
bool takesHeld(scf::IfOp op) {
  return op.getNumResults() >= 8 && op.getResult(0).getType().isInteger(32) &&
         op.thenBlock()->getOperations().size() == 1;
}

/// Whether an operation is one of the consumers' before the kernel waits for the last one.
bool isEarly(Operation *op) {
  for (Operation *at = op; at; at = at->getParentOp())
    for (Operation *next = at->getNextNode(); next; next = next->getNextNode())
      if (isa<simt::GridWaitOp>(next))
        return true;
  return false;
}

/// Two sets, of which the first has two blocks of rows; three items for one cluster, and short rings.
const Case kMutated{3, 1, 192, 200, 8, 4, 32, 2};

bool isCaught(const Mutation &mutate) {
  static const Data data(kMutated);
  KernelRun run(kernel(kMutated, 2), mutate);
  for (uint64_t seed = 1; seed <= 20; ++seed)
    if (!data.isRight(run, seed))
      return true;
  return false;
}
} // namespace

TEST_CASE("held tiles change no bit", "[held]") {
  // One block of rows; a set without rows; blocks for one set and two; half of a last block; tiles that end a
  // slot; clusters with one item and several; rings that wrap often.
  Case c = GENERATE(Case{3, 3, 64, 256, 4, 4, 64, 4}, Case{2, 2, 40, 200, 8, 4, 64, 2},
                    Case{5, 2, 192, 264, 8, 4, 32, 4}, Case{4, 1, 64, 136, 4, 2, 16, 1},
                    Case{3, 2, 128, 328, 16, 8, 64, 3}, kMutated,
                    // Rows copied apart; weights whose type the activation takes; few in the air; packed
                    // weights, of which more goes to the L2 behind what is held.
                    Case{3, 2, 20, 200, 4, 3, 48, 1}, Case{2, 1, 64, 264, 4, 4, 64, 1, "bf16"},
                    Case{3, 2, 64, 264, 4, 4, 64, 1, "f16", "", ", in_flight = 1"},
                    Case{3, 1, 128, 512, 8, 4, 64, 4, "f16", kPacked, ", in_flight = 2, prefetch = 4"});
  CAPTURE(c.items, c.clusters, c.rows, c.columns, c.warps, c.stages, c.tileColumns, c.slots);
  Data data(c);
  std::vector<uint8_t> bits;
  for (int held : {0, 1, 2, 3, 64}) {
    CAPTURE(held);
    KernelRun run(kernel(c, held));
    for (uint64_t seed = 0; seed < 5; ++seed) {
      REQUIRE(data.isRight(run, seed));
      if (bits.empty())
        bits = run.bytes("y");
      REQUIRE(run.bytes("y") == bits);
    }
  }
}

TEST_CASE("clusters without an item of the first loop hold nothing", "[held]") {
  KernelRun run(R"(
kernel.func @two(%x: memref<128xf16>, %w: memref<64x128xf16>, %y: memref<64xf32>, %v: memref<192x128xf16>, %z: memref<192xf32>)
    axes(one = 1 @grid, item = 3 @grid, warp = 4 @warp) plan(ring_stages = 4, tile_columns = 32, pdl = 1, held = 2) {
  %t = kernel.read %x : memref<128xf16> -> !kernel.tile<128xf16>
  kernel.for_items %i over one {
    %s = kernel.load %w rows [64] at %i : memref<64x128xf16> -> !kernel.stream<64x128xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x128xf16>, !kernel.tile<128xf16> -> !kernel.tile<64xf32>
    kernel.write %m, %y at %i : !kernel.tile<64xf32>, memref<64xf32>
  }
  kernel.for_items %i over item {
    %s = kernel.load %v rows [64] at %i : memref<192x128xf16> -> !kernel.stream<64x128xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x128xf16>, !kernel.tile<128xf16> -> !kernel.tile<64xf32>
    kernel.write %m, %z at %i : !kernel.tile<64xf32>, memref<192xf32>
  }
  kernel.return
})");
  auto x = randomValues(128, 1, 1, ElementKind::F16), w = randomValues(64 * 128, 0.1, 2, ElementKind::F16);
  auto v = randomValues(192 * 128, 0.1, 3, ElementKind::F16);
  run.set("x", x);
  run.set("w", w);
  run.set("v", v);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(relativeError(run.get("y"), product(w, x)) < 1e-4);
    REQUIRE(relativeError(run.get("z"), product(v, x)) < 1e-4);
  }
}

TEST_CASE("faults in what is held are caught", "[held]") {
  REQUIRE(!isCaught({}));
  SECTION("every item and block of rows takes what is held") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (scf::IfOp op : findOps<scf::IfOp>(m, takesHeld)) {
        OpBuilder b(op);
        op.getConditionMutable().assign(arith::ConstantOp::create(b, op.getLoc(), b.getBoolAttr(true)));
      }
    }));
  }
  SECTION("no item takes what is held") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (scf::IfOp op : findOps<scf::IfOp>(m, takesHeld)) {
        OpBuilder b(op);
        op.getConditionMutable().assign(arith::ConstantOp::create(b, op.getLoc(), b.getBoolAttr(false)));
      }
    }));
  }
  SECTION("the second tile for the first") {
    REQUIRE(isCaught([](ModuleOp m) {
      auto tiles = findOps<scf::IfOp>(m, takesHeld);
      REQUIRE(tiles.size() == 2);
      tiles[0].thenYield()->setOperands(SmallVector<Value>(tiles[1].thenYield().getOperands()));
    }));
  }
  SECTION("slots of held tiles are not given back") {
    REQUIRE(isCaught([](ModuleOp m) { eraseOps<simt::MbarrierArriveOp>(m, isEarly); }));
  }
  SECTION("tiles are taken before they are there") {
    REQUIRE(isCaught([](ModuleOp m) { eraseOps<simt::MbarrierWaitOp>(m, isEarly); }));
  }
}
