//===- Manifest.cpp - What a compiled module says about itself -------------------===//
#include "compiler/pipeline/Manifest.h"
#include "compiler/lower/KernelLayout.h"
#include "dialects/kernel/Kernel.h"
#include "dialects/simt/Simt.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include <map>

using namespace mlir;
using namespace cfc;

static cfc_dtype dtypeOf(Type type) {
  if (type.isF16())
    return CFC_F16;
  if (type.isBF16())
    return CFC_BF16;
  if (type.isF32())
    return CFC_F32;
  if (isa<Float8E4M3FNType>(type))
    return CFC_F8E4M3FN;
  return type.isInteger(32) ? CFC_I32 : CFC_I64;
}

/// How one kernel uses its argument.
static runtime::Role roleOf(kernel::FuncOp func, BlockArgument arg) {
  if (isa<kernel::CacheType>(arg.getType()))
    return runtime::Role::InOut;
  if (func.getArgAttr(arg.getArgNumber(), kernel::kOutputAttr))
    return runtime::Role::Output;
  bool written = false, weight = false;
  for (Operation *user : arg.getUsers()) {
    written |= isa<kernel::WriteOp, kernel::LeaveOp>(user);
    weight |= isa<kernel::LoadOp>(user);
    if (auto norm = dyn_cast<kernel::RmsNormOp>(user))
      weight |= norm.getGain() == arg;
  }
  if (written)
    return runtime::Role::Output;
  return weight ? runtime::Role::Weight : runtime::Role::Input;
}

//===----------------------------------------------------------------------===//
// Layouts of weights
//===----------------------------------------------------------------------===//

static bool isPacked(kernel::FuncOp func, BlockArgument arg) {
  return func.getArgAttr(arg.getArgNumber(), kernel::kLayoutAttr) != nullptr;
}

/// What keeps an argument that is said to be packed from being it, or "".
static std::string whyNotPacked(kernel::FuncOp func, BlockArgument arg) {
  auto layout = func.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kernel::kLayoutAttr);
  if (!layout || layout != runtime::kPackedLayoutName)
    return "\"packed\" is the only layout to name";
  auto memory = dyn_cast<MemRefType>(arg.getType());
  if (!memory || memory.getRank() != 2 || memory.getElementTypeBitWidth() != 16)
    return "it must have 2 dimensions and elements of 16 bits";
  for (OpOperand &use : arg.getUses()) {
    auto load = dyn_cast<kernel::LoadOp>(use.getOwner());
    if (!load || !llvm::is_contained(load.getWeights(), arg))
      return "only kernel.load reads packed weights, here " + use.getOwner()->getName().getStringRef().str() +
             " uses it";
  }
  return "";
}

/// Weights that are stacked arrive as one stream: all are packed or none is.
static LogicalResult verifyStacked(kernel::FuncOp func) {
  WalkResult found = func.walk([&](kernel::LoadOp load) -> WalkResult {
    auto packed = llvm::count_if(load.getWeights(),
                                 [&](Value weight) { return isPacked(func, cast<BlockArgument>(weight)); });
    if (packed == 0 || size_t(packed) == load.getWeights().size())
      return WalkResult::advance();
    return load.emitOpError("stacks packed and native weights; all must be alike");
  });
  return failure(found.wasInterrupted());
}

LogicalResult cfc::verifyLayouts(ModuleOp kernels) {
  std::map<int64_t, std::pair<kernel::FuncOp, bool>> byEntry; // the first kernel that has the tensor
  for (auto func : kernels.getOps<kernel::FuncOp>()) {
    for (BlockArgument arg : func.getArguments()) {
      bool packed = isPacked(func, arg);
      if (std::string why = packed ? whyNotPacked(func, arg) : ""; !why.empty())
        return func.emitOpError("argument ")
               << arg.getArgNumber() << " cannot have this " << kernel::kLayoutAttr << ": " << why;
      auto entry = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kernel::kEntryAttr);
      if (!entry)
        continue;
      auto [first, isNew] = byEntry.try_emplace(entry.getInt(), func, packed);
      auto name = func.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kernel::kNameAttr);
      if (!isNew && first->second.second != packed)
        return func.emitOpError("reads ")
               << name << (packed ? " packed" : " as a native weight") << ", @"
               << first->second.first.getSymName() << (packed ? " as a native weight" : " packed")
               << "; it lies in memory in one way";
    }
    if (failed(verifyStacked(func)))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Tensors and table
//===----------------------------------------------------------------------===//

/// Whether an argument holds scales of caches: they are loaded one by one.
static bool isScale(BlockArgument arg) {
  return !arg.use_empty() && llvm::all_of(arg.getUses(), [&](OpOperand &use) {
    if (auto quantize = dyn_cast<kernel::QuantizeOp>(use.getOwner()))
      return use.get() == quantize.getScale();
    auto load = dyn_cast<kernel::LoadCacheOp>(use.getOwner());
    return load && (use.get() == load.getKScale() || use.get() == load.getVScale());
  });
}

