//===- PlanFewHeadsTest.cpp - Plans of few KV heads of one request ----------===//
#include "compiler/lower/AttnToKernel.h"
#include "test/unit/PlanFixture.h"

using namespace cfc;
using namespace cfc::test;
using Catch::Matchers::Contains;

TEST_CASE("few KV heads are cut into chunks, which small clusters take") {
  auto [finish, merged] =
      GENERATE(std::pair("ordered", "attention(%o): the chunks of a head merged"),
               std::pair("reader", "attention(%o): the chunks of all heads merged by who reads them"));
  Planned planned("llama3_8b_attention");
  std::optional<Plan> plan = planned.given("kernel 0: part = 2\nkernel 1: chunks = 4, joined = 1\n"
                                           "kernel 2: joined = 1\nop linear(%q, %k, %v): kernel = 0\n"
                                           "op rope(%qr, %kr): kernel = 1\n"
                                           "op attention(%o): kernel = 1, finish = " +
                                           std::string(finish) + "\nop linear(%y): kernel = 2\n");
  INFO(planned.message);
  REQUIRE(plan);
  CHECK(plan->launches().size() == 1);
  std::string error;
  CHECK(parsePlan(plan->print(), "p.plan", error) == plan);
  std::optional<Explanation> found =
      explainPlan(planned.graph(), *plan, planned.machine, 4096, sharedBytesOf);
  REQUIRE(found);
  for (const char *part : {"then 32 chunks of a head, then", "4096 cached tokens in 4 chunks", merged})
    CHECK_THAT(explanationText(*found), Contains(part));
}

TEST_CASE("whoever reads an attention merges its chunks where that is quicker") {
  Planned planned("llama3_70b_rank");
  Plan plan = planned.of(8192);
  const OpPlan *attention = plan.find("attention(%o)");
  REQUIRE(attention);
  CHECK(chunksOf(plan.kernels[attention->kernel]) > 1);
  CHECK(attention->finish == Exchange::Reader);
}

TEST_CASE("few KV heads have more groups of segments, which as many more CTAs can share") {
  auto [name, groups] = GENERATE(std::pair("llama3_70b_rank", 128), std::pair("gqa_small", 32));
  CAPTURE(name);
  Planned planned(name);
  const std::string cut = "op linear(%q, %k, %v): kernel = 0\nop rope(%qr, %kr): kernel = 1\n"
                          "op linear(%y): kernel = 2\n";
  for (int chunks : {1, 2, 4, 8, 16})
    for (int part : {1, 2, 4, 8, 16}) {
      std::string kernel =
          "kernel 1: part = " + std::to_string(part) + ", chunks = " + std::to_string(chunks);
      INFO(kernel);
      std::optional<Plan> plan = planned.given(cut + kernel);
      REQUIRE(bool(plan) == (part * chunks <= groups));
      if (plan) {
        int exitCode = 0;
        REQUIRE(succeeded(lowerToKernels(planned.graph(), *plan, exitCode)));
      } else {
        CHECK_THAT(planned.message,
                   Contains("shares the " + std::to_string(groups) + " groups of a head's tokens among"));
      }
    }
}

TEST_CASE("who merges chunks is chosen among those who can") {
  Planned planned("llama3_70b_rank");
  const std::string cut = "op linear(%q, %k, %v): kernel = 0\nop rope(%qr, %kr): kernel = 1\n"
                          "op linear(%y): kernel = 2\n";
  // A reader's parts would be 520 bytes, which no bulk copy takes.
  std::optional<Plan> plan =
      planned.given(cut + "kernel 1: part = 8, chunks = 8\nop attention(%o): reduce = bulk\n");
  INFO(planned.message);
  REQUIRE(plan);
  CHECK(plan->find("attention(%o)")->finish == Exchange::Ordered);
  CHECK(planned.given(cut + "kernel 1: part = 8, chunks = 8\n")->find("attention(%o)")->finish ==
        Exchange::Reader);
}

TEST_CASE("launches around few heads: what is in the air, and which rings are full") {
  Planned planned("llama3_70b_rank");
  Plan plan = planned.of(8192, Layout::Packed);
  REQUIRE(plan.kernels.size() == 3);
  // The output projection has an SM for each CTA beside the attention: what finds no room in its rings is
  // held.
  const KernelPlan &last = plan.kernels[2];
  CHECK(last.ctasPerSm == 1);
  CHECK(8192 / last.rowsPerItem <= 132 - 64);
  CHECK(last.prefetch == 0);
  int64_t tiles = 1024 / last.tileColumns * last.rowsPerItem / 64;
  CHECK(last.ringStages + last.held * last.warps / 4 == tiles);
  // Where nothing is held little is in the air. The first launch's last CTAs start late: they hold nothing.
  PlanOptions options;
  options.length = 8192, options.weights = Layout::Packed, options.given = plan;
  options.given->kernels[2].held = 0, options.given->kernels[2].inFlight = -1;
  std::optional<Plan> none = planned.plan(options);
  REQUIRE(none);
  CHECK(none->kernels[2].inFlight * 4 <= none->kernels[2].ringStages * 2);
  CHECK(none->kernels[2].inFlight < last.inFlight);
  CHECK(plan.kernels[0].held == 0);
  // The rings of the next layer's first launch are full when it may begin: larger ones are quicker.
  auto usOf = [&](int stages) {
    Plan other = plan;
    other.kernels[0].ringStages = stages;
    other.kernels[0].inFlight = std::min<int64_t>(other.kernels[0].inFlight, stages);
    std::optional<Explanation> found =
        explainPlan(planned.graph(), other, planned.machine, 8192, sharedBytesOf);
    REQUIRE(found);
    return found->us();
  };
  CHECK(usOf(plan.kernels[0].ringStages / 2) > usOf(plan.kernels[0].ringStages) + 0.3);
}
