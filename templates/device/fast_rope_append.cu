// Rotates q and k, and stores the new token's K and V in the cache.
#include "fast_math.h"
using cfc_fast::RopeAppend;

namespace {
/// Writes element `i` of a [heads, dim] value to the token's row of a cache.
__device__ inline void append(const RopeAppend &a, char *cache, long long slot, int i, float value) {
  if (slot >= 0)
    store({cache + i / a.cacheDim * a.strideHead + slot * a.strideToken, a.cacheKind}, i % a.cacheDim, value);
}
} // namespace

KERNEL(128) fast_rope_append(RopeAppend a) {
  int i = int(threadIndex());
  long long slot = a.slot && *a.slot < a.capacity ? *a.slot : -1;
  int half = a.dim / 2;
  for (const cfc_fast::Rotation &r : a.rotations) {
    if (i < r.width / 2) {
      long long position = *a.position < 0 ? 0 : *a.position;
      position = position < a.positions ? position : a.positions - 1;
      int head = i / half * a.dim, pair = i % half;
      int first = head + (a.interleaved ? 2 * pair : pair);
      int second = first + (a.interleaved ? 1 : half);
      float cosine = loadKind<TABLE>(a.table, position * a.dim + pair);
      float sine = loadKind<TABLE>(a.table, position * a.dim + half + pair);
      float x = load(r.x, first), y = load(r.x, second);
      float turnedX = x * cosine - y * sine, turnedY = y * cosine + x * sine;
      store(r.result, first, turnedX);
      store(r.result, second, turnedY);
      // What the cache stores is the rounded value.
      if (r.cache) {
        append(a, r.cache, slot, first, load(r.result, first));
        append(a, r.cache, slot, second, load(r.result, second));
      }
      return;
    }
    i -= r.width / 2;
  }
  for (const cfc_fast::Stored &s : a.stored) {
    if (i < s.width) {
      append(a, s.cache, slot, i, load(s.x, i));
      return;
    }
    i -= s.width;
  }
}
