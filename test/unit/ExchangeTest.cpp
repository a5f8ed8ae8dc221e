//===- ExchangeTest.cpp - Exchanges over cta and grid axes on the emulator -----------===//
#include "test/unit/KernelHarness.h"
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <functional>
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
  std::string algorithm = GENERATE("push", "butterfly", "async");
  std::string type = GENERATE("f32", "f16");
  if (type == "f16" && (n == 16 || algorithm == "async"))
    return; // 2^16 - 1 is no f16, and async stores move 4 bytes
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
    int rounds = n == 1 ? 0 : algorithm != "butterfly" ? 1 : std::lround(std::log2(n));
    int payloads = algorithm != "butterfly" ? n - 1 : rounds;
    REQUIRE(report.counters.max(emu::Counter::ClusterWaits) == uint64_t(rounds));
    uint64_t bytes = type == "f32" ? 4 : 2;
    REQUIRE(report.counters.max(emu::Counter::RemoteStoreBytes) == payloads * bytes);
    REQUIRE(report.counters.max(emu::Counter::RemoteArrives) ==
            uint64_t(algorithm == "async" ? 0 : payloads));
  }
}

TEST_CASE("a max gives the largest part of all ranks", "[exchange]") {
  int n = GENERATE(1, 2, 4, 8, 16);
  std::string algorithm = GENERATE("push", "butterfly", "async");
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
  std::string algorithm = GENERATE("push", "butterfly", "bulk", "async");
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

/// Runs by several seeds; `check` after each.
static void runSeeds(KernelRun &run, int seeds, const std::function<void(const emu::Report &)> &check) {
  for (int seed = 0; seed < seeds; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    check(report);
  }
}

TEST_CASE("large parts are gathered in pieces, in each round of a loop", "[exchange]") {
  int n = GENERATE(2, 4), warps = GENERATE(4, 8);
  std::string algorithm = GENERATE("push", "butterfly", "bulk", "async");
  CAPTURE(n, warps, algorithm);
  // 1250 words of 16 bytes a rank: whole batches of all threads, some more words, and a part of the threads.
  int elements = 10000 * n;
  KernelRun run(fmt::format(R"(
kernel.func @gather(%x: memref<3x{0}xf16>, %y: memref<3x{0}xf16>)
    axes(item = 3 @grid, part = {1} @cta, warp = {2} @warp) plan() {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<3x{0}xf16> -> !kernel.tile<{0}xf16, part: split(0)>
    %g = kernel.exchange gather %t over "part" by {3} : !kernel.tile<{0}xf16, part: split(0)> -> !kernel.tile<{0}xf16>
    kernel.write %g, %y at %i : !kernel.tile<{0}xf16>, memref<3x{0}xf16>
  }}
  kernel.return
}})",
                            elements, n, warps, algorithm));
  std::vector<double> x(3 * elements);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = double(i % 2039);
  run.set("x", x);
  runSeeds(run, 2, [&](const emu::Report &report) {
    REQUIRE(run.get("y") == x);
    uint64_t once = uint64_t(n - 1) * 20000; // to all peers, in one to three rounds
    REQUIRE((report.counters.max(emu::Counter::RemoteStoreBytes) +
             report.counters.max(emu::Counter::BulkPushBytes)) %
                once ==
            0);
    if (algorithm == "bulk") // of at most 4 KB
      REQUIRE(report.counters.max(emu::Counter::BulkPushes) * 4096 >=
              report.counters.max(emu::Counter::BulkPushBytes));
  });
}

/// Sum of `parts` by the left-balanced tree, in f32.
static float treeSum(std::vector<float> parts) {
  for (; parts.size() > 1; parts.resize(parts.size() / 2))
    for (size_t i = 0; i < parts.size() / 2; ++i)
      parts[i] = parts[2 * i] + parts[2 * i + 1];
  return parts.front();
}

