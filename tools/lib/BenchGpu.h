//===- BenchGpu.h - Times work on GPU 0 -----------------------------------===//
//
// Work is captured into a CUDA graph and replayed between events: what the host
// does, and how a single launch begins, is in no number.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/src/Driver.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cfc {

/// Microseconds of one block (or of whatever is repeated), over the replays.
struct Spread {
  double median = 0, min = 0, p10 = 0, p90 = 0;
  /// Of samples in any order; at least one.
  static Spread of(std::vector<double> samples);
};

/// How a time is taken.
struct Pace {
  double graphMicroseconds = 4000; ///< work is repeated in a graph of at least this long
  double settleSeconds = 0.2;      ///< of replays that are not timed
};

/// Memory of the GPU. Freed at the end of its life: nothing may use it then.
class GpuMemory {
public:
  GpuMemory(size_t bytes, const std::string &what);
  ~GpuMemory();
  GpuMemory(const GpuMemory &) = delete;
  GpuMemory &operator=(const GpuMemory &) = delete;

  runtime::CUdeviceptr data() const { return begin; }
  size_t bytes() const { return size; }
  void *pointer(size_t offset = 0) const { return reinterpret_cast<void *>(begin + offset); }

private:
  runtime::CUdeviceptr begin = 0;
  size_t size;
};

/// Throws Failure (3) where there is no GPU. Opens none.
void requireGpu();

/// GPU 0 with a stream, and a stopwatch. Throws Failure (3) where there is no GPU that bench can use: there
/// is no way around one.
class BenchGpu {
public:
  BenchGpu();
  ~BenchGpu();
  BenchGpu(const BenchGpu &) = delete;
  BenchGpu &operator=(const BenchGpu &) = delete;

  const std::string &name() const { return deviceName; }
  const std::string &driverVersion() const { return version; } ///< "13.0"
  int sms() const { return smCount; }
  size_t l2Bytes() const { return l2; }
  CUstream stream() const { return benchStream; }
  size_t freeBytes() const;

  /// Waits for all work on the stream; a kernel that hangs ends the program (4).
  void wait(const std::string &what);
  void upload(runtime::CUdeviceptr to, const void *from, size_t bytes);
  void download(void *to, runtime::CUdeviceptr from, size_t bytes);

  /// Repeats `work`, which puts something on the stream, for at least so long.
  void keepBusy(double seconds, const std::function<void()> &work);
  /// Time of one of the `blocks` parts that `work` puts on the stream: `work` is captured, as often as makes
  /// the graph long against its launch, replayed to settle, then `replays` times, each timed.
  Spread time(const std::function<void()> &work, int64_t blocks, int64_t replays, const std::string &what,
              Pace pace = Pace());

private:
  class Recording;
  runtime::CUdevice device = 0;
  runtime::CUcontext context = nullptr;
  CUstream benchStream = nullptr;
  runtime::CUevent finished = nullptr;
  std::string deviceName, version;
  int smCount = 0;
  size_t l2 = 0;
};

/// A module that the driver makes of PTX or of a cubin.
class GpuModule {
public:
  GpuModule(const void *image, const std::string &what);
  ~GpuModule();
  GpuModule(const GpuModule &) = delete;
  GpuModule &operator=(const GpuModule &) = delete;

  runtime::CUfunction function(const std::string &name) const;

private:
  runtime::CUmodule module = nullptr;
};

/// Starts a kernel without a cluster. `parameters` are addresses of its arguments.
void launchKernel(runtime::CUfunction function, unsigned grid, unsigned threads, unsigned sharedBytes,
                  CUstream stream, std::vector<void *> parameters);

} // namespace cfc
