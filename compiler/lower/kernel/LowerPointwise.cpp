//===- LowerPointwise.cpp - Norms, rotations, elementwise operations --------------===//
//
// Arithmetic in f32. Sums over a tile go through 256 virtual lanes, whatever
// the number of warps, so that their order does not depend on the plan.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

static constexpr int64_t kVirtualLanes = 256;
/// Virtual lanes that a thread has at most.
static int64_t lanesHeld(int64_t threads) { return llvm::divideCeil(kVirtualLanes, threads); }

Value KernelLowering::foldThreads(ElementwiseKind kind, function_ref<Value(Value, int64_t)> partial) {
  auto merge = [&](Value x, Value y) { return kind == ElementwiseKind::Max ? b.fmax(x, y) : b.fadd(x, y); };
  Value scratch = b.offset(shared, layout.scratch);
  sync(); // the last reader of the scratch
  for (int64_t i = 0; i < lanesHeld(threads); ++i) {
    Value v = b.add(tid, i * threads);
    auto put = [&] { b.store(partial(v, i), b.offset(scratch, b.mul(v, 4))); };
    threads > kVirtualLanes ? b.ifThen(b.lt(tid, kVirtualLanes), put) : put();
  }
  sync();
  // Each warp merges all virtual lanes: eight a lane by a tree, then a butterfly over the lanes.
  int64_t each = kVirtualLanes / 32;
  Value sum = mergeTree<Value>(
      each,
      [&](int64_t i) { return b.load(b.getF32Type(), b.offset(scratch, b.mul(b.add(lane, 32 * i), 4))); },
      merge);
  for (int64_t x = 16; x; x /= 2) {
    Value other =
        b.create<simt::ShuffleOp>(b.getF32Type(), simt::ShuffleMode::Xor, sum, b.i32(x)).getResult();
    sum = merge(sum, other);
  }
  return sum;
}

//===-- Norms -----------------------------------------------------------------===//

// Virtual lane v takes the chunks v, v + 256, … of 8 elements (of 1 where 8 does not divide them).
static constexpr int64_t kChunk = 8;
/// Chunks of x and of the gain that a thread holds in registers at most; longer vectors are walked in loops.
static constexpr int64_t kHeldChunks = 8;

/// Whether each thread can hold its chunks of `n` elements.
static bool heldInRegisters(int64_t n, int64_t threads) {
  return n % kChunk == 0 && llvm::divideCeil(n / kChunk, kVirtualLanes) * lanesHeld(threads) <= kHeldChunks;
}

/// The read that gives a norm its operand, where nothing else needs the tile: the norm then loads it by
/// itself.
static ReadOp readOf(RmsNormOp op) {
  auto read = op.getX().getDefiningOp<ReadOp>();
  bool direct =
      read && !read.getRows() && op.getX().hasOneUse() && !read.getItem() &&
      read->getBlock() == op->getBlock() &&
      read.getMemory().getType().getElementType() == op.getX().getType().getElementType() &&
      cast<MemRefType>(read.getMemory().getType()).getNumElements() == op.getX().getType().getNumElements();
  return direct ? read : ReadOp();
}

bool KernelLowering::isReadByNorm(ReadOp op) {
  auto norm = op.getResult().hasOneUse() ? dyn_cast<RmsNormOp>(*op.getResult().user_begin()) : RmsNormOp();
  return norm && gains.contains(norm) && readOf(norm) == op;
}

/// Calls body(i, j, chunk, exists) for the chunks of this thread: the j-th of its i-th virtual lane; `exists`
/// is null where all threads have it.
void KernelLowering::forHeldChunks(int64_t n, function_ref<void(int64_t, int64_t, Value, Value)> body) {
  int64_t chunks = n / kChunk;
  for (int64_t i = 0; i < lanesHeld(threads); ++i)
    for (int64_t first = i * threads, j = 0; first < chunks; first += kVirtualLanes, ++j) {
      Value chunk = b.add(tid, first);
      // Lanes from 256 on are none.
      int64_t end = std::min(chunks, first - i * threads + kVirtualLanes);
      body(i, j, chunk, first + threads <= end ? Value() : b.lt(chunk, end));
    }
}

