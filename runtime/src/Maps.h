//===- Maps.h - Tensor maps of what is bound --------------------*- C++ -*-===//
//
// A tensor map tells the GPU how a tensor lies in memory, so that one instruction copies a box of it. Behind
// the entries of the table lies one for each of GraphSpec::maps.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_MAPS_H
#define CFC_RUNTIME_SRC_MAPS_H

#include "runtime/src/Tensors.h"
#include <array>

namespace cfc::runtime {

/// What a map says, dimensions innermost first.
struct MapGeometry {
  uint64_t base = 0; ///< address of the first element; a multiple of 16
  uint32_t rank = 2; ///< 2 to 4
  cfc_dtype dtype = CFC_F16;
  std::array<uint64_t, 4> size{};   ///< elements
  std::array<uint64_t, 4> stride{}; ///< bytes from element to element; [0] is an element's size
  std::array<uint32_t, 4> box{};    ///< elements
  uint32_t swizzle = 0;             ///< 0 or 128 bytes
};

/// The map of a bound tensor. Throws Error (CFC_INVALID_ARGUMENT) where no tensor map can say it: an address
/// or a stride that is no multiple of 16, or numbers that are too large.
MapGeometry mapGeometry(const GraphSpec &graph, const MapSpec &map, const BoundTensor &tensor);

/// Byte of the table at which the maps begin, and bytes of the table with them.
size_t mapsOffset(const GraphSpec &graph);
size_t tableBytes(const GraphSpec &graph);

/// The whole table with a header of zeros. `writeMap(geometry, to)` fills in the kMapBytes of one map.
template <class WriteMap>
std::vector<char> tableImage(const GraphSpec &graph, const std::vector<BoundTensor> &tensors,
                             WriteMap &&writeMap) {
  std::vector<uint64_t> values = tableValues(graph, tensors);
  std::vector<char> image(tableBytes(graph), 0);
  const char *bytes = reinterpret_cast<const char *>(values.data());
  std::copy(bytes, bytes + values.size() * kTableEntryBytes, image.data() + kTableHeaderBytes);
  char *to = image.data() + mapsOffset(graph);
  for (const MapSpec &map : graph.maps) {
    writeMap(mapGeometry(graph, map, tensors.at(map.tensor)), to);
    to += kMapBytes;
  }
  return image;
}

/// Writes the map as the GPU reads it. Throws Error with the driver's answer.
void encodeMap(const MapGeometry &geometry, void *to);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_MAPS_H
