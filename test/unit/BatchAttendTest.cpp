//===- BatchAttendTest.cpp - Attention for several requests ----------------------===//
//
// Requests of all lengths, idle ones among them, from rows of their own or from
// pages of a pool: each has the bits that it has alone, whatever the plan, and
// nothing but the new tokens' rows changes in memory.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/KernelValues.h"
#include <fmt/format.h>
#include <numeric>

using namespace cfc;
using namespace cfc::test;
using namespace mlir;

namespace {
struct Shape {
  int requests, heads, group, dim, page = 0;
  bool tokensOutside = false; ///< rows lie [block][token][head][dim]
  int groups = 16;            ///< of segments
  int queryHeads() const { return heads * group; }
  /// Tokens of a request: of more groups than 16 a head then has two segments in some.
  int capacity() const { return groups == 16 ? 512 : 80 * groups; }
};
struct Schedule {
  int part, warps, stages, ctasPerSm, chunks = 1; ///< chunks of a head, each an item; 0: by a work list
  bool shares() const { return chunks == 0; }
  bool cuts() const { return chunks != 1; }
};

constexpr int kPositions = 64;

std::string describe(const Shape &c) {
  return fmt::format("{} requests, {} heads of {}, dim {}, page {}", c.requests, c.heads, c.group, c.dim,
                     c.page);
}
std::string describe(const Schedule &s) {
  return fmt::format("part {}, {} warps, {} stages, {} CTAs on an SM, {} chunks", s.part, s.warps, s.stages,
                     s.ctasPerSm, s.chunks);
}

int pagesOfRequest(const Shape &c) { return c.page ? (c.capacity() + c.page - 1) / c.page : 0; }

/// A tile of `n` elements of `type`.
std::string tile(int n, const std::string &type = "f16") {
  return fmt::format("!kernel.tile<{}x{}>", n, type);
}

struct Writer {
  const Shape &c;
  const Schedule &s;
  int qSlice = c.group * c.dim, qAll = c.requests * c.heads * qSlice, kvAll = c.requests * c.heads * c.dim;

  std::string cache() const {
    std::string type = fmt::format("!kernel.cache<heads = {}, dim = {}", c.heads, c.dim);
    if (c.requests > 1)
      type += fmt::format(", requests = {}", c.requests);
    if (c.page)
      type += fmt::format(", page = {}", c.page);
    return type + ", f16>";
  }
  std::string pages() const { return fmt::format("memref<{}x{}xi32>", c.requests, pagesOfRequest(c)); }
  std::string state(const std::string &states = "") const {
    return fmt::format("!kernel.tile<{}x{}xf32{}>", c.group, c.dim + 2, states);
  }

  std::string header() const {
    return fmt::format(
        "kernel.func @attend(%q: memref<{0}xf16>, %k: memref<{1}xf16>, %v: memref<{1}xf16>, %c: {2}, "
        "%len: memref<{3}xi32>, %slot: memref<{3}xi64>, {4}%pos: memref<{3}xi32>, %rot: "
        "memref<{5}x{6}xf32>, %o: memref<{0}xf32>, %lse: memref<{7}xf32>)\n axes(head = {8} @grid, part = "
        "{9} "
        "@cta, warp = {10} @warp) plan(ring_stages = {11}, ctas_per_sm = {12}) {{\n",
        qAll, kvAll, cache(), c.requests, c.page ? "%pages: " + pages() + ", " : "", kPositions, c.dim,
        c.requests * c.queryHeads(), c.requests * c.heads * std::max(s.chunks, 1), s.part, s.warps, s.stages,
        s.ctasPerSm);
  }

