//===- KernelLowering.cpp - Structure of a lowered kernel ----------------------===//
//
// Prologue (addresses, barriers), the two roles, loops over items, and what the
// lowering of single operations shares.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/kernel/KernelLowering.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cfc;
using namespace cfc::kernel;

KernelLowering::KernelLowering(FuncOp func, const KernelLayout &layout, TensorMaps &maps,
                               simt::KernelOp target)
    : func(func), layout(layout), maps(maps), target(target), b(OpBuilder(target.getBody()), func.getLoc()),
      warps(func.consumerWarps()), threads(warps * 32), sets(consumerSets(func)) {
  auto place = func->getAttrOfType<IntegerAttr>(kProfileAttr);
  profile = place ? place.getInt() : -1;
  b.setInsertionPointToEnd(&target.getBody().front());
}

LogicalResult KernelLowering::run() {
  Block &entry = target.getBody().front();
  table = entry.getArgument(0);
  workspace = entry.getArgument(1);
  tid = b.create<simt::ThreadIdOp>(b.getI32Type());
  warp = b.div(tid, 32);
  lane = b.rem(tid, 32);
  set = b.div(warp, kSetWarps);
  setWarp = b.rem(warp, kSetWarps);
  rank = func.clusterSize() > 1 ? b.create<simt::CtaRankOp>(b.getI32Type()).getResult() : b.i32(0);
  shared = b.create<simt::SharedBaseOp>(simt::PtrType::get(b.getContext(), simt::Space::Shared));
  clearMarks();
  mark("start");
  loadArguments();
  initBarriers();
  // The next kernel's CTAs fill their rings as soon as there is room: while this one waits for the one
  // before. If they read more than weights, only this kernel may still run then.
  bool overlaps = func.planValue("pdl", 0) > 0;
  int64_t lets = func.planValue("lets_next", overlaps);
  bool letsLater = lets == kLetsAfterWait && overlaps;
  if (lets && !letsLater)
    b.create<simt::GridLaunchOp>();
  round = b.i32(0);

  Block &body = func.getBody().front();
  auto producer = dyn_cast<ProducerOp>(&body.front());
  if (producer)
    b.ifThen(b.eq(warp, warps), [&] {
      scalars.clear();
      lowerProducer(producer);
      waitForPeersToStart();
      leaveMarks(threads);
    });
  LogicalResult result = success();
  auto consume = [&] {
    ring = startOf(set);
    preloadGains(body);
    waitForPeersToStart();
    if (readsAhead())
      planAhead(body);
    if (failed(holdTiles()))
      result = failure();
    waitForLastKernel();
    if (letsLater)
      b.create<simt::GridLaunchOp>();
    mark("wait");
    countStarts();
    loadScalars();
    if (!readsAhead())
      planQueries(/*producer=*/false);
    if (succeeded(result))
      result = lowerBlock(body);
  };
  if (producer)
    b.ifThen(b.lt(warp, warps), consume);
  else
    consume();
  if (failed(result))
    return failure();
  mark("end");
  leaveMarks();
  b.loc = func.getLoc();
  // A CTA has waited for all that peers send it, so it may leave, unless its own copies may still be read.
  if (layout.copiesToPeers) {
    b.create<simt::ClusterArriveOp>(/*relaxed=*/true);
    b.create<simt::ClusterWaitOp>();
  }
  b.create<simt::ReturnOp>();
  return success();
}

