//===- ReferenceTest.cpp - Each attn operation, by numbers done by hand ----===//
#include "test/unit/ReferenceExample.h"

using namespace cfc;
using namespace cfc::attn;

namespace {

const char *attentionText = R"(
attn.graph @g(%q: tensor<1x4xf16>, %k: tensor<1x2xf16>, %v: tensor<1x2xf16>,
    %cache: !attn.kv_cache<heads = 1, dim = 2, f16>, %slot: tensor<1xi64>,
    %len: !attn.lengths<1, capacity = 4>) -> (tensor<1x4xf16>, tensor<1x2xf32>) {
  %c = attn.kv_append %cache, %k, %v at %slot
  %o, %lse = attn.attention %q, %c, %len {scale = 0.5}
  attn.return %o, %lse
})";

// Two query heads on one KV head of 2; three cached tokens of which `length` count.
struct AttentionExample : Example {
  AttentionExample() : Example(attentionText) {
    set("q", ElementKind::F16, {1, 4}, {2, 0, 0, 4});
    set("k", ElementKind::F16, {1, 2}, {1, 1});
    set("v", ElementKind::F16, {1, 2}, {8, 16});
    setCache(ElementKind::F16, 2, 1, {1, 0, 0, 1, NAN, NAN}, {1, 2, 3, 4, NAN, NAN});
    setSlot(2);
    set("len", 2);
  }
};

} // namespace

TEST_CASE("rms_norm divides by the root of the mean square and multiplies by the gain") {
  Example e("attn.graph @g(%x: tensor<2x2xf16>, %gain: tensor<2xf32>) -> tensor<2x2xf16> {\n"
            "  %n = attn.rms_norm %x, %gain {eps = 3.5}\n  attn.return %n\n}");
  e.set("x", ElementKind::F16, {2, 2}, {3, 4, 1, 0});
  e.set("gain", ElementKind::F32, 2, {1, 2});
  checkNear(e.result(), {3.0 / 4, 2 * 4.0 / 4, 1.0 / 2, 0}); // sqrt(12.5 + 3.5) = 4, sqrt(0.5 + 3.5) = 2
}

TEST_CASE("linear multiplies by rows of each weight and adds the biases") {
  Example e(
      "attn.graph @g(%x: tensor<1x3xbf16>, %a: tensor<2x3xf16>, %b: tensor<1x3xbf16>, %p: tensor<2xf16>,\n"
      "    %q: tensor<1xf16>) -> (tensor<1x2xbf16>, tensor<1x1xbf16>) {\n"
      "  %r:2 = attn.linear %x, [%a, %b] bias [%p, %q]\n  attn.return %r#0, %r#1\n}");
  e.set("x", ElementKind::BF16, {1, 3}, {1, 2, 3});
  e.set("a", ElementKind::F16, {2, 3}, {1, 1, 1, 1, 0, -1});
  e.set("b", ElementKind::BF16, {1, 3}, {0.5, 0, 2});
  e.set("p", ElementKind::F16, 2, {10, 20});
  e.set("q", ElementKind::F16, 1, {0.25});
  ReferenceResult result = e.run();
  checkNear(result.results[0], {16, 18});
  checkNear(result.results[1], {6.75});
  CHECK(getValueName(e.graph().getReturn().getValues()[1]) == "r#1");
}

TEST_CASE("linear over many columns, in every float type and on several threads") {
  constexpr int64_t rows = 70, columns = 2050; // more than one part, no multiple of the lanes
  for (ElementKind kind : {ElementKind::F16, ElementKind::BF16}) {
    std::string type = elementName(kind);
    Example e("attn.graph @g(%x: tensor<1x2050xf16>, %w: tensor<70x2050x" + type +
              ">) -> tensor<1x70xf16> {\n  %y = attn.linear %x, [%w]\n  attn.return %y\n}");
    Numbers x(columns), w(rows * columns), wanted(rows);
    for (int64_t i = 0; i < columns; ++i)
      x[i] = i % 7 - 3;
    for (int64_t i = 0; i < rows * columns; ++i)
      w[i] = (i * 37 % 11 - 5) / 4.0;
    for (int64_t i = 0; i < rows * columns; ++i)
      wanted[i / columns] += w[i] * x[i % columns];
    e.set("x", ElementKind::F16, {1, columns}, x);
    e.set("w", kind, {rows, columns}, w);
    CHECK(e.result() == wanted); // quarters: exact in any order
  }
}

