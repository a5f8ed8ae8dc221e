//===- Visibility.cpp - When stores land -----------------------------------===//
//
// Releases attach the chunks that a thread knows of to a synchronisation
// object; acquires by another CTA land them, acquires in the same CTA pass the
// knowledge on. Nothing lands twice, and in a granule the oldest lands first.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/Runtime.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace cfc::emu;

static uintptr_t granule(uintptr_t address) { return address >> 4; }

bool Chunk::landed() {
  if (unlanded)
    return false;
  while (firstChild < children.size()) {
    if (!children[firstChild]->landed())
      return false;
    ++firstChild;
  }
  return true;
}

void cfc::emu::prune(Chunks &chunks) {
  llvm::erase_if(chunks, [](Chunk *chunk) { return chunk->landed(); });
}

void cfc::emu::prune(ReleaseSet &set) {
  llvm::erase_if(set, [](const Release &release) { return release.chunk->landed(); });
}

Record *RecordPool::newRecord() {
  if (spare.empty())
    return &records.emplace_back();
  return spare.pop_back_val();
}

void RecordPool::recycle(Chunk &chunk) {
  spare.append(chunk.records.begin(), chunk.records.end());
  chunk.records.clear();
}

//===-- Stores and loads --------------------------------------------------===//
void *Launch::pendingStore(Fiber *fiber, char *address, unsigned bytes, Cta *target, uint32_t location) {
  if (fiber->stores == Fiber::Undecided)
    fiber->stores = chaos.on && random.below(100) < chaos.late ? Fiber::Late : Fiber::Early;
  Overlay &overlay = *fiber->cta->overlay;
  auto number = reinterpret_cast<uintptr_t>(address);
  if (fiber->stores == Fiber::Early) {
    if (!overlay.empty())
      landGranule(overlay, number);
    return address;
  }
  if (!fiber->open)
    fiber->open = pool.newChunk();
  Record *record = pool.newRecord();
  record->address = number;
  record->next = nullptr;
  record->chunk = fiber->open;
  record->overlay = &overlay;
  record->target = target;
  record->location = location;
  record->thread = fiber->thread;
  record->size = bytes;
  record->landed = false;
  Record **link = &overlay.granules[granule(number)];
  while (*link)
    link = &(*link)->next;
  *link = record;
  fiber->open->records.push_back(record);
  ++fiber->open->unlanded;
  if (target)
    ++target->incomingRecords;
  return record->data;
}

const void *Launch::overlaid(Fiber *fiber, const char *address, unsigned bytes) {
  const Overlay &overlay = *fiber->cta->overlay;
  if (overlay.empty())
    return address;
  auto begin = reinterpret_cast<uintptr_t>(address), end = begin + bytes;
  const Record *record = overlay.granules.lookup(granule(begin));
  if (!record)
    return address;
  std::memcpy(fiber->scratch, address, bytes);
  for (; record; record = record->next) {
    uintptr_t first = std::max(begin, record->address), last = std::min(end, record->address + record->size);
    if (first < last)
      std::memcpy(fiber->scratch + (first - begin), record->data + (first - record->address), last - first);
  }
  return fiber->scratch;
}

//===-- Landing -----------------------------------------------------------===//
void Launch::land(Record &record) {
  if (record.landed)
    return;
  Overlay &overlay = *record.overlay;
  auto entry = overlay.granules.find(granule(record.address));
  for (bool done = false; !done;) {
    Record *oldest = entry->second;
    std::memcpy(reinterpret_cast<void *>(oldest->address), oldest->data, oldest->size);
    oldest->landed = true;
    --oldest->chunk->unlanded;
    if (oldest->target) {
      --oldest->target->incomingRecords;
      if (!oldest->target->writers.empty())
        markWriters(*oldest->target, reinterpret_cast<char *>(oldest->address) - oldest->target->shared,
                    oldest->size, 0);
    }
    wakeWordWaiters(oldest->address);
    entry->second = oldest->next;
    done = oldest == &record;
  }
  if (!entry->second)
    overlay.granules.erase(entry);
}

void Launch::land(Chunk &chunk) {
  for (Chunk *child : chunk.children)
    land(*child);
  for (Record *record : chunk.records)
    land(*record);
  pool.recycle(chunk);
}

void Launch::landGranule(Overlay &overlay, uintptr_t address) {
  auto entry = overlay.granules.find(granule(address));
  if (entry == overlay.granules.end())
    return;
  Record *newest = entry->second;
  while (newest->next)
    newest = newest->next;
  land(*newest);
}

void Launch::landAll(Overlay &overlay) {
  llvm::SmallVector<uintptr_t, 0> keys(llvm::make_first_range(overlay.granules));
  for (uintptr_t key : keys)
    landGranule(overlay, key << 4);
}

/// Keeps a set small: stores that nobody acquires may land at any time.
void Launch::bound(ReleaseSet &set) {
  constexpr size_t most = 256;
  if (set.size() <= most)
    return;
  prune(set);
  if (set.size() <= most)
    return;
  for (const Release &r : set)
    land(*r.chunk);
  set.clear();
}

