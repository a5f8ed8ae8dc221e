//===- PlanPanelsTest.cpp - When items are panels of stacked weights --------===//
#include "test/unit/PlanFixture.h"

using namespace cfc;
using namespace cfc::test;
using Catch::Matchers::Contains;

TEST_CASE("few stacked rows are cut into panels, which clusters of any size take") {
  Planned planned("llama3_70b_rank");
  PlanOptions options;
  options.length = 8192;
  std::optional<Plan> plan = planned.of(options.length.tokens);
  // 320 rows of q, k and v on each of four clusters of 16 would be tiles of 32 rows.
  CHECK(plan->kernels[0].stacked == 1);
  CHECK(plan->kernels[0].rowsPerItem % 64 == 0);
  std::optional<Explanation> found =
      explainPlan(planned.graph(), *plan, planned.machine, 8192, sharedBytesOf);
  REQUIRE(found);
  CHECK_THAT(explanationText(*found), Contains("panels of stacked rows on clusters of"));
  auto usOf = [&](const std::string &keys) {
    std::string error;
    options.given = parsePlan("graph llama3_70b_rank\nkernel 0: " + keys +
                                  "\nop linear(%q, %k, %v): kernel = 0, split = columns\n"
                                  "op rope(%qr, %kr): kernel = 1\nop linear(%y): kernel = 2\n",
                              "given", error);
    INFO(error << keys);
    REQUIRE(options.given);
    plan = planned.plan(options);
    INFO(planned.message);
    REQUIRE(plan);
    std::string text = plan->print();
    CHECK(parsePlan(text, "printed", error) == plan);
    CHECK((text.find("stacked = 1") != std::string::npos) == (plan->kernels[0].stacked == 1));
    return explainPlan(planned.graph(), *plan, planned.machine, 8192, sharedBytesOf)->us();
  };
  double stacked = usOf("part = 4, rows_per_item = 64, stacked = 1");
  CHECK(stacked < usOf("part = 16, rows_per_item = 256"));
  CHECK(plan->kernels[0].stacked == -1); // rows of the widest value, as they are given
  CHECK(stacked < usOf("stacked = 0"));
  CHECK(stacked < usOf("part = 2, stacked = 1"));
}

TEST_CASE("panels that a kernel cannot have") {
  Planned planned("llama3_70b_rank");
  const std::string cut = "op linear(%q, %k, %v): kernel = 0\nop rope(%qr, %kr): kernel = 1\n"
                          "op linear(%y): kernel = 2\n";
  auto refuse = [&](const std::string &lines, int exitCode) {
    INFO(lines);
    CHECK(!planned.given(lines));
    CHECK(planned.exitCode == exitCode);
    return planned.message;
  };
  for (const char *kernel : {"kernel 1", "kernel 2"}) // an attention; one weight
    CHECK_THAT(refuse(cut + kernel + ": stacked = 1", kExitBadInput),
               Contains("has stacked = 1; that takes a kernel of one linear of several weights alike"));
  CHECK_THAT(
      refuse("op rope(%qr, %kr): kernel = 0\nop attention(%o): kernel = 1\nkernel 0: stacked = 1",
             kExitBadInput),
      Contains("kernel 0 has stacked = 1; that takes a kernel of one linear of several weights alike, whose "
               "results are only stored"));
  CHECK_THAT(refuse(cut + "kernel 0: stacked = 2", kExitBadInput),
             Contains("kernel 0 has stacked = 2; 0 and 1 are possible"));
  CHECK_THAT(refuse(cut + "kernel 0: stacked = 1, rows_per_item = 256", kExitCannotRun),
             Contains("kernel 0 has stacked = 1; each weight of linear(%q, %k, %v) must have a multiple of "
                      "rows_per_item = 256; 128 divides them all"));
  CHECK_THAT(refuse(cut + "kernel 0: stacked = 1, rows_per_item = 40", kExitCannotRun),
             Contains("rows_per_item = 40; multiples of 16 are possible"));
}
