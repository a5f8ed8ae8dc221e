//===- Explain.cpp - A plan phase by phase ----------------------------------===//
#include "compiler/plan/Explain.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <cmath>

using namespace mlir;
using namespace cfc;

double Explanation::us() const {
  return llvm::accumulate(kernels, 0.0, [](double sum, const auto &kernel) { return sum + kernel.cost.us; });
}

double Explanation::bytes() const {
  return llvm::accumulate(kernels, 0.0,
                          [](double sum, const auto &kernel) { return sum + kernel.cost.bytes; });
}

//===-- Costs of a plan -----------------------------------------------------===//

namespace {
/// The kernels of a plan.
struct PlannedKernels {
  std::vector<KernelShape> shapes;
  std::vector<KernelSizes> sizes;         ///< of `shapes`
  std::vector<std::vector<OpChoice>> ops; ///< likewise
  std::vector<KernelChoice> choices;

  SmallVector<const KernelSizes *> sizesOf(LaunchRange launch) const {
    SmallVector<const KernelSizes *> of;
    for (size_t k = launch.first; k < launch.end; ++k)
      of.push_back(&sizes[k]);
    return of;
  }
  ArrayRef<KernelChoice> choicesOf(LaunchRange launch) const {
    return ArrayRef(choices).slice(launch.first, launch.size());
  }
  /// Of launch `i` in a chain of plans like this one.
  LaunchCost predict(ArrayRef<LaunchRange> launches, size_t i, const Machine &machine, CacheLength length,
                     bool describe) const {
    return cfc::predict(sizesOf(launches[i]), choicesOf(launches[i]), machine, length, describe,
                        placeOf(launches, i, sizes, machine, length));
  }

  static std::optional<PlannedKernels> of(attn::GraphOp graph, const Plan &plan) {
    SmallVector<int64_t> kernels;
    for (Operation *op : kernelOps(graph))
      kernels.push_back(planOf(plan, op).kernel);
    if (llvm::is_contained(kernels, -1))
      return std::nullopt;
    PlannedKernels result;
    // What does not fit is the caller's to say.
    ScopedDiagnosticHandler quiet(graph.getContext(), [](Diagnostic &) { return success(); });
    FailureOr<Fusion> fusion = fuse(graph, {}, kernels);
    if (failed(fusion))
      return std::nullopt;
    FailureOr<std::vector<KernelShape>> shapes = shapeKernels(graph, *fusion);
    if (failed(shapes) || shapes->size() != plan.kernels.size())
      return std::nullopt;
    result.shapes = std::move(*shapes);
    for (auto [shape, kernel] : llvm::zip_equal(result.shapes, plan.kernels)) {
      KernelChoice &choice = result.choices.emplace_back();
      choice.kernel = kernel;
      bool rows = shape.hasRowItems();
      if (!kernel.part || !kernel.warps || !kernel.ctasPerSm || !kernel.ringStages || !kernel.tileColumns ||
          (rows && !kernel.rowsPerItem))
        return std::nullopt;
      std::vector<OpChoice> &ops = result.ops.emplace_back();
      for (Operation *op : shape.getOps())
        ops.push_back(planOf(plan, op));
      choice.ops = ops; // stays where it is when the lists move
    }
    for (const KernelShape &shape : result.shapes)
      result.sizes.emplace_back(shape);
    return result;
  }
};
} // namespace

static std::string itemName(const KernelShape &shape, const KernelPlan &plan) {
  if (sharesWork(plan))
    return "share of the work";
  if (chunksOf(plan) > 1)
    return "chunk of a head";
  if (takesPanels(shape, plan))
    return "panel of stacked rows";
  return shape.getHeads()        ? "head"
         : shape.hasTokenItems() ? "token"
         : shape.hasItems()      ? "block of rows"
                                 : "item";
}

