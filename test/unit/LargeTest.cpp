//===- LargeTest.cpp - Offsets beyond 32 bits ------------------------------===//
//
// Field reports about large caches: memory of which only the rows in use exist (the rest is address space)
// lies beyond 2^31 elements from its base, by each of the strides. The result has the bits that it has where
// the same rows lie side by side.
//
//===----------------------------------------------------------------------===//
#include "RuntimeEngine.h"
#include <sys/mman.h>

using namespace cfc::runtime;
using namespace cfc::runtime::test;

namespace {

constexpr int64_t kGiB = int64_t(1) << 30, kRow = 32 * 2; // bytes of a row of K or V

/// How rows of a cache lie: strides in bytes.
struct Strides {
  int64_t blocks, heads, tokens, strideBlock, strideHead, strideToken;
  int64_t bytes() const {
    return (blocks - 1) * strideBlock + (heads - 1) * strideHead + (tokens - 1) * strideToken + kRow;
  }
};

/// Address space without memory, until it is written.
class Sparse {
public:
  explicit Sparse(size_t bytes) : bytes(bytes) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(data != MAP_FAILED);
  }
  ~Sparse() { munmap(data, bytes); }
  Sparse(const Sparse &) = delete;

  void *data;
  const size_t bytes;
};

/// An attention of `requests` requests with `tokens` cached tokens each, in a cache that lies as `strides`
/// says.
class Placed {
public:
  Placed(Compiled &compiled, Strides strides) : strides(strides), k(strides.bytes()), v(strides.bytes()) {
    engine =
        std::make_unique<Engine>(compiled, [this](Engine &at, const TensorSpec &spec, cfc_tensor &tensor) {
          at.addMemory(k.data, k.bytes);
          at.addMemory(v.data, v.bytes);
          tensor.k = k.data;
          tensor.v = v.data;
          tensor.bytes = tensor.v_bytes = k.bytes;
          tensor.stride_block = this->strides.strideBlock;
          tensor.stride_head = this->strides.strideHead;
          tensor.stride_token = this->strides.strideToken;
          tensor.blocks = this->strides.blocks;
          tensor.capacity = spec.page ? 0 : this->strides.tokens;
        });
  }

  uint16_t *row(int part, int64_t block, int64_t head, int64_t token) {
    char *base = static_cast<char *>(part ? v.data : k.data);
    return reinterpret_cast<uint16_t *>(base + block * strides.strideBlock + head * strides.strideHead +
                                        token * strides.strideToken);
  }

  Strides strides;
  Sparse k, v;
  std::unique_ptr<Engine> engine;
};

/// Seeded values of a row.
void fillRow(uint16_t *row, int part, int64_t request, int64_t head, int64_t token) {
  uint64_t state = uint64_t(part + 2 * (request + 7 * (head + 5 * token))) * 0x9E3779B97F4A7C15u + 1;
  for (int i = 0; i < 32; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    row[i] = cfc::toHalf(double(state >> 40) / double(1 << 24) - 0.5);
  }
}

/// q, k and v for `requests` requests of 2 heads of 32 in each of which a token is appended. `page`: 0 or
/// tokens; `window`: 0 or tokens.
std::string graphText(int requests, int64_t page, int64_t pages, int64_t capacity, int64_t window) {
  std::string paged = page ? fmt::format(", page = {}", page) : "";
  return fmt::format(
      "attn.graph @large(%q: tensor<{0}x64xf16>, %k: tensor<{0}x64xf16>, %v: tensor<{0}x64xf16>,\n"
      "    %cache: !attn.kv_cache<heads = 2, dim = 32{1}, f16>, %slot: tensor<{0}xi64>,\n"
      "    {2}%len: !attn.lengths<{0}, capacity = {3}>) -> tensor<{0}x64xf16> {{\n"
      "  %c = attn.kv_append %cache, %k, %v at %slot\n"
      "  %o = attn.attention %q, %c, %len {4}{{scale = 0.25{5}}}\n"
      "  attn.return %o\n}}\n",
      requests, paged, page ? fmt::format("%pages: tensor<{}x{}xi32>, ", requests, pages) : "", capacity,
      page ? "pages %pages " : "", window ? fmt::format(", window = {}", window) : "");
}

/// Rows [first, length) of each request; request r lies in block blockOf(r, token), at token offsetOf(token).
struct Use {
  int64_t requests = 1, first = 0, length = 70, page = 0;
  std::vector<int32_t> pages; ///< the block table's row, of one request
  int64_t block(int64_t request, int64_t token) const { return page ? pages[size_t(token / page)] : request; }
  int64_t offset(int64_t token) const { return page ? token % page : token; }
  int64_t slot(int64_t token) const {
    return page ? pages[size_t(token / page)] * page + token % page : token;
  }
};

struct Outcome {
  std::vector<uint16_t> result, rows; ///< appended, K then V, by request and head
};

