//===- BenchFiller.h - Random data for the GPU, made fast -----------------===//
#pragma once
#include "tools/lib/BenchGpu.h"
#include "tools/lib/Random.h"
#include <map>
#include <tuple>

namespace cfc {

/// Fills memory with random data: one block of each distribution is made on the host and repeated on the GPU.
/// Its length is odd, so that it does not repeat with the rows.
class BenchFiller {
public:
  explicit BenchFiller(BenchGpu &gpu) : gpu(gpu) {}
  void fill(runtime::CUdeviceptr to, size_t bytes, DType type, Distribution distribution);

private:
  const GpuMemory &blockFor(DType type, Distribution distribution);

  BenchGpu &gpu;
  size_t fills = 0;
  std::map<std::tuple<DType, double, double>, std::unique_ptr<GpuMemory>> blocks;
};

} // namespace cfc
