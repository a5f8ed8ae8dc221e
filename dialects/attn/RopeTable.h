//===- RopeTable.h - Frequencies of rotary tables ---------------------------===//
//
// What a table's entries are computed from, and the frequencies: the formulas of
// Hugging Face transformers, src/transformers/modeling_rope_utils.py, in double.
// Free of MLIR and of other dependencies.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace cfc {

enum class RopeStretch : uint8_t { None, Linear, Llama3, Yarn };

struct RopeTable {
  double base = 10000;
  int64_t dim = 0; ///< elements of a head that are rotated
  RopeStretch scaling = RopeStretch::None;
  double factor = 1;
  double originalPositions = 0;                 ///< of the training (llama3, yarn)
  double lowFreqFactor = 1, highFreqFactor = 4; ///< llama3
  double betaFast = 32, betaSlow = 1;           ///< yarn: turns in the original positions
  double attentionFactor = 1;                   ///< of every entry (yarn)
  bool truncate = true;                         ///< yarn: whole numbers as ends of the ramp

  /// What yarn multiplies its entries with unless it is said.
  static double usualAttentionFactor(double factor) { return factor > 1 ? 0.1 * std::log(factor) + 1 : 1; }
};

namespace detail {
/// Index of the pair that turns `turns` times in the original positions.
inline double yarnIndex(const RopeTable &table, double turns) {
  return static_cast<double>(table.dim) * std::log(table.originalPositions / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(table.base));
}

inline double stretched(const RopeTable &table, double f, int64_t i) {
  switch (table.scaling) {
  case RopeStretch::None:
    return f;
  case RopeStretch::Linear:
    return f / table.factor;
  case RopeStretch::Llama3: {
    double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > table.originalPositions / table.lowFreqFactor)
      return f / table.factor;
    if (wavelength < table.originalPositions / table.highFreqFactor)
      return f;
    double smooth = (table.originalPositions / wavelength - table.lowFreqFactor) /
                    (table.highFreqFactor - table.lowFreqFactor);
    return (1 - smooth) * f / table.factor + smooth * f;
  }
  case RopeStretch::Yarn: {
    double low = yarnIndex(table, table.betaFast), high = yarnIndex(table, table.betaSlow);
    if (table.truncate)
      low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(table.dim - 1));
    if (low == high)
      high += 0.001;
    double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    return f / table.factor * ramp + f * (1 - ramp);
  }
  }
  return f;
}
} // namespace detail

/// Radians that pair i turns by from a position to the next, i from 0 to dim / 2.
inline std::vector<double> ropeFrequencies(const RopeTable &table) {
  std::vector<double> frequencies(static_cast<size_t>(table.dim / 2));
  for (int64_t i = 0; i < table.dim / 2; ++i) {
    double f = std::pow(table.base, -2.0 * static_cast<double>(i) / static_cast<double>(table.dim));
    frequencies[static_cast<size_t>(i)] = detail::stretched(table, f, i);
  }
  return frequencies;
}

/// One position's entries, cosines then sines: calls `put(column, value)`. `frequencies`: of the table.
template <class Put>
void ropeRow(const RopeTable &table, const std::vector<double> &frequencies, int64_t position, Put &&put) {
  int64_t half = table.dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i)];
    put(i, table.attentionFactor * std::cos(angle));
    put(half + i, table.attentionFactor * std::sin(angle));
  }
}

} // namespace cfc
