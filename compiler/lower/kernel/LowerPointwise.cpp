//===- LowerPointwise.cpp - Norms, rotations, elementwise operations --------------===//
//
// Arithmetic in f32. Sums over a tile go through 256 virtual lanes, whatever
// the number of warps, so that their order does not depend on the plan.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

static constexpr int64_t kVirtualLanes = 256;

Value KernelLowering::foldThreads(ElementwiseKind kind, function_ref<Value(Value)> partial) {
  auto merge = [&](Value x, Value y) { return kind == ElementwiseKind::Max ? b.fmax(x, y) : b.fadd(x, y); };
  Value scratch = b.offset(shared, layout.scratch);
  sync(); // the last reader of the scratch
  forEach(kVirtualLanes, [&](Value v) { b.store(partial(v), b.offset(scratch, b.mul(v, 4))); });
  sync();
  // Each warp merges all virtual lanes: eight a lane by a tree, then a butterfly over the lanes.
  int64_t each = kVirtualLanes / 32;
  Value sum = mergeTree<Value>(
      each,
      [&](int64_t i) { return b.load(b.getF32Type(), b.offset(scratch, b.mul(b.add(lane, 32 * i), 4))); },
      merge);
  for (int64_t x = 16; x; x /= 2) {
    Value other =
        b.create<simt::ShuffleOp>(b.getF32Type(), simt::ShuffleMode::Xor, sum, b.i32(x)).getResult();
    sum = merge(sum, other);
  }
  return sum;
}

LogicalResult KernelLowering::lowerRmsNorm(RmsNormOp op) {
  int64_t n = op.getX().getType().getNumElements();
  auto gainType = cast<MemRefType>(op.getGain().getType());
  Value gain = memory.lookup(op.getGain());
  Value squares = foldThreads(ElementwiseKind::Add, [&](Value v) {
    auto square = [&](Value i) {
      Value x = loadElement(op.getX(), i);
      return b.fmul(x, x);
    };
    int64_t each = n / kVirtualLanes;
    if (n % kVirtualLanes || each > 64)
      return b.loop(v, b.i32(n), b.i32(kVirtualLanes), b.f32(0),
                    [&](Value i, ValueRange sum) -> Values { return {b.fadd(sum[0], square(i))}; })[0];
    Value sum = b.f32(0); // the same sum, with all loads ahead
    for (int64_t i = 0; i < each; ++i)
      sum = b.fadd(sum, square(b.add(v, i * kVirtualLanes)));
    return sum;
  });
  Value mean = b.fdiv(squares, b.f32(n));
  Value scale = b.create<simt::RsqrtOp>(b.fadd(mean, b.f32(op.getEps().convertToDouble())));
  forEachBatched(
      n, 16,
      [&](Value i) {
        Value at = b.offset(gain, b.wide(b.mul(i, gainType.getElementTypeBitWidth() / 8)));
        return b.load(gainType.getElementType(), at);
      },
      [&](Value i, Value g) {
        storeElement(op.getResult(), i, b.fmul(b.fmul(loadElement(op.getX(), i), scale), b.toF32(g)));
      });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerRope(RopeOp op) {
  auto tableType = cast<MemRefType>(op.getTable().getType());
  int64_t dim = tableType.getDimSize(1), half = dim / 2, n = op.getX().getType().getNumElements();
  int64_t bytes = tableType.getElementTypeBitWidth() / 8;
  Value position = scalar(op.getPosition());
  int64_t last = tableType.getDimSize(0) - 1;
  Value outside = b.orI(b.lt(position, 0), b.ge(position, last + 1));
  b.ifThen(b.andI(outside, b.eq(tid, 0)), [&] { setStatus(4); });
  position = b.min(b.max(position, b.i32(0)), b.i32(last));
  Value row = b.offset(memory.lookup(op.getTable()), b.mul(b.wide(position), dim * bytes));
  bool halves = op.getStyle() == RopeStyle::HalfSplit;
  forEach(n / 2, [&](Value i) {
    Value head = b.mul(b.div(i, half), dim), pair = b.rem(i, half);
    Value first = b.add(head, halves ? pair : b.mul(pair, 2));
    Value second = b.add(first, halves ? half : 1);
    auto entry = [&](Value at) {
      return b.toF32(b.load(tableType.getElementType(), b.offset(row, b.mul(at, bytes))));
    };
    Value c = entry(pair), s = entry(b.add(pair, half));
    Value x = loadElement(op.getX(), first), y = loadElement(op.getX(), second);
    storeElement(op.getResult(), first, b.fsub(b.fmul(x, c), b.fmul(y, s)));
    storeElement(op.getResult(), second, b.fadd(b.fmul(y, c), b.fmul(x, s)));
  });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerElementwise(ElementwiseOp op) {
  forEach(localElements(func, op.getResult().getType()), [&](Value i) {
    Value x = loadElement(op.getA(), i), y = loadElement(op.getB(), i);
    Value r = op.getKind() == ElementwiseKind::Add   ? b.fadd(x, y)
              : op.getKind() == ElementwiseKind::Mul ? b.fmul(x, y)
                                                     : b.fmax(x, y);
    storeElement(op.getResult(), i, r);
  });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerCast(CastOp op) {
  forEach(localElements(func, op.getResult().getType()),
          [&](Value i) { storeElement(op.getResult(), i, loadElement(op.getTile(), i)); });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerFold(FoldOp op) {
  int64_t n = localElements(func, op.getTile().getType());
  bool max = op.getKind() == ElementwiseKind::Max;
  Value all = foldThreads(op.getKind(), [&](Value v) {
    return b.loop(v, b.i32(n), b.i32(kVirtualLanes), max ? b.negInf() : b.f32(0),
                  [&](Value i, ValueRange sum) -> Values {
                    Value x = loadElement(op.getTile(), i);
                    return {max ? b.fmax(sum[0], x) : b.fadd(sum[0], x)};
                  })[0];
  });
  b.ifThen(b.eq(tid, 0), [&] { storeElement(op.getResult(), b.i32(0), all); });
  sync();
  return success();
}
