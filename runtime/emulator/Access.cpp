//===- Access.cpp - Loads, stores and atomics ------------------------------===//
//
// Bounds and alignment of each access, and where its value is.
//
//===----------------------------------------------------------------------===//
#include "dialects/attn/Elements.h"
#include "runtime/emulator/EntryPoints.h"
#include "runtime/emulator/Runtime.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

using namespace cfc::emu;

//===-- Checks ------------------------------------------------------------===//
static bool misaligned(const void *address, unsigned align) {
  return reinterpret_cast<uintptr_t>(address) & (align - 1);
}

[[noreturn]] static void failAlignment(Fiber *fiber, const std::string &where, unsigned align,
                                       uint32_t location, const char *what) {
  fiber->launch->fail(fiber, FindingKind::Misaligned, location,
                      fmt::format("{} {} is not aligned to {} bytes", what, where, align));
}

[[noreturn]] static void failGlobal(Fiber *fiber, uintptr_t address, size_t bytes, uint32_t location,
                                    const char *what) {
  const Memory &memory = fiber->launch->memory;
  const Memory::Region *in = memory.find(address);
  std::string where = in ? fmt::format("begins {} bytes before the end of '{}' ({} bytes)", in->end - address,
                                       in->name, in->end - in->begin)
                         : "is at " + memory.describe(address);
  fiber->launch->fail(fiber, FindingKind::OutOfBounds, location,
                      fmt::format("{} of {} bytes {}", what, bytes, where));
}

void cfc::emu::checkGlobal(Fiber *fiber, const void *pointer, size_t bytes, unsigned align, uint32_t location,
                           const char *what) {
  Launch &launch = *fiber->launch;
  auto address = reinterpret_cast<uintptr_t>(pointer);
  const Memory::Region *&region = launch.lastRegion[location];
  if (!region || address < region->begin || address >= region->end) {
    region = launch.memory.find(address);
    if (!region)
      failGlobal(fiber, address, bytes, location, what);
  }
  if (bytes > region->end - address)
    failGlobal(fiber, address, bytes, location, what);
  if (misaligned(pointer, align))
    failAlignment(fiber, launch.memory.describe(address), align, location, what);
}

[[noreturn]] static void failBounds(Fiber *fiber, int64_t offset, size_t bytes, uint32_t location,
                                    const char *what) {
  fiber->launch->fail(fiber, FindingKind::OutOfBounds, location,
                      fmt::format("{} of {} bytes at byte {} of {} bytes of shared memory", what, bytes,
                                  offset, fiber->launch->kernel.sharedBytes));
}

void cfc::emu::failShared(Fiber *fiber, const void *address, size_t bytes, unsigned align, uint32_t location,
                          const char *what) {
  size_t size = fiber->cta->sharedBytes;
  size_t offset = static_cast<const char *>(address) - fiber->cta->shared;
  if (offset >= size || bytes > size - offset)
    failBounds(fiber, offset, bytes, location, what);
  failAlignment(fiber, fmt::format("shared byte {}", offset), align, location, what);
}

Cta *cfc::emu::checkCluster(Fiber *fiber, const void *address, size_t bytes, unsigned align,
                            uint32_t location, const char *what) {
  Launch &launch = *fiber->launch;
  Cluster &cluster = *fiber->cta->cluster;
  int64_t distance = static_cast<const char *>(address) - cluster.ctas.front()->shared;
  size_t rank = distance < 0 ? ~size_t(0) : distance / cluster.stride;
  if (rank >= cluster.ctas.size())
    launch.fail(fiber, FindingKind::OutOfBounds, location,
                fmt::format("{} of {} bytes is outside of the cluster's shared memory", what, bytes));
  Cta *cta = cluster.ctas[rank].get();
  size_t offset = distance % cluster.stride, size = launch.kernel.sharedBytes;
  if (offset >= size || bytes > size - offset)
    failBounds(fiber, offset, bytes, location, what);
  if (misaligned(address, align))
    failAlignment(fiber, fmt::format("shared byte {} of CTA {}", offset, rank), align, location, what);
  if (cta->exited)
    launch.fail(fiber, FindingKind::EarlyExit, location,
                fmt::format("{} touches the shared memory of CTA {}, which has exited", what, rank));
  return cta;
}

