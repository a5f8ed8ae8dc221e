//===- LowerFeedCache.cpp - Cached tokens for the ring -----------------------------===//
//
// How many tokens a request has, which segments of them a CTA attends to, and
// their copies: from the request's own rows, or from pages that a block table
// names.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

Value KernelLowering::lengthOf(const LengthSource &source, Value row, Value reporter) {
  const CacheArgument &cache = caches.find(source.cache)->second;
  QueryPlace query = {row, {}, {}};
  if (source.queries)
    query = queryOf(row, source.queries);
  Value length = scalar(source.length, query.request);
  Value bound = b.narrow(b.min(b.i64(source.bound), cache.capacity));
  if (reporter) {
    Value outside = b.orI(b.lt(length, 0), b.lt(bound, length));
    if (query.count) // rows of nobody have no length
      outside = b.andI(outside, b.ne(query.count, 0));
    b.ifThen(b.andI(outside, reporter), [&] { setStatus(1); });
  }
  length = b.min(b.max(length, b.i32(0)), bound);
  // The cache holds the new tokens: each sees those up to itself.
  if (query.count && !source.slot && !source.masked)
    length = b.max(b.add(b.sub(length, query.count), b.add(query.index, 1)), b.i32(0));
  if (query.count)
    length = b.select(b.ne(query.count, 0), length, b.i32(0));
  return source.slot ? b.select(isIdle(source.slot, row, source.cache), b.i32(0), length) : length;
}

KernelLowering::Tokens KernelLowering::tokensOf(LoadCacheOp load, bool report) {
  const CacheArgument &cache = caches.find(load.getCache())->second;
  auto loop = load->getParentOfType<ForItemsOp>();
  Tokens t;
  t.place = placeOf(load.getItem(), cache.type, load.getQueries());
  if (load.isShare())
    t.length = workLength(works.find(loop.getWork())->second, t.place.row);
  else
    t.length = lengthOf({load.getCache(), load.getLength(), load.getSlot(), load.getBound(),
                         load.getQueries(), bool(load.getMask())},
                        t.place.row, report ? b.eq(tid, 0) : Value());
  placeQuery(load, t);
  t.segments = b.shr(b.add(t.length, kSegment - 1), 6);
  if (int64_t window = load.getWindow()) {
    // The token that attends is one of them, and where it is appended the cache does not have it.
    Value first = b.sub(b.add(t.query, 1), b.i32(cachedInWindow(window, /*appends=*/false)));
    t.firstToken = b.min(b.max(first, b.i32(0)), t.length);
    t.firstSegment = b.shr(t.firstToken, 6);
    t.segments = b.sub(t.segments, t.firstSegment);
  }
  t.segmentsPerGroup = segmentsPerGroup(t.segments, load.getGroups());
  t.chunkGroups = load.getGroups() / load.numChunks();
  if (load.isShare()) {
    auto [from, to] = shares.find(load.getChunk())->second;
    t.firstGroup = from;
    t.shareGroups = b.sub(to, from);
  } else {
    t.firstGroup = b.mul(item(load.getChunk()), t.chunkGroups);
  }
  return t;
}

Value KernelLowering::segmentsPerGroup(Value segments, int64_t groups) {
  return b.shr(b.add(segments, groups - 1), llvm::Log2_64(groups));
}

Value KernelLowering::groupsOfSet(const Tokens &t, LoadCacheOp load) {
  return t.shareGroups ? t.shareGroups : b.i32(localGroups(func, load) / attendSets(func, load));
}

std::pair<Value, Value> KernelLowering::segmentsOfGroup(const Tokens &t, KvStreamType type, Value g) {
  Value group = b.add(t.firstGroup, g);
  int64_t extent = t.chunkGroups;
  for (StateAttr s : type.getStates()) {
    extent /= func.axis(s.getAxis().getValue()).getSize();
    group = b.add(group, b.mul(coordinate(s.getAxis().getValue()), extent));
  }
  Value first = b.min(b.mul(group, t.segmentsPerGroup), t.segments);
  Value last = b.min(b.add(first, t.segmentsPerGroup), t.segments);
  if (t.firstSegment)
    return {b.add(t.firstSegment, first), b.add(t.firstSegment, last)};
  return {first, last};
}

