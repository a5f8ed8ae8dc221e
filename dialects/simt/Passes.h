//===- Passes.h - Passes over simt modules --------------------------------===//
//
// The passes are declared with the dialect that they start from and defined in
// compiler/lower.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/Pass/Pass.h"

namespace cfc::simt {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "dialects/simt/Passes.h.inc"
} // namespace cfc::simt
