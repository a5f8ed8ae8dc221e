//===- LowerStates.cpp - Softmaxes in memory ------------------------------------------===//
//
// Softmaxes of parts of a head lie in memory: behind a kernel.finish, or where
// one kernel leaves them to another. Each thread loads its elements of many of
// them before it merges the first.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

void KernelLowering::mergeStates(int64_t heads, int64_t dim, int64_t n, bool oneBehind, LoadOfState load,
                                 StoreOfState storeMerged) {
  constexpr int64_t kAhead = 112; // words that a thread loads before it merges the first
  int64_t width = elementsTogether(heads, dim, 2 * threads), words = 2 + width;
  auto loadSome = [&](Value i, int64_t first, int64_t end) {
    auto [head, d] = headAndElement(b, i, dim, width);
    Values all;
    for (int64_t k = first; k < end; ++k)
      llvm::append_range(all, load(k, head, d, width).flat());
    return all;
  };
  auto stateAt = [&](ArrayRef<Value> all, int64_t k) {
    return SoftmaxState::from(ValueRange(all).slice(words * k, words));
  };
  auto mergeTwo = [&](SoftmaxState x, SoftmaxState y) { return mergeSoftmax(b, x, y); };
  auto mergeAll = [&](const Values &all, int64_t count) {
    return mergeTree<SoftmaxState>(count, [&](int64_t k) { return stateAt(all, k); }, mergeTwo);
  };
  auto store = [&](Value i, SoftmaxState whole) {
    auto [head, d] = headAndElement(b, i, dim, width);
    storeMerged(whole, head, d);
  };
  constexpr int64_t kAtATime = 16; // more would not fit into registers
  if (n > kAtATime) {
    forEach(heads * dim / width, [&](Value i) {
      auto some = [&](int64_t k) {
        return mergeAll(loadSome(i, kAtATime * k, kAtATime * (k + 1)), kAtATime);
      };
      store(i, mergeTree<SoftmaxState>(n / kAtATime, some, mergeTwo));
    });
    return;
  }
  int64_t all = n + (oneBehind ? 1 : 0);
  auto loadAll = [&](Value i) { return loadSome(i, 0, all); };
  auto merge = [&](Value i, Values states) {
    SoftmaxState whole = mergeAll(states, n);
    store(i, oneBehind ? mergeTwo(whole, stateAt(states, n)) : whole);
  };
  forEachAhead(tid, threads, heads * dim / width, std::max<int64_t>(1, kAhead / (words * all)), loadAll,
               merge);
}

void KernelLowering::storeTile(Value tile, Value to) {
  auto type = cast<TileType>(tile.getType());
  int64_t bytes = localElements(func, type) * type.getElementBytes();
  // A view begins anywhere in its tile.
  int64_t word = std::min(wordFor(bytes), wordFor(layout.tile(tile)));
  forEach(bytes / word, [&](Value i) {
    Value at = b.mul(i, word);
    b.store(b.load(wordType(b, word), b.offset(bufferOf(tile), at)), b.offset(to, at));
  });
}

LogicalResult KernelLowering::lowerFirst(FirstOp op) {
  LogicalResult result = success();
  sync(); // tiles of the body share memory with what was read before
  b.ifThen(b.eq(item(op.getPart()), 0), [&] { result = lowerBlock(op.getBody().front()); });
  b.loc = op.getLoc();
  sync();
  return result;
}

LogicalResult KernelLowering::lowerEmptyState(EmptyStateOp op) {
  TileType type = op.getResult().getType();
  int64_t dim = type.getShape()[1] - 2, heads = localElements(func, type) / (dim + 2);
  forEachOfState(heads, dim, [&](Value head, Value d, int64_t width) {
    storeState(b, {b.negInf(), b.f32(0), SmallVector<Value, 4>(width, b.f32(0))}, bufferOf(op.getResult()),
               head, d, dim);
  });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerLeave(LeaveOp op) {
  TileType type = op.getState().getType();
  ArrayRef<int64_t> shape = cast<MemRefType>(op.getMemory().getType()).getShape();
  int64_t whole = type.getNumElements() * 4;
  Value part = op.getPart() ? item(op.getPart())
                            : b.i32(itemsOf(op->getParentOfType<FirstOp>().getPart())); // behind all parts
  Value state = b.add(b.mul(item(op.getHead()), shape[1]), part);
  Value to = b.offset(memory.lookup(op.getMemory()), b.add(b.mul(state, whole), b.mul(partOffset(type), 4)));
  b.ifThen(actsFor(type), [&] { storeTile(op.getState(), to); });
  return success();
}

LogicalResult KernelLowering::lowerMergeStates(MergeStatesOp op) {
  ArrayRef<int64_t> shape = cast<MemRefType>(op.getMemory().getType()).getShape();
  int64_t states = shape[1], rows = shape[2], dim = shape[3] - 2, bytes = rows * shape[3] * 4;
  Value from = memory.lookup(op.getMemory());
  auto load = [&](int64_t k, Value head, Value d, int64_t width) {
    Value ofHead = b.add(b.mul(b.div(head, rows), states), k);
    return loadState(b, b.offset(from, b.mul(ofHead, bytes)), b.rem(head, rows), d, dim, width);
  };
  NormalizeOp normalize = normalizedBy(op);
  auto store = [&](SoftmaxState state, Value head, Value d) {
    if (normalize)
      storeNormalized(normalize, state, head, d);
    else
      storeState(b, state, bufferOf(op.getResult()), head, d, dim);
  };
  mergeStates(shape[0] * rows, dim, op.numParts(), op.getNewLast(), load, store);
  sync();
  return success();
}