/// Eight elements at `from`, or zeros where they do not exist.
KernelLowering::Values KernelLowering::loadChunk(Type element, Value from, Value exists) {
  auto words = VectorType::get({4}, b.getI32Type());
  Values loaded;
  for (int64_t at = 0; at < kChunk * element.getIntOrFloatBitWidth() / 8; at += 16) {
    auto load = [&]() -> Values { return {b.load(words, b.offset(from, at))}; };
    auto zeros = [&]() -> Values {
      return {b.create<arith::ConstantOp>(cast<TypedAttr>(b.getZeroAttr(words)))};
    };
    loaded.push_back(exists ? b.ifElse(words, exists, load, zeros)[0] : load()[0]);
  }
  return loaded;
}

/// Their values as f32.
KernelLowering::Values KernelLowering::chunkElements(Type element, const Values &words) {
  Values elements;
  for (Value vector : words)
    for (int64_t i = 0, n = cast<VectorType>(vector.getType()).getNumElements(); i < n; ++i) {
      Value word = b.create<vector::ExtractOp>(vector, i);
      if (element.isF32()) {
        elements.push_back(b.bitcast(element, word));
        continue;
      }
      auto [low, high] = b.unpack(word, element);
      elements.push_back(low);
      elements.push_back(high);
    }
  return elements;
}

/// Stores f32 values, rounded to `element`, at `to`: 8 or 16 bytes at a time.
void KernelLowering::storeChunk(Type element, const Values &elements, Value to) {
  Values words;
  for (size_t i = 0; i < elements.size(); i += element.isF32() ? 1 : 2)
    words.push_back(element.isF32() ? b.bitcast(b.getI32Type(), elements[i])
                                    : b.pack(elements[i], elements[i + 1], element));
  int64_t together = std::min<int64_t>(words.size(), 4);
  auto type = VectorType::get({together}, b.getI32Type());
  for (size_t i = 0; i < words.size(); i += together)
    b.store(b.create<vector::FromElementsOp>(type, ValueRange(words).slice(i, together)),
            b.offset(to, i * 4));
}

/// Gains do not depend on the kernel before this one: they are on their way while it ends.
void KernelLowering::preloadGains(Block &body) {
  for (auto op : body.getOps<RmsNormOp>()) {
    if (op.getScale()) {
      preloadTokenGains(op);
      continue;
    }
    int64_t n = op.getX().getType().getNumElements();
    // Chunks are 16 bytes or more; a view may begin anywhere in its tile.
    if (!heldInRegisters(n, threads) || layout.tile(op.getX()) % 16 || op.getWidth() || op.getCentered())
      continue;
    Type element = cast<MemRefType>(op.getGain().getType()).getElementType();
    Value base = memory.lookup(op.getGain());
    forHeldChunks(n, [&](int64_t, int64_t, Value chunk, Value exists) {
      Value at = b.mul(chunk, kChunk * element.getIntOrFloatBitWidth() / 8);
      gains[op].push_back(loadChunk(element, b.offset(base, at), exists));
    });
  }
}

/// Sum of `of` each element of x, in the order of virtual lanes, by loops.
Value KernelLowering::sumInLoop(RmsNormOp op, function_ref<Value(Value)> of) {
  int64_t n = op.getX().getType().getNumElements(), chunk = n % kChunk ? 1 : kChunk;
  return foldThreads(ElementwiseKind::Add, [&](Value v, int64_t) {
    return b.loop(v, b.i32(n / chunk), b.i32(kVirtualLanes), b.f32(0),
                  [&](Value c, ValueRange sum) -> Values {
                    Value total = sum[0];
                    for (int64_t e = 0; e < chunk; ++e)
                      total = b.fadd(total, of(loadElement(op.getX(), b.add(b.mul(c, chunk), e))));
                    return {total};
                  })[0];
  });
}

/// What a norm multiplies with for an element of its gain.
Value KernelLowering::withOffset(RmsNormOp op, Value gain) {
  return op.getOffset() ? b.fadd(gain, b.f32(op.getOffset()->convertToDouble())) : gain;
}

