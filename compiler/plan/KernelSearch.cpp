//===- KernelSearch.cpp - The legal choices for one launch ------------------===//
#include "compiler/plan/KernelSearch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

/// Random plans are drawn from at most this many kernel choices, each with choices for its operations.
static constexpr size_t kDraws = 64;

KernelSearch::KernelSearch(ArrayRef<KernelShape> shapes, size_t first, bool alone, const Machine &machine,
                           const PlanOptions &options)
    : machine(&machine), options(&options), alone(alone) {
  for (auto [i, shape] : llvm::enumerate(shapes)) {
    Member &member = members.emplace_back(Member{KernelSizes(shape), first + i, {}, {}, {}, {}, {}});
    if (options.given && member.index < options.given->kernels.size())
      member.given = options.given->kernels[member.index];
    for (Operation *op : shape.getOps())
      member.givenOps.push_back(options.given ? options.given->find(opLabel(op)) : nullptr);
  }
}

//===-- What can be chosen --------------------------------------------------===//

static SmallVector<int64_t> only(int64_t given, ArrayRef<int64_t> all) {
  return given ? SmallVector<int64_t>{given} : SmallVector<int64_t>(all);
}

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
                                {"pdl", &KernelPlan::pdl, -1}};
  given = KernelPlan();
  for (const Member &member : members) {
    for (const Shared &s : keys) {
      int64_t here = member.given.*s.key, &all = given.*s.key;
      if (here != s.unset && all != s.unset && here != all) {
        refusal.add(
            Refusal::Names,
            llvm::formatv("kernel {0} has {1} = {2}, but is joined to kernel {3}, which has {1} = {4}",
                          member.index, s.name, here, index(), all));
        return false;
      }
      all = here != s.unset ? here : all;
    }
    Layout weights = member.given.weights;
    if (weights != Layout::Unset && given.weights != Layout::Unset && weights != given.weights) {
      refusal.add(Refusal::Names, llvm::formatv("kernel {0} has weights = {1}, but is joined to kernel {2}",
                                                member.index, stringify(weights), index()));
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

/// What an item may be.
void KernelSearch::findItems(Member &member) const {
  const KernelShape &shape = member.shape();
  member.rows = member.chunks = {0};
  if (shape.takesChunks()) {
    SmallVector<int64_t> chunks = {1};
    if (options->randomSeed || areFewHeads(shape.getHeadItems(), *machine))
      chunks = {1, 2, 4, 8, 16};
    // Lengths of several requests differ, so equal chunks are no equal work.
    if (options->randomSeed || shape.getRequests() > 1)
      chunks.push_back(kWork);
    member.chunks = only(member.given.chunks, chunks);
  }
  if (!shape.hasRowItems())
    return;
  member.rows.clear();
  for (int64_t n = 1; n <= 16; n *= 2)
    member.rows.push_back(n * shape.getGranule());
  if (shape.isOfTokens()) // what deals them evenly matters: all tokens' rows are read for each cluster
    for (int64_t n : {3, 5, 6, 7, 12, 24, 32})
      member.rows.push_back(n * shape.getGranule());
  member.rows = only(member.given.rowsPerItem, member.rows);
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
  domain.ctas = only(given.ctasPerSm, options->randomSeed ? List{1, 2, 3} : List{1, 2});
  // What starts as CTAs end never takes longer than what starts behind them; nor does an early start with
  // cached tokens than one without.
  domain.pdl = {readsCacheAhead() ? 2 : 1, 3};
  if (options->randomSeed)
    domain.pdl.append({0, 1});
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

/// Choices that are given but do not arise.
bool KernelSearch::checkNames(const Member &member, Refusal &refusal) {
  const KernelShape &shape = member.shape();
  const KernelSizes &sizes = member.sizes;
  if (member.given.rowsPerItem && !shape.hasRowItems()) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has no choice 'rows_per_item'; its items are {1}", member.index,
                              shape.getHeads()        ? "heads"
                              : shape.hasTokenItems() ? "tokens"
                                                      : "none"));
    return false;
  }
  if (member.given.part > 1 && shape.hasTokenItems()) {
    refusal.add(Refusal::Names, llvm::formatv("kernel {0} has part = {1}; its items are tokens, a CTA each",
                                              member.index, member.given.part));
    return false;
  }
  if (member.given.joined == 1 && shape.getTokens() > 1) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has joined = 1; kernels of {1} tokens are launched apart",
                              member.index, shape.getTokens()));
    return false;
  }
  if (member.given.chunks && !shape.takesChunks()) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has no choice 'chunks'; {1}", member.index, kWhyNoChunks));
    return false;
  }
  if (member.given.tokenGroups && !shape.isOfTokens()) {
    refusal.add(Refusal::Names,
                llvm::formatv("kernel {0} has no choice 'token_groups'; that takes linears of several tokens",
                              member.index));
    return false;
  }
  if (member.given.joined > 1) {
    refusal.add(Refusal::Names, llvm::formatv("kernel {0} has joined = {1}; 0 and 1 are possible",
                                              member.index, member.given.joined));
    return false;
  }
  if (member.index == 0 && member.given.joined == 1) {
    refusal.add(Refusal::Names, "kernel 0 has joined = 1; no kernel is before it");
    return false;
  }
  for (auto [op, plan] : llvm::zip_equal(sizes.getOps(), member.givenOps)) {
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
                llvm::formatv("kernel {0} has {1} = {2}; {3}", index(), key, value, possible.str()));
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
  if (domain.pdl[0] == 2 && !readsCacheAhead())
    return refuse(
        "pdl", 2,
        "it takes an attention behind other kernels, to whose cache none of them appends: 0, 1 and 3 "
        "are possible");
  if (given.inFlight > 64)
    return refuse("in_flight", given.inFlight, "0 (all) to 64 are possible");
  if (given.prefetch > 64)
    return refuse("prefetch", given.prefetch, "0 to 64 are possible");
  if (given.prefetchLater > 64)
    return refuse("prefetch_later", given.prefetchLater, "0 to 64 are possible");
  if (int64_t n = given.tokenGroups; n && !canGroup(members.front().shape(), n))
    return refuse("token_groups", n,
                  "each has two tokens at least, of " + Twine(members.front().shape().getTokens()));
  for (const Member &member : members) {
    int64_t granule = member.shape().getGranule();
    if (int64_t n = member.rows[0]; n % granule)
      return refuse("rows_per_item", n, "multiples of " + Twine(granule) + " are possible");
    if (int64_t n = member.chunks[0]; n && n != kWork && (!llvm::isPowerOf2_64(n) || n > kSegmentGroups))
      return refuse("chunks", n, "1, 2, 4, 8, 16 and work are possible");
  }
  return llvm::all_of(members, [&](const Member &m) { return checkAtomic(m, refusal); });
}

