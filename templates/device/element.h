//===- element.h - Numbers in memory, in double ---------------------------===//
//
// For the reference kernels: conversions by their definition, with no
// instruction that would do them. The kinds are those of cfc::ElementKind, and
// double beside them.
//
//===----------------------------------------------------------------------===//
#pragma once

enum ElementKind { kindF16 = 0, kindBF16 = 1, kindF32 = 2, kindF8E4M3FN = 5, kindF64 = 16 };

__device__ inline double floatOfBits(unsigned bits) {
  union {
    unsigned bits;
    float value;
  } number = {bits};
  return number.value;
}
__device__ inline double infinity() { return floatOfBits(0x7f800000); }

/// The value of sign | exponent | mantissa.
__device__ inline double smallFloatValue(unsigned bits, int mantissaBits, int exponentBits) {
  int top = (1 << exponentBits) - 1, bias = top / 2;
  int exponent = (bits >> mantissaBits) & top;
  int mantissa = bits & ((1 << mantissaBits) - 1);
  bool negative = (bits >> (mantissaBits + exponentBits)) & 1;
  double value;
  if (exponent == top)
    value = mantissa == 0 ? infinity() : floatOfBits(0x7fc00000);
  else if (exponent == 0)
    value = ldexp(double(mantissa), 1 - bias - mantissaBits);
  else
    value = ldexp(double((1 << mantissaBits) + mantissa), exponent - bias - mantissaBits);
  return negative ? -value : value;
}

/// The nearest sign | exponent | mantissa, ties to even; infinity beyond the range.
__device__ inline unsigned smallFloatBits(double value, int mantissaBits, int exponentBits) {
  int top = (1 << exponentBits) - 1, bias = top / 2;
  unsigned sign = (signbit(value) ? 1u : 0u) << (mantissaBits + exponentBits);
  if (isnan(value))
    return sign | unsigned(top) << mantissaBits | 1u << (mantissaBits - 1);
  double size = fabs(value);
  if (isinf(value))
    return sign | unsigned(top) << mantissaBits;
  // What the last bit counts. Below the smallest normal number it stays the same.
  int exponent = size == 0 ? 1 - bias : ilogb(size);
  if (exponent < 1 - bias)
    exponent = 1 - bias;
  double steps = rint(ldexp(size, mantissaBits - exponent));
  // An implicit bit makes the exponent at least 1; a carry out of the mantissa raises it by one more.
  unsigned long long bits =
      (unsigned long long)(steps) + ((unsigned long long)(exponent + bias - 1) << mantissaBits);
  unsigned long long most = (unsigned long long)(top) << mantissaBits;
  return sign | unsigned(bits < most ? bits : most);
}

/// f8E4M3FN has no infinities: the largest exponent counts numbers too, and all ones is NaN.
__device__ inline double e4m3Value(unsigned bits) {
  int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  double size = exponent == 15 && mantissa == 7 ? floatOfBits(0x7fc00000)
                : exponent == 0                 ? ldexp(double(mantissa), -9)
                                                : ldexp(double(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -size : size;
}

/// The nearest, ties to even; 448, the largest, beyond the range.
__device__ inline unsigned e4m3Bits(double value) {
  unsigned sign = signbit(value) ? 0x80 : 0;
  if (isnan(value))
    return sign | 0x7f;
  // By trying: the sizes ascend with their bits.
  unsigned best = 0x7e;
  double size = fabs(value);
  for (unsigned bits = 0; bits < 0x7e; ++bits) {
    double middle = (e4m3Value(bits) + e4m3Value(bits + 1)) / 2;
    if (size < middle || (size == middle && bits % 2 == 0)) {
      best = bits;
      break;
    }
  }
  return sign | best;
}

/// Element `i` of an array.
__device__ inline double loadElement(int kind, const void *data, long long i) {
  switch (kind) {
  case kindF16:
    return smallFloatValue(((const unsigned short *)data)[i], 10, 5);
  case kindBF16:
    return smallFloatValue(((const unsigned short *)data)[i], 7, 8);
  case kindF32:
    return ((const float *)data)[i];
  case kindF8E4M3FN:
    return e4m3Value(((const unsigned char *)data)[i]);
  default:
    return ((const double *)data)[i];
  }
}

/// Writes element `i`, rounded.
__device__ inline void storeElement(int kind, void *data, long long i, double value) {
  switch (kind) {
  case kindF16:
    ((unsigned short *)data)[i] = (unsigned short)smallFloatBits(value, 10, 5);
    break;
  case kindBF16:
    ((unsigned short *)data)[i] = (unsigned short)smallFloatBits(value, 7, 8);
    break;
  case kindF32:
    ((float *)data)[i] = float(value);
    break;
  case kindF8E4M3FN:
    ((unsigned char *)data)[i] = (unsigned char)e4m3Bits(value);
    break;
  default:
    ((double *)data)[i] = value;
  }
}

/// Bytes of an element.
__device__ inline int elementBytes(int kind) { return kind == kindF64 ? 8 : kind == kindF32 ? 4 : 2; }

/// The scale of a head: one of all, the only one, or 1.
__device__ inline double scaleOf(const float *scales, long long count, long long head) {
  return scales ? scales[count == 1 ? 0 : head] : 1.0;
}

/// The index of this thread among all of the launch.
__device__ inline long long threadIndex() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