Value KernelLowering::normScale(RmsNormOp op, Value squares, int64_t n) {
  Value mean = b.fdiv(squares, b.f32(n));
  return b.create<simt::RsqrtOp>(b.fadd(mean, b.f32(op.getEps().convertToDouble()))).getResult();
}

/// Parts of a row by themselves, of each token of a tile [n, tokens]: a warp each, so that the order of a sum
/// does not depend on the plan.
LogicalResult KernelLowering::lowerPartNorm(RmsNormOp op) {
  TileType type = op.getX().getType();
  int64_t width = op.getWidth(), parts = type.getNumElements() / width;
  int64_t tokens = type.getShape().size() == 2 ? type.getShape()[1] : 1;
  Type gainType = cast<MemRefType>(op.getGain().getType()).getElementType();
  Value gain = memory.lookup(op.getGain());
  b.loop(warp, b.i32(parts), b.i32(warps), {}, [&](Value part, ValueRange) -> Values {
    Value first = b.mul(b.div(part, tokens), width), token = b.rem(part, tokens);
    auto element = [&](Value i) { return b.add(b.mul(b.add(first, i), tokens), token); };
    Value squares = b.loop(lane, b.i32(width), b.i32(32), b.f32(0), [&](Value i, ValueRange sum) -> Values {
      Value x = loadElement(op.getX(), element(i));
      return {b.fadd(sum[0], b.fmul(x, x))};
    })[0];
    for (int64_t x = 16; x; x /= 2)
      squares = b.fadd(
          squares,
          b.create<simt::ShuffleOp>(b.getF32Type(), simt::ShuffleMode::Xor, squares, b.i32(x)).getResult());
    Value scale = normScale(op, squares, width);
    b.loop(lane, b.i32(width), b.i32(32), {}, [&](Value i, ValueRange) -> Values {
      Value g = b.load(gainType, b.offset(gain, b.mul(i, gainType.getIntOrFloatBitWidth() / 8)));
      Value at = element(i), x = loadElement(op.getX(), at);
      storeElement(op.getResult(), at, b.fmul(b.fmul(x, scale), withOffset(op, b.toF32(g))));
      return {};
    });
    return {};
  });
  sync();
  return success();
}

