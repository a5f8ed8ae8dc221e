//===- LowerAttendNew.cpp - What is around an online softmax -------------------------===//
//
// Merges of states, scores with their caps and biases, the token of this step, and
// the end of a softmax: sums, sinks and logarithms. The cached tokens are
// LowerAttend.cpp's.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "compiler/lower/kernel/MmaOperands.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;
using Values = SimtBuilder::Values;

static constexpr double kLn2 = 0.6931471805599453;

SoftmaxState cfc::kernel::mergeSoftmax(SimtBuilder &b, SoftmaxState x, SoftmaxState y) {
  Value m = b.fmax(x.m, y.m);
  Value safe = b.select(b.isNegInf(m), b.f32(0), m);
  Value sx = b.exp2(b.fsub(x.m, safe)), sy = b.exp2(b.fsub(y.m, safe));
  auto mix = [&](Value u, Value v) { return b.fadd(b.fmul(u, sx), b.fmul(v, sy)); };
  SoftmaxState sum{m, mix(x.l, y.l), {}};
  for (auto [u, v] : llvm::zip_equal(x.o, y.o))
    sum.o.push_back(mix(u, v));
  return sum;
}

SmallVector<Value> SoftmaxState::flat() const {
  SmallVector<Value> all = {m, l};
  llvm::append_range(all, o);
  return all;
}

SoftmaxState SoftmaxState::from(ValueRange values) {
  return {values[0], values[1], llvm::to_vector<4>(values.drop_front(2))};
}

Value cfc::kernel::scoreOf(SimtBuilder &b, Value product, double scale, Value kScale,
                           std::optional<double> softcap) {
  auto scaled = [&](double factor) {
    return b.fmul(product, kScale ? b.fmul(kScale, b.f32(factor)) : b.f32(factor));
  };
  if (!softcap)
    return scaled(scale * kLog2E);
  // c tanh(s / c) = c - 2 c / (exp(2 s / c) + 1): no overflow hurts it.
  double cap = *softcap * kLog2E;
  Value power = b.exp2(scaled(2 * kLog2E * scale / *softcap));
  return b.fsub(b.f32(cap), b.fdiv(b.f32(2 * cap), b.fadd(power, b.f32(1))));
}

std::optional<double> cfc::kernel::numberOf(std::optional<llvm::APFloat> number) {
  return number ? std::optional(number->convertToDouble()) : std::nullopt;
}

/// A scalar operation of a bias, on i32 where the region has indices.
static void inlineScalar(SimtBuilder &b, Operation &op, IRMapping &mapping) {
  if (auto cast = dyn_cast<arith::IndexCastOp>(op)) {
    Value value = mapping.lookup(cast.getIn());
    Type to = cast.getType().isIndex() ? b.getI32Type() : cast.getType();
    unsigned from = value.getType().getIntOrFloatBitWidth(), width = to.getIntOrFloatBitWidth();
    if (from < width)
      value = b.create<arith::ExtSIOp>(to, value);
    else if (from > width)
      value = b.create<arith::TruncIOp>(to, value);
    mapping.map(cast.getResult(), value);
    return;
  }
  auto constant = dyn_cast<arith::ConstantOp>(op);
  if (constant && constant.getType().isIndex()) {
    mapping.map(constant.getResult(), b.i32(cast<IntegerAttr>(constant.getValue()).getInt()));
    return;
  }
  if (auto power = dyn_cast<math::Exp2Op>(op)) {
    mapping.map(power.getResult(), b.exp2(mapping.lookup(power.getOperand())));
    return;
  }
  Operation *copy = b.clone(op, mapping);
  for (Value result : copy->getResults())
    if (result.getType().isIndex())
      result.setType(b.getI32Type());
}

