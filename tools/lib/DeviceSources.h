//===- DeviceSources.h - The CUDA C++ files inside the program ------------===//
//
// Everything in templates/device is part of the program, so that NVRTC can
// compile it on any machine.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <span>
#include <string_view>

namespace cfc {

/// A file of templates/device. `text` ends with a zero byte.
struct DeviceSource {
  std::string_view name; ///< "rms_norm.cu"
  std::string_view text;
};

/// All of them, headers too.
std::span<const DeviceSource> deviceSources();

/// The one of that name; null if there is none.
inline const DeviceSource *findDeviceSource(std::string_view name) {
  for (const DeviceSource &source : deviceSources())
    if (source.name == name)
      return &source;
  return nullptr;
}

} // namespace cfc
