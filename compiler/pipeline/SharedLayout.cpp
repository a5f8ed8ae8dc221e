//===- SharedLayout.cpp - One table and one workspace for several plans -----------===//
//
// Counters must be zero when a launch begins, and any variant may have run before it: where one variant keeps
// counters, none may keep sums. So all get the counters' area of the one that needs most.
//
//===----------------------------------------------------------------------===//
#include "compiler/pipeline/SharedLayout.h"
#include "compiler/lower/KernelPasses.h"
#include "dialects/kernel/Kernel.h"
#include "mlir/IR/Builders.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;

LogicalResult cfc::shareWorkspace(ModuleOp kernels, uint64_t zeroBytes) {
  auto zero = kernels->getAttrOfType<IntegerAttr>("kernel.zero_bytes");
  auto bytes = kernels->getAttrOfType<IntegerAttr>("kernel.workspace_bytes");
  if (!zero || !bytes || uint64_t(zero.getInt()) >= zeroBytes)
    return success();
  int64_t shift = llvm::alignTo(zeroBytes - zero.getInt(), 16); // as places are aligned
  Builder builder(kernels.getContext());
  for (auto func : kernels.getOps<kernel::FuncOp>())
    for (BlockArgument arg : func.getArguments())
      if (auto at = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kernel::kWorkspaceAttr))
        func.setArgAttr(arg.getArgNumber(), kernel::kWorkspaceAttr,
                        builder.getI64IntegerAttr(at.getInt() + shift));
  kernels.walk([&](kernel::FinishOp op) {
    if (int64_t(op.getPartials()) >= zero.getInt())
      op.setPartials(op.getPartials() + shift);
  });
  kernels->setAttr("kernel.zero_bytes", builder.getI64IntegerAttr(zero.getInt() + shift));
  kernels->setAttr("kernel.workspace_bytes", builder.getI64IntegerAttr(bytes.getInt() + shift));
  PassManager check(kernels.getContext()); // places that are given are checked
  check.addPass(kernel::createKernelAssignStorage());
  return check.run(kernels);
}

/// The table's first entry of a tensor.
static int64_t entryOf(const runtime::GraphSpec &graph, size_t tensor) {
  auto found =
      llvm::find_if(graph.table, [&](const runtime::TableEntry &entry) { return entry.tensor == tensor; });
  return found - graph.table.begin();
}

void cfc::placeMaps(ModuleOp kernels, const runtime::GraphSpec &graph,
                    const std::vector<runtime::MapSpec> &maps) {
  if (maps.empty())
    return;
  Builder builder(kernels.getContext());
  SmallVector<Attribute> places;
  for (const runtime::MapSpec &map : maps)
    places.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("entry", builder.getI64IntegerAttr(entryOf(graph, map.tensor))),
         builder.getNamedAttr("field", builder.getStringAttr(runtime::name(map.field))),
         builder.getNamedAttr("box", builder.getDenseI64ArrayAttr(map.box))}));
  kernels->setAttr("simt.maps", builder.getArrayAttr(places));
}
