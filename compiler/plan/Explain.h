//===- Explain.h - A plan phase by phase ------------------------------------===//
#pragma once
#include "compiler/plan/Cost.h"
#include "compiler/plan/Planner.h"

namespace cfc {

/// A launch: a kernel and those joined to it.
struct ExplainedKernel {
  KernelPlan plan; ///< what they share
  LaunchCost cost;
  std::vector<std::string> itemNames; ///< of each: "head", "block of rows", or "item" where there is one
  int64_t sharedBytes = 0;            ///< of a CTA
  int64_t slotBytes = 0;              ///< of a ring tile
  bool attends = false;               ///< to a cache
};

struct Explanation {
  std::string graph, planHash;
  Machine machine;
  int64_t length = 0; ///< cached tokens that the prediction assumes
  std::vector<ExplainedKernel> kernels;
  double us() const;
  double bytes() const;
  /// What the memory's bandwidth alone asks for.
  double floorUs() const { return bytes() / machine.bandwidth * 1e6; }
};

/// Nothing where the plan is not one of the graph's. `sharedBytes` gives exact sizes; without it they are
/// estimates.
std::optional<Explanation> explainPlan(attn::GraphOp graph, const Plan &plan, const Machine &machine,
                                       CacheLength length, const SharedBytesFn &sharedBytes = {});

/// Predicted microseconds of all kernels; nothing where the plan is not one of the graph's.
std::optional<double> predictPlan(attn::GraphOp graph, const Plan &plan, const Machine &machine,
                                  CacheLength length);

std::string explanationText(const Explanation &explanation);
std::string explanationJson(const Explanation &explanation);
/// A timeline of producer, consumers and exchanges, by kernel: an SVG file.
std::string explanationSvg(const Explanation &explanation);

} // namespace cfc
