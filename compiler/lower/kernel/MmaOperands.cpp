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

/// Two f8E4M3FN of a register, the upper ones or the lower ones, in the common type.
Value MmaOperands::twoOf(Value reg, bool upper) {
  Value bits = upper ? b.shr(reg, 16) : reg;
  return b.create<simt::UnpackE4m3Op>(b.getI32Type(), kind(),
                                      b.createOrFold<arith::TruncIOp>(b.loc, b.getI16Type(), bits));
}

SmallVector<MmaOperands::Values> MmaOperands::rowsOfE4m3(Value address, int64_t blocks) {
  // Registers: rows 0 to 7 and 8 to 15 of 16 bytes, then of the next 16 bytes.
  auto load = b.create<simt::LdmatrixOp>(SmallVector<Type>(4, b.getI32Type()), address, /*trans=*/false);
  SmallVector<Values> all;
  for (int64_t k = 0; k < blocks; ++k) {
    Value upper = load.getResult(2 * k), lower = load.getResult(2 * k + 1);
    Values &regs = all.emplace_back();
    for (bool second : {false, true})
      for (Value r : {upper, lower})
        regs.push_back(twoOf(r, second));
  }
  return all;
}

SmallVector<MmaOperands::Values> MmaOperands::columnsOfE4m3(Value address, int64_t blocks) {
  // Registers: tokens 0 to 7 of 16 bytes and of the next 16, then tokens 8 to 15. A transposed element is two
  // bytes: lane l has bytes 2 (l / 4) and + 1 of tokens 2 (l % 4) and + 1.
  auto load = b.create<simt::LdmatrixOp>(SmallVector<Type>(4, b.getI32Type()), address, /*trans=*/true);
  SmallVector<Values> all;
  for (int64_t k = 0; k < blocks; ++k) {
    Values &regs = all.emplace_back();
    for (Value r : {load.getResult(k), load.getResult(2 + k)}) {
      Value first = twoOf(r, false), second = twoOf(r, true);
      regs.push_back(b.orI(b.andI(first, 0xffff), b.shl(second, 16)));
      regs.push_back(b.orI(b.shr(first, 16), b.andI(second, b.i32(int32_t(0xffff0000)))));
    }
  }
  return all;
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
  // Lane l holds rows 2 (l % 4), + 1, and 8 more, of column l / 4.
  Value row = b.add(first, b.mul(b.rem(lane, 4), 2));
  return pairs(vectors, stride, column, exists, row, rows == 8 ? 1 : 2, 8);
}

MmaOperands::Values MmaOperands::activationsForE4m3(Value vectors, int64_t stride, Value column, Value exists,
                                                    Value first, Value lane, bool half) {
  Value four = b.rem(lane, 4);
  if (half) { // the last two lanes' columns do not exist
    exists = b.andI(exists, b.lt(four, 2));
    four = b.min(four, b.i32(1));
  }
  return pairs(vectors, stride, column, exists, b.add(first, b.mul(four, 4)), 2, 2);
}

/// `count` pairs of rows, `step` apart, of a column. Lanes without a column read vector 0 and drop it.
MmaOperands::Values MmaOperands::pairs(Value vectors, int64_t stride, Value column, Value exists, Value row,
                                       int64_t count, int64_t step) {
  int64_t bytes = bType.isF32() ? 4 : 2;
  Value index = stride ? b.add(row, b.mul(b.select(exists, column, b.i32(0)), stride)) : row;
  Value at = b.offset(vectors, b.mul(index, bytes));
  Values regs;
  for (int64_t k = 0; k < count * step; k += step) {
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
  auto f32 = b.getF32Type();
  auto op = b.create<simt::MmaOp>(f32, f32, f32, f32, kind(), a, bRegs, c);
  return {op.getD0(), op.getD1(), op.getD2(), op.getD3()};
}
