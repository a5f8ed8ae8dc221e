//===- AttnToKernel.cpp - From a graph and its plan to kernels --------------===//
//
// The pass `attn-to-kernel`: lays out the workspace and writes each kernel of
// the plan that `attn-plan` attached to the graph. AttnKernelWriter writes one
// kernel; here is what concerns all of them.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/AttnToKernel.h"
#include "compiler/lower/AttnKernelWriter.h"
#include "compiler/lower/AttnPasses.h"
#include "compiler/plan/Sizes.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;

namespace cfc::attn {
#define GEN_PASS_DEF_ATTNTOKERNEL
#include "dialects/attn/Passes.h.inc"
} // namespace cfc::attn

//===-- Tensors -----------------------------------------------------------===//

/// The bound of an argument by how it is used: tokens of lengths, rows of the table that a position indexes.
static int64_t boundOf(Value value) {
  if (auto lengths = dyn_cast<attn::LengthsType>(value.getType()))
    return lengths.getCapacity();
  for (Operation *user : value.getUsers())
    if (auto rope = dyn_cast<attn::RopeOp>(user); rope && rope.getPos() == value)
      return rope.getTable().getType().getDimSize(0);
  return 0;
}

/// A weight is what linear multiplies with or adds, or a gain: every use says that it does not change.
static bool isWeight(Value value) {
  return !value.use_empty() && llvm::all_of(value.getUses(), [](OpOperand &use) {
    if (isa<attn::RmsNormOp, attn::LayerNormOp>(use.getOwner()))
      return use.getOperandNumber() > 0;
    return isa<attn::LinearOp>(use.getOwner()) && use.getOperandNumber() > 0;
  });
}

/// What a cache's appends and attentions say about it.
static void describeUses(Value cache, TensorInfo &info) {
  auto atLeast = [](int64_t &value, int64_t least) { value = std::max(value, least); };
  auto note = [](SmallVector<Value> &values, Value value) {
    if (!llvm::is_contained(values, value))
      values.push_back(value);
  };
  for (Operation *user : cache.getUsers()) {
    if (auto append = dyn_cast<attn::KvAppendOp>(user)) {
      atLeast(info.requests, append.getQueries() ? append.getQueries().getType().getDimSize(0) - 1
                                                 : append.getSlot().getType().getDimSize(0));
      note(info.slots, append.getSlot());
      describeUses(append.getResult(), info);
    } else if (auto attention = dyn_cast<attn::AttentionOp>(user)) {
      atLeast(info.requests, attention.getLen().getType().getCount());
      note(info.lengths, attention.getLen());
      if (!attention.getPages())
        continue;
      atLeast(info.pages, attention.getPages().getType().getDimSize(1));
      note(info.blockTables, attention.getPages());
    }
  }
}

int64_t TensorInfo::numEntries() const {
  return kind == "kv_cache" ? kernel::cacheEntries(requests > 1 || page, vDim != dim) : 1;
}

static TensorInfo describe(Value value, StringRef name, StringRef role) {
  TensorInfo info;
  info.name = name.str();
  info.kind = "tensor";
  info.role = role.str();
  info.value = value;
  info.bound = boundOf(value);
  if (auto cache = dyn_cast<attn::KvCacheType>(value.getType())) {
    info.kind = "kv_cache";
    info.role = "inout";
    info.element = cache.getElementType();
    info.heads = cache.getHeads();
    info.dim = cache.getDim();
    info.vDim = cache.getVDim();
    info.page = cache.getPage();
    describeUses(value, info);
  } else if (auto lengths = dyn_cast<attn::LengthsType>(value.getType())) {
    info.element = IntegerType::get(value.getContext(), 32);
    info.shape = {lengths.getCount()};
  } else {
    auto tensor = cast<RankedTensorType>(value.getType());
    info.element = tensor.getElementType();
    info.shape.assign(tensor.getShape().begin(), tensor.getShape().end());
  }
  return info;
}

