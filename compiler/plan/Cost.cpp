//===- Cost.cpp - What a kernel costs, before it is built -------------------===//
//
// Consumers go from phase to phase; the producer runs ahead of them as far as
// the ring goes. A stream takes as long as the slowest of five limits would let
// it take alone, and somewhat longer where others are near (a norm of them, as
// neither side waits for the other all the time). What arrives while consumers
// exchange or norm is taken off its memory time. All numbers are those of the
// machine description.
//
//===----------------------------------------------------------------------===//
#include "compiler/plan/Cost.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <array>
#include <cmath>

using namespace mlir;
using namespace cfc;

llvm::StringRef StreamLimits::largest() const {
  std::pair<double, StringRef> all[] = {
      {memory, "memory"}, {sm, "sm"}, {copies, "copies"}, {ring, "ring"}, {consumers, "consumers"}};
  return std::max_element(std::begin(all), std::end(all), llvm::less_first())->second;
}

llvm::StringRef cfc::stringify(Phase::Kind kind) {
  constexpr StringRef names[] = {"launch", "norm", "stream", "exchange", "elements", "sum"};
  return names[kind];
}

namespace {
/// What one CTA streams in a phase.
struct Stream {
  double bytes = 0;                   ///< of this CTA
  double gridBytes = 0;               ///< of all CTAs that run at a time
  llvm::SmallVector<int64_t, 4> sets; ///< tiles of each set of consumer warps, ascending
  double copyBytes = 8192, copyNs = 0;
  double tileNs = 0;  ///< that a set spends on a tile
  double extraNs = 0; ///< and besides on all of them
  double bandwidth = 0;
  double uneven = 1; ///< how much longer the memory takes where SMs have unlike shares
};

/// Walks through a launch's phases.
class Walk {
public:
  Walk(const KernelPlan &plan, const Machine &machine, CacheLength length, bool describe, Place place,
       double joined, double limit)
      : plan(plan), machine(machine), length(length), describe(describe), place(place), joined(joined),
        limit(limit) {}
  /// `beside`: all of its CTAs find room while the launch before runs.
  void launch(bool cooperative, bool beside);
  /// All CTAs wait for each other.
  void gridSync();
  /// `last`: of the launch; the one behind has to do with no other.
  void kernel(const KernelSizes &ofKernel, const KernelChoice &chosen, bool last);
  LaunchCost finished() { return cost.us = now, std::move(cost); }
  bool isBeyondLimit() const { return now >= limit; }

private:
  void norm(const OpSizes &op);
  void tokenRows(const OpSizes &op, const OpChoice &plan);
  void round(int64_t clusters, int64_t repeats);
  void linear(const OpSizes &op, const OpChoice &plan);
  void weights(const OpSizes &op, const OpChoice &plan, ArrayRef<int64_t> stacked);
  void attention(const OpSizes &op, const OpChoice &plan);
  void sharedAttention(const OpSizes &op, int64_t tokens);
  /// `waits`: what CTAs take longer than the exchange alone.
  void exchange(const OpSizes &op, const OpChoice &plan, double waits);
  /// Whether copies are under way once `op` has its stream.
  bool streamsBehind(const OpSizes &op) const;
  void finish();
  void shareWithNext(int64_t clusters);
  void stream(Stream &s, llvm::function_ref<std::string()> what);
  double atMost(StreamLimits &all, const Stream &s, double tiles, int64_t active, double &hidden) const;
  void add(Phase::Kind kind, double us, llvm::function_ref<std::string()> what);
  /// What several sets of warps take more where they wait for each other.
  double setsUs() const { return machine.setsUs * (setsOf(plan) - 1); }
  double attendTileNs(const OpSizes &op) const;
  /// How much longer warps take for what they do where other CTAs share their SM.
  double shareOfSm() const { return std::max(1.0, machine.setShare * perSm); }
  std::string label(const OpSizes &op) const { return opLabel(op.op); }

