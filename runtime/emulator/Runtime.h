//===- Runtime.h - State of one emulated launch ----------------------------===//
//
// Private to the emulator: fibers, warps, CTAs, clusters, and the `Launch` that
// schedules them. Clusters run in slots; a slot takes the next cluster of the
// grid when its cluster has finished. Everything runs on one host thread.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/emulator/Context.h"
#include "runtime/emulator/Emulator.h"
#include "runtime/emulator/TensorMap.h"
#include "runtime/emulator/Visibility.h"
#include "llvm/ADT/DenseSet.h"
#include <queue>

namespace cfc::emu {

struct Launch;
struct Warp;
struct Cluster;

/// Entry point of a compiled kernel. `shared` is the CTA's shared memory.
using KernelFn = void (*)(Fiber *, void *table, void *workspace, uint32_t thread, uint32_t rank,
                          uint32_t cluster, uint32_t numClusters, void *shared);

/// One kernel of a program.
struct Kernel {
  std::string name;
  KernelFn entry = nullptr;
  unsigned threads = 0, cluster = 0;
  size_t sharedBytes = 0;
  bool tracksWriters = false; // has bulk copies or remote loads: who wrote each shared word matters
  bool tracksReaders = false; // has bulk copies into shared memory: who read each byte matters
  bool waitsForGrid = false;  // has grid_wait
  bool isCooperative = false; // has grid_barrier: all its clusters run at a time
};

/// Source locations of the ops, by the ids that the entry points of the emulator take.
struct LocationTable {
  std::vector<std::string> names; // "file:line:col: simt.op"
  size_t size() const { return names.size(); }
};

/// wyrand: fast, and good enough to pick threads.
struct Random {
  uint64_t state;
  uint64_t next() {
    state += 0xa0761d6478bd642full;
    __uint128_t product = static_cast<__uint128_t>(state) * (state ^ 0xe7037ed1a0b428dbull);
    return static_cast<uint64_t>(product >> 64) ^ static_cast<uint64_t>(product);
  }
  /// From 0 to n - 1.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }
  bool oneIn(uint32_t n) { return below(n) == 0; }
};

enum class WaitKind : uint8_t {
  None,
  Collective,
  NamedBarrier,
  ClusterBarrier,
  GridBarrier,
  Words,
  Mbarrier,
  BulkGroups
};

struct Mbarrier {
  Cta *cta;
  uint32_t offset; // in the CTA's shared memory
  uint32_t count, pending;
  int64_t tx = 0; // bytes expected and not yet copied in this phase; negative if copied first
  uint64_t phase = 0;
  uint32_t initThread, initLocation;
  bool visibleToPeers = false, visibleToCopies = false; // the initialiser has fenced
  bool filledByPeers = false, wasFilledByPeers = false; // by async stores: in this phase, in the last one
  llvm::SmallVector<Fiber *, 8> waiters;
  ReleaseSet current, completed; // of this phase's arrivals; of earlier phases'
};

struct NamedBarrier {
  uint32_t threads = 0;
  llvm::SmallVector<Fiber *, 0> waiters;
  Chunks gathered;   // what the waiters know of
  uint64_t mark = 0; // of this use
};

/// Bulk stores of a thread: copies not finished in each committed group, oldest first, then the open group.
struct BulkGroups {
  std::deque<unsigned> unfinished{0};
  uint64_t firstGroup = 0; // number of the oldest
};

/// What the fences of a thread order.
struct FenceState {
  ReleaseSet fenced;   // by a fence: released by the next relaxed atomic
  ReleaseSet observed; // by a relaxed atomic: acquired by the next fence
};

struct alignas(64) Fiber {
  Context *context = nullptr; // in its warp
  Launch *launch = nullptr;
  Warp *warp = nullptr;
  Cta *cta = nullptr;
  uint32_t thread = 0;
  uint8_t lane = 0;
  WaitKind wait = WaitKind::None;                               // valid while the lane is not ready
  enum : uint8_t { Undecided, Early, Late } stores = Undecided; // until the next synchronisation
  enum : uint8_t { Idle, Arrived, Completed } atCluster = Idle; // barrier.cluster
  uint32_t location = 0;                                        // of the op at which it waits
  uint32_t waitDetail = 0;                                      // parity, barrier id or number of groups
  Mbarrier *waitBarrier = nullptr;
  uint32_t proxyFence = 0; // event number of its last fence_proxy_async
  Chunk *open = nullptr;
  Chunks known; // closed chunks ordered before this point
  std::unique_ptr<BulkGroups> groups;
  std::unique_ptr<FenceState> fences;
  alignas(16) char scratch[16]; // a loaded value made of memory and pending stores
};

/// A plain read of 16 bytes of shared memory: when, by which lane, at which op. Newer reads are larger.
struct ReadTag {
  static constexpr unsigned kAllLanes = 32; // a collective's read: every lane has to fence it
  static constexpr unsigned kLocationBits = 26;
  uint64_t bits = 0; // 0: not read
  ReadTag() = default;
  ReadTag(uint32_t event, unsigned lane, uint32_t location)
      : bits(uint64_t(event) << 32 | uint64_t(lane) << kLocationBits | location) {}
  uint32_t event() const { return bits >> 32; }
  unsigned lane() const { return bits >> kLocationBits & 63; }
  uint32_t location() const { return bits & ((1u << kLocationBits) - 1); }
};

struct Warp {
  uint32_t ready = 0;   // lanes that can run
  uint32_t live = 0;    // lanes that have not exited
  uint32_t arrived = 0; // lanes at the collective
  uint32_t location = 0;
  uint8_t next = 0; // lane picked ahead, while its stack is fetched into the caches
  /// What all lanes do in rounds: which have in this one, the event number of the first of them, and the same
  /// for the last round that all completed.
  struct Round {
    uint32_t lanes = 0, since = 0, all = 0;
    void note(unsigned lane, uint32_t event) {
      if (!lanes)
        since = event;
      lanes |= 1u << lane;
      if (lanes == ~0u)
        all = since, lanes = 0;
    }
  };
  Round fences;             // fence_proxy_async
  uint32_t readsDone = 0;   // event number at which its ldmatrix reads were last known to be done
  ReadTag *reads = nullptr; // its last read of each 16 bytes of shared memory, if tracked
  bool queued = false, slow = false;
  Cta *cta = nullptr;
  Fiber *fibers = nullptr; // its 32 lanes
  Context contexts[32];    // of the lanes, where they do not run: side by side, to be looked at ahead
  struct Arguments {
    const void *in;
    void *out;
    uint32_t a, b;
  } lanes[32];
};

enum class CopyKind : uint8_t { Load, Push, Store };

/// The source of a tensor load: the box of the tensor that begins at an element.
struct TensorBox {
  EmulatedTensorMap map;
  int32_t at[4] = {}; // innermost first
};
/// Writes the bytes of the box as shared memory gets them (TensorCopies.cpp).
void readBox(const TensorBox &box, char *out);

/// A bulk copy in flight.
struct Copy {
  CopyKind kind;
  bool snapshotTaken = false;
  uint32_t bytes, location;
  char *target;
  const char *source;
  Cta *sourceCta = nullptr, *targetCta = nullptr; // whose shared memory it is, or null
  Mbarrier *barrier = nullptr;
  Fiber *issuer = nullptr;
  uint64_t group = 0;
  std::unique_ptr<TensorBox> box; // the source, if it is one
  std::vector<char> snapshot;     // the source, if it was read before completion
};

/// A store in flight that completes its bytes on an mbarrier.
struct AsyncStore {
  char *target;
  Cta *targetCta;
  Mbarrier *barrier;
  uint32_t bytes, location;
  bool fromPeer;
  alignas(16) char data[16];
};

/// A plain read of a peer's shared memory.
struct RemoteRead {
  const Fiber *reader;
  uint32_t event, location; // the reader's CTA's event number
};

struct Cta {
  Launch *launch = nullptr;
  Cluster *cluster = nullptr;
  unsigned rank = 0, number = 0; // in the cluster, in the grid
  char *shared = nullptr;
  size_t sharedBytes = 0;
  bool exited = true, gridWaited = false;
  unsigned live = 0; // threads
  std::unique_ptr<Fiber[]> fibers;
  std::vector<Warp> warps;
  std::deque<Mbarrier> barriers;
  NamedBarrier named[16];
  std::unique_ptr<Overlay> overlay;
  std::vector<Copy *> incoming; // copies that will write its shared memory
  llvm::DenseMap<uint32_t, llvm::SmallVector<AsyncStore *, 1>>
      incomingStores;            // async ones, by granule of 16 bytes
  unsigned outgoing = 0;         // copies that read it
  unsigned incomingRecords = 0;  // stores of peers that have not landed
  std::vector<uint32_t> writers; // per 4 bytes: who wrote it last by a plain store, and when
  std::vector<char> written;     // per kWrittenBlock bytes: whether any of these is not 0
  std::vector<ReadTag> reads;    // of all warps
  llvm::DenseMap<uint32_t, RemoteRead> remoteReads; // by granule of 16 bytes: the last one by a peer
  uint32_t events = 1;                              // proxy fences and cluster releases so far
  uint32_t lastClusterRelease = 1;
  std::array<uint64_t, kNumCounters> counts{};

