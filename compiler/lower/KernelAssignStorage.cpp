//===- KernelAssignStorage.cpp - Table entries and workspace of kernels ---------===//
//
// Handwritten kernels say nothing of where their arguments stand in the table
// (docs/design.md) or where sums over the grid keep their counters. This pass
// gives every tensor name its table entries, in order of first appearance, and
// every `kernel.finish` and `kernel.grid_sync` its place in the workspace: first
// what is zero between launches (counters, atomic sums), behind it the partial sums. Kernels that
// were made from a graph have all of it already.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/KernelPasses.h"
#include "dialects/kernel/Kernel.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include <map>
#include <set>

#define DEBUG_TYPE "kernel-assign-storage"

namespace cfc::kernel {
#define GEN_PASS_DEF_KERNELASSIGNSTORAGE
#include "dialects/kernel/Passes.h.inc"
} // namespace cfc::kernel

using namespace mlir;
using namespace cfc::kernel;

namespace {
struct KernelAssignStoragePass : public cfc::kernel::impl::KernelAssignStorageBase<KernelAssignStoragePass> {
  void runOnOperation() override;

private:
  LogicalResult assignEntries();
  LogicalResult assignWorkspace();
};
} // namespace

/// Bytes of workspace at most: more is a mistake.
static constexpr int64_t kMaxWorkspace = int64_t(1) << 40;

namespace {
/// A tensor as the first kernel that names it has it.
struct Tensor {
  int64_t entry;
  Type type;
};
} // namespace

LogicalResult KernelAssignStoragePass::assignEntries() {
  llvm::StringMap<Tensor> tensors;
  int64_t next = 0;
  Builder builder(&getContext());
  for (FuncOp func : getOperation().getOps<FuncOp>())
    for (BlockArgument arg : func.getArguments()) {
      unsigned i = arg.getArgNumber();
      if (func.getArgAttr(i, kEntryAttr) || func.getArgAttr(i, kWorkspaceAttr))
        continue;
      auto name = func.getArgAttrOfType<StringAttr>(i, kNameAttr);
      if (!name)
        return func.emitOpError("argument ") << i << " has no name: give it one, as %x or by " << kNameAttr;
      auto [it, isNew] = tensors.try_emplace(name.getValue(), Tensor{next, arg.getType()});
      if (isNew)
        next += numEntries(arg.getType());
      else if (it->second.type != arg.getType())
        return func.emitOpError("has a tensor ")
               << name << " of type " << arg.getType() << "; an earlier kernel has it as " << it->second.type;
      func.setArgAttr(i, kEntryAttr, builder.getI32IntegerAttr(it->second.entry));
    }
  return success();
}

/// An atomic sum is one; else each item leaves its own.
static LogicalResult checkPartials(FinishOp op) {
  int64_t items = op->getParentOfType<FuncOp>().axis(op.getAxis()).getSize();
  int64_t elements = op.getTile().getType().getNumElements();
  if (op.getAlgorithm() != Algorithm::Ordered || elements <= kMaxWorkspace / 4 / items)
    return success();
  return op.emitOpError("has ") << items << " partial sums of " << elements
                                << " elements: more than 2^40 bytes";
}

LogicalResult KernelAssignStoragePass::assignWorkspace() {
  ModuleOp module = getOperation();
  if (module->hasAttr("kernel.workspace_bytes"))
    return success();
  int64_t bytes = 0;
  auto allocate = [&](int64_t size) {
    int64_t at = llvm::alignTo(bytes, 16);
    bytes = at + size;
    return at;
  };
  SmallVector<FinishOp> finishes;
  module.walk([&](FinishOp op) { finishes.push_back(op); });
  for (FinishOp op : finishes) {
    if (failed(checkPartials(op)))
      return failure();
    auto func = op->getParentOfType<FuncOp>();
    op.setCounters(allocate(4 * op.numCounters(func.clusterSize())));
    if (op.clearsPartials())
      op.setPartials(allocate(op.partialBytes()));
  }
  module.walk([&](GridSyncOp op) { op.setCounter(allocate(4)); });
  int64_t zero = llvm::alignTo(bytes, 16);
  for (FinishOp op : finishes)
    if (!op.clearsPartials())
      op.setPartials(allocate(op.partialBytes()));
  Builder builder(&getContext());
  module->setAttr("kernel.zero_bytes", builder.getI64IntegerAttr(zero));
  module->setAttr("kernel.workspace_bytes", builder.getI64IntegerAttr(std::max(zero, bytes)));
  return success();
}

