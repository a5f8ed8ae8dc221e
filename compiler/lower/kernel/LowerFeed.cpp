//===- LowerFeed.cpp - The producer warp ----------------------------------------===//
//
// Fills the ring: waits until a slot is free, arms its barrier with the bytes
// to come, starts the copies of a tile: tensor copies of boxes of 64 columns, or
// one bulk copy a row where rows of boxes do not line up. Lanes share the copies.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

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
      auto type = cast<CacheType>(cache.getCache().getType());
      for (auto [field, dim] : {std::pair{"k_pointer", type.getDim()}, {"v_pointer", type.getVDim()}})
        if (!copiesByThreads(type, dim))
          offsets.insert(mapOffset(cache.getCache(), field, cacheBox(type, dim)));
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
  rings.clear();
  for (int64_t s = 0; s < sets; ++s)
    rings.push_back(startOf(b.i32(s)));
  auto feed = [&] {
    acquireMaps(op);
    feedBlock(op.getBody().front());
  };
  // A few copies a tile are started soonest by one lane, which then waits for nobody; a copy a row, by all.
  // So are small pages, unless weights come too.
  bool weights = false, rows = false, pages = false;
  op.walk([&](FeedOp f) {
    if (auto load = f.getStream().getDefiningOp<LoadOp>()) {
      weights = true;
      rows |= !tilingOf(load, f.getSlots())->boxRows;
    } else {
      auto cache = cast<CacheType>(f.getStream().getDefiningOp<LoadCacheOp>().getCache().getType());
      rows |= copiesTokens(cache) || copiesByThreads(cache, cache.getDim()) ||
              copiesByThreads(cache, cache.getVDim());
      pages |= cache.isPaged() && cache.getPage() < kSegment;
    }
  });
  oneLane = !rows && (weights || !pages);
  planQueries(/*producer=*/true); // by all lanes, as what follows
  op.walk([&](WorkListOp list) { planWork(list, /*producer=*/true); });
  oneLane ? b.ifThen(b.eq(lane, 0), feed) : feed();
}

/// Calls start(i) for i of [0, n): in this lane, or each in one lane.
void KernelLowering::forCopies(Value n, function_ref<void(Value)> start) {
  auto body = [&](Value i, ValueRange) -> Values {
    start(i);
    return {};
  };
  APInt count;
  if (!oneLane)
    b.loop(lane, n, b.i32(32), {}, body);
  else if (matchPattern(n, m_ConstantInt(&count)) && count.getSExtValue() <= 8)
    for (int64_t i = 0; i < count.getSExtValue(); ++i)
      start(b.i32(i));
  else
    b.loop(b.i32(0), n, b.i32(1), {}, body);
}

KernelLowering::Values KernelLowering::flatRings() {
  Values flat;
  for (Ring r : rings)
    flat.append({r.slot, r.phase});
  return flat;
}

void KernelLowering::assignRings(ValueRange flat) {
  for (auto [i, r] : llvm::enumerate(rings))
    r = {flat[2 * i], flat[2 * i + 1], r.first};
}

KernelLowering::Ring KernelLowering::ringOf(ValueRange flat, Value s) {
  Ring r{flat[0], flat[1], startOf(s).first};
  for (int64_t i = 1; i < sets; ++i) {
    Value here = b.eq(s, i);
    r.slot = b.select(here, flat[2 * i], r.slot);
    r.phase = b.select(here, flat[2 * i + 1], r.phase);
  }
  return r;
}

KernelLowering::Values KernelLowering::withRing(ValueRange flat, Value s, Ring r) {
  if (sets == 1)
    return {r.slot, r.phase};
  Values all;
  for (int64_t i = 0; i < sets; ++i) {
    Value here = b.eq(s, i);
    all.append({b.select(here, r.slot, flat[2 * i]), b.select(here, r.phase, flat[2 * i + 1])});
  }
  return all;
}

