//===- DeviceKernels.h - Launches of the kernels in templates/device ------===//
//
// What runs graphs with these kernels launches them through this interface: on
// a GPU they are what NVRTC makes of the sources, in tests the same sources are
// compiled for the host.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/src/Driver.h"
#include "tools/lib/Nvrtc.h"
#include <map>
#include <string>
#include <vector>

namespace cfc {

/// A kernel of templates/device.
struct DeviceKernel {
  std::string file;                   ///< "linear.cu"
  std::string name;                   ///< "linear"
  std::vector<std::string> constants; ///< "GROUP=4": macros of the file
  std::string text() const;           ///< "linear.cu: linear GROUP=4"
};

/// The grid of a launch; no kernel uses dynamic shared memory.
struct LaunchShape {
  unsigned gridX = 1, gridY = 1;
  unsigned threads = 1; ///< of a block
};

/// `count` threads at least, in blocks of 128.
LaunchShape threadsFor(int64_t count);

class DeviceKernels {
public:
  virtual ~DeviceKernels() = default;
  /// Makes a kernel ready, so that launching it neither compiles nor loads.
  virtual void prepare(const DeviceKernel &kernel) = 0;
  /// Puts a kernel on the stream; `parameter` is the struct that is its only one, copied before this returns.
  virtual void launch(const DeviceKernel &kernel, LaunchShape shape, const void *parameter,
                      CUstream stream) = 0;
  /// Waits for the stream.
  virtual void wait(CUstream stream) = 0;
};

/// Kernels that NVRTC compiles for the device of the current context, which must be the same whenever this is
/// used. Throws Failure (3) without NVRTC; runtime::Error where the driver fails.
class NvrtcKernels : public DeviceKernels {
public:
  NvrtcKernels();
  ~NvrtcKernels() override;
  NvrtcKernels(const NvrtcKernels &) = delete;
  NvrtcKernels &operator=(const NvrtcKernels &) = delete;

  void prepare(const DeviceKernel &kernel) override;
  void launch(const DeviceKernel &kernel, LaunchShape shape, const void *parameter, CUstream stream) override;
  void wait(CUstream stream) override;
  const Nvrtc &compiler() const { return nvrtc; }

private:
  runtime::CUfunction find(const DeviceKernel &kernel);
  Nvrtc nvrtc;
  std::string arch;                                 ///< "sm_90"
  std::map<std::string, runtime::CUmodule> modules; ///< by file and constants
  std::map<std::string, runtime::CUfunction> functions;
};

} // namespace cfc
