// x / sqrt(mean(x^2) + eps) * (offset + gain). One thread an element: each sums its part's squares by itself.
#include "element.h"
#include "reference.h"

extern "C" __global__ void rms_norm(cfc_reference::RmsNorm a) {
  long long i = threadIndex();
  if (i >= a.parts * a.width)
    return;
  long long part = i / a.width, column = i % a.width;
  double squares = 0;
  for (long long j = 0; j < a.width; ++j) {
    double x = loadElement(a.x.kind, a.x.data, part * a.width + j);
    squares += x * x;
  }
  double root = sqrt(squares / double(a.width) + a.eps);
  a.result[i] =
      loadElement(a.x.kind, a.x.data, i) / root * (a.offset + loadElement(a.gain.kind, a.gain.data, column));
}
