//===- LowerExchange.cpp - Exchanges over an axis of a cluster -----------------------===//
//
// Blocks are pushed into the peers' shared memory; an mbarrier of each CTA
// counts what has arrived. Peers on an axis are named by xor: x = 0 … N - 1,
// where 0 is this CTA. In a loop the buffers are used again, so a CTA pushes
// only once its peers have said that they are done with the last round.
//
// The way from the first store to the last wait is kept short: each warp that
// has something to send arrives for itself, so warps do not wait for each other
// before, and a small payload is one warp's.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

static simt::PtrType clusterPtr(SimtBuilder &b) {
  return simt::PtrType::get(b.getContext(), simt::Space::Cluster);
}

LogicalResult KernelLowering::lowerExchange(ExchangeOp op) {
  if (layout.exchange(op).workers == 1)
    return success(); // its result is its operand's buffer
  switch (op.getAlgorithm()) {
  case Algorithm::Butterfly:
    op.getKind() == ExchangeKind::Gather   ? butterflyGather(op)
    : op.getKind() == ExchangeKind::Reduce ? butterflyReduce(op)
                                           : butterflyReduceScatter(op);
    break;
  case Algorithm::Bulk:
    waitForPeersToFinish(op);
    bulkBlocks(op);
    break;
  case Algorithm::Scatter:
    expectBytes(layout.exchange(op).full[1], layout.exchange(op).workers * layout.exchange(op).blockBytes());
    pushBlocks(op);
    sendMerged(op);
    return success();
  default:
    pushBlocks(op);
  }
  // What was not merged came behind the barrier on which every thread has waited, this CTA's part too.
  if (!op.merges())
    return success();
  if (op.getAlgorithm() != Algorithm::Butterfly)
    mergeReceived(op);
  sync();
  return success();
}

//===-- Barriers -------------------------------------------------------------------===//

/// Threads for which nobody waits before this round ends must not look: peers may be done with it, and say
/// so, before they have, and they would then wait for the next one. So only warps that send do, together.
void KernelLowering::waitForPeersToFinish(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  if (e.empty < 0)
    return;
  // Round 0 passes at once: a fresh barrier counts as having completed parity 1.
  Value parity = b.xorI(b.andI(round, 1), 1);
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cluster, b.offset(shared, e.empty), parity);
}

/// At the end of a round that is not the last, behind a barrier of the consumers: peers may push again.
void KernelLowering::tellPeersOfUse(Block &body, Value more) {
  llvm::SmallSet<int64_t, 4> told;
  body.walk([&](ExchangeOp op) {
    const ExchangeBuffers &e = layout.exchange(op);
    if (e.empty < 0 || !told.insert(e.empty).second)
      return;
    Value isPeer = b.andI(b.ge(tid, 1), b.lt(tid, e.workers));
    b.ifThen(b.andI(more, isPeer), [&] { arriveAtPeer(op, e.empty, tid); });
  });
}

Value KernelLowering::peerAddress(ExchangeOp op, Value at, Value x) {
  return b.create<simt::MapRankOp>(clusterPtr(b), at, peerRank(op.getAxis(), x));
}

/// What the thread, and the warp before its last syncwarp, wrote is released to peer x.
void KernelLowering::arriveAtPeer(ExchangeOp op, int64_t barrier, Value x) {
  b.create<simt::MbarrierArriveOp>(simt::Scope::Cluster, peerAddress(op, b.offset(shared, barrier), x));
}

void KernelLowering::waitRound(ExchangeOp op, int64_t r) {
  Value barrier = b.offset(shared, layout.exchange(op).full[r]);
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cluster, barrier, b.andI(round, 1));
}

void KernelLowering::expectBytes(int64_t barrier, int64_t bytes) {
  b.ifThen(b.eq(tid, 0), [&] { b.create<simt::MbarrierExpectOp>(b.offset(shared, barrier), b.i32(bytes)); });
}

void KernelLowering::inSenders(const ExchangeBuffers &e, int64_t bytes, function_ref<void()> send,
                               function_ref<void()> arrive) {
  int64_t senders = e.senders(warps, bytes);
  auto run = [&] {
    send();
    if (!arrive)
      return;
    b.create<simt::SyncWarpOp>();
    arrive();
  };
  if (senders == warps)
    run();
  else
    b.ifThen(b.lt(warp, senders), run);
}

//===-- Push and async -----------------------------------------------------------------===//

/// Where this worker's block lies in its own CTA, and in every peer.
Value KernelLowering::placeOfBlock(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value base = op.merges() ? b.offset(shared, e.receive) : bufferOf(op.getResult());
  return b.offset(base, b.mul(coordinate(op.getAxis()), e.slot));
}