std::vector<TensorInfo> cfc::tensorsOf(attn::GraphOp graph) {
  std::vector<TensorInfo> tensors;
  // What no kernel reads has no entry in the table and need not be bound.
  llvm::DenseSet<Value> used;
  for (Operation *op : kernelOps(graph))
    for (Value value : attn::operandsOf(op))
      used.insert(value);
  for (BlockArgument arg :
       llvm::make_filter_range(graph.getBody().getArguments(), [&](Value arg) { return used.contains(arg); }))
    tensors.push_back(
        describe(arg, graph.getArgName(arg.getArgNumber()), isWeight(arg) ? "weight" : "input"));
  for (auto [i, value] : llvm::enumerate(graph.getReturn().getValues()))
    tensors.push_back(describe(value, graph.getResultName(i), "output"));
  for (auto table : graph.getBody().getOps<attn::RopeTableOp>()) {
    if (!used.contains(table.getResult()))
      continue;
    std::string name = attn::getValueName(table.getResult());
    TensorInfo info =
        describe(table.getResult(), "generated." + (name.empty() ? opLabel(table) : name), "generated");
    info.bound = table.getPositions();
    info.dim = table.getDim();
    info.rope = table.describe();
    tensors.push_back(info);
  }
  int64_t entry = 0;
  for (TensorInfo &info : tensors) {
    info.entry = entry;
    entry += info.numEntries();
  }
  return tensors;
}

//===-- The workspace -----------------------------------------------------===//

int64_t MemoryMap::allocate(int64_t size, int64_t alignment) {
  int64_t at = llvm::alignTo(bytes, alignment);
  bytes = at + size;
  return at;
}

static int64_t rowsOf(Value result) { return widthOf(result); }

/// Elements of the softmax state of an attention's item.
static int64_t stateElements(attn::AttentionOp op) {
  return op.getGroup() * (op.getCache().getType().getVDim() + 2);
}

/// Counters of every finish, and sums that are zero between launches.
void MemoryMap::placeZeroed(const KernelShape &shape, const Plan &plan, const KernelPlan &kernel) {
  for (Operation *op : shape.getOps()) {
    auto attention = dyn_cast<attn::AttentionOp>(op);
    if (attention && cutsHeads(kernel) && !leavesStates(plan, op))
      finishes[attention.getResult()].counters = allocate(4 * kernel.part * shape.getHeadItems(), 16);
    auto linear = dyn_cast<attn::LinearOp>(op);
    if (!linear || !shape.finishes(linear))
      continue;
    for (Value result : linear.getResults()) {
      Finish &place = finishes[result];
      int64_t rows = rowsOf(result);
      Exchange finish = planOf(plan, op).finish;
      place.counters = allocate(4 * kernel.part * finishPieces(rows, kernel, finish), 16);
      if (finish == Exchange::Atomic)
        place.partials = allocate(4 * rows, 256);
      else if (finishers(rows, shape.getHeads(), kernel, finish))
        place.partials = allocate(4 * shape.getHeads() * rows, 256);
    }
  }
}

/// Partial sums of the ordered finishes, and values that other kernels read.
void MemoryMap::placeRest(const KernelShape &shape, const Plan &plan, const KernelPlan &kernel) {
  for (Operation *op : shape.getOps()) {
    auto attention = dyn_cast<attn::AttentionOp>(op);
    if (attention && cutsHeads(kernel)) {
      int64_t each = sharesWork(kernel) ? shape.getSegmentGroups() : 1;
      int64_t states = itemsOf(shape, kernel) * each;
      if (leavesStates(plan, op)) // and the new tokens'
        states += shape.getHeadItems();
      finishes[attention.getResult()].partials = allocate(4 * states * stateElements(attention), 256);
    }
    auto linear = dyn_cast<attn::LinearOp>(op);
    for (Value result : op->getResults()) {
      if (linear && shape.finishes(linear) && finishes[result].partials < 0)
        finishes[result].partials = allocate(4 * shape.getHeads() * rowsOf(result), 256);
      auto tensor = dyn_cast<RankedTensorType>(result.getType());
      if (tensor && shape.isStored(result) && !tensorOf(result) && !leavesStates(plan, op))
        offsets[result] = allocate(tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8, 256);
    }
  }
}

