//===- KernelAssignStorage.cpp - Table entries and workspace of kernels ---------===//
//
// Handwritten kernels say nothing of where their arguments stand in the table
// (docs/design.md) or where sums over the grid keep their counters. This pass
// gives every tensor name its table entries, in order of first appearance, and
// every `kernel.finish` its place in the workspace: first what is zero between
// launches (counters, atomic sums), behind it the partial sums. Kernels that
// were made from a graph have all of it already.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/KernelPasses.h"
#include "dialects/kernel/Kernel.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"

#define DEBUG_TYPE "kernel-assign-storage"

namespace cfc::kernel {
#define GEN_PASS_DEF_KERNELASSIGNSTORAGE
#include "dialects/kernel/Passes.h.inc"
} // namespace cfc::kernel

using namespace mlir;
using namespace cfc::kernel;

namespace {
struct KernelAssignStoragePass : public cfc::kernel::impl::KernelAssignStorageBase<KernelAssignStoragePass> {
  void runOnOperation() override;

private:
  LogicalResult assignEntries();
  LogicalResult assignWorkspace();
};
} // namespace

namespace {
/// A tensor as the first kernel that names it has it.
struct Tensor {
  int64_t entry;
  Type type;
};
} // namespace

LogicalResult KernelAssignStoragePass::assignEntries() {
  llvm::StringMap<Tensor> tensors;
  int64_t next = 0;
  Builder builder(&getContext());
  for (FuncOp func : getOperation().getOps<FuncOp>())
    for (BlockArgument arg : func.getArguments()) {
      unsigned i = arg.getArgNumber();
      if (func.getArgAttr(i, kEntryAttr) || func.getArgAttr(i, kWorkspaceAttr))
        continue;
      auto name = func.getArgAttrOfType<StringAttr>(i, kNameAttr);
      if (!name)
        return func.emitOpError("argument ") << i << " has no name: give it one, as %x or by " << kNameAttr;
      auto [it, isNew] = tensors.try_emplace(name.getValue(), Tensor{next, arg.getType()});
      if (isNew)
        next += isa<CacheType>(arg.getType()) ? 5 : 1;
      else if (it->second.type != arg.getType())
        return func.emitOpError("has a tensor ")
               << name << " of type " << arg.getType() << "; an earlier kernel has it as " << it->second.type;
      func.setArgAttr(i, kEntryAttr, builder.getI32IntegerAttr(it->second.entry));
    }
  return success();
}

LogicalResult KernelAssignStoragePass::assignWorkspace() {
  ModuleOp module = getOperation();
  if (module->hasAttr("kernel.workspace_bytes"))
    return success();
  int64_t bytes = 0;
  auto allocate = [&](int64_t size) {
    int64_t at = llvm::alignTo(bytes, 16);
    bytes = at + size;
    return at;
  };
  SmallVector<FinishOp> finishes;
  module.walk([&](FinishOp op) { finishes.push_back(op); });
  for (FinishOp op : finishes) {
    auto func = op->getParentOfType<FuncOp>();
    op.setCounters(allocate(4 * func.clusterSize()));
    if (op.getAlgorithm() == Algorithm::Atomic)
      op.setPartials(allocate(4 * op.getTile().getType().getNumElements()));
  }
  int64_t zero = llvm::alignTo(bytes, 16);
  for (FinishOp op : finishes)
    if (op.getAlgorithm() == Algorithm::Ordered) {
      int64_t items = op->getParentOfType<FuncOp>().axis(op.getAxis()).getSize();
      op.setPartials(allocate(4 * items * op.getTile().getType().getNumElements()));
    }
  Builder builder(&getContext());
  module->setAttr("kernel.zero_bytes", builder.getI64IntegerAttr(zero));
  module->setAttr("kernel.workspace_bytes", builder.getI64IntegerAttr(std::max(zero, bytes)));
  return success();
}

void KernelAssignStoragePass::runOnOperation() {
  if (failed(assignEntries()) || failed(assignWorkspace()))
    signalPassFailure();
}
