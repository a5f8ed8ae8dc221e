//===- AttnKernelOps.cpp - Operations of one kernel -------------------------===//
//
// One function for each operation of a graph that is more than an operation on
// elements.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/AttnKernelWriter.h"
#include "compiler/plan/Sizes.h"
#include "mlir/IR/IRMapping.h"

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
  case Exchange::Reader: // grid sums that no one operation does
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
  else if (auto norm = dyn_cast<attn::LayerNormOp>(op))
    writeLayerNorm(norm);
  else if (auto linear = dyn_cast<attn::LinearOp>(op))
    writeLinear(linear);
  else if (auto append = dyn_cast<attn::KvAppendOp>(op))
    writeAppend(append);
  else if (auto attention = dyn_cast<attn::AttentionOp>(op))
    writeAttention(attention);
  if (isa<attn::LinearOp>(op) && takesPanels(shape, kernelPlan))
    return; // its results are stored
  for (Value result : op->getResults()) {
    if (!isa<RankedTensorType>(result.getType()) || !shape.isStored(result) || isLeft(result))
      continue;
    if (chunk && shape.storedForm(result) == Slice)
      late.push_back([this, result] { store(result); });
    else
      store(result);
  }
}

/// What a CTA multiplies with: its columns of all tokens, or whole rows.
Spread KernelWriter::spreadOf(attn::LinearOp op) const {
  bool columns = shape.isOfTokens() && planOf(plan, op).split == Split::Columns;
  return columns ? Spread::Columns : Spread::Whole;
}

/// Full values of several tokens are stored as linears have them.
Spread KernelWriter::spreadOfStores() const {
  bool columns = llvm::any_of(shape.getOps(), [&](Operation *op) {
    auto linear = dyn_cast<attn::LinearOp>(op);
    return linear && spreadOf(linear) == Spread::Columns;
  });
  return columns ? Spread::Columns : Spread::Whole;
}

/// Each CTA of the cluster sums up whole rows of some tokens.
Value KernelWriter::scaleOf(attn::RmsNormOp op, Spread spread) {
  Value &scale = scales[{op, spread}];
  if (scale)
    return scale;
  Location loc = op.getLoc();
  if (spread == Spread::Rows) {
    Value x = get(op.getX(), {Full, true, {}, Spread::Rows});
    auto type = cast<TileType>(x.getType());
    TileType mine = tile(type.getShape().take_front(), Float32Type::get(context), type.getStates());
    return scale = RmsScaleOp::create(prologue, loc, mine, x, op.getEpsAttr());
  }
  Value made = scaleOf(op, Spread::Rows);
  auto mine = cast<TileType>(made.getType());
  if (kernelPlan.part > 1)
    made = ExchangeOp::create(prologue, loc, tile(mine.getShape(), mine.getElementType()),
                              ExchangeKind::Gather, made, kPart, Algorithm::Async);
  if (tokens != mine.getShape()[0])
    made = ExtractOp::create(prologue, loc, tile({tokens}, mine.getElementType()), made, 0);
  return scale = made;
}

/// A norm of several tokens, as a CTA wants it.
Value KernelWriter::normTokens(attn::RmsNormOp op, const Want &want) {
  Spread ofScales = want.spread == Spread::Rows ? Spread::Rows : Spread::Whole;
  Value scale = scaleOf(op, ofScales), x = get(op.getX(), want);
  return RmsNormOp::create(prologue, op.getLoc(), tileOf(op.getResult(), want, elementOf(op.getResult())), x,
                           memory(op.getGain()), scale, op.getEps(), op.getOffsetAttr());
}

void KernelWriter::writeNorm(attn::RmsNormOp op) {
  if (shape.isOfTokens() || op.isGrouped())
    return; // where it is wanted
  Want want{shape.hasTokenItems() ? Slice : Full};
  Value x = get(op.getX(), want);
  put(op.getResult(), want,
      RmsNormOp::create(builderOf(want), op.getLoc(), tileOf(op.getResult(), want, elementOf(op.getResult())),
                        x, memory(op.getGain()), /*scale=*/Value(), op.getEps(), op.getOffsetAttr()));
}

