//===- ExtremesTest.cpp - Softmax and bounds at their limits ---------------===//
#include "test/unit/NumericsHarness.h"
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

using namespace cfc;
using namespace cfc::test;

static constexpr double inf = std::numeric_limits<double>::infinity();
static constexpr double quiet = std::numeric_limits<double>::quiet_NaN();

/// An attention whose caller gives q, and with `append` the new token too.
static std::string attention(const std::string &type, int64_t heads, int64_t kvHeads, int64_t dim,
                             int64_t capacity, double scale, bool append) {
  std::string extra, step, cache = "%cache";
  if (append) {
    extra = fmt::format("%k: tensor<1x{0}x{1}>, %v: tensor<1x{0}x{1}>, %slot: tensor<1xi64>, ", kvHeads * dim,
                        type);
    step = "%c = attn.kv_append %cache, %k, %v at %slot";
    cache = "%c";
  }
  return fmt::format(R"(
attn.graph @attend(%q: tensor<1x{0}x{1}>, {2}%cache: !attn.kv_cache<heads = {3}, dim = {4}, {1}>,
    %len: !attn.lengths<1, capacity = {5}>) -> (tensor<1x{0}x{1}> {{attn.name = "o"}}, tensor<1x{6}xf32> {{attn.name = "lse"}}) {{
  {7}
  %o, %lse = attn.attention %q, {8}, %len {{scale = {9}}}
  attn.return %o, %lse
}})",
                     heads * dim, type, extra, kvHeads, dim, capacity, heads, step, cache, scale);
}

/// Sets element `d` of token `token` of every head.
static void setToken(Tensor &cache, int64_t token, int64_t d, double value) {
  for (int64_t head = 0; head < cache.shape[0]; ++head)
    cache.set((head * cache.shape[1] + token) * cache.shape[2] + d, value);
}

/// Makes logits that are exact in every type: q is 16 at element 0 and 1 at element 1, so that a token whose
/// key is (a, b, 0, …) has the logit 16 a + b.
static void useExactLogits(TensorMap &inputs, int64_t dim) {
  for (const char *name : {"q", "cache.k", "k"}) {
    auto it = inputs.find(name);
    if (it == inputs.end())
      continue;
    bool isQuery = it->first == "q";
    for (int64_t i = 0; i < it->second.elements(); ++i) {
      int64_t d = i % dim;
      double spread = double((i / dim * 7) % 33 - 16) / 8; // from -2 to 2
      it->second.set(i, isQuery ? (d == 0 ? 16 : d == 1 ? 1 : 0) : d == 1 ? spread : 0);
    }
  }
}

static double worstLse(const Graph &graph, const TensorMap &inputs, const Tensor &lse) {
  std::vector<double> expected = graph.reference(inputs).results.at(1);
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(expected[i] - lse.get(int64_t(i))));
  return worst;
}

static const char *const plans[] = {"auto", "graph attend\nkernel 0: part = 1\n",
                                    "graph attend\nkernel 0: part = 4\n"};

TEST_CASE("lengths: very negative logits stay exact, and padding lanes do not count", "[extremes]") {
  std::string type = GENERATE("f16", "bf16");
  bool append = GENERATE(false, true);
  int64_t length = GENERATE(1, 65, 200);
  constexpr int64_t dim = 64, capacity = 256;
  CAPTURE(type, append, length);
  Graph graph(attention(type, 4, 2, dim, capacity, 1, append));
  TensorMap inputs = graph.inputs(3, length, capacity);
  useExactLogits(inputs, dim);
  for (int64_t token = 0; token < capacity; ++token)
    setToken(inputs.at("cache.k"), token, 0, -181);
  if (append)
    for (int64_t head = 0; head < 2; ++head)
      inputs.at("k").set(head * dim, -181);
  for (const char *plan : plans) {
    GraphRun run(graph, plan);
    TensorMap outputs = run.launch(inputs, 5);
    CHECK(mismatch(graph, run, inputs, outputs, toleranceFor(parseDType(type).value())) == "");
    CHECK(worstLse(graph, inputs, outputs.at("lse")) < 1e-3);
  }
}

