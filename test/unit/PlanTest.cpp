//===- PlanTest.cpp - Plans: text, machines, choices, limits ---------------===//
#include "compiler/lower/AttnToKernel.h"
#include "test/unit/PlanFixture.h"
#include <set>

using namespace cfc;
using namespace cfc::test;
using Catch::Matchers::Contains;

namespace {

std::string parseError(const std::string &text) {
  std::string error;
  CHECK(!parsePlan(text, "p.plan", error));
  return error;
}

std::string machineError(const std::string &json) {
  std::string error;
  CHECK(!parseMachine(json, "m.json", error));
  return error;
}

const char *const kGraphs[] = {"linear",        "norm_linear",          "attention_only",     "no_residual",
                               "q_second_user", "returns_intermediate", "small_attention",    "gqa_small",
                               "two_blocks",    "llama2_7b_attention",  "llama3_8b_attention"};

} // namespace

TEST_CASE("a plan is read back as it was printed") {
  for (const char *name : kGraphs) {
    Planned planned(name);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::optional<Plan> plan = seed ? planned.random(seed) : planned.plan();
      INFO(name << ", seed " << seed << ": " << planned.message);
      REQUIRE(plan);
      std::string error;
      std::optional<Plan> again = parsePlan(plan->print(), "printed", error);
      INFO(error);
      REQUIRE(again);
      CHECK(*again == *plan);
      PlanOptions options;
      options.given = again;
      CHECK(planned.plan(options) == plan);
    }
  }
}

TEST_CASE("random plans of the 7B block are many, legal and verify as kernels") {
  Planned planned;
  std::set<std::string> texts, choices;
  for (uint64_t seed = 1; seed <= 320; ++seed) {
    std::optional<Plan> plan = planned.random(seed);
    INFO("seed " << seed << ": " << planned.message);
    REQUIRE(plan);
    texts.insert(plan->print());
    int exitCode = 0;
    REQUIRE(succeeded(lowerToKernels(planned.graph(), *plan, exitCode)));
    std::string why;
    llvm::SmallVector<int64_t> bytes = sharedBytesOf(planned.graph(), *plan, why);
    REQUIRE(bytes.size() == plan->launches().size());
    for (auto [launch, size] : llvm::zip(plan->launches(), bytes)) {
      const KernelPlan &kernel = plan->kernels[launch.first];
      choices.insert("joined " + std::to_string(launch.size() > 1));
      choices.insert("in_flight " + std::to_string(kernel.inFlight > 0));
      CHECK(size > 0);
      CHECK(size <= planned.machine.sharedLimit(kernel.ctasPerSm));
      CHECK(planned.machine.resident(kernel.part, kernel.ctasPerSm) > 0);
      choices.insert("part " + std::to_string(kernel.part));
      choices.insert("warps " + std::to_string(kernel.warps));
      choices.insert("ctas " + std::to_string(kernel.ctasPerSm));
    }
    choices.insert("kernels " + std::to_string(plan->kernels.size()));
    for (const OpPlan &op : plan->ops) {
      choices.insert(("split " + stringify(op.split)).str());
      choices.insert(("gather " + stringify(op.gather)).str());
      choices.insert(("reduce " + stringify(op.reduce)).str());
      choices.insert(("finish " + stringify(op.finish)).str());
    }
    CHECK(planned.random(seed) == plan);
  }
  CHECK(texts.size() >= 200);
  for (const char *choice :
       {"part 1",           "part 2",      "part 4",      "part 8",           "part 16",
        "warps 4",          "warps 8",     "ctas 1",      "ctas 2",           "kernels 1",
        "kernels 2",        "kernels 3",   "split rows",  "split columns",    "gather push",
        "gather butterfly", "gather bulk", "reduce push", "reduce butterfly", "reduce bulk",
        "finish ordered",   "warps 16",    "ctas 3",      "gather async",     "reduce async",
        "reduce scatter",   "joined 0",    "joined 1",    "in_flight 0",      "in_flight 1"})
    CHECK(choices.count(choice));
  CHECK(!choices.count("finish atomic"));
}

