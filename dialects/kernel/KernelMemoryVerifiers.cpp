//===- KernelMemoryVerifiers.cpp - What operations need of their memory -----===//
//
// Tiles and streams in global memory: what can be addressed, what stays inside,
// and what does not race with other clusters.
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/KernelChecks.h"

using namespace mlir;
using namespace cfc::kernel;

/// Items times elements of a tile must be indexed by i32.
static LogicalResult checkReach(Operation *op, Value item, int64_t elements) {
  if (elements > kMaxIndexed / itemsOf(item))
    return op->emitOpError("reaches past element ") << kMaxIndexed << " of its memory";
  return success();
}

/// Tiles of several tokens, [tokens, n] by `rows` or [n, tokens] by `columns`, and memory [tokens, width].
static LogicalResult checkTokens(Operation *op, MemRefType memory, TileType tile, bool rows, bool columns,
                                 Value item, int64_t from, bool pads) {
  if (rows && columns)
    return op->emitOpError("takes rows or columns, not both");
  if (memory.getRank() != 2 || tile.getShape().size() != 2)
    return op->emitOpError("moves rows or columns of memory [tokens, width] and a tile of rank 2, not ")
           << memory << " and " << tile;
  int64_t tokens = tile.getShape()[rows ? 0 : 1], n = tile.getShape()[rows ? 1 : 0];
  int64_t all = memory.getDimSize(0);
  if (from < 0 || from >= all || (!(rows && pads) && tokens > all - from))
    return op->emitOpError("has ") << tokens << " tokens in " << tile << ", from " << from << " on of " << all
                                   << " in " << memory;
  if (!item && n > memory.getDimSize(1))
    return op->emitOpError("has ") << n << " columns in " << tile << "; " << memory << " has "
                                   << memory.getDimSize(1);
  if (n > kMaxIndexed / 64 / itemsOf(item))
    return op->emitOpError("reaches past column ") << kMaxIndexed / 64 << " of its memory";
  return success();
}

/// Several memories or weights, of which an item has `n` elements, columns or rows of one: alike but for how
/// many of these they have, along dimension `dim`.
static LogicalResult checkPanels(Operation *op, ValueRange memories, Value item, int64_t n, int64_t dim,
                                 StringRef what) {
  auto first = cast<MemRefType>(memories.front().getType());
  int64_t all = 0;
  for (Value memory : memories) {
    auto type = cast<MemRefType>(memory.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] = first.getDimSize(dim);
    if (first.getShape() != ArrayRef(shape) || type.getElementType() != first.getElementType())
      return op->emitOpError("takes ") << what << " of one of several memories: " << first << " and " << type
                                       << " differ in more than their number of " << what;
    if (n < 1 || type.getDimSize(dim) % n)
      return op->emitOpError("takes ") << n << " " << what << " of one of several memories: " << type
                                       << " has " << type.getDimSize(dim) << ", no multiple of that";
    all += std::min(type.getDimSize(dim), kMaxIndexed);
  }
  if (!item)
    return op->emitOpError("takes ")
           << what << " of one of several memories, which one an item says: give `at %item`";
  if (itemsOf(item) > all / n)
    return op->emitOpError("takes ") << n << " " << what << " for each of " << itemsOf(item)
                                     << " items; its memories have " << all;
  if (all > kMaxIndexed)
    return op->emitOpError("takes ") << what << " of memories that have more than " << kMaxIndexed
                                     << " together";
  return success();
}

/// The memories of a kernel.read or kernel.write: one, or several of which an item has a part of one.
static LogicalResult checkMemories(Operation *op, ValueRange memories, TileType tile, Value item, bool rows,
                                   bool columns, StringRef what) {
  if (memories.empty())
    return op->emitOpError("needs memory");
  for (Value memory : memories)
    if (failed(checkFloatMemory(op, memory, what)))
      return failure();
  if (memories.size() == 1)
    return success();
  int64_t rank = columns ? 2 : 1;
  if (rows)
    return op->emitOpError("takes rows of one memory, not of ") << memories.size();
  for (Value memory : memories)
    if (auto type = cast<MemRefType>(memory.getType()); type.getRank() != rank)
      return op->emitOpError("takes ") << (columns ? "columns" : "elements")
                                       << " of one of several memories of rank " << rank << ", not " << type;
  return columns ? checkPanels(op, memories, item, tile.getShape()[0], 1, "columns")
                 : checkPanels(op, memories, item, tile.getNumElements(), 0, "elements");
}