void KernelLowering::feedBlock(Block &block) {
  for (Operation &op : block) {
    b.loc = op.getLoc();
    if (auto feed = dyn_cast<FeedOp>(op)) {
      if (auto load = feed.getStream().getDefiningOp<LoadOp>())
        feedWeights(load, *tilingOf(load, feed.getSlots()), feed.getPieces());
      else {
        // Weights do not depend on the kernel before this one; a cache and its length do.
        waitBeforeCache();
        feedCache(feed.getStream().getDefiningOp<LoadCacheOp>(), feed.getHeads());
      }
      mark("fed", threads);
      continue;
    }
    auto loop = dyn_cast<ForItemsOp>(op);
    if (!loop)
      continue;
    auto [first, end, step] = itemRange(loop);
    assignRings(b.loop(first, end, step, flatRings(), [&](Value i, ValueRange args) -> Values {
      assignRings(args);
      setItem(loop, i);
      feedBlock(loop.getBody().front());
      return flatRings();
    }));
  }
}

/// With plan key `in_flight`: the tile so many before has arrived. A full ring hides what consumers wait for,
/// but more copies at a time than keep the memory busy slow it down. Before the first use of a slot parity 1
/// counts as complete.
void KernelLowering::waitForEarlierTile(Ring r) {
  int64_t most = llvm::divideCeil(func.planValue("in_flight", 0), sets), stages = layout.stages / sets;
  if (!most || most >= stages)
    return;
  Value slot = b.add(r.slot, -most), wraps = b.lt(slot, 0);
  Ring earlier{b.select(wraps, b.add(slot, stages), slot), b.select(wraps, b.xorI(r.phase, 1), r.phase),
               r.first};
  waitFull(earlier);
}

/// A fresh barrier counts as having completed the phase of parity 1.
void KernelLowering::waitEmpty(Ring r) {
  waitForEarlierTile(r);
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cta, emptyBarrier(r), b.xorI(r.phase, 1));
}

void KernelLowering::acquireSlot(Ring r, Value bytes) {
  waitEmpty(r);
  if (oneLane) {
    b.create<simt::MbarrierExpectOp>(fullBarrier(r), bytes);
    return;
  }
  // All lanes have passed before the slot is armed: a tile without rows is complete at once, and could be
  // consumed and freed before a late lane looked at the barrier.
  b.create<simt::SyncWarpOp>();
  b.ifThen(b.eq(lane, 0), [&] { b.create<simt::MbarrierExpectOp>(fullBarrier(r), bytes); });
  b.create<simt::SyncWarpOp>();
}

