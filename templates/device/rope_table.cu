// cos | sin of position * base^(-2 i / dim). One thread an entry.
#include "element.h"
#include "reference.h"

extern "C" __global__ void rope_table(cfc_reference::RopeTable a) {
  long long entry = threadIndex();
  if (entry >= a.positions * a.dim)
    return;
  long long position = entry / a.dim, column = entry % a.dim, half = a.dim / 2;
  long long i = column < half ? column : column - half;
  double angle = double(position) * pow(a.base, -2.0 * double(i) / double(a.dim));
  a.result[entry] = column < half ? cos(angle) : sin(angle);
}
