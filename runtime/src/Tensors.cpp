//===- Tensors.cpp - Checking what is bound ---------------------------------===//
//
// Each message names the graph, the tensor, what was given and what is wanted. Checks that need the driver
// are in checkPlace only.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Tensors.h"
#include "runtime/src/UserStruct.h"
#include <algorithm>
#include <array>

namespace cfc::runtime {
namespace {

/// More than any address space holds; keeps sums of an address and an extent from overflowing.
constexpr uint64_t kMaxExtent = uint64_t(1) << 56;

/// One dimension of a cache.
struct Extent {
  const char *name;
  uint64_t count, stride; ///< stride in bytes
};

/// One tensor of the caller next to what the manifest says.
struct Check {
  const GraphSpec &graph;
  const TensorSpec &spec;
  const cfc_tensor &given;

  template <class... Args> [[noreturn]] void wrong(fmt::format_string<Args...> text, Args &&...args) const {
    fail(CFC_INVALID_ARGUMENT, "graph '{}', tensor '{}': {}", graph.name, spec.name,
         fmt::format(text, std::forward<Args>(args)...));
  }

  uint64_t pointer(const void *value, const char *what) const {
    uint64_t address = reinterpret_cast<uintptr_t>(value);
    if (address == 0)
      wrong("{} is null", what);
    if (address > UINT64_MAX - kMaxExtent)
      wrong("{} {:#x} is not an address", what, address);
    if (address % spec.align != 0)
      wrong("{} {:#x} is not aligned to {} bytes", what, address, spec.align);
    return address;
  }

  void type() const {
    if (given.dtype == uint32_t(spec.dtype))
      return;
    bool known = given.dtype >= CFC_F16 && given.dtype <= CFC_F8E4M3FN;
    wrong("its type is {}, the graph wants {}",
          known ? name(cfc_dtype(given.dtype)) : fmt::format("{} (not a cfc_dtype)", given.dtype),
          name(spec.dtype));
  }

  void shape() const {
    if (given.rank != 0 && !given.shape)
      wrong("rank is {} but shape is null", given.rank);
    if (given.rank > 64)
      wrong("rank is {}, the graph wants {}", given.rank, spec.shape.size());
    std::vector<int64_t> shape(given.shape, given.shape + given.rank);
    if (shape != spec.shape)
      wrong("its shape is [{}], the graph wants [{}]", fmt::join(shape, ", "), fmt::join(spec.shape, ", "));
  }

  void layout() const {
    if (given.layout == uint32_t(spec.layout))
      return;
    if (given.layout > CFC_LAYOUT_PACKED)
      wrong("its layout is {} (not a cfc_layout)", given.layout);
    if (spec.layout == Layout::Packed)
      wrong(
          "it is bound as a native weight, and the graph was compiled for a packed one: pack it (`cfc pack`, "
          "or in place with the runtime) and set layout to CFC_LAYOUT_PACKED");
    if (spec.role == Role::Weight)
      wrong("it is bound as a packed weight, and the graph was compiled for a native one: bind it as it was "
            "before `cfc pack`, or compile for packed weights");
    wrong("it cannot be packed: `cfc pack` is for weights");
  }

  void room(uint64_t bytes, uint64_t needed, const char *what) const {
    if (bytes != 0 && bytes < needed)
      wrong("{} has {} bytes, {} are needed", what, bytes, needed);
  }

  uint64_t stride(int64_t value, const char *what) const {
    if (value <= 0)
      wrong("{} is {} bytes; it must be positive", what, value);
    if (uint64_t(value) % spec.align != 0)
      wrong("{} of {} bytes is not a multiple of {}", what, value, spec.align);
    return value;
  }

  /// Bytes from an address to behind the last row of a cache's K or V; also checks that its rows do not
  /// overlap, in whatever order heads, tokens and blocks lie.
  uint64_t cacheExtent(const char *what, uint64_t row, std::array<Extent, 3> extents) const {
    std::sort(extents.begin(), extents.end(),
              [](const Extent &a, const Extent &b) { return a.stride < b.stride; });
    uint64_t bytes = row;
    for (const Extent &extent : extents) {
      if (extent.count == 1)
        continue;
      if (extent.stride < bytes)
        wrong("{}'s rows of {} bytes overlap: {} {} bytes are {} apart", what, row, extent.name, bytes,
              extent.stride);
      uint64_t more;
      if (__builtin_mul_overflow(extent.count - 1, extent.stride, &more) ||
          __builtin_add_overflow(bytes, more, &bytes) || bytes > kMaxExtent)
        wrong("{}'s {} {} bytes apart are too large", what, extent.name, extent.stride);
    }
    return bytes;
  }

  BoundTensor tensor() const {
    type();
    shape();
    layout();
    BoundTensor bound;
    bound.data = pointer(given.data, "data");
    bound.extent = rowOrTensorBytes(spec);
    room(given.bytes, bound.extent, "its buffer");
    return bound;
  }