/// A layer norm of a token: the bias is added apart.
void KernelWriter::writeLayerNorm(attn::LayerNormOp op) {
  Want want{shape.hasTokenItems() ? Slice : Full};
  Location loc = op.getLoc();
  Value x = get(op.getX(), want);
  Type made = op.getBias() ? Type(Float32Type::get(context)) : elementOf(op.getResult());
  OpBuilder &builder = builderOf(want);
  Value gain = op.getGain() ? memory(op.getGain()) : Value();
  Value normed = RmsNormOp::create(builder, loc, tileOf(op.getResult(), want, made), x, gain,
                                   /*scale=*/Value(), op.getEps(), FloatAttr(), 0, /*centered=*/true);
  if (op.getBias())
    normed = ElementwiseOp::create(builder, loc, tileOf(op.getResult(), want, elementOf(op.getResult())),
                                   ElementwiseKind::Add, normed, get(op.getBias(), {Full}), FloatAttr());
  put(op.getResult(), want, normed);
}

/// Summands or softmaxes over the cluster, of which each CTA gets some of the rows.
Value KernelWriter::scatter(Location loc, Value value, Exchange algorithm) {
  auto type = cast<TileType>(value.getType());
  SmallVector<StateAttr> states = withoutAxis(type.getStates(), kPart);
  states.push_back(state(kPart, StateKind::Split));
  return ExchangeOp::create(body, loc, tile(type.getShape(), type.getElementType(), states),
                            ExchangeKind::ReduceScatter, value, kPart, algorithmOf(algorithm));
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
  bool panels = takesPanels(shape, kernelPlan);
  SmallVector<int64_t> rows;
  for (Value weight : panels ? weights.take_front() : weights)
    rows.push_back(slice(rowsOf(weight)));
  int64_t total = llvm::sum_of(rows);
  SmallVector<StateAttr, 1> split, states;
  if (shape.isGathered(op) || kernelPlan.part > 1) { // an exchange over one CTA wants them too
    split.push_back(
        StateAttr::get(context, StringAttr::get(context, kPart), StateKind::Split, byRows ? 0 : 1));
    states.push_back(byRows ? split[0] : state(kPart, StateKind::Sum));
  }
  auto streamType = StreamType::get(context, {total, widthOf(op.getX())}, elementOf(weights[0]), split);
  Value stream =
      LoadOp::create(body, op.getLoc(), streamType, memories(weights), rows, /*columns=*/false, panels, item);
  SmallVector<int64_t, 2> dims = {total};
  Value x = get(op.getX(), {Full, true, {}, spreadOf(op)});
  if (shape.isOfTokens()) {
    dims.push_back(tokens);
    if (cast<TileType>(x.getType()).getElementType().isF32()) // as one token's is, where it is multiplied
      x = castTo(prologue, x, elementOf(weights[0]));
  }
  auto product = MatmulOp::create(body, op.getLoc(), tile(dims, element, states), stream, x, slotsOf(op));
  if (!byRows && !shape.isGathered(op))
    product.setParts(kernelPlan.part);
  return product;
}

/// A result from its f32 or already rounded sum: plus the bias, rounded to the result's type.
Value KernelWriter::roundResult(attn::LinearOp op, unsigned i, Value sum, const Want &want) {
  Value result = op.getResults()[i];
  if (op.getBiases().empty())
    return castTo(builderOf(want), sum, elementOf(result));
  Value bias =
      takesPanels(shape, kernelPlan)
          ? ReadOp::create(body, op.getLoc(), tileOf(op.getBiases()[i], want, elementOf(op.getBiases()[i])),
                           memories(op.getBiases()), item)
          : read(op.getBiases()[i], want);
  return ElementwiseOp::create(builderOf(want), op.getLoc(), tileOf(result, want, elementOf(result)),
                               ElementwiseKind::Add, sum, bias, FloatAttr());
}

/// The type of a linear's sums: the results' own where nothing is left to do, else f32.
static Type sumType(attn::LinearOp op, ValueRange results) {
  Type element = elementOf(results[0]);
  bool same = llvm::all_of(results, [&](Value v) { return elementOf(v) == element; });
  return same && op.getBiases().empty() ? element : Float32Type::get(op.getContext());
}

