//===- LowerMatmul.cpp - Streamed weights times one token -------------------------===//
//
// Weights are the A operand of mma.m16n8k16, the activation a column of B. Each warp owns 16 rows of a ring
// tile and walks over its columns; partial sums of slots are merged in a binary counter of accumulators,
// which is the left-balanced tree (docs/design.md, "Order of sums").
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "compiler/lower/kernel/MmaOperands.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

using Values = SimtBuilder::Values;

namespace {

/// Accumulators of one warp: the slot at hand (one or two chains of 4 registers of an mma), and merged slots:
/// level l holds 2^l of them, of which only the token is kept. In chain c that is column c: registers c and
/// c + 2 of lanes 0, 4, 8, …
struct Accumulators {
  SmallVector<Values, 2> chains;
  SmallVector<Values> levels;

  static Accumulators zero(SimtBuilder &b, int64_t numChains, int64_t numLevels) {
    Value z = b.f32(0);
    return {SmallVector<Values, 2>(numChains, Values{z, z, z, z}),
            SmallVector<Values>(numLevels, Values{z, z})};
  }
  Values flat() const {
    Values v;
    for (const Values &c : chains)
      v.append(c.begin(), c.end());
    for (const Values &l : levels)
      v.append(l.begin(), l.end());
    return v;
  }
  void assign(ValueRange v) {
    size_t at = 0;
    for (Values &c : chains)
      c = {v[at], v[at + 1], v[at + 2], v[at + 3]}, at += 4;
    for (Values &l : levels)
      l = {v[at], v[at + 1]}, at += 2;
  }

  /// Ends slot `index`: carries through the levels whose bits are set in it.
  void push(SimtBuilder &b, Value index) {
    Values carry = {chains[0][0], chains[0][2]};
    if (chains.size() == 2)
      carry = {b.fadd(carry[0], chains[1][1]), b.fadd(carry[1], chains[1][3])};
    Value active = b.i1(true);
    for (size_t l = 0; l < levels.size(); ++l) {
      Value bit = b.ne(b.andI(index, int64_t(1) << l), 0);
      Value merges = b.andI(active, bit), stores = b.andI(active, b.xorI(bit, b.i1(true)));
      for (int c = 0; c < 2; ++c) {
        Value sum = b.fadd(levels[l][c], carry[c]);
        levels[l][c] = b.select(stores, carry[c], levels[l][c]);
        carry[c] = b.select(merges, sum, carry[c]);
      }
      active = merges;
    }
    for (Values &c : chains)
      c.assign(4, b.f32(0));
  }

  /// The tree over all `count` pushed slots: the set bits of `count`, smallest subtree first.
  Values total(SimtBuilder &b, int64_t count) {
    Values sum;
    for (size_t l = 0; l < levels.size(); ++l) {
      if (!(count >> l & 1))
        continue;
      if (sum.empty())
        sum = levels[l];
      else
        sum = {b.fadd(levels[l][0], sum[0]), b.fadd(levels[l][1], sum[1])};
    }
    return sum;
  }
};
} // namespace

/// Gives the address in a slot that this lane gives to ldmatrix for block i of a tile: of row lane % 16 of
/// the warp's 16, the left or right 8 columns.
KernelLowering::TileAddress KernelLowering::tileAddress(const MatmulTiling &t) {
  Value row = b.add(b.mul(setWarp, 16), b.rem(lane, 16)), side = b.div(lane, 16);
  if (!t.boxRows) {
    Value offset = b.add(b.mul(row, t.rowStride), b.mul(side, 16));
    return [=, this](Value slot, int64_t i) { return b.offset(b.offset(slot, offset), 32 * i); };
  }
  Value offset = b.add(b.mul(b.div(row, 64), t.panelBytes()), b.mul(b.rem(row, 64), 128));
  SmallVector<Value> chunk; // of the four blocks in 64 columns
  for (int64_t k = 0; k < 4; ++k)
    chunk.push_back(b.add(offset, swizzled(b, b.add(side, 2 * k), row)));
  return [=, this](Value slot, int64_t i) {
    return b.offset(b.offset(slot, chunk[i % 4]), i / 4 * kBlockBytes);
  };
}

