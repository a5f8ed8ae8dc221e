//===- BenchStream.h - What the memory alone allows -----------------------===//
#pragma once
#include "tools/lib/BenchGpu.h"

namespace cfc {

/// Kernels that do nothing but read (templates/device/stream.ptx), over a buffer of random bits.
class BenchStream {
public:
  /// Allocates 4 GB, or less where there is less, and warms the GPU up for 2 s.
  BenchStream(BenchGpu &gpu, int64_t replays);

  size_t bytes() const { return memory.bytes(); }
  /// Bytes a second of one pass over the buffer, by the faster of the two kernels.
  double bandwidth() const { return best; }
  /// A chain of `blocks` kernels that read `bytes` each, wherever the one before ended.
  Spread timeBlocks(double bytes, int64_t blocks, int64_t replays);

private:
  void fill();
  void launchCopies(size_t offset, size_t bytes);
  void launchLoads(size_t offset, size_t bytes);
  using Launch = void (BenchStream::*)(size_t, size_t);
  Spread timeChain(Launch launch, size_t bytes, int64_t blocks, int64_t replays);

  BenchGpu &gpu;
  GpuModule module;
  GpuMemory memory;
  runtime::CUfunction copies, loads;
  double best = 0;
};

} // namespace cfc
