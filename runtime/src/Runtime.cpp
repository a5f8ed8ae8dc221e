//===- Runtime.cpp - The C interface ----------------------------------------===//
//
// Each function checks its pointers and structs and hands over to the classes behind; guarded() turns what
// they throw into a status. Documentation is in cfc/runtime.h.
//
//===----------------------------------------------------------------------===//
#include "cfc/runtime.h"
#include "dialects/attn/Elements.h"
#include "runtime/src/Binding.h"
#include "runtime/src/UserStruct.h"

using namespace cfc::runtime;

static void need(const void *pointer, const char *function, const char *what) {
  if (!pointer)
    fail(CFC_INVALID_ARGUMENT, "{}: {} is null", function, what);
}

static std::string_view graphName(const char *graph) { return graph ? graph : ""; }

uint32_t cfc_runtime_version(void) { return CFC_RUNTIME_VERSION; }

const char *cfc_last_error(void) { return lastError(); }

const char *cfc_status_name(cfc_status status) {
  switch (status) {
#define CFC_NAME(value)                                                                                      \
  case value:                                                                                                \
    return #value;
    CFC_NAME(CFC_OK)
    CFC_NAME(CFC_INVALID_ARGUMENT)
    CFC_NAME(CFC_INVALID_BUNDLE)
    CFC_NAME(CFC_FILE_ERROR)
    CFC_NAME(CFC_UNSUPPORTED_VERSION)
    CFC_NAME(CFC_UNSUPPORTED_DEVICE)
    CFC_NAME(CFC_NO_DEVICE)
    CFC_NAME(CFC_UNSUPPORTED_SIZE)
    CFC_NAME(CFC_DRIVER_ERROR)
    CFC_NAME(CFC_OUT_OF_MEMORY)
    CFC_NAME(CFC_INTERNAL_ERROR)
#undef CFC_NAME
  }
  return "unknown";
}

//===----------------------------------------------------------------------===//
// Bundles
//===----------------------------------------------------------------------===//

static Bundle loadFrom(const char *path, const cfc_load_options &options) {
  ReadOptions read;
  read.checkDigests = !(options.flags & CFC_LOAD_NO_DIGESTS);
  if (!options.memory && options.memory_bytes != 0)
    fail(CFC_INVALID_ARGUMENT, "cfc_load: memory is null but memory_bytes is {}", options.memory_bytes);
  if (options.memory)
    return parseBundle(std::string(static_cast<const char *>(options.memory), options.memory_bytes),
                       path ? path : "bundle in memory", read);
  need(path, "cfc_load", "path");
  return loadBundle(path, read);
}

cfc_status cfc_load(const char *path, const cfc_load_options *options, cfc_bundle **bundle) {
  return guarded([&] {
    need(bundle, "cfc_load", "bundle");
    cfc_load_options read = readOptionalStruct(options, "cfc_load_options");
    checkFlags(read.flags, CFC_LOAD_NO_DIGESTS, "cfc_load_options");
    *bundle = new cfc_bundle{std::make_shared<const LoadedBundle>(loadFrom(path, read))};
  });
}

void cfc_unload(cfc_bundle *bundle) {
  guarded([&] { delete bundle; });
}

cfc_status cfc_bundle_manifest(const cfc_bundle *bundle, const char **json) {
  return guarded([&] {
    need(bundle, "cfc_bundle_manifest", "bundle");
    need(json, "cfc_bundle_manifest", "json");
    *json = bundle->loaded->manifestText.c_str();
  });
}

/// The longest length that a graph was compiled for, and has positions for; nothing where it has no lengths.
static std::optional<int64_t> lengthBound(const GraphSpec &graph) {
  std::optional<int64_t> bound;
  for (const TensorSpec &tensor : graph.tensors)
    if (tensor.bound)
      bound = std::min(bound.value_or(INT64_MAX), *tensor.bound);
  return bound;
}

/// What a graph serves less of than the limits ask for; "" where it serves all.
static std::string tooMuch(const GraphSpec &graph, const cfc_limits &limits) {
  if (limits.max_batch > graph.batch)
    return fmt::format("max_batch is {}, the graph serves {}", limits.max_batch, graph.batch);
  std::optional<int64_t> bound = lengthBound(graph);
  if (bound && limits.max_length > uint64_t(*bound))
    return fmt::format("max_length is {}, the graph's bound is {}", limits.max_length, *bound);
  return "";
}

