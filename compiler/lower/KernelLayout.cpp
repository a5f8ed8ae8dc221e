//===- KernelLayout.cpp - Where a kernel keeps what in shared memory ----------===//
//
// Barriers come first, because their offsets are fixed before anything is
// known of the tiles; the ring comes last, because it is the largest.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/KernelLayout.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc::kernel;

int64_t cfc::kernel::localElements(FuncOp func, ArrayRef<int64_t> shape, ArrayRef<StateAttr> states) {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  for (StateAttr s : states)
    if (!s.isPartial())
      n /= func.axis(s.getAxis().getValue()).getSize();
  return n;
}

int64_t cfc::kernel::consumerSets(FuncOp func) { return func.consumerWarps() / kSetWarps; }

int64_t cfc::kernel::attendSets(FuncOp func, LoadCacheOp load) {
  return llvm::bit_floor(uint64_t(std::min(consumerSets(func), localGroups(func, load))));
}

bool cfc::kernel::copiesTokens(CacheType cache) {
  int64_t page = cache.getPage();
  return page && (page < 8 || !llvm::isPowerOf2_64(page));
}

bool cfc::kernel::copiesByThreads(CacheType cache, int64_t dim) {
  return dim * cache.getElementType().getIntOrFloatBitWidth() % 128 != 0;
}

SmallVector<int64_t> cfc::kernel::cacheBox(CacheType cache, int64_t dim) {
  int64_t elements = boxElements(cache.getElementType());
  SmallVector<int64_t> box = {elements, cache.getPage() ? std::min(cache.getPage(), kSegment) : kSegment, 1};
  if (copiesTokens(cache)) // what is behind the last dim is 0
    box = {headBoxes(dim, cache.getElementType()) * elements, 1, 1};
  if (cache.hasBlocks())
    box.push_back(1);
  return box;
}

int64_t cfc::kernel::localGroups(FuncOp func, LoadCacheOp load) {
  int64_t groups = load.getGroups() / load.numChunks();
  for (StateAttr s : load.getResult().getType().getStates())
    groups /= func.axis(s.getAxis().getValue()).getSize();
  return groups;
}

cfc::AttendColumns cfc::kernel::attendColumns(FuncOp func, KvStreamType kv, int64_t heads) {
  return cfc::attendColumns(heads, kv.getDim(), kv.getVDim(), func.consumerWarps(),
                            func.planValue("ctas_per_sm", 1));
}

/// Rows of a box: each weight's rows, and each CTA's, begin at a multiple of it, and fill more than half of a
/// box. 0 where that is not even 8.
static int64_t chooseBoxRows(LoadOp load, int64_t localRows, int64_t tileRows, bool packed) {
  bool split = localRows != load.getResult().getType().getShape()[0];
  for (int64_t box : {64, 32, 16, 8}) {
    bool fits = box <= tileRows && box < 2 * localRows && (!split || localRows % box == 0);
    int64_t start = 0;
    for (int64_t rows : load.getRows().drop_back()) {
      start += rows;
      fits &= start % box == 0;
    }
    // Boxes of packed weights lie in one block each: they begin at multiples of their rows in the weight too.
    if (packed && load.getItem() && !load.getColumns())
      fits &= load.getRows().back() % box == 0;
    if (fits)
      return box;
  }
  return 0;
}

bool cfc::kernel::isPacked(LoadOp load) {
  auto func = load->getParentOfType<FuncOp>();
  return llvm::any_of(load.getWeights(), [&](Value weight) {
    return func.getArgAttr(cast<BlockArgument>(weight).getArgNumber(), kLayoutAttr) != nullptr;
  });
}

