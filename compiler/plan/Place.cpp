//===- Place.cpp - Where a launch stands in its layer -----------------------===//
#include "compiler/plan/Cost.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

double cfc::streamedUs(const KernelSizes &sizes, const Machine &machine, CacheLength length) {
  double bytes = 0;
  for (const OpSizes &op : sizes.getOps()) {
    if (op.kind == OpSizes::Linear)
      bytes += 2.0 * static_cast<double>(op.columns * llvm::sum_of(op.widths));
    if (op.kind == OpSizes::Attention)
      bytes += static_cast<double>(op.cacheBytes * (op.dim + op.vDim) * std::min(length.tokens, op.capacity) *
                                   sizes.getShape().getHeadItems());
  }
  return bytes / machine.bandwidth * 1e6;
}

Place cfc::placeOf(ArrayRef<LaunchRange> launches, size_t i, ArrayRef<KernelSizes> sizes,
                   const Machine &machine, CacheLength length) {
  Place place{launches.size() == 1};
  if (i + 1 < launches.size())
    for (const KernelSizes &behind : sizes.slice(launches[i + 1].first, launches[i + 1].size()))
      place.behindUs += streamedUs(behind, machine, length);
  return place;
}
