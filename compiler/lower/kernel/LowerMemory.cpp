//===- LowerMemory.cpp - Tiles from and to global memory ------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

Type cfc::kernel::wordType(OpBuilder &b, int64_t bytes) {
  if (bytes >= 8)
    return VectorType::get({bytes / 4}, b.getI32Type());
  return b.getIntegerType(bytes * 8);
}

/// Whether some items of a read have elements past the memory's end; of several memories none has.
static bool readsPast(ReadOp op) {
  int64_t elements = itemsOf(op.getItem()) * op.getResult().getType().getNumElements();
  return op.getMemories().size() == 1 && elements > op.getMemory().getType().getNumElements();
}

/// Whether what a CTA holds of a value is one run of its elements.
static bool isRun(TileType type) {
  return llvm::all_of(type.getStates(), [](StateAttr s) { return s.isPartial() || s.getDim() == 0; });
}

Value KernelLowering::wholeIndex(TileType type, Value local) {
  if (isRun(type))
    return b.add(partOffset(type), local);
  SmallVector<int64_t> extents(type.getShape());
  Values starts(extents.size(), b.i32(0));
  for (StateAttr s : type.getStates()) {
    if (s.isPartial())
      continue;
    StringRef axis = s.getAxis().getValue();
    int64_t &extent = extents[s.getDim()];
    extent /= func.axis(axis).getSize();
    starts[s.getDim()] = b.add(starts[s.getDim()], b.mul(coordinate(axis), extent));
  }
  Value index = b.i32(0);
  int64_t stride = 1;
  for (int64_t dim = extents.size() - 1; dim >= 0; --dim) {
    Value at = dim ? b.rem(local, extents[dim]) : local;
    local = b.div(local, extents[dim]);
    index = b.add(index, b.mul(b.add(starts[dim], at), stride));
    stride *= type.getShape()[dim];
  }
  return index;
}

KernelLowering::Panel KernelLowering::panelOf(ValueRange memories, Value kernelItem, int64_t n, int64_t dim,
                                              function_ref<Value(Value)> place) {
  Value i = item(kernelItem);
  Panel panel;
  int64_t start = 0; // of a memory, in items
  for (Value argument : memories) {
    auto type = cast<MemRefType>(argument.getType());
    int64_t size = dim < 0 ? type.getNumElements() : type.getDimSize(dim);
    Panel here{place(argument), b.mul(b.add(i, -start), n), b.i32(size)};
    if (start) { // asks for the item alone, so that loops within it need not
      Value behind = b.ge(i, start);
      here = {b.select(behind, here.base, panel.base), b.select(behind, here.first, panel.first),
              b.select(behind, here.size, panel.size)};
    }
    panel = here;
    start += size / n;
  }
  return panel;
}

/// Where a tile lies in memory that is read word by word, a word a thread at most; null where it is not.
KernelLowering::ReadWords KernelLowering::wordsOfRead(ReadOp op) {
  TileType type = op.getResult().getType();
  auto source = cast<MemRefType>(op.getMemory().getType());
  if (op.getRows() || op.getColumns())
    return {};
  int64_t whole = type.getNumElements(), bytes = localElements(func, type) * type.getElementBytes();
  int64_t word = wordFor(bytes); // whole is a multiple of what a CTA has
  if (readsPast(op) || !isRun(type) || source.getElementType() != type.getElementType() ||
      bytes / word > threads)
    return {};
  Panel panel = panelOf(op.getMemories(), op.getItem(), whole);
  Value first = b.add(panel.first, partOffset(type));
  return {b.offset(panel.base, b.mul(b.wide(first), type.getElementBytes())), bytes / word, word};
}

/// Items of `loop` for each of `item`, which is `loop` itself or some of these in a row; 0: it is neither.
static int64_t itemsFor(Value item, Value loop) {
  int64_t all = 1;
  while (auto outer = item ? item.getDefiningOp<OuterOp>() : OuterOp()) {
    all *= outer.getOf();
    item = outer.getItem();
  }
  return item == loop ? all : 0;
}

namespace {
/// Arguments of which an operation takes the element of its item's request: number i / `items` for item i of
/// the loop, as the lowering of the operation finds it. 0: it is another one, or not of the item alone.
struct RequestScalars {
  SmallVector<Value> arguments;
  int64_t items = 0;

