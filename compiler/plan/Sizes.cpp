//===- Sizes.cpp - A kernel's operations in numbers -------------------------===//
#include "compiler/plan/Sizes.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

static int64_t elementBytes(Value value) {
  return getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth() / 8;
}

//===-- What the graph says -------------------------------------------------===//

static OpSizes sizesOfLinear(const KernelShape &shape, LinearOp op) {
  OpSizes sizes;
  sizes.kind = OpSizes::Linear;
  sizes.columns = widthOf(op.getX());
  for (Value result : op.getResults())
    sizes.widths.push_back(widthOf(result));
  sizes.slots = slotsOf(op);
  sizes.resultBytes = elementBytes(op.getResults()[0]);
  sizes.gathered = shape.isGathered(op);
  sizes.finishes = shape.finishes(op);
  Type first = getElementTypeOrSelf(op.getResultTypes()[0]);
  bool mixed =
      llvm::any_of(op.getResultTypes(), [&](Type type) { return getElementTypeOrSelf(type) != first; });
  sizes.needsF32 = sizes.finishes || mixed || !op.getBiases().empty();
  sizes.packable = llvm::all_of(op.getWeights(), isPackable);
  return sizes;
}

static bool isRowNorm(Operation *op) {
  auto rms = dyn_cast<RmsNormOp>(op);
  return isa<LayerNormOp>(op) || (rms && !rms.isGrouped());
}

static OpSizes sizesOf(const KernelShape &shape, Operation *op) {
  OpSizes sizes;
  if (auto linear = dyn_cast<LinearOp>(op)) {
    sizes = sizesOfLinear(shape, linear);
  } else if (auto attention = dyn_cast<AttentionOp>(op)) {
    sizes.kind = OpSizes::Attention;
    sizes.dim = attention.getCache().getType().getDim();
    sizes.vDim = attention.getCache().getType().getVDim();
    sizes.cacheBytes = attention.getCache().getType().getElementType().getIntOrFloatBitWidth() / 8;
    sizes.group = attention.getGroup();
    sizes.segmentGroups = cfc::segmentGroups(attention);
    sizes.mergedByReader = readersCanMerge(attention);
    // What a window leaves of a longer cache is all that there is to read.
    sizes.capacity = attention.getLen().getType().getCapacity();
    if (auto window = attention.getWindow())
      sizes.capacity = std::min<int64_t>(sizes.capacity, *window);
  } else if (isRowNorm(op)) {
    sizes.kind = OpSizes::Norm;
    sizes.columns = widthOf(op->getOperand(0));
  }
  sizes.op = op;
  for (Value value : op->getResults()) {
    OpSizes::Result &result = sizes.results.emplace_back();
    if (!isa<RankedTensorType>(value.getType()))
      continue;
    result.isTensor = true;
    result.width = widthOf(value);
    result.bytes = elementBytes(value);
    Form form = shape.storedForm(value);
    bool matters = sizes.kind == OpSizes::Linear || shape.isStored(value);
    result.checked = matters && form != Full && !shape.isWhole(value);
    result.finished = form == Finished;
  }
  return sizes;
}

KernelSizes::KernelSizes(const KernelShape &shape) : shape(&shape) {
  llvm::DenseSet<Value> full, factors;
  auto wantFull = [&](Value value) {
    if (full.insert(value).second)
      fullBytes += widthOf(value) * elementBytes(value);
  };
  for (Operation *op : shape.getOps()) {
    ops.push_back(sizesOf(shape, op));
    if (auto linear = dyn_cast<LinearOp>(op); linear && shape.isOfTokens())
      ops.back().takesTokens = factors.insert(linear.getX()).second;
    if (shape.isOfTokens())
      continue; // several tokens' rows count where they are multiplied
    if (isRowNorm(op)) {
      wantFull(op->getOperand(0));
      wantFull(op->getResult(0));
    }
    if (auto linear = dyn_cast<LinearOp>(op); linear && !shape.finishes(linear))
      wantFull(linear.getX());
  }
}

