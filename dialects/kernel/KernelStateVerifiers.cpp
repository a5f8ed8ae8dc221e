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
  if (getBody().getNumArguments())
    return emitOpError("has no block arguments");
  if ((*this)->getParentOfType<FinishOp>())
    return emitOpError("cannot stand in kernel.finish, which runs in any of the parts");
  auto items = (*this)->getParentOfType<ForItemsOp>();
  if (items && items.getWork())
    return emitOpError(
        "cannot stand in a loop by a kernel.work_list, of which several clusters have an item");
  for (Operation &op : getBody().front())
    if (isa<ExchangeOp, MatmulOp, AttendOp, FinishOp, ForItemsOp, FirstOp, GridSyncOp, WorkListOp,
            ProducerOp>(op))
      return op.emitOpError("cannot stand in kernel.first, which other items leave out");
  return success();
}

/// The head is that of which `part` is a part: the kernel.outer of its item.
static LogicalResult checkPart(LeaveOp op, Value part) {
  if (isPartOf(part, op.getHead()))
    return success();
  return op.emitOpError(
      "leaves a part of a head: `at` is a kernel.outer, `part` the kernel.inner of the same "
      "item and number");
}

/// Every state of the memory is stored, and once: by the parts of the heads, and by the first of them.
static LogicalResult checkPlaces(LeaveOp op, Value part, MemRefType memory) {
  int64_t heads = itemsOf(op.getHead()), parts = itemsOf(part), states = memory.getDimSize(1);
  if (heads != memory.getDimSize(0))
    return op.emitOpError("leaves ") << heads << " heads in " << memory;
  if (states != parts + 1 && (states != parts || !op.getPart()))
    return op.emitOpError("needs room for ")
           << parts << " parts of a head" << (op.getPart() ? "" : " and the new tokens") << ", not "
           << memory;
  for (Operation *user : op.getMemory().getUsers())
    if (auto other = dyn_cast<LeaveOp>(user); other && other != op && !other.getPart() == !op.getPart())
      return op.emitOpError("leaves a state where another kernel.leave does, too");
  return success();
}

LogicalResult LeaveOp::verify() {
  TileType state = getState().getType();
  if (failed(checkSoftmax(*this, state)) || failed(checkStatesMemory(*this, getMemory())))
    return failure();
  auto memory = cast<MemRefType>(getMemory().getType());
  if (state.getShape() != memory.getShape().drop_front(2))
    return emitOpError("leaves ") << state << " in " << memory << ": the shapes do not fit";
  auto items = (*this)->getParentOfType<ForItemsOp>();
  auto first = (*this)->getParentOfType<FirstOp>();
  Value part = getPart() ? getPart() : first ? first.getPart() : Value();
  if (!items || !part || bool(getPart()) == bool(first))
    return emitOpError("leaves that of a part of a head, with `part`, or in a kernel.first that of the new "
                       "tokens");
  if (items.getWork() || (*this)->getParentOfType<FinishOp>())
    return emitOpError("leaves that of every item: it stands in no kernel.finish, nor in a loop by a "
                       "kernel.work_list");
  if (failed(checkPart(*this, part)) || failed(checkPlaces(*this, part, memory)))
    return failure();
  std::optional<StateAttr> ofItems = stateOver(state.getStates(), items.getAxis());
  if (getPart() && (!ofItems || ofItems->getKind() != StateKind::Softmax))
    return emitOpError("leaves that of a part of a head, which is partial(softmax) over `")
           << items.getAxis() << "`, not " << state;
  for (StateAttr s : state.getStates())
    if (s.isPartial() ? !getPart() || s != *ofItems : s.getDim() != 0)
      return needsReplicated(*this, s, "the softmax");
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
  for (StateAttr s : like.getStates())
    if (s.isPartial() ? s.getKind() != StateKind::Softmax : s.getDim() != 0)
      return needsReplicated(*this, s, "the softmax");
  llvm::copy_if(like.getStates(), std::back_inserter(states), [](StateAttr s) { return !s.isPartial(); });
  auto want = TileType::get(getContext(), like.getShape(), like.getElementType(), states);
  if (result != want)
    return emitOpError("gives ") << want << ", not " << result;
  return checkSoftmax(*this, like);
}
