//===- KernelVerifiers.cpp - What each operation needs of its operands --------===//
//
// A value whose state does not fit is an error that names the exchange which
// would make it fit. Results say no more than what their operation gives.
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/KernelChecks.h"
#include <cmath>

using namespace mlir;
using namespace cfc::kernel;

/// Of several tokens: x [tokens, n] keeps its shape and states; its rows' scales are whole or split as they
/// are.
static LogicalResult checkScaledRows(RmsNormOp op) {
  TileType x = op.getX().getType(), scale = op.getScale().getType(), r = op.getResult().getType();
  if (x.getShape().size() != 2 || r.getShape() != x.getShape() || r.getStates() != x.getStates())
    return op.emitOpError("with `scale` norms rows of a tile [tokens, n] and keeps its shape and states");
  if (scale.getShape() != x.getShape().take_front() || !scale.getElementType().isF32())
    return op.emitOpError("scales each of ") << x.getShape()[0] << " rows by an f32, not by " << scale;
  SmallVector<StateAttr> rows;
  llvm::copy_if(x.getStates(), std::back_inserter(rows),
                [](StateAttr s) { return !s.isPartial() && s.getDim() == 0; });
  if (scale.getStates() != ArrayRef(rows))
    return op.emitOpError("needs the scales of the rows that a CTA has") << exchangeFor(scale, x);
  for (StateAttr s : x.getStates())
    if (s.isPartial())
      return needsReplicated(op, op.getX(), "%x");
  if (auto gain = cast<MemRefType>(op.getGain().getType()); gain.getNumElements() < x.getShape()[1])
    return op.emitOpError("scales ") << x << " by a gain of " << gain.getNumElements() << " elements";
  return checkTile(op, r);
}

LogicalResult RmsScaleOp::verify() {
  TileType x = getX().getType(), r = getResult().getType();
  if (!(getEps().convertToDouble() > 0))
    return emitOpError("needs eps > 0");
  if (x.getShape().size() != 2 || r.getShape() != x.getShape().take_front() || !r.getElementType().isF32())
    return emitOpError("gives an f32 for each row of a tile [tokens, n], not ") << r << " for " << x;
  for (StateAttr s : x.getStates())
    if (s.isPartial() || s.getDim() != 0)
      return needsReplicated(*this, s, "whole rows of %x");
  if (r.getStates() != x.getStates())
    return emitOpError("gives its result in the states of %x over every axis");
  return checkTile(*this, r);
}

LogicalResult RmsNormOp::verify() {
  if (!(getEps().convertToDouble() > 0))
    return emitOpError("needs eps > 0");
  if (!getGain() && !getCentered())
    return emitOpError("has no gain; where it is centered it need not have one");
  if (getScale()) {
    if (getWidth() || getCentered())
      return emitOpError("with `scale` norms whole rows that are not centered");
    if (failed(checkFloatMemory(*this, getGain(), "scales by")))
      return failure();
    return checkScaledRows(*this);
  }
  int64_t width = getWidth();
  ArrayRef<int64_t> shape = getX().getType().getShape();
  int64_t row = shape.size() == 2 ? shape[0] : getX().getType().getNumElements(); // of [n, tokens]
  if (width < 0 || (width && row % width) || (width && getCentered()))
    return emitOpError("norms parts of ") << width << " elements of " << getX().getType()
                                          << ": whole parts that are not centered are possible";
  if (getX().getType().getNumElements() != getResult().getType().getNumElements())
    return emitOpError("keeps its shape");
  if (getGain()) {
    if (failed(checkFloatMemory(*this, getGain(), "scales by")))
      return failure();
    auto gain = cast<MemRefType>(getGain().getType());
    if (gain.getNumElements() < (width ? width : getX().getType().getNumElements()))
      return emitOpError("scales ") << getX().getType() << " by a gain of " << gain.getNumElements()
                                    << " elements";
  }
  if (failed(needsReplicated(*this, getX(), "%x")))
    return failure();
  return givesReplicated(*this, getResult().getType(), "its result");
}

/// Streams arrive where the producer can follow: it does not know which CTA finishes a sum.
static LogicalResult checkStreamUse(Operation *op, Value stream) {
  if (!stream.getDefiningOp() || !isa<LoadOp, LoadCacheOp>(stream.getDefiningOp()))
    return op->emitOpError("takes a stream that no load gives");
  if (op->getParentOfType<FinishOp>())
    return op->emitOpError(
        "cannot stand in kernel.finish: streams are fed before it is known which CTA finishes");
  return success();
}

