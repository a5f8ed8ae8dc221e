//===- ExchangeMutantTest.cpp - Faulty exchanges are caught --------------------------===//
//
// The lowering of a kernel with one fault in what it makes of its exchanges. The
// emulator must report it, or the values be wrong, for one of 20 seeds.
//
//===----------------------------------------------------------------------===//
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "test/unit/KernelHarness.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;
using mlir::ModuleOp;

namespace {

/// In each of 4 items: a gather, a reduce and a reduce_scatter over 4 CTAs. Inputs are small integers.
std::string kernelOf(const std::string &algorithm) {
  return fmt::format(R"(
kernel.func @exchanges(%x: memref<4x128xf32>, %y: memref<4x128xf32>, %z: memref<4x128xf32>, %s: memref<4xf32>)
    axes(item = 4 @grid, part = 4 @cta, warp = 4 @warp) plan() {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<4x128xf32> -> !kernel.tile<128xf32, part: split(0)>
    %g = kernel.exchange gather %t over "part" by {0} : !kernel.tile<128xf32, part: split(0)> -> !kernel.tile<128xf32>
    kernel.write %g, %y at %i : !kernel.tile<128xf32>, memref<4x128xf32>
    %f = kernel.fold add %t : !kernel.tile<128xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
    %r = kernel.exchange reduce %f over "part" by {1} : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1xf32>
    kernel.write %r, %s at %i : !kernel.tile<1xf32>, memref<4xf32>
    %p = kernel.read %x at %i : memref<4x128xf32> -> !kernel.tile<128xf32, part: split(0)>
    %d = kernel.elementwise add %p, %t : !kernel.tile<128xf32, part: split(0)>, !kernel.tile<128xf32, part: split(0)> -> !kernel.tile<128xf32, part: split(0)>
    %e = kernel.exchange gather %d over "part" by {0} : !kernel.tile<128xf32, part: split(0)> -> !kernel.tile<128xf32>
    %h = kernel.elementwise add %g, %g : !kernel.tile<128xf32>, !kernel.tile<128xf32> -> !kernel.tile<128xf32>
    %a = kernel.elementwise add %e, %h : !kernel.tile<128xf32>, !kernel.tile<128xf32> -> !kernel.tile<128xf32>
    kernel.write %a, %z at %i : !kernel.tile<128xf32>, memref<4x128xf32>
  }}
  kernel.return
}})",
                     algorithm, algorithm == "bulk" ? "push" : algorithm);
}

/// Whether one of `seeds` runs shows a fault.
bool isCaught(const std::string &text, const std::function<void(ModuleOp)> &mutate, int seeds) {
  KernelRun run(text, mutate);
  for (int seed = 1; seed <= seeds; ++seed) {
    // Other numbers for each run, so that those of the last one are wrong.
    std::vector<double> x(4 * 128), z(x.size()), sums(4);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = double((i + seed) * 29 % 97), z[i] = 4 * x[i], sums[i / 128] += x[i];
    run.set("x", x);
    if (!run.launch(seed).ok || run.get("y") != x || run.get("z") != z || run.get("s") != sums ||
        !run.workspaceIsReady())
      return true;
  }
  return false;
}

template <typename Op> void eraseIf(ModuleOp module, bool (*which)(Op) = [](Op) { return true; }) {
  std::vector<Op> found;
  module.walk([&](Op op) {
    if (which(op))
      found.push_back(op);
  });
  REQUIRE(!found.empty());
  for (Op op : found)
    op.erase();
}

/// The wait for peers that are done with the last round asks for the other parity.
bool isForUse(simt::MbarrierWaitOp op) {
  return op.getParity().getDefiningOp<mlir::arith::XOrIOp>() != nullptr;
}

/// Changes every constant operand that `operand` gives by `change`, where the result is positive.
template <typename Op> void changeConstants(ModuleOp module, mlir::Value (*operand)(Op), int (*change)(int)) {
  module.walk([&](Op op) {
    llvm::APInt value;
    if (!mlir::matchPattern(operand(op), mlir::m_ConstantInt(&value)) || change(value.getSExtValue()) < 1)
      return;
    mlir::OpBuilder b(op);
    mlir::Value changed =
        mlir::arith::ConstantOp::create(b, op.getLoc(), b.getI32IntegerAttr(change(value.getSExtValue())));
    op->replaceUsesOfWith(operand(op), changed);
  });
}

mlir::Value countOf(simt::MbarrierInitOp op) { return op.getCount(); }
mlir::Value bytesOf(simt::MbarrierExpectOp op) { return op.getBytes(); }

} // namespace

TEST_CASE("the kernel of the mutants is right", "[exchange]") {
  std::string algorithm = GENERATE("push", "async", "butterfly", "bulk");
  CAPTURE(algorithm);
  REQUIRE_FALSE(isCaught(kernelOf(algorithm), {}, 20));
}

