//===- Fusion.cpp - Which operations share a kernel -------------------------===//
#include "compiler/plan/Fusion.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

static int64_t tokensOf(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(0); }

int64_t cfc::widthOf(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(1); }

std::pair<Value, Value> cfc::appendedOf(AttentionOp op) {
  if (KvAppendOp append = op.getAppend())
    return {append.getK(), append.getV()};
  return {};
}

static std::string named(Value value) {
  std::string name = getValueName(value);
  return name.empty() ? "an operand" : "%" + name;
}

SmallVector<Value> cfc::activationsOf(Operation *op) {
  if (auto rms = dyn_cast<RmsNormOp>(op))
    return {rms.getX()};
  if (auto norm = dyn_cast<LayerNormOp>(op))
    return {norm.getX()};
  if (auto linear = dyn_cast<LinearOp>(op))
    return {linear.getX()};
  if (auto rope = dyn_cast<RopeOp>(op))
    return SmallVector<Value>(rope.getValues());
  if (auto append = dyn_cast<KvAppendOp>(op))
    return {append.getK(), append.getV()};
  if (auto add = dyn_cast<AddOp>(op))
    return {add.getLhs(), add.getRhs()};
  SmallVector<Value> values;
  if (auto attention = dyn_cast<AttentionOp>(op)) {
    values.push_back(attention.getQ());
    // Of several query tokens a request it takes K and V of all from memory.
    if (auto [k, v] = appendedOf(attention); k && !attention.getQueries())
      values.append({k, v});
  }
  return values;
}

/// KV heads of a cache operation, 0 for others.
static int64_t cacheHeads(Operation *op) {
  if (auto append = dyn_cast<KvAppendOp>(op))
    return append.getCache().getType().getHeads();
  if (auto attention = dyn_cast<AttentionOp>(op))
    return attention.getCache().getType().getHeads();
  return 0;
}

int64_t cfc::segmentGroups(AttentionOp attention) {
  constexpr int64_t kLeast = 16, kUnits = 64; // more cost whole heads too much (measured)
  // Two sets of warps on each of as many SMs; larger states leave no room for two, and take longer to merge.
  constexpr int64_t kOfOne = 128, kSmallState = 8 * 128;
  auto graph = attention->getParentOfType<GraphOp>();
  auto most = graph ? graph->getAttrOfType<IntegerAttr>(kMostRequestsAttr) : IntegerAttr();
  int64_t rows = attention.getQ().getType().getDimSize(0);
  int64_t requests = std::max(rows, most ? most.getInt() : 1);
  int64_t heads = attention.getCache().getType().getHeads() * requests;
  int64_t elements = attention.getGroup() * attention.getCache().getType().getVDim();
  if (heads == 1 && elements <= kSmallState)
    return kOfOne;
  return std::max(kLeast, kUnits / static_cast<int64_t>(llvm::bit_ceil(uint64_t(heads))));
}

bool cfc::readersCanMerge(AttentionOp attention) {
  auto readers = attention.getResult().getUsers();
  auto isReturned = [](Value value) {
    return !value || llvm::all_of(value.getUsers(), llvm::IsaPred<ReturnOp>);
  };
  return attention.getQ().getType().getDimSize(0) == 1 && isReturned(attention.getLse()) &&
         llvm::any_of(readers, llvm::IsaPred<LinearOp>) &&
         llvm::all_of(readers, llvm::IsaPred<LinearOp, ReturnOp>);
}

int64_t KernelShape::getSegmentGroups() const {
  for (Operation *op : ops)
    if (auto attention = dyn_cast<AttentionOp>(op))
      return segmentGroups(attention);
  return 1;
}

//===-- Slots -------------------------------------------------------------===//