FailureOr<MatmulTiling> cfc::kernel::tilingOf(LoadOp load, int64_t slots) {
  auto func = load->getParentOfType<FuncOp>();
  StreamType type = load.getResult().getType();
  int64_t rows = type.getShape()[0], columns = type.getShape()[1];
  for (StateAttr s : type.getStates())
    (s.getDim() == 0 ? rows : columns) /= func.axis(s.getAxis().getValue()).getSize();
  int64_t parts = type.getShape()[1] / columns;

  MatmulTiling t;
  int64_t allBlocks = llvm::divideCeil(type.getShape()[1], 16);
  if (parts > 1 && (slots % parts || allBlocks % slots || type.getShape()[1] % 16))
    return failure();
  t.rows = rows;
  t.columns = columns;
  t.blocks = llvm::divideCeil(columns, 16);
  t.slotBlocks = llvm::divideCeil(allBlocks, slots);
  t.slots = llvm::divideCeil(t.blocks, t.slotBlocks);
  t.tileRows = kSetRows;
  t.packed = isPacked(load);
  t.boxRows = chooseBoxRows(load, rows, t.tileRows, t.packed);
  int64_t tileColumns = func.planValue("tile_columns", 0);
  // An even number of blocks: those of a slot are taken in two chains.
  int64_t wanted = llvm::alignTo(std::max<int64_t>(1, (tileColumns ? tileColumns : 128) / 16), 2);
  t.tileBlocks = std::min(wanted, t.blocks);
  if (t.boxRows)
    t.tileBlocks = llvm::alignTo(t.tileBlocks, 4);
  t.rowStride = t.tileBlocks * 32 + 16;
  return t;
}

ReadOp cfc::kernel::readInPlace(Value tile) {
  auto read = tile.getDefiningOp<ReadOp>();
  if (!read || !read.getRows() || read.getItem() || !tile.hasOneUse())
    return {};
  Operation *user = *tile.user_begin();
  auto norm = dyn_cast<RmsNormOp>(user);
  auto memory = cast<MemRefType>(read.getMemory().getType());
  auto type = cast<TileType>(tile.getType());
  bool direct =
      user->getBlock() == read->getBlock() && (isa<RmsScaleOp>(user) || (norm && norm.getScale())) &&
      memory.getElementType() == type.getElementType() && memory.getDimSize(1) == type.getShape()[1];
  return direct ? read : ReadOp();
}

NormalizeOp cfc::kernel::normalizedBy(MergeStatesOp merge) {
  Value state = merge.getResult();
  auto normalize = state.hasOneUse() ? dyn_cast<NormalizeOp>(*state.user_begin()) : NormalizeOp();
  bool isDirect = normalize && normalize == merge->getNextNode() && !normalize.getSinks() &&
                  normalize.getLse().use_empty();
  return isDirect ? normalize : NormalizeOp();
}

int64_t KernelLayout::allocate(int64_t bytes) {
  int64_t at = sharedBytes;
  sharedBytes += llvm::alignTo(bytes, 16);
  return at;
}

/// States of all groups take at most this much of a CTA that has its SM to itself.
static constexpr int64_t kTogetherBytes = 32 * 1024;
/// … and are so many, for the code that merges them grows with them.
static constexpr int64_t kTogetherGroups = 16;

void KernelLayout::placeAttend(FuncOp func, AttendOp op) {
  AttendBuffers a;
  auto load = op.getKv().getDefiningOp<LoadCacheOp>();
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  a.columns = attendColumns(func, op.getKv().getType(), shape[0]);
  int64_t bytes = a.columns.heads * shape[1] * 4; // states of a pass
  a.sets = attendSets(func, load);
  int64_t groups = localGroups(func, load), all = groups * kLanes * bytes;
  a.levels = llvm::Log2_64(groups / a.sets) + 1;
  a.together = all <= kTogetherBytes && groups <= kTogetherGroups && func.planValue("ctas_per_sm", 1) == 1 &&
               !load.isShare();
  a.lanesBytes = a.together ? all : a.sets * kLanes * bytes;
  a.stack = allocate(a.together ? 0 : a.sets * a.levels * bytes);
  a.apart = a.sets > 1 || a.together || a.columns.passes > 1;
  if (a.columns.passes == 1) // the states of several passes are large: they share memory with other tiles
    tiles[op.getResult()] = a.apart ? allocate(bytes) : a.stack + (a.levels - 1) * bytes;
  attends[op] = a;
}