  void count(Counter counter, uint64_t n = 1) { counts[static_cast<unsigned>(counter)] += n; }
};

struct Cluster {
  std::vector<std::unique_ptr<Cta>> ctas;
  unsigned index = 0, liveCtas = 0;
  char *arena = nullptr;
  size_t arenaBytes = 0, stride = 0; // from one CTA's shared memory to the next
  unsigned liveThreads = 0, arrived = 0;
  llvm::SmallVector<Fiber *, 0> waiters;
  uint64_t generation = 0;
  ReleaseSet current, completed;
  std::vector<Warp *> runnable; // perhaps without a lane that is ready
  bool queued = false;          // among the launch's runnable clusters
};

struct Event {
  enum Kind : uint8_t { ReadSource, Complete, Land, LandAsync } kind;
  uint64_t due, order; // ties in the order of creation
  void *what;          // Copy, Chunk or AsyncStore
  bool operator<(const Event &other) const {
    return due != other.due ? due > other.due : order > other.order;
  }
};

/// How a launch behaves; drawn from the seed.
struct Chaos {
  bool on = true;
  unsigned stay = 64;       // most switches inside a warp before another is picked
  unsigned visit = 8192;    // most effort inside a cluster before another is picked
  unsigned copyDelay = 64;  // picks of warps until a copy completes, at most
  unsigned landDelay = 256; // the same for a released store that nobody acquires
  unsigned preempt = 1024;  // memory accesses between two preemptions, on average
  unsigned late = 50;       // percentage of stores that wait for an acquire
};

struct Launch {
  Launch(const Kernel &kernel, const LocationTable &locations, unsigned numClusters, void *table,
         void *workspace, const Memory &memory, const Options &options, Report &report);
  ~Launch();
  void run();