  /// What an item reads and rotates, and where its cached tokens are.
  std::string operands() const {
    std::string text;
    if (s.chunks > 1)
      text = fmt::format("    %h = kernel.outer %i of {0}\n    %n = kernel.inner %i of {0}\n", s.chunks);
    text += fmt::format("    %r = kernel.outer %h of {}\n", c.heads);
    text +=
        fmt::format("    %q0 = kernel.read %q at %h : memref<{0}xf16> -> {1}\n    %k0 = kernel.read %k at %h "
                    ": memref<{2}xf16> -> {3}\n    %v0 = kernel.read %v at %h : memref<{2}xf16> -> {3}\n",
                    qAll, tile(qSlice), kvAll, tile(c.dim));
    for (auto [name, n] : {std::pair{"q", qSlice}, {"k", c.dim}})
      text += fmt::format("    %{0}1 = kernel.rope half_split %{0}0, %rot position %pos at %r : {1}, "
                          "memref<{2}x{3}xf32>, memref<{4}xi32>, !kernel.item -> {1}\n",
                          name, tile(n), kPositions, c.dim, c.requests);
    return text;
  }

  std::string attend() const {
    std::string chunk = s.cuts() ? ", head: partial(softmax)" : "";
    std::string stream =
        fmt::format("!kernel.kv_stream<{}, f16{}>", c.dim, s.shares() ? "" : ", part: split(0)");
    std::string reduced = state(chunk),
                whole = s.shares() ? reduced : state(", part: partial(softmax)" + chunk);
    std::string text = fmt::format("    %kv = kernel.load_cache %c tokens %len slot %slot {0}at %h {1}bound "
                                   "{2} {{groups = {8} : i64}} : {3}, "
                                   "memref<{4}xi32>, memref<{4}xi64>, {5}!kernel.item{6} -> {7}\n",
                                   c.page ? "pages %pages " : "", s.cuts() ? "chunk %n " : "", c.capacity(),
                                   cache(), c.requests, c.page ? pages() + ", " : "",
                                   s.cuts() ? ", !kernel.item" : "", stream, c.groups);
    text += fmt::format("    %{} = kernel.attend %q1, %kv scale 0.125 : {}, {} -> {}\n",
                        s.shares() ? "e" : "p", tile(qSlice), stream, whole);
    if (!s.shares())
      text += fmt::format("    %e = kernel.exchange reduce %p over \"part\" by push : {} -> {}\n", whole,
                          reduced);
    return text;
  }

  /// What is done once a head with its softmax.
  std::string rest(const std::string &from) const {
    return fmt::format(
        "    %a = kernel.attend_new {0}, %q1, %k1, %v0 slot %slot at %r scale 0.125 : {1}, {2}, {3}, {3}, "
        "memref<{4}xi64>, !kernel.item -> {1}\n"
        "    %x, %l = kernel.normalize %a : {1} -> {5}, {6}\n"
        "    kernel.write %x, %o at %h : {5}, memref<{7}xf32>\n"
        "    kernel.write %l, %lse at %h : {6}, memref<{8}xf32>\n"
        "    kernel.append %k1, %v0 to %c slot %slot at %h : {3}, {3}, {9}, memref<{4}xi64>, !kernel.item\n",
        from, state(), tile(qSlice), tile(c.dim), c.requests, tile(qSlice, "f32"), tile(c.group, "f32"), qAll,
        c.requests * c.queryHeads(), cache());
  }

