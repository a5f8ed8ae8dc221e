//===- ReferenceMath.cpp - Dense loops of the reference, in double ---------===//
//
// A 7B block multiplies 67 million weights a token, and is checked for many
// lengths. Sums are kept in as many lanes as fit a small array, so that the
// compiler can use vectors without reordering anything it may not.
//
//===----------------------------------------------------------------------===//
#include "dialects/attn/ReferenceMath.h"
#include <algorithm>
#include <array>
#include <thread>

using namespace cfc;
using namespace cfc::attn;

namespace {

struct LoadHalf {
  static constexpr size_t size = 2;
  static float at(const char *p) { return halfToFloat(loadAs<uint16_t>(p)); }
};
struct LoadBfloat {
  static constexpr size_t size = 2;
  static float at(const char *p) { return bfloatToFloat(loadAs<uint16_t>(p)); }
};
struct LoadE4m3 {
  static constexpr size_t size = 1;
  static float at(const char *p) { return e4m3ToFloat(loadAs<uint8_t>(p)); }
};
struct LoadFloat {
  static constexpr size_t size = 4;
  static float at(const char *p) { return loadAs<float>(p); }
};

// Calls `body` with the loader of a float type.
template <typename Body> auto withLoader(ElementKind kind, Body body) {
  if (kind == ElementKind::F16)
    return body(LoadHalf());
  if (kind == ElementKind::BF16)
    return body(LoadBfloat());
  if (kind == ElementKind::F8E4M3FN)
    return body(LoadE4m3());
  return body(LoadFloat());
}

constexpr int64_t lanes = 64;

// The sum of term(row[i], x[i]).
template <typename Load, typename Term>
double sumTerms(const char *row, const double *x, int64_t count, Term term) {
  std::array<double, lanes> sums = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const char *part = row + i * Load::size;
    const double *factors = x + i;
    for (int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += term(static_cast<double>(Load::at(part + lane * Load::size)), factors[lane]);
  }
  for (int64_t lane = 0; i < count; ++i, ++lane)
    sums[lane] += term(static_cast<double>(Load::at(row + i * Load::size)), x[i]);
  for (int64_t width = lanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane)
      sums[lane] += sums[lane + width];
  return sums[0];
}

template <typename Load> double dot(const char *row, const double *x, int64_t count) {
  return sumTerms<Load>(row, x, count, [](double a, double b) { return a * b; });
}

double square(double x) { return x * x; }

template <typename Load> void addScaled(const char *row, double factor, int64_t count, double *out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] += factor * static_cast<double>(Load::at(row + i * Load::size));
}

const char *rowAt(const HeadRows &rows, const CacheRows &cached, const std::vector<const char *> &appended,
                  int64_t token) {
  if (token >= rows.tokens)
    return appended[size_t(token - rows.tokens)];
  if (rows.page == 0)
    return cached.base + token * cached.strideToken;
  return cached.base + rows.pages[token / rows.page] * cached.strideBlock +
         token % rows.page * cached.strideToken;
}

double scoreOf(const ScoreRule &rule, double product, int64_t token) {
  double score = rule.scale * product;
  if (rule.softcap)
    score = *rule.softcap * std::tanh(score / *rule.softcap);
  return rule.bias ? score + rule.bias(token) : score;
}

// HeadSummary::roundings of an output, made with these probabilities.
template <typename Load>
double roundingsOf(const HeadRows &rows, const double *q, const ScoreRule &rule,
                   const std::vector<double> &probabilities, const double *out) {
  double size = 0, squares = 0, most = 0;
  for (int64_t i = 0; i < rows.vDim; ++i)
    size += square(out[i]);
  if (size == 0)
    return 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    int64_t token = (*rows.attended)[i];
    // By how much a rounding of q or of k moves the score (a softcap's slope is at most 1), and the output
    // if the probability grows by all of itself.
    double score =
        square(rule.scale * rows.kScale) * sumTerms<Load>(rowAt(rows, rows.k, rows.newK, token), q, rows.dim,
                                                          [](double a, double b) { return square(a * b); });
    double distance = square(probabilities[i]) / size *
                      sumTerms<Load>(rowAt(rows, rows.v, rows.newV, token), out, rows.vDim,
                                     [&](double a, double b) { return square(rows.vScale * a - b); });
    int64_t roundings = rows.qRoundings + (token >= rows.tokens ? rows.newKRoundings : 0);
    double moved = static_cast<double>(roundings) * score * distance;
    squares += moved + 2 * distance;
    most = std::max(most, moved);
  }
  return std::sqrt(3 + squares) + 5 * std::sqrt(most);
}

