//===- NormTest.cpp - Norms and rotations under many schedules -----------------===//
//
// Sums of squares go through 256 virtual lanes, so a norm's bits do not depend on
// who holds what: registers or loops, any number of warps, operands from memory
// or from a tile.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelHarness.h"
#include "test/unit/KernelValues.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;

namespace {
void launch(KernelRun &run, uint64_t seed) {
  auto report = run.launch(seed);
  INFO(textOf(report));
  REQUIRE(report.ok);
}

/// The ways in which a norm gets its operand.
const char *const kRead = R"(
  %t = kernel.read %x : memref<{0}x{1}> -> !kernel.tile<{0}x{1}>
  %n = kernel.rms_norm %t, %gain eps 1.0e-5 : !kernel.tile<{0}x{1}>, memref<{0}x{2}> -> !kernel.tile<{0}x{3}>
  kernel.write %n, %y : !kernel.tile<{0}x{3}>, memref<{0}xf32>)";
// The tile has another use, so it is there.
const char *const kTile = R"(
  %t = kernel.read %x : memref<{0}x{1}> -> !kernel.tile<{0}x{1}>
  %n = kernel.rms_norm %t, %gain eps 1.0e-5 : !kernel.tile<{0}x{1}>, memref<{0}x{2}> -> !kernel.tile<{0}x{3}>
  kernel.write %n, %y : !kernel.tile<{0}x{3}>, memref<{0}xf32>
  kernel.write %t, %copy : !kernel.tile<{0}x{1}>, memref<{0}xf32>)";
// In a loop over items gains are not loaded ahead.
const char *const kItem = R"(
  kernel.for_items %i over item {{
    %t = kernel.read %x : memref<{0}x{1}> -> !kernel.tile<{0}x{1}>
    %n = kernel.rms_norm %t, %gain eps 1.0e-5 : !kernel.tile<{0}x{1}>, memref<{0}x{2}> -> !kernel.tile<{0}x{3}>
    kernel.write %n, %y at %i : !kernel.tile<{0}x{3}>, memref<{0}xf32>
  }})";
} // namespace

TEST_CASE("a norm's bits do not depend on its schedule", "[norm]") {
  int n = GENERATE(1, 8, 20, 24, 64, 1000, 1001, 2048, 2056, 8192, 8200, 16384, 16392);
  CAPTURE(n);
  const char *types[][3] = {{"f16", "f32", "f16"}, {"bf16", "bf16", "bf16"}, {"f32", "f16", "f32"}};
  auto [x, gain, result] = types[n / 8 % 3];
  ElementKind kind = std::string(x) == "bf16"  ? ElementKind::BF16
                     : std::string(x) == "f16" ? ElementKind::F16
                                               : ElementKind::F32;
  ElementKind gainKind = std::string(gain) == "bf16" ? ElementKind::BF16 : ElementKind::F16;
  auto values = randomValues(n, 1, n, kind), gains = randomValues(n, 1, 2, gainKind);
  double squares = 0;
  for (double v : values)
    squares += v * v;
  std::vector<double> want(n);
  for (int i = 0; i < n; ++i)
    want[i] = values[i] / std::sqrt(squares / n + 1e-5) * gains[i];
  std::vector<uint8_t> first;
  for (int warps : {4, 8, 16})
    for (const char *way : {kRead, kTile, kItem}) {
      CAPTURE(warps, way);
      KernelRun run(
          fmt::format(
              "kernel.func @norm(%x: memref<{0}x{1}>, %gain: memref<{0}x{2}>, %y: memref<{0}xf32>, %copy: "
              "memref<{0}xf32>)\n    axes(item = 1 @grid, warp = {3} @warp) plan() {{",
              n, x, gain, warps) +
          fmt::format(fmt::runtime(way), n, x, gain, result) + "\n  kernel.return\n}");
      run.set("x", values);
      run.set("gain", gains);
      launch(run, warps);
      REQUIRE(relativeError(run.get("y"), want) < (kind == ElementKind::F32 ? 1e-6 : 3e-3));
      if (way == kTile)
        REQUIRE(run.get("copy") == values);
      if (first.empty())
        first = run.bytes("y");
      REQUIRE(run.bytes("y") == first);
    }
}