TEST_CASE("faults in barriers of exchanges are caught", "[exchange]") {
  std::string algorithm = GENERATE("push", "async", "butterfly", "bulk");
  CAPTURE(algorithm);
  auto caught = [&](const std::function<void(ModuleOp)> &mutate) {
    return isCaught(kernelOf(algorithm), mutate, 20);
  };
  SECTION("no wait for what peers send") {
    REQUIRE(caught([](ModuleOp m) {
      eraseIf<simt::MbarrierWaitOp>(m, [](simt::MbarrierWaitOp op) { return !isForUse(op); });
    }));
  }
  SECTION("no wait until peers are done with the last round") {
    REQUIRE(caught([](ModuleOp m) { eraseIf<simt::MbarrierWaitOp>(m, isForUse); }));
  }
  SECTION("an arrival too many expected") {
    REQUIRE(caught(
        [](ModuleOp m) { changeConstants<simt::MbarrierInitOp>(m, countOf, [](int n) { return n + 1; }); }));
  }
  SECTION("an arrival too few expected") {
    REQUIRE(caught(
        [](ModuleOp m) { changeConstants<simt::MbarrierInitOp>(m, countOf, [](int n) { return n - 1; }); }));
  }
  SECTION("nobody says that it is done") {
    if (algorithm == "push" || algorithm == "butterfly")
      return; // all of their arrivals would go
    REQUIRE(caught([](ModuleOp m) { eraseIf<simt::MbarrierArriveOp>(m); }));
  }
  SECTION("no fence where barriers are initialised") {
    REQUIRE(caught([](ModuleOp m) {
      eraseIf<simt::FenceMbarrierInitOp>(m);
      eraseIf<simt::ClusterArriveOp>(m);
      eraseIf<simt::ClusterWaitOp>(m);
    }));
  }
}

TEST_CASE("faults in what a push orders are caught", "[exchange]") {
  std::string algorithm = GENERATE("push", "butterfly");
  CAPTURE(algorithm);
  auto caught = [&](const std::function<void(ModuleOp)> &mutate) {
    return isCaught(kernelOf(algorithm), mutate, 20);
  };
  SECTION("a lane arrives before the others have stored") {
    REQUIRE(caught([](ModuleOp m) { eraseIf<simt::SyncWarpOp>(m); }));
  }
  SECTION("an arrival that releases to its own CTA") {
    REQUIRE(
        caught([](ModuleOp m) { m.walk([](simt::MbarrierArriveOp op) { op.setScope(simt::Scope::Cta); }); }));
  }
  SECTION("a wait that acquires from its own CTA") {
    REQUIRE(
        caught([](ModuleOp m) { m.walk([](simt::MbarrierWaitOp op) { op.setScope(simt::Scope::Cta); }); }));
  }
}

TEST_CASE("faults in what copies and async stores need are caught", "[exchange]") {
  SECTION("nobody expects what is stored") {
    REQUIRE(isCaught(kernelOf("async"), [](ModuleOp m) { eraseIf<simt::MbarrierExpectOp>(m); }, 20));
  }
  SECTION("fewer bytes expected") {
    REQUIRE(isCaught(
        kernelOf("async"),
        [](ModuleOp m) { changeConstants<simt::MbarrierExpectOp>(m, bytesOf, [](int n) { return n - 4; }); },
        20));
  }
  SECTION("a wait of cta scope") {
    REQUIRE(isCaught(
        kernelOf("async"),
        [](ModuleOp m) { m.walk([](simt::MbarrierWaitOp op) { op.setScope(simt::Scope::Cta); }); }, 20));
  }
  SECTION("no fence between stores and copies") {
    REQUIRE(isCaught(kernelOf("bulk"), [](ModuleOp m) { eraseIf<simt::FenceProxyAsyncOp>(m); }, 20));
  }
  SECTION("a copy of what other lanes have not stored yet") {
    REQUIRE(isCaught(kernelOf("bulk"), [](ModuleOp m) { eraseIf<simt::SyncWarpOp>(m); }, 20));
  }
  SECTION("more bytes expected than copied") {
    REQUIRE(isCaught(
        kernelOf("bulk"),
        [](ModuleOp m) { changeConstants<simt::MbarrierExpectOp>(m, bytesOf, [](int n) { return n + 16; }); },
        20));
  }
}

TEST_CASE("faults in what the last CTA collects are caught", "[exchange]") {
  std::string text = R"(
kernel.func @collect(%x: memref<4x128xf32>, %y: memref<4x128xf32>, %z: memref<4x128xf32>, %s: memref<4xf32>)
    axes(item = 4 @grid, warp = 4 @warp) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<4x128xf32> -> !kernel.tile<128xf32>
    %f = kernel.fold add %t : !kernel.tile<128xf32> -> !kernel.tile<1xf32>
    kernel.write %f, %s at %i : !kernel.tile<1xf32>, memref<4xf32>
    %d = kernel.elementwise add %t, %t : !kernel.tile<128xf32>, !kernel.tile<128xf32> -> !kernel.tile<128xf32>
    %q = kernel.elementwise add %d, %d : !kernel.tile<128xf32>, !kernel.tile<128xf32> -> !kernel.tile<128xf32>
    kernel.write %q, %z at %i : !kernel.tile<128xf32>, memref<4x128xf32>
    kernel.finish gather %t over item by ordered : !kernel.tile<128xf32> as %all: !kernel.tile<512xf32> {
      kernel.write %all, %y : !kernel.tile<512xf32>, memref<4x128xf32>
    }
  }
  kernel.return
})";
  REQUIRE_FALSE(isCaught(text, {}, 20));
  SECTION("an arrival that orders nothing") {
    REQUIRE(isCaught(
        text, [](ModuleOp m) { m.walk([](simt::AtomicOp op) { op.setOrdering(simt::Ordering::Relaxed); }); },
        20));
  }
  SECTION("an arrival for the CTA alone") {
    REQUIRE(isCaught(
        text, [](ModuleOp m) { m.walk([](simt::AtomicOp op) { op.setScope(simt::Scope::Cta); }); }, 20));
  }
  SECTION("a counter that the last one leaves as it is") {
    auto zeroes = [](simt::StoreOp op) {
      return mlir::cast<simt::PtrType>(op.getAddress().getType()).isGlobal() &&
             mlir::matchPattern(op.getValue(), mlir::m_Zero());
    };
    REQUIRE(isCaught(text, [&](ModuleOp m) { eraseIf<simt::StoreOp>(m, +zeroes); }, 20));
  }
}