template <typename Load>
HeadSummary attend(const HeadRows &rows, const double *q, const ScoreRule &rule, double *out) {
  std::fill_n(out, rows.vDim, 0.0);
  if (rows.attended->empty())
    return {};
  std::vector<double> weights;
  for (int64_t token : *rows.attended) {
    double product = dot<Load>(rowAt(rows, rows.k, rows.newK, token), q, rows.dim);
    weights.push_back(scoreOf(rule, rows.kScale * product, token));
  }
  double most = *std::max_element(weights.begin(), weights.end());
  // A bias may take every token out.
  if (most == -std::numeric_limits<double>::infinity())
    return {};
  if (rule.sink)
    most = std::max(most, *rule.sink);
  double sum = rule.sink ? std::exp(*rule.sink - most) : 0;
  for (double &weight : weights)
    sum += weight = std::exp(weight - most);
  for (double &weight : weights)
    weight /= sum;
  for (size_t i = 0; i < weights.size(); ++i)
    addScaled<Load>(rowAt(rows, rows.v, rows.newV, (*rows.attended)[i]), rows.vScale * weights[i], rows.vDim,
                    out);
  return {most + std::log(sum), roundingsOf<Load>(rows, q, rule, weights, out)};
}

} // namespace

void cfc::attn::parallelFor(int64_t count, unsigned threads,
                            const std::function<void(int64_t, int64_t)> &body) {
  int64_t parts = std::clamp<int64_t>(threads, 1, std::max<int64_t>(count, 1));
  std::vector<std::thread> workers;
  for (int64_t part = 1; part < parts; ++part)
    workers.emplace_back(body, count * part / parts, count * (part + 1) / parts);
  body(0, count / parts);
  for (std::thread &worker : workers)
    worker.join();
}

std::vector<double> cfc::attn::toDoubles(ElementKind kind, const void *source, int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = toDouble(kind, static_cast<const char *>(source) + i * elementSize(kind));
  return values;
}

void cfc::attn::multiplyRows(ElementKind kind, const void *weight, int64_t rows, int64_t columns,
                             const double *x, double *out, unsigned threads) {
  // Starting a thread costs as much as some ten thousand products.
  unsigned useful = static_cast<unsigned>(std::min<int64_t>(threads, 1 + rows * columns / 100000));
  withLoader(kind, [&](auto load) {
    using Load = decltype(load);
    parallelFor(rows, useful, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        out[row] = dot<Load>(static_cast<const char *>(weight) + row * columns * Load::size, x, columns);
    });
  });
}

QueryRow cfc::attn::queryRow(const std::vector<double> &starts, int64_t rows, int64_t row) {
  int64_t reached = 0;
  QueryRow result;
  for (size_t r = 0; r < starts.size(); ++r) {
    reached = std::max(reached, int64_t(std::clamp(starts[r], 0.0, double(rows))));
    if (reached > row && result.request >= 0)
      return result.count = reached - result.first, result.index = row - result.first, result;
    if (reached > row)
      break; // of no request: before the first
    result.request = int64_t(r);
    result.first = reached;
  }
  return {};
}

bool cfc::attn::areQueryStarts(const std::vector<double> &starts, int64_t rows) {
  return std::is_sorted(starts.begin(), starts.end()) && starts.front() >= 0 && starts.back() <= double(rows);
}

HeadSummary cfc::attn::attendHead(const HeadRows &rows, const double *q, const ScoreRule &rule, double *out) {
  return withLoader(rows.kind, [&](auto load) { return attend<decltype(load)>(rows, q, rule, out); });
}
