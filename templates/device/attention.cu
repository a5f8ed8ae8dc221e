// softmax(scale q K^T) V by request and head over the cached tokens and the appended ones, in three kernels:
// scores, their softmax, and its sum of V.
#include "element.h"
#include "queries.h"
#include "reference.h"
using cfc_reference::Attention;
using cfc_reference::CacheRows;

/// What a row attends: positions [first, all) of its request that `sees` says. The cache has those below
/// `cached`, the appended rows from `row.first` on the others; new tokens have the positions from `base` on.
struct Tokens {
  long long first, cached, all, base;
  QueryRow row;
};

__device__ inline Tokens tokensOf(const Attention &a, long long row) {
  QueryRow place =
      queryRow(a.starts, a.requests, a.rows, row, a.status, unsigned(cfc_reference::queryOutOfBound));
  if (place.request < 0)
    return {0, 0, 0, 0, place}; // nobody's
  long long cached = a.length[place.request];
  if (cached < 0 || cached > a.bound) {
    atomicOr(a.status, unsigned(cfc_reference::lengthOutOfBound));
    cached = cached < 0 ? 0 : a.bound;
  }
  if (a.slot && a.slot[row] < 0)
    return {0, 0, 0, 0, place}; // the request is idle
  long long base = a.slot ? cached : cached - place.count;
  long long next = base + place.index + 1;
  return {a.window && next > a.window ? next - a.window : 0, cached, a.slot ? cached + place.count : cached,
          base, place};
}

/// Whether row `row` attends a position of its request.
__device__ inline bool sees(const Attention &a, long long row, const Tokens &tokens, long long position) {
  if (position < tokens.first || position >= tokens.all)
    return false;
  long long j = position - tokens.base; // among the new tokens
  if (j < 0)
    return true;
  if (a.mask ? !((unsigned long long)a.mask[row] >> j & 1) : j > tokens.row.index)
    return false;
  return !a.slot || a.slot[tokens.row.first + j] >= 0;
}

/// Where a cached token's row begins.
__device__ inline const char *cachedRow(const Attention &a, const CacheRows &rows, long long request,
                                        long long head, long long token) {
  const char *start = rows.base + head * rows.strideHead;
  if (!a.pages)
    return start + request * rows.strideBlock + token * rows.strideToken;
  long long block = a.pages[request * a.tablePages + token / a.page];
  if (block < 0 || block >= a.blocks) {
    atomicOr(a.status, unsigned(cfc_reference::pageOutOfBound));
    block = block < 0 ? 0 : a.blocks - 1;
  }
  return start + block * rows.strideBlock + token % a.page * rows.strideToken;
}

/// weights[row, head, token] = scale q K^T. One thread a query head and token.
extern "C" __global__ void attention_scores(Attention a) {
  long long i = threadIndex(), query = i / a.keys, token = i % a.keys;
  long long row = query / a.queryHeads, kvHead = query % a.queryHeads / (a.queryHeads / a.kvHeads);
  if (row >= a.rows)
    return;
  Tokens tokens = tokensOf(a, row);
  if (!sees(a, row, tokens, token))
    return;
  bool isNew = token >= tokens.cached;
  const void *k = isNew ? a.newK : cachedRow(a, a.k, tokens.row.request, kvHead, token);
  long long first = isNew ? ((tokens.row.first + token - tokens.cached) * a.kvHeads + kvHead) * a.dim : 0;
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
  double *weights = a.weights + query * a.keys;
  double most = -infinity(), sum = 0;
  for (long long token = tokens.first; token < tokens.all; ++token)
    if (sees(a, row, tokens, token))
      most = weights[token] > most || isnan(weights[token]) ? weights[token] : most;
  bool none = most == -infinity();
  if (a.sinks.data && !none) {
    double sink = loadElement(a.sinks.kind, a.sinks.data, query % a.queryHeads);
    most = sink > most ? sink : most;
    sum = exp(sink - most);
  }
  for (long long token = tokens.first; token < tokens.all; ++token)
    sum += weights[token] = none || !sees(a, row, tokens, token) ? 0 : exp(weights[token] - most);
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
  const double *weights = a.weights + query * a.keys;
  double sum = 0;
  for (long long token = tokens.first; token < tokens.all; ++token) {
    if (!sees(a, row, tokens, token))
      continue;
    bool isNew = token >= tokens.cached;
    const void *v = isNew ? a.newV : cachedRow(a, a.v, tokens.row.request, kvHead, token);
    long long first = isNew ? ((tokens.row.first + token - tokens.cached) * a.kvHeads + kvHead) * a.vDim : 0;
    sum += weights[token] * loadElement(a.cacheKind, v, first + e);
  }
  a.result[i] = sum * scaleOf(a.vScale, a.scales, kvHead);
}
