//===- Sync.cpp - Fences, barriers and mbarriers ---------------------------===//
//
// An mbarrier's word in shared memory holds a token that leads to the object
// kept beside the CTA, so a word that was never initialised or was overwritten
// is noticed at its next use.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/EntryPoints.h"
#include "runtime/emulator/Runtime.h"
#include <cstring>
#include <fmt/format.h>

using namespace cfc::emu;

namespace {
constexpr uint32_t kToken = 0x6d626172; // upper half of an mbarrier's word
constexpr uint32_t kIndexMask =
    0x2c9277b5; // xor-ed to the index in the lower half: no small number looks like one
constexpr int64_t kMostTx = (1 << 20) - 1;
constexpr uint32_t kMostCount = (1 << 20) - 1;
} // namespace

//===-- Fences ------------------------------------------------------------===//
static bool initialised(const Mbarrier &barrier, const Fiber &fiber) {
  return barrier.initThread == fiber.thread;
}

void cfc_emu_fence(Fiber *fiber, uint32_t scope, uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.closeOpen(fiber);
  if (fiber->fences)
    launch.acquire(fiber, fiber->fences->observed, Scope(scope));
  if (!fiber->known.empty() && !fiber->fences)
    fiber->fences = std::make_unique<FenceState>();
  if (fiber->fences) {
    prune(fiber->fences->fenced);
    launch.release(fiber, fiber->fences->fenced, Scope(scope));
  }
  if (Scope(scope) >= Scope::Cluster) {
    fiber->cta->lastClusterRelease = nextEvent(*fiber->cta);
    for (Mbarrier &barrier : fiber->cta->barriers)
      barrier.visibleToPeers |= initialised(barrier, *fiber);
  }
}

void cfc_emu_fence_proxy_async(Fiber *fiber, uint32_t) {
  fiber->proxyFence = nextEvent(*fiber->cta);
  fiber->warp->fences.note(fiber->lane, fiber->proxyFence);
  for (Mbarrier &barrier : fiber->cta->barriers)
    barrier.visibleToCopies |= initialised(barrier, *fiber);
}

void cfc_emu_reads_done(Fiber *fiber, uint32_t) {
  // One lane knows it for all: the instruction reads for the whole warp at once.
  fiber->warp->readsDone = nextEvent(*fiber->cta);
}

void cfc_emu_fence_mbarrier_init(Fiber *fiber, uint32_t) {
  for (Mbarrier &barrier : fiber->cta->barriers)
    if (initialised(barrier, *fiber))
      barrier.visibleToPeers = barrier.visibleToCopies = true;
}

void cfc_emu_grid_wait(Fiber *fiber, uint32_t) { fiber->cta->gridWaited = true; }

uint64_t cfc_emu_global_timer(Fiber *fiber, uint32_t) { return fiber->launch->effort(); }

void cfc_emu_poll(Fiber *fiber, uint32_t location) { fiber->launch->maybePreempt(fiber, location); }

void cfc_emu_trap(Fiber *fiber, uint32_t location) {
  fiber->launch->fail(fiber, FindingKind::Trap, location, "the kernel aborts itself");
}

//===-- bar.sync and barrier.cluster --------------------------------------===//
void cfc_emu_barrier(Fiber *fiber, uint32_t id, uint32_t threads, uint32_t location) {
  Launch &launch = *fiber->launch;
  if (id >= 16 || !threads || threads % 32 || threads > launch.kernel.threads)
    launch.fail(fiber, FindingKind::Usage, location,
                fmt::format("barrier {} of {} threads: 16 barriers exist, of 32 to {} threads in steps of 32",
                            id, threads, launch.kernel.threads));
  NamedBarrier &barrier = fiber->cta->named[id];
  if (barrier.waiters.empty()) {
    barrier.threads = threads;
    barrier.mark = ++launch.merges;
    barrier.gathered.clear();
  } else if (barrier.threads != threads) {
    launch.fail(
        fiber, FindingKind::Usage, location,
        fmt::format("barrier {} of {} threads, where others wait for {}", id, threads, barrier.threads));
  }
  if (fiber->thread % 32 == 0)
    fiber->cta->count(Counter::Barriers);
  launch.gather(fiber, barrier.gathered, barrier.mark);
  barrier.waiters.push_back(fiber);
  if (barrier.waiters.size() < threads) {
    fiber->waitDetail = id;
    launch.block(fiber, WaitKind::NamedBarrier, location);
    return;
  }
  launch.spread(barrier.gathered, barrier.waiters);
  for (Fiber *waiter : barrier.waiters)
    launch.wake(waiter);
  barrier.waiters.clear();
}