  std::string write() const {
    std::string text = header();
    if (s.shares())
      text += fmt::format(
          "  %work = kernel.work_list %c tokens %len slot %slot bound {} {{groups = {} : i64}} : {}, "
          "memref<{}xi32>, memref<{}xi64>\n",
          c.capacity(), c.groups, cache(), c.requests, c.requests);
    text += fmt::format("  kernel.for_items {} {{\n", s.shares()     ? "%h, %n over head by %work"
                                                      : s.chunks > 1 ? "%i over head"
                                                                     : "%h over head");
    text += operands() + attend();
    if (s.cuts())
      text += fmt::format("    kernel.finish %e over head by ordered attributes {{{}}} : {} as %m: "
                          "{} {{\n{}    }}\n",
                          s.shares() ? "shares" : fmt::format("each = {} : i64", s.chunks),
                          state(", head: partial(softmax)"), state(), rest("%m"));
    else
      text += rest("%e");
    return text + "  }\n  kernel.return\n}";
  }
};

/// Some requests: what each brings along, and its cached tokens [head][token][dim].
struct Request {
  int length;
  bool idle;
  std::vector<double> q, k, v, keys, values;
  int position;
};

std::vector<Request> randomRequests(const Shape &c, const std::vector<int> &lengths, int seed) {
  std::vector<Request> all;
  for (size_t r = 0; r < lengths.size(); ++r) {
    Request one{std::max(lengths[r], 0), lengths[r] < 0, {}, {}, {}, {}, {}, int(r * 7 + seed) % kPositions};
    auto random = [&](int n, int stream) {
      return randomValues(n, 1, seed * 1000 + r * 10 + stream, ElementKind::F16);
    };
    one.q = random(c.queryHeads() * c.dim, 1);
    one.k = random(c.heads * c.dim, 2), one.v = random(c.heads * c.dim, 3);
    one.keys = random(c.heads * one.length * c.dim, 4);
    one.values = random(c.heads * one.length * c.dim, 5);
    all.push_back(one);
  }
  return all;
}

/// The requests as a kernel's memory, in rows of their own or in pages; request 1 shares its first page with
/// request 0 where both have one.
struct Batch {
  const Shape &c;
  std::vector<Request> &requests;
  std::vector<double> k, v, lens, slots, pages, positions;
  int pool = 0;

  Batch(const Shape &shape, std::vector<Request> &all, int seed) : c(shape), requests(all) {
    int blocks = c.page ? 0 : c.requests;
    std::vector<int> order;
    if (c.page) {
      for (const Request &r : requests)
        blocks += r.length / c.page + 1;
      pool = ++blocks;
      order.resize(blocks);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(seed));
      // Behind the pages in use a table holds anything.
      pages.assign(c.requests * pagesOfRequest(c), 1 << 30);
    }
    k.assign(size_t(blocks) * c.heads * rows() * c.dim, NAN);
    v = k;
    int next = 0;
    for (int r = 0; r < c.requests; ++r) {
      Request &one = requests[r];
      for (int p = 0; c.page && p <= one.length / c.page && p < pagesOfRequest(c); ++p)
        pages[r * pagesOfRequest(c) + p] = order[next++];
      if (sharesPage(r))
        sharePage();
      for (int h = 0; h < c.heads; ++h)
        for (int t = 0; t < one.length; ++t)
          for (int d = 0; d < c.dim; ++d) {
            size_t from = (size_t(h) * one.length + t) * c.dim + d, to = place(r, h, t) + d;
            k[to] = one.keys[from], v[to] = one.values[from];
          }
      lens.push_back(one.length);
      slots.push_back(one.idle ? -1 : slot(r));
      positions.push_back(one.position);
    }
  }

  /// Pages that nobody uses.
  void growPool(int to) {
    pool = to;
    k.resize(size_t(pool) * c.heads * rows() * c.dim, NAN);
    v.resize(k.size(), NAN);
  }
  int rows() const { return c.page ? c.page : c.capacity(); }
  bool sharesPage(int r) const {
    return r == 1 && c.page && requests[0].length > c.page && requests[1].length > c.page;
  }
  void sharePage() {
    pages[pagesOfRequest(c)] = pages[0];
    Request &from = requests[0], &to = requests[1];
    for (int h = 0; h < c.heads; ++h)
      for (int i = 0; i < c.page * c.dim; ++i) {
        to.keys[size_t(h) * to.length * c.dim + i] = from.keys[size_t(h) * from.length * c.dim + i];
        to.values[size_t(h) * to.length * c.dim + i] = from.values[size_t(h) * from.length * c.dim + i];
      }
  }
  /// Element at which token t of head h of request r begins.
  size_t place(int r, int h, int t) const {
    size_t block = r, row = t;
    if (c.page)
      block = size_t(pages[r * pagesOfRequest(c) + t / c.page]), row = t % c.page;
    return (c.tokensOutside ? (block * rows() + row) * c.heads + h : (block * c.heads + h) * rows() + row) *
           c.dim;
  }
  double slot(int r) const {
    int t = requests[r].length;
    return c.page ? pages[r * pagesOfRequest(c) + t / c.page] * c.page + t % c.page : t;
  }

