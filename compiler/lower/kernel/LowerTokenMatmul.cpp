//===- LowerTokenMatmul.cpp - Streamed weights times several tokens ---------------===//
//
// As in LowerMatmul.cpp, with a token in each column of B: 8 tokens are an
// n-tile, and each block of 16 columns of weights, once read from the ring, is
// multiplied by all of them. Rows of x lie in shared memory, an odd number of 16
// bytes apart, and come by ldmatrix. Each column's chain of products is that of
// one token alone.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "compiler/lower/kernel/MmaOperands.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

namespace {
using Values = SimtBuilder::Values;

/// Accumulators of one warp by n-tile, 4 registers each: the chains of the slot at hand, and merged slots,
/// where level l holds 2^l of them. The row's last slot is never put there: it carries all others.
class TokenSums {
public:
  TokenSums(SimtBuilder &b, int64_t numTiles, int64_t numChains, int64_t slots)
      : numTiles(numTiles), slots(slots), zero(b.f32(0)), chains(numChains, zeros()),
        levels(slots > 1 ? llvm::Log2_64(slots - 1) + 1 : 0, zeros()) {}

  Value &chain(int64_t c, int64_t tile, int64_t i) { return chains[c][4 * tile + i]; }
  Values chainOf(int64_t c, int64_t tile) const { return Values(ArrayRef(chains[c]).slice(4 * tile, 4)); }
  void setChain(int64_t c, int64_t tile, const Values &v) { llvm::copy(v, chains[c].begin() + 4 * tile); }

  Values flat() const {
    Values all;
    for (const Values &v : chains)
      all.append(v);
    for (const Values &v : levels)
      all.append(v);
    return all;
  }
  void assign(ValueRange flat) {
    for (Values *v : parts()) {
      v->assign(flat.begin(), flat.begin() + v->size());
      flat = flat.drop_front(v->size());
    }
  }

  /// Ends slot `index`, which is not the last: it merges with the levels whose bits are set in the index, up
  /// to the first that is not, where it stays.
  void push(SimtBuilder &b, Value index) {
    Values sum = endChains(b);
    carry(b, index, 0, sum);
  }
  /// Ends the last slot: the tree over all of them, smallest subtree first.
  Values total(SimtBuilder &b) {
    Values sum = endChains(b);
    for (auto [l, level] : llvm::enumerate(levels))
      if ((slots - 1) >> l & 1)
        sum = add(b, level, sum);
    return sum;
  }

private:
  Values zeros() const { return Values(4 * numTiles, zero); }
  SmallVector<Values *> parts() {
    SmallVector<Values *> all;
    for (Values &v : chains)
      all.push_back(&v);
    for (Values &v : levels)
      all.push_back(&v);
    return all;
  }
  static Values add(SimtBuilder &b, const Values &x, const Values &y) {
    Values sum;
    for (auto [p, q] : llvm::zip_equal(x, y))
      sum.push_back(b.fadd(p, q));
    return sum;
  }
  Values endChains(SimtBuilder &b) {
    Values sum = chains.size() == 2 ? add(b, chains[0], chains[1]) : chains[0];
    for (Values &v : chains)
      v = zeros();
    return sum;
  }
  /// Branches, that all lanes take alike, instead of selects: most slots end in the first levels.
  void carry(SimtBuilder &b, Value index, size_t l, const Values &sum) {
    if (l + 1 == levels.size()) { // of an index below slots - 1 the highest bit is set only once
      levels[l] = sum;
      return;
    }
    auto levelsFrom = [&] {
      Values all;
      for (size_t k = l; k < levels.size(); ++k)
        all.append(levels[k]);
      return all;
    };
    SmallVector<Values> before = levels;
    auto merges = [&]() -> Values {
      carry(b, index, l + 1, add(b, levels[l], sum));
      return levelsFrom();
    };
    auto stays = [&]() -> Values {
      levels = before;
      levels[l] = sum;
      return levelsFrom();
    };
    Value bit = b.ne(b.andI(index, int64_t(1) << l), 0);
    SmallVector<Type> types(4 * numTiles * (levels.size() - l), b.getF32Type());
    Values after = b.ifElse(types, bit, merges, stays);
    ValueRange rest(after);
    for (size_t k = l; k < levels.size(); ++k) {
      levels[k].assign(rest.begin(), rest.begin() + 4 * numTiles);
      rest = rest.drop_front(4 * numTiles);
    }
  }

