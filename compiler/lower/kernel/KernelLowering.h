//===- KernelLowering.h - State of lowering one kernel to simt -----------------===//
//
// One method lowers one operation; the methods stand in files by subject. A
// CTA has W consumer warps and, where there are streams, a producer warp.
// Consumers run the kernel's body together and meet at a barrier after each
// operation that gives a tile.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "compiler/lower/KernelLayout.h"
#include "compiler/lower/kernel/SimtBuilder.h"
#include <functional>

namespace cfc::kernel {

struct SoftmaxState;
class MmaOperands;

class KernelLowering {
public:
  using Value = mlir::Value;
  using Values = SimtBuilder::Values;

  KernelLowering(FuncOp func, const KernelLayout &layout, TensorMaps &maps, simt::KernelOp target);
  llvm::LogicalResult run();
  llvm::ArrayRef<std::string> getMarks() const { return marks; }

private:
  //===-- KernelLowering.cpp: structure --------------------------------------===//
  void loadArguments();
  void initBarriers();
  void waitForPeersToStart();
  void waitForLastKernel();
  /// Whether a cache's stream begins before the last kernel has ended.
  bool readsAhead();
  void waitBeforeCache();
  void planAhead(mlir::Block &body);
  WorkListOp plannedAhead; ///< by planAhead, or null
  /// With `profile`: a thread notes the time under `name`, and in the end leaves its times in the workspace.
  void mark(llvm::StringRef name, int64_t thread = 0);
  void clearMarks();
  void leaveMarks(int64_t thread = 0);
  llvm::LogicalResult lowerBlock(mlir::Block &block);
  llvm::LogicalResult lowerOp(mlir::Operation *op);
  llvm::LogicalResult lowerForItems(ForItemsOp op);
  llvm::LogicalResult lowerGridSync(GridSyncOp op);
  /// bar.sync of the consumer warps.
  void sync();
  /// bar.sync of this set of consumer warps.
  void syncSet();
  /// Runs body(i) for this consumer thread's i of [0, n).
  void forEach(int64_t n, llvm::function_ref<void(Value)> body);
  /// All threads share a state [heads][dim + 2]: `width` elements of a head, from d on, at a time.
  void forEachOfState(int64_t heads, int64_t dim,
                      llvm::function_ref<void(Value head, Value d, int64_t width)> body);
  /// The same with `load(i)` of up to `batch` i ahead of their use(i, value): a loop would wait for each
  /// load.
  void forEachBatched(int64_t n, int64_t batch, llvm::function_ref<Value(Value)> load,
                      llvm::function_ref<void(Value, Value)> use);
  /// i = first, first + step, … below `n`, where `first` < `step`, with load(i) of `batch` of them ahead of
  /// their use(i, values). Long runs are a loop of such batches.
  void forEachAhead(Value first, int64_t step, int64_t n, int64_t batch,
                    llvm::function_ref<Values(Value)> load, llvm::function_ref<void(Value, Values)> use);
  /// Loads what positions, lengths and slots hold, once for a role; the element of one of them.
  void loadScalars();
  Value scalar(Value argument, Value index = {});
  /// The request and the head of an item of a cache.
  std::pair<Value, Value> requestAndHead(Value kernelItem, CacheType cache);

  //===-- LowerQueries.cpp ---------------------------------------------------===//
  /// Works out, once for a role, whose rows are whose where requests have several query tokens.
  void planQueries(bool producer);
  /// The request of a row of query tokens, the row's number among the request's, and how many those are: 0
  /// for rows of nobody.
  struct QueryPlace {
    Value request, index, count;
  };
  QueryPlace queryOf(Value row, Value starts);
  /// What an item of a cache is about. `row`: the request, or of several query tokens a request the token.
  struct ItemPlace {
    Value row, request, head;
    Value index, count; ///< QueryPlace's, or null
  };
  ItemPlace placeOf(Value kernelItem, CacheType cache, Value starts);
  void planRow(Value starts, Value row, int64_t rows, Value table, bool reports);
  /// Attends to what is new: of all new tokens of a request those that the row at hand sees.
  llvm::LogicalResult lowerAttendNewTokens(AttendNewOp op);
  /// Coordinate of this CTA on a cta axis, and the rank that differs from this one's by `x` on that axis
  /// (xor).
  Value coordinate(llvm::StringRef axis);
  Value peerRank(llvm::StringRef axis, Value x);
  int64_t rankStride(llvm::StringRef axis);
  /// First element of this CTA's part of a value split along dimension 0.
  Value partOffset(TileType type);
  /// Index in the whole value of element `local` of this CTA's part.
  Value wholeIndex(TileType type, Value local);
  /// True on the CTAs that act for a value: coordinate 0 on every cta axis that it is not split over.
  Value actsFor(TileType type);
  Value item(Value kernelItem);
  Value bufferOf(Value tile) { return b.offset(shared, layout.tile(tile)); }
  /// Address of element `index` of a tile in shared memory; it as f32, and back.
  Value elementAddress(Value tile, Value index);
  Value loadElement(Value tile, Value index);
  void storeElement(Value tile, Value index, Value f32);
  /// Sets bits of the sticky status in the table's header.
  void setStatus(int64_t bits);