TEST_CASE("rope turns pairs by the angle of the position") {
  auto run = [](const char *style, int64_t position, uint32_t status) {
    Example e(std::string("attn.graph @g(%q: tensor<1x8xf16>, %k: tensor<1x4xf16>, %table: tensor<2x4xf32>,\n"
                          "    %pos: tensor<1xi32>) -> (tensor<1x8xf16>, tensor<1x4xf16>) {\n"
                          "  %a, %b = attn.rope %q, %k, %table at %pos {style = ") +
              style + "}\n  attn.return %a, %b\n}");
    e.set("q", ElementKind::F16, {1, 8}, {1, 2, 3, 4, 5, 6, 7, 8});
    e.set("k", ElementKind::F16, {1, 4}, {-1, -2, -3, -4});
    // Position 0 leaves all as it is; position 1 turns pair 0 by 90 degrees and pair 1 by 180.
    e.set("table", ElementKind::F32, {2, 4}, {1, 1, 0, 0, 0, -1, 1, 0});
    e.set("pos", position);
    ReferenceResult result = e.run();
    CHECK(result.status == status);
    Numbers all = result.results[0];
    all.insert(all.end(), result.results[1].begin(), result.results[1].end());
    return all;
  };
  CHECK(run("half_split", 0, 0) == Numbers{1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4});
  CHECK(run("half_split", 1, 0) == Numbers{-3, -2, 1, -4, -7, -6, 5, -8, 3, 2, -1, 4});
  CHECK(run("interleaved", 1, 0) == Numbers{-2, 1, -3, -4, -6, 5, -7, -8, 2, -1, 3, 4});
  CHECK(run("interleaved", 2, PositionOutOfBound) == run("interleaved", 1, 0));
  CHECK(run("half_split", -1, PositionOutOfBound) == run("half_split", 0, 0));
}

TEST_CASE("rope_table holds cosines, then sines") {
  Example e("attn.graph @g() -> tensor<3x4xf32> {\n"
            "  %t = attn.rope_table {base = 100, dim = 4, positions = 3}\n  attn.return %t\n}");
  Numbers wanted;
  for (double position : {0.0, 1.0, 2.0})
    for (double value :
         {std::cos(position), std::cos(position / 10), std::sin(position), std::sin(position / 10)})
      wanted.push_back(value);
  checkNear(e.result(), wanted);
}

TEST_CASE("attention is the softmax over the cached tokens and the new one") {
  AttentionExample e;
  ReferenceResult result = e.run();
  // Logits: head 0 (2, 0): 1, 0, 1; head 1 (0, 4): 0, 2, 2. Values: (1, 2), (3, 4), (8, 16).
  double a = std::exp(1), b = std::exp(2);
  checkNear(result.results[0], {(a * 1 + 3 + a * 8) / (2 * a + 1), (a * 2 + 4 + a * 16) / (2 * a + 1),
                                (1 + b * 3 + b * 8) / (1 + 2 * b), (2 + b * 4 + b * 16) / (1 + 2 * b)});
  checkNear(result.results[1], {std::log(2 * a + 1), std::log(1 + 2 * b)});
  CHECK(result.status == 0);
  REQUIRE(result.appended.size() == 1);
  CHECK(result.appended[0].cache == "cache");
  CHECK(result.appended[0].slot == 2);
}

