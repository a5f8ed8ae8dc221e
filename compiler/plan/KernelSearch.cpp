//===- KernelSearch.cpp - The legal choices for one launch ------------------===//
#include "compiler/plan/KernelSearch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace cfc;
using namespace cfc::attn;

/// Random plans are drawn from at most this many kernel choices, each with choices for its operations.
static constexpr size_t kDraws = 64;

KernelSearch::KernelSearch(ArrayRef<KernelShape> shapes, size_t first, Place place, const Machine &machine,
                           const PlanOptions &options, ArrayRef<KeptChoices *> kept)
    : shapes(shapes.begin(), shapes.end()), machine(&machine), options(&options), place(place) {
  for (auto [i, shape] : llvm::enumerate(this->shapes)) {
    Member &member = members.emplace_back(Member{KernelSizes(shape), first + i, {}, {}, {}, {}, kept[i]});
    if (options.given && member.index < options.given->kernels.size())
      member.given = options.given->kernels[member.index];
    for (Operation *op : shape.getOps())
      member.givenOps.push_back(options.given ? options.given->find(opLabel(op)) : nullptr);
  }
  for (const Member &member : members)
    sizes.push_back(&member.sizes);
}

//===-- Candidates ------------------------------------------------------------===//

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

/// Whether more of what is streamed are weights than cached tokens.
bool KernelSearch::streamsMoreWeights() const {
  double all = 0, weights = 0;
  for (const KernelSizes *one : sizes) {
    all += streamedUs(*one, *machine, options->length);
    weights += streamedUs(*one, *machine, {0});
  }
  return 2 * weights > all;
}

/// How many copies are in the air, and how much is fetched ahead of the ring. Where a plan does not say: as
/// many as keep the memory busy; and what fills the time until the first tile is consumed.
void KernelSearch::choosePace(Choices &choices, bool isWeighed, Random *random) const {
  int64_t slot = 0, clusters = 1;
  for (auto [member, choice] : llvm::zip_equal(members, choices)) {
    slot = std::max(slot, member.sizes.slotBytes(choice));
    clusters = std::max(clusters, clustersOf(member.shape(), choice.kernel, *machine));
  }
  const KernelPlan &kernel = choices.front().kernel;
  int64_t sets = setsOf(kernel), each = kernel.ringStages / sets;
  double air = double(clusters) * kernel.part * slot * sets;
  // A launch that is a whole layer may have more weights in the air where the next one does not fill its
  // rings beside it: 10 tiles of 16 KB on 64 SMs took 24.4 and 30.7 us instead of 24.5 and 31.2 with 6, but
  // of more cached tokens than weights 54.6 instead of 53.5. All are weighed with as many: constants were
  // fitted to such.
  constexpr double kMoreWhereAlone = 5.0 / 3;
  bool more = isWeighed && place.alone && !startsEarly(kernel) && streamsMoreWeights();
  double airBytes = machine->airBytes * (more ? kMoreWhereAlone : 1);
  // One lane starts the copies of all sets: where it waits for tiles of 8 KB it is late with the others
  // (measured; with 16 KB it is not).
  constexpr int64_t kWorthWaiting = 16384;
  bool limits = slot >= kWorthWaiting && llvm::all_of(llvm::zip_equal(members, choices), [&](auto pair) {
                  auto &[member, choice] = pair;
                  return member.sizes.leastTileBytes(choice) >= kWorthWaiting;
                });
  // What begins beside few heads' attention has time, and its rings full when it may begin. What finds no
  // room in them is held in registers, and then more may be in the air (mean of 8 lengths 14.0 us; with half
  // of the usual 14.2, with all of the ring 14.2); where nothing can be held less is in nobody's way (8192
  // tokens 14.57 us instead of 14.88, 16000 15.23 instead of 15.91). Elsewhere some CTAs start late, and
  // would wait for tiles before they norm: nothing is held.
  constexpr double kMoreWhereHeld = 4.0 / 3;
  const KernelSizes &first = members.front().sizes;
  bool besideFew = isWeighed && members.size() == 1 && fitsBeside(first, choices.front(), *machine, place);
  int64_t mostHeld = first.mostHeld(kernel);
  int64_t held = besideFew ? first.tilesToHold(choices.front()) : 0;
  if (given.held >= 0)
    held = given.held;
  int64_t least = besideFew ? 1 : 2;
  if (besideFew)
    airBytes *= held ? kMoreWhereHeld : 0.5;
  int64_t inFlight = limits ? std::max<int64_t>(least, std::llround(airBytes / air)) : each;
  // Of a CTA. Where it reads the rows of several tokens at the start, but norms none, more is in the way of
  // those (measured: 48 KB 32.4 us, none and 96 KB 32.8).
  constexpr int64_t kPrefetchBytes = 96 << 10, kBesideTokens = 48 << 10;
  bool besideTokens = llvm::all_of(members, [](const Member &member) {
    return member.shape().isOfTokens() &&
           llvm::none_of(member.sizes.getOps(), [](const OpSizes &op) { return op.kind == OpSizes::Norm; });
  });
  int64_t prefetch =
      kernel.weights == Layout::Packed && kernel.pdl > 0 && slot && !besideFew
          ? std::clamp<int64_t>((besideTokens ? kBesideTokens : kPrefetchBytes) / slot / sets, 1, 3)
          : 0;
  // What the memory delivers while consumers exchange, and attend to little.
  constexpr double kLaterBytes = 6e6; // 4 to 6 MB are best at all lengths (measured)
  int64_t later = kernel.weights == Layout::Packed && !startsEarly(kernel) && hasLaterWeights()
                      ? std::llround(kLaterBytes / air) * sets
                      : 0;
  if (random && random->below(2))
    inFlight = 2 + random->below(each);
  if (random && prefetch)
    prefetch = random->below(4);
  if (random && later)
    later = random->below(2 * later + 1);
  later = std::min(later, kMostAhead);
  if (random && mostHeld && given.held < 0 && random->below(2))
    held = random->below(mostHeld + 1);
  inFlight = inFlight < each ? inFlight * sets : 0;
  for (KernelChoice &choice : choices) {
    choice.kernel.inFlight = given.inFlight >= 0 ? given.inFlight : inFlight;
    choice.kernel.prefetch = given.prefetch >= 0 ? given.prefetch : prefetch * sets;
    choice.kernel.prefetchLater = given.prefetchLater >= 0 ? given.prefetchLater : later;
    choice.kernel.held = held;
  }
}