TEST_CASE("the norm of a view that begins anywhere", "[norm]") {
  int from = GENERATE(0, 1, 4, 8);
  CAPTURE(from);
  KernelRun run(fmt::format(R"(
kernel.func @view(%x: memref<80xf16>, %gain: memref<64xf32>, %y: memref<64xf32>) axes() plan() {{
  %all = kernel.read %x : memref<80xf16> -> !kernel.tile<80xf16>
  %t = kernel.extract %all from {0} : !kernel.tile<80xf16> -> !kernel.tile<64xf16>
  %n = kernel.rms_norm %t, %gain eps 1.0e-5 : !kernel.tile<64xf16>, memref<64xf32> -> !kernel.tile<64xf32>
  kernel.write %n, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}})",
                            from));
  auto x = randomValues(80, 1, 1, ElementKind::F16);
  run.set("x", x);
  run.set("gain", std::vector<double>(64, 1));
  launch(run, from);
  double squares = 0;
  std::vector<double> want(x.begin() + from, x.begin() + from + 64);
  for (double v : want)
    squares += v * v;
  for (double &v : want)
    v /= std::sqrt(squares / 64 + 1e-5);
  REQUIRE(relativeError(run.get("y"), want) < 1e-6);
}

// Each thread loads its pair's rotation ahead where a head's pairs divide the threads; in loops over items
// only.
TEST_CASE("rotations loaded ahead or not give the same bits", "[rope]") {
  int dim = GENERATE(2, 48, 96, 128, 256), warps = GENERATE(4, 8, 16), heads = GENERATE(1, 3);
  std::string style = GENERATE("half_split", "interleaved");
  int position = GENERATE(0, 5);
  CAPTURE(dim, warps, heads, style, position);
  int n = dim * heads;
  std::string rope = fmt::format(R"(
    %t = kernel.read %x : memref<{0}xf16> -> !kernel.tile<{0}xf16>
    %r = kernel.rope {2} %t, %table position %pos : !kernel.tile<{0}xf16>, memref<7x{1}xf32>, memref<1xi32> -> !kernel.tile<{0}xf32>
    kernel.write %r, %y : !kernel.tile<{0}xf32>, memref<{0}xf32>)",
                                 n, dim, style);
  auto x = randomValues(n, 1, 1, ElementKind::F16), table = randomValues(7 * dim, 1, 2, ElementKind::F32);
  std::vector<double> want(n);
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < dim / 2; ++i) {
      int a = h * dim + (style == "half_split" ? i : 2 * i), b = a + (style == "half_split" ? dim / 2 : 1);
      double c = table[position * dim + i], s = table[position * dim + dim / 2 + i];
      want[a] = x[a] * c - x[b] * s;
      want[b] = x[b] * c + x[a] * s;
    }
  std::vector<uint8_t> first;
  for (bool inLoop : {false, true}) {
    CAPTURE(inLoop);
    KernelRun run(
        fmt::format(
            "kernel.func @rope(%x: memref<{0}xf16>, %table: memref<7x{1}xf32>, %pos: memref<1xi32>, %y: "
            "memref<{0}xf32>)\n    axes(item = 1 @grid, warp = {2} @warp) plan() {{",
            n, dim, warps) +
        (inLoop ? "\n  kernel.for_items %i over item {" + rope + "\n  }" : rope) + "\n  kernel.return\n}");
    run.set("x", x);
    run.set("table", table);
    run.set("pos", {double(position)});
    launch(run, warps);
    REQUIRE(run.status() == 0);
    REQUIRE(relativeError(run.get("y"), want) < 1e-6);
    if (first.empty())
      first = run.bytes("y");
    REQUIRE(run.bytes("y") == first);
    if (heads > 1)
      continue;
    // Outside of the table: the nearest row, and a bit of the status.
    run.set("pos", {position ? 100.0 : -1.0});
    launch(run, warps);
    REQUIRE(run.status() == 4);
    if (!position)
      REQUIRE(run.bytes("y") == first);
  }
}
