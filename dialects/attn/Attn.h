//===- Attn.h - The attn dialect: graphs of LLM operations -----------------===//
#pragma once
#include "dialects/attn/RopeTable.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cfc::attn {
/// Attribute of a graph: the most rows (requests; query tokens, where there are several of each) of any graph
/// whose results must have the same bits as this one's, as of a bundle of several batches. Without it that is
/// this graph.
inline constexpr llvm::StringLiteral kMostRequestsAttr = "most_requests";

/// Argument and result attribute that holds a tensor's name.
inline constexpr llvm::StringLiteral kNameAttr = "attn.name";
/// Attribute of an operation: its results' SSA names in the source, as an array of strings.
inline constexpr llvm::StringLiteral kNamesAttr = "attn.names";

/// Name of a value of a graph, without `%`: an argument's tensor name or an operation's SSA name in the
/// source (`r#1` in a group `%r:2`). Empty if it was built without one.
std::string getValueName(mlir::Value value);
/// Names an operation's results for printing and taps.
void setValueNames(mlir::Operation *op, llvm::ArrayRef<std::string> names);
/// The candidate that a misspelt name probably means; empty if none is near.
llvm::StringRef nearestName(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates);

/// Result types of an operation from its operands and attributes, before a trailing type overrides them.
/// `op` must have operands of the right kinds.
llvm::SmallVector<mlir::Type> inferResultTypes(mlir::Operation *op);

/// The operands of an operation and of those in its regions that come from outside of them.
llvm::SmallVector<mlir::Value> operandsOf(mlir::Operation *op);

/// Checks that concern a whole file: exactly one graph, at least one result, names that differ, one append
/// a cache; warns about unused arguments and values. Errors are diagnostics at the offending place.
llvm::LogicalResult verifyGraphFile(mlir::ModuleOp module);

/// Prints results under their names in the source.
void nameResults(mlir::Operation *op, mlir::OpAsmSetValueNameFn set);

} // namespace cfc::attn

#include "dialects/attn/AttnDialect.h.inc"
#include "dialects/attn/AttnEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/attn/AttnAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/attn/AttnTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.h.inc"
