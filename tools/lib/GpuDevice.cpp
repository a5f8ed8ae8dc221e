//===- GpuDevice.cpp - Programs on GPU 0, through the runtime -------------===//
//
// Launches take the way that an engine takes: cfc_load, cfc_bind, cfc_launch.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Driver.h"
#include "tools/lib/Device.h"
#include "tools/lib/Failure.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

using namespace cfc;
using namespace cfc::runtime;

/// Turns a status of the C interface into a Failure.
static void checkStatus(cfc_status status) {
  if (status != CFC_OK)
    throw cfc::Failure(Exit(CFC_EXIT_CODE(status)), "", cfc_last_error());
}

namespace {
/// Bytes before and behind every buffer, and what they hold.
constexpr size_t guardBytes = 4096;
constexpr unsigned char guardValue = 0xA5;
/// A launch that takes longer counts as hung.
constexpr auto patience = std::chrono::seconds(60);

class GpuExecutable : public Executable {
public:
  GpuExecutable(Device &device, CUstream stream, const Image &image) : stream(stream) {
    cfc_load_options options = {};
    options.size = sizeof options;
    options.memory = image.bundle.data();
    options.memory_bytes = image.bundle.size();
    checkStatus(cfc_load("the compiled graph", &options, &bundle));
    size_t align = 1;
    name = image.graph->name;
    planHash = image.graph->variants.at(image.variant).planHash;
    maxSms = image.maxSms;
    checkStatus(cfc_workspace_size(bundle, name.c_str(), nullptr, &workspaceBytes, &align));
    workspace = reinterpret_cast<void *>(device.allocate(workspaceBytes, align, "workspace"));
    checkStatus(cfc_workspace_init(workspace, workspaceBytes, stream));
    check(driver().cuEventCreate(&finished, kEventDisableTiming), "making an event");
  }

  ~GpuExecutable() override {
    driver().cuEventDestroy(finished);
    cfc_unbind(binding);
    cfc_unload(bundle);
  }

  void bind(const std::vector<cfc_tensor> &tensors) override {
    cfc_unbind(binding);
    binding = nullptr;
    cfc_bind_options options = {};
    options.size = sizeof options;
    options.plan_hash = planHash.c_str();
    options.max_sms = maxSms;
    checkStatus(cfc_bind(bundle, name.c_str(), tensors.data(), tensors.size(), &options, &binding));
  }

  void launch(uint64_t) override {
    cfc_launch_args args = {};
    args.size = sizeof args;
    args.workspace = workspace;
    args.workspace_bytes = workspaceBytes;
    checkStatus(cfc_launch(binding, &args, stream));
    check(driver().cuEventRecord(finished, stream), "recording an event");
    auto start = std::chrono::steady_clock::now();
    auto pause = std::chrono::microseconds(10);
    for (;;) {
      CUresult state = driver().cuEventQuery(finished);
      if (state != kCudaErrorNotReady) {
        check(state, "running the kernels");
        return;
      }
      if (std::chrono::steady_clock::now() - start > patience) {
        // Nothing can be given back while the kernel runs: leave without waiting for it.
        fmt::print(stderr, "error: the kernels of '{}' have not ended after {} s\n", name, patience.count());
        std::fflush(nullptr);
        std::_Exit(int(Exit::Internal));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }

  uint32_t takeStatus() override {
    cfc_device_status status = {};
    status.size = sizeof status;
    status.flags = CFC_DEVICE_STATUS_CLEAR;
    checkStatus(cfc_device_status_get(binding, stream, &status));
    return status.bits;
  }

private:
  CUstream stream;
  std::string name, planHash;
  uint32_t maxSms = 0;
  cfc_bundle *bundle = nullptr;
  cfc_binding *binding = nullptr;
  void *workspace = nullptr;
  size_t workspaceBytes = 0;
  CUevent finished = nullptr;
};

class GpuDevice : public Device {
public:
  GpuDevice() {
    check(driver().cuDeviceGet(&device, 0), "opening GPU 0");
    check(driver().cuDevicePrimaryCtxRetain(&context, device), "opening a context on GPU 0");
    check(driver().cuCtxPushCurrent(context), "using the context of GPU 0");
    check(driver().cuStreamCreate(&stream, kStreamNonBlocking), "making a stream");
  }

  ~GpuDevice() override {
    driver().cuStreamSynchronize(stream);
    for (const Buffer &buffer : buffers)
      driver().cuMemFree(buffer.base);
    driver().cuStreamDestroy(stream);
    CUcontext popped;
    driver().cuCtxPopCurrent(&popped);
    driver().cuDevicePrimaryCtxRelease(device);
  }

  std::string describe() const override {
    char text[256] = {};
    check(driver().cuDeviceGetName(text, sizeof text - 1, device), "asking for the name of GPU 0");
    return fmt::format("GPU 0: {}", text);
  }

  bool isEmulator() const override { return false; }

  uintptr_t allocate(size_t bytes, size_t align, const std::string &name) override {
    align = std::max<size_t>(align, 256);
    Buffer buffer = {0, 0, bytes, 0, name};
    buffer.total = bytes + 2 * guardBytes + align;
    check(driver().cuMemAlloc(&buffer.base, buffer.total),
          fmt::format("allocating {} bytes for '{}'", bytes, name));
    buffer.data = (buffer.base + guardBytes + align - 1) & ~(align - 1);
    check(driver().cuMemsetD8Async(buffer.base, guardValue, buffer.total, stream), "filling memory");
    buffers.push_back(buffer);
    return buffer.data;
  }

  void upload(uintptr_t to, const void *from, size_t bytes) override {
    check(driver().cuMemcpyHtoDAsync(to, from, bytes, stream), "copying to the GPU");
    check(driver().cuStreamSynchronize(stream), "copying to the GPU");
  }

  void download(void *to, uintptr_t from, size_t bytes) override {
    check(driver().cuMemcpyDtoHAsync(to, from, bytes, stream), "copying from the GPU");
    check(driver().cuStreamSynchronize(stream), "copying from the GPU");
  }

  std::optional<std::string> brokenGuard() override {
    std::vector<unsigned char> bytes;
    for (const Buffer &buffer : buffers) {
      size_t before = buffer.data - buffer.base, behind = buffer.total - before - buffer.bytes;
      for (auto [begin, size] :
           {std::pair(buffer.base, before), std::pair(buffer.data + buffer.bytes, behind)}) {
        bytes.resize(size);
        download(bytes.data(), begin, size);
        auto bad = std::find_if(bytes.begin(), bytes.end(), [](unsigned char c) { return c != guardValue; });
        if (bad == bytes.end())
          continue;
        size_t at = size_t(bad - bytes.begin());
        return begin == buffer.base
                   ? fmt::format("byte {} before the start of '{}'", before - at, buffer.name)
                   : fmt::format("byte {} past the end of '{}'", at, buffer.name);
      }
    }
    return std::nullopt;
  }

  std::unique_ptr<Executable> load(const Image &image) override {
    return std::make_unique<GpuExecutable>(*this, stream, image);
  }

private:
  struct Buffer {
    CUdeviceptr base, data;
    size_t bytes, total;
    std::string name;
  };
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  std::vector<Buffer> buffers;
};
} // namespace

std::unique_ptr<Device> cfc::makeGpuDevice() { return std::make_unique<GpuDevice>(); }
