//===- PanelPlansTest.cpp - Plans whose items are panels -----------------------===//
//
// Norm and projections of one or several tokens, apart from their attention:
// plans that cut the stacked rows of the weights into panels have the bits of
// those whose items have some rows of each, and the planner draws both.
//
//===----------------------------------------------------------------------===//
#include "test/unit/NumericsHarness.h"
#include "tools/lib/Failure.h"
#include <catch2/catch.hpp>

using namespace cfc;
using namespace cfc::test;

namespace {
/// Three panels of q for each of k and of v.
std::string projections(int64_t tokens, const std::string &type, bool bias) {
  std::string biases =
      bias ? fmt::format(", %b_q: tensor<192x{0}>, %b_k: tensor<64x{0}>, %b_v: tensor<64x{0}>", type) : "";
  return fmt::format(R"(
attn.graph @rank(%x: tensor<{0}x256x{1}>, %gain: tensor<256xf32>, %w_q: tensor<192x256x{1}>, %w_k: tensor<64x256x{1}>,
    %w_v: tensor<64x256x{1}>{2}) -> (tensor<{0}x192x{1}>, tensor<{0}x64x{1}>, tensor<{0}x64x{1}>) {{
  %n = attn.rms_norm %x, %gain {{eps = 1.0e-5}}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]{3}
  attn.return %q, %k, %v
}})",
                     tokens, type, biases, bias ? " bias [%b_q, %b_k, %b_v]" : "");
}

std::string plan(const std::string &keys, const std::string &split) {
  return fmt::format("graph rank\nkernel 0: {}\nop linear(%q, %k, %v): split = {}\n", keys, split);
}
} // namespace

TEST_CASE("panels have the bits of other plans", "[panels]") {
  int64_t tokens = GENERATE(1, 5);
  bool bias = GENERATE(false, true);
  std::string type = bias ? "bf16" : "f16";
  CAPTURE(tokens, type);
  Graph graph(projections(tokens, type, bias));
  GraphRun first(graph, plan("part = 1, rows_per_item = 48", "rows"));
  REQUIRE(first.planText().find("stacked") == std::string::npos);
  TensorMap inputs = graph.inputs(1, 0, 64), sensitive = graph.inputs(2, 0, 64);
  makeSensitive(sensitive, 0);
  TensorMap outputs = first.launch(inputs, 1), ofSensitive = first.launch(sensitive, 2);
  REQUIRE(mismatch(graph, first, inputs, outputs, toleranceFor(bias ? DType::bf16 : DType::f16)) == "");

  uint64_t seed = 10;
  auto check = [&](const std::string &text) {
    GraphRun run(graph, text);
    INFO(text << " is\n" << run.planText());
    CHECK(differingBits(run.launch(inputs, ++seed), outputs) == "");
    CHECK(differingBits(run.launch(sensitive, ++seed), ofSensitive) == "");
    return run.planText().find("stacked = 1") != std::string::npos;
  };
  for (int part : {1, 2, 4})
    for (int rows : {16, 32, 64})
      for (const char *split : {"rows", "columns"})
        CHECK(check(plan(fmt::format("part = {}, rows_per_item = {}, stacked = 1", part, rows), split)));
  int stacked = 0, others = 0;
  for (int drawn = 0; drawn < 30; ++drawn)
    ++(check(fmt::format("random:{}", drawn)) ? stacked : others);
  CHECK(stacked >= 5);
  CHECK(others >= 5);
}

TEST_CASE("panels that are not of one weight are refused", "[panels]") {
  Graph graph(projections(1, "f16", false));
  CHECK_THROWS_AS(GraphRun(graph, plan("rows_per_item = 128, stacked = 1", "rows")), Failure);
}