  int64_t numTiles, slots;
  Value zero;
  SmallVector<Values, 2> chains;
  SmallVector<Values> levels;
};

/// The tokens' registers of B, by ldmatrix: lane l gives the address of row l % 8 of matrix l / 8, 8 columns
/// of 8 tokens. Tokens that do not exist repeat the last, and their columns are dropped.
class TokenFactor {
public:
  TokenFactor(SimtBuilder &b, MmaOperands &mma, Value base, Value lane, int64_t tokens, int64_t stride)
      : b(b), mma(mma) {
    Value chunk = b.mul(b.div(lane, 8), 16);
    for (int64_t first = 0; first < tokens; first += 8) {
      Value token = b.min(b.add(b.rem(lane, 8), first), b.i32(tokens - 1));
      rows.push_back(b.offset(base, b.add(b.mul(token, stride), chunk)));
    }
  }
  int64_t numTiles() const { return rows.size(); }
  /// Registers of `blocks` blocks, 1 or 2, from the byte `column` + `constant` of a row on; `half`: the last
  /// has 8 columns.
  SmallVector<Values, 2> load(int64_t tile, Value column, int64_t constant, int64_t blocks, bool half) {
    int64_t matrices = 2 * blocks - half;
    Value at = b.offset(b.offset(rows[tile], column), constant);
    Values regs;
    // Three matrices are two and one: nothing behind a row's end is read.
    for (int64_t first = 0; first < matrices;) {
      int64_t n = llvm::bit_floor(uint64_t(matrices - first));
      SmallVector<Type> types(n, b.getI32Type());
      auto load = b.create<simt::LdmatrixOp>(types, b.offset(at, 16 * first), /*trans=*/false);
      for (Value r : load.getResults())
        regs.push_back(mma.factor(r));
      first += n;
    }
    if (half)
      regs.push_back(b.i32(0));
    SmallVector<Values, 2> all;
    for (int64_t i = 0; i < blocks; ++i)
      all.push_back({regs[2 * i], regs[2 * i + 1]});
    return all;
  }

private:
  SimtBuilder &b;
  MmaOperands &mma;
  Values rows; ///< this lane's address, of each n-tile
};
} // namespace

Value cfc::kernel::placeOfRow(SimtBuilder &b, MatmulOp op, Value row) {
  int64_t parts = op.getParts(), start = 0;
  if (parts == 1)
    return row;
  int64_t each = op.getResult().getType().getShape()[0] / parts;
  Value place;
  for (int64_t rows : op.getWeights().getDefiningOp<LoadOp>().getRows()) {
    Value local = b.add(row, -start);
    Value part = b.div(local, rows / parts), inPart = b.rem(local, rows / parts);
    Value here = b.add(b.mul(part, each), b.add(inPart, start / parts));
    place = place ? b.select(b.ge(row, start), here, place) : here;
    start += rows;
  }
  return place;
}

/// Stores a warp's sums: a lane has tokens 2 (lane % 4) and the next of each n-tile, of rows lane / 4 and 8
/// behind.
void KernelLowering::storeTokenSums(MatmulOp op, const MatmulTiling &t, Value firstRow, const Values &sums) {
  TileType type = op.getResult().getType();
  int64_t tokens = type.getShape()[1], bytes = type.getElementBytes();
  Type element = type.getElementType();
  bool pairs = tokens % 2 == 0;
  Value firstToken = b.mul(b.rem(lane, 4), 2);
  for (int64_t half = 0; half < 2; ++half) {
    Value row = b.add(firstRow, b.add(b.mul(setWarp, 16), b.add(b.div(lane, 4), 8 * half)));
    b.ifThen(b.lt(row, t.rows), [&] {
      Value to = b.offset(bufferOf(op.getResult()),
                          b.mul(b.add(b.mul(placeOfRow(b, op, row), tokens), firstToken), bytes));
      for (int64_t first = 0; first < tokens; first += 8) {
        Values two = {sums[first / 2 + 2 * half], sums[first / 2 + 2 * half + 1]};
        for (int64_t k = 0; k < 2; k += pairs ? 2 : 1) {
          auto put = [&] {
            Value at = b.offset(to, (first + k) * bytes);
            if (!pairs)
              b.store(b.fromF32(two[k], element), at);
            else if (element.isF32())
              b.store(b.create<vector::FromElementsOp>(VectorType::get({2}, element), two), at);
            else
              b.store(b.pack(two[0], two[1], element), at);
          };
          if (first + 8 <= tokens)
            put();
          else
            b.ifThen(b.lt(b.add(firstToken, first + k), tokens), put);
        }
      }
    });
  }
}

