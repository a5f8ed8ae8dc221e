//===- StreamedSumTest.cpp - Sums of a matmul's rows over the grid ---------------===//
//
// Where only a kernel.finish takes a matmul's rows they go to the workspace piece
// by piece; a body that does more than map elements makes the kernel wait for
// all of them. With finishers nobody counts, and some clusters wait for the sums
// of all. The sums are the same.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/KernelValues.h"
#include "llvm/ADT/bit.h"
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <limits>

using namespace cfc;
using namespace cfc::test;
using namespace mlir;

namespace {
struct Schedule {
  int part, warps, pieces, tileColumns, stages;
  bool streamed;
  int finishers = 0;
};

std::string describe(const Schedule &s) {
  return fmt::format("part {}, {} warps, {} pieces, tiles of {} columns, {} stages, {}streamed, {} finishers",
                     s.part, s.warps, s.pieces, s.tileColumns, s.stages, s.streamed ? "" : "not ",
                     s.finishers);
}

/// y = f16(W x) + r over `items` items of 40 columns each; the sum of y where the body shall do more.
std::string kernelOf(int rows, int items, const Schedule &s) {
  std::string fold = s.streamed ? ""
                                : fmt::format(R"(
      %f = kernel.fold add %b : !kernel.tile<{0}xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>)",
                                              rows);
  std::string pieces = s.finishers    ? fmt::format(" attributes {{finishers = {} : i64}}", s.finishers)
                       : s.pieces > 1 ? fmt::format(" attributes {{pieces = {} : i64}}", s.pieces)
                                      : "";
  return fmt::format(R"(
kernel.func @sum(%x: memref<{2}xf16>, %w: memref<{0}x{2}xf16>, %r: memref<{0}xf16>, %y: memref<{0}xf32>, %z: memref<{0}xbf16>)
    axes(item = {1} @grid, part = {3} @cta, warp = {4} @warp) plan(ring_stages = {6}, tile_columns = {5}) {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<{2}xf16> -> !kernel.tile<40xf16>
    %s = kernel.load %w rows [{0}] columns at %i : memref<{0}x{2}xf16> -> !kernel.stream<{0}x40xf16, part: split(0)>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<{0}x40xf16, part: split(0)>, !kernel.tile<40xf16> -> !kernel.tile<{0}xf32, part: split(0), item: partial(sum)>
    kernel.finish %m over item by ordered{7} : !kernel.tile<{0}xf32, part: split(0), item: partial(sum)> as %sum: !kernel.tile<{0}xf32, part: split(0)> {{
      %c = kernel.cast %sum : !kernel.tile<{0}xf32, part: split(0)> -> !kernel.tile<{0}xf16, part: split(0)>
      %a = kernel.read %r : memref<{0}xf16> -> !kernel.tile<{0}xf16, part: split(0)>
      %b = kernel.elementwise add %c, %a : !kernel.tile<{0}xf16, part: split(0)>, !kernel.tile<{0}xf16, part: split(0)> -> !kernel.tile<{0}xf32, part: split(0)>{8}
      kernel.write %b, %y : !kernel.tile<{0}xf32, part: split(0)>, memref<{0}xf32>
      kernel.write %sum, %z : !kernel.tile<{0}xf32, part: split(0)>, memref<{0}xbf16>
    }}
  }}
  kernel.return
}})",
                     rows, items, items * 40, s.part, s.warps, s.tileColumns, s.stages, pieces, fold);
}

/// Other inputs for each launch, so that what the last one left is wrong. Gives what y shall be.
std::vector<double> fill(KernelRun &run, int rows, int items, uint64_t seed) {
  auto x = randomValues(items * 40, 1, seed, ElementKind::F16),
       w = randomValues(size_t(rows) * x.size(), 0.1, seed + 100, ElementKind::F16),
       r = randomValues(rows, 1, seed + 200, ElementKind::F16);
  run.set("x", x);
  run.set("w", w);
  run.set("r", r);
  std::vector<double> want = r;
  for (size_t i = 0; i < w.size(); ++i)
    want[i / x.size()] += w[i] * x[i % x.size()];
  return want;
}
} // namespace

