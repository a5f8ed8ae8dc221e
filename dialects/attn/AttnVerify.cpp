//===- AttnVerify.cpp - What each operation of a graph demands -------------===//
//
// ODS has checked ranks and element types by now. Here: sizes that must match
// and numbers that must make sense. Every message says what would fit.
//
//===----------------------------------------------------------------------===//
#include "dialects/attn/Attn.h"
#include <cmath>

using namespace mlir;
using namespace cfc::attn;

// `%name`, or what the operand is for if it was built without a name.
static std::string nameOr(Value value, StringRef fallback) {
  std::string name = getValueName(value);
  return name.empty() ? fallback.str() : "%" + name;
}

static int64_t rows(TypedValue<RankedTensorType> value) { return value.getType().getDimSize(0); }
static int64_t columns(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(1); }

// A result may have another element type than its operands imply, but not another shape.
static LogicalResult verifyResultShapes(Operation *op) {
  SmallVector<Type> inferred = inferResultTypes(op);
  if (inferred.size() != op->getNumResults())
    return op->emitOpError("has ") << op->getNumResults() << " results; " << inferred.size()
                                   << " fit its operands";
  for (auto [result, fits] : llvm::zip_equal(op->getResults(), inferred)) {
    auto type = dyn_cast<RankedTensorType>(result.getType());
    auto fitting = dyn_cast<RankedTensorType>(fits);
    if (fitting ? !type || type.getShape() != fitting.getShape() : result.getType() != fits)
      return op->emitOpError("result ") << result.getResultNumber() << " is " << result.getType() << "; "
                                        << fits << " fits its operands";
  }
  return success();
}

static LogicalResult verifyPositive(Operation *op, StringRef name, const APFloat &value) {
  if (value.isFinite() && !value.isNegative() && value.isNonZero())
    return success();
  return op->emitOpError("needs a finite ") << name << " above 0, not " << value.convertToDouble();
}

// One position, slot or length for each row of the activations.
static LogicalResult verifyPerRow(Operation *op, Value value, StringRef what, int64_t count, int64_t rows) {
  if (count == rows)
    return success();
  return op->emitOpError() << nameOr(value, what) << " has " << count << " " << what
                           << "; the activations have " << rows << (rows == 1 ? " row" : " rows");
}

// Weights are bound once; kernels load them before earlier work has finished.
static LogicalResult verifyArgument(Operation *op, Value value) {
  if (isa<BlockArgument>(value))
    return success();
  return op->emitOpError() << nameOr(value, "a weight")
                           << " is computed; weights, biases and gains must be arguments of the graph";
}

LogicalResult RmsNormOp::verify() {
  int64_t size = getGain().getType().getDimSize(0);
  if (size != columns(getX()))
    return emitOpError() << nameOr(getGain(), "the gain") << " has " << size << " elements; a row of "
                         << nameOr(getX(), "the input") << " has " << columns(getX());
  if (failed(verifyPositive(*this, "eps", getEps())) || failed(verifyArgument(*this, getGain())))
    return failure();
  return verifyResultShapes(*this);
}

LogicalResult LinearOp::verify() {
  size_t count = getWeights().size();
  if (count == 0)
    return emitOpError("needs at least one weight");
  if (!getBiases().empty() && getBiases().size() != count)
    return emitOpError("has ") << getBiases().size() << " biases for " << count
                               << " weights; each weight or none has one";
  for (Value weight : getWeights())
    if (columns(weight) != columns(getX()))
      return emitOpError() << nameOr(weight, "a weight") << " is [out, in] with " << columns(weight)
                           << " inputs; a row of " << nameOr(getX(), "the input") << " has "
                           << columns(getX());
  for (auto [weight, bias] : llvm::zip(getWeights(), getBiases())) {
    int64_t out = cast<RankedTensorType>(weight.getType()).getDimSize(0);
    int64_t size = cast<RankedTensorType>(bias.getType()).getDimSize(0);
    if (size != out)
      return emitOpError() << nameOr(bias, "a bias") << " has " << size << " elements; "
                           << nameOr(weight, "its weight") << " has " << out << " outputs";
  }
  for (Value operand : llvm::drop_begin(getOperands()))
    if (failed(verifyArgument(*this, operand)))
      return failure();
  return verifyResultShapes(*this);
}