namespace {
/// What only its own CTA writes, a tile or the lanes of an attend (then `value` is its stream), and the
/// operations (by number) from its first write to its last read.
struct LocalTile {
  Value value;
  int64_t bytes, first, last;
  int64_t size() const { return llvm::alignTo(std::max<int64_t>(bytes, 1), 16); }
};
} // namespace

bool KernelLayout::isInPlace(AttendNewOp op) const {
  constexpr int64_t kLarge = 32 * 1024; // of less two cost little, and a barrier time
  Value state = op.getState();
  if (op.getState().getType().getNumElements() * 4 < kLarge || !state.hasOneUse())
    return false;
  while (auto exchange = state.getDefiningOp<ExchangeOp>()) {
    state = exchange.getTile();
    if (exchanges.find(exchange)->second.workers > 1 || !state.hasOneUse())
      return false;
  }
  if (state.getDefiningOp())
    return isa<AttendOp>(state.getDefiningOp()) && state.getDefiningOp()->getBlock() == op->getBlock();
  return isa<FinishOp>(state.getParentBlock()->getParentOp());
}

/// The tile whose buffer `value` is in: views, exchanges over one worker and what is merged in place have
/// their operand's.
static Value rootOf(Value value, function_ref<bool(ExchangeOp)> isAlias,
                    function_ref<bool(AttendNewOp)> isInPlace) {
  while (true) {
    if (auto extract = value.getDefiningOp<ExtractOp>())
      value = extract.getTile();
    else if (auto exchange = value.getDefiningOp<ExchangeOp>(); exchange && isAlias(exchange))
      value = exchange.getTile();
    else if (auto attend = value.getDefiningOp<AttendNewOp>(); attend && isInPlace(attend))
      value = attend.getState();
    else
      return value;
  }
}

/// Rows of several tokens that matmuls multiply by.
void KernelLayout::findStrides(FuncOp func) {
  func.walk([&](MatmulOp op) {
    TileType x = op.getX().getType();
    if (!isOfTokens(x))
      return;
    int64_t chunks = llvm::divideCeil(localElements(func, x) / x.getShape()[0] * x.getElementBytes(), 16);
    strides[op.getX()] = 16 * (chunks + 1 - chunks % 2);
  });
}

/// Bytes that a CTA keeps of a tile.
int64_t KernelLayout::tileBytes(FuncOp func, Value tile) const {
  auto type = cast<TileType>(tile.getType());
  if (int64_t stride = rowStride(tile))
    return type.getShape()[0] * stride;
  return localElements(func, type) * type.getElementBytes();
}