//===-- Synchronisation ---------------------------------------------------===//
void Launch::closeOpen(Fiber *fiber) {
  fiber->stores = Fiber::Undecided;
  if (!fiber->open)
    return;
  fiber->known.push_back(fiber->open);
  if (random.oneIn(2))
    schedule(Event::Land, fiber->open, 1 + random.below(chaos.landDelay));
  fiber->open = nullptr;
}

/// What the thread has stored lands for certain, at a random time.
void Launch::publish(Fiber *fiber) {
  if (!fiber->open)
    return;
  fiber->known.push_back(fiber->open);
  schedule(Event::Land, fiber->open, 1 + random.below(chaos.landDelay));
  fiber->open = nullptr;
}

void Launch::wakeWordWaiters(uintptr_t address) {
  if (wordWaiters.empty())
    return;
  auto waiters = wordWaiters.find(granule(address));
  if (waiters == wordWaiters.end())
    return;
  llvm::SmallVector<Fiber *, 0> woken = std::move(waiters->second);
  wordWaiters.erase(waiters);
  for (Fiber *waiter : woken)
    wake(waiter);
}

void cfc::emu::addRelease(ReleaseSet &set, const Release &added) {
  bool present = llvm::any_of(set, [&](const Release &r) {
    return r.chunk == added.chunk && r.cta == added.cta && r.scope >= added.scope;
  });
  if (!present)
    set.push_back(added);
}

void Launch::release(Fiber *fiber, ReleaseSet &set, Scope scope) {
  closeOpen(fiber);
  if (scope >= Scope::Cluster && kernel.tracksWriters)
    fiber->cta->lastClusterRelease = nextEvent(*fiber->cta);
  if (fiber->known.empty())
    return;
  prune(fiber->known);
  for (Chunk *chunk : fiber->known)
    addRelease(set, {chunk, scope, fiber->cta->number});
}

void Launch::acquire(Fiber *fiber, ReleaseSet &set, Scope scope) {
  if (set.empty())
    return;
  uint32_t cta = fiber->cta->number;
  for (const Release &r : set) {
    if (r.chunk->landed())
      continue;
    if (r.cta == cta) {
      if (!llvm::is_contained(fiber->known, r.chunk))
        fiber->known.push_back(r.chunk);
      continue;
    }
    Scope needed = r.cta / kernel.cluster == cta / kernel.cluster ? Scope::Cluster : Scope::Gpu;
    if (std::min(r.scope, scope) >= needed)
      land(*r.chunk);
  }
  prune(set);
}

void Launch::gather(Fiber *fiber, Chunks &into, uint64_t mark) {
  closeOpen(fiber);
  if (fiber->known.empty())
    return;
  prune(fiber->known);
  for (Chunk *chunk : fiber->known) {
    if (chunk->mark != mark)
      into.push_back(chunk);
    chunk->mark = mark;
  }
}

void Launch::spread(const Chunks &gathered, llvm::ArrayRef<Fiber *> fibers) {
  Chunk *all = gathered.empty() ? nullptr : gathered.front();
  if (gathered.size() > 1) {
    all = pool.newChunk();
    uint64_t mark = ++merges;
    auto take = [&](Chunk *leaf) {
      if (leaf->mark != mark && !leaf->landed())
        all->children.push_back(leaf);
      leaf->mark = mark;
    };
    for (Chunk *chunk : gathered) {
      if (chunk->children.empty())
        take(chunk);
      llvm::for_each(chunk->children, take);
    }
  }
  for (Fiber *fiber : fibers) {
    fiber->known.clear();
    if (all)
      fiber->known.push_back(all);
  }
}

//===-- Writers of shared words -------------------------------------------===//
uint32_t cfc::emu::nextEvent(Cta &cta) {
  constexpr uint32_t last = (1u << 22) - 1;
  if (++cta.events < last)
    return cta.events;
  // Out of numbers: everything so far counts as fenced.
  std::fill(cta.writers.begin(), cta.writers.end(), 0);
  std::fill(cta.written.begin(), cta.written.end(), 0);
  for (unsigned i = 0; i < cta.launch->kernel.threads; ++i)
    cta.fibers[i].proxyFence = 1;
  std::fill(cta.reads.begin(), cta.reads.end(), ReadTag());
  for (Warp &warp : cta.warps) {
    warp.fences = {};
    warp.readsDone = 1;
  }
  for (auto &peer : cta.cluster->ctas) // its threads have read there
    peer->remoteReads.clear();
  cta.lastClusterRelease = 1;
  return cta.events = 2;
}

void cfc::emu::markWriters(Cta &cta, size_t offset, size_t bytes, uint32_t tag) {
  if (!tag && !mayBeWritten(cta, offset, bytes))
    return;
  size_t begin = offset / 4, end = (offset + bytes + 3) / 4;
  std::fill(cta.writers.begin() + begin, cta.writers.begin() + end, tag);
  if (tag)
    for (size_t block = offset / kWrittenBlock; block <= (offset + bytes - 1) / kWrittenBlock; ++block)
      cta.written[block] = true;
}

bool cfc::emu::mayBeWritten(const Cta &cta, size_t offset, size_t bytes) {
  for (size_t block = offset / kWrittenBlock; block <= (offset + bytes - 1) / kWrittenBlock; ++block)
    if (cta.written[block])
      return true;
  return false;
}