/// KV heads of the attention whose result `value` is made of by operations on elements, 0 if there is none.
static int64_t headsOf(Value value, llvm::DenseMap<Value, int64_t> &known) {
  if (auto it = known.find(value); it != known.end())
    return it->second;
  int64_t heads = 0;
  Operation *op = value.getDefiningOp();
  if (auto attention = dyn_cast_or_null<AttentionOp>(op)) {
    heads = attention.getCache().getType().getHeads();
  } else if (auto rope = dyn_cast_or_null<RopeOp>(op)) {
    heads = headsOf(rope.getValues()[cast<OpResult>(value).getResultNumber()], known);
  } else if (auto add = dyn_cast_or_null<AddOp>(op)) {
    int64_t lhs = headsOf(add.getLhs(), known), rhs = headsOf(add.getRhs(), known);
    heads = lhs && rhs && lhs != rhs ? 0 : std::max(lhs, rhs);
  }
  return known[value] = heads;
}

int64_t cfc::slotsOf(LinearOp op) {
  llvm::DenseMap<Value, int64_t> known;
  int64_t heads = headsOf(op.getX(), known);
  return heads ? heads : 16;
}

int64_t cfc::finishPieces(int64_t rows, const KernelPlan &plan, Exchange finish) {
  // More pieces would leave less to do at the end, but each costs the stream a barrier and a release.
  constexpr int64_t kWarpRows = 16, kPieces = 2;
  bool even = rows % (plan.part * plan.warps * kWarpRows * kPieces) == 0;
  return even && finish == Exchange::Ordered ? kPieces : 1;
}

int64_t cfc::finishers(int64_t rows, int64_t items, const KernelPlan &plan, Exchange finish) {
  constexpr int64_t kFour = 4; // rows of a thread
  if (finish != Exchange::Waiting || rows % (plan.part * kFour))
    return 0;
  // Each reads 1 / n of the sums; more of them keep more SMs from the next kernel. Where that does not start
  // before all have ended, fewer are a little quicker (measured: 4 instead of 8, 0.1 us of 30.4).
  int64_t n = startsEarly(plan) ? 8 : 4;
  while (n > items || rows % (plan.part * kFour * n))
    n /= 2;
  return n;
}

bool cfc::isPackable(Value value) {
  if (!isa<BlockArgument>(value) || value.use_empty())
    return false;
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    auto linear = dyn_cast<LinearOp>(use.getOwner());
    if (!linear || !llvm::is_contained(linear.getWeights(), use.get()))
      return false;
    llvm::DenseMap<Value, int64_t> known;
    int64_t heads = headsOf(linear.getX(), known);
    return !heads || widthOf(linear.getX()) % (64 * heads) == 0;
  });
}

/// Elements of a head of an operation that works on heads one by one, 0 of others.
static int64_t headSizeOf(Operation *op) {
  if (auto rope = dyn_cast<RopeOp>(op))
    return rope.getHeadSize();
  auto norm = dyn_cast<RmsNormOp>(op);
  return norm && norm.isGrouped() ? norm.getWidth() : 0;
}

/// Whether an operation norms whole rows.
static bool takesRows(Operation *op) {
  return isa<LayerNormOp>(op) || (isa<RmsNormOp>(op) && !headSizeOf(op));
}

//===-- The shape of one kernel -------------------------------------------===//

std::optional<KernelShape> KernelShape::of(ArrayRef<Operation *> ops, std::string &why) {
  KernelShape shape;
  shape.ops.assign(ops.begin(), ops.end());
  shape.members.insert(ops.begin(), ops.end());
  if (!shape.findHeads(why) || !shape.findTokens(why))
    return std::nullopt;
  for (Operation *op : ops)
    if (!shape.findForms(op, why))
      return std::nullopt;
  shape.findWhole();
  shape.findFull();
  shape.findItems();
  shape.findStackable();
  return shape;
}

