//===- StatesTest.cpp - Softmaxes of chunks that another kernel merges ------------===//
//
// One kernel leaves the softmax of each chunk of a head, and that of the new
// token, in memory; the next merges them. The bits are those of one kernel that
// has whole heads, whatever the chunks, clusters and exchanges, and whatever an
// earlier launch has left there.
//
//===----------------------------------------------------------------------===//
#include "test/unit/KernelMutants.h"
#include "test/unit/KernelValues.h"
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;
using namespace mlir;

namespace {
struct Shape {
  int heads, group, dim, vDim, groups = 16; ///< groups of segments
  /// Tokens of the cache: of more groups than 16 a head then has two segments in some.
  int capacity() const { return groups == 16 ? 1024 : 80 * groups; }
};

struct Schedule {
  int part = 1, warps = 4, chunks = 1; ///< chunks = 1: one kernel that has whole heads
  const char *algorithm = "push";
  int readerPart = 1, readerWarps = 4; ///< of the kernel that merges
};

std::string describe(const Schedule &s) {
  return fmt::format("part {}, {} warps, {} chunks, by {}; merged by part {}, {} warps", s.part, s.warps,
                     s.chunks, s.algorithm, s.readerPart, s.readerWarps);
}

enum class Token { None, New, Idle };

/// `text` with the names in braces replaced.
std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>> &names) {
  for (const auto &[name, value] : names)
    for (size_t at; (at = text.find("{" + name + "}")) != std::string::npos;)
      text.replace(at, name.size() + 2, value);
  return text;
}

const char *const kWhole = R"(
kernel.func @attend({args}, %o: memref<{outs}xf32>, %lse: memref<{qheads}xf32>)
    axes(head = {heads} @grid, part = {part} @cta, warp = {warps} @warp) plan(ring_stages = 4) {
  kernel.for_items %h over head {
    {reads}
    %kv = kernel.load_cache %c tokens %len{slot} at %h bound {capacity} {groups} : {cache}, memref<1xi32>{slottype}, !kernel.item -> {stream}
    %p = kernel.attend %t, %kv scale 0.25 : {query}, {stream} -> {softmax}xf32, part: partial(softmax)>
    %r = kernel.exchange reduce %p over "part" by push : {softmax}xf32, part: partial(softmax)> -> {softmax}xf32>
    {new}
    %x, %l = kernel.normalize {last} : {softmax}xf32> -> !kernel.tile<{out}xf32>, !kernel.tile<{group}xf32>
    kernel.write %x, %o at %h : !kernel.tile<{out}xf32>, memref<{outs}xf32>
    kernel.write %l, %lse at %h : !kernel.tile<{group}xf32>, memref<{qheads}xf32>
  }
  kernel.return
})";

const char *const kChunks = R"(
kernel.func @attend({args}, %states: {memory})
    axes(chunk = {items} @grid, part = {part} @cta, warp = {warps} @warp) plan(ring_stages = 4) {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of {chunks}
    %n = kernel.inner %i of {chunks}
    {reads}
    %kv = kernel.load_cache %c tokens %len{slot} at %h chunk %n bound {capacity} {groups} : {cache}, memref<1xi32>{slottype}, !kernel.item, !kernel.item -> {stream}
    %p = kernel.attend %t, %kv scale 0.25 : {query}, {stream} -> {softmax}xf32, part: partial(softmax), chunk: partial(softmax)>
    %r = kernel.exchange {exchange} %p over "part" by {algorithm} : {softmax}xf32, part: partial(softmax), chunk: partial(softmax)> -> {softmax}xf32, chunk: partial(softmax){split}>
    kernel.leave %r to %states at %h part %n : {softmax}xf32, chunk: partial(softmax){split}>, {memory}, !kernel.item, !kernel.item
    {first}
  }
  kernel.return
}
kernel.func @merge(%states: {memory}, %o: memref<{outs}xf32>, %lse: memref<{qheads}xf32>)
    axes(part = {readerpart} @cta, warp = {readerwarps} @warp) plan() {
  %s = kernel.merge_states %states {newlast} : {memory} -> !kernel.tile<{qheads}x{state}xf32>
  %x, %l = kernel.normalize %s : !kernel.tile<{qheads}x{state}xf32> -> !kernel.tile<{outs}xf32>, !kernel.tile<{qheads}xf32>
  kernel.write %x, %o : !kernel.tile<{outs}xf32>, memref<{outs}xf32>
  kernel.write %l, %lse : !kernel.tile<{qheads}xf32>, memref<{qheads}xf32>
  kernel.return
})";

