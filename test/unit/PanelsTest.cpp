//===- PanelsTest.cpp - Items that take panels of stacked weights --------------===//
//
// Each item has some rows of one of several weights, with their biases, and
// writes them to one of several results: by any cluster, split, layout and
// number of tokens with the bits that one weight of as many rows gives. With one
// fault in which weight, bias or result an item takes, one of 20 seeds shows it.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/KernelValues.h"
#include <fmt/format.h>
#include <numeric>

using namespace cfc;
using namespace cfc::test;
using namespace mlir;

namespace {
struct Shape {
  int rows;                ///< of a panel
  std::vector<int> panels; ///< of each weight
  int columns, tokens = 1;
  int items() const { return std::accumulate(panels.begin(), panels.end(), 0); }
};
/// How it is spread over a cluster, and the ring.
struct Way {
  int part;
  bool byRows, packed;
  int warps = 4, tileColumns = 64, stages = 4;
};

/// "%w0, %w1" and the like, with something of each weight.
template <typename Each> std::string list(const Shape &s, Each each) {
  std::string text;
  for (size_t i = 0; i < s.panels.size(); ++i)
    text += (i ? ", " : "") + each(i);
  return text;
}

std::string kernel(const Shape &s, const Way &way) {
  const char *layout = way.packed ? " {kernel.layout = \"packed\"}" : "";
  auto count = [&](size_t i) { return s.panels[i] * s.rows; };
  auto weightType = [&](size_t i) { return fmt::format("memref<{}x{}xf16>", count(i), s.columns); };
  auto biasType = [&](size_t i) { return fmt::format("memref<{}xf16>", count(i)); };
  std::string tokens = s.tokens > 1 ? fmt::format("{}x", s.tokens) : "";
  auto resultType = [&](size_t i) { return fmt::format("memref<{}{}xf32>", tokens, count(i)); };
  auto names = [&](char c) { return list(s, [&](size_t i) { return fmt::format("%{}{}", c, i); }); };
  std::string arguments = list(s, [&](size_t i) {
    return fmt::format("%w{0}: {1}{2}, %b{0}: {3}, %y{0}: {4}", i, weightType(i), layout, biasType(i),
                       resultType(i));
  });
  std::string x = fmt::format("memref<{}{}xf16>", tokens, s.columns);
  std::string xTile = fmt::format("!kernel.tile<{}{}xf16{}>", tokens, s.columns,
                                  !way.byRows && s.tokens > 1 ? ", part: split(1)" : "");
  std::string made = fmt::format("{}{}xf32", s.rows, s.tokens > 1 ? fmt::format("x{}", s.tokens) : "");
  std::string split = fmt::format("!kernel.tile<{}, part: split(0)>", made);
  std::string sums = way.byRows ? split : fmt::format("!kernel.tile<{}, part: partial(sum)>", made);
  std::string bias = fmt::format("!kernel.tile<{}xf16, part: split(0)>", s.rows);
  std::string stream =
      fmt::format("!kernel.stream<{}x{}xf16, part: split({})>", s.rows, s.columns, way.byRows ? 0 : 1);
  std::string text = fmt::format(
      "kernel.func @panels(%x: {}, {}) axes(panel = {} @grid, part = {} @cta, warp = {} @warp) "
      "plan(ring_stages = {}, tile_columns = {}, prefetch = {}) {{\n",
      x, arguments, s.items(), way.part, way.warps, way.stages, way.tileColumns, way.packed ? 2 : 0);
  text += fmt::format("  %t = kernel.read %x {}: {} -> {}\n", s.tokens > 1 ? "rows " : "", x, xTile);
  text += "  kernel.for_items %i over panel {\n";
  text += fmt::format("    %s = kernel.load {} rows [{}] panels at %i : {} -> {}\n", names('w'), s.rows,
                      list(s, weightType), stream);
  text += fmt::format("    %m = kernel.matmul %s, %t slots 4 : {}, {} -> {}\n", stream, xTile, sums);
  if (!way.byRows)
    text += fmt::format("    %r = kernel.exchange reduce_scatter %m over \"part\" by async : {} -> {}\n",
                        sums, split);
  text += fmt::format("    %b = kernel.read {} at %i : {} -> {}\n", names('b'), list(s, biasType), bias);
  text += fmt::format("    %z = kernel.elementwise add {}, %b : {}, {} -> {}\n", way.byRows ? "%m" : "%r",
                      split, bias, split);
  text += fmt::format("    kernel.write %z, {} {}at %i : {}, {}\n", names('y'),
                      s.tokens > 1 ? "columns " : "", split, list(s, resultType));
  return text + "  }\n  kernel.return\n}\n";
}

/// Inputs, the same for all ways, and what comes out: of weight i, row r and token t.
struct Data {
  std::vector<double> x;
  std::vector<std::vector<double>> weights, biases, want;