TEST_CASE("an empty cache leaves the new token alone") {
  AttentionExample e;
  e.set("len", 0);
  ReferenceResult result = e.run();
  CHECK(result.results[0] == Numbers{8, 16, 8, 16});
  checkNear(result.results[1], {1, 2});
}

TEST_CASE("an idle request writes nothing and yields zeros") {
  for (int64_t slot : {-1, 3, -2}) { // 3 is the cache's capacity
    AttentionExample e;
    e.setSlot(slot);
    ReferenceResult result = e.run();
    CHECK(result.results[0] == Numbers(4, 0.0));
    CHECK(result.results[1] == Numbers(2, -INFINITY));
    CHECK(result.appended[0].slot == -1);
    CHECK(result.status == (slot == -1 ? 0u : uint32_t(SlotOutOfBound)));
  }
}

TEST_CASE("a length out of its bound is clamped") {
  AttentionExample e;
  e.setCache(ElementKind::F16, 2, 1, {1, 0, 0, 1}, {1, 2, 3, 4});
  e.setSlot(1);
  Numbers wanted = e.result();
  for (int64_t length : {3, 4, 5, 2000000000}) { // the buffers hold 2 tokens, the type allows 4
    e.set("len", length);
    ReferenceResult result = e.run();
    CHECK(result.results[0] == wanted);
    CHECK(result.status == LengthOutOfBound);
  }
  e.set("len", -7);
  ReferenceResult result = e.run();
  CHECK(result.results[0] == Numbers{8, 16, 8, 16});
  CHECK(result.status == LengthOutOfBound);
}

TEST_CASE("rows are rounded to the cache's type before attention reads them") {
  Example e("attn.graph @g(%q: tensor<1x2xf16>, %k: tensor<1x2xf16>, %v: tensor<1x2xf16>,\n"
            "    %cache: !attn.kv_cache<heads = 1, dim = 2, bf16>, %slot: tensor<1xi64>,\n"
            "    %len: !attn.lengths<1, capacity = 4>) -> tensor<1x2xf16> {\n"
            "  %c = attn.kv_append %cache, %k, %v at %slot\n"
            "  %o = attn.attention %q, %c, %len {scale = 1}\n  attn.return %o\n}");
  double fine = 1 + std::ldexp(1, -10);
  e.set("q", ElementKind::F16, {1, 2}, {1, 1});
  e.set("k", ElementKind::F16, {1, 2}, {fine, 1});
  e.set("v", ElementKind::F16, {1, 2}, {fine, 1 + std::ldexp(3, -9)});
  e.setCache(ElementKind::BF16, 2, 1, {0, 0}, {0, 0});
  e.setSlot(0);
  e.set("len", 0);
  ReferenceResult result = e.run();
  CHECK(result.results[0] == Numbers{1, 1 + std::ldexp(1, -7)});
  CHECK(result.appended[0].k[0] == fine);
  CHECK(result.appended[0].kBytes == std::vector<uint8_t>{0x80, 0x3f, 0x80, 0x3f});
  CHECK(result.appended[0].vBytes == std::vector<uint8_t>{0x80, 0x3f, 0x81, 0x3f});
}

TEST_CASE("query heads read the KV head of their group, by both strides") {
  Example e("attn.graph @g(%q: tensor<1x4xf16>, %cache: !attn.kv_cache<heads = 2, dim = 1, f16>,\n"
            "    %len: !attn.lengths<1, capacity = 3>) -> tensor<1x4xf16> {\n"
            "  %o = attn.attention %q, %cache, %len {scale = 1}\n  attn.return %o\n}");
  e.set("q", ElementKind::F16, {1, 4}, {0, 0, 0, 0});
  e.set("len", 2);
  e.setCache(ElementKind::F16, 1, 2, {0, 0, 0, 0, 0, 0}, {1, 10, 3, 30, 7, 70});
  CHECK(e.result() == Numbers{2, 2, 20, 20});
  HostCache &cache = e.inputs.caches["cache"]; // the same numbers, as [head][token]
  cache.strideHead = 6;
  cache.strideToken = 2;
  CHECK(e.result() == Numbers{5.5, 5.5, 18.5, 18.5});
  e.set("len", 0);
  CHECK(e.result() == Numbers(4, 0.0));
}