//===-- Global memory -----------------------------------------------------===//
const void *cfc_emu_load_global(Fiber *fiber, const char *address, uint32_t bytes, uint32_t location) {
  fiber->launch->maybePreempt(fiber, location);
  checkGlobal(fiber, address, bytes, bytes, location, "load");
  fiber->cta->count(Counter::GlobalLoads);
  fiber->cta->count(Counter::GlobalLoadBytes, bytes);
  return fiber->launch->overlaid(fiber, address, bytes);
}

static void checkGridWaited(Fiber *fiber, uint32_t location) {
  if (fiber->launch->kernel.waitsForGrid && !fiber->cta->gridWaited)
    fiber->launch->fail(fiber, FindingKind::Usage, location, "write to global memory before grid_wait");
}

void *cfc_emu_store_global(Fiber *fiber, char *address, uint32_t bytes, uint32_t location) {
  fiber->launch->maybePreempt(fiber, location);
  checkGlobal(fiber, address, bytes, bytes, location, "store");
  checkGridWaited(fiber, location);
  fiber->cta->count(Counter::GlobalStores);
  fiber->cta->count(Counter::GlobalStoreBytes, bytes);
  return fiber->launch->pendingStore(fiber, address, bytes, nullptr, location);
}

//===-- Shared memory -----------------------------------------------------===//
const void *cfc_emu_load_shared(Fiber *fiber, const char *address, uint32_t bytes, uint32_t location) {
  fiber->launch->maybePreempt(fiber, location);
  checkShared(fiber, address, bytes, bytes, location, "load");
  fiber->cta->count(Counter::SharedLoads);
  if (looksInFlight(address))
    checkInFlight(fiber, *fiber->cta, address, bytes, location, "load");
  noteRead(*fiber->warp, fiber->lane, address, location);
  return address;
}

void *cfc_emu_store_shared(Fiber *fiber, char *address, uint32_t bytes, uint32_t location) {
  fiber->launch->maybePreempt(fiber, location);
  checkShared(fiber, address, bytes, bytes, location, "store");
  Cta &cta = *fiber->cta;
  cta.count(Counter::SharedStores);
  if (looksInFlight(address))
    checkInFlight(fiber, cta, address, bytes, location, "store");
  if (!cta.writers.empty())
    markWriters(cta, address - cta.shared, bytes, writerTag(*fiber));
  return address;
}

/// What a remote load finds where the owner has not released its plain stores: poison.
static const void *remoteView(Fiber *fiber, Cta &owner, const char *address, uint32_t bytes) {
  size_t offset = address - owner.shared;
  for (size_t word = offset / 4; word < (offset + bytes + 3) / 4 && !owner.writers.empty(); ++word) {
    uint32_t tag = owner.writers[word];
    if (tag && writerEvent(tag) >= owner.lastClusterRelease) {
      poison(fiber->scratch, bytes);
      return fiber->scratch;
    }
  }
  return fiber->launch->overlaid(fiber, address, bytes);
}

const void *cfc_emu_load_cluster(Fiber *fiber, const char *address, uint32_t bytes, uint32_t location) {
  fiber->launch->maybePreempt(fiber, location);
  Cta *owner = checkCluster(fiber, address, bytes, bytes, location, "load");
  if (looksInFlight(address))
    checkInFlight(fiber, *owner, address, bytes, location, "load");
  if (owner == fiber->cta) {
    owner->count(Counter::SharedLoads);
    noteRead(*fiber->warp, fiber->lane, address, location);
    return address;
  }
  fiber->cta->count(Counter::RemoteLoads);
  if (!owner->reads.empty())
    owner->remoteReads[(address - owner->shared) / 16] = {fiber, fiber->cta->events, location};
  return remoteView(fiber, *owner, address, bytes);
}

void *cfc_emu_store_cluster(Fiber *fiber, char *address, uint32_t bytes, uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  Cta *owner = checkCluster(fiber, address, bytes, bytes, location, "store");
  if (looksInFlight(address))
    checkInFlight(fiber, *owner, address, bytes, location, "store");
  Cta &cta = *fiber->cta;
  bool remote = owner != &cta;
  cta.count(remote ? Counter::RemoteStores : Counter::SharedStores);
  if (remote)
    cta.count(Counter::RemoteStoreBytes, bytes);
  if (!owner->writers.empty())
    markWriters(*owner, address - owner->shared, bytes, remote ? 0 : writerTag(*fiber));
  return remote ? launch.pendingStore(fiber, address, bytes, owner, location) : address;
}

