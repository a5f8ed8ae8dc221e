//===- LowerMemory.cpp - Tiles from and to global memory ------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

int64_t cfc::kernel::wordFor(int64_t bytes) {
  for (int64_t word : {16, 8, 4, 2})
    if (bytes % word == 0)
      return word;
  return 1;
}

Type cfc::kernel::wordType(OpBuilder &b, int64_t bytes) {
  if (bytes >= 8)
    return VectorType::get({bytes / 4}, b.getI32Type());
  return b.getIntegerType(bytes * 8);
}

LogicalResult KernelLowering::lowerRead(ReadOp op) {
  TileType type = op.getResult().getType();
  auto source = cast<MemRefType>(op.getMemory().getType());
  int64_t n = localElements(func, type), whole = type.getNumElements(), bytes = type.getElementBytes();
  Value first = b.add(b.mul(item(op.getItem()), whole), partOffset(type));
  Value from = memory.lookup(op.getMemory());
  int64_t items = 1;
  if (op.getItem())
    items = func.axis(op->getParentOfType<ForItemsOp>().getAxis()).getSize();
  bool inside = items * whole <= source.getNumElements();
  if (inside && source.getElementType() == type.getElementType()) {
    int64_t word = wordFor(n * bytes); // whole is a multiple of n
    Value base = b.offset(from, b.mul(b.wide(first), bytes)), to = bufferOf(op.getResult());
    forEach(n * bytes / word, [&](Value i) {
      Value at = b.mul(i, word);
      b.store(b.load(wordType(b, word), b.offset(base, at)), b.offset(to, at));
    });
  } else {
    int64_t sourceBytes = source.getElementTypeBitWidth() / 8;
    forEach(n, [&](Value i) {
      Value index = b.add(first, i);
      auto value = [&]() -> Values {
        Value at = b.offset(from, b.mul(b.wide(index), sourceBytes));
        return {b.toF32(b.load(source.getElementType(), at))};
      };
      // Past the memory's end a tile is 0.
      Value x = b.ifElse(b.getF32Type(), b.lt(index, source.getNumElements()), value,
                         [&]() -> Values { return {b.f32(0)}; })[0];
      storeElement(op.getResult(), i, x);
    });
  }
  sync();
  return success();
}

LogicalResult KernelLowering::lowerWrite(WriteOp op) {
  TileType type = op.getTile().getType();
  auto target = cast<MemRefType>(op.getMemory().getType());
  int64_t n = localElements(func, type), whole = type.getNumElements();
  Value first = b.add(b.mul(item(op.getItem()), whole), partOffset(type));
  Value to = memory.lookup(op.getMemory());
  int64_t targetBytes = target.getElementTypeBitWidth() / 8;
  Value acts = actsFor(type);
  // Every cluster holds what is made outside loops over items: one writes.
  if (!inLoop)
    acts = b.andI(acts, b.eq(b.create<simt::ClusterIdOp>(b.getI32Type()), 0));
  b.ifThen(acts, [&] {
    forEach(n, [&](Value i) {
      Value index = b.add(first, i);
      auto put = [&] {
        Value x = b.fromF32(loadElement(op.getTile(), i), target.getElementType());
        b.store(x, b.offset(to, b.mul(b.wide(index), targetBytes)));
      };
      if (op.getItem() || whole > target.getNumElements())
        b.ifThen(b.lt(index, target.getNumElements()), put);
      else
        put();
    });
  });
  return success();
}

LogicalResult KernelLowering::lowerAppend(AppendOp op) {
  auto type = cast<CacheType>(op.getCache().getType());
  const CacheArgument &cache = caches.find(op.getCache())->second;
  Value slot = scalar(op.getSlot());
  Value acts = b.i1(true);
  if (func.clusterSize() > 1)
    acts = b.eq(rank, 0);
  Value fits = b.lt(slot, cache.capacity);
  Value wrong = b.orI(b.ge(slot, cache.capacity), b.lt(slot, -1));
  b.ifThen(b.andI(acts, b.andI(b.eq(tid, 0), wrong)), [&] { setStatus(2); });
  acts = b.andI(acts, b.andI(b.ge(slot, 0), fits));
  Value row = b.add(b.mul(b.wide(item(op.getItem())), cache.strideHead), b.mul(slot, cache.strideToken));
  b.ifThen(acts, [&] {
    for (auto [tile, base] : {std::pair<Value, Value>{op.getK(), cache.k}, {op.getV(), cache.v}})
      forEach(type.getDim(), [&, tile = tile, base = base](Value i) {
        Value x = b.fromF32(loadElement(tile, i), type.getElementType());
        b.store(x, b.offset(base, b.add(row, b.wide(b.mul(i, 2)))));
      });
  });
  return success();
}
