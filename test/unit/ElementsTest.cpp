//===- ElementsTest.cpp - Conversions of element types ---------------------===//
#include "dialects/attn/Elements.h"
#include <catch2/catch.hpp>

using namespace cfc;

// Sign, exponent and mantissa spelt out: what the bits of a small float mean.
static double meaning(uint16_t bits, int mantissaBits, int exponentBits) {
  int mantissa = bits & ((1 << mantissaBits) - 1), top = (1 << exponentBits) - 1;
  int exponent = bits >> mantissaBits & top, bias = top >> 1;
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == top)
    return mantissa ? std::nan("") : sign * INFINITY;
  if (exponent == 0)
    return sign * std::ldexp(mantissa, 1 - bias - mantissaBits);
  return sign * std::ldexp(mantissa + (1 << mantissaBits), exponent - bias - mantissaBits);
}

TEST_CASE("every f16 and bf16 reads as what its bits mean and writes back to the same bits") {
  int wrong = 0;
  for (unsigned i = 0; i < 65536; ++i) {
    auto bits = static_cast<uint16_t>(i);
    double half = meaning(bits, 10, 5), bfloat = meaning(bits, 7, 8);
    if (std::isnan(half))
      wrong += !std::isnan(halfToFloat(bits)) || !std::isnan(halfToFloat(toHalf(half)));
    else
      wrong += halfToFloat(bits) != half || toHalf(half) != bits;
    if (std::isnan(bfloat))
      wrong += !std::isnan(bfloatToFloat(bits)) || !std::isnan(bfloatToFloat(toBfloat(bfloat)));
    else
      wrong += bfloatToFloat(bits) != bfloat || toBfloat(bfloat) != bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("doubles between two neighbours round to the nearer, ties to even") {
  int wrong = 0;
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) { // f16: up to the largest finite number
    double low = meaning(bits, 10, 5), high = meaning(bits + 1, 10, 5), middle = (low + high) / 2;
    wrong += toHalf(std::nextafter(middle, low)) != bits;
    wrong += toHalf(std::nextafter(middle, high)) != bits + 1;
    wrong += toHalf(middle) != (bits & 1 ? bits + 1 : bits);
    wrong += toHalf(-middle) != (0x8000 | (bits & 1 ? bits + 1 : bits));
  }
  for (uint16_t bits = 0; bits < 0x7f7f; ++bits) { // bf16
    double low = meaning(bits, 7, 8), high = meaning(bits + 1, 7, 8), middle = (low + high) / 2;
    wrong += toBfloat(std::nextafter(middle, low)) != bits;
    wrong += toBfloat(std::nextafter(middle, high)) != bits + 1;
    wrong += toBfloat(middle) != (bits & 1 ? bits + 1 : bits);
  }
  CHECK(wrong == 0);
}

TEST_CASE("values beyond the range") {
  CHECK(toHalf(65519.99) == 0x7bff);
  CHECK(toHalf(65520) == 0x7c00);
  CHECK(toHalf(-1e300) == 0xfc00);
  CHECK(toHalf(INFINITY) == 0x7c00);
  CHECK(toHalf(std::ldexp(1, -25)) == 0); // a tie between 0 and the smallest subnormal
  CHECK(toHalf(std::ldexp(1.001, -25)) == 1);
  CHECK(toHalf(-1e-300) == 0x8000);
  CHECK(toBfloat(3.4e38) == 0x7f80);
  CHECK(toBfloat(5e-324) == 0);
  CHECK(roundTo(ElementKind::F32, 1e39) == INFINITY);
}

TEST_CASE("a double is rounded once, not by way of float") {
  // Just above a tie in f16, by less than float resolves.
  CHECK(toHalf(1 + std::ldexp(1, -11) + std::ldexp(1, -40)) == 0x3c01);
  CHECK(toBfloat(1 + std::ldexp(1, -8) + std::ldexp(1, -40)) == 0x3f81);
}

TEST_CASE("integers") {
  CHECK(roundTo(ElementKind::I32, 2.5) == 2);
  CHECK(roundTo(ElementKind::I32, -3.5) == -4);
  CHECK(roundTo(ElementKind::I32, 1e12) == 2147483647);
  CHECK(roundTo(ElementKind::I32, -1e12) == -2147483648.0);
  CHECK(roundTo(ElementKind::I64, NAN) == 0);
  int64_t most = 0;
  fromDouble(ElementKind::I64, 1e30, &most);
  CHECK(most == std::numeric_limits<int64_t>::max());
  CHECK(roundTo(ElementKind::I64, -1) == -1);
}

TEST_CASE("names and sizes") {
  for (auto [name, kind, size] : {std::tuple{"f16", ElementKind::F16, 2},
                                  {"bf16", ElementKind::BF16, 2},
                                  {"f32", ElementKind::F32, 4},
                                  {"i32", ElementKind::I32, 4},
                                  {"i64", ElementKind::I64, 8}}) {
    CHECK(parseElementKind(name) == kind);
    CHECK(std::string_view(elementName(kind)) == name);
    CHECK(elementSize(kind) == static_cast<size_t>(size));
  }
  CHECK(!parseElementKind("f64"));
}
