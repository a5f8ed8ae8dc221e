//===- Packing.h - The layout "packed" of weights ---------------*- C++ -*-===//
//
// A weight [rows, columns] of 16-bit elements, cut into blocks of 64 rows x 64 columns of 8 KB. In a block,
// row r is 128 bytes at 128 r, and its 16-byte chunk c lies at 16 (c xor (r mod 8)) of them: what a tensor
// copy with the 128-byte swizzle leaves in shared memory. Blocks lie row of blocks by row of blocks. Rows and
// columns are padded with zeros to multiples of 64.
//
// Columns restart and pad at every multiple of `columnGroup`: where a head's columns of an output projection
// are no multiple of 64, a head is a group, and begins a block.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_PACKING_H
#define CFC_RUNTIME_SRC_PACKING_H

#include <cstddef>
#include <cstdint>

namespace cfc::runtime {

/// What files and manifests call the layout. Another arrangement would get another name.
inline constexpr const char *kPackedLayoutName = "packed";

struct PackedLayout {
  static constexpr int64_t kBlock = 64;        ///< rows and columns of a block
  static constexpr int64_t kElementBytes = 2;  ///< f16 or bf16
  static constexpr int64_t kChunkElements = 8; ///< of 16 bytes, which stay together
  static constexpr int64_t kBlockBytes = 8192; ///< of a block
  static constexpr int64_t kBlockChunks = 512; ///< of a block

  int64_t rows = 0, columns = 0; ///< of the native weight; both positive
  int64_t columnGroup = 0;       ///< columns that are padded together; 0: all

  /// Columns of a group, blocks of a group, blocks of a row of blocks, rows of blocks.
  int64_t group() const { return columnGroup ? columnGroup : columns; }
  int64_t groupBlocks() const { return (group() + kBlock - 1) / kBlock; }
  int64_t columnBlocks() const { return (columns + group() - 1) / group() * groupBlocks(); }
  int64_t rowBlocks() const { return (rows + kBlock - 1) / kBlock; }

  /// Bytes of 64 rows of the packed weight, of all of it, and of the native one.
  uint64_t panelBytes() const { return uint64_t(columnBlocks()) * kBlockBytes; }
  uint64_t bytes() const { return uint64_t(rowBlocks()) * panelBytes(); }
  uint64_t nativeBytes() const { return uint64_t(rows) * uint64_t(columns) * kElementBytes; }

  /// Byte of an element in the packed weight.
  uint64_t offset(int64_t row, int64_t column) const;

  /// Whether nothing is padded: then each 64 rows are a permutation of themselves, and the weight can be
  /// packed where it lies.
  bool exact() const { return bytes() == nativeBytes(); }

  bool operator==(const PackedLayout &) const = default;
};

/// Where one 16-byte chunk of the packed weight comes from.
struct PackedChunk {
  int64_t row = 0, column = 0; ///< of its first element
  int64_t elements = 0;        ///< 0 to 8 that the weight has; the rest is zero
};

/// The source of chunk `index`, which lies at byte 16 `index` of the packed weight. The kernels of
/// PackingKernels.h compute the same.
PackedChunk packedChunk(const PackedLayout &layout, uint64_t index);

/// Whole weights in host memory, of any alignment. `native` and `packed` do not overlap.
void pack(const PackedLayout &layout, const void *native, void *packed);
void unpack(const PackedLayout &layout, const void *packed, void *native);

/// The same where the weight lies; `scratch` holds panelBytes(). Only for an exact layout.
void packInPlace(const PackedLayout &layout, void *weight, void *scratch);
void unpackInPlace(const PackedLayout &layout, void *weight, void *scratch);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_PACKING_H
