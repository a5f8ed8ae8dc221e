//===- DeviceReference.cpp - What a graph means, a second time -------------===//
#include "tools/lib/DeviceReference.h"
#include "dialects/attn/BiasProgram.h"
#include "dialects/attn/ReferenceMath.h"
#include "mlir/IR/BuiltinTypes.h"
#include "tools/lib/Failure.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace cfc;
using namespace mlir;
namespace ref = cfc_reference;

/// As templates/device/element.h counts the kinds.
static int kindOf(Type element) { return int(attn::elementKind(element)); }
static constexpr int kindF64 = 16;

static int64_t rowsOf(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(0); }
static int64_t columnsOf(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(1); }

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Memory that is kept for the next case, as long as its size stays the same.
void *DeviceReference::buffer(const std::string &name, int64_t bytes) {
  uintptr_t &data = buffers[fmt::format("{} of {} bytes", name, bytes)];
  if (!data)
    data = device.allocate(size_t(bytes), 256, "the reference's " + name);
  return reinterpret_cast<void *>(data);
}

double *DeviceReference::define(Value value) {
  int64_t count = cast<RankedTensorType>(value.getType()).getNumElements();
  std::string name = fmt::format("value {} %{}", values.size(), attn::getValueName(value));
  return values[value] = static_cast<double *>(buffer(name, count * int64_t(sizeof(double))));
}

const cfc_tensor &DeviceReference::argument(Value value) {
  auto it = bound.find(attn::getValueName(value));
  if (it == bound.end())
    internalError("no tensor is bound to %{}", attn::getValueName(value));
  return it->second;
}

const cfc_tensor &DeviceReference::cacheOf(Value cache) {
  while (auto append = cache.getDefiningOp<attn::KvAppendOp>())
    cache = append.getCache();
  return argument(cache);
}

ref::Elements DeviceReference::read(Value value) {
  if (auto it = values.find(value); it != values.end())
    return {it->second, kindF64};
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  return {argument(value).data, kindOf(element)};
}

