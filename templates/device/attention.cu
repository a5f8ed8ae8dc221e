// softmax(scale q K^T) V by request and head over the cached tokens and the appended one, in three kernels:
// scores, their softmax, and its sum of V.
#include "element.h"
#include "reference.h"
using cfc_reference::Attention;
using cfc_reference::CacheRows;

/// Tokens that a request attends: from `first` on the first `cached` of the cache, and the appended one
/// behind them.
struct Tokens {
  long long first, cached, all;
};

__device__ inline Tokens tokensOf(const Attention &a, long long row) {
  long long cached = a.length[row];
  if (cached < 0 || cached > a.bound) {
    atomicOr(a.status, unsigned(cfc_reference::lengthOutOfBound));
    cached = cached < 0 ? 0 : a.bound;
  }
  if (a.slot && a.slot[row] < 0)
    return {0, 0, 0}; // the request is idle
  long long all = cached + (a.slot ? 1 : 0);
  return {a.window && all > a.window ? all - a.window : 0, cached, all};
}

/// Where a cached token's row begins.
__device__ inline const char *cachedRow(const Attention &a, const CacheRows &rows, long long row,
                                        long long head, long long token) {
  const char *start = rows.base + head * rows.strideHead;
  if (!a.pages)
    return start + row * rows.strideBlock + token * rows.strideToken;
  long long block = a.pages[row * a.tablePages + token / a.page];
  if (block < 0 || block >= a.blocks) {
    atomicOr(a.status, unsigned(cfc_reference::pageOutOfBound));
    block = block < 0 ? 0 : a.blocks - 1;
  }
  return start + block * rows.strideBlock + token % a.page * rows.strideToken;
}

/// weights[row, head, token] = scale q K^T. One thread a query head and token.
extern "C" __global__ void attention_scores(Attention a) {
  long long i = threadIndex(), query = i / (a.bound + 1), token = i % (a.bound + 1);
  long long row = query / a.queryHeads, kvHead = query % a.queryHeads / (a.queryHeads / a.kvHeads);
  if (row >= a.rows)
    return;
  Tokens tokens = tokensOf(a, row);
  if (token < tokens.first || token >= tokens.all)
    return;
  bool isNew = token == tokens.cached;
  const void *k = isNew ? a.newK : cachedRow(a, a.k, row, kvHead, token);
  long long first = isNew ? (row * a.kvHeads + kvHead) * a.dim : 0;
  double sum = 0;
  for (long long e = 0; e < a.dim; ++e)
    sum += loadElement(a.q.kind, a.q.data, query * a.dim + e) * loadElement(a.cacheKind, k, first + e);
  double score = a.scale * sum * scaleOf(a.kScale, a.scales, kvHead);
  if (a.softcap != 0)
    score = a.softcap * tanh(score / a.softcap);
  a.weights[i] = a.bias ? score + a.bias[i] : score;
}

/// weights[row, head, :] = softmax of it; lse[row, head] = ln(sum(exp)). One thread a query head.
extern "C" __global__ void attention_softmax(Attention a) {
  long long query = threadIndex(), row = query / a.queryHeads;
  if (row >= a.rows)
    return;
  Tokens tokens = tokensOf(a, row);
  double *weights = a.weights + query * (a.bound + 1);
  double most = -infinity(), sum = 0;
  for (long long token = tokens.first; token < tokens.all; ++token)
    most = weights[token] > most || isnan(weights[token]) ? weights[token] : most;
  bool none = most == -infinity();
  if (a.sinks.data && !none) {
    double sink = loadElement(a.sinks.kind, a.sinks.data, query % a.queryHeads);
    most = sink > most ? sink : most;
    sum = exp(sink - most);
  }
  for (long long token = tokens.first; token < tokens.all; ++token)
    sum += weights[token] = none ? 0 : exp(weights[token] - most);
  for (long long token = tokens.first; token < tokens.all; ++token)
    weights[token] = none ? 0 : weights[token] / sum;
  a.lse[query] = none ? -infinity() : most + log(sum);
}

/// result[row, head, e] = weights[row, head, :] V[:, e]. One thread a result.
extern "C" __global__ void attention_values(Attention a) {
  long long i = threadIndex(), query = i / a.vDim, e = i % a.vDim;
  long long row = query / a.queryHeads, kvHead = query % a.queryHeads / (a.queryHeads / a.kvHeads);
  if (row >= a.rows)
    return;
  Tokens tokens = tokensOf(a, row);
  double sum = 0;
  for (long long token = tokens.first; token < tokens.cached; ++token)
    sum += a.weights[query * (a.bound + 1) + token] *
           loadElement(a.cacheKind, cachedRow(a, a.v, row, kvHead, token), e);
  if (tokens.all > tokens.cached)
    sum += a.weights[query * (a.bound + 1) + tokens.cached] *
           loadElement(a.cacheKind, a.newV, (row * a.kvHeads + kvHead) * a.vDim + e);
  a.result[i] = sum * scaleOf(a.vScale, a.scales, kvHead);
}
