//===- SimtToNvvmVector.cpp - Short vectors to the LLVM dialect -----------===//
//
// Vectors in a simt module are what one load or store moves. Only the ops that
// put them together and take them apart are lowered, for one dimension.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/SimtToNvvm.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace cfc::simt {

/// The place of one element: a constant of the op or its only operand.
static FailureOr<Value> elementIndex(Operation *op, ArrayRef<int64_t> fixed, ValueRange dynamic,
                                     Rewriter &rewriter) {
  if (fixed.size() != 1)
    return rewriter.notifyMatchFailure(op, "only one element of a one-dimensional vector is lowered");
  if (!dynamic.empty())
    return dynamic.front();
  return Value(LLVM::ConstantOp::create(rewriter, op->getLoc(), rewriter.getI64Type(), fixed.front()));
}

static LogicalResult lowerExtract(vector::ExtractOp op, vector::ExtractOp::Adaptor in, Rewriter &rewriter,
                                  const Types &) {
  FailureOr<Value> index = elementIndex(op, op.getStaticPosition(), in.getDynamicPosition(), rewriter);
  if (failed(index))
    return failure();
  rewriter.replaceOpWithNewOp<LLVM::ExtractElementOp>(op, in.getSource(), *index);
  return success();
}

static LogicalResult lowerInsert(vector::InsertOp op, vector::InsertOp::Adaptor in, Rewriter &rewriter,
                                 const Types &) {
  FailureOr<Value> index = elementIndex(op, op.getStaticPosition(), in.getDynamicPosition(), rewriter);
  if (failed(index))
    return failure();
  rewriter.replaceOpWithNewOp<LLVM::InsertElementOp>(op, in.getDest(), in.getValueToStore(), *index);
  return success();
}

static Value fromElements(Location loc, Type type, ValueRange elements, Rewriter &rewriter) {
  Value vector = LLVM::PoisonOp::create(rewriter, loc, type);
  for (auto [i, element] : llvm::enumerate(elements))
    vector = LLVM::InsertElementOp::create(rewriter, loc, vector, element, constantI32(rewriter, loc, i));
  return vector;
}

static LogicalResult lowerFromElements(vector::FromElementsOp op, vector::FromElementsOp::Adaptor in,
                                       Rewriter &rewriter, const Types &types) {
  if (op.getType().getRank() != 1)
    return failure();
  rewriter.replaceOp(op,
                     fromElements(op.getLoc(), types.convertType(op.getType()), in.getElements(), rewriter));
  return success();
}

static LogicalResult lowerToElements(vector::ToElementsOp op, vector::ToElementsOp::Adaptor in,
                                     Rewriter &rewriter, const Types &) {
  if (op.getSource().getType().getRank() != 1)
    return failure();
  SmallVector<Value> elements;
  for (unsigned i = 0; i != op.getNumResults(); ++i)
    elements.push_back(LLVM::ExtractElementOp::create(rewriter, op.getLoc(), in.getSource(),
                                                      constantI32(rewriter, op.getLoc(), i)));
  rewriter.replaceOp(op, elements);
  return success();
}

static LogicalResult lowerBitCast(vector::BitCastOp op, vector::BitCastOp::Adaptor in, Rewriter &rewriter,
                                  const Types &types) {
  if (op.getType().getRank() != 1)
    return failure();
  rewriter.replaceOpWithNewOp<LLVM::BitcastOp>(op, types.convertType(op.getType()), in.getSource());
  return success();
}

static LogicalResult lowerBroadcast(vector::BroadcastOp op, vector::BroadcastOp::Adaptor in,
                                    Rewriter &rewriter, const Types &types) {
  VectorType type = op.getType();
  if (type.getRank() != 1 || isa<VectorType>(op.getSourceType()))
    return failure();
  SmallVector<Value> elements(type.getNumElements(), in.getSource());
  rewriter.replaceOp(op, fromElements(op.getLoc(), types.convertType(type), elements, rewriter));
  return success();
}

void addVectorLowerings(RewritePatternSet &patterns, const Types &types) {
  addLowering(patterns, types, lowerExtract);
  addLowering(patterns, types, lowerInsert);
  addLowering(patterns, types, lowerFromElements);
  addLowering(patterns, types, lowerToElements);
  addLowering(patterns, types, lowerBitCast);
  addLowering(patterns, types, lowerBroadcast);
}

} // namespace cfc::simt
