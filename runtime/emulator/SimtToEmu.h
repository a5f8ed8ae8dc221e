//===- SimtToEmu.h - simt to LLVM with calls into the emulator -------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "runtime/emulator/Runtime.h"

namespace cfc::emu {

/// Lowers every `simt.kernel` of `module`, in place, to an `llvm.func` of type `KernelFn` and collects the
/// locations of the ops. Needs the LLVM and cf dialects loaded. Errors are emitted at the ops.
mlir::LogicalResult lowerSimtToEmu(mlir::ModuleOp module, LocationTable &locations);
/// What the launch needs to know of each kernel; `entry` is left null.
std::vector<Kernel> describeKernels(mlir::ModuleOp module);

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "runtime/emulator/Passes.h.inc"

} // namespace cfc::emu