LogicalResult ReadOp::verify() {
  TileType tile = getResult().getType();
  if (failed(checkTile(*this, tile)) ||
      failed(checkMemories(*this, getMemories(), tile, getItem(), getRows(), getColumns(), "reads")))
    return failure();
  bool ofTokens = getRows() || getColumns();
  if (ofTokens && failed(checkTokens(*this, cast<MemRefType>(getMemory().getType()), tile, getRows(),
                                     getColumns(), getItem(), getFrom(), /*pads=*/true)))
    return failure();
  if (!ofTokens && getFrom())
    return emitOpError("takes tokens from ") << int64_t(getFrom()) << " on by rows or columns only";
  if (!ofTokens && !getItem() &&
      tile.getNumElements() > cast<MemRefType>(getMemory().getType()).getNumElements())
    return emitOpError("reads ") << tile.getNumElements() << " elements of " << getMemory().getType();
  for (StateAttr s : tile.getStates())
    if (s.isPartial())
      return emitOpError("gives a tile that is replicated or split; its type says ")
             << describe(s) << " over `" << s.getAxis().getValue() << "`";
  return ofTokens ? success() : checkReach(*this, getItem(), tile.getNumElements());
}

/// Whether `op` runs once for all parts of `whole`: in the kernel.first of one of them.
static bool runsInFirst(Operation *op, Value whole) {
  auto first = op->getParentOfType<FirstOp>();
  return first && isPartOf(first.getPart(), whole);
}

/// Where items are parts of wholes (kernel.outer) one of them stores what concerns the whole: the first, in a
/// kernel.first, or the last, in the kernel.finish of each run of them. There the loop's own item is any of a
/// run.
static LogicalResult checkWhole(Operation *op, Value item) {
  auto outer = item ? item.getDefiningOp<OuterOp>() : OuterOp();
  auto finish = op->getParentOfType<FinishOp>();
  if (finish && finish.getEach() && (!outer || int64_t(outer.getOf()) != int64_t(finish.getEach())))
    return op->emitOpError("in a kernel.finish of each ")
           << finish.getEach() << " items stores at the kernel.outer of " << finish.getEach();
  auto loop = op->getParentOfType<ForItemsOp>();
  if (loop && loop.getWork() && !(finish && finish.getShares() && item == loop.getItem()))
    return op->emitOpError("would store a head for each of its shares: put it into a kernel.finish of its "
                           "`shares`, at the loop's item");
  if (item && item.getDefiningOp() && !(finish && finish.getEach()) && !runsInFirst(op, item))
    return op->emitOpError("would store several items to the same elements: put it into a kernel.first, or a "
                           "kernel.finish of each of their runs");
  return success();
}

LogicalResult WriteOp::verify() {
  TileType tile = getTile().getType();
  if (failed(checkTile(*this, tile)) ||
      failed(checkMemories(*this, getMemories(), tile, getItem(), getRows(), getColumns(), "writes")))
    return failure();
  for (StateAttr s : tile.getStates())
    if (s.isPartial())
      return needsReplicated(*this, s, "the tile");
  for (auto [i, memory] : llvm::enumerate(getMemories()))
    if (llvm::is_contained(getMemories().drop_front(i + 1), memory))
      return emitOpError("would write several items to the same elements: its memories are the same");
  auto items = (*this)->getParentOfType<ForItemsOp>();
  bool finishes = (*this)->getParentOfType<FinishOp>() != nullptr;
  if (failed(checkWhole(*this, getItem())))
    return failure();
  auto finish = (*this)->getParentOfType<FinishOp>();
  if (finishes && !finish.getShares() && getItem() && !getItem().getDefiningOp())
    return emitOpError("in kernel.finish writes the sum over all items: leave out `at`");
  if (items && !finishes && !getItem() && itemsOf(items.getItem()) > 1)
    return emitOpError("would write every item to the same elements: give `at %item`");
  if (getFrom() && !getRows() && !getColumns())
    return emitOpError("takes tokens from ") << int64_t(getFrom()) << " on by rows or columns only";
  if (getRows() || getColumns())
    return checkTokens(*this, cast<MemRefType>(getMemory().getType()), tile, getRows(), getColumns(),
                       getItem(), getFrom(), /*pads=*/false);
  return checkReach(*this, getItem(), tile.getNumElements());
}