/// Axes that `states` split dimension `dim` over, from the outermost.
static SmallVector<StringAttr> splitsOf(ArrayRef<StateAttr> states, int64_t dim) {
  SmallVector<StringAttr> axes;
  for (StateAttr s : states)
    if (!s.isPartial() && s.getDim() == dim)
      axes.push_back(s.getAxis());
  return axes;
}

/// A matmul's result has only the states that its weights give it: rows split in the same order, columns as
/// summands; and is a summand over the items where its loop says so.
static LogicalResult checkProduct(MatmulOp op) {
  StreamType w = op.getWeights().getType();
  TileType y = op.getResult().getType();
  auto func = op->getParentOfType<FuncOp>();
  auto items = op->getParentOfType<ForItemsOp>();
  for (StateAttr s : y.getStates()) {
    StringRef name = s.getAxis().getValue();
    if (func && func.axis(name).getLevel() == Level::Grid) {
      if (!items || items.getAxis() != name)
        return op.emitOpError("gives ")
               << describe(s) << " over `" << name << "` outside of kernel.for_items over it";
      continue;
    }
    std::optional<StateAttr> ws = stateOver(w.getStates(), name);
    if (!ws)
      return op.emitOpError("gives a whole result to every worker of `")
             << name << "`, whose weights are whole; its type says " << describe(s);
    if (!s.isPartial() && s.getDim() != 0)
      return op.emitOpError("gives a result that is split over dimension 0, not ") << s.getDim();
  }
  auto load = op.getWeights().getDefiningOp<LoadOp>();
  if (load.getColumns() && items && !stateOver(y.getStates(), items.getAxis()))
    return op.emitOpError("takes columns of an item of `")
           << items.getAxis() << "`: its result is partial(sum) there";
  if (splitsOf(w.getStates(), 0) != splitsOf(y.getStates(), 0))
    return op.emitOpError("splits rows in an order of axes that its result does not have");
  return success();
}

/// Rows of several tokens lie apart from each other in shared memory, so that reads have no bank conflicts:
/// only operations that know it touch them.
static LogicalResult checkTokens(MatmulOp op) {
  TileType x = op.getX().getType(), y = op.getResult().getType();
  constexpr int64_t kMostTokens = 64;
  int64_t tokens = x.getShape()[0];
  if (tokens > kMostTokens)
    return op.emitOpError("multiplies by ") << tokens << " tokens; up to " << kMostTokens << " are possible";
  if (y.getShape() != ArrayRef<int64_t>{op.getWeights().getType().getShape()[0], tokens})
    return op.emitOpError("of several tokens gives a tile [rows, tokens], not ") << y;
  if (x.getElementType().isF32())
    return op.emitOpError("multiplies by several tokens in f16 or bf16: round them by kernel.cast");
  if (!op.getX().getDefiningOp() || !isa<ReadOp, RmsNormOp, CastOp, ElementwiseOp>(op.getX().getDefiningOp()))
    return op.emitOpError("takes several tokens from kernel.read, rms_norm, cast or elementwise");
  auto load = op.getWeights().getDefiningOp<LoadOp>();
  if (int64_t parts = op.getParts();
      parts < 1 ||
      (parts > 1 && load && llvm::any_of(load.getRows(), [&](int64_t rows) { return rows % parts; })))
    return op.emitOpError("deals rows to ") << parts << " parts, which does not divide those of each weight";
  if (op.getParts() != 1 &&
      llvm::any_of(op.getWeights().getType().getStates(), [](StateAttr s) { return s.getDim() == 0; }))
    return op.emitOpError("deals rows to parts that are split already");
  for (Operation *user : op.getX().getUsers())
    if (isa<ExchangeOp, ExtractOp, FinishOp>(user))
      return op.emitOpError("takes several tokens that ") << user->getName() << " does not take too";
  return success();
}

/// %x is whole, or split as the weights' columns are over the outermost of their axes.
static LogicalResult checkFactor(MatmulOp op) {
  TileType x = op.getX().getType();
  int64_t dim = isOfTokens(x) ? 1 : 0;
  SmallVector<StringAttr> columns = splitsOf(op.getWeights().getType().getStates(), 1);
  for (auto [i, s] : llvm::enumerate(x.getStates())) {
    if (s.isPartial() || !llvm::is_contained(columns, s.getAxis()))
      return needsReplicated(op, op.getX(), "%x");
    if (s.getDim() != dim || columns[i] != s.getAxis())
      return op.emitOpError("needs %x split over dimension ")
             << dim << " in the order of axes that splits the columns";
  }
  if (dim)
    return success();
  return checkPairs(op, op.getX(), "%x");
}

