//===- LowerTokens.cpp - Norms, rotations and memory of several tokens ------------===//
//
// What goes into a matmul is [tokens, n], a row for each token; what comes out of
// it is [n, tokens], so that a slice of features, of an item or a CTA, is one run.
// Each token's numbers have the bits that it has alone.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

/// Elements that are loaded together: 16 bytes of 16-bit ones.
static constexpr int64_t kChunk = 8;
/// Of each of 256 virtual lanes a lane of a warp has every 32nd (LowerPointwise.cpp).
static constexpr int64_t kVirtualLanes = 256, kHeld = kVirtualLanes / 32;

/// First element of this CTA along dimension `dim`, of a tile's `extent` elements there.
static std::pair<Value, int64_t> partOf(SimtBuilder &b, FuncOp func, TileType type, int64_t dim,
                                        function_ref<Value(StringRef)> coordinate) {
  Value first = b.i32(0);
  int64_t extent = type.getShape()[dim];
  for (StateAttr s : type.getStates()) {
    if (s.isPartial() || s.getDim() != dim)
      continue;
    extent /= func.axis(s.getAxis().getValue()).getSize();
    first = b.add(first, b.mul(coordinate(s.getAxis().getValue()), extent));
  }
  return {first, extent};
}

/// Tokens of memory from `from` on where a tile's rows are more; -1: all of them exist.
static int64_t tokensBehind(MemRefType memory, TileType tile, int64_t from) {
  int64_t rest = memory.getDimSize(0) - from;
  return rest < tile.getShape()[0] ? rest : -1;
}

//===-- Rows ------------------------------------------------------------------===//

/// Where a tile [tokens, n] is read: in memory where its reader does that by itself, else in shared memory.
KernelLowering::TokenRows KernelLowering::rowsOf(Value tile) {
  auto type = cast<TileType>(tile.getType());
  auto coordinateOf = [&](StringRef axis) { return coordinate(axis); };
  TokenRows x;
  std::tie(x.firstRow, x.rows) = partOf(b, func, type, 0, coordinateOf);
  std::tie(x.firstColumn, x.columns) = partOf(b, func, type, 1, coordinateOf);
  x.element = type.getElementType();
  x.wholeColumns = type.getShape()[1];
  int64_t bytes = type.getElementBytes();
  bool aligned = x.columns % kChunk == 0 && x.wholeColumns % kChunk == 0;
  if (ReadOp read = readInPlace(tile)) {
    auto source = cast<MemRefType>(read.getMemory().getType());
    x.allRows = tokensBehind(source, type, read.getFrom());
    x.stride = source.getDimSize(1) * bytes;
    Value at = b.add(b.mul(b.add(x.firstRow, int64_t(read.getFrom())), source.getDimSize(1)), x.firstColumn);
    x.base = b.offset(memory.lookup(read.getMemory()), b.mul(b.wide(at), bytes));
    x.inChunks = aligned;
    return x;
  }
  x.stride = layout.rowStride(tile) ? layout.rowStride(tile) : x.columns * bytes;
  x.base = bufferOf(tile);
  x.inChunks = aligned && layout.tile(tile) % 16 == 0 && x.stride % 16 == 0;
  return x;
}

Value KernelLowering::at(const TokenRows &x, Value row, Value column) {
  Value offset = b.add(b.mul(row, x.stride), b.mul(column, x.element.getIntOrFloatBitWidth() / 8));
  return b.offset(x.base, offset);
}

/// Null where all rows of the tile do.
Value KernelLowering::rowExists(const TokenRows &x, Value row) {
  return x.allRows < 0 ? Value() : b.lt(b.add(x.firstRow, row), x.allRows);
}