/// Columns [item * c, item * c + c) of every weight.
static LogicalResult checkColumns(LoadOp op) {
  int64_t columns = op.getResult().getType().getShape()[1], items = itemsOf(op.getItem());
  if (!op.getItem())
    return op.emitOpError("takes columns of an item: give `at %item`");
  for (Value weight : op.getWeights())
    if (auto type = cast<MemRefType>(weight.getType()); items * columns > type.getDimSize(1))
      return op.emitOpError("takes ") << columns << " columns for each of " << items << " items; " << type
                                      << " has " << type.getDimSize(1);
  return success();
}

/// Panels of the stacked rows of several weights.
static LogicalResult checkPanels(LoadOp op) {
  if (op.getColumns())
    return op.emitOpError("takes columns or panels, not both");
  if (op.getWeights().size() < 2)
    return op.emitOpError("takes panels of several weights");
  return checkPanels(op, op.getWeights(), op.getItem(), op.getRows()[0], 0, "rows");
}

LogicalResult LoadOp::verify() {
  if (getPanels() && getRows().size() != 1)
    return emitOpError("has ") << getRows().size() << " row counts; panels have one";
  if (!getPanels() && getRows().size() != getWeights().size())
    return emitOpError("has ") << getWeights().size() << " weights and " << getRows().size() << " row counts";
  StreamType stream = getResult().getType();
  if (stream.getShape().size() != 2)
    return emitOpError("gives a stream [rows, columns]");
  if (failed(checkShape(*this, stream.getShape(), kMaxElements)))
    return failure();
  if (!stream.getElementType().isF16() && !stream.getElementType().isBF16())
    return emitOpError("streams f16 or bf16, not ") << stream.getElementType();
  int64_t rows = 0;
  for (auto [i, weight] : llvm::enumerate(getWeights())) {
    auto memory = cast<MemRefType>(weight.getType());
    int64_t n = getRows()[getPanels() ? 0 : i];
    if (memory.getRank() != 2 || memory.getElementType() != stream.getElementType())
      return emitOpError("streams matrices of ") << stream.getElementType() << ", not " << memory;
    if (memory.getDimSize(1) % 8)
      return emitOpError("streams rows of ")
             << memory.getDimSize(1) << " columns; multiples of 8 (16 bytes) are possible";
    if (!getColumns() && memory.getDimSize(1) != stream.getShape()[1])
      return emitOpError("streams rows of ") << stream.getShape()[1] << " columns of " << memory;
    if (n < 1)
      return emitOpError("takes ") << n << " rows of " << memory << "; at least 1 is needed";
    if (!getPanels() || i == 0)
      rows = n > kMaxIndexed ? kMaxIndexed : std::min(rows + n, kMaxIndexed);
    if (failed(checkReach(*this, getItem(), n)))
      return failure();
  }
  if (stream.getShape()[1] % 8)
    return emitOpError("streams ") << stream.getShape()[1]
                                   << " columns; multiples of 8 (16 bytes) are possible";
  if (stream.getShape()[1] > kMaxIndexed / 2)
    return emitOpError("streams more than ") << kMaxIndexed / 2 << " columns";
  if (rows != stream.getShape()[0])
    return emitOpError("stacks ") << rows << " rows into a stream of " << stream.getShape()[0];
  if (getColumns() && failed(checkColumns(*this)))
    return failure();
  if (getPanels() && failed(checkPanels(*this)))
    return failure();
  if (!getResult().hasOneUse())
    return emitOpError("gives a stream that must be used exactly once");
  return checkStates(*this, stream.getShape(), stream.getStates());
}

/// Query tokens at most, where requests have several.
static constexpr int64_t kMaxRows = 64;

/// Starts of the requests' query tokens, of which there are `rows`; null: one a request.
static LogicalResult checkQueries(Operation *op, Value queries, int64_t rows, CacheType cache) {
  if (!queries)
    return success();
  auto memory = cast<MemRefType>(queries.getType());
  if (!memory.getElementType().isInteger(32) || memory.getNumElements() != cache.getRequests() + 1)
    return op->emitOpError("needs the starts of ")
           << cache.getRequests() << " requests' query tokens in memory of i32 [" << cache.getRequests() + 1
           << "], not " << memory;
  if (rows < 1 || rows > kMaxRows)
    return op->emitOpError("has ") << rows << " query tokens; 1 to " << kMaxRows << " are possible";
  return success();
}

/// Rows of query tokens, or requests.
static int64_t rowsOf(Value queries, Value item, CacheType cache) {
  return queries ? itemsOf(item) / cache.getHeads() : cache.getRequests();
}