std::function<Value(Value, Value)> KernelLowering::biasOf(Region &region, LoadCacheOp load,
                                                          const Tokens &tokens, Value firstHead,
                                                          int64_t heads) {
  if (region.empty())
    return nullptr;
  Value base = b.mul(tokens.place.head, heads), query = tokens.query;
  return [=, this, &region](Value head, Value key) {
    // Columns without a head take the last one's.
    head = b.min(firstHead ? b.add(firstHead, head) : head, b.i32(heads - 1));
    IRMapping mapping;
    mapping.map(region.getArguments(), ValueRange{b.add(base, head), query, key});
    for (Operation &op : region.front().without_terminator()) {
      auto at = dyn_cast<AtOp>(op);
      if (!at) {
        inlineScalar(b, op, mapping);
        continue;
      }
      Type element = at.getResult().getType();
      Value offset = b.mul(mapping.lookup(at.getIndex()), element.getIntOrFloatBitWidth() / 8);
      mapping.map(at.getResult(), b.load(element, b.offset(memory.lookup(at.getMemory()), offset)));
    }
    Value made = mapping.lookup(cast<YieldValueOp>(region.front().getTerminator()).getValue());
    return b.fmul(made, b.f32(kLog2E));
  };
}

Value KernelLowering::isIdle(Value slotMemory, Value row, Value cache) {
  Value slot = scalar(slotMemory, row);
  Value idle = b.lt(slot, 0);
  return cache ? b.orI(idle, b.ge(slot, slotsOf(caches.find(cache)->second))) : idle;
}

Value KernelLowering::scaleOf(Value source, Value head) {
  if (!source)
    return {};
  bool one = cast<MemRefType>(source.getType()).getNumElements() == 1;
  return b.load(b.getF32Type(), b.offset(memory.lookup(source), b.mul(one ? b.i32(0) : head, 4)));
}

Value KernelLowering::scoreOfNew(AttendNewOp op, Value head, int64_t dim, Value kScale,
                                 function_ref<Value(Value)> key) {
  Value dot = b.loop(lane, b.i32(dim), b.i32(32), b.f32(0), [&](Value d, ValueRange sum) -> Values {
    Value q = loadElement(op.getQ(), b.add(b.mul(head, dim), d));
    return {b.fadd(sum[0], b.fmul(q, key(d)))};
  })[0];
  for (int64_t x = 16; x; x /= 2)
    dot = b.fadd(
        dot, b.create<simt::ShuffleOp>(b.getF32Type(), simt::ShuffleMode::Xor, dot, b.i32(x)).getResult());
  return scoreOf(b, dot, op.getScale().convertToDouble(), kScale, numberOf(op.getSoftcap()));
}

LogicalResult KernelLowering::lowerAttendNew(AttendNewOp op) {
  if (op.hasQueries())
    return lowerAttendNewTokens(op);
  LoadCacheOp load = op.getLoad();
  TileType type = op.getState().getType();
  int64_t allHeads = type.getShape()[0], vDim = type.getShape()[1] - 2;
  int64_t heads = localElements(func, type) / (vDim + 2); // of this CTA, from firstHead on
  Value firstHead = b.div(partOffset(type), vDim + 2);
  int64_t dim = cast<TileType>(op.getK().getType()).getNumElements();
  Value scratch = b.offset(shared, layout.scratch);
  Value idle = isIdle(op.getSlot(), item(op.getItem()), load ? Value(load.getCache()) : Value());
  std::function<Value(Value, Value)> bias;
  Value newest, kScale, vScale;
  if (load && load.getKScale()) {
    Value kvHead = placeOf(load.getItem(), caches.find(load.getCache())->second.type, {}).head;
    kScale = scaleOf(load.getKScale(), kvHead);
    vScale = scaleOf(load.getVScale(), kvHead);
  }
  if (!op.getBias().empty()) {
    Tokens tokens = tokensOf(load, /*report=*/false);
    newest = tokens.length;
    bias = biasOf(op.getBias(), load, tokens, firstHead, allHeads);
  }
  sync(); // the last reader of the scratch
  // One warp a head: its score in base 2.
  b.loop(warp, b.i32(heads), b.i32(warps), {}, [&](Value head, ValueRange) -> Values {
    Value score = scoreOfNew(op, b.add(firstHead, head), dim, kScale,
                             [&](Value d) { return loadElement(op.getK(), d); });
    if (bias)
      score = b.fadd(score, bias(head, newest));
    b.ifThen(b.eq(lane, 0), [&] { b.store(score, b.offset(scratch, b.mul(head, 4))); });
    return {};
  });
  sync();
  Value from = bufferOf(op.getState());
  storeMerged(op, [&](Value head, Value d, int64_t width) {
    SoftmaxState old = loadState(b, from, head, d, vDim, width);
    Value score = b.load(b.getF32Type(), b.offset(scratch, b.mul(head, 4)));
    SoftmaxState token{b.select(idle, b.negInf(), score), b.select(idle, b.f32(0), b.f32(1)), {}};
    for (int64_t j = 0; j < width; ++j) {
      Value v = loadElement(op.getV(), b.add(d, j));
      token.o.push_back(b.select(idle, b.f32(0), vScale ? b.fmul(v, vScale) : v));
    }
    return mergeSoftmax(b, old, token);
  });
  return success();
}

