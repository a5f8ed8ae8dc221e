//===- AttnPlan.cpp - Attaches a plan to a graph ----------------------------===//
//
// The pass `attn-plan`: asks the planner for the best, a random or a given plan
// and attaches its text to the graph. The planner proposes; here its kernels
// are built to learn how much shared memory they take.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/AttnPlan.h"
#include "compiler/lower/AttnPasses.h"
#include "compiler/lower/AttnToKernel.h"
#include "compiler/lower/KernelLayout.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace cfc;

namespace cfc::attn {
#define GEN_PASS_DEF_ATTNPLAN
#include "dialects/attn/Passes.h.inc"
} // namespace cfc::attn

SmallVector<int64_t> cfc::sharedBytesOf(attn::GraphOp graph, const Plan &plan, std::string &why) {
  ScopedDiagnosticHandler capture(graph.getContext(), [&](Diagnostic &diagnostic) {
    if (why.empty())
      why = diagnostic.str();
    return success();
  });
  SmallVector<int64_t> sizes(plan.launches().size(), -1);
  int exitCode = 0;
  FailureOr<OwningOpRef<ModuleOp>> module = buildKernels(graph, plan, exitCode);
  if (failed(module))
    return sizes;
  for (auto [size, func] : llvm::zip(sizes, (*module)->getOps<kernel::FuncOp>()))
    if (succeeded(verify(func)))
      if (FailureOr<int64_t> bytes = kernel::sharedBytes(func); succeeded(bytes))
        size = *bytes;
  return sizes;
}

FailureOr<Plan> cfc::planGraph(attn::GraphOp graph, const Machine &machine, PlanOptions options,
                               int &exitCode) {
  options.sharedBytes = sharedBytesOf;
  return makePlan(graph, machine, options, exitCode);
}

bool cfc::readPlanChoice(StringRef choice, PlanOptions &options, std::string &error) {
  if (choice == "auto")
    return true;
  if (choice.consume_front("random:")) {
    uint64_t seed;
    if (choice.getAsInteger(10, seed)) {
      error = ("error: '" + choice + "' is no seed; random:7 draws a plan").str();
      return false;
    }
    options.randomSeed = seed;
    return true;
  }
  auto buffer = llvm::MemoryBuffer::getFile(choice, /*IsText=*/true);
  if (buffer && !llvm::sys::fs::is_directory(choice)) {
    options.given = parsePlan((*buffer)->getBuffer(), choice, error);
    return options.given.has_value();
  }
  error = ("error: plan '" + choice + "' is neither auto, random:SEED nor a readable file").str();
  if (StringRef near = attn::nearestName(choice, {"auto", "random:1"}); !near.empty())
    error += ("; did you mean '" + near + "'?").str();
  return false;
}

namespace {
struct AttnPlanPass : public cfc::attn::impl::AttnPlanBase<AttnPlanPass> {
  using AttnPlanBase::AttnPlanBase;
  void runOnOperation() override {
    std::string error;
    PlanOptions options;
    std::optional<Machine> description = loadMachine(machine, error);
    if (!description || !readPlanChoice(plan, options, error)) {
      getOperation().emitError(error);
      return signalPassFailure();
    }
    options.deterministic = deterministic;
    for (auto graph : getOperation().getOps<attn::GraphOp>()) {
      int exitCode = 0;
      FailureOr<Plan> chosen = planGraph(graph, *description, options, exitCode);
      if (failed(chosen))
        return signalPassFailure();
      graph->setAttr(kPlanAttr, StringAttr::get(&getContext(), chosen->print()));
    }
  }
};
} // namespace
