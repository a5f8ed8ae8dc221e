//===- EmitPass.cpp - emit-ptx for cfc-opt ---------------------------------===//
//
// The pass `emit-ptx` prints what `cfc compile --emit=ptx` (or `llvm`) would.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/Emit.h"
#include "dialects/simt/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace cfc::simt {
#define GEN_PASS_DEF_EMITPTX
#include "dialects/simt/Passes.h.inc"

namespace {
struct EmitPtx : impl::EmitPtxBase<EmitPtx> {
  using EmitPtxBase::EmitPtxBase;
  void getDependentDialects(DialectRegistry &registry) const override {
    registerBuiltinDialectTranslation(registry);
    registerLLVMDialectTranslation(registry);
    registerNVVMDialectTranslation(registry);
    registry.insert<cf::ControlFlowDialect>();
  }
  void runOnOperation() override {
    EmitOptions options;
    std::vector<std::pair<std::string, double>> times;
    options.times = &times;
    llvm::Expected<std::string> text =
        printLlvm ? emitLlvm(getOperation(), options) : emitPtx(getOperation(), options);
    if (!text) {
      getOperation().emitError(llvm::toString(text.takeError()));
      return signalPassFailure();
    }
    llvm::outs() << *text;
    if (verbose)
      for (auto &[phase, milliseconds] : times)
        llvm::errs() << llvm::formatv("{0,-14} {1:f1} ms\n", phase, milliseconds);
  }
};
} // namespace
} // namespace cfc::simt
