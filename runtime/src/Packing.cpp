//===- Packing.cpp - The layout "packed" of weights -------------------------===//
#include "runtime/src/Packing.h"
#include <algorithm>
#include <cstring>

namespace cfc::runtime {

uint64_t PackedLayout::offset(int64_t row, int64_t column) const {
  int64_t inGroup = column % group();
  int64_t block = column / group() * groupBlocks() + inGroup / kBlock;
  int64_t blockRow = row % kBlock, chunk = inGroup % kBlock / kChunkElements;
  return uint64_t(row / kBlock * columnBlocks() + block) * kBlockBytes +
         uint64_t(128 * blockRow + 16 * (chunk ^ (blockRow % 8)) +
                  kElementBytes * (inGroup % kChunkElements));
}

PackedChunk packedChunk(const PackedLayout &layout, uint64_t index) {
  int64_t block = int64_t(index / PackedLayout::kBlockChunks), inBlock = index % PackedLayout::kBlockChunks;
  int64_t rowInBlock = inBlock / 8, chunk = inBlock % 8 ^ rowInBlock % 8;
  int64_t rowBlock = block / layout.columnBlocks(), columnBlock = block % layout.columnBlocks();
  int64_t group = columnBlock / layout.groupBlocks(), blockInGroup = columnBlock % layout.groupBlocks();
  int64_t inGroup = blockInGroup * PackedLayout::kBlock + chunk * PackedLayout::kChunkElements;
  PackedChunk result{rowBlock * PackedLayout::kBlock + rowInBlock, group * layout.group() + inGroup, 0};
  int64_t left = std::min(layout.group() - inGroup, layout.columns - result.column);
  if (result.row < layout.rows)
    result.elements = std::clamp<int64_t>(left, 0, PackedLayout::kChunkElements);
  return result;
}

/// Calls `move` with each chunk's bytes: its place in the packed weight, in the native one, and how many of
/// 16 the native one has. Where it has none, the place there says nothing. The same places as packedChunk's,
/// without a division for each.
template <class Move> static void forEachChunk(const PackedLayout &layout, Move move) {
  constexpr int64_t kBlock = PackedLayout::kBlock, kChunk = PackedLayout::kChunkElements;
  uint64_t begin = 0; // of the block
  for (int64_t row = 0; row < layout.rowBlocks() * kBlock; row += kBlock)
    for (int64_t block = 0; block < layout.columnBlocks(); ++block, begin += PackedLayout::kBlockBytes) {
      int64_t inGroup = block % layout.groupBlocks() * kBlock;
      int64_t column = block / layout.groupBlocks() * layout.group() + inGroup;
      int64_t width = std::min(layout.group() - inGroup, layout.columns - column);
      for (int64_t r = 0; r < kBlock; ++r)
        for (int64_t c = 0; c < kBlock / kChunk; ++c) {
          int64_t left = row + r < layout.rows ? std::clamp<int64_t>(width - c * kChunk, 0, kChunk) : 0;
          uint64_t native = left ? uint64_t((row + r) * layout.columns + column + c * kChunk) : 0;
          move(begin + uint64_t(128 * r + 16 * (c ^ (r % 8))), native * PackedLayout::kElementBytes,
               size_t(left * PackedLayout::kElementBytes));
        }
    }
}

void pack(const PackedLayout &layout, const void *native, void *packed) {
  const char *from = static_cast<const char *>(native);
  char *to = static_cast<char *>(packed);
  forEachChunk(layout, [=](uint64_t at, uint64_t source, size_t bytes) {
    std::memcpy(to + at, from + source, bytes);
    std::memset(to + at + bytes, 0, 16 - bytes);
  });
}

void unpack(const PackedLayout &layout, const void *packed, void *native) {
  const char *from = static_cast<const char *>(packed);
  char *to = static_cast<char *>(native);
  forEachChunk(layout, [=](uint64_t at, uint64_t target, size_t bytes) {
    std::memcpy(to + target, from + at, bytes);
  });
}

/// Calls `convert` for each panel with a layout of 64 rows, a copy of the panel, and the panel.
template <class Convert>
static void forEachPanel(const PackedLayout &layout, void *weight, void *scratch, Convert convert) {
  PackedLayout panel = layout;
  panel.rows = PackedLayout::kBlock;
  for (int64_t i = 0; i < layout.rowBlocks(); ++i) {
    char *begin = static_cast<char *>(weight) + uint64_t(i) * panel.bytes();
    std::memcpy(scratch, begin, panel.bytes());
    convert(panel, scratch, begin);
  }
}

void packInPlace(const PackedLayout &layout, void *weight, void *scratch) {
  forEachPanel(layout, weight, scratch, pack);
}

void unpackInPlace(const PackedLayout &layout, void *weight, void *scratch) {
  forEachPanel(layout, weight, scratch, unpack);
}

} // namespace cfc::runtime
