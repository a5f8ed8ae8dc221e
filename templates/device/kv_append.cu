// K and V of one new token, rounded as the cache stores them, beside the cache: the caller's stays as it is.
#include "element.h"
#include "reference.h"

extern "C" __global__ void kv_append(cfc_reference::KvAppend a) {
  long long i = threadIndex();
  if (i >= a.width)
    return;
  if (i == 0) {
    bool known = *a.slot >= -1 && *a.slot < a.capacity;
    if (!known)
      atomicOr(a.status, unsigned(cfc_reference::slotOutOfBound));
    *a.usedSlot = known ? *a.slot : -1;
  }
  storeElement(a.cacheKind, a.storedK, i, loadElement(a.k.kind, a.k.data, i));
  storeElement(a.cacheKind, a.storedV, i, loadElement(a.v.kind, a.v.data, i));
}
