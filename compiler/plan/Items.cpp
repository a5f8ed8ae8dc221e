//===- Items.cpp - What the items of a kernel are ---------------------------===//
//
// How many there are, and what of a value is one's: for a kernel's shape and the
// choices of its plan.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Fusion.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

/// Whether values have one element type.
static bool areAlike(ValueRange values) {
  return llvm::all_of(values, [&](Value value) {
    return getElementTypeOrSelf(value.getType()) == getElementTypeOrSelf(values.front().getType());
  });
}

void KernelShape::findStackable() {
  if (!hasRowItems())
    return;
  LinearOp only;
  for (Operation *op : ops) {
    auto linear = dyn_cast<LinearOp>(op);
    for (Value result : op->getResults()) {
      bool isUsed = llvm::any_of(result.getUsers(), [&](Operation *user) { return contains(user); });
      bool isSlice = isStored(result) && storedForm(result) == Slice;
      if (linear ? isUsed || !isSlice : isSlice)
        return;
    }
    if (linear && only)
      return;
    only = linear ? linear : only;
  }
  bool alike =
      only && areAlike(only.getWeights()) && areAlike(only.getResults()) && areAlike(only.getBiases());
  if (alike && only.getWeights().size() > 1)
    stackable = only;
}

bool KernelShape::canStack(int64_t rows) const {
  return stackable && llvm::all_of(LinearOp(stackable).getResults(),
                                   [&](Value result) { return widthOf(result) % rows == 0; });
}

int64_t cfc::groupTokens(const KernelShape &shape, const KernelPlan &plan) {
  return shape.isOfTokens() ? llvm::divideCeil(shape.getTokens(), tokenGroupsOf(plan)) : 1;
}

bool cfc::canGroup(const KernelShape &shape, int64_t groups) {
  if (groups == 1)
    return true;
  int64_t each = llvm::divideCeil(shape.getTokens(), groups);
  return shape.isOfTokens() && shape.getTokens() - (groups - 1) * each >= 2;
}

int64_t cfc::itemsOf(const KernelShape &shape, const KernelPlan &plan) {
  if (shape.getHeads())
    return shape.getHeadItems() * chunksOf(plan);
  if (shape.hasTokenItems())
    return shape.getTokens();
  if (takesPanels(shape, plan)) {
    int64_t rows = 0;
    for (Value result : shape.getStackable().getResults())
      rows += widthOf(result);
    return rows / plan.rowsPerItem;
  }
  return shape.hasItems() ? llvm::divideCeil(shape.getWidest(), plan.rowsPerItem) : 1;
}

int64_t cfc::sliceOf(const KernelShape &shape, const KernelPlan &plan, int64_t width) {
  if (shape.getHeads())
    return width / shape.getHeads();
  if (shape.hasTokenItems())
    return width;
  if (takesPanels(shape, plan))
    return plan.rowsPerItem;
  return llvm::alignTo(llvm::divideCeil(width, itemsOf(shape, plan)), shape.getGranule());
}

bool cfc::isStacked(const KernelShape &shape, const KernelPlan &plan, LinearOp op, Split split) {
  if (shape.finishes(op) || op.getResults().size() == 1)
    return false;
  auto isEven = [&](Value result) {
    int64_t slice = sliceOf(shape, plan, widthOf(result));
    return slice * itemsOf(shape, plan) == widthOf(result) && slice % plan.part == 0;
  };
  // Each CTA finishes some rows of every weight.
  bool dealt = shape.dealsSums(op, split);
  return shape.isGathered(op) || ((plan.part == 1 || dealt) && llvm::all_of(op.getResults(), isEven));
}