void cfc_emu_cluster_arrive(Fiber *fiber, uint32_t relaxed, uint32_t location) {
  Launch &launch = *fiber->launch;
  Cluster &cluster = *fiber->cta->cluster;
  if (fiber->atCluster != Fiber::Idle)
    launch.fail(fiber, FindingKind::Usage, location, "second cluster_arrive without a cluster_wait");
  fiber->atCluster = Fiber::Arrived;
  if (!relaxed) {
    launch.release(fiber, cluster.current, Scope::Cluster);
    for (Mbarrier &barrier : fiber->cta->barriers)
      barrier.visibleToPeers |= initialised(barrier, *fiber);
  }
  if (++cluster.arrived == cluster.liveThreads)
    launch.completeClusterBarrier(cluster);
}

void Launch::completeClusterBarrier(Cluster &cluster) {
  cluster.arrived = 0;
  cluster.completed = std::exchange(cluster.current, {});
  ++cluster.generation;
  for (auto &cta : cluster.ctas)
    for (unsigned t = 0; t < kernel.threads; ++t)
      if (cta->fibers[t].atCluster == Fiber::Arrived)
        cta->fibers[t].atCluster = Fiber::Completed;
  for (Fiber *waiter : cluster.waiters)
    wake(waiter);
  cluster.waiters.clear();
}

void cfc_emu_cluster_wait(Fiber *fiber, uint32_t location) {
  Launch &launch = *fiber->launch;
  Cluster &cluster = *fiber->cta->cluster;
  if (fiber->atCluster == Fiber::Idle)
    launch.fail(fiber, FindingKind::Usage, location, "cluster_wait without a cluster_arrive");
  if (fiber->atCluster == Fiber::Arrived) {
    cluster.waiters.push_back(fiber);
    launch.block(fiber, WaitKind::ClusterBarrier, location);
  }
  fiber->atCluster = Fiber::Idle;
  launch.acquire(fiber, cluster.completed, Scope::Cluster);
}

//===-- mbarriers ---------------------------------------------------------===//
static uint64_t readWord(const void *address) {
  uint64_t word;
  std::memcpy(&word, address, sizeof(word));
  return word;
}

static Mbarrier *findBarrier(Cta &cta, const void *address) {
  uint64_t word = readWord(address);
  uint32_t index = static_cast<uint32_t>(word) ^ kIndexMask;
  if (word >> 32 != kToken || index >= cta.barriers.size())
    return nullptr;
  Mbarrier &barrier = cta.barriers[index];
  return cta.shared + barrier.offset == address ? &barrier : nullptr;
}

Mbarrier *cfc::emu::checkBarrier(Fiber *fiber, Cta &cta, const void *address, uint32_t location) {
  if (Mbarrier *barrier = findBarrier(cta, address))
    return barrier;
  auto offset = static_cast<const char *>(address) - cta.shared;
  uint64_t word = readWord(address);
  bool initialisedOnce = false;
  for (const Mbarrier &barrier : cta.barriers)
    initialisedOnce |= barrier.offset == offset;
  fiber->launch->fail(fiber, FindingKind::BadBarrier, location,
                      fmt::format("the mbarrier at shared byte {} of CTA {} {}", offset, cta.rank,
                                  initialisedOnce
                                      ? fmt::format("was overwritten (its word is {:#018x})", word)
                                      : "is not initialised"));
}

