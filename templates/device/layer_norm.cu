// (x - mean(x)) / sqrt(variance(x) + eps) * gain + bias. One thread an element.
#include "element.h"
#include "reference.h"

extern "C" __global__ void layer_norm(cfc_reference::LayerNorm a) {
  long long i = threadIndex();
  if (i >= a.rows * a.width)
    return;
  long long row = i / a.width, column = i % a.width;
  double sum = 0, squares = 0;
  for (long long j = 0; j < a.width; ++j)
    sum += loadElement(a.x.kind, a.x.data, row * a.width + j);
  double mean = sum / double(a.width);
  for (long long j = 0; j < a.width; ++j) {
    double apart = loadElement(a.x.kind, a.x.data, row * a.width + j) - mean;
    squares += apart * apart;
  }
  double value = (loadElement(a.x.kind, a.x.data, i) - mean) / sqrt(squares / double(a.width) + a.eps);
  if (a.gain.data)
    value *= loadElement(a.gain.kind, a.gain.data, column);
  if (a.bias.data)
    value += loadElement(a.bias.kind, a.bias.data, column);
  a.result[i] = value;
}
