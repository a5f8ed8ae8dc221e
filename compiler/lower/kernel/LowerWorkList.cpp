//===- LowerWorkList.cpp - Heads of ragged requests, shared out by bytes ----------===//
//
// The lengths of all requests lie in device memory, so every CTA works out its
// own share of the tokens (kernel.work_list): a warp adds up what requests cost
// and keeps the sums in shared memory; from them each thread finds the heads
// between two costs. Consumers and producer do the same apart, and agree.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

/// What beginning and ending a head costs, in segments: with 1, 32 requests of 1 to 8192 tokens take 5 %
/// longer than with 2 to 6 (docs/measurements.md).
static constexpr int64_t kHeadCost = 3;

static Value divideBy(SimtBuilder &b, Value x, Value y) {
  return b.createOrFold<arith::DivUIOp>(b.loc, x, y);
}

/// Requests, or query tokens.
static int64_t workRows(WorkListOp op) {
  return op.getQueries() ? int64_t(op.getRows()) : cast<CacheType>(op.getCache().getType()).getRequests();
}

/// By how many bits segments are shifted to be costs: all of them must add up to less than 2^30.
static int64_t costShift(WorkListOp op) {
  auto cache = cast<CacheType>(op.getCache().getType());
  double most = double(cache.getHeads()) * workRows(op) * (op.getBound() / double(kSegment) + kHeadCost + 1);
  int64_t shift = 0;
  while (most / double(int64_t(1) << shift) >= double(1 << 30))
    ++shift;
  return shift;
}

Value KernelLowering::segmentsToShare(const Work &w, Value length) {
  Value segments = b.shr(b.add(length, kSegment - 1), 6);
  return w.window ? b.sub(segments, b.shr(firstOfWindow(length, *w.window), 6)) : segments;
}

Value KernelLowering::costOfHead(const Work &w, Value length) {
  return b.add(b.shr(segmentsToShare(w, length), w.shift), kHeadCost);
}

/// The lanes of a warp have a request each, or two: lengths, and sums of costs by a scan.
void KernelLowering::sumWork(WorkListOp op, const Work &w, bool report) {
  auto cache = cast<CacheType>(op.getCache().getType());
  int64_t requests = w.rows;
  Value before = b.i32(0);
  auto laneOf = [&](Value value, Value from) {
    return b.create<simt::ShuffleOp>(b.getI32Type(), simt::ShuffleMode::Idx, value, from).getResult();
  };
  for (int64_t first = 0; first < requests; first += 32) {
    Value request = b.add(lane, first), exists = b.lt(request, requests);
    Value safe = b.min(request, b.i32(requests - 1));
    Value length = lengthOf(
        {op.getCache(), op.getLength(), op.getSlot(), op.getBound(), op.getQueries(), op.getMasked()}, safe,
        report ? exists : Value());
    Value cost = b.select(exists, b.mul(costOfHead(w, length), cache.getHeads()), b.i32(0)), sum = cost;
    for (int64_t d = 1; d < 32; d *= 2) {
      Value other = laneOf(sum, b.andI(b.add(lane, -d), 31));
      sum = b.select(b.lt(lane, d), sum, b.add(sum, other));
    }
    b.ifThen(exists, [&] {
      Value at = b.mul(request, 4);
      b.store(b.add(before, b.sub(sum, cost)), b.offset(w.table, at));
      b.store(length, b.offset(b.offset(w.table, kWorkLengths), at));
    });
    before = b.add(before, laneOf(sum, b.i32(31)));
  }
  b.ifThen(b.eq(lane, 0), [&] { b.store(before, b.offset(w.table, 4 * requests)); });
}

Value KernelLowering::workLength(const Work &w, Value request) {
  return b.load(b.getI32Type(), b.offset(b.offset(w.table, kWorkLengths), b.mul(request, 4)));
}

Value KernelLowering::workBefore(const Work &w, Value request) {
  return b.load(b.getI32Type(), b.offset(w.table, b.mul(request, 4)));
}

