//===- BenchChain.cpp - A chain of layers through the C runtime -----------===//
#include "tools/lib/BenchChain.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Queries.h"
#include "tools/lib/Session.h"
#include <algorithm>
#include <cmath>

using namespace cfc;
using namespace cfc::runtime;

/// The layers' bytes exceed the L2 so many times.
static constexpr double timesL2 = 4;
static constexpr int64_t leastLayers = 8, mostLayers = 1024;
/// Share of the free memory that layers may take.
static constexpr double memoryShare = 0.9;
/// Every buffer starts at a multiple of this: more than any manifest asks for.
static constexpr size_t bufferAlign = 1024;

static void checkStatus(cfc_status status) {
  if (status != CFC_OK)
    throw cfc::Failure(Exit(CFC_EXIT_CODE(status)), "", cfc_last_error());
}

static const InputSpec *findInput(const std::vector<InputSpec> &inputs, const std::string &name) {
  for (const InputSpec &input : inputs)
    if (input.name == name)
      return &input;
  return nullptr;
}

/// A table that the graph is given or that is generated for it.
static bool isRopeTable(const InputSpec *input) {
  return input && (input->role == DataRole::RopeTable || input->rope);
}

//===----------------------------------------------------------------------===//
// What a graph says
//===----------------------------------------------------------------------===//

/// New tokens of a request at most, where they share the query tokens evenly.
static int64_t newTokensOf(const InputSpec *input) {
  return input && input->rows ? (input->rows + input->requests - 1) / input->requests : 1;
}

/// Elements of all tensors with that role.
static int64_t elementsOf(const GraphSpec &graph, const std::vector<InputSpec> &inputs, DataRole role) {
  int64_t count = 0;
  for (const TensorSpec &spec : graph.tensors) {
    const InputSpec *input = findInput(inputs, spec.name);
    if (input && input->role == role)
      count += int64_t(rowOrTensorBytes(spec) / elementBytes(spec.dtype));
  }
  return count;
}

/// The first cached token of a request that attention reads.
static int64_t firstRead(const InputSpec *input, int64_t length, bool appends) {
  return input && input->window ? std::max<int64_t>(length + appends - *input->window, 0) : 0;
}

/// Bytes of K's and V's rows that are read and written.
static double rowBytes(const TensorSpec &cache, const InputSpec *input, const RequestLengths &lengths,
                       bool reads, bool appends) {
  int64_t tokens = appends ? (input && input->rows ? input->rows : cache.requests) : 0;
  for (int64_t r = 0; reads && r < cache.requests; ++r)
    tokens += lengths.of(r) - firstRead(input, lengths.of(r), appends);
  return double(cache.heads) * double(rowOrTensorBytes(cache) + rowBytesOfV(cache)) * double(tokens);
}

/// Bytes of a block table's entries that lead to tokens that are read, and to the new ones.
static double entryBytes(const InputSpec &table, const RequestLengths &lengths, bool appends) {
  int64_t entries = 0;
  for (int64_t r = 0; r < table.requests; ++r)
    entries += (lengths.of(r) + appends + table.page - 1) / table.page -
               firstRead(&table, lengths.of(r), appends) / table.page;
  return double(entries) * double(sizeOf(table.type));
}

BlockBytes cfc::blockBytes(const GraphSpec &graph, const std::vector<InputSpec> &inputs,
                           const RequestLengths &lengths) {
  BlockBytes bytes;
  // A graph without lengths does not read its cache.
  bool reads = elementsOf(graph, inputs, DataRole::Length) > 0;
  bool appends = elementsOf(graph, inputs, DataRole::Slot) > 0;
  int64_t positions = elementsOf(graph, inputs, DataRole::Position);
  for (const TensorSpec &spec : graph.tensors) {
    const InputSpec *input = findInput(inputs, spec.name);
    // What a packed weight is padded with is no work.
    TensorSpec native = spec;
    native.layout = Layout::Native;
    double size = double(rowOrTensorBytes(native));
    if (spec.kind == TensorKind::KvCache)
      bytes.cache += rowBytes(spec, input, lengths, reads, appends);
    else if (input && input->role == DataRole::BlockTable && input->page)
      bytes.activations += entryBytes(*input, lengths, appends);
    else if (isRopeTable(input))
      bytes.activations += size / double(spec.shape[0]) * double(std::min(positions, spec.shape[0]));
    else if (spec.role == Role::Weight)
      bytes.weights += size;
    else
      bytes.activations += size;
  }
  return bytes;
}

