//===- AttnAssembly.h - Reading and writing operations of a graph ----------===//
//
// Operations of a graph name their operands without types, so whoever parses
// one must know the types of the values before it. GraphScope keeps them while
// `attn.graph` parses its body.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include "llvm/ADT/StringMap.h"

namespace cfc::attn {

/// The values defined so far in the graph that this thread is parsing. Scopes nest like a stack.
class GraphScope {
public:
  GraphScope();
  ~GraphScope();
  GraphScope(const GraphScope &) = delete;
  GraphScope &operator=(const GraphScope &) = delete;

  /// The innermost scope, or null outside of any graph.
  static GraphScope *current();
  /// `name` without `%`; `number` counts within a group such as `%r:2`.
  void define(llvm::StringRef name, unsigned number, mlir::Type type);
  mlir::Type lookup(llvm::StringRef name, unsigned number) const;
  llvm::StringRef nearest(llvm::StringRef name) const;

private:
  llvm::StringMap<llvm::SmallVector<mlir::Type, 1>> types;
  GraphScope *outer;
};

/// Whether a name can be printed after `%` and be read back.
bool isSsaName(llvm::StringRef name);

/// Types of results that are not simply an operand's.
mlir::RankedTensorType linearResultType(mlir::RankedTensorType x, mlir::RankedTensorType weight);
mlir::RankedTensorType attentionType(mlir::RankedTensorType q, KvCacheType cache);
mlir::RankedTensorType logSumExpType(mlir::RankedTensorType q, KvCacheType cache);
mlir::RankedTensorType ropeTableType(mlir::MLIRContext *context, int64_t positions, int64_t dim);

} // namespace cfc::attn
