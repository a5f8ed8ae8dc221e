//===- TokensTest.cpp - Several tokens in one kernel ------------------------------===//
//
// Each token of a matmul, a norm and a rotation of several has the bits that it
// has alone, whatever the schedule.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/KernelValues.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;

namespace {
struct Schedule {
  int part, warps, tileColumns, stages;
};

Schedule randomSchedule(std::mt19937_64 &engine) {
  return {pick<int>(engine, {1, 2, 4}), pick<int>(engine, {4, 8}),
          pick<int>(engine, {0, 16, 48, 64, 128, 256}), pick<int>(engine, {2, 3, 5})};
}

std::string describe(const Schedule &s) {
  return fmt::format("part {}, {} warps, tiles of {} columns, {} stages", s.part, s.warps, s.tileColumns,
                     s.stages);
}

std::vector<uint8_t> launched(KernelRun &run, uint64_t seed, const char *result = "y") {
  auto report = run.launch(seed);
  INFO(textOf(report));
  REQUIRE(report.ok);
  return run.bytes(result);
}

/// Bytes of token `t` of `tokens`, of bytes as [tokens][...].
std::vector<uint8_t> bytesOf(const std::vector<uint8_t> &all, int t, int tokens) {
  size_t each = all.size() / tokens;
  return {all.begin() + t * each, all.begin() + (t + 1) * each};
}

std::vector<double> rowOf(const std::vector<double> &all, int t, int tokens) {
  size_t each = all.size() / tokens;
  return {all.begin() + t * each, all.begin() + (t + 1) * each};
}

/// One token times the weights, alone.
std::string alone(int rows, int columns, int slots, const char *type) {
  return fmt::format(R"(
kernel.func @alone(%x: memref<{1}x{3}>, %w: memref<{0}x{1}x{3}>, %y: memref<{0}xf32>) axes() plan() {{
  %t = kernel.read %x : memref<{1}x{3}> -> !kernel.tile<{1}x{3}>
  %s = kernel.load %w rows [{0}] : memref<{0}x{1}x{3}> -> !kernel.stream<{0}x{1}x{3}>
  %m = kernel.matmul %s, %t slots {2} : !kernel.stream<{0}x{1}x{3}>, !kernel.tile<{1}x{3}> -> !kernel.tile<{0}xf32>
  kernel.write %m, %y : !kernel.tile<{0}xf32>, memref<{0}xf32>
  kernel.return
}})",
                     rows, columns, slots, type);
}

/// Several, with rows split over the cluster.
std::string byRows(int tokens, int rows, int columns, int slots, const char *type, const Schedule &s) {
  return fmt::format(R"(
kernel.func @rows(%x: memref<{4}x{1}x{3}>, %w: memref<{0}x{1}x{3}>, %y: memref<{4}x{0}xf32>)
    axes(part = {5} @cta, warp = {6} @warp) plan(ring_stages = {8}, tile_columns = {7}) {{
  %t = kernel.read %x rows : memref<{4}x{1}x{3}> -> !kernel.tile<{4}x{1}x{3}>
  %s = kernel.load %w rows [{0}] : memref<{0}x{1}x{3}> -> !kernel.stream<{0}x{1}x{3}, part: split(0)>
  %m = kernel.matmul %s, %t slots {2} : !kernel.stream<{0}x{1}x{3}, part: split(0)>, !kernel.tile<{4}x{1}x{3}> -> !kernel.tile<{0}x{4}xf32, part: split(0)>
  kernel.write %m, %y columns : !kernel.tile<{0}x{4}xf32, part: split(0)>, memref<{4}x{0}xf32>
  kernel.return
}})",
                     rows, columns, slots, type, tokens, s.part, s.warps, s.tileColumns, s.stages);
}

/// Several, with columns split over the cluster; each CTA gets the sums of its rows.
std::string byColumns(int tokens, int rows, int columns, int slots, const char *type, const Schedule &s,
                      const char *algorithm) {
  return fmt::format(R"(
kernel.func @columns(%x: memref<{4}x{1}x{3}>, %w: memref<{0}x{1}x{3}>, %y: memref<{4}x{0}xf32>)
    axes(part = {5} @cta, warp = {6} @warp) plan(ring_stages = {8}, tile_columns = {7}) {{
  %t = kernel.read %x rows : memref<{4}x{1}x{3}> -> !kernel.tile<{4}x{1}x{3}, part: split(1)>
  %s = kernel.load %w rows [{0}] : memref<{0}x{1}x{3}> -> !kernel.stream<{0}x{1}x{3}, part: split(1)>
  %m = kernel.matmul %s, %t slots {2} : !kernel.stream<{0}x{1}x{3}, part: split(1)>, !kernel.tile<{4}x{1}x{3}, part: split(1)> -> !kernel.tile<{0}x{4}xf32, part: partial(sum)>
  %r = kernel.exchange reduce_scatter %m over "part" by {9} : !kernel.tile<{0}x{4}xf32, part: partial(sum)> -> !kernel.tile<{0}x{4}xf32, part: split(0)>
  kernel.write %r, %y columns : !kernel.tile<{0}x{4}xf32, part: split(0)>, memref<{4}x{0}xf32>
  kernel.return
}})",
                     rows, columns, slots, type, tokens, s.part, s.warps, s.tileColumns, s.stages, algorithm);
}