std::vector<double> DeviceReference::toHost(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (auto it = values.find(value); it != values.end()) {
    std::vector<double> numbers(type.getNumElements());
    device.download(numbers.data(), reinterpret_cast<uintptr_t>(it->second), numbers.size() * sizeof(double));
    return numbers;
  }
  ElementKind kind = attn::elementKind(type.getElementType());
  std::vector<char> bytes(type.getNumElements() * elementSize(kind));
  device.download(bytes.data(), reinterpret_cast<uintptr_t>(argument(value).data), bytes.size());
  return attn::toDoubles(kind, bytes.data(), type.getNumElements());
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

template <typename Parameter>
void DeviceReference::launch(const char *file, const char *name, int64_t threads,
                             const Parameter &parameter) {
  kernels.launch({std::string(file) + ".cu", name, {}}, threadsFor(threads), &parameter, nullptr);
}

void DeviceReference::run(attn::RmsNormOp op) {
  ref::RmsNorm a = {};
  a.x = read(op.getX());
  a.gain = read(op.getGain());
  a.result = define(op.getResult());
  a.width = op.getWidth();
  a.parts = rowsOf(op.getX()) * columnsOf(op.getX()) / a.width;
  a.eps = op.getEps().convertToDouble();
  a.offset = op.getOffsetValue();
  launch("rms_norm", "rms_norm", a.parts * a.width, a);
}

void DeviceReference::run(attn::LayerNormOp op) {
  ref::LayerNorm a = {};
  a.x = read(op.getX());
  if (op.getGain())
    a.gain = read(op.getGain());
  if (op.getBias())
    a.bias = read(op.getBias());
  a.result = define(op.getResult());
  a.rows = rowsOf(op.getX());
  a.width = columnsOf(op.getX());
  a.eps = op.getEps().convertToDouble();
  launch("layer_norm", "layer_norm", a.rows * a.width, a);
}

void DeviceReference::run(attn::LinearOp op) {
  for (auto [index, result, weight] : llvm::enumerate(op.getResults(), op.getWeights())) {
    ref::Linear a = {};
    a.x = read(op.getX());
    a.weight = read(weight);
    if (!op.getBiases().empty())
      a.bias = read(op.getBiases()[index]);
    a.result = define(result);
    a.rows = rowsOf(op.getX());
    a.inputs = columnsOf(op.getX());
    a.outputs = rowsOf(weight);
    launch("linear", "linear", a.rows * a.outputs, a);
  }
}

void DeviceReference::run(attn::RopeTableOp op) {
  ref::RopeTable a = {};
  a.result = define(op.getResult());
  a.positions = op.getPositions();
  a.dim = op.getDim();
  RopeTable table = op.describe();
  a.base = table.base;
  a.scaling = int(table.scaling);
  a.factor = table.factor;
  a.originalPositions = table.originalPositions;
  a.lowFreqFactor = table.lowFreqFactor;
  a.highFreqFactor = table.highFreqFactor;
  a.betaFast = table.betaFast;
  a.betaSlow = table.betaSlow;
  a.attentionFactor = table.attentionFactor;
  a.truncate = table.truncate;
  launch("rope_table", "rope_table", a.positions * a.dim, a);
}

void DeviceReference::run(attn::RopeOp op) {
  for (auto [value, result] : llvm::zip_equal(op.getValues(), op.getResults())) {
    ref::Rope a = {};
    a.x = read(value);
    a.table = read(op.getTable());
    a.position = static_cast<const int *>(argument(op.getPos()).data);
    a.result = define(result);
    a.status = status;
    a.rows = rowsOf(value);
    a.width = columnsOf(value);
    a.dim = op.getRotatedDim();
    a.head = op.getHeadSize();
    a.positions = rowsOf(op.getTable());
    a.interleaved = op.getStyle() == attn::RopeStyle::Interleaved;
    launch("rope", "rope", a.rows * a.width, a);
  }
}

/// What the rows that an append stores are called, so that attention finds them: a graph appends to a cache
/// once.
static std::string storedName(attn::KvAppendOp op, const char *what) {
  return fmt::format("{} for %{}", what, attn::getValueName(op.getCache()));
}

/// Both scales and how many each has; both are alike in that or one of them is one for all.
std::tuple<const float *, const float *, int64_t> DeviceReference::scalesOf(Value k, Value v) {
  if (!k)
    return {nullptr, nullptr, 0};
  auto expanded = [&](Value scale, int64_t count) {
    const float *data = static_cast<const float *>(argument(scale).data);
    int64_t size = cast<RankedTensorType>(scale.getType()).getDimSize(0);
    if (size == count)
      return data;
    float only;
    device.download(&only, reinterpret_cast<uintptr_t>(data), sizeof only);
    std::vector<float> copies(size_t(count), only);
    void *to = buffer("scale for %" + attn::getValueName(scale), count * int64_t(sizeof(float)));
    device.upload(reinterpret_cast<uintptr_t>(to), copies.data(), copies.size() * sizeof(float));
    return static_cast<const float *>(to);
  };
  int64_t count = std::max(cast<RankedTensorType>(k.getType()).getDimSize(0),
                           cast<RankedTensorType>(v.getType()).getDimSize(0));
  return {expanded(k, count), expanded(v, count), count};
}

/// Positions that a request may have in an attention.
static int64_t keysOf(attn::AttentionOp op, int64_t bound) {
  return bound + (op.getQueries() ? rowsOf(op.getQ()) : 1);
}

/// Whose row it is, by the host.
attn::QueryRow DeviceReference::placeOf(Value starts, int64_t rows, int64_t row) {
  if (!starts)
    return {row, row, 1, 0};
  return attn::queryRow(toHost(starts), rows, row);
}

/// The bias of every score, by the host.
const double *DeviceReference::biasOf(attn::AttentionOp op, int64_t bound) {
  if (!op.hasBias())
    return nullptr;
  llvm::DenseMap<Value, std::vector<double>> tensors;
  for (Value value : attn::operandsOf(op))
    if (auto type = dyn_cast<RankedTensorType>(value.getType()); type && type.getRank() == 1)
      tensors[value] = toHost(value);
  attn::BiasProgram program(op, [&](Value tensor, int64_t index) {
    const std::vector<double> &values = tensors.find(tensor)->second;
    return index >= 0 && index < int64_t(values.size()) ? values[size_t(index)]
                                                        : std::numeric_limits<double>::quiet_NaN();
  });
  std::vector<int32_t> lengths(size_t(op.getLen().getType().getCount()));
  device.download(lengths.data(), reinterpret_cast<uintptr_t>(argument(op.getLen()).data),
                  lengths.size() * sizeof(int32_t));
  int64_t heads = op.getQueryHeads(), rows = rowsOf(op.getQ()), keys = keysOf(op, bound);
  std::vector<double> bias(size_t(rows * heads * keys));
  for (int64_t row = 0; row < rows; ++row) {
    attn::QueryRow place = placeOf(op.getQueries(), rows, row);
    if (place.request < 0)
      continue;
    int64_t cached = std::clamp<int64_t>(lengths[size_t(place.request)], 0, bound);
    int64_t query = cached - (op.getAppend() ? 0 : place.count) + place.index;
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t key = 0; key < std::min(cached + place.count, keys); ++key)
        bias[size_t((row * heads + head) * keys + key)] = program(head, query, key);
  }
  void *to = buffer(fmt::format("bias for value {}", values.size()), int64_t(bias.size() * sizeof(double)));
  device.upload(reinterpret_cast<uintptr_t>(to), bias.data(), bias.size() * sizeof(double));
  return static_cast<const double *>(to);
}