  const KernelSizes *sizes = nullptr; ///< of the kernel at hand
  const KernelChoice *choice = nullptr;
  KernelPlan plan;
  const Machine &machine;
  CacheLength length;
  bool describe;
  Place place;
  double joined = 0; ///< occupancy of this launch where it has several kernels
  double limit;      ///< where to stop
  LaunchCost cost;
  double ringUs = 0;     ///< in which the memory fills all rings
  double aheadUs = 0;    ///< in which it fetches what goes to the L2 at the start
  double idle = 0;       ///< since the producer could last run ahead, without consumers that take tiles
  double lastStream = 0; ///< time of the last stream
  double streamed = 0;   ///< of all streams since all CTAs were last at one place
  int64_t slotBytes = 0; ///< of a ring tile
  double now = 0;
  int64_t clusters = 1, ctas = 1; ///< that run at a time in this round
  int64_t perSm = 1;              ///< CTAs of an SM that has some
  int64_t repeats = 1;            ///< how often this round comes
};
} // namespace

bool cfc::areFewHeads(int64_t heads, const Machine &machine) { return heads * 4 <= machine.usableSms() / 2; }

int64_t cfc::clustersOf(const KernelShape &shape, const KernelPlan &plan, const Machine &machine) {
  int64_t fit = std::max<int64_t>(1, machine.resident(plan.part, plan.ctasPerSm));
  int64_t shares = sharesWork(plan) ? shape.getSegmentGroups() : 1; // of an item, at most
  int64_t clusters = std::min(itemsOf(shape, plan) * shares, fit);
  return plan.clusters > 0 ? std::min(clusters, plan.clusters) : clusters;
}

void Walk::add(Phase::Kind kind, double us, llvm::function_ref<std::string()> what) {
  if (describe) {
    Phase phase;
    phase.kind = kind;
    phase.what = what();
    phase.start = now;
    phase.us = us;
    phase.repeats = repeats;
    cost.phases.push_back(std::move(phase));
  }
  now += us;
  if (kind != Phase::Stream)
    idle += us;
}

//===-- Streams ---------------------------------------------------------------===//

/// x to the power of e. Plans that are weighed one after another have most of their limits in common.
static double powerOf(double x, double e) {
  struct Entry {
    double x = 0, e = 0, y = 0;
  };
  constexpr size_t kEntries = 1024;
  static thread_local std::array<Entry, kEntries> known;
  Entry &entry = known[(llvm::bit_cast<uint64_t>(x) * 0x9e3779b97f4a7c15) >> 54];
  if (entry.x != x || entry.e != e)
    entry = {x, e, std::pow(x, e)};
  return entry.y;
}

/// Time of `tiles` tiles for each of `active` sets. Adds up the limits that lead to it; `hidden` is what the
/// memory has done before.
double Walk::atMost(StreamLimits &all, const Stream &s, double tiles, int64_t active, double &hidden) const {
  double part = tiles * active / llvm::sum_of(s.sets, 0.0); // of this CTA's bytes
  // Sets that share an SM slow each other down once they fill it.
  double share = std::max(1.0, machine.setShare * active * perSm);
  double consumer = s.tileNs * share * 1e-3;
  int64_t stages = std::max<int64_t>(1, plan.ringStages / setsOf(plan));
  int64_t inFlight =
      plan.inFlight > 0 ? llvm::divideCeil(plan.inFlight, setsOf(plan)) : stages; // as in LowerFeed
  StreamLimits now;
  // More copies at a time than keep the memory busy slow it down.
  double excess = double(ctas) * inFlight * active * slotBytes / machine.airBytes - 1;
  now.memory =
      part * s.gridBytes * s.uneven / s.bandwidth * 1e6 * (1 + machine.crowd * std::clamp(excess, 0.0, 2.0));
  now.sm = part * s.bytes * perSm / machine.smBandwidth * 1e6;
  now.copies = part * s.bytes / s.copyBytes * perSm * s.copyNs * 1e-3;
  now.consumers = tiles * consumer;
  now.ring = tiles * std::max((machine.memoryUs + consumer) / stages, machine.memoryUs / inFlight);
  all.memory += now.memory, all.sm += now.sm, all.copies += now.copies;
  all.consumers += now.consumers, all.ring += now.ring;
  double early = std::min(hidden, now.memory), late = 1 - early / now.memory;
  hidden -= early;
  std::array limits = {now.memory * late, now.sm * late, now.copies * late, now.consumers, now.ring};
  constexpr double kRounding = 1e-9;
  double most = *llvm::max_element(limits); // a norm is no less
  if (this->now + most * (1 - kRounding) >= limit)
    return most;
  double sum = 0;
  for (double one : limits)
    sum += powerOf(one, machine.blend);
  return std::pow(sum, 1 / machine.blend);
}

