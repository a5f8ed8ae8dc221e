//===- Context.cpp - A bundle's kernels in CUDA contexts --------------------===//
//
// Finds the context to bind in, checks the device against the manifest, and loads cubins. A destroyed context
// takes its modules with it, so failures to unload are ignored.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Context.h"
#include <cstring>

namespace cfc::runtime {

ContextModules::ContextModules(CUcontext context, unsigned long long id, CUdevice device, bool retained)
    : context(context), id(id), device(device), retained(retained) {}

bool ContextModules::alive() const {
  unsigned long long now = 0;
  return driver().cuCtxGetId(context, &now) == kCudaSuccess && now == id;
}

ContextModules::~ContextModules() {
  const Driver &cuda = driver();
  CUcontext popped = nullptr;
  if (alive() && cuda.cuCtxPushCurrent(context) == kCudaSuccess) {
    for (auto &[cubin, module] : modules)
      cuda.cuModuleUnload(module);
    if (textModule)
      cuda.cuModuleUnload(textModule);
    if (stream)
      cuda.cuStreamDestroy(stream);
    cuda.cuCtxPopCurrent(&popped);
  }
  if (retained)
    cuda.cuDevicePrimaryCtxRelease(device);
}

static CUmodule loadModule(const Bundle &bundle, const KernelSpec &kernel) {
  std::string_view image = bundle.cubin(kernel.cubin);
  std::vector<uint64_t> aligned((image.size() + 7) / 8 + 1); // the driver reads ELF structs in place
  std::memcpy(aligned.data(), image.data(), image.size());
  CUmodule module = nullptr;
  CUresult result = driver().cuModuleLoadData(&module, aligned.data());
  if (result == kCudaErrorNoBinaryForGpu)
    fail(CFC_UNSUPPORTED_DEVICE, "{}: section 'cubin.{}' has no code for this device: {}", bundle.source,
         kernel.cubin, errorText(result));
  if (result == kCudaErrorInvalidImage)
    fail(CFC_INVALID_BUNDLE, "{}: section 'cubin.{}' is not a cubin: {}", bundle.source, kernel.cubin,
         errorText(result));
  check(result, fmt::format("{}: loading section 'cubin.{}'", bundle.source, kernel.cubin));
  return module;
}

CUfunction ContextModules::function(const Bundle &bundle, const KernelSpec &kernel) {
  std::lock_guard lock(mutex);
  auto found = modules.find(kernel.cubin);
  if (found == modules.end())
    found = modules.emplace(kernel.cubin, loadModule(bundle, kernel)).first;
  CUfunction function = nullptr;
  CUresult result = driver().cuModuleGetFunction(&function, found->second, kernel.name.c_str());
  if (result == kCudaErrorNotFound)
    fail(CFC_INVALID_BUNDLE, "{}: section 'cubin.{}' has no kernel '{}'", bundle.source, kernel.cubin,
         kernel.name);
  check(result, fmt::format("{}: loading kernel '{}'", bundle.source, kernel.name));
  return function;
}

CUfunction ContextModules::textFunction(const char *ptx, const char *name) {
  std::lock_guard lock(mutex);
  if (!textModule) {
    CUresult result = driver().cuModuleLoadData(&textModule, ptx);
    for (CUresult noCompiler : {kCudaErrorNoBinaryForGpu, kCudaErrorJitCompilerNotFound,
                                kCudaErrorUnsupportedPtxVersion, kCudaErrorJitCompilationDisabled})
      if (result == noCompiler)
        return nullptr;
    check(result, "compiling a kernel of the runtime");
  }
  CUfunction function = nullptr;
  check(driver().cuModuleGetFunction(&function, textModule, name), "loading a kernel of the runtime");
  return function;
}

void ContextModules::upload(CUdeviceptr to, const void *from, size_t bytes) {
  std::lock_guard lock(mutex);
  const Driver &cuda = driver();
  if (!stream)
    check(cuda.cuStreamCreate(&stream, kStreamNonBlocking), "creating a stream");
  check(cuda.cuMemcpyHtoDAsync(to, from, bytes, stream), "copying the table to the device");
  check(cuda.cuStreamSynchronize(stream), "copying the table to the device");
}

//===----------------------------------------------------------------------===//
// Finding the context
//===----------------------------------------------------------------------===//

/// Refuses a device or driver that cannot run the bundle, before anything is loaded.
static void checkDevice(const Bundle &bundle, CUdevice device) {
  const Manifest &manifest = bundle.manifest;
  int version = 0;
  check(driver().cuDriverGetVersion(&version), "asking for the driver's version");
  if (version < manifest.driverMin)
    fail(CFC_UNSUPPORTED_VERSION, "{}: needs a driver for CUDA {}.{}, this one is for {}.{}", bundle.source,
         manifest.driverMin / 1000, manifest.driverMin % 1000 / 10, version / 1000, version % 1000 / 10);
  int major = deviceAttribute(kDeviceMajor, device), minor = deviceAttribute(kDeviceMinor, device);
  std::optional<Target> target = parseTarget(manifest.target);
  bool runs =
      target && major == target->major && (target->exact ? minor == target->minor : minor >= target->minor);
  if (!runs)
    fail(CFC_UNSUPPORTED_DEVICE, "{}: is for {}, device {} is sm_{}{}", bundle.source, manifest.target,
         device, major, minor);
}

namespace {
/// A primary context, held until it is given to ContextModules or an error came.
struct PrimaryContext {
  CUdevice device = 0;
  CUcontext context = nullptr;
  explicit PrimaryContext(int ordinal) {
    int count = 0;
    check(driver().cuDeviceGetCount(&count), "counting devices");
    if (ordinal < 0 || ordinal >= count)
      fail(CFC_NO_DEVICE, "there is no device {}: the driver has {}", ordinal, count);
    check(driver().cuDeviceGet(&device, ordinal), "opening the device");
    check(driver().cuDevicePrimaryCtxRetain(&context, device), "opening the device's context");
  }
  ~PrimaryContext() {
    if (context)
      driver().cuDevicePrimaryCtxRelease(device);
  }
  PrimaryContext(const PrimaryContext &) = delete;
};
} // namespace

ContextModules &LoadedBundle::modulesFor(const cfc_bind_options &options) const {
  const Driver &cuda = driver();
  CUcontext context = nullptr;
  std::optional<PrimaryContext> primary;
  if (!(options.flags & CFC_BIND_DEVICE))
    check(cuda.cuCtxGetCurrent(&context), "asking for the current context");
  if (!context) {
    primary.emplace(options.device);
    context = primary->context;
  }
  ContextScope scope(context);
  CUdevice device = 0;
  unsigned long long id = 0;
  check(cuda.cuCtxGetDevice(&device), "asking for the context's device");
  check(cuda.cuCtxGetId(context, &id), "asking for the context's id");
  checkDevice(bundle, device);
  std::lock_guard lock(mutex);
  std::unique_ptr<ContextModules> &modules = contexts[id];
  if (!modules) {
    modules = std::make_unique<ContextModules>(context, id, device, primary.has_value());
    if (primary)
      primary->context = nullptr; // now owned by the modules
  }
  return *modules;
}

} // namespace cfc::runtime