TEST_CASE("a reduce of many elements has one order of sums, whatever the algorithm", "[exchange]") {
  int n = GENERATE(1, 2, 4, 8, 16), warps = GENERATE(4, 8), rows = GENERATE(48, 1040);
  std::string algorithm = GENERATE("push", "butterfly", "bulk", "async", "scatter");
  CAPTURE(n, warps, rows, algorithm);
  int columns = 16 * n;
  KernelRun run(fmt::format(R"(
kernel.func @reduce(%x: memref<3x{0}xf16>, %w: memref<{1}x{0}xf16>, %y: memref<3x{1}xf32>)
    axes(item = 3 @grid, part = {2} @cta, warp = {3} @warp) plan(ring_stages = 2) {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<3x{0}xf16> -> !kernel.tile<{0}xf16>
    %s = kernel.load %w rows [{1}] : memref<{1}x{0}xf16> -> !kernel.stream<{1}x{0}xf16, part: split(1)>
    %m = kernel.matmul %s, %t slots {2} : !kernel.stream<{1}x{0}xf16, part: split(1)>, !kernel.tile<{0}xf16> -> !kernel.tile<{1}xf32, part: partial(sum)>
    %r = kernel.exchange reduce %m over "part" by {4} : !kernel.tile<{1}xf32, part: partial(sum)> -> !kernel.tile<{1}xf32>
    kernel.write %r, %y at %i : !kernel.tile<{1}xf32>, memref<3x{1}xf32>
  }}
  kernel.return
}})",
                            columns, rows, n, warps, algorithm));
  std::vector<double> x(3 * columns), w(rows * columns), want;
  for (int item = 0; item < 3; ++item)
    for (int r = 0; r < n; ++r)
      x[item * columns + 16 * r] = 1 + r * 0.125 + item;
  for (int row = 0; row < rows; ++row)
    for (int r = 0; r < n; ++r)
      w[row * columns + 16 * r] = std::ldexp((row * 7 + r * 13) % 29 - 14, r % 3 * 5 - 10);
  for (int item = 0; item < 3; ++item)
    for (int row = 0; row < rows; ++row) {
      std::vector<float> parts(n);
      for (int r = 0; r < n; ++r)
        parts[r] = w[row * columns + 16 * r] * x[item * columns + 16 * r];
      want.push_back(treeSum(parts));
    }
  run.set("x", x);
  run.set("w", w);
  runSeeds(run, 3, [&](const emu::Report &report) {
    REQUIRE(run.get("y") == want);
    if (algorithm == "scatter") // two parts to each peer, in each of one to three items
      REQUIRE(report.counters.max(emu::Counter::RemoteStoreBytes) % (2 * (n - 1) * rows / n * 4 + (n == 1)) ==
              0);
  });
}

