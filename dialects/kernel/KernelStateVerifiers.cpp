//===- KernelStateVerifiers.cpp - Softmaxes that go from kernel to kernel -----===//
//
// A kernel of parts of heads may leave their softmaxes in memory, and whoever
// reads the result merges them. Nobody may store the same softmax twice, and
// what is merged must have been left.
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/KernelChecks.h"

using namespace mlir;
using namespace cfc::kernel;

/// Memory [heads, states, rows, dim + 2] of softmaxes, with a state for each of 1 to 16 parts of a head, and
/// one more for the new tokens.
static LogicalResult checkStatesMemory(Operation *op, Value memory) {
  constexpr int64_t kMostStates = 17;
  auto type = cast<MemRefType>(memory.getType());
  if (type.getRank() != 4 || !type.getElementType().isF32() || type.getDimSize(1) > kMostStates)
    return op->emitOpError("needs memory of f32 [heads, states, rows, dim + 2] with up to ")
           << kMostStates << " states of a head, not " << type;
  return checkShape(op, type.getShape(), kMaxIndexed / 16);
}

LogicalResult FirstOp::verify() {
  if (!getPart().getDefiningOp<InnerOp>())
    return emitOpError("takes the kernel.inner of an item: which part of its whole it is");
  for (Operation &op : getBody().front())
    if (isa<ExchangeOp, MatmulOp, AttendOp, FinishOp, ForItemsOp, FirstOp, GridSyncOp>(op))
      return op.emitOpError("cannot stand in kernel.first, which other items leave out");
  return success();
}

/// The head is that of which `part` is a part: the kernel.outer of its item.
static LogicalResult checkPart(LeaveOp op, Value part) {
  auto inner = part.getDefiningOp<InnerOp>();
  auto outer = op.getHead().getDefiningOp<OuterOp>();
  if (inner && outer && inner.getItem() == outer.getItem() && inner.getOf() == outer.getOf())
    return success();
  return op.emitOpError(
      "leaves a part of a head: `at` is a kernel.outer, `part` the kernel.inner of the same "
      "item and number");
}

LogicalResult LeaveOp::verify() {
  TileType state = getState().getType();
  if (failed(checkSoftmax(*this, state)) || failed(checkStatesMemory(*this, getMemory())))
    return failure();
  auto memory = cast<MemRefType>(getMemory().getType());
  if (state.getShape() != memory.getShape().drop_front(2))
    return emitOpError("leaves ") << state << " in " << memory << ": the shapes do not fit";
  if (itemsOf(getHead()) > memory.getDimSize(0))
    return emitOpError("leaves ") << itemsOf(getHead()) << " heads in " << memory;
  auto items = (*this)->getParentOfType<ForItemsOp>();
  auto first = (*this)->getParentOfType<FirstOp>();
  Value part = getPart() ? getPart() : first ? first.getPart() : Value();
  if (!items || !part || bool(getPart()) == bool(first))
    return emitOpError("leaves that of a part of a head, with `part`, or in a kernel.first that of the new "
                       "tokens");
  if (failed(checkPart(*this, part)))
    return failure();
  if (int64_t states = itemsOf(part) + (first ? 1 : 0); states > memory.getDimSize(1))
    return emitOpError("needs room for ") << states << " states of a head, not " << memory;
  for (StateAttr s : state.getStates()) {
    bool ofItems = getPart() && s.getAxis().getValue() == items.getAxis();
    if (s.isPartial() ? !ofItems : s.getDim() != 0)
      return needsReplicated(*this, s, "the softmax");
  }
  return success();
}

LogicalResult MergeStatesOp::verify() {
  if (failed(checkStatesMemory(*this, getMemory())))
    return failure();
  ArrayRef<int64_t> memory = cast<MemRefType>(getMemory().getType()).getShape();
  if (int64_t parts = numParts(); !llvm::isPowerOf2_64(parts))
    return emitOpError("merges ") << parts << " parts of a head; 1, 2, 4, 8 and 16 are possible";
  auto want =
      TileType::get(getContext(), {memory[0] * memory[2], memory[3]}, Float32Type::get(getContext()), {});
  if (getResult().getType() != want)
    return emitOpError("gives ") << want << ", not " << getResult().getType();
  return checkSoftmax(*this, want);
}

LogicalResult EmptyStateOp::verify() {
  TileType like = getLike().getType(), result = getResult().getType();
  SmallVector<StateAttr> states;
  llvm::copy_if(like.getStates(), std::back_inserter(states), [](StateAttr s) { return !s.isPartial(); });
  auto want = TileType::get(getContext(), like.getShape(), like.getElementType(), states);
  if (result != want)
    return emitOpError("gives ") << want << ", not " << result;
  return checkSoftmax(*this, like);
}