TEST_CASE("random plans of every template verify as kernels") {
  for (const char *name : kGraphs) {
    Planned planned(name);
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      std::optional<Plan> plan = planned.random(seed);
      INFO(name << ", seed " << seed << ": " << planned.message);
      REQUIRE(plan);
      int exitCode = 0;
      CHECK(succeeded(lowerToKernels(planned.graph(), *plan, exitCode)));
    }
  }
}

TEST_CASE("the fewest launches") {
  for (const char *name : kGraphs) {
    Planned planned(name);
    std::optional<Plan> plan = planned.plan();
    INFO(name << planned.message);
    REQUIRE(plan);
    CHECK(plan->launches().size() == (std::string(name) == "two_blocks" ? 2 : 1));
  }
}

TEST_CASE("atomic sums only where bits may differ") {
  Planned planned;
  CHECK(!planned.given("op linear(%y): finish = atomic"));
  CHECK(planned.exitCode == kExitCannotRun);
  CHECK_THAT(planned.message, Contains("--no-deterministic"));
  bool drawn = false;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    PlanOptions options;
    options.randomSeed = seed;
    options.deterministic = false;
    drawn |= planned.plan(options)->print().find("finish = atomic") != std::string::npos;
  }
  CHECK(drawn);
}

TEST_CASE("what a plan fixes stays, the rest is planned") {
  Planned planned;
  std::optional<Plan> plan =
      planned.given("kernel 0: part = 8, warps = 8\nop linear(%q,%k, %v): split = columns");
  INFO(planned.message);
  REQUIRE(plan);
  CHECK(plan->kernels[0].part == 8);
  CHECK(plan->kernels[0].warps == 8);
  CHECK(plan->kernels[0].ringStages >= 2);
  CHECK(plan->find("linear(%q, %k, %v)")->split == Split::Columns);
  CHECK(plan->find("linear(%q, %k, %v)")->gather == Exchange::Unset);
  CHECK(plan->find("linear(%q, %k, %v)")->reduce != Exchange::Unset);
  plan = planned.given("op linear(%y): kernel = 1");
  INFO(planned.message);
  REQUIRE(plan);
  CHECK(plan->kernels.size() == 2);
  CHECK(plan->find("add(%z)")->kernel == 1);
}

TEST_CASE("how many copies are in the air follows what is streamed, and beside what") {
  auto kernelsFor = [](const char *graph, int64_t length, const std::string &lines) {
    Planned planned(graph);
    PlanOptions options;
    options.length = length;
    options.weights = Layout::Packed;
    std::string error;
    options.given = parsePlan("graph " + planned.graph().getSymName().str() + "\n" + lines, "given", error);
    INFO(error);
    REQUIRE(options.given);
    std::optional<Plan> plan = planned.plan(options);
    INFO(planned.message);
    REQUIRE(plan);
    return plan->kernels;
  };
  const std::string oneLaunch = "kernel 0: part = 8, warps = 4, ring_stages = 10, tile_columns = 128, pdl = ";
  // 64 CTAs of tiles of 16 KB: 6.3 MB are 6 of them, of mostly weights all 10.
  auto alone = kernelsFor("llama3_8b_attention_32k", 1024, oneLaunch + "3").front();
  CHECK(alone.inFlight == 0);
  CHECK(alone.prefetchLater == 6);
  auto cached = kernelsFor("llama3_8b_attention_32k", 32768, oneLaunch + "3").front();
  CHECK(cached.inFlight == 6);
  CHECK(cached.prefetchLater == 6);
  // The next launch fills its rings meanwhile.
  auto overlapped = kernelsFor("llama3_8b_attention_32k", 1024, oneLaunch + "1").front();
  CHECK(overlapped.inFlight == 6);
  CHECK(overlapped.prefetchLater == 0);
  // Beside the rows of several tokens 48 KB go to the L2 ahead, beside a norm 96.
  const std::string threeLaunches =
      "kernel 0: part = 8, warps = 4, tile_columns = 256, pdl = 1\nkernel 1: joined = 0\n"
      "kernel 2: part = 2, warps = 4, tile_columns = 256, pdl = 1\nop linear(%q, %k, %v): kernel = 0\n"
      "op rope(%qr, %kr): kernel = 1\nop kv_append(%c): kernel = 1\nop attention(%o): kernel = 1\n"
      "op linear(%y): kernel = 2\nop add(%z): kernel = 2\n";
  auto batch = kernelsFor("llama3_8b_attention_b8", 1024, threeLaunches);
  CHECK(batch[0].prefetch == 3);
  CHECK(batch[2].prefetch == 1);
}