bool KernelShape::findHeads(std::string &why) {
  for (Operation *op : ops) {
    int64_t n = cacheHeads(op);
    if (n && heads && n != heads) {
      why =
          (opLabel(op) + " has " + Twine(n) + " KV heads; the kernel's items are " + Twine(heads) + " heads")
              .str();
      return false;
    }
    heads = n ? n : heads;
  }
  return true;
}

/// Of several tokens whole values are rows of many tokens, and slices columns of all: no kernel has both
/// heads and linears or norms.
bool KernelShape::findTokens(std::string &why) {
  Operation *whole = nullptr; // takes whole rows
  for (Operation *op : ops) {
    linears |= isa<LinearOp>(op);
    whole = isa<LinearOp>(op) || takesRows(op) ? op : whole;
    for (Value value : activationsOf(op)) {
      int64_t n = ::tokensOf(value);
      if (op != ops.front() && n != tokens) {
        why = (opLabel(op) + " has " + Twine(n) + " tokens; the kernel's operations have " + Twine(tokens))
                  .str();
        return false;
      }
      tokens = n;
    }
  }
  if (tokens == 1 || !heads || !whole)
    return true;
  why = opLabel(whole) + " of several tokens has a kernel apart from attention and appends";
  return false;
}

unsigned KernelShape::forms(Value value) const {
  if (auto it = masks.find(value); it != masks.end())
    return it->second;
  if (hasTokenItems())
    return Slice;
  bool sliceable = !heads || widthOf(value) % heads == 0;
  if (heads && tokens > 1) // rows of many tokens are nowhere whole beside heads
    return sliceable ? Slice : 0u;
  return Full | Finished | (sliceable ? Slice : 0u);
}

bool KernelShape::needsSlice(Operation *op, Value value, std::string &why) {
  if (forms(value) & Slice)
    return true;
  why = opLabel(op) + " needs " + named(value) + " by heads; the kernel makes it whole";
  return false;
}

bool KernelShape::linearForms(LinearOp op, std::string &why) {
  if (forms(op.getX()) & Full) {
    for (Value result : op.getResults()) {
      masks[result] = Slice;
      if (!heads || widthOf(result) % heads == 0)
        continue;
      why = (named(result) + " has " + Twine(widthOf(result)) + " columns; the " + Twine(heads) +
             " heads that are the kernel's items do not divide them")
                .str();
      return false;
    }
    return true;
  }
  // Each item's slice must be one slot of the sum.
  if (!(forms(op.getX()) & Slice) || slotsOf(op) != heads || widthOf(op.getX()) % (16 * heads)) {
    why = opLabel(op) + " needs " + named(op.getX()) + " whole in every CTA; the kernel makes it in slices";
    return false;
  }
  finishing.insert(op);
  for (Value result : op.getResults()) {
    masks[result] = Finished;
    origins[result] = result;
  }
  return true;
}

bool KernelShape::addForms(AddOp op, std::string &why) {
  unsigned mask = forms(op.getLhs()) & forms(op.getRhs());
  Value lhs = origin(op.getLhs()), rhs = origin(op.getRhs());
  if (lhs && rhs && lhs != rhs)
    mask &= ~Finished;
  if (!mask) {
    why = opLabel(op) + " adds " + named(op.getLhs()) + " and " + named(op.getRhs()) +
          "; the kernel makes them in different forms";
    return false;
  }
  masks[op.getResult()] = mask;
  if (Value from = lhs ? lhs : rhs; from && (mask & Finished))
    origins[op.getResult()] = from;
  return true;
}

