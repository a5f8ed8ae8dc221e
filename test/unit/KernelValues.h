//===- KernelValues.h - Inputs of kernels, and how wrong results are -----------===//
#pragma once
#include "dialects/attn/Elements.h"
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace cfc::test {

/// `n` normal numbers, rounded to `kind`.
inline std::vector<double> randomValues(size_t n, double scale, uint64_t seed, ElementKind kind) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(n);
  for (double &v : values)
    v = roundTo(kind, normal(engine));
  return values;
}

/// w [rows, n] times x [n], in double.
inline std::vector<double> product(const std::vector<double> &w, const std::vector<double> &x) {
  std::vector<double> y(w.size() / x.size());
  for (size_t i = 0; i < w.size(); ++i)
    y[i / x.size()] += w[i] * x[i % x.size()];
  return y;
}

/// One query head attends to `tokens` tokens, in double: score(t) of each, and value(t)[i] for i of [0, dim)
/// of its value. Adds the result to `out` [dim]; gives the lse.
template <typename Score, typename Value>
double attendHead(int tokens, int dim, Score score, Value value, double *out) {
  std::vector<double> s(tokens);
  double m = -INFINITY, l = 0;
  for (int t = 0; t < tokens; ++t)
    m = std::max(m, s[t] = score(t));
  for (double &x : s)
    l += x = std::exp(x - m);
  for (int t = 0; t < tokens; ++t)
    for (int i = 0; i < dim; ++i)
      out[i] += s[t] / l * value(t)[i];
  return tokens ? m + std::log(l) : -INFINITY;
}

/// |got - want| / |want| in the 2-norm; infinite where `got` is not finite.
inline double relativeError(const std::vector<double> &got, const std::vector<double> &want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::isfinite(error) ? std::sqrt(error / norm) : INFINITY;
}

/// The sum of `n` floats by the left-balanced tree: the left part is the largest power of two below n.
inline float treeSum(const float *x, int n) {
  if (n == 1)
    return x[0];
  int left = 1;
  while (2 * left < n)
    left *= 2;
  return treeSum(x, left) + treeSum(x + left, n - left);
}

/// One of `values`, by the engine.
template <typename T> T pick(std::mt19937_64 &engine, const std::vector<T> &values) {
  return values[engine() % values.size()];
}

} // namespace cfc::test
