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
    llvm::SmallVector<int64_t> parts, warps, ctas, stages, columns, rows, pdl;
    Layout weights = Layout::Native;
  };
  bool findDomain(Domain &domain, Refusal &refusal);
  bool checkNames(Refusal &refusal);
  bool checkValues(const Domain &domain, Refusal &refusal);
  /// The legal choices of an operation; false, with the reason, if there are none.
  bool optionsOf(mlir::Operation *op, const KernelPlan &kernel, llvm::SmallVectorImpl<OpPlan> &list,
                 Refusal &refusal) const;
  std::optional<Candidate> complete(const KernelPlan &kernel, Random *random, Refusal &refusal) const;
  bool fits(const Candidate &candidate, int64_t extra, Refusal &refusal) const;
  std::string needs(int64_t bytes, int64_t ctasPerSm) const;

  const KernelShape *shape;
  size_t index;
  const Machine *machine;
  const PlanOptions *options;
  KernelPlan given;
  std::vector<const OpPlan *> givenOps; ///< by operation; null where nothing is given
  std::vector<Candidate> candidates;
  size_t at = 0;
  int64_t slack = 0; ///< by how much estimates were too low
};

} // namespace cfc
