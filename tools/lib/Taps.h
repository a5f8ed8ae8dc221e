//===- Taps.h - Values of a graph that verify looks at --------------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include "mlir/IR/OwningOpRef.h"
#include "tools/lib/Tensor.h"
#include <string>
#include <vector>

namespace cfc {

/// A computed tensor of a graph that the device's value is compared at.
struct Tap {
  mlir::Value value;
  std::string name;   ///< "%y"
  std::string result; ///< its name among the results of the program that returns it
  DType type = DType::f16;
  DType coarsest = DType::f16; ///< the type that decides its limits: coarsestType
  std::vector<int64_t> shape;
  int64_t row = 1;    ///< elements of a row: an attention's head, else the last dimension
  bool byRow = false; ///< whether each row is held to the limit alone
  bool isLog = false; ///< whether it is a log-sum-exp: compareLogs
};

/// bf16 if a value is made of anything in bf16, whatever its own type: products of mixed types are taken in
/// bf16. Else its own type.
DType coarsestType(mlir::Value value);

/// Whether a value is an attention's log-sum-exp.
bool isLogSumExp(mlir::Value value);

/// The graph's results; what is added to a residual; every attention's output.
std::vector<Tap> defaultTaps(attn::GraphOp graph);
/// Every computed tensor, in the order of the operations.
std::vector<Tap> allTaps(attn::GraphOp graph);
/// Adds the values in a list such as "%o,%y". Fails (2) for a name that is not there; the nearest is named.
void addNamedTaps(std::vector<Tap> &taps, attn::GraphOp graph, const std::string &list);

/// A copy of the module whose graph returns every tap too; fills in Tap::result.
mlir::OwningOpRef<mlir::ModuleOp> withTaps(attn::GraphOp graph, std::vector<Tap> &taps);

/// "file:line:column" of an operation.
std::string locationText(mlir::Operation *op);

} // namespace cfc
