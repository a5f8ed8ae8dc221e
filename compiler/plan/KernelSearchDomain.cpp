//===- KernelSearchDomain.cpp - What a launch's kernels may be -----------------===//
//
// The values that each key may have, and the reasons against those that a given
// plan has but no kernel can.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/KernelSearch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

static SmallVector<int64_t> only(int64_t given, ArrayRef<int64_t> all) {
  return given ? SmallVector<int64_t>{given} : SmallVector<int64_t>(all);
}

//===-- Places in the given plan ------------------------------------------------===//

/// Of what it says of a kernel, if it does.
std::optional<PlanPlace> KernelSearch::placeOf(const Member &member, StringRef key) const {
  if (!options->given)
    return std::nullopt;
  return options->given->places.find(llvm::formatv("kernel {0}", member.index).str(), key);
}

/// Of what it says of the launch's kernels together.
std::optional<PlanPlace> KernelSearch::placeOf(StringRef key) const {
  for (const Member &member : members)
    if (std::optional<PlanPlace> place = placeOf(member, key))
      return place;
  return std::nullopt;
}

std::optional<PlanPlace> KernelSearch::placeOf(const OpPlan &op, StringRef key) const {
  return options->given->places.find(op.label, key);
}

//===-- Domain --------------------------------------------------------------------===//

/// Kernels of a launch run in the same CTAs.
bool KernelSearch::mergeGiven(Refusal &refusal) {
  struct Shared {
    StringRef name;
    int64_t KernelPlan::*key;
    int64_t unset;
  };
  static const Shared keys[] = {{"part", &KernelPlan::part, 0},
                                {"warps", &KernelPlan::warps, 0},
                                {"ctas_per_sm", &KernelPlan::ctasPerSm, 0},
                                {"ring_stages", &KernelPlan::ringStages, 0},
                                {"tile_columns", &KernelPlan::tileColumns, 0},
                                {"clusters", &KernelPlan::clusters, 0},
                                {"token_groups", &KernelPlan::tokenGroups, 0},
                                {"in_flight", &KernelPlan::inFlight, -1},
                                {"prefetch", &KernelPlan::prefetch, -1},
                                {"prefetch_later", &KernelPlan::prefetchLater, -1},
                                {"held", &KernelPlan::held, -1},
                                {"pdl", &KernelPlan::pdl, -1}};
  given = KernelPlan();
  for (const Member &member : members) {
    for (const Shared &s : keys) {
      int64_t here = member.given.*s.key, &all = given.*s.key;
      if (here != s.unset && all != s.unset && here != all) {
        refusal.add(
            Refusal::Names,
            llvm::formatv("kernel {0} has {1} = {2}, but is joined to kernel {3}, which has {1} = {4}",
                          member.index, s.name, here, index(), all),
            placeOf(member, s.name));
        return false;
      }
      all = here != s.unset ? here : all;
    }
    Layout weights = member.given.weights;
    if (weights != Layout::Unset && given.weights != Layout::Unset && weights != given.weights) {
      refusal.add(Refusal::Names,
                  llvm::formatv("kernel {0} has weights = {1}, but is joined to kernel {2}", member.index,
                                stringify(weights), index()),
                  placeOf(member, "weights"));
      return false;
    }
    given.weights = weights != Layout::Unset ? weights : given.weights;
  }
  return true;
}

/// The cache before all appends.
static Value givenCache(Value cache) {
  while (auto append = cache.getDefiningOp<attn::KvAppendOp>())
    cache = append.getCache();
  return cache;
}

/// Whether the launch may take cached tokens before the kernel before it has ended: it has an attention, and
/// no other launch appends to such a cache (as kernel-assign-storage checks).
bool KernelSearch::readsCacheAhead() const {
  if (index() == 0)
    return false;
  SmallPtrSet<Operation *, 8> ours;
  SmallPtrSet<Value, 2> caches;
  for (const Member &member : members)
    for (Operation *op : member.shape().getOps()) {
      ours.insert(op);
      if (auto attention = dyn_cast<attn::AttentionOp>(op))
        caches.insert(givenCache(attention.getCache()));
    }
  auto appendsToThem = [&](Operation &op) {
    auto append = dyn_cast<attn::KvAppendOp>(op);
    return append && !ours.contains(append) && caches.contains(givenCache(append.getCache()));
  };
  return !caches.empty() && llvm::none_of(*(*ours.begin())->getBlock(), appendsToThem);
}

