//===- AttnKernelWriter.cpp - Structure and values of one kernel ------------===//
//
// A kernel has up to three places: the prologue (full values), the body of its
// items (slices) and the regions of its finishes. Operations are written in
// graph order; what only reads memory or adds and rotates such values is
// written where a form of it is first wanted.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/AttnKernelWriter.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

static constexpr StringLiteral kPart = "part";

KernelWriter::KernelWriter(attn::GraphOp graph, size_t index, const KernelShape &shape, const Plan &plan,
                           const MemoryMap &memory, WrittenFunction &function)
    : context(graph.getContext()), graph(graph), index(index), shape(shape), plan(plan),
      kernelPlan(plan.kernels[index]), map(memory), function(function),
      axis(chunksOf(kernelPlan) > 1 ? "chunk"
           : shape.getHeads()       ? "head"
           : shape.hasTokenItems()  ? "token"
                                    : "rows"),
      prologue(context), body(context) {}

void KernelWriter::write(OpBuilder &builder) {
  if (function.func)
    join();
  else
    open(builder);
  // Where all tokens' rows do not fit, groups of them go one after another.
  for (int64_t group = 0, n = shape.isOfTokens() ? tokenGroupsOf(kernelPlan) : 1; group < n; ++group)
    writeGroup(group);
  close();
}

void KernelWriter::writeGroup(int64_t group) {
  if (shape.isOfTokens()) {
    int64_t each = groupTokens(shape, kernelPlan);
    firstToken = group * each;
    tokens = std::min(each, shape.getTokens() - firstToken);
  }
  if (group) {
    values.clear(), scales.clear(), casts.clear(), quantized.clear();
    prologue.setInsertionPoint(function.func.getBody().front().getTerminator());
  }
  if (shape.hasItems())
    addLoop();
  // What attention needs of other kernels is read in a row: that waits for memory once.
  for (Operation *op : shape.getOps())
    if (isa<attn::AttentionOp, attn::KvAppendOp>(op))
      for (Value value : activationsOf(op))
        readAhead(value);
  for (Operation *op : shape.getOps())
    writeOp(op);
  function.func.walk([](FirstOp first) {
    if (isa<YieldOp>(first.getBody().front().front()))
      first.erase(); // nothing is done once for a head
  });
}

//===-- Structure -------------------------------------------------------------===//

/// When kernel `index` lets the next launch start: as that one's `pdl` asks for. Behind the last comes the
/// first of the next layer, or what an engine launches: only kernels with `pdl` let that start early.
static int64_t letsNext(const Plan &plan, size_t index) {
  bool overlaps = plan.kernels[index].pdl > 0;
  ArrayRef<KernelPlan> behind = ArrayRef(plan.kernels).drop_front(index + 1);
  auto next = llvm::find_if(behind, [](const KernelPlan &k) { return k.joined != 1; });
  if (next == behind.end())
    return overlaps && plan.kernels.front().pdl != kStartsAtEnd ? kLetsAtOnce : kLetsAtEnd;
  switch (next->pdl) {
  case kStartsEarly:
    return kLetsAtOnce;
  case kStartsWithCache:
    return kLetsAfterWait;
  case kStartsAtEnd:
    return kLetsAtEnd;
  default: // it waits whatever this one does
    return overlaps;
  }
}

/// The function, empty.
void KernelWriter::open(OpBuilder &builder) {
  Builder b(context);
  Location loc = graph.getLoc();
  NamedAttrList choices;
  auto choose = [&](StringRef key, int64_t value) { choices.append(key, b.getI64IntegerAttr(value)); };
  choose("ctas_per_sm", kernelPlan.ctasPerSm);
  choose("ring_stages", kernelPlan.ringStages);
  if (kernelPlan.inFlight > 0)
    choose("in_flight", kernelPlan.inFlight);
  if (kernelPlan.prefetch > 0)
    choose("prefetch", kernelPlan.prefetch);
  if (kernelPlan.prefetchLater > 0)
    choose("prefetch_later", kernelPlan.prefetchLater);
  if (kernelPlan.held > 0)
    choose("held", kernelPlan.held);
  choose("tile_columns", kernelPlan.tileColumns);
  choose("pdl", std::max<int64_t>(0, kernelPlan.pdl));
  if (int64_t lets = letsNext(plan, index); lets != (kernelPlan.pdl > 0))
    choose("lets_next", lets);
  if (kernelPlan.clusters)
    choose("clusters", kernelPlan.clusters);
  std::string name = (graph.getSymName() + "_k" + Twine(index)).str();
  function.func =
      FuncOp::create(builder, loc, b.getStringAttr(name), TypeAttr::get(b.getFunctionType({}, {})),
                     ArrayAttr(), ArrayAttr(), b.getArrayAttr({}), choices.getDictionary(context));
  if (shape.hasItems())
    addAxis(axis, itemsOf(shape, kernelPlan), Level::Grid);
  addAxis(kPart, kernelPlan.part, Level::Cta);
  addAxis("warp", kernelPlan.warps, Level::Warp);
  prologue.setInsertionPointToEnd(&function.func.getBody().emplaceBlock());
  prologue.setInsertionPoint(ReturnOp::create(prologue, loc));
}

