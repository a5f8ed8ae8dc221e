// A batch in pages, launched again and again while its requests grow: what the captured graph of an engine
// does. tools/gpu/growing.py shows the same on a GPU, up to 9000 tokens.
#include "test/unit/NumericsHarness.h"
#include <catch2/catch.hpp>
#include <cstring>
#include <fmt/ranges.h>
#include <random>

using namespace cfc;
using namespace cfc::test;

namespace {
constexpr int64_t kBatch = 4, kPage = 16, kColumns = 42, kCapacity = 600;

std::string graphText() {
  return fmt::format(R"(attn.graph @growing(%x: tensor<{0}x64xf16>, %gain: tensor<64xf16>,
    %w_q: tensor<128x64xf16>, %w_k: tensor<64x64xf16>, %w_v: tensor<64x64xf16>, %w_o: tensor<64x128xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 32, page = {1}, f16>, %pages: tensor<{0}x{2}xi32>,
    %pos: tensor<{0}xi32>, %slot: tensor<{0}xi64>, %len: !attn.lengths<{0}, capacity = {3}>) -> tensor<{0}x64xf16> {{
  %table = attn.rope_table {{base = 10000, dim = 32, positions = {3}}}
  %n = attn.rms_norm %x, %gain {{eps = 1.0e-5}}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {{style = half_split}}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len pages %pages {{scale = 0.2}}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}})",
                     kBatch, kPage, kColumns, kCapacity);
}

/// An engine's view of the batch: which pages requests have, and how many tokens.
struct Batch {
  TensorMap inputs;
  std::vector<int64_t> lengths, owned; ///< by request: tokens, and pages
  std::vector<int64_t> free;           ///< pages that nobody has, in random order

  Batch(const Graph &graph, const std::vector<int64_t> &lengths, uint64_t seed)
      : lengths(lengths), owned(lengths.size()) {
    for (const InputSpec &spec : graph.specs())
      addRandom(inputs, spec, {seed, 0, kColumns * kPage});
    int64_t pages = inputs.at("cache.k").shape.at(0);
    for (int64_t page = 0; page < pages; ++page)
      free.push_back(page);
    std::mt19937_64 random(seed);
    for (size_t i = free.size(); i > 1; --i)
      std::swap(free[i - 1], free[random() % i]);
    fill(inputs.at("pages"), INT32_MAX); // what nobody may read leads out of the pool
    for (size_t r = 0; r < lengths.size(); ++r)
      for (int64_t token = 0; token < lengths[r]; token += kPage)
        addPage(int64_t(r));
  }

  void addPage(int64_t request) {
    inputs.at("pages").set(request * kColumns + owned[size_t(request)]++, double(free.back()));
    free.pop_back();
  }

  /// Writes what the next launch reads.
  void prepare(const Graph &graph, int64_t step) {
    for (const InputSpec &spec : graph.specs())
      if (spec.name == "x")
        addRandom(inputs, spec, {uint64_t(100 + step), 0, 1});
    for (int64_t r = 0; r < kBatch; ++r) {
      int64_t length = lengths[size_t(r)];
      bool idle = r && (step / 5 + r) % 4 == 3;
      if (!idle && length == owned[size_t(r)] * kPage)
        addPage(r);
      double page = idle ? 0 : inputs.at("pages").get(r * kColumns + length / kPage);
      inputs.at("slot").set(r, idle ? -1 : page * kPage + double(length % kPage));
      inputs.at("len").set(r, double(length));
      inputs.at("pos").set(r, double(length));
    }
  }

  /// Takes over what the launch appended.
  void finish(const TensorMap &outputs) {
    for (const char *name : {"cache.k", "cache.v"})
      inputs.at(name) = outputs.at(name);
    for (int64_t r = 0; r < kBatch; ++r)
      lengths[size_t(r)] += inputs.at("slot").get(r) >= 0;
  }
};

/// A row of all heads, from a pool [pages, heads, tokens, dim].
std::vector<double> rowOf(const Tensor &pool, int64_t page, int64_t token) {
  std::vector<double> row;
  for (int64_t head = 0; head < pool.shape[1]; ++head)
    for (int64_t d = 0; d < pool.shape[3]; ++d)
      row.push_back(pool.get(((page * pool.shape[1] + head) * pool.shape[2] + token) * pool.shape[3] + d));
  return row;
}

/// Results of the requests that are not idle, and appended rows, against the reference.
void checkStep(const Graph &graph, const Batch &batch, const TensorMap &outputs) {
  attn::ReferenceResult reference = graph.reference(batch.inputs);
  Tolerance limit = toleranceFor(DType::f16);
  const Tensor &found = outputs.at("result0");
  CHECK(compare(reference.results.at(0), found, found.shape.back(), true, limit).passed);
  size_t appended = 0;
  for (const attn::AppendedRow &row : reference.appended) {
    if (row.slot < 0)
      continue;
    ++appended;
    for (auto [name, values] : {std::pair("cache.k", &row.k), {"cache.v", &row.v}}) {
      std::vector<double> mine = rowOf(outputs.at(name), row.block(), row.token());
      Tensor tensor(DType::f16, {int64_t(mine.size())});
      for (size_t i = 0; i < mine.size(); ++i)
        tensor.set(int64_t(i), mine[i]);
      CHECK(compare(*values, tensor, int64_t(mine.size()), false, limit).passed);
    }
  }
  CHECK(appended > 0);
}
} // namespace

TEST_CASE("a batch grows, and gets pages, under one binding") {
  Graph graph(graphText());
  for (const char *plan : {"auto", "random:6"}) {
    GraphRun run(graph, plan);
    INFO(run.planText());
    Batch batch(graph, {0, 60, 250, 511}, 7);
    std::vector<int64_t> first = batch.lengths, pages = batch.owned;
    for (int64_t step = 0; step < 40; ++step) {
      INFO("step " << step << ", lengths " << fmt::format("{}", fmt::join(batch.lengths, " ")));
      batch.prepare(graph, step);
      TensorMap outputs = run.launch(batch.inputs, uint64_t(step));
      if (step % 13 == 0)
        checkStep(graph, batch, outputs);
      batch.finish(outputs);
    }
    CHECK(run.takeStatus() == 0);
    CHECK(batch.lengths[0] == 40);
    for (size_t r = 0; r < first.size(); ++r) {
      CHECK(batch.lengths[r] > first[r] + 20);
      CHECK(batch.owned[r] > pages[r]);
    }
  }
}
