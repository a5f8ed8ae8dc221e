//===- Sizes.h - A kernel's operations in numbers ---------------------------===//
//
// Private to the planner, which weighs choices by the thousand: the graph is
// asked once, here is what it said.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/plan/AttendColumns.h"
#include "compiler/plan/Fusion.h"

namespace cfc {

/// The choices for one kernel and, in their order, for its operations. The planner weighs many that share the
/// latter.
struct KernelChoice {
  KernelPlan kernel;
  llvm::ArrayRef<OpChoice> ops;
};

/// Consumer warps that take a ring tile together, 16 rows each, and its rows. Several sets take tiles in
/// turn.
inline constexpr int64_t kSetWarps = 4, kSetRows = 64;
/// Tokens of a segment of a cache.
inline constexpr int64_t kSegmentTokens = 64;

/// Whether each CTA of a cluster gets the softmaxes of some of an item's `group` query heads: where they are
/// left to whoever reads the result.
inline bool scattersHeads(int64_t group, const KernelPlan &kernel, const OpChoice &plan) {
  return plan.finish == Exchange::Reader && kernel.part > 1 && group % kernel.part == 0;
}

inline int64_t setsOf(const KernelPlan &plan) { return std::max<int64_t>(1, plan.warps / kSetWarps); }
/// Bytes of the ring and its barriers, with slots of `slot` bytes.
inline int64_t ringBytes(const KernelPlan &plan, int64_t slot) {
  return slot ? plan.ringStages * (slot + 16) : 0;
}

/// One operation. Fields of other kinds are 0.
struct OpSizes {
  enum Kind { Norm, Linear, Attention, Elements } kind = Elements;
  mlir::Operation *op = nullptr;
  // Linear. Norm: columns.
  int64_t columns = 0;                     ///< of its input
  llvm::SmallVector<int64_t, 3> widths;    ///< rows of its weights
  int64_t slots = 1, resultBytes = 2;      ///< of its sum; of an element of its first result
  bool gathered = false, finishes = false; ///< see KernelShape
  bool needsF32 = false;                   ///< sums travel as f32 whatever the split
  bool packable = false;                   ///< all of its weights
  bool takesTokens = false;                ///< it is the first to multiply with several tokens' rows
  // Attention.
  int64_t dim = 0, vDim = 0, group = 0, capacity = 0;
  int64_t segmentGroups = 1;   ///< of a head
  int64_t cacheBytes = 2;      ///< of an element of the cache
  bool mergedByReader = false; ///< may be, by chunks
  // All others: elements that the results have in a CTA, for each item; bytes of one.
  struct Result {
    int64_t width = 0, bytes = 0;
    bool isTensor = false, checked = false; ///< checked: its rows are split over the cluster
    bool finished = false;                  ///< else a slice
  };
  llvm::SmallVector<Result, 2> results;

  /// Bytes of its softmax state.
  int64_t stateBytes() const { return 4 * group * (vDim + 2); }
  /// How its query heads are taken.
  AttendColumns columnsIn(const KernelPlan &plan) const {
    return attendColumns(group, dim, vDim, plan.warps, plan.ctasPerSm);
  }
};

/// What one item of a linear streams and gives.
struct LinearSize {
  int64_t rows = 0, columns = 0;
  bool f32 = false;    ///< its sums travel as f32
  int64_t payload = 0; ///< bytes of its results
};

class KernelSizes {
public:
  explicit KernelSizes(const KernelShape &shape);

  const KernelShape &getShape() const { return *shape; }
  llvm::ArrayRef<OpSizes> getOps() const { return ops; }
  LinearSize linear(const KernelPlan &plan, const OpSizes &op, Split split) const;
  /// Whether one of its operations attends to a cache.
  bool attends() const {
    return llvm::any_of(ops, [](const OpSizes &op) { return op.kind == OpSizes::Attention; });
  }

  /// Whether an operation has a choice of that kind.
  bool hasSplit(const OpSizes &op) const { return op.kind == OpSizes::Linear && !op.finishes; }
  bool hasGather(const OpSizes &op, Split split) const { return op.gathered && split != Split::Columns; }
  bool hasReduce(const OpSizes &op, Split split) const {
    return op.kind == OpSizes::Attention ||
           (op.kind == OpSizes::Linear && split == Split::Columns && (op.gathered || !shape->getHeads()));
  }
  /// Whether an operation's sums over the cluster end split: each CTA gets some of its rows.
  bool scatters(const OpSizes &op, Split split) const {
    return op.kind == OpSizes::Linear && hasReduce(op, split) && !op.gathered;
  }
  /// Bytes that a CTA reads of several tokens before it multiplies: rows for a norm's scale, and its columns.
  double tokenBytes(const KernelChoice &choice, const OpSizes &op, Split split) const;
  /// Tokens that share a multiplication.
  int64_t tokens(const KernelPlan &plan) const { return groupTokens(*shape, plan); }
  bool hasFinish(const OpSizes &op, const KernelPlan &plan) const {
    return op.finishes || (op.mergedByReader && chunksOf(plan) > 1);
  }

  /// Why an operation cannot be spread over the cluster as chosen, or "" if it can.
  std::string checkSplit(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const;

  /// Tiles of each set of warps that a plan can have `held`: as many as a thread has registers for, of a
  /// kernel that starts early and streams weights times one token first.
  int64_t mostHeld(const KernelPlan &plan) const;
  /// Tiles of each set of the first stream, if that are weights, and those of them that can be held: of its
  /// first rows, all but the last.
  struct FirstTiles {
    int64_t all = 0, canBeHeld = 0;
  };
  FirstTiles firstTiles(const KernelChoice &choice) const;
  /// Those that find no room in the ring, as many as can be held.
  int64_t tilesToHold(const KernelChoice &choice) const;
  /// Bytes of the smallest tile of all streams; the largest number where nothing is streamed.
  int64_t leastTileBytes(const KernelChoice &choice) const;
  /// Bytes of a ring tile; 0 where nothing is streamed.
  int64_t slotBytes(const KernelChoice &choice) const;
  /// The streams of a linear's weights in an item: the rows of each that are stacked in one.
  using Stacked = llvm::SmallVector<int64_t, 3>;
  llvm::SmallVector<Stacked, 3> streams(const KernelPlan &plan, const OpSizes &op, Split split) const;
  /// Whether an operation's packed weights, if it has some, can be streamed as chosen.
  bool canStream(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const;
  /// Bytes of one copy of a linear's weights, of a stream of `stacked` rows.
  int64_t copyBytes(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan,
                    llvm::ArrayRef<int64_t> stacked) const;
  /// Estimate of a CTA's shared memory in bytes: tiles, buffers of exchanges and the ring.
  int64_t estimateShared(const KernelChoice &choice) const {
    return besideRing(choice) + ringBytes(choice.kernel, slotBytes(choice));
  }
  /// All of it but the ring.
  int64_t besideRing(const KernelChoice &choice) const;
  /// An operation's part of it: tiles and buffers.
  int64_t sharedOf(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const;

private:
  int64_t boxRows(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan,
                  llvm::ArrayRef<int64_t> stacked) const;
  int64_t tileBytes(const KernelChoice &choice, const OpSizes &op, const OpChoice &plan) const;
  int64_t exchangeBytes(const KernelPlan &kernel, int64_t payload, Exchange algorithm, bool reduces) const;
  int64_t sharedOfTokens(const KernelPlan &kernel, const OpSizes &op, const OpChoice &plan) const;

  const KernelShape *shape;
  llvm::SmallVector<OpSizes> ops;
  int64_t fullBytes = 0; ///< of activations that are whole in every CTA
};

} // namespace cfc