LinearSize KernelSizes::linear(const KernelPlan &plan, const OpSizes &op, Split split) const {
  LinearSize size;
  size.columns = op.finishes ? sliceOf(*shape, plan, op.columns) : op.columns;
  for (ArrayRef<int64_t> stacked : streams(plan, op, split))
    size.rows += llvm::sum_of(stacked);
  size.f32 = op.needsF32 || split == Split::Columns;
  size.payload = size.rows * (size.f32 ? 4 : op.resultBytes) * tokens(plan);
  return size;
}

//===-- What can be split ---------------------------------------------------===//

static std::string checkDivides(int64_t rows, int64_t part, Operation *op) {
  if (rows % part == 0)
    return "";
  return llvm::formatv("{0} splits {1} rows over part = {2}, which does not divide them", opLabel(op), rows,
                       part);
}

/// Bulk copies move 16 bytes at a time, async stores 4.
static std::string checkUnit(int64_t bytes, Operation *op, Exchange exchange) {
  int64_t unit = exchange == Exchange::Bulk ? 16 : exchange == Exchange::Async ? 4 : 1;
  if (bytes % unit == 0)
    return "";
  return llvm::formatv("{0} sends parts of {1} bytes by {2}; multiples of {3} are possible", opLabel(op),
                       bytes, stringify(exchange), unit);
}

/// The columns of a linear's weights, and with them its slots, are split over the cluster. `scatters`: each
/// CTA gets the sums of its rows.
static std::string checkColumns(int64_t part, const OpSizes &op, const LinearSize &size, const OpChoice &plan,
                                bool scatters) {
  int64_t blocks = llvm::divideCeil(size.columns, 16), slots = op.slots;
  if (!op.gathered && !scatters)
    return opLabel(op.op) + " cannot be split by columns: nothing in its kernel needs whole results";
  // With another number of slots a CTA's slots would be no subtree of the sum.
  bool aligned = part == 1 || (llvm::isPowerOf2_64(slots) && slots % part == 0);
  if (size.columns % 16 || blocks % slots || !aligned)
    return llvm::formatv("{0} splits {1} columns over part = {2}: its {3} slots must be a power of two, hold "
                         "as many blocks of 16 columns each, and part must divide {3}",
                         opLabel(op.op), size.columns, part, slots);
  if (scatters && plan.reduce == Exchange::Scatter)
    return opLabel(op.op) + " cannot reduce by scatter: each CTA wants its rows alone";
  if (std::string why = scatters ? checkDivides(size.rows, part, op.op) : ""; !why.empty())
    return why;
  if (plan.reduce == Exchange::Scatter)
    return checkDivides(size.payload / 4, part, op.op);
  return checkUnit(size.payload / (scatters ? part : 1), op.op, plan.reduce);
}