ElementKind kindOf(const std::string &type) { return type == "bf16" ? ElementKind::BF16 : ElementKind::F16; }
} // namespace

TEST_CASE("each of several tokens has the bits of a matmul alone", "[tokens]") {
  struct Shape {
    int rows, columns, slots;
  };
  // Slots of 1, 2, 4, 5 and 7 blocks; columns that are 8 mod 16; one block.
  Shape shape = GENERATE(Shape{48, 64, 16}, Shape{72, 264, 16}, Shape{136, 776, 16}, Shape{24, 560, 4},
                         Shape{8, 8, 1}, Shape{80, 272, 16});
  std::mt19937_64 engine(shape.rows);
  const char *type = shape.rows % 3 ? "f16" : "bf16";
  auto w = randomValues(size_t(shape.rows) * shape.columns, 0.1, 3, kindOf(type));
  auto x = randomValues(64 * shape.columns, 1, 1, kindOf(type));
  KernelRun one(alone(shape.rows, shape.columns, shape.slots, type));
  one.set("w", w);
  std::vector<std::vector<uint8_t>> want;
  for (int t = 0; t < 64; ++t) {
    if (t > 17 && t < 62)
      continue;
    one.set("x", rowOf(x, t, 64));
    want.push_back(launched(one, t));
  }
  for (int tokens : {2, 3, 7, 8, 9, 16, 33, 64}) {
    Schedule s = randomSchedule(engine);
    while (shape.rows % s.part)
      s.part /= 2;
    CAPTURE(shape.rows, shape.columns, shape.slots, tokens, describe(s));
    KernelRun run(byRows(tokens, shape.rows, shape.columns, shape.slots, type, s));
    run.set("w", w);
    run.set("x", {x.begin(), x.begin() + tokens * shape.columns});
    auto y = launched(run, tokens);
    for (int t : {0, 1, tokens / 2, tokens - 1})
      if (t <= 17 || t >= 62)
        REQUIRE(bytesOf(y, t, tokens) == want[t <= 17 ? t : t - 44]);
  }
}

TEST_CASE("several tokens with columns split over the cluster", "[tokens]") {
  int slotBlocks = GENERATE(1, 2, 3, 5), columns = slotBlocks * 16 * 8, rows = 80;
  std::mt19937_64 engine(slotBlocks);
  auto w = randomValues(rows * columns, 0.1, 3, ElementKind::F16);
  auto x = randomValues(40 * columns, 1, 1, ElementKind::F16);
  KernelRun one(alone(rows, columns, 8, "f16"));
  one.set("w", w);
  std::vector<std::vector<uint8_t>> want;
  for (int t = 0; t < 40; ++t) {
    one.set("x", rowOf(x, t, 40));
    want.push_back(launched(one, t));
  }
  for (const char *algorithm : {"push", "async", "bulk", "butterfly"}) {
    Schedule s = randomSchedule(engine);
    int tokens = pick<int>(engine, {2, 3, 8, 12, 17, 40});
    CAPTURE(slotBlocks, algorithm, tokens, describe(s));
    KernelRun run(byColumns(tokens, rows, columns, 8, "f16", s, algorithm));
    run.set("w", w);
    run.set("x", {x.begin(), x.begin() + tokens * columns});
    auto y = launched(run, tokens);
    for (int t = 0; t < tokens; ++t)
      REQUIRE(bytesOf(y, t, tokens) == want[t]);
  }
}

