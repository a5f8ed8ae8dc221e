//===- Driver.cpp - libcuda, opened at run time -----------------------------===//
//
// Fills in the table of DriverFunctions.def from libcuda.so.1. A failure is not remembered: a driver that
// starts to answer later is used then.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Driver.h"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <unistd.h>

namespace cfc::runtime {

static std::atomic<const Driver *> current{nullptr};

template <class Function> static void resolve(void *library, Function &function, const char *symbol) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (!function)
    fail(CFC_UNSUPPORTED_VERSION,
         "the NVIDIA driver is too old: it has no {}; CUDA 12.0 (525.60) or newer is "
         "needed",
         symbol);
}

template <class Function> static void resolveOptional(void *library, Function &function, const char *symbol) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
}

/// The library stays open: its functions are used until the process ends.
static Driver openDriver() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(CFC_NO_DEVICE, "no NVIDIA driver: {}", dlerror());
  Driver table;
#define CFC_DRIVER_FUNCTION(member, symbol, parameters) resolve(library, table.member, symbol);
#define CFC_OPTIONAL_DRIVER_FUNCTION(member, symbol, parameters)                                             \
  resolveOptional(library, table.member, symbol);
#include "runtime/src/DriverFunctions.def"
  return table;
}

static void initialise(const Driver &table) {
  CUresult result = table.cuInit(0);
  int count = 0;
  if (result == kCudaSuccess)
    result = table.cuDeviceGetCount(&count);
  if (result == kCudaErrorNoDevice || (result == kCudaSuccess && count == 0))
    fail(CFC_NO_DEVICE, "the NVIDIA driver finds no device");
  if (result != kCudaSuccess) {
    const char *name = nullptr;
    table.cuGetErrorName(result, &name);
    fail(CFC_DRIVER_ERROR, "the NVIDIA driver does not answer: {} ({})", name ? name : "unknown error",
         result);
  }
}

const Driver &driver() {
  if (const Driver *table = current.load(std::memory_order_acquire))
    return *table;
  static std::mutex mutex;
  static Driver real; // filled in under the mutex, published by `current`
  std::lock_guard lock(mutex);
  if (const Driver *table = current.load(std::memory_order_acquire))
    return *table;
  real = openDriver();
  initialise(real);
  current.store(&real, std::memory_order_release);
  return real;
}

void setDriverForTests(const Driver *table) { current.store(table, std::memory_order_release); }

DriverState probeDriver(Failure &why) {
  try {
    driver();
    return DriverState::Ready;
  } catch (...) {
    why = currentFailure();
  }
  // A device node without a usable driver is a broken installation, not a machine without a GPU; a working
  // driver without a device is meant so where the user chose the visible devices.
  bool node = false;
  for (const char *path : {"/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"})
    node = node || ::access(path, F_OK) == 0;
  bool hidden = why.status == CFC_NO_DEVICE && std::getenv("CUDA_VISIBLE_DEVICES");
  return node && !hidden ? DriverState::Broken : DriverState::Absent;
}

std::string errorText(CUresult result) {
  const Driver &table = driver();
  const char *name = nullptr, *text = nullptr;
  if (table.cuGetErrorName(result, &name) != kCudaSuccess || !name)
    return fmt::format("CUDA error {}", result);
  if (table.cuGetErrorString(result, &text) != kCudaSuccess || !text)
    return name;
  return fmt::format("{} ({})", name, text);
}

void check(CUresult result, std::string_view what) {
  if (result == kCudaSuccess)
    return;
  cfc_status status = result == kCudaErrorOutOfMemory ? CFC_OUT_OF_MEMORY : CFC_DRIVER_ERROR;
  fail(status, "{}: {}", what, errorText(result));
}

int deviceAttribute(DeviceAttribute attribute, CUdevice device) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, attribute, device), "asking the device for an attribute");
  return value;
}

uint32_t contextSms(CUcontext context, CUdevice device) {
  uint32_t sms = uint32_t(std::max(deviceAttribute(kDeviceSmCount, device), 1));
  CUdevResource resource{};
  auto ask = driver().cuCtxGetDevResource;
  if (ask && ask(context, &resource, kResourceSms) == kCudaSuccess && resource.smCount)
    sms = std::min(sms, resource.smCount);
  return sms;
}

ContextScope::ContextScope(CUcontext context) {
  CUcontext active = nullptr;
  check(driver().cuCtxGetCurrent(&active), "asking for the current context");
  if (active == context)
    return;
  check(driver().cuCtxPushCurrent(context), "making the binding's context current");
  pushed = true;
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (pushed)
    driver().cuCtxPopCurrent(&popped);
}

} // namespace cfc::runtime
