//===- BenchTest.cpp - What cfc bench times and how it is written down -----===//
#include "test/unit/KernelHarness.h"
#include "tools/lib/BenchBaseline.h"
#include "tools/lib/BenchExchange.h"
#include "tools/lib/BenchReport.h"
#include <catch2/catch.hpp>
#include <set>

using namespace cfc;
using namespace cfc::test;

TEST_CASE("a spread has the quantiles of its samples", "[bench]") {
  Spread one = Spread::of({7});
  CHECK((one.median == 7 && one.min == 7 && one.p10 == 7 && one.p90 == 7));
  Spread many = Spread::of({10, 0, 4, 2, 6, 8});
  CHECK(many.median == 5);
  CHECK(many.min == 0);
  CHECK(many.p10 == Approx(1));
  CHECK(many.p90 == Approx(9));
}

TEST_CASE("a table's columns are aligned", "[bench]") {
  CHECK(tableText({{"", "us"}, {"größer", "1.25"}, {"b"}}, "  ") == "            us\n"
                                                                    "  größer  1.25\n"
                                                                    "  b\n");
}

static runtime::TensorSpec tensorSpec(const std::string &name, runtime::Role role,
                                      std::vector<int64_t> shape) {
  runtime::TensorSpec spec;
  spec.name = name;
  spec.role = role;
  spec.shape = std::move(shape);
  return spec;
}

static InputSpec input(const std::string &name, DataRole role, std::vector<int64_t> shape) {
  InputSpec spec;
  spec.name = name;
  spec.role = role;
  spec.shape = std::move(shape);
  return spec;
}

TEST_CASE("a block's bytes are those that it must move", "[bench]") {
  runtime::GraphSpec graph;
  runtime::TensorSpec cache = tensorSpec("cache", runtime::Role::InOut, {});
  cache.kind = runtime::TensorKind::KvCache;
  cache.heads = 4;
  cache.dim = 32;
  runtime::TensorSpec packed = tensorSpec("w", runtime::Role::Weight, {100, 128});
  packed.layout = runtime::Layout::Packed; // its padding does not count
  graph.tensors = {tensorSpec("x", runtime::Role::Input, {1, 128}),
                   packed,
                   tensorSpec("table", runtime::Role::Input, {64, 32}),
                   cache,
                   tensorSpec("len", runtime::Role::Input, {1}),
                   tensorSpec("slot", runtime::Role::Input, {1}),
                   tensorSpec("pos", runtime::Role::Input, {1}),
                   tensorSpec("result0", runtime::Role::Output, {1, 128})};
  std::vector<InputSpec> inputs = {
      input("x", DataRole::Activation, {1, 128}),    input("w", DataRole::Weight, {100, 128}),
      input("table", DataRole::RopeTable, {64, 32}), input("cache", DataRole::Cache, {}),
      input("len", DataRole::Length, {1}),           input("slot", DataRole::Slot, {1}),
      input("pos", DataRole::Position, {1})};
  BlockBytes bytes = blockBytes(graph, inputs, 10);
  CHECK(bytes.weights == 100 * 128 * 2);
  CHECK(bytes.cache == 2 * 4 * 32 * 2 * (10 + 1)); // ten tokens read, one written
  CHECK(bytes.activations == 2 * 128 * 2 + 32 * 2 + 3 * 2);

  REQUIRE(chainedInput(graph, inputs));
  CHECK(chainedInput(graph, inputs)->name == "x");
  graph.tensors.back().shape = {1, 64};
  CHECK(!chainedInput(graph, inputs));
}

TEST_CASE("lengths are numbers, or drawn for each request by seed", "[bench]") {
  std::vector<RequestLengths> cases = parseRequestLengths("12,ragged:3-9:5,ragged:7-7", 4);
  REQUIRE(cases.size() == 3);
  CHECK((!cases[0].isRagged() && cases[0].of(3) == 12 && cases[0].sum(4) == 48 && cases[0].mean() == 12));
  CHECK(cases[1].text == "ragged:3-9:5");
  REQUIRE(cases[1].tokens.size() == 4);
  for (int64_t tokens : cases[1].tokens)
    CHECK((tokens >= 3 && tokens <= 9));
  CHECK(cases[1].tokens == parseRequestLengths("ragged:3-9:5", 4)[0].tokens);
  CHECK(parseRequestLengths("ragged:1-8192:5", 32)[0].tokens !=
        parseRequestLengths("ragged:1-8192:6", 32)[0].tokens);
  CHECK(cases[2].tokens == std::vector<int64_t>(4, 7));
  CHECK(RequestLengths("", {1, 2, 2}).mean() == 2);
}

TEST_CASE("a pool has a page of its own for every part of every request", "[bench]") {
  RequestLengths lengths("", {0, 15, 16, 40});
  PagePool pool(lengths, 4, 16);
  CHECK(pool.pages() == 1 + 1 + 2 + 3); // each with a new token
  std::set<int64_t> seen;
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t i = 0; i < pool.pagesOf(r); ++i)
      seen.insert(pool.at(r, i));
  CHECK((seen.size() == 7 && *seen.begin() == 0 && *seen.rbegin() == 6));
  CHECK(pool.slot(3, 40) == pool.at(3, 2) * 16 + 8);
}

