//===- BaselineChain.cpp - A graph as a chain of unfused kernels -----------===//
#include "tools/lib/BaselineChain.h"
#include "compiler/lower/AttnToKernel.h"
#include "dialects/attn/Elements.h"
#include "dialects/attn/Reference.h"
#include "mlir/IR/BuiltinTypes.h"
#include "tools/lib/Failure.h"
#include "llvm/ADT/TypeSwitch.h"
#include <algorithm>
#include <bit>

using namespace cfc;
using namespace mlir;
namespace fast = cfc_fast;

static RankedTensorType tensorOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static int columnsOf(Value value) { return int(tensorOf(value).getShape().back()); }
/// As templates/device/element.h counts the kinds.
static int kindOf(Type element) { return int(attn::elementKind(element)); }
static int kindOf(Value value) { return kindOf(tensorOf(value).getElementType()); }

/// Where the tensors of one launch lie.
struct BaselineChain::Binding {
  const BaselineChain &chain;
  llvm::StringMap<const cfc_tensor *> tensors;
  char *workspace;

  const cfc_tensor &tensor(Value value) const {
    auto it = tensors.find(chain.names.lookup(value));
    if (it == tensors.end())
      internalError("the baseline: no tensor is bound to '{}'", chain.names.lookup(value));
    return *it->second;
  }
  const cfc_tensor &cache(Value value) const {
    while (auto append = value.getDefiningOp<attn::KvAppendOp>())
      value = append.getCache();
    return tensor(value);
  }
  void *data(Value value) const {
    auto it = chain.offsets.find(value);
    return it == chain.offsets.end() ? tensor(value).data : workspace + it->second;
  }
  fast::Values values(Value value) const { return {data(value), kindOf(value)}; }
};

size_t BaselineChain::reserve(size_t size) {
  size_t offset = bytes;
  bytes = (bytes + size + 255) / 256 * 256;
  return offset;
}

/// Room for a value that the caller does not bind.
void BaselineChain::reserve(Value value) {
  if (!names.count(value))
    offsets[value] =
        reserve(size_t(tensorOf(value).getNumElements()) * elementSize(ElementKind(kindOf(value))));
}

template <typename Parameter>
void BaselineChain::addStep(DeviceKernel kernel, LaunchShape shape,
                            std::function<Parameter(const Binding &)> fill) {
  kernels.prepare(kernel);
  steps.push_back({std::move(kernel), [=](const Step &step, const Binding &binding, CUstream stream) {
                     Parameter parameter = fill(binding);
                     binding.chain.kernels.launch(step.kernel, shape, &parameter, stream);
                   }});
}

static std::string constant(const char *name, int64_t value) { return fmt::format("{}={}", name, value); }

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void BaselineChain::add(attn::RmsNormOp op) {
  if (int width = columnsOf(op.getX()); width % 8 != 0 || width > fast::RmsNorm::maxWidth)
    cannotRun("", "the baseline's norm takes a multiple of 8 columns up to {}, not {}",
              fast::RmsNorm::maxWidth, width);
  reserve(op.getResult());
  addStep<fast::RmsNorm>({"fast_rms_norm.cu", "fast_rms_norm", {constant("GAIN", kindOf(op.getGain()))}},
                         {1, 1, fast::RmsNorm::threads}, [op](const Binding &b) mutable {
                           fast::RmsNorm a = {};
                           a.x = b.values(op.getX());
                           a.gain = b.data(op.getGain());
                           a.result = b.values(op.getResult());
                           a.width = columnsOf(op.getX());
                           a.eps = float(op.getEps().convertToDouble());
                           return a;
                         });
}

/// Weights whose types differ, and more than a launch takes, are launched apart.
void BaselineChain::add(attn::LinearOp op) {
  int inputs = columnsOf(op.getX()), count = int(op.getWeights().size());
  if (inputs % 8 != 0)
    cannotRun("", "the baseline's linear takes a multiple of 8 columns, not {}", inputs);
  for (Value result : op.getResults())
    reserve(result);
  for (int begin = 0, end; begin < count; begin = end) {
    int weightKind = kindOf(op.getWeights()[begin]), outputs = 0;
    for (end = begin; end < count && end - begin < fast::Linear::maxParts; ++end) {
      if (kindOf(op.getWeights()[end]) != weightKind)
        break;
      outputs += columnsOf(op.getResults()[end]);
    }
    auto fill = [=](const Binding &b) mutable {
      fast::Linear a = {};
      a.x = b.values(op.getX());
      a.partCount = end - begin;
      a.inputs = inputs;
      a.outputs = outputs;
      for (int i = begin; i < end; ++i) {
        fast::LinearPart &part = a.parts[i - begin];
        part.weight = b.data(op.getWeights()[i]);
        part.result = b.values(op.getResults()[i]);
        part.outputs = columnsOf(op.getResults()[i]);
        if (!op.getBiases().empty())
          part.bias = b.values(op.getBiases()[i]);
      }
      return a;
    };
    int perBlock = fast::Linear::threads / 32 * fast::Linear::outputsPerWarp;
    unsigned blocks = unsigned(outputs + perBlock - 1) / unsigned(perBlock);
    addStep<fast::Linear>({"fast_linear.cu", "fast_linear", {constant("WEIGHT", weightKind)}},
                          {blocks, 1, fast::Linear::threads}, fill);
  }
}

