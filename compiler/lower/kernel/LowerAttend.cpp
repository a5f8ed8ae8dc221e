//===- LowerAttend.cpp - Online softmax over cached tokens -------------------------===//
//
// Keys are the A operand of QK, values (transposed) of PV; query heads of one KV
// head are columns, in n-tiles of 8, and in several passes over the tokens where
// registers do not hold all. Warp w holds lane w % 4 of each segment: 16 tokens
// with an online softmax of their own. After each group of segments the lanes are merged
// by a tree and pushed on a binary counter of merged groups, so the order
// depends on the length alone (docs/design.md, "Order of sums").
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "compiler/lower/kernel/MmaOperands.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

namespace {
using Values = SimtBuilder::Values;

/// An n-tile of one warp's online softmax: two columns (heads) a thread.
struct TileState {
  Values m, l;           // of columns 2 (lane % 4) and + 1
  SmallVector<Values> o; // per 16 dims: the 4 registers of an mma
};

/// Registers of one warp's online softmax.
struct LaneState {
  SmallVector<TileState> tiles;

  static LaneState empty(SimtBuilder &b, int64_t tiles, int64_t blocks) {
    Value z = b.f32(0);
    TileState one{{b.negInf(), b.negInf()}, {z, z}, SmallVector<Values>(blocks, Values{z, z, z, z})};
    return {SmallVector<TileState>(tiles, one)};
  }
  Values flat() const {
    Values v;
    for (const TileState &s : tiles) {
      v.append({s.m[0], s.m[1], s.l[0], s.l[1]});
      for (const Values &x : s.o)
        v.append(x.begin(), x.end());
    }
    return v;
  }
  void assign(ValueRange v) {
    for (TileState &s : tiles) {
      s.m = {v[0], v[1]};
      s.l = {v[2], v[3]};
      for (size_t i = 0; i < s.o.size(); ++i)
        s.o[i].assign(v.begin() + 4 + 4 * i, v.begin() + 8 + 4 * i);
      v = v.drop_front(4 + 4 * s.o.size());
    }
  }
};

/// One attend: what does not change over its segments.
struct Attend {
  SimtBuilder &b;
  int64_t heads, tiles, dim, vDim; // heads: of a pass
  double scale;
  std::optional<double> softcap;
  /// What is added to a score, to the base 2, of a head of the pass and the token that is the key; or null.
  std::function<Value(Value head, Value key)> bias;
  /// Whether the token that is the key is attended, where that is not all up to the last; or null.
  std::function<Value(Value key)> sees;
  MmaOperands qk, pv;
  Value lane, tokenLane;                   // tokenLane: first token of this warp's 16
  SmallVector<SmallVector<Values>> q = {}; // by n-tile: B registers per 16 dims
  bool rows = false;                       // of tokens lie one after another, not in swizzled boxes
  bool isE4m3 = false;                     // K and V are f8E4M3FN
  Value kScale = {}, vScale = {};          // of the cache's head; null: it has none

  /// Dims are taken 16 at a time. Of the last there may be 8 alone: those that boxes hold behind them do not
  /// count.
  static int64_t blocks(int64_t dim) { return llvm::divideCeil(dim, 16); }
  bool isHalf(int64_t block) const { return 16 * block + 8 == dim; }

  /// The heads of n-tile `tile`: `left` heads are there from `first` on (null: all of `heads`, from 0).
  void loadQueries(Value queries, int64_t tile, Value first, Value left) {
    SmallVector<Values> &regs = q.emplace_back();
    Value column = b.div(lane, 4), exists;
    if (left) {
      column = b.add(column, 8 * tile);
      exists = b.lt(column, left);
      column = b.add(column, first);
    } else {
      exists = b.lt(column, heads - 8 * tile);
      column = b.add(column, 8 * tile);
    }
    for (int64_t k = 0; k < blocks(dim); ++k) {
      bool half = isHalf(k);
      if (isE4m3) {
        regs.push_back(qk.activationsForE4m3(queries, dim, column, exists, b.i32(16 * k), lane, half));
        continue;
      }
      regs.push_back(qk.activations(queries, dim, column, exists, b.i32(16 * k), lane, half ? 8 : 16));
      if (half)
        regs.back().push_back(b.i32(0));
    }
  }

