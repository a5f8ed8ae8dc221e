// A stacked projection: each warp takes two outputs, whose rows its lanes walk along by 16 bytes. The row of
// x comes from the L1 again and again.
#include "fast_math.h"
using cfc_fast::Linear;

namespace {
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
} // namespace

KERNEL(cfc_fast::Linear::threads) fast_linear(Linear a) {
  constexpr int rowCount = Linear::outputsPerWarp, batch = 4; // loads of a row that are under way together
  int lane = int(threadIdx.x) % 32, warp = int(blockIdx.x) * (Linear::threads / 32) + int(threadIdx.x) / 32;
  Row rows[rowCount];
  float sums[rowCount];
  for (int r = 0; r < rowCount; ++r) {
    rows[r] = rowOf(a, warp * rowCount + r);
    sums[r] = 0;
  }
  for (int begin = lane * 8; begin < a.inputs; begin += batch * 32 * 8) {
    uint4 weights[batch][rowCount];
    for (int b = 0; b < batch; ++b)
      for (int r = 0; r < rowCount; ++r) {
        int column = begin + b * 32 * 8;
        weights[b][r] = {0, 0, 0, 0};
        if (column < a.inputs)
          weights[b][r] = load16Bytes(rows[r].weight + column);
      }
    for (int b = 0; b < batch; ++b) {
      int column = begin + b * 32 * 8;
      if (column >= a.inputs)
        break;
      float x[8], w[8];
      unpack(a.x.kind, load16Bytes((const unsigned short *)a.x.data + column), x);
      for (int r = 0; r < rowCount; ++r) {
        unpack(WEIGHT, weights[b][r], w);
        for (int i = 0; i < 8; ++i)
          sums[r] += w[i] * x[i];
      }
    }
  }
  for (int r = 0; r < rowCount; ++r) {
    float sum = sumOverLanes(sums[r], 32);
    if (lane == 0 && rows[r].output >= 0)
      store(rows[r].result, rows[r].output,
            sum + (rows[r].bias.data ? load(rows[r].bias, rows[r].output) : 0));
  }
}