void KernelWriter::writeLinear(attn::LinearOp op) {
  if (takesPanels(shape, kernelPlan))
    return writePanels(op);
  if (shape.finishes(op))
    return writeFinishing(op);
  if (shape.isGathered(op))
    return writeGathered(op);
  // Nobody needs whole slices: there is nothing to exchange.
  Want want{Slice, /*whole=*/false};
  if (isStacked(shape, kernelPlan, op, planOf(plan, op).split))
    return extractResults(op, sumsOf(op, op.getWeights(), op.getResults()), want);
  for (auto [i, weight, result] : llvm::enumerate(op.getWeights(), op.getResults()))
    put(result, want, roundResult(op, i, sumsOf(op, weight, result), want));
}

/// An item's panel of the stacked weights: it has rows of one result, which one the item says.
void KernelWriter::writePanels(attn::LinearOp op) {
  Value sums = sumsOf(op, op.getWeights(), op.getResults());
  Value made = roundResult(op, 0, sums, {Slice, /*whole=*/false});
  auto write =
      WriteOp::create(body, op.getLoc(), made, memories(op.getResults(), isFlat(op.getResults()[0])), item);
  write.setFrom(firstToken);
  write.setColumns(shape.isOfTokens());
}

/// The products with this item's rows of `weights`, of which each CTA has some: it took them, or the sums of
/// its rows over the cluster, each with columns of several tokens.
Value KernelWriter::sumsOf(attn::LinearOp op, ValueRange weights, ValueRange results) {
  if (!shape.dealsSums(op, planOf(plan, op).split))
    return project(op, weights, sumType(op, results), /*byRows=*/true);
  Value sums = project(op, weights, Float32Type::get(context), /*byRows=*/false);
  if (kernelPlan.part == 1)
    return sums;
  return scatter(op.getLoc(), sums, planOf(plan, op).reduce);
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
    TileType type = tileOf(result, want, element);
    Value part = all;
    if (op.getResults().size() > 1)
      part = ExtractOp::create(body, op.getLoc(), type, all, from);
    put(result, want, roundResult(op, i, part, want));
    from += type.getNumElements();
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
                                  /*columns=*/true, /*panels=*/false, item);
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

/// The item's slice of an append's K or V as the cache holds it: whoever attends to the new token takes that
/// too.
Value KernelWriter::rowOfCache(attn::KvAppendOp append, Value value, Value scale) {
  Type element = append.getCache().getType().getElementType();
  Value tile = get(value, {Slice});
  if (!scale)
    return castTo(body, tile, element);
  Value &made = quantized[{tile, scale}];
  if (!made)
    made = QuantizeOp::create(body, append.getLoc(),
                              this->tile(cast<TileType>(tile.getType()).getShape(), element), tile,
                              memory(scale), item);
  return made;
}

void KernelWriter::writeAppend(attn::KvAppendOp op) {
  Value k = rowOfCache(op, op.getK(), op.getKScale()), v = rowOfCache(op, op.getV(), op.getVScale());
  auto append = [=, this]() mutable {
    AppendOp::create(body, op.getLoc(), k, v, memory(op.getCache()), memory(op.getSlot()),
                     memoryOrNull(op.getQueries()), item);
  };
  if (chunk)
    late.push_back(append);
  else
    append();
}

/// Most tokens that an attention reads of a request.
int64_t KernelWriter::boundOf(attn::AttentionOp op) const {
  int64_t capacity = op.getLen().getType().getCapacity();
  if (!op.getPages())
    return capacity;
  return std::min(capacity, op.getPages().getType().getDimSize(1) * op.getCache().getType().getPage());
}

/// The CTA that is the last of a head's chunks, or shares, merges them, and does what follows.
Value KernelWriter::mergeChunks(attn::AttentionOp op, Value state) {
  MemoryMap::Finish place = map.finishOf(op.getResult());
  auto finish =
      FinishOp::create(body, op.getLoc(), state, axis, Algorithm::Ordered, place.counters, place.partials);
  if (sharesWork(kernelPlan))
    finish.setShares(true);
  else
    finish.setEach(chunksOf(kernelPlan));
  Block *block = &finish.getBody().emplaceBlock();
  auto type = cast<TileType>(state.getType());
  Value whole = block->addArgument(tile(type.getShape(), type.getElementType()), op.getLoc());
  body.setInsertionPointToEnd(block);
  body.setInsertionPoint(YieldOp::create(body, op.getLoc()));
  chunk = {}; // from here on items are heads
  return whole;
}

