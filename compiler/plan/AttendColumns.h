//===- AttendColumns.h - Query heads as columns of the mma ------------------===//
//
// The planner counts with what the lowering will do: both ask here.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cstdint>

namespace cfc {

/// Query heads of a KV head are columns of the mma: n-tiles of 8. As many as a thread has registers for are
/// taken in a pass over the head's tokens; each further pass streams K and V once more, from the L2 as a
/// rule. Heads do not touch each other, so bits do not depend on it.
struct AttendColumns {
  int64_t tiles = 1, passes = 1; ///< n-tiles of a pass
  int64_t heads = 1;             ///< of a pass; the last has fewer where they are not divided evenly
};

/// For `heads` query heads of a KV head whose rows have `dim` and `vDim` elements, in CTAs of `warps`
/// consumer warps and a producer warp.
inline AttendColumns attendColumns(int64_t heads, int64_t dim, int64_t vDim, int64_t warps,
                                   int64_t ctasPerSm) {
  AttendColumns c;
  c.heads = heads;
  int64_t tiles = llvm::divideCeil(heads, 8);
  if (tiles == 1)
    return c;
  // What ptxas may give a thread, less what all n-tiles share: the operand of K or V, and addresses.
  constexpr int64_t kRegistersPerSm = 65536, kMostRegisters = 255, kOthers = 56;
  int64_t keys = llvm::divideCeil(dim, 16), values = llvm::divideCeil(vDim, 16);
  int64_t registers = std::min(kMostRegisters, kRegistersPerSm / (32 * (warps + 1) * ctasPerSm));
  int64_t free = registers - kOthers - 4 * std::max(keys, values);
  int64_t each = 4 * values + 2 * keys + 8; // sums, the heads' own operand, and their softmax
  c.passes = llvm::divideCeil(tiles, std::max<int64_t>(1, free / each));
  c.tiles = llvm::divideCeil(tiles, c.passes);
  c.passes = llvm::divideCeil(tiles, c.tiles);
  if (c.passes > 1)
    c.heads = 8 * c.tiles;
  return c;
}

} // namespace cfc
