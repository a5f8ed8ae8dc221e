//===- RowsTest.cpp - Graphs of several tokens without attention ---------------===//
//
// Norms, linears, rotations and sums of 1 to 64 tokens by plans drawn by seed:
// held against the reference, and each token's bits against those that it has
// alone.
//
//===----------------------------------------------------------------------===//
#include "test/unit/NumericsHarness.h"
#include "tools/lib/Failure.h"
#include <catch2/catch.hpp>
#include <cstring>

using namespace cfc;
using namespace cfc::test;

namespace {
/// Half of a block: what comes before an attention, and what comes behind.
struct Rows {
  int64_t hidden = 64, q = 64, kv = 32, dim = 16;
  std::string act = "f16", weight = "f16", gain = "f32";
  bool bias = false;

  std::string text(int64_t tokens) const {
    std::string biases =
        bias ? fmt::format(", %b_q: tensor<{}x{}>, %b_k: tensor<{}x{}>", q, weight, kv, weight) : "";
    return fmt::format(R"(
attn.graph @rows(%x: tensor<{0}x{1}x{5}>, %o: tensor<{0}x{2}x{5}>, %gain: tensor<{1}x{7}>, %w_q: tensor<{2}x{1}x{6}>,
    %w_k: tensor<{3}x{1}x{6}>, %w_o: tensor<{1}x{2}x{6}>{8}, %table: tensor<32x{4}xf32>, %pos: tensor<{0}xi32>)
    -> (tensor<{0}x{2}x{5}>, tensor<{0}x{3}x{5}>, tensor<{0}x{1}x{5}>) {{
  %n = attn.rms_norm %x, %gain {{eps = 1.0e-5}}
  %q, %k = attn.linear %n, [%w_q, %w_k]{9}
  %qr, %kr = attn.rope %q, %k, %table at %pos {{style = half_split}}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %qr, %kr, %z
}})",
                       tokens, hidden, q, kv, dim, act, weight, gain, biases,
                       bias ? " bias [%b_q, %b_k]" : "");
  }
};

/// Row `t` of a tensor whose first extent is `tokens`, where it has that many.
Tensor rowOf(const Tensor &all, int64_t t, int64_t tokens) {
  std::vector<int64_t> shape(all.shape);
  bool whole = shape[0] != tokens;
  if (!whole)
    shape[0] = 1;
  Tensor row(all.type, shape);
  std::memcpy(row.mutableData(), all.data() + (whole ? 0 : t * row.bytes()), row.bytes());
  return row;
}

/// Inputs of `tokens` tokens; each has a position of its own.
TensorMap inputsOf(const Graph &graph, int64_t tokens) {
  TensorMap inputs = graph.inputs(uint64_t(tokens), 3, 64);
  if (auto pos = inputs.find("pos"); pos != inputs.end())
    for (int64_t t = 0; t < tokens; ++t)
      pos->second.as<int32_t>()[t] = int32_t(t * 7 % 32);
  return inputs;
}

/// Tensors that have a row for each token.
bool isOfTokens(const std::string &name) { return name == "x" || name == "o" || name == "pos"; }

/// The plans give the reference's numbers, and tokens `which` the bits that they have alone.
void check(const std::function<std::string(int64_t)> &text, int64_t tokens, DType coarsest, int plans) {
  Graph graph(text(tokens)), single(text(1));
  TensorMap inputs = inputsOf(graph, tokens);
  GraphRun one(single, "auto");
  std::map<int64_t, TensorMap> alone;
  for (int64_t t : {int64_t(0), tokens / 2, tokens - 1}) {
    TensorMap own;
    for (auto &[name, tensor] : inputs)
      own.emplace(name, rowOf(tensor, t, isOfTokens(name) ? tokens : -1));
    alone.emplace(t, one.launch(own, 1));
  }
  for (int seed = -1; seed < plans; ++seed) {
    GraphRun run(graph, seed < 0 ? "auto" : fmt::format("random:{}", seed));
    INFO(run.planText());
    TensorMap outputs = run.launch(inputs, uint64_t(seed + 1));
    CHECK(mismatch(graph, run, inputs, outputs, toleranceFor(coarsest)) == "");
    for (auto &[t, expected] : alone)
      for (const std::string &name : run.results()) {
        Tensor row = rowOf(outputs.at(name), t, tokens);
        CAPTURE(tokens, t, name);
        CHECK(std::memcmp(row.data(), expected.at(name).data(), row.bytes()) == 0);
      }
  }
}
} // namespace