TEST_CASE("requests have rows of their own, and idle ones see none") {
  Example e(
      "attn.graph @g(%q: tensor<3x1xf16>, %k: tensor<3x1xf16>, %v: tensor<3x2xf16>, %slot: tensor<3xi64>,\n"
      "    %cache: !attn.kv_cache<heads = 1, dim = 1, v_dim = 2, f16>,\n"
      "    %len: !attn.lengths<3, capacity = 2>) -> (tensor<3x2xf16>, tensor<3x1xf32>) {\n"
      "  %c = attn.kv_append %cache, %k, %v at %slot\n"
      "  %o, %lse = attn.attention %q, %c, %len {scale = 1}\n  attn.return %o, %lse\n}");
  e.set("q", ElementKind::F16, {3, 1}, {0, 0, 0});
  e.set("k", ElementKind::F16, {3, 1}, {0, 0, 0});
  e.set("v", ElementKind::F16, {3, 2}, {3, 30, 7, 70, 9, 90});
  e.set("slot", ElementKind::I64, 3, {2, -1, 0});
  e.set("len", ElementKind::I32, 3, {2, 1, 0});
  // K and V of 3 requests with room for 3 tokens each.
  e.inputs.caches["cache"] = {e.elements(ElementKind::F16, {0, 0, NAN, NAN, NAN, NAN, NAN, NAN, NAN}),
                              e.elements(ElementKind::F16, {1, 10, 2, 20, NAN, NAN, NAN, NAN, NAN, NAN, NAN,
                                                            NAN, NAN, NAN, NAN, NAN, NAN, NAN}),
                              6,
                              2,
                              3,
                              6,
                              3,
                              12,
                              4,
                              12};
  ReferenceResult result = e.run();
  checkNear(result.results[0], {2, 20, 0, 0, 9, 90});
  checkNear(result.results[1], {std::log(3), -INFINITY, 0});
  REQUIRE(result.appended.size() == 3);
  CHECK(result.appended[0].block() == 0);
  CHECK(result.appended[0].token() == 2);
  CHECK(result.appended[1].slot == -1);
  CHECK(result.appended[2].block() == 2);
  CHECK(result.appended[2].v == Numbers{9, 90});
}

namespace {
// Three requests of which one has three query tokens, one none and one a single one; a fifth row is nobody's.
// All scores are 0, so a result is the mean of what is seen.
struct QueriesExample : Example {
  explicit QueriesExample(const std::string &clause, const std::string &option = "", bool isStored = false)
      : Example(
            "attn.graph @g(%q: tensor<5x1xf16>, %v: tensor<5x1xf16>, %slot: tensor<5xi64>, %starts: "
            "tensor<4xi32>,\n"
            "    %mask: tensor<5xi64>, %cache: !attn.kv_cache<heads = 1, dim = 1, f16>,\n"
            "    %len: !attn.lengths<3, capacity = 6>) -> (tensor<5x1xf16>, tensor<5x1xf32>) {\n" +
            std::string(isStored ? "" : "  %c = attn.kv_append %cache, %q, %v at %slot queries %starts\n") +
            "  %o, %lse = attn.attention %q, " + (isStored ? "%cache" : "%c") + ", %len queries %starts" +
            clause + " {scale = 1" + option + "}\n  attn.return %o, %lse\n}") {
    set("q", ElementKind::F16, {5, 1}, {0, 0, 0, 0, 0});
    set("v", ElementKind::F16, {5, 1}, {3, 6, 9, 7, 100});
    set("slot", ElementKind::I64, 5, {2, 3, 4, 0, -9});
    set("starts", ElementKind::I32, 4, {0, 3, 3, 4});
    set("mask", ElementKind::I64, 5, {1, 2, 5, 1, 3});
    set("len", ElementKind::I32, 3, Numbers(isStored ? Numbers{5, 1, 1} : Numbers{2, 1, 0}));
    Numbers k(18, NAN), v(18, NAN);
    for (int i = 0; i < (isStored ? 5 : 2); ++i)
      k[i] = 0, v[i] = i < 2 ? i + 1 : 3 * (i - 1);
    if (isStored)
      k[12] = 0, v[12] = 7;
    inputs.caches["cache"] = {
        elements(ElementKind::F16, k), elements(ElementKind::F16, v), 12, 2, 6, 12, 3, 2, 2, 12};
  }
};
} // namespace