/// Addresses of the arguments: from the table, or at an offset in the workspace.
void KernelLowering::loadArguments() {
  auto global = simt::PtrType::get(b.getContext(), simt::Space::Global);
  int64_t next = 0;
  for (BlockArgument arg : func.getArguments()) {
    unsigned i = arg.getArgNumber();
    auto at = func.getArgAttrOfType<IntegerAttr>(i, kWorkspaceAttr);
    if (at) {
      memory[arg] = b.offset(workspace, b.i64(at.getInt()));
      continue;
    }
    auto entry = func.getArgAttrOfType<IntegerAttr>(i, kEntryAttr);
    int64_t first = kTableHeader + 8 * (entry ? entry.getInt() : next);
    next = (first - kTableHeader) / 8 + numEntries(arg.getType());
    if (arg.use_empty())
      continue;
    auto pointer = [&](int64_t k) -> Value {
      return b.create<simt::LoadPtrOp>(global, b.offset(table, first + 8 * k)).getResult();
    };
    auto number = [&](int64_t k) { return b.load(b.getI64Type(), b.offset(table, first + 8 * k)); };
    if (auto type = dyn_cast<CacheType>(arg.getType())) {
      CacheArgument &cache = caches[arg] = {type, pointer(0), pointer(1), number(2), number(3), number(4)};
      if (type.hasBlocks())
        cache.strideBlock = number(5), cache.blocks = number(6);
      int64_t v = type.firstVStride();
      if (type.hasVStrides())
        cache.vStrideHead = number(v), cache.vStrideToken = number(v + 1), cache.vStrideBlock = number(v + 2);
      else
        cache.vStrideHead = cache.strideHead, cache.vStrideToken = cache.strideToken,
        cache.vStrideBlock = cache.strideBlock;
    } else
      memory[arg] = pointer(0);
  }
}

void KernelLowering::initBarriers() {
  bool any = layout.stages || !layout.exchangeBarriers().empty();
  if (!any)
    return;
  b.ifThen(b.eq(tid, 0), [&] {
    auto init = [&](int64_t at, int64_t count) {
      b.create<simt::MbarrierInitOp>(b.offset(shared, at), b.i32(count));
    };
    for (int64_t s = 0; s < layout.stages; ++s) {
      init(layout.full + 8 * s, 1);
      init(layout.empty + 8 * s, kSetWarps);
    }
    for (auto [at, count] : layout.exchangeBarriers())
      init(at, count);
    b.create<simt::FenceMbarrierInitOp>();
  });
  b.create<simt::BarrierOp>(0, target.getThreads());
  if (!layout.exchangeBarriers().empty())
    b.create<simt::ClusterArriveOp>(/*relaxed=*/true);
}

/// Peers have started and initialised their barriers. The producer touches none of theirs: it waits when it
/// is done.
void KernelLowering::waitForPeersToStart() {
  if (!layout.exchangeBarriers().empty())
    b.create<simt::ClusterWaitOp>();
}

/// With programmatic dependent launch: nothing but weights is read, and nothing written, before this; with
/// pdl = 2 nothing but what a cache's stream takes, too.
void KernelLowering::waitForLastKernel() {
  if (func.planValue("pdl", 0))
    b.create<simt::GridWaitOp>();
}

bool KernelLowering::readsAhead() { return func.planValue("pdl", 0) == kStartsWithCache; }

void KernelLowering::waitBeforeCache() {
  if (!readsAhead())
    waitForLastKernel();
}

/// What follows from lengths and starts alone. Further work lists, of which kernels that are joined have
/// some, come where they stand: until then there is time.
void KernelLowering::planAhead(Block &body) {
  planQueries(/*producer=*/false);
  auto lists = body.getOps<WorkListOp>();
  if (lists.empty())
    return;
  plannedAhead = *lists.begin();
  b.loc = plannedAhead.getLoc();
  planWork(plannedAhead, /*producer=*/false);
}

LogicalResult KernelLowering::lowerBlock(Block &block) {
  SmallVector<ReadOp> reads; // in a row so far
  for (Operation &op : block) {
    if (auto read = dyn_cast<ReadOp>(op)) {
      reads.push_back(read);
      if (isa<ReadOp>(op.getNextNode()))
        continue;
    }
    bool together = reads.size() > 1;
    if (!together)
      loadRotationsAhead();
    if (failed(together ? lowerReads(reads) : lowerOp(&op)))
      return failure();
    reads.clear();
    if (!isa<LoadOp, LoadCacheOp, ExtractOp, OuterOp, InnerOp, ProducerOp, ReturnOp, YieldOp, ForItemsOp>(op))
      mark(op.getName().stripDialect());
  }
  return success();
}

