//===- Scheduler.cpp - Fibers, warps and events ----------------------------===//
//
// A fiber that blocks jumps straight to the next one: mostly a random ready lane
// of its own warp, now and then a random warp of its cluster, more rarely one of
// another cluster (the nearer, the warmer the caches). Time is counted in picks of
// warps; late effects are events in that time, and time jumps ahead when no thread
// can run.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/Runtime.h"
#include <fmt/format.h>
#include <new>
#include <sys/mman.h>

using namespace cfc::emu;

namespace {
constexpr size_t kSharedAlign = 1024;
constexpr size_t kSharedGuard = 1024;
constexpr unsigned kMostThreads = 12288; // that run at a time, unless the caller asks for more

size_t alignUp(size_t bytes, size_t align) { return (bytes + align - 1) / align * align; }

/// Different behaviours for different seeds: some land everything late, some switch often, ...
Chaos drawChaos(Random &random, bool on) {
  if (!on)
    return {/*on=*/false,    /*stay=*/1u << 30, /*visit=*/1u << 30, /*copyDelay=*/1,
            /*landDelay=*/1, /*preempt=*/1024,  /*late=*/0};
  constexpr unsigned stays[] = {64, 512, 1024, 4096}, visits[] = {512, 8192, 65536, 65536},
                     delays[] = {1, 16, 128, 1024}, late[] = {0, 50, 50, 100};
  Chaos chaos;
  chaos.stay = stays[random.below(4)];
  chaos.visit = visits[random.below(4)];
  chaos.copyDelay = delays[random.below(4)];
  chaos.landDelay = delays[random.below(4)] * 4;
  chaos.preempt = random.oneIn(2) ? 256 : 2048;
  chaos.late = late[random.below(4)];
  return chaos;
}
} // namespace

unsigned cfc::emu::mostClusters(unsigned threads, unsigned cluster) {
  return std::max(1u, kMostThreads / (threads * cluster));
}

Launch::Launch(const Kernel &kernel, const LocationTable &locations, unsigned numClusters, void *table,
               void *workspace, const Memory &memory, const Options &options, Report &report)
    : kernel(kernel), locations(locations), numClusters(numClusters), table(table), workspace(workspace),
      memory(memory), report(report), random{options.seed * 0x9E3779B97F4A7C15ull + 1},
      budget(options.maxSwitches ? options.maxSwitches : 200'000'000), lastRegion(locations.size()) {
  random.next();
  chaos = drawChaos(random, options.chaos);
  host.launch = this;
  host.context = &hostContext;
  unsigned most = std::min(numClusters, mostClusters(kernel.threads, kernel.cluster));
  unsigned resident = options.residentClusters ? options.residentClusters
                      : kernel.isCooperative   ? numClusters
                      : chaos.on               ? 1 + random.below(most)
                                               : most;
  report.residentClusters = std::min(numClusters, resident);
}

Launch::~Launch() {
  for (; !events.empty(); events.pop())
    if (events.top().kind == Event::Complete)
      delete static_cast<Copy *>(events.top().what);
    else if (events.top().kind == Event::LandAsync)
      delete static_cast<AsyncStore *>(events.top().what);
  for (auto &slot : slots)
    munmap(slot->arena, slot->arenaBytes);
  returnStacks(stacks);
}

//===-- Clusters ----------------------------------------------------------===//
static std::unique_ptr<Cta> makeCta(Launch &launch, Cluster &cluster, unsigned rank) {
  auto cta = std::make_unique<Cta>();
  unsigned threads = launch.kernel.threads;
  cta->launch = &launch;
  cta->cluster = &cluster;
  cta->rank = rank;
  cta->shared = cluster.arena + kSharedGuard + rank * cluster.stride;
  cta->sharedBytes = launch.kernel.sharedBytes;
  cta->fibers = std::make_unique<Fiber[]>(threads);
  cta->warps.resize(threads / 32);
  if (launch.kernel.tracksWriters) {
    cta->writers.resize((launch.kernel.sharedBytes + 3) / 4);
    cta->written.resize(launch.kernel.sharedBytes / kWrittenBlock + 1);
  }
  size_t granules = (launch.kernel.sharedBytes + 15) / 16;
  if (launch.kernel.tracksReaders)
    cta->reads.resize(granules * cta->warps.size());
  for (unsigned t = 0; t < threads; ++t) {
    Fiber &fiber = cta->fibers[t];
    fiber.launch = &launch;
    fiber.cta = cta.get();
    fiber.warp = &cta->warps[t / 32];
    fiber.thread = t;
    fiber.lane = t % 32;
    fiber.context = &fiber.warp->contexts[fiber.lane];
  }
  for (unsigned w = 0; w < threads / 32; ++w) {
    cta->warps[w].cta = cta.get();
    cta->warps[w].fibers = &cta->fibers[32 * w];
    if (!cta->reads.empty())
      cta->warps[w].reads = &cta->reads[granules * w];
  }
  return cta;
}

