//===- Tensor.cpp - Tensors in host memory --------------------------------===//
#include "tools/lib/Tensor.h"
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

using namespace cfc;

namespace {
struct DTypeInfo {
  std::string_view name;
  size_t size;
};
constexpr std::array<DTypeInfo, 6> infos = {
    {{"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"i32", 4}, {"i64", 8}}};
} // namespace

size_t cfc::sizeOf(DType type) { return infos[size_t(type)].size; }
std::string_view cfc::nameOf(DType type) { return infos[size_t(type)].name; }

std::optional<DType> cfc::parseDType(std::string_view name) {
  for (size_t i = 0; i < infos.size(); ++i)
    if (infos[i].name == name)
      return DType(i);
  return std::nullopt;
}

uint16_t cfc::floatToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return uint16_t(sign | 0x7e00); // NaN
  if (magnitude >= 0x477ff000)
    return uint16_t(sign | 0x7c00); // rounds to infinity
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 leaves the value, rounded to a multiple of 2^-24, in the low bits.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  uint32_t odd = (magnitude >> 13) & 1;
  return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

float cfc::f16ToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) {
    float value = float(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
}

uint16_t cfc::floatToBF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float cfc::bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

/// The float next to `value` in the direction that makes a second rounding to fewer bits exact (round to
/// odd).
static float roundToOdd(double value) {
  float nearest = float(value);
  if (double(nearest) == value || !std::isfinite(nearest) || (std::bit_cast<uint32_t>(nearest) & 1))
    return nearest;
  return std::nextafterf(nearest, double(nearest) < value ? INFINITY : -INFINITY);
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

/// Loads that do not ask for alignment: a mapped safetensors file promises none.
template <typename T> static T load(const std::byte *p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

double Tensor::get(int64_t i) const {
  const std::byte *p = begin + size_t(i) * sizeOf(type);
  switch (type) {
  case DType::f16:
    return f16ToFloat(load<uint16_t>(p));
  case DType::bf16:
    return bf16ToFloat(load<uint16_t>(p));
  case DType::f32:
    return load<float>(p);
  case DType::f64:
    return load<double>(p);
  case DType::i32:
    return load<int32_t>(p);
  case DType::i64:
    return double(load<int64_t>(p));
  }
  return 0;
}

void Tensor::set(int64_t i, double value) {
  switch (type) {
  case DType::f16:
    as<uint16_t>()[i] = floatToF16(roundToOdd(value));
    return;
  case DType::bf16:
    as<uint16_t>()[i] = floatToBF16(roundToOdd(value));
    return;
  case DType::f32:
    as<float>()[i] = float(value);
    return;
  case DType::f64:
    as<double>()[i] = value;
    return;
  case DType::i32:
    as<int32_t>()[i] = int32_t(value);
    return;
  case DType::i64:
    as<int64_t>()[i] = int64_t(value);
    return;
  }
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