int64_t KernelSearch::estimateShared(ArrayRef<KernelChoice> choices) const {
  int64_t rest = 0, slot = 0;
  for (auto [member, choice] : llvm::zip_equal(members, choices)) {
    rest = std::max(rest, member.sizes.besideRing(choice));
    slot = std::max(slot, member.sizes.slotBytes(choice));
  }
  return rest + ringBytes(choices.front().kernel, slot);
}

/// The predicted time of a launch, or of a kernel as if it were one; something from `limit` on if that is
/// more.
double KernelSearch::weigh(ArrayRef<const KernelSizes *> sizes, ArrayRef<KernelChoice> choices, Place place,
                           double limit) {
  ++weighed;
  return predict(sizes, choices, *machine, options->length, /*describe=*/false, place, limit).us;
}

void KernelSearch::addCandidate(ArrayRef<OwnChoice> choices, Random *random, Refusal &refusal) {
  if (!random && leavesSmsIdle(choices.front().choice))
    return;
  Candidate candidate;
  for (const OwnChoice &own : choices) {
    candidate.choices.push_back(own.choice);
    candidate.stuck = candidate.stuck ? candidate.stuck : own.stuck;
  }
  choosePace(candidate.choices, /*isWeighed=*/false, random);
  candidate.shared = estimateShared(candidate.choices);
  // Estimates are off by a little: what they refuse by more than 1/4 is out of reach.
  if (!fits(candidate, -candidate.shared / 4, refusal))
    return;
  int64_t sharedLimit = machine->sharedLimit(candidate.choices.front().kernel.ctasPerSm);
  anyFits |= candidate.shared <= sharedLimit * 15 / 16;
  stuck = candidate.stuck ? candidate.stuck : stuck;
  if (!random && !candidate.stuck)
    candidate.us = weigh(sizes, candidate.choices, place, limit);
  if (!random && (candidate.stuck || candidate.us >= limit))
    return;
  if (!random)
    choosePace(candidate.choices, /*isWeighed=*/true, random);
  candidates.push_back(std::move(candidate));
}

