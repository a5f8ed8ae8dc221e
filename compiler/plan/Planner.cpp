//===- Planner.cpp - Chooses a plan -----------------------------------------===//
//
// Launches are planned one by one: their times add up, and what is known of one
// serves every plan that has it. For each, the legal
// combinations of its choices are enumerated, with the cheapest choices for its
// operations, and sorted by predicted time; the first whose shared memory fits
// when it is really built is taken. Which operations share a kernel and which
// kernels a launch is tried out: all in one, and ends of a kernel before what
// streams, as long as its launches can beat the best so far. A random plan draws instead. What a given plan
// fixes is the only value considered.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Planner.h"
#include "compiler/plan/Explain.h"
#include "compiler/plan/KernelSearch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

namespace {
class Planner {
public:
  Planner(GraphOp graph, const Machine &machine, const PlanOptions &options, int &exitCode)
      : graph(graph), hash(graphHash(graph)), machine(machine), options(options), exitCode(exitCode),
        random(options.randomSeed.value_or(0)) {}
  FailureOr<Plan> run();

private:
  LogicalResult checkGiven();
  SmallVector<int64_t> pinned();
  SmallVector<size_t> drawCuts(size_t numOps);
  std::vector<SmallVector<bool>> joins(ArrayRef<KernelShape> shapes);
  FailureOr<Plan> plan(ArrayRef<size_t> cuts);
  FailureOr<Plan> bestOf(ArrayRef<SmallVector<size_t>> tries);
  FailureOr<Plan> planFree();
  FailureOr<Plan> planCut();
  std::optional<Plan> search(const Fusion &fusion, ArrayRef<KernelShape> shapes, ArrayRef<bool> joined);
  /// A launch that was searched for, or may be.
  struct Launch {
    std::unique_ptr<KernelSearch> search;
    bool legal = false;
    Refusal why; ///< if not. What others were refused before they had a legal choice is no reason
  };
  /// Kernels behind the first are alike unless a given plan tells them apart.
  size_t indexThatMatters(size_t index) const { return options.given ? index : std::min<size_t>(index, 1); }
  Launch &launchOf(ArrayRef<KernelShape> shapes, size_t first, Place place);
  void enumerate(Launch &launch, ArrayRef<KernelShape> shapes, size_t first, Place place);
  void build(const Plan &plan, ArrayRef<Launch *> launches);
  Plan assemble(const Fusion &fusion, ArrayRef<Launch *> launches);

  GraphOp graph;
  std::string hash;
  const Machine &machine;
  const PlanOptions &options;
  int &exitCode;
  Random random;
  Refusal refusal;
  double bestUs = std::numeric_limits<double>::infinity(); ///< weighed time of the best plan found
  /// The operations of a launch's kernels, its place in a plan, and its first kernel's index as far
  /// as that matters.
  using LaunchKey = std::tuple<LaunchOps, Place, size_t>;
  std::map<LaunchKey, Launch> known;
  std::map<LaunchKey, KeptChoices> kept; ///< of single kernels; points into what is `known`
};
} // namespace

/// The given plan must be for this graph and name what it has.
LogicalResult Planner::checkGiven() {
  exitCode = kExitBadInput;
  const Plan &given = *options.given;
  if (given.graph != graph.getSymName() || (!given.hash.empty() && given.hash != hash))
    return emitError(given.locate(given.places.find("graph", ""), graph.getLoc()))
           << "the plan is for another graph: @" << given.graph
           << (given.hash.empty() ? "" : ", hash " + given.hash) << "; this is @" << graph.getSymName()
           << ", hash " << hash;
  std::vector<std::string> labels;
  for (Operation *op : kernelOps(graph))
    labels.push_back(opLabel(op));
  for (const OpPlan &op : given.ops) {
    if (llvm::is_contained(labels, op.label))
      continue;
    InFlightDiagnostic diag = emitError(given.locate(given.places.find(op.label, ""), graph.getLoc()))
                              << "the plan names an operation that the graph does not have: " << op.label;
    SmallVector<StringRef> known(labels.begin(), labels.end());
    if (StringRef near = nearestName(op.label, known); !near.empty())
      diag << "; did you mean " << near << "?";
    return diag;
  }
  return success();
}

