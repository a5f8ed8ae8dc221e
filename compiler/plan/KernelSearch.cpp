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
    : shape(&shape), index(index), machine(&machine), options(&options) {
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
  bool streams = llvm::any_of(shape->getOps(), [](Operation *op) { return isa<LinearOp, AttentionOp>(op); });
  domain.parts =
      only(given.part, shape->hasItems() ? ArrayRef<int64_t>{1, 2, 4, 8, 16} : ArrayRef<int64_t>{1});
  domain.warps = only(given.warps, {4, 8});
  domain.ctas = only(given.ctasPerSm, {1, 2, 3});
  domain.pdl = given.pdl >= 0 ? SmallVector<int64_t>{given.pdl} : SmallVector<int64_t>{0, 1};
  domain.weights = given.weights != Layout::Unset ? given.weights : options->weights;
  domain.stages =
      only(given.ringStages, streams ? ArrayRef<int64_t>{2, 3, 4, 5, 6, 8, 10, 12} : ArrayRef<int64_t>{4});
  domain.columns =
      only(given.tileColumns, streams ? ArrayRef<int64_t>{64, 128, 256, 512, 1024} : ArrayRef<int64_t>{128});
  if (shape->getHeads() || !shape->hasItems()) {
    domain.rows = {0};
  } else {
    SmallVector<int64_t> rows;
    for (int64_t n = shape->getGranule(); n <= 16 * shape->getGranule(); n *= 2)
      rows.push_back(n);
    domain.rows = only(given.rowsPerItem, rows);
  }
  return checkNames(refusal) && checkValues(domain, refusal);
}