  /// What the caller gave, or what fits a cache without gaps.
  uint64_t strideOr(int64_t value, uint64_t dense, const char *what) const {
    return value ? stride(value, what) : dense;
  }

  /// Blocks of the pool, and how many tokens a request may have.
  void blocks(BoundTensor &bound) const {
    if (given.capacity < 0 || given.blocks < 0)
      wrong("capacity is {} tokens and blocks {}; both must be positive", given.capacity, given.blocks);
    bound.capacity = given.capacity;
    bound.blocks = given.blocks;
    if (spec.page) {
      if (given.blocks == 0)
        wrong("blocks is 0; the number of pages in the pool must be given");
      uint64_t most = uint64_t(spec.page) * spec.pages;
      if (bound.capacity == 0)
        bound.capacity = most;
      if (most && bound.capacity > most)
        wrong("capacity is {} tokens; a block table of {} pages of {} names {}", bound.capacity, spec.pages,
              spec.page, most);
    } else if (bound.blocks == 0) {
      bound.blocks = spec.requests;
    } else if (bound.blocks < uint64_t(spec.requests)) {
      wrong("it has {} blocks, the graph serves {} requests", given.blocks, spec.requests);
    }
    if (bound.capacity == 0)
      wrong("capacity is {} tokens; it must be positive", given.capacity);
  }

  /// Strides of V: given, or K's in proportion to V's dim.
  void stridesOfV(BoundTensor &bound) const {
    uint64_t dim = spec.dim, vDim = spec.dimOfV();
    auto derive = [&](int64_t value, uint64_t ofK, const char *what) {
      if (dim == vDim) {
        if (value != 0 && uint64_t(value) != ofK)
          wrong("{} is {} bytes, K's {}; they may differ only where the graph's dims do", what, value, ofK);
        return ofK;
      }
      if (value == 0 && (ofK > kMaxExtent || ofK * vDim % dim != 0 || ofK * vDim / dim % spec.align != 0))
        wrong("{} must be given: {} bytes of K are no whole number of rows", what, ofK);
      return strideOr(value, ofK * vDim / dim, what);
    };
    bound.vStrideHead = derive(given.v_stride_head, bound.strideHead, "v_stride_head");
    bound.vStrideToken = derive(given.v_stride_token, bound.strideToken, "v_stride_token");
    bound.vStrideBlock = derive(given.v_stride_block, bound.strideBlock, "v_stride_block");
  }

