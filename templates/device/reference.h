//===- reference.h - What the reference kernels are given ------------------===//
//
// One struct a kernel, the only parameter; host and device share this file.
// Pointers are device pointers, matrices are row-major. A value that an
// operation computes is an array of double: nothing is rounded in between but
// the rows that a cache stores.
//
//===----------------------------------------------------------------------===//
#pragma once

namespace cfc_reference {

/// An array of some element kind (element.h).
struct Elements {
  const void *data;
  int kind;
};

/// Bits of the status word.
enum StatusBits { lengthOutOfBound = 1, slotOutOfBound = 2, positionOutOfBound = 4 };

struct RmsNorm {
  Elements x, gain;
  double *result; ///< [rows, width]
  long long rows, width;
  double eps;
};

struct Linear {
  Elements x, weight, bias; ///< bias.data is null without one
  double *result;           ///< [rows, outputs]
  long long rows, inputs, outputs;
};

struct RopeTable {
  double *result; ///< [positions, dim]
  long long positions, dim;
  double base;
};

struct Rope {
  Elements x, table; ///< [rows, width]; [positions, dim]
  const int *position;
  double *result;
  unsigned *status;
  long long rows, width, dim, positions;
  int interleaved; ///< pairs are 2 i and 2 i + 1, not i and i + dim / 2
};

struct KvAppend {
  Elements k, v; ///< [width]
  const long long *slot;
  void *storedK, *storedV; ///< what the cache gets, in its kind
  long long *usedSlot;     ///< -1 where nothing is written
  unsigned *status;
  long long width, capacity;
  int cacheKind;
};

struct Attention {
  Elements q; ///< [queryHeads, dim]
  const char *k, *v;
  long long strideHead, strideToken; ///< bytes
  int cacheKind;
  const void *newK, *newV; ///< [kvHeads, dim], what kv_append stored; null where nothing is appended
  const long long *slot;   ///< its slot; null where nothing is appended
  const int *length;
  unsigned *status;
  double *weights; ///< [queryHeads, bound + 1]: scratch
  double *result;  ///< [queryHeads, dim]
  double *lse;     ///< [queryHeads]
  long long queryHeads, kvHeads, dim, bound;
  double scale;
};

struct Add {
  Elements lhs, rhs;
  double *result;
  long long count;
};

} // namespace cfc_reference
