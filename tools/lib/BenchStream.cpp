//===- BenchStream.cpp - What the memory alone allows ---------------------===//
#include "tools/lib/BenchStream.h"
#include "tools/lib/DeviceSources.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Random.h"
#include <algorithm>

using namespace cfc;
using namespace cfc::runtime;

/// One pass over so many bytes gives the bandwidth.
static constexpr size_t passBytes = size_t(4) << 30;
static constexpr size_t leastPass = size_t(256) << 20;
static constexpr double warmUpSeconds = 2;
/// Slots of the copying kernel's ring, as in stream.ptx, and its largest piece.
static constexpr unsigned ringSlots = 8, largestPiece = 16384, smallestPiece = 2048;
/// The loading kernel's shape: 32 warps an SM keep 128 KB in flight.
static constexpr unsigned loadThreads = 256, loadCtasPerSm = 4;

/// 4 GB, or the largest power of two that leaves half of the memory.
static size_t passFor(const BenchGpu &gpu) {
  size_t bytes = passBytes, free = gpu.freeBytes();
  while (bytes > free / 2 && bytes > leastPass)
    bytes /= 2;
  return bytes;
}

static const char *source() {
  const DeviceSource *text = findDeviceSource("stream.ptx");
  if (!text)
    internalError("stream.ptx is not part of the program");
  return text->text.data();
}

BenchStream::BenchStream(BenchGpu &gpu, int64_t replays)
    : gpu(gpu), module(source(), "the kernels that read memory"),
      memory(passFor(gpu), "the read that gives the bandwidth"), copies(module.function("cfc_stream_copies")),
      loads(module.function("cfc_stream_loads")) {
  check(driver().cuFuncSetAttribute(copies, kFunctionMaxDynamicShared, int(ringSlots * largestPiece)),
        "giving the reading kernel its ring");
  fill();
  gpu.keepBusy(warmUpSeconds, [&] { launchCopies(0, memory.bytes()); });
  for (Launch launch : {&BenchStream::launchCopies, &BenchStream::launchLoads}) {
    Spread us = timeChain(launch, memory.bytes(), 1, replays);
    best = std::max(best, double(memory.bytes()) / us.median * 1e6);
  }
}

/// Random bits: what a memory that compresses or a bus that likes zeros could make faster than real data.
void BenchStream::fill() {
  Tensor block(DType::f16, {int64_t(1) << 22});
  fillRandom(block, 0, "stream", {0, 1});
  gpu.upload(memory.data(), block.data(), block.bytes());
  for (size_t done = block.bytes(); done < memory.bytes(); done *= 2)
    check(driver().cuMemcpyDtoDAsync(memory.data() + done, memory.data(),
                                     std::min(done, memory.bytes() - done), gpu.stream()),
          "filling memory");
  gpu.wait("the copies that fill memory");
}

void BenchStream::launchCopies(size_t offset, size_t bytes) {
  // Small reads are cut so that every SM has something in each slot of its ring.
  size_t share = bytes / (size_t(gpu.sms()) * ringSlots) / 128 * 128;
  unsigned piece = unsigned(std::clamp<size_t>(share, smallestPiece, largestPiece));
  CUdeviceptr from = memory.data() + offset;
  unsigned long long size = bytes;
  launchKernel(copies, unsigned(gpu.sms()), 1, ringSlots * piece, gpu.stream(), {&from, &size, &piece});
}

void BenchStream::launchLoads(size_t offset, size_t bytes) {
  CUdeviceptr from = memory.data() + offset, sink = memory.data();
  unsigned long long size = bytes;
  launchKernel(loads, unsigned(gpu.sms()) * loadCtasPerSm, loadThreads, 0, gpu.stream(),
               {&from, &size, &sink});
}

Spread BenchStream::timeChain(Launch launch, size_t bytes, int64_t blocks, int64_t replays) {
  size_t regions = std::max<size_t>(memory.bytes() / bytes, 1), next = 0;
  return gpu.time(
      [&] {
        for (int64_t i = 0; i < blocks; ++i, ++next)
          (this->*launch)(next % regions * bytes, bytes);
      },
      blocks, replays, "the kernels that read memory");
}

Spread BenchStream::timeBlocks(double bytes, int64_t blocks, int64_t replays) {
  size_t size = std::clamp(size_t(bytes) / 256 * 256, size_t(256), memory.bytes());
  Spread first = timeChain(&BenchStream::launchCopies, size, blocks, replays);
  Spread second = timeChain(&BenchStream::launchLoads, size, blocks, replays);
  return first.median <= second.median ? first : second;
}
