//===- Planner.h - Chooses a plan -------------------------------------------===//
#pragma once
#include "compiler/plan/Fusion.h"
#include "compiler/plan/Machine.h"
#include "compiler/plan/Plan.h"
#include <functional>

namespace cfc {

/// Shared memory of a CTA of each of a plan's launches, in bytes; -1, and a reason in `why`, for one that
/// cannot be built.
using SharedBytesFn =
    std::function<llvm::SmallVector<int64_t>(attn::GraphOp graph, const Plan &plan, std::string &why)>;

/// How much work a plan took.
struct PlanEffort {
  int64_t weighed = 0; ///< choices of launches whose time was predicted
  int64_t built = 0;   ///< plans whose kernels were built
};

struct PlanOptions {
  /// Draws a legal plan by this seed, over all choices, instead of the best.
  std::optional<uint64_t> randomSeed;
  /// Choices that stay as they are; the rest is planned.
  std::optional<Plan> given;
  /// Only plans whose results have the same bits.
  bool deterministic = true;
  /// How weights lie in memory, where the given plan does not say.
  Layout weights = Layout::Native;
  /// Cached tokens that predictions assume (at most what the graph allows).
  CacheLength length = 4096;
  /// Exact sizes; without it an estimate is used. `planGraph` in compiler/lower/AttnPlan.h sets it.
  SharedBytesFn sharedBytes;
  /// Where to count the work, if not null.
  PlanEffort *effort = nullptr;
};

/// What the planner weighs of a plan whose time is predicted as `us`: a launch more must save 2 microseconds,
/// as predictions are for chains of like launches, where each starts beside the one before, and between other
/// kernels it may not; several kernels, joined or not, must save a tenth, about the error of predictions.
inline double weighedUs(double us, size_t kernels, size_t launches) {
  constexpr double kLaunchUs = 2, kCutShare = 0.1;
  return us * (kernels > 1 ? 1 + kCutShare : 1) + kLaunchUs * (static_cast<double>(launches) - 1.0);
}
/// The time that is weighed as `weighed`, or a little more.
inline double worthUs(double weighed, size_t kernels, size_t launches) {
  constexpr double kRounding = 1e-9;
  double none = weighedUs(0, kernels, launches);
  return (weighed - none) / (weighedUs(1, kernels, launches) - none) * (1 + kRounding);
}
inline double weighedUs(const Plan &plan, double us) {
  return weighedUs(us, plan.kernels.size(), plan.launches().size());
}

/// The plan with the smallest predicted time among the legal ones. On failure a diagnostic has been emitted
/// and `exitCode` is 2 (the given plan is for another graph, names what the graph does not have, or
/// contradicts itself) or 3 (nothing legal; the diagnostic says what is required and the limit).
mlir::FailureOr<Plan> makePlan(attn::GraphOp graph, const Machine &machine, const PlanOptions &options,
                               int &exitCode);

} // namespace cfc