/// The kernel of each operation that the given plan, or attn-fuse, fixes.
SmallVector<int64_t> Planner::pinned() {
  SmallVector<int64_t> kernels;
  for (Operation *op : kernelOps(graph)) {
    const OpPlan *given = options.given ? options.given->find(opLabel(op)) : nullptr;
    auto attached = op->getAttrOfType<IntegerAttr>(kKernelAttr);
    kernels.push_back(given && given->kernel >= 0 ? given->kernel : attached ? attached.getInt() : -1);
  }
  return kernels;
}

/// Half of the random plans fuse all that can be fused; the others cut once or twice.
SmallVector<size_t> Planner::drawCuts(size_t numOps) {
  SmallVector<size_t> cuts;
  for (uint64_t n = random.below(4); n > 1; --n)
    cuts.push_back(random.below(numOps));
  return cuts;
}

/// Which of a plan's kernels may be joined to the one before: what is given, else all ways of a few kernels.
std::vector<SmallVector<bool>> Planner::joins(ArrayRef<KernelShape> shapes) {
  bool severalTokens = llvm::any_of(shapes, [](const KernelShape &shape) { return shape.getTokens() > 1; });
  size_t numKernels = shapes.size();
  constexpr size_t kFree = 2;
  std::vector<SmallVector<bool>> all = {{false}};
  size_t open = 0;
  for (size_t i = 1; i < numKernels; ++i) {
    int64_t fixed =
        options.given && i < options.given->kernels.size() ? options.given->kernels[i].joined : -1;
    if (severalTokens && fixed < 0)
      fixed = 0;
    else if (options.randomSeed && fixed < 0)
      fixed = random.below(2);
    else if (fixed < 0 && ++open > kFree)
      fixed = 0;
    size_t before = all.size();
    for (size_t k = 0; k < before; ++k) {
      if (fixed < 0)
        all.push_back(all[k]), all.back().push_back(true);
      all[k].push_back(fixed > 0);
    }
  }
  return all;
}

Plan Planner::assemble(const Fusion &fusion, ArrayRef<Launch *> launches) {
  Plan plan;
  plan.graph = graph.getSymName().str();
  plan.hash = hash;
  SmallVector<const KernelChoice *> choices;
  for (const Launch *launch : launches) {
    for (const KernelChoice &choice : launch->search->current()) {
      plan.kernels.push_back(choice.kernel);
      choices.push_back(&choice);
    }
  }
  SmallVector<size_t> next(choices.size(), 0);
  for (auto [op, kernel] : llvm::zip_equal(kernelOps(graph), fusion.kernelOf)) {
    plan.ops.push_back({choices[kernel]->ops[next[kernel]++], opLabel(op), kernel});
  }
  return plan;
}

/// What is known of a launch so far.
Planner::Launch &Planner::launchOf(ArrayRef<KernelShape> shapes, size_t first, Place place) {
  LaunchOps ops;
  for (const KernelShape &shape : shapes)
    ops.emplace_back(shape.getOps());
  Launch &launch = known[{std::move(ops), place, indexThatMatters(first)}];
  if (options.randomSeed)
    launch = {};
  return launch;
}

/// Lists a launch's choices that may be worth it.
void Planner::enumerate(Launch &launch, ArrayRef<KernelShape> shapes, size_t first, Place place) {
  SmallVector<KeptChoices *> ofKernels;
  for (auto [i, shape] : llvm::enumerate(shapes)) {
    Place ofKernel = i + 1 < shapes.size() ? place.ofEarlierKernel() : place;
    ofKernels.push_back(
        &kept[{{SmallVector<Operation *>(shape.getOps())}, ofKernel, indexThatMatters(first + i)}]);
  }
  launch.search = std::make_unique<KernelSearch>(shapes, first, place, machine, options, ofKernels);
  // What is not all of a plan is one of two launches at least.
  double limit = place.alone ? worthUs(bestUs, shapes.size(), 1) : worthUs(bestUs, 2, 2);
  launch.legal = launch.search->enumerate(options.randomSeed ? &random : nullptr, limit, launch.why);
  if (options.effort)
    options.effort->weighed += launch.search->getWeighed();
}