const char *const kRows = R"(
    %kr = kernel.read %k at %h : memref<{ks}x{type}> -> !kernel.tile<{dim}x{type}>
    %vr = kernel.read %v at %h : memref<{vs}x{type}> -> !kernel.tile<{vdim}x{type}>)";
const char *const kAppend = R"(
      kernel.append %kr, %vr to %c slot %slot at %h : !kernel.tile<{dim}x{type}>, !kernel.tile<{vdim}x{type}>, {cache}, memref<1xi64>, !kernel.item
      %a = kernel.attend_new {of}, %t, %kr, %vr slot %slot scale 0.25 : {merged}, {query}, !kernel.tile<{dim}x{type}>, !kernel.tile<{vdim}x{type}>, memref<1xi64> -> {merged})";
const char *const kFirst = R"(
    kernel.first %n {
      %e = kernel.empty_state %r : {softmax}xf32, chunk: partial(softmax){split}> -> {merged}
      {new}
      kernel.leave %a to %states at %h : {merged}, {memory}, !kernel.item
    })";

std::string kernelOf(const Shape &c, const Schedule &s, bool append, const std::string &type) {
  bool whole = s.chunks == 1, scatters = !whole && s.part > 1 && c.group % s.part == 0;
  auto number = [](int n) { return std::to_string(n); };
  std::string split = scatters ? ", part: split(0)" : "";
  std::vector<std::pair<std::string, std::string>> names = {
      {"first", append ? kFirst : ""},
      {"new", append ? kAppend : ""},
      {"reads",
       std::string("%t = kernel.read %q at %h : memref<{qs}x{type}> -> {query}") + (append ? kRows : "")},
      {"args",
       std::string("%q: memref<{qs}x{type}>, %c: {cache}, %len: memref<1xi32>") +
           (append ? ", %slot: memref<1xi64>, %k: memref<{ks}x{type}>, %v: memref<{vs}x{type}>" : "")},
      {"of", whole ? "%r" : "%e"},
      {"last", append ? "%a" : "%r"},
      {"merged", whole ? "{softmax}xf32>" : "{softmax}xf32" + split + ">"},
      {"memory", "memref<{heads}x{count}x{group}x{state}xf32>"},
      {"cache", "!kernel.cache<heads = {heads}, dim = {dim}, v_dim = {vdim}, {type}>"},
      {"stream", "!kernel.kv_stream<{dim}, v_dim = {vdim}, {type}, part: split(0)>"},
      {"query", "!kernel.tile<{qdim}x{type}>"},
      {"softmax", "!kernel.tile<{group}x{state}"},
      {"slot", append ? " slot %slot" : ""},
      {"slottype", append ? ", memref<1xi64>" : ""},
      {"newlast", append ? "new_last" : ""},
      {"exchange", scatters ? "reduce_scatter" : "reduce"},
      {"split", split},
      {"algorithm", s.algorithm},
      {"type", type},
      {"groups", "{groups = " + number(c.groups) + " : i64}"},
      {"heads", number(c.heads)},
      {"group", number(c.group)},
      {"qheads", number(c.heads * c.group)},
      {"dim", number(c.dim)},
      {"vdim", number(c.vDim)},
      {"qdim", number(c.group * c.dim)},
      {"qs", number(c.heads * c.group * c.dim)},
      {"ks", number(c.heads * c.dim)},
      {"vs", number(c.heads * c.vDim)},
      {"out", number(c.group * c.vDim)},
      {"outs", number(c.heads * c.group * c.vDim)},
      {"state", number(c.vDim + 2)},
      {"count", number(s.chunks + int(append))},
      {"items", number(c.heads * s.chunks)},
      {"chunks", number(s.chunks)},
      {"part", number(s.part)},
      {"warps", number(s.warps)},
      {"readerpart", number(s.readerPart)},
      {"readerwarps", number(s.readerWarps)},
      {"capacity", number(c.capacity())},
  };
  return filled(whole ? kWhole : kChunks, names);
}

/// Inputs of a length, and what they give.
struct Data {
  int length;
  int64_t slot;
  std::vector<double> q, k, v, newK, newV, o, lse;
};