void Walk::stream(Stream &s, llvm::function_ref<std::string()> what) {
  llvm::sort(s.sets);
  StreamLimits limits;
  // Tiles of this stream may leave a part of their slots empty.
  double filled = std::min(1.0, s.bytes / llvm::sum_of(s.sets, 0.0) / static_cast<double>(slotBytes));
  double hidden = std::min({idle, ringUs * filled + aheadUs, s.gridBytes * s.uneven / s.bandwidth * 1e6});
  double left = hidden, us = 0;
  // Sets with fewer tiles stop early; the others then have a part of the ring alone.
  for (size_t i = 0; i < s.sets.size(); ++i)
    if (int64_t tiles = s.sets[i] - (i ? s.sets[i - 1] : 0); tiles > 0)
      us += atMost(limits, s, tiles, s.sets.size() - i, left);
  limits.consumers += s.extraNs * 1e-3;
  us += (s.extraNs + s.tileNs) * 1e-3; // the last tile's products behind its arrival
  double taken = std::max(joined, double(clusters) / machine.resident(plan.part, plan.ctasPerSm));
  if (startsEarly(plan) && place.alone && 2 * taken > 1)
    us *= 1 + machine.pdlCrowded;
  cost.bytes += s.gridBytes * repeats;
  add(Phase::Stream, us, what);
  if (describe) {
    Phase &phase = cost.phases.back();
    phase.bytes = s.gridBytes;
    phase.hidden = hidden;
    phase.loadStart = phase.start - hidden;
    phase.limits = limits;
  }
  idle = aheadUs = 0;
  lastStream = us;
  streamed += us;
}

/// Tiles of each set where `rows` rows of `columns` columns are dealt to them, 64 rows at a time.
static void dealTiles(Stream &s, const KernelPlan &plan, int64_t rows, int64_t columns) {
  int64_t sets = setsOf(plan), blocks = llvm::divideCeil(rows, kSetRows);
  int64_t tiles = llvm::divideCeil(columns, std::min<int64_t>(plan.tileColumns, llvm::alignTo(columns, 16)));
  for (int64_t i = 0; i < sets; ++i)
    s.sets.push_back(llvm::divideCeil(std::max<int64_t>(0, blocks - i), sets) * tiles);
}

void Walk::linear(const OpSizes &op, const OpChoice &opPlan) {
  for (ArrayRef<int64_t> stacked : sizes->streams(plan, op, opPlan.split))
    weights(op, opPlan, stacked);
  exchange(op, opPlan, setsUs());
  // Several tokens' results are rounded and stored, some elements a thread.
  if (int64_t tokens = sizes->tokens(plan); tokens > 1) {
    double elements = double(sizes->linear(plan, op, opPlan.split).rows) * tokens / plan.part;
    add(Phase::Elements, machine.elementsUs * (1 + elements / (32.0 * plan.warps)),
        [&] { return label(op) + ": results of several tokens"; });
  }
}

