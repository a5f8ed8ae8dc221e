//===- Pack.cpp - Packing weights on a device -------------------------------===//
//
// cfc_packed_bytes, cfc_pack and cfc_unpack. A weight is moved by the kernel of PackingKernel.h; where the
// driver has no compiler for it, panel by panel through host memory.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Context.h"
#include "runtime/src/Packing.h"
#include "runtime/src/PackingKernel.h"
#include "runtime/src/Tensors.h"
#include "runtime/src/UserStruct.h"
#include <algorithm>
#include <array>

using namespace cfc::runtime;

namespace {

/// What the scratch memory that a call makes for itself holds at most, unless a panel is larger.
constexpr uint64_t kOwnScratchBytes = uint64_t(64) << 20;
constexpr unsigned kThreads = 256;

/// One weight on its way.
struct Move {
  PackedLayout layout;
  bool unpack = false;
  CUdeviceptr native = 0, packed = 0; ///< the same in place
  CUstream stream = nullptr;

  CUdeviceptr from() const { return unpack ? packed : native; }
  CUdeviceptr to() const { return unpack ? native : packed; }

  /// `count` panels of 64 rows from number `first` on, as a weight of its own.
  Move panels(int64_t first, int64_t count) const {
    Move part = *this;
    int64_t row = first * PackedLayout::kBlock;
    part.layout.rows = std::min(layout.rows - row, count * PackedLayout::kBlock);
    part.native += uint64_t(row * layout.columns) * PackedLayout::kElementBytes;
    part.packed += uint64_t(first) * layout.panelBytes();
    return part;
  }
};

/// Moves a weight that does not overlap itself.
void launchMove(CUfunction kernel, const Move &move) {
  const PackedLayout &layout = move.layout;
  std::array<uint64_t, 9> values = {move.native,
                                    move.packed,
                                    uint64_t(layout.rows),
                                    uint64_t(layout.columns),
                                    uint64_t(layout.group()),
                                    uint64_t(layout.groupBlocks()),
                                    uint64_t(layout.columnBlocks()),
                                    layout.bytes() / 16,
                                    uint64_t(move.unpack)};
  std::array<void *, values.size()> parameters;
  for (size_t i = 0; i < values.size(); ++i)
    parameters[i] = &values[i];
  CUlaunchConfig config{};
  config.gridX = unsigned((layout.bytes() / 16 + kThreads - 1) / kThreads);
  config.blockX = kThreads;
  config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
  config.stream = move.stream;
  check(driver().cuLaunchKernelEx(&config, kernel, parameters.data(), nullptr), "packing a weight");
}

/// Copies some panels to `scratch` and moves them back, until all are done.
void launchInPlace(CUfunction kernel, const Move &move, CUdeviceptr scratch, uint64_t scratchBytes) {
  int64_t panels = move.layout.rowBlocks();
  int64_t step = int64_t(std::min<uint64_t>(scratchBytes / move.layout.panelBytes(), uint64_t(panels)));
  for (int64_t first = 0; first < panels; first += step) {
    Move part = move.panels(first, step);
    check(driver().cuMemcpyDtoDAsync(scratch, part.from(), part.layout.bytes(), move.stream),
          "copying a part of a weight");
    (move.unpack ? part.packed : part.native) = scratch;
    launchMove(kernel, part);
  }
}

/// Device memory that lives until the stream has used it.
class OwnScratch {
public:
  OwnScratch(uint64_t bytes, CUstream stream) : stream(stream) {
    check(driver().cuMemAlloc(&memory, bytes), fmt::format("allocating {} bytes to pack in place", bytes));
  }
  ~OwnScratch() {
    driver().cuStreamSynchronize(stream);
    driver().cuMemFree(memory);
  }
  OwnScratch(const OwnScratch &) = delete;
  CUdeviceptr memory = 0;

private:
  CUstream stream;
};

/// A whole panel is read before it is written, so this works in place too.
void moveThroughHost(const Move &move) {
  const Driver &cuda = driver();
  std::vector<char> native, packed;
  for (int64_t panel = 0; panel < move.layout.rowBlocks(); ++panel) {
    Move part = move.panels(panel, 1);
    native.resize(part.layout.nativeBytes());
    packed.resize(part.layout.bytes());
    std::vector<char> &from = move.unpack ? packed : native, &to = move.unpack ? native : packed;
    check(cuda.cuMemcpyDtoHAsync(from.data(), part.from(), from.size(), move.stream), "reading a weight");
    check(cuda.cuStreamSynchronize(move.stream), "reading a weight");
    (move.unpack ? unpack : pack)(part.layout, from.data(), to.data());
    check(cuda.cuMemcpyHtoDAsync(part.to(), to.data(), to.size(), move.stream), "writing a weight");
    check(cuda.cuStreamSynchronize(move.stream), "writing a weight");
  }
}

//===----------------------------------------------------------------------===//
// What the caller asked for
//===----------------------------------------------------------------------===//

/// A call of cfc_pack or cfc_unpack, checked as far as that needs no device.
struct Request {
  Move move;
  bool inPlace = false;
  CUdeviceptr scratch = 0; ///< 0: the call's own, if one is needed
  uint64_t scratchBytes = 0;
  /// The memory that it uses, as checkOverlap and checkPlace take it: the weight, the destination, the
  /// scratch.
  GraphSpec graph;
  std::vector<BoundTensor> places;
};

template <class... Args>
[[noreturn]] void wrong(const Request &request, fmt::format_string<Args...> text, Args &&...args) {
  fail(CFC_INVALID_ARGUMENT, "graph '{}', tensor '{}': {}", request.graph.name, request.graph.tensors[0].name,
       fmt::format(text, std::forward<Args>(args)...));
}

/// The spec of the weight as it is before the call (or after it).
TensorSpec sideOf(TensorSpec spec, bool packed) {
  if (packed)
    return spec;
  spec.layout = Layout::Native;
  spec.align = PackedLayout::kElementBytes; // it lies where a checkpoint's loader has put it
  return spec;
}

/// Adds memory that may overlap no other of the request's.
void addPlace(Request &request, TensorSpec spec, const char *what, BoundTensor place) {
  spec.name += fmt::format(" ({})", what);
  spec.role = Role::Output;
  request.graph.tensors.push_back(spec);
  request.places.push_back(place);
}

void readDestination(Request &request, const TensorSpec &weight, const cfc_tensor &given,
                     const cfc_pack_args &args) {
  const PackedLayout &layout = request.move.layout;
  bool unpacking = request.move.unpack;
  request.inPlace = !args.destination || args.destination == given.data;
  if (request.inPlace && !layout.exact())
    wrong(request, "it cannot be {} in place: packed it has {} bytes, native {}; give it another destination",
          unpacking ? "unpacked" : "packed", layout.bytes(), layout.nativeBytes());
  // In place too, the weight must lie as either layout wants it.
  cfc_tensor target = given;
  target.layout = unpacking ? CFC_LAYOUT_NATIVE : CFC_LAYOUT_PACKED;
  if (!request.inPlace) {
    target.data = args.destination;
    target.bytes = args.destination_bytes;
  }
  GraphSpec only{.name = request.graph.name, .tensors = {sideOf(weight, !unpacking)}};
  BoundTensor place = *checkTensors(only, &target, 1, /*all=*/true).front();
  if (!request.inPlace)
    addPlace(request, only.tensors[0], "destination", place);
  CUdeviceptr from = request.places[0].data;
  request.move.native = unpacking ? place.data : from;
  request.move.packed = unpacking ? from : place.data;
}

void readScratch(Request &request, const TensorSpec &weight, const cfc_pack_args &args) {
  if (!request.inPlace || !args.scratch)
    return;
  const PackedLayout &layout = request.move.layout;
  request.scratch = reinterpret_cast<uintptr_t>(args.scratch);
  request.scratchBytes = std::min(args.scratch_bytes, layout.bytes());
  if (request.scratchBytes < layout.panelBytes())
    wrong(request, "scratch has {} bytes, {} are needed", args.scratch_bytes, layout.panelBytes());
  if (request.scratch % 16 != 0 || request.scratch > UINT64_MAX - request.scratchBytes)
    wrong(request, "scratch {:#x} is not an address aligned to 16 bytes", request.scratch);
  addPlace(request, weight, "scratch", {.data = request.scratch, .extent = request.scratchBytes});
}

Request readRequest(const GraphSpec &graph, const cfc_tensor *weight, const cfc_pack_args *args,
                    bool unpacking) {
  cfc_tensor given = readStruct<cfc_tensor>(weight, "cfc_tensor");
  given.size = sizeof given;
  cfc_pack_args read = readOptionalStruct(args, "cfc_pack_args");
  const TensorSpec &spec = graph.tensors[findTensor(graph, given.name, 0)];
  Request request;
  request.move.unpack = unpacking;
  request.graph.name = graph.name;
  request.graph.tensors = {sideOf(spec, unpacking)};
  if (spec.layout != Layout::Packed)
    wrong(request, "its kernels read it in native layout: there is nothing to {}",
          unpacking ? "unpack" : "pack");
  if (given.layout != (unpacking ? CFC_LAYOUT_PACKED : CFC_LAYOUT_NATIVE))
    wrong(request, "its layout is {}: it is {} already", given.layout, unpacking ? "native" : "packed");
  request.move.layout = spec.packed();
  request.places = {*checkTensors(request.graph, &given, 1, /*all=*/true).front()};
  readDestination(request, spec, given, read);
  readScratch(request, spec, read);
  checkOverlap(request.graph, request.places);
  return request;
}

/// Runs the request in the stream's context.
void perform(Request &request, const LoadedBundle &bundle, CUstream stream) {
  std::optional<ContextScope> streamScope;
  CUcontext context = nullptr;
  if (stream) {
    check(driver().cuStreamGetCtx(stream, &context), "asking for the stream's context");
    streamScope.emplace(context);
  }
  cfc_bind_options current{};
  current.size = sizeof current;
  ContextModules &modules = bundle.modulesFor(current);
  ContextScope scope(modules.context);
  checkPlace(request.graph, request.places, modules.device);
  request.move.stream = stream;
  CUfunction kernel = modules.textFunction(kPackingKernel, kPackingKernelName);
  if (!kernel)
    return moveThroughHost(request.move);
  if (!request.inPlace)
    return launchMove(kernel, request.move);
  std::optional<OwnScratch> own;
  if (!request.scratch) {
    const PackedLayout &layout = request.move.layout;
    request.scratchBytes = std::clamp(kOwnScratchBytes, layout.panelBytes(), layout.bytes());
    request.scratch = own.emplace(request.scratchBytes, stream).memory;
  }
  launchInPlace(kernel, request.move, request.scratch, request.scratchBytes);
}

/// The graph of that name, or for null the first that has the weight: all read it alike. Where none has it,
/// the first, which then says so.
const GraphSpec &graphWith(const Bundle &bundle, const char *graph, const char *weight) {
  if (graph || !weight)
    return bundle.graph(graph ? graph : "");
  for (const GraphSpec &spec : bundle.manifest.graphs)
    for (const TensorSpec &tensor : spec.tensors)
      if (tensor.name == weight)
        return spec;
  return bundle.manifest.graphs.front();
}

cfc_status convert(const cfc_bundle *bundle, const char *graph, const cfc_tensor *weight,
                   const cfc_pack_args *args, CUstream stream, bool unpacking) {
  return guarded([&] {
    if (!bundle || !weight)
      fail(CFC_INVALID_ARGUMENT, "{}: {} is null", unpacking ? "cfc_unpack" : "cfc_pack",
           bundle ? "weight" : "bundle");
    cfc_tensor given = readStruct<cfc_tensor>(weight, "cfc_tensor");
    const GraphSpec &spec = graphWith(bundle->loaded->bundle, graph, given.name);
    Request request = readRequest(spec, weight, args, unpacking);
    perform(request, *bundle->loaded, stream);
  });
}

} // namespace

