//===- LowerExchange.cpp - Exchanges over an axis of a cluster -----------------------===//
//
// Payloads are pushed into the peers' shared memory; an mbarrier of each CTA
// counts what has arrived. Peers on an axis are named by xor: x = 1 … N - 1.
// In a loop the buffers are used again, so a CTA pushes only once its peers
// have said that they are done with the last round.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

LogicalResult KernelLowering::lowerExchange(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  if (e.workers == 1)
    return success(); // its result is its operand's buffer
  waitForPeersToFinish(op);
  bool reduce = op.getKind() == ExchangeKind::Reduce;
  switch (op.getAlgorithm()) {
  case Algorithm::Butterfly:
    reduce ? butterflyReduce(op) : butterflyGather(op);
    break;
  case Algorithm::Bulk:
    bulkExchange(op);
    break;
  default:
    reduce ? pushReduce(op) : pushGather(op);
  }
  sync();
  return success();
}

void KernelLowering::waitForPeersToFinish(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  if (e.empty < 0)
    return;
  // Round 0 passes at once: a fresh barrier counts as having completed parity 1.
  Value parity = b.xorI(b.andI(round, 1), 1);
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cluster, b.offset(shared, e.empty), parity);
}

void KernelLowering::tellPeersOfUse(Block &body) {
  body.walk([&](ExchangeOp op) {
    if (layout.exchange(op).empty >= 0)
      arriveAtPeers(op, layout.exchange(op).empty);
  });
}

/// Thread x (1 … N - 1) arrives at peer x: what the CTA wrote before is released to it.
void KernelLowering::arriveAtPeers(ExchangeOp op, int64_t barrier) {
  int64_t n = layout.exchange(op).workers;
  b.ifThen(b.andI(b.ge(tid, 1), b.lt(tid, n)), [&] {
    Value peer = b.create<simt::MapRankOp>(simt::PtrType::get(b.getContext(), simt::Space::Cluster),
                                           b.offset(shared, barrier), peerRank(op.getAxis(), tid));
    b.create<simt::MbarrierArriveOp>(simt::Scope::Cluster, peer);
  });
}

void KernelLowering::waitRound(ExchangeOp op, int64_t r) {
  Value barrier = b.offset(shared, layout.exchange(op).full[r]);
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cluster, barrier, b.andI(round, 1));
}

/// Copies `bytes` from `from` here to `to` of this CTA and of the peers x in `peers` (0: this CTA).
void KernelLowering::copyToPeers(ExchangeOp op, Value from, Value to, int64_t bytes,
                                 ArrayRef<int64_t> peers) {
  int64_t word = wordFor(bytes);
  auto cluster = simt::PtrType::get(b.getContext(), simt::Space::Cluster);
  SmallVector<Value> bases;
  for (int64_t x : peers)
    bases.push_back(x ? b.create<simt::MapRankOp>(cluster, to, peerRank(op.getAxis(), b.i32(x))).getResult()
                      : to);
  forEach(bytes / word, [&](Value i) {
    Value at = b.mul(i, word);
    Value data = b.load(wordType(b, word), b.offset(from, at));
    for (Value base : bases)
      b.store(data, b.offset(base, at));
  });
}

void KernelLowering::pushGather(ExchangeOp op) {
  int64_t n = layout.exchange(op).workers;
  int64_t bytes = localElements(func, op.getTile().getType()) * op.getTile().getType().getElementBytes();
  Value to = b.offset(bufferOf(op.getResult()), b.mul(coordinate(op.getAxis()), bytes));
  copyToPeers(op, bufferOf(op.getTile()), to, bytes, llvm::to_vector(llvm::seq<int64_t>(0, n)));
  sync();
  arriveAtPeers(op, layout.exchange(op).full[0]);
  waitRound(op, 0);
}

/// After round r a CTA holds the parts of the 2^(r+1) CTAs that share its higher coordinate bits.
void KernelLowering::butterflyGather(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  int64_t bytes = localElements(func, op.getTile().getType()) * op.getTile().getType().getElementBytes();
  Value result = bufferOf(op.getResult()), me = coordinate(op.getAxis());
  copyToPeers(op, bufferOf(op.getTile()), b.offset(result, b.mul(me, bytes)), bytes, {0});
  for (int64_t r = 0; r < e.rounds; ++r) {
    sync();
    Value first = b.mul(b.andI(me, ~((int64_t(1) << r) - 1)), bytes);
    Value held = b.offset(result, first);
    copyToPeers(op, held, held, bytes << r, {int64_t(1) << r});
    arriveAtPartner(op, r);
    waitRound(op, r);
  }
}

/// All consumers have pushed: one thread arrives at the partner of round `r`.
void KernelLowering::arriveAtPartner(ExchangeOp op, int64_t r) {
  sync();
  b.ifThen(b.eq(tid, 0), [&] {
    Value peer = b.create<simt::MapRankOp>(simt::PtrType::get(b.getContext(), simt::Space::Cluster),
                                           b.offset(shared, layout.exchange(op).full[r]),
                                           peerRank(op.getAxis(), b.i32(int64_t(1) << r)));
    b.create<simt::MbarrierArriveOp>(simt::Scope::Cluster, peer);
  });
}