LogicalResult KernelLowering::lowerTokenMatmul(MatmulOp op) {
  StreamType wType = op.getWeights().getType();
  TileType xType = op.getX().getType();
  MatmulTiling t = *tilingOf(op.getWeights().getDefiningOp<LoadOp>(), op.getSlots());
  MmaOperands mma(b, wType.getElementType(), xType.getElementType());

  // The tokens' columns of this CTA: its part of whole rows, or the rows that it holds.
  Value x = bufferOf(op.getX());
  int64_t columns = wType.getShape()[1];
  for (StateAttr s : wType.getStates()) {
    if (s.getDim() != 1)
      continue;
    columns /= func.axis(s.getAxis().getValue()).getSize();
    if (!stateOver(xType.getStates(), s.getAxis().getValue()))
      x = b.offset(x, b.mul(coordinate(s.getAxis().getValue()), columns * 2));
  }
  TokenFactor factor(b, mma, x, lane, xType.getShape()[0], layout.rowStride(op.getX()));
  int64_t numTiles = factor.numTiles(), numChains = t.chains();

  TileAddress blockAddress = tileAddress(t);
  auto push = [&](TokenSums &sums, Value block) { sums.push(b, b.div(block, t.slotBlocks)); };
  // What the row's last tile gives is its total.
  auto blocksOfTile = [&](Value firstBlock, int64_t blocks, bool endsRow, Ring r, TokenSums &sums) -> Values {
    bool half = endsRow && t.columns % 16; // the last block has 8 columns
    Value column = b.mul(firstBlock, 32), slot = slotAddress(r);
    Values made, total;
    waitFull(r);
    auto endBlock = [&](int64_t i) {
      Value block = b.add(firstBlock, i);
      bool last = endsRow && i + 1 == blocks;
      bool ends = !last && t.slots > 1 && t.tileBlocks % t.slotBlocks == 0 && (i + 1) % t.slotBlocks == 0;
      bool mayEnd = !last && t.slots > 1 && t.tileBlocks % t.slotBlocks != 0 &&
                    (t.slotBlocks % t.tileBlocks != 0 || i + 1 == t.tileBlocks);
      if (last || ends || mayEnd || i + 1 == blocks) // each product needs those before it in its chain
        for (int64_t c = 0; c < std::min(numChains, i + 1); ++c)
          made.push_back(sums.chain((i - c) % numChains, 0, 0));
      if (last)
        total = sums.total(b);
      else if (ends)
        push(sums, block);
      else if (mayEnd) {
        Values before = sums.flat();
        SmallVector<Type> types(before.size(), b.getF32Type());
        sums.assign(b.ifElse(
            types, b.eq(b.rem(b.add(block, 1), t.slotBlocks), 0),
            [&]() -> Values {
              TokenSums ended = sums;
              push(ended, block);
              return ended.flat();
            },
            [&] { return before; }));
      }
    };
    // Two blocks at a time: one ldmatrix brings 8 tokens' columns of both.
    for (int64_t i = 0; i < blocks; i += 2) {
      int64_t n = std::min<int64_t>(2, blocks - i);
      bool ends = half && i + n == blocks;
      SmallVector<Values, 2> a;
      for (int64_t k = 0; k < n; ++k)
        a.push_back(mma.weights(blockAddress(slot, i + k), ends && k + 1 == n));
      SmallVector<SmallVector<Values, 2>> tokens;
      for (int64_t tile = 0; tile < numTiles; ++tile)
        tokens.push_back(factor.load(tile, column, 32 * i, n, ends));
      for (int64_t k = 0; k < n; ++k) {
        for (int64_t tile = 0; tile < numTiles; ++tile) {
          int64_t c = (i + k) % numChains;
          sums.setChain(c, tile, mma.multiply(a[k], tokens[tile][k], sums.chainOf(c, tile)));
        }
        endBlock(i + k);
      }
    }
    releaseSlot(r, made);
    return total;
  };

  // The last tile ends the row, so it is written out apart.
  int64_t whole = t.wholeTiles(), rest = t.blocks - whole * t.tileBlocks;
  auto rowsOfSet = [&](Value firstRow, ValueRange outer) -> Values {
    TokenSums sums(b, numTiles, numChains, t.slots);
    Values inits = {outer[0], outer[1]};
    inits.append(sums.flat());
    Values in = b.loop(b.i32(0), b.i32(whole), b.i32(1), inits, [&](Value c, ValueRange args) -> Values {
      Ring r{args[0], args[1], ring.first};
      TokenSums inner = sums;
      inner.assign(args.drop_front(2));
      blocksOfTile(b.mul(c, t.tileBlocks), t.tileBlocks, false, r, inner);
      r = advance(r);
      Values out = {r.slot, r.phase};
      out.append(inner.flat());
      return out;
    });
    Ring r{in[0], in[1], ring.first};
    sums.assign(ValueRange(in).drop_front(2));
    storeTokenSums(op, t, firstRow, blocksOfTile(b.i32(whole * t.tileBlocks), rest, true, r, sums));
    r = advance(r);
    return {r.slot, r.phase};
  };
  Value firstOfSet = sets > 1 ? b.mul(set, kSetRows) : b.i32(0);
  Values end = b.loop(firstOfSet, b.i32(t.rows), b.i32(kSetRows * sets), {ring.slot, ring.phase}, rowsOfSet);
  ring = {end[0], end[1], ring.first};
  sync();
  return success();
}
