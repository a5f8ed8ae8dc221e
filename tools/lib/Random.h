//===- Random.h - Seeded test data ----------------------------------------===//
//
// Element i of a tensor is a function of (seed, the tensor's name, i) alone: a
// 64-bit hash of the three, whose four 16-bit parts are added. The sum has a
// bell shape of 3.46 standard deviations on either side, and as only integers
// and one product are involved, every machine makes the same bits.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/RopeTable.h"
#include "tools/lib/Tensor.h"
#include <string_view>

namespace cfc {

/// What a tensor is used for, which decides what plausible random data is.
enum class DataRole {
  Activation,
  Weight,
  Bias,
  Gain,
  RopeTable,
  Position,
  Slot,
  Length,
  BlockTable,
  Cache,
  Scale,
  Slope,
  Starts, ///< of the requests' query tokens
  Mask    ///< bits, of query tokens
};

/// Whether a tensor is a part of a model, which each layer has one of, and not what a step brings.
inline bool isOfModel(DataRole role) {
  return role == DataRole::Weight || role == DataRole::Bias || role == DataRole::Gain;
}

/// Mean and standard deviation of random data.
///
///   | role       | mean | deviation   | so that                                                          |
///   |------------|------|-------------|------------------------------------------------------------------|
///   | Activation | 0    | 1           |                                                                  |
///   | Weight     | 0    | 1/sqrt(in)  | a normed row times it has its deviation, about 0.8: q, k, v too  |
///   | Bias       | 0    | 0.1         |                                                                  |
///   | Gain       | 0.8  | 0.08        | a missing gain shows                                             |
///   | Scale      | 0.6  | 0.05        | a missing scale of a cache shows                                 |
///   | Slope      | 0.03 | 0.01        | of ALiBi: far tokens count less, and are not lost                |
///   | Cache      | 0    | 1           | with scale 1/sqrt(dim) logits have deviation 0.8, a range of 4   |
///   |            |      |             | from 100 tokens on: one lost token, tile or head shows           |
///
/// With a gain of 1 the rounding of q and k alone would take an attention's error in short caches to its
/// limit: the worst of 32 heads at length 1 had 0.92e-3 of 1e-3.
///
/// `shape` is the tensor's; a weight is [out, in].
struct Distribution {
  double mean = 0, deviation = 1;
};
Distribution distributionFor(DataRole role, const std::vector<int64_t> &shape);

/// Fills a float tensor, on all cores. Integers get mean rounded, deviation ignored.
void fillRandom(Tensor &tensor, uint64_t seed, std::string_view name, Distribution distribution);

/// Row p is cos(p w_i) | sin(p w_i), w_i the frequencies of `rope` (whose dim is the table's width).
void fillRopeTable(Tensor &table, RopeTable rope = {});

} // namespace cfc
