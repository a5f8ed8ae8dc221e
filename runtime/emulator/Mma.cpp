//===- Mma.cpp - Arithmetic of mma.m16n8k16 --------------------------------===//
//
// Operands are exact in f32, and so are products of two f16 or two bf16 numbers.
// They are added in f32 in ascending order of k, starting from C. A tensor core
// adds in another order and with another rounding.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/Runtime.h"
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace cfc::emu;

namespace {
/// A and B as f32.
struct Operands {
  alignas(32) float a[16][16];
  alignas(32) float b[16][8];
};
} // namespace

static float fromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

static float fromHalf(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) // infinity, NaN
    return fromBits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest >= 0x400)
    return fromBits(sign | ((rest << 13) + (112u << 23)));
  float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

static float widen(bool bf16, uint16_t x) { return bf16 ? fromBits(uint32_t(x) << 16) : fromHalf(x); }

static void convertPortably(bool bf16, const uint16_t a[16][16], const uint16_t b[16][8], Operands &out) {
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned k = 0; k < 16; ++k)
      out.a[m][k] = widen(bf16, a[m][k]);
  for (unsigned k = 0; k < 16; ++k)
    for (unsigned n = 0; n < 8; ++n)
      out.b[k][n] = widen(bf16, b[k][n]);
}

static void multiplyPortably(const Operands &in, float c[16][8]) {
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned n = 0; n < 8; ++n)
        c[m][n] = c[m][n] + in.a[m][k] * in.b[k][n];
}

#if defined(__x86_64__)
// GCC 12's interprocedural analysis loses stores of such functions (-fipa-modref at -O3): keep it out.
#if defined(__clang__)
#define CFC_NO_IPA
#else
#define CFC_NO_IPA __attribute__((noipa))
#endif
#define CFC_AVX2 __attribute__((target("avx2,f16c")))

CFC_AVX2 static inline __m256 widen8(bool bf16, const uint16_t *x) {
  __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i *>(x));
  if (bf16)
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  return _mm256_cvtph_ps(bits);
}

CFC_AVX2 CFC_NO_IPA static void convertWithAvx2(bool bf16, const uint16_t a[16][16], const uint16_t b[16][8],
                                                Operands &out) {
  for (unsigned m = 0; m < 16; ++m) {
    _mm256_store_ps(out.a[m], widen8(bf16, a[m]));
    _mm256_store_ps(out.a[m] + 8, widen8(bf16, a[m] + 8));
  }
  for (unsigned k = 0; k < 16; ++k)
    _mm256_store_ps(out.b[k], widen8(bf16, b[k]));
}

/// Eight rows at a time: their chains of additions overlap.
CFC_AVX2 CFC_NO_IPA static void multiplyWithAvx2(const Operands &in, float c[16][8]) {
  for (unsigned half = 0; half < 16; half += 8) {
    __m256 sum[8];
    for (unsigned m = 0; m < 8; ++m)
      sum[m] = _mm256_loadu_ps(c[half + m]);
    for (unsigned k = 0; k < 16; ++k) {
      __m256 row = _mm256_load_ps(in.b[k]);
      for (unsigned m = 0; m < 8; ++m)
        sum[m] = _mm256_add_ps(sum[m], _mm256_mul_ps(_mm256_broadcast_ss(&in.a[half + m][k]), row));
    }
    for (unsigned m = 0; m < 8; ++m)
      _mm256_storeu_ps(c[half + m], sum[m]);
  }
}

static bool haveAvx2() {
  static const bool have = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return have;
}
#endif

void cfc::emu::mmaM16N8K16(bool bf16, const uint16_t a[16][16], const uint16_t b[16][8], float c[16][8]) {
  Operands operands;
#if defined(__x86_64__)
  if (haveAvx2()) {
    convertWithAvx2(bf16, a, b, operands);
    multiplyWithAvx2(operands, c);
    return;
  }
#endif
  convertPortably(bf16, a, b, operands);
  multiplyPortably(operands, c);
}
