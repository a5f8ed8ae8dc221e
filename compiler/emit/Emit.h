//===- Emit.h - PTX of a simt module ---------------------------------------===//
//
// The last step inside the process: a simt module becomes PTX text. Assembler.h
// makes cubins of it.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include <string>
#include <utility>
#include <vector>

namespace cfc {

struct EmitOptions {
  /// The instruction set. `sm_90a` is the only one that the kernels' instructions exist on.
  std::string target = "sm_90a";
  /// Where the phases' names and times in milliseconds go, for `-v`; may be null.
  std::vector<std::pair<std::string, double>> *times = nullptr;
};

/// The lowest PTX version (80 is 8.0) that knows every instruction that `simtModule` becomes.
int requiredPtxVersion(mlir::ModuleOp simtModule);

/// PTX of all kernels of a simt module, or of what simt-to-nvvm made of one. The module is not changed.
///
/// What is wrong with the module is reported through its context's diagnostics, located; the error then says
/// only which step failed. Every error is an internal one (exit code 4): the compiler wrote the module.
llvm::Expected<std::string> emitPtx(mlir::ModuleOp simtModule, const EmitOptions &options);

/// The optimised LLVM IR that `emitPtx` makes PTX of, as text.
llvm::Expected<std::string> emitLlvm(mlir::ModuleOp simtModule, const EmitOptions &options);

} // namespace cfc