TEST_CASE("plans that are no text of a plan") {
  CHECK(parseError("") ==
        "p.plan:1:1: error: the plan names no graph; its first line is 'graph NAME hash = …'");
  CHECK(parseError("graph a\nkernal 0: part = 1") ==
        "p.plan:2:1: error: unknown line 'kernal'; did you mean 'kernel'?");
  CHECK(parseError("graph a\nkernel 0: parts = 1") ==
        "p.plan:2:11: error: unknown key 'parts'; did you mean 'part'?");
  CHECK(parseError("graph a\nkernel 0: part = -1") == "p.plan:2:18: error: '-1' is no number from 1 to 2^30");
  CHECK(parseError("graph a\nkernel 0: part = 99999999999999999999") ==
        "p.plan:2:18: error: '99999999999999999999' is no number from 1 to 2^30");
  CHECK(parseError("graph a\nkernel 0: part = 1, part = 2") == "p.plan:2:21: error: 'part' is given twice");
  CHECK(parseError("graph a\nkernel 0: part = 1,") == "p.plan:2:11: error: a ',' ends the line");
  CHECK(parseError("graph a\nkernel 0: part") == "p.plan:2:11: error: expected 'key = value'");
  CHECK(parseError("graph a\nkernel x: part = 1") ==
        "p.plan:2:8: error: expected 'kernel NUMBER: key = value, …'");
  CHECK(parseError("graph a\nkernel 0: part = 1\nkernel 0: part = 1") ==
        "p.plan:3:8: error: kernel 0 is given twice");
  CHECK(parseError("graph a\ngraph b") == "p.plan:2:7: error: a second graph line; a plan is for one graph");
  CHECK(parseError("graph a hash = 12") == "p.plan:1:16: error: '12' is no hash of 16 hex digits");
  CHECK(parseError("graph a\nop linear") ==
        "p.plan:2:4: error: expected 'op NAME(%results): key = value, …'");
  CHECK(parseError("graph a\nop linear(%y): gather = pusch") ==
        "p.plan:2:25: error: unknown algorithm 'pusch'; did you mean 'push'?");
  CHECK(parseError("graph a\nop linear(%y): gather = ordered") ==
        "p.plan:2:25: error: unknown algorithm 'ordered'; known are push, butterfly, bulk, async");
  CHECK(parseError("graph a\nop attention(%o): finish = readers") ==
        "p.plan:2:28: error: unknown algorithm 'readers'; did you mean 'reader'?");
  CHECK(parseError("graph a\nop attention(%o): reduce = reader") ==
        "p.plan:2:28: error: unknown algorithm 'reader'; known are push, butterfly, bulk, async, scatter");
  CHECK(parseError("graph a\nop linear(%y): finnish = ordered") ==
        "p.plan:2:16: error: unknown key 'finnish'; did you mean 'finish'?");
  CHECK(parseError("graph a\nop linear(%y): split = 2") ==
        "p.plan:2:24: error: unknown split '2'; known are rows, columns");
  CHECK(parseError("graph a\nop linear(%y):\nop linear( %y ):") ==
        "p.plan:3:4: error: linear(%y) is given twice");
}