LogicalResult MatmulOp::verify() {
  StreamType w = getWeights().getType();
  TileType x = getX().getType(), y = getResult().getType();
  bool many = isOfTokens(x);
  if (many ? x.getShape()[1] != w.getShape()[1]
           : x.getNumElements() != w.getShape()[1] || y.getNumElements() != w.getShape()[0])
    return emitOpError("multiplies ") << w << " by " << x << " into " << y << ": the shapes do not fit";
  if (many && failed(checkTokens(*this)))
    return failure();
  if (getSlots() < 1)
    return emitOpError("needs at least one slot");
  if (failed(checkTile(*this, y)))
    return failure();
  for (StateAttr s : w.getStates()) {
    StringRef axis = s.getAxis().getValue();
    std::optional<StateAttr> xs = stateOver(x.getStates(), axis), ys = stateOver(y.getStates(), axis);
    if (s.isPartial())
      return emitOpError("streams whole or split weights");
    if (s.getDim() == 0 && (!ys || ys->isPartial()))
      return emitOpError("splits rows over `") << axis << "`: its result is split(0) there";
    if (s.getDim() == 1 && (!ys || ys->getKind() != StateKind::Sum))
      return emitOpError("splits columns over `") << axis << "`: its result is partial(sum) there";
    if (s.getDim() == 0 && xs)
      return needsReplicated(*this, getX(), "%x");
  }
  if (failed(checkStreamUse(*this, getWeights())) || failed(checkProduct(*this)))
    return failure();
  return checkFactor(*this);
}

LogicalResult ExtractOp::verify() {
  TileType from = getTile().getType(), to = getResult().getType();
  int64_t first = getFrom();
  if (!from.getStates().empty() && to.getStates() == from.getStates()) {
    auto func = (*this)->getParentOfType<FuncOp>();
    int64_t workers = 1;
    for (StateAttr s : from.getStates()) {
      AxisAttr axis = func ? func.axis(s.getAxis().getValue()) : AxisAttr();
      if (s.isPartial() || s.getDim() != 0 || !axis)
        return needsReplicated(*this, s, "the tile");
      workers *= axis.getSize();
    }
    if (first % workers)
      return emitOpError("begins at element ") << first << ", which " << workers << " workers do not divide";
    if (failed(checkTile(*this, to)))
      return failure();
  } else if (failed(givesReplicated(*this, to, "its view")) ||
             failed(needsReplicated(*this, getTile(), "the tile"))) {
    return failure();
  }
  if (first < 0 || first > from.getNumElements() - to.getNumElements())
    return emitOpError("takes elements ")
           << first << " on, " << to.getNumElements() << " of them, of " << from.getNumElements();
  if (from.getElementType() != to.getElementType())
    return emitOpError("keeps the element type");
  return success();
}

LogicalResult RopeOp::verify() {
  auto table = cast<MemRefType>(getTable().getType());
  if (failed(checkFloatMemory(*this, getTable(), "rotates by")) ||
      failed(checkNumber(*this, getPosition(), 32, "the position")))
    return failure();
  if (table.getRank() != 2 || table.getDimSize(1) % 2)
    return emitOpError("needs a table [positions, dim] with an even dim, not ") << table;
  ArrayRef<int64_t> shape = getX().getType().getShape();
  bool many = shape.size() == 2 && shape[1] > 1;
  int64_t head = getHeadSize();
  if (head < table.getDimSize(1))
    return emitOpError("rotates ") << table.getDimSize(1) << " elements of heads of " << head;
  if ((many ? shape[0] : getX().getType().getNumElements()) % head)
    return emitOpError("rotates heads of ") << head << " elements; " << getX().getType() << " is no multiple";
  int64_t positions = cast<MemRefType>(getPosition().getType()).getNumElements();
  int64_t from = getFrom();
  if (many ? from < 0 || from > positions - shape[1] : from != 0)
    return emitOpError("rotates ") << (many ? shape[1] : 1) << " tokens by positions from " << from
                                   << " on, of " << positions;
  if (many && (getItem() || getResult().getType().getShape() != shape))
    return emitOpError("rotates ") << shape[1] << " tokens by as many positions, not "
                                   << getPosition().getType() << (getItem() ? " of an item" : "");
  if (getItem() && itemsOf(getItem()) % positions)
    return emitOpError("takes one of ")
           << positions << " positions for each of " << itemsOf(getItem()) << " items; that does not divide";
  if (getX().getType().getNumElements() != getResult().getType().getNumElements())
    return emitOpError("keeps its shape");
  if (failed(needsReplicated(*this, getX(), "%x")))
    return failure();
  return givesReplicated(*this, getResult().getType(), "its result");
}