/// The append whose K the rope makes and whose V is there already.
static attn::KvAppendOp appendOf(attn::RopeOp rope) {
  for (Value result : rope.getResults())
    for (Operation *user : result.getUsers()) {
      auto append = dyn_cast<attn::KvAppendOp>(user);
      if (!append || append.getK() != result)
        continue;
      Operation *v = append.getV().getDefiningOp();
      if (!v || v->isBeforeInBlock(rope))
        return append;
    }
  return {};
}

void BaselineChain::add(attn::RopeOp op) {
  for (Value result : op.getResults())
    reserve(result);
  attn::KvAppendOp append = appendOf(op);
  if (append)
    appended.push_back(append);
  addRopeAppend(op, append);
}

void BaselineChain::add(attn::KvAppendOp op) {
  if (!llvm::is_contained(appended, op))
    addRopeAppend({}, op);
}

/// One of the two may be null. The rope makes the append's K.
void BaselineChain::addRopeAppend(attn::RopeOp rope, attn::KvAppendOp append) {
  auto fill = [=](const Binding &b) mutable {
    fast::RopeAppend a = {};
    const cfc_tensor *cache = append ? &b.cache(append.getCache()) : nullptr;
    if (rope) {
      for (auto [i, value, result] : llvm::enumerate(rope.getValues(), rope.getResults())) {
        a.rotations[i] = {b.values(value), b.values(result), nullptr, columnsOf(value)};
        if (append && append.getK() == result)
          a.rotations[i].cache = static_cast<char *>(cache->k);
      }
      a.table = b.data(rope.getTable());
      a.position = static_cast<const int *>(b.tensor(rope.getPos()).data);
      a.positions = tensorOf(rope.getTable()).getDimSize(0);
      a.dim = int(rope.getRotatedDim());
      a.interleaved = rope.getStyle() == attn::RopeStyle::Interleaved;
    }
    if (append) {
      attn::KvCacheType type = append.getCache().getType();
      a.stored[0] = {b.values(append.getV()), static_cast<char *>(cache->v), int(type.getKWidth())};
      if (!rope)
        a.stored[1] = {b.values(append.getK()), static_cast<char *>(cache->k), int(type.getKWidth())};
      a.slot = static_cast<const long long *>(b.tensor(append.getSlot()).data);
      a.capacity = cache->capacity;
      a.strideHead = cache->stride_head;
      a.strideToken = cache->stride_token;
      a.cacheKind = kindOf(type.getElementType());
      a.cacheDim = int(type.getDim());
    }
    return a;
  };
  int64_t threads = 0;
  if (rope)
    for (Value value : rope.getValues())
      threads += columnsOf(value) / 2;
  if (append)
    threads += append.getCache().getType().getKWidth() * (rope ? 1 : 2);
  int tableKind = rope ? kindOf(rope.getTable()) : int(ElementKind::F32);
  addStep<fast::RopeAppend>({"fast_rope_append.cu", "fast_rope_append", {constant("TABLE", tableKind)}},
                            threadsFor(threads), fill);
}

/// The largest of 4, 2, 1 that divides the query heads of a KV head.
static int headsPerBlock(int64_t group) { return group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1; }