/// The sum of a row's squares, in all lanes of this warp, in the order of one token alone: virtual lanes of
/// 256, eight of a lane by a tree, then a butterfly.
Value KernelLowering::squaresOfRow(const TokenRows &x, Value row) {
  int64_t chunk = x.inChunks ? kChunk : x.columns % kChunk ? 1 : kChunk, chunks = x.columns / chunk;
  Value exists = rowExists(x, row);
  // A chunk of each of this lane's virtual lanes; those from `end` on are none.
  auto loadRound = [&](Value first, int64_t end) -> SmallVector<Values> {
    SmallVector<Values> loaded;
    for (int64_t i = 0; i < kHeld; ++i) {
      Value c = b.add(first, b.add(lane, 32 * i));
      Value has = 32 * (i + 1) <= end ? exists : b.lt(b.add(lane, 32 * i), end);
      if (has && exists && has != exists)
        has = b.andI(has, exists);
      if (32 * i >= end) {
        loaded.emplace_back();
        continue;
      }
      if (x.inChunks) {
        loaded.push_back(loadChunk(x.element, at(x, row, b.mul(c, kChunk)), has));
        continue;
      }
      Values elements;
      for (int64_t e = 0; e < chunk; ++e) {
        auto load = [&]() -> Values {
          return {b.toF32(b.load(x.element, at(x, row, b.add(b.mul(c, chunk), e))))};
        };
        elements.push_back(
            has ? b.ifElse(b.getF32Type(), has, load, [&]() -> Values { return {b.f32(0)}; })[0] : load()[0]);
      }
      loaded.push_back(elements);
    }
    return loaded;
  };
  auto addRound = [&](ArrayRef<Values> loaded, ValueRange before) -> Values {
    Values sums(before);
    for (int64_t i = 0; i < kHeld; ++i) {
      Values elements = x.inChunks && !loaded[i].empty() ? chunkElements(x.element, loaded[i]) : loaded[i];
      Value sum = sums[i];
      for (Value v : elements)
        sum = b.fadd(sum, b.fmul(v, v));
      sums[i] = sum;
    }
    return sums;
  };
  Values sums(kHeld, b.f32(0));
  int64_t rounds = chunks / kVirtualLanes, rest = chunks % kVirtualLanes;
  // Few rounds wait for memory once, where registers hold them.
  constexpr int64_t kTogether = 2, kThreads = 288;
  if (x.inChunks && rounds == kTogether && !rest && threads <= kThreads && !x.element.isF32()) {
    SmallVector<Values> all[kTogether];
    for (int64_t r = 0; r < kTogether; ++r)
      all[r] = loadRound(b.i32(r * kVirtualLanes), kVirtualLanes);
    for (const SmallVector<Values> &loaded : all)
      sums = addRound(loaded, sums);
  } else if (rounds) {
    sums =
        b.loop(b.i32(0), b.i32(rounds * kVirtualLanes), b.i32(kVirtualLanes), sums,
               [&](Value first, ValueRange args) { return addRound(loadRound(first, kVirtualLanes), args); });
  }
  if (rest)
    sums = addRound(loadRound(b.i32(rounds * kVirtualLanes), rest), sums);
  Value sum = mergeTree<Value>(
      kHeld, [&](int64_t i) { return sums[i]; }, [&](Value p, Value q) { return b.fadd(p, q); });
  for (int64_t mask = 16; mask; mask /= 2)
    sum = b.fadd(
        sum, b.create<simt::ShuffleOp>(b.getF32Type(), simt::ShuffleMode::Xor, sum, b.i32(mask)).getResult());
  return sum;
}

KernelLowering::HeldTokens KernelLowering::heldTokens(RmsNormOp op) {
  constexpr int64_t kMost = 8;
  TileType type = op.getX().getType();
  ReadOp read = readInPlace(op.getX());
  int64_t rows = type.getShape()[0], columns = localElements(func, type) / rows,
          stride = layout.rowStride(op.getResult());
  bool wholeRows = llvm::none_of(type.getStates(), [](StateAttr s) { return s.getDim() == 0; });
  if (!read || !wholeRows ||
      cast<MemRefType>(read.getMemory().getType()).getDimSize(0) - int64_t(read.getFrom()) < rows)
    return {};
  if (columns % kChunk || type.getShape()[1] % kChunk || layout.tile(op.getResult()) % 16 || stride % 16)
    return {};
  int64_t across = columns / kChunk, each = rows * across / threads;
  if (rows * across % threads || each > kMost || (across % threads && threads % across))
    return {};
  return {each, std::max<int64_t>(1, across / threads)};
}

/// Gains are on their way before the kernel before this one has ended.
void KernelLowering::preloadTokenGains(RmsNormOp op) {
  HeldTokens h = heldTokens(op);
  if (!h.each)
    return;
  TileType type = op.getX().getType();
  auto [first, columns] = partOf(b, func, type, 1, [&](StringRef axis) -> Value { return coordinate(axis); });
  Type element = cast<MemRefType>(op.getGain().getType()).getElementType();
  for (int64_t i = 0; i < h.columns; ++i) {
    Value chunk = b.rem(b.add(tid, i * threads), columns / kChunk);
    Value column = b.add(first, b.mul(chunk, kChunk));
    Value from = b.offset(memory.lookup(op.getGain()), b.mul(column, element.getIntOrFloatBitWidth() / 8));
    gains[op].push_back(loadChunk(element, from, Value()));
  }
}

