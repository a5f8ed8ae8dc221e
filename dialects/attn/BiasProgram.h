//===- BiasProgram.h - What the bias of an attention computes --------------===//
//
// Evaluates the region on the host. Integers are 64-bit and wrap as their type
// says; floats are double.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include <functional>

namespace cfc::attn {

class BiasProgram {
public:
  /// Reads element `index` of an argument of the graph.
  using Read = std::function<double(mlir::Value tensor, int64_t index)>;
  BiasProgram(AttentionOp op, Read read) : op(op), read(std::move(read)) {}

  /// The bias of one score.
  double operator()(int64_t head, int64_t query, int64_t key) const;

  /// Whether the operation, one of arith or math, is possible in a bias; and the names of all that are.
  static bool has(mlir::Operation *op);
  static std::string names();

private:
  AttentionOp op;
  Read read;
};

} // namespace cfc::attn