TEST_CASE("sums of streamed rows have the same bits in any number of pieces", "[finish]") {
  int items = GENERATE(1, 2, 5, 70);
  CAPTURE(items);
  const int rows = 512, launches = 3;
  std::vector<std::vector<uint8_t>> first;
  // The last pair of numbers: as many pieces as rows allow, of one set of warps; one piece of 16 warps.
  for (Schedule s :
       {Schedule{1, 4, 1, 128, 4, false}, Schedule{1, 4, 1, 16, 3, true}, Schedule{2, 4, 4, 128, 2, true},
        Schedule{1, 4, 2, 32, 3, true}, Schedule{1, 8, 4, 128, 4, true}, Schedule{4, 8, 1, 64, 4, true},
        Schedule{1, 4, 8, 128, 3, true}, Schedule{2, 16, 1, 128, 8, true},
        // As many finishers as items, threads for all items of a share, or for none apart.
        Schedule{1, 4, 1, 128, 4, true, 1}, Schedule{2, 4, 1, 128, 2, true, 4},
        Schedule{2, 8, 1, 32, 4, true, 32}, Schedule{4, 4, 1, 64, 3, true, 8},
        Schedule{1, 4, 1, 128, 3, true, 2}}) {
    s.finishers = std::min(s.finishers, int(llvm::bit_floor(unsigned(items))));
    if (items > 5 && s.pieces % 4 && s.finishers % 32) // the others take as long and show no more
      continue;
    CAPTURE(describe(s));
    KernelRun run(kernelOf(rows, items, s));
    for (int launch = 0; launch < launches; ++launch) {
      CAPTURE(launch);
      std::vector<double> want = fill(run, rows, items, launch);
      auto report = run.launch(launch);
      INFO(textOf(report));
      REQUIRE(report.ok);
      REQUIRE(run.workspaceIsReady());
      REQUIRE(relativeError(run.get("y"), want) < 1e-3);
      std::vector<uint8_t> bytes = run.bytes("y"), z = run.bytes("z");
      bytes.insert(bytes.end(), z.begin(), z.end());
      if (int(first.size()) == launch)
        first.push_back(bytes);
      REQUIRE(bytes == first[launch]);
    }
  }
}

TEST_CASE("sums of streamed rows of which a CTA has few", "[finish]") {
  int rows = GENERATE(4, 24, 72, 200), warps = GENERATE(4, 8, 16);
  CAPTURE(rows, warps);
  KernelRun run(kernelOf(rows, 3, {1, warps, 1, 128, 4, true}));
  for (int launch = 0; launch < 3; ++launch) {
    std::vector<double> want = fill(run, rows, 3, launch);
    auto report = run.launch(launch);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(relativeError(run.get("y"), want) < 1e-3);
    REQUIRE(run.workspaceIsReady());
  }
}

TEST_CASE("a sum for which clusters wait may be anything", "[finish]") {
  const int rows = 64, items = 4;
  KernelRun run(kernelOf(rows, items, {1, 4, 1, 128, 3, true, 4})),
      other(kernelOf(rows, items, {1, 4, 1, 128, 3, true}));
  fill(run, rows, items, 1);
  fill(other, rows, items, 1);
  // Zeros of either sign, infinities, and both signs of no number.
  std::vector<double> w(size_t(rows) * items * 40, 0.0), x(items * 40, 1.0);
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (int row = 0; row < rows; ++row)
    for (int item = 0; item < items; ++item) {
      double values[] = {0.0, -0.0, inf, -inf, nan, -nan, 1.0, -1.0};
      std::fill_n(w.begin() + (size_t(row) * items + item) * 40, 40, values[(row + item * (row / 8)) % 8]);
    }
  for (KernelRun *r : {&run, &other}) {
    r->set("w", w);
    r->set("x", x);
    auto report = r->launch(3);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(r->workspaceIsReady());
  }
  REQUIRE(run.bytes("y") == other.bytes("y"));
}

TEST_CASE("clusters wait for none that has not started", "[finish]") {
  const int rows = 64, items = 12;
  KernelRun run(kernelOf(rows, items, {2, 4, 1, 128, 3, true, 8}));
  for (unsigned clusters : {12, 7, 3, 1})
    for (unsigned resident = 1; resident <= clusters; resident += 2) {
      CAPTURE(clusters, resident);
      std::vector<double> want = fill(run, rows, items, resident);
      auto report = run.launch(resident, resident, clusters);
      INFO(textOf(report));
      REQUIRE(report.ok);
      REQUIRE(relativeError(run.get("y"), want) < 1e-3);
      REQUIRE(run.workspaceIsReady());
    }
}

//===-- Mutants -----------------------------------------------------------------===//

/// Whether one of 20 launches in a row shows a fault.
static bool isCaught(const Mutation &mutate, const Schedule &s = {1, 4, 4, 128, 3, true}) {
  const int rows = 256, items = 4;
  KernelRun run(kernelOf(rows, items, s), mutate);
  for (int seed = 1; seed <= 20; ++seed) {
    std::vector<double> want = fill(run, rows, items, seed);
    if (!run.launch(seed).ok || !(relativeError(run.get("y"), want) < 1e-3) || !run.workspaceIsReady())
      return true;
  }
  return false;
}

