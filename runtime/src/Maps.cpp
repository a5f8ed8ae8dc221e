//===- Maps.cpp - Tensor maps of what is bound ------------------------------===//
//
// Turns bound tensors into tensor maps. The limits are those of cuTensorMapEncodeTiled, which only says
// "invalid value"; checking them first names the tensor and the number.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Maps.h"
#include <cstring>

namespace cfc::runtime {
namespace {

constexpr uint64_t kMaxElements = uint64_t(1) << 32; // of a dimension
constexpr uint64_t kMaxStride = uint64_t(1) << 40;   // bytes, exclusive

/// What a tensor map can say of one tensor.
struct Check {
  const GraphSpec &graph;
  const TensorSpec &spec;

  template <class... Args> [[noreturn]] void wrong(fmt::format_string<Args...> text, Args &&...args) const {
    fail(CFC_INVALID_ARGUMENT, "graph '{}', tensor '{}': {}", graph.name, spec.name,
         fmt::format(text, std::forward<Args>(args)...));
  }

  void stride(uint64_t bytes, const char *what) const {
    if (bytes % 16 != 0)
      wrong("{} of {} bytes is not a multiple of 16, as a tensor map needs", what, bytes);
    if (bytes >= kMaxStride)
      wrong("{} of {} bytes is too large for a tensor map, which takes less than {}", what, bytes,
            kMaxStride);
  }

  void size(uint64_t elements, const char *what) const {
    if (elements == 0 || elements > kMaxElements)
      wrong("a tensor map takes 1 to {} {}, not {}", kMaxElements, what, elements);
  }
};

/// (columns, rows) of a tensor of rank 2.
void describeMatrix(const Check &check, const BoundTensor &tensor, MapGeometry &geometry) {
  if (check.spec.shape.size() != 2)
    check.wrong("a tensor map needs 2 dimensions, not {}", check.spec.shape.size());
  uint64_t rows = check.spec.shape[0], columns = check.spec.shape[1];
  geometry.rank = 2;
  geometry.base = tensor.data;
  geometry.size = {columns, rows, 1, 1};
  geometry.stride[1] = columns * geometry.stride[0];
  check.size(columns, "columns");
  check.size(rows, "rows");
  check.stride(geometry.stride[1], "a row");
}

/// (dim, token, head), and block where there are blocks, of a cache's K or V.
void describeCache(const Check &check, const BoundTensor &tensor, bool isV, MapGeometry &geometry) {
  const TensorSpec &spec = check.spec;
  uint64_t tokens = spec.page ? spec.page : tensor.capacity;
  geometry.rank = spec.hasBlocks() ? 4 : 3;
  geometry.base = isV ? tensor.v : tensor.k;
  geometry.size = {uint64_t(isV ? spec.dimOfV() : spec.dim), tokens, uint64_t(spec.heads), tensor.blocks};
  geometry.stride[1] = isV ? tensor.vStrideToken : tensor.strideToken;
  geometry.stride[2] = isV ? tensor.vStrideHead : tensor.strideHead;
  geometry.stride[3] = isV ? tensor.vStrideBlock : tensor.strideBlock;
  check.size(tokens, "tokens");
  check.size(tensor.blocks, "blocks");
  check.stride(geometry.stride[1], isV ? "v's stride_token" : "stride_token");
  check.stride(geometry.stride[2], isV ? "v's stride_head" : "stride_head");
  if (spec.hasBlocks())
    check.stride(geometry.stride[3], isV ? "v's stride_block" : "stride_block");
}

} // namespace

MapGeometry mapGeometry(const GraphSpec &graph, const MapSpec &map, const BoundTensor &tensor) {
  Check check{graph, graph.tensors.at(map.tensor)};
  MapGeometry geometry;
  geometry.dtype = check.spec.dtype;
  geometry.stride[0] = elementBytes(check.spec.dtype);
  geometry.swizzle = map.swizzle;
  std::copy(map.box.begin(), map.box.end(), geometry.box.begin());
  if (map.field == Field::Pointer)
    describeMatrix(check, tensor, geometry);
  else
    describeCache(check, tensor, map.field == Field::VPointer, geometry);
  if (geometry.base % 16 != 0)
    check.wrong("{} {:#x} is not aligned to 16 bytes, as a tensor map needs", name(map.field), geometry.base);
  return geometry;
}

size_t mapsOffset(const GraphSpec &graph) {
  size_t entries = kTableHeaderBytes + graph.table.size() * kTableEntryBytes;
  return (entries + kMapBytes - 1) / kMapBytes * kMapBytes;
}

size_t tableBytes(const GraphSpec &graph) {
  if (graph.maps.empty())
    return kTableHeaderBytes + graph.table.size() * kTableEntryBytes;
  return mapsOffset(graph) + graph.maps.size() * kMapBytes;
}

static int dataType(cfc_dtype dtype) {
  switch (dtype) {
  case CFC_F16:
    return kMapFloat16;
  case CFC_BF16:
    return kMapBfloat16;
  case CFC_F32:
    return kMapFloat32;
  case CFC_F8E4M3FN: // a map only moves them
    return kMapUint8;
  default:
    return kMapInt32;
  }
}

void encodeMap(const MapGeometry &geometry, void *to) {
  alignas(64) CUtensorMap encoded;
  const uint32_t steps[] = {1, 1, 1, 1};
  // Elements outside are 0 without asking for it; a box's rows are 128 bytes as a rule, and so is what is
  // fetched into L2 at a time.
  CUresult result = driver().cuTensorMapEncodeTiled(
      &encoded, dataType(geometry.dtype), geometry.rank, reinterpret_cast<void *>(geometry.base),
      geometry.size.data(), geometry.stride.data() + 1, geometry.box.data(), steps, kMapInterleaveNone,
      geometry.swizzle ? kMapSwizzle128 : kMapSwizzleNone, kMapPromoteL2To256, kMapFillZero);
  check(result, "encoding a tensor map");
  std::memcpy(to, &encoded, sizeof encoded);
}

} // namespace cfc::runtime
