//===- KernelSearch.cpp - The legal choices for one kernel ------------------===//
#include "compiler/plan/KernelSearch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

/// Random plans are drawn from at most this many kernel choices, each with choices for its operations.
static constexpr size_t kDraws = 64;

KernelSearch::KernelSearch(const KernelShape &shape, size_t index, const Machine &machine,
                           const PlanOptions &options)
    : shape(&shape), sizes(shape), index(index), machine(&machine), options(&options) {
  if (options.given && index < options.given->kernels.size())
    given = options.given->kernels[index];
  for (Operation *op : shape.getOps())
    givenOps.push_back(options.given ? options.given->find(opLabel(op)) : nullptr);
}

//===-- What can be chosen --------------------------------------------------===//

static SmallVector<int64_t> only(int64_t given, ArrayRef<int64_t> all) {
  return given ? SmallVector<int64_t>{given} : SmallVector<int64_t>(all);
}

bool KernelSearch::findDomain(Domain &domain, Refusal &refusal) {
  bool streams = llvm::any_of(sizes.getOps(), [](const OpSizes &op) {
    return op.kind == OpSizes::Linear || op.kind == OpSizes::Attention;
  });
  using List = ArrayRef<int64_t>;
  domain.parts = only(given.part, shape->hasItems() ? List{1, 2, 4, 8, 16} : List{1});
  domain.warps = only(given.warps, {4, 8, 16});
  // How many clusters fit at three CTAs an SM is assumed, not measured, and such plans took up to 17 % more
  // than predicted: they are drawn and can be given, but not chosen.
  domain.ctas = only(given.ctasPerSm, options->randomSeed ? List{1, 2, 3} : List{1, 2});
  domain.pdl = given.pdl >= 0 ? SmallVector<int64_t>{given.pdl} : SmallVector<int64_t>{0, 1};
  domain.weights = given.weights != Layout::Unset ? given.weights : options->weights;
  domain.stages = only(given.ringStages, streams ? List{2, 3, 4, 5, 6, 8, 10, 12, 16} : List{4});
  domain.columns = only(given.tileColumns, streams ? List{64, 128, 256, 512, 1024} : List{128});
  if (shape->getHeads() || !shape->hasItems()) {
    domain.rows = {0};
  } else {
    SmallVector<int64_t> rows;
    for (int64_t n = shape->getGranule(); n <= 16 * shape->getGranule(); n *= 2)
      rows.push_back(n);
    domain.rows = only(given.rowsPerItem, rows);
  }
  // What a given plan does not limit has no limit; else it may be half of the heads at a time.
  domain.clusters = {given.clusters};
  if (!(given == KernelPlan()) || shape->getHeads() < 2)
    return checkNames(refusal) && checkValues(domain, refusal);
  domain.clusters.push_back(llvm::divideCeil(shape->getHeads(), 2));
  return checkNames(refusal) && checkValues(domain, refusal);
}

/// Choices that are given but do not arise.
bool KernelSearch::checkNames(Refusal &refusal) {
  if (given.rowsPerItem && (shape->getHeads() || !shape->hasItems())) {
    refusal.add(Refusal::Names, llvm::formatv("kernel {0} has no choice 'rows_per_item'; its items are {1}",
                                              index, shape->getHeads() ? "heads" : "none"));
    return false;
  }
  for (auto [op, plan] : llvm::zip_equal(sizes.getOps(), givenOps)) {
    if (!plan)
      continue;
    Split split = plan->split != Split::Unset ? plan->split : Split::Rows;
    bool anyReduce =
        sizes.hasReduce(op, split) || (plan->split == Split::Unset && sizes.hasReduce(op, Split::Columns));
    StringRef wrong = plan->split != Split::Unset && !sizes.hasSplit(op)               ? "split"
                      : plan->gather != Exchange::Unset && !sizes.hasGather(op, split) ? "gather"
                      : plan->reduce != Exchange::Unset && !anyReduce                  ? "reduce"
                      : plan->finish != Exchange::Unset && !sizes.hasFinish(op)        ? "finish"
                                                                                       : "";
    if (wrong.empty())
      continue;
    refusal.add(Refusal::Names,
                llvm::formatv("{0} has no choice '{1}'{2}", plan->label, wrong,
                              plan->split == Split::Columns ? " where its columns are split" : ""));
    return false;
  }
  return true;
}