TEST_CASE("each of several tokens has the bits of a norm alone", "[tokens]") {
  int n = GENERATE(8, 20, 80, 272, 1001, 2056, 4096);
  const char *types[][3] = {{"f16", "f32", "f16"}, {"bf16", "bf16", "bf16"}, {"f32", "f16", "f16"}};
  auto [type, gain, result] = types[n / 8 % 3];
  ElementKind kind = std::string(type) == "f32" ? ElementKind::F32 : kindOf(type);
  int tokens = n > 2000 ? 5 : pick<int>(*std::make_unique<std::mt19937_64>(n), {2, 3, 7, 8, 9});
  CAPTURE(n, tokens, type);
  auto x = randomValues(tokens * n, 1, n, kind), gains = randomValues(n, 1, 2, kindOf(gain));
  KernelRun one(fmt::format(R"(
kernel.func @norm(%x: memref<{0}x{1}>, %gain: memref<{0}x{2}>, %y: memref<{0}xf32>) axes() plan() {{
  %t = kernel.read %x : memref<{0}x{1}> -> !kernel.tile<{0}x{1}>
  %n = kernel.rms_norm %t, %gain eps 1.0e-5 : !kernel.tile<{0}x{1}>, memref<{0}x{2}> -> !kernel.tile<{0}x{3}>
  kernel.write %n, %y : !kernel.tile<{0}x{3}>, memref<{0}xf32>
  kernel.return
}})",
                            n, type, gain, result));
  one.set("gain", gains);
  for (int part : {1, 2, 4}) {
    if (n % part)
      continue;
    // In place, and where another needs the tile.
    for (bool copied : {false, true}) {
      int padded = (tokens + part - 1) / part * part;
      CAPTURE(part, copied);
      KernelRun run(
          fmt::format(R"(
kernel.func @norms(%x: memref<{4}x{0}x{1}>, %gain: memref<{0}x{2}>, %y: memref<{4}x{0}xf32>, %copy: memref<{4}x{0}xf32>)
    axes(part = {5} @cta, warp = {7} @warp) plan() {{
  %r = kernel.read %x rows : memref<{4}x{0}x{1}> -> !kernel.tile<{6}x{0}x{1}, part: split(0)>
  %p = kernel.rms_scale %r eps 1.0e-5 : !kernel.tile<{6}x{0}x{1}, part: split(0)> -> !kernel.tile<{6}xf32, part: split(0)>
  %a = kernel.exchange gather %p over "part" by async : !kernel.tile<{6}xf32, part: split(0)> -> !kernel.tile<{6}xf32>
  %s = kernel.extract %a from 0 : !kernel.tile<{6}xf32> -> !kernel.tile<{4}xf32>
  %t = kernel.read %x rows : memref<{4}x{0}x{1}> -> !kernel.tile<{4}x{0}x{1}, part: split(1)>
  %n = kernel.rms_norm %t, %gain scale %s eps 1.0e-5 : !kernel.tile<{4}x{0}x{1}, part: split(1)>, memref<{0}x{2}>, !kernel.tile<{4}xf32> -> !kernel.tile<{4}x{0}x{3}, part: split(1)>
  kernel.write %n, %y rows : !kernel.tile<{4}x{0}x{3}, part: split(1)>, memref<{4}x{0}xf32>
)",
                      n, type, gain, result, tokens, part, padded, copied ? 8 : 4) +
          (copied ? fmt::format("  kernel.write %t, %copy rows : !kernel.tile<{2}x{0}x{1}, part: split(1)>, "
                                "memref<{2}x{0}xf32>\n",
                                n, type, tokens)
                  : "") +
          "  kernel.return\n}");
      run.set("x", x);
      run.set("gain", gains);
      auto y = launched(run, part);
      if (copied)
        REQUIRE(run.get("copy") == x);
      for (int t = 0; t < tokens; ++t) {
        one.set("x", rowOf(x, t, tokens));
        REQUIRE(bytesOf(y, t, tokens) == launched(one, t));
      }
    }
  }
}

