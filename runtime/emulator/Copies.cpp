//===- Copies.cpp - Bulk copies --------------------------------------------===//
//
// From the moment of its issue a copy's destination is poison; the bytes arrive
// when the copy completes, at a random time. The source is read at a random
// time in between. Copies do not see plain stores that their thread has not
// fenced for the asynchronous proxy, and overtake plain reads that have not been
// fenced: issuing such a copy is reported.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/EntryPoints.h"
#include "runtime/emulator/Runtime.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include <cstring>
#include <fmt/format.h>

using namespace cfc::emu;

//===-- Checks ------------------------------------------------------------===//
static void checkSize(Fiber *fiber, uint32_t bytes, uint32_t location) {
  if (bytes % 16)
    fiber->launch->fail(fiber, FindingKind::Misaligned, location,
                        fmt::format("a bulk copy of {} bytes; the size must be a multiple of 16", bytes));
  if (!bytes || bytes >= 1u << 20)
    fiber->launch->fail(fiber, FindingKind::Usage, location,
                        fmt::format("a bulk copy of {} bytes", static_cast<int32_t>(bytes)));
}

/// Every plain store to the bytes must have been fenced by the thread that made it.
static void checkProxy(Fiber *fiber, const Cta &owner, const char *begin, uint32_t bytes, uint32_t location,
                       const char *what) {
  if (owner.writers.empty() || !mayBeWritten(owner, begin - owner.shared, bytes))
    return;
  size_t first = (begin - owner.shared) / 4;
  for (size_t word = first; word < first + bytes / 4; ++word) {
    uint32_t tag = owner.writers[word];
    if (!tag || writerEvent(tag) < owner.fibers[writerThread(tag)].proxyFence)
      continue;
    fiber->launch->fail(
        fiber, FindingKind::ProxyOrder, location,
        fmt::format("a bulk copy {} shared byte {} of CTA {}, which thread {} wrote without a "
                    "fence_proxy_async after it",
                    what, word * 4, owner.rank, writerThread(tag)));
  }
}

static bool isFenced(const Warp &warp, ReadTag read) {
  auto fencedBy = [&](unsigned lane) { return read.event() < warp.fibers[lane].proxyFence; };
  if (read.lane() != ReadTag::kAllLanes)
    return fencedBy(read.lane());
  return read.event() < warp.readsDone || llvm::all_of(llvm::seq(0u, 32u), fencedBy);
}

[[noreturn]] static void failReader(Fiber *fiber, const Cta &owner, size_t granule, const std::string &who,
                                    uint32_t read, uint32_t location) {
  fiber->launch->fail(fiber, FindingKind::ProxyOrder, location,
                      fmt::format("a bulk copy overwrites shared byte {} of CTA {}, which {} read without a "
                                  "fence_proxy_async after it ({})",
                                  granule * 16, owner.rank, who, fiber->launch->locations.names[read]));
}

/// Every plain read of the bytes must have been fenced by the threads that made it: the copy could overtake
/// it.
static void checkReaders(Fiber *fiber, const Cta &owner, const char *begin, uint32_t bytes,
                         uint32_t location) {
  if (owner.reads.empty())
    return;
  size_t first = (begin - owner.shared) / 16, count = bytes / 16;
  for (const Warp &warp : owner.warps) {
    llvm::ArrayRef<ReadTag> reads(warp.reads + first, count);
    uint64_t byLane = 0, byAll = 0; // the newest
    for (ReadTag read : reads)
      (read.lane() == ReadTag::kAllLanes ? byAll : byLane) =
          std::max(read.lane() == ReadTag::kAllLanes ? byAll : byLane, read.bits);
    uint32_t fenced = warp.fences.all, done = std::max(fenced, warp.readsDone);
    if ((!byLane || byLane >> 32 < fenced) && (!byAll || byAll >> 32 < done))
      continue;
    for (auto [i, read] : llvm::enumerate(reads)) {
      if (!read.bits || isFenced(warp, read))
        continue;
      unsigned warpFirst = warp.fibers->thread;
      failReader(fiber, owner, first + i,
                 read.lane() == ReadTag::kAllLanes
                     ? fmt::format("threads {} to {}", warpFirst, warpFirst + 31)
                     : fmt::format("thread {}", warpFirst + read.lane()),
                 read.location(), location);
    }
  }
  if (owner.remoteReads.empty())
    return;
  for (size_t granule = first; granule < first + count; ++granule) {
    auto read = owner.remoteReads.find(granule);
    if (read != owner.remoteReads.end() && read->second.event >= read->second.reader->proxyFence)
      failReader(
          fiber, owner, granule,
          fmt::format("thread {} of CTA {}", read->second.reader->thread, read->second.reader->cta->rank),
          read->second.location, location);
  }
}