TEST_CASE("what is wrong with a plan is said where the plan says it") {
  Planned planned;
  const std::string cut = "op linear(%q, %k, %v): kernel = 0\nop rope(%qr, %kr): kernel = 1\n"
                          "op linear(%y): kernel = 2\n";
  // The first line names the graph.
  for (auto [lines, place] : {
           std::pair("kernel 0: part = 4, warps = 5", "given:2:29"),
           std::pair("# why\n  kernel 0: part = 3", "given:3:20"),
           std::pair("kernel 0: warps = 8, ring_stages = 3", "given:2:36"),
           std::pair("kernel 0: ring_stages = 8, in_flight = 9", "given:2:40"),
           std::pair("kernel 0: in_flight = 17", "given:2:23"),
           std::pair("kernel 0: pdl = 0, held = 1", "given:2:27"),
           std::pair("kernel 0: ctas_per_sm = 9", "given:2:25"),
           std::pair("kernel 0: pdl = 4", "given:2:17"),
           std::pair("kernel 0: part = 2\nkernel 1: joined = 2", "given:6:20"),
           std::pair("kernel 0: warps = 4\nkernel 1: joined = 1, warps = 8", "given:6:31"),
           std::pair("kernel 1: chunks = 3", "given:5:20"),
           std::pair("kernel 1: part = 4, chunks = 8", "given:5:8"),
           std::pair("kernel 7: part = 1", "given:2:8"),
           std::pair("kernel 0: ring_stages = 60, tile_columns = 1024", "given:2:25"),
           std::pair("op linear(%y): finish = atomic", "given:2:25"),
           std::pair("op linear(%y): finish = ordered, split = rows", "given:2:42"),
           std::pair("op linear(%z): finish = ordered", "given:2:4"),
           std::pair("op rms_norm(%n): kernel = 1\nop linear(%q, %k, %v): kernel = 0", "given:3:33"),
           std::pair("op linear(%y): kernel = 0\nop add(%z): kernel = 2", "given:3:22"),
       }) {
    bool takesCut = place[6] > '3';
    CHECK(!planned.given((takesCut ? cut : "") + lines));
    INFO(lines << ": " << planned.message);
    CHECK(planned.place == place);
  }
  planned.plan();
  PlanOptions other;
  std::string error;
  other.given = parsePlan("# of another\ngraph linear\n", "given", error);
  CHECK(!planned.plan(other));
  CHECK(planned.place == "given:2:7");
}

TEST_CASE("plans for another graph, or of what a graph does not have") {
  Planned planned;
  auto refuse = [&](const std::string &text) {
    PlanOptions options;
    std::string error;
    options.given = parsePlan(text, "given", error);
    INFO(error);
    REQUIRE(options.given);
    CHECK(!planned.plan(options));
    CHECK(planned.exitCode == kExitBadInput);
    return planned.message;
  };
  CHECK_THAT(refuse("graph llama3_8b_attention"),
             Contains("the plan is for another graph: @llama3_8b_attention"));
  CHECK_THAT(refuse("graph llama2_7b_attention hash = 0123456789abcdef"),
             Contains("the plan is for another graph"));
  CHECK_THAT(refuse("graph llama2_7b_attention\nop linear(%q, %k):"),
             Contains("did you mean linear(%q, %k, %v)?"));
  CHECK_THAT(refuse("graph llama2_7b_attention\nkernel 2: part = 1"),
             Contains("the plan describes kernel 2"));
  CHECK_THAT(refuse("graph llama2_7b_attention\nkernel 0: rows_per_item = 64"),
             Contains("no choice 'rows_per_item'"));
  CHECK_THAT(
      refuse("graph llama2_7b_attention\nkernel 0: chunks = 2"),
      Contains("kernel 0 has no choice 'chunks'; that takes a kernel of one attention without linears"));
  CHECK_THAT(refuse("graph llama2_7b_attention\nop rope(%qr, %kr): gather = push"),
             Contains("no choice 'gather'"));
  CHECK_THAT(refuse("graph llama2_7b_attention\nop linear(%y): split = rows"), Contains("no choice 'split'"));
  const std::string chunks = "attention(%o) has no choice 'finish'; ordered and reader are possible, of 2 to "
                             "16 chunks of heads of one token, which linears of other kernels read";
  const std::string cut = "graph llama2_7b_attention\nop linear(%q, %k, %v): kernel = 0\n"
                          "op rope(%qr, %kr): kernel = 1\nop linear(%y): kernel = 2\n";
  for (const char *finish : {"ordered", "reader", "waiting", "atomic"})
    CHECK_THAT(refuse(std::string("graph llama2_7b_attention\nop attention(%o): finish = ") + finish),
               Contains(chunks));
  for (const char *lines :
       {"op attention(%o): finish = waiting", "kernel 1: chunks = 1\nop attention(%o): finish = reader",
        "kernel 1: part = 1, warps = 4, chunks = work\nop attention(%o): finish = reader"})
    CHECK_THAT(refuse(cut + lines), Contains(chunks));
  CHECK_THAT(refuse("graph llama2_7b_attention\nop linear(%y): finish = reader"),
             Contains("linear(%y) has no choice 'finish' = reader; that is of an attention"));
  CHECK_THAT(refuse("graph llama2_7b_attention\nop linear(%q, %k, %v): split = columns, gather = push"),
             Contains("no choice 'gather' where its columns are split"));
}