  explicit Data(const Shape &s) : x(randomValues(size_t(s.tokens) * s.columns, 1, 1, ElementKind::F16)) {
    for (size_t i = 0; i < s.panels.size(); ++i) {
      size_t rows = size_t(s.panels[i]) * s.rows;
      weights.push_back(randomValues(rows * s.columns, 0.1, 3 + i, ElementKind::F16));
      biases.push_back(randomValues(rows, 1, 30 + i, ElementKind::F16));
      std::vector<double> &y = want.emplace_back(rows * s.tokens);
      for (int t = 0; t < s.tokens; ++t)
        for (size_t r = 0; r < rows; ++r) {
          y[t * rows + r] = biases[i][r];
          for (int c = 0; c < s.columns; ++c)
            y[t * rows + r] += weights[i][r * s.columns + c] * x[size_t(t) * s.columns + c];
        }
    }
  }
  void give(KernelRun &run) const {
    run.set("x", x);
    for (size_t i = 0; i < weights.size(); ++i) {
      run.set(fmt::format("w{}", i), weights[i]);
      run.set(fmt::format("b{}", i), biases[i]);
      run.set(fmt::format("y{}", i), std::vector<double>(want[i].size(), NAN));
    }
  }
  bool isRight(const KernelRun &run) const {
    for (size_t i = 0; i < want.size(); ++i)
      if (relativeError(run.get(fmt::format("y{}", i)), want[i]) > 1e-4)
        return false;
    return true;
  }
};

/// Runs it under three orders of threads; `bits` are those of the runs before.
void check(const Shape &s, const Way &way, const Data &data, std::vector<std::vector<uint8_t>> &bits) {
  CAPTURE(s.rows, s.panels, s.columns, s.tokens, way.part, way.byRows, way.packed, way.warps, way.stages);
  KernelRun run(kernel(s, way));
  for (uint64_t seed = 0; seed < 3; ++seed) {
    data.give(run);
    emu::Report report = run.launch(seed);
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(data.isRight(run));
    std::vector<std::vector<uint8_t>> made;
    for (size_t i = 0; i < s.panels.size(); ++i)
      made.push_back(run.bytes(fmt::format("y{}", i)));
    bits = bits.empty() ? made : bits;
    REQUIRE(made == bits);
  }
}

/// All weights as one, panel by panel.
std::vector<std::vector<uint8_t>> bitsOfOneWeight(const Shape &s, const Data &data) {
  Shape one{s.rows, {s.items()}, s.columns};
  KernelRun run(fmt::format(R"(
kernel.func @one(%x: memref<{1}xf16>, %w: memref<{2}x{1}xf16>, %b: memref<{2}xf16>, %y: memref<{2}xf32>) axes(item = {3} @grid) plan() {{
  %t = kernel.read %x : memref<{1}xf16> -> !kernel.tile<{1}xf16>
  kernel.for_items %i over item {{
    %s = kernel.load %w rows [{0}] at %i : memref<{2}x{1}xf16> -> !kernel.stream<{0}x{1}xf16>
    %m = kernel.matmul %s, %t slots 4 : !kernel.stream<{0}x{1}xf16>, !kernel.tile<{1}xf16> -> !kernel.tile<{0}xf32>
    %b2 = kernel.read %b at %i : memref<{2}xf16> -> !kernel.tile<{0}xf16>
    %z = kernel.elementwise add %m, %b2 : !kernel.tile<{0}xf32>, !kernel.tile<{0}xf16> -> !kernel.tile<{0}xf32>
    kernel.write %z, %y at %i : !kernel.tile<{0}xf32>, memref<{2}xf32>
  }}
  kernel.return
}})",
                            s.rows, s.columns, s.items() * s.rows, s.items()));
  std::vector<double> w, b;
  for (size_t i = 0; i < s.panels.size(); ++i) {
    w.insert(w.end(), data.weights[i].begin(), data.weights[i].end());
    b.insert(b.end(), data.biases[i].begin(), data.biases[i].end());
  }
  run.set("x", data.x);
  run.set("w", w);
  run.set("b", b);
  REQUIRE(run.launch(1).ok);
  std::vector<uint8_t> all = run.bytes("y");
  std::vector<std::vector<uint8_t>> bits;
  size_t from = 0;
  for (int panels : s.panels) {
    size_t bytes = size_t(panels) * s.rows * 4;
    bits.emplace_back(all.begin() + from, all.begin() + from + bytes);
    from += bytes;
  }
  return bits;
}
} // namespace

