//===- KernelLayout.h - Where a kernel keeps what in shared memory ------------===//
//
// Shared memory of a CTA, from offset 0: mbarriers of the ring and of the
// exchanges, scratch, one buffer for each tile, the ring. All offsets are bytes.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/plan/AttendColumns.h"
#include "dialects/kernel/Kernel.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace cfc::kernel {

/// Bytes of the table before its first entry (docs/design.md).
inline constexpr int64_t kTableHeader = 64;

/// Elements of `type` that one worker holds in `func`.
int64_t localElements(FuncOp func, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<StateAttr> states);
inline int64_t localElements(FuncOp func, TileType type) {
  return localElements(func, type.getShape(), type.getStates());
}

/// Consumer warps that take a ring tile together, 16 rows each, and its rows. Several sets take tiles in
/// turn.
inline constexpr int64_t kSetWarps = 4, kSetRows = 16 * kSetWarps;
/// Sets of consumer warps of a kernel.
int64_t consumerSets(FuncOp func);

inline constexpr int64_t kBlockBytes = 64 * 128; ///< 64 rows of 64 columns

/// How a matmul walks over its weights: blocks are 16 columns, slots the unit of the order of sums.
///
/// A ring tile has `tileRows` rows (16 a consumer warp) and `tileBlocks` blocks. It arrives in boxes of 64
/// columns (128 bytes) and `boxRows` rows with the 128-byte swizzle, by tensor copies or, of packed weights,
/// by bulk copies. In the ring 64 rows are a panel, in which columns of boxes lie one after another. Where
/// rows of several weights or of a CTA do not begin at multiples of 8, `boxRows` is 0 and each row is copied
/// apart, at `rowStride` bytes.
struct MatmulTiling {
  int64_t rows, columns;        ///< this CTA's part of the weights
  int64_t tileRows, tileBlocks; ///< rows and 16-column blocks of a ring tile
  int64_t blocks, slotBlocks;   ///< blocks of this CTA, blocks in a slot
  int64_t slots;                ///< non-empty slots of this CTA
  int64_t boxRows;              ///< 64, 32, 16 or 8; 0: row copies
  int64_t rowStride;            ///< of row copies: 16 bytes more than the columns, against bank conflicts
  bool packed;                  ///< the weights are packed
  /// Chains of multiplications in a slot: blocks 0, 2, … and 1, 3, …, so that one need not wait for the
  /// other.
  int64_t chains() const { return slotBlocks % 2 ? 1 : 2; }
  /// Whole tiles of a row of tiles; the last, whole or not, is not among them.
  int64_t wholeTiles() const { return (blocks - 1) / tileBlocks; }
  int64_t panelBytes() const { return kBlockBytes * ((tileBlocks + 3) / 4); }
  int64_t tileBytes() const { return boxRows ? tileRows / 64 * panelBytes() : tileRows * rowStride; }
};

/// Whether a stream's weights are packed.
bool isPacked(LoadOp load);

/// Tiling of a stream whose columns are summed in `slots` slots; failure where its columns cannot be split as
/// its type says: each slot must then hold as many blocks.
llvm::FailureOr<MatmulTiling> tilingOf(LoadOp load, int64_t slots);

/// Tokens in a segment and in an online softmax lane, and lanes of a segment (docs/design.md, "Order of
/// sums").
inline constexpr int64_t kSegment = 64, kLane = 16, kLanes = 4;

/// Tokens of a window that the cache may have: where one is appended that one has a place in it.
inline int64_t cachedInWindow(int64_t window, bool appends) {
  return std::min<int64_t>(window - appends, std::numeric_limits<int32_t>::max());
}

/// Rows of K and V arrive in boxes of 128 bytes: boxes of a head, and elements of a box.
inline int64_t headBoxes(int64_t dim, mlir::Type element) {
  return llvm::divideCeil(dim * element.getIntOrFloatBitWidth() / 8, 128);
}
inline int64_t boxElements(mlir::Type element) { return 128 * 8 / element.getIntOrFloatBitWidth(); }

/// Whether the tokens of a cache lie one after another in their slot, each in a row of headBoxes(dim) * 128
/// bytes, without a swizzle, and are copied one by one: pages are too small, or do not divide segments or are
/// divided by them.
bool copiesTokens(CacheType cache);
/// Whether the producer's threads copy K or V, whose rows have `dim` elements: tensor copies need rows of a
/// multiple of 16 bytes, of which f8 rows may have half one.
bool copiesByThreads(CacheType cache, int64_t dim);
/// What one tensor copy takes of K or V, whose rows have `dim` elements: (dim, token, head), and where the
/// cache has blocks, of one of them.
llvm::SmallVector<int64_t> cacheBox(CacheType cache, int64_t dim);

