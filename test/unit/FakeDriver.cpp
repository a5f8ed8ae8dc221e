#include "FakeDriver.h"
#include "runtime/emulator/WriteTensorMap.h"
#include <cstdlib>
#include <cstring>
#include <memory>

namespace cfc::runtime::test {
namespace {

std::unique_ptr<FakeState> state;
thread_local std::vector<CUcontext> contexts;

struct FakeFunction {
  std::string name;
};
struct FakeEvent {
  bool done = true;
};

/// Contexts are device ordinals plus one.
CUcontext contextOf(int device) { return reinterpret_cast<CUcontext>(uintptr_t(device + 1)); }
int deviceOf(CUcontext context) { return int(reinterpret_cast<uintptr_t>(context)) - 1; }
CUcontext currentContext() { return contexts.empty() ? nullptr : contexts.back(); }

std::unique_lock<std::recursive_mutex> enter(const char *name) {
  std::unique_lock lock(state->mutex);
  if (state->record)
    state->calls.push_back(name);
  return lock;
}

CUresult submit(std::function<void()> work) {
  if (!currentContext())
    return kCudaErrorInvalidContext;
  (state->capturing ? state->graph : state->queue).push_back(std::move(work));
  return kCudaSuccess;
}

FakeFunction *functionOf(CUfunction function) { return reinterpret_cast<FakeFunction *>(function); }

/// The launch attribute of that kind, or null.
const CUlaunchAttribute *attributeOf(const CUlaunchConfig *config, int id) {
  for (unsigned i = 0; i < config->attributeCount; ++i)
    if (config->attributes[i].id == id)
      return &config->attributes[i];
  return nullptr;
}

unsigned clusterOf(const CUlaunchConfig *config) {
  const CUlaunchAttribute *cluster = attributeOf(config, kLaunchClusterDimension);
  return cluster ? cluster->value.cluster[0] : 1;
}

CUresult allocate(CUdeviceptr *pointer, size_t bytes, int device) {
  size_t rounded = (bytes + 255) / 256 * 256;
  *pointer = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, rounded));
  std::memset(reinterpret_cast<void *>(*pointer), 0xcd, rounded); // never zero by luck
  state->memory[*pointer] = {bytes, device};
  if (state->onAllocate)
    state->onAllocate(reinterpret_cast<void *>(*pointer), bytes);
  return kCudaSuccess;
}

CUresult deviceAttribute(int *value, int attribute, CUdevice) {
  switch (attribute) {
  case kDeviceMajor:
    *value = state->major;
    return kCudaSuccess;
  case kDeviceMinor:
    *value = state->minor;
    return kCudaSuccess;
  case kDeviceSmCount:
    *value = state->sms;
    return kCudaSuccess;
  case kDeviceSharedPerBlockOptIn:
    *value = state->sharedLimit;
    return kCudaSuccess;
  case kDevicePageableMemoryAccess:
    *value = state->pageable;
    return kCudaSuccess;
  }
  return kCudaErrorInvalidValue;
}

CUresult functionAttribute(int *value, int attribute, CUfunction function) {
  *value = attribute == kFunctionMaxThreads             ? state->maxThreads
           : attribute == kFunctionRequiredClusterWidth ? state->width(functionOf(function)->name)
                                                        : 0;
  return kCudaSuccess;
}

