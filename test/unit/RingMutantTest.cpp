//===- RingMutantTest.cpp - Faults in the rings of lowered kernels -------------===//
//
// A matmul and an attention of two sets of consumer warps, whose rings are so
// short that each slot is used often, with one fault in what the lowering makes
// of them. The emulator must report it, or the values be wrong, for one of 20
// seeds.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/KernelValues.h"
#include "llvm/ADT/SetVector.h"
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;
using namespace mlir;
using emu::FindingKind;

namespace {
constexpr int kRows = 200, kColumns = 248;

// Three slots for each of the two sets: 3 tells a slot from all other numbers in the code.
constexpr const char *kMatmul = R"(
kernel.func @matmul(%x: memref<248xf16>, %w: memref<200x248xf16>, %y: memref<200xf32>)
    axes(warp = 8 @warp) plan(ring_stages = 6, tile_columns = 32) {
  %t = kernel.read %x : memref<248xf16> -> !kernel.tile<248xf16>
  %s = kernel.load %w rows [200] : memref<200x248xf16> -> !kernel.stream<200x248xf16>
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<200x248xf16>, !kernel.tile<248xf16> -> !kernel.tile<200xf32>
  kernel.write %m, %y : !kernel.tile<200xf32>, memref<200xf32>
  kernel.return
})";

/// The reports of the runs that showed a fault.
std::vector<emu::Report> caught(const Mutation &mutate) {
  KernelRun run(kMatmul, mutate);
  auto x = randomValues(kColumns, 1, 1, ElementKind::F16);
  auto w = randomValues(kRows * kColumns, 0.1, 3, ElementKind::F16);
  run.set("x", x);
  run.set("w", w);
  std::vector<double> want = product(w, x);
  std::vector<emu::Report> reports;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emu::Report report = run.launch(seed);
    if (!report.ok || relativeError(run.get("y"), want) > 1e-4)
      reports.push_back(report);
    if (reports.size() == 3) // enough
      break;
    run.set("y", std::vector<double>(kRows, NAN));
  }
  return reports;
}

/// The mbarrier waits of the consumers (for full slots) or the producer (for empty ones).
bool isForEmpty(simt::MbarrierWaitOp op) {
  return op.getParity().getDefiningOp<arith::XOrIOp>() && op->getParentOfType<scf::IfOp>();
}

/// The number of the set of this thread: its warp divided by the warps of a set.
Value setOf(ModuleOp module) {
  auto isSet = [](arith::DivUIOp op) {
    auto warp = op.getLhs().getDefiningOp<arith::DivUIOp>();
    return isConstant(op.getRhs(), 4) && warp && warp.getLhs().getDefiningOp<simt::ThreadIdOp>();
  };
  return findOps<arith::DivUIOp>(module, isSet).front();
}

/// Every operation whose result `value` is made from, in this round of the loops around.
void collectMakers(Value value, llvm::SetVector<Operation *> &makers) {
  Operation *op = value.getDefiningOp();
  if (!op || !makers.insert(op))
    return;
  op->walk([&](Operation *inner) { // of an scf.if also what its branches yield
    for (Value operand : inner->getOperands())
      collectMakers(operand, makers);
  });
}
} // namespace

TEST_CASE("the ring of the mutants is right", "[ring]") { REQUIRE(caught({}).empty()); }

TEST_CASE("faults in when a slot is free are caught", "[ring]") {
  SECTION("an arrival that does not wait for the reads") {
    auto reports = caught([](ModuleOp m) {
      for (simt::AfterOp op : findOps<simt::AfterOp>(m)) {
        op.getResult().replaceAllUsesWith(op.getBase());
        op.erase();
      }
    });
    REQUIRE(reported(reports, FindingKind::ProxyOrder));
  }
  SECTION("a slot that was also read by ordinary loads: waiting for ldmatrix does not cover those") {
    auto reports = caught([](ModuleOp m) {
      // Those of weights are behind a wait; the activation is read before it.
      auto ofSlot = [](simt::LdmatrixOp op) {
        for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode())
          if (isa<simt::MbarrierWaitOp>(before))
            return true;
        return false;
      };
      for (simt::LdmatrixOp op : findOps<simt::LdmatrixOp>(m, ofSlot)) {
        OpBuilder b(op->getNextNode());
        Value word = simt::LoadOp::create(b, op.getLoc(), b.getI32Type(), op.getAddress());
        for (Operation *next = op; next; next = next->getNextNode())
          if (auto after = dyn_cast<simt::AfterOp>(next)) {
            after.getValuesMutable().append(word);
            break;
          }
      }
    });
    REQUIRE(reported(reports, FindingKind::ProxyOrder));
  }
  SECTION("a producer that waits for nobody") {
    REQUIRE(!caught([](ModuleOp m) { eraseOps<simt::MbarrierWaitOp>(m, isForEmpty); }).empty());
  }
  SECTION("one warp of a set is not asked") {
    REQUIRE(!caught([](ModuleOp m) {
               auto ofFour = [](simt::MbarrierInitOp op) { return isConstant(op.getCount(), 4); };
               for (simt::MbarrierInitOp op : findOps<simt::MbarrierInitOp>(m, ofFour))
                 op.getCountMutable().assign(constantBefore(op, 3));
             }).empty());
  }
}

