//===- BenchGpu.cpp - Times work on GPU 0 ---------------------------------===//
#include "tools/lib/BenchGpu.h"
#include "tools/lib/Failure.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

using namespace cfc;
using namespace cfc::runtime;
using Clock = std::chrono::steady_clock;

/// Work that takes longer counts as hung.
static constexpr auto patience = std::chrono::seconds(60);
/// Most blocks in one graph, where they are that short.
static constexpr double graphBlocks = 2048;

Spread Spread::of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  auto at = [&](double share) {
    double position = share * double(samples.size() - 1);
    size_t below = size_t(position), above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (position - double(below)) * (samples[above] - samples[below]);
  };
  return {at(0.5), samples.front(), at(0.1), at(0.9)};
}

//===----------------------------------------------------------------------===//
// Memory and modules
//===----------------------------------------------------------------------===//

GpuMemory::GpuMemory(size_t bytes, const std::string &what) : size(bytes) {
  check(driver().cuMemAlloc(&begin, std::max<size_t>(bytes, 1)),
        fmt::format("allocating {} bytes for {}", bytes, what));
}

GpuMemory::~GpuMemory() { driver().cuMemFree(begin); }

GpuModule::GpuModule(const void *image, const std::string &what) {
  check(driver().cuModuleLoadData(&module, image), "loading " + what);
}

GpuModule::~GpuModule() { driver().cuModuleUnload(module); }

CUfunction GpuModule::function(const std::string &name) const {
  CUfunction result = nullptr;
  check(driver().cuModuleGetFunction(&result, module, name.c_str()),
        fmt::format("finding the kernel {}", name));
  return result;
}

void cfc::launchKernel(CUfunction function, unsigned grid, unsigned threads, unsigned sharedBytes,
                       CUstream stream, std::vector<void *> parameters) {
  CUlaunchConfig config = {};
  config.gridX = grid;
  config.blockX = threads;
  config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
  config.sharedBytes = sharedBytes;
  config.stream = stream;
  check(driver().cuLaunchKernelEx(&config, function, parameters.data(), nullptr), "starting a kernel");
}

//===----------------------------------------------------------------------===//
// The device
//===----------------------------------------------------------------------===//

void cfc::requireGpu() {
  runtime::Failure failure;
  switch (probeDriver(failure)) {
  case DriverState::Ready:
    return;
  case DriverState::Absent:
    cannotRun("", "cfc bench times a GPU, and there is none here: {}", failure.message);
  case DriverState::Broken:
    throw cfc::Failure(Exit(std::max(failure.exitCode(), int(Exit::CannotRun))), "",
                       "cfc bench times a GPU; there is an NVIDIA device, but its driver does not answer: " +
                           failure.message);
  }
}

BenchGpu::BenchGpu() {
  requireGpu();
  check(driver().cuDeviceGet(&device, 0), "opening GPU 0");
  char text[256] = {};
  check(driver().cuDeviceGetName(text, sizeof text - 1, device), "asking for the name of GPU 0");
  deviceName = text;
  int major = deviceAttribute(kDeviceMajor, device), minor = deviceAttribute(kDeviceMinor, device);
  if (major < 9)
    cannotRun("", "GPU 0 ({}) has compute capability {}.{}; cfc bench needs 9.0", deviceName, major, minor);
  int number = 0;
  check(driver().cuDriverGetVersion(&number), "asking for the driver's version");
  version = fmt::format("{}.{}", number / 1000, number % 1000 / 10);
  smCount = deviceAttribute(kDeviceSmCount, device);
  l2 = size_t(deviceAttribute(kDeviceL2Bytes, device));
  check(driver().cuDevicePrimaryCtxRetain(&context, device), "opening a context on GPU 0");
  check(driver().cuCtxPushCurrent(context), "using the context of GPU 0");
  check(driver().cuStreamCreate(&benchStream, kStreamNonBlocking), "making a stream");
  check(driver().cuEventCreate(&finished, kEventDisableTiming), "making an event");
}

BenchGpu::~BenchGpu() {
  driver().cuStreamSynchronize(benchStream);
  driver().cuEventDestroy(finished);
  driver().cuStreamDestroy(benchStream);
  CUcontext popped;
  driver().cuCtxPopCurrent(&popped);
  driver().cuDevicePrimaryCtxRelease(device);
}

size_t BenchGpu::freeBytes() const {
  size_t free = 0, total = 0;
  check(driver().cuMemGetInfo(&free, &total), "asking for the free memory of GPU 0");
  return free;
}

