//===- Tensors.h - Checking what is bound -----------------------*- C++ -*-===//
//
// Compares the caller's tensors with the manifest, by name, and turns them into the values of the table.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_TENSORS_H
#define CFC_RUNTIME_SRC_TENSORS_H

#include "runtime/src/Driver.h"
#include "runtime/src/Manifest.h"

namespace cfc::runtime {

/// The table of docs/design.md: a header of 64 bytes with the sticky word first, then entries of 8 bytes.
inline constexpr size_t kTableHeaderBytes = 64;
inline constexpr size_t kTableEntryBytes = 8;
/// Behind the entries, aligned to its size: a tensor map.
inline constexpr size_t kMapBytes = 128;

/// Values of one tensor that passed its checks.
struct BoundTensor {
  uint64_t data = 0;                                                    ///< of a tensor
  uint64_t k = 0, v = 0, strideHead = 0, strideToken = 0, capacity = 0; ///< of a cache
  uint64_t strideBlock = 0, blocks = 1; ///< of a cache: requests' rows, or pages
  uint64_t vStrideHead = 0, vStrideToken = 0, vStrideBlock = 0;
  uint64_t extent = 0;  ///< bytes from the first to behind the last that is used, of data or k
  uint64_t vExtent = 0; ///< the same of v
};

/// Index of the graph's tensor that the caller calls `name`, in item `position` of an array. Fails with the
/// nearest name.
size_t findTensor(const GraphSpec &graph, const char *name, size_t position);

/// The caller's array, checked for the graph's names. Item i belongs to graph.tensors[i]; nothing where the
/// caller did not name it. With `all`, every tensor must be there.
std::vector<std::optional<BoundTensor>> checkTensors(const GraphSpec &graph, const cfc_tensor *tensors,
                                                     size_t count, bool all);

/// No result may share bytes with another tensor.
void checkOverlap(const GraphSpec &graph, const std::vector<BoundTensor> &tensors);

/// Every pointer leads to memory that the device can reach.
void checkPlace(const GraphSpec &graph, const std::vector<BoundTensor> &tensors, CUdevice device);

/// The entries of the table, in order.
std::vector<uint64_t> tableValues(const GraphSpec &graph, const std::vector<BoundTensor> &tensors);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_TENSORS_H