/// What the norm that takes these scales will need of its own columns comes while they are made.
void KernelLowering::preloadTokens(RmsScaleOp op) {
  Value scale = op.getResult();
  while (scale.hasOneUse() && isa<ExchangeOp, ExtractOp>(*scale.user_begin()))
    scale = (*scale.user_begin())->getResult(0);
  auto norm = scale.hasOneUse() ? dyn_cast<RmsNormOp>(*scale.user_begin()) : RmsNormOp();
  if (!norm || !gains.contains(norm) || norm->getBlock() != op->getBlock())
    return;
  TokenRows x = rowsOf(norm.getX());
  int64_t across = x.columns / kChunk;
  for (int64_t k = 0, n = heldTokens(norm).each; k < n; ++k) {
    Value i = b.add(tid, k * threads);
    held[norm].push_back(
        loadChunk(x.element, at(x, b.div(i, across), b.mul(b.rem(i, across), kChunk)), Value()));
  }
}

/// A warp a row.
LogicalResult KernelLowering::lowerRmsScale(RmsScaleOp op) {
  preloadTokens(op);
  TokenRows x = rowsOf(op.getX());
  b.loop(warp, b.i32(x.rows), b.i32(warps), {}, [&](Value row, ValueRange) -> Values {
    Value mean = b.fdiv(squaresOfRow(x, row), b.f32(x.columns));
    Value scale = b.create<simt::RsqrtOp>(b.fadd(mean, b.f32(op.getEps().convertToDouble()))).getResult();
    b.ifThen(b.eq(lane, 0), [&] { storeElement(op.getResult(), row, scale); });
    return {};
  });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerScaledNorm(RmsNormOp op) {
  TokenRows x = rowsOf(op.getX()), y = rowsOf(op.getResult());
  Type gainType = cast<MemRefType>(op.getGain().getType()).getElementType(),
       rounded = op.getResult().getType().getElementType();
  Value gain = memory.lookup(op.getGain());
  int64_t gainBytes = gainType.getIntOrFloatBitWidth() / 8;
  bool inChunks = x.inChunks && y.inChunks;
  int64_t chunk = inChunks ? kChunk : 1, across = x.columns / chunk;
  auto rowAndColumn = [&](Value i) { return std::pair(b.div(i, across), b.mul(b.rem(i, across), chunk)); };
  auto load = [&](Value i) -> Values {
    auto [row, column] = rowAndColumn(i);
    Value ofGain = b.offset(gain, b.mul(b.add(x.firstColumn, column), gainBytes)), exists = rowExists(x, row);
    if (inChunks) {
      Values words = loadChunk(x.element, at(x, row, column), exists);
      words.append(loadChunk(gainType, ofGain, Value()));
      return words;
    }
    auto element = [&, row = row, column = column]() -> Values {
      return {b.toF32(b.load(x.element, at(x, row, column)))};
    };
    auto zero = [&]() -> Values { return {b.f32(0)}; };
    return {exists ? b.ifElse(b.getF32Type(), exists, element, zero)[0] : element()[0],
            b.toF32(b.load(gainType, ofGain))};
  };
  auto store = [&](Value i, Values loaded) {
    auto [row, column] = rowAndColumn(i);
    Value scale = loadElement(op.getScale(), row);
    if (!inChunks) {
      Value v = b.fmul(b.fmul(loaded[0], scale), withOffset(op, loaded[1]));
      b.store(b.fromF32(v, rounded), at(y, row, column));
      return;
    }
    size_t words = x.element.isF32() ? 2 : 1;
    Values v = chunkElements(x.element, Values(ArrayRef(loaded).take_front(words)));
    Values g = chunkElements(gainType, Values(ArrayRef(loaded).drop_front(words)));
    for (auto [e, ofGain] : llvm::zip_equal(v, g))
      e = b.fmul(b.fmul(e, scale), withOffset(op, ofGain));
    storeChunk(rounded, v, at(y, row, column));
  };
  if (auto chunks = held.find(op); chunks != held.end()) {
    for (auto [k, words] : llvm::enumerate(chunks->second)) {
      Values loaded = words;
      loaded.append(gains[op][k % gains[op].size()]);
      store(b.add(tid, k * threads), loaded);
    }
  } else {
    forEachAhead(tid, threads, x.rows * across, inChunks ? 8 : 4, load, store);
  }
  sync();
  return success();
}

LogicalResult KernelLowering::lowerReadRows(ReadOp op) {
  TokenRows y = rowsOf(op.getResult());
  auto source = cast<MemRefType>(op.getMemory().getType());
  int64_t width = source.getDimSize(1), bytes = source.getElementTypeBitWidth() / 8;
  Value from = memory.lookup(op.getMemory());
  y.allRows = tokensBehind(source, op.getResult().getType(), op.getFrom());
  Value firstColumn = b.add(b.mul(item(op.getItem()), y.wholeColumns), y.firstColumn);
  bool hangsOver = op.getItem() && itemsOf(op.getItem()) * y.wholeColumns > width;
  bool inChunks = y.inChunks && width % kChunk == 0 && source.getElementType() == y.element;
  int64_t chunk = inChunks ? kChunk : 1, across = y.columns / chunk;
  auto load = [&](Value i) -> Values {
    Value row = b.div(i, across), column = b.add(firstColumn, b.mul(b.rem(i, across), chunk));
    Value exists = rowExists(y, row);
    if (hangsOver)
      exists = exists ? b.andI(exists, b.lt(column, width)) : b.lt(column, width);
    Value token = b.add(b.add(y.firstRow, row), int64_t(op.getFrom()));
    Value index = b.add(b.mul(b.wide(token), width), b.wide(column));
    Value address = b.offset(from, b.mul(index, bytes));
    if (inChunks)
      return loadChunk(y.element, address, exists);
    auto element = [&]() -> Values { return {b.toF32(b.load(source.getElementType(), address))}; };
    if (!exists)
      return element();
    return b.ifElse(b.getF32Type(), exists, element, [&]() -> Values { return {b.f32(0)}; });
  };
  auto store = [&](Value i, Values loaded) {
    Value to = at(y, b.div(i, across), b.mul(b.rem(i, across), chunk));
    if (!inChunks)
      return b.store(b.fromF32(loaded[0], y.element), to);
    for (auto [k, words] : llvm::enumerate(loaded))
      b.store(words, b.offset(to, 16 * k));
  };
  forEachAhead(tid, threads, y.rows * across, inChunks ? 16 : 4, load, store);
  sync();
  return success();
}

LogicalResult KernelLowering::lowerWriteRows(WriteOp op) {
  TokenRows x = rowsOf(op.getTile());
  auto target = cast<MemRefType>(op.getMemory().getType());
  int64_t width = target.getDimSize(1), bytes = target.getElementTypeBitWidth() / 8;
  Value to = memory.lookup(op.getMemory());
  Value firstColumn = b.add(b.mul(item(op.getItem()), x.wholeColumns), x.firstColumn);
  bool hangsOver = op.getItem() && itemsOf(op.getItem()) * x.wholeColumns > width;
  b.ifThen(writerActs(op.getTile().getType()), [&] {
    forEach(x.rows * x.columns, [&](Value i) {
      Value row = b.div(i, x.columns), local = b.rem(i, x.columns), column = b.add(firstColumn, local);
      auto put = [&] {
        Value token = b.add(b.add(x.firstRow, row), int64_t(op.getFrom()));
        Value index = b.add(b.mul(b.wide(token), width), b.wide(column));
        Value v = b.toF32(b.load(x.element, at(x, row, local)));
        b.store(b.fromF32(v, target.getElementType()), b.offset(to, b.mul(index, bytes)));
      };
      hangsOver ? b.ifThen(b.lt(column, width), put) : put();
    });
  });
  return success();
}

//===-- Columns ---------------------------------------------------------------===//

void KernelLowering::forFeatures(TileType type, ValueRange memories, Value ofItem, int64_t from,
                                 function_ref<void(Value, Value, Value, Value, int64_t)> body) {
  auto [first, features] =
      partOf(b, func, type, 0, [&](StringRef axis) -> Value { return coordinate(axis); });
  int64_t tokens = type.getShape()[1], n = type.getShape()[0];
  auto widthOf = [](Value argument) { return cast<MemRefType>(argument.getType()).getDimSize(1); };
  int64_t bytes = cast<MemRefType>(memories[0].getType()).getElementTypeBitWidth() / 8;
  Panel panel = panelOf(memories, ofItem, n, 1);
  Value firstColumn = b.add(panel.first, first);
  bool hangsOver = memories.size() == 1 && ofItem && itemsOf(ofItem) * n > widthOf(memories[0]);
  bool inChunks = features % kChunk == 0 && n % kChunk == 0 &&
                  llvm::all_of(memories, [&](Value argument) { return widthOf(argument) % kChunk == 0; });
  int64_t together = inChunks ? kChunk : 1;
  // Neighbouring threads have neighbouring tokens: shared memory is read without conflicts.
  forEach(features / together * tokens, [&](Value i) {
    Value feature = b.mul(b.div(i, tokens), together), column = b.add(firstColumn, feature);
    Value token = b.rem(i, tokens);
    Value index = b.add(b.mul(b.wide(b.add(token, from)), b.wide(panel.size)), b.wide(column));
    body(feature, token, b.offset(panel.base, b.mul(index, bytes)),
         hangsOver ? b.lt(column, panel.size) : Value(), together);
  });
}

LogicalResult KernelLowering::lowerReadColumns(ReadOp op) {
  TileType type = op.getResult().getType();
  auto source = cast<MemRefType>(op.getMemory().getType());
  int64_t tokens = type.getShape()[1];
  forFeatures(type, op.getMemories(), op.getItem(), op.getFrom(),
              [&](Value feature, Value token, Value address, Value exists, int64_t n) {
                Values values;
                if (n > 1) {
                  values = chunkElements(source.getElementType(),
                                         loadChunk(source.getElementType(), address, exists));
                } else {
                  auto load = [&]() -> Values { return {b.toF32(b.load(source.getElementType(), address))}; };
                  auto zero = [&]() -> Values { return {b.f32(0)}; };
                  values = exists ? b.ifElse(b.getF32Type(), exists, load, zero) : load();
                }
                for (auto [k, v] : llvm::enumerate(values))
                  storeElement(op.getResult(), b.add(b.mul(b.add(feature, k), tokens), token), v);
              });
  sync();
  return success();
}

LogicalResult KernelLowering::lowerWriteColumns(WriteOp op) {
  TileType type = op.getTile().getType();
  auto target = cast<MemRefType>(op.getMemory().getType());
  int64_t tokens = type.getShape()[1];
  b.ifThen(writerActs(type), [&] {
    forFeatures(type, op.getMemories(), op.getItem(), op.getFrom(),
                [&](Value feature, Value token, Value address, Value exists, int64_t n) {
                  auto put = [&] {
                    Values values;
                    for (int64_t k = 0; k < n; ++k)
                      values.push_back(
                          loadElement(op.getTile(), b.add(b.mul(b.add(feature, k), tokens), token)));
                    if (n > 1)
                      storeChunk(target.getElementType(), values, address);
                    else
                      b.store(b.fromF32(values[0], target.getElementType()), address);
                  };
                  exists ? b.ifThen(exists, put) : put();
                });
  });
  return success();
}

//===-- Rotations -------------------------------------------------------------===//

/// Neighbouring threads have neighbouring tokens, each with a position of its own.
LogicalResult KernelLowering::lowerTokenRope(RopeOp op) {
  TileType type = op.getX().getType();
  int64_t half = op.getRotated() / 2, tokens = type.getShape()[1], size = op.getHeadSize();
  int64_t rest = size - 2 * half, heads = type.getShape()[0] / size;
  bool halves = op.getStyle() == RopeStyle::HalfSplit;
  Value positions = memory.lookup(op.getPosition());
  auto split = [&](Value i) { return std::pair(b.div(i, tokens), b.rem(i, tokens)); };
  auto load = [&](Value i) -> Values {
    auto [pair, token] = split(i);
    Value position =
        b.load(b.getI32Type(), b.offset(positions, b.mul(b.add(token, int64_t(op.getFrom())), 4)));
    auto [c, s] = loadRotation(op, rotationRow(op, position, b.lt(i, tokens)), b.rem(pair, half));
    return {c, s};
  };
  auto rotate = [&](Value i, Values rotation) {
    auto [ofHeads, token] = split(i);
    Value head = b.mul(b.div(ofHeads, half), size), pair = b.rem(ofHeads, half);
    Value first = b.add(head, halves ? pair : b.mul(pair, 2));
    Value second = b.add(first, halves ? half : 1);
    Value from = b.add(b.mul(first, tokens), token), to = b.add(b.mul(second, tokens), token);
    Value x = loadElement(op.getX(), from), y = loadElement(op.getX(), to), c = rotation[0], s = rotation[1];
    storeElement(op.getResult(), from, b.fsub(b.fmul(x, c), b.fmul(y, s)));
    storeElement(op.getResult(), to, b.fadd(b.fmul(y, c), b.fmul(x, s)));
  };
  forEachAhead(tid, threads, heads * half * tokens, 4, load, rotate);
  if (rest)
    forEach(heads * rest * tokens, [&](Value i) {
      auto [ofHeads, token] = split(i);
      Value row = b.add(b.mul(b.div(ofHeads, rest), size), b.add(b.rem(ofHeads, rest), 2 * half));
      Value at = b.add(b.mul(row, tokens), token);
      storeElement(op.getResult(), at, loadElement(op.getX(), at));
    });
  sync();
  return success();
}
