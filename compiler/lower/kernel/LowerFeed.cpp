//===- LowerFeed.cpp - The producer warp ----------------------------------------===//
//
// Fills the ring: waits until a slot is free, arms its barrier with the bytes
// to come, starts the copies of a tile: tensor copies of boxes of 64 columns, or
// one bulk copy a row where rows of boxes do not line up. Lanes share the copies.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

/// Where in the table the tensor map of an argument lies.
int64_t KernelLowering::mapOffset(Value argument, StringRef field, ArrayRef<int64_t> box) {
  return maps.offsetOf(entryOf(func, cast<BlockArgument>(argument).getArgNumber()), field, box);
}

/// Address of the tensor map of an argument. Maps are acquired where the producer begins.
Value KernelLowering::map(Value argument, StringRef field, ArrayRef<int64_t> box) {
  return b.offset(table, mapOffset(argument, field, box));
}

/// Every map that the producer's feeds use, once.
void KernelLowering::acquireMaps(ProducerOp op) {
  SetVector<int64_t> offsets;
  op.walk([&](FeedOp feed) {
    if (auto cache = feed.getStream().getDefiningOp<LoadCacheOp>()) {
      offsets.insert(mapOffset(cache.getCache(), "k_pointer", {64, kSegment, 1}));
      offsets.insert(mapOffset(cache.getCache(), "v_pointer", {64, kSegment, 1}));
      return;
    }
    auto load = feed.getStream().getDefiningOp<LoadOp>();
    MatmulTiling t = *tilingOf(load, feed.getSlots());
    for (Value weight : load.getWeights())
      if (t.boxRows && !t.packed)
        offsets.insert(mapOffset(weight, "pointer", {64, t.boxRows}));
  });
  for (int64_t offset : offsets)
    b.create<simt::TensorMapAcquireOp>(b.offset(table, offset));
}

void KernelLowering::lowerProducer(ProducerOp op) {
  acquireMaps(op);
  feedBlock(op.getBody().front());
}

void KernelLowering::feedBlock(Block &block) {
  for (Operation &op : block) {
    b.loc = op.getLoc();
    if (auto feed = dyn_cast<FeedOp>(op)) {
      if (auto load = feed.getStream().getDefiningOp<LoadOp>())
        feedWeights(load, *tilingOf(load, feed.getSlots()));
      else {
        // Weights do not depend on the kernel before this one; a cache and its length do.
        waitForLastKernel();
        feedCache(feed.getStream().getDefiningOp<LoadCacheOp>());
      }
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
                          feedBlock(loop.getBody().front());
                          return {ring.slot, ring.phase};
                        });
    ring = {end[0], end[1]};
  }
}

void KernelLowering::acquireSlot(Ring r, Value bytes) {
  // A fresh barrier counts as having completed the phase of parity 1.
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cta, emptyBarrier(r), b.xorI(r.phase, 1));
  // All lanes have passed before the slot is armed: a tile without rows is complete at once, and could be
  // consumed and freed before a late lane looked at the barrier.
  b.create<simt::SyncWarpOp>();
  b.ifThen(b.eq(lane, 0), [&] { b.create<simt::MbarrierExpectOp>(fullBarrier(r), bytes); });
  b.create<simt::SyncWarpOp>();
}