/// Behind a barrier of the grid at the end of the function.
void KernelWriter::join() {
  prologue.setInsertionPoint(function.func.getBody().front().getTerminator());
  GridSyncOp::create(prologue, graph.getLoc(), map.syncOf(index));
  if (!shape.hasItems())
    return;
  if (function.func.axis(axis))
    axis += std::to_string(index);
  addAxis(axis, itemsOf(shape, kernelPlan), Level::Grid);
}

void KernelWriter::addAxis(StringRef name, int64_t size, Level level) {
  SmallVector<Attribute> axes(function.func.getAxes().getValue());
  axes.push_back(AxisAttr::get(context, StringAttr::get(context, name), size, level));
  function.func.setAxesAttr(ArrayAttr::get(context, axes));
}

/// An empty loop over the items.
void KernelWriter::addLoop() {
  Location loc = graph.getLoc();
  auto items = ForItemsOp::create(prologue, loc, axis, sharesWork(kernelPlan) ? listWork() : Value());
  prologue.setInsertionPoint(items);
  Block *block = &items.getBody().emplaceBlock();
  item = block->addArgument(ItemType::get(context), loc);
  if (sharesWork(kernelPlan))
    chunk = block->addArgument(ItemType::get(context), loc);
  body.setInsertionPointToEnd(block);
  body.setInsertionPoint(YieldOp::create(body, loc));
  if (int64_t chunks = chunksOf(kernelPlan); chunks > 1) {
    chunk = InnerOp::create(body, loc, item.getType(), item, chunks);
    item = OuterOp::create(body, loc, item.getType(), item, chunks);
  }
  if (shape.getRequests() > 1)
    request = OuterOp::create(body, loc, item.getType(), item, shape.getHeads());
}

/// How the heads of the kernel's attention are shared out.
Value KernelWriter::listWork() {
  for (Operation *op : shape.getOps())
    if (auto attention = dyn_cast<attn::AttentionOp>(op)) {
      attn::KvAppendOp append = attention.getAppend();
      Value queries = memoryOrNull(attention.getQueries());
      return WorkListOp::create(prologue, op->getLoc(), WorkType::get(context), memory(attention.getCache()),
                                memory(attention.getLen()), append ? memory(append.getSlot()) : Value(),
                                queries, queries ? shape.getTokens() : 0, boundOf(attention),
                                bool(attention.getMask()), attention.getWindow().value_or(0),
                                segmentGroups(attention));
    }
  llvm_unreachable("only kernels of an attention share out heads");
}

/// The arguments are known now.
void KernelWriter::close() {
  Builder b(context);
  SmallVector<Type> types(function.func.getBody().front().getArgumentTypes());
  function.func.setFunctionTypeAttr(TypeAttr::get(b.getFunctionType(types, {})));
  function.func.setArgAttrsAttr(b.getArrayAttr(function.argAttrs));
}

OpBuilder &KernelWriter::builderOf(const Want &want) {
  if (want.form == Full)
    return prologue;
  if (want.form == Slice)
    return body;
  return finishes.find(want.origin.getAsOpaquePointer())->second;
}

//===-- Types -----------------------------------------------------------------===//

StateAttr KernelWriter::state(StringRef over, StateKind kind) {
  return StateAttr::get(context, StringAttr::get(context, over), kind, kind == StateKind::Split ? 0 : -1);
}