  Value shuffleXor(Value v, int64_t x) {
    return b.create<simt::ShuffleOp>(v.getType(), simt::ShuffleMode::Xor, v, b.i32(x)).getResult();
  }
  /// Over the 8 token rows that lanes of one column hold, of several columns at a time.
  void acrossTokens(MutableArrayRef<Value> columns, function_ref<Value(Value, Value)> merge) {
    for (int64_t x : {4, 8, 16}) {
      Values others;
      for (Value v : columns)
        others.push_back(shuffleXor(v, x));
      for (auto [v, other] : llvm::zip_equal(columns, others))
        v = merge(v, other);
    }
  }

  /// Addresses in a slot of a token's row of `dims`, for each 32 of its bytes, of their half `side`: boxes of
  /// 128 bytes, swizzled.
  Values rowAddresses(Value slot, Value token, Value side, int64_t dims) {
    Values all;
    for (int64_t k = 0, n = isE4m3 ? llvm::divideCeil(dims, 32) : blocks(dims); k < n; ++k) {
      if (rows) {
        Value at = b.add(b.mul(token, llvm::divideCeil(n, 4) * 128), b.mul(side, 16));
        all.push_back(b.offset(b.offset(slot, at), 32 * k));
        continue;
      }
      Value at = b.add(b.mul(token, 128), swizzled(b, b.add(side, 2 * (k % 4)), token));
      all.push_back(b.offset(b.offset(slot, at), k / 4 * kSegment * 128));
    }
    return all;
  }

  /// Blocks of 16 dims in the k-th 32 bytes of f8.
  int64_t blocksFrom(int64_t k, int64_t dims) { return std::min<int64_t>(2, blocks(dims) - 2 * k); }

  /// This warp's keys as A registers, for each 16 dims.
  SmallVector<Values> keys(Value slot) {
    Values rows = rowAddresses(slot, b.add(tokenLane, b.rem(lane, 16)), b.div(lane, 16), dim);
    SmallVector<Values> all;
    for (auto [k, row] : llvm::enumerate(rows))
      if (isE4m3)
        llvm::append_range(all, qk.rowsOfE4m3(row, blocksFrom(k, dim)));
      else
        all.push_back(qk.weights(row, isHalf(k)));
    return all;
  }
  /// The same of values: dims are the rows of A.
  SmallVector<Values> valuesOf(Value slot) {
    Value token = b.add(tokenLane, b.add(b.rem(lane, 8), b.mul(b.div(lane, 16), 8)));
    SmallVector<Values> all;
    for (auto [k, row] : llvm::enumerate(rowAddresses(slot, token, b.rem(b.div(lane, 8), 2), vDim)))
      if (isE4m3)
        llvm::append_range(all, pv.columnsOfE4m3(row, blocksFrom(k, vDim)));
      else
        all.push_back(pv.weights(row, /*half=*/false, /*trans=*/true));
    return all;
  }

  /// Of each n-tile.
  SmallVector<Values> scores(Value slot) {
    SmallVector<Values> keys = this->keys(slot);
    SmallVector<Values> all;
    for (const SmallVector<Values> &query : q) {
      // Dims 0 to 15, 32 to 47, … and the others apart, so that one chain need not wait for the other.
      Values s[2] = {Values(4, b.f32(0)), Values(4, b.f32(0))};
      for (auto [k, key] : llvm::enumerate(keys))
        s[k % 2] = qk.multiply(key, query[k], s[k % 2]);
      if (keys.size() > 1)
        for (int i = 0; i < 4; ++i)
          s[0][i] = b.fadd(s[0][i], s[1][i]);
      all.push_back(s[0]);
    }
    return all;
  }

  /// Whether a token of the segment is attended: of its first `tokens`, and not of the first `skipped` (null:
  /// 0).
  Value isAttended(Value token, Value tokens, Value skipped) {
    Value exists = b.lt(token, tokens);
    return skipped ? b.andI(exists, b.ge(token, skipped)) : exists;
  }

