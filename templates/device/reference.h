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
enum StatusBits {
  lengthOutOfBound = 1,
  slotOutOfBound = 2,
  positionOutOfBound = 4,
  pageOutOfBound = 8,
  queryOutOfBound = 16
};

struct RmsNorm {
  Elements x, gain; ///< the gain has `width` elements
  double *result;   ///< [parts, width]: rows, or parts of rows
  long long parts, width;
  double eps, offset;
};

struct LayerNorm {
  Elements x, gain, bias; ///< gain.data and bias.data may be null
  double *result;         ///< [rows, width]
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
  int scaling; ///< 0: none, 1: linear, 2: llama3, 3: yarn
  double factor, originalPositions, lowFreqFactor, highFreqFactor, betaFast, betaSlow, attentionFactor;
  int truncate;
};

struct Rope {
  Elements x, table; ///< [rows, width]; [positions, dim]
  const int *position;
  double *result;
  unsigned *status;
  long long rows, width, dim, positions;
  long long head;  ///< elements of a head, of which the first `dim` are rotated
  int interleaved; ///< pairs are 2 i and 2 i + 1, not i and i + dim / 2
};

struct KvAppend {
  Elements k, v; ///< [rows, kWidth], [rows, vWidth]
  const long long *slot;
  const int *starts; ///< [requests + 1], first rows of requests; null: each request has one row
  long long requests;
  const float *kScale, *vScale; ///< of each head of dim or vDim elements, or null
  long long dim, vDim, scales;  ///< scales: KV heads, or 1 for all
  void *storedK, *storedV;      ///< what the cache gets, in its kind
  long long *usedSlot;          ///< [rows], -1 where nothing is written
  unsigned *status;
  long long rows, kWidth, vWidth, slots; ///< slots of a request, or of the pool
  int cacheKind;
};

/// K or V in a cache: base + block * strideBlock + head * strideHead + token * strideToken (bytes). A block
/// is a request's rows, or a page.
struct CacheRows {
  const char *base;
  long long strideHead, strideToken, strideBlock;
};

struct Attention {
  Elements q;            ///< [rows, queryHeads, dim]
  const int *starts;     ///< [requests + 1], first rows of requests; null: row r is request r's
  const long long *mask; ///< [rows]: bit j: the row sees its request's new token j; null: those up to itself
  long long requests, keys; ///< keys: positions that `weights` and `bias` have room for
  CacheRows k, v;
  int cacheKind;
  const void *newK, *newV; ///< [rows, kvHeads, dim or vDim], what kv_append stored; null where it did not
  const long long *slot;   ///< [rows], its slots; null where nothing is appended
  const int *length;       ///< [requests]
  const int *pages;        ///< [requests, tablePages] where the cache has pages, else null
  unsigned *status;
  double *weights; ///< [rows, queryHeads, keys]: scratch
  double *result;  ///< [rows, queryHeads, vDim]
  double *lse;     ///< [rows, queryHeads]
  long long rows, queryHeads, kvHeads, dim, vDim, bound;
  long long page, tablePages, blocks; ///< tokens of a page; pages of a request, and in the pool
  long long window;                   ///< tokens that are attended at most; 0: all
  double scale, softcap;              ///< softcap 0: none
  Elements sinks;                     ///< [queryHeads], or null
  const float *kScale, *vScale;       ///< of each KV head, or null
  long long scales;                   ///< KV heads, or 1 for all
  const double *bias;                 ///< [rows, queryHeads, keys], or null
};

struct Add {
  Elements lhs, rhs;
  double *result;
  long long count;
  double scale; // of rhs
};

} // namespace cfc_reference