/// Payloads at `bases`, in the order of their workers, merged into `result`.
void KernelLowering::mergePayloads(ExchangeOp op, ArrayRef<Value> bases, Value result) {
  TileType type = op.getTile().getType();
  StateKind kind = stateOver(type.getStates(), op.getAxis())->getKind();
  int64_t n = bases.size();
  if (kind == StateKind::Softmax) {
    int64_t heads = type.getShape()[0], dim = type.getShape()[1] - 2;
    forEach(heads * dim, [&](Value i) {
      Value head = b.div(i, dim), d = b.rem(i, dim);
      SoftmaxState s = mergeTree<SoftmaxState>(
          n, [&](int64_t w) { return loadState(b, bases[w], head, d, dim); },
          [&](SoftmaxState x, SoftmaxState y) { return mergeSoftmax(b, x, y); });
      storeState(b, s, result, head, d, dim);
    });
    return;
  }
  int64_t bytes = type.getElementBytes();
  forEach(localElements(func, type), [&](Value i) {
    Value at = b.mul(i, bytes);
    Value sum = mergeTree<Value>(
        n, [&](int64_t w) { return b.toF32(b.load(type.getElementType(), b.offset(bases[w], at))); },
        [&](Value x, Value y) { return kind == StateKind::Max ? b.fmax(x, y) : b.fadd(x, y); });
    b.store(b.fromF32(sum, type.getElementType()), b.offset(result, at));
  });
}

/// Where payload of worker `w` lies in the receive buffer.
static int64_t receiveStride(int64_t payload) { return llvm::alignTo(payload, 16); }

void KernelLowering::pushReduce(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  int64_t bytes = localElements(func, op.getTile().getType()) * op.getTile().getType().getElementBytes();
  int64_t stride = receiveStride(bytes);
  Value receive = b.offset(shared, e.receive);
  Value mine = b.offset(receive, b.mul(coordinate(op.getAxis()), stride));
  copyToPeers(op, bufferOf(op.getTile()), mine, bytes, llvm::to_vector(llvm::seq<int64_t>(0, e.workers)));
  sync();
  arriveAtPeers(op, e.full[0]);
  waitRound(op, 0);
  SmallVector<Value> bases;
  for (int64_t w = 0; w < e.workers; ++w)
    bases.push_back(b.offset(receive, w * stride));
  mergePayloads(op, bases, bufferOf(op.getResult()));
}

void KernelLowering::butterflyReduce(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  int64_t bytes = localElements(func, op.getTile().getType()) * op.getTile().getType().getElementBytes();
  Value current = bufferOf(op.getTile());
  for (int64_t r = 0; r < e.rounds; ++r) {
    Value receive = b.offset(shared, e.receive + r * receiveStride(bytes));
    Value next = b.offset(shared, e.steps[r]);
    copyToPeers(op, current, receive, bytes, {int64_t(1) << r});
    arriveAtPartner(op, r);
    waitRound(op, r);
    // Merges are symmetric, so both partners get the same bits.
    mergePayloads(op, {current, receive}, next);
    if (r + 1 < e.rounds)
      sync();
    current = next;
  }
}

/// One round of bulk copies. They read a staging buffer, which is written again only when all have arrived.
void KernelLowering::bulkExchange(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  bool reduce = op.getKind() == ExchangeKind::Reduce;
  int64_t bytes = localElements(func, op.getTile().getType()) * op.getTile().getType().getElementBytes();
  Value base = reduce ? b.offset(shared, e.receive) : bufferOf(op.getResult());
  Value mine = b.offset(base, b.mul(coordinate(op.getAxis()), bytes));
  Value staging = b.offset(shared, e.staging), barrier = b.offset(shared, e.full[0]);
  copyToPeers(op, bufferOf(op.getTile()), staging, bytes, {0});
  copyToPeers(op, bufferOf(op.getTile()), mine, bytes, {0});
  b.create<simt::FenceProxyAsyncOp>();
  sync();
  b.ifThen(b.eq(tid, 0), [&] { b.create<simt::MbarrierExpectOp>(barrier, b.i32((e.workers - 1) * bytes)); });
  auto cluster = simt::PtrType::get(b.getContext(), simt::Space::Cluster);
  b.ifThen(b.andI(b.ge(tid, 1), b.lt(tid, e.workers)), [&] {
    Value peer = peerRank(op.getAxis(), tid);
    Value to = b.create<simt::MapRankOp>(cluster, mine, peer);
    Value done = b.create<simt::MapRankOp>(cluster, barrier, peer);
    b.create<simt::BulkPushOp>(to, staging, b.i32(bytes), done);
  });
  waitRound(op, 0);
  if (!reduce)
    return;
  SmallVector<Value> bases;
  for (int64_t w = 0; w < e.workers; ++w)
    bases.push_back(b.offset(base, w * bytes));
  mergePayloads(op, bases, bufferOf(op.getResult()));
}