  //===-- Ring -----------------------------------------------------------------===//
  /// Each set of consumer warps has slots of its own, from `first` on: waiting for the parity of a phase
  /// tells it from the one before only where nobody skips a phase. Position in them: slot, and the parity of
  /// its current use.
  struct Ring {
    Value slot, phase, first;
  };
  Ring startOf(Value ofSet);
  Ring advance(Ring r);
  Value slotAddress(Ring r);
  Value fullBarrier(Ring r);
  Value emptyBarrier(Ring r);
  void waitFull(Ring r);
  void releaseSlot(Ring r, mlir::ValueRange made);

  //===-- LowerFeed.cpp: the producer -------------------------------------------===//
  void lowerProducer(ProducerOp op);
  void feedBlock(mlir::Block &block);
  /// The producer's rings as loop-carried values (slot, phase of each), and the one of set `s`.
  Values flatRings();
  void assignRings(mlir::ValueRange flat);
  Values forSets(Value n, mlir::ValueRange flat, llvm::function_ref<Ring(Value, Ring)> feed);
  void forCopies(Value n, llvm::function_ref<void(Value)> start);
  Ring ringOf(mlir::ValueRange flat, Value s);
  Values withRing(mlir::ValueRange flat, Value s, Ring r);
  void feedWeights(LoadOp load, MatmulTiling tiling, int64_t pieces);
  void feedCache(LoadCacheOp load, int64_t heads);
  int64_t mapOffset(Value argument, llvm::StringRef field, llvm::ArrayRef<int64_t> box);
  Value map(Value argument, llvm::StringRef field, llvm::ArrayRef<int64_t> box);
  void acquireMaps(ProducerOp op);
  std::pair<Value, Value> streamOffset(LoadOp load);
  void feedRows(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows, int64_t columns,
                Ring r);
  void feedBoxes(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows, int64_t columns,
                 Ring r);
  void feedPacked(LoadOp load, const MatmulTiling &t, Value row, Value column, Value rows, int64_t columns,
                  Ring r);
  int64_t leadingRows(LoadOp load, const MatmulTiling &t);
  Value packedBox(LoadOp load, Value row, Value block);
  int64_t roomAtStart(const MatmulTiling &t);
  int64_t tilesToPrefetch(const MatmulTiling &t);
  int64_t laterTilesToPrefetch(const MatmulTiling &t, int64_t pieces);
  void prefetchLater(LoadOp load, const MatmulTiling &t, int64_t pieces);
  void prefetchTiles(LoadOp load, const MatmulTiling &t, Value isFirst, Value row, Value column);
  Value boxOffset(const MatmulTiling &t, Value firstRow, Value x);
  std::pair<Value, Value> atStackedRow(LoadOp load, Value row, llvm::function_ref<Value(Value)> place);
  Value existingBoxes(LoadOp load, int64_t boxRows, Value row, Value rows);
  void waitForEarlierTile(Ring r);
  /// Waits for the slot and arms it for `bytes`.
  void acquireSlot(Ring r, Value bytes);
  void waitEmpty(Ring r);
  void copyRow(LoadOp load, Value stackedRow, Value columnBytes, Value bytes, Value dst, Value barrier);
  Value validRows(LoadOp load, Value from, Value count);

