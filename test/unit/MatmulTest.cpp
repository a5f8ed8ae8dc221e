//===- MatmulTest.cpp - Streamed matmuls under many schedules ------------------===//
//
// A matmul's bits depend on its shape and types alone: not on the CTAs, warps,
// ring, boxes or layout of the weights that a plan chooses.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelHarness.h"
#include "test/unit/KernelValues.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;

namespace {
struct Shape {
  int rows, columns, slots;
};
/// How a plan has it done. Rows are split over `part`.
struct Schedule {
  int part, warps, tileColumns, stages;
};

std::string describe(const Schedule &s) {
  return fmt::format("part {}, {} warps, tiles of {} columns, {} stages", s.part, s.warps, s.tileColumns,
                     s.stages);
}

Schedule randomSchedule(std::mt19937_64 &engine, int rows) {
  int part = pick<int>(engine, {1, 2, 4, 8});
  while (rows % part)
    part /= 2;
  return {part, pick<int>(engine, {4, 8, 16}), pick<int>(engine, {0, 16, 48, 64, 128, 256}),
          pick<int>(engine, {2, 3, 5, 8})};
}

std::string matmul(const Shape &shape, const Schedule &s, const std::string &w, const std::string &x,
                   const std::string &attributes = "") {
  return fmt::format(R"(
kernel.func @matmul(%x: memref<{1}x{4}>, %w: memref<{0}x{1}x{3}>{9}, %y: memref<{0}xf32>)
    axes(part = {5} @cta, warp = {6} @warp) plan(ring_stages = {8}, tile_columns = {7}) {{
  %t = kernel.read %x : memref<{1}x{4}> -> !kernel.tile<{1}x{4}>
  %s = kernel.load %w rows [{0}] : memref<{0}x{1}x{3}> -> !kernel.stream<{0}x{1}x{3}, part: split(0)>
  %m = kernel.matmul %s, %t slots {2} : !kernel.stream<{0}x{1}x{3}, part: split(0)>, !kernel.tile<{1}x{4}> -> !kernel.tile<{0}xf32, part: split(0)>
  kernel.write %m, %y : !kernel.tile<{0}xf32, part: split(0)>, memref<{0}xf32>
  kernel.return
}})",
                     shape.rows, shape.columns, shape.slots, w, x, s.part, s.warps, s.tileColumns, s.stages,
                     attributes);
}

ElementKind kindOf(const std::string &type) {
  return type == "f32" ? ElementKind::F32 : type == "bf16" ? ElementKind::BF16 : ElementKind::F16;
}

/// Launches with `seed` and gives the bytes of y.
std::vector<uint8_t> launched(KernelRun &run, uint64_t seed) {
  auto report = run.launch(seed);
  INFO(textOf(report));
  REQUIRE(report.ok);
  return run.bytes("y");
}
} // namespace

/// y is w times x, with the bits of the runs before, which `first` keeps.
static void checkProduct(KernelRun &run, const std::vector<double> &w, const std::vector<double> &x,
                         uint64_t seed, std::vector<uint8_t> &first) {
  run.set("x", x);
  run.set("w", w);
  std::vector<uint8_t> bytes = launched(run, seed);
  REQUIRE(relativeError(run.get("y"), product(w, x)) < 1e-4);
  if (first.empty())
    first = bytes;
  REQUIRE(bytes == first);
}