TEST_CASE("query tokens see those before them, or those of a mask") {
  for (bool isStored : {false, true}) {
    INFO((isStored ? "the cache holds the new tokens" : "they are appended"));
    QueriesExample causal("", "", isStored);
    ReferenceResult result = causal.run();
    checkNear(result.results[0], {2, 3, 4.2, 7, 0});
    checkNear(result.results[1], {std::log(3), std::log(4), std::log(5), 0, -INFINITY});
    CHECK(result.status == 0); // nobody looks at the slot of the last row
    checkNear(QueriesExample(" mask %mask", "", isStored).result(), {2, 3, 3.75, 7, 0});
    checkNear(QueriesExample("", ", window = 2", isStored).result(), {2.5, 4.5, 7.5, 7, 0});
    checkNear(QueriesExample(" mask %mask", ", window = 2", isStored).result(), {2.5, 6, 9, 7, 0});
  }
}

TEST_CASE("query tokens that are idle, and starts that are out of bound") {
  QueriesExample idle("");
  idle.set("slot", ElementKind::I64, 5, {2, -1, 4, 0, -9});
  ReferenceResult result = idle.run();
  checkNear(result.results[0], {2, 0, 3.75, 7, 0});
  CHECK(std::isinf(result.results[1][1]));
  CHECK(result.appended[2].block() == 0);
  CHECK(result.appended[2].token() == 4);
  CHECK(result.appended[3].block() == 2);
  CHECK(result.appended[4].slot == -1);

  QueriesExample wrong("");
  wrong.set("slot", ElementKind::I64, 5, {2, 3, 4, 0, 1});
  wrong.set("starts", ElementKind::I32, 4, {0, 3, 2, 9}); // as 0, 3, 3, 5
  result = wrong.run();
  checkNear(result.results[0], {2, 3, 4.2, 7, 53.5});
  CHECK(result.status == QueryOutOfBound);
}

TEST_CASE("a block table orders the pages, and only those below the length") {
  Example e("attn.graph @g(%q: tensor<2x1xf16>, %k: tensor<2x1xf16>, %slot: tensor<2xi64>,\n"
            "    %cache: !attn.kv_cache<heads = 1, dim = 1, page = 2, f16>, %t: tensor<2x3xi32>,\n"
            "    %len: !attn.lengths<2, capacity = 6>) -> tensor<2x1xf16> {\n"
            "  %c = attn.kv_append %cache, %k, %k at %slot\n"
            "  %o = attn.attention %q, %c, %len pages %t {scale = 1}\n  attn.return %o\n}");
  e.set("q", ElementKind::F16, {2, 1}, {0, 0});
  e.set("k", ElementKind::F16, {2, 1}, {30, 50});
  e.set("slot", ElementKind::I64, 2, {1, 9}); // page 0, token 1; page 4, token 1
  e.set("len", ElementKind::I32, 2, {3, 1});
  e.set("t", ElementKind::I32, {2, 3}, {3, 0, -1, 4, 1000, -7});
  Numbers pool = {3, NAN, NAN, NAN, NAN, NAN, 1, 2, 10, NAN};
  const void *rows = e.elements(ElementKind::F16, pool);
  e.inputs.caches["cache"] = {rows, rows, 4, 2, 0, 4, 5};
  ReferenceResult result = e.run();
  checkNear(result.results[0], {9, 30}); // (1 + 2 + 3 + 30) / 4, (10 + 50) / 2
  CHECK(result.status == 0);
  CHECK(result.appended[1].block() == 4);
  CHECK(result.appended[1].token() == 1);
  // A page outside of the pool is clamped, a slot outside of it counts as idle.
  e.set("t", ElementKind::I32, {2, 3}, {3, -5, -1, 70, 1000, -7});
  CHECK(e.result() == Numbers{9, 30});
  CHECK(e.run().status == PageOutOfBound);
  e.set("slot", ElementKind::I64, 2, {10, 9});
  CHECK(e.result() == Numbers{0, 30});
  CHECK(e.run().status == (PageOutOfBound | SlotOutOfBound));
}

