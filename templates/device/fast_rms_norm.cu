// x / sqrt(mean(x^2) + eps) * gain, by one block that keeps the row and the gain in registers.
#include "fast_math.h"
using cfc_fast::RmsNorm;

KERNEL(cfc_fast::RmsNorm::threads) fast_rms_norm(RmsNorm a) {
  constexpr int chunks = RmsNorm::maxWidth / (8 * RmsNorm::threads); // of 8 elements, for each thread
  __shared__ float sums[32];
  int thread = int(threadIdx.x);
  float x[chunks][8], gain[chunks][8], squares = 0;
  for (int c = 0; c < chunks; ++c) {
    int column = 8 * (c * RmsNorm::threads + thread);
    if (column < a.width)
      for (int i = 0; i < 8; ++i)
        gain[c][i] = loadKind<GAIN>(a.gain, column + i);
    uint4 bytes = {0, 0, 0, 0};
    if (column < a.width)
      bytes = load16Bytes((const unsigned short *)a.x.data + column);
    unpack(a.x.kind, bytes, x[c]);
    for (float value : x[c])
      squares += value * value;
  }
  squares = sumOverLanes(squares, 32);
  if (thread % 32 == 0)
    sums[thread / 32] = squares;
  __syncthreads();
  squares = sumOverLanes(thread % 32 < RmsNorm::threads / 32 ? sums[thread % 32] : 0, 32);
  float factor = 1 / sqrtf(squares / float(a.width) + a.eps);
  for (int c = 0; c < chunks; ++c) {
    int column = 8 * (c * RmsNorm::threads + thread);
    if (column < a.width)
      for (int i = 0; i < 8; ++i)
        store(a.result, column + i, x[c][i] * factor * gain[c][i]);
  }
}