  void set(KernelRun &run) const {
    std::vector<double> q, newK, newV;
    for (const Request &r : requests) {
      q.insert(q.end(), r.q.begin(), r.q.end());
      newK.insert(newK.end(), r.k.begin(), r.k.end());
      newV.insert(newV.end(), r.v.begin(), r.v.end());
    }
    run.capacity = c.page ? c.page * pagesOfRequest(c) : c.capacity();
    run.pool = pool;
    run.tokensOutside = c.tokensOutside;
    for (auto [name, values] : {std::pair<const char *, const std::vector<double> *>{"q", &q},
                                {"k", &newK},
                                {"v", &newV},
                                {"c.k", &k},
                                {"c.v", &v},
                                {"len", &lens},
                                {"slot", &slots},
                                {"pos", &positions}})
      run.set(name, *values);
    if (c.page)
      run.set("pages", pages);
    std::vector<double> rotations;
    for (int p = 0; p < kPositions; ++p)
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < c.dim / 2; ++i)
          rotations.push_back(half ? std::sin(p / (1.0 + i)) : std::cos(p / (1.0 + i)));
    run.set("rot", rotations);
    run.set("o", std::vector<double>(c.requests * c.queryHeads() * c.dim, NAN));
    run.set("lse", std::vector<double>(c.requests * c.queryHeads(), NAN));
  }
};

/// What a request alone gives: bytes of its output and lse, and of the rows that it appends, by head.
struct Alone {
  std::vector<uint8_t> o, lse, k, v;
};

std::vector<uint8_t> slice(const std::vector<uint8_t> &bytes, size_t from, size_t count) {
  return {bytes.begin() + from, bytes.begin() + from + count};
}

/// o and lse in double, from rounded rotated q and k.
void checkReference(const Shape &c, const Request &r, KernelRun &run) {
  auto rotate = [&](const std::vector<double> &x) {
    std::vector<double> y(x.size());
    for (size_t head = 0; head < x.size(); head += c.dim)
      for (int i = 0; i < c.dim / 2; ++i) {
        double cs = std::cos(r.position / (1.0 + i)), sn = std::sin(r.position / (1.0 + i));
        double a = x[head + i], b = x[head + i + c.dim / 2];
        y[head + i] = a * cs - b * sn, y[head + i + c.dim / 2] = b * cs + a * sn;
      }
    return y;
  };
  std::vector<double> q = rotate(r.q), k = rotate(r.k), o(q.size(), 0), lse;
  for (int h = 0; h < c.queryHeads(); ++h) {
    int kv = h / c.group;
    std::vector<double> scores;
    auto keyAt = [&](int t) {
      return t < r.length ? &r.keys[(size_t(kv) * r.length + t) * c.dim] : &k[kv * c.dim];
    };
    auto valueAt = [&](int t) {
      return t < r.length ? &r.values[(size_t(kv) * r.length + t) * c.dim] : &r.v[kv * c.dim];
    };
    double m = -INFINITY, l = 0;
    for (int t = 0; t <= r.length && !r.idle; ++t) {
      scores.push_back(0);
      for (int i = 0; i < c.dim; ++i)
        scores.back() += q[h * c.dim + i] * keyAt(t)[i] * 0.125;
      m = std::max(m, scores.back());
    }
    for (double &s : scores)
      l += s = std::exp(s - m);
    for (size_t t = 0; t < scores.size(); ++t)
      for (int i = 0; i < c.dim; ++i)
        o[h * c.dim + i] += scores[t] / l * valueAt(t)[i];
    lse.push_back(r.idle ? -INFINITY : m + std::log(l));
  }
  if (r.idle) {
    REQUIRE(run.get("o") == o);
    REQUIRE(run.get("lse") == lse);
    return;
  }
  REQUIRE(relativeError(run.get("o"), o) < 2e-3);
  REQUIRE(relativeError(run.get("lse"), lse) < 2e-3);
}