CUresult launch(const CUlaunchConfig *config, CUfunction function, void **parameters, void **) {
  auto lock = enter("cuLaunchKernelEx");
  if (state->failLaunch)
    return state->failLaunch;
  FakeLaunch record{functionOf(function)->name,
                    config->gridX,
                    config->blockX,
                    config->sharedBytes,
                    clusterOf(config),
                    deviceOf(currentContext()),
                    *static_cast<CUdeviceptr *>(parameters[0]),
                    *static_cast<CUdeviceptr *>(parameters[1]),
                    {}};
  const CUlaunchAttribute *pdl = attributeOf(config, kLaunchProgrammaticSerialization);
  record.pdl = pdl && pdl->value.programmaticSerialization == 1;
  const CUlaunchAttribute *cooperative = attributeOf(config, kLaunchCooperative);
  record.cooperative = cooperative && cooperative->value.cooperative == 1;
  return submit([record]() mutable {
    const char *table = reinterpret_cast<const char *>(record.table);
    record.entries.resize(state->memory.at(record.table).first / 8 - 8);
    std::memcpy(record.entries.data(), table + 64, record.entries.size() * 8);
    state->launches.push_back(record);
    if (state->onLaunch)
      state->onLaunch(record);
  });
}

CUresult pointerAttribute(void *value, int attribute, CUdeviceptr pointer) {
  auto lock = enter("cuPointerGetAttribute");
  auto after = state->memory.upper_bound(pointer);
  if (after == state->memory.begin())
    return kCudaErrorInvalidValue;
  auto &[start, block] = *std::prev(after);
  if (pointer >= start + block.first)
    return kCudaErrorInvalidValue;
  if (attribute == kPointerMemoryType)
    *static_cast<unsigned *>(value) = kMemoryTypeDevice;
  else
    *static_cast<int *>(value) = block.second;
  return kCudaSuccess;
}

/// Maps for the emulator, after the checks of the real function.
CUresult encodeTiled(CUtensorMap *map, int type, uint32_t rank, void *base, const uint64_t *sizes,
                     const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                     int swizzle, int, int fill) {
  auto lock = enter("cuTensorMapEncodeTiled");
  MapGeometry geometry;
  geometry.base = reinterpret_cast<uintptr_t>(base);
  geometry.rank = rank;
  geometry.stride[0] = type == kMapUint8 ? 1 : type == kMapFloat16 || type == kMapBfloat16 ? 2 : 4;
  geometry.swizzle = swizzle == kMapSwizzle128 ? 128 : 0;
  bool good = geometry.base % 16 == 0 && rank >= 2 && rank <= 4 && interleave == kMapInterleaveNone &&
              fill == kMapFillZero && reinterpret_cast<uintptr_t>(map) % 64 == 0;
  for (uint32_t i = 0; good && i < rank; ++i) {
    geometry.size[i] = sizes[i];
    geometry.box[i] = box[i];
    good = sizes[i] && sizes[i] <= uint64_t(1) << 32 && box[i] && box[i] <= 256 && steps[i] == 1;
    if (i) {
      geometry.stride[i] = strides[i - 1];
      good = good && strides[i - 1] % 16 == 0 && strides[i - 1] < uint64_t(1) << 40;
    }
  }
  uint64_t row = good ? box[0] * geometry.stride[0] : 0;
  if (!good || row % 16 != 0 || (geometry.swizzle && row > geometry.swizzle))
    return kCudaErrorInvalidValue;
  emu::writeTensorMap(geometry, map);
  return kCudaSuccess;
}

void fillContexts(Driver &table) {
  table.cuInit = [](unsigned) { return kCudaSuccess + 0; };
  table.cuDriverGetVersion = [](int *version) { return *version = state->version, 0; };
  table.cuGetErrorName = [](CUresult, const char **text) { return *text = "CUDA_ERROR_FAKE", 0; };
  table.cuGetErrorString = [](CUresult, const char **text) { return *text = "as the test wants", 0; };
  table.cuDeviceGetCount = [](int *count) { return *count = state->devices, 0; };
  table.cuDeviceGet = [](CUdevice *device, int ordinal) { return *device = ordinal, 0; };
  table.cuDeviceGetAttribute = deviceAttribute;
  table.cuDevicePrimaryCtxRetain = [](CUcontext *context, CUdevice device) {
    auto lock = enter("cuDevicePrimaryCtxRetain");
    ++state->contextsRetained;
    return *context = contextOf(device), 0;
  };
  table.cuDevicePrimaryCtxRelease = [](CUdevice) {
    auto lock = enter("cuDevicePrimaryCtxRelease");
    return --state->contextsRetained, 0;
  };
  table.cuCtxGetCurrent = [](CUcontext *context) { return *context = currentContext(), 0; };
  table.cuCtxGetDevice = [](CUdevice *device) { return *device = deviceOf(currentContext()), 0; };
  table.cuCtxGetId = [](CUcontext context, unsigned long long *id) {
    return *id = 100 + deviceOf(context), 0;
  };
  table.cuCtxGetDevResource = [](CUcontext, CUdevResource *resource, int type) {
    if (type != kResourceSms || state->contextSms == 0)
      return kCudaErrorInvalidValue + 0;
    resource->smCount = state->contextSms;
    return kCudaSuccess + 0;
  };
  table.cuCtxPushCurrent = [](CUcontext context) { return contexts.push_back(context), 0; };
  table.cuCtxPopCurrent = [](CUcontext *context) {
    *context = contexts.back();
    return contexts.pop_back(), 0;
  };
}

