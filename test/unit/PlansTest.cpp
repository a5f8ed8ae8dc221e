//===- PlansTest.cpp - Every plan gives the same bits -----------------------===//
//
// Small blocks on clusters of every size and by plans drawn by seed, in orders
// of threads drawn by seed: the first is held against the reference, the others
// against the bits of the first (docs/design.md, "Order of sums"), with data of
// which a change in the order of a sum shows.
//
//===----------------------------------------------------------------------===//
#include "test/unit/NumericsHarness.h"
#include "tools/lib/Failure.h"
#include <catch2/catch.hpp>
#include <set>

using namespace cfc;
using namespace cfc::test;

namespace {
const std::vector<int64_t> lengths = {0, 1, 63, 64, 65, 130};
constexpr int64_t capacity = 136;
constexpr int numRandom = 30;

/// A plan that fixes the size of the clusters and leaves the rest to the planner.
std::string clustersOf(int64_t size) { return fmt::format("graph block\nkernel 0: part = {}\n", size); }

/// One graph: its inputs and what its first plan made of them.
class Bits {
public:
  Bits(const std::string &text, DType coarsest) : graph(text) {
    GraphRun run(graph, "auto");
    for (int64_t length : lengths) {
      CAPTURE(length);
      TensorMap inputs = graph.inputs(1, length, capacity);
      TensorMap outputs = run.launch(inputs, 1);
      CHECK(mismatch(graph, run, inputs, outputs, toleranceFor(coarsest)) == "");
      cases.push_back({length, inputs, outputs});
    }
    for (int64_t length : lengths) {
      TensorMap inputs = graph.inputs(2, length, capacity);
      makeSensitive(inputs, length);
      cases.push_back({length, inputs, run.launch(inputs, 2)});
    }
  }

  /// Another plan has the same bits in `count` of the cases, from the `first` on.
  void check(const std::string &plan, size_t first = 0, size_t count = 2 * lengths.size()) {
    GraphRun run(graph, plan);
    INFO(plan << " is\n" << run.planText());
    for (size_t i = first; i < first + count; ++i) {
      const Case &c = cases[i % cases.size()];
      CAPTURE(i % cases.size(), c.length);
      CHECK(differingBits(run.launch(c.inputs, 100 + i), c.outputs) == "");
      CHECK(run.takeStatus() == 0);
    }
    plans.insert(run.planText());
    severalKernels += run.numKernels() > 1;
    for (unsigned size : run.clusterSizes())
      sizes.insert(size);
  }

  /// Plans drawn by seed, each in three cases.
  void checkRandom(int count = numRandom) {
    for (int seed = 0; seed < count; ++seed)
      check(fmt::format("random:{}", seed), size_t(seed) * 5, 3);
  }

  Graph graph;
  struct Case {
    int64_t length;
    TensorMap inputs, outputs;
  };
  std::vector<Case> cases;
  std::set<std::string> plans;
  std::set<unsigned> sizes;
  int severalKernels = 0;
};

/// A plan of three kernels, the second by chunks of heads, which the last of them merges (ordered), or the
/// third kernel (reader); joined: in one launch.
std::string chunksOf(int64_t part, int64_t chunks, bool joined, const std::string &finish) {
  return fmt::format("graph block\nkernel 0: part = {0}\nkernel 1: part = {0}, chunks = {1}, joined = {2}\n"
                     "kernel 2: part = {0}, joined = {2}\nop linear(%q, %k, %v): kernel = 0\n"
                     "op rope(%qr, %kr): kernel = 1\nop attention(%o, %lse): kernel = 1, finish = {3}\n"
                     "op linear(%y): kernel = 2\n",
                     part, chunks, int(joined), finish);
}

void checkPlans(const Block &block) {
  Bits bits(block.text(), block.coarsest());
  for (int64_t size : {1, 2, 4, 8, 16})
    bits.check(clustersOf(size), lengths.size(), lengths.size());
  for (auto [part, chunks] : {std::pair(1, 16), {2, 4}, {4, 2}, {8, 2}})
    for (const char *finish : {"ordered", "reader"})
      bits.check(chunksOf(part, chunks, part % 4 == 2, finish), lengths.size(), lengths.size());
  bits.checkRandom();
  CHECK(bits.plans.size() >= numRandom);
  CHECK(bits.sizes == std::set<unsigned>{1, 2, 4, 8, 16});
  CHECK(bits.severalKernels >= 5);
}
} // namespace