  // Scheduler.cpp
  void prepareSlots();
  void startCluster(Cluster &slot, unsigned index);
  void switchTo(Fiber *from, Fiber *to);
  void switchAway(Fiber *from);
  void block(Fiber *fiber, WaitKind kind, uint32_t location);
  void wake(Fiber *fiber);
  void enqueue(Warp &warp);
  [[noreturn]] void threadExit(Fiber *fiber);
  void preemptNow(Fiber *fiber, uint32_t location);
  void maybePreempt(Fiber *fiber, uint32_t location) {
    if (--untilPreempt == 0)
      preemptNow(fiber, location);
  }
  size_t pickIndex(size_t n);
  Cluster *pickCluster();
  Fiber *pickWarp();
  Fiber *pickLane(Warp &warp, unsigned after = 31);
  void runDueEvents();
  void schedule(Event::Kind kind, void *what, uint64_t delay);

  // Report.cpp
  [[noreturn]] void fail(Fiber *fiber, FindingKind kind, uint32_t location, std::string message);
  [[noreturn]] void fail(const Cta *cta, FindingKind kind, uint32_t location, std::string message);
  void add(const Cta *cta, int thread, FindingKind kind, uint32_t location, std::string message);
  [[noreturn]] void failHang();
  /// What threads have done: switches, and accesses between preemptions.
  uint64_t effort() const { return switches + accesses / 4; }
  void progress() { lastProgress = effort(); }
  void reportDeadlock();

