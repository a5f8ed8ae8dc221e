//===- Compare.cpp - How far a tensor is from what it should be -----------===//
#include "tools/lib/Compare.h"
#include "dialects/attn/Elements.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

using namespace cfc;

Tolerance cfc::toleranceFor(DType type) {
  switch (type) {
  case DType::f16:
    return {1e-3, 8e-3};
  case DType::bf16:
    return {8e-3, 6e-2};
  case DType::f8E4M3FN:
    return {3.5e-2, 0.25};
  case DType::i32:
  case DType::i64:
    return {0, 0};
  default:
    // A float32 result is made of f16 or bf16 operands: it is held to the f16 limit.
    return {1e-3, 8e-3};
  }
}

static double elementError(double expected, double found) {
  if (expected == found || (std::isnan(expected) && std::isnan(found)))
    return 0;
  double error = std::abs(found - expected);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

/// 0 / 0 is a perfect match, x / 0 none.
static double ratio(double error, double size) {
  if (error == 0)
    return 0;
  return size > 0 && std::isfinite(size) ? error / size : std::numeric_limits<double>::infinity();
}

Comparison cfc::compare(std::span<const double> expected, const Tensor &found, int64_t row, bool byRow,
                        Tolerance tolerance, std::span<const double> factors) {
  Comparison result;
  double errorSum = 0, sizeSum = 0;
  for (int64_t begin = 0, n = int64_t(expected.size()); begin < n; begin += row) {
    double factor = factors.empty() ? 1 : factors[size_t(begin / row)];
    int64_t end = std::min(begin + row, n), finite = 0;
    double error = 0, size = 0, worstError = -1;
    int64_t worst = begin;
    for (int64_t i = begin; i < end; ++i) {
      double want = expected[size_t(i)], e = elementError(want, found.get(i));
      error += e * e;
      if (std::isfinite(want)) {
        size += want * want;
        ++finite;
      }
      if (e > worstError) {
        worstError = e;
        worst = i;
      }
    }
    double relative = ratio(worstError, finite ? std::sqrt(size / double(finite)) : 0);
    if (relative / factor > result.largest / result.elementFactor) {
      result.largest = relative;
      result.elementFactor = factor;
      result.worst = worst;
      result.expected = expected[size_t(worst)];
      result.found = found.get(worst);
    }
    double relativeL2 = ratio(std::sqrt(error), std::sqrt(size));
    if (byRow && relativeL2 / factor > result.relativeL2 / result.relativeFactor) {
      result.relativeL2 = relativeL2;
      result.relativeFactor = factor;
    }
    auto fits = [&](double raise) {
      return relativeL2 <= tolerance.relativeL2 * raise && relative <= tolerance.element * raise;
    };
    if (byRow && !fits(1) && fits(factor)) {
      ++result.raised;
      result.raisedMost = std::max(result.raisedMost, relativeL2);
    }
    errorSum += error;
    sizeSum += size;
  }
  double whole = ratio(std::sqrt(errorSum), std::sqrt(sizeSum));
  // Rounding takes few heads that far, and not all together: else something is wrong, and the usual limits
  // say where.
  int64_t rows = int64_t(expected.size()) / std::max<int64_t>(1, row);
  if (result.raised > std::max<int64_t>(1, rows / 10) || (result.raised && whole > tolerance.relativeL2))
    return compare(expected, found, row, byRow, tolerance);
  if (!byRow)
    result.relativeL2 = whole;
  result.passed = result.relativeL2 <= tolerance.relativeL2 * result.relativeFactor &&
                  result.largest <= tolerance.element * result.elementFactor;
  return result;
}

std::vector<double> cfc::headFactors(const std::vector<double> &roundings) {
  // The rms relative error of rounding to f16 is 2.07e-4, to bf16 8 times that, where the tolerances for
  // relative L2 are 1e-3 and 8e-3.
  constexpr double rounding = 0.207;
  std::vector<double> factors;
  for (double count : roundings)
    factors.push_back(std::max(1.0, rounding * count));
  return factors;
}

Comparison cfc::compareRounded(std::span<const double> expected, const Tensor &found, int64_t row,
                               Tolerance tolerance) {
  std::vector<double> nearest(expected.begin(), expected.end());
  for (size_t begin = 0; begin < expected.size(); begin += size_t(row)) {
    auto part = expected.subspan(begin, std::min(size_t(row), expected.size() - begin));
    double squares = 0, finite = 0;
    for (double x : part)
      if (std::isfinite(x))
        squares += x * x, ++finite;
    double margin = finite > 0 ? tolerance.element * std::sqrt(squares / finite) : 0;
    for (size_t i = 0; i < part.size(); ++i) {
      double least = roundTo(kindOf(found.type), part[i] - margin);
      double most = roundTo(kindOf(found.type), part[i] + margin), is = found.get(int64_t(begin + i));
      nearest[begin + i] = std::isnan(is) || std::isnan(least) ? least : std::clamp(is, least, most);
    }
  }
  return compare(nearest, found, row, false, {0, 0});
}

Comparison cfc::compareLogs(std::span<const double> expected, const Tensor &found, Tolerance tolerance) {
  Comparison result;
  for (size_t i = 0; i < expected.size(); ++i) {
    double error = elementError(expected[i], found.get(int64_t(i)));
    if (error > result.largest)
      result = {0, error, int64_t(i), expected[i], found.get(int64_t(i))};
  }
  result.passed = result.largest <= tolerance.element;
  return result;
}

std::string cfc::indexText(int64_t i, const std::vector<int64_t> &shape) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0;) {
    int64_t dim = std::max<int64_t>(shape[d], 1);
    text = fmt::format("{}{}{}", i % dim, text.empty() ? "" : ", ", text);
    i /= dim;
  }
  return "[" + text + "]";
}