  /// What both sides know of a cached request.
  struct Tokens {
    Value length, segmentsPerGroup, segments;
    Value firstGroup;    ///< of the item's chunk of the head
    int64_t chunkGroups; ///< in it
    Value shareGroups;   ///< in a share; null where it is none
    /// With a window: its first token, and the segment that has it. `segments` are those from there on.
    Value firstToken = {}, firstSegment = {};
    ItemPlace place = {};
    Value query = {}; ///< the position of the token that attends
    /// Where the cache holds new tokens that a mask may hide: the first one's position, and the mask (i64).
    Value base = {}, bits = {};
  };
  Tokens tokensOf(LoadCacheOp load, bool report);
  /// The first token of a window of so many cached tokens.
  Value firstOfWindow(Value length, int64_t cached) { return b.max(b.sub(length, b.i32(cached)), b.i32(0)); }
  void placeQuery(LoadCacheOp load, Tokens &t);
  Value seesNew(const Tokens &t, Value key);
  /// What a bias adds to a score, to the base 2, of a head behind `firstHead` (null: 0) of an item's `heads`
  /// and the position of the key; null where the region is empty.
  std::function<Value(Value head, Value key)> biasOf(mlir::Region &region, LoadCacheOp load,
                                                     const Tokens &tokens, Value firstHead, int64_t heads);
  /// Of so many segments of a head, rounded up.
  Value segmentsPerGroup(Value segments, int64_t groups);
  /// Groups that each attending set takes.
  Value groupsOfSet(const Tokens &t, LoadCacheOp load);
  /// A request's tokens are as many as memory says, at most what the cache holds; none where it is idle. With
  /// `reporter` a thread for which that holds sets the status.
  struct LengthSource {
    Value cache, length, slot; ///< slot may be null
    uint64_t bound;
    Value queries = {}; ///< starts of query tokens, or null
    bool masked = false;
  };
  Value lengthOf(const LengthSource &source, Value row, Value reporter);
  /// Whether a slot says that the request, or query token, has nothing new: it is negative, or not in `cache`
  /// (may be null).
  Value isIdle(Value slotMemory, Value row, Value cache);
  Value tilesAcross(const MatmulTiling &t, Value firstRow);
  /// The segments of a group of each attending set of consumer warps. They share the ring: the sets' j-th
  /// segments lie one after another.
  struct SetSegments {
    Values first, count;
  };
  /// Group `g` of each set's own groups.
  SetSegments segmentsOfSets(const Tokens &t, LoadCacheOp load, Value g);
  Value pageAt(LoadCacheOp load, Value request, Value page);
  Values pagesOfSegment(LoadCacheOp load, int64_t boxes, Value token, const Tokens &t);
  /// K or V, and whether nobody reads it again soon.
  struct CacheSide {
    llvm::StringRef field;
    int64_t dim;
    bool once;
  };
  void feedSegment(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t,
                   mlir::ValueRange pages, Ring r);
  void feedTokens(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t, Ring r);
  Value rowOfToken(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t);
  void feedByThreads(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t, Ring r);
  /// Segments [first, last) of local group `g`.
  std::pair<Value, Value> segmentsOfGroup(const Tokens &t, KvStreamType type, Value g);

  //===-- LowerWorkList.cpp -------------------------------------------------------===//
  /// A work list as one role has it.
  struct Work {
    CacheType cache;
    int64_t rows = 0;    ///< requests, or query tokens
    int64_t shift = 0;   ///< of segments, to be costs
    int64_t groups = 16; ///< of a head's segments
    /// Cached tokens in the window; nothing: all.
    std::optional<int64_t> window;
    Value table;       ///< in shared memory: kWorkBytes
    Value low, high;   ///< costs between which this cluster's units begin
    Value first, last; ///< heads [first, last) of which it has units
  };
  /// Segments of a head that are streamed.
  Value segmentsToShare(const Work &w, Value length);
  Value costOfHead(const Work &w, Value length);
  void sumWork(WorkListOp op, const Work &w, bool report);
  Value workLength(const Work &w, Value request);
  Value workBefore(const Work &w, Value request);
  Value headAtCost(const Work &w, Value x);
  Value groupsBefore(const Work &w, Value x, Value length);
  std::pair<Value, Value> shareOfHead(const Work &w, Value i);
  void findWork(Work &w);
  void planWork(WorkListOp op, bool producer);
  /// A cluster's items of a loop: first, end and step.
  struct ItemRange {
    Value first, end, step;
  };
  ItemRange itemRange(ForItemsOp op);
  void setItem(ForItemsOp op, Value i);
  Value statesOfHead(FinishOp op);
  llvm::LogicalResult lowerFinishOfShares(FinishOp op);
  Value groupsWithTokens(AttendOp op);