bool KernelShape::findForms(Operation *op, std::string &why) {
  if (auto linear = dyn_cast<LinearOp>(op))
    return linearForms(linear, why);
  if (auto add = dyn_cast<AddOp>(op))
    return addForms(add, why);
  if (takesRows(op)) {
    Value x = op->getOperand(0), result = op->getResult(0);
    if (isOfTokens() && isa<LayerNormOp>(op)) {
      why = opLabel(op) + " of several tokens has a kernel apart from linears";
      return false;
    }
    masks[result] = hasTokenItems() ? Slice : Full;
    if (forms(x) & masks[result])
      return true;
    why = opLabel(op) + " needs " + named(x) + " whole in every CTA; the kernel makes it in slices";
    return false;
  }
  if (int64_t size = headSizeOf(op)) {
    for (auto [value, result] : llvm::zip(activationsOf(op), op->getResults())) {
      bool wholeHeads = !heads || (widthOf(value) / heads) % size == 0;
      masks[result] = forms(value) & ((tokens > 1 ? 0u : Full) | (wholeHeads ? Slice : 0u));
      if (masks[result])
        continue;
      why = opLabel(op) + " needs whole heads of " + named(value) +
            " in a CTA; the kernel does not make them so";
      return false;
    }
    return true;
  }
  for (Value value : activationsOf(op))
    if (!needsSlice(op, value, why))
      return false;
  auto attention = dyn_cast<AttentionOp>(op);
  if (!attention)
    return true;
  auto [k, v] = appendedOf(attention);
  for (Value value : {k, v})
    if (value && attention.getQueries() && makes(value)) {
      why = opLabel(op) + " needs " + named(value) +
            " of every query token of a request; the kernel that makes them comes before";
      return false;
    }
  for (Value result : op->getResults())
    masks[result] = Slice;
  return true;
}

/// An operation on elements needs one state of all its operands; others need whole heads.
void KernelShape::findWhole() {
  auto mark = [&](ValueRange values) {
    bool changed = false;
    for (Value value : values)
      if ((forms(value) & Slice) && makes(value))
        changed |= whole.insert(value).second;
    return changed;
  };
  auto isMarked = [&](Value value) { return isWhole(value); };
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation *op : llvm::reverse(ops)) {
      SmallVector<Value> all = activationsOf(op);
      llvm::append_range(all, op->getResults());
      if (headSizeOf(op) || isa<KvAppendOp, AttentionOp>(op))
        llvm::erase_if(all, [](Value v) { return isa<KvCacheType>(v.getType()); });
      else if (auto linear = dyn_cast<LinearOp>(op)) {
        if (!finishes(linear))
          all.erase(all.begin());
        if (!finishes(linear) && llvm::none_of(all, isMarked))
          continue;
      } else if (!isa<AddOp>(op) || llvm::none_of(all, isMarked)) {
        continue;
      }
      changed |= mark(all);
    }
  }
}

void KernelShape::findFull() {
  for (Operation *op : llvm::reverse(ops)) {
    auto linear = dyn_cast<LinearOp>(op);
    bool takesFull = takesRows(op) || (linear && !finishes(linear)) ||
                     llvm::any_of(op->getResults(), [&](Value v) { return needsFull.contains(v); });
    if (!takesFull)
      continue;
    for (Value value : activationsOf(op))
      needsFull.insert(value);
  }
}

Form KernelShape::storedForm(Value value) const {
  unsigned mask = forms(value);
  if ((mask & Full) && (needsFull.contains(value) || !(mask & Slice)))
    return Full;
  return (mask & Slice) ? Slice : Finished;
}

bool KernelShape::isStored(Value value) const {
  for (Operation *user : value.getUsers()) {
    if (isa<ReturnOp>(user) || !contains(user))
      return true;
    // The attention that follows an append in another kernel reads the appended rows from memory.
    if (auto append = dyn_cast<KvAppendOp>(user))
      for (Operation *reader : append.getResult().getUsers())
        if (!contains(reader))
          return true;
  }
  return false;
}

bool KernelShape::takesChunks() const {
  auto isSplit = [&](Value value) {
    return isa<RankedTensorType>(value.getType()) && isStored(value) && storedForm(value) == Slice &&
           !isWhole(value);
  };
  auto fits = [&](Operation *op) { return !isa<LinearOp>(op) && llvm::none_of(op->getResults(), isSplit); };
  return llvm::count_if(ops, llvm::IsaPred<AttentionOp>) == 1 && llvm::all_of(ops, fits);
}