/// Several tokens' rows, which each CTA reads through the L2 before the items: at its own rate, or all
/// together at the memory's.
void Walk::tokenRows(const OpSizes &op, const OpChoice &opPlan) {
  double bytes = sizes->tokenBytes(*choice, op, opPlan.split);
  if (bytes == 0)
    return;
  double all = bytes * plan.part * cost.kernels.back().clusters;
  double us = std::max(bytes / machine.tokenBandwidth, all / machine.bandwidth) * 1e6;
  double before = idle;
  add(Phase::Elements, us,
      [&]() -> std::string { return llvm::formatv("{0}: {1:F0} bytes of tokens a CTA", label(op), bytes); });
  if (startsEarly(plan) && cost.kernels.size() == 1) // rings were full before
    idle = before + std::min(us, aheadUs);
}

/// One stream of a linear's weights.
void Walk::weights(const OpSizes &op, const OpChoice &opPlan, ArrayRef<int64_t> stacked) {
  int64_t allRows = llvm::sum_of(stacked), allColumns = sizes->linear(plan, op, opPlan.split).columns;
  bool byColumns = opPlan.split == Split::Columns;
  int64_t rows = byColumns ? allRows : llvm::divideCeil(allRows, plan.part);
  int64_t columns = byColumns ? llvm::divideCeil(allColumns, plan.part) : allColumns;
  Stream s;
  s.bytes = 2.0 * rows * columns;
  s.gridBytes = 2.0 * allRows * allColumns * clusters;
  dealTiles(s, plan, rows, columns);
  bool packed = plan.weights == Layout::Packed && op.packable;
  s.bandwidth = packed ? machine.bandwidth : machine.boxBandwidth;
  s.copyBytes = sizes->copyBytes(plan, op, opPlan, stacked);
  // Which weight a box lies in is asked for each.
  bool asks = stacked.size() > 1 && s.copyBytes < 64 * 128;
  s.copyNs = asks ? machine.boxNs : machine.copyNs;
  double width = std::min(plan.tileColumns, columns);
  // Of one token a block is an ldmatrix, a quarter of another and an mma; of more the last two for 8 of them
  // each.
  double each = (1 + 1.5 * llvm::divideCeil(sizes->tokens(plan), 8)) / 2.5;
  s.tileNs = machine.tileNs + machine.blockNs * each * width / 16;
  if (op.finishes) // partial sums are left after each row of tiles
    s.tileNs += machine.sumTileNs / llvm::divideCeil(columns, plan.tileColumns);
  stream(s, [&]() -> std::string {
    return llvm::formatv("{0}: weights of {1} x {2} an item, {3}", label(op), allRows, allColumns,
                         packed ? "packed" : "native");
  });
}

/// A tile of cached tokens: half of a segment.
double Walk::attendTileNs(const OpSizes &op) const {
  double blocks = (llvm::divideCeil(op.dim, 16) + llvm::divideCeil(op.vDim, 16)) / 2.0;
  constexpr double kUnpacks = 2.7; // what f8 takes more (measured)
  double segment =
      (machine.segmentNs + machine.segmentBlockNs * blocks) * (op.cacheBytes == 1 ? kUnpacks : 1);
  return machine.tileNs + static_cast<double>(op.columnsIn(plan).tiles) * segment / 2;
}

