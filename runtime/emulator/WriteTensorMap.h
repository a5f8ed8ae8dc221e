//===- WriteTensorMap.h - Tensor maps of bound tensors, for the emulator -----===//
//
// What a table for the emulator holds where the runtime has a GPU's tensor map.
// Free of MLIR.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/emulator/TensorMap.h"
#include "runtime/src/Maps.h"
#include <algorithm>
#include <cstring>

namespace cfc::emu {

/// Writes an EmulatedTensorMap; for runtime::tableImage.
inline void writeTensorMap(const runtime::MapGeometry &geometry, void *to) {
  EmulatedTensorMap map = {};
  map.magic = EmulatedTensorMap::kMagic;
  map.base = geometry.base;
  map.rank = geometry.rank;
  map.elementBytes = static_cast<uint32_t>(geometry.stride[0]);
  std::copy(geometry.size.begin(), geometry.size.end(), map.size);
  std::copy(geometry.stride.begin(), geometry.stride.end(), map.stride);
  std::copy(geometry.box.begin(), geometry.box.end(), map.box);
  map.swizzle = geometry.swizzle;
  std::memcpy(to, &map, sizeof map);
}

} // namespace cfc::emu
