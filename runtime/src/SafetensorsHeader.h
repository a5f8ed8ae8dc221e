//===- SafetensorsHeader.h - The start of a safetensors file ----*- C++ -*-===//
#ifndef CFC_RUNTIME_SRC_SAFETENSORSHEADER_H
#define CFC_RUNTIME_SRC_SAFETENSORSHEADER_H

#include "runtime/src/Packing.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cfc::runtime {

/// What `__metadata__` says of packed weights: the name of the layout, and as JSON text
/// {"key": {"shape": [rows, columns], "column_group": columns, absent where there are no groups}, …}.
inline constexpr const char *kLayoutKey = "cfc.layout", *kPackedKey = "cfc.packed";

/// A tensor of a safetensors file.
struct HeaderEntry {
  std::string key, dtype; ///< dtype as the file spells it
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  std::optional<PackedLayout> packed = {};
};

/// The length and the header of a file whose tensors follow in this order without gaps; the data is aligned
/// to 8 bytes. `metadata` is completed by what packed weights need.
std::string safetensorsHeader(const std::vector<HeaderEntry> &entries,
                              std::map<std::string, std::string> metadata);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_SAFETENSORSHEADER_H