TEST_CASE("a matmul's bits do not depend on its schedule", "[matmul]") {
  // Blocks of 16 columns in a slot: 1 (of a few slots), 2, 4, 5, 7; columns that are 8 mod 16; one block.
  Shape shape = GENERATE(Shape{200, 40, 16}, Shape{72, 264, 16}, Shape{136, 776, 16}, Shape{24, 1160, 16},
                         Shape{320, 328, 4}, Shape{8, 8, 1}, Shape{1, 112, 1}, Shape{264, 256, 4});
  std::string w = GENERATE("f16", "bf16"), x = GENERATE("f16", "f32");
  if (w == "bf16" && x == "f16")
    x = "bf16";
  CAPTURE(shape.rows, shape.columns, shape.slots, w, x);
  auto weights = randomValues(size_t(shape.rows) * shape.columns, 0.1, 3, kindOf(w));
  // What the tensor core takes is 16 bits wide.
  auto activation = randomValues(shape.columns, 1, 1, x == "f32" ? kindOf(w) : kindOf(x));
  std::vector<double> want = product(weights, activation);
  std::mt19937_64 engine(shape.rows * 31 + shape.columns + (x == "f32"));
  std::vector<uint8_t> first;
  for (int i = 0; i < 4; ++i) {
    Schedule s = randomSchedule(engine, shape.rows);
    s.warps = i < 3 ? 4 << i : s.warps; // each number of sets once
    CAPTURE(describe(s));
    KernelRun run(matmul(shape, s, w, x));
    run.set("x", activation);
    run.set("w", weights);
    std::vector<uint8_t> bytes = launched(run, i);
    REQUIRE(relativeError(run.get("y"), want) < 1e-4);
    if (first.empty())
      first = bytes;
    REQUIRE(bytes == first);
  }
}

// docs/design.md, "Order of sums". Of each block only one product is not 0, so the tensor core adds nothing
// up by itself.
TEST_CASE("blocks of a slot are summed in two chains where their number is even, else in one", "[matmul]") {
  int blocks = GENERATE(1, 3, 16, 17, 40, 64, 80, 97), slots = GENERATE(1, 4, 16);
  CAPTURE(blocks, slots);
  Shape shape{16, blocks * 16, slots};
  std::mt19937_64 engine(blocks);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> x(shape.columns), w(16 * x.size());
  for (int i = 0; i < blocks; ++i) // sizes so different that every order has its own bits
    x[i * 16 + engine() % 16] = roundTo(ElementKind::F16, uniform(engine) * (i % 3 ? 1 : 1000));
  for (double &v : w)
    v = roundTo(ElementKind::F16, uniform(engine));
  int each = (blocks + slots - 1) / slots, numChains = each % 2 ? 1 : 2;
  std::vector<double> want;
  for (int row = 0; row < 16; ++row) {
    std::vector<float> sums;
    for (int from = 0; from < blocks; from += each) {
      float chains[2] = {0, 0};
      for (int i = from; i < std::min(from + each, blocks); ++i)
        for (int c = i * 16; c < i * 16 + 16; ++c)
          chains[i % numChains] += float(x[c]) * float(w[row * x.size() + c]);
      sums.push_back(numChains == 2 ? chains[0] + chains[1] : chains[0]);
    }
    want.push_back(treeSum(sums.data(), sums.size()));
  }
  KernelRun run(matmul(shape, randomSchedule(engine, 16), "f16", "f16"));
  run.set("x", x);
  run.set("w", w);
  launched(run, blocks);
  REQUIRE(run.get("y") == want);
}

TEST_CASE("splitting columns into slots of any number of blocks changes no bit", "[matmul]") {
  int slotBlocks = GENERATE(1, 2, 3, 4, 5), columns = slotBlocks * 16 * 8;
  CAPTURE(slotBlocks);
  auto x = randomValues(columns, 1, 1, ElementKind::F16),
       w = randomValues(72 * columns, 0.1, 3, ElementKind::F16);
  std::mt19937_64 engine(slotBlocks);
  std::vector<uint8_t> first;
  for (int part : {1, 2, 4, 8}) {
    Schedule s = randomSchedule(engine, 1);
    CAPTURE(part, describe(s));
    KernelRun run(fmt::format(R"(
kernel.func @columns(%x: memref<{1}xf16>, %w: memref<72x{1}xf16>, %y: memref<72xf32>)
    axes(part = {0} @cta, warp = {2} @warp) plan(ring_stages = {4}, tile_columns = {3}) {{
  %t = kernel.read %x : memref<{1}xf16> -> !kernel.tile<{1}xf16, part: split(0)>
  %s = kernel.load %w rows [72] : memref<72x{1}xf16> -> !kernel.stream<72x{1}xf16, part: split(1)>
  %m = kernel.matmul %s, %t slots 8 : !kernel.stream<72x{1}xf16, part: split(1)>, !kernel.tile<{1}xf16, part: split(0)> -> !kernel.tile<72xf32, part: partial(sum)>
  %r = kernel.exchange reduce %m over "part" by push : !kernel.tile<72xf32, part: partial(sum)> -> !kernel.tile<72xf32>
  kernel.write %r, %y : !kernel.tile<72xf32>, memref<72xf32>
  kernel.return
}})",
                              part, columns, s.warps, s.tileColumns, s.stages));
    checkProduct(run, w, x, part, first);
  }
}