TEST_CASE("plans that contradict themselves are bad input") {
  Planned planned;
  const std::string cut = "op linear(%q, %k, %v): kernel = 0\nop rope(%qr, %kr): kernel = 1\n"
                          "op linear(%y): kernel = 2\n";
  for (auto [lines, why] : {
           std::pair("op linear(%y): kernel = 0\nop add(%z): kernel = 2", "numbered from 0 without gaps"),
           std::pair("op rms_norm(%n): kernel = 1\nop linear(%q, %k, %v): kernel = 0",
                     "its operands are made in kernel 1"),
           std::pair("kernel 0: warps = 8, ring_stages = 3",
                     "with warps = 8; multiples of 2 from 4 are possible"),
           std::pair("kernel 0: ring_stages = 8, in_flight = 9",
                     "in_flight = 9 with ring_stages = 8; 0 (all) to 8 are possible"),
           std::pair("kernel 1: part = 2, chunks = work", "that takes part = 1 and warps = 4"),
           std::pair("kernel 1: warps = 8, chunks = work", "that takes part = 1 and warps = 4"),
           std::pair("op attention(%o): reduce = scatter", "cannot reduce by scatter: that merges sums"),
       }) {
    bool takesCut = std::string(lines).find("work") != std::string::npos;
    CHECK(!planned.given((takesCut ? cut : "") + lines));
    INFO(lines << ": " << planned.message);
    CHECK(planned.exitCode == kExitBadInput);
    CHECK_THAT(planned.message, Contains(why));
  }
}

TEST_CASE("plans beyond a limit say what is required and the limit") {
  Planned planned;
  auto refuse = [&](const std::string &lines) {
    INFO(lines);
    CHECK(!planned.given(lines));
    CHECK(planned.exitCode == kExitCannotRun);
    return planned.message;
  };
  CHECK_THAT(refuse("kernel 0: ring_stages = 40, tile_columns = 512, ctas_per_sm = 2"),
             Contains("bytes of shared memory a CTA; 115712 are the limit with ctas_per_sm = 2"));
  CHECK_THAT(refuse("kernel 0: part = 3"), Contains("clusters of 1, 2, 4, 8 and 16 CTAs are possible"));
  CHECK_THAT(refuse("kernel 0: part = 32"), Contains("clusters of 1, 2, 4, 8 and 16 CTAs are possible"));
  CHECK_THAT(refuse("kernel 0: ctas_per_sm = 9"), Contains("none is resident on h200"));
  CHECK_THAT(refuse("kernel 0: warps = 5"), Contains("4, 8 and 16 are possible"));
  CHECK_THAT(refuse("kernel 0: ring_stages = 1"), Contains("2 to 64 are possible"));
  CHECK_THAT(refuse("kernel 0: tile_columns = 100"), Contains("multiples of 16 up to 4096 are possible"));
  const std::string cut = "op linear(%q, %k, %v): kernel = 0\nop rope(%qr, %kr): kernel = 1\n"
                          "op linear(%y): kernel = 2\n";
  CHECK_THAT(refuse(cut + "kernel 1: chunks = 3"),
             Contains("chunks = 3; 1, 2, 4, 8, 16 and work are possible"));
  CHECK_THAT(refuse(cut + "kernel 1: chunks = 32"),
             Contains("chunks = 32; 1, 2, 4, 8, 16 and work are possible"));
  CHECK_THAT(refuse(cut + "op attention(%o): finish = reader"),
             Contains("attention(%o) has finish = reader, which is of chunks of heads: give its kernel 2 to "
                      "16 chunks"));
  CHECK_THAT(refuse(cut + "kernel 1: part = 4, chunks = 8"),
             Contains("shares the 16 groups of a head's tokens among part = 4 times chunks = 8 CTAs"));
  planned.machine.residentClusters[2].erase(16);
  CHECK_THAT(refuse("kernel 0: part = 16, ctas_per_sm = 2"), Contains("part = 16 CTAs at ctas_per_sm = 2"));
  planned.machine.sharedBytes = 40000;
  CHECK_THAT(refuse("kernel 0: part = 1"), Contains("bytes of shared memory a CTA; 39936 are the limit"));
}

