//===- LowerWaitingFinish.cpp - Grid sums for which some clusters wait --------------===//
//
// A word of a partial sum says by itself that it is there: words are 0 between
// launches, and sums are stored complemented. So nobody fences or asks who is
// last: the finishers load what they have to add up until it is there. They are
// the clusters that come last, so the others leave at once and make room.
//
// A cluster waits only behind its last item, and only if it knows that all
// clusters have started: arrivals and starts are counted in one word, so each
// arrival knows how many clusters had started, and the one that starts last how
// many arrivals could not wait; it finishes in their place. What a cluster does
// that has started depends on none that has not, so all words come: not all
// clusters need fit on the GPU at a time.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

/// The sum's word: never 0. Arithmetic gives no NaN of ones alone, and if it did, it would be another NaN.
static Value toWords(SimtBuilder &b, Value bits) {
  auto type = cast<VectorType>(bits.getType());
  auto all = [&](int32_t v) {
    return b.create<arith::ConstantOp>(DenseElementsAttr::get(type, v)).getResult();
  };
  Value words = b.xorI(bits, all(-1));
  Value isZero = b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, words, all(0));
  return b.select(isZero, all(INT32_MIN), words);
}

static Value fromWords(SimtBuilder &b, Value words) {
  auto type = cast<VectorType>(words.getType());
  Value ones = b.create<arith::ConstantOp>(DenseElementsAttr::get(type, int32_t(-1)));
  return b.bitcast(VectorType::get(type.getShape(), b.getF32Type()), b.xorI(words, ones));
}

/// Leaves this CTA's rows of the item's partial sum in the workspace.
void KernelLowering::leaveWords(FinishOp op) {
  TileType type = op.getTile().getType();
  auto words = VectorType::get({kFour}, b.getI32Type());
  Value to = partialAt(op, itemOf(op), partOffset(type)), from = bufferOf(op.getTile());
  forEachBatched(
      localElements(func, type) / kFour, 8,
      [&](Value i) { return b.load(words, b.offset(from, b.mul(i, 16))); },
      [&](Value i, Value bits) {
        b.create<simt::StoreRelaxedOp>(toWords(b, bits), b.offset(to, b.mul(i, 16)));
      });
}

/// The sum over `items` items, from `firstItem` on, of four elements from `index` on, whose words are then 0
/// again.
Value KernelLowering::awaitSum(FinishOp op, Value index, Value firstItem, int64_t items) {
  int64_t stride = op.getTile().getType().getNumElements() * 4;
  auto type = VectorType::get({kFour}, b.getI32Type());
  Value first = partialAt(op, firstItem, index);
  Values addresses;
  for (int64_t k = 0; k < items; ++k)
    addresses.push_back(b.offset(first, b.i64(k * stride)));
  auto words = b.create<simt::AwaitWordsOp>(SmallVector<Type>(items, type), addresses);
  Value zero = b.create<arith::ConstantOp>(cast<TypedAttr>(b.getZeroAttr(type)));
  for (Value address : addresses)
    b.store(zero, address);
  return mergeTree<Value>(
      items, [&](int64_t k) { return fromWords(b, words.getResult(k)); },
      [&](Value x, Value y) { return b.fadd(x, y); });
}

namespace {
/// How the threads of a CTA share the sum of `groups` times four rows over `items` items: a thread awaits
/// `together` items at a time, a complete subtree of the sum, `batches` of them cover all.
struct Shares {
  int64_t groups, together, batches;
  bool apart; ///< each batch has a thread of its own

  Shares(int64_t rows, int64_t items, int64_t threads, int64_t most) : groups(rows / kFour) {
    together = 1;
    while (together < 16 && items % (2 * together) == 0)
      together *= 2;
    auto fits = [&](int64_t n) { return n <= most && n * groups <= threads; };
    while (together > 1 && fits(items / together * 2))
      together /= 2;
    batches = items / together;
    apart = batches > 1 && fits(batches);
  }
};
} // namespace

/// Finishes this CTA's rows of share `share`.
void KernelLowering::finishShare(FinishOp op, Value share) {
  TileType type = op.getTile().getType();
  int64_t items = func.axis(op.getAxis()).getSize(), rows = localElements(func, type) / op.getFinishers();
  Value first = b.add(partOffset(type), b.mul(share, rows));
  // Sums of batches lie in the tile's buffer, which has room for as many as there are finishers. Each thread
  // begins where it has itself read the rows that it left.
  Shares s(rows, items, threads, op.getFinishers());
  auto vector = VectorType::get({kFour}, b.getF32Type());
  auto add = [&](Value x, Value y) { return b.fadd(x, y); };
  if (!s.apart) {
    forEach(s.groups, [&](Value i) {
      Value index = b.add(first, b.mul(i, kFour));
      auto known = readElements(op, index);
      auto batch = [&](Value k) { return awaitSum(op, index, b.mul(k, s.together), s.together); };
      finishElements(op, index, known, mergeItems(s.batches, vector, batch, add));
    });
    return;
  }
  Value group = b.rem(tid, s.groups), batch = b.div(tid, s.groups);
  Value index = b.add(first, b.mul(group, kFour)), buffer = bufferOf(op.getTile());
  auto known = readElements(op, index); // before the wait, though only the first batch's threads use it
  b.ifThen(b.lt(batch, s.batches), [&] {
    b.store(awaitSum(op, index, b.mul(batch, s.together), s.together), b.offset(buffer, b.mul(tid, 16)));
  });
  sync();
  b.ifThen(b.lt(tid, s.groups), [&] {
    auto sum = [&](Value k) {
      return b.load(vector, b.offset(buffer, b.mul(b.add(b.mul(k, s.groups), tid), 16)));
    };
    finishElements(op, index, known, mergeItems(s.batches, vector, sum, add));
  });
  sync(); // the buffer is free again
}