TileType KernelWriter::tile(ArrayRef<int64_t> dims, Type element, ArrayRef<StateAttr> states) {
  return TileType::get(context, dims, element, states);
}

int64_t KernelWriter::slice(int64_t width) const { return sliceOf(shape, kernelPlan, width); }

TileType KernelWriter::tileOf(Value value, const Want &want, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  int64_t width = type.getDimSize(type.getRank() - 1);
  bool split = want.form == Finished || (want.form == Slice && !want.whole && kernelPlan.part > 1);
  SmallVector<StateAttr, 1> states;
  if (split)
    states.push_back(state(kPart, StateKind::Split));
  if (shape.isOfTokens() && type.getRank() == 2) {
    int64_t rows = tokens;
    if (want.form == Slice)
      return tile({slice(width), tokens}, element, states);
    if (kernelPlan.part > 1 && want.spread != Spread::Whole)
      states.push_back(StateAttr::get(context, StringAttr::get(context, kPart), StateKind::Split,
                                      want.spread == Spread::Columns));
    // As many rows for each CTA: those behind the last token are 0.
    if (want.spread == Spread::Rows)
      rows = llvm::alignTo(rows, kernelPlan.part);
    return tile({rows, width}, element, states);
  }
  return tile({want.form == Slice ? slice(width) : width}, element, states);
}

//===-- Memory ----------------------------------------------------------------===//

Value KernelWriter::addArgument(Type type, SmallVector<NamedAttribute> attrs) {
  function.argAttrs.push_back(DictionaryAttr::get(context, attrs));
  return function.func.getBody().front().addArgument(type, graph.getLoc());
}

/// Type of a value in memory. `flat`: an activation, whose one row is a vector; `requests`: of a cache.
static Type memoryType(Value value, bool flat, int64_t requests) {
  Type type = value.getType();
  MLIRContext *context = type.getContext();
  if (auto cache = dyn_cast<attn::KvCacheType>(type))
    return CacheType::get(context, cache.getHeads(), cache.getDim(), cache.getVDim(), requests,
                          cache.getPage(), cache.getElementType());
  if (auto lengths = dyn_cast<attn::LengthsType>(type))
    return MemRefType::get({lengths.getCount()}, IntegerType::get(context, 32));
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> dims(tensor.getShape());
  if (flat)
    dims = {tensor.getNumElements()};
  return MemRefType::get(dims, tensor.getElementType());
}

Value KernelWriter::memory(Value value, bool flat) {
  if (auto append = value.getDefiningOp<attn::KvAppendOp>())
    return memory(append.getCache());
  Value &argument = function.arguments[{value, flat}];
  if (argument)
    return argument;
  Builder b(context);
  SmallVector<NamedAttribute> attrs;
  std::string name = attn::getValueName(value);
  if (const TensorInfo *tensor = map.tensorOf(value)) {
    name = tensor->name;
    attrs.push_back(b.getNamedAttr(kEntryAttr, b.getI32IntegerAttr(tensor->entry)));
    if (shape.makes(value) || isLeft(value))
      attrs.push_back(b.getNamedAttr(kOutputAttr, b.getUnitAttr()));
  } else {
    attrs.push_back(b.getNamedAttr(kWorkspaceAttr, b.getI64IntegerAttr(map.offsetOf(value))));
  }
  if (!name.empty())
    attrs.push_back(b.getNamedAttr(kNameAttr, b.getStringAttr(name)));
  if (kernelPlan.weights == Layout::Packed && isPackable(value))
    attrs.push_back(b.getNamedAttr(kLayoutAttr, b.getStringAttr("packed")));
  const TensorInfo *cache = map.tensorOf(value);
  return argument = addArgument(memoryType(value, flat, cache ? cache->requests : 0), attrs);
}

/// Whether memory of a value is a vector to the kernel: of an activation, unless its tokens are multiplied
/// together.
bool KernelWriter::isFlat(Value value) const {
  return cast<RankedTensorType>(value.getType()).getRank() > 1 && !shape.isOfTokens();
}

SmallVector<Value> KernelWriter::memories(ValueRange values, bool flat) {
  return llvm::map_to_vector(values, [&](Value value) { return memory(value, flat); });
}

