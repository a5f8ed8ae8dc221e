//===- SimtToNvvmPtx.cpp - simt ops that are instructions of the GPU -------===//
//
// Part of the pass `simt-to-nvvm`, and the only file with PTX in it. An op
// becomes an NVVM op where LLVM emits what is meant, and inline PTX where it
// does not:
//  - atomics: LLVM drops the scope and the ordering of atomicrmw;
//  - stores that count their bytes at an mbarrier: unknown to LLVM;
//  - bulk and tensor copies: LLVM knows no remote mbarrier, its loads into the own
//    CTA need PTX 8.6, and it takes them to touch only what the operands point to,
//    as it does for the fence of a tensor map;
//  - the barrier of a grid: LLVM has no reduction that wraps;
//  - words that other CTAs wait for: LLVM has no atomic access of 16 bytes;
//  - griddepcontrol: for LLVM it touches no memory, so loads could pass it;
//  - movmatrix: unknown to LLVM.
//
//===----------------------------------------------------------------------===//
#include "compiler/lower/SimtToNvvm.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace cfc::simt {

//===-- Registers and addresses -------------------------------------------===//

template <typename SimtOp, typename Register>
static LogicalResult lowerRegister(SimtOp op, typename SimtOp::Adaptor, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<Register>(op, Type(rewriter.getI32Type()));
  return success();
}

static LogicalResult lowerMapRank(MapRankOp op, MapRankOp::Adaptor in, Rewriter &rewriter,
                                  const Types &types) {
  rewriter.replaceOpWithNewOp<NVVM::MapaOp>(op, types.convertType(op.getType()), in.getBase(), in.getRank());
  return success();
}

//===-- Inline PTX --------------------------------------------------------===//

/// An instruction that orders or touches memory: never moved across a load or store, never removed.
static LLVM::InlineAsmOp createPtx(Rewriter &rewriter, Location loc, TypeRange results, const Twine &text,
                                   const Twine &constraints, ValueRange operands) {
  SmallString<128> allConstraints;
  (constraints + (constraints.isTriviallyEmpty() ? "~{memory}" : ",~{memory}")).toVector(allConstraints);
  return LLVM::InlineAsmOp::create(rewriter, loc, results, operands, text.str(), allConstraints,
                                   /*has_side_effects=*/true, /*is_align_stack=*/false,
                                   LLVM::tailcallkind::TailCallKind::None,
                                   LLVM::AsmDialectAttr::get(rewriter.getContext(), LLVM::AsmDialect::AD_ATT),
                                   /*operand_attrs=*/ArrayAttr());
}

/// Constraint of a register that holds a value of simt type `type`.
static char registerClass(Type type) {
  if (auto ptr = dyn_cast<PtrType>(type))
    return ptr.isGlobal() ? 'l' : 'r';
  if (isa<FloatType>(type))
    return 'f';
  return type.isInteger(64) ? 'l' : 'r';
}

static StringRef spaceSuffix(PtrType type) {
  return type.isGlobal() ? ".global" : type.isShared() ? ".shared" : ".shared::cluster";
}

//===-- Atomics -----------------------------------------------------------===//

/// `.add.u32` and the like. A maximum of integers is signed.
static std::string atomicSuffix(Rmw kind, Type type) {
  unsigned bits = type.getIntOrFloatBitWidth();
  switch (kind) {
  case Rmw::Add:
    return llvm::formatv(".add.{0}{1}", isa<FloatType>(type) ? 'f' : 'u', bits);
  case Rmw::Max:
    return llvm::formatv(".max.s{0}", bits);
  case Rmw::Or:
    return llvm::formatv(".or.b{0}", bits);
  case Rmw::Exch:
    return llvm::formatv(".exch.b{0}", bits);
  }
  llvm_unreachable("unknown kind");
}