TEST_CASE("norms: offsets, parts of a row, and layer_norm") {
  Example e(
      "attn.graph @g(%x: tensor<1x4xf16>, %gain: tensor<2xf32>, %wide: tensor<4xf32>, %bias: tensor<4xf16>)\n"
      "    -> (tensor<1x4xf16>, tensor<1x4xf16>, tensor<1x4xf16>) {\n"
      "  %n = attn.rms_norm %x, %gain {eps = 3.5, offset = 1}\n"
      "  %l = attn.layer_norm %x {eps = 3.5}\n"
      "  %m = attn.layer_norm %x, %wide, %bias {eps = 3.5}\n  attn.return %n, %l, %m\n}");
  e.set("x", ElementKind::F16, {1, 4}, {3, 4, 1, 0}); // mean 2, variance 2.5
  e.set("gain", ElementKind::F32, 2, {1, 2});
  e.set("wide", ElementKind::F32, 4, {1, 2, 3, 4});
  e.set("bias", ElementKind::F16, 4, {0, 1, 0, 10});
  ReferenceResult result = e.run();
  checkNear(result.results[0], {2 * 3.0 / 4, 3 * 4.0 / 4, 2 * 1.0 / 2, 0});
  double root = std::sqrt(6.0);
  checkNear(result.results[1], {1 / root, 2 / root, -1 / root, -2 / root});
  checkNear(result.results[2], {1 / root, 4 / root + 1, -3 / root, -8 / root + 10});
}

TEST_CASE("heads that are wider than the table keep what is not rotated") {
  Example e(
      "attn.graph @g(%x: tensor<1x8xf16>, %t: tensor<2x2xf32>, %pos: tensor<1xi32>) -> tensor<1x8xf16> {\n"
      "  %y = attn.rope %x, %t at %pos {style = half_split, head_dim = 4}\n  attn.return %y\n}");
  e.set("x", ElementKind::F16, {1, 8}, {1, 2, 3, 4, 5, 6, 7, 8});
  e.set("t", ElementKind::F32, {2, 2}, {1, 0, 0, 1}); // position 1: a quarter turn
  e.set("pos", ElementKind::I32, 1, {1});
  CHECK(e.result() == Numbers{-2, 1, 3, 4, -6, 5, 7, 8});
}

