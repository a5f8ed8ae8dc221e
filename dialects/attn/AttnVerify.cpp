//===- AttnVerify.cpp - What each operation of a graph demands -------------===//
//
// ODS has checked ranks and element types by now. Here: sizes that must match
// and numbers that must make sense. Every message says what would fit.
//
//===----------------------------------------------------------------------===//
#include "dialects/attn/Attn.h"
#include "dialects/attn/BiasProgram.h"
#include "mlir/IR/Matchers.h"
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

// Kernels compute in f32: a number that is there must be one of its normal numbers, or 0.
static LogicalResult verifyF32(Operation *op, StringRef name, const std::optional<APFloat> &value) {
  if (!value)
    return success();
  double number = value->convertToDouble();
  auto rounded = static_cast<float>(number);
  if (number == 0 || std::isnormal(rounded))
    return success();
  return op->emitOpError("needs a finite ") << name << " that f32 can hold, not " << number;
}

// What scores are multiplied with: quotients of two, and their multiples by log2(e), are f32 numbers too.
static LogicalResult verifyFactor(Operation *op, StringRef name, const APFloat &value) {
  constexpr double least = 1e-18, most = 1e18;
  if (failed(verifyPositive(op, name, value)))
    return failure();
  double number = value.convertToDouble();
  if (number >= least && number <= most)
    return success();
  return op->emitOpError("needs a ") << name << " from " << least << " to " << most << ", not " << number;
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

// A gain or a bias has an element for each of a row.
static LogicalResult verifyRowOf(Operation *op, Value value, Value x, StringRef what) {
  int64_t size = cast<RankedTensorType>(value.getType()).getDimSize(0);
  if (size == columns(x))
    return success();
  return op->emitOpError() << nameOr(value, what) << " has " << size << " elements; a row of "
                           << nameOr(x, "the input") << " has " << columns(x);
}

LogicalResult RmsNormOp::verify() {
  if (columns(getX()) % getWidth())
    return emitOpError() << nameOr(getGain(), "the gain") << " has " << getWidth() << " elements; a row of "
                         << nameOr(getX(), "the input") << " has " << columns(getX())
                         << ", which is no multiple of it";
  if (failed(verifyF32(*this, "offset", getOffset())))
    return failure();
  if (failed(verifyPositive(*this, "eps", getEps())) || failed(verifyF32(*this, "eps", getEps())) ||
      failed(verifyArgument(*this, getGain())))
    return failure();
  return verifyResultShapes(*this);
}

LogicalResult LayerNormOp::verify() {
  if (failed(verifyPositive(*this, "eps", getEps())) || failed(verifyF32(*this, "eps", getEps())))
    return failure();
  for (auto [value, what] : {std::pair(getGain(), "the gain"), std::pair(getBias(), "the bias")})
    if (value && (failed(verifyRowOf(*this, value, getX(), what)) || failed(verifyArgument(*this, value))))
      return failure();
  if (getBias() && !getGain())
    return emitOpError("has a bias and no gain; a gain comes first");
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
  int64_t dim = getHeadSize(), rotated = getRotatedDim();
  if (getValues().empty() || getValues().size() > 2)
    return emitOpError("rotates one or two values, not ") << getValues().size();
  if (rotated % 2)
    return emitOpError("needs an even head dimension to form pairs; ")
           << nameOr(getTable(), "the table") << " is " << rotated << " wide";
  if (dim < rotated)
    return emitOpError("has heads of ") << dim << " elements; " << nameOr(getTable(), "the table")
                                        << " rotates " << rotated << ", so head_dim must be at least that";
  for (Value value : getValues()) {
    if (columns(value) % dim)
      return emitOpError() << nameOr(value, "a value") << " has " << columns(value)
                           << " columns; that is no whole number of heads of " << dim << ", "
                           << (getHeadDim() ? "the head_dim"
                                            : "the width of " + nameOr(getTable(), "the table"));
    int64_t count = cast<RankedTensorType>(value.getType()).getDimSize(0);
    if (failed(verifyPerRow(*this, getPos(), "positions", getPos().getType().getDimSize(0), count)))
      return failure();
  }
  return verifyResultShapes(*this);
}

// Each scaling takes its own numbers and no others.
static LogicalResult verifyScaling(RopeTableOp op) {
  RopeScaling scaling = op.getScaling().value_or(RopeScaling::None);
  struct Number {
    StringRef name;
    ArrayRef<RopeScaling> of, needed;
  };
  using enum RopeScaling;
  const RopeScaling all[] = {Linear, Llama3, Yarn}, stretched[] = {Llama3, Yarn}, llama3[] = {Llama3},
                    yarn[] = {Yarn};
  for (const Number &number :
       {Number{"factor", all, all}, Number{"original_positions", stretched, stretched},
        Number{"low_freq_factor", llama3, llama3}, Number{"high_freq_factor", llama3, llama3},
        Number{"beta_fast", yarn, {}}, Number{"beta_slow", yarn, {}}, Number{"attention_factor", yarn, {}},
        Number{"truncate", yarn, {}}}) {
    Attribute given = op->getAttr(number.name);
    if (!given && llvm::is_contained(number.needed, scaling))
      return op.emitOpError("with scaling = ") << stringifyRopeScaling(scaling) << " needs " << number.name;
    if (!given)
      continue;
    if (!llvm::is_contained(number.of, scaling))
      return op.emitOpError("with ") << (scaling == None ? "no scaling" : stringifyRopeScaling(scaling))
                                     << " has no " << number.name;
    if (auto real = dyn_cast<FloatAttr>(given);
        real && failed(verifyPositive(op, number.name, real.getValue())))
      return failure();
  }
  if (auto positions = op.getOriginalPositions(); positions && *positions < 1)
    return op.emitOpError("needs original_positions of at least 1, not ") << *positions;
  cfc::RopeTable table = op.describe();
  if (scaling == Llama3 && table.lowFreqFactor >= table.highFreqFactor)
    return op.emitOpError("needs a low_freq_factor below the high_freq_factor, not ")
           << table.lowFreqFactor << " and " << table.highFreqFactor;
  if (scaling == Yarn && table.base == 1)
    return op.emitOpError("needs another base than 1 with scaling = yarn");
  return success();
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
  if (failed(verifyScaling(*this)))
    return failure();
  return verifyResultShapes(*this);
}

// One scale for all KV heads, or one for each. Both or none are there.
static LogicalResult verifyScales(Operation *op, KvCacheType cache, Value k, Value v) {
  if (!k != !v)
    return op->emitOpError("needs a scale of K and one of V, or none");
  if (!k && isa<Float8E4M3FNType>(cache.getElementType()))
    return op->emitOpError("needs scales for a cache of f8E4M3FN: `scales %k_scale, %v_scale`");
  for (Value scale : {k, v}) {
    if (!scale)
      continue;
    int64_t size = cast<RankedTensorType>(scale.getType()).getDimSize(0);
    if (size != 1 && size != cache.getHeads())
      return op->emitOpError() << nameOr(scale, "a scale") << " has " << size << " elements; 1 or "
                               << cache.getHeads() << ", the KV heads, are possible";
    if (!isa<BlockArgument>(scale))
      return op->emitOpError() << nameOr(scale, "a scale") << " must be an argument of the graph";
  }
  return success();
}

static int64_t sizeOf(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(0); }

// Starts of each request's rows, and of the rows behind the last.
static LogicalResult verifyStarts(Operation *op, Value starts) {
  if (!isa<BlockArgument>(starts))
    return op->emitOpError() << nameOr(starts, "the starts of queries")
                             << " must be an argument of the graph";
  if (sizeOf(starts) >= 2)
    return success();
  return op->emitOpError() << nameOr(starts, "the starts of queries")
                           << " has 1 element; each request's first row and the end of the last are needed";
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
  if (failed(verifyPerRow(*this, getSlot(), "slots", rows(getSlot()), rows(getK()))) ||
      failed(verifyScales(*this, cache, getKScale(), getVScale())) ||
      (getQueries() && failed(verifyStarts(*this, getQueries()))))
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

// Several query tokens a request, and which of them see each other.
static LogicalResult verifyQueries(AttentionOp op) {
  Value starts = op.getQueries(), mask = op.getMask();
  int64_t requests = op.getLen().getType().getCount(), tokens = rows(op.getQ());
  KvAppendOp append = op.getAppend();
  if (append && append.getQueries() != starts)
    return op.emitOpError("has other queries than the append to ") << nameOr(op.getCache(), "the cache");
  if (!starts && mask)
    return op.emitOpError("has a mask of query tokens, but one of them a request; name the rows of each "
                          "request: `queries %starts` before the mask");
  if (!starts)
    return verifyPerRow(op, op.getLen(), "lengths", requests, tokens);
  if (failed(verifyStarts(op, starts)))
    return failure();
  if (sizeOf(starts) != requests + 1)
    return op.emitOpError() << nameOr(starts, "the starts of queries") << " has " << sizeOf(starts)
                            << " elements; " << requests
                            << (requests == 1 ? " request needs " : " requests need ") << requests + 1;
  if (!mask)
    return success();
  if (!isa<BlockArgument>(mask))
    return op.emitOpError() << nameOr(mask, "the mask") << " must be an argument of the graph";
  constexpr int64_t most = 64; // bits
  if (tokens > most)
    return op.emitOpError("has a mask of 64 bits a row; ") << tokens << " query tokens need more";
  return verifyPerRow(op, mask, "masks", sizeOf(mask), tokens);
}

// Window, softcap and sinks.
static LogicalResult verifyVariants(AttentionOp op) {
  if (auto window = op.getWindow(); window && int64_t(*window) < 1)
    return op.emitOpError("needs a window of at least 1 token, not ") << int64_t(*window);
  if (auto softcap = op.getSoftcap(); softcap && failed(verifyFactor(op, "softcap", *softcap)))
    return failure();
  Value sinks = op.getSinks();
  if (!sinks)
    return success();
  int64_t size = cast<RankedTensorType>(sinks.getType()).getDimSize(0);
  if (size != op.getQueryHeads())
    return op.emitOpError() << nameOr(sinks, "the sinks") << " has " << size << " elements; "
                            << nameOr(op.getQ(), "the query") << " has " << op.getQueryHeads() << " heads";
  if (!isa<BlockArgument>(sinks))
    return op.emitOpError() << nameOr(sinks, "the sinks") << " must be an argument of the graph";
  return success();
}

// An element that a bias reads, as far as one sees: by a constant, or by the query's head.
static LogicalResult verifyAt(AttentionOp attention, AtOp at) {
  int64_t size = at.getTensor().getType().getDimSize(0);
  APInt constant;
  if (matchPattern(at.getIndex(), m_ConstantInt(&constant)) &&
      (constant.isNegative() || constant.getSExtValue() >= size))
    return at.emitOpError() << "reads element " << constant.getSExtValue() << " of "
                            << nameOr(at.getTensor(), "a tensor") << ", which has " << size;
  if (at.getIndex() == attention.getBias().getArgument(0) && size < attention.getQueryHeads())
    return at.emitOpError() << "reads an element for each of " << attention.getQueryHeads()
                            << " query heads of " << nameOr(at.getTensor(), "a tensor") << ", which has "
                            << size;
  return success();
}

// Operations of a bias are on scalars, and such that BiasProgram and the lowering know them.
static LogicalResult verifyBiasOp(AttentionOp attention, Operation *op) {
  if (auto at = dyn_cast<AtOp>(op))
    return verifyAt(attention, at);
  if (isa<YieldOp>(op))
    return success();
  if (BiasProgram::has(op))
    return success();
  return op->emitError("'") << op->getName() << "' is not possible in a bias; it has "
                            << BiasProgram::names();
}

LogicalResult AttentionOp::verifyRegions() {
  if (!hasBias())
    return success();
  if (!getBias().hasOneBlock())
    return emitOpError("has a bias of several blocks; one is possible");
  Block &block = getBias().front();
  if (block.getNumArguments() != 3 ||
      llvm::any_of(block.getArgumentTypes(), [](Type type) { return !type.isIndex(); }))
    return emitOpError("has a bias whose arguments are not 3 of index: head, query and key position");
  for (Operation &op : block)
    if (failed(verifyBiasOp(*this, &op)))
      return failure();
  if (block.empty() || !isa<YieldOp>(block.back()))
    return emitOpError("has a bias that does not end with attn.yield");
  return success();
}

LogicalResult AtOp::verify() {
  if (getResult().getType() != getTensor().getType().getElementType())
    return emitOpError("gives ") << getResult().getType() << " of " << getTensor().getType();
  auto argument = dyn_cast<BlockArgument>(getTensor());
  if (!argument || !isa<GraphOp>(argument.getOwner()->getParentOp()))
    return emitOpError() << nameOr(getTensor(), "the tensor") << " must be an argument of the graph";
  return success();
}

LogicalResult YieldOp::verify() { return success(); }

/// Appends write in place: behind one nothing has the cache as it was.
static LogicalResult verifyOrder(AttentionOp op) {
  for (Operation *user : op.getCache().getUsers()) {
    if (!isa<KvAppendOp>(user) || user->getBlock() != op->getBlock() || !user->isBeforeInBlock(op))
      continue;
    InFlightDiagnostic diag =
        op.emitOpError("attends to ")
        << nameOr(op.getCache(), "the cache")
        << " as it was before an append, which has written in place by then: attend to the "
           "append's result, or before it";
    diag.attachNote(user->getLoc()) << "the append";
    return diag;
  }
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
  if (failed(verifyOrder(*this)) || failed(verifyFactor(*this, "scale", getScale())) ||
      failed(verifyQueries(*this)))
    return failure();
  if (failed(verifyPages(*this)) || failed(verifyVariants(*this)) ||
      failed(verifyScales(*this, cache, getKScale(), getVScale())))
    return failure();
  if (KvAppendOp append = getAppend();
      append && (append.getKScale() != getKScale() || append.getVScale() != getVScale()))
    return emitOpError("has other scales than the append to ") << nameOr(getCache(), "the cache");
  if (KvAppendOp append = getAppend(); append && rows(append.getK()) != rows(getQ()))
    return emitOpError() << nameOr(getQ(), "the query") << " has " << rows(getQ()) << " rows; "
                         << rows(append.getK()) << " were appended to " << nameOr(getCache(), "the cache");
  return verifyResultShapes(*this);
}

LogicalResult AddOp::verify() {
  auto lhs = getLhs().getType(), rhs = getRhs().getType();
  if (lhs.getShape() != rhs.getShape())
    return emitOpError("adds values of one shape, not ") << lhs << " and " << rhs;
  if (failed(verifyF32(*this, "scale", getScale())))
    return failure();
  return verifyResultShapes(*this);
}
