//===- KernelLayout.cpp - Where a kernel keeps what in shared memory ----------===//
//
// Barriers come first, because their offsets are fixed before anything is
// known of the tiles; the ring comes last, because it is the largest.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/KernelLayout.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc::kernel;

int64_t cfc::kernel::localElements(FuncOp func, ArrayRef<int64_t> shape, ArrayRef<StateAttr> states) {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  for (StateAttr s : states)
    if (!s.isPartial())
      n /= func.axis(s.getAxis().getValue()).getSize();
  return n;
}

int64_t cfc::kernel::localGroups(FuncOp func, KvStreamType type) {
  int64_t groups = kGroups;
  for (StateAttr s : type.getStates())
    groups /= func.axis(s.getAxis().getValue()).getSize();
  return groups;
}

/// Blocks of a tile, near `wanted`: slots must begin at the same place in every tile.
static int64_t chooseTileBlocks(int64_t wanted, int64_t slotBlocks, int64_t blocks) {
  auto fits = [&](int64_t b) { return slotBlocks % b == 0 || b % slotBlocks == 0; };
  wanted = std::min(wanted, blocks);
  for (int64_t b = wanted; b > wanted / 2; --b)
    if (fits(b))
      return b;
  for (int64_t b = wanted + 1; b <= 2 * wanted; ++b)
    if (fits(b))
      return b;
  for (int64_t b = wanted / 2; b > 1; --b)
    if (fits(b))
      return b;
  return 1;
}

FailureOr<MatmulTiling> cfc::kernel::tilingOf(StreamType type, int64_t slots, FuncOp func) {
  int64_t rows = type.getShape()[0], columns = type.getShape()[1], parts = 1;
  for (StateAttr s : type.getStates())
    (s.getDim() == 0 ? rows : columns) /= func.axis(s.getAxis().getValue()).getSize();
  parts = type.getShape()[1] / columns;

  MatmulTiling t;
  int64_t allBlocks = llvm::divideCeil(type.getShape()[1], 16);
  if (parts > 1 && (slots % parts || allBlocks % slots || type.getShape()[1] % 16))
    return failure();
  t.rows = rows;
  t.columns = columns;
  t.blocks = llvm::divideCeil(columns, 16);
  t.slotBlocks = llvm::divideCeil(allBlocks, slots);
  t.slots = llvm::divideCeil(t.blocks, t.slotBlocks);
  t.tileRows = 16 * func.consumerWarps();
  int64_t tileColumns = func.planValue("tile_columns", 128);
  t.tileBlocks = chooseTileBlocks(std::max<int64_t>(1, tileColumns / 16), t.slotBlocks, t.blocks);
  t.rowStride = t.tileBlocks * 32 + 16;
  return t;
}

int64_t KernelLayout::allocate(int64_t bytes) {
  int64_t at = sharedBytes;
  sharedBytes += llvm::alignTo(bytes, 16);
  return at;
}

/// Barriers and buffers of an exchange; gathers over one worker need none.
void KernelLayout::placeExchange(FuncOp func, ExchangeOp op) {
  ExchangeBuffers e;
  e.workers = func.axis(op.getAxis()).getSize();
  bool butterfly = op.getAlgorithm() == Algorithm::Butterfly;
  e.rounds = e.workers == 1 ? 0 : butterfly ? llvm::Log2_64(e.workers) : 1;
  for (int64_t i = 0; i < e.rounds; ++i) {
    e.full.push_back(sharedBytes);
    sharedBytes += 8;
    bool one = butterfly || op.getAlgorithm() == Algorithm::Bulk;
    barriers.push_back({e.full.back(), one ? 1 : e.workers - 1});
  }
  if (e.workers > 1 && op->getParentOfType<ForItemsOp>()) {
    e.empty = sharedBytes;
    sharedBytes += 8;
    barriers.push_back({e.empty, e.workers - 1});
  }
  exchanges[op] = e;
}

void KernelLayout::placeAttend(FuncOp func, AttendOp op) {
  TileType state = op.getResult().getType();
  int64_t bytes = state.getNumElements() * 4;
  AttendBuffers a;
  a.levels = llvm::Log2_64(localGroups(func, op.getKv().getType())) + 1;
  a.lanes = allocate(2 * kLanes * bytes);
  a.stack = allocate(a.levels * bytes);
  tiles[op.getResult()] = a.stack + (a.levels - 1) * bytes;
  attends[op] = a;
}

