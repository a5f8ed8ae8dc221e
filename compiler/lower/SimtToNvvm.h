//===- SimtToNvvm.h - What the files of simt-to-nvvm share -----------------===//
//
// Private to the pass. One function lowers one op; `addLowering` makes a
// pattern of it.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/simt/Simt.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace cfc::simt {

/// Name of the dynamic shared memory in every module that uses it.
inline constexpr llvm::StringLiteral kSharedSymbol = "cfc_shared";

using Rewriter = mlir::ConversionPatternRewriter;
using Types = mlir::LLVMTypeConverter;
template <typename Op>
using LoweringFn = mlir::LogicalResult (*)(Op op, typename Op::Adaptor in, Rewriter &rewriter,
                                           const Types &types);

template <typename Op> class OpLowering : public mlir::ConvertOpToLLVMPattern<Op> {
public:
  OpLowering(const Types &types, LoweringFn<Op> lower)
      : mlir::ConvertOpToLLVMPattern<Op>(types), lower(lower) {}
  mlir::LogicalResult matchAndRewrite(Op op, typename Op::Adaptor in, Rewriter &rewriter) const override {
    return lower(op, in, rewriter, *this->getTypeConverter());
  }

private:
  LoweringFn<Op> lower;
};

template <typename Op>
void addLowering(mlir::RewritePatternSet &patterns, const Types &types,
                 mlir::LogicalResult (*lower)(Op, typename Op::Adaptor, Rewriter &, const Types &)) {
  patterns.add(std::make_unique<OpLowering<Op>>(types, lower));
}

inline mlir::Value constantI32(mlir::OpBuilder &builder, mlir::Location loc, int32_t value) {
  return mlir::LLVM::ConstantOp::create(builder, loc, builder.getI32Type(), value);
}

/// LLVM's name of a scope. `System` has none: it is the default.
llvm::StringRef syncScope(Scope scope);

/// Ops that are instructions of the GPU: registers, mbarriers, bulk copies, atomics, warp collectives.
void addPtxLowerings(mlir::RewritePatternSet &patterns, const Types &types);
/// The ops of the vector dialect that move elements of short vectors.
void addVectorLowerings(mlir::RewritePatternSet &patterns, const Types &types);
/// Loads what `addPtxLowerings` creates, without its header (13 s a file).
void registerNvvm(mlir::DialectRegistry &registry);

} // namespace cfc::simt