/// Choices for a kernel's operations that are drawn one by one.
OwnChoice KernelSearch::draw(const Member &member, const KernelPlan &kernel, const WorkOptions &from,
                             Random &random) {
  Combination &made = drawn.emplace_back();
  for (const OpOptions &op : from.ops)
    made.ops.push_back(op.all[random.below(op.all.size())]);
  return {{kernel, made.ops}, stuckOf(member, kernel, made.ops)};
}

/// A kernel's choices with its operations' choices: all that are worth weighing, or one that is drawn.
std::vector<OwnChoice> KernelSearch::choicesOf(Member &member, KernelPlan kernel, Random *random,
                                               Refusal &refusal) {
  std::vector<OwnChoice> choices;
  SmallVector<Item> items = member.items;
  // Few drawn kernels can have a work list: those that can have one half of the time.
  const Item *work = llvm::find_if(member.items, [](const Item &item) { return item.chunks == kWork; });
  bool works = kernel.part == 1 && kernel.warps == 4 && work != member.items.end();
  if (random)
    items = {works && random->below(2) ? *work : member.items[random->below(member.items.size())]};
  for (const Item &item : items) {
    kernel.rowsPerItem = item.rows, kernel.chunks = item.chunks, kernel.stacked = item.stacked;
    if (sharesWork(kernel) && (kernel.part != 1 || kernel.warps != 4)) {
      if (refusal.takes(Refusal::Splits))
        refusal.add(Refusal::Splits,
                    llvm::formatv("kernel {0} has chunks = work: {1}", member.index, kWhyNoWork),
                    placeOf(member, "chunks"));
      continue;
    }
    kernel.joined = joinedOf(member);
    const WorkOptions *of = optionsOf(member, kernel, refusal);
    if (!of)
      continue;
    if (random)
      choices.push_back(draw(member, kernel, *of, *random));
    for (const Combination &ops : of->best)
      choices.push_back({{kernel, ops.ops}, ops.stuck});
  }
  return choices;
}

/// The quickest, and that which takes least memory; of equal ones the first. That which was the quickest last
/// time is weighed first: most others then show soon that they are slower.
std::vector<OwnChoice> KernelSearch::bestOf(Member &member, ArrayRef<OwnChoice> choices) {
  if (choices.size() == 1)
    return choices.vec();
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Place ofMember = &member == &members.back() ? place : place.ofEarlierKernel();
  auto us = [&](size_t i, double limit) { return weigh(&member.sizes, choices[i].choice, ofMember, limit); };
  size_t hint = std::min(member.quickest, choices.size() - 1), quickest = hint;
  double least = us(hint, kNone);
  for (size_t i = 0; i < choices.size(); ++i) {
    double limit = i < quickest ? std::nextafter(least, kNone) : least;
    if (double now = i == hint ? limit : us(i, limit); now < limit)
      least = now, quickest = i;
  }
  member.quickest = quickest;
  SmallVector<int64_t> bytes;
  for (const OwnChoice &own : choices)
    bytes.push_back(member.sizes.estimateShared(own.choice));
  size_t smallest = llvm::min_element(bytes) - bytes.begin();
  if (bytes[smallest] < bytes[quickest])
    return {choices[quickest], choices[smallest]};
  return {choices[quickest]};
}

/// The best choices for one of several kernels.
std::vector<OwnChoice> KernelSearch::keptOf(Member &member, const KernelPlan &kernel, Refusal &refusal) {
  std::vector<OwnChoice> &best =
      (*member.kept)[{kernel.part, kernel.warps, kernel.ctasPerSm, kernel.ringStages, kernel.tileColumns,
                      kernel.clusters, kernel.pdl, kernel.tokenGroups}];
  if (best.empty()) {
    std::vector<OwnChoice> all = choicesOf(member, kernel, /*random=*/nullptr, refusal);
    if (!all.empty())
      best = bestOf(member, all);
  }
  std::vector<OwnChoice> own = best;
  for (OwnChoice &one : own)
    one.choice.kernel.joined = joinedOf(member);
  return own;
}

