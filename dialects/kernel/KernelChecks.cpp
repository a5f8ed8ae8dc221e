//===- KernelChecks.cpp - What verifiers of the kernel dialect share --------===//
#include "dialects/kernel/KernelChecks.h"

using namespace mlir;
using namespace cfc::kernel;

std::string cfc::kernel::describe(StateAttr s) {
  if (s.isPartial())
    return ("a partial " + stringifyStateKind(s.getKind())).str();
  return "split over dimension " + std::to_string(s.getDim());
}

StringRef cfc::kernel::exchangeBetween(std::optional<StateAttr> from, std::optional<StateAttr> to) {
  if (!from || from == to || (to && to->isPartial()))
    return "";
  if (from->isPartial())
    return to ? "reduce_scatter" : "reduce";
  return to ? "all_to_all" : "gather";
}

std::string cfc::kernel::exchangeFor(TileType a, TileType b) {
  auto sentence = [](StringRef exchange, StringAttr axis) {
    return (": insert `kernel.exchange " + exchange + " … over " + axis.getValue() + "`").str();
  };
  for (StateAttr s : a.getStates()) {
    std::optional<StateAttr> other = stateOver(b.getStates(), s.getAxis().getValue());
    StringRef exchange = exchangeBetween(s, other);
    if (exchange.empty() && other)
      exchange = exchangeBetween(other, s);
    if (!exchange.empty())
      return sentence(exchange, s.getAxis());
  }
  for (StateAttr s : b.getStates())
    if (!stateOver(a.getStates(), s.getAxis().getValue()))
      return sentence(exchangeBetween(s, std::nullopt), s.getAxis());
  return "";
}

LogicalResult cfc::kernel::needsReplicated(Operation *op, StateAttr s, StringRef what) {
  auto func = op->getParentOfType<FuncOp>();
  StringRef name = s.getAxis().getValue();
  AxisAttr axis = func ? func.axis(name) : AxisAttr();
  StringRef exchange = axis && axis.getLevel() == Level::Grid ? "finish"
                       : s.isPartial()                        ? "exchange reduce"
                                                              : "exchange gather";
  return op->emitOpError("needs ") << what << " replicated over `" << name << "`; it is " << describe(s)
                                   << ": insert `kernel." << exchange << " … over " << name << "`";
}

LogicalResult cfc::kernel::needsReplicated(Operation *op, Value value, StringRef what) {
  for (StateAttr s : cast<TileType>(value.getType()).getStates())
    return needsReplicated(op, s, what);
  return success();
}

LogicalResult cfc::kernel::givesReplicated(Operation *op, Type type, StringRef what) {
  for (StateAttr s : cast<TileType>(type).getStates())
    return op->emitOpError("gives ") << what << " whole to every worker of `" << s.getAxis().getValue()
                                     << "`; its type says " << describe(s);
  return checkTile(op, type);
}

LogicalResult cfc::kernel::checkShape(Operation *op, ArrayRef<int64_t> shape, int64_t most) {
  int64_t elements = 1;
  for (int64_t d : shape) {
    if (d < 1)
      return op->emitOpError("has an extent of ") << d << "; at least 1 is needed";
    if (d > most / elements)
      return op->emitOpError("has a value of more than ") << most << " elements";
    elements *= d;
  }
  return success();
}