void Launch::prepareSlots() {
  stacks = takeStacks(size_t(report.residentClusters) * kernel.cluster * kernel.threads);
  for (unsigned i = 0; i < report.residentClusters; ++i) {
    auto slot = std::make_unique<Cluster>();
    slot->stride = alignUp(kernel.sharedBytes, kSharedAlign) + kSharedGuard;
    slot->arenaBytes = kSharedGuard + kernel.cluster * slot->stride;
    void *arena = mmap(nullptr, slot->arenaBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED)
      throw std::bad_alloc();
    slot->arena = static_cast<char *>(arena);
    for (unsigned rank = 0; rank < kernel.cluster; ++rank)
      slot->ctas.push_back(makeCta(*this, *slot, rank));
    slots.push_back(std::move(slot));
  }
}

void cfc::emu::contextMain(void *argument) {
  Launch &launch = *static_cast<Launch *>(argument);
  Fiber *self = launch.current;
  const Cta &cta = *self->cta;
  launch.kernel.entry(self, launch.table, launch.workspace, self->thread, cta.rank, cta.cluster->index,
                      launch.numClusters, cta.shared);
  launch.threadExit(self);
}

/// The stacks of a warp's lanes start at different offsets, so that they do not share cache sets.
static void *stackTop(char *stack, size_t index) {
  return stack + kStackBytes - (index * 576) % (kStackBytes / 2);
}

static void startFiber(Fiber &fiber, char *stack, size_t index) {
  size_t bytes = static_cast<char *>(stackTop(stack, index)) - stack;
  *fiber.context = makeContext(stackTop(stack, index), bytes);
  fiber.wait = WaitKind::None;
  fiber.stores = Fiber::Undecided;
  fiber.atCluster = Fiber::Idle;
  fiber.proxyFence = 0;
  fiber.open = nullptr;
  fiber.known.clear();
  fiber.groups.reset();
  fiber.fences.reset();
}

static void startCta(Cta &cta, unsigned number) {
  const Kernel &kernel = cta.launch->kernel;
  cta.number = number;
  cta.exited = cta.gridWaited = false;
  cta.live = kernel.threads;
  cta.barriers.clear();
  for (NamedBarrier &barrier : cta.named)
    barrier = {};
  cta.overlay = std::make_unique<Overlay>();
  std::fill(cta.writers.begin(), cta.writers.end(), 0);
  std::fill(cta.written.begin(), cta.written.end(), 0);
  std::fill(cta.reads.begin(), cta.reads.end(), ReadTag());
  cta.remoteReads.clear();
  cta.incomingStores.clear();
  cta.events = cta.lastClusterRelease = 1;
  cta.counts.fill(0);
  poison(cta.shared, kernel.sharedBytes);
}

void Launch::startCluster(Cluster &slot, unsigned index) {
  slot.index = index;
  slot.liveCtas = kernel.cluster;
  slot.liveThreads = kernel.cluster * kernel.threads;
  slot.arrived = 0;
  slot.current.clear();
  slot.completed.clear();
  ++liveClusters;
  size_t slotNumber = 0;
  while (slots[slotNumber].get() != &slot)
    ++slotNumber;
  for (auto &cta : slot.ctas) {
    startCta(*cta, index * kernel.cluster + cta->rank);
    size_t first = (slotNumber * kernel.cluster + cta->rank) * kernel.threads;
    for (unsigned t = 0; t < kernel.threads; ++t)
      startFiber(cta->fibers[t], stacks[first + t], first + t);
    for (Warp &warp : cta->warps) {
      warp.ready = warp.live = ~0u;
      warp.arrived = 0;
      warp.fences = {};
      warp.readsDone = 0;
      warp.slow = chaos.on && random.oneIn(8);
      enqueue(warp);
    }
  }
}

//===-- Switching ---------------------------------------------------------===//
void Launch::switchTo(Fiber *from, Fiber *to) {
  if (from == to)
    return;
  ++switches;
  current = to;
  switchContext(*from->context, *to->context, this);
}

void Launch::switchAway(Fiber *from) {
  Warp *warp = currentWarp;
  bool stay = warp && warp->ready && --stayFor > 0;
  switchTo(from, stay ? pickLane(*warp) : pickWarp());
}

void Launch::block(Fiber *fiber, WaitKind kind, uint32_t location) {
  fiber->wait = kind;
  fiber->location = location;
  fiber->warp->ready &= ~(1u << fiber->lane);
  switchAway(fiber);
}

void Launch::enqueue(Warp &warp) {
  if (warp.queued)
    return;
  Cluster &cluster = *warp.cta->cluster;
  warp.queued = true;
  cluster.runnable.push_back(&warp);
  if (cluster.queued)
    return;
  cluster.queued = true;
  runnable.push_back(&cluster);
}

void Launch::wake(Fiber *fiber) {
  fiber->wait = WaitKind::None;
  fiber->warp->ready |= 1u << fiber->lane;
  enqueue(*fiber->warp);
}

void Launch::preemptNow(Fiber *fiber, uint32_t location) {
  fiber->location = location;
  accesses += preemptAfter - untilPreempt + 1;
  preemptAfter = untilPreempt = chaos.on ? 1 + random.below(2 * chaos.preempt) : chaos.preempt;
  uint32_t ready = fiber->warp->ready;
  bool sameWarp = chaos.on ? random.oneIn(2) : ready >> fiber->lane > 1;
  switchTo(fiber, sameWarp ? pickLane(*fiber->warp, fiber->lane) : pickWarp());
}

