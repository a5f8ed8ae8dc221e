// x / sqrt(mean(x^2) + eps) * gain, by one block.
#include "fast_math.h"

KERNEL(512) fast_rms_norm(cfc_fast::RmsNorm a) {
  __shared__ float sums[32];
  int thread = int(threadIdx.x), threads = int(blockDim.x);
  float squares = 0;
#pragma unroll 8
  for (int i = thread; i < a.width; i += threads) {
    float x = load(a.x, i);
    squares += x * x;
  }
  squares = sumOverLanes(squares, 32);
  if (thread % 32 == 0)
    sums[thread / 32] = squares;
  __syncthreads();
  squares = sumOverLanes(thread % 32 < threads / 32 ? sums[thread % 32] : 0, 32);
  float factor = 1 / sqrtf(squares / float(a.width) + a.eps);
#pragma unroll 8
  for (int i = thread; i < a.width; i += threads)
    store(a.result, i, load(a.x, i) * factor * loadKind<GAIN>(a.gain, i));
}
