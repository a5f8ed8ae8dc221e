//===- HostKernels.h - templates/device compiled for the host ---------------===//
//
// The same sources that NVRTC compiles for a GPU, with CUDA's words defined for
// the host's compiler: what they compute is tried where there is no GPU.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "tools/lib/DeviceKernels.h"
#include <functional>

namespace cfc {

/// Runs launches on the calling thread, one block after another. A block of a fast kernel has a fiber for
/// each thread, because its threads wait for each other.
class HostKernels : public DeviceKernels {
public:
  HostKernels();
  void prepare(const DeviceKernel &kernel) override;
  void launch(const DeviceKernel &kernel, LaunchShape shape, const void *parameter, CUstream stream) override;
  void wait(CUstream) override {}

  /// Kernels that were launched, by DeviceKernel::text.
  std::vector<std::string> launched;

private:
  template <typename Parameter>
  void add(const std::string &file, const std::string &name, std::vector<std::string> constants,
           void (*kernel)(Parameter));
  std::map<std::string, std::function<void(const void *)>> kernels;
};

} // namespace cfc