//===-- Picking -----------------------------------------------------------===//
/// The first of the lanes in `ready` (not 0), from lane `start` on.
static unsigned firstFrom(uint32_t ready, unsigned start) {
  return (llvm::countr_zero(llvm::rotr(ready, start)) + start) & 31;
}

/// A random lane was picked one step ahead, so that its stack is at hand when it is switched to.
Fiber *Launch::pickLane(Warp &warp, unsigned after) {
  uint32_t ready = warp.ready;
  if (!chaos.on)
    return &warp.fibers[firstFrom(ready, (after + 1) & 31)];
  unsigned lane = ready >> warp.next & 1 ? warp.next : firstFrom(ready, random.next() & 31);
  if (uint32_t rest = ready & ~(1u << lane)) {
    warp.next = firstFrom(rest, random.next() & 31);
    const char *stack = static_cast<const char *>(warp.contexts[warp.next]);
    __builtin_prefetch(&warp.fibers[warp.next]);
    __builtin_prefetch(stack);
    __builtin_prefetch(stack + 64);
  }
  return &warp.fibers[lane];
}

void Launch::schedule(Event::Kind kind, void *what, uint64_t delay) {
  events.push({kind, tick + delay, eventOrder++, what});
}

void Launch::runDueEvents() {
  while (!events.empty() && events.top().due <= tick) {
    Event event = events.top();
    events.pop();
    switch (event.kind) {
    case Event::ReadSource:
      readSource(*static_cast<Copy *>(event.what));
      break;
    case Event::Complete:
      complete(*static_cast<Copy *>(event.what));
      break;
    case Event::Land:
      land(*static_cast<Chunk *>(event.what));
      break;
    case Event::LandAsync:
      land(*static_cast<AsyncStore *>(event.what));
      break;
    }
  }
}

void Launch::failHang() {
  std::string message = fmt::format("no thread, bulk copy or phase of an mbarrier has ended in {} switches "
                                    "between threads or four times as "
                                    "many accesses",
                                    budget);
  if (current == &host)
    fail(static_cast<Cta *>(nullptr), FindingKind::Hang, ~0u, std::move(message));
  fail(current, FindingKind::Hang, current->location, std::move(message));
}

/// Index of the next of `n`: any, or all in turn.
size_t Launch::pickIndex(size_t n) { return chaos.on ? random.below(n) : roundRobin++ % n; }

/// The cluster that may run now: the same for a while; null if none has runnable warps.
Cluster *Launch::pickCluster() {
  if (visited && !visited->runnable.empty() && effort() < visitEnd)
    return visited;
  while (!runnable.empty()) {
    size_t at = pickIndex(runnable.size());
    Cluster *cluster = runnable[at];
    if (!cluster->runnable.empty()) {
      visitEnd = effort() + 1 + random.below(chaos.visit);
      return visited = cluster;
    }
    cluster->queued = false;
    runnable[at] = runnable.back();
    runnable.pop_back();
  }
  return visited = nullptr;
}

Fiber *Launch::pickWarp() {
  if (effort() - lastProgress > budget)
    failHang();
  ++tick;
  runDueEvents();
  for (unsigned tries = 0;;) {
    Cluster *cluster = pickCluster();
    if (!cluster) {
      currentWarp = nullptr;
      if (events.empty())
        return &host;
      tick = std::max(tick, events.top().due);
      runDueEvents();
      continue;
    }
    std::vector<Warp *> &warps = cluster->runnable;
    size_t at = pickIndex(warps.size());
    Warp *warp = warps[at];
    if (!warp->ready) {
      warp->queued = false;
      warps[at] = warps.back();
      warps.pop_back();
      continue;
    }
    if (warp->slow && tries++ < 4)
      continue;
    stayFor = 1 + random.below(chaos.stay);
    currentWarp = warp;
    return pickLane(*warp);
  }
}

//===-- The end of a thread -----------------------------------------------===//
void Launch::threadExit(Fiber *fiber) {
  Warp &warp = *fiber->warp;
  Cta &cta = *fiber->cta;
  Cluster &cluster = *cta.cluster;
  if (warp.arrived)
    fail(fiber, FindingKind::Divergence, warp.location,
         fmt::format("lane {} exits while {} lanes wait at this collective", fiber->lane,
                     llvm::popcount(warp.arrived)));
  progress();
  closeOpen(fiber);
  warp.live &= ~(1u << fiber->lane);
  warp.ready &= ~(1u << fiber->lane);
  --cluster.liveThreads;
  if (fiber->atCluster == Fiber::Arrived)
    --cluster.arrived;
  if (cluster.arrived && cluster.arrived == cluster.liveThreads)
    completeClusterBarrier(cluster);
  if (--cta.live == 0) {
    ctaExit(cta);
    if (--cluster.liveCtas == 0) {
      finished = &cluster;
      switchTo(fiber, &host);
    }
  }
  switchAway(fiber);
  __builtin_unreachable();
}