bool KernelSearch::checkAtomic(const Member &member, Refusal &refusal) {
  for (const OpPlan *plan : member.givenOps)
    if (plan && plan->finish == Exchange::Atomic && options->deterministic) {
      refusal.add(Refusal::Values, plan->label +
                                       " has finish = atomic, whose bits differ from run to run; ordered is "
                                       "possible, or give --no-deterministic");
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
                      machine->largestCluster(kernel.ctasPerSm), machine->sharedLimit(kernel.ctasPerSm)));
    return false;
  }
  constexpr int64_t kLeastRegisters = 96; // a thread with fewer would spill
  if ((kernel.warps + 1) * 32 * kernel.ctasPerSm * kLeastRegisters <= machine->registersPerSm)
    return true;
  refusal.add(
      Refusal::Cluster,
      llvm::formatv("kernel {0} has warps = {1} at ctas_per_sm = {2}: fewer than {3} registers a thread",
                    index(), kernel.warps, kernel.ctasPerSm, kLeastRegisters));
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
                    index(), kernel.ringStages, kernel.warps, sets, 2 * sets));
  return false;
}

/// Whether weights are streamed behind something else.
bool KernelSearch::hasLaterWeights() const {
  bool streams = false;
  for (const Member &member : members)
    for (const OpSizes &op : member.sizes.getOps()) {
      if (op.kind == OpSizes::Linear && streams)
        return true;
      streams |= op.kind == OpSizes::Linear || op.kind == OpSizes::Attention;
    }
  return false;
}

