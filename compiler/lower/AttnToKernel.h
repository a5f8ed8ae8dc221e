//===- AttnToKernel.h - From a graph and its plan to kernels ----------------===//
#pragma once
#include "compiler/plan/Plan.h"
#include "mlir/IR/OwningOpRef.h"

namespace cfc {

/// Module attributes of the result: bytes of the workspace (i64), and how many of them, from its start, are
/// zero before and after every launch.
inline constexpr llvm::StringLiteral kWorkspaceBytesAttr = "kernel.workspace_bytes";
inline constexpr llvm::StringLiteral kZeroBytesAttr = "kernel.zero_bytes";

/// A module of `kernel.func`s `@graph_k0`, `@graph_k1`, … in launch order. `plan` was made by makePlan for
/// this graph. On failure a diagnostic has been emitted and `exitCode` is 3 (the plan is beyond a limit).
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> lowerToKernels(attn::GraphOp graph, const Plan &plan,
                                                                  int &exitCode);

/// The same without verifying the kernels: the planner tries plans whose kernels may not be legal.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> buildKernels(attn::GraphOp graph, const Plan &plan,
                                                                int &exitCode);

/// A tensor that a caller binds, or (`role` generated) a table that whoever binds computes.
struct TensorInfo {
  std::string name;
  std::string kind; ///< `tensor` or `kv_cache`
  std::string role; ///< `input`, `weight`, `inout`, `output` or `generated`
  mlir::Type element;
  llvm::SmallVector<int64_t> shape; ///< of tensors
  int64_t bound = 0;                ///< most tokens of a length, positions of a table, 0 elsewhere
  int64_t heads = 0, dim = 0;       ///< of caches
  int64_t vDim = 0, page = 0;       ///< of caches; page 0: no pages
  int64_t requests = 0;             ///< of caches: that append to it or attend it
  int64_t pages = 0;                ///< of caches with pages: of a request at most, as block tables say
  /// Of caches: what says which rows are in use, each value once.
  llvm::SmallVector<mlir::Value> lengths, slots, blockTables;
  RopeTable rope;    ///< of generated rope tables: tensor<bound x dim>, cos | sin by position
  int64_t entry = 0; ///< first entry in the table (docs/design.md)
  mlir::Value value; ///< the argument, the returned value or the generator's result
  /// Entries in the table (docs/design.md).
  int64_t numEntries() const;
};

/// Arguments that a kernel reads, results, then generated tables, in the order of the table's entries.
std::vector<TensorInfo> tensorsOf(attn::GraphOp graph);

} // namespace cfc