void KernelShape::findItems() {
  items = heads > 0 || hasTokenItems();
  auto use = [&](Value value) {
    items = true;
    widest = std::max(widest, widthOf(value));
  };
  for (Operation *op : ops) {
    if (int64_t size = headSizeOf(op))
      granule = std::lcm(granule, size);
    for (Value result : op->getResults())
      if (isa<LinearOp>(op) || (masks.contains(result) && isStored(result) && storedForm(result) == Slice))
        use(result);
  }
}

//===-- Fusion --------------------------------------------------------------===//

SmallVector<Operation *> cfc::kernelOps(GraphOp graph) {
  llvm::DenseSet<Operation *> live;
  SmallVector<Operation *> ops;
  for (Operation &op : llvm::reverse(graph.getBody().front())) {
    bool used = llvm::any_of(op.getUsers(), [&](Operation *user) { return live.contains(user); });
    if (!used && !isa<ReturnOp, KvAppendOp>(op))
      continue;
    live.insert(&op);
    if (!isa<ReturnOp, RopeTableOp>(op))
      ops.push_back(&op);
  }
  std::reverse(ops.begin(), ops.end());
  return ops;
}

int64_t Fusion::numKernels() const {
  return kernelOf.empty() ? 0 : *std::max_element(kernelOf.begin(), kernelOf.end()) + 1;
}

namespace {
/// Kernels that grow while operations are dealt to them in graph order.
struct Dealer {
  std::vector<SmallVector<Operation *>> kernels;
  llvm::DenseMap<Operation *, int64_t> kernelOf;

  /// The first kernel that may hold `op`: the last of those that make its operands.
  int64_t earliest(Operation *op) const {
    int64_t first = 0;
    for (Value value : op->getOperands())
      if (Operation *maker = value.getDefiningOp())
        if (auto it = kernelOf.find(maker); it != kernelOf.end())
          first = std::max(first, it->second);
    return first;
  }
  bool fits(int64_t kernel, Operation *op, std::string &why) const {
    SmallVector<Operation *> ops;
    if (kernel < (int64_t)kernels.size())
      ops = kernels[kernel];
    ops.push_back(op);
    return KernelShape::of(ops, why).has_value();
  }
  void put(int64_t kernel, Operation *op) {
    if (kernel >= (int64_t)kernels.size())
      kernels.resize(kernel + 1);
    kernels[kernel].push_back(op);
    kernelOf[op] = kernel;
  }
};
} // namespace

FailureOr<Fusion> cfc::fuse(GraphOp graph, ArrayRef<size_t> cuts, ArrayRef<int64_t> pinned, int *exitCode,
                            const Plan *given) {
  auto isPinned = [&](size_t index) { return index < pinned.size() && pinned[index] >= 0; };
  // Where the plan pins an operation, or else the operation.
  auto whereOf = [&](Operation *op) {
    return given ? given->locate(given->places.find(opLabel(op), "kernel"), op->getLoc()) : op->getLoc();
  };
  auto fails = [&](int code) {
    if (exitCode)
      *exitCode = code;
  };
  fails(kExitBadInput); // of what is pinned
  Fusion fusion;
  Dealer dealer;
  int64_t floor = 0;
  for (auto [index, op] : llvm::enumerate(kernelOps(graph))) {
    int64_t first = std::max(floor, dealer.earliest(op)), kernel = first;
    std::string why;
    if (isPinned(index)) {
      kernel = pinned[index];
      if (kernel < first)
        return emitError(whereOf(op), "the plan puts ")
               << opLabel(op) << " into kernel " << kernel << "; its operands are made in kernel " << first;
      if (!dealer.fits(kernel, op, why))
        return emitError(whereOf(op), "the plan puts ")
               << opLabel(op) << " into kernel " << kernel << ", but " << why;
    } else {
      while (!dealer.fits(kernel, op, why)) {
        if (kernel >= (int64_t)dealer.kernels.size()) {
          fails(kExitCannotRun);
          return op->emitError("no kernel can hold ") << opLabel(op) << ": " << why;
        }
        ++kernel;
      }
    }
    dealer.put(kernel, op);
    fusion.kernelOf.push_back(kernel);
    if (llvm::is_contained(cuts, index))
      floor = dealer.kernels.size();
  }
  for (auto [kernel, ops] : llvm::enumerate(dealer.kernels)) {
    if (!ops.empty())
      continue;
    Location where = graph.getLoc(); // of the first operation behind the gap
    for (auto [index, op] : llvm::enumerate(kernelOps(graph)))
      if (isPinned(index) && pinned[index] > static_cast<int64_t>(kernel)) {
        where = given ? whereOf(op) : where;
        break;
      }
    return emitError(where, "the plan has no operation in kernel ")
           << kernel << "; kernels are numbered from 0 without gaps";
  }
  return fusion;
}