/// Query heads of a KV head.
static constexpr int64_t kMaxHeads = 128;

/// A cap of scores is finite and above 0.
template <typename Op> static LogicalResult checkSoftcap(Op op) {
  std::optional<llvm::APFloat> softcap = op.getSoftcap();
  if (!softcap || (softcap->isFinite() && !softcap->isNegative() && softcap->isNonZero()))
    return success();
  return op.emitOpError("needs a finite softcap above 0");
}

/// A bias is a block of three indices that ends with its value.
template <typename Op> static LogicalResult checkBias(Op op) {
  Region &bias = op.getBias();
  if (bias.empty())
    return success();
  Block &block = bias.front();
  if (!bias.hasOneBlock() || block.getNumArguments() != 3 || block.empty() ||
      !isa<YieldValueOp>(block.back()) ||
      llvm::any_of(block.getArgumentTypes(), [](Type type) { return !type.isIndex(); }))
    return op.emitOpError("has a bias that is no block of (head, query, key), each an index, with a "
                          "kernel.yield_value at its end");
  for (Operation &one : block)
    if (!isa<AtOp, YieldValueOp>(one) && one.getDialect()->getNamespace() != "arith" &&
        one.getDialect()->getNamespace() != "math")
      return one.emitOpError("is not possible in a bias");
  return success();
}

LogicalResult AttendOp::verify() {
  if (failed(checkSoftcap(*this)) || failed(checkBias(*this)))
    return failure();
  TileType state = getResult().getType();
  KvStreamType kv = getKv().getType();
  if (failed(checkSoftmax(*this, state)) || failed(needsReplicated(*this, getQ(), "%q")))
    return failure();
  int64_t heads = state.getShape()[0];
  if (state.getShape()[1] != kv.getVDim() + 2 || getQ().getType().getNumElements() != heads * kv.getDim())
    return emitOpError("attends ") << getQ().getType() << " to " << kv << " into " << state
                                   << ": the shapes do not fit";
  if (heads > kMaxHeads)
    return emitOpError("has ") << heads << " query heads for one KV head; up to " << kMaxHeads
                               << " are possible";
  if (!std::isfinite(getScale().convertToDouble()))
    return emitOpError("needs a finite scale");
  if (failed(checkStreamUse(*this, getKv())))
    return failure();
  auto items = (*this)->getParentOfType<ForItemsOp>();
  StringRef ofItems = getKv().getDefiningOp<LoadCacheOp>().getChunk() ? items.getAxis() : "";
  if (!ofItems.empty() && !stateOver(state.getStates(), ofItems))
    return emitOpError("attends to a chunk of a head: its result is partial(softmax) over `")
           << ofItems << "`";
  for (StateAttr s : state.getStates())
    if (!stateOver(kv.getStates(), s.getAxis().getValue()) && s.getAxis().getValue() != ofItems)
      return emitOpError("gives a whole softmax to every worker of `")
             << s.getAxis().getValue() << "`, who attend to the same tokens; its type says " << describe(s);
  for (StateAttr s : kv.getStates()) {
    auto over = stateOver(state.getStates(), s.getAxis().getValue());
    if (!over || over->getKind() != StateKind::Softmax)
      return emitOpError("attends to tokens split over `")
             << s.getAxis().getValue() << "`: its result is partial(softmax) there";
  }
  if (auto over = stateOver(state.getStates(), ofItems); over && over->getKind() != StateKind::Softmax)
    return emitOpError("gives ") << describe(*over) << " over `" << ofItems
                                 << "`: it is partial(softmax) there";
  return checkPairs(*this, getQ(), "%q");
}

LoadCacheOp AttendNewOp::getLoad() {
  Value state = getState();
  while (true) {
    auto argument = dyn_cast<BlockArgument>(state); // what a finish has merged
    auto finish = argument ? dyn_cast<FinishOp>(argument.getOwner()->getParentOp()) : FinishOp();
    auto exchange = state.getDefiningOp<ExchangeOp>();
    auto empty = state.getDefiningOp<EmptyStateOp>();
    if (!finish && !exchange && !empty)
      break;
    state = finish ? finish.getTile() : exchange ? exchange.getTile() : empty.getLike();
  }
  auto attend = state.getDefiningOp<AttendOp>();
  return attend ? attend.getKv().getDefiningOp<LoadCacheOp>() : LoadCacheOp();
}