/// B registers of a tile's blocks. For chain c the token is column c, so two blocks that follow each other
/// have the same registers. 16-bit activations come by ldmatrix: row c of each 8 x 8 matrix is of chain c,
/// and nobody looks at what the other rows give.
SmallVector<KernelLowering::Values> KernelLowering::activationsOfTile(MmaOperands &mma, MatmulOp op,
                                                                      const MatmulTiling &t, Value x,
                                                                      Value firstBlock, int64_t blocks,
                                                                      bool half) {
  SmallVector<Values> all;
  int64_t chains = t.chains();
  // A view may begin anywhere in its tile.
  bool aligned = layout.tile(op.getX()) % 16 == 0;
  bool direct = op.getX().getType().getElementType() == mma.type() && !half && aligned;
  if (!direct) {
    for (int64_t i = 0; i < blocks; ++i)
      all.push_back(mma.activation(x, b.mul(b.add(firstBlock, i), 16), b.xorI(lane, i % chains * 4),
                                   half && i + 1 == blocks));
    return all;
  }
  // Of the matrices that this lane says where to find, two a round of the chains.
  Value matrix = b.div(lane, 8), ofSecondChain = b.eq(b.rem(lane, 8), 1);
  Value at = b.offset(x, b.add(b.mul(firstBlock, 32), b.mul(b.rem(matrix, 2), 16)));
  for (int64_t i = 0; i < blocks;) {
    int64_t each = std::min(chains, blocks - i), rounds = (blocks - i) / each > 1 ? 2 : 1;
    Value from = b.offset(at, 32 * i);
    if (each == 2)
      from = b.offset(from, b.select(ofSecondChain, b.i32(32), b.i32(0)));
    if (rounds == 2)
      from = b.offset(from, b.mul(b.div(matrix, 2), 32 * each));
    auto load =
        b.create<simt::LdmatrixOp>(SmallVector<Type>(2 * rounds, b.getI32Type()), from, /*trans=*/false);
    for (int64_t k = 0; k < rounds * each; ++k)
      all.push_back({load.getResults()[k / each * 2], load.getResults()[k / each * 2 + 1]});
    i += rounds * each;
  }
  return all;
}

/// Waits for a tile and reads it, all of its blocks at a time.
SmallVector<KernelLowering::Values> KernelLowering::loadTile(MmaOperands &mma, const TileAddress &at, Ring r,
                                                             int64_t blocks, bool half) {
  waitFull(r);
  Value slot = slotAddress(r);
  SmallVector<Values> a;
  for (int64_t i = 0; i < blocks; ++i)
    a.push_back(mma.weights(at(slot, i), half && i + 1 == blocks));
  return a;
}

/// The registers of a whole tile, whose slot is given back before they are used.
KernelLowering::Values KernelLowering::loadTileEarly(MmaOperands &mma, const TileAddress &at, Ring r,
                                                     int64_t blocks) {
  Values regs, made;
  for (const Values &block : loadTile(mma, at, r, blocks, /*half=*/false)) {
    regs.append(block.begin(), block.end());
    made.push_back(block[0]);
  }
  releaseSlot(r, made);
  return regs;
}

/// With plan key `held` the first tiles of the first stream are taken into registers while the last kernel
/// still runs, and the ring gets as many behind them.
LogicalResult KernelLowering::holdTiles() {
  int64_t wanted = func.planValue("held", 0);
  if (!wanted)
    return success();
  Operation *first = nullptr;
  func.walk([&](Operation *op) { first = !first && isa<MatmulOp, AttendOp>(op) ? op : first; });
  auto op = dyn_cast_or_null<MatmulOp>(first);
  auto loop = op ? op->getParentOfType<ForItemsOp>() : ForItemsOp();
  int64_t pdl = func.planValue("pdl", 0);
  // What is summed over the items begins with either half of the rows, and a work list is not known yet.
  if (!op || isOfTokens(op.getX().getType()) || streamedFinish(op) || (loop && loop.getWork()) ||
      (pdl != 1 && pdl != kStartsWithCache))
    return func.emitOpError("plan key 'held' needs pdl 1 or 2, and as first stream weights times one token, "
                            "neither summed over items nor dealt by a work list");
  StreamType weights = op.getWeights().getType();
  MatmulTiling t = *tilingOf(op.getWeights().getDefiningOp<LoadOp>(), op.getSlots());
  MmaOperands mma(b, weights.getElementType(), op.getX().getType().getElementType());
  int64_t n = std::min(wanted, t.wholeTiles()), each = 4 * t.tileBlocks;
  // Some sets may have no rows, and some clusters no item.
  Value has = b.lt(b.mul(set, kSetRows), t.rows);
  if (loop) {
    ItemRange items = itemRange(loop);
    has = b.andI(has, b.lt(items.first, items.end));
  }
  TileAddress at = tileAddress(t);
  auto take = [&]() -> Values {
    Values all;
    Ring r = ring;
    for (int64_t c = 0; c < n; ++c, r = advance(r))
      all.append(loadTileEarly(mma, at, r, t.tileBlocks));
    return all;
  };
  Values all = b.ifElse(SmallVector<Type>(n * each, b.getI32Type()), has, take,
                        [&] { return Values(n * each, b.i32(0)); });
  holder = op;
  for (int64_t c = 0; c < n; ++c)
    heldTiles.emplace_back(ArrayRef(all).slice(c * each, each));
  return success();
}

