//===- Emulator.h - Runs simt kernels on the CPU ---------------------------===//
//
// `Program` compiles a `simt` module for the CPU; `Program::launch` runs one of
// its kernels as a GPU would, only harsher: every thread is a fiber, threads run
// in an order drawn from a seed, remote stores and bulk copies land as late as
// the memory model allows, memory is poisoned, and every access is checked. A
// violation stops the launch and is reported with the location of the op.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class raw_ostream;
}
namespace mlir {
class ModuleOp;
}

namespace cfc::emu {

/// What uninitialised 16-bit words hold: NaN as f16, bf16 and (pairwise) f32; a large index as i32.
inline constexpr uint16_t kPoison = 0x7FFB;
/// Fills `bytes` bytes with the poison pattern.
void poison(void *begin, size_t bytes);

/// The global memory that a kernel may touch: every access outside of its regions is an error.
class Memory {
public:
  struct Region {
    uintptr_t begin = 0, end = 0;
    std::string name;
  };

  Memory();
  ~Memory();
  Memory(Memory &&) noexcept;
  Memory &operator=(Memory &&) noexcept;

  /// New memory of `bytes` bytes, aligned to `align` (a power of two, at least 256 is used), filled with
  /// poison or zeros, between two guard zones. Owned by this object.
  void *allocate(size_t bytes, size_t align, llvm::StringRef name, bool zeroed = false);
  /// Makes memory of the caller accessible. It must outlive the launches and overlap no other region.
  void addRegion(void *begin, size_t bytes, llvm::StringRef name);
  /// True if no guard zone was written; otherwise `where` (if given) says which.
  bool guardsIntact(std::string *where = nullptr) const;
  /// The region that holds `address`, or null. Pointers stay valid until a region is added.
  const Region *find(uintptr_t address) const;
  /// Describes an address for a report: "32 bytes past the end of 'y' (8192 bytes)".
  std::string describe(uintptr_t address) const;

private:
  struct Block;
  std::vector<Region> regions; // sorted by `begin`
  std::vector<std::unique_ptr<Block>> blocks;
};

/// Clusters of so many CTAs of so many threads that the emulator holds at a time. More of a cooperative
/// kernel, whose CTAs wait for each other, take much memory.
unsigned mostClusters(unsigned threads, unsigned cluster);

struct Options {
  uint64_t seed = 0;
  /// Clusters that run at the same time; 0: drawn from the seed, from 1 to `mostClusters`, or all of a
  /// cooperative kernel's.
  unsigned residentClusters = 0;
  /// Random order and late effects. Off: fixed order, effects at once.
  bool chaos = true;
  /// Switches between threads, and four memory accesses count as one, without progress (the end of a thread,
  /// of a bulk copy or of an mbarrier's phase) after which the launch counts as hung; 0: 200 million, about
  /// 20 s.
  uint64_t maxSwitches = 0;
};

/// What kernels did; warp collectives count once a warp.
enum class Counter : unsigned {
  Mma,
  Ldmatrix,
  Movmatrix,
  Shuffles,
  MapRank,
  Barriers,
  MbarrierWaits,
  ClusterWaits, // mbarrier_wait of cluster scope by thread 0 of a CTA
  RemoteStores,
  RemoteStoreBytes,
  RemoteLoads,
  RemoteArrives,
  RemoteAtomics,
  BulkLoads,
  BulkLoadBytes,
  BulkPushes,
  BulkPushBytes,
  BulkStores,
  BulkStoreBytes,
  TensorLoads,
  TensorLoadBytes,
  Atomics,
  GlobalLoads,
  GlobalLoadBytes,
  GlobalStores,
  GlobalStoreBytes,
  SharedLoads,
  SharedStores,
  Count_
};
inline constexpr unsigned kNumCounters = static_cast<unsigned>(Counter::Count_);

struct Counters {
  std::array<uint64_t, kNumCounters> total{};  // over the grid
  std::array<uint64_t, kNumCounters> maxCta{}; // of the CTA that has most
  static llvm::StringRef name(Counter counter);
  uint64_t operator[](Counter counter) const { return total[static_cast<unsigned>(counter)]; }
  uint64_t max(Counter counter) const { return maxCta[static_cast<unsigned>(counter)]; }
  /// One line a counter that is not zero: name, total, most in one CTA.
  void print(llvm::raw_ostream &os) const;
};

enum class FindingKind {
  OutOfBounds,
  Misaligned,
  BadBarrier, // uninitialised or overwritten mbarrier, too many arrivals, tx count out of range
  Divergence, // a warp collective without all lanes, or lanes at different ops
  Deadlock,
  Hang,             // budget of switches used up
  EarlyExit,        // a CTA that has exited, or exits, while others use its shared memory
  UnfinishedAtExit, // copies or expected bytes pending when a CTA exits
  ProxyOrder, // a bulk copy of bytes whose generic write, or into bytes whose generic read, was not fenced
  Race,       // an access or a copy to bytes that a bulk copy in flight will write
  Usage,      // an operand out of range
  Trap
};
llvm::StringRef name(FindingKind kind);

struct Finding {
  FindingKind kind;
  std::string message;
  std::string location; // "file:line:col: simt.op", empty if no op is to blame
  int cluster = -1, cta = -1, thread = -1;
};

struct Report {
  bool ok = true;
  std::vector<Finding> findings;
  Counters counters;
  uint64_t switches = 0;         // between fibers
  unsigned residentClusters = 0; // what the seed gave
  /// One line a finding.
  void print(llvm::raw_ostream &os) const;
};

/// A simt module compiled for this CPU. Immutable; `launch` may be called from several threads.
class Program {
public:
  ~Program();
  /// Compiles a clone of `module`. Fails with the diagnostic's text where an op has no lowering.
  static llvm::Expected<std::unique_ptr<Program>> compile(mlir::ModuleOp module);

  /// Runs `kernel` on a grid of `numClusters` clusters and waits for its end. `table` and `workspace` must
  /// lie in regions of `memory`. An unknown kernel is a finding of kind Usage.
  Report launch(llvm::StringRef kernel, unsigned numClusters, void *table, void *workspace,
                const Memory &memory, const Options &options = {}) const;

  struct Impl;

private:
  explicit Program(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace cfc::emu
