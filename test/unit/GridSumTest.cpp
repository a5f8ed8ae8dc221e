//===- GridSumTest.cpp - The order of sums over the grid -----------------------------===//
#include "dialects/attn/Elements.h"
#include "test/unit/KernelHarness.h"
#include "llvm/Support/raw_ostream.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <random>

using namespace cfc;
using namespace cfc::test;

/// The sum of `n` floats by the left-balanced tree: the left part is the largest power of two below n.
static float treeSum(const float *x, int n) {
  if (n == 1)
    return x[0];
  int left = 1;
  while (2 * left < n)
    left *= 2;
  return treeSum(x, left) + treeSum(x + left, n - left);
}

// Few items are merged by code without a loop, many by a loop: the order is the same.
TEST_CASE("sums over items have the order of the tree, whatever their number", "[kernel]") {
  int items = GENERATE(1, 2, 7, 64, 65, 100, 127, 128);
  CAPTURE(items);
  KernelRun run(fmt::format(R"(
kernel.func @sum(%x: memref<{1}xf16>, %w: memref<8x{1}xf16>, %y: memref<8xf32>) axes(item = {0} @grid, part = 2 @cta) plan() {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<{1}xf16> -> !kernel.tile<8xf16>
    %s = kernel.load %w rows [8] columns at %i : memref<8x{1}xf16> -> !kernel.stream<8x8xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<8x8xf16>, !kernel.tile<8xf16> -> !kernel.tile<8xf32, item: partial(sum)>
    kernel.finish %m over item by ordered : !kernel.tile<8xf32, item: partial(sum)> as %sum: !kernel.tile<8xf32> {{
      kernel.write %sum, %y : !kernel.tile<8xf32>, memref<8xf32>
    }}
  }}
  kernel.return
}})",
                            items, items * 8));
  // One product an item, exact in f32; its size differs so much between items that every order has its own
  // bits.
  std::mt19937_64 engine(items);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> x(items * 8), w(8 * items * 8);
  for (int i = 0; i < items; ++i)
    x[i * 8 + i % 8] = roundTo(ElementKind::F16, uniform(engine) * (i % 3 ? 1 : 1000));
  for (double &v : w)
    v = roundTo(ElementKind::F16, uniform(engine));
  run.set("x", x);
  run.set("w", w);
  std::vector<double> want(8);
  for (int row = 0; row < 8; ++row) {
    std::vector<float> products(items);
    for (int i = 0; i < items; ++i)
      products[i] = float(x[i * 8 + i % 8]) * float(w[row * items * 8 + i * 8 + i % 8]);
    want[row] = treeSum(products.data(), items);
  }
  for (uint64_t seed = 0; seed < 2; ++seed) {
    auto report = run.launch(seed);
    std::string text;
    llvm::raw_string_ostream stream(text);
    report.print(stream);
    INFO(text);
    REQUIRE(report.ok);
    REQUIRE(run.get("y") == want);
    REQUIRE(run.workspaceIsReady());
  }
}