/// All requests are as long, and each CTA has as much of their tokens.
void Walk::sharedAttention(const OpSizes &op, int64_t tokens) {
  int64_t segments = llvm::divideCeil(tokens, kSegmentTokens), heads = sizes->getShape().getHeadItems();
  int64_t mine = llvm::divideCeil(segments * heads, clusters);
  int64_t perGroup = std::max<int64_t>(1, llvm::divideCeil(segments, op.segmentGroups));
  AttendColumns columns = op.columnsIn(plan);
  Stream s;
  auto tokenBytes = static_cast<double>(op.cacheBytes * (op.dim + op.vDim));
  s.bytes = tokenBytes * mine * kSegmentTokens * columns.passes;
  s.gridBytes = tokenBytes * tokens * heads;
  // A share begins and ends with a group: the largest has half a group more than the mean.
  double largest = 1 + perGroup / 2.0 / std::max<int64_t>(1, mine);
  s.bytes *= largest;
  s.sets.assign(1, std::llround(2 * mine * columns.passes * largest));
  s.tileNs = attendTileNs(op);
  double merges = std::max(1.0, op.group * op.vDim / 128.0);
  double share = shareOfSm();
  s.extraNs = double(llvm::divideCeil(mine, perGroup)) * machine.groupNs * (1 + merges) / 2 * share;
  s.bandwidth = machine.boxBandwidth / largest;
  // Where a CTA has several heads the ring fills while one is finished and the next begun.
  double begun = machine.loadUs + machine.finishUs + machine.attendNewUs * (1 + merges) / 2;
  add(Phase::Elements, begun * share * heads / clusters,
      [&] { return label(op) + ": heads begun and finished"; });
  stream(s, [&]() -> std::string {
    return llvm::formatv("{0}: {1} cached tokens of each of {2} heads, {3} query heads each, shared out",
                         label(op), tokens, heads, op.group);
  });
  // Shares of a head end at different times.
  add(Phase::Sum, 2 * machine.finishUs + op.segmentGroups * op.stateBytes() / machine.mergeBandwidth * 1e6,
      [&] { return label(op) + ": the shares of a head merged"; });
  add(Phase::Elements, machine.attendNewUs * (1 + merges) / 2 + setsUs(),
      [&] { return label(op) + ": the appended token"; });
}

void Walk::attention(const OpSizes &op, const OpChoice &opPlan) {
  int64_t tokens = std::min(length.tokens, op.capacity), segments = llvm::divideCeil(tokens, kSegmentTokens);
  int64_t perGroup = llvm::divideCeil(segments, op.segmentGroups);
  int64_t chunks = chunksOf(plan);
  if (sharesWork(plan))
    return sharedAttention(op, tokens);
  int64_t groups = std::max<int64_t>(1, op.segmentGroups / plan.part / chunks); // of this CTA
  int64_t sets = llvm::bit_floor(uint64_t(std::min(setsOf(plan), groups)));
  // The CTA with the first groups has most.
  int64_t mine = std::min(segments, groups * perGroup);
  AttendColumns columns = op.columnsIn(plan);
  Stream s;
  // Further passes find K and V in the L2.
  auto tokenBytes = static_cast<double>(op.cacheBytes * (op.dim + op.vDim));
  s.bytes = tokenBytes * std::min(tokens, mine * kSegmentTokens) * columns.passes;
  s.gridBytes = tokenBytes * tokens * clusters / chunks;
  s.sets.assign(sets, 2 * columns.passes *
                          std::min<int64_t>(llvm::divideCeil(mine, sets), groups / sets * perGroup));
  s.tileNs = attendTileNs(op);
  double merges = std::max(1.0, op.group * op.vDim / 128.0);
  int64_t ofSet = groups / sets;
  s.extraNs = double(ofSet) * machine.groupNs * (1 + merges) / 2 * shareOfSm();
  s.bandwidth = machine.boxBandwidth;
  s.copyNs = machine.copyNs;
  if (tokens == 0)
    s.sets.assign(sets, 0);
  // The CTAs of the longest request are the last.
  if (sizes->getShape().getRequests() > 1) {
    s.bytes *= length.longest;
    // Where SMs take several items each, some have much less in all, and the memory waits for the others.
    constexpr double kUneven = 1.15;
    if (cost.kernels.back().items * plan.part > machine.usableSms())
      s.uneven = kUneven;
    for (int64_t &tiles : s.sets)
      tiles = std::llround(tiles * length.longest);
  }
  stream(s, [&]() -> std::string {
    return llvm::formatv("{0}: {1} cached tokens{2}, {3} query heads an item", label(op), tokens,
                         chunks > 1 ? llvm::formatv(" in {0} chunks", chunks).str() : std::string(),
                         op.group);
  });
  double waits = sets > 1 ? setsUs() : 0;
  // No copies are under way, and of one request all CTAs are through at a time.
  bool isAlone = sizes->getShape().getRequests() == 1 && !streamsBehind(op);
  exchange(op, opPlan, isAlone ? waits - machine.loadUs * llvm::Log2_64(plan.part) : waits);
  bool left = opPlan.finish == Exchange::Reader;
  if (chunks > 1)
    add(Phase::Sum, chunksMergedUs(machine, plan, op, sizes->getShape().getHeads(), opPlan.finish), [&] {
      return label(op) +
             (left ? ": the chunks of all heads merged by who reads them" : ": the chunks of a head merged");
    });
  // All warps have elements of the new token; beside other requests' streams more were not seen to help.
  int64_t warps = sizes->getShape().getRequests() == 1 ? plan.warps : kSetWarps;
  double elements = op.group * op.vDim / (32.0 * warps);
  if (scattersHeads(op.group, plan, opPlan))
    elements /= plan.part;
  add(Phase::Elements, machine.attendNewUs * (1 + std::max(1.0, elements)) / 2 + (left ? 0 : waits),
      [&] { return label(op) + ": the appended token"; });
}

