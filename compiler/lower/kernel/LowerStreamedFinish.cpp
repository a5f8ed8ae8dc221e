//===- LowerStreamedFinish.cpp - Grid sums of a matmul's rows ---------------------===//
//
// The rows of a CTA are taken in pieces, and the CTA that arrives last at a piece finishes it.
// Items begin with different pieces, so what is left to do when the last one is
// ready is spread over CTAs that run at the same time. The body runs on four
// elements a thread, in registers.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

Value KernelLowering::itemOf(Operation *op) {
  auto loop = op->getParentOfType<ForItemsOp>();
  return loop ? item(loop.getItem()) : b.i32(0);
}

KernelLowering::Values KernelLowering::overRows(const MatmulTiling &t, int64_t pieces, Value item,
                                                Value first, ValueRange inits,
                                                function_ref<Values(Value, ValueRange)> body,
                                                function_ref<Values(Value, ValueRange)> ended) {
  Value step = b.i32(kSetRows * sets);
  int64_t rows = t.rows / pieces;
  auto onePiece = [&](Value p, ValueRange args) -> Values {
    Value piece = pieces > 1 ? b.rem(b.add(p, item), pieces) : p;
    Value base = b.mul(piece, rows);
    Values in = b.loop(b.add(base, first), b.add(base, b.i32(rows)), step, args, body);
    return ended(piece, in);
  };
  if (pieces == 1)
    return onePiece(b.i32(0), inits);
  return b.loop(b.i32(0), b.i32(pieces), b.i32(1), inits, onePiece);
}

Value KernelLowering::partialAt(FinishOp op, Value item, Value row) {
  int64_t whole = op.getTile().getType().getNumElements();
  Value at = b.add(b.mul(b.wide(item), whole * 4), b.wide(b.mul(row, 4)));
  return b.offset(b.offset(workspace, b.i64(op.getPartials())), at);
}

/// Leaves the partial sums of a piece in the workspace. Stores between the arrivals of the stream would hold
/// those up.
void KernelLowering::storePartials(FinishOp op, Value piece) {
  TileType type = op.getTile().getType();
  int64_t rows = localElements(func, type) / op.getPieces();
  auto words = VectorType::get({4}, b.getI32Type());
  Value first = b.mul(piece, rows);
  Value to = partialAt(op, itemOf(op), b.add(partOffset(type), first));
  Value from = b.offset(bufferOf(op.getTile()), b.mul(first, 4));
  forEach(rows / kFour,
          [&](Value i) { b.store(b.load(words, b.offset(from, b.mul(i, 16))), b.offset(to, b.mul(i, 16))); });
}

/// Where a piece's arrivals are counted.
Value KernelLowering::pieceCounter(FinishOp op, Value piece) {
  Value counter = b.mul(b.add(b.mul(rank, op.getPieces()), piece), 4);
  return b.offset(workspace, b.add(b.i64(op.getCounters()), b.wide(counter)));
}

/// The pieces for which this CTA was the last, as bits, the pending one too; of thread 0.
Value KernelLowering::lastPieces(FinishOp op, const Arrivals &a) {
  Value wasLast = b.eq(a.pending, func.axis(op.getAxis()).getSize() - 1);
  return b.orI(a.last, b.select(wasLast, a.pendingBit, b.i32(0)));
}

KernelLowering::Arrivals KernelLowering::arriveAtPiece(FinishOp op, Value piece, Arrivals before) {
  sync(); // all warps have their rows
  storePartials(op, piece);
  sync();
  Value last = lastPieces(op, before);
  // Its result is looked at only behind the next piece: the warp does not wait for it.
  Value counter = pieceCounter(op, piece);
  Value pending = b.ifElse(
      b.getI32Type(), b.eq(tid, 0),
      [&]() -> Values {
        return {b.create<simt::AtomicOp>(b.getI32Type(), simt::Rmw::Add, simt::Ordering::Release,
                                         simt::Scope::Gpu, counter, b.i32(1))
                    .getResult()};
      },
      [&]() -> Values { return {b.i32(-1)}; })[0];
  return {last, pending, b.createOrFold<arith::ShLIOp>(b.loc, b.i32(1), piece)};
}

Value KernelLowering::piecesToFinish(FinishOp op, Arrivals a) {
  Value flag = b.offset(shared, layout.flag);
  b.ifThen(b.eq(tid, 0), [&] { // the barriers pass on what it releases and acquires
    Value last = lastPieces(op, a);
    b.ifThen(b.ne(last, 0), [&] { b.create<simt::FenceOp>(simt::Scope::Gpu); });
    b.store(last, flag);
  });
  sync();
  return b.load(b.getI32Type(), flag);
}

