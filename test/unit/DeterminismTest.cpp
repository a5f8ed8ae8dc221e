//===- DeterminismTest.cpp - The same bits every time ----------------------===//
//
// A request alone and in a batch: BatchAttendTest.cpp. Plans that differ, on data that shows the order of
// sums: PlansTest.cpp, by the same prefix.
//
//===----------------------------------------------------------------------===//
#include "test/unit/NumericsHarness.h"
#include <catch2/catch.hpp>

using namespace cfc;
using namespace cfc::test;

TEST_CASE("determinism: the same bits in 100 runs", "[determinism]") {
  Block block{.heads = 4, .kvHeads = 2, .dim = 32, .hidden = 64};
  Graph graph(block.text());
  constexpr int64_t length = 90;
  TensorMap inputs = graph.inputs(1, length, 128);
  makeSensitive(inputs, length);
  GraphRun run(graph, "auto");
  TensorMap first = run.launch(inputs, 0);
  for (uint64_t seed = 1; seed < 100; ++seed) { // of the order of threads and of clusters
    CAPTURE(seed);
    REQUIRE(differingBits(run.launch(inputs, seed), first) == "");
  }
}
