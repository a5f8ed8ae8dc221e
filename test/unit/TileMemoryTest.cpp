//===- TileMemoryTest.cpp - Tiles that share memory, and late readers ---------------===//
//
// Tiles that do not live at the same time share memory. Writing a tile to global
// memory does not end with a barrier, so the next tile in its place must wait.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelHarness.h"
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

using namespace cfc;
using namespace cfc::test;

/// Copies x to `first`, then y to `second`, 512 numbers each, by a kernel with something else between them.
static void checkCopies(const std::string &text, const std::function<void(KernelRun &)> &prepare = {},
                        const std::function<void(KernelRun &)> &check = {}) {
  KernelRun run(text);
  if (prepare)
    prepare(run);
  std::vector<double> x(512), y(512, 7);
  std::iota(x.begin(), x.end(), -256);
  run.set("x", x);
  run.set("y", y);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    auto report = run.launch(seed);
    INFO("seed " << seed << "\n" << textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.get("first") == x);
    REQUIRE(run.get("second") == y);
    if (check)
      check(run);
  }
}

TEST_CASE("a loop waits for what is written before it", "[kernel]") {
  checkCopies(R"(
kernel.func @loop(%x: memref<512xf32>, %y: memref<512xf32>, %first: memref<512xf32>, %second: memref<512xf32>)
    axes(item = 1 @grid) plan() {
  %a = kernel.read %x : memref<512xf32> -> !kernel.tile<512xf32>
  kernel.write %a, %first : !kernel.tile<512xf32>, memref<512xf32>
  kernel.for_items %i over item {
    %c = kernel.read %y at %i : memref<512xf32> -> !kernel.tile<512xf32>
    kernel.write %c, %second at %i : !kernel.tile<512xf32>, memref<512xf32>
  }
  kernel.return
})");
}

TEST_CASE("an exchange over one worker is no barrier", "[kernel]") {
  checkCopies(R"(
kernel.func @one(%x: memref<512xf32>, %y: memref<512xf32>, %first: memref<512xf32>, %second: memref<512xf32>)
    axes(part = 1 @cta) plan() {
  %small = kernel.read %y : memref<512xf32> -> !kernel.tile<1xf32, part: split(0)>
  %a = kernel.read %x : memref<512xf32> -> !kernel.tile<512xf32>
  kernel.write %a, %first : !kernel.tile<512xf32>, memref<512xf32>
  %g = kernel.exchange gather %small over "part" by push : !kernel.tile<1xf32, part: split(0)> -> !kernel.tile<1xf32>
  %c = kernel.read %y : memref<512xf32> -> !kernel.tile<512xf32>
  kernel.write %c, %second : !kernel.tile<512xf32>, memref<512xf32>
  kernel.return
})");
}

// The sum is whole on both CTAs: one of them finishes, the other passes by and must not run ahead into the
// next tile.
TEST_CASE("a CTA that does not finish a sum waits too", "[kernel]") {
  checkCopies(R"(
kernel.func @finish(%x: memref<512xf32>, %y: memref<512xf32>, %v: memref<16xf16>, %w: memref<16x16xf16>, %z: memref<16xf32>,
    %first: memref<512xf32>, %second: memref<512xf32>)
    axes(item = 1 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %v at %i : memref<16xf16> -> !kernel.tile<16xf16>
    %s = kernel.load %w rows [16] columns at %i : memref<16x16xf16> -> !kernel.stream<16x16xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<16x16xf16>, !kernel.tile<16xf16> -> !kernel.tile<16xf32, item: partial(sum)>
    %a = kernel.read %x at %i : memref<512xf32> -> !kernel.tile<512xf32, part: split(0)>
    kernel.write %a, %first at %i : !kernel.tile<512xf32, part: split(0)>, memref<512xf32>
    kernel.finish %m over item by ordered : !kernel.tile<16xf32, item: partial(sum)> as %sum: !kernel.tile<16xf32> {
      kernel.write %sum, %z : !kernel.tile<16xf32>, memref<16xf32>
    }
    %c = kernel.read %y at %i : memref<512xf32> -> !kernel.tile<512xf32, part: split(0)>
    kernel.write %c, %second at %i : !kernel.tile<512xf32, part: split(0)>, memref<512xf32>
  }
  kernel.return
})");
}

// The states that an attend keeps share memory with tiles: not with x, which may still be written when it
// begins, nor with v, which is read before and written behind it.
TEST_CASE("an attend does not write to tiles that are in use", "[kernel]") {
  const char *text = R"(
kernel.func @attend(%x: memref<512xf32>, %y: memref<512xf32>, %q: memref<16xf16>, %c: !kernel.cache<heads = 1, dim = 16, f16>,
    %len: memref<1xi32>, %v: memref<300xf32>, %o: memref<16xf32>, %w: memref<300xf32>, %first: memref<512xf32>, %second: memref<512xf32>)
    axes(head = 1 @grid, warp = 8 @warp) plan() {
  kernel.for_items %h over head {
    %t = kernel.read %q at %h : memref<16xf16> -> !kernel.tile<16xf16>
    %d = kernel.read %v at %h : memref<300xf32> -> !kernel.tile<300xf32>
    %a = kernel.read %x at %h : memref<512xf32> -> !kernel.tile<512xf32>
    kernel.write %a, %first at %h : !kernel.tile<512xf32>, memref<512xf32>
    %kv = kernel.load_cache %c tokens %len at %h bound 256 : !kernel.cache<heads = 1, dim = 16, f16>, memref<1xi32>, !kernel.item -> !kernel.kv_stream<16, f16>
    %p = kernel.attend %t, %kv scale 0.125 : !kernel.tile<16xf16>, !kernel.kv_stream<16, f16> -> !kernel.tile<1x18xf32>
    %b = kernel.read %y at %h : memref<512xf32> -> !kernel.tile<512xf32>
    %n, %l = kernel.normalize %p : !kernel.tile<1x18xf32> -> !kernel.tile<16xf32>, !kernel.tile<1xf32>
    kernel.write %n, %o at %h : !kernel.tile<16xf32>, memref<16xf32>
    kernel.write %b, %second at %h : !kernel.tile<512xf32>, memref<512xf32>
    kernel.write %d, %w at %h : !kernel.tile<300xf32>, memref<300xf32>
  }
  kernel.return
})";
  std::vector<double> ones(256 * 16, 1), v(300);
  std::iota(v.begin(), v.end(), 1);
  auto prepare = [&](KernelRun &run) {
    run.set("q", std::vector<double>(16, 1));
    run.set("c.k", ones);
    run.set("c.v", ones);
    run.set("len", {200});
    run.set("v", v);
  };
  checkCopies(text, prepare, [&](KernelRun &run) {
    REQUIRE(run.get("w") == v);
    REQUIRE(run.get("o") == std::vector<double>(16, 1));
  });
}
