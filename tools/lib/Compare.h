//===- Compare.h - How far a tensor is from what it should be -------------===//
#pragma once
#include "tools/lib/Tensor.h"
#include <span>

namespace cfc {

/// Limits for values that are rounded to `type`: "Limits of verify" in docs/design.md.
struct Tolerance {
  double relativeL2; ///< ||found - expected|| / ||expected||
  double element;    ///< |found - expected| / rms of the element's row
};
Tolerance toleranceFor(DType type);

/// The outcome of one comparison.
struct Comparison {
  double relativeL2 = 0;          ///< the largest over the parts
  double largest = 0;             ///< the largest element error in units of its row's rms
  int64_t worst = -1;             ///< index of that element; -1 where everything is equal
  double expected = 0, found = 0; ///< its values
  bool passed = true;
  /// By how much the limits of the two errors' rows are raised; rows that pass only because theirs are, and
  /// the largest relative L2 of those.
  double relativeFactor = 1, elementFactor = 1;
  int64_t raised = 0;
  double raisedMost = 0;
};

/// Compares in float64. A row has `row` elements; with `byRow`, relative L2 is taken of each row alone
/// (attention heads, appended rows), else of the whole. A row of zeros, an infinity and a NaN must be met
/// exactly. `factors`, with `byRow`: each row's, at least 1, by which its tolerance is raised; the errors are
/// then those nearest to their row's limit.
Comparison compare(std::span<const double> expected, const Tensor &found, int64_t row, bool byRow,
                   Tolerance tolerance, std::span<const double> factors = {});

/// Such factors for the heads of an attention with these HeadSummary::roundings: more than 1 only where
/// rounding explains more than the tolerance.
std::vector<double> headFactors(const std::vector<double> &roundings);

/// Whether each element is a rounding to its type of a number that lies within the tolerance for an element
/// of what is expected: what a type says that is coarser than the tolerance. Errors are those beyond that.
Comparison compareRounded(std::span<const double> expected, const Tensor &found, int64_t row,
                          Tolerance tolerance);

/// Compares logarithms, of which only the absolute error says anything: each element's is held to
/// `tolerance.element`, and `largest` is the largest.
Comparison compareLogs(std::span<const double> expected, const Tensor &found, Tolerance tolerance);

/// Index of element `i`: "[0, 17]".
std::string indexText(int64_t i, const std::vector<int64_t> &shape);

} // namespace cfc
