// softmax(scale q K^T) V by head over the cached tokens and the appended one, in three kernels: scores, their
// softmax, and its sum of V.
#include "element.h"
#include "reference.h"
using cfc_reference::Attention;

/// Tokens that are attended: the first `cached` of the cache, and the appended one behind them.
struct Tokens {
  long long cached, all;
};

__device__ inline Tokens tokensOf(const Attention &a) {
  long long cached = *a.length;
  if (cached < 0 || cached > a.bound) {
    atomicOr(a.status, unsigned(cfc_reference::lengthOutOfBound));
    cached = cached < 0 ? 0 : a.bound;
  }
  if (a.slot && *a.slot < 0)
    return {0, 0}; // the request is idle
  return {cached, cached + (a.slot ? 1 : 0)};
}

/// Element `e` of a token's K or V.
__device__ inline double cacheElement(const Attention &a, const char *cache, const void *appended,
                                      Tokens tokens, long long head, long long token, long long e) {
  if (token == tokens.cached)
    return loadElement(a.cacheKind, appended, head * a.dim + e);
  return loadElement(a.cacheKind, cache + head * a.strideHead + token * a.strideToken, e);
}

/// weights[head, token] = scale q K^T. One thread a query head and token.
extern "C" __global__ void attention_scores(Attention a) {
  Tokens tokens = tokensOf(a);
  long long i = threadIndex(), head = i / (a.bound + 1), token = i % (a.bound + 1);
  if (head >= a.queryHeads || token >= tokens.all)
    return;
  long long kvHead = head / (a.queryHeads / a.kvHeads);
  double sum = 0;
  for (long long e = 0; e < a.dim; ++e)
    sum += loadElement(a.q.kind, a.q.data, head * a.dim + e) *
           cacheElement(a, a.k, a.newK, tokens, kvHead, token, e);
  a.weights[i] = a.scale * sum;
}

/// weights[head, :] = softmax of it; lse[head] = ln(sum(exp)). One thread a query head.
extern "C" __global__ void attention_softmax(Attention a) {
  Tokens tokens = tokensOf(a);
  long long head = threadIndex();
  if (head >= a.queryHeads)
    return;
  double *weights = a.weights + head * (a.bound + 1);
  double most = -infinity(), sum = 0;
  for (long long token = 0; token < tokens.all; ++token)
    most = weights[token] > most || isnan(weights[token]) ? weights[token] : most;
  for (long long token = 0; token < tokens.all; ++token)
    sum += weights[token] = exp(weights[token] - most);
  for (long long token = 0; token < tokens.all; ++token)
    weights[token] /= sum;
  a.lse[head] = tokens.all == 0 ? -infinity() : most + log(sum);
}

/// result[head, e] = weights[head, :] V[:, e]. One thread a result.
extern "C" __global__ void attention_values(Attention a) {
  Tokens tokens = tokensOf(a);
  long long i = threadIndex(), head = i / a.dim, e = i % a.dim;
  if (head >= a.queryHeads)
    return;
  long long kvHead = head / (a.queryHeads / a.kvHeads);
  double sum = 0;
  for (long long token = 0; token < tokens.all; ++token)
    sum += a.weights[head * (a.bound + 1) + token] * cacheElement(a, a.v, a.newV, tokens, kvHead, token, e);
  a.result[i] = sum;
}
