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
#include <deque>

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
  std::optional<PlanPlace> place; ///< of the value in the given plan that is refused
  bool takes(Stage at, int64_t required = 0) const { return at > stage || (at == stage && required < size); }
  void add(Stage at, const std::string &why, int64_t required = 0, std::optional<PlanPlace> where = {}) {
    if (takes(at, required))
      stage = at, size = required, text = why, place = where;
  }
  void add(Stage at, const std::string &why, std::optional<PlanPlace> where) { add(at, why, 0, where); }
  void add(const Refusal &other) { add(other.stage, other.text, other.size, other.place); }
};

/// The legal choices of an operation for one way to deal work to CTAs.
struct OpOptions {
  llvm::SmallVector<OpChoice, 8> all;
  /// Those of them that are worth weighing: of each split and finish the quickest exchange, and the quickest
  /// of those that take less memory.
  llvm::SmallVector<OpChoice, 4> best;
};

/// Choices for all of a kernel's operations.
struct Combination {
  llvm::SmallVector<OpChoice, 8> ops;
  /// The first operation whose packed weights cannot be streamed so; null if all can.
  mlir::Operation *stuck = nullptr;
};

/// What a kernel's operations can be for one way to deal work to CTAs.
struct WorkOptions {
  std::vector<OpOptions> ops;
  std::vector<Combination> best; ///< of their `best`; not listed for plans that are drawn
};

/// The choices for one kernel of a launch.
struct OwnChoice {
  KernelChoice choice;
  mlir::Operation *stuck; ///< as a combination's
};

/// Of a kernel that runs with others, the choices worth weighing for each way to launch it: part, warps, CTAs
/// of an SM, stages, columns, clusters, start, groups of tokens. Several launches may have the same kernel.
using KeptChoices = std::map<std::array<int64_t, 8>, std::vector<OwnChoice>>;

/// Operations of the kernels of a launch.
using LaunchOps = std::vector<llvm::SmallVector<mlir::Operation *>>;

class KernelSearch {
public:
  /// `shapes` are the launch's kernels, the first of which is kernel `first` of the plan. `place`: the
  /// launch's in a plan. `kept` has what is known of each of them.
  KernelSearch(llvm::ArrayRef<KernelShape> shapes, size_t first, Place place, const Machine &machine,
               const PlanOptions &options, llvm::ArrayRef<KeptChoices *> kept);
  KernelSearch(const KernelSearch &) = delete; // candidates point into it