char *cfc_emu_map_rank(Fiber *fiber, char *address, uint32_t rank, uint32_t location) {
  Cluster &cluster = *fiber->cta->cluster;
  if (rank >= cluster.ctas.size())
    fiber->launch->fail(
        fiber, FindingKind::Usage, location,
        fmt::format("rank {} in a cluster of {} CTAs", static_cast<int32_t>(rank), cluster.ctas.size()));
  fiber->cta->count(Counter::MapRank);
  return address - fiber->cta->shared + cluster.ctas[rank]->shared;
}

//===-- Atomics -----------------------------------------------------------===//
namespace {
enum class Rmw : uint32_t { Add, Max, Or, Exch };
enum class Ordering : uint32_t { Relaxed, Acquire, Release, AcqRel };
enum class Space : uint32_t { Global, Shared, Cluster };
} // namespace

template <typename T> static T combine(Rmw kind, T old, T value) {
  if constexpr (std::is_integral_v<T>) {
    if (kind == Rmw::Or)
      return old | value;
    if (kind == Rmw::Add) // wraps
      return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(value));
  }
  if (kind == Rmw::Add)
    return old + value;
  return kind == Rmw::Max ? std::max(old, value) : value;
}

template <typename T> static uint64_t readModifyWrite(Rmw kind, char *address, uint64_t bits) {
  T old, value;
  std::memcpy(&old, address, sizeof(T));
  std::memcpy(&value, &bits, sizeof(T));
  T result = combine(kind, old, value);
  std::memcpy(address, &result, sizeof(T));
  uint64_t out = 0;
  std::memcpy(&out, &old, sizeof(T));
  return out;
}

/// Checks the address and gives the CTA whose shared memory it is, or null.
static Cta *checkAtomic(Fiber *fiber, char *address, unsigned bytes, Space space, uint32_t location) {
  if (space == Space::Global) {
    checkGlobal(fiber, address, bytes, bytes, location, "atomic");
    checkGridWaited(fiber, location);
    return nullptr;
  }
  if (space == Space::Cluster)
    return checkCluster(fiber, address, bytes, bytes, location, "atomic");
  checkShared(fiber, address, bytes, bytes, location, "atomic");
  return fiber->cta;
}

/// Releases and acquires through the object at `address`; a fence before or after does so for a relaxed one.
static void synchronise(Fiber *fiber, char *address, Ordering ordering, Scope scope) {
  Launch &launch = *fiber->launch;
  ReleaseSet &set = launch.atomics[reinterpret_cast<uintptr_t>(address)];
  bool acquires = ordering == Ordering::Acquire || ordering == Ordering::AcqRel;
  bool releases = ordering == Ordering::Release || ordering == Ordering::AcqRel;
  if (acquires) {
    launch.acquire(fiber, set, scope);
  } else if (!set.empty()) {
    if (!fiber->fences)
      fiber->fences = std::make_unique<FenceState>();
    for (const Release &r : set)
      addRelease(fiber->fences->observed, r);
  }
  if (releases)
    launch.release(fiber, set, scope);
  else if (fiber->fences)
    for (const Release &r : fiber->fences->fenced)
      addRelease(set, r);
  launch.bound(set);
}

uint64_t cfc_emu_atomic(Fiber *fiber, char *address, uint64_t value, uint32_t kind, uint32_t ordering,
                        uint32_t scope, uint32_t space, uint32_t type, uint32_t location) {
  Launch &launch = *fiber->launch;
  // A thread that polls must not keep the others from running.
  if (launch.chaos.on ? launch.random.oneIn(4) : launch.random.oneIn(2))
    launch.preemptNow(fiber, location);
  Cta *owner = checkAtomic(fiber, address, type == 1 ? 8 : 4, Space(space), location);
  Cta &cta = *fiber->cta;
  cta.count(owner && owner != &cta ? Counter::RemoteAtomics : Counter::Atomics);
  if (!cta.overlay->empty())
    launch.landGranule(*cta.overlay, reinterpret_cast<uintptr_t>(address));
  synchronise(fiber, address, Ordering(ordering), Scope(scope));
  if (owner && !owner->writers.empty())
    markWriters(*owner, address - owner->shared, type == 1 ? 8 : 4, owner == &cta ? writerTag(*fiber) : 0);
  switch (type) {
  case 0:
    return readModifyWrite<int32_t>(Rmw(kind), address, value);
  case 1:
    return readModifyWrite<int64_t>(Rmw(kind), address, value);
  default:
    return readModifyWrite<float>(Rmw(kind), address, value);
  }
}

