//===- MmaOperands.h - Registers of mma.m16n8k16 -----------------------------------===//
//
// Weights, keys and values are the A operand, activations the B operand. The
// type is f16 where both are f16, else bf16: the other operand is converted.
// Activations in f32 are rounded to the type of A.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/lower/kernel/SimtBuilder.h"

namespace cfc::kernel {

class MmaOperands {
public:
  using Value = mlir::Value;
  using Values = SimtBuilder::Values;

  MmaOperands(SimtBuilder &b, mlir::Type aType, mlir::Type bType);

  /// Type of the multiplication, f16 or bf16.
  mlir::Type type() const { return common; }

  /// 16 x 16 of A at this lane's ldmatrix address; `half`: only 8 columns exist. `trans`: A's rows are
  /// memory's columns.
  Values weights(Value address, bool half = false, bool trans = false);
  /// 16 elements from element `first` of a 16-bit or f32 vector as column 0 of B, the others 0.
  Values activation(Value vector, Value first, Value lane, bool half = false);
  /// Elements `first` to `first` + 15 of up to 8 vectors of `stride` elements, one in each column; 0 past
  /// `columns`. With `rows` = 8 only the first of the two registers.
  Values activations(Value vectors, int64_t stride, int64_t columns, Value first, Value lane,
                     int64_t rows = 16);
  /// The same where this lane's column is vector `column`, and 0 unless it `exists`.
  Values activations(Value vectors, int64_t stride, Value column, Value exists, Value first, Value lane,
                     int64_t rows = 16);

  /// Of K in f8E4M3FN: `blocks` (1 or 2) times 16 columns of 16 rows, at this lane's ldmatrix address. Lane l
  /// has columns 4 (l % 4) to + 3 of a block, in the place of the four that it multiplies: those of
  /// activationsForE4m3.
  llvm::SmallVector<Values> rowsOfE4m3(Value address, int64_t blocks);
  /// Of V in f8E4M3FN, by `trans`: row g of a block is memory's column 2 g, row g + 8 its column 2 g + 1.
  llvm::SmallVector<Values> columnsOfE4m3(Value address, int64_t blocks);
  /// 16 elements, or with `half` 8, of vector `column` as rowsOfE4m3 takes them.
  Values activationsForE4m3(Value vectors, int64_t stride, Value column, Value exists, Value first,
                            Value lane, bool half);

  /// A register of two 16-bit elements of B as one of the multiplication's type.
  Value factor(Value reg) { return convert(reg, bType); }
  Values multiply(const Values &a, const Values &bRegs, const Values &c);

private:
  simt::MmaType kind() const { return common.isF16() ? simt::MmaType::F16 : simt::MmaType::Bf16; }
  Value twoOf(Value reg, bool upper);
  Values pairs(Value vectors, int64_t stride, Value column, Value exists, Value row, int64_t count,
               int64_t step);
  /// A register of two 16-bit elements of `from` as one of the common type.
  Value convert(Value reg, mlir::Type from);

  SimtBuilder &b;
  mlir::Type aType, bType, common;
};

} // namespace cfc::kernel