/// The head among whose units cost `x` lies.
Value KernelLowering::headAtCost(const Work &w, Value x) {
  int64_t requests = w.rows;
  Value request = b.i32(0);
  for (int64_t step = llvm::PowerOf2Ceil(requests) / 2; step; step /= 2) {
    Value next = b.add(request, step), safe = b.min(next, b.i32(requests - 1));
    Value behind = b.andI(b.lt(next, requests), b.ge(x, workBefore(w, safe)));
    request = b.select(behind, next, request);
  }
  Value head = divideBy(b, b.sub(x, workBefore(w, request)), costOfHead(w, workLength(w, request)));
  return b.add(b.mul(request, w.cache.getHeads()), b.min(head, b.i32(w.cache.getHeads() - 1)));
}

/// Groups of a head that begin before a cost of `x`, which is counted from the head's first unit on. Those
/// without tokens go with the last one that has some.
Value KernelLowering::groupsBefore(const Work &w, Value x, Value length) {
  Value segments = segmentsToShare(w, length), whole = b.shr(segments, w.shift);
  Value perGroup = b.max(segmentsPerGroup(segments, w.groups), b.i32(1));
  auto groupsOf = [&](Value n) { return divideBy(b, b.add(n, b.add(perGroup, -1)), perGroup); };
  // Group g > 0 begins at cost kHeadCost + (g perGroup >> shift).
  Value reached = b.min(b.max(b.add(x, -kHeadCost), b.i32(0)), whole);
  Value groups = b.max(groupsOf(b.createOrFold<arith::ShLIOp>(b.loc, reached, b.i32(w.shift))), b.i32(1));
  Value all = b.orI(b.lt(whole, b.add(x, 1 - kHeadCost)), b.ge(groups, groupsOf(segments)));
  return b.select(b.lt(b.i32(0), x), b.select(all, b.i32(w.groups), groups), b.i32(0));
}

/// Groups [first, second) of head `i` that are this cluster's.
std::pair<Value, Value> KernelLowering::shareOfHead(const Work &w, Value i) {
  Value request = b.div(i, w.cache.getHeads()), head = b.rem(i, w.cache.getHeads());
  Value length = workLength(w, request);
  Value begin = b.add(workBefore(w, request), b.mul(head, costOfHead(w, length)));
  return {groupsBefore(w, b.sub(w.low, begin), length), groupsBefore(w, b.sub(w.high, begin), length)};
}

/// The heads between this cluster's costs, and of the first one, whether any of its groups is left.
void KernelLowering::findWork(Work &w) {
  Value total = b.wide(workBefore(w, b.i32(w.rows)));
  Value clusters = b.wide(b.create<simt::NumClustersOp>(b.getI32Type()));
  Value cluster = b.create<simt::ClusterIdOp>(b.getI32Type());
  auto part = [&](Value i) { return b.narrow(divideBy(b, b.mul(b.wide(i), total), clusters)); };
  w.low = part(cluster);
  w.high = part(b.add(cluster, 1));
  Value first = headAtCost(w, w.low);
  auto [from, to] = shareOfHead(w, first);
  w.first = b.select(b.lt(from, to), first, b.add(first, 1));
  w.last = b.add(headAtCost(w, b.max(b.add(w.high, -1), b.i32(0))), 1);
}

void KernelLowering::planWork(WorkListOp op, bool producer) {
  auto cache = cast<CacheType>(op.getCache().getType());
  Work &w = works[op.getResult()];
  w.cache = cache;
  w.rows = workRows(op);
  w.shift = costShift(op);
  w.groups = op.getGroups();
  if (op.getWindow())
    w.window = cachedInWindow(op.getWindow(), bool(op.getSlot()));
  w.table = b.offset(shared, layout.works.lookup(op));
  if (producer) {
    waitBeforeCache();
    sumWork(op, w, /*report=*/false);
    b.create<simt::SyncWarpOp>();
  } else {
    b.ifThen(b.eq(warp, 0), [&] { sumWork(op, w, /*report=*/true); });
    sync();
  }
  findWork(w);
}

