//===- SimtBuilder.h - Writes simt code in few words --------------------------===//
//
// An OpBuilder with a current location and one short function per operation of
// arith, scf and simt that the lowering of kernels uses. Integers are i32
// unless said otherwise; comparisons are signed.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include <limits>

namespace cfc {

class SimtBuilder : public mlir::OpBuilder {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<Value>;

  SimtBuilder(mlir::OpBuilder at, mlir::Location loc) : OpBuilder(at), loc(loc) {}

  mlir::Location loc;

  // Constants.
  Value i32(int64_t v) { return getOrConstant(getI32IntegerAttr(v)); }
  Value i64(int64_t v) { return getOrConstant(getI64IntegerAttr(v)); }
  Value i1(bool v) { return getOrConstant(getBoolAttr(v)); }
  Value f32(double v) { return getOrConstant(getF32FloatAttr(v)); }

  // Integers; an int64_t operand is a constant of the other operand's type.
  Value add(Value a, Value b) { return fold<mlir::arith::AddIOp>(a, b); }
  Value add(Value a, int64_t b) { return add(a, like(a, b)); }
  Value sub(Value a, Value b) { return fold<mlir::arith::SubIOp>(a, b); }
  Value mul(Value a, Value b) { return fold<mlir::arith::MulIOp>(a, b); }
  Value mul(Value a, int64_t b) { return mul(a, like(a, b)); }
  Value div(Value a, int64_t b) { return fold<mlir::arith::DivUIOp>(a, like(a, b)); }
  Value rem(Value a, int64_t b) { return fold<mlir::arith::RemUIOp>(a, like(a, b)); }
  Value andI(Value a, Value b) { return fold<mlir::arith::AndIOp>(a, b); }
  Value andI(Value a, int64_t b) { return andI(a, like(a, b)); }
  Value orI(Value a, Value b) { return fold<mlir::arith::OrIOp>(a, b); }
  Value xorI(Value a, Value b) { return fold<mlir::arith::XOrIOp>(a, b); }
  Value xorI(Value a, int64_t b) { return xorI(a, like(a, b)); }
  Value shl(Value a, int64_t b) { return fold<mlir::arith::ShLIOp>(a, like(a, b)); }
  Value shr(Value a, int64_t b) { return fold<mlir::arith::ShRUIOp>(a, like(a, b)); }
  Value min(Value a, Value b) { return fold<mlir::arith::MinSIOp>(a, b); }
  Value max(Value a, Value b) { return fold<mlir::arith::MaxSIOp>(a, b); }
  Value cmp(mlir::arith::CmpIPredicate p, Value a, Value b) {
    return createOrFold<mlir::arith::CmpIOp>(loc, p, a, b);
  }
  Value lt(Value a, Value b) { return cmp(mlir::arith::CmpIPredicate::slt, a, b); }
  Value lt(Value a, int64_t b) { return lt(a, like(a, b)); }
  Value ge(Value a, Value b) { return cmp(mlir::arith::CmpIPredicate::sge, a, b); }
  Value ge(Value a, int64_t b) { return ge(a, like(a, b)); }
  Value eq(Value a, Value b) { return cmp(mlir::arith::CmpIPredicate::eq, a, b); }
  Value eq(Value a, int64_t b) { return eq(a, like(a, b)); }
  Value ne(Value a, int64_t b) { return cmp(mlir::arith::CmpIPredicate::ne, a, like(a, b)); }
  Value select(Value c, Value a, Value b) { return createOrFold<mlir::arith::SelectOp>(loc, c, a, b); }
  Value wide(Value a) { return createOrFold<mlir::arith::ExtSIOp>(loc, getI64Type(), a); }
  Value narrow(Value a) { return createOrFold<mlir::arith::TruncIOp>(loc, getI32Type(), a); }
  Value bitcast(mlir::Type t, Value a) { return createOrFold<mlir::arith::BitcastOp>(loc, t, a); }

  // f32.
  Value fadd(Value a, Value b) { return fold<mlir::arith::AddFOp>(a, b); }
  Value fsub(Value a, Value b) { return fold<mlir::arith::SubFOp>(a, b); }
  Value fmul(Value a, Value b) { return fold<mlir::arith::MulFOp>(a, b); }
  Value fdiv(Value a, Value b) { return fold<mlir::arith::DivFOp>(a, b); }
  Value fmax(Value a, Value b) { return fold<mlir::arith::MaxNumFOp>(a, b); }
  Value isNegInf(Value a) {
    return createOrFold<mlir::arith::CmpFOp>(loc, mlir::arith::CmpFPredicate::OEQ, a, negInf());
  }
  Value negInf() { return f32(-std::numeric_limits<double>::infinity()); }
  Value exp2(Value a) { return create<simt::Exp2Op>(a); }
  /// A scalar of f16, bf16 or f32 as f32, and back (nearest even).
  Value toF32(Value a);
  Value fromF32(Value a, mlir::Type t);
  /// An element in memory as f32, and back. Values of f8E4M3FN are nowhere but there.
  Value loadFloat(mlir::Type element, Value ptr);
  void storeFloat(Value f32, mlir::Type element, Value ptr);
  /// The f32 as `element` holds it.
  Value rounded(Value f32, mlir::Type element);
  /// Two f32 as a register of two 16-bit elements (`lo` in the low half), and back.
  Value pack(Value lo, Value hi, mlir::Type element);
  std::pair<Value, Value> unpack(Value reg, mlir::Type element);

  // Memory.
  Value offset(Value ptr, Value bytes);
  Value offset(Value ptr, int64_t bytes) { return offset(ptr, i32(bytes)); }
  Value load(mlir::Type t, Value ptr) { return create<simt::LoadOp>(t, ptr).getResult(); }
  void store(Value v, Value ptr) { create<simt::StoreOp>(v, ptr); }

  // Control flow. Bodies give what the region yields.
  void ifThen(Value cond, llvm::function_ref<void()> then);
  Values ifElse(mlir::TypeRange types, Value cond, llvm::function_ref<Values()> then,
                llvm::function_ref<Values()> otherwise);
  Values loop(Value lower, Value upper, Value step, mlir::ValueRange inits,
              llvm::function_ref<Values(Value, mlir::ValueRange)> body);

  /// create<Op>(operands…) at the current location.
  template <typename Op, typename... Args> Op create(Args &&...args) {
    return Op::create(*this, loc, std::forward<Args>(args)...);
  }
  /// A constant of `v`'s type.
  Value like(Value v, int64_t c) { return getOrConstant(getIntegerAttr(v.getType(), c)); }

private:
  template <typename Op> Value fold(Value a, Value b) { return createOrFold<Op>(loc, a, b); }
  Value getOrConstant(mlir::TypedAttr attr) { return mlir::arith::ConstantOp::create(*this, loc, attr); }
};

/// Bytes from the start of 128-byte row `row` to its 16-byte chunk `chunk` under the 128-byte swizzle.
inline mlir::Value swizzled(SimtBuilder &b, mlir::Value chunk, mlir::Value row) {
  return b.mul(b.xorI(chunk, b.rem(row, 8)), 16);
}

} // namespace cfc
