//===- ExchangeTest.cpp - Exchanges over cta and grid axes on the emulator -----------===//
#include "test/unit/KernelHarness.h"
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace cfc;
using namespace cfc::test;

/// Rank r contributes 2^r in every element: the sum is 2^N - 1 everywhere, and each rank's own bit shows.
static std::string reduceKernel(int n, const std::string &algorithm, const std::string &type, int elements) {
  return fmt::format(R"(
kernel.func @reduce(%x: memref<{0}x{2}>, %y: memref<{0}x{2}>) axes(part = {1} @cta) plan() {{
  %t = kernel.read %x : memref<{0}x{2}> -> !kernel.tile<{1}x{2}, part: split(0)>
  %one = kernel.fold add %t : !kernel.tile<{1}x{2}, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
  %c = kernel.cast %one : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1x{2}, part: partial(sum)>
  %s = kernel.exchange reduce %c over "part" by {3} : !kernel.tile<1x{2}, part: partial(sum)> -> !kernel.tile<1x{2}>
  kernel.write %s, %y : !kernel.tile<1x{2}>, memref<{0}x{2}>
  kernel.return
}})",
                     elements, n, type, algorithm);
}

TEST_CASE("a reduce gives the sum of all ranks", "[exchange]") {
  int n = GENERATE(1, 2, 4, 8, 16);
  std::string algorithm = GENERATE("push", "butterfly");
  std::string type = GENERATE("f32", "f16");
  if (type == "f16" && n == 16)
    return; // 2^16 - 1 is no f16
  CAPTURE(n, algorithm, type);
  KernelRun run(reduceKernel(n, algorithm, type, std::max(n, 16)));
  std::vector<double> x(std::max(n, 16));
  for (int r = 0; r < n; ++r)
    x[r] = std::ldexp(1, r);
  run.set("x", x);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.get("y")[0] == std::ldexp(1, n) - 1);
    int rounds = n == 1 ? 0 : algorithm == "push" ? 1 : std::lround(std::log2(n));
    int payloads = algorithm == "push" ? n - 1 : rounds;
    REQUIRE(report.counters.max(emu::Counter::ClusterWaits) == uint64_t(rounds));
    uint64_t bytes = type == "f32" ? 4 : 2;
    REQUIRE(report.counters.max(emu::Counter::RemoteStoreBytes) == payloads * bytes);
    REQUIRE(report.counters.max(emu::Counter::RemoteArrives) == uint64_t(payloads));
  }
}

TEST_CASE("a max gives the largest part of all ranks", "[exchange]") {
  int n = GENERATE(1, 2, 4, 8, 16);
  std::string algorithm = GENERATE("push", "butterfly");
  CAPTURE(n, algorithm);
  KernelRun run(fmt::format(R"(
kernel.func @max(%x: memref<{0}xf16>, %y: memref<1xf32>) axes(part = {1} @cta) plan() {{
  %t = kernel.read %x : memref<{0}xf16> -> !kernel.tile<{0}xf16, part: split(0)>
  %f = kernel.fold max %t : !kernel.tile<{0}xf16, part: split(0)> -> !kernel.tile<1xf32, part: partial(max)>
  %m = kernel.exchange reduce %f over "part" by {2} : !kernel.tile<1xf32, part: partial(max)> -> !kernel.tile<1xf32>
  kernel.write %m, %y : !kernel.tile<1xf32>, memref<1xf32>
  kernel.return
}})",
                            48 * n, n, algorithm));
  for (int largest = 0; largest < n; ++largest) { // all values negative, so that a 0 from nowhere would win
    std::vector<double> x(48 * n);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = -100.0 - double(i % 7);
    x[48 * largest + 31] = -3;
    run.set("x", x);
    auto report = run.launch(largest);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.get("y")[0] == -3);
  }
}

TEST_CASE("a gather gives the parts of all ranks in order", "[exchange]") {
  int n = GENERATE(1, 2, 4, 8, 16);
  std::string algorithm = GENERATE("push", "butterfly", "bulk");
  CAPTURE(n, algorithm);
  int elements = 40 * 16; // 40 f16 a rank at 16 ranks: no power of two, multiples of 16 bytes
  KernelRun run(fmt::format(R"(
kernel.func @gather(%x: memref<{0}xf16>, %y: memref<{0}xf16>) axes(part = {1} @cta) plan() {{
  %t = kernel.read %x : memref<{0}xf16> -> !kernel.tile<{0}xf16, part: split(0)>
  %g = kernel.exchange gather %t over "part" by {2} : !kernel.tile<{0}xf16, part: split(0)> -> !kernel.tile<{0}xf16>
  %u = kernel.elementwise add %g, %g : !kernel.tile<{0}xf16>, !kernel.tile<{0}xf16> -> !kernel.tile<{0}xf16>
  kernel.write %u, %y : !kernel.tile<{0}xf16>, memref<{0}xf16>
  kernel.return
}})",
                            elements, n, algorithm));
  std::vector<double> x(elements), want(elements);
  for (int i = 0; i < elements; ++i)
    x[i] = i, want[i] = 2 * i;
  run.set("x", x);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.get("y") == want);
    if (algorithm == "push")
      REQUIRE(report.counters.max(emu::Counter::RemoteStoreBytes) == uint64_t(n - 1) * elements / n * 2);
    if (algorithm == "bulk")
      REQUIRE(report.counters.max(emu::Counter::BulkPushes) == uint64_t(n - 1));
  }
}

TEST_CASE("a sum over the grid takes every item once, in any order", "[exchange]") {
  std::string algorithm = GENERATE("ordered", "atomic");
  int items = GENERATE(1, 3, 7, 16);
  CAPTURE(algorithm, items);
  KernelRun run(fmt::format(R"(
kernel.func @columns(%x: memref<{0}xf16>, %w: memref<48x{0}xf16>, %y: memref<48xf32>)
    axes(item = {1} @grid, part = 2 @cta, warp = 4 @warp) plan(ring_stages = 3) {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<{0}xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [48] columns at %i : memref<48x{0}xf16> -> !kernel.stream<48x32xf16, part: split(0)>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<48x32xf16, part: split(0)>, !kernel.tile<32xf16> -> !kernel.tile<48xf32, part: split(0), item: partial(sum)>
    kernel.finish %m over item by {2} : !kernel.tile<48xf32, part: split(0), item: partial(sum)> as %sum: !kernel.tile<48xf32, part: split(0)> {{
      kernel.write %sum, %y : !kernel.tile<48xf32, part: split(0)>, memref<48xf32>
    }}
  }}
  kernel.return
}})",
                            32 * items, items, algorithm));
  int columns = 32 * items;
  std::vector<double> x(columns), w(48 * columns), want(48);
  for (int i = 0; i < columns; ++i)
    x[i] = (i % 7 - 3) * 0.25;
  for (int r = 0; r < 48; ++r)
    for (int i = 0; i < columns; ++i) {
      w[r * columns + i] = ((r * 5 + i * 3) % 11 - 5) * 0.125;
      want[r] += w[r * columns + i] * x[i];
    }
  run.set("x", x);
  run.set("w", w);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.workspaceIsReady());
    REQUIRE(run.get("y") == want); // small integers over 32: every sum is exact
  }
}
