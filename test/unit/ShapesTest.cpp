//===- ShapesTest.cpp - Shapes of models, and odd ones ---------------------===//
//
// A test for each kind of shape that users of such kernels have reported: any
// plan of such a block is right, and has the bits of the others.
//
//===----------------------------------------------------------------------===//
#include "test/unit/NumericsHarness.h"
#include <catch2/catch.hpp>

using namespace cfc;
using namespace cfc::test;

/// The planner's choice against the reference, and `plans` drawn by seed against its bits.
static void checkShape(const Block &block, const std::vector<int64_t> &lengths, int plans = 2) {
  CAPTURE(block.heads, block.kvHeads, block.dim, block.vDim, block.hidden);
  Graph graph(block.text());
  GraphRun run(graph, "auto");
  std::vector<TensorMap> inputs, outputs;
  for (int64_t length : lengths) {
    CAPTURE(length);
    inputs.push_back(graph.inputs(1, length, lengths.back() + 6));
    outputs.push_back(run.launch(inputs.back(), 1));
    CHECK(mismatch(graph, run, inputs.back(), outputs.back(), toleranceFor(block.coarsest())) == "");
  }
  for (int seed = 0; seed < plans; ++seed) {
    std::string plan = fmt::format("random:{}", seed);
    CAPTURE(plan);
    GraphRun other(graph, plan);
    for (size_t i = 0; i < lengths.size(); ++i)
      CHECK(differingBits(other.launch(inputs[i], seed), outputs[i]) == "");
  }
}

TEST_CASE("shapes: ratios of 1 to 128", "[shapes]") {
  auto [heads, kvHeads, dim] =
      GENERATE(table<int64_t, int64_t, int64_t>({{14, 2, 32}, {24, 2, 64}, {51, 3, 40}, {128, 1, 64}}));
  checkShape({.heads = heads, .kvHeads = kvHeads, .dim = dim, .hidden = 96}, {70});
}

TEST_CASE("shapes: one KV head", "[shapes]") {
  int64_t heads = GENERATE(1, 71);
  checkShape({.heads = heads, .kvHeads = 1, .dim = 64, .hidden = 128}, {130});
}

TEST_CASE("shapes: head dimensions of 32 to 256", "[shapes]") {
  int64_t dim = GENERATE(40, 56, 104, 192, 248);
  Block block{.heads = 6, .kvHeads = 2, .dim = dim, .hidden = 64};
  if (dim % 16)
    block.act = block.weight = block.cache = "bf16";
  checkShape(block, {65});
}

TEST_CASE("shapes: V's heads are not as long as K's", "[shapes]") {
  auto [dim, vDim] = GENERATE(table<int64_t, int64_t>({{192, 128}, {32, 72}}));
  Block block{.heads = 4, .kvHeads = 2, .dim = dim, .hidden = 96, .bias = dim == 32, .vDim = vDim};
  checkShape(block, {0, 66});
}

TEST_CASE("shapes: hidden sizes from 64 to 16384", "[shapes]") {
  int64_t hidden = GENERATE(64, 80, 2560, 3072, 5120, 16384);
  checkShape({.heads = 2, .kvHeads = 1, .dim = 32, .hidden = hidden}, {33}, 1);
}

TEST_CASE("shapes: projections whose width is not hidden", "[shapes]") {
  auto [heads, kvHeads, dim, hidden] =
      GENERATE(table<int64_t, int64_t, int64_t, int64_t>({{4, 2, 128, 160}, {5, 5, 40, 328}}));
  checkShape({.heads = heads, .kvHeads = kvHeads, .dim = dim, .hidden = hidden}, {66});
}

TEST_CASE("shapes: tails in every dimension", "[shapes]") {
  // Neither heads, columns, rows nor tokens fill what a warp, a box, a tile or a segment takes.
  checkShape({.heads = 9, .kvHeads = 3, .dim = 56, .hidden = 136}, {0, 1, 15, 67});
}