void KernelLowering::mark(StringRef name, int64_t thread) {
  if (profile < 0 || marks.size() == kMaxMarks)
    return;
  b.ifThen(b.eq(tid, thread), [&] {
    b.store(b.create<simt::GlobalTimerOp>(b.getI64Type()),
            b.offset(shared, layout.marks + 8 * int64_t(marks.size())));
  });
  marks.push_back(name.str());
  markThreads.push_back(thread);
}

/// What is never reached has the time 0.
void KernelLowering::clearMarks() {
  if (profile < 0)
    return;
  b.ifThen(b.lt(tid, kMaxMarks),
           [&] { b.store(b.i64(0), b.offset(b.offset(shared, layout.marks), b.mul(tid, 8))); });
  b.create<simt::BarrierOp>(0, target.getThreads());
}

void KernelLowering::leaveMarks(int64_t thread) {
  if (profile < 0)
    return;
  b.ifThen(b.eq(tid, thread), [&] {
    // Consumers have waited. Of the producer one lane does: the others would come here while it still
    // streams, and stop their warp with it.
    if (thread)
      waitForLastKernel();
    Value cta = b.add(b.mul(b.create<simt::ClusterIdOp>(b.getI32Type()), func.clusterSize()), rank);
    Value first = b.offset(workspace, b.add(b.mul(b.wide(cta), kMaxMarks * 8), b.i64(profile)));
    for (auto [i, by] : llvm::enumerate(markThreads))
      if (by == thread)
        b.store(b.load(b.getI64Type(), b.offset(shared, layout.marks + 8 * i)), b.offset(first, 8 * i));
  });
}

LogicalResult KernelLowering::lowerOp(Operation *op) {
  b.loc = op->getLoc();
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ForItemsOp o) { return lowerForItems(o); })
      .Case([&](WorkListOp o) {
        if (o != plannedAhead)
          planWork(o, /*producer=*/false);
        return success();
      })
      .Case([&](GridSyncOp o) { return lowerGridSync(o); })
      .Case([&](ReadOp o) { return lowerRead(o); })
      .Case([&](WriteOp o) { return lowerWrite(o); })
      .Case([&](AppendOp o) { return lowerAppend(o); })
      .Case([&](RmsNormOp o) { return o.getScale() ? lowerScaledNorm(o) : lowerRmsNorm(o); })
      .Case([&](RmsScaleOp o) { return lowerRmsScale(o); })
      .Case([&](RopeOp o) { return lowerRope(o); })
      .Case([&](ElementwiseOp o) { return lowerElementwise(o); })
      .Case([&](CastOp o) { return lowerCast(o); })
      .Case([&](QuantizeOp o) { return lowerQuantize(o); })
      .Case([&](FoldOp o) { return lowerFold(o); })
      .Case([&](MatmulOp o) { return lowerMatmul(o); })
      .Case([&](AttendOp o) { return lowerAttend(o); })
      .Case([&](AttendNewOp o) { return lowerAttendNew(o); })
      .Case([&](FirstOp o) { return lowerFirst(o); })
      .Case([&](EmptyStateOp o) { return lowerEmptyState(o); })
      .Case([&](LeaveOp o) { return lowerLeave(o); })
      .Case([&](MergeStatesOp o) { return lowerMergeStates(o); })
      .Case([&](NormalizeOp o) { return lowerNormalize(o); })
      .Case([&](ExchangeOp o) { return lowerExchange(o); })
      .Case([&](FinishOp o) { return lowerFinish(o); })
      // Streams are lowered where they are consumed, views where they are read; the producer is done.
      .Case<LoadOp, LoadCacheOp, ExtractOp, OuterOp, InnerOp, ProducerOp, ReturnOp, YieldOp>(
          [](Operation *) { return success(); })
      .Default([](Operation *o) { return o->emitOpError("has no lowering to simt"); });
}

