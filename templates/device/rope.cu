// (a, b) becomes (a cos - b sin, b cos + a sin) for each pair of a head. One thread an element.
#include "element.h"
#include "reference.h"

extern "C" __global__ void rope(cfc_reference::Rope a) {
  long long i = threadIndex();
  if (i >= a.rows * a.width)
    return;
  long long row = i / a.width, e = i % a.head, half = a.dim / 2, head = i - e;
  long long position = a.position[row];
  if (position < 0 || position >= a.positions) {
    atomicOr(a.status, unsigned(cfc_reference::positionOutOfBound));
    position = position < 0 ? 0 : a.positions - 1;
  }
  if (e >= a.dim) {
    a.result[i] = loadElement(a.x.kind, a.x.data, i);
    return;
  }
  long long pair = a.interleaved ? e / 2 : e % half;
  bool isFirst = a.interleaved ? e % 2 == 0 : e < half;
  long long first = a.interleaved ? 2 * pair : pair, second = a.interleaved ? 2 * pair + 1 : pair + half;
  double x = loadElement(a.x.kind, a.x.data, head + first);
  double y = loadElement(a.x.kind, a.x.data, head + second);
  double cosine = loadElement(a.table.kind, a.table.data, position * a.dim + pair);
  double sine = loadElement(a.table.kind, a.table.data, position * a.dim + half + pair);
  a.result[i] = isFirst ? x * cosine - y * sine : y * cosine + x * sine;
}
