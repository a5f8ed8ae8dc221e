//===- AttendTest.cpp - Attention over a cache under many schedules --------------===//
//
// The order in which softmaxes are merged depends on the length alone: not on
// CTAs, warps, the ring, or whether all states are kept and merged at the end.
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
  int heads, group, dim, vDim = 0; ///< 0: as dim
  int groups = 16;                 ///< of segments
  int dimOfV() const { return vDim ? vDim : dim; }
  /// Tokens of the cache: of more groups than 16 a head then has two segments in some.
  int capacity() const { return groups == 16 ? 1024 : 80 * groups; }
};
struct Schedule {
  int part, warps, stages, ctasPerSm, chunks = 1; ///< chunks of a head, each an item
};

std::string describe(const Schedule &s) {
  return fmt::format("part {}, {} warps, {} stages, {} CTAs on an SM, {} chunks", s.part, s.warps, s.stages,
                     s.ctasPerSm, s.chunks);
}

/// Attends to the first `len` cached tokens.
std::string attendKernel(const Shape &c, const Schedule &s, const std::string &type) {
  return fmt::format(R"(
kernel.func @attend(%q: memref<{0}x{1}>, %c: !kernel.cache<heads = {2}, dim = {3}, v_dim = {14}, {1}>, %len: memref<1xi32>, %o: memref<{15}xf32>, %lse: memref<{4}xf32>)
    axes(head = {2} @grid, part = {7} @cta, warp = {8} @warp) plan(ring_stages = {9}, ctas_per_sm = {10}) {{
  kernel.for_items %h over head {{
    %t = kernel.read %q at %h : memref<{0}x{1}> -> !kernel.tile<{11}x{1}>
    %kv = kernel.load_cache %c tokens %len at %h bound {17} {{groups = {18} : i64}} : !kernel.cache<heads = {2}, dim = {3}, v_dim = {14}, {1}>, memref<1xi32>, !kernel.item -> !kernel.kv_stream<{3}, v_dim = {14}, {1}, part: split(0)>
    %p = kernel.attend %t, %kv scale 0.125 : !kernel.tile<{11}x{1}>, !kernel.kv_stream<{3}, v_dim = {14}, {1}, part: split(0)> -> !kernel.tile<{5}x{6}xf32, part: partial(softmax)>
    %r = kernel.exchange reduce %p over "part" by push : !kernel.tile<{5}x{6}xf32, part: partial(softmax)> -> !kernel.tile<{5}x{6}xf32>
    %n, %l = kernel.normalize %r : !kernel.tile<{5}x{6}xf32> -> !kernel.tile<{16}xf32>, !kernel.tile<{5}xf32>
    kernel.write %n, %o at %h : !kernel.tile<{16}xf32>, memref<{15}xf32>
    kernel.write %l, %lse at %h : !kernel.tile<{5}xf32>, memref<{4}xf32>
  }}
  kernel.return
}})",
                     c.heads * c.group * c.dim, type, c.heads, c.dim, c.heads * c.group, c.group,
                     c.dimOfV() + 2, s.part, s.warps, s.stages, s.ctasPerSm, c.group * c.dim,
                     c.heads * s.chunks, s.chunks, c.dimOfV(), c.heads * c.group * c.dimOfV(),
                     c.group * c.dimOfV(), c.capacity(), c.groups);
}