/// Memory of K and V of all query tokens.
static LogicalResult checkNewTokens(AttendNewOp op, LoadCacheOp load) {
  auto cache = cast<CacheType>(load.getCache().getType());
  TileType state = op.getState().getType();
  int64_t heads = state.getShape()[0];
  if (state.getShape()[1] != cache.getVDim() + 2 || op.getResult().getType() != state ||
      op.getQ().getType().getNumElements() != heads * cache.getDim())
    return op.emitOpError("merges tokens of ") << cache << " into " << state << ": the shapes do not fit";
  for (auto [memory, dim] :
       {std::pair<Value, int64_t>{op.getK(), cache.getDim()}, {op.getV(), cache.getVDim()}}) {
    auto type = dyn_cast<MemRefType>(memory.getType());
    int64_t elements = itemsOf(load.getItem()) * dim;
    if (!type || type.getRank() != 1 || type.getNumElements() != elements ||
        type.getElementType().isInteger())
      return op.emitOpError("needs K and V of all query tokens, memory of floats [")
             << elements << "], not " << memory.getType();
  }
  return success();
}

/// Heads that fit in the scratch of attend_new: one score each.
static constexpr int64_t kMaxNewHeads = 256;

LogicalResult AttendNewOp::verify() {
  if (failed(checkSoftcap(*this)) || failed(checkBias(*this)))
    return failure();
  TileType state = getState().getType();
  if (failed(checkSoftmax(*this, state)) || failed(checkNumber(*this, getSlot(), 64, "the slot")))
    return failure();
  for (Value x : {Value(getQ()), getK(), getV()})
    if (isa<TileType>(x.getType()) && failed(needsReplicated(*this, x, "its operands")))
      return failure();
  LoadCacheOp load = getLoad();
  bool severalTokens = load && load.getQueries();
  for (StateAttr s : state.getStates())
    if (s.isPartial() || s.getDim() != 0 || severalTokens)
      return needsReplicated(*this, s, "the softmax");
  if (severalTokens)
    return checkNewTokens(*this, load);
  if (!isa<TileType>(getK().getType()) || !isa<TileType>(getV().getType()))
    return emitOpError(
        "takes K and V from memory where its softmax is over a kernel.load_cache with `queries`");
  int64_t heads = state.getShape()[0], vDim = state.getShape()[1] - 2;
  auto elements = [](Value tile) { return cast<TileType>(tile.getType()).getNumElements(); };
  int64_t dim = elements(getK());
  for (Value x : {getK(), getV()})
    if (auto tile = cast<TileType>(x.getType());
        isa<Float8E4M3FNType>(tile.getElementType()) && !(load && load.getKScale()))
      return emitOpError("takes ") << tile << ", but its softmax is over no kernel.load_cache with `scales`";
  if (dim < 1 || elements(getQ()) / dim != heads || elements(getQ()) % dim || elements(getV()) != vDim ||
      getResult().getType() != state)
    return emitOpError("merges a key of ") << dim << " and a value of " << elements(getV())
                                           << " elements into " << state << ": the shapes do not fit";
  if (heads > kMaxNewHeads)
    return emitOpError("has ") << heads << " heads; up to " << kMaxNewHeads << " are possible";
  return success();
}

LogicalResult NormalizeOp::verify() {
  TileType state = getState().getType();
  if (failed(checkSoftmax(*this, state)))
    return failure();
  for (StateAttr s : state.getStates())
    if (s.isPartial() || s.getDim() != 0)
      return needsReplicated(*this, s, "the softmax");
  int64_t heads = state.getShape()[0], dim = state.getShape()[1] - 2;
  if (getSinks()) {
    if (failed(checkFloatMemory(*this, getSinks(), "has a sum with")))
      return failure();
    int64_t all = cast<MemRefType>(getSinks().getType()).getNumElements();
    if (!state.getStates().empty() || all % heads || (getItem() && itemsOf(getItem()) % (all / heads)))
      return emitOpError("has ") << all << " sinks; a whole softmax of " << heads
                                 << " heads an item takes as many for each";
  }
  if (getResult().getType().getNumElements() != heads * dim || getLse().getType().getNumElements() != heads)
    return emitOpError("gives ") << heads * dim << " elements and " << heads << " of lse";
  for (TileType type : {getResult().getType(), getLse().getType()}) {
    if (type.getStates() != state.getStates())
      return emitOpError("gives results in the states of the softmax over every axis");
    if (failed(checkTile(*this, type)))
      return failure();
  }
  return success();
}