/// Values that no kernel can have.
bool KernelSearch::checkValues(const Domain &domain, Refusal &refusal) {
  auto refuse = [&](StringRef key, int64_t value, const Twine &possible) {
    refusal.add(Refusal::Values,
                llvm::formatv("kernel {0} has {1} = {2}; {3}", index, key, value, possible.str()));
    return false;
  };
  if (int64_t n = domain.parts[0]; !llvm::isPowerOf2_64(n) || n > 16)
    return refuse("part", n, "clusters of 1, 2, 4, 8 and 16 CTAs are possible");
  if (int64_t n = domain.warps[0]; n != 4 && n != 8 && n != 16)
    return refuse("warps", n, "4, 8 and 16 are possible");
  if (int64_t n = domain.stages[0]; n < 2 || n > 64)
    return refuse("ring_stages", n, "2 to 64 are possible");
  if (int64_t n = domain.columns[0]; n % 16 || n > 4096)
    return refuse("tile_columns", n, "multiples of 16 up to 4096 are possible");
  if (int64_t n = domain.pdl[0]; n > 1)
    return refuse("pdl", n, "0 and 1 are possible");
  if (int64_t n = domain.rows[0]; n % shape->getGranule())
    return refuse("rows_per_item", n, "multiples of " + Twine(shape->getGranule()) + " are possible");
  return checkAtomic(refusal);
}

bool KernelSearch::checkAtomic(Refusal &refusal) {
  for (const OpPlan *plan : givenOps)
    if (plan && plan->finish == Exchange::Atomic && options->deterministic) {
      refusal.add(Refusal::Values, plan->label +
                                       " has finish = atomic, whose bits differ from run to run; ordered is "
                                       "possible, or give --no-deterministic");
      return false;
    }
  return true;
}

//===-- Choices of operations -----------------------------------------------===//

SmallVector<Split> KernelSearch::splitsOf(const OpSizes &op, const OpPlan *fixed) const {
  if (!sizes.hasSplit(op))
    return {Split::Unset};
  if (fixed && fixed->split != Split::Unset)
    return {fixed->split};
  if (!op.gathered || (fixed && fixed->gather != Exchange::Unset))
    return {Split::Rows};
  if (fixed && fixed->reduce != Exchange::Unset)
    return {Split::Columns};
  return {Split::Rows, Split::Columns};
}

static SmallVector<Exchange> algorithms(bool arises, Exchange given, bool ofSums = false) {
  if (!arises)
    return {Exchange::Unset};
  if (given != Exchange::Unset)
    return {given};
  SmallVector<Exchange> all = {Exchange::Push, Exchange::Butterfly, Exchange::Bulk, Exchange::Async};
  if (ofSums)
    all.push_back(Exchange::Scatter);
  return all;
}

/// Lists an operation's choices; `why` is the reason against the first that is not legal.
void KernelSearch::addOptions(OpOptions &to, const KernelPlan &kernel, const OpSizes &op,
                              std::string &why) const {
  const OpPlan *fixed = givenOps[&op - sizes.getOps().begin()];
  OpPlan plan;
  plan.kernel = index;
  SmallVector<Exchange> finishes = {Exchange::Unset};
  if (sizes.hasFinish(op))
    finishes = {Exchange::Ordered, Exchange::Atomic};
  if (options->deterministic && finishes.size() > 1)
    finishes.pop_back();
  if (fixed && fixed->finish != Exchange::Unset)
    finishes = {fixed->finish};
  auto given = [&](Exchange OpPlan::*key) { return fixed ? fixed->*key : Exchange::Unset; };
  for (Split split : splitsOf(op, fixed))
    for (Exchange finish : finishes) {
      size_t first = to.all.size();
      for (Exchange gather : algorithms(sizes.hasGather(op, split), given(&OpPlan::gather)))
        for (Exchange reduce :
             algorithms(sizes.hasReduce(op, split), given(&OpPlan::reduce), op.kind == OpSizes::Linear)) {
          plan.split = split, plan.gather = gather, plan.reduce = reduce, plan.finish = finish;
          std::string against = sizes.checkSplit(kernel, op, plan);
          if (why.empty())
            why = against;
          if (against.empty())
            to.all.push_back(plan);
        }
      addBest(to, kernel, op, first);
    }
}