/// The same by chunks of heads, of which the last merges all.
std::string chunkedKernel(const Shape &c, const Schedule &s, const std::string &type) {
  return fmt::format(R"(
kernel.func @attend(%q: memref<{0}x{1}>, %c: !kernel.cache<heads = {2}, dim = {3}, v_dim = {14}, {1}>, %len: memref<1xi32>, %o: memref<{15}xf32>, %lse: memref<{4}xf32>)
    axes(chunk = {12} @grid, part = {7} @cta, warp = {8} @warp) plan(ring_stages = {9}, ctas_per_sm = {10}) {{
  kernel.for_items %i over chunk {{
    %h = kernel.outer %i of {13}
    %n = kernel.inner %i of {13}
    %t = kernel.read %q at %h : memref<{0}x{1}> -> !kernel.tile<{11}x{1}>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound {17} {{groups = {18} : i64}} : !kernel.cache<heads = {2}, dim = {3}, v_dim = {14}, {1}>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<{3}, v_dim = {14}, {1}, part: split(0)>
    %p = kernel.attend %t, %kv scale 0.125 : !kernel.tile<{11}x{1}>, !kernel.kv_stream<{3}, v_dim = {14}, {1}, part: split(0)> -> !kernel.tile<{5}x{6}xf32, part: partial(softmax), chunk: partial(softmax)>
    %r = kernel.exchange reduce %p over "part" by push : !kernel.tile<{5}x{6}xf32, part: partial(softmax), chunk: partial(softmax)> -> !kernel.tile<{5}x{6}xf32, chunk: partial(softmax)>
    kernel.finish %r over chunk by ordered attributes {{each = {13} : i64}} : !kernel.tile<{5}x{6}xf32, chunk: partial(softmax)> as %m: !kernel.tile<{5}x{6}xf32> {{
      %x, %l = kernel.normalize %m : !kernel.tile<{5}x{6}xf32> -> !kernel.tile<{16}xf32>, !kernel.tile<{5}xf32>
      kernel.write %x, %o at %h : !kernel.tile<{16}xf32>, memref<{15}xf32>
      kernel.write %l, %lse at %h : !kernel.tile<{5}xf32>, memref<{4}xf32>
    }}
  }}
  kernel.return
}})",
                     c.heads * c.group * c.dim, type, c.heads, c.dim, c.heads * c.group, c.group,
                     c.dimOfV() + 2, s.part, s.warps, s.stages, s.ctasPerSm, c.group * c.dim,
                     c.heads * s.chunks, s.chunks, c.dimOfV(), c.heads * c.group * c.dimOfV(),
                     c.group * c.dimOfV(), c.capacity(), c.groups);
}

std::string kernelOf(const Shape &c, const Schedule &s, const std::string &type) {
  return s.chunks > 1 ? chunkedKernel(c, s, type) : attendKernel(c, s, type);
}

/// Inputs of a length, and what they give.
struct Data {
  std::vector<double> q, k, v, o, lse;
};

Data dataOf(const Shape &c, int length, ElementKind kind) {
  int qHeads = c.heads * c.group, vDim = c.dimOfV(), capacity = c.capacity();
  Data d;
  d.q = randomValues(qHeads * c.dim, 1.5, 1, kind);
  // Rows past the length hold NaN: they must not leak.
  d.k.assign(size_t(c.heads) * capacity * c.dim, NAN);
  d.v.assign(size_t(c.heads) * capacity * vDim, NAN);
  for (int h = 0; h < c.heads; ++h) {
    auto k = randomValues(length * c.dim, 1, 4 + h, kind), v = randomValues(length * vDim, 1, 40 + h, kind);
    std::copy(k.begin(), k.end(), d.k.begin() + size_t(h) * capacity * c.dim);
    std::copy(v.begin(), v.end(), d.v.begin() + size_t(h) * capacity * vDim);
  }
  d.o.assign(qHeads * vDim, 0);
  for (int h = 0; h < qHeads; ++h) {
    size_t firstToken = size_t(h / c.group) * capacity;
    const double *q = &d.q[h * c.dim];
    auto score = [&](int t) {
      return std::inner_product(q, q + c.dim, &d.k[(firstToken + t) * c.dim], 0.0) * 0.125;
    };
    auto value = [&](int t) { return &d.v[(firstToken + t) * vDim]; };
    d.lse.push_back(attendHead(length, vDim, score, value, &d.o[h * vDim]));
  }
  return d;
}

void set(KernelRun &run, const Data &d, int length) {
  run.set("q", d.q);
  run.set("c.k", d.k);
  run.set("c.v", d.v);
  run.set("len", {double(length)});
}
} // namespace

