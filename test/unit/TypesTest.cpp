//===- TypesTest.cpp - Every mix of element types, every operation alone ----===//
#include "test/unit/NumericsHarness.h"
#include <catch2/catch.hpp>

using namespace cfc;
using namespace cfc::test;

static void verify(const std::string &text, DType coarsest, const std::vector<int64_t> &lengths,
                   const std::vector<std::string> &plans) {
  Graph graph(text);
  std::vector<TensorMap> first(lengths.size());
  for (const std::string &plan : plans) {
    GraphRun run(graph, plan);
    INFO(plan << " is\n" << run.planText());
    for (auto [i, length] : llvm::enumerate(lengths)) {
      CAPTURE(length);
      TensorMap inputs = graph.inputs(20 + i, length, 136);
      TensorMap outputs = run.launch(inputs, 30 + i);
      CHECK(mismatch(graph, run, inputs, outputs, toleranceFor(coarsest)) == "");
      if (first[i].empty())
        first[i] = outputs;
      CHECK(differingBits(outputs, first[i]) == "");
    }
  }
}

TEST_CASE("types: activations, weights and caches in any mix", "[types]") {
  const char *const small[] = {"f16", "bf16"};
  const char *const floats[] = {"f32", "f16", "bf16"}, *const tables[] = {"f16", "generated", "bf16", "f32"};
  int mix = GENERATE(range(0, 8));
  Block block{.heads = 4, .kvHeads = 2, .dim = 32, .hidden = 96};
  block.act = small[mix & 1];
  block.weight = small[mix >> 1 & 1];
  block.cache = small[mix >> 2 & 1];
  for (int i = 0; i < 3; ++i) { // every gain with every table in the end
    block.gain = floats[i];
    block.table = tables[(mix + i) % 4];
    block.style = (mix + i) % 2 ? "interleaved" : "half_split";
    block.bias = (mix >> 1) % 2 == i % 2;
    INFO(block.text());
    verify(block.text(), block.coarsest(), {0, 67}, {"auto", fmt::format("random:{}", 10 * mix + i)});
  }
}

namespace {
/// A graph of one or few operations.
struct Small {
  const char *what, *text;
  DType coarsest = DType::f16;
};
} // namespace

TEST_CASE("types: operations alone", "[types]") {
  Small small = GENERATE(Small{"a norm", R"(
attn.graph @g(%x: tensor<1x200xf16>, %gain: tensor<200xbf16>) -> tensor<1x200xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  attn.return %n
})"},
                         Small{"a projection with a bias", R"(
attn.graph @g(%x: tensor<1x136xf16>, %w: tensor<72x136xf16>, %b: tensor<72xbf16>) -> tensor<1x72xf16> {
  %y = attn.linear %x, [%w] bias [%b]
  attn.return %y
})"},
                         Small{"four projections", R"(
attn.graph @g(%x: tensor<1x64xbf16>, %a: tensor<48x64xbf16>, %b: tensor<80x64xbf16>, %c: tensor<16x64xbf16>,
    %d: tensor<200x64xbf16>)
    -> (tensor<1x48xbf16>, tensor<1x80xbf16>, tensor<1x16xbf16>, tensor<1x200xbf16>) {
  %p, %q, %r, %s = attn.linear %x, [%a, %b, %c, %d]
  attn.return %p, %q, %r, %s
})",
                               DType::bf16},
                         Small{"two projections in a row", R"(
attn.graph @g(%x: tensor<1x64xf16>, %a: tensor<320x64xf16>, %b: tensor<64x320xf16>) -> tensor<1x64xf16> {
  %u = attn.linear %x, [%a]
  %v = attn.linear %u, [%b]
  attn.return %v
})"},
                         Small{"one value rotated", R"(
attn.graph @g(%x: tensor<1x96xf16>, %table: tensor<256x48xf32>, %pos: tensor<1xi32>) -> tensor<1x96xf16> {
  %r = attn.rope %x, %table at %pos {style = interleaved}
  attn.return %r
})"},
                         Small{"two values rotated by a generated table", R"(
attn.graph @g(%q: tensor<1x256xf16>, %k: tensor<1x64xf16>, %pos: tensor<1xi32>)
    -> (tensor<1x256xf16>, tensor<1x64xf16>) {
  %table = attn.rope_table {base = 5.0e5, dim = 64, positions = 256}
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  attn.return %qr, %kr
})"},
                         Small{"an append beside a sum", R"(
attn.graph @g(%k: tensor<1x64xf16>, %v: tensor<1x64xbf16>, %cache: !attn.kv_cache<heads = 2, dim = 32, bf16>,
    %slot: tensor<1xi64>) -> tensor<1x64xf16> {
  %c = attn.kv_append %cache, %k, %v at %slot
  %s = attn.add %k, %k
  attn.return %s
})",
                               DType::bf16},
                         Small{"attention over a given cache", R"(
attn.graph @g(%q: tensor<1x192xf16>, %cache: !attn.kv_cache<heads = 1, dim = 48, f16>,
    %len: !attn.lengths<1, capacity = 256>)
    -> (tensor<1x192xf16> {attn.name = "o"}, tensor<1x4xf32> {attn.name = "lse"}) {
  %o, %lse = attn.attention %q, %cache, %len {scale = 0.1443375673}
  attn.return %o, %lse
})"},
                         Small{"attention with the largest heads", R"(
attn.graph @g(%q: tensor<1x512xbf16>, %cache: !attn.kv_cache<heads = 1, dim = 256, bf16>,
    %len: !attn.lengths<1, capacity = 256>) -> tensor<1x512xbf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.0625}
  attn.return %o
})",
                               DType::bf16},
                         Small{"sums of arguments", R"(
attn.graph @g(%x: tensor<1x50xf16>, %y: tensor<1x50xf16>, %z: tensor<1x50xf16>) -> tensor<1x50xf16> {
  %a = attn.add %x, %y
  %b = attn.add %a, %z
  attn.return %b
})"});
  INFO(small.what);
  bool caches = std::string(small.text).find("kv_cache") != std::string::npos;
  verify(small.text, small.coarsest, caches ? std::vector<int64_t>{0, 1, 130} : std::vector<int64_t>{3},
         {"auto", "random:1", "random:2", "random:3"});
}
