//===- LowerQueries.cpp - Several query tokens a request ---------------------------===//
//
// Items are heads of query tokens. Whose token each is, a role works out once
// from the starts in memory. Cached tokens are streamed for each query token as
// for a request of its own; the new ones, of which each sees some, lie in memory
// together: kernels that make K and V come before.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;
using Values = SimtBuilder::Values;

/// Finds the request of row `row`: the last that begins at or before it, if the next begins behind it. A
/// start out of bound, or below one before, counts as the nearest that is possible.
void KernelLowering::planRow(Value starts, Value row, int64_t rows, Value table, bool reports) {
  int64_t count = cast<MemRefType>(starts.getType()).getNumElements();
  Value none = b.i32(-1), zero = b.i32(0);
  enum { Before, Request, First, End, Wrong };
  auto next = [&](Value r, ValueRange s) -> Values {
    Value start = b.load(b.getI32Type(), b.offset(memory.lookup(starts), b.mul(r, 4)));
    Value wrong = b.orI(b.lt(start, s[Before]), b.lt(b.i32(rows), start));
    Value before = b.max(s[Before], b.min(start, b.i32(rows)));
    Value isBehind = b.lt(row, before), isFirstBehind = b.andI(isBehind, b.lt(s[End], 0));
    return {before, b.select(isBehind, s[Request], r), b.select(isBehind, s[First], before),
            b.select(isFirstBehind, before, s[End]), b.select(wrong, b.i32(1), s[Wrong])};
  };
  Values s = b.loop(zero, b.i32(count), b.i32(1), {zero, none, zero, none, zero}, next);
  if (reports)
    b.ifThen(b.ne(s[Wrong], 0), [&] { setStatus(16); });
  Value exists = b.andI(b.ge(s[Request], 0), b.ge(s[End], 0));
  Value place = b.orI(s[Request], b.shl(b.sub(row, s[First]), 8));
  place = b.orI(place, b.shl(b.sub(s[End], s[First]), 16));
  b.store(b.select(exists, place, zero), b.offset(table, b.mul(row, 4)));
}

void KernelLowering::planQueries(bool producer) {
  if (layout.queries.empty())
    return;
  if (producer)
    waitBeforeCache();
  for (auto [starts, queries] : layout.queries) {
    Value table = b.offset(shared, queries.at + (producer ? kQueryBytes : 0));
    queryTables[starts] = table;
    auto plan = [&, starts = starts, rows = queries.rows](Value row) {
      b.ifThen(b.lt(row, rows), [&] { planRow(starts, row, rows, table, !producer); });
    };
    if (!producer)
      plan(tid);
    for (int64_t first = 0; producer && first < queries.rows; first += 32)
      plan(b.add(lane, first));
  }
  if (producer)
    b.create<simt::SyncWarpOp>();
  else
    sync();
}

KernelLowering::QueryPlace KernelLowering::queryOf(Value row, Value starts) {
  Value word = b.load(b.getI32Type(), b.offset(queryTables.lookup(starts), b.mul(row, 4)));
  return {b.andI(word, 255), b.andI(b.shr(word, 8), 255), b.shr(word, 16)};
}

KernelLowering::ItemPlace KernelLowering::placeOf(Value kernelItem, CacheType cache, Value starts) {
  if (!starts) {
    auto [request, head] = requestAndHead(kernelItem, cache);
    return {request, request, head, {}, {}};
  }
  Value i = item(kernelItem), row = b.div(i, cache.getHeads());
  QueryPlace place = queryOf(row, starts);
  return {row, place.request, b.rem(i, cache.getHeads()), place.index, place.count};
}

/// The position of the token that attends, and, where new tokens that it may not see are streamed, which.
void KernelLowering::placeQuery(LoadCacheOp load, Tokens &t) {
  if (load.getMask())
    t.bits = b.load(b.getI64Type(), b.offset(memory.lookup(load.getMask()), b.mul(t.place.row, 8)));
  if (!load.getQueries())
    t.query = load.getSlot() ? t.length : b.add(t.length, -1);
  else if (load.getSlot())
    t.query = b.add(t.length, t.place.index);
  else if (load.getMask())
    t.query = b.add(b.sub(t.length, t.place.count), t.place.index);
  else
    t.query = b.add(t.length, -1);
  if (load.getSlot())
    t.base = t.length;
  else if (load.getMask())
    t.base = b.sub(t.length, t.place.count);
}

/// Whether a token that a mask may hide, or one before them, is attended.
Value KernelLowering::seesNew(const Tokens &t, Value key) {
  Value j = b.sub(key, t.base), bit = b.wide(b.min(b.max(j, b.i32(0)), b.i32(63)));
  Value bits = b.createOrFold<arith::ShRUIOp>(b.loc, t.bits, bit);
  return b.orI(b.lt(j, 0), b.ne(b.andI(bits, 1), 0));
}