void fillModules(Driver &table) {
  table.cuModuleLoadData = [](CUmodule *module, const void *) {
    auto lock = enter("cuModuleLoadData");
    if (state->failModule)
      return state->failModule;
    ++state->modulesLoaded, ++state->modulesAlive;
    *module = reinterpret_cast<CUmodule>(new std::map<std::string, FakeFunction>);
    return kCudaSuccess + 0;
  };
  table.cuModuleUnload = [](CUmodule module) {
    auto lock = enter("cuModuleUnload");
    delete reinterpret_cast<std::map<std::string, FakeFunction> *>(module);
    return --state->modulesAlive, 0;
  };
  table.cuModuleGetFunction = [](CUfunction *function, CUmodule module, const char *name) {
    auto lock = enter("cuModuleGetFunction");
    auto &functions = *reinterpret_cast<std::map<std::string, FakeFunction> *>(module);
    *function = reinterpret_cast<CUfunction>(&functions.try_emplace(name, FakeFunction{name}).first->second);
    return 0;
  };
  table.cuFuncGetAttribute = functionAttribute;
  table.cuFuncSetAttribute = [](CUfunction function, int attribute, int value) {
    auto lock = enter("cuFuncSetAttribute");
    return state->attributes[{functionOf(function)->name, attribute}] = value, 0;
  };
  table.cuOccupancyMaxActiveClusters = [](int *clusters, CUfunction function, const CUlaunchConfig *config) {
    const std::string &kernel = functionOf(function)->name;
    state->asked[kernel] = *config;
    return *clusters = state->resident(kernel, clusterOf(config)), 0;
  };
  table.cuLaunchKernelEx = launch;
}

void fillMemory(Driver &table) {
  table.cuMemAlloc = [](CUdeviceptr *pointer, size_t bytes) {
    auto lock = enter("cuMemAlloc");
    return state->failAlloc ? state->failAlloc : allocate(pointer, bytes, deviceOf(currentContext()));
  };
  table.cuMemFree = [](CUdeviceptr pointer) {
    auto lock = enter("cuMemFree");
    if (state->onAllocate)
      return 0;
    std::free(reinterpret_cast<void *>(pointer));
    return state->memory.erase(pointer) == 1 ? 0 : 1;
  };
  table.cuMemAllocHost = [](void **pointer, size_t bytes) {
    auto lock = enter("cuMemAllocHost");
    if (state->failHost)
      return state->failHost;
    ++state->hostAllocations;
    return *pointer = std::malloc(bytes), 0;
  };
  table.cuMemFreeHost = [](void *pointer) {
    auto lock = enter("cuMemFreeHost");
    std::free(pointer);
    return --state->hostAllocations, 0;
  };
  table.cuPointerGetAttribute = pointerAttribute;
  table.cuTensorMapEncodeTiled = encodeTiled;
  table.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void *from, size_t bytes, CUstream) {
    auto lock = enter("cuMemcpyHtoDAsync");
    return submit([=] { std::memcpy(reinterpret_cast<void *>(to), from, bytes); });
  };
  table.cuMemcpyDtoHAsync = [](void *to, CUdeviceptr from, size_t bytes, CUstream) {
    auto lock = enter("cuMemcpyDtoHAsync");
    return submit([=] { std::memcpy(to, reinterpret_cast<const void *>(from), bytes); });
  };
  table.cuMemsetD8Async = [](CUdeviceptr pointer, unsigned char value, size_t count, CUstream) {
    auto lock = enter("cuMemsetD8Async");
    return submit([=] { std::memset(reinterpret_cast<void *>(pointer), value, count); });
  };
}