  /// Masks, rescales the state of an n-tile with `columns` heads or more and gives the rounded probabilities
  /// as B registers of PV.
  /// `begin` is the segment's first token.
  Values probabilities(Values s, Value tokens, Value skipped, Value begin, int64_t tile, TileState &state) {
    int64_t columns = heads - 8 * tile;
    Value token = b.add(tokenLane, b.div(lane, 4));
    Value exists[2] = {isAttended(token, tokens, skipped), isAttended(b.add(token, 8), tokens, skipped)};
    if (sees)
      for (int i = 0; i < 2; ++i)
        exists[i] = b.andI(exists[i], sees(b.add(begin, b.add(token, 8 * i))));
    for (int i = 0; i < 4; ++i) {
      Value score = scoreOf(b, s[i], scale, kScale, softcap);
      if (bias) {
        Value head = b.add(b.mul(b.rem(lane, 4), 2), 8 * tile + i % 2);
        score = b.fadd(score, bias(head, b.add(begin, b.add(token, i / 2 * 8))));
      }
      s[i] = b.select(exists[i / 2], score, b.negInf());
    }
    Values p(4, b.f32(0)), tops;
    for (int j = 0; j < std::min<int64_t>(columns, 2); ++j) // one head has no second column
      tops.push_back(b.fmax(s[j], s[2 + j]));
    acrossTokens(tops, [&](Value x, Value y) { return b.fmax(x, y); });
    for (auto [j, top] : llvm::enumerate(tops)) {
      Value m = b.fmax(state.m[j], top);
      Value safe = b.select(b.isNegInf(m), b.f32(0), m);
      Value alpha = b.exp2(b.fsub(state.m[j], safe));
      p[j] = b.exp2(b.fsub(s[j], safe));
      p[2 + j] = b.exp2(b.fsub(s[2 + j], safe));
      state.m[j] = m;
      state.l[j] = b.fmul(state.l[j], alpha);
      for (Values &o : state.o) {
        o[j] = b.fmul(o[j], alpha);
        o[2 + j] = b.fmul(o[2 + j], alpha);
      }
    }
    Values regs;
    for (int half = 0; half < 2; ++half) {
      Value reg = b.pack(p[2 * half], p[2 * half + 1], pv.type());
      // The weights of o and the sum l are the same rounded numbers.
      auto [lo, hi] = b.unpack(reg, pv.type());
      state.l[0] = b.fadd(state.l[0], lo);
      state.l[1] = b.fadd(state.l[1], hi);
      regs.push_back(b.create<simt::MovmatrixOp>(b.getI32Type(), reg).getResult());
    }
    return regs;
  }

  /// Keeps the 16-bit halves of tokens that are attended: rows before and behind hold anything, NaN too.
  Value tokenMask(Value first, Value tokens, Value skipped) {
    Value lo = b.select(isAttended(first, tokens, skipped), b.i32(0xffff), b.i32(0));
    Value hi = b.select(isAttended(b.add(first, 1), tokens, skipped), b.i32(int32_t(0xffff0000)), b.i32(0));
    return b.orI(lo, hi);
  }

  /// `p`: probabilities of each n-tile.
  void accumulate(Value slot, ArrayRef<Values> p, Value tokens, Value skipped, LaneState &state) {
    Value first = b.add(tokenLane, b.mul(b.rem(lane, 4), 2));
    SmallVector<Values> values = valuesOf(slot);
    // Only the last segment lacks tokens, and the first one of a window.
    Value lacks = b.lt(tokens, kSegment);
    if (skipped)
      lacks = b.orI(lacks, b.lt(b.i32(0), skipped));
    auto masked = [&]() -> Values {
      Value masks[2] = {tokenMask(first, tokens, skipped), tokenMask(b.add(first, 8), tokens, skipped)};
      Values flat;
      for (const Values &a : values)
        for (int r = 0; r < 4; ++r)
          flat.push_back(b.andI(a[r], masks[r / 2]));
      return flat;
    };
    auto whole = [&]() -> Values {
      Values flat;
      for (const Values &a : values)
        flat.append(a.begin(), a.end());
      return flat;
    };
    SmallVector<Type> types(values.size() * 4, b.getI32Type());
    Values flat = b.ifElse(types, lacks, masked, whole);
    for (auto [tile, weights] : llvm::zip_equal(state.tiles, p))
      for (int64_t i = 0; i < blocks(vDim); ++i)
        tile.o[i] = pv.multiply(Values(ArrayRef(flat).slice(4 * i, 4)), weights, tile.o[i]);
  }

