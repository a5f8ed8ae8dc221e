//===- Tensor.cpp - Tensors in host memory --------------------------------===//
#include "tools/lib/Tensor.h"
#include "dialects/attn/Elements.h"
#include <array>
#include <fmt/format.h>

using namespace cfc;

namespace {
struct DTypeInfo {
  std::string_view name;
  size_t size;
};
constexpr std::array<DTypeInfo, 7> infos = {
    {{"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"i32", 4}, {"i64", 8}, {"f8E4M3FN", 1}}};
} // namespace

size_t cfc::sizeOf(DType type) { return infos[size_t(type)].size; }
std::string_view cfc::nameOf(DType type) { return infos[size_t(type)].name; }

std::optional<DType> cfc::parseDType(std::string_view name) {
  for (size_t i = 0; i < infos.size(); ++i)
    if (infos[i].name == name)
      return DType(i);
  return std::nullopt;
}

Tensor::Tensor(DType type, std::vector<int64_t> dims) : type(type), shape(std::move(dims)) {
  auto storage = std::shared_ptr<std::byte[]>(new std::byte[std::max<size_t>(bytes(), 1)]);
  begin = storage.get();
  owner = storage;
}

Tensor::Tensor(DType type, std::vector<int64_t> shape, const std::byte *data,
               std::shared_ptr<const void> owner)
    : type(type), shape(std::move(shape)), begin(data), owner(std::move(owner)) {}

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int64_t dim : shape)
    n *= dim;
  return n;
}

/// The element kind of every type but f64.
ElementKind cfc::kindOf(DType type) {
  switch (type) {
  case DType::f16:
    return ElementKind::F16;
  case DType::bf16:
    return ElementKind::BF16;
  case DType::i32:
    return ElementKind::I32;
  case DType::i64:
    return ElementKind::I64;
  case DType::f8E4M3FN:
    return ElementKind::F8E4M3FN;
  default:
    return ElementKind::F32;
  }
}

// A mapped safetensors file promises no alignment: elements are read by memcpy.
double Tensor::get(int64_t i) const {
  const std::byte *p = begin + size_t(i) * sizeOf(type);
  return type == DType::f64 ? loadAs<double>(p) : toDouble(kindOf(type), p);
}

void Tensor::set(int64_t i, double value) {
  if (type == DType::f64)
    as<double>()[i] = value;
  else
    fromDouble(kindOf(type), value, mutableData() + size_t(i) * sizeOf(type));
}

std::vector<int64_t> cfc::packedShape(const runtime::PackedLayout &layout) {
  return {layout.rowBlocks(), layout.columnBlocks(), layout.kBlock, layout.kBlock};
}

std::vector<int64_t> cfc::nativeShape(const Tensor &tensor) {
  return tensor.packed ? std::vector<int64_t>{tensor.packed->rows, tensor.packed->columns} : tensor.shape;
}

std::string cfc::shapeText(const std::vector<int64_t> &shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

std::string cfc::typeText(DType type, const std::vector<int64_t> &shape) {
  std::string text = "tensor<";
  for (int64_t dim : shape)
    text += fmt::format("{}x", dim);
  return text + std::string(nameOf(type)) + ">";
}

std::optional<int64_t> cfc::checkedElements(const std::vector<int64_t> &shape, size_t elementBytes) {
  int64_t n = 1, limit = (int64_t(1) << 62) / int64_t(elementBytes);
  for (int64_t dim : shape)
    if (dim < 0)
      return std::nullopt;
  for (int64_t dim : shape)
    if (dim == 0)
      return 0;
  for (int64_t dim : shape) {
    if (n > limit / dim)
      return std::nullopt;
    n *= dim;
  }
  return n;
}