const TensorSpec *cfc::chainedInput(const GraphSpec &graph, const std::vector<InputSpec> &inputs) {
  auto output = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                             [](const TensorSpec &spec) { return spec.role == Role::Output; });
  if (output == graph.tensors.end())
    return nullptr;
  for (const TensorSpec &spec : graph.tensors) {
    const InputSpec *input = findInput(inputs, spec.name);
    if (input && input->role == DataRole::Activation && !input->rope && spec.kind == TensorKind::Tensor &&
        spec.dtype == output->dtype && spec.shape == output->shape)
      return &spec;
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// The chain
//===----------------------------------------------------------------------===//

BenchChain::BenchChain(BenchGpu &gpu, const GraphSpec &graph, std::string_view bundle,
                       const std::vector<InputSpec> &inputs, const ChainOptions &options)
    : gpu(gpu), graph(graph), inputs(inputs), options(options) {
  for (const InputSpec &input : inputs)
    newTokens = std::max(newTokens, newTokensOf(&input));
  capacity = options.lengths.longest() + newTokens;
  cfc_load_options load = {};
  load.size = sizeof load;
  load.memory = bundle.data();
  load.memory_bytes = bundle.size();
  checkStatus(cfc_load("the compiled graph", &load, &loaded));
  try {
    size_t align = 1;
    checkStatus(cfc_workspace_size(loaded, graph.name.c_str(), nullptr, &workspaceBytes, &align));
    workspace = reinterpret_cast<void *>(allocate(workspaceBytes, "the workspace"));
    checkStatus(cfc_workspace_init(workspace, workspaceBytes, gpu.stream()));
    std::optional<BenchFiller> own;
    BenchFiller &filler = options.filler ? *options.filler : own.emplace(gpu);
    for (int64_t i = 0, n = layersFor(options); i < n; ++i)
      makeLayer(filler);
    gpu.wait("the copies that fill memory");
  } catch (...) {
    release();
    throw;
  }
}

BenchChain::~BenchChain() { release(); }

void BenchChain::release() {
  driver().cuStreamSynchronize(gpu.stream());
  for (cfc_binding *binding : bindings)
    cfc_unbind(binding);
  bindings.clear();
  cfc_unload(loaded);
  loaded = nullptr;
}

const InputSpec *BenchChain::inputOf(const std::string &name) const { return findInput(inputs, name); }

/// Whether every layer has its own: what a model has once a layer.
bool BenchChain::isOwn(const TensorSpec &spec) const {
  const InputSpec *input = inputOf(spec.name);
  return spec.kind == TensorKind::KvCache || spec.role == Role::Weight || spec.role == Role::Output ||
         (input && isOfModel(input->role));
}

/// Tokens of a cache's block, and blocks: pages of the pool, or requests.
int64_t BenchChain::tokensOf(const TensorSpec &cache) const { return cache.page ? cache.page : capacity; }

int64_t BenchChain::blocksOf(const TensorSpec &cache) const {
  return cache.page ? PagePool(options.lengths, cache.requests, cache.page, newTokens).pages()
                    : cache.requests;
}

/// Bytes of a cache's K or V, whose rows have so many.
uint64_t BenchChain::cacheBytes(const TensorSpec &cache, uint64_t row) const {
  return row * uint64_t(blocksOf(cache) * cache.heads * tokensOf(cache));
}

/// Bytes of the buffer of a tensor, or of a cache's K.
uint64_t BenchChain::bufferBytes(const TensorSpec &spec) const {
  uint64_t bytes = rowOrTensorBytes(spec);
  return spec.kind == TensorKind::KvCache ? cacheBytes(spec, bytes) : bytes;
}

/// Memory that one more layer takes.
size_t BenchChain::layerBytes() const {
  size_t bytes = 0;
  for (const TensorSpec &spec : graph.tensors)
    if (isOwn(spec)) {
      bytes += bufferBytes(spec) + bufferAlign;
      if (spec.kind == TensorKind::KvCache)
        bytes += cacheBytes(spec, rowBytesOfV(spec)) + bufferAlign;
    }
  return bytes;
}

int64_t BenchChain::layersFor(const ChainOptions &options) {
  double room = double(gpu.freeBytes()) * memoryShare, each = double(layerBytes());
  int64_t fit = int64_t(std::min(room / std::max(each, 1.0), double(mostLayers)));
  double moved = std::max(blockBytes(graph, inputs, options.lengths).total(), 1.0);
  int64_t enough = int64_t(std::ceil(timesL2 * double(gpu.l2Bytes()) / moved));
  int64_t wanted = options.layers.value_or(std::clamp(enough, leastLayers, mostLayers));
  if (fit < 1 || (options.layers && wanted > fit))
    cannotRun("", "{} layers of {:.0f} MB each need more than the {:.0f} MB that are free on GPU 0",
              std::max<int64_t>(wanted, 1), each / 1e6, room / 1e6);
  int64_t layers = std::min(wanted, fit);
  if (layers < enough)
    text = fmt::format("{} layers move {:.1f} MB, the L2 holds {:.1f} MB: parts of them may stay in it",
                       layers, double(layers) * moved / 1e6, double(gpu.l2Bytes()) / 1e6);
  return layers;
}

CUdeviceptr BenchChain::allocate(size_t bytes, const std::string &what) {
  memory.push_back(std::make_unique<GpuMemory>(bytes + bufferAlign, what));
  return (memory.back()->data() + bufferAlign - 1) / bufferAlign * bufferAlign;
}

CUdeviceptr BenchChain::filledTensor(const TensorSpec &spec, BenchFiller &filler) {
  size_t bytes = bufferBytes(spec);
  CUdeviceptr data = allocate(bytes, fmt::format("'{}'", spec.name));
  const InputSpec *input = inputOf(spec.name);
  DataRole role = input ? input->role : DataRole::Activation;
  Distribution distribution = distributionFor(role, spec.shape);
  if (spec.layout == Layout::Packed)
    packRandom(spec, data, distribution, filler);
  else
    filler.fill(data, bytes, dtypeOf(spec.dtype), distribution);
  return data;
}

cfc_tensor BenchChain::describe(const TensorSpec &spec) const {
  cfc_tensor tensor = {};
  tensor.size = sizeof tensor;
  tensor.name = spec.name.c_str();
  tensor.dtype = spec.dtype;
  tensor.bytes = bufferBytes(spec);
  if (spec.kind == TensorKind::KvCache)
    return tensor;
  tensor.rank = uint32_t(spec.shape.size());
  tensor.shape = spec.shape.data();
  tensor.layout = uint32_t(spec.layout);
  return tensor;
}

/// A packed weight is made as engines make it: padding holds zeros.
void BenchChain::packRandom(const TensorSpec &spec, CUdeviceptr to, Distribution distribution,
                            BenchFiller &filler) {
  TensorSpec native = spec;
  native.layout = Layout::Native;
  cfc_tensor weight = describe(native);
  GpuMemory unpacked(weight.bytes, fmt::format("'{}' before it is packed", spec.name));
  weight.data = unpacked.pointer();
  filler.fill(unpacked.data(), unpacked.bytes(), dtypeOf(spec.dtype), distribution);
  cfc_pack_args args = {};
  args.size = sizeof args;
  args.destination = reinterpret_cast<void *>(to);
  checkStatus(cfc_pack(loaded, graph.name.c_str(), &weight, &args, gpu.stream()));
  gpu.wait("packing"); // before its source is freed
}

/// Lengths, positions, slots and block tables of the requests; starts and masks of query tokens.
Tensor BenchChain::indices(const InputSpec &input) const {
  std::vector<double> starts;
  if (!input.queries.empty())
    starts = evenStarts(input.requests, input.rows);
  if (input.role == DataRole::Mask)
    return treesTensor(starts, input.rows, 1);
  if (input.role == DataRole::Starts)
    return startsTensor(input.type, starts);
  Tensor tensor(input.type, input.shape);
  int64_t last = INT64_MAX; // of the rope table, which serves where the table ends
  for (const InputSpec &table : inputs)
    if (isRopeTable(&table))
      last = std::min(last, table.shape[0] - 1);
  std::optional<PagePool> pool;
  if (input.page)
    pool.emplace(options.lengths, input.requests, input.page, newTokens);
  int64_t columns = input.role == DataRole::BlockTable ? input.shape.at(1) : 1;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    attn::QueryRow row =
        starts.empty() ? attn::QueryRow{i / columns, i, 1, 0} : attn::queryRow(starts, input.rows, i);
    int64_t request = row.request, column = i % columns, length = options.lengths.of(request) + row.index;
    if (input.role == DataRole::BlockTable)
      tensor.set(i, pool && column < pool->pagesOf(request) ? double(pool->at(request, column)) : 0);
    else if (input.role == DataRole::Slot && pool)
      tensor.set(i, double(pool->slot(request, length)));
    else
      tensor.set(i, double(input.role == DataRole::Position ? std::min(length, last) : length));
  }
  return tensor;
}