void cfc::emu::checkInFlight(Fiber *fiber, const Cta &owner, const char *begin, size_t bytes,
                             uint32_t location, const char *what) {
  if (!owner.incomingStores.empty())
    checkStoresInFlight(fiber, owner, begin, bytes, location, what);
  for (const Copy *copy : owner.incoming)
    if (begin < copy->target + copy->bytes && copy->target < begin + bytes)
      fiber->launch->fail(
          fiber, FindingKind::Race, location,
          fmt::format("{} of {} bytes at shared byte {} of CTA {}, where a bulk copy is in flight ({})", what,
                      bytes, begin - owner.shared, owner.rank,
                      fiber->launch->locations.names[copy->location]));
}

static Mbarrier *checkCopyBarrier(Fiber *fiber, Cta &cta, char *address, uint32_t location) {
  Mbarrier *barrier = checkBarrier(fiber, cta, address, location);
  bool visible = barrier->visibleToCopies && (&cta == fiber->cta || barrier->visibleToPeers);
  if (!visible)
    fiber->launch->fail(
        fiber, FindingKind::BadBarrier, location,
        fmt::format("the mbarrier at shared byte {} of CTA {} is used by a bulk copy, but the thread "
                    "that initialised it has not executed fence_mbarrier_init",
                    barrier->offset, cta.rank));
  return barrier;
}

//===-- Issue -------------------------------------------------------------===//
/// Draws the times at which the source is read and at which the copy completes.
static void scheduleCopy(Launch &launch, Copy *copy) {
  uint64_t delay = launch.chaos.on ? launch.random.below(launch.chaos.copyDelay) : 0;
  // A source in shared memory may be overwritten too early, one in global memory rarely changes.
  if (launch.chaos.on && launch.random.oneIn(copy->sourceCta ? 2 : 8))
    launch.schedule(Event::ReadSource, copy, launch.random.below(delay + 1));
  launch.schedule(Event::Complete, copy, delay);
}

static void issue(Fiber *fiber, Copy copy) {
  Launch &launch = *fiber->launch;
  if (copy.sourceCta) {
    checkProxy(fiber, *copy.sourceCta, copy.source, copy.bytes, copy.location, "reads");
    checkInFlight(fiber, *copy.sourceCta, copy.source, copy.bytes, copy.location, "bulk copy");
    ++copy.sourceCta->outgoing;
  }
  auto *heap = new Copy(std::move(copy));
  if (Cta *cta = heap->targetCta)
    cta->incoming.push_back(heap);
  poison(heap->target, heap->bytes);
  scheduleCopy(launch, heap);
}

static void checkTarget(Fiber *fiber, Copy &copy) {
  checkProxy(fiber, *copy.targetCta, copy.target, copy.bytes, copy.location, "overwrites");
  checkReaders(fiber, *copy.targetCta, copy.target, copy.bytes, copy.location);
  checkInFlight(fiber, *copy.targetCta, copy.target, copy.bytes, copy.location, "bulk copy");
  if (!copy.targetCta->writers.empty())
    markWriters(*copy.targetCta, copy.target - copy.targetCta->shared, copy.bytes, 0);
}

void cfc::emu::issueLoad(Fiber *fiber, Copy copy, char *barrier) {
  copy.targetCta = fiber->cta;
  copy.barrier = checkCopyBarrier(fiber, *fiber->cta, barrier, copy.location);
  checkTarget(fiber, copy);
  issue(fiber, std::move(copy));
}

void cfc_emu_bulk_load(Fiber *fiber, char *target, const char *source, uint32_t bytes, char *barrier,
                       uint32_t location) {
  fiber->launch->maybePreempt(fiber, location);
  checkSize(fiber, bytes, location);
  checkShared(fiber, target, bytes, 16, location, "destination");
  checkGlobal(fiber, source, bytes, 16, location, "source");
  checkShared(fiber, barrier, 8, 8, location, "mbarrier");
  fiber->cta->count(Counter::BulkLoads);
  fiber->cta->count(Counter::BulkLoadBytes, bytes);
  issueLoad(fiber, Copy{CopyKind::Load, false, bytes, location, target, source}, barrier);
}

void cfc_emu_prefetch(Fiber *fiber, const char *source, uint32_t bytes, uint32_t location) {
  checkSize(fiber, bytes, location);
  checkGlobal(fiber, source, bytes, 16, location, "prefetch");
}