TEST_CASE("rows: several tokens have the bits of one", "[rows]") {
  struct Case {
    Rows rows;
    int64_t tokens;
  };
  Case c = GENERATE(Case{{}, 2}, Case{{.hidden = 80, .q = 48, .kv = 16, .act = "bf16", .weight = "bf16"}, 3},
                    Case{{.hidden = 272, .q = 96, .kv = 32, .dim = 32, .bias = true}, 7},
                    Case{{.hidden = 256, .gain = "f16"}, 8}, Case{{.hidden = 256, .q = 256, .kv = 64}, 9},
                    Case{{.hidden = 512, .act = "f16", .weight = "bf16"}, 16}, Case{{.hidden = 80}, 33},
                    Case{{.hidden = 256, .q = 64, .kv = 64, .bias = true}, 64});
  bool coarse = c.rows.act == "bf16" || c.rows.weight == "bf16";
  check([&](int64_t tokens) { return c.rows.text(tokens); }, c.tokens, coarse ? DType::bf16 : DType::f16, 5);
}

TEST_CASE("rows: sums and norms of several tokens without linears", "[rows]") {
  int64_t tokens = GENERATE(2, 9), hidden = GENERATE(64, 80);
  check(
      [&](int64_t n) {
        return fmt::format(R"(
attn.graph @norms(%x: tensor<{0}x{1}xf16>, %o: tensor<{0}x{1}xf16>, %gain: tensor<{1}xf32>, %table: tensor<32x16xf32>,
    %pos: tensor<{0}xi32>) -> (tensor<{0}x{1}xf16>, tensor<{0}x{1}xf16>, tensor<{0}x{1}xf16>) {{
  %m = attn.rms_norm %x, %gain {{eps = 1.0e-6}}
  %s = attn.add %x, %o
  %n = attn.rms_norm %s, %gain {{eps = 1.0e-5}}
  %r = attn.rope %n, %table at %pos {{style = interleaved}}
  attn.return %s, %r, %m
}})",
                           n, hidden);
      },
      tokens, DType::f16, 3);
}

TEST_CASE("rows: a norm's operand is made in its kernel", "[rows]") {
  int64_t tokens = GENERATE(3, 16);
  check(
      [&](int64_t n) {
        return fmt::format(R"(
attn.graph @sum(%x: tensor<{0}x256xf16>, %o: tensor<{0}x256xf16>, %gain: tensor<256xf32>, %w: tensor<96x256xf16>,
    %u: tensor<64x96xf16>) -> (tensor<{0}x256xf16>, tensor<{0}x64xf16>) {{
  %s = attn.add %x, %o
  %n = attn.rms_norm %s, %gain {{eps = 1.0e-5}}
  %m = attn.rms_norm %n, %gain {{eps = 1.0e-5}}
  %a = attn.linear %m, [%w]
  %b = attn.linear %a, [%u]
  attn.return %s, %b
}})",
                           n);
      },
      tokens, DType::f16, 6);
}