cfc_status cfc_graph_for(const cfc_bundle *bundle, const cfc_limits *limits, const char **graph) {
  return guarded([&] {
    need(bundle, "cfc_graph_for", "bundle");
    need(graph, "cfc_graph_for", "graph");
    cfc_limits read = readOptionalStruct(limits, "cfc_limits");
    const GraphSpec *best = nullptr, *largest = nullptr;
    for (const GraphSpec &spec : bundle->loaded->bundle.manifest.graphs) {
      if (tooMuch(spec, read).empty() && (!best || spec.batch < best->batch))
        best = &spec;
      if (!largest || spec.batch > largest->batch)
        largest = &spec;
    }
    if (!best)
      fail(CFC_UNSUPPORTED_SIZE, "graph '{}', the bundle's largest: {}", largest->name,
           tooMuch(*largest, read));
    *graph = best->name.c_str();
  });
}

cfc_status cfc_workspace_size(const cfc_bundle *bundle, const char *graph, const cfc_limits *limits,
                              size_t *bytes, size_t *align) {
  return guarded([&] {
    need(bundle, "cfc_workspace_size", "bundle");
    need(bytes, "cfc_workspace_size", "bytes");
    cfc_limits read = readOptionalStruct(limits, "cfc_limits");
    const Bundle &loaded = bundle->loaded->bundle;
    const GraphSpec *only = graph ? &loaded.graph(graph) : nullptr;
    WorkspaceSpec most;
    bool served = false;
    std::string why;
    for (const GraphSpec &spec : loaded.manifest.graphs) {
      if (only && only != &spec)
        continue;
      std::string lack = tooMuch(spec, read);
      served |= lack.empty();
      why = lack.empty() ? why : fmt::format("graph '{}': {}", spec.name, lack);
      most.bytes = std::max(most.bytes, spec.workspace.bytes);
      most.align = std::max(most.align, spec.workspace.align);
    }
    if (!served)
      fail(CFC_UNSUPPORTED_SIZE, "{}", why);
    *bytes = most.bytes;
    if (align)
      *align = most.align;
  });
}

/// A table of rotations in its own type.
static void fillRope(const TensorSpec &table, char *data) {
  cfc::ElementKind kind = *cfc::parseElementKind(name(table.dtype));
  uint64_t size = elementBytes(table.dtype);
  std::vector<double> frequencies = cfc::ropeFrequencies(*table.rope);
  for (int64_t position = 0; position < table.shape[0]; ++position, data += table.shape[1] * int64_t(size))
    cfc::ropeRow(*table.rope, frequencies, position,
                 [&](int64_t i, double value) { cfc::fromDouble(kind, value, data + i * int64_t(size)); });
}

cfc_status cfc_generate(const cfc_bundle *bundle, const char *graph, const char *tensor, void *data,
                        uint64_t bytes) {
  return guarded([&] {
    need(bundle, "cfc_generate", "bundle");
    need(tensor, "cfc_generate", "tensor");
    need(data, "cfc_generate", "data");
    const GraphSpec &spec = bundle->loaded->bundle.graph(graphName(graph));
    const TensorSpec &found = spec.tensors[findTensor(spec, tensor, 0)];
    if (!found.rope)
      fail(CFC_INVALID_ARGUMENT, "graph '{}': the values of tensor '{}' do not follow from the graph",
           spec.name, tensor);
    if (bytes != rowOrTensorBytes(found))
      fail(CFC_INVALID_ARGUMENT, "graph '{}': tensor '{}' has {} bytes, not {}", spec.name, tensor,
           rowOrTensorBytes(found), bytes);
    fillRope(found, static_cast<char *>(data));
  });
}

//===----------------------------------------------------------------------===//
// Bindings
//===----------------------------------------------------------------------===//

cfc_status cfc_bind(const cfc_bundle *bundle, const char *graph, const cfc_tensor *tensors, size_t count,
                    const cfc_bind_options *options, cfc_binding **binding) {
  return guarded([&] {
    need(bundle, "cfc_bind", "bundle");
    need(binding, "cfc_bind", "binding");
    cfc_bind_options read = readOptionalStruct(options, "cfc_bind_options");
    checkFlags(read.flags, CFC_BIND_DEVICE, "cfc_bind_options");
    const GraphSpec &spec = bundle->loaded->bundle.graph(graphName(graph));
    std::vector<BoundTensor> bound;
    for (std::optional<BoundTensor> &tensor : checkTensors(spec, tensors, count, /*all=*/true))
      bound.push_back(*tensor);
    checkOverlap(spec, bound);
    ContextModules &modules = bundle->loaded->modulesFor(read);
    ContextScope scope(modules.context);
    checkPlace(spec, bound, modules.device);
    auto made = std::make_unique<cfc_binding>(bundle->loaded, spec, modules);
    made->tensors = std::move(bound);
    made->variants = prepareVariants(bundle->loaded->bundle, spec, modules, read);
    made->createTable();
    *binding = made.release();
  });
}

cfc_status cfc_rebind(cfc_binding *binding, const cfc_tensor *tensors, size_t count, CUstream stream) {
  return guarded([&] {
    need(binding, "cfc_rebind", "binding");
    binding->rebind(tensors, count, stream);
  });
}