/// Builds a plan's launches. Those that fit are settled, others move to their next choice.
void Planner::build(const Plan &plan, ArrayRef<Launch *> launches) {
  std::string why;
  SmallVector<int64_t> sizes(launches.size(), 0);
  if (options.sharedBytes)
    sizes = options.sharedBytes(graph, plan, why);
  if (options.effort)
    ++options.effort->built;
  for (auto [launch, size] : llvm::zip_equal(launches, sizes)) {
    KernelSearch &search = *launch->search;
    if (size >= 0 && size <= machine.sharedLimit(search.current().front().kernel.ctasPerSm)) {
      search.settle();
      continue;
    }
    if (size < 0)
      refusal.add(Refusal::Built, why);
    search.reject(size, refusal);
  }
}

/// The best plan of these kernels, joined so, if it is better than all before.
std::optional<Plan> Planner::search(const Fusion &fusion, ArrayRef<KernelShape> shapes,
                                    ArrayRef<bool> joined) {
  SmallVector<LaunchRange> ranges;
  for (size_t first = 0, end; first < shapes.size(); first = end) {
    for (end = first + 1; end < shapes.size() && joined[end];)
      ++end;
    ranges.push_back({first, end});
  }
  std::vector<KernelSizes> sizes(shapes.begin(), shapes.end());
  auto place = [&](size_t i) { return placeOf(ranges, i, sizes, machine, options.length); };
  SmallVector<Launch *> launches;
  for (auto [i, range] : llvm::enumerate(ranges))
    launches.push_back(&launchOf(shapes.slice(range.first, range.size()), range.first, place(i)));
  // The least that the plan may be weighed by, as far as one knows.
  auto least = [&] {
    double us = 0;
    for (auto [launch, range] : llvm::zip_equal(launches, ranges))
      us += !launch->search          ? leastUs(range.size(), machine)
            : launch->search->done() ? std::numeric_limits<double>::infinity()
                                     : launch->search->us();
    return weighedUs(us, shapes.size(), ranges.size());
  };
  for (auto [i, launch, range] : llvm::enumerate(launches, ranges)) {
    if (!(least() < bestUs))
      return std::nullopt;
    if (!launch->search)
      enumerate(*launch, shapes.slice(range.first, range.size()), range.first, place(i));
    if (launch->legal)
      continue;
    refusal.add(launch->why);
    return std::nullopt;
  }
  while (least() < bestUs) {
    Plan plan = assemble(fusion, launches);
    if (llvm::all_of(launches, [](const Launch *launch) { return launch->search->isSettled(); })) {
      bestUs = least();
      return plan;
    }
    build(plan, launches);
  }
  return std::nullopt;
}

FailureOr<Plan> Planner::plan(ArrayRef<size_t> cuts) {
  FailureOr<Fusion> fusion =
      fuse(graph, cuts, pinned(), &exitCode, options.given ? &*options.given : nullptr);
  if (failed(fusion))
    return failure();
  exitCode = kExitCannotRun;
  FailureOr<std::vector<KernelShape>> shapes = shapeKernels(graph, *fusion);
  if (failed(shapes))
    return failure();
  if (options.given && options.given->kernels.size() > shapes->size()) {
    exitCode = kExitBadInput;
    size_t last = options.given->kernels.size() - 1;
    std::optional<PlanPlace> place =
        options.given->places.find(llvm::formatv("kernel {0}", last).str(), /*key=*/"");
    return emitError(options.given->locate(place, graph.getLoc()))
           << "the plan describes kernel " << last << "; its operations are in " << shapes->size()
           << (shapes->size() == 1 ? " kernel" : " kernels");
  }
  Plan best; // without kernels: none is better than those before
  for (ArrayRef<bool> joined : joins(*shapes))
    if (std::optional<Plan> found = search(*fusion, *shapes, joined))
      best = std::move(*found);
  return best;
}