TEST_CASE("stretched tables have the frequencies of transformers") {
  // What ROPE_INIT_FUNCTIONS of transformers 4.57.6 give, in float32.
  struct Known {
    RopeTable table;
    Numbers frequencies;
    double attentionFactor;
  };
  RopeTable linear{10000, 8, RopeStretch::Linear, 4}, llama3{500000, 16, RopeStretch::Llama3, 8, 8192, 1, 4},
      yarn{150000, 16, RopeStretch::Yarn, 32, 4096}, exact = yarn;
  exact.truncate = false;
  yarn.attentionFactor = exact.attentionFactor = RopeTable::usualAttentionFactor(32);
  for (const Known &known :
       {Known{linear, {0.25, 0.02500000037252903, 0.0024999999441206455, 0.0002500000118743628}, 1},
        Known{llama3,
              {1.0, 0.193922758102417, 0.03760603070259094, 0.00729266507551074, 0.0005248460220173001,
               3.428102354519069e-05, 6.647869668086059e-06, 1.289173155782919e-06},
              1},
        Known{yarn,
              {1.0, 0.22541800141334534, 0.05081327259540558, 0.007755465339869261, 0.0009144543437287211,
               1.818833698052913e-05, 4.099978468730114e-06, 9.242089618055616e-07},
              1.3465735902799727},
        Known{exact,
              {1.0, 0.22541800141334534, 0.05081327259540558, 0.006794959306716919, 0.0004564839182421565,
               1.818833698052913e-05, 4.099978468730114e-06, 9.242089618055616e-07},
              1.3465735902799727}}) {
    std::vector<double> frequencies = ropeFrequencies(known.table);
    REQUIRE(frequencies.size() == known.frequencies.size());
    for (size_t i = 0; i < frequencies.size(); ++i)
      CHECK(frequencies[i] == Approx(known.frequencies[i]).epsilon(1e-5));
    CHECK(known.table.attentionFactor == Approx(known.attentionFactor).epsilon(1e-6));
  }
}

namespace {
/// Two query heads of one KV head, 4 cached tokens of K 0 and V 1, 2, 4, 8, and one appended with V 16.
struct VariantExample : Example {
  explicit VariantExample(const std::string &options, const std::string &type = "f16",
                          const std::string &scales = "")
      : Example("attn.graph @g(%q: tensor<1x2xf16>, %k: tensor<1x1xf16>, %v: tensor<1x1xf16>, %slot: "
                "tensor<1xi64>,\n"
                "    %cache: !attn.kv_cache<heads = 1, dim = 1, " +
                type +
                ">, %s: tensor<2xf32>, %ks: tensor<1xf32>,\n"
                "    %vs: tensor<1xf32>, %len: !attn.lengths<1, capacity = 4>) -> (tensor<1x2xf16>, "
                "tensor<1x2xf32>) {\n"
                "  %c = attn.kv_append %cache, %k, %v at %slot" +
                scales +
                "\n"
                "  %o, %lse = attn.attention %q, %c, %len " +
                options + "\n  attn.return %o, %lse\n}") {
    set("q", ElementKind::F16, {1, 2}, {0, 1});
    set("k", ElementKind::F16, {1, 1}, {0});
    set("v", ElementKind::F16, {1, 1}, {16});
    set("s", ElementKind::F32, 2, {std::log(2), 0});
    set("ks", ElementKind::F32, 1, {2});
    set("vs", ElementKind::F32, 1, {0.5});
    setCache(type == "f16" ? ElementKind::F16 : ElementKind::F8E4M3FN, 1, 1, {0, 0, 0, 0}, {1, 2, 4, 8});
    setSlot(4);
    inputs.caches["cache"].capacity = 5;
    set("len", 4);
  }
};
} // namespace

TEST_CASE("windows, sinks, softcaps and biases") {
  VariantExample window("{scale = 1, window = 3}");
  checkNear(window.result(), {28.0 / 3, 28.0 / 3});
  window.set("len", 1);
  checkNear(window.result(), {8.5, 8.5});
  VariantExample wide("{scale = 1, window = 100}");
  checkNear(wide.result(), {31.0 / 5, 31.0 / 5});

  VariantExample sinks("sinks %s {scale = 1}");
  ReferenceResult result = sinks.run();
  checkNear(result.results[0], {31.0 / 7, 31.0 / 6});
  checkNear(result.results[1], {std::log(7), std::log(6)});
  sinks.setSlot(-1); // idle
  checkNear(sinks.run().results[1], {-INFINITY, -INFINITY});

  VariantExample capped("{scale = 8, softcap = 2, window = 2}");
  capped.set("k", ElementKind::F16, {1, 1}, {1}); // scores of the second head: 0 and 2 tanh(4)
  double weight = std::exp(2 * std::tanh(4));
  checkNear(capped.result(), {12, (8 + 16 * weight) / (1 + weight)});

  VariantExample bias("{scale = 1, window = 2} bias(%h, %i, %j) {\n"
                      "    %slope = attn.at %s[%h]\n    %d = arith.subi %i, %j : index\n"
                      "    %w = arith.index_cast %d : index to i32\n    %f = arith.sitofp %w : i32 to f32\n"
                      "    %b = arith.mulf %slope, %f : f32\n    attn.yield %b\n  }");
  checkNear(bias.result(), {(2 * 8 + 16) / 3.0, 12}); // ln 2 for the token before the last
}