/// Whether the launch may start when the kernel before it has waited for all others. That one may still run:
/// nothing that this one reads early may be its work.
bool KernelSearch::canStartBehindWait() const {
  bool attends = llvm::any_of(members, [](const Member &member) { return member.sizes.attends(); });
  return attends ? readsCacheAhead() : index() > 0;
}

/// What an item may be.
void KernelSearch::findItems(Member &member) const {
  const KernelShape &shape = member.shape();
  if (shape.hasRowItems())
    return findRows(member);
  SmallVector<int64_t> all = {0};
  if (shape.takesChunks()) {
    SmallVector<int64_t> chunks = {1};
    if (options->randomSeed || areFewHeads(shape.getHeadItems(), *machine))
      chunks = {1, 2, 4, 8, 16};
    // Lengths of several requests differ, so equal chunks are no equal work.
    if (options->randomSeed || shape.getRequests() > 1)
      chunks.push_back(kWork);
    all = only(member.given.chunks, chunks);
  }
  for (int64_t chunks : all)
    member.items.push_back({.chunks = chunks});
}

/// Blocks of rows: of each weight some, or panels of the stacked weights.
void KernelSearch::findRows(Member &member) const {
  const KernelShape &shape = member.shape();
  int64_t given = member.given.rowsPerItem, stacked = member.given.stacked;
  SmallVector<int64_t> counts = {1, 2, 4, 8, 16};
  if (shape.isOfTokens()) // what deals them evenly matters: all tokens' rows are read for each cluster
    counts.append({3, 5, 6, 7, 12, 24, 32});
  SmallVector<int64_t> all;
  for (int64_t n : counts)
    all.push_back(n * shape.getGranule());
  SmallVector<int64_t> rows = only(given, all);
  if (stacked != 1)
    for (int64_t n : rows)
      member.items.push_back({.rows = n});
  // Left to the planner, panels fill tiles. Of several tokens they are drawn and can be given, but were not
  // timed.
  bool isOpen = stacked < 0 && !given && (options->randomSeed || !shape.isOfTokens());
  for (int64_t n : rows)
    if ((stacked == 1 || (isOpen && (options->randomSeed || n % kSetRows == 0))) && shape.canStack(n))
      member.items.push_back({.rows = n, .stacked = 1});
}

bool KernelSearch::findDomain(Domain &domain, Refusal &refusal) {
  auto isStream = [](const OpSizes &op) {
    return op.kind == OpSizes::Linear || op.kind == OpSizes::Attention;
  };
  bool streams =
      llvm::any_of(members, [&](const Member &m) { return llvm::any_of(m.sizes.getOps(), isStream); });
  bool items = llvm::any_of(
      members, [](const Member &m) { return m.shape().hasItems() && !m.shape().hasTokenItems(); });
  int64_t heads = members.front().shape().getHeadItems();
  using List = ArrayRef<int64_t>;
  domain.parts = only(given.part, items ? List{1, 2, 4, 8, 16} : List{1});
  // How many clusters fit at three CTAs an SM is assumed, not measured, and such plans took up to 17 % more
  // than predicted, those with 16 warps up to 28 %: they are drawn and can be given, but not chosen.
  domain.warps = only(given.warps, options->randomSeed ? List{4, 8, 16} : List{4, 8});
  // Of several tokens each CTA reads rows: two of an SM would do so twice.
  bool readsTokens = llvm::any_of(members, [](const Member &m) { return m.shape().isOfTokens(); });
  domain.ctas = only(given.ctasPerSm, options->randomSeed ? List{1, 2, 3}
                                      : readsTokens       ? List{1}
                                                          : List{1, 2});
  // What starts as CTAs end never takes longer than what starts behind them; nor does an early start with
  // cached tokens than one without.
  bool ahead = readsCacheAhead();
  domain.pdl = {ahead ? 2 : 1, 3};
  if (options->randomSeed) {
    domain.pdl.append({0, 1});
    if (!ahead && canStartBehindWait())
      domain.pdl.push_back(2);
  }
  if (given.pdl >= 0)
    domain.pdl = {given.pdl};
  domain.weights = given.weights != Layout::Unset ? given.weights : options->weights;
  // Equal predictions go to the deeper ring: it bridges more of what the model does not know.
  domain.stages = only(given.ringStages, streams ? List{16, 12, 10, 8, 6, 5, 4, 3, 2} : List{4});
  domain.columns = only(given.tileColumns, streams ? List{64, 128, 256, 512, 1024} : List{128});
  for (Member &member : members)
    findItems(member);
  const KernelShape &shape = members.front().shape();
  domain.groups = {given.tokenGroups};
  if (!given.tokenGroups && shape.isOfTokens()) {
    domain.groups.clear();
    for (int64_t n : {1, 2, 4, 8, 16, 32})
      if (canGroup(shape, n) && (n <= 4 || !options->randomSeed))
        domain.groups.push_back(n);
  }
  // What a given plan does not limit has no limit; else it may be half of the heads at a time.
  domain.clusters = {given.clusters};
  if (given == KernelPlan() && heads >= 2 && members.size() == 1)
    domain.clusters.push_back(llvm::divideCeil(heads, 2));
  return llvm::all_of(members, [&](const Member &m) { return checkNames(m, refusal); }) &&
         checkValues(domain, refusal);
}