Data dataOf(const Shape &c, int length, ElementKind kind, Token token) {
  int qHeads = c.heads * c.group, capacity = c.capacity();
  Data d;
  d.length = length;
  d.slot = token == Token::Idle ? -1 : length;
  d.q = randomValues(size_t(qHeads) * c.dim, 1.5, 1, kind);
  d.newK = randomValues(size_t(c.heads) * c.dim, 1.5, 2 + length, kind);
  d.newV = randomValues(size_t(c.heads) * c.vDim, 1, 3 + length, kind);
  // Rows past the length hold NaN: they must not leak.
  d.k.assign(size_t(c.heads) * capacity * c.dim, NAN);
  d.v.assign(size_t(c.heads) * capacity * c.vDim, NAN);
  for (int h = 0; h < c.heads; ++h) {
    auto k = randomValues(size_t(length) * c.dim, 1, 4 + h, kind);
    auto v = randomValues(size_t(length) * c.vDim, 1, 40 + h, kind);
    std::copy(k.begin(), k.end(), d.k.begin() + size_t(h) * capacity * c.dim);
    std::copy(v.begin(), v.end(), d.v.begin() + size_t(h) * capacity * c.vDim);
  }
  d.o.assign(size_t(qHeads) * c.vDim, 0);
  int tokens = token == Token::Idle ? 0 : length + (token == Token::New ? 1 : 0);
  for (int h = 0; h < qHeads; ++h) {
    int kvHead = h / c.group;
    auto rowOf = [&](const std::vector<double> &cached, const std::vector<double> &added, int t, int dim) {
      return t < length ? &cached[(size_t(kvHead) * capacity + t) * dim] : &added[size_t(kvHead) * dim];
    };
    const double *q = &d.q[size_t(h) * c.dim];
    auto score = [&](int t) {
      return std::inner_product(q, q + c.dim, rowOf(d.k, d.newK, t, c.dim), 0.0) * 0.25;
    };
    auto value = [&](int t) { return rowOf(d.v, d.newV, t, c.vDim); };
    d.lse.push_back(attendHead(tokens, c.vDim, score, value, &d.o[size_t(h) * c.vDim]));
  }
  return d;
}

void set(KernelRun &run, const Data &d, bool append) {
  run.set("q", d.q);
  run.set("c.k", d.k);
  run.set("c.v", d.v);
  run.set("len", {double(d.length)});
  run.set("o", std::vector<double>(d.o.size(), NAN));
  run.set("lse", std::vector<double>(d.lse.size(), NAN));
  if (!append)
    return;
  run.set("slot", {double(d.slot)});
  run.set("k", d.newK);
  run.set("v", d.newV);
}

/// The cache as it must be: with the new token, where there is one.
std::vector<double> cacheWith(std::vector<double> rows, const std::vector<double> &added, const Shape &c,
                              int dim, int64_t slot) {
  for (int h = 0; slot >= 0 && h < c.heads; ++h)
    std::copy_n(added.begin() + size_t(h) * dim, dim,
                rows.begin() + (size_t(h) * c.capacity() + size_t(slot)) * dim);
  return rows;
}
bool isSame(const std::vector<double> &a, const std::vector<double> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

/// Exchanges that can give each CTA its heads.
std::vector<const char *> algorithmsOf(const Shape &c, int part) {
  std::vector<const char *> all = {"push", "async", "butterfly"};
  bool scatters = part > 1 && c.group % part == 0;
  if ((scatters ? c.group / part : c.group) % 2 == 0) // rows of 8 mod 16 bytes
    all.push_back("bulk");
  return all;
}

void checkSchedules(const Shape &shape, const std::vector<int> &lengths, Token token, ElementKind kind,
                    int schedules) {
  bool bf16 = kind == ElementKind::BF16, append = token != Token::None;
  std::vector<Data> data;
  for (int length : lengths)
    data.push_back(dataOf(shape, length, kind, token));
  std::vector<std::vector<uint8_t>> first(lengths.size());
  std::mt19937_64 engine(shape.dim + shape.group);
  for (int i = 0; i <= schedules; ++i) {
    Schedule s; // the first has whole heads
    if (i) {
      s.chunks = pick<int>(engine, {2, 4, 8, 16});
      s.part = std::min(1 << i % 4, shape.groups / s.chunks);
      s.warps = pick<int>(engine, {4, 8});
      s.algorithm = pick(engine, algorithmsOf(shape, s.part));
      s.readerPart = pick<int>(engine, {1, 2});
      s.readerWarps = pick<int>(engine, {4, 8, 16});
    }
    CAPTURE(describe(s));
    KernelRun run(kernelOf(shape, s, append, bf16 ? "bf16" : "f16"));
    run.capacity = shape.capacity();
    for (size_t n = 0; n < data.size(); ++n) {
      const Data &d = data[n];
      CAPTURE(d.length);
      set(run, d, append);
      auto report = run.launch(n + i);
      INFO(textOf(report));
      REQUIRE(report.ok);
      REQUIRE(run.status() == 0);
      double most = bf16 ? 4e-3 : 5e-4;
      if (std::isfinite(d.lse[0])) {
        REQUIRE(relativeError(run.get("o"), d.o) < most);
        REQUIRE(relativeError(run.get("lse"), d.lse) < most);
      } else {
        REQUIRE(run.get("o") == d.o);
        REQUIRE(run.get("lse") == d.lse);
      }
      int64_t slot = append ? d.slot : -1;
      REQUIRE(isSame(run.get("c.k"), cacheWith(d.k, d.newK, shape, shape.dim, slot)));
      REQUIRE(isSame(run.get("c.v"), cacheWith(d.v, d.newV, shape, shape.vDim, slot)));
      std::vector<uint8_t> bytes = run.bytes("o"), lse = run.bytes("lse");
      bytes.insert(bytes.end(), lse.begin(), lse.end());
      if (first[n].empty())
        first[n] = bytes;
      REQUIRE(bytes == first[n]);
    }
  }
}
} // namespace