void KernelLayout::placeTiles(FuncOp func) {
  auto bytesOf = [&](TileType t) { return localElements(func, t) * t.getElementBytes(); };
  func.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto attend = dyn_cast<AttendOp>(op))
      return placeAttend(func, attend);
    if (auto extract = dyn_cast<ExtractOp>(op)) {
      TileType t = extract.getResult().getType();
      tiles[extract.getResult()] = tiles.lookup(extract.getTile()) + extract.getFrom() * t.getElementBytes();
      return;
    }
    if (auto finish = dyn_cast<FinishOp>(op)) {
      BlockArgument sum = finish.getBody().getArgument(0);
      tiles[sum] = allocate(bytesOf(cast<TileType>(sum.getType())));
      return;
    }
    auto exchange = dyn_cast<ExchangeOp>(op);
    if (exchange && exchanges[op].workers == 1) {
      tiles[exchange.getResult()] = tiles.lookup(exchange.getTile());
      return;
    }
    for (Value result : op->getResults())
      if (auto type = dyn_cast<TileType>(result.getType()))
        tiles[result] = allocate(bytesOf(type));
    if (!exchange)
      return;
    ExchangeBuffers &e = exchanges[op];
    bool reduce = exchange.getKind() == ExchangeKind::Reduce;
    int64_t payload = bytesOf(exchange.getTile().getType());
    if (reduce)
      e.receive = allocate(llvm::alignTo(payload, 16) * e.workers);
    if (exchange.getAlgorithm() == Algorithm::Bulk)
      e.staging = allocate(payload);
    if (reduce && exchange.getAlgorithm() == Algorithm::Butterfly) {
      for (int64_t i = 0; i + 1 < e.rounds; ++i)
        e.steps.push_back(allocate(payload));
      e.steps.push_back(tiles.lookup(exchange.getResult()));
    }
  });
}

LogicalResult KernelLayout::placeRing(FuncOp func) {
  bool failedTiling = false;
  func.walk([&](Operation *op) {
    if (auto matmul = dyn_cast<MatmulOp>(op)) {
      StreamType type = matmul.getWeights().getType();
      FailureOr<MatmulTiling> t = tilingOf(type, matmul.getSlots(), func);
      failedTiling |= failed(t);
      if (failed(t))
        matmul.emitOpError("cannot split the columns of ") << type << ": each of its " << matmul.getSlots()
                                                           << " slots must hold as many blocks of 16 columns";
      if (succeeded(t))
        slotBytes = std::max(slotBytes, t->tileBytes());
    }
    if (auto attend = dyn_cast<AttendOp>(op)) {
      KvStreamType kv = attend.getKv().getType();
      slotBytes = std::max<int64_t>(slotBytes, kSegment * kv.getDim() * 2);
    }
  });
  if (failedTiling)
    return failure();
  slotBytes = llvm::alignTo(slotBytes, 128);
  sharedBytes = llvm::alignTo(sharedBytes, 128);
  ring = sharedBytes;
  sharedBytes += stages * slotBytes;
  return success();
}

FailureOr<KernelLayout> KernelLayout::compute(FuncOp func) {
  KernelLayout layout;
  bool streams = false;
  func.walk([&](Operation *op) { streams |= isa<MatmulOp, AttendOp>(op); });
  layout.stages = streams ? func.planValue("ring_stages", 4) : 0;
  if (streams && (layout.stages < 2 || layout.stages > 64))
    return func.emitOpError("has a ring of ") << layout.stages << " stages; 2 to 64 are possible";
  layout.full = layout.sharedBytes;
  layout.empty = layout.full + 8 * layout.stages;
  layout.sharedBytes = layout.empty + 8 * layout.stages;
  func.walk([&](ExchangeOp op) { layout.placeExchange(func, op); });
  layout.flag = layout.allocate(16);
  layout.sharedBytes = llvm::alignTo(layout.sharedBytes, 16);
  layout.scratch = layout.allocate(1024);
  layout.placeTiles(func);
  if (failed(layout.placeRing(func)))
    return failure();
  return layout;
}

FailureOr<int64_t> cfc::kernel::sharedBytes(FuncOp func) {
  FailureOr<KernelLayout> layout = KernelLayout::compute(func);
  if (failed(layout))
    return failure();
  return layout->sharedBytes;
}
