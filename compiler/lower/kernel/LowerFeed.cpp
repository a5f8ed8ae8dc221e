//===- LowerFeed.cpp - The producer warp ----------------------------------------===//
//
// Fills the ring: waits until a slot is free, arms its barrier with the bytes
// to come, starts one bulk copy for each row of a tile. Lanes share the rows.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

LogicalResult KernelLowering::lowerProducer(ProducerOp op) { return feedBlock(op.getBody().front()); }

LogicalResult KernelLowering::feedBlock(Block &block) {
  for (Operation &op : block) {
    b.loc = op.getLoc();
    if (auto feed = dyn_cast<FeedOp>(op)) {
      if (auto load = feed.getStream().getDefiningOp<LoadOp>())
        feedWeights(load, *tilingOf(load.getResult().getType(), feed.getSlots(), func));
      else
        feedCache(feed.getStream().getDefiningOp<LoadCacheOp>());
      continue;
    }
    auto loop = dyn_cast<ForItemsOp>(op);
    if (!loop)
      continue;
    Value first = b.create<simt::ClusterIdOp>(b.getI32Type());
    Value step = b.create<simt::NumClustersOp>(b.getI32Type());
    Values end = b.loop(first, b.i32(func.axis(loop.getAxis()).getSize()), step, {ring.slot, ring.phase},
                        [&](Value i, ValueRange args) -> Values {
                          ring = {args[0], args[1]};
                          items[loop.getItem()] = i;
                          (void)feedBlock(loop.getBody().front());
                          return {ring.slot, ring.phase};
                        });
    ring = {end[0], end[1]};
  }
  return success();
}

void KernelLowering::acquireSlot(Ring r, Value bytes) {
  // A fresh barrier counts as having completed the phase of parity 1.
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cta, emptyBarrier(r), b.xorI(r.phase, 1));
  // All lanes have passed before the slot is armed: a tile without rows is complete at once, and could be consumed
  // and freed before a late lane looked at the barrier.
  b.create<simt::SyncWarpOp>();
  b.ifThen(b.eq(lane, 0), [&] { b.create<simt::MbarrierExpectOp>(fullBarrier(r), bytes); });
  b.create<simt::SyncWarpOp>();
}

/// Of stacked rows [from, from + count): how many exist, where items overhang the weights.
Value KernelLowering::validRows(LoadOp load, Value from, int64_t count) {
  int64_t items = 1;
  if (auto loop = load->getParentOfType<ForItemsOp>())
    items = func.axis(loop.getAxis()).getSize();
  Value total = b.i32(0);
  int64_t start = 0;
  for (auto [weight, rows] : llvm::zip(load.getWeights(), load.getRows())) {
    int64_t have = cast<MemRefType>(weight.getType()).getDimSize(0);
    bool whole = load.getColumns() || !load.getItem();
    Value exists = b.i32(std::min(rows, have));
    if (!whole && items * rows > have)
      exists = b.max(b.i32(0), b.min(b.i32(rows), b.sub(b.i32(have), b.mul(item(load.getItem()), rows))));
    Value low = b.max(from, b.i32(start));
    Value high = b.min(b.add(from, count), b.add(exists, start));
    total = b.add(total, b.max(b.i32(0), b.sub(high, low)));
    start += rows;
  }
  return total;
}

/// Starts the copy of one stacked row, if it exists.
void KernelLowering::copyRow(LoadOp load, Value stackedRow, Value columnBytes, Value bytes, Value dst,
                             Value barrier) {
  int64_t start = 0;
  for (auto [weight, rows] : llvm::zip(load.getWeights(), load.getRows())) {
    auto type = cast<MemRefType>(weight.getType());
    Value local = b.add(stackedRow, -start);
    bool byItem = load.getItem() && !load.getColumns();
    Value row = byItem ? b.add(local, b.mul(item(load.getItem()), rows)) : local;
    Value inside = b.andI(b.ge(local, 0), b.lt(local, rows));
    inside = b.andI(inside, b.lt(row, type.getDimSize(0)));
    b.ifThen(inside, [&, weight = weight] {
      Value at = b.add(b.mul(b.wide(row), type.getDimSize(1) * 2), b.wide(columnBytes));
      b.create<simt::BulkLoadOp>(dst, b.offset(memory.lookup(weight), at), bytes, barrier);
    });
    start += rows;
  }
}