/// How many copies are in the air, and how much is fetched ahead of the ring. Where a plan does not say: as
/// many as keep the memory busy; and what fills the time until the first tile is consumed.
void KernelSearch::choosePace(Choices &choices, Random *random) const {
  int64_t slot = 0, clusters = 1;
  for (auto [member, choice] : llvm::zip_equal(members, choices)) {
    slot = std::max(slot, member.sizes.slotBytes(choice));
    clusters = std::max(clusters, clustersOf(member.shape(), choice.kernel, *machine));
  }
  const KernelPlan &kernel = choices.front().kernel;
  int64_t sets = setsOf(kernel), each = kernel.ringStages / sets;
  double air = double(clusters) * kernel.part * slot * sets;
  // One lane starts the copies of all sets: where it waits for tiles of 8 KB it is late with the others
  // (measured; with 16 KB it is not).
  constexpr int64_t kWorthWaiting = 16384;
  bool limits = slot >= kWorthWaiting && llvm::all_of(llvm::zip_equal(members, choices), [&](auto pair) {
                  auto &[member, choice] = pair;
                  return member.sizes.leastTileBytes(choice) >= kWorthWaiting;
                });
  int64_t inFlight = limits ? std::max<int64_t>(2, std::llround(machine->airBytes / air)) : each;
  int64_t prefetch = kernel.weights == Layout::Packed && kernel.pdl > 0 ? 3 : 0;
  // What the memory delivers while consumers exchange, and attend to little.
  constexpr double kLaterBytes = 8e6;
  int64_t later = kernel.weights == Layout::Packed && !startsEarly(kernel) && hasLaterWeights()
                      ? std::llround(kLaterBytes / air) * sets
                      : 0;
  if (random && random->below(2))
    inFlight = 2 + random->below(each);
  if (random && prefetch)
    prefetch = random->below(4);
  if (random && later)
    later = random->below(2 * later + 1);
  inFlight = inFlight < each ? inFlight * sets : 0;
  for (KernelChoice &choice : choices) {
    choice.kernel.inFlight = given.inFlight >= 0 ? given.inFlight : inFlight;
    choice.kernel.prefetch = given.prefetch >= 0 ? given.prefetch : prefetch * sets;
    choice.kernel.prefetchLater = given.prefetchLater >= 0 ? given.prefetchLater : later;
  }
}

int64_t KernelSearch::estimateShared(ArrayRef<KernelChoice> choices) const {
  int64_t rest = 0, slot = 0;
  for (auto [member, choice] : llvm::zip_equal(members, choices)) {
    int64_t own = member.sizes.slotBytes(choice);
    rest = std::max(rest, member.sizes.estimateShared(choice) - ringBytes(choice.kernel, own));
    slot = std::max(slot, own);
  }
  return rest + ringBytes(choices.front().kernel, slot);
}

void KernelSearch::addCandidate(Choices choices, Random *random, Refusal &refusal) {
  if (!random && leavesSmsIdle(choices.front()))
    return;
  choosePace(choices, random);
  SmallVector<const KernelSizes *> sizes;
  for (const Member &member : members)
    sizes.push_back(&member.sizes);
  Candidate candidate{choices,
                      predict(sizes, choices, *machine, options->length, /*describe=*/false, alone).us,
                      estimateShared(choices)};
  // Estimates are off by a little: what they refuse by more than 1/4 is out of reach.
  if (fits(candidate, -candidate.shared / 4, refusal))
    candidates.push_back(std::move(candidate));
}

/// The choices for all operations behind those that `choice` has. Of many linears only the quickest choice of
/// each is taken but for the first few.
void KernelSearch::addCombinations(KernelChoice &choice, ArrayRef<OpOptions> options,
                                   std::vector<KernelChoice> &to) const {
  constexpr size_t kFree = 6; // operations whose choices are combined, from the last one on
  size_t at = choice.ops.size();
  if (at == options.size())
    return to.push_back(choice);
  for (const OpPlan &plan : ArrayRef(options[at].best).take_front(at + kFree < options.size() ? 1 : 8)) {
    choice.ops.push_back(plan);
    addCombinations(choice, options, to);
    choice.ops.pop_back();
  }
}