//===-- Around them -----------------------------------------------------------===//

/// A cooperative launch starts only when there is room for all of it, and so does what comes behind it.
void Walk::launch(bool cooperative, bool beside) {
  bool early = startsEarly(plan);
  double us = early ? machine.launchPdlUs : plan.pdl == 3 ? machine.launchEndUs : machine.launchUs;
  add(Phase::Launch, us + cooperative * machine.cooperativeUs,
      [&] { return early ? "launch, overlapped" : "launch"; });
  // A kernel that starts early fills its rings while the one before streams: the memory gains nothing but
  // what that one has left idle at its end, unless that streams little and leaves room for all.
  constexpr double kWhole = 1e9;
  if (beside || (early && place.behindIdle))
    idle = kWhole;
  else
    idle = early ? machine.endUs * !place.alone : std::max(0.0, idle - 0.7 * us);
}

/// A kernel that started early has filled its rings before: only what goes to the L2 comes in now.
void Walk::norm(const OpSizes &op) {
  double us = machine.normUs + setsUs() + machine.normColumnNs * 1e-3 * op.columns * kSetWarps / plan.warps;
  double before = idle;
  add(Phase::Norm, us, [&] { return label(op); });
  if (startsEarly(plan) && cost.kernels.size() == 1)
    idle = before + std::min(us + machine.memoryUs, aheadUs);
}

void Walk::gridSync() {
  double us = machine.gridSyncUs + machine.loadUs + machine.skew * streamed;
  add(Phase::Exchange, us, [] { return std::string("all CTAs wait for each other"); });
  streamed = 0;
}

bool Walk::streamsBehind(const OpSizes &op) const {
  return cost.kernels.back().rounds > 1 || llvm::any_of(sizes->getOps(), [&](const OpSizes &other) {
           return &other > &op && (other.kind == OpSizes::Linear || other.kind == OpSizes::Attention);
         });
}

void Walk::exchange(const OpSizes &op, const OpChoice &opPlan, double waits) {
  Exchanged what = exchangeOf(*sizes, plan, op, opPlan);
  if (what.algorithm == Exchange::Unset)
    return;
  double us = exchangeUs(machine, plan, what) + machine.skew * lastStream + waits;
  add(Phase::Exchange, us, [&]() -> std::string {
    return llvm::formatv("{0}: {1:F0} bytes a CTA by {2}", label(op), what.bytes, stringify(what.algorithm));
  });
}

