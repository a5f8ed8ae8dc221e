//===- fast.h - What the fast kernels are given ---------------------------===//
//
// The kernels of fast_*.cu are an unfused chain as an engine without a compiler
// would launch it: float sums, values in memory between the operations, one
// request. One struct a kernel, the only parameter; host and device share this
// file. Kinds are those of element.h.
//
//===----------------------------------------------------------------------===//
#pragma once

namespace cfc_fast {

/// An array of f16 or bf16.
struct Values {
  void *data;
  int kind;
};

/// One block. Macro: GAIN, the gain's kind.
struct RmsNorm {
  static constexpr int threads = 512, maxWidth = 16384;
  Values x, result;
  const void *gain;
  int width; ///< a multiple of 8
  float eps;
};

/// One weight of a stacked projection.
struct LinearPart {
  const void *weight;
  Values bias, result; ///< bias.data is null without one
  int outputs;
};
/// Macro: WEIGHT, the kind of all weights.
struct Linear {
  static constexpr int maxParts = 4;
  static constexpr int threads = 128, outputsPerWarp = 2;
  Values x;
  LinearPart parts[maxParts];
  int partCount, outputs; ///< outputs of all parts
  int inputs;             ///< a multiple of 8
};

/// A value that is rotated, and stored in a cache too where `cache` is not null.
struct Rotation {
  Values x, result;
  char *cache;
  int width;
};
/// A value that is stored in a cache as it is.
struct Stored {
  Values x;
  char *cache;
  int width;
};
/// A thread for every pair that is rotated and every element that is stored. Unused parts have a width of 0.
/// Macro: TABLE, the table's kind.
struct RopeAppend {
  Rotation rotations[2];
  Stored stored[2];
  const void *table;
  const int *position;
  long long positions; ///< rows of the table
  int dim, interleaved;
  const long long *slot; ///< null where nothing is appended
  long long capacity, strideHead, strideToken;
  int cacheKind, cacheDim;
};

/// A block for each (split of the tokens, GROUP query heads). Macros: CACHE, the kind of K and V; GROUP;
/// LANES, the lanes that share a row, a power of two of at least dim / 8.
struct Attention {
  static constexpr int threads = 128, maxSplits = 64;
  Values q, result;
  float *lse; ///< null where nobody wants it
  const char *k, *v;
  long long strideHead, strideToken; ///< bytes
  const long long *slot;             ///< of the appended token; null without one
  long long capacity;
  const int *length;
  float *partial; ///< [splits, queryHeads, dim], sums that are not normalised
  float *state;   ///< [splits, queryHeads, 2]: largest logit in base 2, sum of the powers
  int bound, splits, queryHeads, group, dim;
  float scale;
};

struct Add {
  Values lhs, rhs, result;
  int count;
  float scale; // of rhs
};

} // namespace cfc_fast