/// Lists what the kernels of the launch can be with the choices that they share.
void KernelSearch::addCandidates(const KernelPlan &kernel, Random *random, Refusal &refusal) {
  if (!checkResidency(kernel, refusal) || !checkRing(kernel, refusal))
    return;
  if (members.size() == 1) {
    for (const OwnChoice &own : choicesOf(members.front(), kernel, random, refusal))
      addCandidate(own, random, refusal);
    return;
  }
  std::vector<SmallVector<OwnChoice, 2>> all = {{}};
  for (Member &member : members) {
    std::vector<OwnChoice> own =
        random ? choicesOf(member, kernel, random, refusal) : keptOf(member, kernel, refusal);
    if (own.empty())
      return;
    std::vector<SmallVector<OwnChoice, 2>> longer;
    for (ArrayRef<OwnChoice> choices : all)
      for (const OwnChoice &choice : own) {
        longer.emplace_back(choices);
        longer.back().push_back(choice);
      }
    all = std::move(longer);
  }
  for (ArrayRef<OwnChoice> choices : all)
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
  if (refusal.takes(Refusal::Shared, candidate.shared))
    refusal.add(Refusal::Shared, needs(candidate.shared, ctas), candidate.shared, placeOf("ring_stages"));
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

/// The quickest first; drawn ones stay in their order.
void KernelSearch::rank(Refusal &refusal) {
  order.resize(candidates.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](size_t a, size_t b) { return candidates[a].us < candidates[b].us; });
  skipStuck(refusal);
}

bool KernelSearch::enumerate(Random *random, double limit, Refusal &refusal) {
  this->limit = limit;
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
    rank(refusal);
    return !candidates.empty();
  }
  // Weights are read for each group of tokens: more than one only where less does not fit.
  for (int64_t groups : domain.groups) {
    addShared(domain, groups, refusal);
    if (anyFits)
      break;
  }
  rank(refusal);
  return !candidates.empty();
}

/// What decides about shared memory beside the ring's stages, whose size is known.
std::string KernelSearch::memoryKey(ArrayRef<KernelChoice> choices) {
  std::string key;
  llvm::raw_string_ostream out(key);
  for (const KernelChoice &choice : choices) {
    const KernelPlan &k = choice.kernel;
    out << k.part << " " << k.warps << " " << k.tileColumns << " " << k.rowsPerItem << " " << k.stacked << " "
        << k.chunks << " " << k.tokenGroups;
    for (const OpChoice &op : choice.ops)
      out << " " << int(op.split) << int(op.gather) << int(op.reduce) << int(op.finish);
    out << ";";
  }
  return key;
}

/// Moves on from what cannot be built; where nothing else is left, that is the reason.
void KernelSearch::skipStuck(Refusal &refusal) {
  while (!done() && candidate().stuck)
    ++at;
  if (done() && stuck)
    refusal.add(Refusal::Built,
                opLabel(stuck) + " cannot stream packed weights: each CTA takes multiples of 8 rows and of "
                                 "64 columns, and stacked weights have all rows");
}

void KernelSearch::reject(int64_t bytes, Refusal &refusal) {
  settled = false;
  if (bytes >= 0) {
    refusal.add(Refusal::Shared, needs(bytes, current().front().kernel.ctasPerSm), bytes,
                placeOf("ring_stages"));
    lacking[memoryKey(current())] = bytes - candidate().shared;
  }
  // Others of a kind that was built once need not be built to know that they do not fit.
  auto failsAlike = [&] {
    auto known = lacking.find(memoryKey(current()));
    return known != lacking.end() &&
           candidate().shared + known->second > machine->sharedLimit(current().front().kernel.ctasPerSm);
  };
  do {
    ++at;
    skipStuck(refusal);
  } while (!done() && failsAlike());
}
