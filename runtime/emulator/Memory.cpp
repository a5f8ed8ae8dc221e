//===- Memory.cpp - Global memory of emulated kernels ----------------------===//
//
// Regions with guard zones, and the poison pattern.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/Emulator.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cassert>
#include <cstring>
#include <fmt/format.h>
#include <new>

using namespace cfc::emu;

namespace {
constexpr size_t kGuardBytes = 4096;
constexpr unsigned char kGuardByte = 0xC5;
} // namespace

void cfc::emu::poison(void *begin, size_t bytes) {
  constexpr uint64_t word = 0x0001000100010001ull * kPoison;
  char *p = static_cast<char *>(begin);
  size_t words = bytes / 8;
  for (size_t i = 0; i < words; ++i)
    std::memcpy(p + 8 * i, &word, 8);
  std::memcpy(p + 8 * words, &word, bytes % 8);
}

struct Memory::Block {
  Block(size_t bytes, size_t align) : align(align) {
    before = (kGuardBytes + align - 1) / align * align;
    size = bytes;
    total = before + bytes + kGuardBytes;
    base = static_cast<unsigned char *>(::operator new(total, std::align_val_t(align)));
    std::memset(base, kGuardByte, before);
    std::memset(base + before + bytes, kGuardByte, kGuardBytes);
  }
  ~Block() { ::operator delete(base, std::align_val_t(align)); }
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  unsigned char *data() const { return base + before; }

  unsigned char *base;
  size_t align, before, size, total;
  std::string name;
};

Memory::Memory() = default;
Memory::~Memory() = default;
Memory::Memory(Memory &&) noexcept = default;
Memory &Memory::operator=(Memory &&) noexcept = default;

void *Memory::allocate(size_t bytes, size_t align, llvm::StringRef name, bool zeroed) {
  auto block = std::make_unique<Block>(bytes, std::max<size_t>(align, 256));
  block->name = name.str();
  if (zeroed)
    std::memset(block->data(), 0, bytes);
  else
    poison(block->data(), bytes);
  void *data = block->data();
  addRegion(data, bytes, name);
  blocks.push_back(std::move(block));
  return data;
}

void Memory::addRegion(void *begin, size_t bytes, llvm::StringRef name) {
  auto address = reinterpret_cast<uintptr_t>(begin);
  Region region{address, address + bytes, name.str()};
  auto at = llvm::lower_bound(regions, address, [](const Region &r, uintptr_t a) { return r.begin < a; });
  assert((at == regions.end() || region.end <= at->begin) && "regions overlap");
  regions.insert(at, std::move(region));
}

bool Memory::guardsIntact(std::string *where) const {
  for (const auto &block : blocks) {
    const unsigned char *end = block->base + block->total;
    const unsigned char *dataEnd = block->data() + block->size;
    for (const unsigned char *p = block->base; p != end; p = p + 1 == block->data() ? dataEnd : p + 1) {
      if (*p == kGuardByte)
        continue;
      if (where)
        *where = fmt::format("the guard zone of '{}' was written {} bytes {}", block->name,
                             p < block->data() ? block->data() - p : p - dataEnd,
                             p < block->data() ? "before its start" : "past its end");
      return false;
    }
  }
  return true;
}

const Memory::Region *Memory::find(uintptr_t address) const {
  auto after = llvm::upper_bound(regions, address, [](uintptr_t a, const Region &r) { return a < r.begin; });
  if (after == regions.begin() || address >= std::prev(after)->end)
    return nullptr;
  return &*std::prev(after);
}

std::string Memory::describe(uintptr_t address) const {
  if (const Region *in = find(address))
    return fmt::format("{} bytes into '{}' ({} bytes)", address - in->begin, in->name, in->end - in->begin);
  auto after = llvm::upper_bound(regions, address, [](uintptr_t a, const Region &r) { return a < r.begin; });
  constexpr uintptr_t far = 1 << 24;
  uintptr_t past = after == regions.begin() ? far : address - std::prev(after)->end;
  uintptr_t ahead = after == regions.end() ? far : after->begin - address;
  if (past >= far && ahead >= far)
    return fmt::format("{:#x}, far from every tensor", address);
  const Region &near = past <= ahead ? *std::prev(after) : *after;
  return fmt::format("{} bytes {} of '{}' ({} bytes)", std::min(past, ahead),
                     past <= ahead ? "past the end" : "before the start", near.name, near.end - near.begin);
}