static bool isIndex(DataRole role) {
  return role == DataRole::Length || role == DataRole::Position || role == DataRole::Slot ||
         role == DataRole::BlockTable || role == DataRole::Starts || role == DataRole::Mask;
}

/// Indices and rope tables hold what they say; other inputs are random.
CUdeviceptr BenchChain::sharedTensor(const TensorSpec &spec, BenchFiller &filler) {
  auto [found, isNew] = shared.try_emplace(spec.name);
  if (!isNew)
    return found->second;
  const InputSpec *input = inputOf(spec.name);
  if (!input || (input->role == DataRole::Activation && !input->rope))
    return found->second = filledTensor(spec, filler);
  TensorMap made;
  if (isIndex(input->role))
    made.emplace(spec.name, indices(*input));
  else
    addRandom(made, *input, RandomOptions());
  const Tensor &tensor = made.at(spec.name);
  found->second = allocate(tensor.bytes(), fmt::format("'{}'", spec.name));
  gpu.upload(found->second, tensor.data(), tensor.bytes());
  return found->second;
}

CUdeviceptr BenchChain::filledCache(const TensorSpec &spec, uint64_t bytes, BenchFiller &filler) {
  CUdeviceptr data = allocate(bytes, fmt::format("'{}'", spec.name));
  filler.fill(data, bytes, dtypeOf(spec.dtype), distributionFor(DataRole::Cache, {}));
  return data;
}