/// The next value of a grid barrier's counter, as `red.inc` leaves it: it wraps behind `last`.
static uint32_t countOn(char *counter, uint32_t last) {
  uint32_t value;
  std::memcpy(&value, counter, sizeof value);
  value = value >= last ? 0 : value + 1;
  std::memcpy(counter, &value, sizeof value);
  return value;
}

void cfc_emu_grid_barrier(Fiber *fiber, char *counter, uint32_t ctas, uint32_t location) {
  Launch &launch = *fiber->launch;
  launch.maybePreempt(fiber, location);
  checkAtomic(fiber, counter, 4, Space::Global, location);
  uint32_t all = launch.numClusters * launch.kernel.cluster;
  if (ctas != all)
    launch.fail(fiber, FindingKind::Usage, location,
                fmt::format("a grid barrier for {} CTAs in a grid of {}", ctas, all));
  if (!fiber->cta->overlay->empty())
    launch.landGranule(*fiber->cta->overlay, reinterpret_cast<uintptr_t>(counter));
  synchronise(fiber, counter, Ordering::Release, Scope::Gpu);
  auto &waiters = launch.gridWaiters[reinterpret_cast<uintptr_t>(counter)];
  uint32_t arrived = countOn(counter, 2 * ctas - 1);
  if (arrived != waiters.size() + 1)
    launch.fail(fiber, FindingKind::Usage, location,
                fmt::format("the counter of the grid barrier is {} when {} of {} CTAs have come", arrived,
                            waiters.size() + 1, ctas));
  if (arrived < ctas) {
    waiters.push_back(fiber);
    launch.block(fiber, WaitKind::GridBarrier, location);
  } else {
    for (Fiber *waiter : waiters)
      launch.wake(waiter);
    waiters.clear();
  }
  synchronise(fiber, counter, Ordering::Acquire, Scope::Gpu);
  countOn(counter, 2 * ctas - 1);
}

//===-- Words that other CTAs wait for ------------------------------------===//
/// Where the caller puts the 16 bytes, before any other thread runs. They reach memory without a release.
void *cfc_emu_store_relaxed(Fiber *fiber, char *address, uint32_t location) {
  Launch &launch = *fiber->launch;
  void *to = cfc_emu_store_global(fiber, address, 16, location);
  launch.publish(fiber);
  launch.wakeWordWaiters(reinterpret_cast<uintptr_t>(address));
  return to;
}

const void *cfc_emu_await_words(Fiber *fiber, const char *address, uint32_t location) {
  Launch &launch = *fiber->launch;
  while (true) {
    const void *found = cfc_emu_load_global(fiber, address, 16, location);
    uint32_t words[4];
    std::memcpy(words, found, sizeof words);
    if (!llvm::is_contained(words, 0u))
      return found;
    launch.wordWaiters[reinterpret_cast<uintptr_t>(address) >> 4].push_back(fiber);
    launch.block(fiber, WaitKind::Words, location);
  }
}

//===-- Approximate arithmetic --------------------------------------------===//
static float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

float cfc_emu_exp2(float x) { return flush(std::exp2(flush(x))); }
float cfc_emu_log2(float x) { return flush(std::log2(flush(x))); }
float cfc_emu_rsqrt(float x) { return flush(1.0f / std::sqrt(flush(x))); }

/// Every NaN becomes the one without a sign.
static uint32_t unpackOne(uint8_t value, bool bf16) {
  if ((value & 0x7f) == 0x7f)
    return 0x7fff;
  float number = cfc::e4m3ToFloat(value);
  return bf16 ? cfc::toBfloat(number) : cfc::toHalf(number);
}
uint32_t cfc_emu_unpack_e4m3(uint32_t both, uint32_t type) {
  return unpackOne(both & 0xff, type != 0) | unpackOne(both >> 8 & 0xff, type != 0) << 16;
}

static uint32_t packOne(float value) { return std::isnan(value) ? 0x7fu : cfc::toE4m3(value); }
uint32_t cfc_emu_pack_e4m3(float lo, float hi) { return packOne(lo) | packOne(hi) << 8; }
