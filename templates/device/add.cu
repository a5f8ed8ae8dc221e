// The sum, element by element.
#include "element.h"
#include "reference.h"

extern "C" __global__ void add(cfc_reference::Add a) {
  long long i = threadIndex();
  if (i < a.count)
    a.result[i] = loadElement(a.lhs.kind, a.lhs.data, i) + loadElement(a.rhs.kind, a.rhs.data, i);
}