/// An attention of three requests, by name: cache, lengths, slots, block table.
static runtime::GraphSpec batchGraph(int64_t page) {
  runtime::GraphSpec graph;
  runtime::TensorSpec cache = tensorSpec("cache", runtime::Role::InOut, {});
  cache.kind = runtime::TensorKind::KvCache;
  cache.heads = 2;
  cache.dim = 32;
  cache.vDim = 16;
  cache.requests = 3;
  cache.page = page;
  graph.tensors = {cache, tensorSpec("len", runtime::Role::Input, {3}),
                   tensorSpec("slot", runtime::Role::Input, {3})};
  if (page)
    graph.tensors.push_back(tensorSpec("pages", runtime::Role::Input, {3, 100}));
  return graph;
}

TEST_CASE("a batch's bytes are those of each request's length", "[bench]") {
  std::vector<InputSpec> inputs = {input("cache", DataRole::Cache, {}), input("len", DataRole::Length, {3}),
                                   input("slot", DataRole::Slot, {3}),
                                   input("pages", DataRole::BlockTable, {3, 100})};
  RequestLengths lengths("", {0, 15, 100});
  double row = 2 * (32 + 16) * 2; // of K and V, of both heads
  BlockBytes bytes = blockBytes(batchGraph(0), inputs, lengths);
  CHECK(bytes.cache == row * (115 + 3));
  CHECK(bytes.activations == 2 * 3 * 2);
  CHECK(blockBytes(batchGraph(0), inputs, 10).cache == row * 3 * 11);

  inputs[3].type = DType::i32;
  inputs[3].requests = 3;
  inputs[3].page = 16;
  bytes = blockBytes(batchGraph(16), inputs, lengths);
  CHECK(bytes.cache == row * (115 + 3));
  CHECK(bytes.activations == 2 * 3 * 2 + 4 * (1 + 1 + 7)); // the entries in use alone

  // Of a window of 20 the new token is one: 15 and 19 cached tokens are read, in the pages from 5 on.
  for (InputSpec &spec : inputs)
    spec.window = 20;
  bytes = blockBytes(batchGraph(16), inputs, lengths);
  CHECK(bytes.cache == row * (15 + 19 + 3));
  CHECK(bytes.activations == 2 * 3 * 2 + 4 * (1 + 1 + 2));
  CHECK(blockBytes(batchGraph(0), inputs, 10).cache == row * 3 * 11);
}

TEST_CASE("every exchange that bench knows is a kernel, and runs", "[bench]") {
  for (std::string level : {"cta", "grid"}) {
    ExchangeOptions options;
    options.level = level;
    options.sizes = {4};
    options.bytes = {256};
    for (const ExchangeCase &which : exchangeCases(options)) {
      CAPTURE(which.kind, which.level, which.algorithm);
      std::vector<std::string> kernels = launchKernels(which, 2);
      kernels.push_back(exchangeKernel(which, 3));
      for (const std::string &kernel : kernels) {
        KernelRun run(kernel);
        auto report = run.launch(1);
        INFO(kernel << textOf(report));
        REQUIRE(report.ok);
        REQUIRE(run.workspaceIsReady());
      }
    }
  }
}

TEST_CASE("exchanges are compiled for all clusters that fit; what cannot be says why", "[bench]") {
  ExchangeOptions options;
  options.kinds = {"reduce"};
  options.algorithms = {"push", "async"};
  options.bytes = {256, 65536};
  std::vector<std::string> told;
  Machine machine = *knownMachine("h200");
  machine.residentClusters[1][8] = 0;
  ExchangeKernels kernels(exchangeCases(options), machine, BuildOptions(),
                          [&](const std::string &text) { told.push_back(text); });
  // Three sizes and two payloads: by two algorithms a kernel that repeats the exchange and one that does it
  // once; for both together what makes the summands and what only reads as many bytes.
  CHECK(told == std::vector<std::string>{"compiling 36 kernels"});
  int64_t groups[] = {65, 30, 0, 7};
  REQUIRE(kernels.compiled().size() == 16);
  for (size_t i = 0; i < 16; ++i) {
    const ExchangeResult &result = kernels.compiled()[i];
    CAPTURE(result.which.size, result.which.bytes, result.problem);
    CHECK(result.groups == groups[i / 4]);
    if (result.which.size == 8)
      CHECK(result.problem == "no cluster of 8 CTAs fits");
    else if (result.which.bytes == 65536)
      CHECK(result.problem.find("bytes of shared memory") != std::string::npos);
    else if (!result.problem.empty()) // there may be no assembler
      CHECK(result.problem.find("ptxas") != std::string::npos);
  }
}

TEST_CASE("torch.compile gets every graph, and says why where it cannot time it", "[bench]") {
  for (const char *name : {"llama3_8b_attention", "two_blocks", "no_residual", "linear", "attention_only",
                           "llama3_8b_attention_b8"}) {
    CAPTURE(name);
    Compiler compiler;
    Source source = readSource(compiler, std::string(CFC_GRAPHS) + "/" + name + ".mlir");
    CompiledGraph compiled = build(compiler, *source.module, BuildOptions(), Stage::Simt);
    const runtime::GraphSpec &graph = compiled.manifest.graphs.front();
    std::vector<InputSpec> inputs = inputSpecs(*source.module, graph);
    BaselineRequest request{source.graph(), graph, inputs, {{64, 8}, {0, 8}}, false, 3};
    std::vector<std::vector<BaselineResult>> results = timeTorch(request);
    REQUIRE(results.size() == 2);
    for (const std::vector<BaselineResult> &peers : results) {
      REQUIRE(!peers.empty());
      CHECK(peers[0].name.starts_with("torch.compile"));
      // There is no GPU in CI, and often no torch.
      for (const BaselineResult &result : peers)
        if (!result.us)
          CHECK(!result.problem.empty());
    }
  }
}
