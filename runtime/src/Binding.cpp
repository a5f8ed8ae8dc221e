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

void StagingSlots::copy(CUdeviceptr to, const void *from, CUstream stream) {
  int capturing = 0;
  check(driver().cuStreamIsCapturing(stream, &capturing), "asking the stream");
  Slot &slot = freeSlot();
  std::memcpy(slot.memory, from, bytes);
  check(driver().cuMemcpyHtoDAsync(to, slot.memory, bytes, stream), "copying the table to the device");
  slot.used = true;
  slot.captured = capturing != 0;
  if (!slot.captured)
    check(driver().cuEventRecord(slot.copied, stream), "recording an event");
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
    staging.emplace(image.size() - kTableHeaderBytes).reserve(2);
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
  if (staging) // the header with the sticky word is not touched
    staging->copy(table + kTableHeaderBytes, image.data() + kTableHeaderBytes, stream);
  tensors = std::move(changed);
}

void cfc_binding::launch(CUdeviceptr workspace, CUstream stream) const {
  ContextScope scope(modules.context);
  for (const KernelLaunch &kernel : variant.kernels) {
    CUresult result = startKernel(kernel, table, workspace, stream);
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
