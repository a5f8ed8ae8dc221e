//===- KernelTest.cpp - Lowered kernels on the emulator, against sums in double ------===//
#include "test/unit/KernelHarness.h"
#include "test/unit/KernelValues.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;

TEST_CASE("a norm and a matmul over awkward shapes", "[kernel]") {
  struct Shape {
    int rows, columns, part, warps, tileColumns;
  };
  Shape s = GENERATE(Shape{192, 256, 4, 4, 128}, Shape{40, 64, 1, 4, 256}, Shape{80, 320, 16, 4, 128},
                     Shape{128, 328, 2, 8, 64}, Shape{24, 2568, 8, 4, 128}, Shape{16, 8, 1, 4, 128});
  bool bf16 = GENERATE(false, true);
  std::string type = bf16 ? "bf16" : "f16";
  ElementKind kind = bf16 ? ElementKind::BF16 : ElementKind::F16;
  CAPTURE(s.rows, s.columns, s.part, s.warps, type);
  KernelRun run(fmt::format(R"(
kernel.func @norm_matmul(%x: memref<{1}x{5}>, %gain: memref<{1}xf32>, %w: memref<{0}x{1}x{5}>, %y: memref<{0}xf32>)
    axes(part = {2} @cta, warp = {3} @warp) plan(ring_stages = 3, tile_columns = {4}) {{
  %t = kernel.read %x : memref<{1}x{5}> -> !kernel.tile<{1}x{5}>
  %n = kernel.rms_norm %t, %gain eps 1.0e-5 : !kernel.tile<{1}x{5}>, memref<{1}xf32> -> !kernel.tile<{1}x{5}>
  %s = kernel.load %w rows [{0}] : memref<{0}x{1}x{5}> -> !kernel.stream<{0}x{1}x{5}, part: split(0)>
  %m = kernel.matmul %s, %n slots 16 : !kernel.stream<{0}x{1}x{5}, part: split(0)>, !kernel.tile<{1}x{5}> -> !kernel.tile<{0}xf32, part: split(0)>
  kernel.write %m, %y : !kernel.tile<{0}xf32, part: split(0)>, memref<{0}xf32>
  kernel.return
}})",
                            s.rows, s.columns, s.part, s.warps, s.tileColumns, type));
  auto x = randomValues(s.columns, 1, 1, kind), gain = randomValues(s.columns, 1, 2, ElementKind::F32);
  auto w = randomValues(size_t(s.rows) * s.columns, 0.1, 3, kind);
  run.set("x", x);
  run.set("gain", gain);
  run.set("w", w);
  double squares = 0;
  for (double v : x)
    squares += v * v;
  double scale = 1 / std::sqrt(squares / s.columns + 1e-5);
  std::vector<double> want(s.rows);
  for (int r = 0; r < s.rows; ++r)
    for (int i = 0; i < s.columns; ++i)
      want[r] += w[size_t(r) * s.columns + i] * roundTo(kind, x[i] * scale * gain[i]);
  for (uint64_t seed = 0; seed < 2; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(relativeError(run.get("y"), want) < 2e-4);
  }
}

TEST_CASE("splitting a matmul's columns changes no bit", "[kernel]") {
  std::vector<uint8_t> first;
  auto x = randomValues(512, 1, 1, ElementKind::F16), w = randomValues(64 * 512, 0.1, 3, ElementKind::F16);
  for (int part : {1, 2, 4, 8, 16})
    for (const char *algorithm : {"push", "butterfly", "bulk"}) {
      CAPTURE(part, algorithm);
      KernelRun run(fmt::format(R"(
kernel.func @columns(%x: memref<512xf16>, %w: memref<64x512xf16>, %y: memref<64xf32>)
    axes(part = {0} @cta, warp = {2} @warp) plan(tile_columns = {3}) {{
  %t = kernel.read %x : memref<512xf16> -> !kernel.tile<512xf16>
  %s = kernel.load %w rows [64] : memref<64x512xf16> -> !kernel.stream<64x512xf16, part: split(1)>
  %m = kernel.matmul %s, %t slots 16 : !kernel.stream<64x512xf16, part: split(1)>, !kernel.tile<512xf16> -> !kernel.tile<64xf32, part: partial(sum)>
  %r = kernel.exchange reduce %m over "part" by {1} : !kernel.tile<64xf32, part: partial(sum)> -> !kernel.tile<64xf32>
  kernel.write %r, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}})",
                                part, algorithm, part == 2 ? 8 : 4, part == 4 ? 32 : 128));
      run.set("x", x);
      run.set("w", w);
      auto report = run.launch(part);
      INFO(textOf(report));
      REQUIRE(report.ok);
      if (first.empty())
        first = run.bytes("y");
      REQUIRE(run.bytes("y") == first);
    }
}