/// Of stacked rows [from, from + count): how many exist, where items overhang the weights.
Value KernelLowering::validRows(LoadOp load, Value from, Value count) {
  if (load.getPanels()) // all of them
    return b.max(b.i32(0), b.min(count, b.sub(b.i32(load.getRows()[0]), from)));
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
Value KernelLowering::existingBoxes(LoadOp load, int64_t boxRows, Value row, Value rows) {
  auto boxesIn = [&](Value n) { return b.div(b.add(n, boxRows - 1), boxRows); };
  return boxesIn(load.getWeights().size() == 1 ? validRows(load, row, rows) : rows);
}

/// Starts the copy of one stacked row, if it exists.
void KernelLowering::copyRow(LoadOp load, Value stackedRow, Value columnBytes, Value bytes, Value dst,
                             Value barrier) {
  int64_t start = 0;
  if (load.getPanels()) {
    auto [from, row] = atStackedRow(load, stackedRow, [&](Value weight) { return memory.lookup(weight); });
    int64_t columns = cast<MemRefType>(load.getWeights()[0].getType()).getDimSize(1);
    Value at = b.add(b.mul(b.wide(row), columns * 2), b.wide(columnBytes));
    b.create<simt::BulkLoadOp>(dst, b.offset(from, at), bytes, barrier, /*once=*/true);
    return;
  }
  for (auto [weight, rows] : llvm::zip(load.getWeights(), load.getRows())) {
    auto type = cast<MemRefType>(weight.getType());
    Value local = b.add(stackedRow, -start);
    bool byItem = load.getItem() && !load.getColumns();
    Value row = byItem ? b.add(local, b.mul(item(load.getItem()), rows)) : local;
    Value inside = b.andI(b.ge(local, 0), b.lt(local, rows));
    inside = b.andI(inside, b.lt(row, type.getDimSize(0)));
    b.ifThen(inside, [&, weight = weight] {
      Value at = b.add(b.mul(b.wide(row), type.getDimSize(1) * 2), b.wide(columnBytes));
      b.create<simt::BulkLoadOp>(dst, b.offset(memory.lookup(weight), at), bytes, barrier, /*once=*/true);
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
  forCopies(rows, [&](Value i) {
    copyRow(load, b.add(row, i), b.mul(column, 2), b.i32(columns * 2), b.offset(slot, b.mul(i, t.rowStride)),
            barrier);
  });
}

/// Where in a tile the box of row `firstRow` and column block `x` lies.
Value KernelLowering::boxOffset(const MatmulTiling &t, Value firstRow, Value x) {
  Value inPanel = b.add(b.mul(x, kBlockBytes), b.mul(b.rem(firstRow, 64), 128));
  return b.add(b.mul(b.div(firstRow, 64), t.panelBytes()), inPanel);
}

/// Where stacked row `row`, the first of a box, lies: what `place` gives for its weight, and the row in it.
/// Boxes do not straddle weights, so one choice holds for a box.
std::pair<Value, Value> KernelLowering::atStackedRow(LoadOp load, Value row,
                                                     function_ref<Value(Value)> place) {
  if (load.getPanels()) {
    Panel panel = panelOf(load.getWeights(), load.getItem(), load.getRows()[0], 0, place);
    return {panel.base, b.add(panel.first, row)};
  }
  int64_t start = 0;
  Value where, y;
  for (auto [weight, rows] : llvm::zip(load.getWeights(), load.getRows())) {
    Value local = b.add(row, -start);
    if (load.getItem() && !load.getColumns())
      local = b.add(local, b.mul(item(load.getItem()), rows));
    Value behind = start ? b.ge(row, start) : Value();
    where = behind ? b.select(behind, place(weight), where) : place(weight);
    y = behind ? b.select(behind, local, y) : local;
    start += rows;
  }
  return {where, y};
}

/// The same by boxes of 64 columns: 64 columns of all rows lie together.
void KernelLowering::feedBoxes(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows,
                               int64_t columns, Ring r) {
  int64_t across = llvm::divideCeil(columns, 64);
  Value down = b.div(b.add(rows, t.boxRows - 1), t.boxRows);
  Value boxes = b.mul(down, across);
  acquireSlot(r, b.mul(boxes, t.boxRows * 128));
  Value slot = slotAddress(r), barrier = fullBarrier(r);
  forCopies(boxes, [&](Value i) {
    Value x = b.rem(i, across), firstRow = b.mul(b.div(i, across), t.boxRows);
    Value dst = b.offset(slot, boxOffset(t, firstRow, x));
    // Past the last weight's end a box is zero.
    auto [from, y] = atStackedRow(load, b.add(row, firstRow),
                                  [&](Value weight) { return map(weight, "pointer", {64, t.boxRows}); });
    b.create<simt::TensorLoadOp>(dst, from, ValueRange{b.add(column, b.mul(x, 64)), y}, barrier,
                                 /*once=*/true);
  });
}

/// Stacked rows that lie in whole panels of the first weight although boxes are smaller.
int64_t KernelLowering::leadingRows(LoadOp load, const MatmulTiling &t) {
  int64_t rows = load.getRows().front();
  bool whole = t.rows == load.getResult().getType().getShape()[0] && rows % kSetRows == 0;
  return whole && t.boxRows < kSetRows ? rows : 0;
}

/// The same from packed weights: one bulk copy a panel where boxes have 64 rows, else one a box.
void KernelLowering::feedPacked(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows,
                                int64_t columns, Ring r) {
  auto copy = [&](int64_t boxRows) {
    int64_t across = llvm::divideCeil(columns, 64), each = boxRows == kSetRows ? across : 1;
    Value boxes = b.mul(existingBoxes(load, boxRows, row, rows), across / each);
    acquireSlot(r, b.mul(boxes, boxRows * 128 * each));
    Value slot = slotAddress(r), barrier = fullBarrier(r);
    forCopies(boxes, [&](Value i) {
      Value x = b.rem(i, across / each), firstRow = b.mul(b.div(i, across / each), boxRows);
      Value dst = b.offset(slot, boxOffset(t, firstRow, x));
      Value from = packedBox(load, b.add(row, firstRow), b.add(b.div(column, 64), x));
      b.create<simt::BulkLoadOp>(dst, from, b.i32(boxRows * 128 * each), barrier, /*once=*/true);
    });
  };
  int64_t lead = leadingRows(load, t);
  if (!lead)
    return copy(t.boxRows);
  b.ifThen(b.lt(row, lead), [&] { copy(kSetRows); });
  b.ifThen(b.ge(row, lead), [&] { copy(t.boxRows); });
}

/// Address of the packed box whose first row is stacked row `row`, in column block `block`.
Value KernelLowering::packedBox(LoadOp load, Value row, Value block) {
  auto [from, y] = atStackedRow(load, row, [&](Value weight) { return memory.lookup(weight); });
  // All stacked weights have the same columns.
  int64_t wide = cast<MemRefType>(load.getWeights()[0].getType()).getDimSize(1);
  int64_t panel = llvm::divideCeil(wide, 64) * kBlockBytes;
  Value inPanel = b.add(b.mul(block, kBlockBytes), b.mul(b.rem(y, 64), 128));
  return b.offset(from, b.add(b.mul(b.wide(b.div(y, 64)), panel), b.wide(inPanel)));
}

/// Tiles of the first stream that a set has room for before the kernel before has ended.
int64_t KernelLowering::roomAtStart(const MatmulTiling &t) {
  return layout.stages / sets + std::min(func.planValue("held", 0), t.wholeTiles());
}

/// How many tiles of each set behind those the stream's first rows have to prefetch: what a kernel waits for
/// at its start is longer than its ring.
int64_t KernelLowering::tilesToPrefetch(const MatmulTiling &t) {
  int64_t whole = t.columns / (16 * t.tileBlocks);
  bool fits = oneLane && t.packed && t.boxRows == kSetRows && t.rows >= kSetRows * sets;
  return fits ? std::clamp<int64_t>(func.planValue("prefetch", 0) / sets, 0,
                                    std::max<int64_t>(0, whole - roomAtStart(t)))
              : 0;
}

/// When the first tile comes that finds no room, and the kernel before has ended.
void KernelLowering::prefetchTiles(LoadOp load, const MatmulTiling &t, Value isFirst, Value row,
                                   Value column) {
  b.ifThen(isFirst, [&] {
    waitForLastKernel();
    for (int64_t s = 0; s < sets; ++s) {
      Value first = b.add(row, s * kSetRows);
      // Of the last item some sets may have no rows.
      b.ifThen(b.ne(validRows(load, first, b.i32(1)), 0), [&] {
        b.create<simt::PrefetchOp>(packedBox(load, first, b.div(column, 64)),
                                   b.i32(tilesToPrefetch(t) * t.tileBytes()));
      });
    }
  });
}

/// How many tiles of each set behind the ring a stream behind others has to prefetch.
int64_t KernelLowering::laterTilesToPrefetch(const MatmulTiling &t, int64_t pieces) {
  int64_t width = t.tileBlocks * 16, setRows = kSetRows * sets;
  bool fits = oneLane && t.packed && t.boxRows == kSetRows && t.columns % width == 0 &&
              t.rows / pieces % setRows == 0;
  int64_t whole = fits ? t.rows / setRows * (t.columns / width) : 0;
  return std::clamp<int64_t>(func.planValue("prefetch_later", 0) / sets, 0,
                             std::max<int64_t>(0, whole - layout.stages / sets));
}

/// In the order of the feed. While consumers are busy with what lies between the two streams the ring is soon
/// full, and the memory has nothing else to do.
void KernelLowering::prefetchLater(LoadOp load, const MatmulTiling &t, int64_t pieces) {
  int64_t width = t.tileBlocks * 16, across = t.columns / width, rows = t.rows / pieces;
  int64_t setRows = kSetRows * sets, stages = layout.stages / sets;
  auto [rowOffset, columnOffset] = streamOffset(load);
  auto one = [&, rowOffset = rowOffset, columnOffset = columnOffset](Value n, ValueRange) -> Values {
    Value block = b.div(n, across), inPiece = b.rem(block, rows / setRows);
    Value piece = b.div(block, rows / setRows);
    if (pieces > 1)
      piece = b.rem(b.add(piece, itemOf(load)), pieces);
    Value row = b.add(rowOffset, b.add(b.mul(piece, rows), b.mul(inPiece, setRows)));
    Value column = b.add(columnOffset, b.mul(b.rem(n, across), width));
    for (int64_t s = 0; s < sets; ++s)
      b.create<simt::PrefetchOp>(packedBox(load, b.add(row, s * kSetRows), b.div(column, 64)),
                                 b.i32(t.tileBytes()));
    return {};
  };
  b.loop(b.i32(stages), b.i32(stages + laterTilesToPrefetch(t, pieces)), b.i32(1), {}, one);
}

void KernelLowering::feedWeights(LoadOp load, MatmulTiling t, int64_t pieces) {
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
  int64_t ahead = isFirstFeed ? tilesToPrefetch(t) : 0, stages = layout.stages / sets;
  Value isFirstItem = b.eq(itemOf(load), b.create<simt::ClusterIdOp>(b.getI32Type()));
  bool hasLater = !isFirstFeed && laterTilesToPrefetch(t, pieces) > 0;
  isFirstFeed = false;
  auto later = [&](Value firstRow, Value c) {
    Value base = pieces > 1 ? b.mul(b.rem(itemOf(load), pieces), t.rows / pieces) : b.i32(0);
    Value n = b.add(b.mul(b.div(b.sub(firstRow, base), kSetRows * sets), whole), c);
    // Just before the first tile that may have to wait.
    b.ifThen(b.eq(n, std::max<int64_t>(0, stages - 2)), [&] { prefetchLater(load, t, pieces); });
  };
  auto prefetch = [&, rowOffset = rowOffset, columnOffset = columnOffset](Value firstRow, Value c) {
    Value isFirst = b.andI(isFirstItem, b.andI(b.eq(firstRow, 0), b.eq(c, roomAtStart(t))));
    prefetchTiles(load, t, isFirst, rowOffset, b.add(columnOffset, b.mul(c, width)));
  };
  // One tile for each set of consumer warps that has rows, then the next columns.
  auto tiles = [&](Value firstRow, Value c, int64_t columns, ValueRange args) -> Values {
    return forSets(tilesAcross(t, firstRow), args, [&](Value s, Ring r) {
      tile(b.add(firstRow, b.mul(s, kSetRows)), b.mul(c, t.tileBlocks), columns, r);
      return advance(r);
    });
  };
  Values end = overRows(
      t, pieces, itemOf(load), b.i32(0), flatRings(),
      [&](Value firstRow, ValueRange outer) -> Values {
        Values in = b.loop(b.i32(0), b.i32(whole), b.i32(1), outer, [&](Value c, ValueRange args) {
          if (ahead)
            prefetch(firstRow, c);
          if (hasLater)
            later(firstRow, c);
          return tiles(firstRow, c, width, args);
        });
        return rest ? tiles(firstRow, b.i32(whole), rest, in) : in;
      },
      [](Value, ValueRange args) { return Values(args); });
  assignRings(end);
}

/// Runs feed(s, ring) for the first `n` sets of consumer warps; it gives the set's ring behind it. Written
/// out where all have something: addresses are then known ahead of the loops around.
KernelLowering::Values KernelLowering::forSets(Value n, ValueRange flat,
                                               function_ref<Ring(Value, Ring)> feed) {
  APInt count;
  if (matchPattern(n, m_ConstantInt(&count)) && count.getSExtValue() == sets) {
    Values all(flat);
    for (int64_t i = 0; i < sets; ++i) {
      Ring r = feed(b.i32(i), {all[2 * i], all[2 * i + 1], rings[i].first});
      all[2 * i] = r.slot, all[2 * i + 1] = r.phase;
    }
    return all;
  }
  return b.loop(b.i32(0), n, b.i32(1), flat, [&](Value s, ValueRange inner) -> Values {
    return withRing(inner, s, feed(s, ringOf(inner, s)));
  });
}

/// Sets of consumer warps that have rows from `firstRow` on.
Value KernelLowering::tilesAcross(const MatmulTiling &t, Value firstRow) {
  if (t.rows % (kSetRows * sets) == 0)
    return b.i32(sets);
  Value left = b.div(b.add(b.sub(b.i32(t.rows), firstRow), kSetRows - 1), kSetRows);
  return b.min(b.i32(sets), left);
}