/// A norm of vectors that registers do not hold, or that is centered.
LogicalResult KernelLowering::lowerNormInLoops(RmsNormOp op) {
  int64_t n = op.getX().getType().getNumElements();
  Value mean;
  if (op.getCentered())
    mean = b.fdiv(sumInLoop(op, [](Value x) { return x; }), b.f32(n));
  auto centered = [&](Value x) { return mean ? b.fsub(x, mean) : x; };
  Value squares = sumInLoop(op, [&](Value x) {
    Value from = centered(x);
    return b.fmul(from, from);
  });
  Value scale = normScale(op, squares, n);
  auto scaled = [&](Value i) { return b.fmul(centered(loadElement(op.getX(), i)), scale); };
  if (!op.getGain()) {
    forEach(n, [&](Value i) { storeElement(op.getResult(), i, scaled(i)); });
    sync();
    return success();
  }
  Type element = cast<MemRefType>(op.getGain().getType()).getElementType();
  Value gain = memory.lookup(op.getGain());
  forEachBatched(
      n, 16,
      [&](Value i) {
        return b.load(element, b.offset(gain, b.wide(b.mul(i, element.getIntOrFloatBitWidth() / 8))));
      },
      [&](Value i, Value g) {
        storeElement(op.getResult(), i, b.fmul(scaled(i), withOffset(op, b.toF32(g))));
      });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerRmsNorm(RmsNormOp op) {
  if (op.getWidth())
    return lowerPartNorm(op);
  if (!gains.contains(op))
    return lowerNormInLoops(op);
  int64_t n = op.getX().getType().getNumElements();
  auto gainType = cast<MemRefType>(op.getGain().getType());
  ReadOp read = readOf(op);
  Type element = op.getX().getType().getElementType(), rounded = op.getResult().getType().getElementType();
  Value from = read ? memory.lookup(read.getMemory()) : bufferOf(op.getX());
  SmallVector<Values> loaded, x;
  forHeldChunks(n, [&](int64_t, int64_t, Value chunk, Value exists) {
    Value at = b.mul(chunk, kChunk * element.getIntOrFloatBitWidth() / 8);
    loaded.push_back(loadChunk(element, b.offset(from, at), exists));
  });
  SmallVector<Value> squares(lanesHeld(threads), b.f32(0));
  forHeldChunks(n, [&](int64_t i, int64_t, Value, Value) {
    x.push_back(chunkElements(element, loaded[x.size()]));
    for (Value v : x.back())
      squares[i] = b.fadd(squares[i], b.fmul(v, v));
  });
  Value all = foldThreads(ElementwiseKind::Add, [&](Value, int64_t i) { return squares[i]; });
  Value scale = normScale(op, all, n);
  int64_t at = 0;
  forHeldChunks(n, [&](int64_t, int64_t, Value chunk, Value exists) {
    Values gain = chunkElements(gainType.getElementType(), gains[op][at]), result;
    for (auto [v, g] : llvm::zip(x[at++], gain))
      result.push_back(b.fmul(b.fmul(v, scale), withOffset(op, g)));
    Value to = b.offset(bufferOf(op.getResult()), b.mul(chunk, kChunk * rounded.getIntOrFloatBitWidth() / 8));
    if (exists)
      b.ifThen(exists, [&] { storeChunk(rounded, result, to); });
    else
      storeChunk(rounded, result, to);
  });
  sync();
  return success();
}

//===-- Rotations ---------------------------------------------------------------===//

Value KernelLowering::rotationRow(RopeOp op, Value position, Value reports) {
  auto tableType = cast<MemRefType>(op.getTable().getType());
  int64_t last = tableType.getDimSize(0) - 1,
          rowBytes = tableType.getDimSize(1) * tableType.getElementTypeBitWidth() / 8;
  Value outside = b.orI(b.lt(position, 0), b.ge(position, last + 1));
  b.ifThen(b.andI(outside, reports), [&] { setStatus(4); });
  position = b.min(b.max(position, b.i32(0)), b.i32(last));
  return b.offset(memory.lookup(op.getTable()), b.mul(b.wide(position), rowBytes));
}

/// The position of an item.
Value KernelLowering::positionOf(RopeOp op) {
  int64_t positions = cast<MemRefType>(op.getPosition().getType()).getNumElements();
  if (!op.getItem() || positions == 1 || scalars.contains(op.getPosition()))
    return scalar(op.getPosition());
  Value index = b.div(item(op.getItem()), itemsOf(op.getItem()) / positions);
  return b.load(b.getI32Type(), b.offset(memory.lookup(op.getPosition()), b.mul(index, 4)));
}

/// Cosine and sine of `pair` in a row of the table.
std::pair<Value, Value> KernelLowering::loadRotation(RopeOp op, Value row, Value pair) {
  auto tableType = cast<MemRefType>(op.getTable().getType());
  auto entry = [&](Value at) {
    Value from = b.offset(row, b.mul(at, tableType.getElementTypeBitWidth() / 8));
    return b.toF32(b.load(tableType.getElementType(), from));
  };
  return {entry(pair), entry(b.add(pair, tableType.getDimSize(1) / 2))};
}

/// Each thread has the same pair in all heads where a head's pairs divide the threads.
bool KernelLowering::keepRotation(RopeOp op) {
  int64_t half = cast<MemRefType>(op.getTable().getType()).getDimSize(1) / 2;
  auto key = std::pair(op.getTable(), op.getPosition());
  if (threads % half || rotations.contains(key))
    return false;
  b.loc = op.getLoc();
  Value row = rotationRow(op, scalar(op.getPosition()), b.eq(tid, 0));
  rotations[key] = loadRotation(op, row, b.rem(tid, half));
  return true;
}

/// Loads the rotations that the operations in `body` need, of the only position, ahead of the streams.
void KernelLowering::preloadRotations(Block &body) {
  body.walk([&](RopeOp op) {
    if (cast<MemRefType>(op.getPosition().getType()).getNumElements() == 1)
      keepRotation(op);
  });
}

LogicalResult KernelLowering::lowerRope(RopeOp op) {
  if (op.getX().getType().getShape().size() == 2 && op.getX().getType().getShape()[1] > 1)
    return lowerTokenRope(op);
  int64_t half = cast<MemRefType>(op.getTable().getType()).getDimSize(1) / 2;
  int64_t n = op.getX().getType().getNumElements();
  auto known = rotations.find(std::pair(op.getTable(), op.getPosition()));
  bool preloaded = known != rotations.end();
  Value row = preloaded ? Value() : rotationRow(op, positionOf(op), b.eq(tid, 0));
  bool halves = op.getStyle() == RopeStyle::HalfSplit;
  int64_t size = op.getHeadSize(), rest = size - 2 * half, heads = n / size;
  forEach(heads * half, [&](Value i) {
    Value head = b.mul(b.div(i, half), size), pair = b.rem(i, half);
    Value first = b.add(head, halves ? pair : b.mul(pair, 2));
    Value second = b.add(first, halves ? half : 1);
    auto [c, s] = preloaded ? known->second : loadRotation(op, row, pair);
    Value x = loadElement(op.getX(), first), y = loadElement(op.getX(), second);
    storeElement(op.getResult(), first, b.fsub(b.fmul(x, c), b.fmul(y, s)));
    storeElement(op.getResult(), second, b.fadd(b.fmul(y, c), b.fmul(x, s)));
  });
  if (rest)
    forEach(heads * rest, [&](Value i) {
      Value at = b.add(b.mul(b.div(i, rest), size), b.add(b.rem(i, rest), 2 * half));
      storeElement(op.getResult(), at, loadElement(op.getX(), at));
    });
  sync();
  return success();
}

Value KernelLowering::combine(ElementwiseOp op, Value x, Value y) {
  if (op.getScale())
    y = b.fmul(y, b.f32(op.getScale()->convertToDouble()));
  return op.getKind() == ElementwiseKind::Add   ? b.fadd(x, y)
         : op.getKind() == ElementwiseKind::Mul ? b.fmul(x, y)
                                                : b.fmax(x, y);
}

LogicalResult KernelLowering::lowerElementwise(ElementwiseOp op) {
  int64_t n = localElements(func, op.getResult().getType());
  int64_t repeats = n / localElements(func, op.getB().getType());
  forEach(n, [&](Value i) {
    Value x = loadElement(op.getA(), i), y = loadElement(op.getB(), repeats > 1 ? b.div(i, repeats) : i);
    storeElement(op.getResult(), i, combine(op, x, y));
  });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerCast(CastOp op) {
  forEach(localElements(func, op.getResult().getType()),
          [&](Value i) { storeElement(op.getResult(), i, loadElement(op.getTile(), i)); });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerQuantize(QuantizeOp op) {
  int64_t scales = cast<MemRefType>(op.getScale().getType()).getNumElements();
  Value scale = scaleOf(op.getScale(), b.rem(item(op.getItem()), scales));
  forEach(localElements(func, op.getResult().getType()),
          [&](Value i) { storeElement(op.getResult(), i, b.fdiv(loadElement(op.getTile(), i), scale)); });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerFold(FoldOp op) {
  int64_t n = localElements(func, op.getTile().getType());
  bool max = op.getKind() == ElementwiseKind::Max;
  Value all = foldThreads(op.getKind(), [&](Value v, int64_t) {
    return b.loop(v, b.i32(n), b.i32(kVirtualLanes), max ? b.negInf() : b.f32(0),
                  [&](Value i, ValueRange sum) -> Values {
                    Value x = loadElement(op.getTile(), i);
                    return {max ? b.fmax(sum[0], x) : b.fadd(sum[0], x)};
                  })[0];
  });
  b.ifThen(b.eq(tid, 0), [&] { storeElement(op.getResult(), b.i32(0), all); });
  sync();
  return success();
}