//===-- Places that a file gives ------------------------------------------------===//

namespace {
/// An argument that has table entries.
struct PlacedTensor {
  FuncOp func;
  StringAttr name;
  Type type;
};

/// The workspace as the module's attributes have it, in bytes.
struct Workspace {
  int64_t zero = 0, bytes = 0;
};
} // namespace

/// Kernels see a tensor's elements as rows of tokens or one after another.
static bool isSameMemory(Type a, Type b) {
  auto x = dyn_cast<MemRefType>(a), y = dyn_cast<MemRefType>(b);
  bool alike = x && y && x.getElementType() == y.getElementType() && x.getNumElements() == y.getNumElements();
  return a == b || alike;
}

/// Table entries are taken one after another, each by one tensor.
static LogicalResult checkEntries(ModuleOp module) {
  std::map<int64_t, PlacedTensor> tensors;
  for (FuncOp func : module.getOps<FuncOp>())
    for (BlockArgument arg : func.getArguments()) {
      unsigned i = arg.getArgNumber();
      if (!func.getArgAttr(i, kEntryAttr))
        continue;
      auto entry = func.getArgAttrOfType<IntegerAttr>(i, kEntryAttr);
      auto name = func.getArgAttrOfType<StringAttr>(i, kNameAttr);
      if (!entry || !entry.getType().isInteger(32) || !name || func.getArgAttr(i, kWorkspaceAttr))
        return func.emitOpError("argument ") << i << " needs a name and one place: " << kEntryAttr
                                             << " (i32) or " << kWorkspaceAttr << " (i64)";
      auto [it, isNew] = tensors.try_emplace(entry.getInt(), PlacedTensor{func, name, arg.getType()});
      if (!isNew && (it->second.name != name || !isSameMemory(it->second.type, arg.getType())))
        return func.emitOpError("has ")
               << name << " of type " << arg.getType() << " at table entry " << entry.getInt() << ", where "
               << it->second.name << " of type " << it->second.type << " is";
    }
  int64_t next = 0;
  for (auto &[entry, tensor] : tensors) {
    if (entry != next)
      return tensor.func.emitOpError("has ") << tensor.name << " at table entry " << entry << "; entry "
                                             << next << " is the next that is free";
    next += numEntries(tensor.type);
  }
  return success();
}

static LogicalResult checkPlace(FuncOp func, BlockArgument arg, Workspace workspace) {
  unsigned i = arg.getArgNumber();
  if (!func.getArgAttr(i, kWorkspaceAttr))
    return success();
  auto at = func.getArgAttrOfType<IntegerAttr>(i, kWorkspaceAttr);
  auto type = dyn_cast<MemRefType>(arg.getType());
  if (!at || !at.getType().isInteger(64) || !type)
    return func.emitOpError("argument ") << i << " needs a memref and an i64 for " << kWorkspaceAttr;
  int64_t bytes = llvm::divideCeil(type.getNumElements() * type.getElementTypeBitWidth(), 8);
  if (at.getInt() < workspace.zero || at.getInt() % 16 || at.getInt() > workspace.bytes - bytes)
    return func.emitOpError("argument ")
           << i << " lies at byte " << at.getInt() << " of the workspace; multiples of 16 from "
           << workspace.zero << " to " << workspace.bytes - bytes << " are possible";
  return success();
}