/// Where a page lies: its number in the pool. One outside sets the status, and the nearest counts.
Value KernelLowering::pageAt(LoadCacheOp load, Value request, Value page) {
  const CacheArgument &cache = caches.find(load.getCache())->second;
  int64_t ofRequest = cast<MemRefType>(load.getPages().getType()).getDimSize(1);
  Value at = b.add(b.mul(request, ofRequest), page);
  Value block = b.load(b.getI32Type(), b.offset(memory.lookup(load.getPages()), b.mul(b.wide(at), 4)));
  Value last = b.narrow(b.min(b.add(cache.blocks, -1), b.i64(std::numeric_limits<int32_t>::max())));
  b.ifThen(b.orI(b.lt(block, 0), b.lt(last, block)), [&] { setStatus(8); });
  return b.max(b.min(block, last), b.i32(0));
}

/// Where the pages of a segment lie, those that have tokens. Where all lanes copy pages: the one of this
/// lane, which copies one of `boxes` boxes.
KernelLowering::Values KernelLowering::pagesOfSegment(LoadCacheOp load, int64_t boxes, Value token,
                                                      const Tokens &t) {
  const CacheArgument &cache = caches.find(load.getCache())->second;
  int64_t page = cache.type.getPage();
  Value request = t.place.request;
  Value first = b.div(token, page), last = b.div(b.add(t.length, -1), page);
  if (!oneLane && page < kSegment)
    return {pageAt(load, request, b.min(b.add(first, b.div(lane, boxes)), last))};
  Values pages;
  for (int64_t i = 0; i < std::max<int64_t>(1, kSegment / page); ++i)
    pages.push_back(pageAt(load, request, b.min(b.add(first, i), last)));
  return pages;
}

/// Copies the segment of K or V that begins at `token` into a slot.
void KernelLowering::feedSegment(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t,
                                 ValueRange pages, Ring r) {
  CacheType type = caches.find(load.getCache())->second.type;
  int64_t boxes = headBoxes(side.dim, type.getElementType()), page = type.getPage();
  int64_t columns = boxElements(type.getElementType());
  auto copy = [&](Value dst, Value column, Value row, Value block) {
    Values at = {column, row, t.place.head};
    if (type.hasBlocks())
      at.push_back(block);
    Value from = map(load.getCache(), side.field, cacheBox(type, side.dim));
    b.create<simt::TensorLoadOp>(dst, from, at, fullBarrier(r), side.once);
  };
  if (!page || page >= kSegment) {
    acquireSlot(r, b.i32(boxes * kSegment * 128));
    Value slot = slotAddress(r), row = page ? b.rem(token, page) : token,
          block = page ? pages[0] : t.place.request;
    forCopies(b.i32(boxes), [&](Value i) {
      copy(b.offset(slot, b.mul(i, kSegment * 128)), b.mul(i, columns), row, block);
    });
    return;
  }
  // Pages behind the last token may be anywhere.
  Value left = b.sub(t.length, token);
  Value have = b.min(b.i32(kSegment / page), b.div(b.add(left, page - 1), page));
  acquireSlot(r, b.mul(have, boxes * page * 128));
  Value slot = slotAddress(r);
  auto copyBox = [&](Value p, Value x, Value block) {
    Value dst = b.offset(slot, b.add(b.mul(x, kSegment * 128), b.mul(p, page * 128)));
    copy(dst, b.mul(x, columns), b.i32(0), block);
  };
  if (!oneLane) // 32 at most
    return b.ifThen(b.lt(lane, b.mul(have, boxes)),
                    [&] { copyBox(b.div(lane, boxes), b.rem(lane, boxes), pages[0]); });
  for (int64_t p = 0; p < kSegment / page; ++p)
    b.ifThen(b.lt(b.i32(p), have),
             [&] { forCopies(b.i32(boxes), [&](Value x) { copyBox(b.i32(p), x, pages[p]); }); });
}