  /// Stores `o` of a head, row lane / 4 of half `i` of the rows of A: the dim that this lane has of it, where
  /// there is one.
  void storeDim(Value o, int64_t i, Value row) {
    if (vScale)
      o = b.fmul(o, vScale);
    Value at = b.div(lane, 4);
    Value d = isE4m3 ? b.add(b.mul(at, 2), 16 * (i / 2) + i % 2) : b.add(at, 8 * i);
    auto store = [&] { b.store(o, b.offset(row, b.mul(d, 4))); };
    if (16 * (i / 2 + 1) <= vDim)
      store();
    else if (isE4m3)
      b.ifThen(b.lt(d, vDim), store);
    else if (8 * i < vDim)
      store();
  }

  /// Writes n-tile `tile` of this warp's lane to [head][v_dim + 2].
  void storeTile(TileState &state, int64_t tile, Value to) {
    acrossTokens(state.l, [&](Value x, Value y) { return b.fadd(x, y); });
    for (int j = 0; j < 2; ++j) {
      Value head = b.add(b.mul(b.rem(lane, 4), 2), 8 * tile + j);
      b.ifThen(b.lt(head, heads), [&] {
        Value row = b.offset(to, b.mul(head, (vDim + 2) * 4));
        for (int64_t i = 0; i < 2 * blocks(vDim); ++i)
          storeDim(state.o[i / 2][i % 2 * 2 + j], i, row);
        b.ifThen(b.lt(lane, 4), [&] {
          b.store(state.m[j], b.offset(row, vDim * 4));
          b.store(state.l[j], b.offset(row, vDim * 4 + 4));
        });
      });
    }
  }
  void storeLane(LaneState &state, Value to) {
    for (auto [i, tile] : llvm::enumerate(state.tiles))
      storeTile(tile, i, to);
  }
};
} // namespace

int64_t cfc::kernel::elementsTogether(int64_t heads, int64_t dim, int64_t threads) {
  int64_t width = 4;
  while (width > 1 && (dim % width != 0 || heads * dim < width * threads))
    width /= 2;
  return width;
}

std::pair<Value, Value> cfc::kernel::headAndElement(SimtBuilder &b, Value i, int64_t dim, int64_t width) {
  return {b.div(i, dim / width), b.mul(b.rem(i, dim / width), width)};
}

void KernelLowering::forEachOfState(int64_t heads, int64_t dim,
                                    function_ref<void(Value, Value, int64_t)> body) {
  int64_t width = elementsTogether(heads, dim, threads);
  forEach(heads * dim / width, [&](Value i) {
    auto [head, d] = headAndElement(b, i, dim, width);
    body(head, d, width);
  });
}

SoftmaxState cfc::kernel::loadState(SimtBuilder &b, Value base, Value head, Value d, int64_t dim,
                                    int64_t width) {
  Value row = b.offset(base, b.mul(head, (dim + 2) * 4)), at = b.offset(row, b.mul(d, 4));
  if (width == 1)
    return {b.load(b.getF32Type(), b.offset(row, dim * 4)),
            b.load(b.getF32Type(), b.offset(row, dim * 4 + 4)),
            {b.load(b.getF32Type(), at)}};
  // Rows of an odd number of pairs begin at multiples of 8 bytes.
  auto pair = [&](Value from) {
    Value both = b.load(VectorType::get({2}, b.getF32Type()), from);
    return b.create<vector::ToElementsOp>(both).getResults();
  };
  auto sums = pair(b.offset(row, dim * 4));
  SoftmaxState state{sums[0], sums[1], {}};
  for (int64_t i = 0; i < width; i += 2)
    llvm::append_range(state.o, pair(b.offset(at, 4 * i)));
  return state;
}

void cfc::kernel::storeState(SimtBuilder &b, SoftmaxState s, Value base, Value head, Value d, int64_t dim,
                             bool sums) {
  Value row = b.offset(base, b.mul(head, (dim + 2) * 4)), at = b.offset(row, b.mul(d, 4));
  if (s.o.size() == 1)
    b.store(s.o[0], at);
  for (size_t i = 0; i + 1 < s.o.size(); i += 2) {
    auto pair = VectorType::get({2}, b.getF32Type());
    b.store(b.create<vector::FromElementsOp>(pair, ValueRange{s.o[i], s.o[i + 1]}), b.offset(at, 4 * i));
  }
  if (!sums)
    return;
  b.ifThen(b.eq(d, 0), [&] {
    b.store(s.m, b.offset(row, dim * 4));
    b.store(s.l, b.offset(row, dim * 4 + 4));
  });
}