static LLVM::AtomicOrdering llvmOrdering(Ordering ordering) {
  switch (ordering) {
  case Ordering::Relaxed:
    return LLVM::AtomicOrdering::monotonic;
  case Ordering::Acquire:
    return LLVM::AtomicOrdering::acquire;
  case Ordering::Release:
    return LLVM::AtomicOrdering::release;
  case Ordering::AcqRel:
    return LLVM::AtomicOrdering::acq_rel;
  }
  llvm_unreachable("unknown ordering");
}

static LogicalResult lowerAtomic(AtomicOp op, AtomicOp::Adaptor in, Rewriter &rewriter, const Types &) {
  Type type = op.getType();
  auto space = cast<PtrType>(op.getAddress().getType());
  if (op.getKind() == Rmw::Max && isa<FloatType>(type)) {
    // No instruction: LLVM makes a compare-and-swap loop, and that one keeps scope and ordering.
    rewriter.replaceOpWithNewOp<LLVM::AtomicRMWOp>(op, LLVM::AtomicBinOp::fmax, in.getAddress(),
                                                   in.getValue(), llvmOrdering(op.getOrdering()),
                                                   syncScope(op.getScope()));
    return success();
  }
  std::string suffix =
      llvm::formatv(".{0}.{1}{2}{3}", stringifyOrdering(op.getOrdering()), stringifyScope(op.getScope()),
                    spaceSuffix(space), atomicSuffix(op.getKind(), type));
  char address = registerClass(space), value = registerClass(type);
  // A reduction returns nothing and so waits for nothing; it cannot acquire.
  bool mayReduce = op.getKind() != Rmw::Exch &&
                   (op.getOrdering() == Ordering::Relaxed || op.getOrdering() == Ordering::Release);
  if (op->use_empty() && mayReduce) {
    createPtx(rewriter, op.getLoc(), {}, "red" + suffix + " [$0], $1;",
              llvm::formatv("{0},{1}", address, value).str(), {in.getAddress(), in.getValue()});
    rewriter.eraseOp(op);
    return success();
  }
  auto ptx = createPtx(rewriter, op.getLoc(), type, "atom" + suffix + " $0, [$1], $2;",
                       llvm::formatv("={1},{0},{1}", address, value).str(), {in.getAddress(), in.getValue()});
  rewriter.replaceOp(op, ptx);
  return success();
}

//===-- Fences and barriers -----------------------------------------------===//

static LogicalResult lowerFenceProxy(FenceProxyAsyncOp op, FenceProxyAsyncOp::Adaptor, Rewriter &rewriter,
                                     const Types &) {
  auto space = NVVM::SharedSpaceAttr::get(rewriter.getContext(), NVVM::SharedSpace::shared_cta);
  rewriter.replaceOpWithNewOp<NVVM::FenceProxyOp>(op, NVVM::ProxyKind::async_shared, space);
  return success();
}

static LogicalResult lowerFenceInit(FenceMbarrierInitOp op, FenceMbarrierInitOp::Adaptor, Rewriter &rewriter,
                                    const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::FenceMbarrierInitOp>(op);
  return success();
}

static LogicalResult lowerBarrier(BarrierOp op, BarrierOp::Adaptor, Rewriter &rewriter, const Types &) {
  Value id = constantI32(rewriter, op.getLoc(), op.getId());
  Value threads = constantI32(rewriter, op.getLoc(), op.getThreads());
  rewriter.replaceOpWithNewOp<NVVM::BarrierOp>(op, TypeRange{}, id, threads, NVVM::BarrierReductionAttr(),
                                               Value());
  return success();
}

static LogicalResult lowerSyncWarp(SyncWarpOp op, SyncWarpOp::Adaptor, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::SyncWarpOp>(op, constantI32(rewriter, op.getLoc(), -1));
  return success();
}

static LogicalResult lowerClusterArrive(ClusterArriveOp op, ClusterArriveOp::Adaptor, Rewriter &rewriter,
                                        const Types &) {
  if (op.getRelaxed())
    rewriter.replaceOpWithNewOp<NVVM::ClusterArriveRelaxedOp>(op, rewriter.getUnitAttr());
  else
    rewriter.replaceOpWithNewOp<NVVM::ClusterArriveOp>(op, rewriter.getUnitAttr());
  return success();
}

