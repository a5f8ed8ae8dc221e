//===- AsyncStores.cpp - Stores that count their bytes ----------------------===//
//
// The value is that of the issue; from then on the destination is poison, until
// the store lands at a random time and completes its bytes on the mbarrier.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/EntryPoints.h"
#include "runtime/emulator/Runtime.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>
#include <fmt/format.h>

using namespace cfc::emu;

static uint32_t granuleOf(const Cta &cta, const char *address) { return (address - cta.shared) / 16; }

void cfc::emu::checkStoresInFlight(Fiber *fiber, const Cta &owner, const char *begin, size_t bytes,
                                   uint32_t location, const char *what) {
  for (uint32_t granule = granuleOf(owner, begin); granule <= granuleOf(owner, begin + bytes - 1);
       ++granule) {
    auto found = owner.incomingStores.find(granule);
    if (found == owner.incomingStores.end())
      continue;
    for (const AsyncStore *store : found->second)
      if (begin < store->target + store->bytes && store->target < begin + bytes)
        fiber->launch->fail(
            fiber, FindingKind::Race, location,
            fmt::format("{} of {} bytes at shared byte {} of CTA {}, where an async store is in flight ({})",
                        what, bytes, begin - owner.shared, owner.rank,
                        fiber->launch->locations.names[store->location]));
  }
}

static Mbarrier *checkStoreBarrier(Fiber *fiber, Cta &target, char *address, uint32_t location) {
  Launch &launch = *fiber->launch;
  Cta *owner = checkCluster(fiber, address, 8, 8, location, "mbarrier");
  if (owner != &target)
    launch.fail(fiber, FindingKind::Usage, location,
                fmt::format("an async store to CTA {} with an mbarrier of CTA {}", target.rank, owner->rank));
  Mbarrier *barrier = checkBarrier(fiber, target, address, location);
  if (owner != fiber->cta && !barrier->visibleToPeers)
    launch.fail(fiber, FindingKind::BadBarrier, location,
                fmt::format("the mbarrier at shared byte {} of CTA {} is used by a peer, but the thread that "
                            "initialised it has not executed fence_mbarrier_init",
                            barrier->offset, owner->rank));
  return barrier;
}

void cfc_emu_store_async(Fiber *fiber, char *target, const void *value, uint32_t bytes, char *barrier,
                         uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  Cta *owner = checkCluster(fiber, target, bytes, bytes, location, "async store");
  Mbarrier *counts = checkStoreBarrier(fiber, *owner, barrier, location);
  checkInFlight(fiber, *owner, target, bytes, location, "async store");
  bool remote = owner != fiber->cta;
  fiber->cta->count(remote ? Counter::RemoteStores : Counter::SharedStores);
  if (remote)
    fiber->cta->count(Counter::RemoteStoreBytes, bytes);
  if (!owner->writers.empty())
    markWriters(*owner, target - owner->shared, bytes, 0);
  auto *store = new AsyncStore{target, owner, counts, bytes, location, remote, {}};
  std::memcpy(store->data, value, bytes);
  owner->incomingStores[granuleOf(*owner, target)].push_back(store);
  poison(target, bytes);
  launch.schedule(Event::LandAsync, store, launch.chaos.on ? launch.random.below(launch.chaos.copyDelay) : 0);
}

void Launch::land(AsyncStore &store) {
  std::unique_ptr<AsyncStore> owner(&store);
  progress();
  std::memcpy(store.target, store.data, store.bytes);
  auto found = store.targetCta->incomingStores.find(granuleOf(*store.targetCta, store.target));
  found->second.erase(llvm::find(found->second, &store));
  if (found->second.empty())
    store.targetCta->incomingStores.erase(found);
  store.barrier->filledByPeers |= store.fromPeer;
  completeTx(*store.barrier, store.bytes, store.location);
}