  //===-- LowerMemory.cpp ----------------------------------------------------------===//
  /// Of memories one behind the other that one in which an item's `n` elements lie, or rows or columns.
  struct Panel {
    Value base;  ///< of the memory, as `place` gives it
    Value first; ///< the item's first element in it
    Value size;  ///< its elements
  };
  /// Elements are counted along dimension `dim`, or with -1 all.
  Panel panelOf(mlir::ValueRange memories, Value kernelItem, int64_t n, int64_t dim,
                llvm::function_ref<Value(Value)> place);
  Panel panelOf(mlir::ValueRange memories, Value kernelItem, int64_t n, int64_t dim = -1) {
    return panelOf(memories, kernelItem, n, dim, [&](Value argument) { return memory.lookup(argument); });
  }
  llvm::LogicalResult lowerRead(ReadOp op);
  llvm::LogicalResult lowerReads(llvm::ArrayRef<ReadOp> ops);
  /// Loads what depends on an item's number alone, while its first tiles are read: slots, lengths and
  /// positions of requests, and the rotations there.
  void loadAhead(ForItemsOp loop);
  void loadRotationsAhead();
  void forgetAhead();
  struct ReadWords {
    Value base; ///< address of this CTA's part
    int64_t count = 0, word = 0;
  };
  ReadWords wordsOfRead(ReadOp op);
  llvm::LogicalResult lowerWrite(WriteOp op);
  llvm::LogicalResult lowerAppend(AppendOp op);

  //===-- LowerTokens.cpp --------------------------------------------------------------===//
  /// A tile [tokens, n] or memory [tokens, width], of which this CTA has `rows` rows and `columns` columns.
  struct TokenRows {
    Value base;         ///< of row 0 and column 0 of this CTA's part
    mlir::Type element; ///< of what lies there
    int64_t stride = 0; ///< bytes from row to row
    int64_t rows = 0, columns = 0;
    Value firstRow;           ///< in the whole value
    int64_t allRows = -1;     ///< that exist of more in the whole value; -1: all
    Value firstColumn;        ///< in the whole value
    int64_t wholeColumns = 0; ///< of the value
    /// Whether 16 bytes of a row are aligned wherever a chunk of 8 elements begins.
    bool inChunks = false;
  };
  TokenRows rowsOf(Value tile);
  Value at(const TokenRows &x, Value row, Value column);
  Value rowExists(const TokenRows &x, Value row);
  Value squaresOfRow(const TokenRows &x, Value row);
  /// Chunks of a norm of several tokens that each thread holds, where they are few: `each` of them, of
  /// `columns` different ones of the gain. 0: it walks through them.
  struct HeldTokens {
    int64_t each = 0, columns = 0;
  };
  HeldTokens heldTokens(RmsNormOp op);
  void preloadTokenGains(RmsNormOp op);
  void preloadTokens(RmsScaleOp op);
  llvm::LogicalResult lowerRmsScale(RmsScaleOp op);
  llvm::LogicalResult lowerScaledNorm(RmsNormOp op);
  llvm::LogicalResult lowerReadRows(ReadOp op);
  llvm::LogicalResult lowerReadColumns(ReadOp op);
  llvm::LogicalResult lowerWriteRows(WriteOp op);
  llvm::LogicalResult lowerWriteColumns(WriteOp op);
  /// Calls body(feature, token, address, exists, width) for runs of `width` features, 8 or 1, of a tile [n,
  /// tokens] of this CTA and memory [tokens, width], from token `from` on; `exists` is null where all do.
  void forFeatures(TileType type, mlir::ValueRange memories, Value item, int64_t from,
                   llvm::function_ref<void(Value, Value, Value, Value, int64_t)> body);
  llvm::LogicalResult lowerTokenRope(RopeOp op);
  Value writerActs(TileType type);