/// Multiplies a tile, block `firstBlock` of the row and those behind it, into `sums`. Gives what the chains
/// had at the tile's end, and where slots ended: each product needs those before it.
static Values multiplyTile(SimtBuilder &b, MmaOperands &mma, const MatmulTiling &t, Value firstBlock,
                           bool endsRow, ArrayRef<Values> a, ArrayRef<Values> x, Accumulators &sums) {
  Values made;
  int64_t blocks = a.size(), numChains = sums.chains.size();
  auto push = [&](Accumulators &to, Value block) { to.push(b, b.div(block, t.slotBlocks)); };
  auto noteChains = [&](int64_t i) {
    for (int64_t c = 0; c < std::min(numChains, i + 1); ++c)
      made.push_back(sums.chains[(i - c) % numChains][0]);
  };
  for (int64_t i = 0; i < blocks; ++i) {
    Value block = b.add(firstBlock, i);
    Values &chain = sums.chains[i % numChains];
    chain = mma.multiply(a[i], x[i], chain);
    // A slot ends with the row, or after slotBlocks blocks: at a fixed place of every tile where the one is
    // a multiple of the other, else at a place that the block's number tells.
    bool ends =
        (endsRow && i + 1 == blocks) || (t.tileBlocks % t.slotBlocks == 0 && (i + 1) % t.slotBlocks == 0);
    bool mayEnd = t.slots > 1 && t.tileBlocks % t.slotBlocks != 0 &&
                  (t.slotBlocks % t.tileBlocks != 0 || i + 1 == t.tileBlocks);
    if (ends || mayEnd || i + 1 == blocks)
      noteChains(i);
    if (ends)
      push(sums, block);
    if (ends || !mayEnd)
      continue;
    Values before = sums.flat();
    sums.assign(b.ifElse(
        SmallVector<Type>(before.size(), b.getF32Type()), b.eq(b.rem(b.add(block, 1), t.slotBlocks), 0),
        [&]() -> Values {
          Accumulators ended = sums;
          push(ended, block);
          return ended.flat();
        },
        [&] { return before; }));
  }
  return made;
}