/// V's strides follow from K's: both are dense.
cfc_tensor BenchChain::cacheTensor(const TensorSpec &spec, BenchFiller &filler) {
  cfc_tensor tensor = describe(spec);
  tensor.v_bytes = cacheBytes(spec, rowBytesOfV(spec));
  tensor.k = reinterpret_cast<void *>(filledCache(spec, tensor.bytes, filler));
  tensor.v = reinterpret_cast<void *>(filledCache(spec, tensor.v_bytes, filler));
  tensor.capacity = spec.page ? 0 : capacity;
  int64_t row = int64_t(rowOrTensorBytes(spec)), tokens = tokensOf(spec);
  tensor.stride_token = options.tokenMajor ? row * spec.heads : row;
  tensor.stride_head = options.tokenMajor ? row : row * tokens;
  if (spec.hasBlocks()) {
    tensor.blocks = blocksOf(spec);
    tensor.stride_block = row * spec.heads * tokens;
  }
  return tensor;
}

void BenchChain::makeLayer(BenchFiller &filler) {
  const TensorSpec *chained = chainedInput(graph, inputs);
  CUdeviceptr before = lastResult;
  bool first = true;
  std::vector<cfc_tensor> tensors;
  for (const TensorSpec &spec : graph.tensors) {
    if (spec.kind == TensorKind::KvCache) {
      tensors.push_back(cacheTensor(spec, filler));
      continue;
    }
    CUdeviceptr data = &spec == chained && before ? before
                       : isOwn(spec)              ? filledTensor(spec, filler)
                                                  : sharedTensor(spec, filler);
    if (spec.role == Role::Output && first)
      lastResult = data, first = false;
    tensors.push_back(describe(spec));
    tensors.back().data = reinterpret_cast<void *>(data);
  }
  if (planHash.empty()) { // the first layer finds the variant for this length; then that one alone is bound
    cfc_binding *all = bind(tensors);
    cfc_launch_args args = launchArguments();
    const char *best = nullptr;
    cfc_status status = cfc_variant_for(all, &args, &best);
    if (status == CFC_OK)
      planHash = best;
    cfc_unbind(all);
    checkStatus(status);
  }
  bindings.push_back(bind(tensors));
  bound.push_back(std::move(tensors));
}

