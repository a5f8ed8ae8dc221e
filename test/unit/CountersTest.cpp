//===- CountersTest.cpp - Cluster instructions on the path that runs --------===//
#include "test/unit/KernelHarness.h"
#include "test/unit/NumericsHarness.h"
#include "tools/lib/Files.h"
#include "llvm/Support/raw_ostream.h"
#include <catch2/catch.hpp>

using namespace cfc;
using namespace cfc::test;
using emu::Counter;

/// What a graph's only kernel does on the emulator. Weights and caches hold NaN: only counts matter.
static emu::Counters countersOf(const std::string &file, const std::string &plan, int64_t length) {
  Graph graph(std::string(MappedFile::open(CFC_GRAPHS "/" + file)->text()));
  BuildOptions options;
  options.plan = plan;
  CompiledGraph compiled = build(graph.compiler(), graph.module(), options, Stage::Kernel);
  std::string text;
  llvm::raw_string_ostream stream(text);
  compiled.kernel->print(stream);
  KernelRun run(text);
  run.set("len", {double(length)});
  run.set("slot", {double(length)});
  run.set("pos", {double(length)});
  emu::Report report = run.launch(1);
  REQUIRE(report.ok);
  return report.counters;
}

static void checkCluster(const emu::Counters &counters) {
  for (Counter counter : {Counter::MapRank, Counter::Mma, Counter::Ldmatrix, Counter::ClusterWaits}) {
    INFO(emu::Counters::name(counter).str());
    CHECK(counters[counter] > 0);
  }
  CHECK(counters[Counter::BulkLoads] + counters[Counter::TensorLoads] > 0);
  CHECK(counters[Counter::RemoteLoads] == 0); // always push, never pull
}

TEST_CASE("counters: the 7B block works through clusters", "[counters]") {
  emu::Counters counters = countersOf("llama2_7b_attention.mlir", "auto", 65);
  checkCluster(counters);
  CHECK(counters[Counter::RemoteStores] + counters[Counter::BulkPushes] > 0);
  // All weights and cached rows come by asynchronous copies, once.
  uint64_t bytes = counters[Counter::BulkLoadBytes] + counters[Counter::TensorLoadBytes];
  CHECK(bytes >= (4ull * 4096 * 4096 + 2ull * 65 * 4096) * 2);
  CHECK(bytes <= (4ull * 4096 * 4096 + 2ull * 128 * 4096) * 2);
}

TEST_CASE("counters: exchanges by stores and by bulk copies", "[counters]") {
  std::string algorithm = GENERATE("push", "butterfly", "bulk", "async");
  CAPTURE(algorithm);
  constexpr const char *plan =
      "graph gqa_small\nkernel 0: part = 4\n"
      "op linear(%q, %k, %v): split = rows, gather = {0}\nop attention(%o): reduce = {0}\n";
  emu::Counters counters = countersOf("gqa_small.mlir", fmt::format(plan, algorithm), 100);
  constexpr uint64_t ctas = 2 * 4; // KV heads, CTAs of a cluster
  CHECK(counters[Counter::MapRank] > 0);
  if (algorithm == "bulk") {
    // To 3 peers: 384 bytes of projections in one piece, 1056 of states in two.
    CHECK(counters[Counter::BulkPushes] == ctas * 3 * (1 + 2));
    CHECK(counters[Counter::BulkPushBytes] == ctas * 3 * (384 + 1056));
    CHECK(counters[Counter::RemoteStores] == 0);
    return;
  }
  checkCluster(counters);
  // An item has 384 projections and 4 states of 66, in f32. A push sends a CTA's part to each of 3 peers; a
  // butterfly sends to one peer a round what it holds by then.
  bool oneRound = algorithm != "butterfly";
  uint64_t gather = (oneRound ? 3 * 96 : 96 + 192) * 4, reduce = (oneRound ? 3 : 2) * 264 * 4;
  CHECK(counters[Counter::RemoteStoreBytes] == ctas * (gather + reduce));
  CHECK(counters[Counter::BulkPushes] == 0);
}
