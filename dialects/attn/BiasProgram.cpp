//===- BiasProgram.cpp - What the bias of an attention computes ------------===//
#include "dialects/attn/BiasProgram.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;
using namespace cfc::attn;

namespace {
/// A scalar: one of the two, by its type.
struct Scalar {
  int64_t integer = 0;
  double real = 0;
};
using Operands = ArrayRef<Scalar>;

struct Known {
  StringRef name;
  Scalar (*apply)(Operands);
};

Scalar real(double value) { return {0, value}; }
Scalar integer(int64_t value) { return {value, 0}; }
} // namespace

/// All but constants, comparisons and conversions, which look at types and attributes too.
static ArrayRef<Known> knownOps() {
  static const Known known[] = {
      {"arith.addi", [](Operands x) { return integer(int64_t(uint64_t(x[0].integer) + x[1].integer)); }},
      {"arith.subi", [](Operands x) { return integer(int64_t(uint64_t(x[0].integer) - x[1].integer)); }},
      {"arith.muli", [](Operands x) { return integer(int64_t(uint64_t(x[0].integer) * x[1].integer)); }},
      {"arith.minsi", [](Operands x) { return integer(std::min(x[0].integer, x[1].integer)); }},
      {"arith.maxsi", [](Operands x) { return integer(std::max(x[0].integer, x[1].integer)); }},
      {"arith.andi", [](Operands x) { return integer(x[0].integer & x[1].integer); }},
      {"arith.ori", [](Operands x) { return integer(x[0].integer | x[1].integer); }},
      {"arith.xori", [](Operands x) { return integer(x[0].integer ^ x[1].integer); }},
      {"arith.addf", [](Operands x) { return real(x[0].real + x[1].real); }},
      {"arith.subf", [](Operands x) { return real(x[0].real - x[1].real); }},
      {"arith.mulf", [](Operands x) { return real(x[0].real * x[1].real); }},
      {"arith.divf", [](Operands x) { return real(x[0].real / x[1].real); }},
      {"arith.negf", [](Operands x) { return real(-x[0].real); }},
      {"arith.minnumf", [](Operands x) { return real(std::fmin(x[0].real, x[1].real)); }},
      {"arith.maxnumf", [](Operands x) { return real(std::fmax(x[0].real, x[1].real)); }},
      {"arith.extf", [](Operands x) { return x[0]; }},
      {"arith.sitofp", [](Operands x) { return real(double(x[0].integer)); }},
      {"arith.select", [](Operands x) { return x[0].integer ? x[1] : x[2]; }},
      {"math.exp2", [](Operands x) { return real(std::exp2(x[0].real)); }}};
  return known;
}

/// Those that knownOps leaves out.
static constexpr StringRef kTyped[] = {"arith.constant", "arith.cmpi", "arith.cmpf", "arith.index_cast",
                                       "arith.trunci"};

static const Known *find(Operation *op) {
  for (const Known &known : knownOps())
    if (op->getName().getStringRef() == known.name)
      return &known;
  return nullptr;
}

bool BiasProgram::has(Operation *op) {
  auto isScalar = [](Type type) {
    return type.isIndex() || type.isInteger(1) || type.isInteger(32) || type.isInteger(64) || type.isF16() ||
           type.isBF16() || type.isF32();
  };
  bool scalars =
      llvm::all_of(op->getOperandTypes(), isScalar) && llvm::all_of(op->getResultTypes(), isScalar);
  return scalars && (find(op) || llvm::is_contained(kTyped, op->getName().getStringRef()));
}

std::string BiasProgram::names() {
  SmallVector<StringRef> all(std::begin(kTyped), std::end(kTyped));
  for (const Known &known : knownOps())
    all.push_back(known.name);
  llvm::sort(all);
  return llvm::join(all, ", ");
}

/// An integer as its type holds it.
static int64_t wrap(int64_t value, Type type) {
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer || integer.getWidth() >= 64)
    return value;
  return APInt(64, uint64_t(value)).trunc(integer.getWidth()).sext(64).getSExtValue();
}

static bool compare(arith::CmpIPredicate predicate, int64_t a, int64_t b) {
  using enum arith::CmpIPredicate;
  switch (predicate) {
  case eq:
    return a == b;
  case ne:
    return a != b;
  case slt:
    return a < b;
  case sle:
    return a <= b;
  case sgt:
    return a > b;
  case sge:
    return a >= b;
  case ult:
    return uint64_t(a) < uint64_t(b);
  case ule:
    return uint64_t(a) <= uint64_t(b);
  case ugt:
    return uint64_t(a) > uint64_t(b);
  case uge:
    return uint64_t(a) >= uint64_t(b);
  }
  return false;
}

static bool compare(arith::CmpFPredicate predicate, double a, double b) {
  using enum arith::CmpFPredicate;
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) {
  case OEQ:
    return a == b;
  case ONE:
    return !unordered && a != b;
  case OLT:
    return a < b;
  case OLE:
    return a <= b;
  case OGT:
    return a > b;
  case OGE:
    return a >= b;
  case ORD:
    return !unordered;
  case UEQ:
    return unordered || a == b;
  case UNE:
    return a != b;
  case ULT:
    return unordered || a < b;
  case ULE:
    return unordered || a <= b;
  case UGT:
    return unordered || a > b;
  case UGE:
    return unordered || a >= b;
  case UNO:
    return unordered;
  case AlwaysFalse:
    return false;
  case AlwaysTrue:
    return true;
  }
  return false;
}

static Scalar constant(arith::ConstantOp op) {
  if (auto number = dyn_cast<FloatAttr>(op.getValue()))
    return real(number.getValueAsDouble());
  return integer(cast<IntegerAttr>(op.getValue()).getValue().getSExtValue());
}

static Scalar apply(Operation *op, Operands operands) {
  if (auto value = dyn_cast<arith::ConstantOp>(op))
    return constant(value);
  if (auto test = dyn_cast<arith::CmpIOp>(op))
    return integer(compare(test.getPredicate(), operands[0].integer, operands[1].integer) ? -1 : 0);
  if (auto test = dyn_cast<arith::CmpFOp>(op))
    return integer(compare(test.getPredicate(), operands[0].real, operands[1].real) ? -1 : 0);
  const Known *known = find(op);
  Scalar result = known ? known->apply(operands) : operands[0]; // a cast of integers
  result.integer = wrap(result.integer, op->getResult(0).getType());
  return result;
}

double BiasProgram::operator()(int64_t head, int64_t query, int64_t key) const {
  Block &block = AttentionOp(op).getBias().front();
  llvm::DenseMap<Value, Scalar> values;
  const int64_t given[] = {head, query, key};
  for (auto [argument, value] : llvm::zip_equal(block.getArguments(), given))
    values[argument] = integer(value);
  for (Operation &one : block.without_terminator()) {
    if (auto at = dyn_cast<AtOp>(one)) {
      values[at.getResult()] = real(read(at.getTensor(), values.lookup(at.getIndex()).integer));
      continue;
    }
    SmallVector<Scalar> operands =
        llvm::map_to_vector(one.getOperands(), [&](Value value) { return values.lookup(value); });
    values[one.getResult(0)] = apply(&one, operands);
  }
  return values.lookup(cast<YieldOp>(block.getTerminator()).getValue()).real;
}