/// Choices that are given but do not arise.
bool KernelSearch::checkNames(Refusal &refusal) {
  if (given.rowsPerItem && (shape->getHeads() || !shape->hasItems())) {
    refusal.add(Refusal::Names, llvm::formatv("kernel {0} has no choice 'rows_per_item'; its items are {1}",
                                              index, shape->getHeads() ? "heads" : "none"));
    return false;
  }
  for (auto [op, plan] : llvm::zip_equal(shape->getOps(), givenOps)) {
    if (!plan)
      continue;
    Split split = plan->split != Split::Unset ? plan->split : Split::Rows;
    bool anyReduce = hasReduce(*shape, op, split) ||
                     (plan->split == Split::Unset && hasReduce(*shape, op, Split::Columns));
    StringRef wrong = plan->split != Split::Unset && !hasSplit(*shape, op)               ? "split"
                      : plan->gather != Exchange::Unset && !hasGather(*shape, op, split) ? "gather"
                      : plan->reduce != Exchange::Unset && !anyReduce                    ? "reduce"
                      : plan->finish != Exchange::Unset && !hasFinish(*shape, op)        ? "finish"
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
  if (int64_t n = domain.warps[0]; n != 4 && n != 8)
    return refuse("warps", n, "4 and 8 are possible");
  if (int64_t n = domain.stages[0]; n < 2 || n > 64)
    return refuse("ring_stages", n, "2 to 64 are possible");
  if (int64_t n = domain.columns[0]; n % 16 || n > 4096)
    return refuse("tile_columns", n, "multiples of 16 up to 4096 are possible");
  if (int64_t n = domain.pdl[0]; n > 1)
    return refuse("pdl", n, "0 and 1 are possible");
  if (int64_t n = domain.rows[0]; n % shape->getGranule())
    return refuse("rows_per_item", n, "multiples of " + Twine(shape->getGranule()) + " are possible");
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

bool KernelSearch::optionsOf(Operation *op, const KernelPlan &kernel, SmallVectorImpl<OpPlan> &list,
                             Refusal &refusal) const {
  const OpPlan *fixed = givenOps[llvm::find(shape->getOps(), op) - shape->getOps().begin()];
  OpPlan plan;
  plan.kernel = index;
  auto algorithms = [&](bool arises, Exchange chosen, bool sums = false) -> SmallVector<Exchange> {
    if (!arises)
      return {Exchange::Unset};
    if (chosen != Exchange::Unset)
      return {chosen};
    SmallVector<Exchange> all = {Exchange::Push, Exchange::Butterfly, Exchange::Bulk, Exchange::Async};
    if (sums)
      all.push_back(Exchange::Scatter);
    return all;
  };
  SmallVector<Split> splits = {Split::Unset};
  if (hasSplit(*shape, op)) {
    bool gathered = shape->isGathered(cast<LinearOp>(op));
    splits = gathered ? SmallVector<Split>{Split::Rows, Split::Columns} : SmallVector<Split>{Split::Rows};
    if (fixed && fixed->split != Split::Unset)
      splits = {fixed->split};
    else if (fixed && fixed->gather != Exchange::Unset)
      splits = {Split::Rows};
    else if (fixed && fixed->reduce != Exchange::Unset)
      splits = {Split::Columns};
  }
  SmallVector<Exchange> finishes = {Exchange::Unset};
  if (hasFinish(*shape, op))
    finishes = {Exchange::Ordered, Exchange::Atomic};
  if (options->deterministic && finishes.size() > 1)
    finishes.pop_back();
  if (fixed && fixed->finish != Exchange::Unset)
    finishes = {fixed->finish};
  std::string first; // reason against the first choice
  for (Split split : splits)
    for (Exchange gather : algorithms(hasGather(*shape, op, split), fixed ? fixed->gather : Exchange::Unset))
      for (Exchange reduce : algorithms(hasReduce(*shape, op, split), fixed ? fixed->reduce : Exchange::Unset,
                                        isa<LinearOp>(op)))
        for (Exchange finish : finishes) {
          plan.split = split, plan.gather = gather, plan.reduce = reduce, plan.finish = finish;
          std::string why = checkSplit(*shape, kernel, op, plan);
          if (why.empty())
            list.push_back(plan);
          else if (first.empty())
            first = why;
        }
  if (list.empty())
    refusal.add(Refusal::Splits, first);
  return !list.empty();
}

/// A kernel's choice with its operations' choices: the cheapest, or drawn.
std::optional<KernelSearch::Candidate> KernelSearch::complete(const KernelPlan &kernel, Random *random,
                                                              Refusal &refusal) const {
  if (machine->resident(kernel.part, kernel.ctasPerSm) < 1) {
    refusal.add(Refusal::Cluster,
                llvm::formatv(
                    "kernel {0} needs clusters of part = {1} CTAs at ctas_per_sm = {2}; none is resident on "
                    "{3}, smaller ones are",
                    index, kernel.part, kernel.ctasPerSm, machine->name));
    return std::nullopt;
  }
  Candidate candidate;
  candidate.choice.kernel = kernel;
  SmallVector<SmallVector<OpPlan>> lists;
  for (Operation *op : shape->getOps()) {
    if (!optionsOf(op, kernel, lists.emplace_back(), refusal))
      return std::nullopt;
    candidate.choice.ops.push_back(lists.back()[random ? random->below(lists.back().size()) : 0]);
  }
  auto predicted = [&] { return predict(*shape, candidate.choice, *machine, options->length).us; };
  candidate.us = predicted();
  for (auto [list, chosen] : llvm::zip_equal(lists, candidate.choice.ops)) {
    if (random)
      break;
    for (const OpPlan &option : llvm::drop_begin(list)) {
      OpPlan before = std::exchange(chosen, option);
      if (double us = predicted(); us < candidate.us)
        candidate.us = us;
      else
        chosen = before;
    }
  }
  candidate.shared = estimateShared(*shape, candidate.choice);
  return candidate;
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
  auto tryOne = [&](const KernelPlan &kernel) {
    // Estimates are low by a little: what they refuse by more than 1/4 is out of reach.
    if (std::optional<Candidate> candidate = complete(kernel, random, refusal);
        candidate && fits(*candidate, -candidate->shared / 4, refusal))
      candidates.push_back(std::move(*candidate));
  };
  if (random) {
    auto draw = [&](ArrayRef<int64_t> from) { return from[random->below(from.size())]; };
    for (size_t tries = 0; tries < 32 * kDraws && candidates.size() < kDraws; ++tries)
      tryOne({draw(domain.parts), draw(domain.warps), draw(domain.ctas), draw(domain.stages),
              draw(domain.columns), draw(domain.rows), draw(domain.pdl), domain.weights});
    return !candidates.empty();
  }
  for (int64_t part : domain.parts)
    for (int64_t warps : domain.warps)
      for (int64_t ctas : domain.ctas)
        for (int64_t rows : domain.rows)
          for (int64_t columns : domain.columns)
            for (int64_t stages : domain.stages)
              for (int64_t pdl : domain.pdl)
                tryOne({part, warps, ctas, stages, columns, rows, pdl, domain.weights});
  llvm::stable_sort(candidates, [](const Candidate &a, const Candidate &b) { return a.us < b.us; });
  return !candidates.empty();
}

void KernelSearch::reject(int64_t bytes, Refusal &refusal) {
  if (bytes >= 0) {
    refusal.add(Refusal::Shared, needs(bytes, current().kernel.ctasPerSm), bytes);
    slack = std::max(slack, bytes - candidates[at].shared);
  }
  do
    ++at;
  while (!done() && slack &&
         candidates[at].shared + slack > machine->sharedLimit(current().kernel.ctasPerSm));
}