/// The same token by token, where pages and segments do not fit.
void KernelLowering::feedTokens(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t,
                                Ring r) {
  CacheType type = caches.find(load.getCache())->second.type;
  int64_t page = type.getPage(), bytes = headBoxes(side.dim, type.getElementType()) * 128;
  Value have = b.min(b.i32(kSegment), b.sub(t.length, token));
  acquireSlot(r, b.mul(have, bytes));
  Value slot = slotAddress(r), barrier = fullBarrier(r),
        from = map(load.getCache(), side.field, cacheBox(type, side.dim));
  forCopies(have, [&](Value i) {
    Value at = b.add(token, i);
    Value block = pageAt(load, t.place.request, b.div(at, page));
    Value dst = b.offset(slot, b.mul(i, bytes));
    b.create<simt::TensorLoadOp>(dst, from, ValueRange{b.i32(0), b.rem(at, page), t.place.head, block},
                                 barrier, side.once);
  });
}

/// Address of a token's row of K or V.
Value KernelLowering::rowOfToken(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t) {
  const CacheArgument &cache = caches.find(load.getCache())->second;
  bool isK = side.field == "k_pointer";
  Value block = t.place.request;
  if (int64_t page = cache.type.getPage()) {
    block = pageAt(load, t.place.request, b.div(token, page));
    token = b.rem(token, page);
  }
  Value at = b.mul(b.wide(t.place.head), isK ? cache.strideHead : cache.vStrideHead);
  at = b.add(at, b.mul(b.wide(token), isK ? cache.strideToken : cache.vStrideToken));
  if (cache.type.hasBlocks())
    at = b.add(at, b.mul(b.wide(block), isK ? cache.strideBlock : cache.vStrideBlock));
  return b.offset(isK ? cache.k : cache.v, at);
}

/// The same where tensor copies cannot: lanes load words of 8 bytes and store them where a tensor copy would
/// put them, with zeros behind the last dim as far as 32 bytes are read together. Rows behind the last token
/// become that once more.
void KernelLowering::feedByThreads(LoadCacheOp load, const CacheSide &side, Value token, const Tokens &t,
                                   Ring r) {
  constexpr int64_t kWord = 8, kAhead = 4;
  CacheType type = caches.find(load.getCache())->second.type;
  int64_t words = side.dim * type.getElementType().getIntOrFloatBitWidth() / 8 / kWord;
  int64_t allWords = llvm::alignTo(words, 32 / kWord),
          pitch = headBoxes(side.dim, type.getElementType()) * 128;
  Value last = b.add(b.min(b.i32(kSegment), b.sub(t.length, token)), -1);
  waitEmpty(r);
  Value slot = slotAddress(r);
  Type word = wordType(b, kWord);
  Value zeros = b.create<arith::ConstantOp>(cast<TypedAttr>(b.getZeroAttr(word)));
  auto loadWord = [&](Value i) -> Values {
    Value row = b.min(b.div(i, allWords), last), w = b.rem(i, allWords);
    Value from = rowOfToken(load, side, b.add(token, row), t);
    Value data = b.load(word, b.offset(from, b.mul(b.min(w, b.i32(words - 1)), kWord)));
    return {b.select(b.lt(w, words), data, zeros)};
  };
  auto storeWord = [&](Value i, const Values &data) {
    Value row = b.div(i, allWords), at = b.mul(b.rem(i, allWords), kWord);
    Value to = b.add(b.mul(row, pitch), at);
    if (!copiesTokens(type)) {
      Value inBox = b.rem(at, 128);
      to = b.add(b.mul(b.div(at, 128), kSegment * 128), b.mul(row, 128));
      to = b.add(to, b.add(swizzled(b, b.div(inBox, 16), row), b.rem(inBox, 16)));
    }
    b.store(data[0], b.offset(slot, to));
  };
  forEachAhead(lane, 32, kSegment * allWords, kAhead, loadWord, storeWord);
  b.create<simt::FenceProxyAsyncOp>(); // the slot's next tile may come by a copy
  b.create<simt::SyncWarpOp>();
  b.ifThen(b.eq(lane, 0), [&] { b.create<simt::MbarrierArriveOp>(simt::Scope::Cta, fullBarrier(r)); });
}

