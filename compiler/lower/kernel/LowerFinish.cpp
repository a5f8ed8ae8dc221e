//===- LowerFinish.cpp - Sums over the grid ---------------------------------------===//
//
// Each item leaves its partial sum in the workspace and counts its arrival. The
// CTA that arrives last merges all partials in item order (ordered) or takes the
// atomic sums (atomic), runs the body and leaves counters and atomic sums zero
// for the next launch. Nothing waits, so no CTA depends on one that has not
// started.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

/// Partials of more items than this are merged in a loop: code must not grow with them.
static constexpr int64_t kUnrolledItems = 64;

/// `leaf(0)` … `leaf(n - 1)` merged by the left-balanced tree, in a loop: level l of a binary counter holds
/// 2^l leaves, and the levels that are left are the bits of n, the smallest last in order. Leaves are
/// f32 or vectors of f32.
static Value mergeInLoop(SimtBuilder &b, int64_t n, Type type, function_ref<Value(Value)> leaf,
                         function_ref<Value(Value, Value)> merge) {
  int64_t levels = llvm::Log2_64(n) + 1;
  Value zero = b.create<arith::ConstantOp>(cast<TypedAttr>(b.getZeroAttr(type)));
  SimtBuilder::Values sums = b.loop(b.i32(0), b.i32(n), b.i32(1), SmallVector<Value>(levels, zero),
                                    [&](Value k, ValueRange held) -> SimtBuilder::Values {
                                      SimtBuilder::Values next;
                                      Value carry = leaf(k), active = b.i1(true);
                                      for (int64_t l = 0; l < levels; ++l) {
                                        Value bit = b.ne(b.andI(k, int64_t(1) << l), 0);
                                        Value stores = b.andI(active, b.xorI(bit, b.i1(true)));
                                        active = b.andI(active, bit);
                                        next.push_back(b.select(stores, carry, held[l]));
                                        carry = b.select(active, merge(held[l], carry), carry);
                                      }
                                      return next;
                                    });
  Value total;
  for (int64_t l = 0; l < levels; ++l)
    if (n >> l & 1)
      total = total ? merge(sums[l], total) : sums[l];
  return total;
}

Value KernelLowering::mergeItems(int64_t n, Type type, function_ref<Value(Value)> leaf,
                                 function_ref<Value(Value, Value)> merge) {
  return n > kUnrolledItems ? mergeInLoop(b, n, type, leaf, merge)
                            : mergeTree<Value>(n, [&](int64_t k) { return leaf(b.i32(k)); }, merge);
}

/// What the items left one after another at `from`, to the body's tile.
void KernelLowering::collectItems(FinishOp op, Value from) {
  int64_t bytes = op.partialBytes(), word = wordFor(bytes);
  Value to = bufferOf(op.getBody().getArgument(0));
  forEachBatched(
      bytes / word, 8, [&](Value i) { return b.load(wordType(b, word), b.offset(from, b.mul(i, word))); },
      [&](Value i, Value data) { b.store(data, b.offset(to, b.mul(i, word))); });
}

/// `n` softmaxes, a power of two where they are more than 16, one after another at `states`, into the body's
/// tile. Those from `count` on, unless it is null, are empty, and not in memory.
void KernelLowering::mergeStatesOf(FinishOp op, Value states, int64_t n, Value count) {
  TileType type = op.getTile().getType();
  int64_t heads = type.getShape()[0], dim = type.getShape()[1] - 2;
  auto load = [&](int64_t k, Value head, Value d, int64_t width) {
    Value at = b.i32(k), exists;
    if (count)
      exists = b.lt(at, count), at = b.select(exists, at, b.i32(0));
    Value from = b.offset(states, b.mul(at, type.getNumElements() * 4));
    SoftmaxState state = loadState(b, from, head, d, dim, width);
    if (!exists)
      return state;
    Values words = state.flat();
    for (auto [i, word] : llvm::enumerate(words))
      word = b.select(exists, word, i ? b.f32(0) : b.negInf());
    return SoftmaxState::from(words);
  };
  Value to = bufferOf(op.getBody().getArgument(0));
  mergeStates(heads, dim, n, /*oneBehind=*/false, load,
              [&](SoftmaxState state, Value head, Value d) { storeState(b, state, to, head, d, dim); });
}