/// Tiles that do not live at the same time share memory. A reader without a barrier at its end keeps its
/// operand until the next operation that has one.
void KernelLayout::placeLocalTiles(FuncOp func) {
  SmallVector<Operation *> order;
  DenseMap<Operation *, int64_t> number;
  func.walk<WalkOrder::PreOrder>([&](Operation *op) {
    number[op] = order.size();
    order.push_back(op);
  });
  auto endOf = [&](Operation *op) { // of an operation with regions: its last operation
    int64_t last = number[op];
    op->walk([&](Operation *inner) { last = std::max(last, number[inner]); });
    return last;
  };
  auto hasBarrier = [&](Operation *op) {
    if (auto exchange = dyn_cast<ExchangeOp>(op))
      return exchanges[op].workers > 1 && exchange.merges() && exchange.getAlgorithm() != Algorithm::Scatter;
    if (auto read = dyn_cast<ReadOp>(op)) {
      // Reads in a row have one; what its reader takes from memory by itself has none.
      bool byReader = read.getResult().hasOneUse() && isa<RmsNormOp>(*read.getResult().user_begin());
      return !isa<ReadOp>(op->getNextNode()) && !byReader && !readInPlace(read.getResult());
    }
    return !isa<WriteOp, AppendOp, LeaveOp, LoadOp, LoadCacheOp, WorkListOp, ExtractOp, OuterOp, InnerOp>(op);
  };
  auto readUntil = [&](Operation *user, Value tile) {
    // A loop that uses a tile from outside reads it in every iteration.
    for (Operation *loop = user->getParentOp(); loop && loop != tile.getParentRegion()->getParentOp();
         loop = loop->getParentOp())
      if (isa<ForItemsOp>(loop))
        return endOf(loop);
    int64_t at = number[user];
    while (at + 1 < int64_t(order.size()) && !hasBarrier(order[at]))
      ++at;
    return at;
  };

  llvm::MapVector<Value, LocalTile> local;
  auto root = [&](Value value) {
    return rootOf(
        value, [&](ExchangeOp op) { return exchanges[op].workers == 1; },
        [&](AttendNewOp op) { return isInPlace(op); });
  };
  auto add = [&](Value value, int64_t first) {
    auto type = dyn_cast<TileType>(value.getType());
    auto finish = dyn_cast<FinishOp>(value.getParentRegion()->getParentOp());
    if (finish && isStreamed(finish))
      return; // stays in registers
    if (type && root(value) == value && !tiles.contains(value) && !readInPlace(value))
      local[value] = {value, tileBytes(func, value), first, first};
  };
  for (Operation *op : order) {
    // What a merge of states normalizes is written there.
    auto normalize = dyn_cast<NormalizeOp>(op);
    auto merge = normalize ? normalize.getState().getDefiningOp<MergeStatesOp>() : MergeStatesOp();
    Operation *writer = merge && normalizedBy(merge) == normalize ? merge : op;
    auto merges = dyn_cast<MergeStatesOp>(op);
    if (!merges || !normalizedBy(merges)) // else nobody keeps the merged state
      for (Value result : op->getResults())
        add(result, number[writer]);
    if (auto finish = dyn_cast<FinishOp>(op))
      add(finish.getBody().getArgument(0), number[op]);
    if (auto attend = dyn_cast<AttendOp>(op))
      local[attend.getKv()] = {attend.getKv(), attends[op].lanesBytes, number[op], number[op]};
  }
  for (Operation *op : order)
    for (Value operand : op->getOperands()) {
      if (!isa<TileType>(operand.getType()))
        continue;
      auto it = local.find(root(operand));
      if (it != local.end())
        it->second.last = std::max(it->second.last, readUntil(op, it->first));
    }

  // Large ones first: small ones find room between them.
  auto bySize = llvm::to_vector(llvm::make_second_range(local));
  llvm::stable_sort(bySize, [](const LocalTile &x, const LocalTile &y) { return x.size() > y.size(); });
  int64_t base = llvm::alignTo(sharedBytes, 16);
  SmallVector<std::pair<int64_t, LocalTile>> placed; // by offset
  for (const LocalTile &tile : bySize) {
    int64_t at = base;
    for (auto &[offset, other] : placed) // ascending: the first gap that is large enough
      if (other.first <= tile.last && tile.first <= other.last) {
        if (at + tile.size() <= offset)
          break;
        at = std::max(at, offset + other.size());
      }
    if (auto attend = isa<KvStreamType>(tile.value.getType()) ? *tile.value.user_begin() : nullptr)
      attends[attend].lanes = at;
    else
      tiles[tile.value] = at;
    sharedBytes = std::max(sharedBytes, at + tile.size());
    placed.push_back({at, tile});
    llvm::sort(placed, [](auto &x, auto &y) { return x.first < y.first; });
  }
}

void KernelLayout::placeTiles(FuncOp func) {
  findStrides(func);
  func.walk([&](AttendOp op) { placeAttend(func, op); });
  func.walk([&](ExchangeOp op) {
    if (exchanges[op].workers > 1)
      placeExchangeBuffers(func, op);
  });
  placeLocalTiles(func);
  // Views, in the order of their definition: each is in a tile that has its place.
  func.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto extract = dyn_cast<ExtractOp>(op)) {
      TileType type = extract.getTile().getType();
      int64_t workers = type.getNumElements() / localElements(func, type);
      tiles[extract.getResult()] =
          tiles.lookup(extract.getTile()) + extract.getFrom() / workers * type.getElementBytes();
    }
    if (auto exchange = dyn_cast<ExchangeOp>(op); exchange && exchanges[op].workers == 1)
      tiles[exchange.getResult()] = tiles.lookup(exchange.getTile());
    if (auto attend = dyn_cast<AttendNewOp>(op); attend && isInPlace(attend))
      tiles[attend.getResult()] = tiles.lookup(attend.getState());
  });
}

