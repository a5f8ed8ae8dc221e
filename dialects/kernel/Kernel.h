//===- Kernel.h - The kernel dialect: distributed tiles and exchanges -------===//
#pragma once
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/kernel/KernelDialect.h.inc"
#include "dialects/kernel/KernelEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/kernel/KernelAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/kernel/KernelTypes.h.inc"

namespace cfc::kernel {
/// State of a value over `axis`, or nullopt where it is replicated.
std::optional<StateAttr> stateOver(llvm::ArrayRef<StateAttr> states, llvm::StringRef axis);
/// `states` without the one over `axis`.
llvm::SmallVector<StateAttr> withoutAxis(llvm::ArrayRef<StateAttr> states, llvm::StringRef axis);
/// Items of the loop that `item` belongs to, or those that a kernel.outer or kernel.inner tells apart; 1
/// where there is none.
int64_t itemsOf(mlir::Value item);
/// Table entries of a cache: with blocks (several requests, or pages), with strides of V's own.
constexpr int64_t cacheEntries(bool blocks, bool vStrides) {
  return 5 + (blocks ? 2 : 0) + (vStrides ? 3 : 0);
}
/// Table entries that an argument of this type takes.
int64_t numEntries(mlir::Type type);
/// Whether a kernel.grid_sync stands between an earlier operation of a kernel and `op`.
bool isBehindGridSync(mlir::Operation *op, mlir::Operation *earlier);
/// Whether a matmul's factor has several tokens, a row each.
inline bool isOfTokens(TileType x) { return x.getShape().size() == 2 && x.getShape()[0] > 1; }
/// Plan key `pdl` of a kernel: how it starts (kernel.func).
enum Starts : int64_t { kStartsBehind = 0, kStartsEarly = 1, kStartsWithCache = 2, kStartsAtEnd = 3 };
/// Plan key `lets_next`: when it lets the next one start.
enum LetsNext : int64_t { kLetsAtEnd = 0, kLetsAtOnce = 1, kLetsAfterWait = 2 };
/// Attribute name of a kernel argument's tensor name.
inline constexpr llvm::StringLiteral kNameAttr = "kernel.name";
/// "packed": a weight in blocks (docs/design.md, "Packed weights"); absent: row-major.
inline constexpr llvm::StringLiteral kLayoutAttr = "kernel.layout";
/// Unit attribute of an argument that the kernel writes and nobody gives as input.
inline constexpr llvm::StringLiteral kOutputAttr = "kernel.output";
/// First table entry of an argument (i32); assigned in order of arguments where absent.
inline constexpr llvm::StringLiteral kEntryAttr = "kernel.entry";
/// Byte offset in the workspace (i64) of an argument that lives there instead of in the table.
inline constexpr llvm::StringLiteral kWorkspaceAttr = "kernel.workspace";
} // namespace cfc::kernel

#define GET_OP_CLASSES
#include "dialects/kernel/KernelOps.h.inc"
