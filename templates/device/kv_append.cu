// K and V of new tokens, rounded as the cache stores them, beside the cache: the caller's stays as it is.
#include "element.h"
#include "queries.h"
#include "reference.h"

extern "C" __global__ void kv_append(cfc_reference::KvAppend a) {
  long long i = threadIndex();
  if (i < a.rows) {
    bool isSomeones =
        queryRow(a.starts, a.requests, a.rows, i, a.status, unsigned(cfc_reference::queryOutOfBound))
            .request >= 0;
    bool known = isSomeones && a.slot[i] >= -1 && a.slot[i] < a.slots;
    if (isSomeones && !known)
      atomicOr(a.status, unsigned(cfc_reference::slotOutOfBound));
    a.usedSlot[i] = known ? a.slot[i] : -1;
  }
  if (i < a.rows * a.kWidth)
    storeElement(a.cacheKind, a.storedK, i,
                 loadElement(a.k.kind, a.k.data, i) / scaleOf(a.kScale, a.scales, i % a.kWidth / a.dim));
  if (i < a.rows * a.vWidth)
    storeElement(a.cacheKind, a.storedV, i,
                 loadElement(a.v.kind, a.v.data, i) / scaleOf(a.vScale, a.scales, i % a.vWidth / a.vDim));
}
