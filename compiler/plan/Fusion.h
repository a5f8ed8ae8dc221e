//===- Fusion.h - Which operations share a kernel, and in what form ---------===//
//
// A kernel runs over work items along one grid axis: KV heads (`head`) where it
// has an attention or an append, blocks of rows (`rows`) otherwise. A value has
// one or more forms in it:
//   full      whole in every CTA, made before the items
//   slice     the item's columns, whole or split over the cluster
//   finished  made by the CTA that arrives last, from sums over all items
// Values in memory (arguments, results of earlier kernels) come in every form.
// What an operation needs of its operands decides whether it can join.
//
// Of several tokens a kernel has heads or linears, not both. Where it has
// neither, items are tokens (`token`), and every value is a slice: its row.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/plan/Plan.h"
#include "llvm/ADT/DenseSet.h"

namespace cfc {

enum Form : unsigned { Full = 1, Slice = 2, Finished = 4 };

/// Groups of a head's segments (docs/design.md, "Order of sums"): 16, and more where the heads of all
/// rows are so few that these would leave SMs without any. The same for every length and plan, so that a
/// request's bits are, too, and in all graphs of the same `most_requests`.
int64_t segmentGroups(attn::AttentionOp attention);

/// Whether whoever reads an attention's result may merge the softmaxes of its chunks: its readers are
/// linears, which take it whole; if it, or its lse, is returned, the first of them stores it. Of one token:
/// with several each row of a linear's input would be merged in every CTA.
bool readersCanMerge(attn::AttentionOp attention);

/// What one kernel does.
class KernelShape {
public:
  /// Analyses `ops` (in graph order) as one kernel; on failure `why` says which operation does not fit.
  static std::optional<KernelShape> of(llvm::ArrayRef<mlir::Operation *> ops, std::string &why);

  llvm::ArrayRef<mlir::Operation *> getOps() const { return ops; }
  bool contains(mlir::Operation *op) const { return members.contains(op); }
  /// Whether this kernel makes `value`; if not, it is in memory.
  bool makes(mlir::Value value) const {
    return value.getDefiningOp() && members.contains(value.getDefiningOp());
  }
  /// KV heads where items are heads, else 0.
  int64_t getHeads() const { return heads; }
  /// Rows of its activations.
  int64_t getTokens() const { return tokens; }
  /// Whether linears multiply with several tokens: full values are [tokens, n] and may be split over the
  /// cluster, slices are [n, tokens].
  bool isOfTokens() const { return tokens > 1 && linears && !heads; }
  /// Whether items are tokens.
  bool hasTokenItems() const { return tokens > 1 && !linears && !heads; }
  /// Whether items are blocks of rows.
  bool hasRowItems() const { return items && !heads && !hasTokenItems(); }
  /// Requests whose heads the items are, one after another; 1 where items are no heads.
  int64_t getRequests() const { return heads ? tokens : 1; }
  /// Heads of all requests.
  int64_t getHeadItems() const { return heads * tokens; }
  /// Of each head, where items are heads.
  int64_t getSegmentGroups() const;
  /// Whether items may be chunks of heads: all the kernel does is one attention and what is element by
  /// element around it, and what it stores each CTA of a cluster has whole.
  bool takesChunks() const;
  /// Whether the kernel has items at all.
  bool hasItems() const { return items; }
  /// The linear of whose stacked weights an item may have a panel, all rows of one weight: the kernel's only
  /// one, of several weights whose results are alike, and only stored. Null where there is none.
  attn::LinearOp getStackable() const { return stackable; }
  /// Whether panels of so many rows are each of one weight.
  bool canStack(int64_t rows) const;
  /// Columns of the widest value whose slices the kernel uses, and what a slice's width is a multiple of.
  int64_t getWidest() const { return widest; }
  int64_t getGranule() const { return granule; }

  unsigned forms(mlir::Value value) const;
  /// The form in which a value goes to memory.
  Form storedForm(mlir::Value value) const;
  /// Whether a value's slices are whole in every CTA (else split over the cluster).
  bool isWhole(mlir::Value value) const { return hasTokenItems() || whole.contains(value); }
  /// The linear's result whose sum over the items a finished value comes from; null if in memory.
  mlir::Value origin(mlir::Value value) const { return origins.lookup(value); }
  /// Whether a linear sums over the items.
  bool finishes(attn::LinearOp op) const { return finishing.contains(op); }
  /// Whether a linear's sums over the cluster end split: each CTA gets some of its rows.
  bool dealsSums(attn::LinearOp op, Split split) const {
    return split == Split::Columns && !heads && !isGathered(op);
  }
  /// Whether a linear's results are whole slices: its weights are then stacked into one stream.
  bool isGathered(attn::LinearOp op) const { return !finishes(op) && isWhole(op.getResults()[0]); }
  /// Whether a value must be written to memory: it is returned or another kernel reads it.
  bool isStored(mlir::Value value) const;

private:
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::DenseSet<mlir::Operation *> members, finishing;
  llvm::DenseMap<mlir::Value, unsigned> masks;
  llvm::DenseMap<mlir::Value, mlir::Value> origins;
  llvm::DenseSet<mlir::Value> whole, needsFull;
  int64_t heads = 0, widest = 0, granule = 16, tokens = 1;
  bool items = false, linears = false;
  attn::LinearOp stackable;

