// cos | sin of position * base^(-2 i / dim), stretched as transformers does it. One thread an entry.
#include "element.h"
#include "reference.h"
using cfc_reference::RopeTable;

namespace {
constexpr double pi = 3.14159265358979323846;

__device__ inline double between(double value, double least, double most) {
  return value < least ? least : value > most ? most : value;
}

/// The dimension whose pair turns so many times in the original positions.
__device__ inline double correctionDim(const RopeTable &a, double rotations) {
  return double(a.dim) * log(a.originalPositions / (rotations * 2 * pi)) / (2 * log(a.base));
}

__device__ inline double yarn(const RopeTable &a, double f, long long i) {
  double low = correctionDim(a, a.betaFast), high = correctionDim(a, a.betaSlow);
  if (a.truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = low < 0 ? 0 : low;
  high = high > double(a.dim - 1) ? double(a.dim - 1) : high;
  if (low == high)
    high += 0.001;
  double extrapolated = 1 - between((double(i) - low) / (high - low), 0, 1);
  return f / a.factor * (1 - extrapolated) + f * extrapolated;
}

__device__ inline double llama3(const RopeTable &a, double f) {
  double wavelength = 2 * pi / f;
  double smooth = (a.originalPositions / wavelength - a.lowFreqFactor) / (a.highFreqFactor - a.lowFreqFactor);
  smooth = between(smooth, 0, 1);
  return (1 - smooth) * f / a.factor + smooth * f;
}
} // namespace

extern "C" __global__ void rope_table(RopeTable a) {
  long long entry = threadIndex();
  if (entry >= a.positions * a.dim)
    return;
  long long position = entry / a.dim, column = entry % a.dim, half = a.dim / 2;
  long long i = column < half ? column : column - half;
  double f = pow(a.base, -2.0 * double(i) / double(a.dim));
  f = a.scaling == 1 ? f / a.factor : a.scaling == 2 ? llama3(a, f) : a.scaling == 3 ? yarn(a, f, i) : f;
  double angle = double(position) * f;
  a.result[entry] = a.attentionFactor * (column < half ? cos(angle) : sin(angle));
}
