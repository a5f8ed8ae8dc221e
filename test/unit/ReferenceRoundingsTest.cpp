//===- ReferenceRoundingsTest.cpp - What rounding explains of an attention's error -===//
#include "test/unit/ReferenceExample.h"

using namespace cfc;
using namespace cfc::attn;

TEST_CASE("the rounding that explains an error of attention") {
  // Of tokens, by their probability, how often their score is rounded and what a rounding moves it by, and
  // their distance from the output in lengths of the output.
  struct Token {
    double probability, times, score, distance;
  };
  auto roundings = [](const std::vector<Token> &tokens) {
    double squares = 0, most = 0;
    for (Token token : tokens) {
      double far = token.probability * token.distance, moved = std::sqrt(token.times) * token.score * far;
      squares += moved * moved + 2 * far * far;
      most = std::max(most, moved);
    }
    return std::sqrt(3 + squares) + 5 * most;
  };
  // q is rounded twice, k once.
  Example e(R"(
attn.graph @g(%x: tensor<1x2xf16>, %y: tensor<1x2xf16>, %gain: tensor<2xf16>, %w: tensor<4x2xf16>,
    %w_k: tensor<2x2xf16>, %v: tensor<1x2xf16>, %cache: !attn.kv_cache<heads = 1, dim = 2, f16>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 4>) -> tensor<1x4xf16> {
  %n = attn.rms_norm %x, %gain {eps = 3.0}
  %q = attn.linear %n, [%w]
  %k = attn.linear %y, [%w_k]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.5}
  attn.return %o
})");
  e.set("x", ElementKind::F16, {1, 2}, {1, 1});
  e.set("gain", ElementKind::F16, 2, {1, 1});
  e.set("w", ElementKind::F16, {4, 2}, {2, 2, 0, 0, 0, 0, 4, 4}); // of the norm, halves
  e.set("y", ElementKind::F16, {1, 2}, {1, 1});
  e.set("w_k", ElementKind::F16, {2, 2}, {1, 0, 0, 1});
  e.set("v", ElementKind::F16, {1, 2}, {8, 16});
  e.setCache(ElementKind::F16, 2, 1, {1, 0, 0, 1, NAN, NAN}, {1, 2, 3, 4, NAN, NAN});
  e.setSlot(2);
  e.set("len", 2);
  auto found = [&](int64_t head) {
    return e.run().roundings.lookup(e.graph().getReturn().getValues()[0])[size_t(head)];
  };
  // Head 0 has q = (2, 0) and keys (1, 0), (0, 1), (1, 1). Values: (1, 2), (3, 4), (8, 16).
  double a = std::exp(1), sum = 2 * a + 1, x = (9 * a + 3) / sum, y = (18 * a + 4) / sum;
  auto distance = [&](double v, double w) { return std::hypot(v - x, w - y) / std::hypot(x, y); };
  double first = roundings(
      {{a / sum, 2, 1, distance(1, 2)}, {1 / sum, 2, 0, distance(3, 4)}, {a / sum, 3, 1, distance(8, 16)}});
  CHECK(found(0) == Approx(first));
  e.set("len", 0); // what is left rounds V and the output
  CHECK(found(0) == Approx(std::sqrt(3)));
  CHECK(found(1) == Approx(std::sqrt(3)));
  e.setSlot(-1); // idle
  CHECK(found(0) == 0);

  // Keys 2 and 0 with values 1 and -1, each so many times.
  auto ofTwo = [&](const char *q, int64_t times, double sink) {
    Example two("attn.graph @g(%x: tensor<1x1xf16>, %w: tensor<1x1xf16>, %cache: !attn.kv_cache<heads = 1, "
                "dim = 1, f16>,\n"
                "    %len: !attn.lengths<1, capacity = 512>, %s: tensor<1xf32>) -> tensor<1x1xf16> {\n"
                "  %q = attn.linear %x, [%w]\n  %o = attn.attention " +
                std::string(q) + ", %cache, %len sinks %s {scale = 0.5}\n  attn.return %o\n}");
    Numbers k, v;
    for (int64_t i = 0; i < times; ++i)
      for (double value : {1, -1}) {
        k.push_back(1 + value);
        v.push_back(value);
      }
    two.set("x", ElementKind::F16, {1, 1}, {2});
    two.set("w", ElementKind::F16, {1, 1}, {1});
    two.set("s", ElementKind::F32, 1, {sink});
    two.setCache(ElementKind::F16, 1, 1, k, v);
    two.set("len", 2 * times);
    return two.run().roundings.lookup(two.graph().getReturn().getValues()[0])[0];
  };
  double c = std::exp(2);
  // `sum`: of the exponentials of a token of either kind, and of the sink.
  auto tokens = [&](double rounded, int64_t times, double sum) {
    double out = (c - 1) / sum;
    std::vector<Token> all;
    for (int64_t i = 0; i < times; ++i) {
      all.push_back({c / sum / double(times), rounded, 2, (1 - out) / out});
      all.push_back({1 / sum / double(times), rounded, 0, (1 + out) / out});
    }
    return all;
  };
  CHECK(ofTwo("%q", 1, -100) == Approx(roundings(tokens(1, 1, c + 1))));
  CHECK(ofTwo("%x", 1, -100) == Approx(roundings(tokens(0, 1, c + 1)))); // exact
  CHECK(ofTwo("%q", 16, -100) == Approx(roundings(tokens(1, 16, c + 1))));
  CHECK(ofTwo("%q", 16, -100) < ofTwo("%q", 1, -100)); // the more tokens count, the less does one of them
  CHECK(ofTwo("%q", 1, 1) == Approx(roundings(tokens(1, 1, c + 1 + std::exp(1)))));
}