TEST_CASE("plans: as many KV heads as query heads", "[plans]") {
  Block block;
  block.act = block.weight = block.cache = GENERATE("f16", "bf16");
  checkPlans(block);
}

TEST_CASE("plans: eight query heads share one KV head", "[plans]") {
  Block block{.heads = 8, .kvHeads = 1, .dim = 32, .hidden = 192};
  block.act = block.weight = block.cache = GENERATE("f16", "bf16");
  checkPlans(block);
}

TEST_CASE("plans: four query heads share a KV head", "[plans]") {
  Block block{.heads = 8, .kvHeads = 2, .dim = 64, .hidden = 256};
  block.act = block.weight = block.cache = GENERATE("f16", "bf16");
  block.bias = true;
  block.style = "interleaved";
  block.table = "generated";
  checkPlans(block);
}

TEST_CASE("plans: sizes that are no powers of two", "[plans]") {
  Block block{.heads = 6, .kvHeads = 3, .dim = 48, .hidden = 328};
  Bits bits(block.text(), block.coarsest());
  bits.checkRandom(10);
  CHECK(bits.severalKernels > 0);
}

namespace {
/// What an attention of few KV heads may have, with two linears that read its result.
struct Variant {
  const char *name, *cache = "f16", *scales = "", *operands = "", *attributes = "", *bias = "";
  const char *arguments = "";
};

std::string textOf(const Variant &v) {
  return fmt::format(R"(
attn.graph @variant(%q: tensor<1x384xf16>, %k: tensor<1x96xf16>, %v: tensor<1x32xf16>, %w_o: tensor<72x128xf16>, %w_p: tensor<40x128xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 48, v_dim = 16, {0}>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 256>{5})
    -> (tensor<1x72xf16>, tensor<1x40xf16>, tensor<1x128xf16> {{attn.name = "o"}}, tensor<1x8xf32> {{attn.name = "lse"}}) {{
  %c = attn.kv_append %cache, %k, %v at %slot{1}
  %o, %lse = attn.attention %q, %c, %len{2}{1} {{scale = 0.25{3}}}{4}
  %y = attn.linear %o, [%w_o]
  %z = attn.linear %o, [%w_p]
  attn.return %y, %z, %o, %lse
}})",
                     v.cache, v.scales, v.operands, v.attributes, v.bias, v.arguments);
}

/// The two readers in kernels of their own, or in one.
std::string variantPlan(int64_t part, int64_t chunks, const char *finish, int64_t second) {
  return fmt::format("graph variant\nkernel 0: part = {}, chunks = {}\nop kv_append(%c): kernel = 0\n"
                     "op attention(%o, %lse): kernel = 0, finish = {}\nop linear(%y): kernel = 1\n"
                     "op linear(%z): kernel = {}\n",
                     part, chunks, finish, second);
}
} // namespace

TEST_CASE("plans: whoever reads an attention merges its chunks, with all that scores may have") {
  constexpr const char *kBias = R"( bias(%h, %i, %j) {
    %slope = attn.at %slopes[%h]
    %distance = arith.subi %j, %i : index
    %narrow = arith.index_cast %distance : index to i32
    %f = arith.sitofp %narrow : i32 to f32
    %bias_of_score = arith.mulf %slope, %f : f32
    attn.yield %bias_of_score
  })";
  constexpr const char *kScales = " scales %k_scale, %v_scale";
  auto variant = GENERATE_COPY(
      Variant{"sinks", "f16", "", " sinks %sinks", "", "", ", %sinks: tensor<8xbf16>"},
      Variant{"window", "f16", "", "", ", window = 70"},
      Variant{"softcap", "bf16", "", "", ", softcap = 2.0"},
      Variant{"bias", "f16", "", "", "", kBias, ", %slopes: tensor<8xf32>"},
      Variant{"f8", "f8E4M3FN", kScales, "", "", "", ", %k_scale: tensor<1xf32>, %v_scale: tensor<2xf32>"},
      Variant{"all", "f8E4M3FN", kScales, " sinks %sinks", ", softcap = 3.0, window = 100", kBias,
              ", %slopes: tensor<8xf32>, %sinks: tensor<8xf32>, %k_scale: tensor<2xf32>, %v_scale: "
              "tensor<1xf32>"});
  CAPTURE(variant.name);
  Graph graph(textOf(variant));
  GraphRun whole(graph, "graph variant\nkernel 0: part = 4\nop attention(%o, %lse): kernel = 0\n");
  std::vector<TensorMap> inputs, outputs;
  for (int64_t length : lengths) {
    CAPTURE(length);
    inputs.push_back(graph.inputs(1, length, capacity));
    outputs.push_back(whole.launch(inputs.back(), 1));
    CHECK(mismatch(graph, whole, inputs.back(), outputs.back(), toleranceFor(DType::bf16)) == "");
  }
  for (auto [part, chunks] : {std::pair(1, 16), {2, 8}, {4, 4}, {8, 2}})
    for (const char *finish : {"ordered", "reader"}) {
      GraphRun run(graph, variantPlan(part, chunks, finish, part % 4 ? 2 : 1));
      INFO(run.planText());
      for (size_t i = 0; i < lengths.size(); ++i) {
        CAPTURE(lengths[i]);
        CHECK(differingBits(run.launch(inputs[i], 10 * part + i), outputs[i]) == "");
        CHECK(run.takeStatus() == 0);
      }
    }
}