void BenchGpu::wait(const std::string &what) {
  check(driver().cuEventRecord(finished, benchStream), "recording an event");
  auto start = Clock::now();
  auto pause = std::chrono::microseconds(10);
  for (;;) {
    CUresult state = driver().cuEventQuery(finished);
    if (state != kCudaErrorNotReady)
      return check(state, "running " + what);
    if (Clock::now() - start > patience) {
      // Nothing can be given back while a kernel runs: leave without waiting for it.
      fmt::print(stderr, "error: {}: no end after {} s\n", what, patience.count());
      std::fflush(nullptr);
      std::_Exit(int(Exit::Internal));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

void BenchGpu::upload(CUdeviceptr to, const void *from, size_t bytes) {
  check(driver().cuMemcpyHtoDAsync(to, from, bytes, benchStream), "copying to the GPU");
  check(driver().cuStreamSynchronize(benchStream), "copying to the GPU");
}

void BenchGpu::download(void *to, CUdeviceptr from, size_t bytes) {
  check(driver().cuMemcpyDtoHAsync(to, from, bytes, benchStream), "copying from the GPU");
  check(driver().cuStreamSynchronize(benchStream), "copying from the GPU");
}

//===----------------------------------------------------------------------===//
// Timing
//===----------------------------------------------------------------------===//

namespace {
class Event {
public:
  Event() { check(driver().cuEventCreate(&event, 0), "making an event"); }
  ~Event() { driver().cuEventDestroy(event); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
  void record(CUstream stream) { check(driver().cuEventRecord(event, stream), "recording an event"); }
  double microsecondsSince(const Event &start) const {
    float milliseconds = 0;
    check(driver().cuEventElapsedTime(&milliseconds, start.event, event), "reading the time of an event");
    return double(milliseconds) * 1e3;
  }

private:
  CUevent event = nullptr;
};
} // namespace

/// Work captured `repeats` times into an executable graph.
class BenchGpu::Recording {
public:
  Recording(CUstream stream, const std::function<void()> &work, int64_t repeats) : stream(stream) {
    check(driver().cuStreamBeginCapture(stream, kCaptureModeRelaxed), "beginning a capture");
    CUgraph graph = nullptr;
    try {
      for (int64_t i = 0; i < repeats; ++i)
        work();
    } catch (...) {
      driver().cuStreamEndCapture(stream, &graph);
      if (graph)
        driver().cuGraphDestroy(graph);
      throw;
    }
    check(driver().cuStreamEndCapture(stream, &graph), "ending a capture");
    CUresult result = driver().cuGraphInstantiate(&executable, graph, 0);
    driver().cuGraphDestroy(graph);
    check(result, "making a captured graph executable");
  }
  ~Recording() { driver().cuGraphExecDestroy(executable); }
  Recording(const Recording &) = delete;
  Recording &operator=(const Recording &) = delete;

  void replay() { check(driver().cuGraphLaunch(executable, stream), "replaying a captured graph"); }

  /// Microseconds of each of `count` replays, one right behind the other.
  std::vector<double> timeReplays(BenchGpu &gpu, int64_t count, const std::string &what) {
    std::vector<Event> events(size_t(count) + 1);
    events[0].record(stream);
    for (size_t i = 1; i < events.size(); ++i) {
      replay();
      events[i].record(stream);
    }
    gpu.wait(what);
    std::vector<double> times;
    for (size_t i = 1; i < events.size(); ++i)
      times.push_back(events[i].microsecondsSince(events[i - 1]));
    return times;
  }

private:
  CUstream stream;
  CUgraphExec executable = nullptr;
};

void BenchGpu::keepBusy(double seconds, const std::function<void()> &work) {
  auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    work();
    wait("the warm-up");
  } while (Clock::now() < end);
}

Spread BenchGpu::time(const std::function<void()> &work, int64_t blocks, int64_t replays,
                      const std::string &what, Pace pace) {
  std::optional<Recording> recording(std::in_place, benchStream, work, 1);
  recording->timeReplays(*this, 1, what); // the first replay also moves the graph to the GPU
  double once = Spread::of(recording->timeReplays(*this, 3, what)).median;
  double most = std::max(graphBlocks / double(blocks), 1.0);
  int64_t repeats = int64_t(std::clamp(std::ceil(pace.graphMicroseconds / std::max(once, 1.0)), 1.0, most));
  if (repeats > 1)
    recording.emplace(benchStream, work, repeats);
  keepBusy(pace.settleSeconds, [&] {
    for (int i = 0; i < 8; ++i)
      recording->replay();
  });
  std::vector<double> times = recording->timeReplays(*this, replays, what);
  for (double &time : times)
    time /= double(repeats * blocks);
  return Spread::of(std::move(times));
}
