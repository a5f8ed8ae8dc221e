//===- Plan.h - Every decision about a graph, as text with named keys -------===//
//
// A plan has one line for each kernel and one for each operation:
//
//   graph llama2_7b_attention hash = 0123456789abcdef
//   kernel 0: part = 4, warps = 4, ctas_per_sm = 2, ring_stages = 5, …
//   op rms_norm(%n): kernel = 0
//   op linear(%q, %k, %v): kernel = 0, split = rows, gather = push
//   op attention(%o): kernel = 0, reduce = butterfly
//   op linear(%y): kernel = 0, finish = ordered
//
// A kernel with `joined = 1` runs in the launch of the one before it, behind a
// barrier of the whole grid.
//
// It is printed, edited, given back, stored, or drawn by seed. Keys that a given
// plan leaves out are chosen by the planner.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include <map>

namespace cfc {

/// How a linear's weights are spread over the CTAs of a cluster.
enum class Split { Unset, Rows, Columns };
/// How an exchange is done; docs of the kernel dialect say what each is.
enum class Exchange { Unset, Push, Butterfly, Bulk, Async, Scatter, Ordered, Atomic, Waiting, Reader };

/// How a linear's weights lie in memory: row-major as in checkpoints, or in blocks (docs/design.md, "Packed
/// weights").
enum class Layout { Unset, Native, Packed };

/// Cached tokens of the requests that a plan is for.
struct CacheLength {
  int64_t tokens;     ///< of each, in the mean
  double longest = 2; ///< tokens of the longest over the mean: 2 where lengths are drawn evenly from 0 up
  CacheLength(int64_t tokens, double longest = 2) : tokens(tokens), longest(longest) {}
};

/// Choices for one kernel. 0: left to the planner, if not said otherwise.
struct KernelPlan {
  int64_t part = 0;        ///< CTAs in a cluster
  int64_t warps = 0;       ///< consumer warps in a CTA
  int64_t ctasPerSm = 0;   ///< CTAs that share an SM
  int64_t ringStages = 0;  ///< tiles in flight in a CTA
  int64_t tileColumns = 0; ///< columns of a weight tile
  int64_t rowsPerItem = 0; ///< only where items are blocks of rows: rows of the widest value in an item
  /// 1: `rowsPerItem` are rows of a linear's stacked weights, and an item has some of one weight; 0: of the
  /// widest value, and it has some of each. -1: left to the planner if `rowsPerItem` is, else as 0.
  int64_t stacked = -1;
  int64_t chunks = 0; ///< only of an attention: chunks of a head's tokens, each of an item; or kWork
  int64_t tokenGroups =
      0; ///< only where linears multiply with several tokens: groups of them, one after another
  int64_t clusters =
      0;            ///< that run at most at a time, taking several items each; 0: as many as there are items
  int64_t pdl = -1; ///< how it starts: 0 to 3, as kernel.func's; -1: left to the planner
  Layout weights = Layout::Unset;
  int64_t inFlight = -1; ///< ring tiles that are copied at a time at most; 0: all; -1: left to the planner
  int64_t prefetch = -1; ///< tiles behind the ring that go to the L2 at the start; -1: left to the planner
  int64_t prefetchLater = -1; ///< likewise of later streams of weights
  /// Tiles of each set of warps, of the first rows of the first stream, that are kept in registers before the
  /// kernel before it has ended, at most all but the last; -1: left to the planner.
  int64_t held = -1;
  int64_t joined = -1; ///< 1: runs in the launch of the kernel before it; -1: left to the planner
  bool operator==(const KernelPlan &) const = default;
};

/// Whether it starts while the kernel before it runs.
inline bool startsEarly(const KernelPlan &plan) { return plan.pdl == 1 || plan.pdl == 2; }

/// Chunks of a head's tokens.
inline int64_t chunksOf(const KernelPlan &plan) { return plan.chunks > 0 ? plan.chunks : 1; }
/// `chunks = work`: each cluster takes as many tokens, whole heads and parts of some, by a work list.
inline constexpr int64_t kWork = -1;
inline bool sharesWork(const KernelPlan &plan) { return plan.chunks == kWork; }
/// Whether items are parts of heads.
inline bool cutsHeads(const KernelPlan &plan) { return chunksOf(plan) > 1 || sharesWork(plan); }

/// Groups of tokens, for each of which a kernel reads its weights.
inline int64_t tokenGroupsOf(const KernelPlan &plan) { return plan.tokenGroups > 0 ? plan.tokenGroups : 1; }

/// How one operation is spread over the CTAs. A choice that does not arise is unset.
struct OpChoice {
  Split split = Split::Unset;        ///< of a linear whose input is whole
  Exchange gather = Exchange::Unset; ///< of a linear's split rows
  Exchange reduce = Exchange::Unset; ///< of a linear's split columns or an attention's tokens
  /// Of a linear whose sum runs over the items, or of an attention by chunks of heads, whose softmaxes the
  /// CTA that is last merges (ordered), or whoever reads the result (reader).
  Exchange finish = Exchange::Unset;
  bool operator==(const OpChoice &) const = default;
};

/// Choices for one operation.
struct OpPlan : OpChoice {
  std::string label;   ///< `linear(%q, %k, %v)`
  int64_t kernel = -1; ///< index of its kernel; -1: left to the planner
  bool operator==(const OpPlan &) const = default;
};

/// Tiles in the air, or fetched ahead of the ring, that a kernel's plan can have at most.
inline constexpr int64_t kMostAhead = 64;

/// Where something stands in a file.
struct PlanPlace {
  unsigned line, column;
};

/// Where the lines and values of a plan stand in the file that it was read from. No part of what the plan
/// says: all are equal.
class PlanPlaces {
public:
  std::string file;
  /// `item`: `graph`, `kernel 0` or an operation's label; `key`: of a value of it, or empty.
  void add(llvm::StringRef item, llvm::StringRef key, PlanPlace place) {
    places.try_emplace({item.str(), key.str()}, place);
  }
  std::optional<PlanPlace> find(llvm::StringRef item, llvm::StringRef key) const {
    auto it = places.find({item.str(), key.str()});
    return it == places.end() ? std::nullopt : std::optional(it->second);
  }
  bool operator==(const PlanPlaces &) const { return true; }

private:
  std::map<std::pair<std::string, std::string>, PlanPlace> places;
};

/// Kernels [first, end) of a plan that run in one launch.
struct LaunchRange {
  size_t first, end;
  size_t size() const { return end - first; }
};

struct Plan {
  std::string graph; ///< name of the graph
  std::string hash;  ///< graphHash of the graph
  std::vector<KernelPlan> kernels;
  std::vector<OpPlan> ops; ///< in the order of the graph; operations that run in no kernel are absent
  PlanPlaces places;       ///< of a plan that was read
  bool operator==(const Plan &) const = default;

