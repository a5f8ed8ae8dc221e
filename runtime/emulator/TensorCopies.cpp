//===- TensorCopies.cpp - Copies of boxes of tensors ------------------------===//
//
// A tensor load is a bulk copy whose source is made of the rows of a box: its
// destination is poison until it completes, and the rows are read at a random
// time in between. The map is read when the copy is issued.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/EntryPoints.h"
#include "runtime/emulator/Runtime.h"
#include <cstring>
#include <fmt/format.h>

using namespace cfc::emu;

//===-- The box -----------------------------------------------------------===//
static uint32_t rowBytes(const EmulatedTensorMap &map) { return map.box[0] * map.elementBytes; }
static uint32_t rowsOf(const EmulatedTensorMap &map) {
  uint32_t rows = 1;
  for (uint32_t i = 1; i < map.rank; ++i)
    rows *= map.box[i];
  return rows;
}

namespace {
/// The part of a row of the box that lies in the tensor.
struct Row {
  const char *source = nullptr;
  uint32_t at = 0, bytes = 0; // in the row of the box; 0 bytes: nothing of it
};
} // namespace

static bool isInside(int64_t at, uint64_t size) { return at >= 0 && static_cast<uint64_t>(at) < size; }

static Row findRow(const TensorBox &box, uint32_t row) {
  const EmulatedTensorMap &map = box.map;
  uint64_t address = map.base;
  for (uint32_t i = 1; i < map.rank; row /= map.box[i], ++i) {
    int64_t at = int64_t(box.at[i]) + row % map.box[i];
    if (!isInside(at, map.size[i]))
      return {};
    address += at * map.stride[i];
  }
  int64_t begin = std::max<int64_t>(box.at[0], 0);
  int64_t end = std::min(int64_t(box.at[0]) + map.box[0], static_cast<int64_t>(map.size[0]));
  if (begin >= end)
    return {};
  address += begin * map.elementBytes;
  return {reinterpret_cast<const char *>(address), uint32_t(begin - box.at[0]) * map.elementBytes,
          uint32_t(end - begin) * map.elementBytes};
}

void cfc::emu::readBox(const TensorBox &box, char *out) {
  const EmulatedTensorMap &map = box.map;
  uint32_t bytes = rowBytes(map);
  std::vector<char> content(bytes);
  for (uint32_t r = 0; r < rowsOf(map); ++r, out += bytes) {
    Row row = findRow(box, r);
    std::fill(content.begin(), content.end(), 0);
    if (row.bytes)
      std::memcpy(content.data() + row.at, row.source, row.bytes);
    if (!map.swizzle) {
      std::memcpy(out, content.data(), bytes);
      continue;
    }
    for (uint32_t chunk = 0; chunk < 8; ++chunk)
      std::memcpy(out + (chunk ^ r % 8) * 16, content.data() + chunk * 16, 16);
  }
}

//===-- Checks ------------------------------------------------------------===//
template <typename... Args>
[[noreturn]] static void failMap(Fiber *fiber, uint32_t location, fmt::format_string<Args...> text,
                                 Args &&...args) {
  fiber->launch->fail(fiber, FindingKind::Usage, location,
                      "tensor map " + fmt::format(text, std::forward<Args>(args)...));
}

/// What cuTensorMapEncodeTiled would have refused.
static void checkMap(Fiber *fiber, const EmulatedTensorMap &map, uint32_t rank, uint32_t location) {
  if (map.magic != EmulatedTensorMap::kMagic)
    failMap(fiber, location, "is none: its first word is {:#x}", map.magic);
  if (map.rank != rank)
    failMap(fiber, location, "of {} dimensions with {} coordinates", map.rank, rank);
  bool isSize = map.elementBytes == 1 || map.elementBytes == 2 || map.elementBytes == 4;
  if (!isSize || map.stride[0] != map.elementBytes)
    failMap(fiber, location, "of elements of {} bytes, {} apart", map.elementBytes, map.stride[0]);
  if (map.base % 16)
    failMap(fiber, location, "of an address that is no multiple of 16");
  for (uint32_t i = 0; i < rank; ++i) {
    if (!map.size[i] || map.size[i] > uint64_t(1) << 32)
      failMap(fiber, location, "with {} elements in dimension {}", map.size[i], i);
    if (i && (map.stride[i] % 16 || map.stride[i] >= uint64_t(1) << 40))
      failMap(fiber, location, "with a stride of {} bytes in dimension {}", map.stride[i], i);
    if (!map.box[i] || map.box[i] > 256)
      failMap(fiber, location, "with a box of {} elements in dimension {}", map.box[i], i);
  }
  if (rowBytes(map) % 16)
    failMap(fiber, location, "whose box has rows of {} bytes", rowBytes(map));
  if (map.swizzle && (map.swizzle != 128 || rowBytes(map) != 128))
    failMap(fiber, location, "that swizzles {} bytes with rows of {}", map.swizzle, rowBytes(map));
  if (rowBytes(map) * rowsOf(map) >= 1u << 20)
    failMap(fiber, location, "with a box of {} bytes", rowBytes(map) * rowsOf(map));
}

/// A thread of the grid and a map.
static std::pair<uint64_t, const void *> acquisition(const Fiber &fiber, const void *map) {
  return {uint64_t(fiber.cta->number) << 32 | fiber.thread, map};
}

//===-- Entry points ------------------------------------------------------===//
void cfc_emu_tensor_map_acquire(Fiber *fiber, const char *map, uint32_t location) {
  fiber->launch->maybePreempt(fiber, location);
  checkGlobal(fiber, map, sizeof(EmulatedTensorMap), sizeof(EmulatedTensorMap), location, "tensor map");
  fiber->launch->acquiredMaps.insert(acquisition(*fiber, map));
}

void cfc_emu_tensor_load(Fiber *fiber, char *target, const char *map, int32_t at0, int32_t at1, int32_t at2,
                         int32_t at3, uint32_t rank, char *barrier, uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  checkGlobal(fiber, map, sizeof(EmulatedTensorMap), 64, location, "tensor map");
  if (!launch.acquiredMaps.contains(acquisition(*fiber, map)))
    launch.fail(fiber, FindingKind::ProxyOrder, location,
                fmt::format("the tensor map {} is used without a tensor_map_acquire in this thread",
                            launch.memory.describe(reinterpret_cast<uintptr_t>(map))));
  auto box = std::make_unique<TensorBox>();
  std::memcpy(&box->map, map, sizeof(EmulatedTensorMap));
  checkMap(fiber, box->map, rank, location);
  box->at[0] = at0, box->at[1] = at1, box->at[2] = at2, box->at[3] = at3;
  uint32_t bytes = rowBytes(box->map) * rowsOf(box->map);
  checkShared(fiber, target, bytes, box->map.swizzle ? 1024 : 128, location, "destination");
  checkShared(fiber, barrier, 8, 8, location, "mbarrier");
  for (uint32_t r = 0; r < rowsOf(box->map); ++r)
    if (Row row = findRow(*box, r); row.bytes)
      checkGlobal(fiber, row.source, row.bytes, box->map.elementBytes, location, "row of a box");
  fiber->cta->count(Counter::TensorLoads);
  fiber->cta->count(Counter::TensorLoadBytes, bytes);
  Copy copy{CopyKind::Load, false, bytes, location, target, nullptr};
  copy.box = std::move(box);
  issueLoad(fiber, std::move(copy), barrier);
}
