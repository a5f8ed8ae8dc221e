//===- LowerExchangeButterfly.cpp - Exchanges in log2 N rounds -------------------------===//
//
// In round r the partner is the CTA whose coordinate differs in bit r. Merges
// are symmetric, so partners get the same bits, and the lowest bit comes first,
// so sums have the order of the left-balanced tree.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

/// Stores `bytes`, word i from the address `from(i)`, at `to` of the partner of round `r`, and says so.
void KernelLowering::sendToPartner(ExchangeOp op, int64_t r, int64_t bytes, function_ref<Value(Value)> from,
                                   Value to) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value x = b.i32(int64_t(1) << r);
  auto send = [&] {
    waitForPeersToFinish(op);
    Value target = peerAddress(op, to, x);
    forEachAhead(
        tid, threads, bytes / e.word, kWordsAhead,
        [&](Value i) -> Values { return {b.load(wordType(b, e.word), from(i))}; },
        [&](Value i, Values words) { b.store(words[0], b.offset(target, b.mul(i, e.word))); });
  };
  inSenders(e, bytes, send, [&] { b.ifThen(b.eq(lane, 0), [&] { arriveAtPeer(op, e.full[r], x); }); });
}

/// After round r a CTA holds the parts of the 2^(r+1) CTAs that share its higher coordinate bits.
void KernelLowering::butterflyGather(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value me = coordinate(op.getAxis()), mine = placeOfBlock(op);
  auto send = [&] { // round 0: this CTA's part, here and to the partner
    waitForPeersToFinish(op);
    Values targets = {mine, peerAddress(op, mine, b.i32(1))};
    sendWords(op, 0, targets, {});
  };
  inSenders(e, e.blockBytes(), send,
            [&] { b.ifThen(b.lt(lane, 2), [&] { arriveAtPeer(op, e.full[0], lane); }); });
  waitRound(op, 0);
  for (int64_t r = 1; r < e.rounds; ++r) {
    Value first = b.mul(b.andI(me, ~((int64_t(1) << r) - 1)), e.blockBytes());
    Value held = b.offset(bufferOf(op.getResult()), first);
    sendToPartner(
        op, r, e.blockBytes() << r, [&](Value i) { return b.offset(held, b.mul(i, e.word)); }, held);
    waitRound(op, r);
  }
}

void KernelLowering::butterflyReduce(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value current = bufferOf(op.getTile());
  for (int64_t r = 0; r < e.rounds; ++r) {
    Value receive = b.offset(shared, e.receives[r]), next = b.offset(shared, e.steps[r]);
    sendToPartner(
        op, r, e.blockBytes(), [&](Value i) { return b.offset(current, b.mul(i, e.word)); }, receive);
    waitRound(op, r);
    mergePayloads(op, {current, receive}, next, localElements(func, op.getResult().getType()));
    if (r + 1 < e.rounds)
      sync();
    current = next;
  }
}

/// Recursive halving. Before round r a CTA holds the blocks of the workers that share its lowest r bits, in
/// order; those whose bit r is the partner's go to the partner.
void KernelLowering::butterflyReduceScatter(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  int64_t block = e.blockBytes(), words = block / e.word;
  Value me = coordinate(op.getAxis()), current = bufferOf(op.getTile());
  for (int64_t r = 0; r < e.rounds; ++r) {
    Value receive = b.offset(shared, e.receives[r]), next = b.offset(shared, e.steps[r]);
    Value bit = b.andI(b.shr(me, r), 1), other = b.xorI(bit, 1);
    auto pair = [&](Value k, Value which) { // block `which` of pair k
      return b.offset(current, b.mul(b.add(b.mul(k, 2), which), block));
    };
    sendToPartner(
        op, r, e.roundBytes(op.getKind(), r),
        [&](Value i) { return b.offset(pair(b.div(i, words), other), b.mul(b.rem(i, words), e.word)); },
        receive);
    waitRound(op, r);
    for (int64_t k = 0; k < e.workers >> (r + 1); ++k)
      mergePayloads(op, {pair(b.i32(k), bit), b.offset(receive, k * block)}, b.offset(next, k * block),
                    localElements(func, op.getResult().getType()));
    if (r + 1 < e.rounds)
      sync();
    current = next;
  }
}
