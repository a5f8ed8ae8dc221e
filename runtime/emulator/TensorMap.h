//===- TensorMap.h - What the emulator takes for a tensor map ----------------===//
//
// A GPU's tensor maps are opaque. Whoever prepares a table for the emulator writes
// this in their place. Free of MLIR.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>

namespace cfc::emu {

struct EmulatedTensorMap {
  static constexpr uint64_t kMagic = 0x3150414d54434643; // "CFCTMAP1"
  uint64_t magic;
  uint64_t base;         ///< address of the first element; a multiple of 16
  uint32_t rank;         ///< 2 to 4
  uint32_t elementBytes; ///< 1, 2 or 4
  uint64_t size[4];      ///< elements of each dimension, innermost first
  uint64_t stride[4];    ///< bytes from element to element of each dimension; [0] is elementBytes, others
                         ///< multiples of 16
  uint32_t box[4];       ///< elements of a box
  uint32_t swizzle; ///< 0, or 128: 16-byte chunk c of 128-byte row r of the box lies at chunk c ^ (r % 8)
  uint8_t reserved[20];
};
static_assert(sizeof(EmulatedTensorMap) == 128);

} // namespace cfc::emu