void BaselineChain::add(attn::AttentionOp op) {
  attn::KvCacheType type = op.getCache().getType();
  if (type.isPaged() || type.getVDim() != type.getDim())
    cannotRun("", "the baseline's attention takes caches without pages whose K and V have the same dim");
  if (op.getQueries())
    cannotRun("", "the baseline's attention takes one query token a request");
  int dim = int(type.getDim()), heads = int(op.getQueryHeads()), group = headsPerBlock(op.getGroup());
  if (dim % 8 != 0 || dim > 256)
    cannotRun("", "the baseline's attention takes head dimensions that are multiples of 8 up to 256, not {}",
              dim);
  // Eight blocks an SM fill it: no more, which would wait. A split has at least one load of each thread.
  int64_t wanted = std::min<int64_t>(int64_t(8) * sms / (heads / group), (length + 31) / 32);
  int splits = int(std::clamp<int64_t>(wanted, 1, fast::Attention::maxSplits));
  reserve(op.getResult());
  if (op.getLse())
    reserve(op.getLse());
  size_t partial = reserve(size_t(splits) * heads * dim * sizeof(float));
  size_t state = reserve(size_t(splits) * heads * 2 * sizeof(float));
  std::function<fast::Attention(const Binding &)> fill = [=](const Binding &b) mutable {
    const cfc_tensor &cache = b.cache(op.getCache());
    fast::Attention a = {};
    a.q = b.values(op.getQ());
    a.result = b.values(op.getResult());
    a.lse = op.getLse() ? static_cast<float *>(b.data(op.getLse())) : nullptr;
    a.k = static_cast<const char *>(cache.k);
    a.v = static_cast<const char *>(cache.v);
    a.strideHead = cache.stride_head;
    a.strideToken = cache.stride_token;
    if (attn::KvAppendOp append = op.getAppend())
      a.slot = static_cast<const long long *>(b.tensor(append.getSlot()).data);
    a.capacity = cache.capacity;
    a.length = static_cast<const int *>(b.tensor(op.getLen()).data);
    a.partial = reinterpret_cast<float *>(b.workspace + partial);
    a.state = reinterpret_cast<float *>(b.workspace + state);
    a.bound = int(std::min(op.getLen().getType().getCapacity(), cache.capacity));
    a.splits = splits;
    a.queryHeads = heads;
    a.group = int(op.getGroup());
    a.dim = dim;
    a.scale = float(op.getScale().convertToDouble());
    return a;
  };
  std::vector<std::string> constants = {constant("CACHE", kindOf(type.getElementType())),
                                        constant("GROUP", group),
                                        constant("LANES", std::bit_ceil(unsigned(dim) / 8))};
  addStep({"fast_attention.cu", "fast_attention", constants},
          {unsigned(splits), unsigned(heads / group), fast::Attention::threads}, fill);
  if (splits > 1)
    addStep({"fast_attention.cu", "fast_attention_merge", constants},
            {unsigned(heads), 1, fast::Attention::threads}, fill);
}

void BaselineChain::add(attn::AddOp op) {
  reserve(op.getResult());
  addStep<fast::Add>(
      {"fast_add.cu", "fast_add", {}}, threadsFor(columnsOf(op.getResult())), [op](const Binding &b) mutable {
        return fast::Add{b.values(op.getLhs()), b.values(op.getRhs()), b.values(op.getResult()),
                         columnsOf(op.getResult()), float(op.getFactor())};
      });
}

//===----------------------------------------------------------------------===//
// Chain
//===----------------------------------------------------------------------===//

/// The chain is plain attention as it is used most.
static void refuseVariants(Operation *op) {
  auto refuse = [](const char *what) { cannotRun("", "the baseline has no {}", what); };
  if (auto attention = dyn_cast<attn::AttentionOp>(op))
    if (attention.getWindow() || attention.getSoftcap() || attention.getSinks() || attention.getKScale() ||
        attention.hasBias())
      refuse("windows, softcaps, sinks, scales or biases of attention");
  if (auto norm = dyn_cast<attn::RmsNormOp>(op); norm && (norm.isGrouped() || norm.getOffsetValue() != 0))
    refuse("norms by head or with an offset");
  if (isa<attn::LayerNormOp>(op))
    refuse("layer_norm");
  if (auto rope = dyn_cast<attn::RopeOp>(op); rope && rope.getHeadSize() != rope.getRotatedDim())
    refuse("rotations of a part of a head");
}

BaselineChain::BaselineChain(attn::GraphOp graph, DeviceKernels &kernels, int64_t length, int sms)
    : kernels(kernels), length(length), sms(sms) {
  for (const TensorInfo &tensor : tensorsOf(graph))
    names[tensor.value] = tensor.name;
  for (Operation &op : graph.getBody().front()) {
    for (Value result : op.getResults())
      if (auto type = dyn_cast<RankedTensorType>(result.getType());
          type && !isa<attn::RopeTableOp>(op) && type.getDimSize(0) != 1)
        cannotRun("", "the baseline runs one request, not {}", type.getDimSize(0));
    refuseVariants(&op);
    TypeSwitch<Operation *>(&op)
        .Case<attn::RmsNormOp, attn::LinearOp, attn::RopeOp, attn::KvAppendOp, attn::AttentionOp,
              attn::AddOp>([&](auto known) { add(known); })
        .Case<attn::ReturnOp, attn::RopeTableOp>([](auto) {})
        .Default([](Operation *other) {
          internalError("the baseline has no kernel for {}", other->getName().getStringRef().str());
        });
  }
}

std::vector<std::string> BaselineChain::kernelNames() const {
  std::vector<std::string> result;
  for (const Step &step : steps)
    result.push_back(step.kernel.name);
  return result;
}

void BaselineChain::launch(const std::vector<cfc_tensor> &tensors, void *workspace, CUstream stream) const {
  Binding binding = {*this, {}, static_cast<char *>(workspace)};
  for (const cfc_tensor &tensor : tensors)
    binding.tensors[tensor.name] = &tensor;
  for (const Step &step : steps)
    step.put(step, binding, stream);
}
