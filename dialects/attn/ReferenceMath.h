//===- ReferenceMath.h - Dense loops of the reference, in double -----------===//
#pragma once
#include "dialects/attn/Elements.h"
#include <cstdint>
#include <functional>
#include <vector>

namespace cfc::attn {

/// Calls `body(begin, end)` for parts of [0, count), on up to `threads` threads.
void parallelFor(int64_t count, unsigned threads, const std::function<void(int64_t, int64_t)> &body);

/// `count` elements as doubles.
std::vector<double> toDoubles(ElementKind kind, const void *source, int64_t count);

/// out[r] = sum over c of weight[r, c] * x[c]; `weight` is row-major.
void multiplyRows(ElementKind kind, const void *weight, int64_t rows, int64_t columns, const double *x,
                  double *out, unsigned threads);

/// One head's cached rows and the appended one.
struct HeadRows {
  ElementKind kind;
  const char *k, *v;       ///< row of token 0
  int64_t stride;          ///< bytes from a token to the next
  int64_t tokens;          ///< cached rows that are attended
  const char *newK, *newV; ///< the appended row, or null
  int64_t dim;
};
/// out[0, dim) = softmax(scale q K^T) V over the rows; returns ln(sum(exp(scale q k))). With no row at all:
/// zeros and minus infinity.
double attendHead(const HeadRows &rows, const double *q, double scale, double *out);

} // namespace cfc::attn
