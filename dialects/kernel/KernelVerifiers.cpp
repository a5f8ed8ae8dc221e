//===- KernelVerifiers.cpp - What each operation needs of its operands --------===//
//
// A value whose state does not fit is an error that names the exchange which
// would make it fit.
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/Kernel.h"
#include <cmath>

using namespace mlir;
using namespace cfc::kernel;

static std::string describe(StateAttr s) {
  if (s.isPartial())
    return ("a partial " + stringifyStateKind(s.getKind())).str();
  return "split over dimension " + std::to_string(s.getDim());
}

/// `value` must be whole in each worker of every axis.
static LogicalResult needsReplicated(Operation *op, Value value, StringRef what) {
  auto func = op->getParentOfType<FuncOp>();
  for (StateAttr s : cast<TileType>(value.getType()).getStates()) {
    StringRef name = s.getAxis().getValue();
    AxisAttr axis = func ? func.axis(name) : AxisAttr();
    StringRef exchange = axis && axis.getLevel() == Level::Grid ? "finish"
                         : s.isPartial()                         ? "exchange reduce"
                                                                 : "exchange gather";
    return op->emitOpError("needs ") << what << " replicated over `" << name << "`; it is " << describe(s)
                                     << ": insert `kernel." << exchange << " … over " << name << "`";
  }
  return success();
}

/// Every split divides its dimension, every axis exists at the cta level (grid sums apart).
static LogicalResult checkStates(Operation *op, ArrayRef<int64_t> shape, ArrayRef<StateAttr> states) {
  auto func = op->getParentOfType<FuncOp>();
  SmallVector<int64_t> part(shape);
  for (StateAttr s : states) {
    AxisAttr axis = func ? func.axis(s.getAxis().getValue()) : AxisAttr();
    if (!axis)
      return op->emitOpError("names an unknown axis ") << s.getAxis();
    if (axis.getLevel() == Level::Grid && s.getKind() != StateKind::Sum)
      return op->emitOpError("has a value that is ") << describe(s) << " over the grid axis " << s.getAxis()
                                                     << "; only partial(sum) is possible there";
    if (axis.getLevel() == Level::Warp)
      return op->emitOpError("distributes a value over the warp axis ")
             << s.getAxis() << "; warps share their CTA's tiles";
    if (s.isPartial())
      continue;
    if (s.getDim() < 0 || s.getDim() >= (int64_t)part.size())
      return op->emitOpError("splits dimension ") << s.getDim() << " of a value of rank " << part.size();
    int64_t &extent = part[s.getDim()];
    if (extent % axis.getSize())
      return op->emitOpError("splits ") << extent << " elements over the " << axis.getSize() << " workers of "
                                        << s.getAxis() << "; that does not divide";
    extent /= axis.getSize();
  }
  return success();
}

static LogicalResult checkTile(Operation *op, Type type) {
  auto tile = cast<TileType>(type);
  Type e = tile.getElementType();
  if (!e.isF16() && !e.isBF16() && !e.isF32())
    return op->emitOpError("has a tile of ") << e << "; f16, bf16 and f32 are possible";
  return checkStates(op, tile.getShape(), tile.getStates());
}

static bool isFloatMemory(Value memory) {
  return isa<FloatType>(cast<MemRefType>(memory.getType()).getElementType());
}

LogicalResult ReadOp::verify() {
  TileType tile = getResult().getType();
  if (!isFloatMemory(getMemory()))
    return emitOpError("reads floating-point memory");
  if (!getItem() && tile.getNumElements() > cast<MemRefType>(getMemory().getType()).getNumElements())
    return emitOpError("reads ") << tile.getNumElements() << " elements of " << getMemory().getType();
  for (StateAttr s : tile.getStates())
    if (s.isPartial() || s.getDim() != 0)
      return emitOpError("gives a tile that is replicated or split over dimension 0");
  return checkTile(*this, tile);
}