void Walk::finish() {
  for (auto [op, opPlan] : llvm::zip_equal(sizes->getOps(), choice->ops)) {
    if (!op.finishes)
      continue;
    int64_t items = cost.kernels.back().items;
    double us = opPlan.finish == Exchange::Waiting ? machine.waitingUs : machine.finishUs;
    for (int64_t width : op.widths) {
      double sums = double(width) * items;
      // Ordered: the CTAs that come last read all partial sums.
      int64_t readers = plan.part * (opPlan.finish == Exchange::Waiting
                                         ? std::max<int64_t>(1, finishers(width, items, plan, opPlan.finish))
                                         : finishPieces(width, plan, opPlan.finish));
      us += opPlan.finish == Exchange::Atomic ? sums / machine.atomicRate * 1e6
                                              : 4 * sums / readers / machine.sumBandwidth * 1e6;
    }
    add(Phase::Sum, us,
        [&] { return label(op) + ": summed over the items by " + stringify(opPlan.finish).str(); });
  }
}

/// All operations but norms, which come before the items, once for `now` clusters at a time.
void Walk::round(int64_t nowClusters, int64_t times) {
  clusters = nowClusters, repeats = times;
  ctas = clusters * plan.part;
  // An SM gets as many CTAs as it may hold, though others have none (measured).
  perSm = std::min(plan.ctasPerSm, ctas);
  // Behind what leaves the memory idle only whole rings count: a slot is filled again behind its tile alone.
  int64_t filled = plan.ringStages - (place.behindIdle ? setsOf(plan) : 0);
  ringUs = double(ctas) * filled * slotBytes / machine.bandwidth * 1e6;
  double start = now;
  for (auto [op, opPlan] : llvm::zip_equal(sizes->getOps(), choice->ops)) {
    if (isBeyondLimit())
      return;
    if (op.kind == OpSizes::Linear)
      linear(op, opPlan);
    else if (op.kind == OpSizes::Attention)
      attention(op, opPlan);
    else if (op.kind == OpSizes::Elements)
      add(Phase::Elements, machine.elementsUs, [&] { return label(op); });
  }
  now += (repeats - 1) * (now - start);
  repeats = 1;
}

/// CTAs of the launch behind that find room early fill their rings and slow this one down, which is of no use
/// where it then waits for those that found none.
void Walk::shareWithNext(int64_t clusters) {
  constexpr double kOfShared = 0.7; // of an SM's shared memory is ring
  double rings =
      kOfShared * static_cast<double>(machine.usableSms() * machine.sharedLimit(1)) / machine.bandwidth * 1e6;
  double room =
      std::max(0.0, 1 - double(clusters * plan.part) / double(machine.usableSms() * plan.ctasPerSm));
  // Where either launch streams little they are hardly in each other's way.
  double own = static_cast<double>(cost.bytes) / machine.bandwidth * 1e6;
  now += machine.earlyUs * 4 * room * (1 - room) * std::min({place.behindUs / rings, own / rings, 1.0});
}

/// Part of a stream's time that is saved where it comes from the L2, which gives SMs little more a second
/// than the memory does.
static constexpr double kGainOfL2 = 0.6;

