//===- PlanCostTest.cpp - What plans are weighed by ------------------------===//
#include "test/unit/PlanFixture.h"

using namespace cfc;
using namespace cfc::test;

TEST_CASE("the cost model follows what slows a kernel down") {
  Planned planned;
  const std::string ops = "op rms_norm(%n): kernel = 0\nop linear(%q, %k, %v): kernel = 0, split = columns, "
                          "reduce = async\nop rope(%qr, %kr): kernel = 0\nop kv_append(%c): kernel = 0\nop "
                          "attention(%o): kernel = 0, reduce = async\nop linear(%y): kernel = 0, finish = "
                          "ordered\nop add(%z): kernel = 0\n";
  auto us = [&](const std::string &kernel, int64_t length = 4096) {
    std::string error;
    std::optional<Plan> plan =
        parsePlan("graph llama2_7b_attention\nkernel 0: " + kernel + "\n" + ops, "given", error);
    INFO(error);
    REQUIRE(plan);
    return *predictPlan(planned.graph(), *plan, planned.machine, length);
  };
  const std::string base = "part = 2, warps = 8, ctas_per_sm = 1, tile_columns = 128";
  double usual = us(base + ", ring_stages = 8, pdl = 0, weights = packed");
  CHECK(usual < us(base + ", ring_stages = 8, pdl = 0, weights = native"));
  CHECK(usual < us(base + ", ring_stages = 2, pdl = 0, weights = packed"));
  CHECK(usual < us(base + ", ring_stages = 8, pdl = 0, weights = packed, clusters = 16"));
  CHECK(usual < us(base + ", ring_stages = 8, pdl = 0, weights = packed", 8192));
  // 32 clusters of 4 do not all fit with one CTA an SM: two of them run alone.
  const std::string four = "part = 4, warps = 4, ring_stages = 5, tile_columns = 128, weights = packed";
  CHECK(us(four + ", pdl = 0, ctas_per_sm = 1") > 1.2 * us(four + ", pdl = 0, ctas_per_sm = 2"));
  // Starting early helps only where there is room.
  CHECK(us(four + ", pdl = 1, ctas_per_sm = 2") > us(four + ", pdl = 0, ctas_per_sm = 2"));
  planned.machine.residentClusters[2][4] = 64;
  CHECK(us(four + ", pdl = 1, ctas_per_sm = 2") < 1.02 * us(four + ", pdl = 0, ctas_per_sm = 2"));
}

TEST_CASE("only the last kernel of a launch has another launch behind it") {
  Planned planned;
  // 24 clusters leave room for others, and have rest to share in the last round.
  auto launches = [&](bool joined, double tailUs, double earlyUs) {
    const std::string both = "part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 8, tile_columns = 128, "
                             "clusters = 24, pdl = 1, weights = native";
    std::string error;
    std::optional<Plan> plan = parsePlan(
        "graph llama2_7b_attention\nkernel 0: " + both + ", rows_per_item = 128\nkernel 1: " + both +
            ", joined = " + std::to_string(joined) +
            "\nkernel 2: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 8, tile_columns = 128, "
            "rows_per_item = 64, pdl = 1, weights = native, joined = 0\nop rms_norm(%n): kernel = 0\n"
            "op linear(%q, %k, %v): kernel = 0, split = rows\nop rope(%qr, %kr): kernel = 1\n"
            "op kv_append(%c): kernel = 1\nop attention(%o): kernel = 1, reduce = push\n"
            "op linear(%y): kernel = 2, split = rows\nop add(%z): kernel = 2\n",
        "given", error);
    INFO(error);
    REQUIRE(plan);
    planned.machine.tailUs = tailUs;
    planned.machine.earlyUs = earlyUs;
    std::optional<Explanation> explained = explainPlan(planned.graph(), *plan, planned.machine, 4096);
    REQUIRE(explained);
    std::vector<double> us;
    for (const ExplainedKernel &launch : explained->kernels)
      us.push_back(launch.cost.us);
    return us;
  };
  constexpr double kLittle = 1e-3; // so that nothing else limits it
  auto effects = [&](bool joined, double tailUs, double earlyUs) {
    std::vector<double> with = launches(joined, tailUs, earlyUs), without = launches(joined, 0, 0);
    std::vector<double> effects;
    for (auto [a, b] : llvm::zip_equal(with, without))
      effects.push_back(a - b);
    return effects;
  };
  std::vector<double> apart = effects(false, kLittle, 0), joined = effects(true, kLittle, 0);
  REQUIRE(apart.size() == 3);
  REQUIRE(joined.size() == 2);
  CHECK(apart[0] == Approx(-kLittle));
  CHECK(apart[1] == Approx(-kLittle));
  CHECK(apart[2] == 0); // nothing is behind
  CHECK(joined[0] == Approx(-kLittle));
  CHECK(joined[1] == 0);
  apart = effects(false, 0, 1);
  joined = effects(true, 0, 1);
  CHECK(apart[0] > 0.1);
  CHECK(apart[1] > 0.1);
  CHECK(joined[0] == Approx(apart[1]));
}

TEST_CASE("little is fetched ahead where few CTAs have much to fetch") {
  for (int64_t limit : {1, 2, 4, 64}) {
    Planned planned;
    planned.machine.smsLimit = limit;
    PlanOptions options;
    options.weights = Layout::Packed;
    std::string error;
    options.given = parsePlan("graph llama2_7b_attention\nkernel 0: pdl = 3\n", "given", error);
    for (const char *label : {"rms_norm(%n)", "linear(%q, %k, %v)", "rope(%qr, %kr)", "kv_append(%c)",
                              "attention(%o)", "linear(%y)", "add(%z)"})
      options.given->ops.push_back({{}, label, 0});
    std::optional<Plan> plan = planned.plan(options);
    INFO(limit << " SMs: " << planned.message);
    REQUIRE(plan);
    int64_t later = plan->kernels.front().prefetchLater;
    CHECK(later > 0);
    CHECK(later <= 64);
    CHECK((limit > 4 || later == 64)); // more would be worth it
    PlanOptions drawn = options;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      drawn.randomSeed = seed;
      plan = planned.plan(drawn);
      INFO("seed " << seed << ": " << planned.message);
      REQUIRE(plan);
      CHECK(plan->kernels.front().prefetchLater <= 64);
    }
  }
}