void cfc_unbind(cfc_binding *binding) {
  guarded([&] { delete binding; });
}

static LaunchHints hintsOf(const cfc_launch_args &args) {
  return {args.length_hint, args.batch_hint, args.max_sms};
}

cfc_status cfc_variant_for(const cfc_binding *binding, const cfc_launch_args *args, const char **plan_hash) {
  return guarded([&] {
    need(binding, "cfc_variant_for", "binding");
    need(plan_hash, "cfc_variant_for", "plan_hash");
    LaunchHints hints = hintsOf(readOptionalStruct(args, "cfc_launch_args"));
    *plan_hash = chooseVariant(binding->variants, hints).spec->planHash.c_str();
  });
}

cfc_status cfc_kernel_count(const cfc_binding *binding, size_t *count) {
  return guarded([&] {
    need(binding, "cfc_kernel_count", "binding");
    need(count, "cfc_kernel_count", "count");
    *count = chooseVariant(binding->variants, {}).kernels.size();
  });
}

cfc_status cfc_kernel_info_get(const cfc_binding *binding, size_t index, cfc_kernel_info *info) {
  return guarded([&] {
    need(binding, "cfc_kernel_info_get", "binding");
    need(info, "cfc_kernel_info_get", "info");
    checkSize<cfc_kernel_info>(info, "cfc_kernel_info");
    const VariantLaunch &variant = chooseVariant(binding->variants, {});
    if (index >= variant.kernels.size())
      fail(CFC_INVALID_ARGUMENT, "cfc_kernel_info_get: kernel {} of {}", index, variant.kernels.size());
    const KernelLaunch &kernel = variant.kernels[index];
    cfc_kernel_info filled{};
    filled.name = kernel.spec->name.c_str();
    filled.plan_hash = variant.spec->planHash.c_str();
    filled.grid = kernel.clusters(0) * kernel.spec->cluster;
    filled.cluster = kernel.spec->cluster;
    filled.threads = kernel.spec->threads;
    filled.shared_bytes = kernel.spec->sharedBytes;
    filled.clusters = kernel.spec->clusters;
    filled.resident_clusters = kernel.resident;
    writeStruct(info, filled);
  });
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

cfc_status cfc_workspace_init(void *workspace, size_t bytes, CUstream stream) {
  return guarded([&] {
    if (bytes == 0)
      return;
    need(workspace, "cfc_workspace_init", "workspace");
    CUcontext context = nullptr;
    std::optional<ContextScope> scope; // the stream's context need not be the current one
    if (stream && driver().cuStreamGetCtx(stream, &context) == kCudaSuccess)
      scope.emplace(context);
    CUdeviceptr address = reinterpret_cast<uintptr_t>(workspace);
    check(driver().cuMemsetD8Async(address, 0, bytes, stream), "clearing the workspace");
  });
}

static CUdeviceptr checkWorkspace(const GraphSpec &graph, const cfc_launch_args &args) {
  const WorkspaceSpec &spec = graph.workspace;
  CUdeviceptr address = reinterpret_cast<uintptr_t>(args.workspace);
  if (spec.bytes == 0)
    return address;
  if (!address)
    fail(CFC_INVALID_ARGUMENT, "graph '{}': the workspace is null, {} bytes are needed", graph.name,
         spec.bytes);
  if (address % spec.align != 0)
    fail(CFC_INVALID_ARGUMENT, "graph '{}': the workspace {:#x} is not aligned to {} bytes", graph.name,
         address, spec.align);
  if (args.workspace_bytes < spec.bytes)
    fail(CFC_INVALID_ARGUMENT, "graph '{}': the workspace has {} bytes, {} are needed", graph.name,
         args.workspace_bytes, spec.bytes);
  return address;
}

cfc_status cfc_launch(const cfc_binding *binding, const cfc_launch_args *args, CUstream stream) {
  return guarded([&] {
    need(binding, "cfc_launch", "binding");
    cfc_launch_args read = readOptionalStruct(args, "cfc_launch_args");
    binding->launch(checkWorkspace(binding->graph, read), hintsOf(read), stream);
  });
}

cfc_status cfc_device_status_get(const cfc_binding *binding, CUstream stream, cfc_device_status *status) {
  return guarded([&] {
    need(binding, "cfc_device_status_get", "binding");
    need(status, "cfc_device_status_get", "status");
    cfc_device_status read = readStruct<cfc_device_status>(status, "cfc_device_status");
    checkFlags(read.flags, CFC_DEVICE_STATUS_CLEAR, "cfc_device_status");
    read.bits = binding->status(stream, read.flags & CFC_DEVICE_STATUS_CLEAR);
    writeStruct(status, read);
  });
}
