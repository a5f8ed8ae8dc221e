//===- KernelOutlineProducer.cpp - Outlines what the producer warp runs --------===//
//
// Streams are read by matmul and attend. The producer must put their tiles in
// the ring in the order in which the consumers take them. This pass copies the
// loops around each consuming operation into a `kernel.producer`, with the
// stream's load and a feed in the consumer's place, so both sides agree by
// construction.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/KernelPasses.h"
#include "dialects/kernel/Kernel.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/Pass.h"

#define DEBUG_TYPE "kernel-outline-producer"

namespace cfc::kernel {
#define GEN_PASS_DEF_KERNELOUTLINEPRODUCER
#include "dialects/kernel/Passes.h.inc"
} // namespace cfc::kernel

using namespace mlir;
using namespace cfc::kernel;

namespace {
struct KernelOutlineProducerPass
    : public cfc::kernel::impl::KernelOutlineProducerBase<KernelOutlineProducerPass> {
  void runOnOperation() override;

private:
  void outline(FuncOp func);
  void copyFeeds(Block &from, OpBuilder &builder, IRMapping &mapping);
};
} // namespace

/// The stream that `op` consumes, or null.
static Value streamOf(Operation *op) {
  if (auto matmul = dyn_cast<MatmulOp>(op))
    return matmul.getWeights();
  if (auto attend = dyn_cast<AttendOp>(op))
    return attend.getKv();
  return {};
}

/// Query heads that attend to the stream of `op`.
static int64_t headsOf(Operation *op) {
  auto attend = dyn_cast<AttendOp>(op);
  return attend ? attend.getResult().getType().getShape()[0] : 1;
}

static bool consumesStreams(Operation *op) {
  return op
      ->walk(
          [](Operation *inner) { return streamOf(inner) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

void KernelOutlineProducerPass::copyFeeds(Block &from, OpBuilder &builder, IRMapping &mapping) {
  for (Operation &op : from) {
    if (Value stream = streamOf(&op)) {
      for (Value operand : stream.getDefiningOp()->getOperands())
        if (operand.getDefiningOp() && !mapping.contains(operand)) // a part of an item
          builder.clone(*operand.getDefiningOp(), mapping);
      Operation *load = builder.clone(*stream.getDefiningOp(), mapping);
      auto matmul = dyn_cast<MatmulOp>(op);
      FinishOp finish =
          matmul && matmul->hasOneUse() ? dyn_cast<FinishOp>(*matmul->user_begin()) : FinishOp();
      FeedOp::create(builder, op.getLoc(), load->getResult(0), matmul ? matmul.getSlots() : 1,
                     finish ? finish.getPieces() : 1, headsOf(&op));
      ++numFeeds;
      continue;
    }
    if (isa<WorkListOp>(op)) { // of the loops behind it
      builder.clone(op, mapping);
      continue;
    }
    auto items = dyn_cast<ForItemsOp>(&op);
    if (!items || !consumesStreams(items))
      continue;
    Value work = items.getWork() ? mapping.lookup(items.getWork()) : Value();
    auto copy = ForItemsOp::create(builder, items.getLoc(), items.getAxis(), work);
    SmallVector<Location> locs(items.getBody().getNumArguments(), items.getLoc());
    Block *body = builder.createBlock(&copy.getBody(), {}, items.getBody().getArgumentTypes(), locs);
    for (auto [from, to] : llvm::zip_equal(items.getBody().getArguments(), body->getArguments()))
      mapping.map(from, to);
    copyFeeds(items.getBody().front(), builder, mapping);
    YieldOp::create(builder, items.getLoc());
    builder.setInsertionPointAfter(copy);
  }
}

void KernelOutlineProducerPass::outline(FuncOp func) {
  if (!consumesStreams(func))
    return;
  Block &entry = func.getBody().front();
  OpBuilder builder(&entry, entry.begin());
  auto producer = ProducerOp::create(builder, func.getLoc());
  builder.createBlock(&producer.getBody());
  IRMapping mapping;
  copyFeeds(entry, builder, mapping);
  YieldOp::create(builder, func.getLoc());
}

void KernelOutlineProducerPass::runOnOperation() {
  getOperation().walk([&](FuncOp func) {
    bool done = llvm::any_of(func.getOps(), [](Operation &op) { return isa<ProducerOp>(op); });
    if (!done)
      outline(func);
  });
}