static runtime::TensorSpec specOf(kernel::FuncOp func, BlockArgument arg) {
  runtime::TensorSpec spec;
  spec.name = func.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kernel::kNameAttr).str();
  spec.role = roleOf(func, arg);
  // Bulk copies and 16-byte words need rows that begin at multiples of 16 bytes.
  spec.align = 16;
  if (auto cache = dyn_cast<kernel::CacheType>(arg.getType())) {
    spec.kind = runtime::TensorKind::KvCache;
    spec.dtype = dtypeOf(cache.getElementType());
    spec.heads = cache.getHeads();
    spec.dim = cache.getDim();
    spec.vDim = cache.getVDim();
    spec.requests = cache.getRequests();
    spec.page = cache.getPage();
    // Rows that threads copy are multiples of 8 bytes.
    if (kernel::copiesByThreads(cache, spec.dim) || kernel::copiesByThreads(cache, spec.vDim))
      spec.align = 8;
    return spec;
  }
  auto memory = cast<MemRefType>(arg.getType());
  spec.dtype = dtypeOf(memory.getElementType());
  spec.shape.assign(memory.getShape().begin(), memory.getShape().end());
  if (memory.getElementType().isInteger() || isScale(arg))
    spec.align = memory.getElementTypeBitWidth() / 8;
  if (isPacked(func, arg))
    spec.layout = runtime::Layout::Packed;
  return spec;
}

runtime::WorkspaceSpec cfc::describeWorkspace(ModuleOp kernels) {
  auto bytes = [&](StringRef attr) -> uint64_t {
    auto value = kernels->getAttrOfType<IntegerAttr>(attr);
    return value ? value.getInt() : 0;
  };
  return {bytes("kernel.workspace_bytes"), bytes("kernel.zero_bytes"), 256};
}

runtime::GraphSpec cfc::describeKernels(ModuleOp kernels, StringRef name) {
  runtime::GraphSpec graph;
  graph.name = name.str();
  std::map<int64_t, runtime::TensorSpec> byEntry;
  for (auto func : kernels.getOps<kernel::FuncOp>())
    for (BlockArgument arg : func.getArguments()) {
      auto entry = func.getArgAttrOfType<IntegerAttr>(arg.getArgNumber(), kernel::kEntryAttr);
      if (!entry)
        continue;
      runtime::TensorSpec spec = specOf(func, arg);
      auto [it, isNew] = byEntry.try_emplace(entry.getInt(), spec);
      // Written by one kernel and read by a later one: an output that is also an input of the module's own.
      if (!isNew && spec.role == runtime::Role::Output && it->second.role != runtime::Role::Output)
        it->second.role = runtime::Role::InOut;
    }
  for (auto &[entry, spec] : byEntry) {
    size_t index = graph.tensors.size();
    for (runtime::Field field : runtime::tableFields(spec))
      graph.table.push_back({index, field});
    graph.tensors.push_back(spec);
  }
  graph.workspace = describeWorkspace(kernels);
  return graph;
}

static runtime::Field pointerField(StringRef name) {
  return name == "k_pointer"   ? runtime::Field::KPointer
         : name == "v_pointer" ? runtime::Field::VPointer
                               : runtime::Field::Pointer;
}

std::vector<runtime::MapSpec> cfc::describeMaps(ModuleOp simt, const runtime::GraphSpec &graph) {
  std::vector<runtime::MapSpec> maps;
  auto attrs = simt->getAttrOfType<ArrayAttr>("simt.maps");
  if (!attrs)
    return maps;
  for (auto map : attrs.getAsRange<DictionaryAttr>()) {
    runtime::MapSpec &spec = maps.emplace_back();
    spec.tensor = graph.table[map.getAs<IntegerAttr>("entry").getInt()].tensor;
    spec.field = pointerField(map.getAs<StringAttr>("field"));
    spec.box = map.getAs<DenseI64ArrayAttr>("box").asArrayRef().vec();
    spec.swizzle = map.getAs<IntegerAttr>("swizzle").getInt();
  }
  return maps;
}

std::vector<runtime::KernelSpec> cfc::describeLaunches(ModuleOp simt) {
  std::vector<runtime::KernelSpec> launches;
  for (auto kernel : simt.getOps<simt::KernelOp>()) {
    runtime::KernelSpec spec;
    spec.name = kernel.getSymName().str();
    spec.threads = kernel.getThreads();
    spec.cluster = kernel.getCluster();
    spec.clusters = kernel->getAttrOfType<IntegerAttr>("cfc.clusters").getInt();
    spec.sharedBytes = kernel.getSharedBytes();
    spec.ctasPerSm = kernel.getCtasPerSm();
    spec.nonPortable = spec.cluster > 8;
    // Set by the lowering that also writes the kernel's griddepcontrol instructions: both or neither.
    spec.pdl = kernel->hasAttr("cfc.pdl");
    spec.cooperative = kernel->hasAttr("cfc.cooperative");
    launches.push_back(spec);
  }
  return launches;
}

std::string cfc::digestOf(ModuleOp simt) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  simt->print(stream, OpPrintingFlags().enableDebugInfo(false));
  uint64_t hash =
      llvm::xxh3_64bits(llvm::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
  return llvm::formatv("{0:x-16}", hash).str();
}