LogicalResult KernelLowering::lowerAttend(AttendOp op) {
  const AttendColumns &columns = layout.attend(op).columns;
  Tokens tokens = tokensOf(op.getKv().getDefiningOp<LoadCacheOp>(), /*report=*/true);
  if (columns.passes == 1) {
    attendPass(op, tokens, {});
    return success();
  }
  Values end = b.loop(b.i32(0), b.i32(columns.passes), b.i32(1), {ring.slot, ring.phase},
                      [&](Value pass, ValueRange args) -> Values {
                        ring = {args[0], args[1], ring.first};
                        attendPass(op, tokens, b.mul(pass, columns.heads));
                        return {ring.slot, ring.phase};
                      });
  ring = {end[0], end[1], ring.first};
  return success();
}

/// The heads of a pass, from `firstHead` on (null: there is one pass), attend to all tokens.
void KernelLowering::attendPass(AttendOp op, const Tokens &tokens, Value firstHead) {
  KvStreamType kv = op.getKv().getType();
  TileType qType = op.getQ().getType();
  const AttendBuffers &buffers = layout.attend(op);
  int64_t all = op.getResult().getType().getShape()[0], heads = buffers.columns.heads;
  int64_t stateBytes = heads * (kv.getVDim() + 2) * 4;
  auto load = op.getKv().getDefiningOp<LoadCacheOp>();
  bool isE4m3 = isa<Float8E4M3FNType>(kv.getElementType());
  Type element = isE4m3 ? b.getF16Type() : kv.getElementType(); // of which all f8 are some

  Attend a{b,
           heads,
           buffers.columns.tiles,
           kv.getDim(),
           kv.getVDim(),
           op.getScale().convertToDouble(),
           numberOf(op.getSoftcap()),
           biasOf(op.getBias(), load, tokens, firstHead, all),
           nullptr,
           MmaOperands(b, element, qType.getElementType()),
           MmaOperands(b, element, element),
           lane,
           b.mul(setWarp, kLane)};
  if (tokens.bits && !load.getSlot()) // else what it masks is not in the cache yet
    a.sees = [&](Value key) { return seesNew(tokens, key); };
  a.rows = copiesTokens(cast<CacheType>(load.getCache().getType()));
  a.isE4m3 = isE4m3;
  a.kScale = scaleOf(load.getKScale(), tokens.place.head);
  a.vScale = scaleOf(load.getVScale(), tokens.place.head);
  Value there = firstHead ? b.sub(b.i32(all), firstHead) : Value(); // heads from it on
  for (int64_t t = 0; t < a.tiles; ++t)
    a.loadQueries(bufferOf(op.getQ()), t, firstHead, there);

  int64_t attending = buffers.sets, each = localGroups(func, load) / attending;
  int64_t lanesOfSet = (buffers.together ? each : 1) * kLanes * stateBytes;
  Value lanes = b.offset(shared, b.add(b.mul(set, lanesOfSet), buffers.lanes));
  Value stack = b.offset(shared, b.add(b.mul(set, buffers.levels * stateBytes), buffers.stack));
  Value isWhole = load.isShare() ? b.eq(tokens.shareGroups, int64_t(load.getGroups())) : Value();
  auto groupOfSet = [&](Value g, ValueRange outer) -> Values {
    SetSegments segments = segmentsOfSets(tokens, load, g);
    Value first = segments.first[0], count = segments.count[0];
    for (int64_t i = 1; i < attending; ++i) {
      first = b.select(b.eq(set, i), segments.first[i], first);
      count = b.select(b.eq(set, i), segments.count[i], count);
    }
    LaneState state = LaneState::empty(b, a.tiles, Attend::blocks(a.vDim));
    Values inits(outer.begin(), outer.end());
    inits.append(state.flat());
    Values in = b.loop(b.i32(0), count, b.i32(1), inits, [&](Value j, ValueRange args) -> Values {
      Ring r{args[0], args[1], ring.first};
      LaneState inner = state;
      inner.assign(args.drop_front(2));
      Value begin = b.shl(b.add(first, j), 6), left = b.sub(tokens.length, begin);
      Value skipped = tokens.firstToken ? b.sub(tokens.firstToken, begin) : Value();
      waitFull(r);
      SmallVector<Values> s = a.scores(slotAddress(r)), p;
      releaseSlot(r, s[0][0]);
      r = advance(r);
      for (auto [t, tile] : llvm::enumerate(inner.tiles))
        p.push_back(a.probabilities(s[t], left, skipped, begin, t, tile));
      waitFull(r);
      a.accumulate(slotAddress(r), p, left, skipped, inner);
      Values made; // of one n-tile: all take the same values
      for (const Values &o : inner.tiles[0].o)
        made.push_back(o[0]);
      releaseSlot(r, made);
      r = advance(r);
      Values out = {r.slot, r.phase};
      out.append(inner.flat());
      return out;
    });
    state.assign(ValueRange(in).drop_front(2));
    if (buffers.together) {
      Value group = b.offset(lanes, b.mul(g, kLanes * stateBytes));
      a.storeLane(state, b.offset(group, b.mul(setWarp, stateBytes)));
      return {in[0], in[1]};
    }
    syncSet(); // the last group's lanes are merged
    a.storeLane(state, b.offset(lanes, b.mul(setWarp, stateBytes)));
    syncSet();
    mergeGroup(op, g, lanes, stack, firstHead, isWhole);
    return {in[0], in[1]};
  };
  auto groups = [&]() -> Values {
    Value count = groupsOfSet(tokens, load);
    // Of a share only groups with tokens: those behind them are empty, and merge without a trace.
    if (load.isShare())
      count = b.min(count, b.max(b.i32(0), b.sub(groupsWithTokens(op), tokens.firstGroup)));
    return b.loop(b.i32(0), count, b.i32(1), {ring.slot, ring.phase}, groupOfSet);
  };
  Values end = attending == sets ? groups()
                                 : b.ifElse({b.getI32Type(), b.getI32Type()}, b.lt(set, attending), groups,
                                            [&]() -> Values { return {ring.slot, ring.phase}; });
  ring = {end[0], end[1], ring.first};
  sync();
  if (load.isShare()) {
    b.ifThen(isWhole, [&] { mergeLevels(op, stack); });
    sync();
  }
  if (buffers.apart)
    mergeSets(op, firstHead);
}