/// Of stacked rows [from, from + count): how many exist, where items overhang the weights.
Value KernelLowering::validRows(LoadOp load, Value from, Value count) {
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

/// Boxes of `rows` stacked rows from `row`, a multiple of a box, that have a row: the others are behind the
/// end of the one weight.
Value KernelLowering::existingBoxes(LoadOp load, const MatmulTiling &t, Value row, Value rows) {
  auto boxesIn = [&](Value n) { return b.div(b.add(n, t.boxRows - 1), t.boxRows); };
  return boxesIn(load.getWeights().size() == 1 ? validRows(load, row, rows) : rows);
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

/// First row and column of this CTA's part of a stream, among its stacked rows and the columns of its
/// weights.
std::pair<Value, Value> KernelLowering::streamOffset(LoadOp load) {
  StreamType type = load.getResult().getType();
  Value row = b.i32(0), column = b.i32(0);
  int64_t rows = type.getShape()[0], columns = type.getShape()[1];
  for (StateAttr s : type.getStates()) { // each split halves, say, what those before it left
    Value at = coordinate(s.getAxis().getValue());
    int64_t &extent = s.getDim() == 0 ? rows : columns;
    extent /= func.axis(s.getAxis().getValue()).getSize();
    Value &offset = s.getDim() == 0 ? row : column;
    offset = b.add(offset, b.mul(at, extent));
  }
  if (load.getColumns())
    column = b.add(column, b.mul(item(load.getItem()), type.getShape()[1]));
  return {row, column};
}

/// A tile of `rows` rows from stacked row `row` by row copies.
void KernelLowering::feedRows(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows,
                              int64_t columns, Ring r) {
  Value have = validRows(load, row, rows);
  acquireSlot(r, b.mul(have, columns * 2));
  Value slot = slotAddress(r), barrier = fullBarrier(r);
  b.loop(lane, rows, b.i32(32), {}, [&](Value i, ValueRange) -> Values {
    copyRow(load, b.add(row, i), b.mul(column, 2), b.i32(columns * 2), b.offset(slot, b.mul(i, t.rowStride)),
            barrier);
    return {};
  });
}

/// Where in a tile the box of row `firstRow` and column block `x` lies.
Value KernelLowering::boxOffset(const MatmulTiling &t, Value firstRow, Value x) {
  Value inPanel = b.add(b.mul(x, kBlockBytes), b.mul(b.rem(firstRow, 64), 128));
  return b.add(b.mul(b.div(firstRow, 64), t.panelBytes()), inPanel);
}

/// Calls copy(weight, row in it, whether it has that row) for the weight that stacked row `row` belongs to.
/// Boxes do not straddle weights.
void KernelLowering::atStackedRow(LoadOp load, Value row, function_ref<void(Value, Value)> copy) {
  int64_t start = 0, last = load.getWeights().size() - 1;
  for (auto [i, weight, rows] : llvm::enumerate(load.getWeights(), load.getRows())) {
    Value local = b.add(row, -start);
    bool byItem = load.getItem() && !load.getColumns();
    Value y = byItem ? b.add(local, b.mul(item(load.getItem()), rows)) : local;
    auto here = [&, weight = weight] { copy(weight, y); };
    if (last == 0)
      here();
    else if (int64_t(i) == last)
      b.ifThen(b.ge(local, 0), here);
    else
      b.ifThen(b.andI(b.ge(local, 0), b.lt(local, rows)), here);
    start += rows;
  }
}

/// The same by boxes of 64 columns: 64 columns of all rows lie together.
void KernelLowering::feedBoxes(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows,
                               int64_t columns, Ring r) {
  int64_t across = llvm::divideCeil(columns, 64);
  Value down = b.div(b.add(rows, t.boxRows - 1), t.boxRows);
  Value boxes = b.mul(down, across);
  acquireSlot(r, b.mul(boxes, t.boxRows * 128));
  Value slot = slotAddress(r), barrier = fullBarrier(r);
  b.loop(lane, boxes, b.i32(32), {}, [&](Value i, ValueRange) -> Values {
    Value x = b.rem(i, across), firstRow = b.mul(b.div(i, across), t.boxRows);
    Value dst = b.offset(slot, boxOffset(t, firstRow, x));
    // Past the last weight's end a box is zero.
    atStackedRow(load, b.add(row, firstRow), [&](Value weight, Value y) {
      b.create<simt::TensorLoadOp>(dst, map(weight, "pointer", {64, t.boxRows}),
                                   ValueRange{b.add(column, b.mul(x, 64)), y}, barrier);
    });
    return {};
  });
}

/// The same from packed weights: one bulk copy a panel where boxes have 64 rows, else one a box.
void KernelLowering::feedPacked(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows,
                                int64_t columns, Ring r) {
  int64_t across = llvm::divideCeil(columns, 64), each = t.boxRows == 64 ? across : 1;
  Value boxes = b.mul(existingBoxes(load, t, row, rows), across / each);
  acquireSlot(r, b.mul(boxes, t.boxRows * 128 * each));
  Value slot = slotAddress(r), barrier = fullBarrier(r);
  b.loop(lane, boxes, b.i32(32), {}, [&](Value i, ValueRange) -> Values {
    Value x = b.rem(i, across / each), firstRow = b.mul(b.div(i, across / each), t.boxRows);
    Value dst = b.offset(slot, boxOffset(t, firstRow, x));
    atStackedRow(load, b.add(row, firstRow), [&](Value weight, Value y) {
      int64_t panel = llvm::divideCeil(cast<MemRefType>(weight.getType()).getDimSize(1), 64) * kBlockBytes;
      Value inPanel = b.add(b.mul(b.add(b.div(column, 64), x), kBlockBytes), b.mul(b.rem(y, 64), 128));
      Value at = b.add(b.mul(b.wide(b.div(y, 64)), panel), b.wide(inPanel));
      b.create<simt::BulkLoadOp>(dst, b.offset(memory.lookup(weight), at), b.i32(t.boxRows * 128 * each),
                                 barrier);
    });
    return {};
  });
}

void KernelLowering::feedWeights(LoadOp load, MatmulTiling t) {
  auto [rowOffset, columnOffset] = streamOffset(load);
  auto tile = [&, rowOffset = rowOffset, columnOffset = columnOffset](Value firstRow, Value block,
                                                                      int64_t columns, Ring r) {
    Value rows = b.min(b.i32(t.tileRows), b.sub(b.i32(t.rows), firstRow));
    Value row = b.add(rowOffset, firstRow), column = b.add(columnOffset, b.mul(block, 16));
    if (t.packed)
      feedPacked(load, t, row, column, rows, columns, r);
    else if (t.boxRows)
      feedBoxes(load, t, row, column, rows, columns, r);
    else
      feedRows(load, t, row, column, rows, columns, r);
  };
  int64_t width = t.tileBlocks * 16, whole = t.columns / width, rest = t.columns % width;
  Values end = b.loop(b.i32(0), b.i32(t.rows), b.i32(t.tileRows), {ring.slot, ring.phase},
                      [&](Value firstRow, ValueRange outer) -> Values {
                        Values in = b.loop(b.i32(0), b.i32(whole), b.i32(1), outer,
                                           [&](Value c, ValueRange args) -> Values {
                                             Ring r{args[0], args[1]};
                                             tile(firstRow, b.mul(c, t.tileBlocks), width, r);
                                             r = advance(r);
                                             return {r.slot, r.phase};
                                           });
                        Ring r{in[0], in[1]};
                        if (rest) {
                          tile(firstRow, b.i32(whole * t.tileBlocks), rest, r);
                          r = advance(r);
                        }
                        return {r.slot, r.phase};
                      });
  ring = {end[0], end[1]};
}

KernelLowering::Tokens KernelLowering::tokensOf(LoadCacheOp load, bool report) {
  const CacheArgument &cache = caches.find(load.getCache())->second;
  Value length = scalar(load.getLength());
  Value bound = b.min(b.i64(load.getBound()), cache.capacity);
  bound = b.narrow(bound);
  Value outside = b.orI(b.lt(length, 0), b.lt(bound, length));
  if (report)
    b.ifThen(b.andI(outside, b.eq(tid, 0)), [&] { setStatus(1); });
  length = b.min(b.max(length, b.i32(0)), bound);
  if (load.getSlot()) {
    length = b.select(isIdle(load.getSlot(), load.getCache()), b.i32(0), length);
  }
  Value segments = b.shr(b.add(length, kSegment - 1), 6);
  return {length, b.shr(b.add(segments, kGroups - 1), 4), segments};
}

std::pair<Value, Value> KernelLowering::segmentsOfGroup(const Tokens &t, KvStreamType type, Value g) {
  Value group = g;
  int64_t extent = kGroups;
  for (StateAttr s : type.getStates()) {
    extent /= func.axis(s.getAxis().getValue()).getSize();
    group = b.add(group, b.mul(coordinate(s.getAxis().getValue()), extent));
  }
  Value first = b.min(b.mul(group, t.segmentsPerGroup), t.segments);
  return {first, b.min(b.add(first, t.segmentsPerGroup), t.segments)};
}

void KernelLowering::feedCache(LoadCacheOp load) {
  KvStreamType type = load.getResult().getType();
  Tokens tokens = tokensOf(load, /*report=*/false);
  Value head = item(load.getItem());
  int64_t boxes = headBoxes(type.getDim());
  auto copy = [&](StringRef field, Value token, Ring r) {
    acquireSlot(r, b.i32(boxes * kSegment * 128));
    Value slot = slotAddress(r), barrier = fullBarrier(r),
          tensorMap = map(load.getCache(), field, {64, kSegment, 1});
    b.ifThen(b.lt(lane, boxes), [&] {
      b.create<simt::TensorLoadOp>(b.offset(slot, b.mul(lane, kSegment * 128)), tensorMap,
                                   ValueRange{b.mul(lane, 64), token, head}, barrier);
    });
  };
  Values end = b.loop(b.i32(0), b.i32(localGroups(func, type)), b.i32(1), {ring.slot, ring.phase},
                      [&](Value g, ValueRange outer) -> Values {
                        auto [first, last] = segmentsOfGroup(tokens, type, g);
                        return b.loop(first, last, b.i32(1), outer, [&](Value s, ValueRange args) -> Values {
                          Ring r{args[0], args[1]};
                          Value token = b.shl(s, 6);
                          copy("k_pointer", token, r);
                          r = advance(r);
                          copy("v_pointer", token, r);
                          r = advance(r);
                          return {r.slot, r.phase};
                        });
                      });
  ring = {end[0], end[1]};
}
