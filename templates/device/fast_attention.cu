// Flash decoding: blocks take parts of the tokens with an online softmax; a second kernel merges the parts.
#include "fast_math.h"
using cfc_fast::Attention;

namespace {
constexpr int teams = Attention::threads / LANES; // of LANES lanes; each takes every `teams`-th token
constexpr int batch = 4;                          // tokens of a team whose loads are under way together

__device__ inline float minusInfinity() { return -float(infinity()); }

/// Tokens that are attended: `cached` rows from the start of the cache, and the row at `slot` behind them.
struct Tokens {
  long long cached, all, slot;
  __device__ long long row(long long token) const { return token < cached ? token : slot; }
};

__device__ inline Tokens tokensOf(const Attention &a) {
  long long cached = *a.length < 0 ? 0 : *a.length < a.bound ? *a.length : a.bound;
  if (!a.slot)
    return {cached, cached, 0};
  if (*a.slot < 0 || *a.slot >= a.capacity)
    return {0, 0, 0}; // the request is idle
  return {cached, cached + 1, *a.slot};
}

/// An online softmax in base 2 of one query head: lane e / 8 of a team holds elements e to e + 7 of the sum.
struct Softmax {
  float most, sum, values[8];

  __device__ void clear() {
    most = minusInfinity();
    sum = 0;
    for (float &value : values)
      value = 0;
  }
  __device__ void add(const float (&scores)[batch], const float (&v)[batch][8]) {
    float next = most;
    for (float score : scores)
      next = fmaxf(next, score);
    float base = next == minusInfinity() ? 0 : next, factor = exp2f(most - base);
    most = next;
    sum *= factor;
    for (float &value : values)
      value *= factor;
    for (int b = 0; b < batch; ++b) {
      float weight = exp2f(scores[b] - base);
      sum += weight;
      for (int e = 0; e < 8; ++e)
        values[e] += weight * v[b][e];
    }
  }
};

/// Writes a head's result, or its part where there are several splits.
__device__ inline void finish(const Attention &a, int split, int head, int e, float most, float sum,
                              float value) {
  long long part = (long long)split * a.queryHeads + head;
  if (a.splits > 1) {
    a.partial[part * a.dim + e] = value;
    if (e == 0) {
      a.state[2 * part] = most;
      a.state[2 * part + 1] = sum;
    }
    return;
  }
  store(a.result, (long long)head * a.dim + e, sum > 0 ? value / sum : 0);
  if (e == 0 && a.lse)
    a.lse[head] = sum > 0 ? most * 0.693147180559945f + logf(sum) : minusInfinity();
}
} // namespace

KERNEL(cfc_fast::Attention::threads) fast_attention(Attention a) {
  int lane = int(threadIdx.x) % LANES, team = int(threadIdx.x) / LANES, firstHead = int(blockIdx.y) * GROUP;
  bool inHead = lane * 8 < a.dim;
  Tokens tokens = tokensOf(a);
  long long chunk = (tokens.all + a.splits - 1) / a.splits, begin = blockIdx.x * chunk;
  long long end = begin + chunk < tokens.all ? begin + chunk : tokens.all;
  long long offset = firstHead / a.group * a.strideHead + lane * 16;

  float q[GROUP][8];
  Softmax states[GROUP];
  for (int g = 0; g < GROUP; ++g) {
    uint4 bytes = {0, 0, 0, 0};
    if (inHead)
      bytes = load16Bytes((const char *)a.q.data + ((firstHead + g) * a.dim + lane * 8) * 2);
    unpack(a.q.kind, bytes, q[g]);
    for (float &value : q[g])
      value *= a.scale * 1.44269504088896f;
    states[g].clear();
  }
  for (long long base = begin; base < end; base += teams * batch) {
    uint4 kBytes[batch], vBytes[batch];
    for (int b = 0; b < batch; ++b) {
      long long token = base + b * teams + team;
      kBytes[b] = vBytes[b] = {0, 0, 0, 0};
      if (token < end && inHead) {
        kBytes[b] = load16Bytes(a.k + tokens.row(token) * a.strideToken + offset);
        vBytes[b] = load16Bytes(a.v + tokens.row(token) * a.strideToken + offset);
      }
    }
    float scores[GROUP][batch], v[batch][8];
    for (int b = 0; b < batch; ++b) {
      float k[8];
      unpack(CACHE, kBytes[b], k);
      unpack(CACHE, vBytes[b], v[b]);
      for (int g = 0; g < GROUP; ++g) {
        float sum = 0;
        for (int e = 0; e < 8; ++e)
          sum += q[g][e] * k[e];
        sum = sumOverLanes(sum, LANES);
        scores[g][b] = base + b * teams + team < end ? sum : minusInfinity();
      }
    }
    for (int g = 0; g < GROUP; ++g)
      states[g].add(scores[g], v);
  }

  // The teams of the block, one after another.
  __shared__ float values[teams][LANES * 8], most[teams], sums[teams];
  for (int g = 0; g < GROUP; ++g) {
    __syncthreads();
    for (int e = 0; e < 8; ++e)
      values[team][lane * 8 + e] = states[g].values[e];
    most[team] = states[g].most;
    sums[team] = states[g].sum;
    __syncthreads();
    for (int e = int(threadIdx.x); e < a.dim; e += Attention::threads) {
      float largest = minusInfinity(), sum = 0, value = 0;
      for (int t = 0; t < teams; ++t)
        largest = fmaxf(largest, most[t]);
      for (int t = 0; t < teams; ++t) {
        float factor = sums[t] > 0 ? exp2f(most[t] - largest) : 0;
        sum += sums[t] * factor;
        value += values[t][e] * factor;
      }
      finish(a, int(blockIdx.x), firstHead + g, e, largest, sum, value);
    }
  }
}

/// A block for each query head.
KERNEL(cfc_fast::Attention::threads) fast_attention_merge(Attention a) {
  __shared__ float most[Attention::maxSplits], sums[Attention::maxSplits];
  int head = int(blockIdx.x);
  for (int split = int(threadIdx.x); split < a.splits; split += Attention::threads) {
    most[split] = a.state[2 * (split * a.queryHeads + head)];
    sums[split] = a.state[2 * (split * a.queryHeads + head) + 1];
  }
  __syncthreads();
  float largest = minusInfinity();
  for (int split = 0; split < a.splits; ++split)
    largest = fmaxf(largest, most[split]);
  Attention whole = a;
  whole.splits = 1;
  for (int e = int(threadIdx.x); e < a.dim; e += Attention::threads) {
    float sum = 0, value = 0;
#pragma unroll 16
    for (int split = 0; split < a.splits; ++split) {
      float part = a.partial[((long long)split * a.queryHeads + head) * a.dim + e];
      float factor = sums[split] > 0 ? exp2f(most[split] - largest) : 0;
      sum += sums[split] * factor;
      value += part * factor;
    }
    finish(whole, 0, head, e, largest, sum, value);
  }
}