Alone runAlone(const Shape &c, Request request) {
  Shape one = c;
  one.requests = 1, one.page = 0, one.tokensOutside = false;
  std::vector<Request> requests = {request};
  Batch batch(one, requests, 1);
  KernelRun run(Writer{one, Schedule{1, 4, 4, 1}}.write());
  batch.set(run);
  auto report = run.launch(1);
  INFO(textOf(report));
  REQUIRE(report.ok);
  checkReference(one, request, run);
  Alone alone{run.bytes("o"), run.bytes("lse"), {}, {}};
  for (int h = 0; h < c.heads && !request.idle; ++h) {
    size_t at = batch.place(0, h, request.length) * 2;
    std::vector<uint8_t> k = slice(run.bytes("c.k"), at, c.dim * 2),
                         v = slice(run.bytes("c.v"), at, c.dim * 2);
    alone.k.insert(alone.k.end(), k.begin(), k.end());
    alone.v.insert(alone.v.end(), v.begin(), v.end());
  }
  return alone;
}

/// Each request has its bits, and of the cache only the new rows have changed.
void checkBatch(const Shape &c, const Batch &batch, const std::vector<Alone> &alone, KernelRun &run,
                std::vector<uint8_t> k, std::vector<uint8_t> v) {
  for (int r = 0; r < c.requests; ++r) {
    CAPTURE(r, batch.requests[r].length, batch.requests[r].idle);
    REQUIRE(slice(run.bytes("o"), r * alone[r].o.size(), alone[r].o.size()) == alone[r].o);
    REQUIRE(slice(run.bytes("lse"), r * alone[r].lse.size(), alone[r].lse.size()) == alone[r].lse);
    for (int h = 0; h < c.heads && !batch.requests[r].idle; ++h) {
      size_t at = batch.place(r, h, batch.requests[r].length) * 2;
      std::copy_n(alone[r].k.begin() + h * c.dim * 2, c.dim * 2, k.begin() + at);
      std::copy_n(alone[r].v.begin() + h * c.dim * 2, c.dim * 2, v.begin() + at);
    }
  }
  REQUIRE(run.bytes("c.k") == k);
  REQUIRE(run.bytes("c.v") == v);
  REQUIRE(run.workspaceIsReady());
}

struct Case {
  Shape shape;
  std::vector<int> lengths; ///< -1: idle
};

void checkCase(const Case &test, const std::vector<Schedule> &schedules, int seed) {
  const Shape &c = test.shape;
  CAPTURE(describe(c));
  std::vector<Request> requests = randomRequests(c, test.lengths, seed);
  Batch batch(c, requests, seed);
  std::vector<Alone> alone;
  for (const Request &r : requests)
    alone.push_back(runAlone(c, r));
  for (const Schedule &s : schedules) {
    CAPTURE(describe(s));
    KernelRun run(Writer{c, s}.write());
    for (int launch = 0; launch < 2; ++launch) {
      batch.set(run);
      std::vector<uint8_t> k = run.bytes("c.k"), v = run.bytes("c.v");
      auto report = run.launch(seed + launch);
      INFO(textOf(report));
      REQUIRE(report.ok);
      REQUIRE(run.status() == 0);
      checkBatch(c, batch, alone, run, k, v);
    }
  }
}
} // namespace

namespace {
/// Launches of 1 to more clusters than there are units, fewer of them at a time.
void checkShares(const Case &test) {
  const Shape &c = test.shape;
  CAPTURE(describe(c));
  std::vector<Request> requests = randomRequests(c, test.lengths, 5);
  Batch batch(c, requests, 5);
  std::vector<Alone> alone;
  for (const Request &r : requests)
    alone.push_back(runAlone(c, r));
  KernelRun run(Writer{c, Schedule{1, 4, 3, 1, 0}}.write());
  int units = c.groups * c.requests * c.heads;
  for (int clusters : {1, 2, 3, 7, 16, 25, units}) {
    CAPTURE(clusters);
    batch.set(run);
    std::vector<uint8_t> k = run.bytes("c.k"), v = run.bytes("c.v");
    auto report = run.launch(clusters, std::min(clusters, 1 + clusters % 5), std::min(clusters, units));
    INFO(textOf(report));
    REQUIRE(report.ok);
    REQUIRE(run.status() == 0);
    checkBatch(c, batch, alone, run, k, v);
  }
}
} // namespace

