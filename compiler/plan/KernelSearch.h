//===- KernelSearch.h - The legal choices for one launch --------------------===//
//
// Private to the planner. A launch is a kernel, and those that are joined to it:
// they share its choices but for the rows of their items.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/plan/Cost.h"
#include "compiler/plan/Planner.h"
#include <array>

namespace cfc {

/// A small generator whose draws are the same everywhere (splitmix64).
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t below(uint64_t n) {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % n;
  }

private:
  uint64_t state;
};

/// The reason of the candidate that came furthest before it was refused.
struct Refusal {
  enum Stage { None, Names, Values, Cluster, Splits, Shared, Built };
  Stage stage = None;
  int64_t size = 0; ///< the smallest requirement wins within a stage
  std::string text = "the graph has no operation";
  void add(Stage at, const std::string &why, int64_t required = 0) {
    if (at > stage || (at == stage && required < size))
      stage = at, size = required, text = why;
  }
};

/// The legal choices of an operation for one way to deal work to CTAs.
struct OpOptions {
  llvm::SmallVector<OpPlan, 8> all;
  /// Those of them that are worth weighing: of each split and finish the quickest exchange, and the quickest
  /// of those that take less memory.
  llvm::SmallVector<OpPlan, 4> best;
};

class KernelSearch {
public:
  /// `shapes` are the launch's kernels, the first of which is kernel `first` of the plan. `alone`: they are
  /// all.
  KernelSearch(llvm::ArrayRef<KernelShape> shapes, size_t first, bool alone, const Machine &machine,
               const PlanOptions &options);

  /// Lists the legal choices, best first, or in an order drawn by `random`. False, with the reason, if there
  /// are none.
  bool enumerate(Random *random, Refusal &refusal);
  bool done() const { return at >= candidates.size(); }
  /// The choices for each of the launch's kernels.
  llvm::ArrayRef<KernelChoice> current() const { return candidates[at].choices; }
  /// The current choice takes `bytes` of shared memory when it is built (-1: it cannot be). Moves to the next
  /// that is not expected to fail alike.
  void reject(int64_t bytes, Refusal &refusal);

private:
  using Choices = llvm::SmallVector<KernelChoice, 1>;
  struct Candidate {
    Choices choices;
    double us;
    int64_t shared; ///< estimate
  };
  /// One of the launch's kernels.
  struct Member {
    KernelSizes sizes;
    size_t index;                         ///< in the plan
    KernelPlan given;                     ///< what a given plan says of it
    std::vector<const OpPlan *> givenOps; ///< by operation; null where nothing is given
    llvm::SmallVector<int64_t> rows;      ///< that an item may have
    llvm::SmallVector<int64_t> chunks;    ///< that a head may have
    std::map<std::array<int64_t, 4>, std::vector<OpOptions>>
        known; ///< by part, rows of an item, chunks, groups of tokens
    const KernelShape &shape() const { return sizes.getShape(); }
  };
  struct Domain {
    llvm::SmallVector<int64_t> parts, warps, ctas, stages, columns, clusters, pdl, groups;
    Layout weights = Layout::Native;
  };
  bool mergeGiven(Refusal &refusal);
  bool findDomain(Domain &domain, Refusal &refusal);
  void findItems(Member &member) const;
  bool checkNames(const Member &member, Refusal &refusal);
  bool checkValues(const Domain &domain, Refusal &refusal);
  bool checkAtomic(const Member &member, Refusal &refusal);
  bool checkResidency(const KernelPlan &kernel, Refusal &refusal) const;
  bool checkRing(const KernelPlan &kernel, Refusal &refusal) const;
  void choosePace(Choices &choices, Random *random) const;
  llvm::SmallVector<Split> splitsOf(const KernelPlan &kernel, const OpSizes &op, const OpPlan *fixed,
                                    const Member &member) const;
  void addOptions(OpOptions &options, const KernelPlan &kernel, const OpSizes &op, const Member &member,
                  std::string &why) const;
  void addBest(OpOptions &options, const KernelPlan &kernel, const OpSizes &op, const Member &member,
               size_t first) const;
  /// The choices of each operation; null, with the reason, if one has none.
  const std::vector<OpOptions> *optionsOf(Member &member, const KernelPlan &kernel, Refusal &refusal);
  std::vector<KernelChoice> choicesOf(Member &member, KernelPlan kernel, Random *random, Refusal &refusal);
  void keepBest(const Member &member, std::vector<KernelChoice> &choices) const;
  void addCombinations(KernelChoice &choice, llvm::ArrayRef<OpOptions> options,
                       std::vector<KernelChoice> &to) const;
  void addShared(const Domain &domain, int64_t groups, Refusal &refusal);
  void addCandidates(KernelPlan kernel, Random *random, Refusal &refusal);
  void addCandidate(Choices choices, Random *random, Refusal &refusal);
  int64_t estimateShared(llvm::ArrayRef<KernelChoice> choices) const;
  bool fits(const Candidate &candidate, int64_t extra, Refusal &refusal) const;
  static std::string memoryKey(llvm::ArrayRef<KernelChoice> choices);
  std::string needs(int64_t bytes, int64_t ctasPerSm) const;
  size_t index() const { return members.front().index; }

  bool hasLaterWeights() const;
  bool readsCacheAhead() const;
  bool leavesSmsIdle(const KernelChoice &choice) const;
  std::vector<Member> members;
  const Machine *machine;
  const PlanOptions *options;
  bool alone;
  KernelPlan given; ///< what given plans say of the kernels together
  std::vector<Candidate> candidates;
  size_t at = 0;
  /// By memoryKey: what estimates lacked of the true size.
  std::map<std::string, int64_t> lacking;
};

} // namespace cfc