//===-- Who finishes what -------------------------------------------------------===//

/// Of this CTA's rank: 16 bits count items whose matmul has begun, 16 more clusters that have started.
static constexpr int64_t kOneStart = 0x10000, kItems = 0xffff;

Value KernelLowering::countersOf(FinishOp op) {
  return b.offset(workspace, b.add(b.i64(op.getCounters()), b.wide(b.mul(rank, 4))));
}

/// Adds to the counts; gives what they were to thread 0, which need not wait for it before it looks.
Value KernelLowering::countedBefore(FinishOp op, int64_t add) {
  auto count = [&]() -> Values {
    return {b.create<simt::AtomicOp>(b.getI32Type(), simt::Rmw::Add, simt::Ordering::Relaxed,
                                     simt::Scope::Gpu, countersOf(op), b.i32(add))
                .getResult()};
  };
  return b.ifElse(b.getI32Type(), b.eq(tid, 0), count, [&]() -> Values { return {b.i32(0)}; })[0];
}

Value KernelLowering::clustersWithItems(FinishOp op) {
  return b.min(b.create<simt::NumClustersOp>(b.getI32Type()), b.i32(func.axis(op.getAxis()).getSize()));
}

void KernelLowering::countStarts() {
  func.walk([&](FinishOp op) {
    if (!op.getFinishers())
      return;
    b.loc = op.getLoc();
    Value hasItems = b.lt(b.create<simt::ClusterIdOp>(b.getI32Type()), clustersWithItems(op));
    starts[op] = b.ifElse(
        b.getI32Type(), hasItems, [&]() -> Values { return {countedBefore(op, kOneStart)}; },
        [&]() -> Values { return {b.i32(0)}; })[0];
  });
  b.loc = func.getLoc();
}

/// Before the items: those of which a share was due, but whose arrivals came before all clusters had started,
/// have left it to the one that started last.
void KernelLowering::takeSharesOfOthers(FinishOp op) {
  int64_t firstShare = func.axis(op.getAxis()).getSize() - op.getFinishers();
  Value before = starts.lookup(op);
  b.ifThen(b.eq(tid, 0), [&] {
    Value isLast = b.eq(b.add(b.shr(before, 16), 1), clustersWithItems(op));
    Value left = b.max(b.sub(b.andI(before, kItems), b.i32(firstShare)), b.i32(0));
    Value mask = b.sub(b.createOrFold<arith::ShLIOp>(b.loc, b.i32(1), left), b.i32(1));
    b.store(b.select(isLast, mask, b.i32(0)), b.offset(shared, layout.shares(op)));
  });
}

void KernelLowering::arriveAtSum(FinishOp op) { orders[op] = countedBefore(op, 1); }

LogicalResult KernelLowering::lowerWaitingFinish(FinishOp op) {
  leaveWords(op); // the matmul has waited for all warps' rows
  int64_t items = func.axis(op.getAxis()).getSize();
  b.ifThen(b.eq(tid, 0), [&] {
    Value before = orders.lookup(op), order = b.andI(before, kItems);
    Value share = b.sub(order, b.i32(items - op.getFinishers()));
    Value allRun = b.eq(b.shr(before, 16), clustersWithItems(op));
    b.ifThen(b.andI(b.ge(share, 0), allRun), [&] {
      Value mask = b.offset(shared, layout.shares(op));
      Value bit = b.createOrFold<arith::ShLIOp>(b.loc, b.i32(1), share);
      b.store(b.orI(b.load(b.getI32Type(), mask), bit), mask);
    });
    b.ifThen(b.eq(order, items - 1), [&] { b.store(b.i32(0), countersOf(op)); });
  });
  sync(); // the tile's buffer is free
  return success();
}

/// Behind the last item, when all threads know this CTA's shares.
void KernelLowering::finishShares(FinishOp op) {
  b.loc = op.getLoc();
  Value mask = b.load(b.getI32Type(), b.offset(shared, layout.shares(op)));
  b.loop(b.i32(0), b.i32(op.getFinishers()), b.i32(1), {}, [&](Value share, ValueRange) -> Values {
    Value mine = b.andI(b.createOrFold<arith::ShRUIOp>(b.loc, mask, share), 1);
    b.ifThen(b.ne(mine, 0), [&] { finishShare(op, share); });
    return {};
  });
  mark("shares");
}
