//===- Tensors.cpp - Checking what is bound ---------------------------------===//
//
// Each message names the graph, the tensor, what was given and what is wanted. Checks that need the driver
// are in checkPlace only.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Tensors.h"
#include "runtime/src/UserStruct.h"
#include <algorithm>

namespace cfc::runtime {
namespace {

/// More than any address space holds; keeps sums of an address and an extent from overflowing.
constexpr uint64_t kMaxExtent = uint64_t(1) << 56;

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
    bool known = given.dtype >= CFC_F16 && given.dtype <= CFC_I64;
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

  void room(uint64_t needed, const char *what) const {
    if (given.bytes != 0 && given.bytes < needed)
      wrong("{} has {} bytes, {} are needed", what, given.bytes, needed);
  }

  uint64_t stride(int64_t value, const char *what) const {
    if (value <= 0)
      wrong("{} is {} bytes; it must be positive", what, value);
    if (uint64_t(value) % spec.align != 0)
      wrong("{} of {} bytes is not a multiple of {}", what, value, spec.align);
    return value;
  }

  /// Bytes from an address to behind the last row of a cache; also checks that its rows do not overlap.
  uint64_t cacheExtent(uint64_t strideHead, uint64_t strideToken, uint64_t capacity) const {
    uint64_t row = rowOrTensorBytes(spec), heads = spec.heads;
    auto span = [&](uint64_t count, uint64_t stride, uint64_t inner) {
      uint64_t bytes;
      if (__builtin_mul_overflow(count - 1, stride, &bytes) || __builtin_add_overflow(bytes, inner, &bytes) ||
          bytes > kMaxExtent)
        wrong("strides of {} and {} bytes with {} heads and {} tokens are too large", strideHead, strideToken,
              heads, capacity);
      return bytes;
    };
    uint64_t tokens = span(capacity, strideToken, row), allHeads = span(heads, strideHead, row);
    bool headOutside = (capacity == 1 || strideToken >= row) && (heads == 1 || strideHead >= tokens);
    bool tokenOutside = (heads == 1 || strideHead >= row) && (capacity == 1 || strideToken >= allHeads);
    if (!headOutside && !tokenOutside)
      wrong("rows of {} bytes overlap: stride_head is {}, stride_token {}, with {} heads and {} tokens", row,
            strideHead, strideToken, heads, capacity);
    return span(heads, strideHead, tokens);
  }

  BoundTensor tensor() const {
    type();
    shape();
    layout();
    BoundTensor bound;
    bound.data = pointer(given.data, "data");
    bound.extent = rowOrTensorBytes(spec);
    room(bound.extent, "its buffer");
    return bound;
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
    if (given.capacity <= 0)
      wrong("capacity is {} tokens; it must be positive", given.capacity);
    bound.capacity = given.capacity;
    bound.extent = cacheExtent(bound.strideHead, bound.strideToken, bound.capacity);
    room(bound.extent, "each of k and v");
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
    return {{tensor.k, tensor.k + tensor.extent}, {tensor.v, tensor.v + tensor.extent}};
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