namespace {
/// K or V of all query tokens in memory, [rows, heads, dim], as the cache would have it; `scale`: by which it
/// divides, or null.
struct NewRows {
  SimtBuilder &b;
  Value base;
  Type element, cached;
  int64_t heads, dim;
  Value head, scale;

  Value at(Value row, Value d) const {
    Value index = b.add(b.mul(b.add(b.mul(row, heads), head), dim), d);
    Value x = b.toF32(b.load(element, b.offset(base, b.mul(index, element.getIntOrFloatBitWidth() / 8))));
    if (scale)
      x = b.fdiv(x, scale);
    return element == cached && !scale ? x : b.rounded(x, cached);
  }
};
} // namespace

/// Scores of all new tokens by head, then their softmax on top of the state, in order.
LogicalResult KernelLowering::lowerAttendNewTokens(AttendNewOp op) {
  LoadCacheOp load = op.getLoad();
  const CacheArgument &cache = caches.find(load.getCache())->second;
  TileType type = op.getState().getType();
  int64_t heads = type.getShape()[0], vDim = type.getShape()[1] - 2, dim = cache.type.getDim();
  Tokens t = tokensOf(load, /*report=*/false);
  auto rowsOf = [&](Value source, int64_t width, Value scale) {
    Type element = cast<MemRefType>(source.getType()).getElementType();
    return NewRows{b,     memory.lookup(source), element, cache.type.getElementType(), cache.type.getHeads(),
                   width, t.place.head,          scale};
  };
  Value kScale = scaleOf(load.getKScale(), t.place.head), vScale = scaleOf(load.getVScale(), t.place.head);
  NewRows k = rowsOf(op.getK(), dim, kScale), v = rowsOf(op.getV(), vDim, vScale);
  // An idle token attends nothing; nor is there anything for rows of nobody, whose count is 0.
  Value first = b.sub(t.place.row, t.place.index);
  Value idle = isIdle(op.getSlot(), t.place.row, load.getCache());
  Value count =
      b.select(idle, b.i32(0), t.bits ? t.place.count : b.min(b.add(t.place.index, 1), t.place.count));
  auto bias = biasOf(op.getBias(), load, t, Value(), heads);
  Value scores = b.offset(shared, layout.scores);
  auto scoreAt = [&](Value head, Value j) {
    return b.offset(scores, b.mul(b.add(b.mul(j, heads), head), 4));
  };
  sync(); // the last reader of the scores
  b.loop(warp, b.mul(count, heads), b.i32(warps), {}, [&](Value i, ValueRange) -> Values {
    Value j = b.div(i, heads), head = b.rem(i, heads), row = b.add(first, j), key = b.add(t.base, j);
    Value score = scoreOfNew(op, head, dim, kScale, [&](Value d) { return k.at(row, d); });
    if (bias)
      score = b.fadd(score, bias(head, key));
    Value hidden = isIdle(op.getSlot(), row, load.getCache());
    if (t.bits)
      hidden = b.orI(hidden, b.xorI(seesNew(t, key), b.i1(true)));
    if (int64_t window = load.getWindow())
      hidden = b.orI(hidden, b.ge(b.sub(t.query, key), cachedInWindow(window, /*appends=*/false)));
    b.ifThen(b.eq(lane, 0), [&] { b.store(b.select(hidden, b.negInf(), score), scoreAt(head, j)); });
    return {};
  });
  sync();
  Value from = bufferOf(op.getState());
  auto merged = [&](Value head, Value d, int64_t width) {
    SoftmaxState old = loadState(b, from, head, d, vDim, width);
    constexpr int64_t kAhead = 4; // loads of V that do not wait for each other
    Values all = b.loop(b.i32(0), count, b.i32(kAhead), old.flat(), [&](Value j, ValueRange s) -> Values {
      SoftmaxState state = SoftmaxState::from(s);
      SmallVector<SoftmaxState> tokens;
      for (int64_t i = 0; i < kAhead; ++i) {
        Value one = b.add(j, i), safe = b.min(one, b.add(count, -1));
        Value score = b.select(b.lt(one, count), b.load(b.getF32Type(), scoreAt(head, safe)), b.negInf());
        Value none = b.isNegInf(score);
        SoftmaxState token{score, b.select(none, b.f32(0), b.f32(1)), {}};
        for (int64_t e = 0; e < width; ++e) {
          Value x = v.at(b.add(first, safe), b.add(d, e));
          token.o.push_back(b.select(none, b.f32(0), vScale ? b.fmul(x, vScale) : x));
        }
        tokens.push_back(token);
      }
      for (const SoftmaxState &token : tokens)
        state = mergeSoftmax(b, state, token);
      return state.flat();
    });
    return SoftmaxState::from(all);
  };
  storeMerged(op, merged);
  return success();
}
