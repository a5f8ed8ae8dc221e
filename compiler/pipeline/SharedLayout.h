//===- SharedLayout.h - One table and one workspace for several plans -------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "runtime/src/Manifest.h"

namespace cfc {

/// Gives the counters at the start of the workspace of a module of `kernel.func`s, whose storage is assigned,
/// at least `zeroBytes`: what lies behind them moves. Does nothing where they have as many.
llvm::LogicalResult shareWorkspace(mlir::ModuleOp kernels, uint64_t zeroBytes);

/// Makes the lowering of the module take these places for maps that it uses (attribute `simt.maps`). `graph`
/// describes the module.
void placeMaps(mlir::ModuleOp kernels, const runtime::GraphSpec &graph,
               const std::vector<runtime::MapSpec> &maps);

} // namespace cfc
