//===- KernelChecks.h - What verifiers of the kernel dialect share ----------===//
//
// All checks emit an error at `op` where they fail.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/kernel/Kernel.h"

namespace cfc::kernel {

/// Elements of a memory that kernels index by i32, and of a weight at most.
inline constexpr int64_t kMaxIndexed = (int64_t(1) << 31) - 1, kMaxElements = int64_t(1) << 44;

/// "a partial sum", "split over dimension 0".
std::string describe(StateAttr state);

/// The exchange or the operation that takes a value in state `from` to state `to` (null: replicated); empty
/// where there is none.
llvm::StringRef exchangeBetween(std::optional<StateAttr> from, std::optional<StateAttr> to);

/// ": insert `kernel.exchange …`" for the first axis over which `a` and `b` differ, or nothing.
std::string exchangeFor(TileType a, TileType b);

/// `value` must be whole in each worker of every axis; the error names the exchange that is missing.
llvm::LogicalResult needsReplicated(mlir::Operation *op, mlir::Value value, llvm::StringRef what);

/// The error for a value in state `state`, which is none that `op` takes.
llvm::LogicalResult needsReplicated(mlir::Operation *op, StateAttr state, llvm::StringRef what);

/// `type`, the type of a result, must be whole in each worker: nothing is left out by writing it so.
llvm::LogicalResult givesReplicated(mlir::Operation *op, mlir::Type type, llvm::StringRef what);

/// Every extent is at least 1, and the product at most `most`.
llvm::LogicalResult checkShape(mlir::Operation *op, llvm::ArrayRef<int64_t> shape, int64_t most);

/// Every split divides its dimension, every axis exists at the cta level (grid sums apart) and stands there
/// once.
llvm::LogicalResult checkStates(mlir::Operation *op, llvm::ArrayRef<int64_t> shape,
                                llvm::ArrayRef<StateAttr> states);

/// A tile of f16, bf16 or f32 with a legal shape and legal states.
llvm::LogicalResult checkTile(mlir::Operation *op, mlir::Type type);

/// A tile [heads, dim + 2] of f32.
llvm::LogicalResult checkSoftmax(mlir::Operation *op, mlir::Type type);

/// Memory of floating-point elements, few enough to be indexed by i32.
llvm::LogicalResult checkFloatMemory(mlir::Operation *op, mlir::Value memory, llvm::StringRef what);

/// `memory` begins with a number of `bits` bits: a position, a length (i32) or a slot (i64).
llvm::LogicalResult checkNumber(mlir::Operation *op, mlir::Value memory, unsigned bits, llvm::StringRef what);

/// Whether `part` is a kernel.inner, and `whole` the kernel.outer, of the same item and number.
bool isPartOf(mlir::Value part, mlir::Value whole);

/// A scale of a cache with `heads` heads: f32 in memory, one or one for each of them.
llvm::LogicalResult checkScale(mlir::Operation *op, mlir::Value scale, int64_t heads);

/// A tile that is read in words of two 16-bit elements must begin at an even one.
llvm::LogicalResult checkPairs(mlir::Operation *op, mlir::Value tile, llvm::StringRef what);

} // namespace cfc::kernel