  static RequestScalars of(Operation *op, Value loop) {
    auto ofCache = [&](Value item, Value cache, Value queries) -> int64_t {
      auto type = cast<CacheType>(cache.getType());
      return queries || type.getRequests() == 1 ? 0 : itemsFor(item, loop) * type.getHeads();
    };
    return TypeSwitch<Operation *, RequestScalars>(op)
        .Case([&](AppendOp o) -> RequestScalars {
          return {{o.getSlot()}, ofCache(o.getItem(), o.getCache(), o.getQueries())};
        })
        .Case([&](LoadCacheOp o) -> RequestScalars {
          if (o.isShare()) // a work list knows what it takes
            return {};
          SmallVector<Value> arguments = {o.getLength()};
          if (o.getSlot())
            arguments.push_back(o.getSlot());
          return {arguments, ofCache(o.getItem(), o.getCache(), o.getQueries())};
        })
        .Case([&](AttendNewOp o) -> RequestScalars {
          return {{o.getSlot()}, o.hasQueries() ? 0 : itemsFor(o.getItem(), loop)};
        })
        .Case([&](RopeOp o) -> RequestScalars {
          int64_t positions = cast<MemRefType>(o.getPosition().getType()).getNumElements();
          return {{o.getPosition()}, itemsFor(o.getItem(), loop) * (itemsOf(o.getItem()) / positions)};
        })
        .Default([](Operation *) -> RequestScalars { return {}; });
  }
};
} // namespace

void KernelLowering::loadAhead(ForItemsOp loop) {
  Block &body = loop.getBody().front();
  llvm::MapVector<Value, int64_t> itemsOfArgument; // 0: not all operations take the same element
  body.walk([&](Operation *op) {
    auto [arguments, items] = RequestScalars::of(op, loop.getItem());
    for (Value argument : arguments) {
      auto [known, isNew] = itemsOfArgument.insert({argument, items});
      if (!isNew && known->second != items)
        known->second = 0;
    }
  });
  for (auto [argument, items] : itemsOfArgument) {
    if (!items || scalars.contains(argument))
      continue;
    scalars[argument] = scalar(argument, b.div(item(loop.getItem()), items));
    scalarsOfItem.push_back(argument);
  }
  for (auto op : body.getOps<RopeOp>())
    if (llvm::is_contained(scalarsOfItem, op.getPosition()))
      rotationsDue.push_back(op);
}

void KernelLowering::loadRotationsAhead() {
  for (RopeOp op : std::exchange(rotationsDue, {}))
    if (keepRotation(op))
      rotationsOfItem.push_back({op.getTable(), op.getPosition()});
}

void KernelLowering::forgetAhead() {
  for (Value argument : std::exchange(scalarsOfItem, {}))
    scalars.erase(argument);
  for (auto &key : std::exchange(rotationsOfItem, {}))
    rotations.erase(key);
}

/// Reads in a row wait for memory once.
LogicalResult KernelLowering::lowerReads(ArrayRef<ReadOp> ops) {
  SmallVector<std::pair<ReadWords, Value>> loaded;
  for (ReadOp op : ops) {
    b.loc = op.getLoc();
    ReadWords from = isReadByNorm(op) ? ReadWords() : wordsOfRead(op);
    Value data;
    if (from.base) // threads behind the last word load that again
      data = b.load(wordType(b, from.word),
                    b.offset(from.base, b.mul(b.min(tid, b.i32(from.count - 1)), from.word)));
    loaded.push_back({from, data});
  }
  loadRotationsAhead(); // their positions have come by now
  for (auto [at, what] : llvm::zip_equal(ops, loaded)) {
    ReadOp op = at;
    auto [from, data] = what;
    b.loc = op.getLoc();
    if (!data && failed(lowerRead(op)))
      return failure();
    if (data)
      b.ifThen(b.lt(tid, from.count), [&, from = from, data = data] {
        b.store(data, b.offset(bufferOf(op.getResult()), b.mul(tid, from.word)));
      });
  }
  sync();
  return success();
}

LogicalResult KernelLowering::lowerRead(ReadOp op) {
  if (isReadByNorm(op) || readInPlace(op.getResult()))
    return success();
  if (op.getRows())
    return lowerReadRows(op);
  if (op.getColumns())
    return lowerReadColumns(op);
  TileType type = op.getResult().getType();
  auto source = cast<MemRefType>(op.getMemory().getType());
  int64_t n = localElements(func, type), whole = type.getNumElements(), bytes = type.getElementBytes();
  Panel from = panelOf(op.getMemories(), op.getItem(), whole);
  if (!readsPast(op) && isRun(type) && source.getElementType() == type.getElementType()) {
    int64_t word = wordFor(n * bytes); // whole is a multiple of n
    Value first = b.add(from.first, partOffset(type)), to = bufferOf(op.getResult());
    Value base = b.offset(from.base, b.mul(b.wide(first), bytes));
    forEachBatched(
        n * bytes / word, 8,
        [&](Value i) { return b.load(wordType(b, word), b.offset(base, b.mul(i, word))); },
        [&](Value i, Value data) { b.store(data, b.offset(to, b.mul(i, word))); });
  } else {
    int64_t sourceBytes = source.getElementTypeBitWidth() / 8;
    forEach(n, [&](Value i) {
      Value index = b.add(from.first, wholeIndex(type, i));
      auto value = [&]() -> Values {
        Value at = b.offset(from.base, b.mul(b.wide(index), sourceBytes));
        return {b.toF32(b.load(source.getElementType(), at))};
      };
      // Past the memory's end a tile is 0.
      Value x =
          b.ifElse(b.getF32Type(), b.lt(index, from.size), value, [&]() -> Values { return {b.f32(0)}; })[0];
      storeElement(op.getResult(), i, x);
    });
  }
  sync();
  return success();
}