void KernelLowering::feedCache(LoadCacheOp load, int64_t heads) {
  CacheType cache = caches.find(load.getCache())->second.type;
  KvStreamType type = load.getResult().getType();
  Tokens tokens = tokensOf(load, /*report=*/false);
  // What a further pass, or another token of the request, reads again should stay in the L2.
  int64_t passes = attendColumns(func, type, heads).passes;
  bool once = passes == 1 && !load.getQueries();
  auto copy = [&](Value token, Ring r) {
    Values pages;
    int64_t boxes = 0; // for which `pages` are
    for (const CacheSide &side :
         {CacheSide{"k_pointer", type.getDim(), once}, CacheSide{"v_pointer", type.getVDim(), once}}) {
      if (copiesByThreads(cache, side.dim)) {
        feedByThreads(load, side, token, tokens, r);
      } else if (copiesTokens(cache)) {
        feedTokens(load, side, token, tokens, r);
      } else {
        if (int64_t n = headBoxes(side.dim, cache.getElementType()); cache.isPaged() && n != boxes)
          pages = pagesOfSegment(load, boxes = n, token, tokens);
        feedSegment(load, side, token, tokens, pages, r);
      }
      r = advance(r);
    }
    return r;
  };
  int64_t attending = attendSets(func, load);
  Value each = groupsOfSet(tokens, load);
  auto group = [&](Value g, ValueRange outer) -> Values {
    SetSegments all = segmentsOfSets(tokens, load, g);
    return b.loop(b.i32(0), all.count[0], b.i32(1), outer, [&](Value j, ValueRange args) -> Values {
      Values now(args);
      for (int64_t i = 0; i < attending; ++i) {
        auto feed = [&]() -> Values {
          Ring r{now[2 * i], now[2 * i + 1], rings[i].first};
          r = copy(b.shl(b.add(all.first[i], j), 6), r);
          return {r.slot, r.phase};
        };
        auto pass = [&]() -> Values { return {now[2 * i], now[2 * i + 1]}; };
        // The loop runs as often as the first set has segments; groups behind have no more.
        Values next =
            i ? b.ifElse({b.getI32Type(), b.getI32Type()}, b.lt(j, all.count[i]), feed, pass) : feed();
        now[2 * i] = next[0], now[2 * i + 1] = next[1];
      }
      return now;
    });
  };
  auto pass = [&](Value, ValueRange args) -> Values { return b.loop(b.i32(0), each, b.i32(1), args, group); };
  assignRings(passes == 1 ? pass({}, flatRings())
                          : b.loop(b.i32(0), b.i32(passes), b.i32(1), flatRings(), pass));
}

KernelLowering::SetSegments KernelLowering::segmentsOfSets(const Tokens &t, LoadCacheOp load, Value g) {
  int64_t attending = attendSets(func, load), each = localGroups(func, load) / attending;
  SetSegments all;
  for (int64_t i = 0; i < attending; ++i) {
    auto [first, last] = segmentsOfGroup(t, load.getResult().getType(), b.add(g, i * each));
    all.first.push_back(first);
    all.count.push_back(b.sub(last, first));
  }
  return all;
}
