//===- Binding.cpp - A graph's buffers on a device --------------------------===//
//
// The life of a binding: its table, changes of it in stream order, launches, the sticky word.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Binding.h"
#include "runtime/src/Maps.h"
#include <cstring>

using namespace cfc::runtime;

//===----------------------------------------------------------------------===//
// StagingSlots
//===----------------------------------------------------------------------===//

StagingSlots::~StagingSlots() {
  for (Slot &slot : slots) {
    if (slot.used && !slot.captured)
      driver().cuEventSynchronize(slot.copied);
    driver().cuEventDestroy(slot.copied);
    driver().cuMemFreeHost(slot.memory);
  }
}

namespace {
/// While another stream of this thread is being captured, allocating would break the capture; it is safe
/// here, as nothing captured depends on it.
struct RelaxedCapture {
  int mode = kCaptureModeRelaxed;
  RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode); }
  ~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode); }
};
} // namespace

StagingSlots::Slot &StagingSlots::add() {
  RelaxedCapture relaxed;
  Slot slot;
  check(driver().cuEventCreate(&slot.copied, kEventDisableTiming), "creating an event");
  CUresult result = driver().cuMemAllocHost(&slot.memory, bytes);
  if (result != kCudaSuccess)
    driver().cuEventDestroy(slot.copied);
  check(result, "allocating host memory for the table");
  return slots.emplace_back(slot);
}

void StagingSlots::reserve(size_t count) {
  slots.reserve(count);
  while (slots.size() < count)
    add();
}

StagingSlots::Slot &StagingSlots::freeSlot() {
  RelaxedCapture relaxed;
  for (Slot &slot : slots)
    if (!slot.captured && (!slot.used || driver().cuEventQuery(slot.copied) == kCudaSuccess))
      return slot;
  return add();
}

void StagingSlots::copy(CUdeviceptr table, const std::vector<char> &image,
                        const std::vector<TableRange> &ranges, CUstream stream) {
  int capturing = 0;
  check(driver().cuStreamIsCapturing(stream, &capturing), "asking the stream");
  Slot &slot = freeSlot();
  std::memcpy(slot.memory, image.data(), bytes);
  slot.used = slot.captured = true; // should a later copy fail, the earlier ones may still read the slot
  for (const TableRange &range : ranges)
    check(driver().cuMemcpyHtoDAsync(table + range.offset, static_cast<char *>(slot.memory) + range.offset,
                                     range.bytes, stream),
          "copying the table to the device");
  if (capturing)
    return;
  check(driver().cuEventRecord(slot.copied, stream), "recording an event");
  slot.captured = false;
}

//===----------------------------------------------------------------------===//
// cfc_binding
//===----------------------------------------------------------------------===//

cfc_binding::cfc_binding(std::shared_ptr<const LoadedBundle> loaded, const GraphSpec &graph,
                         ContextModules &modules)
    : loaded(std::move(loaded)), graph(graph), modules(modules) {}

cfc_binding::~cfc_binding() {
  if (!table || !modules.alive() || driver().cuCtxPushCurrent(modules.context) != kCudaSuccess)
    return;
  CUcontext popped = nullptr;
  staging.reset();
  driver().cuMemFree(table);
  driver().cuCtxPopCurrent(&popped);
}

void cfc_binding::createTable() {
  std::vector<char> image = tableImage(graph, tensors, encodeMap);
  check(driver().cuMemAlloc(&table, image.size()), "allocating the table");
  modules.upload(table, image.data(), image.size());
  if (image.size() > kTableHeaderBytes)
    staging.emplace(image.size()).reserve(2);
}

/// Where the entries and the maps of the named tensors lie. The others must not be written: a captured
/// rebinding is replayed later, when they may have been bound anew.
static std::vector<TableRange> namedRanges(const GraphSpec &graph,
                                           const std::vector<std::optional<BoundTensor>> &named) {
  std::vector<TableRange> ranges;
  auto add = [&](size_t tensor, size_t offset, size_t bytes) {
    if (!named[tensor])
      return;
    if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == offset)
      ranges.back().bytes += bytes;
    else
      ranges.push_back({offset, bytes});
  };
  for (size_t i = 0; i < graph.table.size(); ++i)
    add(graph.table[i].tensor, kTableHeaderBytes + i * kTableEntryBytes, kTableEntryBytes);
  for (size_t i = 0; i < graph.maps.size(); ++i)
    add(graph.maps[i].tensor, mapsOffset(graph) + i * kMapBytes, kMapBytes);
  return ranges;
}

void cfc_binding::rebind(const cfc_tensor *given, size_t count, CUstream stream) {
  std::vector<std::optional<BoundTensor>> changes = checkTensors(graph, given, count, /*all=*/false);
  std::vector<BoundTensor> changed = tensors;
  for (size_t i = 0; i < changed.size(); ++i)
    changed[i] = changes[i].value_or(tensors[i]);
  checkOverlap(graph, changed);
  ContextScope scope(modules.context);
  checkPlace(graph, changed, modules.device);
  std::vector<char> image = tableImage(graph, changed, encodeMap);
  std::vector<TableRange> ranges = namedRanges(graph, changes); // never the header with the sticky word
  if (!ranges.empty())
    staging->copy(table, image, ranges, stream);
  tensors = std::move(changed);
}

/// Writes the launch's inputs if CFC_CAPTURE asks for it. Whatever goes wrong, the launch goes on.
void cfc_binding::capture(const VariantSpec &variant, const LaunchHints &hints, CUstream stream) const {
  RelaxedCapture relaxed; // other streams of the thread may be recorded
  int recorded = 0;
  if (driver().cuStreamIsCapturing(stream, &recorded) != kCudaSuccess)
    recorded = 1;
  if (!loaded->capture->wants(loaded->bundle.manifest, graph, recorded != 0))
    return;
  MemoryReader read = [&](void *to, uint64_t address, size_t bytes) {
    if (!bytes)
      return;
    check(driver().cuMemcpyDtoHAsync(to, address, bytes, stream), "copying to the host");
    check(driver().cuStreamSynchronize(stream), "waiting for the stream");
  };
  loaded->capture->write({loaded->bundle.manifest, loaded->bundle.graphText(graph), graph, variant,
                          hints.length, hints.batch, hints.maxSms, table, read});
}

void cfc_binding::launch(CUdeviceptr workspace, const LaunchHints &hints, CUstream stream) const {
  const VariantLaunch &variant = chooseVariant(variants, hints);
  ContextScope scope(modules.context);
  if (loaded->capture)
    capture(*variant.spec, hints, stream);
  for (const KernelLaunch &kernel : variant.kernels) {
    CUresult result = startKernel(kernel, kernel.clusters(hints.maxSms), table, workspace, stream);
    if (result != kCudaSuccess)
      check(result, fmt::format("graph '{}': launching kernel '{}'", graph.name, kernel.spec->name));
  }
}

uint32_t cfc_binding::status(CUstream stream, bool clear) const {
  ContextScope scope(modules.context);
  uint32_t bits = 0;
  check(driver().cuMemcpyDtoHAsync(&bits, table, sizeof bits, stream), "reading the device status");
  if (clear)
    check(driver().cuMemsetD8Async(table, 0, sizeof bits, stream), "clearing the device status");
  check(driver().cuStreamSynchronize(stream), "waiting for the stream");
  return bits;
}