TEST_CASE("activations in a view that begins at any even element", "[matmul]") {
  int from = GENERATE(0, 2, 4, 8, 20);
  std::string type = GENERATE("f16", "f32");
  CAPTURE(from, type);
  KernelRun run(fmt::format(R"(
kernel.func @view(%x: memref<160x{1}>, %w: memref<40x128xf16>, %y: memref<40xf32>) axes() plan() {{
  %all = kernel.read %x : memref<160x{1}> -> !kernel.tile<160x{1}>
  %t = kernel.extract %all from {0} : !kernel.tile<160x{1}> -> !kernel.tile<128x{1}>
  %s = kernel.load %w rows [40] : memref<40x128xf16> -> !kernel.stream<40x128xf16>
  %m = kernel.matmul %s, %t slots 4 : !kernel.stream<40x128xf16>, !kernel.tile<128x{1}> -> !kernel.tile<40xf32>
  kernel.write %m, %y : !kernel.tile<40xf32>, memref<40xf32>
  kernel.return
}})",
                            from, type));
  auto x = randomValues(160, 1, 1, ElementKind::F16), w = randomValues(40 * 128, 0.1, 3, ElementKind::F16);
  run.set("x", x);
  run.set("w", w);
  launched(run, from);
  std::vector<double> seen(x.begin() + from, x.begin() + from + 128);
  REQUIRE(relativeError(run.get("y"), product(w, seen)) < 1e-4);
}

TEST_CASE("packed weights give the bits of native ones", "[matmul]") {
  struct Case {
    Shape shape;
    int part; // rows of a box: the largest that divides a CTA's rows
  };
  Case c = GENERATE(Case{{256, 264, 16}, 2}, Case{{128, 40, 16}, 4}, Case{{96, 328, 4}, 2},
                    Case{{48, 200, 16}, 2}, Case{{70, 136, 1}, 1}, Case{{200, 72, 2}, 1});
  std::string type = GENERATE("f16", "bf16");
  CAPTURE(c.shape.rows, c.shape.columns, c.part, type);
  auto x = randomValues(c.shape.columns, 1, 1, kindOf(type));
  auto w = randomValues(size_t(c.shape.rows) * c.shape.columns, 0.1, 3, kindOf(type));
  std::mt19937_64 engine(c.shape.rows);
  std::vector<uint8_t> native;
  for (const char *layout : {"", " {kernel.layout = \"packed\"}"}) {
    Schedule s = randomSchedule(engine, 1);
    s.part = c.part;
    CAPTURE(layout, describe(s));
    KernelRun run(matmul(c.shape, s, type, type, layout));
    checkProduct(run, w, x, 1, native);
  }
}

