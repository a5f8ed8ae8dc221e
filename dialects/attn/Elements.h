//===- Elements.h - Element types in memory and their conversions ----------===//
//
// Little endian f16, bf16, f32, i32, i64 and f8E4M3FN to and from double, rounded to
// nearest, ties to even. Free of MLIR and of other dependencies.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

namespace cfc {

enum class ElementKind : uint8_t { F16, BF16, F32, I32, I64, F8E4M3FN };

/// Bytes of one element.
constexpr size_t elementSize(ElementKind kind) {
  constexpr size_t sizes[] = {2, 2, 4, 4, 8, 1};
  return sizes[static_cast<size_t>(kind)];
}

constexpr const char *elementName(ElementKind kind) {
  constexpr const char *names[] = {"f16", "bf16", "f32", "i32", "i64", "f8E4M3FN"};
  return names[static_cast<size_t>(kind)];
}

constexpr std::optional<ElementKind> parseElementKind(std::string_view name) {
  for (ElementKind kind : {ElementKind::F16, ElementKind::BF16, ElementKind::F32, ElementKind::I32,
                           ElementKind::I64, ElementKind::F8E4M3FN})
    if (name == elementName(kind))
      return kind;
  return std::nullopt;
}

constexpr bool isFloat(ElementKind kind) { return kind <= ElementKind::F32 || kind == ElementKind::F8E4M3FN; }

/// Exact. Masks instead of branches, so that loops over it vectorise.
inline float halfToFloat(uint16_t half) {
  auto allOnesIf = [](uint32_t negative) {
    return static_cast<uint32_t>(static_cast<int32_t>(negative) >> 31);
  };
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t bits = static_cast<uint32_t>(half & 0x7fffu) << 13;
  uint32_t isSubnormal = allOnesIf(bits - (1u << 23)), isSpecial = allOnesIf((31u << 23) - 1 - bits);
  // Rebias by 127 - 15; infinities and NaN go up to the exponent 255.
  uint32_t normal = bits + (112u << 23) + (isSpecial & (112u << 23));
  // A subnormal m * 2^-24 is (2^-14 + m * 2^-24) - 2^-14.
  uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(bits + (113u << 23)) - std::bit_cast<float>(113u << 23));
  return std::bit_cast<float>(sign | (normal & ~isSubnormal) | (subnormal & isSubnormal));
}

/// Exact.
inline float bfloatToFloat(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

/// Exact: sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, all ones is NaN.
inline float e4m3ToFloat(uint8_t value) {
  uint32_t sign = static_cast<uint32_t>(value & 0x80u) << 24, bits = value & 0x7fu;
  if (bits == 0x7f)
    return std::bit_cast<float>(sign | 0x7fc00000u);
  float size =
      bits < 8 ? static_cast<float>(bits) * 0x1p-9f : std::bit_cast<float>((bits << 20) + (120u << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(size) | sign);
}

/// Reads a number at any alignment.
template <typename T> inline T loadAs(const void *source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

namespace detail {
// Rounds once, from double, to sign | exponent | mantissa with the given widths.
// Every NaN becomes a quiet one.
template <int mantissaBits, int exponentBits> inline uint16_t roundToSmallFloat(double value) {
  constexpr int shift = 52 - mantissaBits;
  constexpr int64_t bias = (1 << (exponentBits - 1)) - 1, top = (1 << exponentBits) - 1;
  uint64_t bits = std::bit_cast<uint64_t>(value);
  auto sign = static_cast<uint16_t>(bits >> 63 << 15);
  uint64_t magnitude = bits & ~(1ull << 63);
  if (magnitude > 0x7ff0000000000000ull)
    return static_cast<uint16_t>(sign | top << mantissaBits | 1 << (mantissaBits - 1));
  int64_t exponent = static_cast<int64_t>(magnitude >> 52) - 1023 + bias;
  uint64_t mantissa = (magnitude & ((1ull << 52) - 1)) | 1ull << 52;
  if (exponent >= top)
    return static_cast<uint16_t>(sign | top << mantissaBits);
  // Below the smallest normal number more mantissa bits are lost, and no implicit one is left.
  int64_t lost = exponent >= 1 ? shift : shift + 1 - exponent;
  if (lost > 54)
    return sign;
  uint64_t kept = mantissa >> lost, rest = mantissa & ((1ull << lost) - 1), half = 1ull << (lost - 1);
  kept += rest > half || (rest == half && (kept & 1));
  // A carry out of the mantissa raises the exponent by itself, up to infinity.
  int64_t base = exponent >= 1 ? (exponent - 1) << mantissaBits : 0;
  return static_cast<uint16_t>(sign | (base + static_cast<int64_t>(kept)));
}

template <typename T> inline T roundToInteger(double value) {
  if (std::isnan(value))
    return 0;
  value = std::nearbyint(value);
  constexpr T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
  // -least is a power of two, so that it is exact as a double where `most` is not.
  if (value >= -static_cast<double>(least))
    return most;
  return value <= static_cast<double>(least) ? least : static_cast<T>(value);
}
} // namespace detail

inline uint16_t toHalf(double value) { return detail::roundToSmallFloat<10, 5>(value); }
inline uint16_t toBfloat(double value) { return detail::roundToSmallFloat<7, 8>(value); }

/// Rounded to nearest even; beyond the range, infinities too, to the largest, 448; NaN stays NaN.
inline uint8_t toE4m3(double value) {
  auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (std::isnan(value))
    return sign | 0x7f;
  double size = std::fabs(value);
  if (size >= 448)
    return sign | 0x7e;
  int exponent = size < 0x1p-6 ? -6 : std::ilogb(size);
  // Steps of the last bit; an implicit bit makes the exponent one more than that of subnormals.
  auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  return static_cast<uint8_t>(sign | (steps + ((exponent + 6) << 3)));
}

/// Reads one element. Exact but for i64 beyond 2^53.
inline double toDouble(ElementKind kind, const void *source) {
  switch (kind) {
  case ElementKind::F16:
    return halfToFloat(loadAs<uint16_t>(source));
  case ElementKind::BF16:
    return bfloatToFloat(loadAs<uint16_t>(source));
  case ElementKind::F32:
    return loadAs<float>(source);
  case ElementKind::I32:
    return loadAs<int32_t>(source);
  case ElementKind::I64:
    return static_cast<double>(loadAs<int64_t>(source));
  case ElementKind::F8E4M3FN:
    return e4m3ToFloat(loadAs<uint8_t>(source));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Writes one element, rounded to nearest even; beyond a float type's range to infinity (of f8E4M3FN to its
/// largest), beyond an integer type's to its limit; NaN to 0 in an integer type.
inline void fromDouble(ElementKind kind, double value, void *target) {
  auto write = [target](auto element) { std::memcpy(target, &element, sizeof element); };
  switch (kind) {
  case ElementKind::F16:
    return write(toHalf(value));
  case ElementKind::BF16:
    return write(toBfloat(value));
  case ElementKind::F32:
    return write(static_cast<float>(value));
  case ElementKind::I32:
    return write(detail::roundToInteger<int32_t>(value));
  case ElementKind::I64:
    return write(detail::roundToInteger<int64_t>(value));
  case ElementKind::F8E4M3FN:
    return write(toE4m3(value));
  }
}

/// The value as an element of that type holds it.
inline double roundTo(ElementKind kind, double value) {
  unsigned char element[8];
  fromDouble(kind, value, element);
  return toDouble(kind, element);
}

} // namespace cfc