cfc_binding *BenchChain::bind(const std::vector<cfc_tensor> &tensors) {
  cfc_bind_options bind = {};
  bind.size = sizeof bind;
  bind.plan_hash = planHash.empty() ? nullptr : planHash.c_str();
  bind.max_sms = options.maxSms;
  cfc_binding *binding = nullptr;
  checkStatus(cfc_bind(loaded, graph.name.c_str(), tensors.data(), tensors.size(), &bind, &binding));
  return binding;
}

cfc_launch_args BenchChain::launchArguments() const {
  cfc_launch_args args = {};
  args.size = sizeof args;
  args.workspace = workspace;
  args.workspace_bytes = workspaceBytes;
  args.length_hint = options.lengths.longest();
  for (const TensorSpec &spec : graph.tensors)
    if (spec.kind == TensorKind::KvCache)
      args.batch_hint = uint32_t(spec.requests);
  return args;
}

void BenchChain::launch() {
  cfc_launch_args args = launchArguments();
  for (cfc_binding *binding : bindings)
    checkStatus(cfc_launch(binding, &args, gpu.stream()));
}

std::vector<cfc_kernel_info> BenchChain::kernels() const {
  size_t count = 0;
  checkStatus(cfc_kernel_count(bindings.front(), &count));
  std::vector<cfc_kernel_info> result(count);
  for (size_t i = 0; i < count; ++i) {
    result[i].size = sizeof result[i];
    checkStatus(cfc_kernel_info_get(bindings.front(), i, &result[i]));
  }
  return result;
}

std::string BenchChain::complaint() {
  for (cfc_binding *binding : bindings) {
    cfc_device_status status = {};
    status.size = sizeof status;
    checkStatus(cfc_device_status_get(binding, gpu.stream(), &status));
    if (status.bits)
      return "a length, slot or position was out of its bound";
  }
  for (const TensorSpec &spec : graph.tensors) {
    if (spec.role != Role::Output)
      continue;
    Tensor result(dtypeOf(spec.dtype), spec.shape);
    gpu.download(result.mutableData(), lastResult, result.bytes());
    for (int64_t i = 0; i < result.elements(); ++i)
      if (!std::isfinite(result.get(i)))
        return fmt::format("the last block's {} is not finite", spec.name);
    break;
  }
  return "";
}