/// The head of an item, of a cache.
static LogicalResult checkHeads(Operation *op, Value item, Value queries, CacheType cache) {
  if (queries && itemsOf(item) % cache.getHeads())
    return op->emitOpError("takes ") << itemsOf(item) << " items; each query token has the "
                                     << cache.getHeads() << " heads of " << cache;
  if (queries)
    return checkQueries(op, queries, rowsOf(queries, item, cache), cache);
  if (itemsOf(item) > cache.getHeads() * cache.getRequests())
    return op->emitOpError("takes a head for each of ")
           << itemsOf(item) << " items; " << cache << " has " << cache.getHeads() * cache.getRequests();
  return success();
}

/// A memory with an element for each request, or each query token.
static LogicalResult checkPer(Operation *op, Value memory, int64_t count, StringRef what,
                              StringRef each = " requests") {
  int64_t elements = cast<MemRefType>(memory.getType()).getNumElements();
  if (elements >= count)
    return success();
  return op->emitOpError("needs ") << what << " of each of " << count << each << ", not " << memory.getType();
}
static LogicalResult checkSlots(Operation *op, Value slot, Value queries, int64_t rows, CacheType cache) {
  if (!slot)
    return success();
  if (failed(checkNumber(op, slot, 64, "the slot")))
    return failure();
  return queries ? checkPer(op, slot, rows, "the slot", " query tokens")
                 : checkPer(op, slot, cache.getRequests(), "the slot");
}

/// Pages of a request by request; only paged caches have some.
static LogicalResult checkPages(LoadCacheOp op, CacheType cache) {
  if (!op.getPages() != !cache.getPage())
    return op.emitOpError(cache.getPage() ? "needs `pages`, where the pages of "
                                          : "has `pages`, which are of no use to ")
           << cache << (cache.getPage() ? " lie" : "");
  if (!op.getPages())
    return success();
  auto table = cast<MemRefType>(op.getPages().getType());
  if (table.getRank() != 2 || !table.getElementType().isInteger(32) ||
      table.getDimSize(0) != cache.getRequests())
    return op.emitOpError("needs pages in memory of i32 [")
           << cache.getRequests() << " requests, pages], not " << table;
  if (int64_t most = table.getDimSize(1) * cache.getPage(); int64_t(op.getBound()) > most)
    return op.emitOpError("has a bound of ") << op.getBound() << " tokens; its pages hold " << most;
  return success();
}

/// Groups of segments of a head, whatever its length (docs/design.md, "Order of sums").
static LogicalResult checkGroups(Operation *op, int64_t groups) {
  if (groups == 16 || groups == 32 || groups == 64 || groups == 128)
    return success();
  return op->emitOpError("has ") << groups << " groups of segments; 16, 32, 64 and 128 are possible";
}

static LogicalResult checkChunk(LoadCacheOp op) {
  if (op.isShare()) {
    auto loop = op->getParentOfType<ForItemsOp>();
    if (!loop || op.getChunk() != loop.getShare() || op.getItem() != loop.getItem())
      return op.emitOpError("streams a share of the item of its kernel.for_items, `at` that item");
    auto list = loop.getWork().getDefiningOp<WorkListOp>();
    if (list && list.getCache() == op.getCache() && list.getLength() == op.getLength() &&
        list.getSlot() == op.getSlot() && list.getBound() == op.getBound() &&
        list.getWindow() == op.getWindow() && list.getQueries() == op.getQueries() &&
        list.getMasked() == bool(op.getMask()) && list.getGroups() == op.getGroups())
      return success();
    return op.emitOpError("streams other tokens than those that its kernel.work_list shares out");
  }
  if (!isPartOf(op.getChunk(), op.getItem()))
    return op.emitOpError(
        "streams a chunk of a head: `at` is a kernel.outer, `chunk` the kernel.inner of the "
        "same item and number");
  if (op.getGroups() % op.numChunks() || op.numChunks() > 16)
    return op.emitOpError("cuts ") << op.getGroups() << " groups of segments into " << op.numChunks()
                                   << " chunks; 1, 2, 4, 8 and 16 are possible";
  return success();
}

/// Scales of K and V: both or none, each one for all heads or one for each.
static LogicalResult checkScales(LoadCacheOp op, CacheType cache) {
  if (!op.getKScale() && isa<Float8E4M3FNType>(cache.getElementType()))
    return op.emitOpError("needs the scales of ") << cache << ": `scales %k_scale, %v_scale`";
  for (Value scale : {op.getKScale(), op.getVScale()})
    if (scale && failed(checkScale(op, scale, cache.getHeads())))
      return failure();
  return success();
}

