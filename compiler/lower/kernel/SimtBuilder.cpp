//===- SimtBuilder.cpp - Writes simt code in few words ------------------------===//
#include "compiler/lower/kernel/SimtBuilder.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace cfc;

Value SimtBuilder::toF32(Value a) {
  return a.getType().isF32() ? a : createOrFold<arith::ExtFOp>(loc, getF32Type(), a);
}

Value SimtBuilder::fromF32(Value a, Type t) {
  return t.isF32() ? a : createOrFold<arith::TruncFOp>(loc, t, a);
}

static bool isE4m3(Type element) { return isa<Float8E4M3FNType>(element); }

/// The low one of two f8E4M3FN as f32.
static Value lowE4m3(SimtBuilder &b, Value both) {
  return b.unpack(b.create<simt::UnpackE4m3Op>(b.getI32Type(), simt::MmaType::F16, both), b.getF16Type())
      .first;
}

static Value toE4m3(SimtBuilder &b, Value f32) {
  return b.create<simt::PackE4m3Op>(b.getI16Type(), f32, b.f32(0));
}

Value SimtBuilder::loadFloat(Type element, Value ptr) {
  if (!isE4m3(element))
    return toF32(load(element, ptr));
  return lowE4m3(*this, createOrFold<arith::ExtUIOp>(loc, getI16Type(), load(getI8Type(), ptr)));
}

void SimtBuilder::storeFloat(Value f32, Type element, Value ptr) {
  if (isE4m3(element))
    store(createOrFold<arith::TruncIOp>(loc, getI8Type(), toE4m3(*this, f32)), ptr);
  else
    store(fromF32(f32, element), ptr);
}

Value SimtBuilder::rounded(Value f32, Type element) {
  return isE4m3(element) ? lowE4m3(*this, toE4m3(*this, f32)) : toF32(fromF32(f32, element));
}

// As a vector, for which a GPU has one instruction (cvt.rn.f16x2.f32, cvt.rn.bf16x2.f32).
Value SimtBuilder::pack(Value lo, Value hi, Type element) {
  auto pair = VectorType::get({2}, element);
  Value both = create<vector::FromElementsOp>(pair, ValueRange{fromF32(lo, element), fromF32(hi, element)});
  Value word = create<vector::BitCastOp>(VectorType::get({1}, getI32Type()), both);
  return create<vector::ExtractOp>(word, 0);
}

std::pair<Value, Value> SimtBuilder::unpack(Value reg, Type element) {
  auto value = [&](Value bits) {
    Value half = createOrFold<arith::TruncIOp>(loc, getI16Type(), bits);
    return toF32(bitcast(element, half));
  };
  return {value(reg), value(shr(reg, 16))};
}

Value SimtBuilder::offset(Value ptr, Value bytes) {
  APInt c;
  if (matchPattern(bytes, m_ConstantInt(&c)) && c.isZero())
    return ptr;
  return create<simt::OffsetOp>(ptr.getType(), ptr, bytes);
}

void SimtBuilder::ifThen(Value cond, function_ref<void()> then) {
  auto op = create<scf::IfOp>(cond, /*withElseRegion=*/false);
  InsertionGuard guard(*this);
  setInsertionPointToStart(op.thenBlock());
  then();
}

SimtBuilder::Values SimtBuilder::ifElse(TypeRange types, Value cond, function_ref<Values()> then,
                                        function_ref<Values()> otherwise) {
  auto op = create<scf::IfOp>(types, cond, /*addThenBlock=*/true, /*addElseBlock=*/true);
  InsertionGuard guard(*this);
  setInsertionPointToStart(op.thenBlock());
  create<scf::YieldOp>(then());
  setInsertionPointToStart(op.elseBlock());
  create<scf::YieldOp>(otherwise());
  return op.getResults();
}

SimtBuilder::Values SimtBuilder::loop(Value lower, Value upper, Value step, ValueRange inits,
                                      function_ref<Values(Value, ValueRange)> body) {
  auto op = create<scf::ForOp>(lower, upper, step, inits);
  InsertionGuard guard(*this);
  Block *block = op.getBody();
  if (!block->empty() && block->back().hasTrait<OpTrait::IsTerminator>())
    block->back().erase();
  setInsertionPointToEnd(block);
  create<scf::YieldOp>(body(op.getInductionVar(), op.getRegionIterArgs()));
  return op.getResults();
}