  //===-- LowerTokenMatmul.cpp ---------------------------------------------------------===//
  llvm::LogicalResult lowerTokenMatmul(MatmulOp op);
  void storeTokenSums(MatmulOp op, const MatmulTiling &t, Value firstRow, const Values &sums);

  //===-- LowerPointwise.cpp ---------------------------------------------------------===//
  llvm::LogicalResult lowerRmsNorm(RmsNormOp op);
  llvm::LogicalResult lowerRope(RopeOp op);
  llvm::LogicalResult lowerElementwise(ElementwiseOp op);
  Value combine(ElementwiseOp op, Value x, Value y);
  llvm::LogicalResult lowerCast(CastOp op);
  llvm::LogicalResult lowerQuantize(QuantizeOp op);
  llvm::LogicalResult lowerFold(FoldOp op);
  /// Sum or max over 256 virtual lanes, of which each consumer thread has one or two (lane, i), in all
  /// threads; the tree does not depend on the number of warps.
  Value foldThreads(ElementwiseKind kind, llvm::function_ref<Value(Value lane, int64_t i)> partial);
  void preloadGains(mlir::Block &body);
  Value sumInLoop(RmsNormOp op, llvm::function_ref<Value(Value)> of);
  Value withOffset(RmsNormOp op, Value gain);
  Value normScale(RmsNormOp op, Value squares, int64_t n);
  llvm::LogicalResult lowerPartNorm(RmsNormOp op);
  llvm::LogicalResult lowerNormInLoops(RmsNormOp op);
  void forHeldChunks(int64_t n, llvm::function_ref<void(int64_t, int64_t, Value, Value)> body);
  Values loadChunk(mlir::Type element, Value from, Value exists);
  Values chunkElements(mlir::Type element, const Values &words);
  void storeChunk(mlir::Type element, const Values &elements, Value to);
  void preloadRotations(mlir::Block &body);
  /// Loads the rotation that each thread takes of an operation, for lowerRope; false where it has it already,
  /// or takes several.
  bool keepRotation(RopeOp op);
  /// Position `token` clamped to the table, and the row of the table there; `reports`: whether this thread
  /// says so where it was clamped.
  Value positionOf(RopeOp op);
  Value rotationRow(RopeOp op, Value position, Value reports);
  std::pair<Value, Value> loadRotation(RopeOp op, Value row, Value pair);
  bool isReadByNorm(ReadOp op);

  //===-- LowerMatmul.cpp ------------------------------------------------------------===//
  llvm::LogicalResult lowerMatmul(MatmulOp op);
  llvm::SmallVector<Values> activationsOfTile(MmaOperands &mma, MatmulOp op, const MatmulTiling &t, Value x,
                                              Value firstBlock, int64_t blocks, bool half);
  using TileAddress = std::function<Value(Value slot, int64_t block)>;
  TileAddress tileAddress(const MatmulTiling &t);
  llvm::SmallVector<Values> loadTile(MmaOperands &mma, const TileAddress &at, Ring r, int64_t blocks,
                                     bool half);
  Values loadTileEarly(MmaOperands &mma, const TileAddress &at, Ring r, int64_t blocks);
  llvm::LogicalResult holdTiles();

  //===-- LowerAttend.cpp ------------------------------------------------------------===//
  llvm::LogicalResult lowerAttend(AttendOp op);
  void attendPass(AttendOp op, const Tokens &tokens, Value firstHead);
  void mergeGroup(AttendOp op, Value g, Value lanes, Value stack, Value firstHead, Value isWhole);
  void mergeLevels(AttendOp op, Value stack);
  void mergeSets(AttendOp op, Value firstHead);
  llvm::LogicalResult lowerAttendNew(AttendNewOp op);
  /// The score, to the base 2 and without a bias, of a head's query and a new key of `dim` elements: by a
  /// warp, in all lanes.
  Value scoreOfNew(AttendNewOp op, Value head, int64_t dim, Value kScale,
                   llvm::function_ref<Value(Value d)> key);
  void storeMerged(AttendNewOp op,
                   llvm::function_ref<SoftmaxState(Value head, Value d, int64_t width)> merged);
  llvm::LogicalResult lowerNormalize(NormalizeOp op);
  /// A head's scale of a cache; null where `memory` is.
  Value scaleOf(Value memory, Value head);