void cfc_emu_mbarrier_init(Fiber *fiber, char *address, uint32_t count, uint32_t location) {
  Launch &launch = *fiber->launch;
  Cta &cta = *fiber->cta;
  launch.maybePreempt(fiber, location);
  checkShared(fiber, address, 8, 8, location, "mbarrier");
  if (!count || count > kMostCount)
    launch.fail(fiber, FindingKind::Usage, location, fmt::format("an mbarrier for {} arrivals", count));
  if (findBarrier(cta, address))
    launch.fail(fiber, FindingKind::BadBarrier, location,
                fmt::format("the mbarrier at shared byte {} is initialised twice", address - cta.shared));
  Mbarrier &barrier = cta.barriers.emplace_back();
  barrier.cta = &cta;
  barrier.offset = address - cta.shared;
  barrier.count = barrier.pending = count;
  barrier.initThread = fiber->thread;
  barrier.initLocation = location;
  uint64_t word = uint64_t(kToken) << 32 | (static_cast<uint32_t>(cta.barriers.size() - 1) ^ kIndexMask);
  std::memcpy(address, &word, sizeof(word));
}

/// Ends the phase if nothing is missing.
static void checkPhase(Launch &launch, Mbarrier &barrier) {
  if (barrier.pending || barrier.tx)
    return;
  launch.progress();
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.wasFilledByPeers = std::exchange(barrier.filledByPeers, false);
  launch.bound(barrier.completed);
  barrier.completed.append(barrier.current.begin(), barrier.current.end());
  barrier.current.clear();
  for (Fiber *waiter : barrier.waiters)
    launch.wake(waiter);
  barrier.waiters.clear();
}

static void arrive(Fiber *fiber, Mbarrier &barrier, Scope scope, uint32_t location) {
  Launch &launch = *fiber->launch;
  if (!barrier.pending)
    launch.fail(
        fiber, FindingKind::BadBarrier, location,
        fmt::format("more than {} arrivals at the mbarrier at shared byte {} of CTA {} in phase {}; {} bytes "
                    "are {}",
                    barrier.count, barrier.offset, barrier.cta->rank, barrier.phase, std::abs(barrier.tx),
                    barrier.tx < 0 ? "copied but not expected" : "still expected"));
  launch.release(fiber, barrier.current, scope);
  --barrier.pending;
  uint64_t phase = barrier.phase;
  checkPhase(launch, barrier);
  // What the others may now do can happen before this thread's next step.
  if (launch.chaos.on && launch.random.oneIn(barrier.phase == phase ? 16 : 2))
    launch.preemptNow(fiber, location);
}

void Launch::completeTx(Mbarrier &barrier, uint32_t bytes, uint32_t location) {
  barrier.tx -= bytes;
  if (barrier.tx < -kMostTx)
    fail(barrier.cta, FindingKind::BadBarrier, location,
         fmt::format("{} bytes more than expected arrived at the mbarrier at shared byte {}", -barrier.tx,
                     barrier.offset));
  checkPhase(*this, barrier);
}

void cfc_emu_mbarrier_arrive(Fiber *fiber, char *address, uint32_t scope, uint32_t inCluster,
                             uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  Cta *cta = fiber->cta;
  if (inCluster)
    cta = checkCluster(fiber, address, 8, 8, location, "mbarrier");
  else
    checkShared(fiber, address, 8, 8, location, "mbarrier");
  Mbarrier *barrier = checkBarrier(fiber, *cta, address, location);
  if (cta != fiber->cta) {
    fiber->cta->count(Counter::RemoteArrives);
    if (!barrier->visibleToPeers)
      launch.fail(
          fiber, FindingKind::BadBarrier, location,
          fmt::format("the mbarrier at shared byte {} of CTA {} is used by a peer, but the thread that "
                      "initialised it has not executed fence_mbarrier_init",
                      barrier->offset, cta->rank));
  }
  arrive(fiber, *barrier, Scope(scope), location);
}

void cfc_emu_mbarrier_expect(Fiber *fiber, char *address, uint32_t bytes, uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  checkShared(fiber, address, 8, 8, location, "mbarrier");
  Mbarrier *barrier = checkBarrier(fiber, *fiber->cta, address, location);
  if (bytes > kMostTx || barrier->tx + bytes > kMostTx)
    launch.fail(
        fiber, FindingKind::BadBarrier, location,
        fmt::format("{} bytes expected in one phase; at most {} are possible", barrier->tx + bytes, kMostTx));
  barrier->tx += bytes;
  arrive(fiber, *barrier, Scope::Cta, location);
}