  const OpPlan *find(llvm::StringRef label) const;
  /// Its kernels by launch.
  std::vector<LaunchRange> launches() const;
  /// The plan's text.
  std::string print() const;
  /// 8 hex digits that differ between plans.
  std::string shortHash() const;
  /// The place as a location; where there is none, `otherwise`.
  mlir::Location locate(std::optional<PlanPlace> place, mlir::Location otherwise) const;
};

/// Exit codes of the command line that a wrong plan or machine leads to.
inline constexpr int kExitBadInput = 2, kExitCannotRun = 3;

/// Reads a plan's text. On failure `error` is `file:line:column: error: …` (exit code 2). Values are checked
/// against the graph and the machine by makePlan, which says where in the file they stand.
std::optional<Plan> parsePlan(llvm::StringRef text, llvm::StringRef file, std::string &error);

/// The name of an operation in plans: its mnemonic and its results, `linear(%q, %k, %v)`. Values without a
/// name go by their operation's index, as `%#3`.
std::string opLabel(mlir::Operation *op);
/// The operation's choices in a plan that was made for its graph.
const OpPlan &planOf(const Plan &plan, mlir::Operation *op);
/// Whether an operation is an attention whose chunks leave their softmaxes to whoever reads its result.
bool leavesStates(const Plan &plan, mlir::Operation *op);
/// 16 hex digits of a graph's structure: types, operations and names, not locations.
std::string graphHash(attn::GraphOp graph);

llvm::StringRef stringify(Layout layout);
llvm::StringRef stringify(Split split);
llvm::StringRef stringify(Exchange exchange);

/// Attribute of a graph that holds its plan's text.
inline constexpr llvm::StringLiteral kPlanAttr = "attn.plan";
/// Attribute of an operation: the kernel that it runs in.
inline constexpr llvm::StringLiteral kKernelAttr = "attn.kernel";

} // namespace cfc