TEST_CASE("panels of native weights have the bits of one weight", "[panels]") {
  // Rows of a panel that boxes of 64, of more rows than the panel, of 16 and of 8 take, and that are copied
  // apart.
  Shape s = GENERATE(Shape{64, {3, 1, 1}, 328}, Shape{48, {2, 1}, 264}, Shape{80, {1, 2, 1}, 72},
                     Shape{24, {1, 1, 1, 2}, 200}, Shape{4, {3, 1, 2}, 136});
  Data data(s);
  auto bits = bitsOfOneWeight(s, data);
  for (int part : {1, 2, 4})
    check(s, {part, /*byRows=*/true, /*packed=*/false, part == 2 ? 8 : 4}, data, bits);
}

TEST_CASE("panels whose columns are split", "[panels]") {
  Shape s = GENERATE(Shape{64, {3, 1, 1}, 320}, Shape{128, {2, 1}, 256}, Shape{16, {1, 3}, 64});
  Data data(s);
  auto bits = bitsOfOneWeight(s, data);
  for (int part : {1, 2, 4})
    check(s, {part, /*byRows=*/false, /*packed=*/false, part == 2 ? 8 : 4, 128, 3}, data, bits);
}

TEST_CASE("panels of packed weights", "[panels]") {
  // The last: blocks of 64 rows that have some rows of two panels.
  Shape s = GENERATE(Shape{64, {3, 1, 1}, 256}, Shape{128, {1, 2}, 512}, Shape{32, {3, 1, 2}, 256});
  bool byRows = GENERATE(true, false);
  Data data(s);
  auto bits = bitsOfOneWeight(s, data);
  for (int part : {1, 2, 4})
    check(s, {part, byRows, /*packed=*/true, part == 1 ? 8 : 4, 64, 4}, data, bits);
}

TEST_CASE("panels of several tokens", "[panels]") {
  int tokens = GENERATE(2, 5, 9);
  bool byRows = GENERATE(true, false), packed = GENERATE(false, true);
  Shape s{64, {3, 1, 1}, 256, tokens};
  Data data(s);
  std::vector<std::vector<uint8_t>> bits;
  for (int part : {1, 2, 4})
    check(s, {part, byRows, packed, part == 2 ? 8 : 4}, data, bits);
  // Columns that are no whole chunks of 8 are written one by one.
  Shape odd{12, {2, 1}, 128, tokens};
  Data ofOdd(odd);
  std::vector<std::vector<uint8_t>> oddBits;
  if (!packed)
    check(odd, {2, byRows, packed}, ofOdd, oddBits);
}