/// What a warp keeps of a work list, for at most kMaxRequests requests: the cost before each request's heads
/// and of all, then the requests' lengths; i32.
inline constexpr int64_t kMaxRequests = 64, kWorkLengths = 4 * (kMaxRequests + 1),
                         kWorkBytes = kWorkLengths + 4 * kMaxRequests + 12;

/// What a role keeps of the query tokens of requests that have several: of each the request, the number among
/// the request's, and how many those are.
inline constexpr int64_t kQueryBytes = 4 * kMaxRequests;

/// Sets of consumer warps that attend, each to as many groups in a row: a power of two.
int64_t attendSets(FuncOp func, LoadCacheOp load);

/// Groups of a K/V stream that one CTA attends to.
int64_t localGroups(FuncOp func, LoadCacheOp load);

/// How the `heads` query heads of a KV head are taken.
AttendColumns attendColumns(FuncOp func, KvStreamType kv, int64_t heads);

/// The read that gives a norm of several tokens its operand, where nothing else needs the tile: the norm
/// loads it from memory by itself, and the tile takes no shared memory. Else null.
ReadOp readInPlace(mlir::Value tile);

/// The normalize that a merge of states does itself, element by element, where nothing else needs the merged
/// state. Else null.
NormalizeOp normalizedBy(MergeStatesOp merge);

/// What a worker of an exchange sends to another, and where that lies. All sizes and places are bytes.
///
/// A block is `rows` runs of `rowBytes`, `sourceStride` apart in the tile and `targetStride` apart where it
/// arrives: of worker w, at `slot` w in the result, or in the receive buffer where payloads are merged.
struct ExchangeBuffers {
  int64_t workers = 1;
  int64_t rounds = 1;
  int64_t rows = 1, rowBytes = 0, sourceStride = 0, targetStride = 0, slot = 0;
  int64_t peerOffset =
      0;             ///< from the block for one worker to that for the next in the tile; 0: all get the same
  int64_t word = 1;  ///< one store moves this much of a run
  int64_t piece = 0; ///< bulk: bytes of one copy

  llvm::SmallVector<int64_t> full;     ///< mbarrier of each round
  int64_t empty = -1;                  ///< mbarrier: all peers have used the last result; -1 outside loops
  int64_t receive = -1;                ///< push, async, bulk: what is merged, by worker
  llvm::SmallVector<int64_t> receives; ///< butterfly: what is merged in each round
  llvm::SmallVector<int64_t> steps;    ///< butterfly: what each round leaves; the last is the result
  int64_t staging = -1;                ///< bulk: the blocks for all workers, from which copies read

  int64_t blockBytes() const { return rows * rowBytes; }
  /// Bytes that a worker sends in round `r` of a butterfly.
  int64_t roundBytes(ExchangeKind kind, int64_t r) const {
    return kind == ExchangeKind::Reduce   ? blockBytes()
           : kind == ExchangeKind::Gather ? blockBytes() << r
                                          : blockBytes() * (workers >> (r + 1));
  }
  /// bulk: warps, of `warps`, that copy and send pieces: the first ones. Each has one for a peer.
  int64_t copyWarps(int64_t warps) const;
  /// Warps, of `warps`, that store `bytes` by words: the first ones.
  int64_t senders(int64_t warps, int64_t bytes) const;
};

/// Widest word (16, 8, 4, 2 or 1 bytes) that divides `bytes`.
int64_t wordFor(int64_t bytes);

struct AttendBuffers {
  int64_t sets = 1; ///< of consumer warps
  AttendColumns columns;
  bool apart = false; ///< the result has a place of its own, else it is the last level of the one stack
  bool together =
      false; ///< the states of all groups are kept and merged at the end, which needs no barriers before
  int64_t lanes = 0; ///< [sets][groups of a set, if together][kLanes][heads of a pass][v_dim + 2] f32: states
                     ///< of the group at hand
  int64_t lanesBytes = 0;
  int64_t stack = 0; ///< [sets][levels][heads of a pass][v_dim + 2] f32: merged states, a binary counter; its
                     ///< last level is the sum
  int64_t levels = 1;
};

class KernelLayout {
public:
  /// Lays out `func`; emits an error where something cannot be laid out.
  static llvm::FailureOr<KernelLayout> compute(FuncOp func);

