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

static int64_t bytesOf(MemRefType type) {
  return llvm::divideCeil(type.getNumElements() * type.getElementTypeBitWidth(), 8);
}

static LogicalResult checkPlace(FuncOp func, BlockArgument arg, Workspace workspace) {
  unsigned i = arg.getArgNumber();
  if (!func.getArgAttr(i, kWorkspaceAttr))
    return success();
  auto at = func.getArgAttrOfType<IntegerAttr>(i, kWorkspaceAttr);
  auto type = dyn_cast<MemRefType>(arg.getType());
  if (!at || !at.getType().isInteger(64) || !type)
    return func.emitOpError("argument ") << i << " needs a memref and an i64 for " << kWorkspaceAttr;
  int64_t bytes = bytesOf(type);
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

//===-- Early reads ---------------------------------------------------------------===//

namespace {
/// Bytes of the workspace, or a table entry.
struct Place {
  bool inWorkspace = false;
  int64_t begin = -1, end = 0;

  bool overlaps(const Place &other) const {
    return inWorkspace == other.inWorkspace && begin < other.end && other.begin < end;
  }
};

/// An operation that writes global memory, and where.
struct Writer {
  Operation *op;
  Place place;
};

/// How memory is read before everything that may have been meant to write it is there. All of it is, by the
/// producer or when the kernel starts, before a kernel.grid_sync in front of the operation.
struct EarlyRead {
  enum Kind {
    Weights, ///< with pdl, before the kernels before this one have ended
    Gain,    ///< likewise
    Cache    ///< a cache's rows and what says which: with pdl = 2
  };
  Kind kind;
  BlockArgument memory;
};
} // namespace

static Place placeOf(BlockArgument arg) {
  auto func = cast<FuncOp>(arg.getOwner()->getParentOp());
  if (auto at = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kWorkspaceAttr))
    return {true, at.getInt(), at.getInt() + bytesOf(cast<MemRefType>(arg.getType()))};
  auto entry = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kEntryAttr);
  return entry ? Place{false, entry.getInt(), entry.getInt() + 1} : Place();
}

/// What kernels of a module write.
static SmallVector<Writer> writersOf(ModuleOp module) {
  SmallVector<Writer> writers;
  module.walk([&](Operation *op) {
    SmallVector<Value> written;
    if (auto write = dyn_cast<WriteOp>(op))
      written = write.getMemories(); // any of them
    else if (auto leave = dyn_cast<LeaveOp>(op))
      written = {leave.getMemory()};
    else if (auto append = dyn_cast<AppendOp>(op))
      written = {append.getCache()};
    for (Value memory : written)
      if (auto arg = dyn_cast<BlockArgument>(memory))
        writers.push_back({op, placeOf(arg)});
    if (auto finish = dyn_cast<FinishOp>(op); finish && !finish.clearsPartials()) {
      int64_t at = finish.getPartials();
      writers.push_back({op, {true, at, at + finish.partialBytes()}});
    }
  });
  return writers;
}

static SmallVector<EarlyRead> earlyReadsOf(Operation *op) {
  SmallVector<EarlyRead> reads;
  auto add = [&](EarlyRead::Kind kind, ValueRange values) {
    for (Value value : values)
      if (auto arg = dyn_cast_or_null<BlockArgument>(value);
          arg && isa<FuncOp>(arg.getOwner()->getParentOp()))
        reads.push_back({kind, arg});
  };
  if (auto load = dyn_cast<LoadOp>(op))
    add(EarlyRead::Weights, load.getWeights());
  if (auto norm = dyn_cast<RmsNormOp>(op))
    add(EarlyRead::Gain, norm.getGain());
  if (isa<LoadCacheOp, WorkListOp>(op))
    add(EarlyRead::Cache, op->getOperands());
  if (auto append = dyn_cast<AppendOp>(op)) // where the query tokens begin
    add(EarlyRead::Cache, append.getQueries());
  return reads;
}

/// Whether the rows that are appended lie behind those that `op` takes of the cache: where both have one
/// slot, the stream ends there.
static bool endsBefore(Operation *op, AppendOp append) {
  auto load = dyn_cast<LoadCacheOp>(op);
  auto list = dyn_cast<WorkListOp>(op);
  Value slot = load ? load.getSlot() : list ? list.getSlot() : Value();
  return slot && append.getSlot() == slot;
}

/// Refuses an early read of what `writer` may not have written yet.
static LogicalResult checkEarlyRead(Operation *op, EarlyRead read, const Writer &writer) {
  auto func = op->getParentOfType<FuncOp>();
  int64_t pdl = func.planValue("pdl", 0);
  bool isCache = isa<CacheType>(read.memory.getType());
  bool own = writer.op->getParentOfType<FuncOp>() == func;
  auto append = dyn_cast<AppendOp>(writer.op);
  if (own && append && endsBefore(op, append))
    return success();
  if (read.kind == EarlyRead::Cache && pdl == kStartsWithCache)
    return own && isCache
               ? op->emitOpError("takes rows, with pdl = 2 early, to which this kernel may itself append: it "
                                 "must have the append's slot")
               : op->emitOpError("takes what ") << (isCache ? "another" : "a")
                                                << " kernel of this file writes, which with pdl = 2 may not "
                                                   "be there yet: give the kernel pdl = 1";
  if (read.kind == EarlyRead::Weights && pdl)
    return op->emitOpError("streams what a kernel of this file writes, which with pdl = 1 may not be there "
                           "yet: leave out pdl, or read it as a tile");
  if (read.kind == EarlyRead::Gain && pdl)
    return op->emitOpError("has a gain that a kernel of this file writes, which with pdl = 1 may not be "
                           "there yet: leave out pdl");
  if (!own || !isBehindGridSync(op, writer.op))
    return success();
  if (append)
    return op->emitOpError("takes rows to which this kernel may append before a kernel.grid_sync, ahead of "
                           "which streams are read: it must have the append's slot, or be in a kernel of "
                           "its own");
  return op->emitOpError(
      "takes what this kernel writes before a kernel.grid_sync, ahead of which streams, "
      "gains and what says which rows to take are read: it must be in a kernel of its own");
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

/// With pdl a kernel reads some of its arguments while kernels before it, those of the last launch too, may
/// still run, and behind a kernel.grid_sync some before all have come there: nobody may write those then.
static LogicalResult checkEarlyReads(ModuleOp module) {
  SmallVector<Writer> writers = writersOf(module);
  FuncOp before;
  for (auto func : module.getOps<FuncOp>()) {
    FuncOp last = std::exchange(before, func);
    if (func.planValue("pdl", 0) == kStartsWithCache && failed(checkStartWithCache(func, last)))
      return failure();
    WalkResult wrong = func.walk([&](Operation *op) -> WalkResult {
      for (EarlyRead read : earlyReadsOf(op))
        for (const Writer &writer : writers)
          if (writer.place.overlaps(placeOf(read.memory)) && failed(checkEarlyRead(op, read, writer)))
            return failure();
      return success();
    });
    if (wrong.wasInterrupted())
      return failure();
  }
  return success();
}

void KernelAssignStoragePass::runOnOperation() {
  if (failed(assignEntries()) || failed(checkEntries(getOperation())) || failed(assignWorkspace()) ||
      failed(checkPlaces(getOperation())) || failed(checkEarlyReads(getOperation())))
    signalPassFailure();
}
