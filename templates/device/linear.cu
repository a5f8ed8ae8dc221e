// x times the transpose of one weight, plus its bias. One thread an output.
#include "element.h"
#include "reference.h"

extern "C" __global__ void linear(cfc_reference::Linear a) {
  long long i = threadIndex();
  if (i >= a.rows * a.outputs)
    return;
  long long row = i / a.outputs, output = i % a.outputs;
  double sum = 0;
  for (long long j = 0; j < a.inputs; ++j)
    sum += loadElement(a.x.kind, a.x.data, row * a.inputs + j) *
           loadElement(a.weight.kind, a.weight.data, output * a.inputs + j);
  if (a.bias.data)
    sum += loadElement(a.bias.kind, a.bias.data, output);
  a.result[i] = sum;
}
