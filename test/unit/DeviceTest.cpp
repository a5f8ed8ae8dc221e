//===- DeviceTest.cpp - The tools' devices give the same answers ------------===//
//
// The GPU's code runs against a driver whose launches go to the emulator, so that
// everything but the GPU itself is tried where there is none.
//
//===----------------------------------------------------------------------===//
#include "FakeDriver.h"
#include "runtime/emulator/Emulator.h"
#include "tools/lib/Build.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Machines.h"
#include "tools/lib/Session.h"
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

using namespace cfc;
using runtime::test::FakeDriver, runtime::test::FakeLaunch;

namespace {
/// A driver whose streams run by themselves and whose kernels run on the emulator.
class EmulatedGpu {
public:
  explicit EmulatedGpu(Program &program) : emulated(cantFail(emu::Program::compile(program.simt))) {
    const runtime::KernelSpec &kernel = program.graph.variants.front().kernels.front();
    fake->width = [&kernel](const std::string &) { return int(kernel.cluster); };
    fake->onAllocate = [this](void *memory, size_t bytes) {
      this->memory.addRegion(memory, bytes, "memory");
    };
    fake->onLaunch = [this](const FakeLaunch &launch) {
      emu::Report report = emulated->launch(launch.kernel, launch.grid / launch.cluster,
                                            reinterpret_cast<void *>(launch.table),
                                            reinterpret_cast<void *>(launch.workspace), memory, {});
      CHECK(report.ok);
    };
    table = runtime::driver();
    table.cuDeviceGetName = [](char *name, int length, runtime::CUdevice) {
      std::strncpy(name, "Fake 9000", size_t(length));
      return 0;
    };
    table.cuDeviceTotalMem = [](size_t *bytes, runtime::CUdevice) { return *bytes = size_t(1) << 37, 0; };
    known = table.cuDeviceGetAttribute;
    table.cuDeviceGetAttribute = [](int *value, int attribute, runtime::CUdevice device) {
      static const std::map<int, int> more = {{runtime::kDeviceMemoryClockRate, 3201000},
                                              {runtime::kDeviceMemoryBusWidth, 6144},
                                              {runtime::kDeviceSharedPerSm, 233472},
                                              {runtime::kDeviceClusterLaunch, 1}};
      auto it = more.find(attribute);
      return it == more.end() ? known(value, attribute, device) : (*value = it->second, 0);
    };
    runtime::setDriverForTests(&table);
    stream = std::thread([this] {
      while (!stop) {
        {
          std::lock_guard lock(fake->mutex);
          fake->flush();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  ~EmulatedGpu() {
    stop = true;
    stream.join();
  }
  FakeDriver fake;

private:
  runtime::Driver table;
  static inline decltype(table.cuDeviceGetAttribute) known = nullptr;
  std::unique_ptr<emu::Program> emulated;
  emu::Memory memory;
  std::thread stream;
  std::atomic<bool> stop = false;
};

/// templates/graphs/small_attention.mlir, compiled for the emulator and as a bundle with an empty cubin.
struct Small {
  Compiler compiler;
  Source source = readSource(compiler, CFC_GRAPHS "/small_attention.mlir");
  std::unique_ptr<Device> emulator = makeEmulatorDevice();
  Program program = makeProgram(compiler, source, {}, *emulator);
  TensorMap inputs = resolveInputs(inputSpecs(*source.module, program.graph), {}, {1, 37, 40});

  Small() {
    program.compiled->cubins = {"none"};
    program.bundle = bundleContent(*program.compiled, source.text);
  }

  TensorMap run(Device &device) {
    DeviceTensors tensors(device);
    tensors.upload(inputs);
    auto executable = device.load(program.image());
    executable->bind(tensors.bindings(program.graph));
    tensors.poisonResults(program.graph);
    executable->launch(0);
    CHECK(executable->takeStatus() == 0);
    CHECK(!device.brokenGuard());
    return tensors.outputs(program.graph);
  }
};
} // namespace

TEST_CASE("the emulator and a GPU's driver are used alike") {
  Small small;
  TensorMap onEmulator = small.run(*small.emulator), onGpu;
  {
    EmulatedGpu gpu(small.program);
    auto device = makeGpuDevice();
    CHECK_THAT(device->describe(), Catch::Equals("GPU 0: Fake 9000"));
    onGpu = small.run(*device);
  }
  REQUIRE(onGpu.size() == onEmulator.size());
  for (auto &[name, tensor] : onEmulator)
    CHECK(std::memcmp(tensor.data(), onGpu.at(name).data(), tensor.bytes()) == 0);
}

TEST_CASE("bytes written around a buffer are noticed") {
  Small small;
  auto check = [](Device &device) {
    uintptr_t buffer = device.allocate(100, 16, "b");
    CHECK(!device.brokenGuard());
    device.upload(buffer + 100, "x", 1);
    REQUIRE(device.brokenGuard());
    CHECK_THAT(*device.brokenGuard(), Catch::Contains("b"));
  };
  check(*small.emulator);
  EmulatedGpu gpu(small.program);
  check(*makeGpuDevice());
}

TEST_CASE("which device is taken") {
  Small small;
  std::string why;
  {
    EmulatedGpu gpu(small.program);
    CHECK(!openDevice(DeviceChoice::Auto, "sm_90a", why)->isEmulator());
    CHECK(why.empty());
    gpu.fake->major = 8;
    CHECK(openDevice(DeviceChoice::Auto, "sm_90a", why)->isEmulator());
    CHECK_THAT(why, Catch::Contains("compute capability 8.0"));
    CHECK_THROWS_WITH(openDevice(DeviceChoice::Gpu, "sm_90a", why), Catch::Contains("sm_90a needs 9.0"));
    CHECK(openDevice(DeviceChoice::Emulator, "sm_90a", why)->isEmulator());
  }
}

TEST_CASE("the native machine comes from the driver") {
  Small small;
  EmulatedGpu gpu(small.program);
  gpu.fake->resident = [](const std::string &, unsigned cluster) { return int(100 / cluster); };
  Machine machine = machineFor("native");
  CHECK(machine.sms == 132);
  CHECK(machine.resident(4, 1) == 25);
  CHECK(machine.bandwidth == Approx(4.7e12).epsilon(0.01));
  std::string error;
  CHECK(parseMachine(machine.toJson(), "native", error));
  CHECK(error.empty());
}
