//===- GridSumTest.cpp - The order of sums over the grid -----------------------------===//
#include "test/unit/KernelHarness.h"
#include "test/unit/KernelValues.h"
#include "llvm/Support/raw_ostream.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;

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

TEST_CASE("what items have is collected by the last to arrive, in the order of items", "[kernel]") {
  int items = GENERATE(1, 5, 33), elements = GENERATE(6, 64);
  std::string type = GENERATE("f16", "f32");
  CAPTURE(items, elements, type);
  KernelRun run(fmt::format(R"(
kernel.func @collect(%x: memref<{0}x{1}x{2}>, %y: memref<{3}xf32>, %n: memref<1xf32>)
    axes(item = {0} @grid, part = 2 @cta) plan() {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<{0}x{1}x{2}> -> !kernel.tile<{1}x{2}, part: split(0)>
    %g = kernel.exchange gather %t over "part" by push : !kernel.tile<{1}x{2}, part: split(0)> -> !kernel.tile<{1}x{2}>
    kernel.finish gather %g over item by ordered : !kernel.tile<{1}x{2}> as %all: !kernel.tile<{3}x{2}> {{
      %s = kernel.fold add %all : !kernel.tile<{3}x{2}> -> !kernel.tile<1xf32>
      kernel.write %all, %y : !kernel.tile<{3}x{2}>, memref<{3}xf32>
      kernel.write %s, %n : !kernel.tile<1xf32>, memref<1xf32>
    }}
  }}
  kernel.return
}})",
                            items, elements, type, items * elements));
  std::vector<double> x(items * elements);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i)
    sum += x[i] = double(i * 37 % 101) - 40;
  run.set("x", x);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.get("y") == x);
    REQUIRE(run.get("n")[0] == sum);
    REQUIRE(run.workspaceIsReady());
  }
}

TEST_CASE("the largest and the sum of all items over the grid", "[kernel]") {
  int items = GENERATE(1, 7, 100);
  CAPTURE(items);
  KernelRun run(fmt::format(R"(
kernel.func @largest(%x: memref<{0}x48xf32>, %top: memref<1xf32>, %all: memref<1xf32>)
    axes(item = {0} @grid, part = 4 @cta) plan() {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<{0}x48xf32> -> !kernel.tile<48xf32, part: split(0)>
    %m = kernel.fold max %t : !kernel.tile<48xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(max), item: partial(max)>
    %c = kernel.exchange reduce %m over "part" by async : !kernel.tile<1xf32, part: partial(max), item: partial(max)> -> !kernel.tile<1xf32, item: partial(max)>
    kernel.finish %c over item by ordered : !kernel.tile<1xf32, item: partial(max)> as %r: !kernel.tile<1xf32> {{
      kernel.write %r, %top : !kernel.tile<1xf32>, memref<1xf32>
    }}
    %f = kernel.fold add %t : !kernel.tile<48xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum), item: partial(sum)>
    %d = kernel.exchange reduce %f over "part" by push : !kernel.tile<1xf32, part: partial(sum), item: partial(sum)> -> !kernel.tile<1xf32, item: partial(sum)>
    kernel.finish %d over item by atomic : !kernel.tile<1xf32, item: partial(sum)> as %s: !kernel.tile<1xf32> {{
      kernel.write %s, %all : !kernel.tile<1xf32>, memref<1xf32>
    }}
  }}
  kernel.return
}})",
                            items));
  for (int largest : {0, items / 2, items - 1}) { // negative numbers, so that a 0 from nowhere would win
    std::vector<double> x(items * 48);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = -10.0 - double(i % 7);
    x[largest * 48 + 37] = -3;
    for (double v : x)
      sum += v;
    run.set("x", x);
    auto report = run.launch(largest);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.get("top")[0] == -3);
    REQUIRE(run.get("all")[0] == sum);
    REQUIRE(run.workspaceIsReady());
  }
}
