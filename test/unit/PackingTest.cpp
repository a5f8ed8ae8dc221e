//===- PackingTest.cpp - The layout "packed" of weights ---------------------===//
#include "runtime/src/Packing.h"
#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <string>
#include <vector>

using namespace cfc::runtime;

namespace {
using Elements = std::vector<uint16_t>;

/// Odd, even, smaller and larger than a block; with groups that end inside of a block, at one, and past all.
const PackedLayout kLayouts[] = {{1, 1, 0},      {1, 64, 0},    {64, 1, 0},    {64, 64, 0},    {65, 63, 0},
                                 {63, 65, 0},    {128, 192, 0}, {130, 200, 0}, {3, 7, 0},      {7, 131, 0},
                                 {64, 128, 64},  {64, 160, 80}, {10, 240, 80}, {128, 192, 96}, {65, 100, 40},
                                 {64, 100, 128}, {5, 12, 5},    {64, 256, 128}};

/// Every element differs, none is zero.
Elements nativeWeight(const PackedLayout &layout) {
  Elements weight(size_t(layout.rows * layout.columns));
  for (size_t i = 0; i < weight.size(); ++i)
    weight[i] = uint16_t(i % 65521 + 1);
  return weight;
}

Elements packed(const PackedLayout &layout, const Elements &native) {
  Elements result(layout.bytes() / 2, 0xffff);
  pack(layout, native.data(), result.data());
  return result;
}

std::string text(const PackedLayout &layout) {
  return std::to_string(layout.rows) + "x" + std::to_string(layout.columns) + " in groups of " +
         std::to_string(layout.columnGroup);
}
} // namespace

TEST_CASE("packing: where the words of the definition put an element") {
  PackedLayout layout{128, 192, 0};
  CHECK(layout.bytes() == 128 * 192 * 2);
  CHECK(layout.panelBytes() == 3 * 8192);
  CHECK(layout.offset(0, 0) == 0);
  CHECK(layout.offset(0, 9) == 18);             // chunk 1 of row 0
  CHECK(layout.offset(1, 0) == 128 + 16);       // chunk 0 of row 1 lies at 0 xor 1
  CHECK(layout.offset(13, 43) == 128 * 13 + 6); // chunk 5 of row 13 lies at 5 xor 5
  CHECK(layout.offset(0, 64) == 8192);          // the next block of columns
  CHECK(layout.offset(64, 0) == 3 * 8192);      // the next row of blocks
  CHECK(layout.offset(127, 191) == 5 * 8192 + 128 * 63 + 14);
  // A head of 80 columns takes two blocks.
  PackedLayout heads{64, 160, 80};
  CHECK(heads.columnBlocks() == 4);
  CHECK(heads.offset(0, 79) == 8192 + 16 + 14);
  CHECK(heads.offset(0, 80) == 2 * 8192);
  // The largest shapes do not overflow.
  PackedLayout large{int64_t(1) << 20, int64_t(1) << 20, 0};
  CHECK(large.offset(large.rows - 1, large.columns - 1) == (uint64_t(1) << 41) - 8192 + 128 * 63 + 14);
}

TEST_CASE("packing: every element arrives at its offset, the rest is zero, and unpacking restores all") {
  for (const PackedLayout &layout : kLayouts) {
    INFO(text(layout));
    Elements native = nativeWeight(layout), result = packed(layout, native);
    std::set<uint64_t> used;
    bool right = true;
    for (int64_t row = 0; row < layout.rows; ++row)
      for (int64_t column = 0; column < layout.columns; ++column) {
        uint64_t offset = layout.offset(row, column);
        right &= offset % 2 == 0 && offset < layout.bytes() && used.insert(offset).second;
        right = right && result[offset / 2] == native[size_t(row * layout.columns + column)];
      }
    CHECK(right);
    bool zero = true;
    for (uint64_t offset = 0; offset < layout.bytes(); offset += 2)
      zero &= used.count(offset) || result[offset / 2] == 0;
    CHECK(zero);
    Elements restored(native.size(), 0xffff);
    unpack(layout, result.data(), restored.data());
    CHECK(restored == native);
  }
}

TEST_CASE("packing: a chunk's source is where its elements come from") {
  for (const PackedLayout &layout : kLayouts) {
    INFO(text(layout));
    Elements native = nativeWeight(layout), result = packed(layout, native), made(result.size());
    for (uint64_t i = 0; i < layout.bytes() / 16; ++i) {
      PackedChunk chunk = packedChunk(layout, i);
      REQUIRE((chunk.elements >= 0 && chunk.elements <= 8));
      for (int64_t e = 0; e < chunk.elements; ++e)
        made[size_t(8 * i + e)] = native.at(size_t(chunk.row * layout.columns + chunk.column + e));
    }
    CHECK(made == result);
  }
}

TEST_CASE("packing: in place where nothing is padded") {
  size_t exact = 0;
  for (const PackedLayout &layout : kLayouts) {
    INFO(text(layout));
    bool whole = layout.rows % 64 == 0 && layout.columns % layout.group() == 0 && layout.group() % 64 == 0;
    CHECK(layout.exact() == whole);
    if (!layout.exact())
      continue;
    ++exact;
    Elements native = nativeWeight(layout), weight = native, scratch(layout.panelBytes() / 2);
    packInPlace(layout, weight.data(), scratch.data());
    CHECK(weight == packed(layout, native));
    unpackInPlace(layout, weight.data(), scratch.data());
    CHECK(weight == native);
  }
  CHECK(exact == 4);
}

TEST_CASE("packing: host memory of any alignment") {
  PackedLayout layout{66, 70, 0};
  Elements native = nativeWeight(layout), expected = packed(layout, native);
  std::vector<char> from(layout.nativeBytes() + 1), to(layout.bytes() + 3);
  std::memcpy(from.data() + 1, native.data(), layout.nativeBytes());
  pack(layout, from.data() + 1, to.data() + 3);
  CHECK(std::memcmp(to.data() + 3, expected.data(), layout.bytes()) == 0);
}