LogicalResult LoadCacheOp::verify() {
  auto cache = cast<CacheType>(getCache().getType());
  KvStreamType stream = getResult().getType();
  if (cache.getDim() != stream.getDim() || cache.getVDim() != stream.getVDim() ||
      cache.getElementType() != stream.getElementType())
    return emitOpError("gives ") << stream << " of " << cache;
  for (int64_t dim : {stream.getDim(), stream.getVDim()})
    if (dim % 8 || dim < 8 || dim > 256)
      return emitOpError("has a head dimension of ") << dim << "; multiples of 8 up to 256 are possible";
  if (!getResult().hasOneUse())
    return emitOpError("gives a stream that must be used exactly once");
  for (StateAttr s : stream.getStates())
    if (s.isPartial() || s.getDim() != 0)
      return emitOpError("splits tokens over dimension 0");
  int64_t rows = rowsOf(getQueries(), getItem(), cache);
  if (failed(checkNumber(*this, getLength(), 32, "the number of tokens")) ||
      failed(checkHeads(*this, getItem(), getQueries(), cache)) || failed(checkPages(*this, cache)) ||
      failed(checkPer(*this, getLength(), cache.getRequests(), "the number of tokens")) ||
      failed(checkSlots(*this, getSlot(), getQueries(), rows, cache)) || failed(checkScales(*this, cache)))
    return failure();
  if (getMask() && !getQueries())
    return emitOpError("has a mask of query tokens, but one of them a request");
  if (getMask() && (failed(checkNumber(*this, getMask(), 64, "the mask")) ||
                    failed(checkPer(*this, getMask(), rows, "the mask", " query tokens"))))
    return failure();
  if (failed(checkGroups(*this, getGroups())))
    return failure();
  if (getChunk() && failed(checkChunk(*this)))
    return failure();
  int64_t bound = getBound();
  if (bound < 1 || bound > kMaxIndexed / 2)
    return emitOpError("has a bound of ") << bound << " tokens; 1 to " << kMaxIndexed / 2 << " are possible";
  if (int64_t window = getWindow(); window < 0)
    return emitOpError("has a window of ") << window << " tokens; 1 or more are possible, or 0 for all";
  return checkStates(*this, {int64_t(getGroups()) / numChunks()}, stream.getStates());
}

LogicalResult WorkListOp::verify() {
  auto cache = cast<CacheType>(getCache().getType());
  int64_t rows = getRows();
  if (failed(checkNumber(*this, getLength(), 32, "the number of tokens")) ||
      failed(checkQueries(*this, getQueries(), rows, cache)) ||
      failed(checkPer(*this, getLength(), cache.getRequests(), "the number of tokens")) ||
      failed(checkSlots(*this, getSlot(), getQueries(), rows, cache)))
    return failure();
  if (failed(checkGroups(*this, getGroups())))
    return failure();
  int64_t bound = getBound();
  if (bound < 1 || bound > kMaxIndexed / 2)
    return emitOpError("has a bound of ") << bound << " tokens; 1 to " << kMaxIndexed / 2 << " are possible";
  if (int64_t window = getWindow(); window < 0)
    return emitOpError("has a window of ") << window << " tokens; 1 or more are possible, or 0 for all";
  return success();
}

LogicalResult AppendOp::verify() {
  auto cache = cast<CacheType>(getCache().getType());
  for (auto [x, dim] : {std::pair<Value, int64_t>{getK(), cache.getDim()}, {getV(), cache.getVDim()}}) {
    auto tile = cast<TileType>(x.getType());
    if (tile.getNumElements() != dim)
      return emitOpError("stores rows of ") << dim << " elements, not " << x.getType();
    // A type of so few numbers says nothing without a scale.
    if (tile.getElementType() != cache.getElementType() &&
        (isa<Float8E4M3FNType>(tile.getElementType()) || isa<Float8E4M3FNType>(cache.getElementType())))
      return emitOpError("stores ") << tile << " in " << cache
                                    << ": rows of f8E4M3FN are those of a kernel.quantize";
    if (failed(needsReplicated(*this, x, "its row")))
      return failure();
  }
  int64_t rows = rowsOf(getQueries(), getItem(), cache);
  if (failed(checkWhole(*this, getItem())) || failed(checkSlots(*this, getSlot(), getQueries(), rows, cache)))
    return failure();
  return checkHeads(*this, getItem(), getQueries(), cache);
}