/// Whether the last items of stacked weights lack rows.
static bool overhangs(LoadOp load) {
  auto loop = load->getParentOfType<ForItemsOp>();
  if (load.getWeights().size() == 1 || load.getColumns() || load.getPanels() || !loop)
    return false;
  int64_t items = load.getItem() ? load->getParentOfType<FuncOp>().axis(loop.getAxis()).getSize() : 1;
  return llvm::any_of(llvm::zip(load.getWeights(), load.getRows()), [&](auto pair) {
    auto [weight, rows] = pair;
    return items * rows > cast<MemRefType>(weight.getType()).getDimSize(0);
  });
}

LogicalResult KernelLayout::placeRing(FuncOp func) {
  bool failedTiling = false;
  func.walk([&](Operation *op) {
    if (auto matmul = dyn_cast<MatmulOp>(op)) {
      StreamType type = matmul.getWeights().getType();
      FailureOr<MatmulTiling> t = tilingOf(matmul.getWeights().getDefiningOp<LoadOp>(), matmul.getSlots());
      failedTiling |= failed(t);
      if (failed(t))
        matmul.emitOpError("cannot split the columns of ") << type << ": each of its " << matmul.getSlots()
                                                           << " slots must hold as many blocks of 16 columns";
      auto load = matmul.getWeights().getDefiningOp<LoadOp>();
      // Whoever takes some of a weight's columns begins where a block does.
      int64_t allColumns = cast<MemRefType>(load.getWeights()[0].getType()).getDimSize(1);
      if (succeeded(t) && t->packed &&
          (!t->boxRows || (t->columns != allColumns && t->columns % 64) || overhangs(load))) {
        failedTiling = true;
        matmul.emitOpError("cannot stream packed weights as ")
            << type
            << ": each CTA takes multiples of 8 rows and of 64 columns, and stacked weights have all rows";
      }
      FinishOp finish = streamedFinish(matmul);
      auto users = matmul->getUsers();
      auto any = llvm::find_if(users, [](Operation *user) {
        auto f = dyn_cast<FinishOp>(user);
        return f && f.getPieces() > 1;
      });
      if (succeeded(t) && any != users.end() &&
          (!finish || t->rows % (kSetRows * consumerSets(func) * cast<FinishOp>(*any).getPieces()))) {
        failedTiling = true;
        any->emitOpError("cannot take ")
            << t->rows << " rows a CTA in " << cast<FinishOp>(*any).getPieces()
            << " pieces: each has a multiple of " << kSetRows * consumerSets(func)
            << ", and its body works on elements";
      }
      auto waits = llvm::find_if(users, [](Operation *user) {
        auto f = dyn_cast<FinishOp>(user);
        return f && f.getFinishers();
      });
      if (succeeded(t) && waits != users.end() &&
          (!finish || t->rows % (4 * cast<FinishOp>(*waits).getFinishers()))) {
        failedTiling = true;
        waits->emitOpError("cannot share out ")
            << t->rows << " rows a CTA to " << cast<FinishOp>(*waits).getFinishers()
            << " finishers: each has a multiple of 4, and its body works on elements";
      }
      if (succeeded(t))
        slotBytes = std::max(slotBytes, t->tileBytes());
    }
    if (auto attend = dyn_cast<AttendOp>(op)) {
      KvStreamType kv = attend.getKv().getType();
      slotBytes = std::max(slotBytes, headBoxes(std::max(kv.getDim(), kv.getVDim()), kv.getElementType()) *
                                          kSegment * 128);
    }
  });
  if (failedTiling)
    return failure();
  // Swizzled boxes begin at multiples of 1024 bytes.
  slotBytes = llvm::alignTo(slotBytes, 1024);
  if (stages)
    sharedBytes = llvm::alignTo(sharedBytes, 1024);
  ring = sharedBytes;
  sharedBytes += stages * slotBytes;
  return success();
}

