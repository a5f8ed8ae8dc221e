//===- Roles.h - What the arguments of a program are for ------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "tools/lib/Random.h"
#include <map>
#include <string>

namespace cfc {

/// By tensor name, from the uses of a graph's or of kernels' arguments. Names that are absent are
/// activations.
std::map<std::string, DataRole> rolesOf(mlir::ModuleOp module);

} // namespace cfc