std::string KernelSizes::checkSplit(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const {
  int64_t part = kernel.part;
  if (int64_t n = part * chunksOf(kernel); op.kind == OpSizes::Attention && n > op.segmentGroups)
    return llvm::formatv(
        "{0} shares the {1} groups of a head's tokens among part = {2} times chunks = {3} CTAs",
        opLabel(op.op), op.segmentGroups, part, kernel.chunks);
  if (op.kind == OpSizes::Attention)
    return checkUnit(op.stateBytes() / (scattersHeads(op.group, kernel, plan) ? part : 1), op.op,
                     plan.reduce);
  if (op.kind == OpSizes::Linear && (op.gathered || plan.split == Split::Columns)) {
    LinearSize size = linear(kernel, op, plan.split);
    if (plan.split == Split::Columns) {
      if (scatters(op, plan.split)) // each weight's rows, where they are not stacked
        for (int64_t width : op.widths)
          if (std::string why = checkDivides(sliceOf(*shape, kernel, width), part, op.op); !why.empty())
            return why;
      return checkColumns(part, op, size, plan, scatters(op, plan.split));
    }
    std::string why = checkDivides(size.rows, part, op.op);
    return why.empty() ? checkUnit(size.payload / part, op.op, plan.gather) : why;
  }
  for (const OpSizes::Result &result : op.results) {
    if (!result.checked)
      continue;
    int64_t rows = result.finished ? result.width : sliceOf(*shape, kernel, result.width);
    if (std::string why = checkDivides(rows, part, op.op); !why.empty())
      return why;
  }
  return "";
}

//===-- Memory --------------------------------------------------------------===//

/// Bytes of an operation's ring tiles; 0 where it streams nothing.
int64_t KernelSizes::tileBytes(const KernelChoice &choice, const OpSizes &op, const OpChoice &plan) const {
  if (op.kind == OpSizes::Attention)
    return kSegmentTokens * llvm::alignTo(op.cacheBytes * std::max(op.dim, op.vDim), 128);
  if (op.kind != OpSizes::Linear)
    return 0;
  int64_t columns = op.finishes ? sliceOf(*shape, choice.kernel, op.columns) : op.columns;
  if (plan.split == Split::Columns)
    columns = llvm::divideCeil(columns, choice.kernel.part);
  return kSetRows * 2 * std::min<int64_t>(choice.kernel.tileColumns, llvm::alignTo(columns, 64));
}

int64_t KernelSizes::slotBytes(const KernelChoice &choice) const {
  int64_t bytes = 0;
  for (auto [op, plan] : llvm::zip_equal(ops, choice.ops))
    bytes = std::max(bytes, tileBytes(choice, op, plan));
  return llvm::alignTo(bytes, 1024);
}

int64_t KernelSizes::leastTileBytes(const KernelChoice &choice) const {
  int64_t bytes = INT64_MAX;
  for (auto [op, plan] : llvm::zip_equal(ops, choice.ops))
    if (int64_t n = tileBytes(choice, op, plan))
      bytes = std::min(bytes, n);
  return bytes;
}

SmallVector<KernelSizes::Stacked, 3> KernelSizes::streams(const KernelPlan &plan, const OpSizes &op,
                                                          Split split) const {
  SmallVector<Stacked, 3> all;
  if (takesPanels(*shape, plan))
    return {{plan.rowsPerItem}};
  bool stacked = isStacked(*shape, plan, cast<LinearOp>(op.op), split);
  for (int64_t width : op.widths) {
    if (all.empty() || !stacked)
      all.emplace_back();
    all.back().push_back(op.finishes ? width : sliceOf(*shape, plan, width));
  }
  return all;
}

static bool splitsRows(const KernelPlan &kernel, const OpChoice &plan) {
  return kernel.part > 1 && plan.split != Split::Columns;
}

/// The operation that streams first, or null.
static const OpSizes *firstStreamed(ArrayRef<OpSizes> ops) {
  const OpSizes *first = llvm::find_if(
      ops, [](const OpSizes &op) { return op.kind == OpSizes::Linear || op.kind == OpSizes::Attention; });
  return first == ops.end() ? nullptr : first;
}

int64_t KernelSizes::mostHeld(const KernelPlan &plan) const {
  const OpSizes *first = firstStreamed(ops);
  if (!startsEarly(plan) || !first || first->kind != OpSizes::Linear || first->finishes ||
      shape->isOfTokens())
    return 0;
  // Warps lie on four parts of an SM. ptxas gives a thread registers by eights; a tile, of whole boxes, has
  // those of its blocks once more when it is multiplied, and addresses and sums have the others.
  constexpr int64_t kRegistersPerPart = 65536 / 4, kMostRegisters = 255, kOthers = 40;
  int64_t warps = llvm::divideCeil(plan.warps + 1, 4) * plan.ctasPerSm;
  int64_t registers = std::min(kMostRegisters, kRegistersPerPart / (32 * warps) / 8 * 8);
  int64_t width = llvm::alignTo(std::min<int64_t>(plan.tileColumns, first->columns), 64);
  return std::max<int64_t>(0, (registers - kOthers) / (width / 4) - 1);
}

KernelSizes::FirstTiles KernelSizes::firstTiles(const KernelChoice &choice) const {
  const KernelPlan &plan = choice.kernel;
  const OpSizes *first = firstStreamed(ops);
  if (!first || first->kind != OpSizes::Linear)
    return {};
  const OpChoice &chosen = choice.ops[first - ops.begin()];
  int64_t rows = llvm::sum_of(streams(plan, *first, chosen.split).front()), columns = first->columns;
  int64_t &split = splitsRows(plan, chosen) ? rows : columns;
  split = llvm::divideCeil(split, plan.part);
  int64_t across = llvm::divideCeil(columns, plan.tileColumns);
  int64_t down = llvm::divideCeil(rows, kSetRows * setsOf(plan));
  return {down * across, across - 1};
}

int64_t KernelSizes::tilesToHold(const KernelChoice &choice) const {
  FirstTiles first = firstTiles(choice);
  int64_t behind = std::max<int64_t>(0, first.all - choice.kernel.ringStages / setsOf(choice.kernel));
  return std::min({behind, first.canBeHeld, mostHeld(choice.kernel)});
}

/// Rows of a box: as many, up to 64, as divide the rows of each weight and of each CTA; 0 where that is not
/// even 8 (compiler/lower/KernelLayout.h).
int64_t KernelSizes::boxRows(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan,
                             ArrayRef<int64_t> stacked) const {
  bool split = splitsRows(kernel, plan);
  int64_t rows = llvm::sum_of(stacked) / (split ? kernel.part : 1);
  bool packedRows = kernel.weights == Layout::Packed && !op.finishes;
  for (int64_t box : {64, 32, 16, 8}) {
    bool fits = (!split || rows % box == 0) && box < 2 * rows && (!packedRows || stacked.back() % box == 0);
    for (int64_t before : stacked.drop_back()) // the next weight's rows follow
      fits &= before % box == 0;
    if (fits)
      return box;
  }
  return 0;
}

/// A box of 64 columns, else one row of a tile.
int64_t KernelSizes::copyBytes(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan,
                               ArrayRef<int64_t> stacked) const {
  int64_t box = boxRows(kernel, op, plan, stacked);
  if (!box)
    return 2 * std::min(kernel.tileColumns, linear(kernel, op, plan.split).columns);
  bool split = splitsRows(kernel, plan);
  int64_t rows = llvm::sum_of(stacked) / (split ? kernel.part : 1);
  // The first weight's panels come whole (KernelLowering::leadingRows).
  bool leads = kernel.weights == Layout::Packed && !op.finishes && !split && stacked.front() % 64 == 0;
  int64_t lead = leads ? stacked.front() : 0;
  return rows * 128 / (lead / 64 + llvm::divideCeil(rows - lead, box));
}

/// Copies of packed weights lie in one block each (KernelLayout::placeRing says the same of a kernel).
bool KernelSizes::canStream(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const {
  if (op.kind != OpSizes::Linear || kernel.weights != Layout::Packed || !op.packable)
    return true;
  int64_t columns = linear(kernel, op, plan.split).columns, items = itemsOf(*shape, kernel);
  if (plan.split == Split::Columns)
    columns /= kernel.part;
  if (columns != op.columns && columns % 64)
    return false;
  size_t weight = 0;
  for (ArrayRef<int64_t> stacked : streams(kernel, op, plan.split)) {
    if (!boxRows(kernel, op, plan, stacked))
      return false;
    for (int64_t rows : stacked) // the last item's may lack some, but not of several weights
      if (op.widths[weight++] < items * rows && stacked.size() > 1)
        return false;
  }
  return true;
}

int64_t KernelSizes::exchangeBytes(const KernelPlan &kernel, int64_t payload, Exchange algorithm,
                                   bool reduces) const {
  int64_t bytes = payload + (algorithm == Exchange::Bulk ? payload / (reduces ? 1 : kernel.part) : 0);
  if (!reduces)
    return bytes;
  // What comes from all workers; by scatter only the part that this one merges.
  return bytes + (algorithm == Exchange::Scatter ? payload : kernel.part * payload);
}

double KernelSizes::tokenBytes(const KernelChoice &choice, const OpSizes &op, Split split) const {
  if (!op.takesTokens)
    return 0;
  double all = 2.0 * tokens(choice.kernel) * op.columns, part = choice.kernel.part;
  double mine = split == Split::Columns ? all / part : all;
  bool norms = llvm::any_of(ops, [](const OpSizes &other) { return other.kind == OpSizes::Norm; });
  return mine + (norms ? all / part : 0);
}

/// Of a linear of several tokens: their rows, 16 bytes longer, the product, what is reduced, and results.
int64_t KernelSizes::sharedOfTokens(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const {
  LinearSize size = linear(kernel, op, plan.split);
  bool columns = plan.split == Split::Columns;
  int64_t part = kernel.part, bytes = 0;
  if (op.takesTokens)
    bytes += tokens(kernel) * (2 * llvm::alignTo(op.columns, 8) / (columns ? part : 1) + 16);
  if (!columns)
    bytes +=
        size.payload / part + (op.gathered ? exchangeBytes(kernel, size.payload, plan.gather, false) : 0);
  else if (op.gathered)
    bytes += size.payload + exchangeBytes(kernel, size.payload, plan.reduce, true);
  else // received from all workers are the parts of one
    bytes += size.payload * (plan.reduce == Exchange::Bulk ? 3 : 2) + size.payload / part;
  int64_t results = size.rows * op.resultBytes * tokens(kernel);
  return bytes + (size.f32 ? (op.gathered ? results : results / part) : 0);
}

int64_t KernelSizes::sharedOf(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const {
  int64_t bytes = 0, part = kernel.part;
  if (shape->isOfTokens() && op.kind == OpSizes::Linear)
    return sharedOfTokens(kernel, op, plan);
  if (op.kind == OpSizes::Linear) {
    LinearSize size = linear(kernel, op, plan.split);
    bool columns = plan.split == Split::Columns;
    if (op.finishes) // an ordered sum goes from registers to the workspace
      return plan.finish == Exchange::Atomic ? size.payload * 5 / 2 / part : 0;
    bytes += columns ? size.payload : size.payload / part;
    if (op.gathered)
      bytes += exchangeBytes(kernel, size.payload, columns ? plan.reduce : plan.gather, columns);
    if (size.f32)
      bytes += size.payload;
  } else if (op.kind == OpSizes::Attention) {
    int64_t state = op.stateBytes(), ofPass = 4 * op.columnsIn(kernel).heads * (op.vDim + 2);
    int64_t levels = llvm::Log2_64(op.segmentGroups) + 1; // of merged groups
    bytes += ofPass * (setsOf(kernel) * 4 + levels) + (op.columnsIn(kernel).passes > 1 ? 1 : 2) * state;
    if (scattersHeads(op.group, kernel, plan)) // received are the parts of one
      bytes += state * (plan.reduce == Exchange::Bulk ? 2 : 1) + state / part;
    else if (part > 1)
      bytes += exchangeBytes(kernel, state, plan.reduce, true);
  } else if (op.kind == OpSizes::Elements) {
    for (const OpSizes::Result &result : op.results)
      if (result.isTensor)
        bytes += sliceOf(*shape, kernel, result.width) * result.bytes * 2 * tokens(kernel) /
                 (shape->isOfTokens() && result.checked ? part : 1);
  }
  return bytes;
}

int64_t KernelSizes::besideRing(const KernelChoice &choice) const {
  int64_t bytes = 2048 + fullBytes;
  for (auto [op, plan] : llvm::zip_equal(ops, choice.ops))
    bytes += sharedOf(choice.kernel, op, plan);
  return bytes;
}