static LogicalResult checkFinish(FinishOp op, Workspace workspace) {
  auto func = op->getParentOfType<FuncOp>();
  int64_t partials = op.partialBytes(), counters = 4 * op.numCounters(func.clusterSize());
  int64_t end = op.clearsPartials() ? workspace.zero : workspace.bytes;
  int64_t firstCounter = op.getCounters(), firstPartial = op.getPartials();
  if (firstCounter < 0 || firstCounter % 4 || firstCounter > workspace.zero - counters || firstPartial < 0 ||
      firstPartial % 16 || firstPartial > end - partials)
    return op.emitOpError("has counters at byte ")
           << firstCounter << " and partial sums at byte " << firstPartial << " of a workspace of "
           << workspace.bytes << " bytes, the first " << workspace.zero
           << " of them zero between launches: its " << counters << " and " << partials
           << " bytes do not lie in it";
  return success();
}

static LogicalResult checkSync(GridSyncOp op, Workspace workspace) {
  int64_t at = op.getCounter();
  if (at < 0 || at % 4 || at > workspace.zero - 4)
    return op.emitOpError("has its counter at byte ")
           << at << " of the workspace, of which the first " << workspace.zero
           << " bytes are zero between launches: it does not lie in them";
  return success();
}

/// Files that were written from graphs say where everything lies. Edited by hand, they could say anything.
static LogicalResult checkPlaces(ModuleOp module) {
  auto zero = module->getAttrOfType<IntegerAttr>("kernel.zero_bytes");
  auto bytes = module->getAttrOfType<IntegerAttr>("kernel.workspace_bytes");
  if (!zero || !bytes || zero.getInt() < 0 || bytes.getInt() < zero.getInt() ||
      bytes.getInt() > kMaxWorkspace)
    return module.emitOpError(
        "needs kernel.workspace_bytes, at most 2^40, and kernel.zero_bytes, no more than those");
  Workspace workspace{zero.getInt(), bytes.getInt()};
  for (FuncOp func : module.getOps<FuncOp>())
    for (BlockArgument arg : func.getArguments())
      if (failed(checkPlace(func, arg, workspace)))
        return failure();
  WalkResult wrong = module.walk([&](Operation *op) -> WalkResult {
    if (auto sync = dyn_cast<GridSyncOp>(op))
      return checkSync(sync, workspace);
    auto finish = dyn_cast<FinishOp>(op);
    return finish ? checkFinish(finish, workspace) : success();
  });
  return failure(wrong.wasInterrupted());
}

/// Where an argument lies: in the workspace (true) or where a table entry says, and the offset or entry.
static std::pair<bool, int64_t> placeOf(BlockArgument arg) {
  auto func = cast<FuncOp>(arg.getOwner()->getParentOp());
  auto at = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kWorkspaceAttr);
  auto entry = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kEntryAttr);
  return at ? std::pair(true, at.getInt()) : std::pair(false, entry ? entry.getInt() : -1);
}

/// What kernels of a module write, by place, and which of them.
static std::multimap<std::pair<bool, int64_t>, FuncOp> writersOf(ModuleOp module) {
  std::multimap<std::pair<bool, int64_t>, FuncOp> writers;
  module.walk([&](Operation *op) {
    Value memory = isa<WriteOp>(op)    ? cast<WriteOp>(op).getMemory()
                   : isa<AppendOp>(op) ? cast<AppendOp>(op).getCache()
                                       : Value();
    if (auto arg = dyn_cast_or_null<BlockArgument>(memory))
      writers.emplace(placeOf(arg), op->getParentOfType<FuncOp>());
  });
  return writers;
}

/// What an operation of a kernel with pdl = 2 has read before the last kernel has ended: all that a cache's
/// stream and a work list take, and where the query tokens of an append begin.
static SmallVector<Value> readEarly(Operation *op) {
  if (isa<LoadCacheOp, WorkListOp>(op))
    return llvm::to_vector(op->getOperands());
  auto append = dyn_cast<AppendOp>(op);
  return append && append.getQueries() ? SmallVector<Value>{append.getQueries()} : SmallVector<Value>();
}

/// Whether the rows that a kernel appends to an argument lie behind those that `op` takes of it: where both
/// have one slot, the stream ends there.
static bool endsBeforeAppends(Operation *op, BlockArgument cache, FuncOp func) {
  auto load = dyn_cast<LoadCacheOp>(op);
  Value slot = load ? load.getSlot() : cast<WorkListOp>(op).getSlot();
  return !func.walk([&](AppendOp append) {
                return append.getCache() == cache && append.getSlot() != slot ? WalkResult::interrupt()
                                                                              : WalkResult::advance();
              })
              .wasInterrupted();
}