/// A kernel's choices with its operations' choices: all that are worth weighing, or one that is drawn.
std::vector<KernelChoice> KernelSearch::choicesOf(Member &member, KernelPlan kernel, Random *random,
                                                  Refusal &refusal) {
  std::vector<KernelChoice> choices;
  SmallVector<std::pair<int64_t, int64_t>> items; // one of the two is a choice
  for (int64_t rows : member.rows)
    for (int64_t chunks : member.chunks)
      items.push_back({rows, chunks});
  // Few drawn kernels can have a work list: those that can have one half of the time.
  bool works = kernel.part == 1 && kernel.warps == 4 && llvm::is_contained(member.chunks, kWork);
  if (random)
    items = {works && random->below(2) ? std::pair(member.rows[0], kWork)
                                       : items[random->below(items.size())]};
  for (auto [rows, chunks] : items) {
    kernel.rowsPerItem = rows, kernel.chunks = chunks;
    if (sharesWork(kernel) && (kernel.part != 1 || kernel.warps != 4)) {
      refusal.add(Refusal::Splits,
                  llvm::formatv("kernel {0} has chunks = work: {1}", member.index, kWhyNoWork));
      continue;
    }
    kernel.joined = member.index ? member.index != index() : -1;
    const std::vector<OpOptions> *ops = optionsOf(member, kernel, refusal);
    if (!ops)
      continue;
    KernelChoice choice{kernel, {}};
    if (!random) {
      addCombinations(choice, *ops, choices);
      continue;
    }
    for (const OpOptions &op : *ops)
      choice.ops.push_back(op.all[random->below(op.all.size())]);
    choices.push_back(choice);
  }
  return choices;
}

/// Of the choices for one of several kernels the quickest, and that which takes least memory.
void KernelSearch::keepBest(const Member &member, std::vector<KernelChoice> &choices) const {
  const KernelSizes *sizes = &member.sizes;
  auto by = [&](auto cost) {
    return *llvm::min_element(choices, [&](const auto &a, const auto &b) { return cost(a) < cost(b); });
  };
  KernelChoice quickest = by([&](const KernelChoice &c) {
    return predict(sizes, c, *machine, options->length, /*describe=*/false, alone).us;
  });
  KernelChoice smallest = by([&](const KernelChoice &c) { return sizes->estimateShared(c); });
  choices = {quickest};
  if (sizes->estimateShared(smallest) < sizes->estimateShared(quickest))
    choices.push_back(smallest);
}

/// Lists what the kernels of the launch can be with the choices that they share.
void KernelSearch::addCandidates(KernelPlan kernel, Random *random, Refusal &refusal) {
  if (!checkResidency(kernel, refusal) || !checkRing(kernel, refusal))
    return;
  std::vector<Choices> all = {{}};
  for (Member &member : members) {
    std::vector<KernelChoice> own = choicesOf(member, kernel, random, refusal);
    if (own.empty())
      return;
    if (members.size() > 1 && !random)
      keepBest(member, own);
    std::vector<Choices> longer;
    for (const Choices &choices : all)
      for (const KernelChoice &choice : own) {
        longer.push_back(choices);
        longer.back().push_back(choice);
      }
    all = std::move(longer);
  }
  for (const Choices &choices : all)
    addCandidate(choices, random, refusal);
}

//===-- The search ------------------------------------------------------------===//

std::string KernelSearch::needs(int64_t bytes, int64_t ctasPerSm) const {
  int64_t limit = machine->sharedLimit(ctasPerSm);
  std::string text = llvm::formatv(
      "kernel {0} needs {1} bytes of shared memory a CTA; {2} are the limit with ctas_per_sm = {3}", index(),
      bytes, limit, ctasPerSm);
  // What no plan makes smaller.
  for (const Member &member : members)
    for (Operation *op : member.shape().getOps())
      if (auto attention = dyn_cast<AttentionOp>(op)) {
        int64_t vDim = attention.getCache().getType().getVDim();
        int64_t states = 4 * (vDim + 2) * attention.getGroup();
        if (states > limit / 4)
          text += llvm::formatv(
              "; {0} hold the softmax of the {1} query heads of {2} that share a KV head: fewer "
              "or narrower ones fit",
              states, attention.getGroup(), vDim);
      }
  return text;
}