/// Whether an operation of a kernel can ever finish as a plan says.
static bool canFinish(const KernelShape &shape, const KernelPlan &given, const OpSizes &op,
                      const OpPlan &plan) {
  if (op.kind == OpSizes::Attention)
    return op.mergedByReader && shape.takesChunks() && (!given.chunks || chunksOf(given) > 1) &&
           (plan.finish == Exchange::Ordered || plan.finish == Exchange::Reader);
  return op.finishes && plan.finish != Exchange::Reader;
}

/// What a choice that does not arise would take.
static StringRef whyNone(const OpSizes &op, const OpPlan &plan, StringRef key) {
  if (plan.split == Split::Columns)
    return " where its columns are split";
  if (key != "finish")
    return "";
  if (op.kind == OpSizes::Attention)
    return "; ordered and reader are possible, of 2 to 16 chunks of heads of one token, which linears of "
           "other kernels read";
  return op.finishes ? " = reader; that is of an attention" : "";
}

/// Choices that are given but do not arise.
bool KernelSearch::checkNames(const Member &member, Refusal &refusal) {
  const KernelShape &shape = member.shape();
  const KernelSizes &sizes = member.sizes;
  if (member.given.rowsPerItem && !shape.hasRowItems()) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has no choice 'rows_per_item'; its items are {1}", member.index,
                              shape.getHeads()        ? "heads"
                              : shape.hasTokenItems() ? "tokens"
                                                      : "none"),
                placeOf(member, "rows_per_item"));
    return false;
  }
  if (int64_t stacked = member.given.stacked; stacked > 1 || (stacked == 1 && !shape.getStackable())) {
    StringRef why = stacked > 1 ? "0 and 1 are possible" : kWhyNoPanels;
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has stacked = {1}; {2}", member.index, stacked, why),
                placeOf(member, "stacked"));
    return false;
  }
  if (member.given.part > 1 && shape.hasTokenItems()) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has part = {1}; its items are tokens, a CTA each", member.index,
                              member.given.part),
                placeOf(member, "part"));
    return false;
  }
  if (member.given.joined == 1 && shape.getTokens() > 1) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has joined = 1; kernels of {1} tokens are launched apart",
                              member.index, shape.getTokens()),
                placeOf(member, "joined"));
    return false;
  }
  if (member.given.chunks && !shape.takesChunks()) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has no choice 'chunks'; {1}", member.index, kWhyNoChunks),
                placeOf(member, "chunks"));
    return false;
  }
  if (member.given.tokenGroups && !shape.isOfTokens()) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has no choice 'token_groups'; that takes linears of several tokens",
                              member.index),
                placeOf(member, "token_groups"));
    return false;
  }
  if (member.given.joined > 1) {
    refusal.add(
        Refusal::Names,
        llvm::formatv("kernel {0} has joined = {1}; 0 and 1 are possible", member.index, member.given.joined),
        placeOf(member, "joined"));
    return false;
  }
  if (member.index == 0 && member.given.joined == 1) {
    refusal.add(Refusal::Names, "kernel 0 has joined = 1; no kernel is before it", placeOf(member, "joined"));
    return false;
  }
  for (auto [op, plan] : llvm::zip_equal(sizes.getOps(), member.givenOps)) {
    if (!plan)
      continue;
    if (op.kind == OpSizes::Attention && plan->reduce == Exchange::Scatter) {
      refusal.add(Refusal::Names,
                  plan->label +
                      " cannot reduce by scatter: that merges sums, and an attention's are softmaxes",
                  placeOf(*plan, "reduce"));
      return false;
    }
    Split split = plan->split != Split::Unset ? plan->split : Split::Rows;
    bool anyReduce =
        sizes.hasReduce(op, split) || (plan->split == Split::Unset && sizes.hasReduce(op, Split::Columns));
    StringRef wrong = plan->split != Split::Unset && !sizes.hasSplit(op)               ? "split"
                      : plan->gather != Exchange::Unset && !sizes.hasGather(op, split) ? "gather"
                      : plan->reduce != Exchange::Unset && !anyReduce                  ? "reduce"
                      : plan->finish != Exchange::Unset && !canFinish(shape, member.given, op, *plan)
                          ? "finish"
                          : "";
    if (wrong.empty())
      continue;
    refusal.add(Refusal::Names,
                llvm::formatv("{0} has no choice '{1}'{2}", plan->label, wrong, whyNone(op, *plan, wrong)),
                placeOf(*plan, wrong));
    return false;
  }
  return true;
}

