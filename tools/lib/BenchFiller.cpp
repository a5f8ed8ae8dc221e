//===- BenchFiller.cpp - Random data for the GPU, made fast ---------------===//
#include "tools/lib/BenchFiller.h"
#include "tools/lib/Failure.h"
#include <algorithm>

using namespace cfc;
using namespace cfc::runtime;

static constexpr int64_t blockElements = (int64_t(1) << 20) - 3;

void BenchFiller::fill(CUdeviceptr to, size_t bytes, DType type, Distribution distribution) {
  const GpuMemory &block = blockFor(type, distribution);
  // Each tensor begins elsewhere in the block.
  size_t offset = ++fills * 8191 * sizeOf(type) % block.bytes();
  for (size_t done = 0; done < bytes; offset = 0) {
    size_t part = std::min(bytes - done, block.bytes() - offset);
    check(driver().cuMemcpyDtoDAsync(to + done, block.data() + offset, part, gpu.stream()), "filling memory");
    done += part;
  }
}

const GpuMemory &BenchFiller::blockFor(DType type, Distribution distribution) {
  auto &block = blocks[{type, distribution.mean, distribution.deviation}];
  if (!block) {
    Tensor tensor(type, {blockElements});
    fillRandom(tensor, blocks.size(), "bench", distribution);
    block = std::make_unique<GpuMemory>(tensor.bytes(), "random data");
    gpu.upload(block->data(), tensor.data(), tensor.bytes());
  }
  return *block;
}