void cfc_emu_bulk_push(Fiber *fiber, char *target, const char *source, uint32_t bytes, char *barrier,
                       uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  checkSize(fiber, bytes, location);
  checkShared(fiber, source, bytes, 16, location, "source");
  Copy copy{CopyKind::Push, false, bytes, location, target, source};
  copy.sourceCta = fiber->cta;
  copy.targetCta = checkCluster(fiber, target, bytes, 16, location, "destination");
  Cta *barrierCta = checkCluster(fiber, barrier, 8, 8, location, "mbarrier");
  if (barrierCta != copy.targetCta)
    launch.fail(fiber, FindingKind::Usage, location,
                fmt::format("a bulk copy to CTA {} with an mbarrier of CTA {}", copy.targetCta->rank,
                            barrierCta->rank));
  copy.barrier = checkCopyBarrier(fiber, *barrierCta, barrier, location);
  checkTarget(fiber, copy);
  if (copy.targetCta != fiber->cta) {
    fiber->cta->count(Counter::BulkPushes);
    fiber->cta->count(Counter::BulkPushBytes, bytes);
  }
  issue(fiber, std::move(copy));
}

void cfc_emu_bulk_store(Fiber *fiber, char *target, const char *source, uint32_t bytes, uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  checkSize(fiber, bytes, location);
  checkGlobal(fiber, target, bytes, 16, location, "destination");
  checkShared(fiber, source, bytes, 16, location, "source");
  if (launch.kernel.waitsForGrid && !fiber->cta->gridWaited)
    launch.fail(fiber, FindingKind::Usage, location, "write to global memory before grid_wait");
  if (!fiber->groups)
    fiber->groups = std::make_unique<BulkGroups>();
  BulkGroups &groups = *fiber->groups;
  Copy copy{CopyKind::Store, false, bytes, location, target, source};
  copy.sourceCta = fiber->cta;
  copy.issuer = fiber;
  copy.group = groups.firstGroup + groups.unfinished.size() - 1;
  ++groups.unfinished.back();
  fiber->cta->count(Counter::BulkStores);
  fiber->cta->count(Counter::BulkStoreBytes, bytes);
  issue(fiber, std::move(copy));
}

//===-- Progress ----------------------------------------------------------===//
void Launch::readSource(Copy &copy) {
  copy.snapshot.resize(copy.bytes);
  if (copy.box)
    readBox(*copy.box, copy.snapshot.data());
  else
    std::memcpy(copy.snapshot.data(), copy.source, copy.bytes);
  copy.snapshotTaken = true;
}

/// Drops the oldest groups that have finished, never the open one.
static void dropFinished(BulkGroups &groups) {
  while (groups.unfinished.size() > 1 && groups.unfinished.front() == 0) {
    groups.unfinished.pop_front();
    ++groups.firstGroup;
  }
}

static void finishInGroup(Launch &launch, Copy &copy) {
  Fiber *issuer = copy.issuer;
  BulkGroups &groups = *issuer->groups;
  --groups.unfinished[copy.group - groups.firstGroup];
  dropFinished(groups);
  if (issuer->wait == WaitKind::BulkGroups && groups.unfinished.size() - 1 <= issuer->waitDetail)
    launch.wake(issuer);
}

void Launch::complete(Copy &copy) {
  std::unique_ptr<Copy> owner(&copy);
  progress();
  if (copy.box && !copy.snapshotTaken)
    readSource(copy);
  std::memcpy(copy.target, copy.snapshotTaken ? copy.snapshot.data() : copy.source, copy.bytes);
  if (copy.sourceCta)
    --copy.sourceCta->outgoing;
  if (copy.targetCta)
    copy.targetCta->incoming.erase(llvm::find(copy.targetCta->incoming, &copy));
  Mbarrier *barrier = copy.barrier;
  uint32_t bytes = copy.bytes, location = copy.location;
  if (copy.issuer)
    finishInGroup(*this, copy);
  owner.reset();
  if (barrier)
    completeTx(*barrier, bytes, location);
}

void cfc_emu_bulk_commit(Fiber *fiber, uint32_t) {
  if (!fiber->groups)
    return;
  fiber->groups->unfinished.push_back(0);
  dropFinished(*fiber->groups);
}

void cfc_emu_bulk_wait(Fiber *fiber, uint32_t pending, uint32_t location) {
  if (!fiber->groups || fiber->groups->unfinished.size() - 1 <= pending)
    return;
  fiber->waitDetail = pending;
  fiber->launch->block(fiber, WaitKind::BulkGroups, location);
}