/// First rows of requests, or null, and how many there are.
std::pair<const int *, int64_t> DeviceReference::startsOf(Value starts) {
  if (!starts)
    return {nullptr, 0};
  int64_t elements = cast<RankedTensorType>(starts.getType()).getNumElements();
  return {static_cast<const int *>(argument(starts).data), elements - 1};
}

void DeviceReference::run(attn::KvAppendOp op) {
  attn::KvCacheType type = op.getCache().getType();
  ElementKind kind = attn::elementKind(type.getElementType());
  int64_t size = int64_t(elementSize(kind));
  const cfc_tensor &cache = cacheOf(op.getCache());
  ref::KvAppend a = {};
  a.k = read(op.getK());
  a.v = read(op.getV());
  a.slot = static_cast<const long long *>(argument(op.getSlot()).data);
  a.rows = rowsOf(op.getK());
  std::tie(a.starts, a.requests) = startsOf(op.getQueries());
  a.kWidth = type.getKWidth();
  a.vWidth = type.getVWidth();
  a.dim = type.getDim();
  a.vDim = type.getVDim();
  std::tie(a.kScale, a.vScale, a.scales) = scalesOf(op.getKScale(), op.getVScale());
  a.storedK = buffer(storedName(op, "k"), a.rows * a.kWidth * size);
  a.storedV = buffer(storedName(op, "v"), a.rows * a.vWidth * size);
  a.usedSlot = static_cast<long long *>(buffer(storedName(op, "slot"), a.rows * int64_t(sizeof(long long))));
  a.status = status;
  a.slots = type.isPaged() ? cache.blocks * type.getPage() : cache.capacity;
  a.cacheKind = int(kind);
  launch("kv_append", "kv_append", a.rows * std::max(a.kWidth, a.vWidth), a);
}

/// K and V of a cache that is bound. Its strides are all given: whoever binds for a reference leaves none to
/// be derived.
static std::pair<ref::CacheRows, ref::CacheRows> rowsOfCache(attn::KvCacheType type,
                                                             const cfc_tensor &cache) {
  auto rows = [](void *base, int64_t head, int64_t token, int64_t block) {
    return ref::CacheRows{static_cast<const char *>(base), head, token, block};
  };
  ref::CacheRows k = rows(cache.k, cache.stride_head, cache.stride_token, cache.stride_block), v = k;
  v.base = static_cast<const char *>(cache.v);
  if (type.getVDim() != type.getDim())
    v = rows(cache.v, cache.v_stride_head, cache.v_stride_token, cache.v_stride_block);
  return {k, v};
}