/// Every cluster holds what is made outside loops over items: one writes.
Value KernelLowering::writerActs(TileType type) {
  Value acts = actsFor(type);
  if (!inLoop)
    acts = b.andI(acts, b.eq(b.create<simt::ClusterIdOp>(b.getI32Type()), 0));
  return acts;
}

LogicalResult KernelLowering::lowerWrite(WriteOp op) {
  if (op.getRows())
    return lowerWriteRows(op);
  if (op.getColumns())
    return lowerWriteColumns(op);
  TileType type = op.getTile().getType();
  auto target = cast<MemRefType>(op.getMemory().getType());
  int64_t n = localElements(func, type), whole = type.getNumElements();
  Panel to = panelOf(op.getMemories(), op.getItem(), whole);
  bool mayBePast = op.getMemories().size() == 1 && (op.getItem() || whole > target.getNumElements());
  int64_t targetBytes = target.getElementTypeBitWidth() / 8;
  b.ifThen(writerActs(type), [&] {
    forEach(n, [&](Value i) {
      Value index = b.add(to.first, wholeIndex(type, i));
      auto put = [&] {
        Value x = b.fromF32(loadElement(op.getTile(), i), target.getElementType());
        b.store(x, b.offset(to.base, b.mul(b.wide(index), targetBytes)));
      };
      if (mayBePast)
        b.ifThen(b.lt(index, to.size), put);
      else
        put();
    });
  });
  return success();
}

Value KernelLowering::slotsOf(const CacheArgument &cache) {
  return cache.type.getPage() ? b.mul(cache.blocks, cache.type.getPage()) : cache.capacity;
}

LogicalResult KernelLowering::lowerAppend(AppendOp op) {
  auto type = cast<CacheType>(op.getCache().getType());
  const CacheArgument &cache = caches.find(op.getCache())->second;
  ItemPlace place = placeOf(op.getItem(), type, op.getQueries());
  Value slot = scalar(op.getSlot(), place.row), slots = slotsOf(cache);
  Value acts = b.i1(true);
  if (func.clusterSize() > 1)
    acts = b.eq(rank, 0);
  if (place.count) // rows of nobody
    acts = b.andI(acts, b.ne(place.count, 0));
  Value fits = b.lt(slot, slots);
  Value wrong = b.orI(b.ge(slot, slots), b.lt(slot, -1));
  b.ifThen(b.andI(acts, b.andI(b.eq(tid, 0), wrong)), [&] { setStatus(2); });
  acts = b.andI(acts, b.andI(b.ge(slot, 0), fits));
  Value token = slot, block = b.wide(place.request);
  if (type.getPage())
    block = b.div(slot, type.getPage()), token = b.rem(slot, type.getPage());
  auto rowOf = [&](Value strideHead, Value strideToken, Value strideBlock) {
    Value row = b.add(b.mul(b.wide(place.head), strideHead), b.mul(token, strideToken));
    return type.hasBlocks() ? b.add(row, b.mul(block, strideBlock)) : row;
  };
  Type element = type.getElementType();
  auto store = [&](Value tile, Value base, int64_t dim, Value row) {
    forEach(dim, [&](Value i) {
      Value at = b.add(row, b.wide(b.mul(i, element.getIntOrFloatBitWidth() / 8)));
      b.storeFloat(loadElement(tile, i), element, b.offset(base, at));
    });
  };
  Value kRow = rowOf(cache.strideHead, cache.strideToken, cache.strideBlock), vRow = kRow;
  if (type.hasVStrides())
    vRow = rowOf(cache.vStrideHead, cache.vStrideToken, cache.vStrideBlock);
  b.ifThen(acts, [&] {
    store(op.getK(), cache.k, type.getDim(), kRow);
    store(op.getV(), cache.v, type.getVDim(), vRow);
  });
  return success();
}