static LogicalResult lowerClusterWait(ClusterWaitOp op, ClusterWaitOp::Adaptor, Rewriter &rewriter,
                                      const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::ClusterWaitOp>(op, rewriter.getUnitAttr());
  return success();
}

static LogicalResult lowerGridWait(GridWaitOp op, GridWaitOp::Adaptor, Rewriter &rewriter, const Types &) {
  createPtx(rewriter, op.getLoc(), {}, "griddepcontrol.wait;", "", {});
  rewriter.eraseOp(op);
  return success();
}

/// Arrivals count up to `ctas`, departures on to 2 * ctas - 1 and from there to 0: nobody waits to clear it.
static LogicalResult lowerGridBarrier(GridBarrierOp op, GridBarrierOp::Adaptor in, Rewriter &rewriter,
                                      const Types &) {
  createPtx(rewriter, op.getLoc(), {},
            "{ .reg .pred %more; .reg .u32 %seen, %last;\n"
            "shl.b32 %last, $1, 1; sub.u32 %last, %last, 1;\n"
            "red.release.gpu.global.inc.u32 [$0], %last;\n"
            "ASK: ld.acquire.gpu.global.u32 %seen, [$0];\n"
            "setp.lo.u32 %more, %seen, $1;\n"
            "@%more bra ASK;\n"
            "red.relaxed.gpu.global.inc.u32 [$0], %last; }",
            "l,r", {in.getCounter(), in.getCtas()});
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult lowerGridLaunch(GridLaunchOp op, GridLaunchOp::Adaptor, Rewriter &rewriter,
                                     const Types &) {
  createPtx(rewriter, op.getLoc(), {}, "griddepcontrol.launch_dependents;", "", {});
  rewriter.eraseOp(op);
  return success();
}

/// The base plus 0 from the values, by way of a register that is 0 in every launch but not known to be: grids
/// have one row of blocks.
static LogicalResult lowerAfter(AfterOp op, AfterOp::Adaptor in, Rewriter &rewriter, const Types &) {
  Location loc = op.getLoc();
  Type i32 = rewriter.getI32Type();
  Value bits;
  for (Value value : in.getValues()) {
    Value each = value.getType().isF32() ? LLVM::BitcastOp::create(rewriter, loc, i32, value) : value;
    bits = bits ? LLVM::OrOp::create(rewriter, loc, bits, each) : each;
  }
  Value row = NVVM::BlockIdYOp::create(rewriter, loc, i32);
  Value zero = LLVM::AndOp::create(rewriter, loc, bits, row);
  rewriter.replaceOpWithNewOp<LLVM::GEPOp>(op, in.getBase().getType(), rewriter.getI8Type(), in.getBase(),
                                           ValueRange{zero});
  return success();
}

static LogicalResult lowerGlobalTimer(GlobalTimerOp op, GlobalTimerOp::Adaptor, Rewriter &rewriter,
                                      const Types &) {
  auto ptx = createPtx(rewriter, op.getLoc(), rewriter.getI64Type(), "mov.u64 $0, %globaltimer;", "=l", {});
  rewriter.replaceOp(op, ptx);
  return success();
}

//===-- mbarriers ---------------------------------------------------------===//

/// The pass has checked that the scope is one of these.
static NVVM::MemScopeKind mbarrierScope(Scope scope) {
  return scope == Scope::Cta ? NVVM::MemScopeKind::CTA : NVVM::MemScopeKind::CLUSTER;
}

static LogicalResult lowerMbarrierInit(MbarrierInitOp op, MbarrierInitOp::Adaptor in, Rewriter &rewriter,
                                       const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::MBarrierInitOp>(op, in.getBarrier(), in.getCount(),
                                                    /*predicate=*/Value());
  return success();
}

static LogicalResult lowerMbarrierArrive(MbarrierArriveOp op, MbarrierArriveOp::Adaptor in,
                                         Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::MBarrierArriveOp>(op, TypeRange{}, in.getBarrier(), /*count=*/Value(),
                                                      mbarrierScope(op.getScope()));
  return success();
}

static LogicalResult lowerMbarrierExpect(MbarrierExpectOp op, MbarrierExpectOp::Adaptor in,
                                         Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::MBarrierArriveExpectTxOp>(op, TypeRange{}, in.getBarrier(), in.getBytes(),
                                                              NVVM::MemScopeKind::CTA, /*relaxed=*/false,
                                                              /*predicate=*/Value());
  return success();
}

/// try_wait may give up after a while, so it is asked until the phase is over:
///
///     ^head: br ^ask
///     ^ask:  %done = nvvm.mbarrier.try_wait …; cond_br %done, ^rest, ^ask
///     ^rest: …
static LogicalResult lowerMbarrierWait(MbarrierWaitOp op, MbarrierWaitOp::Adaptor in, Rewriter &rewriter,
                                       const Types &) {
  Location loc = op.getLoc();
  Block *head = op->getBlock();
  Block *rest = rewriter.splitBlock(head, op->getIterator());
  Block *ask = rewriter.createBlock(rest);
  Value done =
      NVVM::MBarrierTryWaitOp::create(rewriter, loc, rewriter.getI1Type(), in.getBarrier(), in.getParity(),
                                      /*ticks=*/Value(), mbarrierScope(op.getScope()));
  LLVM::CondBrOp::create(rewriter, loc, done, rest, ask);
  rewriter.setInsertionPointToEnd(head);
  LLVM::BrOp::create(rewriter, loc, ask);
  rewriter.eraseOp(op);
  return success();
}

//===-- Bulk copies -------------------------------------------------------===//

/// A copy whose bytes leave the L2 first, where it is read `once`: streams then leave there what is read
/// again.
static void createCopy(Rewriter &rewriter, Location loc, bool once, const std::string &instruction,
                       const std::string &addresses, StringRef constraints, ValueRange operands) {
  std::string text = instruction + " " + addresses + ";";
  if (once)
    text = "{ .reg .b64 %policy;\ncreatepolicy.fractional.L2::evict_first.b64 %policy, 1.0;\n" + instruction +
           ".L2::cache_hint " + addresses + ", %policy; }";
  createPtx(rewriter, loc, {}, text, constraints, operands);
}

/// The own CTA's shared memory is part of the cluster's: its addresses are valid as shared::cluster ones.
static LogicalResult lowerBulkLoad(BulkLoadOp op, BulkLoadOp::Adaptor in, Rewriter &rewriter, const Types &) {
  createCopy(rewriter, op.getLoc(), op.getOnce(),
             "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "[$0], [$1], $2, [$3]",
             "r,l,r,r", {in.getDst(), in.getSrc(), in.getBytes(), in.getBarrier()});
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult lowerPrefetch(PrefetchOp op, PrefetchOp::Adaptor in, Rewriter &rewriter, const Types &) {
  createCopy(rewriter, op.getLoc(), /*once=*/true, "cp.async.bulk.prefetch.L2.global", "[$0], $1", "l,r",
             {in.getSrc(), in.getBytes()});
  rewriter.eraseOp(op);
  return success();
}

/// A tensor map is named by its generic address.
static Value genericAddress(Value global, Location loc, Rewriter &rewriter) {
  return LLVM::AddrSpaceCastOp::create(rewriter, loc, LLVM::LLVMPointerType::get(rewriter.getContext()),
                                       global);
}

static LogicalResult lowerTensorLoad(TensorLoadOp op, TensorLoadOp::Adaptor in, Rewriter &rewriter,
                                     const Types &) {
  size_t rank = in.getCoordinates().size();
  SmallVector<Value> operands = {in.getDst(), genericAddress(in.getMap(), op.getLoc(), rewriter),
                                 in.getBarrier()};
  llvm::append_range(operands, in.getCoordinates());
  std::string instruction = llvm::formatv(
      "cp.async.bulk.tensor.{0}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", rank);
  static constexpr const char *places[] = {"[$0], [$1, {$3, $4}], [$2]", "[$0], [$1, {$3, $4, $5}], [$2]",
                                           "[$0], [$1, {$3, $4, $5, $6}], [$2]"};
  static constexpr const char *constraints[] = {"r,l,r,r,r", "r,l,r,r,r,r", "r,l,r,r,r,r,r"};
  createCopy(rewriter, op.getLoc(), op.getOnce(), instruction, places[rank - 2], constraints[rank - 2],
             operands);
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult lowerTensorMapAcquire(TensorMapAcquireOp op, TensorMapAcquireOp::Adaptor in,
                                           Rewriter &rewriter, const Types &) {
  createPtx(rewriter, op.getLoc(), {}, "fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", "l",
            genericAddress(in.getMap(), op.getLoc(), rewriter));
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult lowerBulkPush(BulkPushOp op, BulkPushOp::Adaptor in, Rewriter &rewriter, const Types &) {
  createPtx(rewriter, op.getLoc(), {},
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
            "r,r,r,r", {in.getDst(), in.getSrc(), in.getBytes(), in.getBarrier()});
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult lowerStoreAsync(StoreAsyncOp op, StoreAsyncOp::Adaptor in, Rewriter &rewriter,
                                     const Types &) {
  auto vector = dyn_cast<VectorType>(op.getValue().getType());
  unsigned words = vector ? vector.getNumElements() : 1;
  SmallVector<Value> operands = {in.getAddress(), in.getBarrier()};
  for (unsigned i = 0; vector && i != words; ++i)
    operands.push_back(LLVM::ExtractElementOp::create(rewriter, op.getLoc(), in.getValue(),
                                                      constantI32(rewriter, op.getLoc(), i)));
  if (!vector)
    operands.push_back(in.getValue());
  StringRef value = words == 1   ? ".b32 [$0], $2"
                    : words == 2 ? ".v2.b32 [$0], {$2, $3}"
                                 : ".v4.b32 [$0], {$2, $3, $4, $5}";
  createPtx(rewriter, op.getLoc(), {},
            "st.async.shared::cluster.mbarrier::complete_tx::bytes" + value + ", [$1];",
            words == 1   ? "r,r,r"
            : words == 2 ? "r,r,r,r"
                         : "r,r,r,r,r,r",
            operands);
  rewriter.eraseOp(op);
  return success();
}

//===-- Words that other CTAs wait for ------------------------------------===//

static LogicalResult lowerStoreRelaxed(StoreRelaxedOp op, StoreRelaxedOp::Adaptor in, Rewriter &rewriter,
                                       const Types &) {
  SmallVector<Value> operands = {in.getAddress()};
  for (unsigned i = 0; i != 4; ++i)
    operands.push_back(LLVM::ExtractElementOp::create(rewriter, op.getLoc(), in.getValue(),
                                                      constantI32(rewriter, op.getLoc(), i)));
  createPtx(rewriter, op.getLoc(), {}, "st.relaxed.gpu.global.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r",
            operands);
  rewriter.eraseOp(op);
  return success();
}

/// All loads, then each again for as long as a word of it is 0.
static LogicalResult lowerAwaitWords(AwaitWordsOp op, AwaitWordsOp::Adaptor in, Rewriter &rewriter,
                                     const Types &) {
  Location loc = op.getLoc();
  unsigned count = op.getNumResults();
  std::string loads, asks, constraints;
  for (unsigned i = 0; i != count; ++i) {
    unsigned w = 4 * i;
    std::string words = llvm::formatv("{0}${2}, ${3}, ${4}, ${5}{1}", "{", "}", w, w + 1, w + 2, w + 3).str();
    std::string load =
        llvm::formatv("ld.relaxed.gpu.global.v4.b32 {0}, [${1}];\n", words, 4 * count + i).str();
    loads += load;
    asks += llvm::formatv("ASK{0}: min.u32 %low, ${1}, ${2};\n"
                          "min.u32 %low, %low, ${3};\nmin.u32 %low, %low, ${4};\n"
                          "setp.ne.u32 %there, %low, 0;\n@%there bra END{0};\n{5}bra ASK{0};\nEND{0}:\n",
                          i, w, w + 1, w + 2, w + 3, load)
                .str();
    constraints += "=&r,=&r,=&r,=&r,";
  }
  for (unsigned i = 0; i != count; ++i)
    constraints += i ? ",l" : "l";
  SmallVector<Type> registers(4 * count, rewriter.getI32Type());
  auto type = LLVM::LLVMStructType::getLiteral(rewriter.getContext(), registers);
  auto ptx = createPtx(rewriter, loc, type, "{ .reg .pred %there; .reg .u32 %low;\n" + loads + asks + "}",
                       constraints, in.getAddresses());
  SmallVector<Value> results;
  for (unsigned i = 0; i != count; ++i) {
    Value vector = LLVM::PoisonOp::create(rewriter, loc, VectorType::get(4, rewriter.getI32Type()));
    for (unsigned k = 0; k != 4; ++k) {
      Value word = LLVM::ExtractValueOp::create(rewriter, loc, ptx.getResult(0), 4 * i + k);
      vector = LLVM::InsertElementOp::create(rewriter, loc, vector, word, constantI32(rewriter, loc, k));
    }
    results.push_back(vector);
  }
  rewriter.replaceOp(op, results);
  return success();
}

static LogicalResult lowerBulkStore(BulkStoreOp op, BulkStoreOp::Adaptor in, Rewriter &rewriter,
                                    const Types &) {
  createPtx(rewriter, op.getLoc(), {}, "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", "l,r,r",
            {in.getDst(), in.getSrc(), in.getBytes()});
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult lowerBulkCommit(BulkCommitOp op, BulkCommitOp::Adaptor, Rewriter &rewriter,
                                     const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::CpAsyncBulkCommitGroupOp>(op);
  return success();
}

static LogicalResult lowerBulkWait(BulkWaitOp op, BulkWaitOp::Adaptor, Rewriter &rewriter, const Types &) {
  rewriter.replaceOpWithNewOp<NVVM::CpAsyncBulkWaitGroupOp>(op, op.getPending(), /*read=*/UnitAttr());
  return success();
}

//===-- Warp collectives --------------------------------------------------===//

static LogicalResult lowerShuffle(ShuffleOp op, ShuffleOp::Adaptor in, Rewriter &rewriter, const Types &) {
  auto kind = op.getMode() == ShuffleMode::Xor ? NVVM::ShflKind::bfly : NVVM::ShflKind::idx;
  Value allLanes = constantI32(rewriter, op.getLoc(), -1);
  Value lastLane = constantI32(rewriter, op.getLoc(), 31);
  rewriter.replaceOpWithNewOp<NVVM::ShflOp>(op, op.getType(), allLanes, in.getValue(), in.getLane(), lastLane,
                                            kind,
                                            /*return_value_and_is_valid=*/UnitAttr());
  return success();
}

static SmallVector<Value> unpack(Location loc, Value structure, unsigned count, Rewriter &rewriter) {
  SmallVector<Value> values;
  for (unsigned i = 0; i != count; ++i)
    values.push_back(LLVM::ExtractValueOp::create(rewriter, loc, structure, i));
  return values;
}

static LogicalResult lowerLdmatrix(LdmatrixOp op, LdmatrixOp::Adaptor in, Rewriter &rewriter, const Types &) {
  MLIRContext *context = rewriter.getContext();
  unsigned count = op.getNumResults();
  SmallVector<Type> registers(count, rewriter.getI32Type());
  Type type = count == 1 ? registers.front() : LLVM::LLVMStructType::getLiteral(context, registers);
  Value loaded =
      NVVM::LdMatrixOp::create(rewriter, op.getLoc(), type, in.getAddress(), count,
                               op.getTrans() ? NVVM::MMALayout::col : NVVM::MMALayout::row,
                               NVVM::LdStMatrixShapeAttr::get(context, 8, 8), NVVM::LdStMatrixEltType::B16);
  if (count == 1)
    rewriter.replaceOp(op, loaded);
  else
    rewriter.replaceOp(op, unpack(op.getLoc(), loaded, count, rewriter));
  return success();
}

static LogicalResult lowerMovmatrix(MovmatrixOp op, MovmatrixOp::Adaptor in, Rewriter &rewriter,
                                    const Types &) {
  auto ptx = createPtx(rewriter, op.getLoc(), rewriter.getI32Type(),
                       "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r", in.getValue());
  rewriter.replaceOp(op, ptx);
  return success();
}

static LogicalResult lowerMma(MmaOp op, MmaOp::Adaptor in, Rewriter &rewriter, const Types &) {
  Location loc = op.getLoc();
  bool isF16 = op.getType() == MmaType::F16;
  SmallVector<Value> a(in.getA()), b(in.getB());
  // The intrinsic takes f16 registers as vectors and bf16 registers as integers.
  auto pair = VectorType::get(2, rewriter.getF16Type());
  if (isF16)
    for (SmallVector<Value> *operands : {&a, &b})
      for (Value &value : *operands)
        value = LLVM::BitcastOp::create(rewriter, loc, pair, value);
  SmallVector<Type> f32(4, rewriter.getF32Type());
  auto type = LLVM::LLVMStructType::getLiteral(rewriter.getContext(), f32);
  NVVM::MMATypes operand = isF16 ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  Value sum = NVVM::MmaOp::create(rewriter, loc, type, a, b, in.getC(), ArrayRef<int64_t>{16, 8, 16},
                                  std::nullopt, std::nullopt, std::array{operand, operand},
                                  std::array{NVVM::MMALayout::row, NVVM::MMALayout::col});
  rewriter.replaceOp(op, unpack(loc, sum, 4, rewriter));
  return success();
}

//===-- Approximate functions ---------------------------------------------===//

static void replaceByIntrinsic(Operation *op, StringRef name, Value value, Rewriter &rewriter) {
  rewriter.replaceOpWithNewOp<LLVM::CallIntrinsicOp>(op, rewriter.getF32Type(), rewriter.getStringAttr(name),
                                                     value);
}

static LogicalResult lowerExp2(Exp2Op op, Exp2Op::Adaptor in, Rewriter &rewriter, const Types &) {
  replaceByIntrinsic(op, "llvm.nvvm.ex2.approx.ftz.f32", in.getValue(), rewriter);
  return success();
}

static LogicalResult lowerLog2(Log2Op op, Log2Op::Adaptor in, Rewriter &rewriter, const Types &) {
  replaceByIntrinsic(op, "llvm.nvvm.lg2.approx.ftz.f", in.getValue(), rewriter);
  return success();
}

static LogicalResult lowerRsqrt(RsqrtOp op, RsqrtOp::Adaptor in, Rewriter &rewriter, const Types &) {
  replaceByIntrinsic(op, "llvm.nvvm.rsqrt.approx.ftz.f", in.getValue(), rewriter);
  return success();
}

//===-- Numbers of 8 bits ---------------------------------------------------===//

static Value callIntrinsic(Rewriter &rewriter, Location loc, Type type, StringRef name, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(rewriter, loc, type, rewriter.getStringAttr(name), operands)
      .getResult(0);
}

static LogicalResult lowerUnpackE4m3(UnpackE4m3Op op, UnpackE4m3Op::Adaptor in, Rewriter &rewriter,
                                     const Types &) {
  Location loc = op.getLoc();
  Value pair = callIntrinsic(rewriter, loc, VectorType::get(2, rewriter.getF16Type()),
                             "llvm.nvvm.e4m3x2.to.f16x2.rn", in.getValue());
  if (op.getType() == MmaType::Bf16) {
    auto wide = [&](int32_t i) -> Value {
      Value half = LLVM::ExtractElementOp::create(rewriter, loc, pair, constantI32(rewriter, loc, i));
      return LLVM::FPExtOp::create(rewriter, loc, rewriter.getF32Type(), half);
    };
    pair = callIntrinsic(rewriter, loc, VectorType::get(2, rewriter.getBF16Type()), "llvm.nvvm.ff2bf16x2.rn",
                         {wide(1), wide(0)});
  }
  rewriter.replaceOpWithNewOp<LLVM::BitcastOp>(op, rewriter.getI32Type(), pair);
  return success();
}

/// The instruction takes the upper one first.
static LogicalResult lowerPackE4m3(PackE4m3Op op, PackE4m3Op::Adaptor in, Rewriter &rewriter, const Types &) {
  rewriter.replaceOp(op, callIntrinsic(rewriter, op.getLoc(), rewriter.getI16Type(),
                                       "llvm.nvvm.ff.to.e4m3x2.rn", {in.getHi(), in.getLo()}));
  return success();
}

//===-- All of them -------------------------------------------------------===//

void addPtxLowerings(RewritePatternSet &patterns, const Types &types) {
  addLowering(patterns, types, lowerRegister<ThreadIdOp, NVVM::ThreadIdXOp>);
  addLowering(patterns, types, lowerRegister<CtaRankOp, NVVM::ClusterId>);
  addLowering(patterns, types, lowerRegister<ClusterIdOp, NVVM::ClusterIdXOp>);
  addLowering(patterns, types, lowerRegister<NumClustersOp, NVVM::ClusterDimXOp>);
  addLowering(patterns, types, lowerMapRank);
  addLowering(patterns, types, lowerAtomic);
  addLowering(patterns, types, lowerFenceProxy);
  addLowering(patterns, types, lowerFenceInit);
  addLowering(patterns, types, lowerBarrier);
  addLowering(patterns, types, lowerSyncWarp);
  addLowering(patterns, types, lowerClusterArrive);
  addLowering(patterns, types, lowerClusterWait);
  addLowering(patterns, types, lowerGridWait);
  addLowering(patterns, types, lowerGridLaunch);
  addLowering(patterns, types, lowerGridBarrier);
  addLowering(patterns, types, lowerGlobalTimer);
  addLowering(patterns, types, lowerAfter);
  addLowering(patterns, types, lowerMbarrierInit);
  addLowering(patterns, types, lowerMbarrierArrive);
  addLowering(patterns, types, lowerMbarrierExpect);
  addLowering(patterns, types, lowerMbarrierWait);
  addLowering(patterns, types, lowerBulkLoad);
  addLowering(patterns, types, lowerPrefetch);
  addLowering(patterns, types, lowerTensorLoad);
  addLowering(patterns, types, lowerTensorMapAcquire);
  addLowering(patterns, types, lowerBulkPush);
  addLowering(patterns, types, lowerStoreAsync);
  addLowering(patterns, types, lowerStoreRelaxed);
  addLowering(patterns, types, lowerAwaitWords);
  addLowering(patterns, types, lowerBulkStore);
  addLowering(patterns, types, lowerBulkCommit);
  addLowering(patterns, types, lowerBulkWait);
  addLowering(patterns, types, lowerShuffle);
  addLowering(patterns, types, lowerLdmatrix);
  addLowering(patterns, types, lowerMovmatrix);
  addLowering(patterns, types, lowerMma);
  addLowering(patterns, types, lowerExp2);
  addLowering(patterns, types, lowerLog2);
  addLowering(patterns, types, lowerRsqrt);
  addLowering(patterns, types, lowerUnpackE4m3);
  addLowering(patterns, types, lowerPackE4m3);
}

void registerNvvm(DialectRegistry &registry) { registry.insert<NVVM::NVVMDialect>(); }

} // namespace cfc::simt