/// The bias of an attention, as a kernel's operation has it.
void KernelWriter::writeBias(attn::AttentionOp op, Region &region) {
  if (!op.hasBias())
    return;
  Block &block = region.emplaceBlock();
  IRMapping mapping;
  for (BlockArgument argument : op.getBias().getArguments())
    mapping.map(argument, block.addArgument(argument.getType(), argument.getLoc()));
  OpBuilder b = OpBuilder::atBlockEnd(&block);
  for (Operation &one : op.getBias().front()) {
    if (auto at = dyn_cast<attn::AtOp>(one))
      mapping.map(at.getResult(), AtOp::create(b, at.getLoc(), at.getResult().getType(),
                                               memory(at.getTensor()), mapping.lookup(at.getIndex())));
    else if (auto yield = dyn_cast<attn::YieldOp>(one))
      YieldValueOp::create(b, yield.getLoc(), mapping.lookup(yield.getValue()));
    else
      b.clone(one, mapping);
  }
}

void KernelWriter::writeAttention(attn::AttentionOp op) {
  Location loc = op.getLoc();
  attn::KvCacheType cache = op.getCache().getType();
  attn::KvAppendOp append = op.getAppend();
  int64_t group = op.getGroup(), vDim = cache.getVDim();
  Value q = get(op.getQ(), {Slice}), slot = append ? memory(append.getSlot()) : Value();

  SmallVector<StateAttr> split;
  if (!sharesWork(kernelPlan)) // else a cluster is one CTA
    split = {state(kPart, StateKind::Split)};
  auto streamType = KvStreamType::get(context, cache.getDim(), vDim, cache.getElementType(), split);
  Value kv = LoadCacheOp::create(
      body, loc, streamType, memory(op.getCache()), memory(op.getLen()), slot, memoryOrNull(op.getPages()),
      memoryOrNull(op.getQueries()), memoryOrNull(op.getMask()), memoryOrNull(op.getKScale()),
      memoryOrNull(op.getVScale()), item, chunk, boundOf(op), op.getWindow().value_or(0), segmentGroups(op));
  Type f32 = Float32Type::get(context);
  SmallVector<StateAttr> partial = split;
  if (!split.empty())
    partial = {state(kPart, StateKind::Softmax)};
  if (chunk)
    partial.push_back(state(axis, StateKind::Softmax));
  Value softmax = AttendOp::create(body, loc, tile({group, vDim + 2}, f32, partial), q, kv, op.getScaleAttr(),
                                   op.getSoftcapAttr());
  writeBias(op, softmax.getDefiningOp<AttendOp>().getBias());
  const OpPlan &choice = planOf(plan, op);
  if (scattersHeads(group, kernelPlan, choice))
    softmax = scatter(loc, softmax, choice.reduce);
  else if (!split.empty())
    softmax = exchange(loc, ExchangeKind::Reduce, softmax, choice.reduce);
  if (isLeft(op.getResult()))
    return leaveStates(op, softmax);
  if (chunk)
    softmax = mergeChunks(op, softmax);
  if (append)
    softmax = attendNew(op, softmax);
  auto normalized = normalize(body, op, softmax, item);
  put(op.getResult(), {Slice}, normalized.getResult());
  if (Value lse = op.getLse())
    put(lse, {Slice}, normalized.getLse());
  for (auto &store : std::exchange(late, {}))
    store();
}

/// The new tokens merged into a softmax.
Value KernelWriter::attendNew(attn::AttentionOp op, Value softmax) {
  attn::KvAppendOp append = op.getAppend();
  auto newTokens = [&](Value value, Value scale) { // of several a request all rows
    return op.getQueries() ? memory(value, isFlat(value)) : rowOfCache(append, value, scale);
  };
  Value q = get(op.getQ(), {Slice});
  Value k = newTokens(append.getK(), append.getKScale()), v = newTokens(append.getV(), append.getVScale());
  auto merged =
      AttendNewOp::create(body, op.getLoc(), softmax.getType(), softmax, q, k, v, memory(append.getSlot()),
                          request, op.getScaleAttr(), op.getSoftcapAttr());
  writeBias(op, merged.getBias());
  return merged;
}