  int64_t sharedBytes = 0;
  int64_t stages = 0, slotBytes = 0;                ///< ring
  int64_t full = 0, empty = 0;                      ///< mbarriers of the ring's slots
  int64_t scratch = 0;                              ///< 1 KB of the operation at hand
  int64_t flag = 0;                                 ///< 4 bytes: what one thread tells the others
  llvm::DenseMap<mlir::Operation *, int64_t> works; ///< kWorkBytes of each work list, the producer's apart
  /// By starts of query tokens: kQueryBytes of the consumers, as many of the producer; and how many rows.
  struct Queries {
    int64_t at = 0, rows = 0;
  };
  llvm::MapVector<mlir::Value, Queries> queries;
  int64_t scores = 0; ///< of the new tokens of requests with several, by head
  int64_t marks = 0;  ///< kMaxMarks times, of profiled functions
  int64_t ring = 0;
  bool copiesToPeers = false; ///< an exchange goes by bulk copies, which read this CTA's memory

  /// 4 bytes of a kernel.finish that waits: the shares that this CTA finishes, as bits.
  int64_t shares(FinishOp op) const { return masks.lookup(op); }
  int64_t tile(mlir::Value value) const { return tiles.lookup(value); }
  /// Bytes from a row to the next of a tile of rank 2 that a matmul multiplies by; 0 of others, whose rows
  /// lie one after another. An odd number of 16 bytes: eight rows' chunks lie in different banks.
  int64_t rowStride(mlir::Value tile) const { return strides.lookup(tile); }
  const ExchangeBuffers &exchange(ExchangeOp op) const { return exchanges.find(op)->second; }
  const AttendBuffers &attend(AttendOp op) const { return attends.find(op)->second; }
  /// Whether the token is merged into the state where that lies: a large one that nobody else reads.
  bool isInPlace(AttendNewOp op) const;
  /// Every mbarrier of the exchanges and its arrivals a phase.
  llvm::ArrayRef<std::pair<int64_t, int64_t>> exchangeBarriers() const { return barriers; }

private:
  int64_t allocate(int64_t bytes);
  void placeQueries(FuncOp func);
  /// KernelExchangeLayout.cpp
  void placeExchange(FuncOp func, ExchangeOp op);
  void placeExchangeBuffers(FuncOp func, ExchangeOp op);
  int64_t newBarrier(int64_t arrivals);
  int64_t emptyBarrier(ExchangeOp op, int64_t workers);

  void placeAttend(FuncOp func, AttendOp op);
  void findStrides(FuncOp func);
  int64_t tileBytes(FuncOp func, mlir::Value tile) const;
  void placeLocalTiles(FuncOp func);
  void placeTiles(FuncOp func);
  llvm::LogicalResult placeRing(FuncOp func);

  llvm::DenseMap<mlir::Value, int64_t> tiles, strides;
  llvm::DenseMap<mlir::Operation *, ExchangeBuffers> exchanges;
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, int64_t> empties; // by loop and axis
  llvm::DenseMap<mlir::Operation *, AttendBuffers> attends;
  llvm::DenseMap<mlir::Operation *, int64_t> masks;
  llvm::SmallVector<std::pair<int64_t, int64_t>> barriers;
};

/// The tensor maps of a module's kernels: what a box of which tensor they describe (docs/design.md).
class TensorMaps {
public:
  /// Byte offset in the table of the map of the tensor with table entry `entry`; the same for the same map.
  int64_t offsetOf(int64_t entry, llvm::StringRef field, llvm::ArrayRef<int64_t> box);
  /// Counts the table's entries, behind which the maps lie: first those that the module names in `simt.maps`.
  explicit TensorMaps(mlir::ModuleOp module);
  /// The maps as the attribute `simt.maps`.
  mlir::ArrayAttr describe(mlir::MLIRContext *context) const;

private:
  struct Map {
    int64_t entry;
    std::string field;
    llvm::SmallVector<int64_t> box;
  };
  int64_t first; // byte offset of map 0
  std::vector<Map> maps;
};

/// Most clusters that have work, or that the plan wants: one for each item, or one where there are no items.
int64_t usefulClusters(FuncOp func);

/// Attribute of a function: where in the workspace its CTAs leave marks of time, [CTA][kMaxMarks] i64.
inline constexpr llvm::StringLiteral kProfileAttr = "kernel.profile";
inline constexpr int64_t kMaxMarks = 32;

/// The ordered sum over the grid that alone takes a matmul's rows and whose body is made of operations on
/// elements: it can take them in pieces, and its body runs in registers. Else null.
FinishOp streamedFinish(MatmulOp op);
inline bool isStreamed(FinishOp op) {
  auto matmul = op.getTile().getDefiningOp<MatmulOp>();
  return matmul && streamedFinish(matmul) == op;
}

/// Table entry of an argument, by its attribute.
int64_t entryOf(FuncOp func, unsigned argument);

/// Shared memory of a CTA of `func` in bytes; an error where it cannot be laid out.
llvm::FailureOr<int64_t> sharedBytes(FuncOp func);

} // namespace cfc::kernel
