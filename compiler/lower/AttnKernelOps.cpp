//===- AttnKernelOps.cpp - Operations of one kernel -------------------------===//
//
// One function for each operation of a graph that is more than an operation on
// elements.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/AttnKernelWriter.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

static constexpr StringLiteral kPart = "part";

static Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }
static int64_t rowsOf(Value weight) { return cast<RankedTensorType>(weight.getType()).getDimSize(0); }

static Algorithm algorithmOf(Exchange exchange) {
  switch (exchange) {
  case Exchange::Butterfly:
    return Algorithm::Butterfly;
  case Exchange::Bulk:
    return Algorithm::Bulk;
  case Exchange::Async:
    return Algorithm::Async;
  case Exchange::Scatter:
    return Algorithm::Scatter;
  case Exchange::Ordered:
  case Exchange::Waiting:
    return Algorithm::Ordered;
  case Exchange::Atomic:
    return Algorithm::Atomic;
  case Exchange::Push:
  case Exchange::Unset:
    return Algorithm::Push;
  }
  llvm_unreachable("unknown exchange");
}

void KernelWriter::writeOp(Operation *op) {
  if (auto norm = dyn_cast<attn::RmsNormOp>(op))
    writeNorm(norm);
  else if (auto linear = dyn_cast<attn::LinearOp>(op))
    writeLinear(linear);
  else if (auto append = dyn_cast<attn::KvAppendOp>(op))
    writeAppend(append);
  else if (auto attention = dyn_cast<attn::AttentionOp>(op))
    writeAttention(attention);
  for (Value result : op->getResults()) {
    if (!isa<RankedTensorType>(result.getType()) || !shape.isStored(result))
      continue;
    if (chunk && shape.storedForm(result) == Slice)
      late.push_back([this, result] { store(result); });
    else
      store(result);
  }
}

void KernelWriter::writeNorm(attn::RmsNormOp op) {
  Want want{Full};
  Value x = get(op.getX(), want);
  put(op.getResult(), want,
      RmsNormOp::create(prologue, op.getLoc(), tileOf(op.getResult(), want, elementOf(op.getResult())), x,
                        memory(op.getGain()), op.getEpsAttr()));
}

Value KernelWriter::exchange(Location loc, ExchangeKind kind, Value value, Exchange algorithm) {
  auto type = cast<TileType>(value.getType());
  TileType result = tile(type.getShape(), type.getElementType(), withoutAxis(type.getStates(), kPart));
  return ExchangeOp::create(body, loc, result, kind, value, kPart, algorithmOf(algorithm));
}

//===-- linear ----------------------------------------------------------------===//

/// This item's rows of `weights`, stacked, times the whole input: split over the cluster by rows, or
/// summands.
Value KernelWriter::project(attn::LinearOp op, ValueRange weights, Type element, bool byRows) {
  SmallVector<Value> memories;
  SmallVector<int64_t> rows;
  int64_t total = 0;
  for (Value weight : weights) {
    memories.push_back(memory(weight));
    rows.push_back(slice(rowsOf(weight)));
    total += rows.back();
  }
  SmallVector<StateAttr, 1> split, product;
  if (shape.isGathered(op) || kernelPlan.part > 1) { // an exchange over one CTA wants them too
    split.push_back(
        StateAttr::get(context, StringAttr::get(context, kPart), StateKind::Split, byRows ? 0 : 1));
    product.push_back(byRows ? split[0] : state(kPart, StateKind::Sum));
  }
  auto streamType = StreamType::get(context, {total, widthOf(op.getX())}, elementOf(weights[0]), split);
  Value stream = LoadOp::create(body, op.getLoc(), streamType, memories, rows, /*columns=*/false, item);
  TileType type = tile({total}, element, product);
  return MatmulOp::create(body, op.getLoc(), type, stream, get(op.getX(), {Full}), slotsOf(op));
}