/// What `op` gives, of a whole softmax of one or more KV heads.
NormalizeOp KernelWriter::normalize(OpBuilder &builder, attn::AttentionOp op, Value softmax, Value ofItem) {
  ArrayRef<int64_t> shape = cast<TileType>(softmax.getType()).getShape();
  return NormalizeOp::create(builder, op.getLoc(),
                             tile({shape[0] * (shape[1] - 2)}, elementOf(op.getResult())),
                             tile({shape[0]}, Float32Type::get(context)), softmax,
                             op.getSinks() ? memory(op.getSinks()) : Value(), ofItem);
}

//===-- Softmaxes that their reader merges ----------------------------------------===//

bool KernelWriter::isLeft(Value value) const { return leavesStates(plan, value.getDefiningOp()); }

/// Where an attention's chunks leave their softmaxes: [KV heads, chunks and the new tokens, heads, dim + 2].
Value KernelWriter::statesOf(attn::AttentionOp op) {
  constexpr unsigned kStates = 2; // beside a value that is flat or not
  Value &argument = function.arguments[{op.getResult(), kStates}];
  if (argument)
    return argument;
  attn::KvCacheType cache = op.getCache().getType();
  int64_t states = chunksOf(plan.kernels[planOf(plan, op).kernel]) + (op.getAppend() ? 1 : 0);
  Builder b(context);
  auto type = MemRefType::get({cache.getHeads(), states, op.getGroup(), cache.getVDim() + 2}, b.getF32Type());
  int64_t at = map.finishOf(op.getResult()).partials;
  return argument = addArgument(
             type,
             {b.getNamedAttr(kWorkspaceAttr, b.getI64IntegerAttr(at)),
              b.getNamedAttr(kNameAttr, b.getStringAttr(attn::getValueName(op.getResult()) + ".softmax"))});
}

/// The chunk's softmax, for whoever reads the result; the first of a head's chunks leaves that of the new
/// token, too, and does what follows.
void KernelWriter::leaveStates(attn::AttentionOp op, Value softmax) {
  Location loc = op.getLoc();
  Value states = statesOf(op);
  LeaveOp::create(body, loc, softmax, states, item, chunk);
  auto first = FirstOp::create(body, loc, std::exchange(chunk, {})); // from here on items are heads
  body.setInsertionPointToEnd(&first.getBody().emplaceBlock());
  body.setInsertionPoint(YieldOp::create(body, loc));
  for (auto &store : std::exchange(late, {}))
    store();
  if (!op.getAppend())
    return;
  auto type = cast<TileType>(softmax.getType());
  SmallVector<StateAttr> split;
  llvm::copy_if(type.getStates(), std::back_inserter(split), [](StateAttr s) { return !s.isPartial(); });
  Value none = EmptyStateOp::create(body, loc, tile(type.getShape(), type.getElementType(), split), softmax);
  LeaveOp::create(body, loc, attendNew(op, none), states, item, Value());
}

/// An attention's whole result, of what its chunks have left.
Value KernelWriter::readStates(attn::AttentionOp op) {
  Value states = statesOf(op);
  ArrayRef<int64_t> dims = cast<MemRefType>(states.getType()).getShape();
  TileType type = tile({dims[0] * dims[2], dims[3]}, Float32Type::get(context));
  Value softmax = MergeStatesOp::create(prologue, op.getLoc(), type, states, bool(op.getAppend()));
  NormalizeOp normalized = normalize(prologue, op, softmax, Value());
  auto readsEarlier = [&](Operation *user) {
    return !isa<attn::ReturnOp>(user) && planOf(plan, user).kernel < int64_t(index);
  };
  // The first kernel that reads it stores what is returned.
  if (llvm::none_of(op.getResult().getUsers(), readsEarlier))
    for (auto [result, made] : {std::pair<Value, Value>{op.getResult(), normalized.getResult()},
                                {op.getLse(), normalized.getLse()}})
      if (result && llvm::any_of(result.getUsers(), llvm::IsaPred<attn::ReturnOp>))
        WriteOp::create(prologue, op.getLoc(), made, memory(result, /*flat=*/true), Value());
  return normalized.getResult();
}