/// Stores word `i` of the block for worker (me xor x) at `targets[x - first]`, for all x from `first` on;
/// with `barriers` by stores that count there.
void KernelLowering::sendWord(ExchangeOp op, Value i, int64_t first, ArrayRef<Value> targets,
                              ArrayRef<Value> barriers) {
  const ExchangeBuffers &e = layout.exchange(op);
  int64_t words = e.rowBytes / e.word;
  Value row = e.rows == 1 ? b.i32(0) : b.div(i, words);
  Value column = b.mul(e.rows == 1 ? i : b.rem(i, words), e.word);
  Value from = b.offset(bufferOf(op.getTile()), b.add(b.mul(row, e.sourceStride), column));
  Value at = b.add(b.mul(row, e.targetStride), column);
  auto load = [&](Value address) { return b.load(wordType(b, e.word), address); };
  Values data; // all loads ahead of the stores
  for (size_t k = 0; k < (e.peerOffset ? targets.size() : 1); ++k) {
    Value worker = b.xorI(coordinate(op.getAxis()), first + k);
    data.push_back(load(e.peerOffset ? b.offset(from, b.mul(worker, e.peerOffset)) : from));
  }
  for (auto [k, target] : llvm::enumerate(targets)) {
    Value word = data[e.peerOffset ? k : 0], address = b.offset(target, at);
    if (barriers.empty())
      b.store(word, address);
    else
      b.create<simt::StoreAsyncOp>(word, address, barriers[k]);
  }
}

/// Each word goes to all peers; where nothing is merged also to its place here.
void KernelLowering::pushBlocks(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  bool async = op.getAlgorithm() == Algorithm::Async || op.getAlgorithm() == Algorithm::Scatter;
  int64_t first = op.merges() ? 1 : 0;
  Value place = placeOfBlock(op), barrier = b.offset(shared, e.full[0]);
  if (async)
    expectBytes(e.full[0], (e.workers - first) * e.blockBytes());
  auto send = [&] {
    waitForPeersToFinish(op);
    if (async && e.empty >= 0)
      b.create<simt::SyncWarpOp>(); // a lane without a word of its own looks in time too
    Values targets, barriers;
    for (int64_t x = first; x < e.workers; ++x) {
      targets.push_back(x || async ? peerAddress(op, place, b.i32(x)) : place);
      if (async)
        barriers.push_back(peerAddress(op, barrier, b.i32(x)));
    }
    forEach(e.blockBytes() / e.word, [&](Value i) { sendWord(op, i, first, targets, barriers); });
  };
  auto arrive = [&] {
    b.ifThen(b.andI(b.ge(lane, first), b.lt(lane, e.workers)), [&] { arriveAtPeer(op, e.full[0], lane); });
  };
  if (async)
    inSenders(e, e.blockBytes(), send, nullptr);
  else
    inSenders(e, e.blockBytes(), send, arrive);
  waitRound(op, 0);
}

//===-- Bulk ---------------------------------------------------------------------------===//

/// Copies the block for `worker` to `to`, its rows `stride` bytes apart.
void KernelLowering::copyBlock(ExchangeOp op, Value worker, Value to, int64_t stride) {
  const ExchangeBuffers &e = layout.exchange(op);
  int64_t words = e.rowBytes / e.word;
  Value from = b.offset(bufferOf(op.getTile()), b.mul(worker, e.peerOffset));
  forEach(e.blockBytes() / e.word, [&](Value i) {
    Value row = e.rows == 1 ? b.i32(0) : b.div(i, words);
    Value column = b.mul(e.rows == 1 ? i : b.rem(i, words), e.word);
    Value data = b.load(wordType(b, e.word), b.offset(from, b.add(b.mul(row, e.sourceStride), column)));
    b.store(data, b.offset(to, b.add(b.mul(row, stride), column)));
  });
}

/// One round of bulk copies. They read what is written again only when all peers have got it: this worker's
/// own place in the result or among the payloads, or a staging buffer where each peer gets another block.
void KernelLowering::bulkBlocks(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value place = placeOfBlock(op), barrier = b.offset(shared, e.full[0]), me = coordinate(op.getAxis());
  copyBlock(op, me, place, e.targetStride);
  if (e.staging >= 0)
    for (int64_t x = 1; x < e.workers; ++x) {
      Value worker = b.xorI(me, x);
      copyBlock(op, worker, b.offset(b.offset(shared, e.staging), b.mul(worker, e.blockBytes())), e.rowBytes);
    }
  b.create<simt::FenceProxyAsyncOp>();
  sync();
  expectBytes(e.full[0], (e.workers - 1) * e.blockBytes());
  int64_t runs = e.targetStride == e.rowBytes ? 1 : e.rows, bytes = e.blockBytes() / runs;
  forEach((e.workers - 1) * runs, [&](Value i) {
    Value x = b.add(b.div(i, runs), 1), row = b.rem(i, runs), target = b.mul(row, e.targetStride);
    Value from = b.offset(place, target);
    if (e.staging >= 0) {
      Value block = b.add(b.mul(b.xorI(me, x), e.blockBytes()), b.mul(row, bytes));
      from = b.offset(b.offset(shared, e.staging), block);
    }
    b.create<simt::BulkPushOp>(b.offset(peerAddress(op, place, x), target), from, b.i32(bytes),
                               peerAddress(op, barrier, x));
  });
  waitRound(op, 0);
}