TEST_CASE("each of several tokens is rotated by its own position", "[tokens]") {
  int dim = GENERATE(2, 48, 128), heads = GENERATE(1, 3), tokens = GENERATE(2, 5, 33);
  std::string style = tokens % 2 ? "half_split" : "interleaved";
  CAPTURE(dim, heads, tokens);
  int n = dim * heads;
  KernelRun run(fmt::format(R"(
kernel.func @rope(%x: memref<{3}x{0}xf16>, %table: memref<7x{1}xf32>, %pos: memref<{3}xi32>, %y: memref<{3}x{0}xf32>)
    axes(warp = 8 @warp) plan() {{
  %t = kernel.read %x columns : memref<{3}x{0}xf16> -> !kernel.tile<{0}x{3}xf16>
  %r = kernel.rope {2} %t, %table position %pos : !kernel.tile<{0}x{3}xf16>, memref<7x{1}xf32>, memref<{3}xi32> -> !kernel.tile<{0}x{3}xf32>
  kernel.write %r, %y columns : !kernel.tile<{0}x{3}xf32>, memref<{3}x{0}xf32>
  kernel.return
}})",
                            n, dim, style, tokens));
  auto x = randomValues(tokens * n, 1, 1, ElementKind::F16),
       table = randomValues(7 * dim, 1, 2, ElementKind::F32);
  std::vector<double> positions, want(tokens * n);
  for (int t = 0; t < tokens; ++t) {
    int p = t * 5 % 7;
    positions.push_back(p);
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < dim / 2; ++i) {
        bool halves = style == "half_split";
        int a = t * n + h * dim + (halves ? i : 2 * i), b = a + (halves ? dim / 2 : 1);
        double c = table[p * dim + i], s = table[p * dim + dim / 2 + i];
        want[a] = x[a] * c - x[b] * s;
        want[b] = x[b] * c + x[a] * s;
      }
  }
  run.set("x", x);
  run.set("table", table);
  run.set("pos", positions);
  launched(run, tokens);
  REQUIRE(run.status() == 0);
  REQUIRE(relativeError(run.get("y"), want) < 1e-6);
  positions.back() = 7;
  run.set("pos", positions);
  launched(run, 1);
  REQUIRE(run.status() == 4);
}

TEST_CASE("heads of several tokens are normed and rotated in part as one token's are", "[tokens]") {
  int dim = GENERATE(24, 64, 100, 264), tokens = GENERATE(2, 9), heads = 3, n = heads * dim;
  bool halves = GENERATE(false, true);
  CAPTURE(dim, tokens, halves);
  const char *style = halves ? "half_split" : "interleaved";
  auto kernel = [&](const std::string &tile, const std::string &memory, int positions, const char *columns) {
    return fmt::format(R"(
kernel.func @heads(%x: memref<{1}xf16>, %gain: memref<{2}xf32>, %table: memref<7x16xf32>, %pos: memref<{3}xi32>, %y: memref<{1}xf32>)
    axes(warp = 8 @warp) plan() {{
  %t = kernel.read %x {4} : memref<{1}xf16> -> !kernel.tile<{0}xf16>
  %n = kernel.rms_norm %t, %gain eps 1.0e-5 {{width = {2}, offset = 1.0}} : !kernel.tile<{0}xf16>, memref<{2}xf32> -> !kernel.tile<{0}xf16>
  %r = kernel.rope {5} %n, %table position %pos {{head = {2}}} : !kernel.tile<{0}xf16>, memref<7x16xf32>, memref<{3}xi32> -> !kernel.tile<{0}xf32>
  kernel.write %r, %y {4} : !kernel.tile<{0}xf32>, memref<{1}xf32>
  kernel.return
}})",
                       tile, memory, dim, positions, columns, style);
  };
  KernelRun one(kernel(std::to_string(n), std::to_string(n), 1, "")),
      run(kernel(fmt::format("{}x{}", n, tokens), fmt::format("{}x{}", tokens, n), tokens, "columns"));
  auto x = randomValues(tokens * n, 1, 1, ElementKind::F16), gain = randomValues(dim, 1, 2, ElementKind::F32),
       table = randomValues(7 * 16, 1, 3, ElementKind::F32);
  std::vector<double> positions;
  for (int t = 0; t < tokens; ++t)
    positions.push_back(t * 3 % 7);
  for (KernelRun *each : {&one, &run}) {
    each->set("gain", gain);
    each->set("table", table);
  }
  run.set("x", x);
  run.set("pos", positions);
  auto y = launched(run, 1);
  for (int t = 0; t < tokens; ++t) {
    auto row = rowOf(x, t, tokens);
    one.set("x", row);
    one.set("pos", {positions[t]});
    REQUIRE(bytesOf(y, t, tokens) == launched(one, t));
    std::vector<double> want(n);
    for (int h = 0; h < heads; ++h) {
      double squares = 0;
      for (int d = 0; d < dim; ++d)
        squares += row[h * dim + d] * row[h * dim + d];
      for (int d = 0; d < dim; ++d)
        want[h * dim + d] = row[h * dim + d] / std::sqrt(squares / dim + 1e-5) * (1 + gain[d]);
      for (int i = 0; i < 8; ++i) {
        int a = h * dim + (halves ? i : 2 * i), b = a + (halves ? 8 : 1);
        double c = table[size_t(positions[t]) * 16 + i], s = table[size_t(positions[t]) * 16 + 8 + i],
               u = want[a], v = want[b];
        want[a] = u * c - v * s;
        want[b] = v * c + u * s;
      }
    }
    REQUIRE(relativeError(one.get("y"), want) < 2e-3);
  }
}