  // Visibility.cpp
  void closeOpen(Fiber *fiber);
  void publish(Fiber *fiber);
  /// Threads that wait for words in the granule of `address` look again.
  void wakeWordWaiters(uintptr_t address);
  void release(Fiber *fiber, ReleaseSet &set, Scope scope);
  void acquire(Fiber *fiber, ReleaseSet &set, Scope scope);
  void gather(Fiber *fiber, Chunks &into, uint64_t mark);
  void spread(const Chunks &gathered, llvm::ArrayRef<Fiber *> fibers);
  void land(Chunk &chunk);
  void land(Record &record);
  void landAll(Overlay &overlay);
  void bound(ReleaseSet &set);
  void landGranule(Overlay &overlay, uintptr_t address);
  /// Where a store to memory that other CTAs see must write its value now.
  void *pendingStore(Fiber *fiber, char *address, unsigned bytes, Cta *target, uint32_t location);
  /// Where the bytes at `address` can be read as this CTA sees them.
  const void *overlaid(Fiber *fiber, const char *address, unsigned bytes);

  // Sync.cpp, Copies.cpp
  void ctaExit(Cta &cta);
  void completeClusterBarrier(Cluster &cluster);
  void completeTx(Mbarrier &barrier, uint32_t bytes, uint32_t location);
  void readSource(Copy &copy);
  void complete(Copy &copy);
  void land(AsyncStore &store); // AsyncStores.cpp

  const Kernel &kernel;
  const LocationTable &locations;
  const unsigned numClusters;
  void *const table, *const workspace;
  const Memory &memory;
  Report &report;

  Chaos chaos;
  Random random;
  uint64_t budget;           // of effort without progress
  uint64_t lastProgress = 0; // effort then
  uint64_t accesses = 0;     // until the last preemption
  uint32_t preemptAfter = 1, untilPreempt = 1;

  std::vector<std::unique_ptr<Cluster>> slots;
  unsigned nextCluster = 0, liveClusters = 0;
  std::vector<char *> stacks;  // by fiber of all slots
  Cluster *finished = nullptr; // the cluster whose last thread has just exited
  bool aborted = false;

  Context hostContext = nullptr;
  Fiber host;
  Fiber *current = &host;
  std::vector<Cluster *> runnable; // perhaps without a warp that is
  Cluster *visited = nullptr;
  uint64_t visitEnd = 0; // effort then
  Warp *currentWarp = nullptr;
  int64_t stayFor = 0;
  uint64_t tick = 0, switches = 0, eventOrder = 0, merges = 0;
  size_t roundRobin = 0;
  std::priority_queue<Event> events;