TEST_CASE("lengths: a very large logit stays exact", "[extremes]") {
  std::string type = GENERATE("f16", "bf16");
  bool append = GENERATE(false, true);
  int64_t at = GENERATE(0, 77, 129, 130); // 130: the new token
  if (at == 130 && !append)
    return;
  constexpr int64_t dim = 64, capacity = 256, length = 130;
  CAPTURE(type, append, at);
  Graph graph(attention(type, 4, 2, dim, capacity, 1, append));
  TensorMap inputs = graph.inputs(4, length, capacity);
  useExactLogits(inputs, dim);
  const Tensor &values = inputs.at(at == length ? "v" : "cache.v");
  double high = 2900.0 / 16;
  if (at == length)
    for (int64_t head = 0; head < 2; ++head)
      inputs.at("k").set(head * dim, high);
  else
    setToken(inputs.at("cache.k"), at, 0, high);
  for (const char *plan : plans) {
    GraphRun run(graph, plan);
    TensorMap outputs = run.launch(inputs, 6);
    CHECK(mismatch(graph, run, inputs, outputs, toleranceFor(parseDType(type).value())) == "");
    CHECK(worstLse(graph, inputs, outputs.at("lse")) < 1e-3);
    // Nothing else has any weight: the output is that token's value.
    for (int64_t i = 0; i < 4 * dim; ++i) {
      int64_t head = i / dim / 2, d = i % dim;
      double value = at == length ? values.get(head * dim + d) : values.get((head * capacity + at) * dim + d);
      REQUIRE(outputs.at("o").get(i) == value);
    }
  }
}

TEST_CASE("extremes: 16384 equal values of 150 give 150", "[extremes]") {
  std::string type = GENERATE("f16", "bf16");
  constexpr int64_t length = 16384;
  CAPTURE(type);
  Graph graph(attention(type, 1, 1, 64, length, 0.125, false));
  TensorMap inputs = graph.inputs(5, length, length);
  fill(inputs.at("cache.v"), 150);
  for (const char *plan : plans) {
    GraphRun run(graph, plan);
    TensorMap outputs = run.launch(inputs, 7);
    for (int64_t i = 0; i < 64; ++i)
      REQUIRE(outputs.at("o").get(i) == 150);
  }
}

TEST_CASE("lengths: stale NaN in the unused tail of the cache does not leak", "[extremes]") {
  std::string type = GENERATE("f16", "bf16");
  int64_t length = GENERATE(0, 1, 15, 65, 127);
  Block block{.heads = 4, .kvHeads = 2, .dim = 32, .hidden = 64};
  block.act = block.weight = block.cache = type;
  CAPTURE(type, length);
  Graph graph(block.text());
  TensorMap inputs = graph.inputs(6, length, 192);
  TensorMap first;
  for (const char *plan : {"auto", "random:3"}) {
    GraphRun run(graph, plan);
    for (double stale : {0.0, quiet, inf, -inf, 65504.0}) {
      CAPTURE(stale);
      for (const char *name : {"cache.k", "cache.v"})
        for (int64_t token = length; token < 192; ++token)
          for (int64_t d = 0; d < 32; ++d)
            setToken(inputs.at(name), token, d, stale);
      TensorMap outputs = run.launch(inputs, 8);
      if (first.empty())
        first = outputs;
      for (const char *name : {"result0", "y", "o", "lse"})
        CHECK(std::memcmp(outputs.at(name).data(), first.at(name).data(), first.at(name).bytes()) == 0);
      CHECK(mismatch(graph, run, inputs, outputs, toleranceFor(block.coarsest())) == "");
    }
  }
}

static bool isAll(const Tensor &tensor, double value) {
  for (int64_t i = 0; i < tensor.elements(); ++i)
    if (tensor.get(i) != value)
      return false;
  return true;
}

TEST_CASE("extremes: nothing in the cache", "[extremes]") {
  Graph graph(attention("f16", 4, 2, 32, 128, 0.125, false));
  TensorMap inputs = graph.inputs(7, 0, 128);
  for (const char *plan : plans) {
    GraphRun run(graph, plan);
    TensorMap outputs = run.launch(inputs, 9);
    CHECK(isAll(outputs.at("o"), 0));
    CHECK(isAll(outputs.at("lse"), -inf));
    CHECK(run.takeStatus() == 0);
  }
}

namespace {
/// A block by a fused plan, one that attends in a kernel of its own, and one with every operation on its own.
struct Blocks {
  /// Of the pool; of lengths and positions.
  static constexpr int64_t capacity = 192, bound = 128;
  Graph graph{Block{.heads = 4, .kvHeads = 2, .dim = 32, .hidden = 64, .capacity = bound}.text()};
  std::vector<std::unique_ptr<GraphRun>> runs;