  //===-- LowerStates.cpp ---------------------------------------------------------------===//
  /// State k's `width` elements of a head, from d on.
  using LoadOfState = llvm::function_ref<SoftmaxState(int64_t k, Value head, Value d, int64_t width)>;
  using StoreOfState = llvm::function_ref<void(SoftmaxState merged, Value head, Value d)>;
  /// Merges `n` softmaxes [heads, dim + 2], a power of two where they are more than 16, by the tree; with
  /// `oneBehind` then the state `n`. What a thread has merged it gives to `storeMerged`.
  void mergeStates(int64_t heads, int64_t dim, int64_t n, bool oneBehind, LoadOfState load,
                   StoreOfState storeMerged);
  /// Stores o / l of a head's elements from d on, 0 where l is 0.
  void storeNormalized(NormalizeOp op, const SoftmaxState &state, Value head, Value d);
  /// Copies what this CTA has of a tile to global memory, as it is.
  void storeTile(Value tile, Value to);
  llvm::LogicalResult lowerFirst(FirstOp op);
  llvm::LogicalResult lowerEmptyState(EmptyStateOp op);
  llvm::LogicalResult lowerLeave(LeaveOp op);
  llvm::LogicalResult lowerMergeStates(MergeStatesOp op);

  //===-- LowerExchange.cpp ------------------------------------------------------------===//
  llvm::LogicalResult lowerExchange(ExchangeOp op);
  void pushBlocks(ExchangeOp op);
  void bulkBlocks(ExchangeOp op);
  void bulkPieceToAll(ExchangeOp op, Value at);
  void bulkPieceToOne(ExchangeOp op, Value x, Value at);
  void copyPiece(ExchangeOp op, llvm::function_ref<Value(Value)> from, Value to);
  void bulkPush(ExchangeOp op, Value from, Value x, Value at);
  /// One thread arrives at an mbarrier of this CTA and says that so many bytes will.
  void expectBytes(int64_t barrier, int64_t bytes);
  void waitForPeersToFinish(ExchangeOp op);
  void tellPeersOfUse(mlir::Block &body, Value more);
  void arriveAtPeer(ExchangeOp op, int64_t barrier, Value x);
  /// Runs `send` in the warps that store `bytes` by words, and `arrive` in each of them behind its lanes'
  /// stores.
  void inSenders(const ExchangeBuffers &e, int64_t bytes, llvm::function_ref<void()> send,
                 llvm::function_ref<void()> arrive);
  void waitRound(ExchangeOp op, int64_t round);
  Value peerAddress(ExchangeOp op, Value at, Value x);
  Value placeOfBlock(ExchangeOp op);
  Value inRows(const ExchangeBuffers &e, Value at, int64_t stride);
  Values wordsForPeers(ExchangeOp op, Value i, int64_t first, size_t count);
  void sendWords(ExchangeOp op, int64_t first, llvm::ArrayRef<Value> targets, llvm::ArrayRef<Value> barriers);

  //===-- LowerExchangeButterfly.cpp ---------------------------------------------------===//
  void butterflyGather(ExchangeOp op);
  void butterflyReduce(ExchangeOp op);
  void butterflyReduceScatter(ExchangeOp op);
  void sendToPartner(ExchangeOp op, int64_t round, int64_t bytes, llvm::function_ref<Value(Value)> from,
                     Value to);

  //===-- LowerExchangeMerge.cpp -------------------------------------------------------===//
  Values payloads(ExchangeOp op);
  void mergeReceived(ExchangeOp op);
  void sendMerged(ExchangeOp op);
  Values wordsOf(llvm::ArrayRef<Value> bases, Value at, mlir::Type word);
  Value mergeWords(ExchangeOp op, llvm::ArrayRef<Value> words);
  void mergePayloads(ExchangeOp op, llvm::ArrayRef<Value> bases, Value result, int64_t elements);

  //===-- LowerFinish.cpp --------------------------------------------------------------===//
  llvm::LogicalResult lowerFinish(FinishOp op);
  /// leaf(0) … leaf(n - 1), f32 or vectors of it, by the left-balanced tree.
  Value mergeItems(int64_t n, mlir::Type type, llvm::function_ref<Value(Value)> leaf,
                   llvm::function_ref<Value(Value, Value)> merge);