/// The piece at hand where `op` stands: the number of the innermost loop's round.
static Value isPieceOne(Operation *op) {
  auto loop = op->getParentOfType<scf::ForOp>();
  OpBuilder b(op);
  return arith::CmpIOp::create(b, op->getLoc(), arith::CmpIPredicate::eq, loop.getInductionVar(),
                               constantBefore(op, 1));
}

static bool isArrival(simt::AtomicOp op) { return op.getOrdering() == simt::Ordering::Release; }
static bool isReset(simt::StoreOp op) {
  return cast<simt::PtrType>(op.getAddress().getType()).isGlobal() && isConstant(op.getValue(), 0);
}

TEST_CASE("the streamed sum of the mutants is right", "[finish]") { REQUIRE_FALSE(isCaught({})); }

TEST_CASE("faults in sums of pieces are caught", "[finish]") {
  SECTION("the counter of one piece is left as it is") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (simt::StoreOp op : findOps<simt::StoreOp>(m, isReset)) {
        OpBuilder b(op);
        Value counter = simt::LoadOp::create(b, op.getLoc(), b.getI32Type(), op.getAddress());
        Value kept = arith::SelectOp::create(b, op.getLoc(), isPieceOne(op), counter, op.getValue());
        op.getValueMutable().assign(kept);
      }
    }));
  }
  SECTION("nobody counts one piece") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (simt::AtomicOp op : findOps<simt::AtomicOp>(m, isArrival)) {
        OpBuilder b(op);
        Value none = constantBefore(op, 0);
        Value added = arith::SelectOp::create(b, op.getLoc(), isPieceOne(op), none, op.getValue());
        op.getValueMutable().assign(added);
      }
    }));
  }
  SECTION("an arrival that releases nothing") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (simt::AtomicOp op : findOps<simt::AtomicOp>(m, isArrival))
        op.setOrdering(simt::Ordering::Relaxed);
    }));
  }
  SECTION("an arrival for the CTA alone") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (simt::AtomicOp op : findOps<simt::AtomicOp>(m, isArrival))
        op.setScope(simt::Scope::Cta);
    }));
  }
  SECTION("the last to arrive acquires nothing") {
    REQUIRE(isCaught([](ModuleOp m) {
      eraseOps<simt::FenceOp>(m, [](simt::FenceOp op) { return op.getScope() == simt::Scope::Gpu; });
    }));
  }
  SECTION("warps store before all have their rows") {
    REQUIRE(isCaught([](ModuleOp m) {
      // The barrier before the stores to the workspace.
      auto isFirst = [](simt::BarrierOp op) {
        bool stores = false;
        for (Operation *next = op->getNextNode(); next && !isa<simt::BarrierOp>(next);
             next = next->getNextNode())
          next->walk([&](simt::StoreOp store) {
            stores |= cast<simt::PtrType>(store.getAddress().getType()).isGlobal() &&
                      isa<VectorType>(store.getValue().getType());
          });
        return stores && op->getParentOfType<scf::ForOp>();
      };
      eraseOps<simt::BarrierOp>(m, isFirst);
    }));
  }
  SECTION("the arrival does not wait for all stores") {
    REQUIRE(isCaught([](ModuleOp m) {
      auto isSecond = [](simt::BarrierOp op) {
        for (Operation *next = op->getNextNode(); next && !isa<simt::BarrierOp>(next);
             next = next->getNextNode())
          if (next->walk([](simt::AtomicOp a) {
                    return isArrival(a) ? WalkResult::interrupt() : WalkResult::advance();
                  })
                  .wasInterrupted())
            return true;
        return false;
      };
      eraseOps<simt::BarrierOp>(m, isSecond);
    }));
  }
  SECTION("the producer begins with another piece than the consumers") {
    REQUIRE(isCaught([](ModuleOp m) {
      auto rotates = [](arith::RemUIOp op) {
        return isConstant(op.getRhs(), 4) && op.getLhs().getDefiningOp<arith::AddIOp>();
      };
      auto pieces = findOps<arith::RemUIOp>(m, rotates);
      REQUIRE(pieces.size() == 2);
      OpBuilder b(pieces[0]);
      pieces[0].setOperand(
          0, arith::AddIOp::create(b, pieces[0].getLoc(), pieces[0].getLhs(), constantBefore(pieces[0], 1)));
    }));
  }
}

