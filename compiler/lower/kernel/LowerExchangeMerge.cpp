//===- LowerExchangeMerge.cpp - Merging the payloads of an exchange --------------------===//
//
// In f32, by the left-balanced tree over the workers in order.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

/// How many words of each of `n` payloads are loaded ahead.
static int64_t wordsAhead(int64_t n) { return std::clamp<int64_t>(2 * kWordsAhead / n, 1, kWordsAhead); }

/// The peers' payloads in the receive buffer, in the order of workers; this CTA's own is still in its tile,
/// unless bulk copies read it from the receive buffer.
KernelLowering::Values KernelLowering::payloads(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value me = coordinate(op.getAxis());
  Value own = b.add(b.i32(layout.tile(op.getTile())), b.mul(me, e.peerOffset));
  Values bases;
  for (int64_t w = 0; w < e.workers; ++w) {
    Value at = b.i32(e.receive + w * e.slot);
    if (op.getAlgorithm() != Algorithm::Bulk)
      at = b.select(b.eq(me, w), own, at);
    bases.push_back(b.offset(shared, at));
  }
  return bases;
}

void KernelLowering::mergeReceived(ExchangeOp op) {
  mergePayloads(op, payloads(op), bufferOf(op.getResult()), localElements(func, op.getResult().getType()));
}

/// A word `at` bytes behind each of `bases`.
KernelLowering::Values KernelLowering::wordsOf(ArrayRef<Value> bases, Value at, Type word) {
  return map_to_vector(bases, [&](Value base) { return b.load(word, b.offset(base, at)); });
}

/// Merges words of f32 in the order of their workers.
Value KernelLowering::mergeWords(ExchangeOp op, ArrayRef<Value> words) {
  bool max = stateOver(op.getTile().getType().getStates(), op.getAxis())->getKind() == StateKind::Max;
  return mergeTree<Value>(
      words.size(), [&](int64_t w) { return words[w]; },
      [&](Value x, Value y) { return max ? b.fmax(x, y) : b.fadd(x, y); });
}

/// The second round of a scatter: each word of this CTA's part goes to all, itself included, as soon as it is
/// merged.
void KernelLowering::sendMerged(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value place = b.offset(bufferOf(op.getResult()), b.mul(coordinate(op.getAxis()), e.blockBytes()));
  Type type = wordType(b, e.word);
  Type word = e.word == 4 ? Type(b.getF32Type()) : Type(VectorType::get({e.word / 4}, b.getF32Type()));
  auto send = [&] {
    Values bases = payloads(op), targets, barriers;
    for (int64_t x = 0; x < e.workers; ++x) {
      targets.push_back(peerAddress(op, place, b.i32(x)));
      barriers.push_back(peerAddress(op, b.offset(shared, e.full[1]), b.i32(x)));
    }
    forEachAhead(
        tid, threads, e.blockBytes() / e.word, wordsAhead(e.workers),
        [&](Value i) { return wordsOf(bases, b.mul(i, e.word), word); },
        [&](Value i, Values words) {
          Value at = b.mul(i, e.word), merged = b.bitcast(type, mergeWords(op, words));
          for (auto [target, barrier] : llvm::zip_equal(targets, barriers))
            b.create<simt::StoreAsyncOp>(merged, b.offset(target, at), barrier);
        });
  };
  inSenders(e, e.blockBytes(), send, nullptr);
  waitRound(op, 1);
}

/// Merges `elements` elements at each of `bases`, in the order of their workers, into `result`.
void KernelLowering::mergePayloads(ExchangeOp op, ArrayRef<Value> bases, Value result, int64_t elements) {
  TileType type = op.getTile().getType();
  StateKind kind = stateOver(type.getStates(), op.getAxis())->getKind();
  int64_t n = bases.size();
  if (kind == StateKind::Softmax) {
    int64_t dim = type.getShape()[1] - 2, heads = elements / (dim + 2);
    forEachOfState(heads, dim, [&](Value head, Value d, int64_t width) {
      SoftmaxState s = mergeTree<SoftmaxState>(
          n, [&](int64_t w) { return loadState(b, bases[w], head, d, dim, width); },
          [&](SoftmaxState x, SoftmaxState y) { return mergeSoftmax(b, x, y); });
      storeState(b, s, result, head, d, dim);
    });
    return;
  }
  Type element = type.getElementType();
  if (element.isF32()) { // as many at a time as one load moves
    int64_t width = wordFor(elements * 4) / 4;
    Type word = width == 1 ? element : Type(VectorType::get({width}, element));
    forEachAhead(
        tid, threads, elements / width, wordsAhead(n),
        [&](Value i) { return wordsOf(bases, b.mul(i, 4 * width), word); },
        [&](Value i, Values words) {
          b.store(mergeWords(op, words), b.offset(result, b.mul(i, 4 * width)));
        });
    return;
  }
  forEach(elements, [&](Value i) {
    Value at = b.mul(i, type.getElementBytes());
    auto leaf = [&](int64_t w) { return b.toF32(b.load(element, b.offset(bases[w], at))); };
    auto merge = [&](Value x, Value y) { return kind == StateKind::Max ? b.fmax(x, y) : b.fadd(x, y); };
    b.store(b.fromF32(mergeTree<Value>(n, leaf, merge), element), b.offset(result, at));
  });
}
