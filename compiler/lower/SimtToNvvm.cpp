//===- SimtToNvvm.cpp - simt kernels to the LLVM dialect for the GPU -------===//
//
// The pass `simt-to-nvvm`: checks what it is given, turns structured control
// flow into branches and converts everything to the LLVM and NVVM dialects in
// one full conversion. Here are kernels, addresses, memory and fences; the
// instructions that only a GPU has are in SimtToNvvmPtx.cpp.
//
// Results must have the bits that were written down: fast-math flags are
// dropped, and no op is taken whose lowering LLVM would approximate or abort on.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/SimtToNvvm.h"
#include "dialects/simt/Passes.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"

using namespace mlir;

namespace cfc::simt {
#define GEN_PASS_DEF_SIMTTONVVM
#include "dialects/simt/Passes.h.inc"

StringRef syncScope(Scope scope) {
  switch (scope) {
  case Scope::Cta:
    return "block";
  case Scope::Cluster:
    return "cluster";
  case Scope::Gpu:
    return "device";
  case Scope::System:
    return "";
  }
  llvm_unreachable("unknown scope");
}

//===-- Kernel ------------------------------------------------------------===//

static LogicalResult lowerKernel(KernelOp op, KernelOp::Adaptor, Rewriter &rewriter, const Types &types) {
  Types::SignatureConversion signature(op.getNumArguments());
  Type type = types.convertFunctionSignature(op.getFunctionType(), /*isVariadic=*/false,
                                             /*useBarePtrCallConv=*/false, signature);
  auto function = LLVM::LLVMFuncOp::create(rewriter, op.getLoc(), op.getSymName(), type);
  function->setAttr("nvvm.kernel", rewriter.getUnitAttr());
  function->setAttr("nvvm.reqntid", rewriter.getDenseI32ArrayAttr({int32_t(op.getThreads()), 1, 1}));
  // Also for one CTA: a kernel with cluster instructions but without the attribute is an illegal instruction.
  function->setAttr("nvvm.cluster_dim", rewriter.getDenseI32ArrayAttr({int32_t(op.getCluster()), 1, 1}));
  function->setAttr("nvvm.minctasm", rewriter.getI32IntegerAttr(op.getCtasPerSm()));
  rewriter.inlineRegionBefore(op.getBody(), function.getBody(), function.end());
  if (failed(rewriter.convertRegionTypes(&function.getBody(), types, &signature)))
    return failure();
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult lowerReturn(ReturnOp op, ReturnOp::Adaptor, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<LLVM::ReturnOp>(op, ValueRange{});
  return success();
}

//===-- Addresses and memory ----------------------------------------------===//

static LogicalResult lowerSharedBase(SharedBaseOp op, SharedBaseOp::Adaptor, Rewriter &rewriter,
                                     const Types &types) {
  rewriter.replaceOpWithNewOp<LLVM::AddressOfOp>(op, types.convertType(op.getType()), kSharedSymbol);
  return success();
}

static LogicalResult lowerOffset(OffsetOp op, OffsetOp::Adaptor in, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<LLVM::GEPOp>(op, in.getBase().getType(), rewriter.getI8Type(), in.getBase(),
                                           ValueRange{in.getBytes()});
  return success();
}

/// What an access of `type` may assume: the size of the value, at most what one instruction moves.
static unsigned alignmentOf(Type type) {
  unsigned bits = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  if (auto vector = dyn_cast<VectorType>(type))
    bits *= vector.getNumElements();
  return std::min(bits / 8, 16u);
}

static LogicalResult lowerLoad(LoadOp op, LoadOp::Adaptor in, Rewriter &rewriter, const Types &types) {
  rewriter.replaceOpWithNewOp<LLVM::LoadOp>(op, types.convertType(op.getType()), in.getAddress(),
                                            alignmentOf(op.getType()));
  return success();
}

static LogicalResult lowerStore(StoreOp op, StoreOp::Adaptor in, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<LLVM::StoreOp>(op, in.getValue(), in.getAddress(),
                                             alignmentOf(op.getValue().getType()));
  return success();
}

/// Memory holds a generic address; read as an integer it is the global one, which needs no conversion.
static LogicalResult lowerLoadPtr(LoadPtrOp op, LoadPtrOp::Adaptor in, Rewriter &rewriter,
                                  const Types &types) {
  Value bits = LLVM::LoadOp::create(rewriter, op.getLoc(), rewriter.getI64Type(), in.getAddress(), 8);
  rewriter.replaceOpWithNewOp<LLVM::IntToPtrOp>(op, types.convertType(op.getType()), bits);
  return success();
}

static LogicalResult lowerFence(FenceOp op, FenceOp::Adaptor, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<LLVM::FenceOp>(op, LLVM::AtomicOrdering::acq_rel, syncScope(op.getScope()));
  return success();
}

static LogicalResult lowerTrap(TrapOp op, TrapOp::Adaptor, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<LLVM::Trap>(op);
  return success();
}

//===-- Checks ------------------------------------------------------------===//

static LogicalResult checkKernel(KernelOp kernel) {
  StringRef name = kernel.getSymName();
  auto isNameChar = [](char c) { return llvm::isAlnum(c) || c == '_' || c == '$'; };
  if (name.empty() || llvm::isDigit(name.front()) || !llvm::all_of(name, isNameChar))
    return kernel.emitOpError(
        "needs a name of letters, digits, '_' and '$' that does not start with a digit: "
        "it becomes a name in PTX");
  if (name == kSharedSymbol)
    return kernel.emitOpError("must not be called '")
           << kSharedSymbol << "': that is the shared memory's name";
  return success();
}

/// LLVM would call a function that does not exist here, or abort, for most of `math`.
static LogicalResult checkMath(Operation *op) {
  if (isa<math::FmaOp, math::AbsFOp, math::AbsIOp, math::CopySignOp, math::FloorOp, math::CeilOp,
          math::TruncOp, math::RoundEvenOp, math::CountLeadingZerosOp, math::CountTrailingZerosOp,
          math::CtPopOp>(op))
    return success();
  if (isa<math::SqrtOp>(op) && getElementTypeOrSelf(op->getResult(0)).isF32())
    return success();
  auto error = op->emitError("'") << op->getName() << "' on " << op->getResult(0).getType()
                                  << " has no exact instruction on the GPU";
  if (isa<math::Exp2Op>(op))
    error << "; simt.exp2 is the approximate one";
  if (isa<math::Log2Op>(op))
    error << "; simt.log2 is the approximate one";
  if (isa<math::RsqrtOp>(op))
    error << "; simt.rsqrt is the approximate one";
  return error;
}

static LogicalResult checkScope(Operation *op, Scope scope) {
  if (scope == Scope::Cta || scope == Scope::Cluster)
    return success();
  return op->emitOpError("orders memory at scope '")
         << stringifyScope(scope) << "'; an mbarrier knows cta and cluster";
}

static LogicalResult checkOp(Operation *op) {
  if (auto kernel = dyn_cast<KernelOp>(op))
    return checkKernel(kernel);
  if (isa_and_present<math::MathDialect>(op->getDialect()))
    return checkMath(op);
  if (auto arrive = dyn_cast<MbarrierArriveOp>(op))
    return checkScope(op, arrive.getScope());
  if (auto wait = dyn_cast<MbarrierWaitOp>(op))
    return checkScope(op, wait.getScope());
  auto atomic = dyn_cast<AtomicOp>(op);
  if (atomic && atomic.getKind() == Rmw::Or && isa<FloatType>(atomic.getType()))
    return op->emitOpError("has no 'or' of ") << atomic.getType();
  auto barrier = dyn_cast<BarrierOp>(op);
  if (barrier && (barrier.getId() > 15 || !barrier.getThreads() || barrier.getThreads() % 32))
    return op->emitOpError("needs an id from 0 to 15 and a multiple of 32 threads");
  return success();
}

/// The order and rounding of a sum belong to the bundle, so nothing may be relaxed behind its back.
static void dropFastMath(Operation *op) {
  if (auto fast = dyn_cast<arith::ArithFastMathInterface>(op))
    op->setAttr(fast.getFastMathAttrName(),
                arith::FastMathFlagsAttr::get(op->getContext(), arith::FastMathFlags::none));
}

//===-- The pass ----------------------------------------------------------===//

/// Structured control flow becomes branches, and the divisions that LLVM has no instruction for become some
/// that it has.
static LogicalResult expandOps(ModuleOp module) {
  ConversionTarget target(*module.getContext());
  target.addIllegalDialect<scf::SCFDialect>();
  target.addIllegalOp<arith::CeilDivSIOp, arith::CeilDivUIOp, arith::FloorDivSIOp>();
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  RewritePatternSet patterns(module.getContext());
  populateSCFToControlFlowConversionPatterns(patterns);
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  return applyPartialConversion(module, target, std::move(patterns));
}

static void declareSharedMemory(ModuleOp module) {
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  // External and of size zero: the launch says how much there is. Aligned as 128-byte swizzled tiles need it.
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), 0);
  LLVM::GlobalOp::create(builder, module.getLoc(), type, /*isConstant=*/false, LLVM::Linkage::External,
                         kSharedSymbol, /*value=*/Attribute(), /*alignment=*/1024, /*addrSpace=*/3);
}