LogicalResult WriteOp::verify() {
  if (!isFloatMemory(getMemory()))
    return emitOpError("writes floating-point memory");
  for (StateAttr s : getTile().getType().getStates()) {
    if (s.isPartial())
      return needsReplicated(*this, getTile(), "the tile");
    if (s.getDim() != 0)
      return emitOpError("writes a tile that is replicated or split over dimension 0");
  }
  return checkTile(*this, getTile().getType());
}

LogicalResult LoadOp::verify() {
  if (getRows().size() != getWeights().size())
    return emitOpError("has ") << getWeights().size() << " weights and " << getRows().size() << " row counts";
  StreamType stream = getResult().getType();
  if (stream.getShape().size() != 2)
    return emitOpError("gives a stream [rows, columns]");
  int64_t rows = 0;
  for (auto [weight, n] : llvm::zip(getWeights(), getRows())) {
    auto memory = cast<MemRefType>(weight.getType());
    if (memory.getRank() != 2 || memory.getElementType() != stream.getElementType())
      return emitOpError("streams matrices of ") << stream.getElementType() << ", not " << memory;
    if (memory.getDimSize(1) % 8)
      return emitOpError("streams rows of ")
             << memory.getDimSize(1) << " columns; multiples of 8 (16 bytes) are possible";
    if (!getColumns() && memory.getDimSize(1) != stream.getShape()[1])
      return emitOpError("streams rows of ") << stream.getShape()[1] << " columns of " << memory;
    rows += n;
  }
  if (!stream.getElementType().isF16() && !stream.getElementType().isBF16())
    return emitOpError("streams f16 or bf16, not ") << stream.getElementType();
  if (rows != stream.getShape()[0])
    return emitOpError("stacks ") << rows << " rows into a stream of " << stream.getShape()[0];
  if (getColumns() && !getItem())
    return emitOpError("takes columns of an item: give `at %item`");
  if (!getResult().hasOneUse())
    return emitOpError("gives a stream that must be used exactly once");
  return checkStates(*this, stream.getShape(), stream.getStates());
}

LogicalResult LoadCacheOp::verify() {
  auto cache = cast<CacheType>(getCache().getType());
  KvStreamType stream = getResult().getType();
  if (cache.getDim() != stream.getDim() || cache.getElementType() != stream.getElementType())
    return emitOpError("gives ") << stream << " of " << cache;
  if (cache.getDim() % 16 || cache.getDim() < 16 || cache.getDim() > 256)
    return emitOpError("has a head dimension of ")
           << cache.getDim() << "; multiples of 16 up to 256 are possible";
  if (!getResult().hasOneUse())
    return emitOpError("gives a stream that must be used exactly once");
  for (StateAttr s : stream.getStates())
    if (s.isPartial() || s.getDim() != 0)
      return emitOpError("splits tokens over dimension 0");
  return success();
}

LogicalResult AppendOp::verify() {
  auto cache = cast<CacheType>(getCache().getType());
  for (Value x : {getK(), getV()}) {
    if (cast<TileType>(x.getType()).getNumElements() != cache.getDim())
      return emitOpError("stores rows of ") << cache.getDim() << " elements, not " << x.getType();
    if (failed(needsReplicated(*this, x, "its row")))
      return failure();
  }
  return success();
}

LogicalResult RmsNormOp::verify() {
  if (!(getEps().convertToDouble() > 0))
    return emitOpError("needs eps > 0");
  if (getX().getType().getNumElements() != getResult().getType().getNumElements())
    return emitOpError("keeps its shape");
  if (failed(checkTile(*this, getResult().getType())))
    return failure();
  return needsReplicated(*this, getX(), "%x");
}

LogicalResult MatmulOp::verify() {
  StreamType w = getWeights().getType();
  TileType x = getX().getType(), y = getResult().getType();
  if (x.getNumElements() != w.getShape()[1] || y.getNumElements() != w.getShape()[0])
    return emitOpError("multiplies ") << w << " by " << x << " into " << y << ": the shapes do not fit";
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
  for (StateAttr s : x.getStates())
    if (!stateOver(w.getStates(), s.getAxis().getValue()))
      return needsReplicated(*this, getX(), "%x");
  return success();
}

