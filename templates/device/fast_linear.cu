// A stacked projection: each warp takes two outputs, its lanes walk along their rows by 16 bytes; x lies in
// shared memory as floats.
#include "fast_math.h"
using cfc_fast::Linear;

namespace {
constexpr int tile = 4096; // columns of x that lie in shared memory at a time

/// Where a column lies: the first and the second half of 8 apart, so that lanes that read 16 bytes each do
/// not meet in a bank.
__device__ inline int place(int column) {
  return (column & 4) * (tile / 8) + (column >> 3) * 4 + (column & 3);
}

struct Row {
  const unsigned short *weight;
  cfc_fast::Values bias, result;
  int output; // of its part; -1 behind the last
};

__device__ inline Row rowOf(const Linear &a, int output) {
  for (int part = 0; part < a.partCount; ++part) {
    const cfc_fast::LinearPart &p = a.parts[part];
    if (output < p.outputs)
      return {(const unsigned short *)p.weight + (long long)output * a.inputs, p.bias, p.result, output};
    output -= p.outputs;
  }
  return {(const unsigned short *)a.parts[0].weight, {}, {}, -1};
}

/// 8 columns of x.
__device__ inline void loadColumns(const float *columns, int column, float (&values)[8]) {
  float4 low = *(const float4 *)(columns + place(column));
  float4 high = *(const float4 *)(columns + place(column + 4));
  float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  for (int i = 0; i < 8; ++i)
    values[i] = all[i];
}
} // namespace

KERNEL(cfc_fast::Linear::threads) fast_linear(Linear a) {
  alignas(16) __shared__ float columns[tile];
  constexpr int rowCount = 2;
  int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  int first = int(blockIdx.x) * Linear::outputsPerBlock + warp * rowCount;
  Row rows[rowCount] = {rowOf(a, first), rowOf(a, first + 1)};
  float sums[rowCount] = {};
  for (int begin = 0; begin < a.inputs; begin += tile) {
    int count = a.inputs - begin < tile ? a.inputs - begin : tile;
    __syncthreads();
#pragma unroll 4
    for (int i = int(threadIdx.x); i < count; i += Linear::threads)
      columns[place(i)] = load(a.x, begin + i);
    __syncthreads();
#pragma unroll 4
    for (int i = lane * 8; i < count; i += 32 * 8) {
      float weights[rowCount][8], x[8];
      for (int r = 0; r < rowCount; ++r)
        unpack(WEIGHT, load16Bytes(rows[r].weight + begin + i), weights[r]);
      loadColumns(columns, i, x);
      for (int j = 0; j < 8; ++j)
        for (int r = 0; r < rowCount; ++r)
          sums[r] += weights[r][j] * x[j];
    }
  }
  for (int r = 0; r < rowCount; ++r) {
    float sum = sumOverLanes(sums[r], 32);
    if (lane == 0 && rows[r].output >= 0)
      store(rows[r].result, rows[r].output,
            sum + (rows[r].bias.data ? load(rows[r].bias, rows[r].output) : 0));
  }
}