MemoryMap::MemoryMap(attn::GraphOp graph, ArrayRef<KernelShape> shapes, const Plan &plan)
    : tensors(tensorsOf(graph)) {
  for (const TensorInfo &info : tensors)
    bound.try_emplace(info.value, &info);
  for (auto [i, shape, kernel] : llvm::enumerate(shapes, plan.kernels)) {
    placeZeroed(shape, plan, kernel);
    if (kernel.joined == 1)
      syncs[i] = allocate(4, 16);
  }
  zeroBytes = bytes = llvm::alignTo(bytes, 256);
  for (auto [shape, kernel] : llvm::zip_equal(shapes, plan.kernels))
    placeRest(shape, plan, kernel);
  bytes = llvm::alignTo(bytes, 256);
}

//===-- Kernels -----------------------------------------------------------===//

/// Kernels are written from whole plans: every operation in one, every choice made.
static LogicalResult checkWhole(attn::GraphOp graph, const Plan &plan) {
  if (plan.graph != graph.getSymName())
    return graph.emitError("the plan is for graph @") << plan.graph;
  for (Operation *op : kernelOps(graph))
    if (planOf(plan, op).kernel < 0)
      return graph.emitError("the plan leaves out ") << opLabel(op) << "; attn-plan fills it in";
  return success();
}

/// What leaves its softmaxes to its readers is read by kernels that take it whole, and once.
static LogicalResult checkReaders(attn::GraphOp graph, ArrayRef<KernelShape> shapes, const Plan &plan) {
  for (auto [i, shape] : llvm::enumerate(shapes))
    for (Operation *op : shape.getOps()) {
      if (!leavesStates(plan, op))
        continue;
      auto attention = cast<attn::AttentionOp>(op);
      auto takesWhole = [&](Operation *user) {
        auto linear = dyn_cast<attn::LinearOp>(user);
        return isa<attn::ReturnOp>(user) ||
               (linear && !shape.contains(user) && llvm::none_of(shapes, [&](const KernelShape &other) {
                  return other.contains(user) && other.finishes(linear);
                }));
      };
      if (!cutsHeads(plan.kernels[i]) || sharesWork(plan.kernels[i]) || !readersCanMerge(attention) ||
          !llvm::all_of(attention.getResult().getUsers(), takesWhole))
        return graph.emitError("the plan has finish = reader for ")
               << opLabel(op) << ": that takes chunks of heads, of one token, which linears of other kernels "
               << "read whole";
    }
  return success();
}

static LogicalResult checkChoices(attn::GraphOp graph, ArrayRef<KernelShape> shapes, const Plan &plan) {
  for (auto [i, shape] : llvm::enumerate(shapes)) {
    const KernelPlan &k = plan.kernels[i];
    bool rows = shape.hasRowItems();
    if (!k.part || !k.warps || !k.ctasPerSm || !k.ringStages || !k.tileColumns || (rows && !k.rowsPerItem))
      return graph.emitError("the plan leaves out choices for kernel ") << i << "; attn-plan fills them in";
    if (cutsHeads(k) && !shape.takesChunks())
      return graph.emitError("the plan cuts the heads of kernel ")
             << i << " into chunks = " << (sharesWork(k) ? std::string("work") : std::to_string(k.chunks))
             << ": " << kWhyNoChunks;
    if (k.stacked == 1 && !shape.getStackable())
      return graph.emitError("the plan has stacked = 1 in kernel ") << i << ": " << kWhyNoPanels;
    if (k.stacked == 1 && !shape.canStack(k.rowsPerItem))
      return graph.emitError("the plan has stacked = 1 and rows_per_item = ")
             << k.rowsPerItem << " in kernel " << i << ", which does not divide the rows of each weight of "
             << opLabel(shape.getStackable());
    if (sharesWork(k) && (k.part != 1 || k.warps != 4))
      return graph.emitError("the plan has chunks = work in kernel ") << i << ": " << kWhyNoWork;
    KernelSizes sizes(shape);
    for (const OpSizes &op : sizes.getOps()) {
      const OpPlan &choice = planOf(plan, op.op);
      bool open = (sizes.hasSplit(op) && choice.split == Split::Unset) ||
                  (sizes.hasGather(op, choice.split) && choice.gather == Exchange::Unset) ||
                  (sizes.hasReduce(op, choice.split) && choice.reduce == Exchange::Unset) ||
                  (sizes.hasFinish(op, k) && choice.finish == Exchange::Unset);
      if (open)
        return graph.emitError("the plan leaves out choices for ")
               << opLabel(op.op) << "; attn-plan fills them in";
    }
  }
  return success();
}

