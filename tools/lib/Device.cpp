//===- Device.cpp - Choosing a device -------------------------------------===//
#include "tools/lib/Device.h"
#include "runtime/src/Driver.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Suggest.h"

using namespace cfc;

DeviceChoice cfc::parseDeviceChoice(const std::string &text) {
  if (text == "auto")
    return DeviceChoice::Auto;
  if (text == "gpu")
    return DeviceChoice::Gpu;
  if (text == "emu")
    return DeviceChoice::Emulator;
  badInput("", "--device={}: auto, gpu and emu are known{}", text, didYouMean(text, {"auto", "gpu", "emu"}));
}

/// Why GPU 0 cannot run code for `target`, or "".
static std::string unfit(std::string_view target) {
  runtime::CUdevice device = 0;
  runtime::check(runtime::driver().cuDeviceGet(&device, 0), "opening GPU 0");
  int major = runtime::deviceAttribute(runtime::kDeviceMajor, device);
  int minor = runtime::deviceAttribute(runtime::kDeviceMinor, device);
  auto wanted = runtime::parseTarget(target);
  if (!wanted ||
      (wanted->major == major && (wanted->exact ? wanted->minor == minor : wanted->minor <= minor)))
    return "";
  return fmt::format("GPU 0 has compute capability {}.{}, {} needs {}.{}", major, minor, target,
                     wanted->major, wanted->minor);
}

std::unique_ptr<Device> cfc::openDevice(DeviceChoice choice, std::string_view target, std::string &why) {
  if (choice == DeviceChoice::Emulator)
    return makeEmulatorDevice();
  runtime::Failure failure;
  switch (runtime::probeDriver(failure)) {
  case runtime::DriverState::Ready: {
    std::string reason = unfit(target);
    if (reason.empty())
      return makeGpuDevice();
    if (choice == DeviceChoice::Gpu)
      cannotRun("", "{}; --device=emu runs it on the CPU", reason);
    why = reason;
    return makeEmulatorDevice();
  }
  case runtime::DriverState::Absent:
    if (choice == DeviceChoice::Gpu)
      cannotRun("", "there is no GPU here: {}; --device=emu runs it on the CPU", failure.message);
    why = "no NVIDIA GPU here";
    return makeEmulatorDevice();
  case runtime::DriverState::Broken:
    throw Failure(
        Exit(std::max(failure.exitCode(), int(Exit::CannotRun))), "",
        fmt::format("there is an NVIDIA device, but its driver does not answer: {}; --device=emu runs on the "
                    "CPU instead",
                    failure.message));
  }
  internalError("unknown state of the driver");
}