namespace {
/// Attends with seeded schedules that have up to `mostCtas` CTAs or chunks a head: all bits are alike, and
/// near the reference.
void checkSchedules(const Shape &shape, const std::vector<int> &lengths, ElementKind kind, int schedules,
                    int leastCtas = 1) {
  bool bf16 = kind == ElementKind::BF16;
  std::mt19937_64 engine(shape.dim + shape.group + bf16);
  std::vector<Data> data;
  for (int length : lengths)
    data.push_back(dataOf(shape, length, kind));
  std::vector<std::vector<uint8_t>> first(lengths.size());
  // All states kept (one CTA on an SM) and not, each with one set of warps and more.
  for (int i = 0; i < schedules; ++i) {
    Schedule s{pick<int>(engine, {1, 2, 4, 16}), 4 << i % 3, pick<int>(engine, {2, 3, 4}), 1 + i % 2};
    if (i >= schedules / 2) {
      s.part = pick<int>(engine, {1, 2, 4});
      s.chunks = std::max(1, pick<int>(engine, {2, 4, 8, 16}) / (shape.groups == 16 ? s.part : 1));
      s.chunks = std::min(s.chunks, shape.groups / s.part);
    }
    if (s.part * s.chunks < leastCtas)
      s.part = leastCtas / s.chunks; // its states must fit into shared memory
    CAPTURE(describe(s));
    KernelRun run(kernelOf(shape, s, bf16 ? "bf16" : "f16"));
    run.capacity = shape.capacity();
    for (size_t n = 0; n < data.size(); ++n) {
      CAPTURE(lengths[n]);
      set(run, data[n], lengths[n]);
      auto report = run.launch(n);
      INFO(textOf(report));
      REQUIRE(report.ok);
      REQUIRE(run.status() == 0);
      if (lengths[n]) {
        REQUIRE(relativeError(run.get("o"), data[n].o) < (bf16 ? 4e-3 : 5e-4));
        REQUIRE(relativeError(run.get("lse"), data[n].lse) < (bf16 ? 4e-3 : 5e-4));
      } else {
        REQUIRE(run.get("o") == data[n].o);
        REQUIRE(run.get("lse") == data[n].lse);
      }
      std::vector<uint8_t> bytes = run.bytes("o"), lse = run.bytes("lse");
      bytes.insert(bytes.end(), lse.begin(), lse.end());
      if (first[n].empty())
        first[n] = bytes;
      REQUIRE(bytes == first[n]);
      REQUIRE(run.workspaceIsReady());
    }
  }
}

struct Case {
  Shape shape;
  std::vector<int> lengths;
};
} // namespace

TEST_CASE("attention's bits do not depend on its schedule", "[attend]") {
  Case c =
      GENERATE(Case{{1, 1, 16}, {0, 1, 63, 64, 65, 1000}}, Case{{2, 2, 80}, {65, 0, 63}},
               Case{{1, 8, 80}, {1, 64, 330}}, Case{{2, 1, 128}, {1000, 63}}, Case{{1, 2, 128}, {64, 1, 0}},
               Case{{1, 8, 128}, {65, 1000}}, Case{{1, 1, 256}, {63, 200}}, Case{{1, 8, 256}, {65, 1, 200}},
               Case{{1, 3, 64}, {1024, 961, 960}});
  bool bf16 = GENERATE(false, true);
  CAPTURE(c.shape.heads, c.shape.group, c.shape.dim, bf16);
  checkSchedules(c.shape, c.lengths, bf16 ? ElementKind::BF16 : ElementKind::F16, 8,
                 c.shape.dim == 256 && c.shape.group == 8 ? 2 : 1);
}

TEST_CASE("attention's bits do not depend on its schedule, of 32, 64 and 128 groups", "[attend]") {
  Case c = GENERATE(Case{{1, 2, 16, 0, 128}, {0, 65, 4200, 8300}}, Case{{1, 4, 24, 8, 128}, {1000}},
                    Case{{1, 2, 16, 0, 64}, {0, 1, 64, 65, 4100, 5120}}, Case{{1, 8, 32, 16, 64}, {1500}},
                    Case{{2, 1, 16, 0, 32}, {65, 0, 2112}}, Case{{1, 3, 40, 0, 32}, {1, 64, 1030, 2500}});
  bool bf16 = c.shape.group % 2;
  CAPTURE(c.shape.heads, c.shape.group, c.shape.dim, c.shape.groups);
  checkSchedules(c.shape, c.lengths, bf16 ? ElementKind::BF16 : ElementKind::F16, 10);
}

TEST_CASE("shapes: any integer ratio of query to KV heads", "[attend]") {
  // More than 8 are several n-tiles, of which the last may have one head, and several passes.
  Case c = GENERATE(Case{{1, 9, 16}, {65}}, Case{{2, 12, 64}, {64, 1}}, Case{{1, 16, 128}, {130}},
                    Case{{1, 25, 128}, {65}}, Case{{1, 48, 64}, {0, 70}}, Case{{1, 71, 64}, {65}},
                    Case{{2, 17, 96}, {63}}, Case{{1, 128, 32}, {66}});
  CAPTURE(c.shape.heads, c.shape.group, c.shape.dim);
  checkSchedules(c.shape, c.lengths, c.shape.dim == 64 ? ElementKind::BF16 : ElementKind::F16, 4,
                 c.shape.group > 40 ? 8 : 2);
}