static LogicalResult convertToLlvm(ModuleOp module) {
  MLIRContext *context = module.getContext();
  LLVMTypeConverter types(context);
  types.addConversion([](PtrType type) {
    unsigned space = type.isGlobal() ? 1 : type.isShared() ? 3 : 7;
    return LLVM::LLVMPointerType::get(type.getContext(), space);
  });
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  populateMathToLLVMConversionPatterns(types, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  addLowering(patterns, types, lowerKernel);
  addLowering(patterns, types, lowerReturn);
  addLowering(patterns, types, lowerSharedBase);
  addLowering(patterns, types, lowerOffset);
  addLowering(patterns, types, lowerLoad);
  addLowering(patterns, types, lowerStore);
  addLowering(patterns, types, lowerLoadPtr);
  addLowering(patterns, types, lowerFence);
  addLowering(patterns, types, lowerTrap);
  addPtxLowerings(patterns, types);
  addVectorLowerings(patterns, types);
  ConversionTarget target(*context);
  target.markUnknownOpDynamicallyLegal([](Operation *op) {
    return isa<ModuleOp>(op) || llvm::is_contained({"llvm", "nvvm"}, op->getName().getDialectNamespace());
  });
  return applyFullConversion(module, target, std::move(patterns));
}

namespace {
struct SimtToNvvm : impl::SimtToNvvmBase<SimtToNvvm> {
  void getDependentDialects(DialectRegistry &registry) const override {
    impl::SimtToNvvmBase<SimtToNvvm>::getDependentDialects(registry);
    registerNvvm(registry);
  }
  void runOnOperation() override {
    ModuleOp module = getOperation();
    bool usesShared = false, isBad = false;
    module.walk([&](Operation *op) {
      isBad |= failed(checkOp(op));
      usesShared |= isa<SharedBaseOp>(op);
    });
    if (isBad)
      return signalPassFailure();
    module.walk(dropFastMath);
    if (usesShared)
      declareSharedMemory(module);
    if (failed(expandOps(module)) || failed(convertToLlvm(module)))
      signalPassFailure();
  }
};
} // namespace
} // namespace cfc::simt