LogicalResult ExtractOp::verify() {
  TileType from = getTile().getType(), to = getResult().getType();
  if (getFrom() < 0 || (int64_t)getFrom() + to.getNumElements() > from.getNumElements())
    return emitOpError("takes elements ")
           << getFrom() << " to " << getFrom() + to.getNumElements() << " of " << from.getNumElements();
  if (from.getElementType() != to.getElementType())
    return emitOpError("keeps the element type");
  return needsReplicated(*this, getTile(), "the tile");
}

LogicalResult RopeOp::verify() {
  auto table = cast<MemRefType>(getTable().getType());
  if (table.getRank() != 2 || table.getDimSize(1) % 2)
    return emitOpError("needs a table [positions, dim] with an even dim, not ") << table;
  if (getX().getType().getNumElements() % table.getDimSize(1))
    return emitOpError("rotates heads of ")
           << table.getDimSize(1) << " elements; " << getX().getType() << " is no multiple";
  return needsReplicated(*this, getX(), "%x");
}

/// A tile [heads, dim + 2] of f32.
static LogicalResult checkSoftmax(Operation *op, Type type) {
  auto tile = cast<TileType>(type);
  if (tile.getShape().size() != 2 || tile.getShape()[1] < 18 || !tile.getElementType().isF32())
    return op->emitOpError("needs an online softmax tile<heads x (dim + 2) x f32>, not ") << type;
  return success();
}

LogicalResult AttendOp::verify() {
  TileType state = getResult().getType();
  KvStreamType kv = getKv().getType();
  if (failed(checkSoftmax(*this, state)) || failed(needsReplicated(*this, getQ(), "%q")))
    return failure();
  int64_t heads = state.getShape()[0];
  if (state.getShape()[1] != kv.getDim() + 2 || getQ().getType().getNumElements() != heads * kv.getDim())
    return emitOpError("attends ") << getQ().getType() << " to " << kv << " into " << state
                                   << ": the shapes do not fit";
  if (heads > 8)
    return emitOpError("has ") << heads << " query heads for one KV head; up to 8 are possible";
  if (!std::isfinite(getScale().convertToDouble()))
    return emitOpError("needs a finite scale");
  for (StateAttr s : kv.getStates()) {
    auto over = stateOver(state.getStates(), s.getAxis().getValue());
    if (!over || over->getKind() != StateKind::Softmax)
      return emitOpError("attends to tokens split over `")
             << s.getAxis().getValue() << "`: its result is partial(softmax) there";
  }
  return success();
}

LogicalResult AttendNewOp::verify() {
  if (failed(checkSoftmax(*this, getState().getType())))
    return failure();
  for (Value x : {getState(), getQ(), getK(), getV()})
    if (failed(needsReplicated(*this, x, "its operands")))
      return failure();
  return success();
}

LogicalResult NormalizeOp::verify() {
  if (failed(checkSoftmax(*this, getState().getType())))
    return failure();
  return needsReplicated(*this, getState(), "the softmax");
}

LogicalResult ElementwiseOp::verify() {
  TileType a = getA().getType(), b = getB().getType(), r = getResult().getType();
  if (a.getNumElements() != b.getNumElements() || a.getNumElements() != r.getNumElements())
    return emitOpError("needs operands of one shape");
  if (a.getStates() != b.getStates() || a.getStates() != r.getStates())
    return emitOpError("needs operands and result in one state over every axis");
  for (StateAttr s : a.getStates())
    if (s.isPartial())
      return needsReplicated(*this, getA(), "its operands");
  return success();
}

LogicalResult CastOp::verify() {
  TileType a = getTile().getType(), r = getResult().getType();
  if (a.getShape() != r.getShape() || a.getStates() != r.getStates())
    return emitOpError("changes the element type only");
  return checkTile(*this, r);
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
  return success();
}