// The last item has fewer columns than the others.
TEST_CASE("items take columns of several tokens' rows", "[tokens]") {
  int each = GENERATE(16, 5, 24), tokens = GENERATE(3, 8), part = each % 2 ? 1 : 2, width = 5 * each - 3;
  if (each == 24)
    width = 5 * each - 8; // in runs of 8
  CAPTURE(each, tokens, part);
  KernelRun run(fmt::format(R"(
kernel.func @items(%x: memref<{1}x{2}xf16>, %bias: memref<{4}xf16>, %y: memref<{1}x{2}xf32>)
    axes(item = 5 @grid, part = {3} @cta, warp = 4 @warp) plan() {{
  kernel.for_items %i over item {{
    %t = kernel.read %x columns at %i : memref<{1}x{2}xf16> -> !kernel.tile<{0}x{1}xf16, part: split(0)>
    %b = kernel.read %bias at %i : memref<{4}xf16> -> !kernel.tile<{0}xf16, part: split(0)>
    %s = kernel.elementwise add %t, %b : !kernel.tile<{0}x{1}xf16, part: split(0)>, !kernel.tile<{0}xf16, part: split(0)> -> !kernel.tile<{0}x{1}xf32, part: split(0)>
    kernel.write %s, %y columns at %i : !kernel.tile<{0}x{1}xf32, part: split(0)>, memref<{1}x{2}xf32>
  }}
  kernel.return
}})",
                            each, tokens, width, part, 5 * each));
  auto x = randomValues(tokens * width, 1, 1, ElementKind::F16),
       bias = randomValues(5 * each, 1, 2, ElementKind::F16);
  run.set("x", x);
  run.set("bias", bias);
  launched(run, each);
  std::vector<double> want = x;
  for (int i = 0; i < tokens * width; ++i)
    want[i] += bias[i % width];
  REQUIRE(relativeError(run.get("y"), want) < 1e-6);
}

TEST_CASE("faults in several tokens' products are caught", "[tokens]") {
  constexpr int tokens = 11, rows = 72, columns = 1040, slots = 16; // 13 slots of 5 blocks
  auto w = randomValues(rows * columns, 0.1, 3, ElementKind::F16);
  auto x = randomValues(tokens * columns, 1, 1, ElementKind::F16);
  KernelRun one(alone(rows, columns, slots, "f16"));
  one.set("w", w);
  std::vector<uint8_t> want;
  for (int t = 0; t < tokens; ++t) {
    one.set("x", rowOf(x, t, tokens));
    auto row = launched(one, t);
    want.insert(want.end(), row.begin(), row.end());
  }
  auto caught = [&](const Mutation &mutate) {
    KernelRun run(byRows(tokens, rows, columns, slots, "f16", {1, 8, 64, 4}), mutate);
    run.set("w", w);
    run.set("x", x);
    int count = 0;
    for (uint64_t seed = 1; seed <= 10 && !count; ++seed)
      count += !run.launch(seed).ok || run.bytes("y") != want;
    return count > 0;
  };
  CHECK_FALSE(caught({}));
  SECTION("the last token's row is not read") {
    CHECK(caught([](mlir::ModuleOp m) {
      auto isLast = [](mlir::arith::MinSIOp op) { return isConstant(op.getRhs(), tokens - 1); };
      for (auto op : findOps<mlir::arith::MinSIOp>(m, isLast))
        op.setOperand(1, constantBefore(op, tokens - 2));
    }));
  }
  SECTION("slots are released before they are read") {
    CHECK(caught([](mlir::ModuleOp m) {
      for (auto op : findOps<simt::AfterOp>(m)) {
        op.getResult().replaceAllUsesWith(op.getBase());
        op.erase();
      }
    }));
  }
  SECTION("slots merge with the wrong level") {
    CHECK(caught([](mlir::ModuleOp m) {
      auto isLevel = [](mlir::arith::CmpIOp op) {
        auto bits = op.getLhs().getDefiningOp<mlir::arith::AndIOp>();
        return op.getPredicate() == mlir::arith::CmpIPredicate::ne && bits && isConstant(bits.getRhs(), 2);
      };
      for (auto op : findOps<mlir::arith::CmpIOp>(m, isLevel))
        op.setPredicate(mlir::arith::CmpIPredicate::eq);
    }));
  }
}