  Blocks() {
    add("auto");
    add("graph block\nop attention(%o, %lse): kernel = 1\n");
    std::string apart = "graph block\n";
    const char *const labels[] = {"rms_norm(%n)",  "linear(%q, %k, %v)",  "rope(%qr, %kr)",
                                  "kv_append(%c)", "attention(%o, %lse)", "linear(%y)",
                                  "add(%z)"};
    for (int i = 1; i < 7; ++i)
      apart += fmt::format("kernel {}: joined = 0\n", i);
    for (int i = 0; i < 7; ++i)
      apart += fmt::format("op {}: kernel = {}\n", labels[i], i);
    add(apart);
    REQUIRE(runs[2]->numKernels() == 7);
  }
  void add(const std::string &plan) { runs.push_back(std::make_unique<GraphRun>(graph, plan)); }

  /// Every plan does what the reference does.
  void check(const TensorMap &inputs, uint32_t status) {
    CHECK(graph.reference(inputs).status == status);
    TensorMap first;
    for (auto &run : runs) {
      INFO(run->planText());
      TensorMap outputs = run->launch(inputs, 10);
      CHECK(mismatch(graph, *run, inputs, outputs, toleranceFor(DType::f16)) == "");
      if (first.empty())
        first = outputs;
      CHECK(differingBits(outputs, first) == "");
    }
  }
};
} // namespace

TEST_CASE("extremes: an idle request", "[extremes]") {
  Blocks blocks;
  int64_t length = GENERATE(0, 70);
  TensorMap inputs = blocks.graph.inputs(8, length, Blocks::capacity);
  setScalar(inputs, "slot", -1);
  CAPTURE(length);
  blocks.check(inputs, 0);
  for (auto &run : blocks.runs) {
    TensorMap outputs = run->launch(inputs, 11);
    CHECK(isAll(outputs.at("o"), 0));
    CHECK(isAll(outputs.at("lse"), -inf));
    for (int64_t i = 0; i < 64; ++i)
      CHECK(outputs.at("result0").get(i) == inputs.at("x").get(i));
    for (const char *name : {"cache.k", "cache.v"})
      CHECK(std::memcmp(outputs.at(name).data(), inputs.at(name).data(), inputs.at(name).bytes()) == 0);
  }
}

TEST_CASE("lengths: positions beyond the table, lengths and slots out of their bounds", "[extremes]") {
  Blocks blocks;
  // Lengths that are too large attend to the first `bound` tokens.
  TensorMap inputs = blocks.graph.inputs(9, Blocks::bound, Blocks::capacity);
  auto with = [&](int64_t length, int64_t slot, int64_t position, uint32_t status) {
    CAPTURE(length, slot, position);
    setScalar(inputs, "len", length);
    setScalar(inputs, "slot", slot);
    setScalar(inputs, "pos", position);
    blocks.check(inputs, status);
  };
  constexpr int64_t most32 = std::numeric_limits<int32_t>::max(),
                    least32 = std::numeric_limits<int32_t>::min();
  constexpr int64_t most64 = std::numeric_limits<int64_t>::max(),
                    least64 = std::numeric_limits<int64_t>::min();
  with(Blocks::bound, Blocks::capacity - 1, Blocks::bound - 1, 0);
  for (int64_t length : {Blocks::bound + 1, Blocks::capacity + 1, most32, int64_t(-1), least32})
    with(length, 150, 5, 1);
  for (int64_t slot : {Blocks::capacity, int64_t(1) << 32, most64, int64_t(-2), least64})
    with(70, slot, 5, 2); // as if the request were idle
  for (int64_t position : {Blocks::bound, most32, int64_t(-1), least32})
    with(70, 150, position, 4);
  with(-1, -2, -1, 7);
}

TEST_CASE("extremes: the status stays until it is taken", "[extremes]") {
  Blocks blocks;
  GraphRun &run = *blocks.runs[0];
  TensorMap inputs = blocks.graph.inputs(10, 7, Blocks::capacity), bad = inputs;
  bad.at("pos") = Tensor(DType::i32, {1});
  setScalar(bad, "pos", -5);
  run.launch(bad, 1);
  run.launch(inputs, 1);
  CHECK(run.takeStatus() == 4);
  run.launch(inputs, 1);
  CHECK(run.takeStatus() == 0);
}