TEST_CASE("shapes: head dimensions are multiples of 8", "[attend]") {
  // 8 mod 16: half of the last blocks of 16 does not exist. 56, 120: nor do the last dims of the box.
  Case c = GENERATE(Case{{1, 1, 40}, {1, 65}}, Case{{2, 3, 56}, {64, 0, 70}}, Case{{1, 7, 72}, {130}},
                    Case{{1, 12, 88}, {65}}, Case{{1, 2, 120}, {63}}, Case{{1, 5, 136}, {66}},
                    Case{{2, 1, 184}, {65}}, Case{{1, 4, 248}, {65}}, Case{{1, 2, 8}, {100}});
  CAPTURE(c.shape.heads, c.shape.group, c.shape.dim);
  checkSchedules(c.shape, c.lengths, c.shape.group % 2 ? ElementKind::BF16 : ElementKind::F16, 4);
}

TEST_CASE("shapes: V's heads are not as long as K's", "[attend]") {
  Case c = GENERATE(Case{{1, 2, 192, 128}, {65, 1}}, Case{{2, 1, 40, 128}, {66}},
                    Case{{1, 12, 128, 72}, {130}}, Case{{2, 3, 64, 8}, {63}}, Case{{1, 4, 32, 256}, {0, 70}});
  CAPTURE(c.shape.heads, c.shape.group, c.shape.dim, c.shape.vDim);
  checkSchedules(c.shape, c.lengths, c.shape.group % 2 ? ElementKind::BF16 : ElementKind::F16, 4);
}

//===-- Mutants -----------------------------------------------------------------===//

/// Whether one of 10 launches shows a fault.
static bool isCaught(const Schedule &schedule, const Mutation &mutate, const Shape &shape = {2, 2, 16},
                     int length = 330) {
  Data d = dataOf(shape, length, ElementKind::F16);
  KernelRun run(kernelOf(shape, schedule, "f16"), mutate);
  run.capacity = shape.capacity();
  set(run, d, length);
  for (int seed = 1; seed <= 10; ++seed) {
    if (!run.launch(seed).ok || !(relativeError(run.get("o"), d.o) < 5e-4))
      return true;
    run.set("o", std::vector<double>(d.o.size(), NAN));
  }
  return false;
}

TEST_CASE("faults in attention of two sets of warps are caught", "[attend]") {
  int ctasPerSm = GENERATE(1, 2); // states merged at the end, and group by group
  CAPTURE(ctasPerSm);
  SECTION("without a fault there is none") { REQUIRE_FALSE(isCaught({2, 8, 4, ctasPerSm}, {})); }
  SECTION("a slot is released before it is read") {
    REQUIRE(isCaught({2, 8, 4, ctasPerSm}, [](ModuleOp m) {
      for (simt::AfterOp op : findOps<simt::AfterOp>(m)) {
        op.getResult().replaceAllUsesWith(op.getBase());
        op.erase();
      }
    }));
  }
  SECTION("tokens behind the length are not masked") {
    REQUIRE(isCaught({2, 8, 4, ctasPerSm}, [](ModuleOp m) {
      auto isMasked = [](scf::IfOp op) {
        return op.getNumResults() >= 4 && op.getResult(0).getType().isInteger(32) &&
               op.thenBlock()->getOperations().size() > 4;
      };
      for (scf::IfOp op : findOps<scf::IfOp>(m, isMasked)) {
        OpBuilder b(op);
        op.getConditionMutable().assign(arith::ConstantOp::create(b, op.getLoc(), b.getBoolAttr(false)));
      }
    }));
  }
  SECTION("sets merge lanes that are not all there") {
    REQUIRE(isCaught({2, 8, 4, ctasPerSm}, [=](ModuleOp m) {
      // Barriers of one set, or of all warps where states are merged at the end.
      eraseOps<simt::BarrierOp>(
          m, [=](simt::BarrierOp op) { return ctasPerSm == 1 ? op.getId() == 1 : op.getId() >= 2; });
    }));
  }
}