//===-- Mutants -----------------------------------------------------------------===//

namespace {
/// Whether an address, or what is chosen or counted from it, goes into an operation of this kind.
template <typename Op> bool feeds(Value address) {
  return llvm::any_of(address.getUsers(), [](Operation *user) {
    bool passes = isa<simt::OffsetOp, arith::SelectOp>(user);
    return isa<Op>(user) || (passes && feeds<Op>(user->getResult(0)));
  });
}

/// Whether a run of three weights' panels with this fault is found out.
bool isCaught(bool packed, const Mutation &mutate) {
  Shape s{64, {3, 1, 1}, 256};
  Data data(s);
  KernelRun run(kernel(s, {2, /*byRows=*/false, packed}), mutate);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    data.give(run);
    if (!run.launch(seed).ok || !data.isRight(run))
      return true;
  }
  return false;
}

/// Chooses among memories, for an operation of this kind.
template <typename Op> auto choosesFor() {
  return [](arith::SelectOp op) {
    auto type = dyn_cast<simt::PtrType>(op.getType());
    return type && type.isGlobal() && feeds<Op>(op.getResult());
  };
}

/// The first memory in place of a later one.
template <typename Op> void takeFirst(ModuleOp m) {
  for (arith::SelectOp op : findOps<arith::SelectOp>(m, choosesFor<Op>()))
    op.getResult().replaceAllUsesWith(op.getFalseValue());
}

/// Each later memory one item too late.
template <typename Op> void chooseLater(ModuleOp m) {
  for (arith::SelectOp op : findOps<arith::SelectOp>(m, choosesFor<Op>())) {
    auto cmp = op.getCondition().getDefiningOp<arith::CmpIOp>();
    REQUIRE(cmp);
    APInt at;
    REQUIRE(matchPattern(cmp.getRhs(), m_ConstantInt(&at)));
    cmp.setOperand(1, constantBefore(cmp, int32_t(at.getSExtValue()) + 1));
  }
}
} // namespace

TEST_CASE("the panels of the mutants are right", "[panels]") {
  bool packed = GENERATE(false, true);
  REQUIRE(!isCaught(packed, {}));
}

TEST_CASE("faults in which weight a panel is of are caught", "[panels]") {
  SECTION("the map of the first native weight") { REQUIRE(isCaught(false, takeFirst<simt::TensorLoadOp>)); }
  SECTION("the map of the next native weight too late") {
    REQUIRE(isCaught(false, chooseLater<simt::TensorLoadOp>));
  }
  SECTION("the first packed weight") { REQUIRE(isCaught(true, takeFirst<simt::BulkLoadOp>)); }
  SECTION("the next packed weight too late") { REQUIRE(isCaught(true, chooseLater<simt::BulkLoadOp>)); }
  SECTION("a panel's rows are counted from the first weight's start") {
    REQUIRE(isCaught(false, [](ModuleOp m) {
      auto ofRows = [](arith::SelectOp op) {
        auto isRow = [](Operation *user) { return isa<simt::TensorLoadOp, arith::SelectOp>(user); };
        return op.getType().isInteger(32) && llvm::any_of(op->getUsers(), isRow) &&
               op.getCondition().getDefiningOp<arith::CmpIOp>().getPredicate() == arith::CmpIPredicate::sge;
      };
      for (arith::SelectOp op : findOps<arith::SelectOp>(m, ofRows))
        op.getResult().replaceAllUsesWith(op.getFalseValue());
    }));
  }
}

TEST_CASE("faults in which bias and result a panel has are caught", "[panels]") {
  SECTION("the first bias") { REQUIRE(isCaught(false, takeFirst<simt::LoadOp>)); }
  SECTION("the first result") { REQUIRE(isCaught(false, takeFirst<simt::StoreOp>)); }
  SECTION("the next result too late") { REQUIRE(isCaught(false, chooseLater<simt::StoreOp>)); }
}