// Items take their rows of two stacked weights, boxes of which line up at multiples of 64, 32, 16 and 8 rows
// only, behind whole panels of the first or not; or of one weight that ends in the last item.
TEST_CASE("items take packed and native rows", "[matmul]") {
  struct Case {
    int items;
    std::vector<int> rows; // of an item, in each weight
    int have;              // of the first weight; 0: all
    int warps;
  };
  Case c = GENERATE(Case{3, {64, 64}, 0, 8}, Case{3, {32, 64}, 0, 4}, Case{2, {16, 48}, 0, 8},
                    Case{3, {64, 16, 16}, 0, 8}, Case{2, {128, 24}, 0, 4}, Case{5, {8, 24}, 0, 4},
                    Case{3, {40}, 100, 4}, Case{2, {192}, 300, 16}, Case{4, {64}, 194, 8});
  bool packed = GENERATE(false, true);
  CAPTURE(c.items, c.rows, c.have, c.warps, packed);
  int total = 0, width = 72;
  std::string arguments, names, types, rows;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    int have = i == 0 && c.have ? c.have : c.items * c.rows[i];
    std::string type = fmt::format("memref<{}x{}xf16>", have, width), comma = i ? ", " : "";
    arguments += fmt::format(", %w{}: {}{}", i, type, packed ? " {kernel.layout = \"packed\"}" : "");
    names += comma + fmt::format("%w{}", i);
    types += comma + type;
    rows += comma + std::to_string(c.rows[i]);
    total += c.rows[i];
  }
  KernelRun run(fmt::format(R"(
kernel.func @items(%x: memref<{0}xf16>{1}, %y: memref<{2}xf32>) axes(item = {3} @grid, warp = {4} @warp) plan(ring_stages = 3) {{
  %t = kernel.read %x : memref<{0}xf16> -> !kernel.tile<{0}xf16>
  kernel.for_items %i over item {{
    %s = kernel.load {5} rows [{6}] at %i : {7} -> !kernel.stream<{8}x{0}xf16>
    %m = kernel.matmul %s, %t slots 2 : !kernel.stream<{8}x{0}xf16>, !kernel.tile<{0}xf16> -> !kernel.tile<{8}xf32>
    kernel.write %m, %y at %i : !kernel.tile<{8}xf32>, memref<{2}xf32>
  }}
  kernel.return
}})",
                            width, arguments, c.have ? c.have : c.items * total, c.items, c.warps, names,
                            rows, types, total));
  auto x = randomValues(width, 1, 1, ElementKind::F16);
  run.set("x", x);
  std::vector<double> want(c.have ? c.have : c.items * total);
  int start = 0;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    int have = i == 0 && c.have ? c.have : c.items * c.rows[i];
    auto w = randomValues(size_t(have) * width, 0.1, 3 + i, ElementKind::F16);
    run.set(fmt::format("w{}", i), w);
    std::vector<double> y = product(w, x);
    for (int r = 0; r < have; ++r)
      want[r / c.rows[i] * total + start + r % c.rows[i]] = y[r];
    start += c.rows[i];
  }
  for (uint64_t seed = 0; seed < 3; ++seed) {
    launched(run, seed);
    REQUIRE(relativeError(run.get("y"), want) < 1e-4);
  }
}

TEST_CASE("items take columns of packed and native weights", "[matmul]") {
  int items = GENERATE(1, 3), each = GENERATE(64, 128), rows = 72, part = GENERATE(1, 2);
  if (items == 1 && each == 64)
    each = 80;    // all columns: it does not matter where the last block ends
  if (each % 128) // a CTA takes multiples of 64
    part = 1;
  std::vector<uint8_t> native;
  for (const char *layout : {"", " {kernel.layout = \"packed\"}"}) {
    CAPTURE(items, each, part, layout);
    KernelRun run(fmt::format(R"(
kernel.func @sum(%x: memref<{1}xf16>, %w: memref<{0}x{1}xf16>{5}, %y: memref<{0}xf32>)
    axes(item = {2} @grid, part = {4} @cta, warp = 8 @warp) plan(ring_stages = 4) {{
  kernel.for_items %i over item {{
    %t = kernel.read %x at %i : memref<{1}xf16> -> !kernel.tile<{3}xf16>
    %s = kernel.load %w rows [{0}] columns at %i : memref<{0}x{1}xf16> -> !kernel.stream<{0}x{3}xf16, part: split(1)>
    %m = kernel.matmul %s, %t slots {4} : !kernel.stream<{0}x{3}xf16, part: split(1)>, !kernel.tile<{3}xf16> -> !kernel.tile<{0}xf32, part: partial(sum), item: partial(sum)>
    %r = kernel.exchange reduce %m over "part" by push : !kernel.tile<{0}xf32, part: partial(sum), item: partial(sum)> -> !kernel.tile<{0}xf32, item: partial(sum)>
    kernel.finish %r over item by ordered : !kernel.tile<{0}xf32, item: partial(sum)> as %sum: !kernel.tile<{0}xf32> {{
      kernel.write %sum, %y : !kernel.tile<{0}xf32>, memref<{0}xf32>
    }}
  }}
  kernel.return
}})",
                              rows, items * each, items, each, part, layout));
    auto x = randomValues(items * each, 1, 1, ElementKind::F16);
    auto w = randomValues(size_t(rows) * x.size(), 0.1, 3, ElementKind::F16);
    checkProduct(run, w, x, items, native);
  }
}
