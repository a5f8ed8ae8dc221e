//===- KernelExchangeLayout.cpp - Barriers and buffers of exchanges -----------===//
//
// Part of KernelLayout. Peers write receive buffers, and the results of gathers,
// at any time, so nothing shares their memory.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/KernelLayout.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc::kernel;

int64_t cfc::kernel::wordFor(int64_t bytes) {
  for (int64_t word : {16, 8, 4, 2})
    if (bytes % word == 0)
      return word;
  return 1;
}

int64_t ExchangeBuffers::senders(int64_t warps, int64_t bytes) const {
  return std::min<int64_t>(warps, llvm::divideCeil(bytes / word, 32));
}

int64_t ExchangeBuffers::copyWarps(int64_t warps) const {
  return std::min(warps, blockBytes() / piece * (peerOffset ? workers - 1 : 1));
}

/// Bytes of a bulk copy: a part of a run, so long that a copy is worth it, so short that all warps have some
/// and each sends the first soon.
static int64_t pieceBytes(const ExchangeBuffers &e, int64_t warps) {
  constexpr int64_t kLeast = 512, kMost = 4096;
  int64_t run = e.rows == 1 || e.targetStride == e.rowBytes ? e.blockBytes() : e.rowBytes;
  int64_t pieces =
      std::max<int64_t>({int64_t(llvm::divideCeil(run, kMost)), std::min(run / kLeast, warps), 1});
  while (run % (16 * pieces))
    --pieces;
  return run / pieces;
}

/// The block that a worker sends to another, and where it lies on both sides.
static void describeBlock(FuncOp func, ExchangeOp op, ExchangeBuffers &e) {
  TileType from = op.getTile().getType();
  int64_t bytes = localElements(func, from) * from.getElementBytes();
  e.rowBytes = bytes;
  e.slot = bytes;
  if (op.merges() && op.sendsParts())
    e.rowBytes = e.peerOffset = bytes / e.workers;
  if (op.merges())
    e.slot = llvm::alignTo(e.rowBytes, 16);
  if (op.getKind() == ExchangeKind::AllToAll) {
    int64_t rowBytes = from.getShape()[1] * from.getElementBytes();
    bool toColumns = stateOver(from.getStates(), op.getAxis())->getDim() == 0;
    e.rows = from.getShape()[0] / e.workers;
    e.rowBytes = rowBytes / e.workers;
    e.sourceStride = toColumns ? rowBytes : e.rowBytes;
    e.targetStride = toColumns ? e.rowBytes : rowBytes;
    e.peerOffset = toColumns ? e.rowBytes : e.blockBytes();
    e.slot = toColumns ? e.blockBytes() : e.rowBytes;
  }
  e.word = wordFor(e.rowBytes);
}

int64_t KernelLayout::newBarrier(int64_t arrivals) {
  int64_t at = sharedBytes;
  sharedBytes += 8;
  barriers.push_back({at, arrivals});
  return at;
}

/// All exchanges over an axis in a loop share one: peers say once a round that they are done with all of it.
int64_t KernelLayout::emptyBarrier(ExchangeOp op, int64_t workers) {
  Operation *loop = op->getParentOfType<ForItemsOp>();
  if (!loop)
    return -1;
  auto [it, isNew] = empties.try_emplace({loop, op.getAxisAttr()}, 0);
  if (isNew)
    it->second = newBarrier(workers - 1);
  return it->second;
}

/// Arrivals that end round `r`.
static int64_t arrivals(ExchangeOp op, const ExchangeBuffers &e, int64_t warps, int64_t r) {
  switch (op.getAlgorithm()) {
  case Algorithm::Push: // of every warp that stores; where nothing is merged, this CTA's too
    return e.senders(warps, e.blockBytes()) * (op.merges() ? e.workers - 1 : e.workers);
  case Algorithm::Butterfly:
    // The first round of a gather also stores this CTA's own part.
    return e.senders(warps, e.roundBytes(op.getKind(), r)) * (op.merges() || r ? 1 : 2);
  case Algorithm::Bulk: // of every warp that copies; one says how many bytes arrive
    return e.copyWarps(warps);
  default: // one thread says how many bytes arrive
    return 1;
  }
}

/// Barriers of an exchange; one over a single worker needs none.
void KernelLayout::placeExchange(FuncOp func, ExchangeOp op) {
  ExchangeBuffers e;
  e.workers = func.axis(op.getAxis()).getSize();
  describeBlock(func, op, e);
  if (op.getAlgorithm() == Algorithm::Bulk)
    e.piece = pieceBytes(e, func.consumerWarps());
  bool butterfly = op.getAlgorithm() == Algorithm::Butterfly;
  e.rounds = butterfly ? llvm::Log2_64(e.workers) : op.getAlgorithm() == Algorithm::Scatter ? 2 : 1;
  if (e.workers == 1)
    e.rounds = 0;
  for (int64_t r = 0; r < e.rounds; ++r)
    e.full.push_back(newBarrier(arrivals(op, e, func.consumerWarps(), r)));
  if (e.workers > 1) {
    e.empty = emptyBarrier(op, e.workers);
    copiesToPeers |= op.getAlgorithm() == Algorithm::Bulk;
  }
  exchanges[op] = e;
}

void KernelLayout::placeExchangeBuffers(FuncOp func, ExchangeOp op) {
  ExchangeBuffers &e = exchanges[op];
  TileType to = op.getResult().getType();
  tiles[op.getResult()] = allocate(localElements(func, to) * to.getElementBytes());
  bool butterfly = op.getAlgorithm() == Algorithm::Butterfly;
  if (op.getAlgorithm() == Algorithm::Bulk && e.peerOffset)
    e.staging = allocate(e.workers * e.blockBytes());
  if (op.merges() && !butterfly)
    e.receive = allocate(e.slot * e.workers);
  if (!op.merges() || !butterfly)
    return;
  for (int64_t r = 0; r < e.rounds; ++r) {
    int64_t bytes = e.roundBytes(op.getKind(), r);
    e.receives.push_back(allocate(bytes));
    e.steps.push_back(r + 1 < e.rounds ? allocate(bytes) : tiles.lookup(op.getResult()));
  }
}