void cfc_emu_mbarrier_wait(Fiber *fiber, char *address, uint32_t parity, uint32_t scope, uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  checkShared(fiber, address, 8, 8, location, "mbarrier");
  Cta &cta = *fiber->cta;
  Mbarrier *barrier = checkBarrier(fiber, cta, address, location);
  if (parity > 1)
    launch.fail(fiber, FindingKind::Usage, location, fmt::format("parity {}", static_cast<int32_t>(parity)));
  if (fiber->lane == 0)
    cta.count(Counter::MbarrierWaits);
  if (fiber->thread == 0 && Scope(scope) >= Scope::Cluster)
    cta.count(Counter::ClusterWaits);
  // A thread that wakes late may find that the next phase has ended too: then it waits on, as on a GPU.
  while ((barrier->phase & 1) == parity) {
    fiber->waitBarrier = barrier;
    fiber->waitDetail = parity;
    barrier->waiters.push_back(fiber);
    launch.block(fiber, WaitKind::Mbarrier, location);
  }
  if (barrier->wasFilledByPeers && Scope(scope) < Scope::Cluster)
    launch.fail(
        fiber, FindingKind::Usage, location,
        fmt::format(
            "a wait of cta scope for what a peer has stored asynchronously; the mbarrier at shared byte "
            "{} needs one of cluster scope",
            barrier->offset));
  launch.acquire(fiber, barrier->completed, Scope(scope));
}

//===-- The end of a CTA --------------------------------------------------===//
static void checkLeftovers(Launch &launch, Cta &cta) {
  if (!cta.incoming.empty())
    launch.fail(&cta, FindingKind::UnfinishedAtExit, cta.incoming.front()->location,
                fmt::format("CTA {} exits while {} bulk copies into its shared memory are in flight",
                            cta.rank, cta.incoming.size()));
  if (!cta.incomingStores.empty())
    launch.fail(
        &cta, FindingKind::UnfinishedAtExit, cta.incomingStores.begin()->second.front()->location,
        fmt::format("CTA {} exits while async stores into its shared memory are in flight", cta.rank));
  if (cta.outgoing)
    launch.fail(&cta, FindingKind::UnfinishedAtExit, ~0u,
                fmt::format("CTA {} exits while {} bulk copies from its shared memory are in flight",
                            cta.rank, cta.outgoing));
  for (const Mbarrier &barrier : cta.barriers)
    if (barrier.tx)
      launch.fail(&cta, FindingKind::UnfinishedAtExit, barrier.initLocation,
                  fmt::format("CTA {} exits while the mbarrier at shared byte {} has {} bytes {} in phase {}",
                              cta.rank, barrier.offset, std::abs(barrier.tx),
                              barrier.tx < 0 ? "copied but not expected" : "still expected", barrier.phase));
  for (const NamedBarrier &barrier : cta.named)
    if (!barrier.waiters.empty())
      launch.fail(&cta, FindingKind::Deadlock, ~0u, "threads wait at a named barrier of a CTA that exits");
}

/// A store of a peer that this CTA has not acquired may land after its exit.
static void checkIncomingStores(Launch &launch, Cta &cta) {
  if (!cta.incomingRecords)
    return;
  for (auto &peer : cta.cluster->ctas)
    for (auto [granule, first] : peer->overlay->granules)
      for (Record *record = first; record; record = record->next)
        if (record->target == &cta)
          launch.fail(
              &cta, FindingKind::EarlyExit, record->location,
              fmt::format("CTA {} exits before it has acquired a store that thread {} of CTA {} made to its "
                          "shared memory",
                          cta.rank, record->thread, peer->rank));
  launch.fail(&cta, FindingKind::EarlyExit, ~0u,
              fmt::format("CTA {} exits before it has acquired stores of a peer that has exited", cta.rank));
}

void Launch::ctaExit(Cta &cta) {
  checkLeftovers(*this, cta);
  checkIncomingStores(*this, cta);
  if (kernel.waitsForGrid && !cta.gridWaited)
    fail(&cta, FindingKind::Usage, ~0u, "a CTA exits without grid_wait");
  cta.exited = true;
  if (!cta.overlay->empty())
    orphans.push_back(std::move(cta.overlay));
  cta.overlay = std::make_unique<Overlay>();
  for (unsigned i = 0; i < kNumCounters; ++i) {
    report.counters.total[i] += cta.counts[i];
    report.counters.maxCta[i] = std::max(report.counters.maxCta[i], cta.counts[i]);
  }
}