void DeviceReference::run(attn::AttentionOp op) {
  attn::KvCacheType type = op.getCache().getType();
  ElementKind kind = attn::elementKind(type.getElementType());
  const cfc_tensor &cache = cacheOf(op.getCache());
  ref::Attention a = {};
  a.q = read(op.getQ());
  std::tie(a.k, a.v) = rowsOfCache(type, cache);
  a.cacheKind = int(kind);
  a.rows = rowsOf(op.getQ());
  std::tie(a.starts, a.requests) = startsOf(op.getQueries());
  if (Value mask = op.getMask())
    a.mask = static_cast<const long long *>(argument(mask).data);
  if (attn::KvAppendOp append = op.getAppend()) {
    int64_t size = int64_t(elementSize(kind));
    a.newK = buffer(storedName(append, "k"), a.rows * type.getKWidth() * size);
    a.newV = buffer(storedName(append, "v"), a.rows * type.getVWidth() * size);
    a.slot = static_cast<const long long *>(
        buffer(storedName(append, "slot"), a.rows * int64_t(sizeof(long long))));
  }
  a.length = static_cast<const int *>(argument(op.getLen()).data);
  int64_t capacity = cache.capacity;
  if (Value pages = op.getPages()) {
    a.pages = static_cast<const int *>(argument(pages).data);
    a.page = type.getPage();
    a.tablePages = columnsOf(pages);
    a.blocks = cache.blocks;
    capacity = a.page * a.tablePages;
  }
  a.status = status;
  a.queryHeads = op.getQueryHeads();
  a.kvHeads = type.getHeads();
  a.dim = type.getDim();
  a.vDim = type.getVDim();
  a.bound = std::min(op.getLen().getType().getCapacity(), capacity);
  a.keys = keysOf(op, a.bound);
  a.scale = op.getScale().convertToDouble();
  a.window = op.getWindow().value_or(0);
  a.softcap = op.getSoftcap() ? op.getSoftcap()->convertToDouble() : 0;
  if (op.getSinks())
    a.sinks = read(op.getSinks());
  std::tie(a.kScale, a.vScale, a.scales) = scalesOf(op.getKScale(), op.getVScale());
  a.bias = biasOf(op, a.bound);
  a.result = define(op.getResult());
  int64_t queries = a.rows * a.queryHeads, scores = queries * a.keys;
  std::string name = fmt::format("value {}", values.size());
  a.weights = static_cast<double *>(buffer("weights for " + name, scores * int64_t(sizeof(double))));
  a.lse = op.getLse() ? define(op.getLse())
                      : static_cast<double *>(buffer("lse for " + name, queries * int64_t(sizeof(double))));
  launch("attention", "attention_scores", scores, a);
  launch("attention", "attention_softmax", queries, a);
  launch("attention", "attention_values", queries * a.vDim, a);
}

void DeviceReference::run(attn::AddOp op) {
  ref::Add a = {};
  a.lhs = read(op.getLhs());
  a.rhs = read(op.getRhs());
  a.result = define(op.getResult());
  a.count = rowsOf(op.getResult()) * columnsOf(op.getResult());
  a.scale = op.getFactor();
  launch("add", "add", a.count, a);
}

//===----------------------------------------------------------------------===//
// Graph
//===----------------------------------------------------------------------===//

/// Divides rows of `heads` heads by their scales, as the cache stores them.
void DeviceReference::divide(std::vector<double> &rows, Value scale, int64_t heads, int64_t dim) {
  if (!scale)
    return;
  std::vector<double> scales = toHost(scale);
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] /= scales[scales.size() == 1 ? 0 : i / size_t(dim) % size_t(heads)];
}