TEST_CASE("scales: the cache holds what they divide, f8 saturates") {
  VariantExample e("scales %ks, %vs {scale = 1, window = 2}", "f8E4M3FN", " scales %ks, %vs");
  e.set("v", ElementKind::F16, {1, 1}, {300}); // 600 is beyond 448
  ReferenceResult result = e.run();
  checkNear(result.results[0], {(0.5 * 8 + 0.5 * 448) / 2, (0.5 * 8 + 0.5 * 448) / 2});
  CHECK(result.appended[0].v == Numbers{600});
  CHECK(result.appended[0].vBytes == std::vector<uint8_t>{0x7e});
  e.set("k", ElementKind::F16, {1, 1}, {2}); // stored as 1, attended as 2
  double weight = std::exp(2);
  checkNear(e.run().results[0], {114, (4 + 224 * weight) / (1 + weight)});
}

TEST_CASE("logits far from 0 neither overflow nor vanish") {
  for (double logit : {-2900.0, 2900.0}) {
    AttentionExample e;
    e.set("q", ElementKind::F16, {1, 4}, {2, 0, 2, 0});
    e.set("k", ElementKind::F16, {1, 2}, {logit, 0});
    e.setCache(ElementKind::F16, 2, 1, {logit, 0, logit, 0, 0, 0}, {150, 150, 150, 150, 0, 0});
    e.set("v", ElementKind::F16, {1, 2}, {150, 150});
    ReferenceResult result = e.run();
    checkNear(result.results[0], Numbers(4, 150.0));
    checkNear(result.results[1], Numbers(2, logit + std::log(3)));
  }
}

TEST_CASE("add, and taps of every value") {
  Example e("attn.graph @g(%x: tensor<1x2xf16>) -> tensor<1x2xf16> {\n"
            "  %a = attn.add %x, %x\n  %b = attn.add %a, %x {scale = -0.5}\n  attn.return %b\n}");
  e.set("x", ElementKind::F16, {1, 2}, {1, -2});
  ReferenceResult result = e.run();
  CHECK(result.values.size() == 2);
  for (auto &[value, numbers] : result.values)
    CHECK(numbers == (getValueName(value) == "a" ? Numbers{2, -4} : Numbers{1.5, -3}));
}

TEST_CASE("inputs that are missing or do not fit are named") {
  AttentionExample e;
  e.inputs.tensors.erase("q");
  CHECK(failed(evaluate(e.graph(), e.inputs)));
  CHECK(e.message.find("no input is given for %q") != std::string::npos);
  e.set("q", ElementKind::F16, {4, 1}, {1, 2, 3, 4});
  CHECK(failed(evaluate(e.graph(), e.inputs)));
  CHECK(e.message.find("the input for %q is f16[4, 1], not 'tensor<1x4xf16>'") != std::string::npos);
  e.set("q", ElementKind::F16, {1, 4}, {1, 2, 3, 4});
  e.inputs.caches.clear();
  CHECK(failed(evaluate(e.graph(), e.inputs)));
  CHECK(e.message.find("no cache is given for %cache") != std::string::npos);
}