/// The sum of a pass from the sets' sums, or from all lanes: powers of two, so their trees are one.
void KernelLowering::mergeSets(AttendOp op, Value firstHead) {
  const AttendBuffers &buffers = layout.attend(op);
  int64_t dim = op.getKv().getType().getVDim(), all = op.getResult().getType().getShape()[0];
  int64_t heads = buffers.columns.heads, stateBytes = heads * (dim + 2) * 4;
  auto load = op.getKv().getDefiningOp<LoadCacheOp>();
  int64_t leaves = buffers.together ? localGroups(func, load) * kLanes : buffers.sets;
  int64_t stride = buffers.together ? stateBytes : buffers.levels * stateBytes;
  Value from =
      b.offset(shared, buffers.together ? buffers.lanes : buffers.stack + (buffers.levels - 1) * stateBytes);
  Value to = bufferOf(op.getResult());
  if (firstHead)
    to = b.offset(to, b.mul(firstHead, (dim + 2) * 4));
  forEachOfState(heads, dim, [&](Value head, Value d, int64_t width) {
    auto merge = [&] {
      SoftmaxState sum = mergeTree<SoftmaxState>(
          leaves, [&](int64_t s) { return loadState(b, b.offset(from, s * stride), head, d, dim, width); },
          [&](SoftmaxState x, SoftmaxState y) { return mergeSoftmax(b, x, y); });
      storeState(b, sum, to, head, d, dim);
    };
    if (firstHead)
      b.ifThen(b.lt(b.add(firstHead, head), all), merge);
    else
      merge();
  });
  sync();
}