namespace {
struct AttendCase {
  int heads, group, dim, part, warps, length;
  bool idle;
};
} // namespace

/// Appends and attends; the new token's k and v are given.
static std::string attendKernel(const AttendCase &c, const std::string &algorithm, const std::string &type) {
  return fmt::format(R"(
kernel.func @attend(%q: memref<{6}x{7}>, %kn: memref<{8}x{7}>, %vn: memref<{8}x{7}>, %c: !kernel.cache<heads = {0}, dim = {2}, {7}>,
    %len: memref<1xi32>, %slot: memref<1xi64>, %o: memref<{6}xf32>, %lse: memref<{9}xf32>)
    axes(head = {0} @grid, part = {3} @cta, warp = {4} @warp) plan(ring_stages = 3) {{
  kernel.for_items %h over head {{
    %qt = kernel.read %q at %h : memref<{6}x{7}> -> !kernel.tile<{10}x{7}>
    %k = kernel.read %kn at %h : memref<{8}x{7}> -> !kernel.tile<{2}x{7}>
    %v = kernel.read %vn at %h : memref<{8}x{7}> -> !kernel.tile<{2}x{7}>
    kernel.append %k, %v to %c slot %slot at %h : !kernel.tile<{2}x{7}>, !kernel.tile<{2}x{7}>, !kernel.cache<heads = {0}, dim = {2}, {7}>, memref<1xi64>, !kernel.item
    %kv = kernel.load_cache %c tokens %len slot %slot at %h bound 1000 : !kernel.cache<heads = {0}, dim = {2}, {7}>, memref<1xi32>, memref<1xi64>, !kernel.item -> !kernel.kv_stream<{2}, {7}, part: split(0)>
    %p = kernel.attend %qt, %kv scale 0.125 : !kernel.tile<{10}x{7}>, !kernel.kv_stream<{2}, {7}, part: split(0)> -> !kernel.tile<{1}x{11}xf32, part: partial(softmax)>
    %r = kernel.exchange reduce %p over "part" by {5} : !kernel.tile<{1}x{11}xf32, part: partial(softmax)> -> !kernel.tile<{1}x{11}xf32>
    %m = kernel.attend_new %r, %qt, %k, %v slot %slot scale 0.125 : !kernel.tile<{1}x{11}xf32>, !kernel.tile<{10}x{7}>, !kernel.tile<{2}x{7}>, !kernel.tile<{2}x{7}>, memref<1xi64> -> !kernel.tile<{1}x{11}xf32>
    %n, %l = kernel.normalize %m : !kernel.tile<{1}x{11}xf32> -> !kernel.tile<{10}xf32>, !kernel.tile<{1}xf32>
    kernel.write %n, %o at %h : !kernel.tile<{10}xf32>, memref<{6}xf32>
    kernel.write %l, %lse at %h : !kernel.tile<{1}xf32>, memref<{9}xf32>
  }}
  kernel.return
}})",
                     c.heads, c.group, c.dim, c.part, c.warps, algorithm, c.heads * c.group * c.dim, type,
                     c.heads * c.dim, c.heads * c.group, c.group * c.dim, c.dim + 2);
}