cfc_status cfc_packed_bytes(const cfc_bundle *bundle, const char *graph, const char *weight, uint64_t *bytes,
                            uint64_t *scratch_bytes) {
  return guarded([&] {
    if (!bundle || !bytes)
      fail(CFC_INVALID_ARGUMENT, "cfc_packed_bytes: {} is null", bundle ? "bytes" : "bundle");
    const GraphSpec &spec = graphWith(bundle->loaded->bundle, graph, weight);
    const TensorSpec &tensor = spec.tensors[findTensor(spec, weight, 0)];
    bool packed = tensor.layout == Layout::Packed;
    *bytes = packed ? tensor.packed().bytes() : 0;
    if (scratch_bytes)
      *scratch_bytes = packed && tensor.packed().exact() ? tensor.packed().panelBytes() : 0;
  });
}

cfc_status cfc_pack(const cfc_bundle *bundle, const char *graph, const cfc_tensor *weight,
                    const cfc_pack_args *args, CUstream stream) {
  return convert(bundle, graph, weight, args, stream, /*unpacking=*/false);
}

cfc_status cfc_unpack(const cfc_bundle *bundle, const char *graph, const cfc_tensor *weight,
                      const cfc_pack_args *args, CUstream stream) {
  return convert(bundle, graph, weight, args, stream, /*unpacking=*/true);
}