void DeviceReference::putStored(attn::KvAppendOp op, llvm::ArrayRef<attn::AppendedRow> stored) {
  std::vector<uint8_t> k, v;
  for (const attn::AppendedRow &row : stored)
    if (row.op == op) {
      k.insert(k.end(), row.kBytes.begin(), row.kBytes.end());
      v.insert(v.end(), row.vBytes.begin(), row.vBytes.end());
    }
  kernels.wait(nullptr);
  for (auto [what, bytes] : {std::pair("k", &k), std::pair("v", &v)})
    if (!bytes->empty())
      device.upload(reinterpret_cast<uintptr_t>(buffer(storedName(op, what), int64_t(bytes->size()))),
                    bytes->data(), bytes->size());
}

void DeviceReference::getAppended(attn::KvAppendOp op, attn::ReferenceResult &result) {
  attn::KvCacheType type = op.getCache().getType();
  size_t rows = size_t(rowsOf(op.getK())), size = elementSize(attn::elementKind(type.getElementType()));
  size_t kBytes = size_t(type.getKWidth()) * size, vBytes = size_t(type.getVWidth()) * size;
  auto get = [&](const char *what, size_t bytes) {
    std::vector<uint8_t> data(bytes);
    device.download(data.data(), reinterpret_cast<uintptr_t>(buffer(storedName(op, what), int64_t(bytes))),
                    bytes);
    return data;
  };
  std::vector<uint8_t> slots = get("slot", rows * sizeof(int64_t));
  std::vector<uint8_t> storedK = get("k", rows * kBytes), storedV = get("v", rows * vBytes);
  std::vector<double> k = toHost(op.getK()), v = toHost(op.getV());
  divide(k, op.getKScale(), type.getHeads(), type.getDim());
  divide(v, op.getVScale(), type.getHeads(), type.getVDim());
  auto slice = [](const auto &all, size_t row, size_t width) {
    return std::decay_t<decltype(all)>(all.begin() + int64_t(row * width),
                                       all.begin() + int64_t((row + 1) * width));
  };
  for (size_t row = 0; row < rows; ++row) {
    attn::AppendedRow &one = result.appended.emplace_back();
    one.op = op;
    one.row = int64_t(row);
    one.request = placeOf(op.getQueries(), int64_t(rows), one.row).request;
    one.cache = attn::getValueName(op.getCache());
    one.slot = loadAs<int64_t>(slots.data() + row * sizeof(int64_t));
    one.kBytes = slice(storedK, row, kBytes);
    one.vBytes = slice(storedV, row, vBytes);
    one.k = slice(k, row, size_t(type.getKWidth()));
    one.v = slice(v, row, size_t(type.getVWidth()));
  }
}

attn::ReferenceResult DeviceReference::evaluate(const std::vector<cfc_tensor> &tensors,
                                                llvm::ArrayRef<attn::AppendedRow> stored) {
  bound.clear();
  values.clear();
  for (const cfc_tensor &tensor : tensors)
    bound[tensor.name] = tensor;
  status = static_cast<unsigned *>(buffer("status", sizeof(unsigned)));
  attn::ReferenceResult result;
  device.upload(reinterpret_cast<uintptr_t>(status), &result.status, sizeof(unsigned));
  for (Operation &op : graph.getBody().front()) {
    TypeSwitch<Operation *>(&op)
        .Case<attn::RmsNormOp, attn::LayerNormOp, attn::LinearOp, attn::RopeOp, attn::RopeTableOp,
              attn::KvAppendOp, attn::AttentionOp, attn::AddOp>([&](auto known) { run(known); })
        .Case([](attn::ReturnOp) {})
        .Default([](Operation *other) {
          internalError("no kernel of templates/device for {}", other->getName().getStringRef().str());
        });
    if (auto append = dyn_cast<attn::KvAppendOp>(op))
      putStored(append, stored);
  }
  kernels.wait(nullptr);
  for (Operation &op : graph.getBody().front()) {
    if (auto append = dyn_cast<attn::KvAppendOp>(op))
      getAppended(append, result);
    else if (!isa<attn::RopeTableOp>(op))
      for (Value value : op.getResults())
        result.values[value] = toHost(value);
  }
  for (Value value : graph.getReturn().getValues())
    result.results.push_back(toHost(value));
  device.download(&result.status, reinterpret_cast<uintptr_t>(status), sizeof(unsigned));
  return result;
}