/// Of the choices from `first` on those than which none is both quicker and smaller.
void KernelSearch::addBest(OpOptions &to, const KernelPlan &kernel, const OpSizes &op, size_t first) const {
  struct Option {
    double us;
    int64_t bytes;
    const OpPlan *plan;
  };
  SmallVector<Option> options;
  for (const OpPlan &plan : llvm::drop_begin(to.all, first))
    options.push_back(
        {exchangeUs(sizes, *machine, kernel, op, plan), sizes.sharedOf(kernel, op, plan), &plan});
  llvm::stable_sort(options, [](const Option &a, const Option &b) { return a.us < b.us; });
  int64_t least = INT64_MAX;
  for (const Option &option : options)
    if (option.bytes < least) {
      least = option.bytes;
      to.best.push_back(*option.plan);
    }
}

const std::vector<OpOptions> *KernelSearch::optionsOf(const KernelPlan &kernel, Refusal &refusal) {
  auto [found, isNew] = known.try_emplace({kernel.part, kernel.rowsPerItem});
  std::vector<OpOptions> &list = found->second;
  for (const OpSizes &op : sizes.getOps()) {
    if (!isNew)
      break;
    std::string why;
    addOptions(list.emplace_back(), kernel, op, why);
    if (!list.back().all.empty())
      continue;
    refusal.add(Refusal::Splits, why);
    list.clear();
    break;
  }
  return list.empty() ? nullptr : &list;
}

bool KernelSearch::checkResidency(const KernelPlan &kernel, Refusal &refusal) const {
  if (machine->resident(kernel.part, kernel.ctasPerSm) < 1) {
    std::string limit = machine->smsLimit ? llvm::formatv(" with {0} SMs", machine->usableSms()).str() : "";
    refusal.add(Refusal::Cluster,
                llvm::formatv("kernel {0} needs clusters of part = {1} CTAs at ctas_per_sm = {2}; none is "
                              "resident on {3}{4}, smaller ones are",
                              index, kernel.part, kernel.ctasPerSm, machine->name, limit));
    return false;
  }
  constexpr int64_t kLeastRegisters = 96; // a thread with fewer would spill
  if ((kernel.warps + 1) * 32 * kernel.ctasPerSm * kLeastRegisters <= machine->registersPerSm)
    return true;
  refusal.add(
      Refusal::Cluster,
      llvm::formatv("kernel {0} has warps = {1} at ctas_per_sm = {2}: fewer than {3} registers a thread",
                    index, kernel.warps, kernel.ctasPerSm, kLeastRegisters));
  return false;
}

/// Each set of consumer warps has ring stages of its own.
bool KernelSearch::checkRing(const KernelPlan &kernel, Refusal &refusal) const {
  int64_t sets = setsOf(kernel);
  if (kernel.ringStages % sets == 0 && kernel.ringStages >= 2 * sets)
    return true;
  refusal.add(
      Refusal::Splits,
      llvm::formatv("kernel {0} has ring_stages = {1} with warps = {2}; multiples of {3} from {4} are "
                    "possible",
                    index, kernel.ringStages, kernel.warps, sets, 2 * sets));
  return false;
}

void KernelSearch::addCandidate(const KernelChoice &choice, Refusal &refusal) {
  Candidate candidate{choice, predict(sizes, choice, *machine, options->length).us,
                      sizes.estimateShared(choice)};
  // Estimates are off by a little: what they refuse by more than 1/4 is out of reach.
  if (fits(candidate, -candidate.shared / 4, refusal))
    candidates.push_back(std::move(candidate));
}

/// The choices for all operations behind those that `choice` has. Of many linears only the quickest choice of
/// each is taken but for the first few.
void KernelSearch::addCombinations(KernelChoice &choice, ArrayRef<OpOptions> options, Refusal &refusal) {
  constexpr size_t kFree = 6; // operations whose choices are combined, from the last one on
  size_t at = choice.ops.size();
  if (at == options.size())
    return addCandidate(choice, refusal);
  for (const OpPlan &plan : ArrayRef(options[at].best).take_front(at + kFree < options.size() ? 1 : 8)) {
    choice.ops.push_back(plan);
    addCombinations(choice, options, refusal);
    choice.ops.pop_back();
  }
}