  //===-- LowerStreamedFinish.cpp -----------------------------------------------------===//
  /// Calls body(firstRow, values) for the rows of this set of consumer warps, or with `first` 0 for those of
  /// all sets; in pieces, from that of the item on, with ended(piece, values) behind each.
  Values overRows(const MatmulTiling &t, int64_t pieces, Value item, Value first, mlir::ValueRange inits,
                  llvm::function_ref<Values(Value, mlir::ValueRange)> body,
                  llvm::function_ref<Values(Value, mlir::ValueRange)> ended);
  Value itemOf(mlir::Operation *op);
  /// Where the partial sum of row `row` of an item lies, in the workspace.
  Value partialAt(FinishOp op, Value item, Value row);
  void storePartials(FinishOp op, Value piece);
  /// Arrivals at pieces, as thread 0 knows them: the pieces for which this CTA was the last, as bits, and
  /// what the last arrival, at piece `pendingBit`, gave.
  struct Arrivals {
    Value last, pending, pendingBit;
  };
  Value pieceCounter(FinishOp op, Value piece);
  Value lastPieces(FinishOp op, const Arrivals &arrivals);
  Arrivals arriveAtPiece(FinishOp op, Value piece, Arrivals before);
  Value piecesToFinish(FinishOp op, Arrivals arrivals);
  llvm::LogicalResult lowerStreamedFinish(FinishOp op);
  Value addressOf(Value argument, Value index);
  void roundElements(Values &values, Value as);
  llvm::DenseMap<Value, Values> readElements(FinishOp op, Value index);
  void finishElements(FinishOp op, Value index, llvm::DenseMap<Value, Values> known, Value sum);
  Value mergedPartials(FinishOp op, Value index);
  void mergePartials(FinishOp op, Value rows, int64_t local);
  void mergeStatesOf(FinishOp op, Value states, int64_t n, Value count);
  void collectItems(FinishOp op, Value from);

  //===-- LowerWaitingFinish.cpp ------------------------------------------------------===//
  llvm::LogicalResult lowerWaitingFinish(FinishOp op);
  void leaveWords(FinishOp op);
  Value awaitSum(FinishOp op, Value index, Value firstItem, int64_t items);
  void finishShare(FinishOp op, Value share);
  /// Counts this cluster's start where a sum waits, early: the result is looked at in takeSharesOfOthers.
  void countStarts();
  void takeSharesOfOthers(FinishOp op);
  void arriveAtSum(FinishOp op);
  void finishShares(FinishOp op);
  Value countersOf(FinishOp op);
  Value countedBefore(FinishOp op, int64_t add);
  Value clustersWithItems(FinishOp op);

  FuncOp func;
  const KernelLayout &layout;
  TensorMaps &maps;
  simt::KernelOp target;
  SimtBuilder b;