  BoundTensor cache() const {
    type();
    layout();
    BoundTensor bound;
    bound.k = pointer(given.k, "k");
    bound.v = pointer(given.v, "v");
    if (bound.k == bound.v)
      wrong("k and v are the same buffer");
    bound.strideHead = stride(given.stride_head, "stride_head");
    bound.strideToken = stride(given.stride_token, "stride_token");
    blocks(bound);
    uint64_t heads = spec.heads, tokens = spec.page ? spec.page : bound.capacity;
    uint64_t byHeads, byTokens; // what a block takes, whichever of the two is outside
    if (__builtin_mul_overflow(heads, bound.strideHead, &byHeads) ||
        __builtin_mul_overflow(tokens, bound.strideToken, &byTokens))
      byHeads = byTokens = kMaxExtent; // cacheExtent refuses it
    bound.strideBlock = strideOr(given.stride_block, std::max(byHeads, byTokens), "stride_block");
    stridesOfV(bound);
    bound.extent = cacheExtent("k", rowOrTensorBytes(spec),
                               {Extent{"heads of", heads, bound.strideHead},
                                Extent{"tokens of", tokens, bound.strideToken},
                                Extent{"blocks of", bound.blocks, bound.strideBlock}});
    bound.vExtent = cacheExtent("v", rowBytesOfV(spec),
                                {Extent{"heads of", heads, bound.vStrideHead},
                                 Extent{"tokens of", tokens, bound.vStrideToken},
                                 Extent{"blocks of", bound.blocks, bound.vStrideBlock}});
    bool alike = spec.dimOfV() == spec.dim;
    room(given.bytes, bound.extent, alike ? "each of k and v" : "k");
    room(given.v_bytes || !alike ? given.v_bytes : given.bytes, bound.vExtent, "v");
    return bound;
  }
};

void checkComplete(const GraphSpec &graph, const std::vector<std::optional<BoundTensor>> &bound) {
  std::string missing;
  size_t count = 0;
  for (size_t i = 0; i < bound.size(); ++i)
    if (!bound[i]) {
      missing += fmt::format("{}'{}'", count++ ? ", " : "", graph.tensors[i].name);
    }
  if (count)
    fail(CFC_INVALID_ARGUMENT, "graph '{}': {} missing: {}", graph.name,
         count == 1 ? "a tensor is" : "tensors are", missing);
}

/// Address ranges of a tensor.
std::vector<std::pair<uint64_t, uint64_t>> ranges(const TensorSpec &spec, const BoundTensor &tensor) {
  if (spec.kind == TensorKind::KvCache)
    return {{tensor.k, tensor.k + tensor.extent}, {tensor.v, tensor.v + tensor.vExtent}};
  return {{tensor.data, tensor.data + tensor.extent}};
}

uint64_t fieldValue(const BoundTensor &tensor, Field field) {
  switch (field) {
  case Field::Pointer:
    return tensor.data;
  case Field::KPointer:
    return tensor.k;
  case Field::VPointer:
    return tensor.v;
  case Field::StrideHead:
    return tensor.strideHead;
  case Field::StrideToken:
    return tensor.strideToken;
  case Field::Capacity:
    return tensor.capacity;
  case Field::StrideBlock:
    return tensor.strideBlock;
  case Field::Blocks:
    return tensor.blocks;
  case Field::VStrideHead:
    return tensor.vStrideHead;
  case Field::VStrideToken:
    return tensor.vStrideToken;
  case Field::VStrideBlock:
    return tensor.vStrideBlock;
  }
  return 0;
}

} // namespace

size_t findTensor(const GraphSpec &graph, const char *name, size_t position) {
  if (!name)
    fail(CFC_INVALID_ARGUMENT, "graph '{}': tensor {} of the call has no name", graph.name, position);
  std::vector<std::string_view> names;
  for (const TensorSpec &spec : graph.tensors) {
    if (spec.name == name)
      return &spec - graph.tensors.data();
    names.push_back(spec.name);
  }
  fail(CFC_INVALID_ARGUMENT, "graph '{}': there is no tensor '{}'{}", graph.name, name,
       suggestion(name, names));
}

std::vector<std::optional<BoundTensor>> checkTensors(const GraphSpec &graph, const cfc_tensor *tensors,
                                                     size_t count, bool all) {
  if (count != 0 && !tensors)
    fail(CFC_INVALID_ARGUMENT, "graph '{}': tensors is null but count is {}", graph.name, count);
  std::vector<std::optional<BoundTensor>> bound(graph.tensors.size());
  size_t stride = count ? tensors[0].size : 0; // the caller's sizeof(cfc_tensor)
  for (size_t i = 0; i < count; ++i) {
    const char *item = reinterpret_cast<const char *>(tensors) + i * stride;
    cfc_tensor given = readStruct<cfc_tensor>(item, "cfc_tensor");
    if (given.size != stride)
      fail(CFC_INVALID_ARGUMENT, "cfc_tensor {} has size {}, the first one {}", i, given.size, stride);
    size_t index = findTensor(graph, given.name, i);
    Check check{graph, graph.tensors[index], given};
    if (bound[index])
      check.wrong("is given twice");
    bound[index] = check.spec.kind == TensorKind::KvCache ? check.cache() : check.tensor();
  }
  if (all)
    checkComplete(graph, bound);
  return bound;
}

void checkOverlap(const GraphSpec &graph, const std::vector<BoundTensor> &tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (graph.tensors[i].role != Role::Output)
      continue;
    auto [start, end] = ranges(graph.tensors[i], tensors[i]).front();
    for (size_t j = 0; j < tensors.size(); ++j)
      for (auto [otherStart, otherEnd] : ranges(graph.tensors[j], tensors[j]))
        if (i != j && start < otherEnd && otherStart < end)
          fail(CFC_INVALID_ARGUMENT,
               "graph '{}', tensor '{}': its buffer overlaps that of '{}'; a result needs one of its own",
               graph.name, graph.tensors[i].name, graph.tensors[j].name);
  }
}

void checkPlace(const GraphSpec &graph, const std::vector<BoundTensor> &tensors, CUdevice device) {
  const Driver &cuda = driver();
  bool anyMemory = deviceAttribute(kDevicePageableMemoryAccess, device) != 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (auto [address, end] : ranges(graph.tensors[i], tensors[i])) {
      unsigned type = 0;
      if (cuda.cuPointerGetAttribute(&type, kPointerMemoryType, address) != kCudaSuccess) {
        if (anyMemory)
          continue;
        fail(CFC_INVALID_ARGUMENT, "graph '{}', tensor '{}': {:#x} is not memory that the device can reach",
             graph.name, graph.tensors[i].name, address);
      }
      int ordinal = device;
      if (type == kMemoryTypeDevice)
        cuda.cuPointerGetAttribute(&ordinal, kPointerDeviceOrdinal, address);
      if (ordinal != device)
        fail(CFC_INVALID_ARGUMENT,
             "graph '{}', tensor '{}': {:#x} lies on device {}, the binding is on device {}", graph.name,
             graph.tensors[i].name, address, ordinal, device);
    }
}

std::vector<uint64_t> tableValues(const GraphSpec &graph, const std::vector<BoundTensor> &tensors) {
  std::vector<uint64_t> values;
  for (const TableEntry &entry : graph.table)
    values.push_back(fieldValue(tensors[entry.tensor], entry.field));
  return values;
}

} // namespace cfc::runtime