TEST_CASE("whoever merges the states of chunks has the bits of whole heads", "[states]") {
  auto [shape, lengths] =
      GENERATE(std::pair(Shape{1, 8, 16, 16, 64}, std::vector<int>{0, 1, 63, 64, 65, 4100, 1000}),
               std::pair(Shape{1, 1, 64, 64}, std::vector<int>{1000, 0, 1, 64}),
               std::pair(Shape{2, 4, 32, 32, 32}, std::vector<int>{65, 0, 2112, 63}),
               std::pair(Shape{3, 3, 24, 40}, std::vector<int>{330, 1, 0}),
               std::pair(Shape{5, 2, 8, 8}, std::vector<int>{64, 1023, 1}),
               std::pair(Shape{1, 6, 128, 64}, std::vector<int>{65, 900}));
  Token token = GENERATE(Token::None, Token::New, Token::Idle);
  bool bf16 = shape.heads % 2 == 0;
  CAPTURE(shape.heads, shape.group, shape.dim, shape.vDim, int(token));
  checkSchedules(shape, lengths, token, bf16 ? ElementKind::BF16 : ElementKind::F16, 6);
}

TEST_CASE("states of many heads and long rows are merged", "[states]") {
  auto shape = GENERATE(Shape{1, 128, 32, 32, 64}, Shape{2, 16, 256, 256, 32}, Shape{1, 20, 64, 192});
  CAPTURE(shape.group, shape.vDim);
  checkSchedules(shape, {66, 700}, Token::New, ElementKind::F16, 4);
}

//===-- Mutants -----------------------------------------------------------------===//

namespace {
/// Whether one of some launches shows a fault: of several lengths, so that what an earlier one has left is
/// wrong.
bool isCaught(const Schedule &schedule, const Mutation &mutate, const Shape &shape = {2, 4, 16, 16, 32}) {
  KernelRun run(kernelOf(shape, schedule, /*append=*/true, "f16"), mutate);
  run.capacity = shape.capacity();
  for (int seed = 1; seed <= 8; ++seed) {
    int length = seed % 2 ? 330 : 65;
    Data d = dataOf(shape, length, ElementKind::F16, Token::New);
    set(run, d, /*append=*/true);
    if (!run.launch(seed).ok || !(relativeError(run.get("o"), d.o) < 5e-4) ||
        !(relativeError(run.get("lse"), d.lse) < 5e-4) ||
        !isSame(run.get("c.k"), cacheWith(d.k, d.newK, shape, shape.dim, d.slot)))
      return true;
  }
  return false;
}

simt::KernelOp kernelNamed(ModuleOp module, llvm::StringRef name) {
  for (auto kernel : module.getOps<simt::KernelOp>())
    if (kernel.getSymName() == name)
      return kernel;
  FAIL("no kernel @" << name.str());
  return {};
}
bool isIn(Operation *op, simt::KernelOp kernel) { return kernel->isProperAncestor(op); }

/// Which of `chunks` parts an item is.
bool isPart(Value value, int chunks) {
  auto rem = value.getDefiningOp<arith::RemUIOp>();
  return rem && isConstant(rem.getRhs(), chunks) && isa<BlockArgument>(rem.getLhs());
}
} // namespace

