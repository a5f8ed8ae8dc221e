//===- AttnPasses.h - Passes from attn to kernel ----------------------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include "dialects/kernel/Kernel.h"
#include "mlir/Pass/Pass.h"

namespace cfc::attn {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "dialects/attn/Passes.h.inc"
} // namespace cfc::attn
