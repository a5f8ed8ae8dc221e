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

/// SMs without a CTA of one attention whose heads are few: a head has no more CTAs than groups of segments.
static int64_t freeSmsBeside(const KernelShape &shape, const Machine &machine) {
  if (!shape.takesChunks() || shape.getRequests() > 1)
    return 0;
  constexpr int64_t kUseful = 64; // with more CTAs what they merge takes longer
  int64_t ctas =
      std::min(std::max(kUseful, 16 * shape.getHeadItems()), shape.getSegmentGroups() * shape.getHeadItems());
  return std::max<int64_t>(0, machine.usableSms() - ctas);
}

Place cfc::placeOf(ArrayRef<LaunchRange> launches, size_t i, ArrayRef<KernelSizes> sizes,
                   const Machine &machine, CacheLength length) {
  Place place{launches.size() == 1};
  constexpr int64_t kUsualGroups = 16;
  auto waitsMost = [](const KernelSizes &one) {
    const KernelShape &shape = one.getShape();
    return shape.takesChunks() && shape.getRequests() == 1 && shape.getSegmentGroups() > kUsualGroups;
  };
  place.behindIdle =
      i == 0 && launches.size() > 1 && !sizes.front().attends() && llvm::any_of(sizes, waitsMost);
  if (i > 0 && launches[i - 1].size() == 1)
    place.freeSms = freeSmsBeside(sizes[launches[i - 1].first].getShape(), machine);
  if (i + 1 < launches.size())
    for (const KernelSizes &behind : sizes.slice(launches[i + 1].first, launches[i + 1].size()))
      place.behindUs += streamedUs(behind, machine, length);
  return place;
}