TEST_CASE("a kernel that is too large is cut") {
  Planned planned("two_blocks");
  planned.machine.sharedBytes = 26000;
  std::optional<Plan> plan = planned.plan();
  INFO(planned.message);
  REQUIRE(plan);
  CHECK(plan->kernels.size() >= 2);
}

TEST_CASE("planning takes little work, and decides the same every time") {
  std::vector<std::string> names(std::begin(kGraphs), std::end(kGraphs));
  // Several tokens whose stacked weights most packed plans cannot stream, which need not be built to know it.
  names.insert(names.end(), {"llama3_8b_attention_b8", "llama3_8b_attention_b32_paged64"});
  for (const std::string &name : names) {
    Planned planned(name);
    for (Layout weights : {Layout::Native, Layout::Packed}) {
      PlanEffort effort;
      PlanOptions options;
      options.weights = weights;
      options.effort = &effort;
      std::optional<Plan> first = planned.plan(options);
      INFO(name << ", " << stringify(weights).str() << planned.message);
      REQUIRE(first);
      CHECK(effort.weighed > 0);
      CHECK(effort.weighed <= 400000);
      CHECK(effort.built > 0);
      CHECK(effort.built <= 150);
      options.effort = nullptr;
      CHECK(planned.plan(options) == first);
    }
  }
}

TEST_CASE("the planner refuses to stream packed weights where kernels do") {
  int can = 0, cannot = 0;
  for (const char *name : kGraphs) {
    Planned planned(name);
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      std::optional<Plan> plan = planned.random(seed);
      REQUIRE(plan);
      for (KernelPlan &kernel : plan->kernels)
        kernel.weights = Layout::Packed;
      std::string why;
      bool builds = !llvm::is_contained(sharedBytesOf(planned.graph(), *plan, why), -1);
      PlanOptions options;
      options.given = plan;
      bool found = planned.plan(options).has_value();
      bool refused = planned.message.find("cannot stream packed weights: each CTA") != std::string::npos;
      INFO(name << ", seed " << seed << ": " << planned.message << why);
      CHECK(found == builds);
      CHECK(refused == !builds);
      ++(builds ? can : cannot);
    }
  }
  CHECK(can > 20);
  CHECK(cannot > 20);
}

TEST_CASE("a plan for a length is the best for it among the plans for others") {
  Planned planned;
  std::vector<std::pair<int64_t, Plan>> plans;
  for (int64_t length : {0, 128, 1024, 4096, 16384}) {
    PlanOptions options;
    options.length = length;
    options.weights = Layout::Packed;
    std::optional<Plan> plan = planned.plan(options);
    INFO(planned.message);
    REQUIRE(plan);
    plans.push_back({length, *plan});
  }
  auto weighed = [&](const Plan &plan, int64_t length) {
    return weighedUs(plan, *predictPlan(planned.graph(), plan, planned.machine, length));
  };
  for (auto &[length, plan] : plans)
    for (auto &[other, otherPlan] : plans)
      CHECK(weighed(plan, length) <= weighed(otherPlan, length) + 1e-9);
}