LogicalResult KernelLowering::lowerStreamedFinish(FinishOp op) {
  if (op.getFinishers())
    return lowerWaitingFinish(op);
  Value last = piecesToFinish(op, arrivals.lookup(op));
  int64_t local = localElements(func, op.getTile().getType()), rows = local / op.getPieces();
  b.loop(b.i32(0), b.i32(op.getPieces()), b.i32(1), {}, [&](Value piece, ValueRange) -> Values {
    Value bit = b.andI(b.createOrFold<arith::ShRUIOp>(b.loc, last, piece), 1);
    b.ifThen(b.ne(bit, 0), [&] {
      Value base = b.add(b.mul(piece, rows), partOffset(op.getTile().getType()));
      forEach(rows / kFour, [&](Value i) {
        Value index = b.add(base, b.mul(i, kFour));
        auto known = readElements(op, index); // these loads too are on their way together
        finishElements(op, index, known, mergedPartials(op, index));
      });
      b.ifThen(b.eq(tid, 0), [&] { b.store(b.i32(0), pieceCounter(op, piece)); });
    });
    return {};
  });
  sync(); // the flag is free again
  return success();
}

/// The sum over all items of four elements from `index` on.
Value KernelLowering::mergedPartials(FinishOp op, Value index) {
  int64_t whole = op.getTile().getType().getNumElements(), n = func.axis(op.getAxis()).getSize();
  auto type = VectorType::get({kFour}, b.getF32Type());
  Value first = partialAt(op, b.i32(0), index);
  return mergeItems(
      n, type, [&](Value k) { return b.load(type, b.offset(first, b.mul(b.wide(k), whole * 4))); },
      [&](Value x, Value y) { return b.fadd(x, y); });
}

/// Four elements of what the body reads, from `index` on of the whole value.
DenseMap<Value, KernelLowering::Values> KernelLowering::readElements(FinishOp op, Value index) {
  DenseMap<Value, Values> known;
  for (auto read : op.getBody().front().getOps<ReadOp>()) {
    b.loc = read.getLoc();
    Type element = cast<MemRefType>(read.getMemory().getType()).getElementType();
    auto words = VectorType::get({element.getIntOrFloatBitWidth() * kFour / 32}, b.getI32Type());
    known[read.getResult()] = chunkElements(element, {b.load(words, addressOf(read.getMemory(), index))});
    roundElements(known[read.getResult()], read.getResult());
  }
  b.loc = op.getLoc();
  return known;
}

Value KernelLowering::addressOf(Value argument, Value index) {
  Type element = cast<MemRefType>(argument.getType()).getElementType();
  return b.offset(memory.lookup(argument), b.wide(b.mul(index, element.getIntOrFloatBitWidth() / 8)));
}

void KernelLowering::roundElements(Values &values, Value as) {
  for (Value &v : values)
    v = b.toF32(b.fromF32(v, cast<TileType>(as.getType()).getElementType()));
}

/// Runs the body on four elements from `index` on, of the whole value, whose sum is `sum` (a vector).
void KernelLowering::finishElements(FinishOp op, Value index, DenseMap<Value, Values> known, Value sum) {
  Block &body = op.getBody().front();
  for (int64_t i = 0; i < kFour; ++i)
    known[body.getArgument(0)].push_back(b.create<vector::ExtractOp>(sum, i));
  for (Operation &inner : body) {
    b.loc = inner.getLoc();
    if (auto cast = dyn_cast<CastOp>(inner)) {
      known[cast.getResult()] = Values(known[cast.getTile()]);
      roundElements(known[cast.getResult()], cast.getResult());
    } else if (auto pair = dyn_cast<ElementwiseOp>(inner)) {
      Values values;
      for (auto [x, y] : llvm::zip(known[pair.getA()], known[pair.getB()]))
        values.push_back(combine(pair, x, y));
      roundElements(values, pair.getResult());
      known[pair.getResult()] = values;
    } else if (auto write = dyn_cast<WriteOp>(inner)) {
      storeChunk(mlir::cast<MemRefType>(write.getMemory().getType()).getElementType(), known[write.getTile()],
                 addressOf(write.getMemory(), index));
    }
  }
  b.loc = op.getLoc();
}
