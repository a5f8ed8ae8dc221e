// x + scale y, element by element.
#include "element.h"
#include "reference.h"

extern "C" __global__ void add(cfc_reference::Add a) {
  long long i = threadIndex();
  if (i < a.count)
    a.result[i] = loadElement(a.lhs.kind, a.lhs.data, i) + a.scale * loadElement(a.rhs.kind, a.rhs.data, i);
}