  bool findHeads(std::string &why);
  bool findTokens(std::string &why);
  bool findForms(mlir::Operation *op, std::string &why);
  bool addForms(attn::AddOp op, std::string &why);
  bool linearForms(attn::LinearOp op, std::string &why);
  bool needsSlice(mlir::Operation *op, mlir::Value value, std::string &why);
  void findWhole();
  void findFull();
  void findItems();
  void findStackable();
};

/// Why a kernel does not take chunks.
inline constexpr llvm::StringLiteral kWhyNoChunks = "that takes a kernel of one attention without linears";

/// Why a kernel's items are no panels of stacked weights.
inline constexpr llvm::StringLiteral kWhyNoPanels =
    "that takes a kernel of one linear of several weights alike, whose results are only stored";

/// What a work list needs.
inline constexpr llvm::StringLiteral kWhyNoWork = "that takes part = 1 and warps = 4";

/// The operations that run in kernels, in graph order.
llvm::SmallVector<mlir::Operation *> kernelOps(attn::GraphOp graph);

/// How a graph's operations are spread over kernels: the kernel of each of `kernelOps`.
struct Fusion {
  llvm::SmallVector<int64_t> kernelOf;
  int64_t numKernels() const;
};

/// As few kernels as possible. No operation after one in `cuts` (indices in kernelOps) joins a kernel of the
/// operations up to it. A value of `pinned` that is not -1 is an operation's kernel.
/// On failure a diagnostic is emitted at the operation that does not fit, or where the plan `given` pins it,
/// and `exitCode`, if not null, is 2 where what is pinned contradicts itself or the graph, else 3.
mlir::FailureOr<Fusion> fuse(attn::GraphOp graph, llvm::ArrayRef<size_t> cuts = {},
                             llvm::ArrayRef<int64_t> pinned = {}, int *exitCode = nullptr,
                             const Plan *given = nullptr);

/// The shapes of a fusion's kernels, in launch order.
mlir::FailureOr<std::vector<KernelShape>> shapeKernels(attn::GraphOp graph, const Fusion &fusion);

/// Slots in which a linear sums: the KV heads where its input is made of an attention's result, else 16.
int64_t slotsOf(attn::LinearOp op);

/// In how many pieces each CTA takes the `rows` of a sum over the items: 2 where each warp then has rows in
/// both.
int64_t finishPieces(int64_t rows, const KernelPlan &plan, Exchange finish);
/// How many clusters finish a sum over `items` of `rows` for which they wait; 0: they do not.
int64_t finishers(int64_t rows, int64_t items, const KernelPlan &plan, Exchange finish);

/// Whether a graph's argument is a weight of linears that can be packed: where columns belong to heads, a
/// head has a multiple of 64 of them. The same for every plan.
bool isPackable(mlir::Value value);

/// Most rows of activations, and tokens of a page.
inline constexpr int64_t kMostTokens = 64, kMostPage = 256;

/// Checks what no plan can change: tokens, sizes of heads and rows. A diagnostic names the limit.
mlir::LogicalResult checkLimits(attn::GraphOp graph);

/// Most tokens that share a multiplication: those of a group.
int64_t groupTokens(const KernelShape &shape, const KernelPlan &plan);
/// Whether `groups` groups of a kernel's tokens have two or more each.
bool canGroup(const KernelShape &shape, int64_t groups);

/// Whether items are panels of a linear's stacked weights.
inline bool takesPanels(const KernelShape &shape, const KernelPlan &plan) {
  return plan.stacked == 1 && shape.getStackable();
}

/// Items of a kernel's grid axis (1 without one; chunks of heads where there are some), and the columns of a
/// value of `width` columns that one owns.
int64_t itemsOf(const KernelShape &shape, const KernelPlan &plan);
int64_t sliceOf(const KernelShape &shape, const KernelPlan &plan, int64_t width);

/// Whether a linear's weights arrive as one stream, stacked: where its slices are gathered, and where a
/// cluster is one CTA, or each takes some of the columns of several tokens, and as many rows of each for
/// every item.
bool isStacked(const KernelShape &shape, const KernelPlan &plan, attn::LinearOp op, Split split);

/// Columns of an activation.
int64_t widthOf(mlir::Value value);
/// The activations that an operation computes with; an attention also reads the appended token's K and V, but
/// where requests have several from memory.
llvm::SmallVector<mlir::Value> activationsOf(mlir::Operation *op);
/// The appended K and V that an attention attends to, or null values.
std::pair<mlir::Value, mlir::Value> appendedOf(attn::AttentionOp op);

} // namespace cfc