/// Whether a kernel may still run, but for the one before, when one with pdl = 2 behind it starts.
static LogicalResult checkStartWithCache(FuncOp func, FuncOp last) {
  if (!last)
    return func.emitOpError("has pdl = 2, but no kernel of this file is before it: with 1 it reads no cache "
                            "before the last launch has ended");
  if (last.planValue("pdl", 0) && last.planValue("lets_next", kLetsAtOnce) == kLetsAtOnce)
    return func.emitOpError("has pdl = 2, but may start before the kernel before it has waited: @")
           << last.getSymName() << " needs lets_next = 2";
  return success();
}

/// With pdl = 2 a kernel reads what its cache's stream takes while the one before it, and no other, may still
/// run: none of the module may write that, nor another one append to the cache.
static LogicalResult checkEarlyCaches(ModuleOp module) {
  auto writers = writersOf(module);
  FuncOp before;
  for (auto func : module.getOps<FuncOp>()) {
    FuncOp last = std::exchange(before, func);
    if (func.planValue("pdl", 0) != kStartsWithCache)
      continue;
    if (failed(checkStartWithCache(func, last)))
      return failure();
    WalkResult wrong = func.walk([&](Operation *op) -> WalkResult {
      for (Value value : readEarly(op)) {
        auto arg = dyn_cast<BlockArgument>(value);
        if (!arg || arg.getOwner() != &func.getBody().front())
          continue;
        auto [first, end] = writers.equal_range(placeOf(arg));
        bool isCache = isa<CacheType>(arg.getType());
        bool own = isCache && endsBeforeAppends(op, arg, func);
        if (isCache && !own)
          return op->emitOpError(
              "takes rows, with pdl = 2 early, to which this kernel may itself append: it must "
              "have the append's slot");
        if (std::any_of(first, end, [&](auto &writer) { return !own || writer.second != func; }))
          return op->emitOpError("takes what ") << (isCache ? "another" : "a")
                                                << " kernel of this file writes, which with pdl = 2 may not "
                                                   "be there yet: give the kernel pdl = 1";
      }
      return WalkResult::advance();
    });
    if (wrong.wasInterrupted())
      return failure();
  }
  return success();
}

/// With pdl = 1 a kernel streams weights while the kernels before it may still run, those of the last launch
/// too: no kernel of the module may write what it streams.
static LogicalResult checkEarlyStreams(ModuleOp module) {
  std::set<std::pair<bool, int64_t>> written;
  module.walk([&](WriteOp op) {
    if (auto arg = dyn_cast<BlockArgument>(op.getMemory()))
      written.insert(placeOf(arg));
  });
  auto isWritten = [&](Value memory) {
    auto arg = dyn_cast<BlockArgument>(memory);
    return arg && written.count(placeOf(arg));
  };
  WalkResult wrong = module.walk([&](Operation *op) -> WalkResult {
    auto func = op->getParentOfType<FuncOp>();
    if (!func || !func.planValue("pdl", 0))
      return WalkResult::advance();
    auto load = dyn_cast<LoadOp>(op);
    if (load && llvm::any_of(load.getWeights(), isWritten))
      return op->emitOpError(
          "streams what a kernel of this file writes, which with pdl = 1 may not be there yet: "
          "leave out pdl, or read it as a tile");
    auto norm = dyn_cast<RmsNormOp>(op);
    if (norm && norm.getGain() && isWritten(norm.getGain()))
      return op->emitOpError("has a gain that a kernel of this file writes, which with pdl = 1 may not be "
                             "there yet: leave out pdl");
    return WalkResult::advance();
  });
  return failure(wrong.wasInterrupted());
}

void KernelAssignStoragePass::runOnOperation() {
  if (failed(assignEntries()) || failed(checkEntries(getOperation())) || failed(assignWorkspace()) ||
      failed(checkPlaces(getOperation())) || failed(checkEarlyStreams(getOperation())) ||
      failed(checkEarlyCaches(getOperation())))
    signalPassFailure();
}