TEST_CASE("other machines get other plans") {
  std::set<std::string> texts;
  for (const char *name : {"h200", "h100", "h20", "h200-half"}) {
    Planned planned;
    planned.machine = *knownMachine(name);
    std::optional<Plan> plan = planned.plan();
    INFO(name << planned.message);
    REQUIRE(plan);
    texts.insert(plan->print());
  }
  CHECK(texts.size() > 1);
}

TEST_CASE("plans keep to what a machine holds") {
  for (const char *name : {"h20", "h200-half", "h200"}) {
    Planned planned;
    planned.machine = *knownMachine(name);
    for (int64_t limit : {0, 64, 12, 1}) {
      planned.machine.smsLimit = limit;
      INFO(name << ", limit " << limit << planned.message);
      std::optional<Plan> plan = planned.plan();
      REQUIRE(plan);
      std::optional<Explanation> explained =
          explainPlan(planned.graph(), *plan, planned.machine, 4096, sharedBytesOf);
      REQUIRE(explained);
      const ExplainedKernel &kernel = explained->kernels[0];
      CHECK(kernel.cost.kernels.front().clusters <=
            planned.machine.resident(kernel.plan.part, kernel.plan.ctasPerSm));
      CHECK((!limit || kernel.cost.kernels.front().clusters * kernel.plan.part <= limit));
      CHECK(kernel.sharedBytes <= planned.machine.sharedLimit(kernel.plan.ctasPerSm));
    }
  }
}

TEST_CASE("machines are read and written") {
  std::string error;
  for (const std::string &name : knownMachineNames()) {
    Machine machine = *knownMachine(name);
    std::optional<Machine> again = parseMachine(machine.toJson(), "m.json", error);
    INFO(error);
    REQUIRE(again);
    CHECK(again->toJson() == machine.toJson());
  }
  CHECK(knownMachine("h200")->resident(4, 1) == 30);
  CHECK(knownMachine("h200")->resident(4, 2) == 62);
  CHECK(knownMachine("h200")->resident(3, 1) == 0);
  CHECK(knownMachine("h200")->sharedLimit(1) == 232448);
  CHECK(knownMachine("h200")->sharedLimit(2) == 115712);
  CHECK(!knownMachine("b200"));
  const std::string good =
      R"("name": "m", "sms": 100, "bandwidth": 3e12, "resident_clusters": {"1": {"1": 100}})";
  CHECK(parseMachine("{" + good + "}", "m.json", error)->resident(1, 1) == 100);
  CHECK_THAT(machineError("{"), Contains("m.json: error: no JSON"));
  CHECK(machineError("[]") == "m.json: error: a machine description is a JSON object");
  CHECK(machineError("{\"name\": \"m\"}") == "m.json: error: 'sms' is missing");
  CHECK(machineError("{" + good + ", \"bandwith\": 1}") ==
        "m.json:1:86: error: unknown field 'bandwith'; did you mean 'bandwidth'?");
  CHECK(machineError("{" + good + ", \"copy_ns\": -1}") ==
        "m.json:1:86: error: 'copy_ns' needs a number above 0");
  CHECK(machineError("{" + good + ", \"copy_ns\": \"x\"}") ==
        "m.json:1:86: error: 'copy_ns' needs a number above 0");
  CHECK(machineError("{" + good + ", \"shared_bytes\": 1.5}") ==
        "m.json:1:86: error: 'shared_bytes' needs an integer");
  CHECK(machineError("{" + good + ",\n  \"shared_bytes\": 9000}") ==
        "m.json:2:3: error: 'shared_bytes' is 9000; a CTA needs at least 16384");
  // A text is no field.
  CHECK(machineError("{\"about\": \"sm_bandwidth\",\n\"sm_bandwidth\": 0, " + good + "}") ==
        "m.json:2:1: error: 'sm_bandwidth' needs a number above 0");
  // More clusters than SMs hold.
  auto withClusters = [](const std::string &clusters) {
    return R"({"name": "m", "sms": 10, "bandwidth": 1, "resident_clusters": {)" + clusters + "}}";
  };
  CHECK(parseMachine(withClusters(R"("1": {"1": 10, "4": 2}, "3": {"2": 15})"), "m.json", error));
  CHECK(machineError(withClusters(R"("1": {"1": 11})")) ==
        "m.json:1:42: error: 'resident_clusters' has 11 clusters of size 1 at ctas_per_sm = 1; 10 SMs hold "
        "10 at "
        "most");
  CHECK_THAT(machineError(withClusters(R"("1": {"1": 10, "4": 3})")),
             Contains("has 3 clusters of size 4 at ctas_per_sm = 1; 10 SMs hold 2 at most"));
  CHECK_THAT(machineError(withClusters(R"("3": {"2": 16})")),
             Contains("has 16 clusters of size 2 at ctas_per_sm = 3; 10 SMs hold 15 at most"));
  CHECK_THAT(
      machineError(R"({"name": "m", "sms": 1, "bandwidth": 1, "resident_clusters": {"1": {"1": -5}}})"),
      Contains("numbers from 0"));
  CHECK(!loadMachine("h2000", error));
  CHECK_THAT(error, Contains("did you mean"));
}