LogicalResult RopeOp::verify() {
  int64_t dim = getHeadDim();
  if (getValues().empty() || getValues().size() > 2)
    return emitOpError("rotates one or two values, not ") << getValues().size();
  if (dim % 2)
    return emitOpError("needs an even head dimension to form pairs; ")
           << nameOr(getTable(), "the table") << " is " << dim << " wide";
  for (Value value : getValues()) {
    if (columns(value) % dim)
      return emitOpError() << nameOr(value, "a value") << " has " << columns(value)
                           << " columns; that is no whole number of heads of " << dim << ", the width of "
                           << nameOr(getTable(), "the table");
    int64_t count = cast<RankedTensorType>(value.getType()).getDimSize(0);
    if (failed(verifyPerRow(*this, getPos(), "positions", getPos().getType().getDimSize(0), count)))
      return failure();
  }
  return verifyResultShapes(*this);
}

LogicalResult RopeTableOp::verify() {
  if (failed(verifyPositive(*this, "base", getBase())))
    return failure();
  int64_t dim = getDim(), positions = getPositions();
  if (dim < 2 || dim % 2 || dim > 65536)
    return emitOpError("needs an even head dimension up to 65536 to form pairs, not ") << dim;
  constexpr int64_t most = int64_t(1) << 26;
  if (positions < 1 || positions > most / dim)
    return emitOpError("needs 1 to ") << most / dim << " positions, not " << positions;
  return verifyResultShapes(*this);
}

LogicalResult KvAppendOp::verify() {
  KvCacheType cache = getCache().getType();
  for (auto [value, dim, width] : {std::tuple(Value(getK()), cache.getDim(), cache.getKWidth()),
                                   std::tuple(Value(getV()), cache.getVDim(), cache.getVWidth())})
    if (columns(value) != width)
      return emitOpError() << nameOr(value, "a value") << " has " << columns(value) << " columns; "
                           << nameOr(getCache(), "the cache") << " holds " << cache.getHeads() << " heads of "
                           << dim << ", " << width << " in all";
  if (rows(getK()) != rows(getV()))
    return emitOpError("has ") << rows(getK()) << " rows of K and " << rows(getV()) << " of V";
  if (failed(verifyPerRow(*this, getSlot(), "slots", rows(getSlot()), rows(getK()))))
    return failure();
  return verifyResultShapes(*this);
}

// A cache with pages needs the table that says where they are.
static LogicalResult verifyPages(AttentionOp op) {
  KvCacheType cache = op.getCache().getType();
  if (!op.getPages() && !cache.isPaged())
    return success();
  if (!op.getPages())
    return op.emitOpError() << nameOr(op.getCache(), "the cache") << " has pages of " << cache.getPage()
                            << " tokens; name the block table that orders them: `pages %table` behind the "
                               "lengths";
  if (!cache.isPaged())
    return op.emitOpError() << nameOr(op.getCache(), "the cache") << " has no pages, so a block table "
                            << "orders nothing; give the cache a page size, as in `page = 16`";
  int64_t requests = op.getLen().getType().getCount();
  if (rows(op.getPages()) != requests)
    return op.emitOpError() << nameOr(op.getPages(), "the block table") << " has " << rows(op.getPages())
                            << " rows; there are " << requests << " requests";
  if (!isa<BlockArgument>(op.getPages()))
    return op.emitOpError() << nameOr(op.getPages(), "the block table")
                            << " must be an argument of the graph";
  return success();
}

LogicalResult AttentionOp::verify() {
  KvCacheType cache = getCache().getType();
  int64_t width = columns(getQ());
  if (width % cache.getDim())
    return emitOpError() << nameOr(getQ(), "the query") << " has " << width
                         << " columns; that is no whole number of heads of " << cache.getDim()
                         << ", the head dimension of " << nameOr(getCache(), "the cache");
  if (getQueryHeads() % cache.getHeads())
    return emitOpError() << nameOr(getQ(), "the query") << " has " << getQueryHeads()
                         << " heads; a multiple of the " << cache.getHeads() << " KV heads of "
                         << nameOr(getCache(), "the cache") << " is needed";
  if (failed(verifyPositive(*this, "scale", getScale())) ||
      failed(verifyPerRow(*this, getLen(), "lengths", getLen().getType().getCount(), rows(getQ()))))
    return failure();
  if (failed(verifyPages(*this)))
    return failure();
  if (KvAppendOp append = getAppend(); append && rows(append.getK()) != rows(getQ()))
    return emitOpError() << nameOr(getQ(), "the query") << " has " << rows(getQ()) << " rows; "
                         << rows(append.getK()) << " were appended to " << nameOr(getCache(), "the cache");
  return verifyResultShapes(*this);
}

LogicalResult AddOp::verify() {
  auto lhs = getLhs().getType(), rhs = getRhs().getType();
  if (lhs.getShape() != rhs.getShape())
    return emitOpError("adds values of one shape, not ") << lhs << " and " << rhs;
  return verifyResultShapes(*this);
}
