//===- KernelPasses.h - Passes from kernel to simt ------------------------------===//
#pragma once
#include "dialects/kernel/Kernel.h"
#include "mlir/Pass/Pass.h"

namespace cfc::kernel {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "dialects/kernel/Passes.h.inc"
} // namespace cfc::kernel
