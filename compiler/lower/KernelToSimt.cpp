//===- KernelToSimt.cpp - Lowers kernels to what one thread does ---------------===//
//
// One simt.kernel for each kernel.func. The lowering of single operations is in
// the folder `kernel`.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/KernelPasses.h"
#include "compiler/lower/kernel/KernelLowering.h"
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#define DEBUG_TYPE "kernel-to-simt"

namespace cfc::kernel {
#define GEN_PASS_DEF_KERNELTOSIMT
#include "dialects/kernel/Passes.h.inc"
} // namespace cfc::kernel

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

namespace {
struct KernelToSimtPass : public cfc::kernel::impl::KernelToSimtBase<KernelToSimtPass> {
  void runOnOperation() override;
};
} // namespace

static LogicalResult lowerFunc(FuncOp func, TensorMaps &maps) {
  FailureOr<KernelLayout> layout = KernelLayout::compute(func);
  if (failed(layout))
    return failure();
  OpBuilder builder(func);
  auto global = simt::PtrType::get(func.getContext(), simt::Space::Global);
  bool producer = llvm::any_of(func.getOps(), [](Operation &op) { return isa<ProducerOp>(op); });
  int64_t threads = (func.consumerWarps() + producer) * 32;
  auto target = simt::KernelOp::create(
      builder, func.getLoc(), func.getSymNameAttr(),
      TypeAttr::get(builder.getFunctionType({global, global}, {})), /*arg_attrs=*/ArrayAttr(),
      /*res_attrs=*/ArrayAttr(), builder.getI32IntegerAttr(threads),
      builder.getI32IntegerAttr(func.clusterSize()), builder.getI64IntegerAttr(layout->sharedBytes),
      builder.getI32IntegerAttr(func.planValue("ctas_per_sm", 1)));
  target->setAttr("cfc.clusters", builder.getI32IntegerAttr(usefulClusters(func)));
  if (func.planValue("pdl", 0))
    target->setAttr("cfc.pdl", builder.getUnitAttr());
  if (llvm::any_of(func.getOps(), [](Operation &op) { return isa<GridSyncOp>(op); }))
    target->setAttr("cfc.cooperative", builder.getUnitAttr());
  builder.createBlock(&target.getBody(), {}, {global, global}, {func.getLoc(), func.getLoc()});
  KernelLowering lowering(func, *layout, maps, target);
  if (failed(lowering.run()))
    return failure();
  if (Attribute profile = func->getAttr(kProfileAttr)) {
    target->setAttr("cfc.profile", profile);
    target->setAttr("cfc.marks", builder.getStrArrayAttr(SmallVector<StringRef>(lowering.getMarks().begin(),
                                                                                lowering.getMarks().end())));
  }
  func.erase();
  return success();
}

void KernelToSimtPass::runOnOperation() {
  TensorMaps maps(getOperation());
  for (FuncOp func : llvm::make_early_inc_range(getOperation().getOps<FuncOp>()))
    if (failed(lowerFunc(func, maps)))
      return signalPassFailure();
  getOperation()->setAttr("simt.maps", maps.describe(&getContext()));
}