TEST_CASE("faults in attention by chunks of heads are caught", "[attend]") {
  const Schedule schedule{2, 4, 4, 1, 4};
  SECTION("without a fault there is none") { REQUIRE_FALSE(isCaught(schedule, {})); }
  SECTION("the CTA before the last merges") {
    REQUIRE(isCaught(schedule, [](ModuleOp m) {
      auto isLast = [](arith::CmpIOp op) {
        return op.getPredicate() == arith::CmpIPredicate::eq && isConstant(op.getRhs(), 3) &&
               op.getLhs().getDefiningOp<simt::LoadOp>();
      };
      for (arith::CmpIOp op : findOps<arith::CmpIOp>(m, isLast))
        op.getRhsMutable().assign(constantBefore(op, 2));
    }));
  }
  SECTION("the counter is not reset") {
    REQUIRE(isCaught(schedule, [](ModuleOp m) {
      auto isReset = [](simt::StoreOp op) {
        return isConstant(op.getValue(), 0) && op.getValue().getType().isInteger(32) &&
               op.getAddress().getType() == simt::PtrType::get(op.getContext(), simt::Space::Global);
      };
      eraseOps<simt::StoreOp>(m, isReset);
    }));
  }
  SECTION("all chunks attend to the first one's tokens") {
    REQUIRE(isCaught(schedule, [](ModuleOp m) {
      auto isChunk = [](arith::RemUIOp op) {
        return isConstant(op.getRhs(), 4) && isa<BlockArgument>(op.getLhs());
      };
      for (arith::RemUIOp op : findOps<arith::RemUIOp>(m, isChunk))
        op.replaceAllUsesWith(constantBefore(op, 0));
    }));
  }
}

TEST_CASE("faults in attention of 64 groups are caught", "[attend]") {
  const Shape shape{1, 2, 16, 0, 64};
  const int length = 1500; // 24 of them have tokens
  SECTION("without a fault there is none") {
    REQUIRE_FALSE(isCaught({2, 4, 4, 1, 4}, {}, shape, length));
    REQUIRE_FALSE(isCaught({1, 4, 4, 1}, {}, shape, length));
  }
  SECTION("two chunks count the same group, or none counts it") {
    int each = GENERATE(15, 17);
    REQUIRE(isCaught(
        {2, 4, 4, 1, 4},
        [=](ModuleOp m) {
          auto isFirstGroup = [](arith::MulIOp op) {
            auto chunk = op.getLhs().getDefiningOp<arith::RemUIOp>();
            return isConstant(op.getRhs(), 16) && chunk && isa<BlockArgument>(chunk.getLhs());
          };
          for (arith::MulIOp op : findOps<arith::MulIOp>(m, isFirstGroup))
            op.getRhsMutable().assign(constantBefore(op, each));
        },
        shape, length));
  }
  SECTION("the 16 groups before are not merged with 16 others") {
    REQUIRE(isCaught(
        {1, 4, 4, 1},
        [](ModuleOp m) {
          auto isCarry = [](arith::AndIOp op) {
            return isConstant(op.getRhs(), 16) && isa<BlockArgument>(op.getLhs());
          };
          for (arith::AndIOp op : findOps<arith::AndIOp>(m, isCarry))
            op.replaceAllUsesWith(constantBefore(op, 0));
        },
        shape, length));
  }
}

TEST_CASE("faults in attention of several n-tiles and passes are caught", "[attend]") {
  const Schedule schedule{2, 4, 4, 1};
  const Shape shape{1, 25, 128}; // passes of 16 heads
  SECTION("without a fault there is none") { REQUIRE_FALSE(isCaught(schedule, {}, shape)); }
  SECTION("every pass takes the first one's heads") {
    REQUIRE(isCaught(
        schedule,
        [](ModuleOp m) {
          auto isFirstHead = [](arith::MulIOp op) {
            auto pass = dyn_cast<BlockArgument>(op.getLhs());
            auto loop = pass ? dyn_cast<scf::ForOp>(pass.getOwner()->getParentOp()) : scf::ForOp();
            return loop && isConstant(loop.getUpperBound(), 2) && isConstant(op.getRhs(), 16);
          };
          for (arith::MulIOp op : findOps<arith::MulIOp>(m, isFirstHead))
            op.replaceAllUsesWith(constantBefore(op, 0));
        },
        shape));
  }
  SECTION("the producer streams once") {
    REQUIRE(isCaught(
        schedule,
        [](ModuleOp m) {
          auto isPasses = [](scf::ForOp op) {
            bool copies = false;
            op.walk([&](simt::TensorLoadOp) { copies = true; });
            return copies && isConstant(op.getUpperBound(), 2);
          };
          for (scf::ForOp op : findOps<scf::ForOp>(m, isPasses))
            op.getUpperBoundMutable().assign(constantBefore(op, 1));
        },
        shape));
  }
}