bool KernelSearch::fits(const Candidate &candidate, int64_t extra, Refusal &refusal) const {
  int64_t ctas = candidate.choices.front().kernel.ctasPerSm;
  if (candidate.shared + extra <= machine->sharedLimit(ctas))
    return true;
  refusal.add(Refusal::Shared, needs(candidate.shared, ctas), candidate.shared);
  return false;
}

/// All combinations with so many groups of tokens.
void KernelSearch::addShared(const Domain &domain, int64_t groups, Refusal &refusal) {
  KernelPlan kernel;
  kernel.weights = domain.weights;
  kernel.tokenGroups = groups;
  for (int64_t part : domain.parts)
    for (int64_t warps : domain.warps)
      for (int64_t ctas : domain.ctas)
        for (int64_t columns : domain.columns)
          for (int64_t stages : domain.stages)
            for (int64_t clusters : domain.clusters)
              for (int64_t pdl : domain.pdl) {
                kernel.part = part, kernel.warps = warps, kernel.ctasPerSm = ctas;
                kernel.ringStages = stages, kernel.tileColumns = columns, kernel.clusters = clusters;
                kernel.pdl = pdl;
                addCandidates(kernel, nullptr, refusal);
              }
}

bool KernelSearch::enumerate(Random *random, Refusal &refusal) {
  Domain domain;
  if (!mergeGiven(refusal) || !findDomain(domain, refusal))
    return false;
  if (random) {
    auto draw = [&](ArrayRef<int64_t> from) {
      return from[from.size() > 1 ? random->below(from.size()) : 0];
    };
    for (size_t tries = 0; tries < 32 * kDraws && candidates.size() < kDraws; ++tries) {
      KernelPlan kernel;
      auto next = [&](ArrayRef<int64_t> from) { return from[random->below(from.size())]; };
      kernel.part = next(domain.parts), kernel.warps = next(domain.warps),
      kernel.ctasPerSm = next(domain.ctas);
      kernel.ringStages = next(domain.stages), kernel.tileColumns = next(domain.columns);
      kernel.clusters = next(domain.clusters), kernel.pdl = next(domain.pdl);
      kernel.tokenGroups = draw(domain.groups);
      kernel.weights = domain.weights;
      addCandidates(kernel, random, refusal);
    }
    return !candidates.empty();
  }
  // Weights are read for each group of tokens: more than one only where less does not fit.
  for (int64_t groups : domain.groups) {
    addShared(domain, groups, refusal);
    if (llvm::any_of(candidates, [&](const Candidate &c) {
          return c.shared <= machine->sharedLimit(c.choices.front().kernel.ctasPerSm) * 15 / 16;
        }))
      break;
  }
  llvm::stable_sort(candidates, [](const Candidate &a, const Candidate &b) { return a.us < b.us; });
  return !candidates.empty();
}

/// What decides about shared memory beside the ring's stages, whose size is known.
std::string KernelSearch::memoryKey(ArrayRef<KernelChoice> choices) {
  std::string key;
  llvm::raw_string_ostream out(key);
  for (const KernelChoice &choice : choices) {
    const KernelPlan &k = choice.kernel;
    out << k.part << " " << k.warps << " " << k.tileColumns << " " << k.rowsPerItem << " " << k.chunks << " "
        << k.tokenGroups;
    for (const OpPlan &op : choice.ops)
      out << " " << int(op.split) << int(op.gather) << int(op.reduce) << int(op.finish);
    out << ";";
  }
  return key;
}

void KernelSearch::reject(int64_t bytes, Refusal &refusal) {
  if (bytes >= 0) {
    refusal.add(Refusal::Shared, needs(bytes, current().front().kernel.ctasPerSm), bytes);
    lacking[memoryKey(current())] = bytes - candidates[at].shared;
  }
  // Others of a kind that was built once need not be built to know that they do not fit.
  auto failsAlike = [&] {
    auto known = lacking.find(memoryKey(current()));
    return known != lacking.end() &&
           candidates[at].shared + known->second > machine->sharedLimit(current().front().kernel.ctasPerSm);
  };
  do
    ++at;
  while (!done() && failsAlike());
}
