//===- KernelSearchOps.cpp - Choices of a kernel's operations ------------------===//
//
// For a kernel's own keys: how each operation can be spread over the cluster.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/KernelSearch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

SmallVector<Split> KernelSearch::splitsOf(const KernelPlan &kernel, const OpSizes &op, const OpPlan *fixed,
                                          const Member &member) const {
  if (!member.sizes.hasSplit(op))
    return {Split::Unset};
  if (fixed && fixed->split != Split::Unset)
    return {fixed->split};
  const KernelShape &shape = member.shape();
  bool free = op.gathered || shape.isOfTokens() || (!shape.getHeads() && kernel.part > 1);
  if (!free || (fixed && fixed->gather != Exchange::Unset))
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
                              const Member &member, std::string &why) const {
  const KernelSizes &sizes = member.sizes;
  const OpPlan *fixed = member.givenOps[&op - sizes.getOps().begin()];
  OpChoice plan;
  SmallVector<Exchange> finishes = {Exchange::Unset};
  if (op.finishes)
    finishes = {Exchange::Ordered, Exchange::Waiting, Exchange::Atomic};
  if (options->deterministic && finishes.size() > 1)
    finishes.pop_back();
  if (op.mergedByReader && chunksOf(kernel) > 1)
    finishes = {Exchange::Reader, Exchange::Ordered};
  int64_t items = itemsOf(member.shape(), kernel);
  bool canWait = llvm::all_of(
      op.widths, [&](int64_t width) { return finishers(width, items, kernel, Exchange::Waiting) > 0; });
  if (!canWait)
    llvm::erase(finishes, Exchange::Waiting);
  bool given = fixed && fixed->finish != Exchange::Unset;
  if (given && op.kind == OpSizes::Attention && finishes.front() == Exchange::Unset) {
    why = llvm::formatv("{0} has finish = {1}, which is of chunks of heads: give its kernel 2 to 16 chunks",
                        fixed->label, stringify(fixed->finish));
    return;
  }
  if (given)
    finishes = {fixed->finish};
  if (finishes.front() == Exchange::Waiting && !canWait) {
    why = llvm::formatv("{0} has finish = waiting, whose rows must be a multiple of 4 times part = {1}; "
                        "ordered is possible",
                        fixed->label, kernel.part);
    return;
  }
  std::optional<Exchange> slower; // of two who can merge chunks, the one that is not worth weighing
  if (op.mergedByReader && finishes.size() == 2) {
    int64_t heads = member.shape().getHeads();
    bool reader = chunksMergedUs(*machine, kernel, op, heads, Exchange::Reader) <=
                  chunksMergedUs(*machine, kernel, op, heads, Exchange::Ordered);
    slower = reader ? Exchange::Ordered : Exchange::Reader;
  }
  auto fixedTo = [&](Exchange OpChoice::*key) { return fixed ? fixed->*key : Exchange::Unset; };
  for (Split split : splitsOf(kernel, op, fixed, member)) {
    size_t begin = to.all.size(), best = to.best.size();
    for (Exchange finish : finishes) {
      size_t first = to.all.size();
      for (Exchange gather : algorithms(sizes.hasGather(op, split), fixedTo(&OpChoice::gather)))
        for (Exchange reduce :
             algorithms(sizes.hasReduce(op, split), fixedTo(&OpChoice::reduce), op.kind == OpSizes::Linear)) {
          plan.split = split, plan.gather = gather, plan.reduce = reduce, plan.finish = finish;
          std::string against = sizes.checkSplit(kernel, op, plan);
          if (why.empty())
            why = against;
          if (against.empty())
            to.all.push_back(plan);
        }
      if (finish != slower)
        addBest(to, kernel, op, member, first);
    }
    if (to.best.size() == best && to.all.size() > begin) // the quicker one is not legal
      addBest(to, kernel, op, member, begin);
  }
}

/// Of the choices from `first` on those than which none is both quicker and smaller.
void KernelSearch::addBest(OpOptions &to, const KernelPlan &kernel, const OpSizes &op, const Member &member,
                           size_t first) const {
  const KernelSizes &sizes = member.sizes;
  struct Option {
    double us;
    int64_t bytes;
    const OpChoice *plan;
  };
  SmallVector<Option> options;
  for (const OpChoice &plan : llvm::drop_begin(to.all, first))
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

/// The choices for all operations behind those that `ops` has. Of many linears only the quickest choice of
/// each is taken but for the first few.
void KernelSearch::addCombinations(const Member &member, const KernelPlan &kernel,
                                   SmallVector<OpChoice, 8> &ops, WorkOptions &to) const {
  constexpr size_t kFree = 6; // operations whose choices are combined, from the last one on
  constexpr size_t kChoices = 8;
  size_t at = ops.size(), all = to.ops.size();
  if (at == all) {
    to.best.push_back({ops, stuckOf(member, kernel, ops)});
    return;
  }
  for (const OpChoice &choice : ArrayRef(to.ops[at].best).take_front(at + kFree < all ? 1 : kChoices)) {
    ops.push_back(choice);
    addCombinations(member, kernel, ops, to);
    ops.pop_back();
  }
}

Operation *KernelSearch::stuckOf(const Member &member, const KernelPlan &kernel,
                                 ArrayRef<OpChoice> ops) const {
  for (auto [op, choice] : llvm::zip_equal(member.sizes.getOps(), ops))
    if (!member.sizes.canStream(kernel, op, choice))
      return op.op;
  return nullptr;
}

const WorkOptions *KernelSearch::optionsOf(Member &member, const KernelPlan &kernel, Refusal &refusal) {
  auto [found, isNew] = member.known.try_emplace(
      {kernel.part, kernel.rowsPerItem, kernel.stacked, kernel.chunks, kernel.tokenGroups});
  WorkOptions &known = found->second;
  for (const OpSizes &op : member.sizes.getOps()) {
    if (!isNew)
      break;
    std::string why;
    addOptions(known.ops.emplace_back(), kernel, op, member, why);
    if (!known.ops.back().all.empty())
      continue;
    refusal.add(Refusal::Splits, why, placeOf(member, ""));
    known.ops.clear();
    break;
  }
  SmallVector<OpChoice, 8> none;
  if (isNew && !known.ops.empty() && !options->randomSeed)
    addCombinations(member, kernel, none, known);
  return known.ops.empty() ? nullptr : &known;
}

/// Whether a launch of several requests' heads would leave a quarter of the SMs idle, though there are heads
/// enough: 64 CTAs for 8 requests of 8 heads took 110 us where 132 took 90, and are predicted alike.
bool KernelSearch::leavesSmsIdle(const KernelChoice &choice) const {
  const KernelShape &shape = members.front().shape();
  int64_t sms = machine->usableSms(), ctas = clustersOf(shape, choice.kernel, *machine) * choice.kernel.part;
  bool isOpen = !given.part && !given.chunks && !given.clusters;
  return isOpen && shape.getRequests() > 1 && shape.getHeadItems() * 4 >= sms && ctas * 4 < sms * 3;
}