// Six slots over two CTAs: three slots each are no subtree of the sum.
TEST_CASE("plans: the sum over an odd number of heads", "[plans]") {
  Bits bits(R"(
attn.graph @chain(%q: tensor<1x192xf16>, %w_o: tensor<192x192xf16>, %len: !attn.lengths<1, capacity = 256>,
    %cache: !attn.kv_cache<heads = 6, dim = 32, f16>, %second: !attn.kv_cache<heads = 6, dim = 32, f16>)
    -> (tensor<1x192xf16>, tensor<1x6xf32> {attn.name = "lse"}) {
  %o1 = attn.attention %q, %cache, %len {scale = 0.25}
  %q2 = attn.linear %o1, [%w_o]
  %o2, %lse = attn.attention %q2, %second, %len {scale = 0.25}
  attn.return %o2, %lse
})",
            DType::f16);
  auto split = [](const char *how, int part) {
    return fmt::format("graph chain\nkernel 1: part = {}\nop attention(%o1): kernel = 0\n"
                       "op linear(%q2): kernel = 1, split = {}\nop attention(%o2, %lse): kernel = 1\n",
                       part, how);
  };
  bits.check(split("rows", 1));
  bits.check(split("rows", 2));
  bits.check(split("columns", 1));
  CHECK_THROWS_AS(bits.check(split("columns", 2)), Failure);
  bits.checkRandom(10);
}

// A slot holds 32 columns; the slices of sixteen heads 24.
TEST_CASE("plans: two projections beside an attention of sixteen heads", "[plans]") {
  Bits bits(R"(
attn.graph @beside(%x: tensor<1x64xf16>, %w_v: tensor<384x64xf16>, %w_o: tensor<64x384xf16>, %q: tensor<1x256xf16>,
    %cache: !attn.kv_cache<heads = 16, dim = 16, f16>, %len: !attn.lengths<1, capacity = 256>)
    -> (tensor<1x64xf16>, tensor<1x256xf16> {attn.name = "o"}) {
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  %u = attn.linear %x, [%w_v]
  %v = attn.linear %u, [%w_o]
  attn.return %v, %o
})",
            DType::f16);
  bits.checkRandom(10);
  bits.check(
      "graph beside\nop attention(%o): kernel = 0\nop linear(%u): kernel = 1\nop linear(%v): kernel = 2\n");
}

// Atomic sums take whatever order the threads have: with this data that shows.
TEST_CASE("determinism: any plan, on data that shows the order of sums", "[plans]") {
  Block block;
  block.act = block.weight = block.cache = GENERATE("f16", "bf16");
  Graph graph(block.text());
  GraphRun run(graph, "graph block\nop linear(%y): finish = atomic\n", /*deterministic=*/false);
  TensorMap inputs = graph.inputs(2, 65, capacity);
  makeSensitive(inputs, 65);
  TensorMap first = run.launch(inputs, 0);
  int differing = 0;
  for (int seed = 1; seed < 60 && !differing; ++seed)
    differing += !differingBits(run.launch(inputs, seed), first).empty();
  CHECK(differing > 0);
}