/// The sums of `local` rows, from the partials at `rows` (docs: kernel.finish) into the body's tile.
void KernelLowering::mergePartials(FinishOp op, Value rows, int64_t local) {
  Value sum = op.getBody().getArgument(0);
  int64_t whole = op.getTile().getType().getNumElements();
  int64_t numItems = op.runLength();
  if (op.getAlgorithm() == Algorithm::Atomic) {
    forEach(local, [&](Value i) {
      Value at = b.offset(rows, b.mul(i, 4));
      storeElement(sum, i, b.load(b.getF32Type(), at));
      b.store(b.f32(0), at);
    });
    return;
  }
  // Four rows at a time where they are 16 bytes: many partials are in flight, and this CTA is the last.
  int64_t width = local % 4 == 0 && whole % 4 == 0 ? 4 : 1;
  StateKind kind = stateOver(op.getTile().getType().getStates(), op.getAxis())->getKind();
  if (kind == StateKind::Softmax)
    return mergeStatesOf(op, rows, op.runLength(), Value());
  bool max = kind == StateKind::Max;
  auto merge = [&](Value x, Value y) { return max ? b.fmax(x, y) : b.fadd(x, y); };
  Type type = width == 4 ? Type(VectorType::get({4}, b.getF32Type())) : Type(b.getF32Type());
  forEach(local / width, [&](Value i) {
    Value at = b.offset(rows, b.mul(i, 4 * width));
    auto partial = [&](Value k) { return b.load(type, b.offset(at, b.mul(b.wide(k), whole * 4))); };
    Value total = mergeItems(numItems, type, partial, merge);
    b.store(total, b.offset(bufferOf(sum), b.mul(i, 4 * width)));
  });
}

LogicalResult KernelLowering::lowerFinish(FinishOp op) {
  TileType type = op.getTile().getType();
  int64_t local = localElements(func, type), whole = type.getNumElements();
  if (static_cast<int64_t>(op.getCounters()) < 0 || static_cast<int64_t>(op.getPartials()) < 0)
    return op.emitOpError("has no place in the workspace for its counters and partial sums");
  if (isStreamed(op))
    return lowerStreamedFinish(op);
  if (op.getShares())
    return lowerFinishOfShares(op);
  bool atomic = op.getAlgorithm() == Algorithm::Atomic;
  auto items = op->getParentOfType<ForItemsOp>();
  // Runs of items count their arrivals apart.
  Value run = op.getEach() ? b.div(item(items.getItem()), op.getEach()) : b.i32(0);
  Value counted = b.add(b.mul(run, func.clusterSize()), rank);
  Value counter = b.offset(workspace, b.add(b.i64(op.getCounters()), b.wide(b.mul(counted, 4))));
  // Partials lie as [item][row]; this CTA's rows from partOffset on.
  int64_t bytes = type.getElementBytes();
  Value rows = b.offset(workspace, b.add(b.i64(op.getPartials()), b.wide(b.mul(partOffset(type), bytes))));
  Value flag = b.offset(shared, layout.flag);
  auto f32 = b.getF32Type();

  LogicalResult result = success();
  b.ifThen(actsFor(type), [&] {
    if (atomic) {
      forEach(local, [&](Value i) {
        b.create<simt::AtomicOp>(f32, simt::Rmw::Add, simt::Ordering::Relaxed, simt::Scope::Gpu,
                                 b.offset(rows, b.mul(i, 4)), loadElement(op.getTile(), i));
      });
    } else {
      Value mine = b.offset(rows, b.mul(b.wide(item(items.getItem())), whole * bytes));
      storeTile(op.getTile(), mine);
    }
    sync();
    b.ifThen(b.eq(tid, 0), [&] { // the barriers pass on what it releases and acquires
      Value before = b.create<simt::AtomicOp>(b.getI32Type(), simt::Rmw::Add, simt::Ordering::AcqRel,
                                              simt::Scope::Gpu, counter, b.i32(1))
                         .getResult();
      b.store(before, flag);
    });
    sync();
    Value last = b.eq(b.load(b.getI32Type(), flag), op.runLength() - 1);
    b.ifThen(last, [&] {
      Value ofRun = op.getEach() ? b.offset(rows, b.mul(b.wide(run), op.getEach() * whole * bytes)) : rows;
      op.getGather() ? collectItems(op, rows) : mergePartials(op, ofRun, local);
      sync();
      result = lowerBlock(op.getBody().front());
      b.loc = op.getLoc();
      b.ifThen(b.eq(tid, 0), [&] { b.store(b.i32(0), counter); });
    });
  });
  sync(); // the flag is free again, and no CTA still reads a tile
  return result;
}