void fillStreams(Driver &table) {
  table.cuStreamCreate = [](CUstream *stream, unsigned) {
    auto lock = enter("cuStreamCreate");
    return *stream = reinterpret_cast<CUstream>(uintptr_t(0x1000 + ++state->streamsAlive)), 0;
  };
  table.cuStreamDestroy = [](CUstream) {
    auto lock = enter("cuStreamDestroy");
    return --state->streamsAlive, 0;
  };
  table.cuStreamSynchronize = [](CUstream) {
    auto lock = enter("cuStreamSynchronize");
    return state->flush(), 0;
  };
  table.cuStreamIsCapturing = [](CUstream, int *status) { return *status = state->capturing, 0; };
  table.cuStreamGetCtx = [](CUstream, CUcontext *context) { return *context = currentContext(), 0; };
  table.cuThreadExchangeStreamCaptureMode = [](int *mode) { return std::swap(*mode, *mode), 0; };
  table.cuEventCreate = [](CUevent *event, unsigned) {
    auto lock = enter("cuEventCreate");
    return *event = reinterpret_cast<CUevent>(new FakeEvent), 0;
  };
  table.cuEventDestroy = [](CUevent event) {
    auto lock = enter("cuEventDestroy");
    delete reinterpret_cast<FakeEvent *>(event);
    return 0;
  };
  table.cuEventRecord = [](CUevent event, CUstream) {
    auto lock = enter("cuEventRecord");
    auto *fake = reinterpret_cast<FakeEvent *>(event);
    fake->done = false;
    return submit([=] { fake->done = true; });
  };
  table.cuEventQuery = [](CUevent event) {
    auto lock = enter("cuEventQuery");
    return reinterpret_cast<FakeEvent *>(event)->done ? kCudaSuccess + 0 : kCudaErrorNotReady;
  };
  table.cuEventSynchronize = [](CUevent) {
    auto lock = enter("cuEventSynchronize");
    return state->flush(), 0;
  };
}

} // namespace

void FakeState::flush() {
  std::unique_lock lock(mutex);
  for (auto &work : queue)
    work();
  queue.clear();
}

void FakeState::replay() {
  std::unique_lock lock(mutex);
  queue.insert(queue.end(), graph.begin(), graph.end());
}

FakeDriver::FakeDriver() {
  static const Driver table = [] {
    Driver table;
    fillContexts(table);
    fillModules(table);
    fillMemory(table);
    fillStreams(table);
    return table;
  }();
  test::state = std::make_unique<FakeState>();
  state = test::state.get();
  fakeUseDevice(0);
  setDriverForTests(&table);
}

FakeDriver::~FakeDriver() {
  setDriverForTests(nullptr);
  for (auto &[address, block] : state->memory)
    std::free(reinterpret_cast<void *>(address));
  test::state.reset();
}

void *fakeMemory(size_t bytes, int device) {
  auto lock = enter("test");
  CUdeviceptr pointer = 0;
  allocate(&pointer, bytes, device);
  return reinterpret_cast<void *>(pointer);
}

void fakeUseDevice(int ordinal) {
  contexts.clear();
  if (ordinal >= 0)
    contexts.push_back(contextOf(ordinal));
}

} // namespace cfc::runtime::test