/// A result from its f32 or already rounded sum: plus the bias, rounded to the result's type.
Value KernelWriter::roundResult(attn::LinearOp op, unsigned i, Value sum, const Want &want) {
  Value result = op.getResults()[i];
  if (op.getBiases().empty())
    return castTo(builderOf(want), sum, elementOf(result));
  Value bias = read(op.getBiases()[i], want);
  return ElementwiseOp::create(builderOf(want), op.getLoc(), tileOf(result, want, elementOf(result)),
                               ElementwiseKind::Add, sum, bias);
}

/// The type of a linear's sums: the results' own where nothing is left to do, else f32.
static Type sumType(attn::LinearOp op, ValueRange results) {
  Type element = elementOf(results[0]);
  bool same = llvm::all_of(results, [&](Value v) { return elementOf(v) == element; });
  return same && op.getBiases().empty() ? element : Float32Type::get(op.getContext());
}

void KernelWriter::writeLinear(attn::LinearOp op) {
  if (shape.finishes(op))
    return writeFinishing(op);
  if (shape.isGathered(op))
    return writeGathered(op);
  // Nobody needs whole slices: there is nothing to exchange.
  Want want{Slice, /*whole=*/false};
  if (isStacked(shape, kernelPlan, op))
    return extractResults(op, project(op, op.getWeights(), sumType(op, op.getResults()), /*byRows=*/true),
                          want);
  for (auto [i, weight, result] : llvm::enumerate(op.getWeights(), op.getResults()))
    put(result, want, roundResult(op, i, project(op, weight, sumType(op, result), /*byRows=*/true), want));
}

/// All weights as one stream; each CTA of the cluster gets the results of all.
void KernelWriter::writeGathered(attn::LinearOp op) {
  const OpPlan &choice = planOf(plan, op);
  bool byRows = choice.split != Split::Columns;
  Type element = byRows ? sumType(op, op.getResults()) : Float32Type::get(context);
  Value product = project(op, op.getWeights(), element, byRows);
  Value all = exchange(op.getLoc(), byRows ? ExchangeKind::Gather : ExchangeKind::Reduce, product,
                       byRows ? choice.gather : choice.reduce);
  extractResults(op, all, {Slice});
}

/// The results from what is stacked of all.
void KernelWriter::extractResults(attn::LinearOp op, Value all, const Want &want) {
  Type element = cast<TileType>(all.getType()).getElementType();
  int64_t from = 0;
  for (auto [i, result] : llvm::enumerate(op.getResults())) {
    int64_t columns = slice(widthOf(result));
    Value part = all;
    if (op.getResults().size() > 1)
      part = ExtractOp::create(body, op.getLoc(), tile({columns}, element), all, from);
    put(result, want, roundResult(op, i, part, want));
    from += columns;
  }
}

/// The input is this item's slice: its products are summands over the items.
void KernelWriter::writeFinishing(attn::LinearOp op) {
  Value x = get(op.getX(), {Slice});
  Type f32 = Float32Type::get(context);
  for (auto [i, weight, result] : llvm::enumerate(op.getWeights(), op.getResults())) {
    int64_t rows = rowsOf(weight);
    StateAttr split = state(kPart, StateKind::Split);
    auto streamType = StreamType::get(context, {rows, slice(widthOf(op.getX()))}, elementOf(weight), {split});
    Value stream = LoadOp::create(body, op.getLoc(), streamType, memory(weight), ArrayRef<int64_t>(rows),
                                  /*columns=*/true, item);
    TileType summand = tile({rows}, f32, {split, state(axis, StateKind::Sum)});
    Value product = MatmulOp::create(body, op.getLoc(), summand, stream, x, 1);
    MemoryMap::Finish place = map.finishOf(result);
    auto finish = FinishOp::create(body, op.getLoc(), product, axis, algorithmOf(planOf(plan, op).finish),
                                   place.counters, place.partials);
    finish.setPieces(finishPieces(rows, kernelPlan, planOf(plan, op).finish));
    finish.setFinishers(finishers(rows, shape.getHeads(), kernelPlan, planOf(plan, op).finish));
    Block *block = &finish.getBody().emplaceBlock();
    Value sum = block->addArgument(tile({rows}, f32, {split}), op.getLoc());
    OpBuilder inside = OpBuilder::atBlockEnd(block);
    inside.setInsertionPoint(YieldOp::create(inside, op.getLoc()));
    finishes.emplace(result.getAsOpaquePointer(), inside);
    Want want{Finished, true, result};
    put(result, want, roundResult(op, i, sum, want));
  }
}