/// Writes a result to where its readers expect it.
void KernelWriter::store(Value value) {
  Form form = shape.storedForm(value);
  Want want{form, form != Slice || shape.isWhole(value), form == Finished ? shape.origin(value) : Value()};
  if (form == Full && shape.isOfTokens())
    want.spread = spreadOfStores();
  Value made = get(value, want);
  auto write =
      WriteOp::create(builderOf(want), value.getLoc(), made, memory(value, isFlat(value)), itemOf(want));
  write.setFrom(firstToken);
  write.setRows(shape.isOfTokens() && form == Full);
  write.setColumns(shape.isOfTokens() && form == Slice);
}

//===-- Values ----------------------------------------------------------------===//

void KernelWriter::put(Value value, const Want &want, Value made) {
  values[{value.getAsOpaquePointer(), want}] = made;
}

Value KernelWriter::get(Value value, const Want &want) {
  auto known = values.find({value.getAsOpaquePointer(), want});
  if (known != values.end())
    return known->second;
  Value made = shape.makes(value) ? compute(value, want) : read(value, want);
  put(value, want, made);
  return made;
}

Value KernelWriter::read(Value value, const Want &want) {
  if (isLeft(value))
    return readStates(value.getDefiningOp<attn::AttentionOp>());
  auto type = cast<RankedTensorType>(value.getType());
  auto read = ReadOp::create(builderOf(want), value.getLoc(), tileOf(value, want, type.getElementType()),
                             memory(value, isFlat(value)), itemOf(want));
  bool ofTokens = shape.isOfTokens() && type.getRank() > 1;
  read.setFrom(ofTokens ? firstToken : 0);
  read.setRows(ofTokens && want.form == Full);
  read.setColumns(ofTokens && want.form == Slice);
  return read;
}

/// Reads the slices that are in memory of which `value` is made by operations on elements.
void KernelWriter::readAhead(Value value) {
  Operation *op = value.getDefiningOp();
  if (!shape.makes(value))
    get(value, {Slice});
  else if (auto rope = dyn_cast<attn::RopeOp>(op))
    readAhead(rope.getValues()[cast<OpResult>(value).getResultNumber()]);
  else if (auto norm = dyn_cast<attn::RmsNormOp>(op); norm && norm.isGrouped())
    readAhead(norm.getX());
  else if (isa<attn::AddOp>(op))
    for (Value operand : op->getOperands())
      readAhead(operand);
}

/// Operations on elements have the form of their operands.
Value KernelWriter::compute(Value value, const Want &want) {
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  TileType type = tileOf(value, want, element);
  Operation *op = value.getDefiningOp();
  if (auto norm = dyn_cast<attn::RmsNormOp>(op); norm && !norm.isGrouped())
    return normTokens(norm, want);
  if (auto norm = dyn_cast<attn::RmsNormOp>(op))
    return RmsNormOp::create(builderOf(want), op->getLoc(), type, get(norm.getX(), want),
                             memory(norm.getGain()), /*scale=*/Value(), norm.getEps(), norm.getOffsetAttr(),
                             norm.getWidth());
  if (auto rope = dyn_cast<attn::RopeOp>(op)) {
    Value x = get(rope.getValues()[cast<OpResult>(value).getResultNumber()], want);
    RopeStyle style =
        rope.getStyle() == attn::RopeStyle::HalfSplit ? RopeStyle::HalfSplit : RopeStyle::Interleaved;
    Value ofItem = shape.getTokens() > 1 && !shape.isOfTokens() ? item : Value();
    return RopeOp::create(builderOf(want), op->getLoc(), type, x, memory(rope.getTable()),
                          memory(rope.getPos()), ofItem, style, firstToken, rope.getHeadDim().value_or(0));
  }
  auto add = cast<attn::AddOp>(op);
  Value lhs = get(add.getLhs(), want), rhs = get(add.getRhs(), want);
  return ElementwiseOp::create(builderOf(want), op->getLoc(), type, ElementwiseKind::Add, lhs, rhs,
                               add.getScaleAttr());
}

Value KernelWriter::castTo(OpBuilder &b, Value value, Type element) {
  auto type = cast<TileType>(value.getType());
  if (type.getElementType() == element)
    return value;
  Value &made = casts[{value, element}];
  if (!made)
    made = CastOp::create(b, value.getLoc(), tile(type.getShape(), element, type.getStates()), value);
  return made;
}