TEST_CASE("faults in who takes which slot are caught", "[ring]") {
  SECTION("each set takes the other's slots") {
    REQUIRE(!caught([](ModuleOp m) {
               Value set = setOf(m);
               auto first = [&](arith::MulIOp op) {
                 return op.getLhs() == set && isConstant(op.getRhs(), 3);
               };
               for (arith::MulIOp op : findOps<arith::MulIOp>(m, first)) {
                 OpBuilder b(op);
                 Value one = constantBefore(op, 1);
                 op.setOperand(0, arith::XOrIOp::create(b, op.getLoc(), set, one));
               }
             }).empty());
  }
  SECTION("both sets take the same slots") {
    REQUIRE(!caught([](ModuleOp m) {
               Value set = setOf(m);
               auto first = [&](arith::MulIOp op) {
                 return op.getLhs() == set && isConstant(op.getRhs(), 3);
               };
               for (arith::MulIOp op : findOps<arith::MulIOp>(m, first))
                 op.setOperand(0, constantBefore(op, 0));
             }).empty());
  }
  SECTION("a consumer that does not wait for its tile") {
    REQUIRE(!caught([](ModuleOp m) {
               eraseOps<simt::MbarrierWaitOp>(m, [](simt::MbarrierWaitOp op) { return !isForEmpty(op); });
             }).empty());
  }
  SECTION("fewer bytes expected than copied") {
    REQUIRE(!caught([](ModuleOp m) {
               for (simt::MbarrierExpectOp op : findOps<simt::MbarrierExpectOp>(m)) {
                 OpBuilder b(op);
                 Value less = arith::SubIOp::create(b, op.getLoc(), op.getBytes(), constantBefore(op, 128));
                 op.getBytesMutable().assign(less);
               }
             }).empty());
  }
}

TEST_CASE("faults in which lanes give the activation are caught", "[ring]") {
  // The blocks of both chains the other way round.
  REQUIRE(!caught([](ModuleOp m) {
             auto ofChains = [](arith::SelectOp op) {
               return isConstant(op.getTrueValue(), 32) && isConstant(op.getFalseValue(), 0);
             };
             for (arith::SelectOp op : findOps<arith::SelectOp>(m, ofChains)) {
               Value second = op.getTrueValue(), first = op.getFalseValue();
               op.getTrueValueMutable().assign(first);
               op.getFalseValueMutable().assign(second);
             }
           }).empty());
}

/// Checks that what a release waits for was made of all reads of the slot before it; gives their number.
static int checkMade(simt::AfterOp after) {
  llvm::SetVector<Operation *> makers;
  for (Value value : after.getValues())
    collectMakers(value, makers);
  int reads = 0;
  for (Operation *op = after->getPrevNode(); op && !isa<simt::MbarrierWaitOp>(op); op = op->getPrevNode())
    if (isa<simt::LdmatrixOp>(op)) {
      ++reads;
      CHECK(makers.contains(op));
    }
  return reads;
}

// The emulator takes one `after` for all reads of a warp before it. On a GPU it holds for those from which
// its values were made: they must be all that the warp has read of the slot.
TEST_CASE("a slot is released behind values that were made of all that was read of it", "[ring]") {
  int slots = GENERATE(1, 2, 4, 8, 16), tileColumns = GENERATE(16, 32, 64, 80, 128),
      columns = GENERATE(512, 648);
  CAPTURE(slots, tileColumns, columns);
  int checked = 0;
  auto check = [&](ModuleOp module) {
    module.walk([&](simt::AfterOp after) {
      int reads = checkMade(after);
      CHECK(reads > 0);
      checked += reads;
    });
  };
  KernelRun run(fmt::format(R"(
kernel.func @matmul(%x: memref<{2}xf16>, %w: memref<64x{2}xf16>, %y: memref<64xf32>) axes() plan(tile_columns = {1}) {{
  %t = kernel.read %x : memref<{2}xf16> -> !kernel.tile<{2}xf16>
  %s = kernel.load %w rows [64] : memref<64x{2}xf16> -> !kernel.stream<64x{2}xf16>
  %m = kernel.matmul %s, %t slots {0} : !kernel.stream<64x{2}xf16>, !kernel.tile<{2}xf16> -> !kernel.tile<64xf32>
  kernel.write %m, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}})",
                            slots, tileColumns, columns),
                check);
  CHECK(checked > 0);
}

TEST_CASE("attention releases slots behind all reads too", "[ring]") {
  int dim = GENERATE(16, 80, 128), group = GENERATE(1, 2, 8);
  CAPTURE(dim, group);
  int checked = 0;
  auto check = [&](ModuleOp module) {
    module.walk([&](simt::AfterOp after) { checked += checkMade(after); });
  };
  KernelRun run(fmt::format(R"(
kernel.func @attend(%q: memref<{2}xf16>, %c: !kernel.cache<heads = 1, dim = {0}, f16>, %len: memref<1xi32>, %o: memref<{2}xf32>, %lse: memref<{1}xf32>)
    axes(head = 1 @grid) plan() {{
  kernel.for_items %h over head {{
    %t = kernel.read %q at %h : memref<{2}xf16> -> !kernel.tile<{2}xf16>
    %kv = kernel.load_cache %c tokens %len at %h bound 1000 : !kernel.cache<heads = 1, dim = {0}, f16>, memref<1xi32>, !kernel.item -> !kernel.kv_stream<{0}, f16>
    %p = kernel.attend %t, %kv scale 0.125 : !kernel.tile<{2}xf16>, !kernel.kv_stream<{0}, f16> -> !kernel.tile<{1}x{3}xf32>
    %n, %l = kernel.normalize %p : !kernel.tile<{1}x{3}xf32> -> !kernel.tile<{2}xf32>, !kernel.tile<{1}xf32>
    kernel.write %n, %o at %h : !kernel.tile<{2}xf32>, memref<{2}xf32>
    kernel.write %l, %lse at %h : !kernel.tile<{1}xf32>, memref<{1}xf32>
  }}
  kernel.return
}})",
                            dim, group, group * dim, dim + 2),
                check);
  CHECK(checked > 0);
}