std::optional<Explanation> cfc::explainPlan(attn::GraphOp graph, const Plan &plan, const Machine &machine,
                                            CacheLength length, const SharedBytesFn &sharedBytes) {
  std::optional<PlannedKernels> planned = PlannedKernels::of(graph, plan);
  if (!planned)
    return std::nullopt;
  std::string why;
  SmallVector<int64_t> exact = sharedBytes ? sharedBytes(graph, plan, why) : SmallVector<int64_t>();
  Explanation result;
  result.graph = graph.getSymName().str();
  result.planHash = plan.shortHash();
  result.machine = machine;
  result.length = length.tokens;
  std::vector<LaunchRange> launches = plan.launches();
  for (auto [i, launch] : llvm::enumerate(launches)) {
    ExplainedKernel &kernel = result.kernels.emplace_back();
    kernel.plan = planned->choices[launch.first].kernel;
    kernel.cost = planned->predict(launches, i, machine, length, /*describe=*/true);
    for (size_t k = launch.first; k < launch.end; ++k) {
      const KernelSizes &sizes = planned->sizes[k];
      kernel.itemNames.push_back(itemName(sizes.getShape(), planned->choices[k].kernel));
      kernel.sharedBytes = std::max(kernel.sharedBytes, sizes.estimateShared(planned->choices[k]));
      kernel.slotBytes = std::max(kernel.slotBytes, sizes.slotBytes(planned->choices[k]));
      kernel.attends |= sizes.attends();
    }
    if (i < exact.size())
      kernel.sharedBytes = exact[i];
  }
  return result;
}

std::optional<double> cfc::predictPlan(attn::GraphOp graph, const Plan &plan, const Machine &machine,
                                       CacheLength length) {
  std::optional<PlannedKernels> planned = PlannedKernels::of(graph, plan);
  if (!planned)
    return std::nullopt;
  double us = 0;
  std::vector<LaunchRange> launches = plan.launches();
  for (size_t i = 0; i < launches.size(); ++i)
    us += planned->predict(launches, i, machine, length, /*describe=*/false).us;
  return us;
}

//===-- Text ----------------------------------------------------------------===//

static std::string readable(double bytes) {
  if (bytes >= 1e6)
    return llvm::formatv("{0:F1} MB", bytes / 1e6);
  return bytes >= 1e3 ? llvm::formatv("{0:F1} KB", bytes / 1e3).str()
                      : llvm::formatv("{0:F0} B", bytes).str();
}

static std::string counted(int64_t n, StringRef what) {
  if (n == 1)
    return ("1 " + what).str();
  auto [first, rest] = what.split(' ');
  return (Twine(n) + " " + first + "s" + (rest.empty() ? "" : " ") + rest).str();
}

static StringRef howItStarts(const ExplainedKernel &kernel) {
  switch (kernel.plan.pdl) {
  case 1:
    return ", started while the kernel before ends";
  case 2:
    return kernel.attends ? ", started while the kernel before ends, cached tokens too"
                          : ", started once the kernel before has waited";
  case 3:
    return ", started as the CTAs of the kernel before end";
  default:
    return "";
  }
}

static void kernelText(llvm::raw_ostream &out, const ExplainedKernel &kernel, size_t index,
                       const Machine &machine) {
  const KernelPlan &k = kernel.plan;
  const LaunchCost &cost = kernel.cost;
  std::string items;
  for (auto [rounds, name] : llvm::zip_equal(cost.kernels, kernel.itemNames))
    items += (items.empty() ? "" : ", then ") + counted(rounds.items, name);
  out << llvm::formatv("kernel {0}: {1} on clusters of {2}, {3} + 1 warps each, {4} a SM{5}\n", index, items,
                       counted(k.part, "CTA"), k.warps, k.ctasPerSm, howItStarts(kernel));
  for (const ItemRounds &rounds : cost.kernels)
    out << llvm::formatv("  {0} of {1} clusters run at a time: {2}\n", rounds.clusters, rounds.items,
                         counted(rounds.rounds, "round"));
  std::string pace = k.inFlight > 0 ? llvm::formatv(", {0} in the air", k.inFlight).str() : std::string();
  if (k.prefetch > 0)
    pace += llvm::formatv(", {0} more to the L2 at the start", k.prefetch);
  if (k.prefetchLater > 0)
    pace += llvm::formatv(", {0} of later weights", k.prefetchLater);
  if (k.held > 0)
    pace += llvm::formatv(", {0} of each 4 warps in registers", k.held);
  out << llvm::formatv("  {0} bytes of shared memory a CTA of {1}; a ring of {2} tiles of {3} x {4}{5}\n",
                       kernel.sharedBytes, machine.sharedLimit(k.ctasPerSm), k.ringStages, kSetRows,
                       k.tileColumns, pace);
  out << "     start      time       bytes  phase\n";
  for (const Phase &phase : cost.phases) {
    out << llvm::formatv("  {0,8:F2}  {1,8:F2}  {2,10}  {3}", phase.start, phase.us,
                         phase.bytes ? readable(phase.bytes) : "", phase.what);
    if (phase.kind == Phase::Stream && phase.us > 0)
      out << llvm::formatv("; limit: {0}{1}", phase.limits.largest(),
                           phase.hidden >= 0.005 ? llvm::formatv(", {0:F2} us ahead", phase.hidden).str()
                                                 : "");
    if (phase.repeats > 1)
      out << llvm::formatv("; {0} times", phase.repeats);
    out << "\n";
  }
}

