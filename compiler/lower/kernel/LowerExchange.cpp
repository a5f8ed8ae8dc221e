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

/// Offset of byte `at` of a block whose rows lie `stride` bytes apart.
Value KernelLowering::inRows(const ExchangeBuffers &e, Value at, int64_t stride) {
  if (e.rows == 1 || stride == e.rowBytes)
    return at;
  return b.add(b.mul(b.div(at, e.rowBytes), stride), b.rem(at, e.rowBytes));
}

/// Word `i` of the blocks for the workers (me xor x), x = first … first + count - 1; one where all get the
/// same.
KernelLowering::Values KernelLowering::wordsForPeers(ExchangeOp op, Value i, int64_t first, size_t count) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value from = b.offset(bufferOf(op.getTile()), inRows(e, b.mul(i, e.word), e.sourceStride));
  Values words;
  for (size_t k = 0; k < (e.peerOffset ? count : 1); ++k) {
    Value worker = b.xorI(coordinate(op.getAxis()), first + k);
    words.push_back(
        b.load(wordType(b, e.word), e.peerOffset ? b.offset(from, b.mul(worker, e.peerOffset)) : from));
  }
  return words;
}

/// Stores the words of the block for worker (me xor x) at `targets[x - first]`, for all x from `first` on;
/// with `barriers` by stores that count there.
void KernelLowering::sendWords(ExchangeOp op, int64_t first, ArrayRef<Value> targets,
                               ArrayRef<Value> barriers) {
  const ExchangeBuffers &e = layout.exchange(op);
  auto load = [&](Value i) { return wordsForPeers(op, i, first, targets.size()); };
  auto store = [&](Value i, Values words) {
    Value at = inRows(e, b.mul(i, e.word), e.targetStride);
    for (auto [k, target] : llvm::enumerate(targets)) {
      Value word = words[e.peerOffset ? k : 0], address = b.offset(target, at);
      if (barriers.empty())
        b.store(word, address);
      else
        b.create<simt::StoreAsyncOp>(word, address, barriers[k]);
    }
  };
  int64_t batch = e.peerOffset ? std::max<int64_t>(1, kWordsAhead / int64_t(targets.size())) : kWordsAhead;
  forEachAhead(tid, threads, e.blockBytes() / e.word, batch, load, store);
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
    sendWords(op, first, targets, barriers);
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

// Copies read what is written again only when all peers have got it: this worker's own place in the result or
// among the payloads, or a staging buffer where each peer gets another block. Blocks go there a piece at a
// time: a warp sends what it has copied while others still copy.

/// Copies a piece by this warp, 16 bytes from from(i) for each i, and makes it ready to be sent.
void KernelLowering::copyPiece(ExchangeOp op, function_ref<Value(Value)> from, Value to) {
  const ExchangeBuffers &e = layout.exchange(op);
  Type word = wordType(b, e.word);
  forEachAhead(
      lane, 32, e.piece / e.word, kWordsAhead, [&](Value i) -> Values { return {b.load(word, from(i))}; },
      [&](Value i, Values words) { b.store(words[0], b.offset(to, b.mul(i, e.word))); });
  b.create<simt::FenceProxyAsyncOp>();
  b.create<simt::SyncWarpOp>();
}

/// Sends a piece to the byte `at` of this worker's block in peer x.
void KernelLowering::bulkPush(ExchangeOp op, Value from, Value x, Value at) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value target = b.offset(peerAddress(op, placeOfBlock(op), x), inRows(e, at, e.targetStride));
  b.create<simt::BulkPushOp>(target, from, b.i32(e.piece), peerAddress(op, b.offset(shared, e.full[0]), x));
}

void KernelLowering::bulkPieceToAll(ExchangeOp op, Value at) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value from = b.offset(bufferOf(op.getTile()), at), place = b.offset(placeOfBlock(op), at);
  copyPiece(op, [&](Value i) { return b.offset(from, b.mul(i, e.word)); }, place);
  b.ifThen(b.andI(b.ge(lane, 1), b.lt(lane, e.workers)), [&] { bulkPush(op, place, lane, at); });
}

/// The piece for worker (me xor x); 0 is this one, which only copies.
void KernelLowering::bulkPieceToOne(ExchangeOp op, Value x, Value at) {
  const ExchangeBuffers &e = layout.exchange(op);
  Value worker = b.xorI(coordinate(op.getAxis()), x);
  Value block = b.offset(bufferOf(op.getTile()), b.mul(worker, e.peerOffset));
  Value staged = b.add(b.i32(e.staging), b.add(b.mul(worker, e.blockBytes()), at));
  Value own = b.offset(placeOfBlock(op), inRows(e, at, e.targetStride));
  Value to = b.select(b.eq(x, 0), own, b.offset(shared, staged));
  copyPiece(
      op, [&](Value i) { return b.offset(block, inRows(e, b.add(at, b.mul(i, e.word)), e.sourceStride)); },
      to);
  b.ifThen(b.andI(b.eq(lane, 0), b.ne(x, 0)), [&] { bulkPush(op, to, x, at); });
}

/// One round of bulk copies.
void KernelLowering::bulkBlocks(ExchangeOp op) {
  const ExchangeBuffers &e = layout.exchange(op);
  int64_t pieces = e.blockBytes() / e.piece, senders = e.copyWarps(warps),
          count = e.peerOffset ? e.workers * pieces : pieces;
  auto send =
      [&](Value i) { // this worker's own pieces come last, so that each of the warps has one for a peer
        if (!e.peerOffset)
          return bulkPieceToAll(op, b.mul(i, e.piece));
        Value x = b.andI(b.add(b.div(i, pieces), 1), e.workers - 1);
        bulkPieceToOne(op, x, b.mul(b.rem(i, pieces), e.piece));
      };
  auto run = [&] {
    waitForPeersToFinish(op);
    if (count == senders)
      send(warp);
    else
      b.loop(warp, b.i32(count), b.i32(senders), {}, [&](Value i, ValueRange) -> Values {
        send(i);
        return {};
      });
    // What this warp has copied here counts too.
    b.ifThen(b.eq(lane, 0), [&] {
      expectBytes(e.full[0], (e.workers - 1) * e.blockBytes());
      b.ifThen(b.ne(warp, 0),
               [&] { b.create<simt::MbarrierArriveOp>(simt::Scope::Cta, b.offset(shared, e.full[0])); });
    });
  };
  if (senders == warps)
    run();
  else
    b.ifThen(b.lt(warp, senders), run);
  waitRound(op, 0);
}