/// The best plan of several lists of cuts; without kernels where none is legal.
FailureOr<Plan> Planner::bestOf(ArrayRef<SmallVector<size_t>> tries) {
  Plan best;
  for (ArrayRef<size_t> cuts : tries) {
    FailureOr<Plan> found = plan(cuts);
    if (failed(found))
      return failure();
    if (!found->kernels.empty())
      best = std::move(*found);
  }
  return best;
}

/// The best of all in one kernel, or of kernels that end before one or two operations that stream.
FailureOr<Plan> Planner::planFree() {
  SmallVector<Operation *> ops = kernelOps(graph);
  std::vector<SmallVector<size_t>> tries = {{}};
  constexpr size_t kMost = 4; // in a larger graph there are too many
  SmallVector<size_t> ends;
  // By chunks of heads what comes between a linear and an attention goes with the attention; of several
  // tokens too: slices of the linear's kernel then need no whole heads.
  auto hasFewHeads = [&](Operation *op) {
    auto attention = dyn_cast<AttentionOp>(op);
    return attention && (attention.getQ().getType().getDimSize(0) > 1 ||
                         areFewHeads(attention.getCache().getType().getHeads(), machine));
  };
  for (size_t i = 1; i < ops.size(); ++i)
    if (isa<LinearOp, AttentionOp>(ops[i]) ||
        (isa<LinearOp>(ops[i - 1]) && llvm::any_of(llvm::drop_begin(ops, i), hasFewHeads)))
      ends.push_back(i - 1);
  for (size_t i = 0; ends.size() <= kMost && i < ends.size(); ++i) {
    tries.push_back({ends[i]});
    for (size_t j = i + 1; j < ends.size(); ++j)
      tries.push_back({ends[i], ends[j]});
  }
  return bestOf(tries);
}

/// Nothing legal with everything fused: the best plan with one more kernel, or one for each operation.
FailureOr<Plan> Planner::planCut() {
  size_t numOps = kernelOps(graph).size();
  SmallVector<size_t> all;
  std::vector<SmallVector<size_t>> tries;
  for (size_t cut = 0; cut + 1 < numOps; ++cut) {
    all.push_back(cut);
    tries.push_back({cut});
  }
  FailureOr<Plan> best = bestOf(tries);
  return succeeded(best) && best->kernels.empty() && numOps > 2 ? plan(all) : best;
}

FailureOr<Plan> Planner::run() {
  exitCode = kExitCannotRun;
  if (failed(checkLimits(graph)) || (options.given && failed(checkGiven())))
    return failure();
  size_t numOps = kernelOps(graph).size();
  bool isFree = !options.given && llvm::all_of(pinned(), [](int64_t kernel) { return kernel < 0; });
  // A random plan may draw cuts with which nothing is legal; it draws again.
  for (int attempt = 0; attempt < (options.randomSeed ? 20 : 1); ++attempt) {
    FailureOr<Plan> found = !isFree ? plan({}) : options.randomSeed ? plan(drawCuts(numOps)) : planFree();
    if (failed(found) || !found->kernels.empty())
      return found;
  }
  if (isFree) {
    FailureOr<Plan> found = planCut();
    if (failed(found) || !found->kernels.empty())
      return found;
  }
  exitCode = refusal.stage == Refusal::Names ? kExitBadInput : kExitCannotRun;
  Location where = options.given ? options.given->locate(refusal.place, graph.getLoc()) : graph.getLoc();
  return emitError(where) << "no plan for " << machine.name << ": " << refusal.text;
}

FailureOr<Plan> cfc::makePlan(GraphOp graph, const Machine &machine, const PlanOptions &options,
                              int &exitCode) {
  return Planner(graph, machine, options, exitCode).run();
}