/// Each set of consumer warps has ring stages of its own.
static bool dealsRing(const KernelPlan &kernel) {
  int64_t sets = setsOf(kernel);
  return kernel.ringStages % sets == 0 && kernel.ringStages >= 2 * sets;
}

/// Why none of the panels that a given plan allows is all of one weight.
static std::string whyNoPanels(const KernelShape &shape, int64_t given) {
  int64_t common = 0;
  for (Value result : shape.getStackable().getResults())
    common = std::gcd(common, widthOf(result));
  std::string rows = given ? "rows_per_item = " + std::to_string(given)
                           : "rows_per_item, a multiple of " + std::to_string(shape.getGranule()) + ",";
  return "each weight of " + opLabel(shape.getStackable()) + " must have a multiple of " + rows + "; " +
         std::to_string(common) + " divides them all";
}

/// Values that no kernel can have.
bool KernelSearch::checkValues(const Domain &domain, Refusal &refusal) {
  auto refuse = [&](StringRef key, int64_t value, const Twine &possible) {
    refusal.add(Refusal::Values,
                llvm::formatv("kernel {0} has {1} = {2}; {3}", index(), key, value, possible.str()),
                placeOf(key));
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
  if (int64_t n = domain.pdl[0]; n > 3)
    return refuse("pdl", n, "0 to 3 are possible");
  if (domain.pdl[0] == 2 && !canStartBehindWait())
    return refuse("pdl", 2,
                  "it takes a kernel behind others, which append to no cache that it attends to: 0, 1 and 3 "
                  "are possible");
  if (given.inFlight > kMostAhead)
    return refuse("in_flight", given.inFlight, "0 (all) to 64 are possible");
  if (given.prefetch > kMostAhead)
    return refuse("prefetch", given.prefetch, "0 to 64 are possible");
  if (given.prefetchLater > kMostAhead)
    return refuse("prefetch_later", given.prefetchLater, "0 to 64 are possible");
  if (int64_t n = given.tokenGroups; n && !canGroup(members.front().shape(), n))
    return refuse("token_groups", n,
                  "each has two tokens at least, of " + Twine(members.front().shape().getTokens()));
  for (const Member &member : members) {
    int64_t granule = member.shape().getGranule();
    if (int64_t n = member.given.rowsPerItem; n % granule)
      return refuse("rows_per_item", n, "multiples of " + Twine(granule) + " are possible");
    if (int64_t n = member.given.chunks; n && n != kWork && (!llvm::isPowerOf2_64(n) || n > 16))
      return refuse("chunks", n, "1, 2, 4, 8, 16 and work are possible");
    if (member.items.empty())
      return refuse("stacked", 1, whyNoPanels(member.shape(), member.given.rowsPerItem));
  }
  return llvm::all_of(members, [&](const Member &m) { return checkTogether(m, refusal); });
}

/// Choices that are given, but not possible together.
bool KernelSearch::checkTogether(const Member &member, Refusal &refusal) {
  if (given.ringStages && given.warps && !dealsRing(given)) {
    refuseRing(given, Refusal::Names, refusal);
    return false;
  }
  if (given.ringStages && !checkInFlight(given, Refusal::Names, refusal))
    return false;
  if (sharesWork(member.given) && (given.part > 1 || (given.warps && given.warps != 4))) {
    refusal.add(Refusal::Names, llvm::formatv("kernel {0} has chunks = work: {1}", member.index, kWhyNoWork),
                placeOf(member, "chunks"));
    return false;
  }
  for (const OpPlan *plan : member.givenOps)
    if (plan && plan->finish == Exchange::Atomic && options->deterministic) {
      refusal.add(Refusal::Values,
                  plan->label + " has finish = atomic, whose bits differ from run to run; ordered is "
                                "possible, or give --no-deterministic",
                  placeOf(*plan, "finish"));
      return false;
    }
  return true;
}

bool KernelSearch::checkResidency(const KernelPlan &kernel, Refusal &refusal) const {
  if (machine->resident(kernel.part, kernel.ctasPerSm) < 1) {
    std::string limit = machine->smsLimit ? llvm::formatv(" with {0} SMs", machine->usableSms()).str() : "";
    refusal.add(
        Refusal::Cluster,
        llvm::formatv("kernel {0} needs clusters of part = {1} CTAs at ctas_per_sm = {2}; none is "
                      "resident on {3}{4}: up to {5} CTAs, with up to {6} bytes of shared memory each, are",
                      index(), kernel.part, kernel.ctasPerSm, machine->name, limit,
                      machine->largestCluster(kernel.ctasPerSm), machine->sharedLimit(kernel.ctasPerSm)),
        placeOf(given.part ? "part" : "ctas_per_sm"));
    return false;
  }
  constexpr int64_t kLeastRegisters = 96; // a thread with fewer would spill
  if ((kernel.warps + 1) * 32 * kernel.ctasPerSm * kLeastRegisters <= machine->registersPerSm)
    return true;
  refusal.add(
      Refusal::Cluster,
      llvm::formatv("kernel {0} has warps = {1} at ctas_per_sm = {2}: fewer than {3} registers a thread",
                    index(), kernel.warps, kernel.ctasPerSm, kLeastRegisters),
      placeOf(given.warps ? "warps" : "ctas_per_sm"));
  return false;
}

void KernelSearch::refuseRing(const KernelPlan &kernel, Refusal::Stage stage, Refusal &refusal) const {
  int64_t sets = setsOf(kernel);
  if (refusal.takes(stage))
    refusal.add(stage,
                llvm::formatv("kernel {0} has ring_stages = {1} with warps = {2}; multiples of {3} from {4} "
                              "are possible",
                              index(), kernel.ringStages, kernel.warps, sets, 2 * sets),
                placeOf("ring_stages"));
}

/// No more tiles are held than there are registers for.
bool KernelSearch::checkHeld(const KernelPlan &kernel, Refusal &refusal) const {
  int64_t most = members.front().sizes.mostHeld(kernel);
  if (given.held <= most)
    return true;
  if (refusal.takes(Refusal::Splits))
    refusal.add(Refusal::Splits,
                llvm::formatv(
                    "kernel {0} has held = {1} with warps = {2}, ctas_per_sm = {3}, tile_columns = {4} "
                    "and pdl = {5}; {6}",
                    index(), given.held, kernel.warps, kernel.ctasPerSm, kernel.tileColumns, kernel.pdl,
                    most ? llvm::formatv("0 to {0} are possible", most).str()
                         : "only 0 is possible: it takes pdl 1 or 2, as first stream weights times one token "
                           "that are not summed over items, and registers for a tile more"),
                placeOf("held"));
  return false;
}

/// No more tiles are in the air than the ring has.
bool KernelSearch::checkInFlight(const KernelPlan &kernel, Refusal::Stage stage, Refusal &refusal) const {
  if (given.inFlight <= kernel.ringStages)
    return true;
  if (refusal.takes(stage))
    refusal.add(stage,
                llvm::formatv("kernel {0} has in_flight = {1} with ring_stages = {2}; 0 (all) to {2} are "
                              "possible",
                              index(), given.inFlight, kernel.ringStages),
                placeOf("in_flight"));
  return false;
}

bool KernelSearch::checkRing(const KernelPlan &kernel, Refusal &refusal) const {
  if (dealsRing(kernel))
    return checkInFlight(kernel, Refusal::Splits, refusal) && checkHeld(kernel, refusal);
  refuseRing(kernel, Refusal::Splits, refusal);
  return false;
}