/// Pushes group `g` of this set, whose lanes are at `lanes`, on the set's counter of merged groups; or, of a
/// share that is no whole head (`isWhole`: null or whether it is), leaves it where the head's groups lie.
void KernelLowering::mergeGroup(AttendOp op, Value g, Value lanes, Value stack, Value firstHead,
                                Value isWhole) {
  const AttendBuffers &buffers = layout.attend(op);
  int64_t dim = op.getKv().getType().getVDim(), heads = buffers.columns.heads;
  int64_t stateBytes = heads * (dim + 2) * 4, levels = buffers.levels, setThreads = kSetWarps * 32;
  Value group;
  if (isWhole) {
    Tokens t = tokensOf(op.getKv().getDefiningOp<LoadCacheOp>(), /*report=*/false);
    int64_t groupBytes = op.getResult().getType().getNumElements() * 4;
    group =
        b.offset(statesOfHead(cast<FinishOp>(*op->user_begin())), b.mul(b.add(t.firstGroup, g), groupBytes));
    if (firstHead)
      group = b.offset(group, b.mul(firstHead, (dim + 2) * 4));
  }
  int64_t width = elementsTogether(heads, dim, setThreads);
  b.loop(b.rem(tid, setThreads), b.i32(heads * dim / width), b.i32(setThreads), {},
         [&](Value i, ValueRange) -> Values {
           auto [head, d] = headAndElement(b, i, dim, width);
           auto load = [&, head = head, d = d](Value from) {
             return loadState(b, from, head, d, dim, width);
           };
           SoftmaxState carry = mergeTree<SoftmaxState>(
               kLanes, [&](int64_t j) { return load(b.offset(lanes, j * stateBytes)); },
               [&](SoftmaxState x, SoftmaxState y) { return mergeSoftmax(b, x, y); });
           Value active = b.i1(true);
           if (isWhole) {
             active = isWhole;
             Value stores = b.xorI(isWhole, 1);
             if (firstHead) // the last pass may have fewer heads
               stores = b.andI(stores, b.lt(b.add(firstHead, head), op.getResult().getType().getShape()[0]));
             b.ifThen(stores, [&, head = head, d = d] { storeState(b, carry, group, head, d, dim); });
           }
           for (int64_t level = 0; level < levels; ++level) {
             Value at = b.offset(stack, level * stateBytes);
             Value merges = level + 1 == levels ? b.i1(false) : b.ne(b.andI(g, int64_t(1) << level), 0);
             Value stores = b.andI(active, b.xorI(merges, b.i1(true)));
             b.ifThen(stores, [&, head = head, d = d] { storeState(b, carry, at, head, d, dim); });
             if (level + 1 == levels)
               break;
             active = b.andI(active, merges);
             carry = SoftmaxState::from(b.ifElse(
                 SmallVector<Type>(2 + width, b.getF32Type()), active,
                 [&]() -> Values { return mergeSoftmax(b, load(at), carry).flat(); },
                 [&]() -> Values { return carry.flat(); }));
           }
           return {};
         });
}

/// What the counter of merged groups holds of a head whose groups behind the last token are left out: its
/// levels are the bits of their number, the smallest last in order. A full counter is the head's sum as it
/// is.
void KernelLowering::mergeLevels(AttendOp op, Value stack) {
  const AttendBuffers &buffers = layout.attend(op);
  int64_t dim = op.getKv().getType().getVDim(), heads = buffers.columns.heads, levels = buffers.levels;
  int64_t stateBytes = heads * (dim + 2) * 4;
  Value groups = groupsWithTokens(op), last = b.offset(stack, (levels - 1) * stateBytes);
  int64_t all = op.getKv().getDefiningOp<LoadCacheOp>().getGroups();
  b.ifThen(b.lt(groups, all), [&] {
    forEachOfState(heads, dim, [&](Value head, Value d, int64_t width) {
      Values total(2 + width, b.f32(0));
      total[0] = b.negInf();
      for (int64_t level = 0; level + 1 < levels; ++level) {
        auto merge = [&]() -> Values {
          SoftmaxState held = loadState(b, b.offset(stack, level * stateBytes), head, d, dim, width);
          return mergeSoftmax(b, held, SoftmaxState::from(total)).flat();
        };
        total =
            b.ifElse(SmallVector<Type>(2 + width, b.getF32Type()),
                     b.ne(b.andI(groups, int64_t(1) << level), 0), merge, [&]() -> Values { return total; });
      }
      storeState(b, SoftmaxState::from(total), last, head, d, dim);
    });
  });
}
