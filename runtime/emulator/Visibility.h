//===- Visibility.h - Stores that have not landed yet ----------------------===//
//
// A store that other CTAs may read (to a peer's shared memory or to global
// memory) becomes a `Record`. It lands, that is, is written to memory, when an
// acquire by another CTA is ordered after it, or at a random time. The thread's
// records since its last synchronisation form its open `Chunk`; a release
// closes the chunk and attaches it, with all chunks that the thread knows of,
// to the synchronisation object. Threads of one CTA see each other's records
// at once through the CTA's `Overlay`: their random order shows missing barriers.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <deque>

namespace cfc::emu {

struct Cta;
struct Chunk;
struct Overlay;
struct Fiber;

enum class Scope : uint8_t { Cta, Cluster, Gpu, System }; // as in simt

/// One store of up to 16 bytes; it touches one 16-byte granule because it is naturally aligned.
struct Record {
  uintptr_t address;
  Record *next; // later record of the same granule in the same overlay
  Chunk *chunk;
  Overlay *overlay;
  Cta *target; // CTA whose shared memory it is, null for global memory
  uint32_t location, thread;
  uint8_t size;
  bool landed;
  alignas(16) char data[16];
};

/// Records of one thread between two of its synchronisations, or the union of several such chunks.
struct Chunk {
  llvm::SmallVector<Record *, 4> records;
  llvm::SmallVector<Chunk *, 0> children; // leaves only
  unsigned unlanded = 0, firstChild = 0;
  uint64_t mark = 0; // the merge that has already taken it
  /// True if every record in it has landed.
  bool landed();
};

/// Records of one CTA that have not landed, oldest first in each 16-byte granule.
struct Overlay {
  llvm::DenseMap<uintptr_t, Record *> granules;
  bool empty() const { return granules.empty(); }
};

/// A chunk attached to a synchronisation object: who released it, and how far.
struct Release {
  Chunk *chunk;
  Scope scope;
  uint32_t cta; // number in the grid
};
using ReleaseSet = llvm::SmallVector<Release, 0>;
using Chunks = llvm::SmallVector<Chunk *, 1>;

/// Drops the chunks of which every record has landed.
void prune(Chunks &chunks);
void prune(ReleaseSet &set);
/// Adds a release unless one that covers it is there.
void addRelease(ReleaseSet &set, const Release &added);

/// Memory for the records and chunks of a launch.
class RecordPool {
public:
  Record *newRecord();
  Chunk *newChunk() { return &chunks.emplace_back(); }
  /// Takes back the records of a chunk that has landed.
  void recycle(Chunk &chunk);

private:
  std::deque<Record> records;
  std::deque<Chunk> chunks;
  llvm::SmallVector<Record *, 0> spare;
};

} // namespace cfc::emu