void KernelLowering::feedWeights(LoadOp load, MatmulTiling t) {
  StreamType type = load.getResult().getType();
  Value rowOffset = b.i32(0), columnOffset = b.i32(0); // of this CTA's part: rows, bytes
  for (StateAttr s : type.getStates()) {
    Value at = coordinate(s.getAxis().getValue());
    if (s.getDim() == 0)
      rowOffset = b.mul(at, t.rows);
    else
      columnOffset = b.mul(at, t.columns * 2);
  }
  if (load.getColumns())
    columnOffset = b.add(columnOffset, b.mul(item(load.getItem()), type.getShape()[1] * 2));

  auto tile = [&](Value firstRow, int64_t block, Value blockIndex, int64_t blocks, Ring r) {
    int64_t columns = std::min(blocks * 16, t.columns - block * 16);
    Value column = b.add(columnOffset, b.mul(blockIndex, 32));
    Value stacked = b.add(rowOffset, firstRow);
    Value inPart = b.min(b.i32(t.tileRows), b.sub(b.i32(t.rows), firstRow));
    Value have = validRows(load, stacked, t.tileRows);
    have = b.min(have, inPart);
    acquireSlot(r, b.mul(have, columns * 2));
    Value slot = slotAddress(r), barrier = fullBarrier(r);
    b.loop(lane, inPart, b.i32(32), {}, [&](Value i, ValueRange) -> Values {
      copyRow(load, b.add(stacked, i), column, b.i32(columns * 2), b.offset(slot, b.mul(i, t.rowStride)),
              barrier);
      return {};
    });
  };
  int64_t whole = t.columns / (t.tileBlocks * 16); // tiles of full width
  int64_t rest = llvm::divideCeil(t.columns - whole * t.tileBlocks * 16, 16);
  Values end = b.loop(b.i32(0), b.i32(t.rows), b.i32(t.tileRows), {ring.slot, ring.phase},
                      [&](Value firstRow, ValueRange outer) -> Values {
                        Values in = b.loop(b.i32(0), b.i32(whole), b.i32(1), outer,
                                           [&](Value c, ValueRange args) -> Values {
                                             Ring r{args[0], args[1]};
                                             tile(firstRow, 0, b.mul(c, t.tileBlocks), t.tileBlocks, r);
                                             r = advance(r);
                                             return {r.slot, r.phase};
                                           });
                        Ring r{in[0], in[1]};
                        if (rest) {
                          tile(firstRow, whole * t.tileBlocks, b.i32(whole * t.tileBlocks), rest, r);
                          r = advance(r);
                        }
                        return {r.slot, r.phase};
                      });
  ring = {end[0], end[1]};
}

KernelLowering::Tokens KernelLowering::tokensOf(LoadCacheOp load, bool report) {
  const CacheArgument &cache = caches.find(load.getCache())->second;
  Value length = b.load(b.getI32Type(), memory.lookup(load.getLength()));
  Value bound = b.min(b.i64(load.getBound()), cache.capacity);
  bound = b.narrow(bound);
  Value outside = b.orI(b.lt(length, 0), b.lt(bound, length));
  if (report)
    b.ifThen(b.andI(outside, b.eq(tid, 0)), [&] { setStatus(1); });
  length = b.min(b.max(length, b.i32(0)), bound);
  if (load.getSlot()) {
    Value slot = b.load(b.getI64Type(), memory.lookup(load.getSlot()));
    length = b.select(b.lt(slot, 0), b.i32(0), length);
  }
  Value segments = b.shr(b.add(length, kSegment - 1), 6);
  return {length, b.shr(b.add(segments, kGroups - 1), 4), segments};
}

std::pair<Value, Value> KernelLowering::segmentsOfGroup(const Tokens &t, KvStreamType type, Value g) {
  Value group = g;
  int64_t local = localGroups(func, type);
  int64_t extent = kGroups;
  for (StateAttr s : type.getStates()) {
    extent /= func.axis(s.getAxis().getValue()).getSize();
    group = b.add(group, b.mul(coordinate(s.getAxis().getValue()), extent));
  }
  (void)local;
  Value first = b.min(b.mul(group, t.segmentsPerGroup), t.segments);
  return {first, b.min(b.add(first, t.segmentsPerGroup), t.segments)};
}

void KernelLowering::feedCache(LoadCacheOp load) {
  KvStreamType type = load.getResult().getType();
  const CacheArgument &cache = caches.find(load.getCache())->second;
  Tokens tokens = tokensOf(load, /*report=*/false);
  int64_t rowBytes = type.getDim() * 2;
  Value head = b.mul(b.wide(item(load.getItem())), cache.strideHead);
  Value contiguous = b.eq(cache.strideToken, rowBytes);
  auto copy = [&](Value base, Value firstToken, Value n, Ring r) {
    acquireSlot(r, b.mul(n, rowBytes));
    Value slot = slotAddress(r), barrier = fullBarrier(r);
    Value from = b.offset(base, b.add(head, b.mul(b.wide(firstToken), cache.strideToken)));
    // One copy where rows lie one after another, else one for each row.
    b.ifThen(b.andI(contiguous, b.eq(lane, 0)),
             [&] { b.create<simt::BulkLoadOp>(slot, from, b.mul(n, rowBytes), barrier); });
    Value rows = b.select(contiguous, b.i32(0), n);
    b.loop(lane, rows, b.i32(32), {}, [&](Value i, ValueRange) -> Values {
      Value row = b.offset(from, b.mul(b.wide(i), cache.strideToken));
      b.create<simt::BulkLoadOp>(b.offset(slot, b.mul(i, rowBytes)), row, b.i32(rowBytes), barrier);
      return {};
    });
  };
  Values end = b.loop(b.i32(0), b.i32(localGroups(func, type)), b.i32(1), {ring.slot, ring.phase},
                      [&](Value g, ValueRange outer) -> Values {
                        auto [first, last] = segmentsOfGroup(tokens, type, g);
                        return b.loop(first, last, b.i32(1), outer, [&](Value s, ValueRange args) -> Values {
                          Ring r{args[0], args[1]};
                          Value token = b.shl(s, 6);
                          Value n = b.min(b.i32(kSegment), b.sub(tokens.length, token));
                          copy(cache.k, token, n, r);
                          r = advance(r);
                          copy(cache.v, token, n, r);
                          r = advance(r);
                          return {r.slot, r.phase};
                        });
                      });
  ring = {end[0], end[1]};
}