Outcome run(Compiled &compiled, const Strides &strides, const Use &use) {
  Placed placed(compiled, strides);
  Engine &engine = *placed.engine;
  for (int64_t request = 0; request < use.requests; ++request) {
    engine.data<int32_t>("len")[request] = int32_t(use.length);
    engine.data<int64_t>("slot")[request] = use.slot(use.length);
    for (int64_t token = use.first; token < use.length; ++token)
      for (int64_t head = 0; head < 2; ++head)
        for (int part : {0, 1})
          fillRow(placed.row(part, use.block(request, token), head, use.offset(token)), part, request, head,
                  token - use.first);
  }
  if (use.page)
    std::copy(use.pages.begin(), use.pages.end(), engine.data<int32_t>("pages"));
  engine.bind();
  Outcome outcome{engine.result(), {}};
  CHECK(engine.status() == 0);
  for (int64_t request = 0; request < use.requests; ++request)
    for (int64_t head = 0; head < 2; ++head)
      for (int part : {0, 1}) {
        const uint16_t *row = placed.row(part, use.block(request, use.length), head, use.offset(use.length));
        outcome.rows.insert(outcome.rows.end(), row, row + 32);
      }
  return outcome;
}

void checkSame(const Outcome &far, const Outcome &near) {
  CHECK(far.result == near.result);
  CHECK(far.rows == near.rows);
  CHECK(std::any_of(near.rows.begin(), near.rows.end(), [](uint16_t bits) { return bits != 0; }));
  for (uint16_t bits : near.result)
    REQUIRE(std::isfinite(cfc::halfToFloat(bits)));
}

} // namespace

TEST_CASE("large: a page beyond 2^31 elements") {
  constexpr int64_t page = 16, bytes = 2 * page * kRow;
  Compiled compiled({GENERATE("auto", "random:5")}, "native", graphText(1, page, 8, 128, 0));
  Strides near{8, 2, page, bytes, page * kRow, kRow}, far = near;
  far.blocks = (int64_t(1) << 21) + 8; // 2^31 elements and eight pages, without gaps
  Use use{.page = page, .pages = {3, 0, 7, 1, 6, 2, 4, 5}}, distant = use;
  for (int32_t &p : distant.pages)
    p = p % 2 ? p : int32_t(far.blocks - 1 - p);
  checkSame(run(compiled, far, distant), run(compiled, near, use));
}

TEST_CASE("large: pages, requests, heads and tokens that lie gigabytes apart") {
  constexpr int64_t tokens = 128, rows = tokens * kRow;
  Compiled paged({"auto"}, "native", graphText(1, 16, 8, 128, 0)),
      batch({"auto"}, "native", graphText(2, 0, 0, 128, 0)),
      one({"auto"}, "native", graphText(1, 0, 0, 128, 0));
  Use pages{.page = 16, .pages = {3, 0, 7, 1, 6, 2, 4, 5}};
  Outcome nearPages = run(paged, {8, 2, 16, 2 * 16 * kRow, 16 * kRow, kRow}, pages);
  checkSame(run(paged, {8, 2, 16, kGiB, 16 * kRow, kRow}, pages), nearPages);
  Use two{.requests = 2};
  checkSame(run(batch, {2, 2, tokens, 5 * kGiB, rows, kRow}, two),
            run(batch, {2, 2, tokens, 2 * rows, rows, kRow}, two));
  Use alone;
  Outcome nearOne = run(one, {1, 2, tokens, 0, rows, kRow}, alone);
  checkSame(run(one, {1, 2, tokens, 0, 5 * kGiB, kRow}, alone), nearOne);
  checkSame(run(one, {1, 2, tokens, 0, kRow, kGiB / 16}, alone), nearOne); // [token, head, dim]
}

// Only a window of the last tokens is streamed: it begins as far behind a multiple of 64 tokens in both runs.
TEST_CASE("large: contexts of a million tokens") {
  constexpr int64_t million = 1 << 20, length = million - 1, window = 100, page = 64;
  Compiled long_({"auto"}, "native", graphText(1, 0, 0, million, window)),
      short_({"auto"}, "native", graphText(1, 0, 0, 256, window));
  Use near{.first = 0, .length = 191}, far{.first = length - 191, .length = length};
  Outcome expected = run(short_, {1, 2, 256, 0, 256 * kRow, kRow}, near);
  checkSame(run(long_, {1, 2, million, 0, million * kRow, kRow}, far), expected);
  checkSame(run(long_, {1, 2, million, 0, kRow, 128 * kRow}, far), expected); // 8 GiB of 64 heads
  Compiled paged({"auto"}, "native", graphText(1, page, million / page, million, window));
  Use inPages = far;
  inPages.page = page;
  for (int64_t i = 0; i < million / page; ++i)
    inPages.pages.push_back(int32_t(million / page - 1 - i));
  checkSame(run(paged, {million / page, 2, page, 2 * page * kRow, page * kRow, kRow}, inPages), expected);
}