FailureOr<std::vector<KernelShape>> cfc::shapeKernels(GraphOp graph, const Fusion &fusion) {
  std::vector<SmallVector<Operation *>> kernels(fusion.numKernels());
  for (auto [op, kernel] : llvm::zip_equal(kernelOps(graph), fusion.kernelOf))
    kernels[kernel].push_back(op);
  std::vector<KernelShape> shapes;
  for (ArrayRef<Operation *> ops : kernels) {
    std::string why;
    std::optional<KernelShape> shape = KernelShape::of(ops, why);
    if (!shape)
      return graph.emitError(why);
    shapes.push_back(std::move(*shape));
  }
  return shapes;
}

//===-- Limits ----------------------------------------------------------------===//

static LogicalResult checkAttention(AttentionOp op) {
  constexpr int64_t kMostDim = 256, kMostHeads = 128;
  KvCacheType cache = op.getCache().getType();
  for (int64_t dim : {cache.getDim(), cache.getVDim()})
    if (dim % 8 || dim > kMostDim)
      return op.emitError("has heads of ")
             << dim << " elements; multiples of 8 up to " << kMostDim << " are possible";
  if (int64_t requests = op.getLen().getType().getCount(); requests > kMostTokens)
    return op.emitOpError("serves ") << requests << " requests; 1 to " << kMostTokens << " are possible";
  if (op.getGroup() > kMostHeads)
    return op.emitError("has ") << op.getGroup() << " query heads for each KV head; up to " << kMostHeads
                                << " are possible";
  return success();
}

/// Forms of a cache that no kernel reads or writes.
static LogicalResult checkCache(Operation *op, KvCacheType cache) {
  if (cache.getPage() > kMostPage)
    return op->emitError("has a cache with pages of ")
           << cache.getPage() << " tokens; up to " << kMostPage << " are possible";
  return success();
}

LogicalResult cfc::checkLimits(GraphOp graph) {
  for (Operation *op : kernelOps(graph)) {
    for (Value value : activationsOf(op))
      if (int64_t tokens = ::tokensOf(value); tokens < 1 || tokens > kMostTokens)
        return op->emitError("works on ") << tokens << " tokens; 1 to 64 are possible";
    if (auto append = dyn_cast<KvAppendOp>(op); append && failed(checkCache(op, append.getCache().getType())))
      return failure();
    if (auto attention = dyn_cast<AttentionOp>(op);
        attention &&
        (failed(checkCache(op, attention.getCache().getType())) || failed(checkAttention(attention))))
      return failure();
    if (auto linear = dyn_cast<LinearOp>(op); linear && widthOf(linear.getX()) % 8)
      return op->emitError("has weights of ")
             << widthOf(linear.getX()) << " columns; multiples of 8 (rows of 16 bytes) are possible";
  }
  return success();
}