LogicalResult ElementwiseOp::verify() {
  TileType a = getA().getType(), b = getB().getType(), r = getResult().getType();
  bool repeats = a.getShape().size() == 2 && b.getShape().size() == 1 && a.getShape()[0] == b.getShape()[0];
  if ((a.getNumElements() != b.getNumElements() && !repeats) || a.getNumElements() != r.getNumElements())
    return emitOpError("needs operands of one shape");
  if (a.getStates() != b.getStates() || a.getStates() != r.getStates())
    return emitOpError("needs operands and result in one state over every axis") << exchangeFor(a, b);
  if (getScale() && (getKind() != ElementwiseKind::Add || !getScale()->isFinite()))
    return emitOpError("has a finite scale where it adds, else none");
  for (StateAttr s : a.getStates())
    if (s.isPartial())
      return needsReplicated(*this, getA(), "its operands");
  return checkTile(*this, r);
}

LogicalResult CastOp::verify() {
  TileType a = getTile().getType(), r = getResult().getType();
  if (a.getShape() != r.getShape() || a.getStates() != r.getStates())
    return emitOpError("changes the element type only");
  for (StateAttr s : a.getStates())
    if (s.getKind() == StateKind::Softmax && !r.getElementType().isF32())
      return emitOpError("cannot round a partial softmax: its summands are f32");
  return checkTile(*this, r);
}

LogicalResult QuantizeOp::verify() {
  TileType a = getTile().getType(), r = getResult().getType();
  Type to = r.getElementType();
  if (a.getShape() != r.getShape())
    return emitOpError("changes the element type only");
  if (!to.isF16() && !to.isBF16() && !isa<Float8E4M3FNType>(to))
    return emitOpError("gives ") << r << "; caches hold f16, bf16 and f8E4M3FN";
  int64_t items = itemsOf(getItem()), scales = cast<MemRefType>(getScale().getType()).getNumElements();
  if (failed(checkScale(*this, getScale(), scales)))
    return failure();
  if (scales < 1 || items % scales)
    return emitOpError("has ") << scales << " scales for " << items << " items; that does not divide";
  if (failed(needsReplicated(*this, getTile(), "the tile")))
    return failure();
  for (StateAttr s : r.getStates())
    return needsReplicated(*this, s, "its result");
  for (Operation *user : getResult().getUsers())
    if (isa<Float8E4M3FNType>(to) && !isa<AppendOp, AttendNewOp>(user))
      return emitOpError("gives a tile of f8E4M3FN to ")
             << user->getName() << "; kernel.append and kernel.attend_new take one";
  return success();
}

LogicalResult FoldOp::verify() {
  TileType a = getTile().getType(), r = getResult().getType();
  if (r.getNumElements() != 1 || !r.getElementType().isF32() || getKind() == ElementwiseKind::Mul)
    return emitOpError("folds by add or max into tile<1xf32>");
  StateKind want = getKind() == ElementwiseKind::Add ? StateKind::Sum : StateKind::Max;
  for (StateAttr s : a.getStates()) {
    auto over = stateOver(r.getStates(), s.getAxis().getValue());
    if (s.isPartial())
      return needsReplicated(*this, getTile(), "the tile");
    if (!over || over->getKind() != want)
      return emitOpError("folds a tile split over `") << s.getAxis().getValue() << "`: its result is partial("
                                                      << stringifyStateKind(want) << ") there";
  }
  auto items = (*this)->getParentOfType<ForItemsOp>();
  for (StateAttr s : r.getStates())
    if (items && items.getAxis() == s.getAxis().getValue() && s.getKind() != want)
      return emitOpError("folds over the items of `")
             << items.getAxis() << "`: its result is partial(" << stringifyStateKind(want) << ") there";
    else if (!stateOver(a.getStates(), s.getAxis().getValue()) &&
             !(items && items.getAxis() == s.getAxis().getValue()))
      return emitOpError("gives the whole result to every worker of `")
             << s.getAxis().getValue() << "`, whose tile is whole; its type says " << describe(s);
  return checkTile(*this, r);
}