  /// Lists the legal choices that take less than `limit` microseconds, best first, or all in an order drawn
  /// by `random`. False, with the reason, if there are none.
  bool enumerate(Random *random, double limit, Refusal &refusal);
  bool done() const { return at >= order.size(); }
  /// The choices for each of the launch's kernels.
  llvm::ArrayRef<KernelChoice> current() const { return candidate().choices; }
  /// Its predicted time; not of a drawn one.
  double us() const { return candidate().us; }
  /// The current choice takes `bytes` of shared memory when it is built (-1: it cannot be). Moves to the next
  /// that is not expected to fail alike.
  void reject(int64_t bytes, Refusal &refusal);
  /// The current choice was built and fits: it stays.
  void settle() { settled = true; }
  bool isSettled() const { return settled; }
  /// How many choices were weighed.
  int64_t getWeighed() const { return weighed; }

private:
  using Choices = llvm::SmallVector<KernelChoice, 1>;
  struct Candidate {
    Choices choices;
    double us = 0;                    ///< of a drawn one unknown
    int64_t shared = 0;               ///< estimate
    mlir::Operation *stuck = nullptr; ///< one whose packed weights cannot be streamed so
  };
  /// What an item of a kernel may be: keys of its plan.
  struct Item {
    int64_t rows = 0, chunks = 0, stacked = -1;
  };
  /// One of the launch's kernels.
  struct Member {
    KernelSizes sizes;
    size_t index;                         ///< in the plan
    KernelPlan given;                     ///< what a given plan says of it
    std::vector<const OpPlan *> givenOps; ///< by operation; null where nothing is given
    llvm::SmallVector<Item> items;        ///< what one may be
    std::map<std::array<int64_t, 5>, WorkOptions>
        known; ///< by part, rows of an item and whether they are stacked, chunks, groups of tokens
    KeptChoices *kept;
    size_t quickest = 0; ///< of the choices that were compared last
    const KernelShape &shape() const { return sizes.getShape(); }
  };
  struct Domain {
    llvm::SmallVector<int64_t> parts, warps, ctas, stages, columns, clusters, pdl, groups;
    Layout weights = Layout::Native;
  };
  std::optional<PlanPlace> placeOf(const Member &member, llvm::StringRef key) const;
  std::optional<PlanPlace> placeOf(llvm::StringRef key) const;
  std::optional<PlanPlace> placeOf(const OpPlan &op, llvm::StringRef key) const;
  bool mergeGiven(Refusal &refusal);
  bool findDomain(Domain &domain, Refusal &refusal);
  void findItems(Member &member) const;
  void findRows(Member &member) const;
  bool checkNames(const Member &member, Refusal &refusal);
  bool checkValues(const Domain &domain, Refusal &refusal);
  bool checkTogether(const Member &member, Refusal &refusal);
  bool checkResidency(const KernelPlan &kernel, Refusal &refusal) const;
  bool checkRing(const KernelPlan &kernel, Refusal &refusal) const;
  bool checkHeld(const KernelPlan &kernel, Refusal &refusal) const;
  bool checkInFlight(const KernelPlan &kernel, Refusal::Stage stage, Refusal &refusal) const;
  void refuseRing(const KernelPlan &kernel, Refusal::Stage stage, Refusal &refusal) const;
  void choosePace(Choices &choices, bool isWeighed, Random *random) const;
  llvm::SmallVector<Split> splitsOf(const KernelPlan &kernel, const OpSizes &op, const OpPlan *fixed,
                                    const Member &member) const;
  void addOptions(OpOptions &options, const KernelPlan &kernel, const OpSizes &op, const Member &member,
                  std::string &why) const;
  void addBest(OpOptions &options, const KernelPlan &kernel, const OpSizes &op, const Member &member,
               size_t first) const;
  /// The choices of each operation; null, with the reason, if one has none.
  const WorkOptions *optionsOf(Member &member, const KernelPlan &kernel, Refusal &refusal);
  void addCombinations(const Member &member, const KernelPlan &kernel, llvm::SmallVector<OpChoice, 8> &ops,
                       WorkOptions &to) const;
  mlir::Operation *stuckOf(const Member &member, const KernelPlan &kernel,
                           llvm::ArrayRef<OpChoice> ops) const;
  std::vector<OwnChoice> choicesOf(Member &member, KernelPlan kernel, Random *random, Refusal &refusal);
  OwnChoice draw(const Member &member, const KernelPlan &kernel, const WorkOptions &from, Random &random);
  double weigh(llvm::ArrayRef<const KernelSizes *> sizes, llvm::ArrayRef<KernelChoice> choices, Place place,
               double limit);
  std::vector<OwnChoice> bestOf(Member &member, llvm::ArrayRef<OwnChoice> choices);
  std::vector<OwnChoice> keptOf(Member &member, const KernelPlan &kernel, Refusal &refusal);
  void addShared(const Domain &domain, int64_t groups, Refusal &refusal);
  void addCandidates(const KernelPlan &kernel, Random *random, Refusal &refusal);
  void addCandidate(llvm::ArrayRef<OwnChoice> choices, Random *random, Refusal &refusal);
  int64_t estimateShared(llvm::ArrayRef<KernelChoice> choices) const;
  bool fits(const Candidate &candidate, int64_t extra, Refusal &refusal) const;
  static std::string memoryKey(llvm::ArrayRef<KernelChoice> choices);
  std::string needs(int64_t bytes, int64_t ctasPerSm) const;
  size_t index() const { return members.front().index; }
  /// Its plan's `joined`.
  int64_t joinedOf(const Member &member) const { return member.index ? member.index != index() : -1; }

  bool hasLaterWeights() const;
  bool streamsMoreWeights() const;
  bool readsCacheAhead() const;
  bool canStartBehindWait() const;
  bool leavesSmsIdle(const KernelChoice &choice) const;
  std::vector<KernelShape> shapes;
  std::vector<Member> members;
  llvm::SmallVector<const KernelSizes *> sizes; ///< of members
  const Machine *machine;
  const PlanOptions *options;
  Place place;
  KernelPlan given; ///< what given plans say of the kernels together
  const Candidate &candidate() const { return candidates[order[at]]; }
  void rank(Refusal &refusal);
  void skipStuck(Refusal &refusal);

  std::vector<Candidate> candidates;
  std::vector<size_t> order; ///< of candidates, best first
  size_t at = 0;             ///< in `order`
  bool settled = false;
  int64_t weighed = 0;
  double limit = 0;                 ///< of the time of what is worth a candidate
  bool anyFits = false;             ///< by estimate, with something to spare
  mlir::Operation *stuck = nullptr; ///< one whose packed weights cannot be streamed by some choices
  std::deque<Combination> drawn;
  /// By memoryKey: what estimates lacked of the true size.
  std::map<std::string, int64_t> lacking;
};

} // namespace cfc
