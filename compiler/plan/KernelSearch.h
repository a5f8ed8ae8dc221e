//===- KernelSearch.h - The legal choices for one kernel --------------------===//
//
// Private to the planner.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/plan/Cost.h"
#include "compiler/plan/Planner.h"

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
  KernelSearch(const KernelShape &shape, size_t index, const Machine &machine, const PlanOptions &options);

  /// Lists the legal choices, best first, or in an order drawn by `random`. False, with the reason, if there
  /// are none.
  bool enumerate(Random *random, Refusal &refusal);
  bool done() const { return at >= candidates.size(); }
  const KernelChoice &current() const { return candidates[at].choice; }
  double currentUs() const { return candidates[at].us; }
  /// The current choice takes `bytes` of shared memory when it is built (-1: it cannot be). Moves to the next
  /// that is not expected to fail alike.
  void reject(int64_t bytes, Refusal &refusal);

private:
  struct Candidate {
    KernelChoice choice;
    double us;
    int64_t shared; ///< estimate
  };
  struct Domain {
    llvm::SmallVector<int64_t> parts, warps, ctas, stages, columns, rows, clusters, pdl;
    Layout weights = Layout::Native;
  };
  bool findDomain(Domain &domain, Refusal &refusal);
  bool checkNames(Refusal &refusal);
  bool checkValues(const Domain &domain, Refusal &refusal);
  bool checkAtomic(Refusal &refusal);
  bool checkResidency(const KernelPlan &kernel, Refusal &refusal) const;
  bool checkRing(const KernelPlan &kernel, Refusal &refusal) const;
  llvm::SmallVector<Split> splitsOf(const OpSizes &op, const OpPlan *fixed) const;
  void addOptions(OpOptions &options, const KernelPlan &kernel, const OpSizes &op, std::string &why) const;
  void addBest(OpOptions &options, const KernelPlan &kernel, const OpSizes &op, size_t first) const;
  /// The choices of each operation; null, with the reason, if one has none.
  const std::vector<OpOptions> *optionsOf(const KernelPlan &kernel, Refusal &refusal);
  void addCandidates(const KernelPlan &kernel, Random *random, Refusal &refusal);
  void addCandidate(const KernelChoice &choice, Refusal &refusal);
  void addCombinations(KernelChoice &choice, llvm::ArrayRef<OpOptions> options, Refusal &refusal);
  bool fits(const Candidate &candidate, int64_t extra, Refusal &refusal) const;
  static std::string memoryKey(const KernelChoice &choice);
  std::string needs(int64_t bytes, int64_t ctasPerSm) const;

  const KernelShape *shape;
  KernelSizes sizes;
  size_t index;
  const Machine *machine;
  const PlanOptions *options;
  KernelPlan given;
  std::vector<const OpPlan *> givenOps; ///< by operation; null where nothing is given
  std::map<std::pair<int64_t, int64_t>, std::vector<OpOptions>> known; ///< by part and rows of an item
  std::vector<Candidate> candidates;
  size_t at = 0;
  /// By memoryKey: what estimates lacked of the true size.
  std::map<std::string, int64_t> lacking;
};

} // namespace cfc