TEST_CASE("a plan is explained phase by phase") {
  Planned planned;
  std::optional<Explanation> found =
      explainPlan(planned.graph(), *planned.plan(), planned.machine, 4096, sharedBytesOf);
  REQUIRE(found);
  std::string text = explanationText(*found);
  for (const char *part : {"32 heads on clusters of", "linear(%q, %k, %v): weights of 384 x 4096 an item",
                           "attention(%o): 4096 cached tokens", "summed over the items by waiting", "in all"})
    CHECK_THAT(text, Contains(part));
  REQUIRE(found->kernels.size() == 1);
  // Phases follow one another without gaps, and their bytes are those of the weights and the cache.
  const LaunchCost &cost = found->kernels[0].cost;
  double now = 0, bytes = 0;
  for (const Phase &phase : cost.phases) {
    INFO(phase.what);
    CHECK(phase.start == Approx(now).margin(1e-9));
    CHECK(phase.us >= 0);
    CHECK((phase.kind != Phase::Stream || (phase.loadStart <= phase.start && phase.hidden >= 0)));
    now += phase.us;
    bytes += phase.bytes;
  }
  CHECK(now == Approx(cost.us));
  CHECK(bytes == Approx(4 * 4096.0 * 4096 * 2 + 4096.0 * 32 * 128 * 4));
  CHECK(bytes == Approx(found->bytes()));
  CHECK(found->us() > found->floorUs());
  CHECK(predictPlan(planned.graph(), *planned.plan(), planned.machine, 4096) == Approx(cost.us));
  CHECK(!explainPlan(Planned("linear").graph(), *planned.plan(), planned.machine, 4096));
}

TEST_CASE("tensors in the order of the table") {
  Planned planned("gqa_small");
  std::vector<TensorInfo> tensors = tensorsOf(planned.graph());
  std::string text;
  for (const TensorInfo &tensor : tensors)
    text += std::to_string(tensor.entry) + " " + tensor.name + " " + tensor.kind + " " + tensor.role + " " +
            std::to_string(tensor.bound) + "\n";
  CHECK(text ==
        "0 x tensor input 0\n1 gain tensor weight 0\n2 w_q tensor weight 0\n3 w_k tensor weight 0\n"
        "4 w_v tensor weight 0\n5 b_q tensor weight 0\n6 b_k tensor weight 0\n7 b_v tensor weight 0\n"
        "8 w_o tensor weight 0\n9 cache kv_cache inout 0\n14 pos tensor input 256\n15 slot tensor input 0\n"
        "16 len tensor input 256\n17 result0 tensor output 0\n18 generated.table tensor generated 256\n");
}