TEST_CASE("attention over cached tokens and the new one", "[kernel]") {
  AttendCase c = GENERATE(AttendCase{2, 1, 64, 4, 4, 0, false}, AttendCase{1, 4, 64, 2, 4, 1, false},
                          AttendCase{2, 4, 128, 16, 4, 63, false}, AttendCase{1, 8, 64, 8, 8, 64, false},
                          AttendCase{2, 3, 80, 1, 4, 65, false}, AttendCase{1, 1, 128, 4, 8, 200, false},
                          AttendCase{1, 2, 256, 2, 4, 129, false}, AttendCase{2, 2, 64, 4, 4, 100, true});
  bool bf16 = GENERATE(false, true);
  std::string algorithm = GENERATE("push", "butterfly");
  ElementKind kind = bf16 ? ElementKind::BF16 : ElementKind::F16;
  CAPTURE(c.heads, c.group, c.dim, c.part, c.warps, c.length, c.idle, bf16, algorithm);
  KernelRun run(attendKernel(c, algorithm, bf16 ? "bf16" : "f16"));
  int qHeads = c.heads * c.group, capacity = run.capacity;
  auto q = randomValues(qHeads * c.dim, 1.5, 1, kind), kn = randomValues(c.heads * c.dim, 1, 2, kind),
       vn = randomValues(c.heads * c.dim, 1, 3, kind);
  // Rows past the length hold NaN: they must not leak.
  std::vector<double> k(c.heads * capacity * c.dim, NAN), v = k;
  for (int h = 0; h < c.heads; ++h) {
    auto kr = randomValues(c.length * c.dim, 1, 4 + h, kind),
         vr = randomValues(c.length * c.dim, 1, 40 + h, kind);
    std::copy(kr.begin(), kr.end(), k.begin() + h * capacity * c.dim);
    std::copy(vr.begin(), vr.end(), v.begin() + h * capacity * c.dim);
  }
  run.set("q", q);
  run.set("kn", kn);
  run.set("vn", vn);
  run.set("c.k", k);
  run.set("c.v", v);
  run.set("len", {double(c.length)});
  run.set("slot", {c.idle ? -1.0 : double(c.length)});
  std::vector<double> want(qHeads * c.dim), wantLse(qHeads, -INFINITY);
  for (int h = 0; h < qHeads && !c.idle; ++h) {
    const double *qh = &q[h * c.dim];
    int kvHead = h / c.group;
    auto row = [&](const std::vector<double> &cache, const std::vector<double> &fresh, int t) {
      return t < c.length ? &cache[(kvHead * capacity + t) * c.dim] : &fresh[kvHead * c.dim];
    };
    std::vector<double> s(c.length + 1);
    double m = -INFINITY, l = 0;
    for (int t = 0; t <= c.length; ++t) {
      for (int d = 0; d < c.dim; ++d)
        s[t] += qh[d] * row(k, kn, t)[d];
      s[t] *= 0.125;
      m = std::max(m, s[t]);
    }
    for (double &x : s)
      l += x = std::exp(x - m);
    for (int t = 0; t <= c.length; ++t)
      for (int d = 0; d < c.dim; ++d)
        want[h * c.dim + d] += s[t] / l * row(v, vn, t)[d];
    wantLse[h] = m + std::log(l);
  }
  for (uint64_t seed = 0; seed < 2; ++seed) {
    auto report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.status() == 0);
    if (c.idle) {
      REQUIRE(run.get("o") == want);
      REQUIRE(run.get("lse") == wantLse);
      continue;
    }
    REQUIRE(relativeError(run.get("o"), want) < (bf16 ? 4e-3 : 5e-4));
    REQUIRE(relativeError(run.get("lse"), wantLse) < (bf16 ? 4e-3 : 5e-4));
    REQUIRE(run.get("c.k")[(capacity + 0) * 0 + c.length * c.dim] == kn[0]);
  }
}