TEST_CASE("faults in states that another kernel merges are caught", "[states]") {
  const Schedule schedule{2, 4, 4, "push"};
  const int chunks = schedule.chunks, states = chunks + 1;
  SECTION("without a fault there is none") { REQUIRE_FALSE(isCaught(schedule, {})); }
  SECTION(
      "the new token's state is left out, and a chunk's merged twice; or that of the next head is taken") {
    int taken = GENERATE(3, 5);
    REQUIRE(isCaught(schedule, [=](ModuleOp m) {
      simt::KernelOp merge = kernelNamed(m, "merge");
      auto isLast = [=](arith::AddIOp op) {
        auto head = op.getLhs().getDefiningOp<arith::MulIOp>();
        return isIn(op, merge) && isConstant(op.getRhs(), chunks) && head &&
               isConstant(head.getRhs(), states);
      };
      for (arith::AddIOp op : findOps<arith::AddIOp>(m, isLast))
        op.getRhsMutable().assign(constantBefore(op, taken));
    }));
  }
  SECTION("the new token's state is merged twice") {
    REQUIRE(isCaught(schedule, [=](ModuleOp m) {
      simt::KernelOp merge = kernelNamed(m, "merge");
      auto isChunk = [=](arith::AddIOp op) {
        auto head = op.getLhs().getDefiningOp<arith::MulIOp>();
        return isIn(op, merge) && isConstant(op.getRhs(), chunks - 1) && head &&
               isConstant(head.getRhs(), states);
      };
      for (arith::AddIOp op : findOps<arith::AddIOp>(m, isChunk))
        op.getRhsMutable().assign(constantBefore(op, chunks));
    }));
  }
  SECTION("no part of a head is its first, or that of the first head alone") {
    bool none = GENERATE(true, false);
    REQUIRE(isCaught(schedule, [=](ModuleOp m) {
      auto isFirst = [=](arith::CmpIOp op) {
        return op.getPredicate() == arith::CmpIPredicate::eq && isPart(op.getLhs(), chunks) &&
               isConstant(op.getRhs(), 0);
      };
      for (arith::CmpIOp op : findOps<arith::CmpIOp>(m, isFirst))
        if (none)
          op.getRhsMutable().assign(constantBefore(op, chunks));
        else
          op.getLhsMutable().assign(op.getLhs().getDefiningOp()->getOperand(0));
    }));
  }
  SECTION("chunks leave their states at the first one's place") {
    REQUIRE(isCaught(schedule, [=](ModuleOp m) {
      auto isPlace = [=](arith::AddIOp op) {
        auto head = op.getLhs().getDefiningOp<arith::MulIOp>();
        return isPart(op.getRhs(), chunks) && head && isConstant(head.getRhs(), states);
      };
      for (arith::AddIOp op : findOps<arith::AddIOp>(m, isPlace))
        op.getRhsMutable().assign(constantBefore(op, 0));
    }));
  }
  SECTION("each CTA leaves its heads' states at the first one's place") {
    REQUIRE(isCaught(schedule, [=](ModuleOp m) {
      // 2 heads of 18 words for each CTA of the cluster.
      simt::KernelOp attend = kernelNamed(m, "attend");
      auto isOffset = [=](arith::MulIOp op) {
        return isIn(op, attend) && isConstant(op.getRhs(), 4 * 2 * 18);
      };
      for (arith::MulIOp op : findOps<arith::MulIOp>(m, isOffset))
        op.getRhsMutable().assign(constantBefore(op, 0));
    }));
  }
  SECTION("what is merged is normalized before it is all there") {
    REQUIRE(isCaught(schedule, [=](ModuleOp m) {
      simt::KernelOp merge = kernelNamed(m, "merge");
      bool isFirst = true;
      eraseOps<simt::BarrierOp>(
          m, [&](simt::BarrierOp op) { return isIn(op, merge) && std::exchange(isFirst, false); });
    }));
  }
}