/// Stores merged(head, d, width), which is made of the state.
void KernelLowering::storeMerged(AttendNewOp op, function_ref<SoftmaxState(Value, Value, int64_t)> merged) {
  TileType type = op.getState().getType();
  int64_t vDim = type.getShape()[1] - 2, heads = localElements(func, type) / (vDim + 2);
  Value to = bufferOf(op.getResult());
  bool inPlace = layout.isInPlace(op);
  forEachOfState(heads, vDim, [&](Value head, Value d, int64_t width) {
    storeState(b, merged(head, d, width), to, head, d, vDim, /*sums=*/!inPlace);
  });
  sync();
  if (inPlace) { // nobody needs the old m and l any more
    forEach(heads, [&](Value head) {
      SoftmaxState s = merged(head, b.i32(0), 1);
      Value row = b.offset(to, b.mul(head, (vDim + 2) * 4));
      b.store(s.m, b.offset(row, vDim * 4));
      b.store(s.l, b.offset(row, vDim * 4 + 4));
    });
    sync();
  }
}

void KernelLowering::storeNormalized(NormalizeOp op, const SoftmaxState &state, Value head, Value d) {
  int64_t dim = op.getState().getType().getShape()[1] - 2;
  Value empty = b.createOrFold<arith::CmpFOp>(b.loc, arith::CmpFPredicate::OEQ, state.l, b.f32(0));
  Value l = b.select(empty, b.f32(1), state.l);
  Value first = b.add(b.mul(head, dim), d);
  for (auto [j, o] : llvm::enumerate(state.o))
    storeElement(op.getResult(), b.add(first, j), b.select(empty, b.f32(0), b.fdiv(o, l)));
}

LogicalResult KernelLowering::lowerNormalize(NormalizeOp op) {
  if (auto merge = op.getState().getDefiningOp<MergeStatesOp>(); merge && normalizedBy(merge) == op)
    return success(); // done where it is merged
  TileType type = op.getState().getType();
  int64_t dim = type.getShape()[1] - 2, heads = localElements(func, type) / (dim + 2);
  Value from = bufferOf(op.getState());
  // Nothing to attend has no sink either.
  auto withSink = [&](SoftmaxState s, Value head) {
    if (!op.getSinks())
      return s;
    auto sinks = cast<MemRefType>(op.getSinks().getType());
    Value at = b.add(b.mul(b.rem(item(op.getItem()), sinks.getNumElements() / heads), heads), head);
    Value bytes = b.mul(at, sinks.getElementTypeBitWidth() / 8);
    Value sink = b.load(sinks.getElementType(), b.offset(memory.lookup(op.getSinks()), bytes));
    SoftmaxState one{b.fmul(b.toF32(sink), b.f32(kLog2E)), b.f32(1), {}};
    one.o.assign(s.o.size(), b.f32(0));
    SoftmaxState all = mergeSoftmax(b, s, one);
    Value empty = b.createOrFold<arith::CmpFOp>(b.loc, arith::CmpFPredicate::OEQ, s.l, b.f32(0));
    return SoftmaxState{b.select(empty, s.m, all.m), b.select(empty, s.l, all.l), all.o};
  };
  forEachOfState(heads, dim, [&](Value head, Value d, int64_t width) {
    storeNormalized(op, withSink(loadState(b, from, head, d, dim, width), head), head, d);
  });
  forEach(heads, [&](Value head) {
    SoftmaxState s = withSink(loadState(b, from, head, b.i32(0), dim, 1), head);
    Value log = b.create<simt::Log2Op>(s.l);
    storeElement(op.getLse(), head, b.fmul(b.fadd(s.m, log), b.f32(kLn2)));
  });
  sync();
  return success();
}