  RecordPool pool;
  llvm::DenseMap<uintptr_t, ReleaseSet> atomics; // releases through each atomic's address
  llvm::DenseMap<uintptr_t, llvm::SmallVector<Fiber *, 0>> gridWaiters; // by counter
  llvm::DenseMap<uintptr_t, llvm::SmallVector<Fiber *, 0>> wordWaiters; // by 16-byte granule
  llvm::DenseSet<std::pair<uint64_t, const void *>> acquiredMaps; // threads and the tensor maps they acquired
  std::vector<std::unique_ptr<Overlay>> orphans;                  // of CTAs that have exited
  std::vector<const Memory::Region *> lastRegion; // by location: the region of its last access
};

/// The thread that wrote a shared word, and the CTA's event number at that time. 0: not by a plain store.
inline uint32_t writerTag(const Fiber &fiber) { return fiber.thread << 22 | fiber.cta->events; }
inline uint32_t writerThread(uint32_t tag) { return tag >> 22; }
inline uint32_t writerEvent(uint32_t tag) { return tag & ((1u << 22) - 1); }
/// Starts a new event; forgets all writers before the numbers run out.
uint32_t nextEvent(Cta &cta);
inline constexpr size_t kWrittenBlock = 512;
/// Marks `bytes` bytes of shared memory as written by `tag`.
void markWriters(Cta &cta, size_t offset, size_t bytes, uint32_t tag);
/// False if no tag of the bytes is set.
bool mayBeWritten(const Cta &cta, size_t offset, size_t bytes);

/// Notes that a lane, or all lanes of its warp, have read 16 bytes or fewer of their CTA's shared memory.
inline void noteRead(Warp &warp, unsigned lane, const void *address, uint32_t location) {
  if (warp.reads)
    warp.reads[(static_cast<const char *>(address) - warp.cta->shared) / 16] = {warp.cta->events, lane,
                                                                                location};
}

// Access.cpp: checked addresses; each fails with a located finding.
void checkGlobal(Fiber *fiber, const void *address, size_t bytes, unsigned align, uint32_t location,
                 const char *what);
[[noreturn]] void failShared(Fiber *fiber, const void *address, size_t bytes, unsigned align,
                             uint32_t location, const char *what);
inline void checkShared(Fiber *fiber, const void *address, size_t bytes, unsigned align, uint32_t location,
                        const char *what) {
  const Cta &cta = *fiber->cta;
  size_t offset = static_cast<const char *>(address) - cta.shared;
  bool aligned = (reinterpret_cast<uintptr_t>(address) & (align - 1)) == 0;
  if (offset >= cta.sharedBytes || bytes > cta.sharedBytes - offset || !aligned)
    failShared(fiber, address, bytes, align, location, what);
}
/// The CTA of the cluster in whose shared memory the bytes lie.
Cta *checkCluster(Fiber *fiber, const void *address, size_t bytes, unsigned align, uint32_t location,
                  const char *what);
/// Fails if a bulk copy or an async store in flight will write the bytes of `owner`'s shared memory
/// (Copies.cpp, AsyncStores.cpp).
void checkInFlight(Fiber *fiber, const Cta &owner, const char *begin, size_t bytes, uint32_t location,
                   const char *what);
void checkStoresInFlight(Fiber *fiber, const Cta &owner, const char *begin, size_t bytes, uint32_t location,
                         const char *what);
/// Checks and issues a copy into the CTA's own shared memory that completes on the mbarrier at `barrier`
/// (Copies.cpp). `copy` has a kind, a location, a size, a target and a source.
void issueLoad(Fiber *fiber, Copy copy, char *barrier);
/// The destination of a copy in flight is poison; anything else cannot be one.
inline bool looksInFlight(const char *address) {
  uint16_t word;
  __builtin_memcpy(&word, address, sizeof(word));
  return word == kPoison;
}
/// The mbarrier at an address of `cta`'s shared memory.
Mbarrier *checkBarrier(Fiber *fiber, Cta &cta, const void *address, uint32_t location);

/// Stacks for fibers, with guard pages, kept for later launches.
std::vector<char *> takeStacks(size_t count);
void returnStacks(const std::vector<char *> &stacks);
inline constexpr size_t kStackBytes = 64 << 10;

/// Gives the calling thread a stack for signal handlers, if it has none: a fiber that runs out of its own
/// leaves none to report that on.
class SignalStack {
public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack &) = delete;
  SignalStack &operator=(const SignalStack &) = delete;

private:
  std::unique_ptr<char[]> memory;
};

/// Products are exact in f32 and are added in f32 in ascending order of k, starting from C.
void mmaM16N8K16(bool bf16, const uint16_t a[16][16], const uint16_t b[16][8], float c[16][8]);

} // namespace cfc::emu