std::string cfc::explanationText(const Explanation &explanation) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "graph @" << explanation.graph << " on " << explanation.machine.name;
  if (explanation.machine.smsLimit)
    out << " with " << explanation.machine.usableSms() << " SMs";
  out << ", plan " << explanation.planHash << ", predicted for " << explanation.length << " cached tokens\n";
  for (auto [i, kernel] : llvm::enumerate(explanation.kernels))
    kernelText(out, kernel, i, explanation.machine);
  out << llvm::formatv("in all {0:F1} us for {1}; the memory alone needs {2:F1} us\n", explanation.us(),
                       readable(explanation.bytes()), explanation.floorUs());
  return text;
}

//===-- JSON ----------------------------------------------------------------===//

/// Enough digits to read, the same everywhere.
static double rounded(double us) { return std::round(us * 1e4) / 1e4; }

static void phaseJson(llvm::json::OStream &out, const Phase &phase) {
  out.object([&] {
    out.attribute("kind", stringify(phase.kind));
    out.attribute("what", phase.what);
    out.attribute("start_us", rounded(phase.start));
    out.attribute("us", rounded(phase.us));
    if (phase.repeats > 1)
      out.attribute("times", phase.repeats);
    if (phase.kind != Phase::Stream)
      return;
    out.attribute("bytes", phase.bytes);
    out.attribute("load_start_us", rounded(phase.loadStart));
    out.attribute("ahead_us", rounded(phase.hidden));
    out.attribute("limit", phase.limits.largest());
    out.attributeObject("limits_us", [&] {
      out.attribute("memory", rounded(phase.limits.memory));
      out.attribute("sm", rounded(phase.limits.sm));
      out.attribute("copies", rounded(phase.limits.copies));
      out.attribute("ring", rounded(phase.limits.ring));
      out.attribute("consumers", rounded(phase.limits.consumers));
    });
  });
}

static void kernelJson(llvm::json::OStream &out, const ExplainedKernel &kernel) {
  const KernelPlan &k = kernel.plan;
  out.object([&] {
    const ItemRounds &first = kernel.cost.kernels.front();
    out.attribute("items", first.items);
    out.attribute("item", kernel.itemNames.front());
    out.attribute("clusters", first.clusters);
    out.attribute("rounds", first.rounds);
    if (kernel.itemNames.size() > 1)
      out.attributeArray("joined", [&] {
        for (auto [rounds, name] : llvm::drop_begin(llvm::zip_equal(kernel.cost.kernels, kernel.itemNames)))
          out.object([&, &rounds = rounds, &name = name] {
            out.attribute("items", rounds.items);
            out.attribute("item", name);
            out.attribute("clusters", rounds.clusters);
            out.attribute("rounds", rounds.rounds);
          });
      });
    out.attribute("part", k.part);
    out.attribute("warps", k.warps);
    out.attribute("ctas_per_sm", k.ctasPerSm);
    out.attribute("pdl", k.pdl);
    out.attribute("ring_stages", k.ringStages);
    out.attribute("ring_tile_bytes", kernel.slotBytes);
    out.attribute("in_flight", std::max<int64_t>(0, k.inFlight));
    out.attribute("prefetch", std::max<int64_t>(0, k.prefetch));
    out.attribute("prefetch_later", std::max<int64_t>(0, k.prefetchLater));
    out.attribute("held", std::max<int64_t>(0, k.held));
    out.attribute("shared_bytes", kernel.sharedBytes);
    out.attribute("bytes", kernel.cost.bytes);
    out.attribute("us", rounded(kernel.cost.us));
    out.attributeArray("phases", [&] {
      for (const Phase &phase : kernel.cost.phases)
        phaseJson(out, phase);
    });
  });
}

std::string cfc::explanationJson(const Explanation &explanation) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream out(stream, 2);
  out.object([&] {
    out.attribute("graph", explanation.graph);
    out.attribute("plan", explanation.planHash);
    out.attribute("machine", explanation.machine.name);
    out.attribute("sms", explanation.machine.usableSms());
    out.attribute("length", explanation.length);
    out.attribute("us", rounded(explanation.us()));
    out.attribute("bytes", explanation.bytes());
    out.attribute("floor_us", rounded(explanation.floorUs()));
    out.attributeArray("kernels", [&] {
      for (const ExplainedKernel &kernel : explanation.kernels)
        kernelJson(out, kernel);
    });
  });
  return text + "\n";
}