static bool usesBulkExchange(ForItemsOp op) {
  return op
      ->walk([](ExchangeOp e) {
        return e.getAlgorithm() == Algorithm::Bulk ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Whether the operation before `op` may still read a tile: tiles of the loop share memory with it.
static bool followsWrite(ForItemsOp op) {
  for (Operation *before = op->getPrevNode(); before; before = before->getPrevNode()) {
    if (isa<WriteOp, AppendOp>(before))
      return true;
    if (!isa<LoadOp, LoadCacheOp, ExtractOp, ExchangeOp>(before)) // an exchange over one worker does nothing
      return false;
  }
  return false;
}

LogicalResult KernelLowering::lowerForItems(ForItemsOp op) {
  if (followsWrite(op))
    sync();
  auto [first, end, step] = itemRange(op);
  LogicalResult result = success();
  preloadRotations(op.getBody().front());
  auto waiting = llvm::make_filter_range(op.getBody().front().getOps<FinishOp>(),
                                         [](FinishOp finish) { return finish.getFinishers() > 0; });
  for (FinishOp finish : waiting)
    takeSharesOfOthers(finish);
  // A cluster without an item looks at its shares next: no barrier of an item comes between.
  if (!waiting.empty() && usefulClusters(func) > func.axis(op.getAxis()).getSize())
    sync();
  Value outerRound = round;
  inLoop = true;
  Values left = b.loop(first, end, step, {ring.slot, ring.phase, b.i32(0)},
                       [&, end = end, step = step](Value i, ValueRange args) -> Values {
                         ring = {args[0], args[1], ring.first};
                         round = args[2];
                         setItem(op, i);
                         loadAhead(op);
                         result = lowerBlock(op.getBody().front());
                         forgetAhead();
                         b.loc = op.getLoc();
                         if (usesBulkExchange(op)) // its buffers were read here, and copies write them next
                           b.create<simt::FenceProxyAsyncOp>();
                         sync();
                         Value next = b.add(i, step);
                         tellPeersOfUse(op.getBody().front(), b.lt(next, end));
                         return {ring.slot, ring.phase, b.add(round, 1)};
                       });
  ring = {left[0], left[1], ring.first};
  round = outerRound;
  inLoop = false;
  for (FinishOp finish : waiting)
    finishShares(finish);
  return result;
}

/// One thread speaks for its CTA: the barriers around it pass on what it releases and acquires.
LogicalResult KernelLowering::lowerGridSync(GridSyncOp op) {
  if (static_cast<int64_t>(op.getCounter()) < 0)
    return op.emitOpError("has no place in the workspace for its counter");
  sync();
  b.ifThen(b.eq(tid, 0), [&] {
    Value ctas = b.mul(b.create<simt::NumClustersOp>(b.getI32Type()), func.clusterSize());
    b.create<simt::GridBarrierOp>(b.offset(workspace, b.i64(op.getCounter())), ctas);
  });
  sync();
  return success();
}

void KernelLowering::sync() { b.create<simt::BarrierOp>(1, threads); }

void KernelLowering::syncSet() {
  // A barrier's number is fixed in the instruction.
  for (int64_t s = 0; s < sets; ++s)
    b.ifThen(b.eq(set, s), [&] { b.create<simt::BarrierOp>(2 + s, kSetWarps * 32); });
}

void KernelLowering::forEach(int64_t n, function_ref<void(Value)> body) {
  if (n == threads)
    return body(tid);
  if (n < threads)
    return b.ifThen(b.lt(tid, n), [&] { body(tid); });
  b.loop(tid, b.i32(n), b.i32(threads), {}, [&](Value i, ValueRange) -> Values {
    body(i);
    return {};
  });
}

void KernelLowering::forEachBatched(int64_t n, int64_t batch, function_ref<Value(Value)> load,
                                    function_ref<void(Value, Value)> use) {
  if (n % threads || n <= threads)
    return forEach(n, [&](Value i) { use(i, load(i)); });
  for (int64_t done = 0, all = n / threads; done < all; done += batch) {
    SmallVector<std::pair<Value, Value>> loaded;
    for (int64_t k = done; k < std::min(done + batch, all); ++k) {
      Value i = b.add(tid, k * threads);
      loaded.push_back({i, load(i)});
    }
    for (auto [i, value] : loaded)
      use(i, value);
  }
}

void KernelLowering::forEachAhead(Value first, int64_t step, int64_t n, int64_t batch,
                                  function_ref<Values(Value)> load, function_ref<void(Value, Values)> use) {
  auto some = [&](Value from, int64_t count) {
    SmallVector<std::pair<Value, Values>> loaded;
    for (int64_t k = 0; k < count; ++k) {
      Value i = b.add(from, k * step);
      loaded.push_back({i, load(i)});
    }
    for (auto &[i, values] : loaded)
      use(i, values);
  };
  int64_t rounds = n / step, batches = rounds / batch; // in which all threads have one
  if (batches == 1)
    some(first, batch);
  else if (batches)
    b.loop(first, b.i32(batches * batch * step), b.i32(batch * step), {}, [&](Value i, ValueRange) -> Values {
      some(i, batch);
      return {};
    });
  some(b.add(first, batches * batch * step), rounds % batch);
  if (int64_t rest = n % step)
    b.ifThen(b.lt(first, rest), [&] { some(b.add(first, rounds * step), 1); });
}

void KernelLowering::loadScalars() {
  scalars.clear();
  for (BlockArgument arg : func.getArguments()) {
    auto type = dyn_cast<MemRefType>(arg.getType());
    if (type && type.getElementType().isInteger() && type.getNumElements() == 1 && memory.contains(arg))
      scalars[arg] = b.load(type.getElementType(), memory.lookup(arg));
  }
}

Value KernelLowering::scalar(Value argument, Value index) {
  if (Value known = scalars.lookup(argument))
    return known;
  Type element = cast<MemRefType>(argument.getType()).getElementType();
  Value from = memory.lookup(argument);
  if (index)
    from = b.offset(from, b.mul(index, element.getIntOrFloatBitWidth() / 8));
  return b.load(element, from);
}

std::pair<Value, Value> KernelLowering::requestAndHead(Value kernelItem, CacheType cache) {
  Value i = item(kernelItem);
  if (cache.getRequests() == 1)
    return {b.i32(0), i};
  return {b.div(i, cache.getHeads()), b.rem(i, cache.getHeads())};
}

/// Ranks count with the last declared cta axis fastest.
int64_t KernelLowering::rankStride(StringRef axis) {
  int64_t stride = 1;
  SmallVector<AxisAttr> axes(func.getAxes().getAsRange<AxisAttr>());
  for (AxisAttr a : llvm::reverse(axes)) {
    if (a.getName().getValue() == axis)
      return stride;
    if (a.getLevel() == Level::Cta)
      stride *= a.getSize();
  }
  return stride;
}

Value KernelLowering::coordinate(StringRef axis) {
  int64_t size = func.axis(axis).getSize();
  if (size == 1)
    return b.i32(0);
  return b.rem(b.div(rank, rankStride(axis)), size);
}

Value KernelLowering::peerRank(StringRef axis, Value x) {
  // Sizes are powers of two, so coordinates are bit fields of the rank.
  return b.xorI(rank, b.mul(x, rankStride(axis)));
}

Value KernelLowering::partOffset(TileType type) {
  int64_t extent = type.getNumElements();
  Value at = b.i32(0);
  for (StateAttr s : type.getStates()) {
    if (s.isPartial())
      continue;
    extent /= func.axis(s.getAxis().getValue()).getSize();
    at = b.add(at, b.mul(coordinate(s.getAxis().getValue()), extent));
  }
  return at;
}

Value KernelLowering::actsFor(TileType type) {
  Value acts = b.i1(true);
  for (AxisAttr a : func.getAxes().getAsRange<AxisAttr>())
    if (a.getLevel() == Level::Cta && a.getSize() > 1 && !stateOver(type.getStates(), a.getName().getValue()))
      acts = b.andI(acts, b.eq(coordinate(a.getName().getValue()), 0));
  return acts;
}

Value KernelLowering::item(Value kernelItem) {
  if (!kernelItem)
    return b.i32(0);
  if (auto outer = kernelItem.getDefiningOp<OuterOp>())
    return b.div(item(outer.getItem()), outer.getOf());
  if (auto inner = kernelItem.getDefiningOp<InnerOp>())
    return b.rem(item(inner.getItem()), inner.getOf());
  return items.lookup(kernelItem);
}

Value KernelLowering::elementAddress(Value tile, Value index) {
  auto type = cast<TileType>(tile.getType());
  Value at = b.mul(index, type.getElementBytes());
  if (int64_t stride = layout.rowStride(tile)) {
    int64_t columns = localElements(func, type) / type.getShape()[0];
    at = b.add(b.mul(b.div(index, columns), stride), b.mul(b.rem(index, columns), type.getElementBytes()));
  }
  return b.offset(bufferOf(tile), at);
}

Value KernelLowering::loadElement(Value tile, Value index) {
  Type element = cast<TileType>(tile.getType()).getElementType();
  return b.loadFloat(element, elementAddress(tile, index));
}

void KernelLowering::storeElement(Value tile, Value index, Value f32) {
  Type element = cast<TileType>(tile.getType()).getElementType();
  b.storeFloat(f32, element, elementAddress(tile, index));
}

void KernelLowering::setStatus(int64_t bits) {
  if (readsAhead()) // nothing is written before
    waitForLastKernel();
  b.create<simt::AtomicOp>(b.getI32Type(), simt::Rmw::Or, simt::Ordering::Relaxed, simt::Scope::Gpu, table,
                           b.i32(bits));
}

//===-- Ring ------------------------------------------------------------------===//

KernelLowering::Ring KernelLowering::startOf(Value ofSet) {
  return {b.i32(0), b.i32(0), b.mul(ofSet, layout.stages / sets)};
}

KernelLowering::Ring KernelLowering::advance(Ring r) {
  Value next = b.add(r.slot, 1);
  Value wraps = b.eq(next, layout.stages / sets);
  return {b.select(wraps, b.i32(0), next), b.select(wraps, b.xorI(r.phase, 1), r.phase), r.first};
}

Value KernelLowering::slotAddress(Ring r) {
  return b.offset(b.offset(shared, layout.ring), b.mul(b.add(r.first, r.slot), layout.slotBytes));
}
Value KernelLowering::fullBarrier(Ring r) {
  return b.offset(b.offset(shared, layout.full), b.mul(b.add(r.first, r.slot), 8));
}
Value KernelLowering::emptyBarrier(Ring r) {
  return b.offset(b.offset(shared, layout.empty), b.mul(b.add(r.first, r.slot), 8));
}

void KernelLowering::waitFull(Ring r) {
  b.create<simt::MbarrierWaitOp>(simt::Scope::Cta, fullBarrier(r), r.phase);
}

/// One lane of each consumer warp says that the warp has read the slot, by ldmatrix, for `made`. It must not
/// arrive before the reads are done: on a GPU an arrival that did not wait for their results overtook
/// conflicting reads.
void KernelLowering::releaseSlot(Ring r, ValueRange made) {
  Value barrier = b.create<simt::AfterOp>(emptyBarrier(r).getType(), emptyBarrier(r), made);
  b.ifThen(b.eq(lane, 0), [&] { b.create<simt::MbarrierArriveOp>(simt::Scope::Cta, barrier); });
}