TEST_CASE("a reduce_scatter gives each rank its rows of the sum, in one order whatever the algorithm",
          "[exchange]") {
  int n = GENERATE(1, 2, 4, 8, 16), warps = GENERATE(4, 8);
  std::string algorithm = GENERATE("push", "butterfly", "bulk", "async");
  bool thenGather = GENERATE(false, true); // a reduce is a reduce_scatter and a gather
  // 12 rows or more a rank, not a multiple of a warp's words; several pieces for a peer.
  int rows = GENERATE(192, 4224), columns = 16 * n;
  if (rows > 192 && (n == 1 || n > 4 || warps == 8))
    return;
  CAPTURE(n, warps, rows, algorithm, thenGather);
  KernelRun run(fmt::format(R"(
kernel.func @scatter(%x: memref<{0}xf16>, %w: memref<{1}x{0}xf16>, %y: memref<3x{1}xf32>)
    axes(item = 3 @grid, part = {2} @cta, warp = {3} @warp) plan(ring_stages = 2) {{
  %t = kernel.read %x : memref<{0}xf16> -> !kernel.tile<{0}xf16>
  kernel.for_items %i over item {{
    %s = kernel.load %w rows [{1}] : memref<{1}x{0}xf16> -> !kernel.stream<{1}x{0}xf16, part: split(1)>
    %m = kernel.matmul %s, %t slots {2} : !kernel.stream<{1}x{0}xf16, part: split(1)>, !kernel.tile<{0}xf16> -> !kernel.tile<{1}xf32, part: partial(sum)>
    %r = kernel.exchange reduce_scatter %m over "part" by {4} : !kernel.tile<{1}xf32, part: partial(sum)> -> !kernel.tile<{1}xf32, part: split(0)>
    {5}
  }}
  kernel.return
}})",
                            columns, rows, n, warps, algorithm,
                            thenGather ? fmt::format(R"(
    %g = kernel.exchange gather %r over "part" by {1} : !kernel.tile<{0}xf32, part: split(0)> -> !kernel.tile<{0}xf32>
    kernel.write %g, %y at %i : !kernel.tile<{0}xf32>, memref<3x{0}xf32>)",
                                                     rows, algorithm)
                                       : fmt::format(R"(
    kernel.write %r, %y at %i : !kernel.tile<{0}xf32, part: split(0)>, memref<3x{0}xf32>)",
                                                     rows)));
  // One number for each rank, so that a rank's summand is one product; none is exact in a sum with the
  // others.
  std::vector<double> x(columns), w(rows * columns), want;
  for (int r = 0; r < n; ++r)
    x[16 * r] = 1 + r * 0.125;
  for (int row = 0; row < rows; ++row) {
    std::vector<float> parts(n);
    for (int r = 0; r < n; ++r) {
      w[row * columns + 16 * r] = std::ldexp((row * 7 + r * 13) % 29 - 14, r % 3 * 5 - 10);
      parts[r] = w[row * columns + 16 * r] * x[16 * r];
    }
    want.push_back(treeSum(parts));
  }
  std::vector<double> all;
  for (int i = 0; i < 3; ++i)
    all.insert(all.end(), want.begin(), want.end());
  run.set("x", x);
  run.set("w", w);
  runSeeds(run, 3, [&](const emu::Report &) { REQUIRE(run.get("y") == all); });
}

TEST_CASE("an all_to_all turns rows into columns, and back", "[exchange]") {
  int n = GENERATE(1, 2, 4, 8, 16);
  std::string algorithm = GENERATE("push", "bulk", "async"), type = GENERATE("f16", "f32");
  // A CTA sends 3 runs of 16 or 32 bytes to another, or 33 of 80 or 160.
  int across = GENERATE(3, 33), along = across == 3 ? 8 : 40;
  if (across > 3 && n != 4)
    return;
  CAPTURE(n, algorithm, type, across);
  int rows = across * n, columns = along * n;
  KernelRun run(fmt::format(R"(
kernel.func @turn(%x: memref<2x{0}x{1}x{2}>, %scale: memref<{0}x{1}xf32>, %y: memref<2x{0}x{1}x{2}>, %z: memref<2x{0}x{1}xf32>)
    axes(item = 2 @grid, part = {3} @cta) plan() {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<2x{0}x{1}x{2}> -> !kernel.tile<{0}x{1}x{2}, part: split(0)>
    %c = kernel.exchange all_to_all %t over "part" by {4} : !kernel.tile<{0}x{1}x{2}, part: split(0)> -> !kernel.tile<{0}x{1}x{2}, part: split(1)>
    %s = kernel.read %scale : memref<{0}x{1}xf32> -> !kernel.tile<{0}x{1}xf32, part: split(1)>
    %p = kernel.elementwise mul %c, %s : !kernel.tile<{0}x{1}x{2}, part: split(1)>, !kernel.tile<{0}x{1}xf32, part: split(1)> -> !kernel.tile<{0}x{1}x{2}, part: split(1)>
    kernel.write %p, %z at %i : !kernel.tile<{0}x{1}x{2}, part: split(1)>, memref<2x{0}x{1}xf32>
    %b = kernel.exchange all_to_all %p over "part" by {4} : !kernel.tile<{0}x{1}x{2}, part: split(1)> -> !kernel.tile<{0}x{1}x{2}, part: split(0)>
    kernel.write %b, %y at %i : !kernel.tile<{0}x{1}x{2}, part: split(0)>, memref<2x{0}x{1}x{2}>
  }}
  kernel.return
}})",
                            rows, columns, type, n, algorithm));
  std::vector<double> x(2 * rows * columns), scale(rows * columns), want(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = double(i % 509) - 250;
  for (size_t i = 0; i < scale.size(); ++i)
    scale[i] = i % 2 ? 1 : -2;
  for (size_t i = 0; i < x.size(); ++i)
    want[i] = x[i] * scale[i % scale.size()];
  run.set("x", x);
  run.set("scale", scale);
  runSeeds(run, 4, [&](const emu::Report &report) {
    REQUIRE(run.get("z") == want);
    REQUIRE(run.get("y") == want);
    uint64_t sent =
        4 * uint64_t(n - 1) * across * along * (type == "f32" ? 4 : 2); // a CTA, if it runs both items
    uint64_t bytes = report.counters.max(emu::Counter::RemoteStoreBytes) +
                     report.counters.max(emu::Counter::BulkPushBytes);
    REQUIRE((bytes == sent || 2 * bytes == sent));
  });
}

