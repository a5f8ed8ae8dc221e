//===- Device.h - Where programs run: a GPU or the emulator ---------------===//
#pragma once
#include "cfc/runtime.h"
#include "runtime/src/Manifest.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlir {
class ModuleOp;
}

namespace cfc {

/// A compiled graph in the forms that devices load.
struct Image {
  const runtime::GraphSpec *graph = nullptr; ///< outlives what is loaded
  mlir::ModuleOp *simt = nullptr;            ///< for the emulator
  std::string_view bundle;                   ///< for a GPU: a whole bundle file
  size_t variant = 0;                        ///< of graph->variants: the one that runs
  uint32_t maxSms = 0;                       ///< for a GPU: use at most so many SMs; 0: all
  std::vector<uint32_t> resident; ///< for the emulator: clusters of each kernel at a time; empty: any
  std::string_view graphText;     ///< of a bundle: what captures say of it; empty: unknown
};

/// A program in a device, with buffers bound to its tensors. Every function throws Failure or runtime::Error.
class Executable {
public:
  virtual ~Executable() = default;
  /// Binds every tensor of the graph once; may be called again.
  virtual void bind(const std::vector<cfc_tensor> &tensors) = 0;
  /// Runs all kernels and waits. `seed` draws the emulator's order of threads. Fails (1) where the emulator
  /// found a fault: its report is in the message.
  virtual void launch(uint64_t seed) = 0;
  /// The sticky status since the last call: CFC_DEVICE_…_OUT_OF_BOUND.
  virtual uint32_t takeStatus() = 0;
};

/// Memory and programs of one device. Buffers lie between guard zones and live as long as the device.
class Device {
public:
  virtual ~Device() = default;
  /// "the emulator", "GPU 0: NVIDIA H200".
  virtual std::string describe() const = 0;
  virtual bool isEmulator() const = 0;
  /// New memory; `align` is a power of two. Its content is undefined.
  virtual uintptr_t allocate(size_t bytes, size_t align, const std::string &name) = 0;
  virtual void upload(uintptr_t to, const void *from, size_t bytes) = 0;
  virtual void download(void *to, uintptr_t from, size_t bytes) = 0;
  /// What a program did to a guard zone, or nothing.
  virtual std::optional<std::string> brokenGuard() = 0;
  virtual std::unique_ptr<Executable> load(const Image &image) = 0;
};

enum class DeviceChoice { Auto, Gpu, Emulator };

/// Reads a value of --device. Fails (2) for another word.
DeviceChoice parseDeviceChoice(const std::string &text);

/// Opens the device that was asked for. Auto takes a GPU that can run `target`, and the emulator where there
/// is no NVIDIA device; where there is one whose driver does not answer it fails. `why` then says what was
/// chosen and why. Gpu fails (3) where there is none.
std::unique_ptr<Device> openDevice(DeviceChoice choice, std::string_view target, std::string &why);

std::unique_ptr<Device> makeEmulatorDevice();
std::unique_ptr<Device> makeGpuDevice();

} // namespace cfc