/// Lists a kernel's choice with its operations' choices: all that are worth weighing, or one that is drawn.
void KernelSearch::addCandidates(const KernelPlan &kernel, Random *random, Refusal &refusal) {
  if (!checkResidency(kernel, refusal) || !checkRing(kernel, refusal))
    return;
  const std::vector<OpOptions> *options = optionsOf(kernel, refusal);
  if (!options)
    return;
  KernelChoice choice{kernel, {}};
  if (!random)
    return addCombinations(choice, *options, refusal);
  for (const OpOptions &op : *options)
    choice.ops.push_back(op.all[random->below(op.all.size())]);
  addCandidate(choice, refusal);
}

//===-- The search ------------------------------------------------------------===//

std::string KernelSearch::needs(int64_t bytes, int64_t ctasPerSm) const {
  return llvm::formatv(
      "kernel {0} needs {1} bytes of shared memory a CTA; {2} are the limit with ctas_per_sm = {3}", index,
      bytes, machine->sharedLimit(ctasPerSm), ctasPerSm);
}

bool KernelSearch::fits(const Candidate &candidate, int64_t extra, Refusal &refusal) const {
  int64_t ctas = candidate.choice.kernel.ctasPerSm;
  if (candidate.shared + extra <= machine->sharedLimit(ctas))
    return true;
  refusal.add(Refusal::Shared, needs(candidate.shared, ctas), candidate.shared);
  return false;
}

bool KernelSearch::enumerate(Random *random, Refusal &refusal) {
  Domain domain;
  if (!findDomain(domain, refusal))
    return false;
  auto tryOne = [&](const KernelPlan &kernel) { addCandidates(kernel, random, refusal); };
  if (random) {
    auto draw = [&](ArrayRef<int64_t> from) { return from[random->below(from.size())]; };
    for (size_t tries = 0; tries < 32 * kDraws && candidates.size() < kDraws; ++tries)
      tryOne({draw(domain.parts), draw(domain.warps), draw(domain.ctas), draw(domain.stages),
              draw(domain.columns), draw(domain.rows), draw(domain.clusters), draw(domain.pdl),
              domain.weights});
    return !candidates.empty();
  }
  for (int64_t part : domain.parts)
    for (int64_t warps : domain.warps)
      for (int64_t ctas : domain.ctas)
        for (int64_t rows : domain.rows)
          for (int64_t columns : domain.columns)
            for (int64_t stages : domain.stages)
              for (int64_t clusters : domain.clusters)
                for (int64_t pdl : domain.pdl)
                  tryOne({part, warps, ctas, stages, columns, rows, clusters, pdl, domain.weights});
  llvm::stable_sort(candidates, [](const Candidate &a, const Candidate &b) { return a.us < b.us; });
  return !candidates.empty();
}

/// What decides about shared memory beside the ring's stages, whose size is known.
std::string KernelSearch::memoryKey(const KernelChoice &choice) {
  const KernelPlan &k = choice.kernel;
  std::string key;
  llvm::raw_string_ostream out(key);
  out << k.part << " " << k.warps << " " << k.tileColumns << " " << k.rowsPerItem;
  for (const OpPlan &op : choice.ops)
    out << " " << int(op.split) << int(op.gather) << int(op.reduce) << int(op.finish);
  return key;
}

void KernelSearch::reject(int64_t bytes, Refusal &refusal) {
  if (bytes >= 0) {
    refusal.add(Refusal::Shared, needs(bytes, current().kernel.ctasPerSm), bytes);
    lacking[memoryKey(current())] = bytes - candidates[at].shared;
  }
  // Others of a kind that was built once need not be built to know that they do not fit.
  auto failsAlike = [&] {
    auto known = lacking.find(memoryKey(current()));
    return known != lacking.end() &&
           candidates[at].shared + known->second > machine->sharedLimit(current().kernel.ctasPerSm);
  };
  do
    ++at;
  while (!done() && failsAlike());
}
