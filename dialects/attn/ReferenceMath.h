//===- ReferenceMath.h - Dense loops of the reference, in double -----------===//
#pragma once
#include "dialects/attn/Elements.h"
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace cfc::attn {

/// Calls `body(begin, end)` for parts of [0, count), on up to `threads` threads.
void parallelFor(int64_t count, unsigned threads, const std::function<void(int64_t, int64_t)> &body);

/// `count` elements as doubles.
std::vector<double> toDoubles(ElementKind kind, const void *source, int64_t count);

/// out[r] = sum over c of weight[r, c] * x[c]; `weight` is row-major.
void multiplyRows(ElementKind kind, const void *weight, int64_t rows, int64_t columns, const double *x,
                  double *out, unsigned threads);

/// One head's K or V in a cache.
struct CacheRows {
  const char *base = nullptr;               ///< row 0, of the request or of the pool
  int64_t strideToken = 0, strideBlock = 0; ///< bytes from a token to the next, from a page to the next
};
/// One head's cached rows and the appended ones, which have the positions behind them.
struct HeadRows {
  ElementKind kind = ElementKind::F16;
  CacheRows k, v;
  int64_t page = 0;               ///< tokens of a page; 0: the rows lie one after another
  const int64_t *pages = nullptr; ///< the pages of tokens 0, page, 2 page, …
  int64_t tokens = 0;             ///< cached rows
  std::vector<const char *> newK, newV;
  const std::vector<int64_t> *attended = nullptr; ///< positions
  int64_t dim = 0, vDim = 0;
  double kScale = 1, vScale = 1; ///< of all rows
  /// How often a program rounds q, and an appended K, on the way from what is exact. Cached rows are.
  int64_t qRoundings = 0, newKRoundings = 0;
};
/// A row of activations among its request's new tokens: rows [first, first + count), of which it is `index`.
struct QueryRow {
  int64_t request = -1; ///< -1: of none
  int64_t first = 0, count = 0, index = 0;
};
/// Whose row `row` of `rows` is. Starts outside of [0, rows] or below the one before count as the nearest
/// that is possible.
QueryRow queryRow(const std::vector<double> &starts, int64_t rows, int64_t row);
/// Whether all starts are possible.
bool areQueryStarts(const std::vector<double> &starts, int64_t rows);

/// What becomes of the scores of one head before the softmax.
struct ScoreRule {
  double scale = 1;
  std::optional<double> softcap, sink;
  std::function<double(int64_t token)> bias; ///< or null
};
/// What is known about a head beside its output.
struct HeadSummary {
  double lse = -std::numeric_limits<double>::infinity(); ///< ln(sum(exp(score)))
  /// How large a relative error of the output rounding explains, as a multiple of the rms error of one
  /// rounding: "Limits of verify" in docs/design.md.
  double roundings = 0;
};
/// out[0, vDim) = softmax(scores) V over the rows. With no row at all: zeros.
HeadSummary attendHead(const HeadRows &rows, const double *q, const ScoreRule &rule, double *out);

} // namespace cfc::attn
