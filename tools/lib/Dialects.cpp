//===- Dialects.cpp - Every dialect and pass that the tools know ----------===//
#include "tools/lib/Dialects.h"
#include "dialects/simt/Simt.h"
#ifdef CFC_HAVE_ATTN
#include "dialects/attn/Attn.h"
#endif
#ifdef CFC_HAVE_KERNEL
#include "dialects/kernel/Kernel.h"
#endif
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "tools/RegisterPasses.inc"

void cfc::registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect, mlir::func::FuncDialect,
                  mlir::math::MathDialect, mlir::scf::SCFDialect, mlir::vector::VectorDialect,
                  simt::SimtDialect>();
#ifdef CFC_HAVE_ATTN
  registry.insert<attn::AttnDialect>();
#endif
#ifdef CFC_HAVE_KERNEL
  registry.insert<kernel::KernelDialect>();
#endif
}

void cfc::registerPasses() {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerSymbolDCEPass();
  registerAllPasses();
}
