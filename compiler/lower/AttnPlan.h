//===- AttnPlan.h - Plans whose kernels are known to fit --------------------===//
#pragma once
#include "compiler/plan/Planner.h"

namespace cfc {

/// Shared memory of each kernel of a plan, from the kernels themselves.
llvm::SmallVector<int64_t> sharedBytesOf(attn::GraphOp graph, const Plan &plan, std::string &why);

/// makePlan with exact sizes of shared memory.
mlir::FailureOr<Plan> planGraph(attn::GraphOp graph, const Machine &machine, PlanOptions options,
                                int &exitCode);

/// What `--plan=` and `plan=` mean: `auto`, `random:SEED` or a file. On failure `error` holds a message (exit
/// code 2).
bool readPlanChoice(llvm::StringRef choice, PlanOptions &options, std::string &error);

} // namespace cfc
