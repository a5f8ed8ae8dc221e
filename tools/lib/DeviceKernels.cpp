//===- DeviceKernels.cpp - Launches of the kernels in templates/device ----===//
#include "tools/lib/DeviceKernels.h"
#include "tools/lib/DeviceSources.h"
#include "tools/lib/Failure.h"
#include <fmt/ranges.h>

using namespace cfc;
using namespace cfc::runtime;

static std::string moduleName(const DeviceKernel &kernel) {
  return fmt::format("{} {}", kernel.file, fmt::join(kernel.constants, " "));
}

std::string DeviceKernel::text() const {
  return fmt::format("{}: {}{}{}", file, name, constants.empty() ? "" : " ", fmt::join(constants, " "));
}

LaunchShape cfc::threadsFor(int64_t count) {
  constexpr unsigned threads = 128;
  return {unsigned((count + threads - 1) / threads), 1, threads};
}

/// The instruction set of the current context's device.
static std::string currentArch() {
  CUdevice device = 0;
  check(driver().cuCtxGetDevice(&device), "asking for the current device");
  return fmt::format("sm_{}{}", deviceAttribute(kDeviceMajor, device), deviceAttribute(kDeviceMinor, device));
}

NvrtcKernels::NvrtcKernels() : nvrtc(Nvrtc::open()), arch(currentArch()) {}

NvrtcKernels::~NvrtcKernels() {
  for (auto &[name, module] : modules)
    driver().cuModuleUnload(module);
}

CUfunction NvrtcKernels::find(const DeviceKernel &kernel) {
  CUfunction &function = functions[kernel.text()];
  if (function)
    return function;
  CUmodule &module = modules[moduleName(kernel)];
  if (!module) {
    const DeviceSource *source = findDeviceSource(kernel.file);
    if (!source)
      internalError("templates/device has no {}", kernel.file);
    std::vector<std::string> options;
    for (const std::string &constant : kernel.constants)
      options.push_back("-D" + constant);
    std::string cubin = nvrtc.compile(kernel.file, source->text, arch, options);
    check(driver().cuModuleLoadData(&module, cubin.data()), "loading " + moduleName(kernel));
  }
  check(driver().cuModuleGetFunction(&function, module, kernel.name.c_str()), "finding " + kernel.text());
  return function;
}

void NvrtcKernels::prepare(const DeviceKernel &kernel) { find(kernel); }

void NvrtcKernels::launch(const DeviceKernel &kernel, LaunchShape shape, const void *parameter,
                          CUstream stream) {
  CUlaunchConfig config = {};
  config.gridX = shape.gridX;
  config.gridY = shape.gridY;
  config.gridZ = config.blockY = config.blockZ = 1;
  config.blockX = shape.threads;
  config.stream = stream;
  void *parameters[] = {const_cast<void *>(parameter)};
  check(driver().cuLaunchKernelEx(&config, find(kernel), parameters, nullptr), "launching " + kernel.text());
}

void NvrtcKernels::wait(CUstream stream) {
  check(driver().cuStreamSynchronize(stream), "running kernels of templates/device");
}
