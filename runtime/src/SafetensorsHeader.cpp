//===- SafetensorsHeader.cpp - The start of a safetensors file --------------===//
#include "runtime/src/SafetensorsHeader.h"
#include <nlohmann/json.hpp>

namespace cfc::runtime {

using Json = nlohmann::ordered_json;

static Json layoutJson(const PackedLayout &layout) {
  Json json = {{"shape", {layout.rows, layout.columns}}};
  if (layout.columnGroup)
    json["column_group"] = layout.columnGroup;
  return json;
}

std::string safetensorsHeader(const std::vector<HeaderEntry> &entries,
                              std::map<std::string, std::string> metadata) {
  Json header, packed;
  for (const HeaderEntry &entry : entries)
    if (entry.packed)
      packed[entry.key] = layoutJson(*entry.packed);
  if (!packed.empty()) {
    metadata[kLayoutKey] = kPackedLayoutName;
    metadata[kPackedKey] = packed.dump();
  }
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  uint64_t begin = 0;
  for (const HeaderEntry &entry : entries) {
    header[entry.key] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {begin, begin + entry.bytes}}};
    begin += entry.bytes;
  }
  std::string text = header.empty() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' '); // so that the data is aligned
  std::string result;
  for (int i = 0; i < 8; ++i)
    result += char(text.size() >> 8 * i);
  return result + text;
}

} // namespace cfc::runtime