void KernelLayout::placeQueries(FuncOp func) {
  auto add = [&](Value starts, int64_t rows) {
    if (!starts)
      return;
    auto [entry, isNew] = queries.try_emplace(starts);
    if (isNew)
      entry->second.at = allocate(2 * kQueryBytes);
    entry->second.rows = std::max(entry->second.rows, rows);
  };
  auto rowsOf = [](Value item, Value cache) {
    return itemsOf(item) / cast<CacheType>(cache.getType()).getHeads();
  };
  func.walk([&](LoadCacheOp op) { add(op.getQueries(), rowsOf(op.getItem(), op.getCache())); });
  func.walk([&](AppendOp op) { add(op.getQueries(), rowsOf(op.getItem(), op.getCache())); });
  int64_t bytes = 0;
  func.walk([&](AttendNewOp op) {
    if (!op.hasQueries())
      return;
    LoadCacheOp load = op.getLoad();
    bytes =
        std::max(bytes, 4 * op.getState().getType().getShape()[0] * rowsOf(load.getItem(), load.getCache()));
  });
  scores = allocate(bytes);
}

FailureOr<KernelLayout> KernelLayout::compute(FuncOp func) {
  KernelLayout layout;
  bool streams = false;
  func.walk([&](Operation *op) { streams |= isa<MatmulOp, AttendOp>(op); });
  layout.stages = streams ? func.planValue("ring_stages", 4) : 0;
  if (streams && (layout.stages < 2 || layout.stages > 64))
    return func.emitOpError("has a ring of ") << layout.stages << " stages; 2 to 64 are possible";
  layout.stages = llvm::alignTo(layout.stages, consumerSets(func)); // each set has as many
  layout.full = layout.sharedBytes;
  layout.empty = layout.full + 8 * layout.stages;
  layout.sharedBytes = layout.empty + 8 * layout.stages;
  func.walk([&](ExchangeOp op) { layout.placeExchange(func, op); });
  layout.flag = layout.allocate(16);
  bool outlined = !func.getBody().getOps<ProducerOp>().empty();
  func.walk([&](WorkListOp op) { layout.works[op] = layout.allocate((outlined ? 1 : 2) * kWorkBytes); });
  layout.placeQueries(func);
  func.walk([&](FinishOp op) { layout.masks[op] = layout.allocate(op.getFinishers() ? 4 : 0); });
  layout.marks = layout.allocate(func->hasAttr(kProfileAttr) ? 8 * kMaxMarks : 0);
  layout.sharedBytes = llvm::alignTo(layout.sharedBytes, 16);
  layout.scratch = layout.allocate(1024);
  layout.placeTiles(func);
  if (failed(layout.placeRing(func)))
    return failure();
  return layout;
}

//===-- Streamed sums -----------------------------------------------------------===//

/// Whether a finish's body maps elements of the sum to elements of memory, four at a time.
static bool isPointwise(FinishOp op) {
  auto type = cast<TileType>(op.getBody().getArgument(0).getType());
  auto isLike = [&](Value tile) {
    auto other = cast<TileType>(tile.getType());
    return other.getShape() == type.getShape() && other.getStates() == type.getStates() &&
           tile.getParentRegion() == &op.getBody();
  };
  auto inMemory = [&](Value memory, Value item) {
    return !item && cast<MemRefType>(memory.getType()).getNumElements() == type.getNumElements() &&
           cast<MemRefType>(memory.getType()).getElementTypeBitWidth() <= 32;
  };
  return llvm::all_of(op.getBody().front(), [&](Operation &inner) {
    if (auto read = dyn_cast<ReadOp>(inner))
      return inMemory(read.getMemory(), read.getItem()) && isLike(read.getResult());
    if (auto write = dyn_cast<WriteOp>(inner))
      return inMemory(write.getMemory(), write.getItem()) && isLike(write.getTile());
    if (isa<CastOp, ElementwiseOp>(inner))
      return llvm::all_of(inner.getOperands(), isLike) && isLike(inner.getResult(0));
    return isa<YieldOp>(inner);
  });
}