TEST_CASE("determinism: a request alone and in a batch", "[batch]") {
  Case test = GENERATE(Case{{2, 2, 2, 16}, {65, 0}}, Case{{3, 1, 1, 32}, {1, -1, 330}},
                       Case{{8, 1, 2, 64}, {63, 64, 65, 0, 500, -1, 1, 128}});
  checkCase(test, {{1, 4, 4, 1}, {2, 8, 3, 2}, {1, 8, 4, 1, 4}, {2, 4, 2, 1, 8}, {1, 4, 4, 2, 0}}, 3);
}

TEST_CASE("a work list gives every unit to one cluster, whatever runs", "[batch]") {
  Case test =
      GENERATE(Case{{1, 2, 1, 16}, {500}}, Case{{2, 1, 2, 16}, {0, 0}}, Case{{3, 2, 1, 16}, {7, 500, -1}},
               Case{{33, 1, 1, 16}, {}}, Case{{3, 1, 1, 16, 16}, {400, 15, 16}});
  std::mt19937 engine(test.shape.requests);
  while (int(test.lengths.size()) < test.shape.requests)
    test.lengths.push_back(engine() % 4 ? engine() % 130 : -1);
  checkShares(test);
}

TEST_CASE("attention of 32 groups and more: chunks, shares and whole heads have the same bits", "[batch]") {
  Case test = GENERATE(Case{{1, 1, 2, 16, 0, false, 128}, {2100}}, Case{{1, 1, 2, 16, 0, false, 64}, {4200}},
                       Case{{4, 1, 1, 16, 64, false, 64}, {1, 65, 0, 2100}},
                       Case{{2, 2, 1, 16, 0, false, 32}, {64, 2200}},
                       Case{{3, 2, 2, 32, 0, true, 32}, {-1, 65, 1100}});
  checkCase(test, {{1, 4, 4, 1, 0}, {1, 4, 4, 2, 16}, {4, 4, 4, 1, 8}, {2, 8, 4, 1, 4}, {4, 16, 8, 1}}, 4);
  checkShares(test);
}

TEST_CASE("one program serves requests that grow", "[batch]") {
  Shape c{3, 1, 1, 16, 16};
  KernelRun run(Writer{c, Schedule{1, 4, 4, 1, 0}}.write());
  for (int step = 0; step < 5; ++step) {
    CAPTURE(step);
    std::vector<Request> requests =
        randomRequests(c, {70 * step, 15 + step, step % 2 ? -1 : 130 * step / 2}, step);
    Batch batch(c, requests, step);
    batch.growPool(40); // as large as all steps need
    std::vector<Alone> alone;
    for (const Request &r : requests)
      alone.push_back(runAlone(c, r));
    batch.set(run);
    std::vector<uint8_t> k = run.bytes("c.k"), v = run.bytes("c.v");
    auto report = run.launch(step, 2, 5);
    INFO(textOf(report));
    REQUIRE(report.ok);
    checkBatch(c, batch, alone, run, k, v);
  }
}

TEST_CASE("lengths: pages of a pool, in any order", "[batch]") {
  int page = GENERATE(1, 3, 8, 16, 64, 128, 200);
  int n = page;
  Case test{{3, 2, 1, 16, page, page % 2 == 0 && page != 16}, {n - 1, n, n + 1}};
  if (page < 64)
    test.lengths = {n + 1, 150, 2 * n};
  checkCase(test, {{1, 4, 4, 1}, {2, 8, 3, 2}, {1, 4, 4, 1, 4}}, page);
}

