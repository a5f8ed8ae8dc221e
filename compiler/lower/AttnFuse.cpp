//===- AttnFuse.cpp - Groups operations into kernels ------------------------===//
//
// The pass `attn-fuse`: writes down, as an attribute of each operation, the
// kernel that compiler/plan/Fusion.cpp finds for it.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/AttnPasses.h"
#include "compiler/plan/Fusion.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using namespace cfc;

namespace cfc::attn {
#define GEN_PASS_DEF_ATTNFUSE
#include "dialects/attn/Passes.h.inc"
} // namespace cfc::attn

namespace {
struct AttnFusePass : public cfc::attn::impl::AttnFuseBase<AttnFusePass> {
  using AttnFuseBase::AttnFuseBase;
  void runOnOperation() override {
    for (auto graph : getOperation().getOps<attn::GraphOp>())
      if (failed(run(graph)))
        return signalPassFailure();
  }

private:
  /// Indices of the operations after which a kernel ends.
  FailureOr<SmallVector<size_t>> findCuts(attn::GraphOp graph, ArrayRef<Operation *> ops) {
    SmallVector<size_t> cuts;
    for (const std::string &name : cutAfter) {
      StringRef wanted = StringRef(name).ltrim('%');
      auto found = llvm::find_if(ops, [&](Operation *op) {
        return llvm::any_of(op->getResults(), [&](Value v) { return attn::getValueName(v) == wanted; });
      });
      if (found == ops.end())
        return graph.emitError("cannot cut after %") << wanted << ": no operation makes it";
      cuts.push_back(found - ops.begin());
    }
    return cuts;
  }

  LogicalResult run(attn::GraphOp graph) {
    SmallVector<Operation *> ops = kernelOps(graph);
    SmallVector<int64_t> pinned;
    for (Operation *op : ops) {
      auto given = op->getAttrOfType<IntegerAttr>(kKernelAttr);
      pinned.push_back(given ? given.getInt() : -1);
    }
    FailureOr<SmallVector<size_t>> cuts = findCuts(graph, ops);
    if (failed(cuts) || failed(checkLimits(graph)))
      return failure();
    FailureOr<Fusion> fusion = fuse(graph, *cuts, pinned);
    if (failed(fusion))
      return failure();
    for (auto [op, kernel] : llvm::zip_equal(ops, fusion->kernelOf))
      op->setAttr(kKernelAttr, IntegerAttr::get(IntegerType::get(&getContext(), 64), kernel));
    numKernels += fusion->numKernels();
    return success();
  }
};
} // namespace
