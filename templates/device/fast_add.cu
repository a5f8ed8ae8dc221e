// x + scale y, element by element.
#include "fast_math.h"

KERNEL(128) fast_add(cfc_fast::Add a) {
  int i = int(threadIndex());
  if (i < a.count)
    store(a.result, i, load(a.lhs, i) + a.scale * load(a.rhs, i));
}