TEST_CASE("what a table or a slot should not say touches nothing foreign", "[batch]") {
  Shape c{2, 1, 1, 16, 16};
  std::vector<Request> requests = randomRequests(c, {40, 20}, 1);
  Batch batch(c, requests, 1);
  uint32_t status = 0;
  SECTION("a page outside of the pool") {
    batch.pages[1] = GENERATE(-5, 1 << 30);
    status = 8;
  }
  SECTION("a slot behind the pool") {
    batch.slots[1] = batch.pool * c.page;
    status = 2;
  }
  SECTION("a length behind the table") {
    batch.lens[1] = 5000;
    status = 1 | 8; // and pages that are none
  }
  KernelRun run(Writer{c, Schedule{1, 4, 4, 1}}.write());
  batch.set(run);
  auto report = run.launch(1);
  INFO(textOf(report));
  REQUIRE(report.ok);
  REQUIRE(run.status() == status);
}

//===-- Mutants -----------------------------------------------------------------===//

/// Whether one of 10 launches of a work list shows a fault.
static bool isCaught(const Mutation &mutate, int groups = 16) {
  Shape c{3, 1, 1, 16, 0, false, groups};
  std::vector<Request> requests = randomRequests(c, {groups == 16 ? 300 : 1300, 20, 130}, 2);
  Batch batch(c, requests, 2);
  KernelRun right(Writer{c, Schedule{1, 4, 4, 1}}.write()),
      run(Writer{c, Schedule{1, 4, 4, 1, 0}}.write(), mutate);
  batch.set(right);
  REQUIRE(right.launch(1).ok);
  for (int seed = 1; seed <= 10; ++seed) {
    batch.set(run);
    if (!run.launch(seed, 1 + seed % 4, 2 + seed % 5).ok || run.bytes("o") != right.bytes("o") ||
        !run.workspaceIsReady())
      return true;
  }
  return false;
}

static bool isArrival(simt::AtomicOp op) { return op.getKind() == simt::Rmw::Add; }

TEST_CASE("faults of a work list are caught", "[batch]") {
  SECTION("without a fault there is none") { REQUIRE_FALSE(isCaught({})); }
  SECTION("arrivals release and acquire nothing") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (simt::AtomicOp op : findOps<simt::AtomicOp>(m, isArrival))
        op.setOrdering(simt::Ordering::Relaxed);
    }));
  }
  SECTION("arrivals count shares, not groups") {
    REQUIRE(isCaught([](ModuleOp m) {
      for (simt::AtomicOp op : findOps<simt::AtomicOp>(m, isArrival))
        op.getValueMutable().assign(constantBefore(op, 1));
    }));
  }
}

TEST_CASE("faults where more than 16 groups are merged are caught", "[batch]") {
  // Group 17 is in the second sixteen; of 64 groups of 1300 tokens 21 have some.
  auto is17 = [](arith::SelectOp op) {
    return isConstant(op.getTrueValue(), 17) && isConstant(op.getFalseValue(), 0);
  };
  SECTION("without a fault there is none") { REQUIRE_FALSE(isCaught({}, 64)); }
  SECTION("one group counts twice, another not at all") {
    REQUIRE(isCaught(
        [=](ModuleOp m) {
          for (arith::SelectOp op : findOps<arith::SelectOp>(m, is17))
            op.getTrueValueMutable().assign(constantBefore(op, 18));
        },
        64));
  }
  SECTION("one group is left out") {
    REQUIRE(isCaught(
        [=](ModuleOp m) {
          for (arith::SelectOp op : findOps<arith::SelectOp>(m, is17)) {
            Value exists = op.getCondition();
            OpBuilder b(op);
            exists.replaceAllUsesWith(arith::ConstantOp::create(b, op.getLoc(), b.getBoolAttr(false)));
          }
        },
        64));
  }
  SECTION("a head is merged when 16 groups have arrived") {
    REQUIRE(isCaught(
        [](ModuleOp m) {
          auto isLast = [](arith::CmpIOp op) {
            return op.getPredicate() == arith::CmpIPredicate::eq && isConstant(op.getRhs(), 64) &&
                   op.getLhs().getDefiningOp<simt::LoadOp>();
          };
          for (arith::CmpIOp op : findOps<arith::CmpIOp>(m, isLast))
            op.getRhsMutable().assign(constantBefore(op, 16));
        },
        64));
  }
}