KernelLowering::ItemRange KernelLowering::itemRange(ForItemsOp op) {
  if (!op.getWork())
    return {b.create<simt::ClusterIdOp>(b.getI32Type()), b.i32(func.axis(op.getAxis()).getSize()),
            b.create<simt::NumClustersOp>(b.getI32Type())};
  const Work &w = works.find(op.getWork())->second;
  return {w.first, w.last, b.i32(1)};
}

void KernelLowering::setItem(ForItemsOp op, Value i) {
  items[op.getItem()] = i;
  if (op.getWork())
    shares[op.getShare()] = shareOfHead(works.find(op.getWork())->second, i);
}

/// Where a head's groups leave their softmaxes.
Value KernelLowering::statesOfHead(FinishOp op) {
  int64_t bytes = op.getTile().getType().getNumElements() * 4;
  auto loop = op->getParentOfType<ForItemsOp>();
  Value first = b.mul(b.wide(item(loop.getItem())), works.find(loop.getWork())->second.groups * bytes);
  return b.offset(b.offset(workspace, b.i64(op.getPartials())), first);
}

/// A head that this cluster has whole is finished at once. Of others the groups' softmaxes lie in the
/// workspace (mergeGroup), and arrivals count groups: whoever makes them all merges.
LogicalResult KernelLowering::lowerFinishOfShares(FinishOp op) {
  auto loop = op->getParentOfType<ForItemsOp>();
  auto [from, to] = shares.find(loop.getShare())->second;
  int64_t groups = works.find(loop.getWork())->second.groups;
  Value count = b.sub(to, from), isWhole = b.eq(count, groups);
  Value counter = b.offset(workspace, b.add(b.i64(op.getCounters()), b.wide(b.mul(item(loop.getItem()), 4))));
  Value flag = b.offset(shared, layout.flag);
  int64_t words = op.getTile().getType().getNumElements();
  auto keep = [&]() -> Values {
    forEach(words, [&](Value i) {
      Value data = b.load(b.getF32Type(), b.offset(bufferOf(op.getTile()), b.mul(i, 4)));
      b.store(data, b.offset(bufferOf(op.getBody().getArgument(0)), b.mul(i, 4)));
    });
    return {b.i1(true)};
  };
  auto arrive = [&]() -> Values {
    sync();                      // all groups' softmaxes are stored
    b.ifThen(b.eq(tid, 0), [&] { // the barriers pass on what it releases and acquires
      Value before = b.create<simt::AtomicOp>(b.getI32Type(), simt::Rmw::Add, simt::Ordering::AcqRel,
                                              simt::Scope::Gpu, counter, count)
                         .getResult();
      b.store(b.add(before, count), flag);
    });
    sync();
    Value last = b.eq(b.load(b.getI32Type(), flag), groups);
    b.ifThen(last, [&] {
      mergeStatesOf(op, statesOfHead(op), groups, groupsWithTokens(op.getTile().getDefiningOp<AttendOp>()));
      b.ifThen(b.eq(tid, 0), [&] { b.store(b.i32(0), counter); });
    });
    return {last};
  };
  Value finishes = b.ifElse(b.getI1Type(), isWhole, keep, arrive)[0];
  LogicalResult result = success();
  b.ifThen(finishes, [&] {
    sync();
    result = lowerBlock(op.getBody().front());
    b.loc = op.getLoc();
  });
  sync(); // the flag is free again, and no warp still reads a tile
  return result;
}

/// The groups of the head at hand that have tokens: the first ones.
Value KernelLowering::groupsWithTokens(AttendOp op) {
  Tokens t = tokensOf(op.getKv().getDefiningOp<LoadCacheOp>(), /*report=*/false);
  Value perGroup = b.max(t.segmentsPerGroup, b.i32(1));
  return divideBy(b, b.add(t.segments, b.add(perGroup, -1)), perGroup);
}