FinishOp cfc::kernel::streamedFinish(MatmulOp op) {
  auto finish = op->hasOneUse() ? dyn_cast<FinishOp>(*op->user_begin()) : FinishOp();
  if (!finish || finish.getAlgorithm() != Algorithm::Ordered || finish.getGather() || finish.getEach() ||
      finish->getBlock() != op->getBlock())
    return {};
  auto func = op->getParentOfType<FuncOp>();
  TileType type = op.getResult().getType();
  bool everyCta = llvm::all_of(func.getAxes().getAsRange<AxisAttr>(), [&](AxisAttr a) {
    return a.getLevel() != Level::Cta || a.getSize() == 1 ||
           stateOver(type.getStates(), a.getName().getValue());
  });
  bool sums = stateOver(type.getStates(), finish.getAxis())->getKind() == StateKind::Sum;
  bool ok = everyCta && sums && type.getElementType().isF32() && type.getShape().size() == 1 &&
            localElements(func, type) % 4 == 0 && isPointwise(finish);
  return ok ? finish : FinishOp();
}

//===-- Tensor maps -----------------------------------------------------------===//

int64_t cfc::kernel::usefulClusters(FuncOp func) {
  int64_t clusters = 1;
  func.walk([&](ForItemsOp op) {
    int64_t shares =
        op.getWork() ? op.getWork().getDefiningOp<WorkListOp>().getGroups() : 1; // of an item, at most
    clusters = std::max(clusters, func.axis(op.getAxis()).getSize() * shares);
  });
  if (int64_t most = func.planValue("clusters", 0))
    clusters = std::min(clusters, most);
  return clusters;
}

int64_t cfc::kernel::entryOf(FuncOp func, unsigned argument) {
  auto entry = func.getArgAttrOfType<IntegerAttr>(argument, kEntryAttr);
  return entry ? entry.getInt() : -1;
}

TensorMaps::TensorMaps(ModuleOp module) {
  int64_t entries = 0;
  module.walk([&](FuncOp func) {
    for (BlockArgument arg : func.getArguments())
      entries = std::max(entries, entryOf(func, arg.getArgNumber()) + numEntries(arg.getType()));
  });
  first = llvm::alignTo(kTableHeader + 8 * entries, 128);
  if (auto given = module->getAttrOfType<ArrayAttr>("simt.maps"))
    for (auto map : given.getAsRange<DictionaryAttr>())
      offsetOf(map.getAs<IntegerAttr>("entry").getInt(), map.getAs<StringAttr>("field"),
               map.getAs<DenseI64ArrayAttr>("box"));
}

int64_t TensorMaps::offsetOf(int64_t entry, StringRef field, ArrayRef<int64_t> box) {
  auto it = llvm::find_if(
      maps, [&](const Map &m) { return m.entry == entry && m.field == field && box.equals(m.box); });
  int64_t index = it - maps.begin();
  if (it == maps.end())
    maps.push_back({entry, field.str(), SmallVector<int64_t>(box)});
  return first + 128 * index;
}

ArrayAttr TensorMaps::describe(MLIRContext *context) const {
  Builder b(context);
  SmallVector<Attribute> all;
  for (const Map &m : maps)
    all.push_back(
        b.getDictionaryAttr({b.getNamedAttr("entry", b.getI64IntegerAttr(m.entry)),
                             b.getNamedAttr("field", b.getStringAttr(m.field)),
                             b.getNamedAttr("box", b.getDenseI64ArrayAttr(m.box)),
                             // Fewer rows are no whole pattern of the swizzle.
                             b.getNamedAttr("swizzle", b.getI64IntegerAttr(m.box[1] < 8 ? 0 : 128))}));
  return b.getArrayAttr(all);
}

FailureOr<int64_t> cfc::kernel::sharedBytes(FuncOp func) {
  FailureOr<KernelLayout> layout = KernelLayout::compute(func);
  if (failed(layout))
    return failure();
  return layout->sharedBytes;
}
