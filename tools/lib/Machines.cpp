//===- Machines.cpp - What this machine's GPU offers ----------------------===//
//
// Sizes and residency are asked from the driver; the bandwidth comes from the
// memory's clock and width; rates and latencies, which only measurements give,
// are those of the H200.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Machines.h"
#include "runtime/src/Driver.h"
#include "tools/lib/Failure.h"
#include <algorithm>
#include <cctype>

using namespace cfc;
using namespace cfc::runtime;

/// A kernel that does nothing: residency is asked for a function. The driver assembles it.
static constexpr char probePtx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                   ".visible .entry cfc_probe() .maxntid 1024 { ret; }\n";
/// Threads of a typical CTA: four consumer warps and the producer.
static constexpr unsigned probeThreads = 160;
/// Share of the peak bandwidth that reads reach (hopper-facts: 4.6 of 4.8 TB/s).
static constexpr double reachable = 0.955;

namespace {
/// The primary context of GPU 0 with the probe loaded.
class Probe {
public:
  Probe() {
    check(driver().cuDeviceGet(&device, 0), "opening GPU 0");
    check(driver().cuDevicePrimaryCtxRetain(&context, device), "opening a context on GPU 0");
    check(driver().cuCtxPushCurrent(context), "using the context of GPU 0");
    check(driver().cuModuleLoadData(&module, probePtx), "loading the probe kernel");
    check(driver().cuModuleGetFunction(&function, module, "cfc_probe"), "finding the probe kernel");
  }
  ~Probe() {
    driver().cuModuleUnload(module);
    CUcontext popped;
    driver().cuCtxPopCurrent(&popped);
    driver().cuDevicePrimaryCtxRelease(device);
  }

  /// Clusters of `size` CTAs with `shared` bytes each that are resident at a time; 0 where they cannot be.
  int64_t resident(unsigned size, unsigned shared) {
    check(driver().cuFuncSetAttribute(function, kFunctionMaxDynamicShared, int(shared)),
          "setting the shared memory");
    check(driver().cuFuncSetAttribute(function, kFunctionNonPortableClusterAllowed, size > 8),
          "allowing large clusters");
    CUlaunchAttribute cluster = {};
    cluster.id = kLaunchClusterDimension;
    cluster.value.cluster[0] = size;
    cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
    CUlaunchConfig config = {};
    config.gridX = size;
    config.gridY = config.gridZ = 1;
    config.blockX = probeThreads;
    config.blockY = config.blockZ = 1;
    config.sharedBytes = shared;
    config.attributes = &cluster;
    config.attributeCount = 1;
    int clusters = 0;
    return driver().cuOccupancyMaxActiveClusters(&clusters, function, &config) == kCudaSuccess ? clusters : 0;
  }

  CUdevice device = 0;

private:
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
};
} // namespace

/// "NVIDIA H200" as the name of a machine: "nvidia-h200".
static std::string machineName(std::string device) {
  for (char &c : device)
    c = std::isalnum(static_cast<unsigned char>(c)) ? char(std::tolower(static_cast<unsigned char>(c))) : '-';
  return device;
}

Native cfc::askDevice() {
  runtime::Failure failure;
  if (probeDriver(failure) != DriverState::Ready)
    throw cfc::Failure(Exit(std::max(failure.exitCode(), int(Exit::CannotRun))), "",
                       "there is no GPU to ask: " + failure.message);
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, 0), "opening GPU 0");
  Native native;
  char name[256] = {};
  int version = 0;
  size_t memory = 0;
  check(driver().cuDeviceGetName(name, sizeof name - 1, device), "asking for the name of GPU 0");
  check(driver().cuDriverGetVersion(&version), "asking for the driver's version");
  check(driver().cuDeviceTotalMem(&memory, device), "asking for the memory of GPU 0");
  native.device = name;
  native.driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  native.memory = memory;
  native.major = deviceAttribute(kDeviceMajor, device);
  native.minor = deviceAttribute(kDeviceMinor, device);

  Machine &machine = native.machine;
  machine = *knownMachine("h200");
  machine.name = machineName(name);
  machine.about = "asked from the driver; rates and latencies as measured on an H200";
  double boxes = machine.boxBandwidth / machine.bandwidth;
  machine.sms = deviceAttribute(kDeviceSmCount, device);
  machine.sharedBytes = deviceAttribute(kDeviceSharedPerBlockOptIn, device);
  machine.sharedBytesPerSm = deviceAttribute(kDeviceSharedPerSm, device);
  // kHz, both edges of the clock, bits.
  double peak = 2e3 * deviceAttribute(kDeviceMemoryClockRate, device) *
                deviceAttribute(kDeviceMemoryBusWidth, device) / 8;
  if (peak > 0)
    machine.bandwidth = peak * reachable, machine.boxBandwidth = boxes * machine.bandwidth;
  machine.residentClusters.clear();
  if (!deviceAttribute(kDeviceClusterLaunch, device))
    return native;
  Probe probe;
  for (int64_t ctas : {1, 2, 3})
    for (int64_t size : {1, 2, 4, 8, 16})
      machine.residentClusters[ctas][size] =
          probe.resident(unsigned(size), unsigned(machine.sharedLimit(ctas)));
  return native;
}

static Machine machineNamed(const std::string &option) {
  if (option == "native")
    return askDevice().machine;
  std::string error;
  auto machine = loadMachine(option.empty() ? "h200" : option, error);
  if (!machine)
    throw cfc::Failure(Exit::BadInput, error);
  return *machine;
}

Machine cfc::machineFor(const std::string &option, int64_t maxSms) {
  if (maxSms < 0 || maxSms > 65535)
    badInput("", "--max-sms={}: 1 to 65535 SMs, or 0 for all", maxSms);
  Machine machine = machineNamed(option);
  if (maxSms)
    machine.smsLimit = machine.smsLimit ? std::min(machine.smsLimit, maxSms) : maxSms;
  return machine;
}

std::string cfc::machineText(const std::string &option, int64_t maxSms) {
  bool isName = option.empty() || knownMachine(option);
  return isName && !maxSms ? option : machineFor(option, maxSms).toJson();
}
