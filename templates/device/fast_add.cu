// The sum, element by element.
#include "fast_math.h"

KERNEL(128) fast_add(cfc_fast::Add a) {
  int i = int(threadIndex());
  if (i < a.count)
    store(a.result, i, load(a.lhs, i) + load(a.rhs, i));
}
