//===- Explain.cpp - A plan phase by phase ----------------------------------===//
#include "compiler/plan/Cost.h"
#include "compiler/plan/Planner.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace cfc;

static std::string readable(double bytes) {
  if (bytes >= 1e6)
    return llvm::formatv("{0:F1} MB", bytes / 1e6);
  return bytes >= 1e3 ? llvm::formatv("{0:F1} KB", bytes / 1e3).str()
                      : llvm::formatv("{0:F0} B", bytes).str();
}

static void explainKernel(llvm::raw_ostream &out, const KernelShape &shape, const KernelChoice &choice,
                          size_t index, const Machine &machine, const KernelCost &cost, int64_t sharedBytes) {
  const KernelPlan &k = choice.kernel;
  out << llvm::formatv("kernel {0}: {1} {2} on clusters of {3} CTAs, {4} + 1 warps each, {5} a SM\n", index,
                       cost.items,
                       shape.getHeads() ? "heads" : (shape.hasItems() ? "blocks of rows" : "item"), k.part,
                       k.warps, k.ctasPerSm);
  out << llvm::formatv("  {0} of {1} clusters are resident: {2} {3}\n", std::min(cost.items, cost.resident),
                       cost.items, cost.waves, cost.waves == 1 ? "wave" : "waves");
  out << llvm::formatv("  {0} bytes of shared memory a CTA of {1}; a ring of {2} tiles of {3} x {4}\n",
                       sharedBytes, machine.sharedLimit(k.ctasPerSm), k.ringStages, 16 * k.warps,
                       k.tileColumns);
  for (const Phase &phase : cost.phases)
    out << llvm::formatv("  {0,8:F2} us  {1,10}  {2}\n", phase.us, phase.bytes ? readable(phase.bytes) : "",
                         phase.what);
}

std::string cfc::explain(attn::GraphOp graph, const Plan &plan, const Machine &machine, int64_t length,
                         const SharedBytesFn &sharedBytes) {
  SmallVector<int64_t> kernels;
  for (Operation *op : kernelOps(graph))
    kernels.push_back(planOf(plan, op).kernel);
  FailureOr<Fusion> fusion = fuse(graph, {}, kernels);
  if (failed(fusion))
    return "";
  FailureOr<std::vector<KernelShape>> shapes = shapeKernels(graph, *fusion);
  if (failed(shapes) || shapes->size() != plan.kernels.size())
    return "";
  std::string why, text;
  SmallVector<int64_t> exact = sharedBytes ? sharedBytes(graph, plan, why) : SmallVector<int64_t>();
  llvm::raw_string_ostream out(text);
  out << "graph @" << graph.getSymName() << " on " << machine.name << ", predicted for " << length
      << " cached tokens\n";
  double us = 0, bytes = 0;
  for (auto [i, shape] : llvm::enumerate(*shapes)) {
    KernelChoice choice{plan.kernels[i], {}};
    for (Operation *op : shape.getOps())
      choice.ops.push_back(planOf(plan, op));
    KernelCost cost = predict(shape, choice, machine, length, /*describe=*/true);
    explainKernel(out, shape, choice, i, machine, cost,
                  i < exact.size() ? exact[i] : estimateShared(shape, choice));
    us += cost.us, bytes += cost.bytes;
  }
  out << llvm::formatv("in all {0:F1} us for {1}; the memory alone needs {2:F1} us\n", us, readable(bytes),
                       bytes / machine.bandwidth * 1e6);
  return text;
}