TEST_CASE("exchanges over two axes of a cluster", "[exchange]") {
  std::string first = GENERATE("push", "butterfly", "async"), second = GENERATE("push", "butterfly", "async");
  CAPTURE(first, second);
  // The sum over row and column: scattered over both, gathered over both, and reduced over both.
  KernelRun run(fmt::format(R"(
kernel.func @mesh(%x: memref<128xf16>, %w: memref<48x128xf16>, %y: memref<48xf32>, %z: memref<48xf32>)
    axes(row = 2 @cta, column = 4 @cta, warp = 4 @warp) plan(ring_stages = 2) {{
  %t = kernel.read %x : memref<128xf16> -> !kernel.tile<128xf16>
  %s = kernel.load %w rows [48] : memref<48x128xf16> -> !kernel.stream<48x128xf16, row: split(1), column: split(1)>
  %m = kernel.matmul %s, %t slots 8 : !kernel.stream<48x128xf16, row: split(1), column: split(1)>, !kernel.tile<128xf16> -> !kernel.tile<48xf32, row: partial(sum), column: partial(sum)>
  %a = kernel.exchange reduce_scatter %m over "column" by {0} : !kernel.tile<48xf32, row: partial(sum), column: partial(sum)> -> !kernel.tile<48xf32, row: partial(sum), column: split(0)>
  %b = kernel.exchange reduce_scatter %a over "row" by {1} : !kernel.tile<48xf32, row: partial(sum), column: split(0)> -> !kernel.tile<48xf32, column: split(0), row: split(0)>
  %c = kernel.exchange gather %b over "row" by {0} : !kernel.tile<48xf32, column: split(0), row: split(0)> -> !kernel.tile<48xf32, column: split(0)>
  %d = kernel.exchange gather %c over "column" by {1} : !kernel.tile<48xf32, column: split(0)> -> !kernel.tile<48xf32>
  kernel.write %d, %y : !kernel.tile<48xf32>, memref<48xf32>
  %e = kernel.exchange reduce %a over "row" by {0} : !kernel.tile<48xf32, row: partial(sum), column: split(0)> -> !kernel.tile<48xf32, column: split(0)>
  kernel.write %e, %z : !kernel.tile<48xf32, column: split(0)>, memref<48xf32>
  kernel.return
}})",
                            first, second));
  std::vector<double> x(128), w(48 * 128), want(48);
  for (int i = 0; i < 128; ++i)
    x[i] = (i % 7 - 3) * 0.25;
  for (int r = 0; r < 48; ++r)
    for (int i = 0; i < 128; ++i) {
      w[r * 128 + i] = ((r * 5 + i * 3) % 11 - 5) * 0.125;
      want[r] += w[r * 128 + i] * x[i];
    }
  run.set("x", x);
  run.set("w", w);
  runSeeds(run, 3, [&](const emu::Report &) {
    REQUIRE(run.get("y") == want);
    REQUIRE(run.get("z") == want);
  });
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
