//===- Pack.cpp - Weights in the layout "packed" on the host --------------===//
#include "tools/lib/Pack.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include <algorithm>

using namespace cfc;
using runtime::PackedLayout;

Tensor cfc::inLayout(const Tensor &weight, const std::optional<PackedLayout> &wanted) {
  if (weight.packed == wanted)
    return weight;
  if (weight.packed) { // native, then perhaps other groups
    Tensor native(weight.type, nativeShape(weight));
    runtime::unpack(*weight.packed, weight.data(), native.mutableData());
    return inLayout(native, wanted);
  }
  if (sizeOf(weight.type) != PackedLayout::kElementBytes ||
      weight.shape != std::vector<int64_t>{wanted->rows, wanted->columns})
    internalError("{} cannot be packed as {}x{}", typeText(weight.type, weight.shape), wanted->rows,
                  wanted->columns);
  Tensor packed(weight.type, packedShape(*wanted));
  packed.packed = wanted;
  runtime::pack(*wanted, weight.data(), packed.mutableData());
  return packed;
}

static std::string costText(uint64_t native, uint64_t packed) {
  return fmt::format("native_bytes={} packed_bytes={} padding={:.1f}%", native, packed,
                     100.0 * (double(packed) / double(native) - 1));
}

std::string cfc::packingText(const runtime::Manifest &manifest) {
  std::string text;
  for (const runtime::GraphSpec &graph : manifest.graphs) {
    uint64_t native = 0, packed = 0;
    std::string lines;
    for (const runtime::TensorSpec &spec : graph.tensors) {
      if (spec.role != runtime::Role::Weight || spec.shape.size() != 2 ||
          runtime::elementBytes(spec.dtype) != PackedLayout::kElementBytes)
        continue;
      PackedLayout layout = spec.packed();
      lines += fmt::format("  name={} layout={} {} in_place={}\n", spec.name, runtime::name(spec.layout),
                           costText(layout.nativeBytes(), layout.bytes()), layout.exact() ? "yes" : "no");
      native += layout.nativeBytes();
      packed += layout.bytes();
    }
    if (!lines.empty())
      text += fmt::format("packing of weights of '{}':\n{}  all: {}\n", graph.name, lines,
                          costText(native, packed));
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

namespace {
/// A tensor of the new file.
struct Entry {
  std::string key;
  StoredTensor from;
  std::optional<PackedLayout> layout;
  bool converted = false;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

/// The tensors of the new file in their order: large elements first, so that all are aligned.
std::vector<Entry> newEntries(Checkpoint &checkpoint, const std::vector<Repacking> &repackings) {
  std::map<std::string, const Repacking *> byKey;
  for (const Repacking &repacking : repackings)
    byKey[repacking.key] = &repacking;
  std::vector<Entry> entries;
  std::vector<std::string> keys = checkpoint.keys();
  for (const std::string &key : keys) {
    Entry &entry = entries.emplace_back(Entry{key, checkpoint.stored(key), checkpoint.packedLayout(key)});
    entry.shape = entry.from.shape;
    entry.bytes = entry.from.bytes.size();
    auto found = byKey.find(key);
    if (found == byKey.end())
      continue;
    entry.converted = true;
    auto wanted = found->second->wanted;
    entry.bytes = wanted ? wanted->bytes() : entry.layout->nativeBytes();
    entry.shape =
        wanted ? packedShape(*wanted) : std::vector<int64_t>{entry.layout->rows, entry.layout->columns};
    entry.layout = wanted;
  }
  // Parts of tensors are packed beside the whole ones.
  for (const Repacking &repacking : repackings)
    if (std::find(keys.begin(), keys.end(), repacking.key) == keys.end()) {
      Tensor part = checkpoint.get(repacking.key);
      entries.push_back({repacking.key,
                         {part.type == DType::f16 ? "F16" : "BF16", part.shape, {}},
                         repacking.wanted,
                         true,
                         packedShape(*repacking.wanted),
                         repacking.wanted->bytes()});
    }
  auto elementBytes = [](const Entry &entry) {
    uint64_t elements = 1;
    for (int64_t extent : entry.shape)
      elements *= uint64_t(extent);
    return elements ? entry.bytes / elements : 0;
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const Entry &a, const Entry &b) { return elementBytes(a) > elementBytes(b); });
  return entries;
}

/// The length and the header of the file.
std::string headerOf(const std::vector<Entry> &entries, const std::map<std::string, std::string> &metadata) {
  std::vector<runtime::HeaderEntry> list;
  for (const Entry &entry : entries)
    list.push_back({entry.key, entry.from.dtype, entry.shape, entry.bytes, entry.layout});
  return runtime::safetensorsHeader(list, metadata);
}
} // namespace

void cfc::writeRepacked(
    const std::string &path, Checkpoint &checkpoint, const std::vector<Repacking> &repackings,
    const std::function<void(const std::string &key, uint64_t done, uint64_t all)> &progress) {
  std::vector<Entry> entries = newEntries(checkpoint, repackings);
  uint64_t done = 0, all = 0;
  for (const Entry &entry : entries)
    all += entry.bytes;
  writeFile(path, [&](const std::function<void(std::string_view)> &write) {
    write(headerOf(entries, checkpoint.metadata()));
    for (const Entry &entry : entries) {
      progress(entry.key, done, all);
      done += entry.bytes;
      if (!entry.converted) {
        write(entry.from.bytes);
        continue;
      }
      Tensor tensor = inLayout(checkpoint.get(entry.key), entry.layout);
      write({reinterpret_cast<const char *>(tensor.data()), tensor.bytes()});
    }
  });
}
