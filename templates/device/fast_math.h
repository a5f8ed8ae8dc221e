//===- fast_math.h - What the fast kernels share --------------------------===//
#pragma once
#include "element.h"
#include "fast.h"

/// The head of a kernel for blocks of so many threads.
#ifdef __CUDACC__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#else
#define KERNEL(threads) static void // several sets of macros in one program
#endif

#ifdef __CUDA_ARCH__
__device__ inline float halfValue(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline unsigned short halfBits(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline unsigned short bfloatBits(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
__device__ inline float halfValue(unsigned short bits) { return float(smallFloatValue(bits, 10, 5)); }
__device__ inline unsigned short halfBits(float value) {
  return (unsigned short)smallFloatBits(value, 10, 5);
}
__device__ inline unsigned short bfloatBits(float value) {
  return (unsigned short)smallFloatBits(value, 7, 8);
}
#endif

__device__ inline float bfloatValue(unsigned bits) { return float(floatOfBits(bits << 16)); }

/// The value of 16 bits; without a branch, so that loads around it stay together.
__device__ inline float smallValue(int kind, unsigned short bits) {
  float half = halfValue(bits), bfloat = bfloatValue(bits);
  return kind == kindF16 ? half : bfloat;
}

/// Element `i` of 16 bits.
__device__ inline float load(cfc_fast::Values values, long long i) {
  return smallValue(values.kind, ((const unsigned short *)values.data)[i]);
}
/// Element `i` of a kind that is known when the kernel is compiled.
template <int kind> __device__ inline float loadKind(const void *data, long long i) {
  if (kind == kindF32)
    return ((const float *)data)[i];
  return smallValue(kind, ((const unsigned short *)data)[i]);
}

/// Writes element `i` of 16 bits, rounded.
__device__ inline void store(cfc_fast::Values values, long long i, float value) {
  unsigned short half = halfBits(value), bfloat = bfloatBits(value);
  ((unsigned short *)values.data)[i] = values.kind == kindF16 ? half : bfloat;
}

/// 16 bytes that no kernel writes while this one runs, from an aligned address.
__device__ inline uint4 load16Bytes(const void *data) { return __ldg((const uint4 *)data); }

/// 8 elements of 16 bits.
__device__ inline void unpack(int kind, uint4 bytes, float (&values)[8]) {
  unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = smallValue(kind, (unsigned short)words[i]);
    values[2 * i + 1] = smallValue(kind, (unsigned short)(words[i] >> 16));
  }
}

/// The sum over the aligned group of `lanes` lanes, in all of them. Every lane of the warp takes part.
__device__ inline float sumOverLanes(float value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}