/// Whether it is caught in a sum for which clusters wait.
static bool isCaughtWaiting(const Mutation &mutate) { return isCaught(mutate, {1, 4, 1, 128, 3, true, 2}); }

TEST_CASE("the awaited sum of the mutants is right", "[finish]") { REQUIRE_FALSE(isCaughtWaiting({})); }

TEST_CASE("faults in sums for which clusters wait are caught", "[finish]") {
  SECTION("words are left as they are") {
    REQUIRE(isCaughtWaiting([](ModuleOp m) {
      eraseOps<simt::StoreOp>(m, [](simt::StoreOp op) {
        return cast<simt::PtrType>(op.getAddress().getType()).isGlobal() &&
               op->getBlock()->getOps<simt::AwaitWordsOp>().begin() !=
                   op->getBlock()->getOps<simt::AwaitWordsOp>().end();
      });
    }));
  }
  SECTION("words are read without waiting") {
    REQUIRE(isCaughtWaiting([](ModuleOp m) {
      for (simt::AwaitWordsOp op : findOps<simt::AwaitWordsOp>(m)) {
        OpBuilder b(op);
        for (auto [address, result] : llvm::zip(op.getAddresses(), op.getResults()))
          result.replaceAllUsesWith(
              simt::LoadOp::create(b, op.getLoc(), result.getType(), address).getResult());
        op.erase();
      }
    }));
  }
  SECTION("stores that need a release to be seen") {
    REQUIRE(isCaughtWaiting([](ModuleOp m) {
      for (simt::StoreRelaxedOp op : findOps<simt::StoreRelaxedOp>(m)) {
        OpBuilder b(op);
        simt::StoreOp::create(b, op.getLoc(), op.getValue(), op.getAddress());
        op.erase();
      }
    }));
  }
  SECTION("zeros are stored as they are") {
    REQUIRE(isCaughtWaiting([](ModuleOp m) {
      for (simt::StoreRelaxedOp op : findOps<simt::StoreRelaxedOp>(m)) {
        OpBuilder b(op);
        Type type = op.getValue().getType();
        Value ones = arith::ConstantOp::create(b, op.getLoc(),
                                               DenseElementsAttr::get(cast<ShapedType>(type), int32_t(0)));
        op.getValueMutable().assign(ones);
      }
    }));
  }
  SECTION("sums of batches are added before all are there") {
    REQUIRE(isCaughtWaiting([](ModuleOp m) {
      // The barrier behind the wait.
      eraseOps<simt::BarrierOp>(m, [](simt::BarrierOp op) {
        Operation *before = op->getPrevNode();
        return before &&
               before->walk([](simt::AwaitWordsOp) { return WalkResult::interrupt(); }).wasInterrupted();
      });
    }));
  }
  SECTION("another share is finished") {
    REQUIRE(isCaughtWaiting([](ModuleOp m) {
      for (simt::AwaitWordsOp op : findOps<simt::AwaitWordsOp>(m)) {
        auto loop = op->getParentOfType<scf::ForOp>();
        loop.getLowerBoundMutable().assign(constantBefore(loop, 1));
      }
    }));
  }
  SECTION("clusters wait before all have started") {
    auto mutate = [](ModuleOp m) {
      auto asks = [](arith::CmpIOp op) {
        auto started = op.getLhs().getDefiningOp<arith::ShRUIOp>();
        return started && isConstant(started.getRhs(), 16);
      };
      for (arith::CmpIOp op : findOps<arith::CmpIOp>(m, asks))
        op.setOperand(1, op.getLhs());
    };
    KernelRun run(kernelOf(64, 4, {1, 4, 1, 128, 3, true, 2}), mutate);
    fill(run, 64, 4, 1);
    auto report = run.launch(1, 1, 4);
    REQUIRE(reported({report}, emu::FindingKind::Deadlock));
    REQUIRE_THAT(textOf(report), Catch::Contains("for words that nobody has written"));
  }
  SECTION("the cluster that starts last leaves the shares of others") {
    auto mutate = [](ModuleOp m) {
      auto isMask = [](arith::SubIOp op) {
        auto shift = op.getLhs().getDefiningOp<arith::ShLIOp>();
        return shift && isConstant(shift.getLhs(), 1) && isConstant(op.getRhs(), 1);
      };
      for (arith::SubIOp op : findOps<arith::SubIOp>(m, isMask))
        op.replaceAllUsesWith(constantBefore(op, 0));
    };
    REQUIRE(isCaughtWaiting(mutate));
  }
  SECTION("nobody clears the counts") {
    REQUIRE(isCaughtWaiting([](ModuleOp m) { eraseOps<simt::StoreOp>(m, isReset); }));
  }
}
