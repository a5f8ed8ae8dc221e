//===- Manifest.h - What a compiled module says about itself ---------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "runtime/src/Manifest.h"

namespace cfc {

/// Tensors, table and workspace of a module of `kernel.func`s whose storage is assigned. Tensors come in
/// table order.
runtime::GraphSpec describeKernels(mlir::ModuleOp kernels, llvm::StringRef name);

/// Fails where a tensor cannot be packed as its `kernel.layout` says, or is packed for one of its readers and
/// native for another.
mlir::LogicalResult verifyLayouts(mlir::ModuleOp kernels);

/// Workspace of a module whose storage is assigned.
runtime::WorkspaceSpec describeWorkspace(mlir::ModuleOp kernels);

/// The tensor maps that the module's kernels use, in the order in which they lie behind the entries of the
/// table. The module names them in the attribute `simt.maps`: for each a dictionary with `entry` (of the
/// tensor's first field in the table), `field`, `box` (innermost first) and `swizzle`.
std::vector<runtime::MapSpec> describeMaps(mlir::ModuleOp simt, const runtime::GraphSpec &graph);

/// Launch shapes of a module of `simt.kernel`s, in launch order; all code is in cubin 0.
std::vector<runtime::KernelSpec> describeLaunches(mlir::ModuleOp simt);

/// XXH3-64 of the module's text without locations, 16 hex digits.
std::string digestOf(mlir::ModuleOp simt);

} // namespace cfc