TEST_CASE("rows: norms of heads, offsets of gains, layer norms and rotations of parts of heads", "[rows]") {
  int64_t tokens = GENERATE(1, 3, 16);
  check(
      [&](int64_t n) {
        return fmt::format(R"(
attn.graph @variants(%x: tensor<{0}x256xf16>, %gain: tensor<256xf32>, %bias: tensor<256xf16>, %g: tensor<32xf32>,
    %w_q: tensor<96x256xf16>, %w_k: tensor<32x256xf16>, %w: tensor<64x256xf16>, %table: tensor<32x16xf32>, %pos: tensor<{0}xi32>)
    -> (tensor<{0}x96xf16>, tensor<{0}x32xf16>, tensor<{0}x64xf16>) {{
  %n = attn.layer_norm %x, %gain, %bias {{eps = 1.0e-5}}
  %q, %k = attn.linear %n, [%w_q, %w_k]
  %qn = attn.rms_norm %q, %g {{eps = 1.0e-6, offset = 1.0}}
  %qr, %kr = attn.rope %qn, %k, %table at %pos {{style = half_split, head_dim = 32}}
  %m = attn.rms_norm %x, %gain {{eps = 1.0e-5, offset = 1.0}}
  %y = attn.linear %m, [%w]
  attn.return %qr, %kr, %y
}})",
                           n);
      },
      tokens, DType::f16, 4);
}

TEST_CASE("rows: norms of heads before an attention", "[rows]") {
  bool parts = GENERATE(false, true); // of heads are rotated
  check(
      [&](int64_t n) {
        return fmt::format(R"(
attn.graph @block(%x: tensor<{0}x128xf16>, %gain: tensor<128xf32>, %g_q: tensor<32xf16>, %g_k: tensor<32xf16>,
    %w_q: tensor<256x128xf16>, %w_k: tensor<64x128xf16>, %w_v: tensor<64x128xf16>, %w_o: tensor<128x256xf16>,
    %table: tensor<64x{1}xf32>, %pos: tensor<{0}xi32>, %slot: tensor<{0}xi64>, %cache: !attn.kv_cache<heads = 2, dim = 32, f16>,
    %len: !attn.lengths<{0}, capacity = 64>) -> tensor<{0}x128xf16> {{
  %n = attn.rms_norm %x, %gain {{eps = 1.0e-5, offset = 1.0}}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qn = attn.rms_norm %q, %g_q {{eps = 1.0e-6}}
  %kn = attn.rms_norm %k, %g_k {{eps = 1.0e-6}}
  %qr, %kr = attn.rope %qn, %kn, %table at %pos {{style = half_split{2}}}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {{scale = 0.18}}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}})",
                           n, parts ? 16 : 32, parts ? ", head_dim = 32" : "");
      },
      1, DType::f16, 6);
}

// 180 blocks of columns are no 16 slots of as many: columns cannot be split, and no CTA holds 64 tokens.
TEST_CASE("rows: tokens go in groups where all do not fit", "[rows]") {
  std::string text = R"(
attn.graph @odd(%x: tensor<64x2880xf16>, %gain: tensor<2880xf32>, %w: tensor<512x2880xf16>) -> tensor<64x512xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %y = attn.linear %n, [%w]
  attn.return %y
})";
  Graph graph(text);
  CHECK(GraphRun(graph, "auto").planText().find("token_groups = 2") != std::string::npos);
  CHECK_THROWS_AS(GraphRun(graph, "graph odd\nkernel 0: token_groups = 1\n"), Failure);
  CHECK_THROWS_AS(GraphRun(graph, "graph odd\nkernel 0: token_groups = 64\n"), Failure);
}

// A cluster of 16 CTAs has 1/16 of the columns of all tokens in each.
TEST_CASE("rows: tokens that no CTA holds whole find a plan", "[rows]") {
  std::string text = R"(
attn.graph @wide(%x: tensor<64x16384xf16>, %gain: tensor<16384xf32>, %w: tensor<4096x16384xf16>) -> tensor<64x4096xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %y = attn.linear %n, [%w]
  attn.return %y
})";
  Graph graph(text);
  GraphRun run(graph, "auto");
  CHECK(run.clusterSizes() == std::vector<unsigned>{16});
  CHECK_THROWS_AS(GraphRun(graph, "graph wide\nkernel 0: part = 8, token_groups = 1\n"), Failure);
}