LogicalResult cfc::kernel::checkStates(Operation *op, ArrayRef<int64_t> shape, ArrayRef<StateAttr> states) {
  auto func = op->getParentOfType<FuncOp>();
  SmallVector<int64_t> part(shape);
  for (auto [i, s] : llvm::enumerate(states)) {
    AxisAttr axis = func ? func.axis(s.getAxis().getValue()) : AxisAttr();
    if (!axis)
      return op->emitOpError("names an unknown axis ") << s.getAxis();
    if (stateOver(states.take_front(i), s.getAxis().getValue()))
      return op->emitOpError("has two states over the axis ") << s.getAxis();
    if (axis.getLevel() == Level::Grid && !s.isPartial())
      return op->emitOpError("has a value that is ") << describe(s) << " over the grid axis " << s.getAxis()
                                                     << "; only partial values are possible there";
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

LogicalResult cfc::kernel::checkTile(Operation *op, Type type) {
  auto tile = cast<TileType>(type);
  Type e = tile.getElementType();
  if (!e.isF16() && !e.isBF16() && !e.isF32())
    return op->emitOpError("has a tile of ") << e << "; f16, bf16 and f32 are possible";
  if (failed(checkShape(op, tile.getShape(), kMaxIndexed / 16)))
    return failure();
  return checkStates(op, tile.getShape(), tile.getStates());
}

LogicalResult cfc::kernel::checkSoftmax(Operation *op, Type type) {
  auto tile = cast<TileType>(type);
  if (tile.getShape().size() != 2 || tile.getShape()[1] < 10 || !tile.getElementType().isF32())
    return op->emitOpError("needs an online softmax tile<heads x (dim + 2) x f32>, not ") << type;
  return checkTile(op, type);
}

LogicalResult cfc::kernel::checkFloatMemory(Operation *op, Value memory, StringRef what) {
  auto type = cast<MemRefType>(memory.getType());
  if (!isa<FloatType>(type.getElementType()))
    return op->emitOpError(what) << " floating-point memory, not " << type;
  return checkShape(op, type.getShape(), kMaxIndexed);
}

LogicalResult cfc::kernel::checkNumber(Operation *op, Value memory, unsigned bits, StringRef what) {
  auto type = cast<MemRefType>(memory.getType());
  if (!type.getElementType().isInteger(bits))
    return op->emitOpError("needs ") << what << " in memory of i" << bits << ", not " << type;
  return success();
}

int64_t cfc::kernel::itemsOf(Value item) {
  if (auto outer = item ? item.getDefiningOp<OuterOp>() : OuterOp())
    return itemsOf(outer.getItem()) / std::max<int64_t>(1, outer.getOf());
  if (auto inner = item ? item.getDefiningOp<InnerOp>() : InnerOp())
    return inner.getOf();
  auto argument = dyn_cast_or_null<BlockArgument>(item);
  auto loop = argument ? dyn_cast<ForItemsOp>(argument.getOwner()->getParentOp()) : ForItemsOp();
  auto func = loop ? loop->getParentOfType<FuncOp>() : FuncOp();
  AxisAttr axis = func ? func.axis(loop.getAxis()) : AxisAttr();
  return axis ? axis.getSize() : 1;
}

bool cfc::kernel::isPartOf(Value part, Value whole) {
  auto inner = part ? part.getDefiningOp<InnerOp>() : InnerOp();
  auto outer = whole ? whole.getDefiningOp<OuterOp>() : OuterOp();
  return inner && outer && inner.getItem() == outer.getItem() && inner.getOf() == outer.getOf();
}

LogicalResult cfc::kernel::checkScale(Operation *op, Value scale, int64_t heads) {
  auto type = cast<MemRefType>(scale.getType());
  int64_t n = type.getNumElements();
  if (type.getElementType().isF32() && (n == 1 || n == heads))
    return success();
  return op->emitOpError("has scales ") << type << "; 1 or " << heads << ", the heads, of f32 are possible";
}

LogicalResult cfc::kernel::checkPairs(Operation *op, Value tile, StringRef what) {
  unsigned bytes = cast<TileType>(tile.getType()).getElementBytes();
  int64_t from = 0;
  for (auto extract = tile.getDefiningOp<ExtractOp>(); extract;
       extract = extract.getTile().getDefiningOp<ExtractOp>())
    from += extract.getFrom();
  if (bytes == 2 && from % 2)
    return op->emitOpError("reads ") << what << " in pairs; it begins at element " << from
                                     << " of its tile, an even one is needed";
  return success();
}