void Walk::kernel(const KernelSizes &ofKernel, const KernelChoice &chosen, bool last) {
  sizes = &ofKernel, choice = &chosen, plan = chosen.kernel;
  ItemRounds &deal = cost.kernels.emplace_back();
  deal.items = itemsOf(sizes->getShape(), plan);
  deal.clusters = clustersOf(sizes->getShape(), plan, machine);
  if (sharesWork(plan))
    deal.items = deal.clusters; // as many shares as run at a time
  deal.rounds = llvm::divideCeil(deal.items, deal.clusters);
  int64_t clusters = deal.clusters, items = deal.items;
  slotBytes = sizes->slotBytes(chosen);
  if (cost.kernels.size() == 1 && plan.prefetch > 0)
    aheadUs = kGainOfL2 * double(clusters) * plan.part * plan.prefetch * slotBytes / machine.bandwidth * 1e6;
  if (cost.kernels.size() == 1 && plan.held > 0) {
    int64_t held = std::min(plan.held, sizes->firstTiles(chosen).canBeHeld) * setsOf(plan);
    aheadUs += double(clusters) * plan.part * held * slotBytes / machine.bandwidth * 1e6;
  }
  bool norms = false;
  auto startGroup = [&] {
    for (const OpSizes &op : sizes->getOps())
      if (op.kind == OpSizes::Norm)
        norm(op), norms = true;
    for (auto [op, opPlan] : llvm::zip_equal(sizes->getOps(), choice->ops))
      tokenRows(op, opPlan);
  };
  startGroup();
  // A norm, and a barrier of the grid, have it in their time; cached tokens come in meanwhile.
  bool takesTokens = plan.pdl == 2 && sizes->attends();
  if (cost.kernels.size() == 1 && !norms && !takesTokens)
    add(Phase::Elements, machine.loadUs, [] { return std::string("values of other kernels are read"); });
  for (int64_t group = 0; group < tokenGroupsOf(plan); ++group) {
    if (group)
      startGroup();
    round(clusters, 1);
    if (int64_t again = items / clusters - 1; again > 0) // streams now begin in the exchanges before
      round(clusters, again);
    double whole = now;
    if (int64_t rest = items % clusters)
      round(rest, 1);
    // Clusters that have no item left make room for the launch behind, which fills its rings meanwhile.
    double done = 1 - double(items % clusters) / clusters;
    if (last && group + 1 == tokenGroupsOf(plan))
      now -= std::min({machine.tailUs, place.behindUs / 2, (now - whole) * done * done});
  }
  if (last)
    shareWithNext(clusters);
  finish();
}

double cfc::leastUs(size_t kernels, const Machine &machine) {
  double us = std::min({machine.launchUs, machine.launchEndUs, machine.launchPdlUs});
  if (kernels > 1)
    us += machine.cooperativeUs + static_cast<double>(kernels - 1) * (machine.gridSyncUs + machine.loadUs);
  constexpr double kRounding = 1e-9;
  return us * (1 - kRounding);
}

/// The part of the machine that a launch takes.
static double occupancy(ArrayRef<const KernelSizes *> sizes, ArrayRef<KernelChoice> choices,
                        const Machine &machine) {
  double most = 0;
  for (auto [ofKernel, choice] : llvm::zip_equal(sizes, choices)) {
    double fit = std::max<int64_t>(1, machine.resident(choice.kernel.part, choice.kernel.ctasPerSm));
    most = std::max(most, clustersOf(ofKernel->getShape(), choice.kernel, machine) / fit);
  }
  return most;
}

bool cfc::fitsBeside(const KernelSizes &sizes, const KernelChoice &choice, const Machine &machine,
                     Place place) {
  const KernelPlan &kernel = choice.kernel;
  if (!place.freeSms || !startsEarly(kernel) || kernel.part > 1)
    return false;
  int64_t bytes = sizes.besideRing(choice) + ringBytes(kernel, sizes.slotBytes(choice));
  // Two on an SM begin while the first launch still streams, and slow it down (measured).
  return bytes <= machine.sharedLimit(1) && clustersOf(sizes.getShape(), kernel, machine) <= place.freeSms;
}

LaunchCost cfc::predict(ArrayRef<const KernelSizes *> sizes, ArrayRef<KernelChoice> choices,
                        const Machine &machine, CacheLength length, bool describe, Place place,
                        double limit) {
  double joined = choices.size() > 1 ? occupancy(sizes, choices, machine) : 0;
  // The end of the last kernel may take off as much again (Walk::kernel).
  limit += std::min(machine.tailUs, place.behindUs / 2);
  Walk walk(choices.front().kernel, machine, length, describe, place, joined, limit);
  bool beside = sizes.size() == 1 && fitsBeside(*sizes.front(), choices.front(), machine, place);
  walk.launch(/*cooperative=*/sizes.size() > 1, beside);
  for (auto [i, ofKernel, choice] : llvm::enumerate(sizes, choices)) {
    if (walk.isBeyondLimit())
      break;
    if (i)
      walk.gridSync();
    walk.kernel(*ofKernel, choice, /*last=*/i + 1 == sizes.size());
  }
  return walk.finished();
}