LogicalResult ExchangeOp::verify() {
  TileType from = getTile().getType(), to = getResult().getType();
  auto func = (*this)->getParentOfType<FuncOp>();
  AxisAttr axis = func ? func.axis(getAxis()) : AxisAttr();
  if (!axis || axis.getLevel() != Level::Cta)
    return emitOpError("goes over a cta axis of its kernel; '")
           << getAxis() << "' is none (the grid: kernel.finish)";
  if (getAlgorithm() == Algorithm::Ordered || getAlgorithm() == Algorithm::Atomic)
    return emitOpError("goes by push, butterfly or bulk over a cta axis");
  if ((*this)->getParentOfType<FinishOp>())
    return emitOpError("cannot stand in kernel.finish: CTAs of a cluster finish at different times");
  std::optional<StateAttr> state = stateOver(from.getStates(), getAxis());
  bool reduce = getKind() == ExchangeKind::Reduce;
  if (!state || state->isPartial() != reduce)
    return emitOpError(reduce ? "reduces a partial value over `" : "gathers a split value over `")
           << getAxis() << "`; it is " << (state ? describe(*state) : "replicated");
  if (from.getShape() != to.getShape() || from.getElementType() != to.getElementType() ||
      withoutAxis(from.getStates(), getAxis()) != SmallVector<StateAttr>(to.getStates()))
    return emitOpError("gives its operand's type without the state over `") << getAxis() << "`";
  if (!reduce) {
    if (state->getDim() != 0)
      return emitOpError("gathers dimension 0");
    for (StateAttr s : from.getStates())
      if (s.isPartial())
        return emitOpError("gathers a value that is ")
               << describe(s) << " over `" << s.getAxis().getValue() << "`";
    if (from.getStates().back() != *state)
      return emitOpError("gathers the innermost split first: `")
             << from.getStates().back().getAxis().getValue() << "`";
  }
  if (reduce && from.getStates().size() > 1 &&
      llvm::any_of(to.getStates(), [](StateAttr s) { return !s.isPartial(); }))
    return emitOpError("reduces a value that is split over another axis; gather it first");
  if (getAlgorithm() == Algorithm::Bulk) {
    int64_t bytes = from.getNumElements() * from.getElementBytes() / (reduce ? 1 : axis.getSize());
    if (bytes % 16)
      return emitOpError("sends parts of ") << bytes << " bytes; bulk copies need multiples of 16";
  }
  return checkTile(*this, to);
}

LogicalResult FinishOp::verify() {
  auto func = (*this)->getParentOfType<FuncOp>();
  AxisAttr axis = func ? func.axis(getAxis()) : AxisAttr();
  TileType tile = getTile().getType();
  if (!axis || axis.getLevel() != Level::Grid)
    return emitOpError("goes over a grid axis of its kernel; '") << getAxis() << "' is none";
  if (getAlgorithm() != Algorithm::Ordered && getAlgorithm() != Algorithm::Atomic)
    return emitOpError("goes by ordered or atomic over a grid axis");
  std::optional<StateAttr> state = stateOver(tile.getStates(), getAxis());
  if (!state || state->getKind() != StateKind::Sum)
    return emitOpError("reduces a partial sum over `") << getAxis() << "`";
  if (!tile.getElementType().isF32())
    return emitOpError("sums f32, not ") << tile.getElementType();
  auto items = (*this)->getParentOfType<ForItemsOp>();
  if (!items || items.getAxis() != getAxis())
    return emitOpError("stands in the kernel.for_items over its axis");
  for (StateAttr s : withoutAxis(tile.getStates(), getAxis()))
    if (s.isPartial() || s.getDim() != 0)
      return emitOpError("finishes a sum that is replicated or split(0) over `")
             << s.getAxis().getValue() << "`; it is " << describe(s)
             << ": insert `kernel.exchange reduce … over " << s.getAxis().getValue() << "`";
  auto want = TileType::get(getContext(), tile.getShape(), tile.getElementType(),
                            withoutAxis(tile.getStates(), getAxis()));
  if (getBody().getNumArguments() != 1 || getBody().getArgument(0).getType() != want)
    return emitOpError("has one block argument, ") << want;
  return success();
}
