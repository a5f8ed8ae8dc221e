//===- MmaOperands.cpp - Registers of mma.m16n8k16 ---------------------------------===//
#include "compiler/lower/kernel/MmaOperands.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

MmaOperands::MmaOperands(SimtBuilder &b, Type aType, Type bType)
    : b(b), aType(aType), bType(bType), common(bType.isF32()    ? aType
                                               : aType == bType ? aType
                                                                : Type(b.getBF16Type())) {}

Value MmaOperands::convert(Value reg, Type from) {
  if (from == common)
    return reg;
  auto [lo, hi] = b.unpack(reg, from);
  return b.pack(lo, hi, common);
}

MmaOperands::Values MmaOperands::weights(Value address, bool half, bool trans) {
  SmallVector<Type> four(4, b.getI32Type());
  auto load = b.create<simt::LdmatrixOp>(four, address, trans);
  Values regs;
  for (Value r : load.getResults())
    regs.push_back(convert(r, aType));
  if (half) // columns 8 to 15 of the row do not exist
    regs[2] = regs[3] = b.i32(0);
  return regs;
}

MmaOperands::Values MmaOperands::activation(Value vector, Value first, Value lane, bool half) {
  if (!half)
    return activations(vector, 0, 1, first, lane);
  // Rows 8 to 15 do not exist: read nothing past the vector's end.
  Values regs = activations(vector, 0, 1, first, lane, /*rows=*/8);
  regs.push_back(b.i32(0));
  return regs;
}

MmaOperands::Values MmaOperands::activations(Value vectors, int64_t stride, int64_t columns, Value first,
                                             Value lane, int64_t rows) {
  Value column = b.div(lane, 4);
  return activations(vectors, stride, column, b.lt(column, columns), first, lane, rows);
}

MmaOperands::Values MmaOperands::activations(Value vectors, int64_t stride, Value column, Value exists,
                                             Value first, Value lane, int64_t rows) {
  // Lane l holds rows 2 (l % 4), + 1, and 8 more, of column l / 4. Lanes without a column read vector 0 and
  // drop it.
  int64_t bytes = bType.isF32() ? 4 : 2;
  Value row = b.add(first, b.mul(b.rem(lane, 4), 2));
  Value index = stride ? b.add(row, b.mul(b.select(exists, column, b.i32(0)), stride)) : row;
  Value at = b.offset(vectors, b.mul(index, bytes));
  Values regs;
  for (int64_t k = 0; k < rows; k += 8) {
    Value word;
    if (bType.isF32()) {
      auto element = [&](int64_t i) { return b.load(b.getF32Type(), b.offset(at, (k + i) * 4)); };
      word = b.pack(element(0), element(1), common);
    } else {
      word = convert(b.load(b.getI32Type(), b.offset(at, k * 2)), bType);
    }
    regs.push_back(b.select(exists, word, b.i32(0)));
  }
  return regs;
}

MmaOperands::Values MmaOperands::multiply(const Values &a, const Values &bRegs, const Values &c) {
  auto kind = common.isF16() ? simt::MmaType::F16 : simt::MmaType::Bf16;
  auto f32 = b.getF32Type();
  auto op = b.create<simt::MmaOp>(f32, f32, f32, f32, kind, a, bRegs, c);
  return {op.getD0(), op.getD1(), op.getD2(), op.getD3()};
}