  int64_t warps;                       ///< consumer warps
  int64_t threads;                     ///< consumer threads
  Value tid, warp, lane, rank, shared; ///< of this thread
  Value set, setWarp;                  ///< set of consumer warps, and the warp in it
  int64_t sets;                        ///< of consumer warps
  Value table, workspace;
  llvm::DenseMap<Value, Value> memory; ///< memref argument → global address
  struct CacheArgument {
    CacheType type;
    Value k, v, strideHead, strideToken, capacity; ///< addresses; bytes and tokens (i64)
    Value strideBlock, blocks;                     ///< where there are several requests or pages, else null
    Value vStrideHead, vStrideToken, vStrideBlock; ///< the same values as K's where V's dim is K's
  };
  /// Rows that slots may name.
  Value slotsOf(const CacheArgument &cache);
  llvm::DenseMap<Value, CacheArgument> caches;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Values>> gains; ///< of norms, by chunk of this thread
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Values>> held;  ///< chunks of norms of several tokens
  llvm::DenseMap<std::pair<Value, Value>, std::pair<Value, Value>>
      rotations;                          ///< (table, position) → cos, sin
  llvm::DenseMap<Value, Value> scalars;   ///< position, length or slot argument → its element, in this role
  llvm::SmallVector<Value> scalarsOfItem; ///< those of them that are of the item at hand
  llvm::SmallVector<RopeOp> rotationsDue; ///< of the item at hand, whose positions are on their way
  llvm::SmallVector<std::pair<Value, Value>> rotationsOfItem;
  llvm::DenseMap<mlir::Operation *, Arrivals> arrivals; ///< of streamed sums
  llvm::DenseMap<mlir::Operation *, Value> starts,
      orders;                         ///< of sums that wait: what the counts were, of thread 0
  llvm::DenseMap<Value, Value> items; ///< item → i32
  llvm::DenseMap<Value, std::pair<Value, Value>> shares; ///< share of an item → its groups, [first, second)
  llvm::DenseMap<Value, Value> queryTables;              ///< starts of query tokens → planQueries' words
  llvm::DenseMap<Value, Work> works;                     ///< of work lists, in this role
  Ring ring;                                             ///< of this set of consumer warps
  llvm::SmallVector<Ring> rings;                         ///< of the producer, by set
  Value round;                                           ///< how often the loop at hand has run (i32)
  int64_t profile;                      ///< byte offset of the marks in the workspace; -1: none
  llvm::SmallVector<std::string> marks; ///< their names
  llvm::SmallVector<int64_t> markThreads;
  MatmulOp holder; ///< whose first tiles `heldTiles` are, in registers; or null
  llvm::SmallVector<Values> heldTiles;
  bool inLoop = false;
  bool isFirstFeed = true;
  bool oneLane = false; ///< one lane of the producer warp does all
};

/// Elements of a streamed sum that a thread takes at a time.
inline constexpr int64_t kFour = 4;

/// (m, l, o) of an online softmax, with one or some neighbouring elements of o.
struct SoftmaxState {
  mlir::Value m, l;
  llvm::SmallVector<mlir::Value, 4> o;

  /// m, l and o in a row, as loops and branches give them, and back.
  llvm::SmallVector<mlir::Value> flat() const;
  static SoftmaxState from(mlir::ValueRange values);
};
/// Merge of two online softmaxes; symmetric, and exact where one is empty (m = -inf).
SoftmaxState mergeSoftmax(SimtBuilder &b, SoftmaxState x, SoftmaxState y);

inline constexpr double kLog2E = 1.4426950408889634;
/// A score to the base 2 from q k: scaled, by that of the cached keys too (null: they have none), and capped.
mlir::Value scoreOf(SimtBuilder &b, mlir::Value product, double scale, mlir::Value kScale,
                    std::optional<double> softcap);
/// An optional number of an operation.
std::optional<double> numberOf(std::optional<llvm::APFloat> number);

/// Where a product's row `row` lies: with `parts`, in the part that has it.
mlir::Value placeOfRow(SimtBuilder &b, MatmulOp op, mlir::Value row);
/// Elements of o that a thread takes together where `threads` share [heads][dim]: their m and l are then
/// loaded, and their factors computed, once for all. 1, 2 or 4; it divides dim.
int64_t elementsTogether(int64_t heads, int64_t dim, int64_t threads);
/// The head, and its first element, of the i-th `width` elements.
std::pair<mlir::Value, mlir::Value> headAndElement(SimtBuilder &b, mlir::Value i, int64_t dim, int64_t width);
/// `width` elements of head h, from d on, of a state [heads][dim + 2] at `base`, with the head's m and l; the
/// thread of element 0 also stores those if `sums` says so.
SoftmaxState loadState(SimtBuilder &b, mlir::Value base, mlir::Value head, mlir::Value d, int64_t dim,
                       int64_t width);
void storeState(SimtBuilder &b, SoftmaxState s, mlir::Value base, mlir::Value head, mlir::Value d,
                int64_t dim, bool sums = true);

/// Words that a thread of an exchange loads before it uses the first.
inline constexpr int64_t kWordsAhead = 4;

/// The type that moves a word of `bytes` bytes.
mlir::Type wordType(mlir::OpBuilder &b, int64_t bytes);
/// Merges `n` leaves by the left-balanced binary tree.
template <typename T>
T mergeTree(int64_t n, llvm::function_ref<T(int64_t)> leaf, llvm::function_ref<T(T, T)> merge,
            int64_t first = 0) {
  if (n == 1)
    return leaf(first);
  int64_t left = 1;
  while (left * 2 < n)
    left *= 2;
  T l = mergeTree<T>(left, leaf, merge, first);
  T r = mergeTree<T>(n - left, leaf, merge, first + left);
  return merge(l, r);
}

} // namespace cfc::kernel