LogicalResult KernelLowering::lowerMatmul(MatmulOp op) {
  if (isOfTokens(op.getX().getType()))
    return lowerTokenMatmul(op);
  StreamType wType = op.getWeights().getType();
  TileType xType = op.getX().getType();
  MatmulTiling t = *tilingOf(op.getWeights().getDefiningOp<LoadOp>(), op.getSlots());
  MmaOperands mma(b, wType.getElementType(), xType.getElementType());
  int64_t levels = llvm::Log2_64(t.slots) + 1;

  // The activation of this CTA's columns: its part of a whole tile, or the tile that it holds.
  Value x = bufferOf(op.getX());
  int64_t columns = wType.getShape()[1];
  for (StateAttr s : wType.getStates()) {
    if (s.getDim() != 1)
      continue;
    columns /= func.axis(s.getAxis().getValue()).getSize();
    if (!stateOver(xType.getStates(), s.getAxis().getValue()))
      x = b.offset(x, b.mul(coordinate(s.getAxis().getValue()), columns * xType.getElementBytes()));
  }

  TileAddress blockAddress = tileAddress(t);
  int64_t numChains = t.chains();
  auto blocksOfTile = [&](Value firstBlock, int64_t blocks, bool endsRow, Ring r, Accumulators &sums) {
    bool half = endsRow && t.columns % 16; // the last block has 8 columns
    // The activation's registers do not wait for the tile.
    SmallVector<Values> bRegs = activationsOfTile(mma, op, t, x, firstBlock, blocks, half);
    SmallVector<Values> a = loadTile(mma, blockAddress, r, blocks, half);
    releaseSlot(r, multiplyTile(b, mma, t, firstBlock, endsRow, a, bRegs, sums));
  };
  // The tile of number c, which this set has in registers if `early`.
  auto tileThatMayBeHeld = [&](int64_t c, Value early, Ring r, Accumulators &sums) {
    Value firstBlock = b.i32(c * t.tileBlocks);
    SmallVector<Values> bRegs = activationsOfTile(mma, op, t, x, firstBlock, t.tileBlocks, /*half=*/false), a;
    Values regs = b.ifElse(
        SmallVector<Type>(heldTiles[c].size(), b.getI32Type()), early, [&] { return heldTiles[c]; },
        [&] { return loadTileEarly(mma, blockAddress, r, t.tileBlocks); });
    for (int64_t i = 0; i < t.tileBlocks; ++i)
      a.emplace_back(ArrayRef(regs).slice(4 * i, 4));
    multiplyTile(b, mma, t, firstBlock, /*endsRow=*/false, a, bRegs, sums);
  };

  // The last tile ends the row, so it is written out apart.
  int64_t whole = t.wholeTiles(), rest = t.blocks - whole * t.tileBlocks;
  int64_t numHeld = holder == op ? static_cast<int64_t>(heldTiles.size()) : 0;
  FinishOp finish = streamedFinish(op);
  bool inPieces = finish && !finish.getFinishers();
  Value firstOfSet = sets > 1 ? b.mul(set, kSetRows) : b.i32(0);
  // The tiles of this set's 64 rows.
  auto rowsOfSet = [&](Value firstRow, ValueRange outer) -> Values {
    Accumulators sums = Accumulators::zero(b, numChains, levels);
    Ring r{outer[0], outer[1], ring.first};
    Value early = numHeld ? b.andI(b.eq(round, 0), b.eq(firstRow, firstOfSet)) : Value();
    for (int64_t c = 0; c < numHeld; ++c, r = advance(r))
      tileThatMayBeHeld(c, early, r, sums);
    Values inits = {r.slot, r.phase};
    inits.append(sums.flat());
    Values in =
        b.loop(b.i32(numHeld), b.i32(whole), b.i32(1), inits, [&](Value c, ValueRange args) -> Values {
          Ring r{args[0], args[1], ring.first};
          Accumulators inner = sums;
          inner.assign(args.drop_front(2));
          blocksOfTile(b.mul(c, t.tileBlocks), t.tileBlocks, false, r, inner);
          r = advance(r);
          Values out = {r.slot, r.phase};
          out.append(inner.flat());
          return out;
        });
    r = {in[0], in[1], ring.first};
    sums.assign(ValueRange(in).drop_front(2));
    blocksOfTile(b.i32(whole * t.tileBlocks), rest, true, r, sums);
    Values total = sums.total(b, t.slots);
    // Lanes 0, 4, 8, … hold the token's column: rows lane / 4 and lane / 4 + 8.
    b.ifThen(b.eq(b.rem(lane, 4), 0), [&] {
      for (int c = 0; c < 2; ++c) {
        Value row = b.add(firstRow, b.add(b.mul(setWarp, 16), b.add(b.div(lane, 4), 8 * c)));
        b.ifThen(b.lt(row, t.rows), [&] { storeElement(op.getResult(), placeOfRow(b, op, row), total[c]); });
      }
    });
    r = advance(r);
    Values out = {r.slot, r.phase};
    out.append(outer.begin() + 2, outer.end());
    return out;
  };
  if (!inPieces) {
    if (finish)
      arriveAtSum(finish);
    Values end =
        b.loop(firstOfSet, b.i32(t.rows), b.i32(kSetRows * sets), {ring.slot, ring.phase}, rowsOfSet);
    ring = {end[0], end[1], ring.first};
    sync();
    return success();
  }
  Values inits = {ring.slot, ring.phase};
  inits.append(3, b.i32(0));
  Values end = overRows(t, finish.getPieces(), itemOf(op), firstOfSet, inits, rowsOfSet,
                        [&](Value piece, ValueRange args) -> Values {
                          Arrivals a = arriveAtPiece(finish, piece, {args[2], args[3], args[4]});
                          return {args[0], args[1], a.last, a.pending, a.pendingBit};
                        });
  ring = {end[0], end[1], ring.first};
  arrivals[finish] = {end[2], end[3], end[4]};
  return success();
}
