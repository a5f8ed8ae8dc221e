//===- LowerMatmul.cpp - Streamed weights times one token -------------------------===//
//
// Weights are the A operand of mma.m16n8k16, the activation the first column of
// B. Each warp owns 16 rows of a ring tile and walks over its columns; partial
// sums of slots are merged in a binary counter of accumulators, which is the
// left-balanced tree (docs/design.md, "Order of sums").
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "compiler/lower/kernel/MmaOperands.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

namespace {
using Values = SimtBuilder::Values;

/// Accumulators of one warp: the slot at hand (4 registers of an mma), and merged slots: level l holds 2^l of
/// them, of which only the column of the token is kept (registers 0 and 2).
struct Accumulators {
  Values acc;
  SmallVector<Values> levels;

  static Accumulators zero(SimtBuilder &b, int64_t numLevels) {
    Value z = b.f32(0);
    return {{z, z, z, z}, SmallVector<Values>(numLevels, Values{z, z})};
  }
  Values flat() const {
    Values v = acc;
    for (const Values &l : levels)
      v.append(l.begin(), l.end());
    return v;
  }
  void assign(ValueRange v) {
    acc.assign(v.begin(), v.begin() + 4);
    for (size_t l = 0; l < levels.size(); ++l)
      levels[l] = {v[4 + 2 * l], v[5 + 2 * l]};
  }

  /// Ends slot `index`: carries through the levels whose bits are set in it.
  void push(SimtBuilder &b, Value index) {
    Values carry = {acc[0], acc[2]};
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
    acc.assign(4, b.f32(0));
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

/// Gives the address in a slot of `row`, half `side`, of block i of a tile.
std::function<Value(Value, int64_t)> KernelLowering::tileAddress(const MatmulTiling &t, Value row,
                                                                 Value side) {
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

LogicalResult KernelLowering::lowerMatmul(MatmulOp op) {
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

  // What this lane gives to ldmatrix: row lane % 16 of the warp's 16, the left or right 8 columns of a block.
  Value row = b.add(b.mul(warp, 16), b.rem(lane, 16)), side = b.div(lane, 16);
  auto blockAddress = tileAddress(t, row, side);
  auto push = [&](Accumulators &sums, Value block) { sums.push(b, b.div(block, t.slotBlocks)); };
  auto blocksOfTile = [&](Value firstBlock, int64_t blocks, bool endsRow, Ring r, Accumulators &sums) {
    waitFull(r);
    Value slot = slotAddress(r);
    for (int64_t i = 0; i < blocks; ++i) {
      Value block = b.add(firstBlock, i);
      bool last = endsRow && i + 1 == blocks, half = last && t.columns % 16;
      Values a = mma.weights(blockAddress(slot, i), half);
      Values bRegs = mma.activation(x, b.mul(block, 16), lane, half);
      sums.acc = mma.multiply(a, bRegs, sums.acc);
      // A slot ends with the row, or after slotBlocks blocks: at a fixed place of every tile where the one is
      // a multiple of the other, else at a place that the block's number tells.
      if (last || (t.tileBlocks % t.slotBlocks == 0 && (i + 1) % t.slotBlocks == 0)) {
        push(sums, block);
        continue;
      }
      bool mayEnd = t.slots > 1 && t.tileBlocks % t.slotBlocks != 0 &&
                    (t.slotBlocks % t.tileBlocks != 0 || i + 1 == t.tileBlocks);
      if (!mayEnd)
        continue;
      sums.assign(b.ifElse(
          SmallVector<Type>(4 + 2 * levels, b.getF32Type()), b.eq(b.rem(b.add(block, 1), t.slotBlocks), 0),
          [&]() -> Values {
            Accumulators ended = sums;
            push(ended, block);
            return ended.flat();
          },
          [&] { return sums.flat(); }));
    }
    releaseSlot(r);
  };

  int64_t whole = t.columns / (t.tileBlocks * 16);
  int64_t rest = llvm::divideCeil(t.columns - whole * t.tileBlocks * 16, 16);
  if (!rest) { // the last tile ends the row, so it is written out apart
    rest = t.tileBlocks;
    --whole;
  }
  Values end = b.loop(b.i32(0), b.i32(t.rows), b.i32(t.tileRows), {ring.slot, ring.phase},
                      [&](Value firstRow, ValueRange outer) -> Values {
                        Accumulators sums = Accumulators::zero(b, levels);
                        Values inits(outer.begin(), outer.end());
                        inits.append(sums.flat());
                        Values in = b.loop(
                            b.i32(0), b.i32(whole), b.i32(1), inits, [&](Value c, ValueRange args) -> Values {
                              Ring r{args[0], args[1]};
                              Accumulators inner = sums;
                              inner.assign(args.drop_front(2));
                              blocksOfTile(b.mul(c, t.tileBlocks), t.tileBlocks, false, r, inner);
                              r = advance(r);
                              Values out = {r.slot, r.phase};
                              out.append(inner.flat());
                              return out;
                            });
                        Ring r{in[0], in[1]};
                        sums.assign(ValueRange(in).drop_front(2));
                        blocksOfTile(b.i32(whole * t.tileBlocks), rest, true, r, sums);
                        r = advance(r);
                        Values total = sums.total(b, t.slots);
                        // Lanes 0, 4, 8, … hold the token's column: rows lane / 4 and lane / 4 + 8.
                        b.ifThen(b.eq(b.rem(lane, 4), 0), [&] {
                          for (int c = 0; c < 2; ++c) {
                            Value row = b.add(firstRow, b.add(b.mul(warp, 16), b.add(b.div(lane, 4), 8 * c)));
                            b.ifThen(b.lt(row, t.rows), [&] { storeElement(op.getResult(), row, total[c]); });
                          }
                        });
                        return {r.slot, r.phase};
                      });
  ring = {end[0], end[1]};
  sync();
  return success();
}