FailureOr<OwningOpRef<ModuleOp>> cfc::buildKernels(attn::GraphOp graph, const Plan &plan, int &exitCode) {
  graph.getContext()->loadDialect<kernel::KernelDialect>();
  exitCode = kExitBadInput;
  if (failed(checkWhole(graph, plan)))
    return failure();
  exitCode = kExitCannotRun;
  if (failed(checkLimits(graph)))
    return failure();
  SmallVector<int64_t> kernels;
  for (Operation *op : kernelOps(graph))
    kernels.push_back(planOf(plan, op).kernel);
  FailureOr<Fusion> fusion = fuse(graph, {}, kernels, &exitCode);
  if (failed(fusion))
    return failure();
  exitCode = kExitCannotRun;
  FailureOr<std::vector<KernelShape>> shapes = shapeKernels(graph, *fusion);
  if (failed(shapes))
    return failure();
  exitCode = kExitBadInput;
  if (shapes->size() != plan.kernels.size())
    return graph.emitError("the plan describes ")
           << plan.kernels.size() << " kernels; its operations are in " << shapes->size();

  if (failed(checkChoices(graph, *shapes, plan)) || failed(checkReaders(graph, *shapes, plan)))
    return failure();
  exitCode = kExitCannotRun;

  OwningOpRef<ModuleOp> module = ModuleOp::create(graph.getLoc());
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  MemoryMap memory(graph, *shapes, plan);
  for (LaunchRange launch : plan.launches()) {
    WrittenFunction function;
    for (size_t i = launch.first; i < launch.end; ++i)
      KernelWriter(graph, i, (*shapes)[i], plan, memory, function).write(builder);
  }
  (*module)->setAttr(kWorkspaceBytesAttr, builder.getI64IntegerAttr(memory.getBytes()));
  (*module)->setAttr(kZeroBytesAttr, builder.getI64IntegerAttr(memory.getZeroBytes()));
  return module;
}

FailureOr<OwningOpRef<ModuleOp>> cfc::lowerToKernels(attn::GraphOp graph, const Plan &plan, int &exitCode) {
  FailureOr<OwningOpRef<ModuleOp>> module = buildKernels(graph, plan, exitCode);
  if (succeeded(module) && failed(verify(**module)))
    return failure();
  return module;
}

namespace {
struct AttnToKernelPass : public cfc::attn::impl::AttnToKernelBase<AttnToKernelPass> {
  void runOnOperation() override {
    for (auto graph : llvm::make_early_inc_range(getOperation().getOps<attn::GraphOp>()))
      if (failed(lower(graph)))
        return signalPassFailure();
  }

private:
  LogicalResult lower(attn::GraphOp graph) {
    auto text = graph->getAttrOfType<StringAttr>(kPlanAttr);
    if (!text)
      return graph.emitError("has no plan; run attn-plan first");
    std::string error;
    std::optional<Plan> plan = parsePlan(text.getValue(), kPlanAttr, error);
    if (!plan)
      return graph.emitError(error);
    int exitCode = 0;
    FailureOr<OwningOpRef<ModuleOp>> kernels = lowerToKernels(graph, *plan, exitCode);
    if (failed(kernels))
      return failure();
    OpBuilder builder(graph);
    for (StringRef name : {kWorkspaceBytesAttr, kZeroBytesAttr})
      getOperation()->setAttr(name, (**kernels)->getAttr(name));
    for (Operation &op : llvm::make_early_inc_range(*(*kernels)->getBody()))
      op.moveBefore(graph);
    graph.erase();
    return success();
  }
};
} // namespace