//===-- The cache -------------------------------------------------------------===//

void KernelWriter::writeAppend(attn::KvAppendOp op) {
  Type element = op.getCache().getType().getElementType();
  Value k = castTo(body, get(op.getK(), {Slice}), element),
        v = castTo(body, get(op.getV(), {Slice}), element);
  auto append = [=, this]() mutable {
    AppendOp::create(body, op.getLoc(), k, v, memory(op.getCache()), memory(op.getSlot()), item);
  };
  if (chunk)
    late.push_back(append);
  else
    append();
}

/// The CTA that is the last of a head's chunks merges them, and does what follows.
Value KernelWriter::mergeChunks(attn::AttentionOp op, Value state) {
  MemoryMap::Finish place = map.finishOf(op.getResult());
  auto finish =
      FinishOp::create(body, op.getLoc(), state, axis, Algorithm::Ordered, place.counters, place.partials);
  finish.setEach(chunksOf(kernelPlan));
  Block *block = &finish.getBody().emplaceBlock();
  auto type = cast<TileType>(state.getType());
  Value whole = block->addArgument(tile(type.getShape(), type.getElementType()), op.getLoc());
  body.setInsertionPointToEnd(block);
  body.setInsertionPoint(YieldOp::create(body, op.getLoc()));
  chunk = {}; // from here on items are heads
  return whole;
}

void KernelWriter::writeAttention(attn::AttentionOp op) {
  Location loc = op.getLoc();
  attn::KvCacheType cache = op.getCache().getType();
  attn::KvAppendOp append = op.getAppend();
  int64_t group = op.getGroup(), dim = cache.getDim();
  Value q = get(op.getQ(), {Slice}), slot = append ? memory(append.getSlot()) : Value();

  auto streamType =
      KvStreamType::get(context, dim, dim, cache.getElementType(), {state(kPart, StateKind::Split)});
  Value kv = LoadCacheOp::create(body, loc, streamType, memory(op.getCache()), memory(op.getLen()), slot,
                                 item, chunk, op.getLen().getType().getCapacity());
  Type f32 = Float32Type::get(context);
  TileType whole = tile({group, dim + 2}, f32);
  SmallVector<StateAttr> partial = {state(kPart, StateKind::Softmax)};
  if (chunk)
    partial.push_back(state(axis, StateKind::Softmax));
  Value softmax = AttendOp::create(body, loc, tile({group, dim + 2}, f32, partial), q, kv, op.getScaleAttr());
  softmax = exchange(loc, ExchangeKind::Reduce, softmax, planOf(plan, op).reduce);
  if (chunk)
    softmax = mergeChunks(op, softmax);
  if (append) {
    Value k = castTo(body, get(append.getK(), {Slice}), cache.getElementType());
    Value v = castTo(body, get(append.getV(), {Slice}), cache.getElementType());
    softmax = AttendNewOp::create(body, loc, whole, softmax, q, k, v, slot, op.getScaleAttr());
  }
  auto normalized = NormalizeOp::create(body, loc, tile({group * dim}, elementOf(op.getResult())),
                                        tile({group}, f32), softmax);
  put(op.getResult(), {Slice}, normalized.getResult());
  if (Value lse = op.getLse())
    put(lse, {Slice}, normalized.getLse());
  for (auto &store : std::exchange(late, {}))
    store();
}
