//===- SimtToEmu.cpp - simt to LLVM with calls into the emulator -----------===//
//
// Pass simt-to-emu. A kernel becomes a function of one thread: its registers
// (thread, rank, ...) are arguments, each op that touches memory or other
// threads is a call with the id of its location. Pointers of all spaces are host
// addresses. Control flow and arithmetic take MLIR's own way to LLVM.
//
//===----------------------------------------------------------------------===//
#include "runtime/emulator/SimtToEmu.h"
#include "dialects/simt/Simt.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cfc::emu {
#define GEN_PASS_DEF_SIMTTOEMU
#include "runtime/emulator/Passes.h.inc"
} // namespace cfc::emu

using namespace mlir;
using namespace cfc;

namespace {
/// Arguments of a lowered kernel, in the order of `emu::KernelFn`.
enum Argument : unsigned { kFiber, kTable, kWorkspace, kThread, kRank, kCluster, kNumClusters, kShared };

/// "file:line:col: simt.op"; the innermost file position where locations are nested.
std::string describe(Operation *op) {
  std::string where = "?";
  op->getLoc()->walk([&](Location loc) {
    auto file = dyn_cast<FileLineColLoc>(loc);
    if (!file)
      return WalkResult::advance();
    where = (file.getFilename().strref() + ":" + Twine(file.getLine()) + ":" + Twine(file.getColumn())).str();
    return WalkResult::interrupt();
  });
  return where + ": " + op->getName().getStringRef().str();
}

/// Lowers the simt ops of one kernel. Values of type !simt.ptr stay as they are behind casts until the end.
class KernelLowering {
public:
  KernelLowering(ModuleOp module, emu::LocationTable &locations)
      : module(module), locations(locations), b(module.getContext()), i32(b.getI32Type()),
        i64(b.getI64Type()), f32(b.getF32Type()), ptr(LLVM::LLVMPointerType::get(module.getContext())),
        none(LLVM::LLVMVoidType::get(module.getContext())) {}

  LogicalResult lower(simt::KernelOp kernel);

private:
  LogicalResult lowerOp(Operation *op);
  LogicalResult lowerMemory(Operation *op);
  LogicalResult lowerLoad(simt::LoadOp op);
  LogicalResult lowerStore(simt::StoreOp op);
  LogicalResult lowerAtomic(simt::AtomicOp op);
  LogicalResult lowerStoreAsync(simt::StoreAsyncOp op);
  LogicalResult lowerTensorLoad(simt::TensorLoadOp op);
  LogicalResult lowerLdmatrix(simt::LdmatrixOp op);
  LogicalResult lowerMma(simt::MmaOp op);
  LogicalResult lowerShuffle(simt::ShuffleOp op);

  Value constant(int64_t value) { return LLVM::ConstantOp::create(b, loc, i32, value); }
  template <typename Enum> Value constantOf(Enum value) { return constant(static_cast<int64_t>(value)); }
  Value slot(unsigned index) {
    return LLVM::GEPOp::create(b, loc, ptr, i32, scratch, ArrayRef<LLVM::GEPArg>{int32_t(index)});
  }
  Value native(Value value) {
    return isa<simt::PtrType>(value.getType())
               ? UnrealizedConversionCastOp::create(b, loc, ptr, value).getResult(0)
               : value;
  }
  Value asSimt(Value value, Type type) {
    return UnrealizedConversionCastOp::create(b, loc, type, value).getResult(0);
  }
  Value bits(Value value, Type type) {
    return value.getType() == type ? value : LLVM::BitcastOp::create(b, loc, type, value).getResult();
  }
  Value bits32(Value value) { return LLVM::ZExtOp::create(b, loc, i32, value); }
  /// Calls `cfc_emu_<name>(fiber, operands...)`, with the location's id at the end if `located`.
  Value call(StringRef name, Type result, ArrayRef<Value> operands, bool located = true);
  Value callRaw(StringRef name, Type result, ArrayRef<Value> operands);
  /// Replaces `op` by such a call without a result.
  LogicalResult replaceByCall(StringRef name, ArrayRef<Value> operands = {}) {
    call(name, none, operands);
    op->erase();
    return success();
  }
  LogicalResult replace(Value value) {
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
    return success();
  }
  LogicalResult replaceByArgument(unsigned index) { return replace(function.getArgument(index)); }

  ModuleOp module;
  emu::LocationTable &locations;
  OpBuilder b;
  Type i32, i64, f32, ptr, none;
  LLVM::LLVMFuncOp function;
  Value scratch; // 16 words on the thread's stack
  Operation *op = nullptr;
  Location loc = UnknownLoc::get(module.getContext());
};
} // namespace

Value KernelLowering::callRaw(StringRef name, Type result, ArrayRef<Value> operands) {
  std::string symbol = ("cfc_emu_" + name).str();
  auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(symbol);
  if (!callee) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    auto types = llvm::to_vector(ValueRange(operands).getTypes());
    callee = LLVM::LLVMFuncOp::create(b, module.getLoc(), symbol, LLVM::LLVMFunctionType::get(result, types));
  }
  auto call = LLVM::CallOp::create(b, loc, callee, ValueRange(operands));
  return call.getNumResults() ? call.getResult() : Value();
}

Value KernelLowering::call(StringRef name, Type result, ArrayRef<Value> operands, bool located) {
  SmallVector<Value> all = {function.getArgument(kFiber)};
  for (Value operand : operands)
    all.push_back(native(operand));
  if (located) {
    all.push_back(constant(locations.size()));
    locations.names.push_back(describe(op));
  }
  return callRaw(name, result, all);
}

//===-- Memory ------------------------------------------------------------===//
static StringRef spaceName(simt::Space space) {
  constexpr StringLiteral names[] = {"global", "shared", "cluster"};
  return names[static_cast<unsigned>(space)];
}

static simt::Space spaceOf(Value pointer) { return cast<simt::PtrType>(pointer.getType()).getSpace(); }

/// Bytes of a value that one instruction moves, or failure with a diagnostic.
static FailureOr<unsigned> accessBytes(Operation *op, Type type) {
  auto vector = dyn_cast<VectorType>(type);
  unsigned width =
      vector ? vector.getNumElements() * vector.getElementTypeBitWidth() : type.getIntOrFloatBitWidth();
  if (width > 128)
    return op->emitOpError("moves ") << width / 8 << " bytes; one access moves at most 16";
  return width / 8;
}

LogicalResult KernelLowering::lowerLoad(simt::LoadOp load) {
  Type type = load.getResult().getType();
  FailureOr<unsigned> bytes = accessBytes(load, type);
  if (failed(bytes))
    return failure();
  Value where = call(("load_" + spaceName(spaceOf(load.getAddress()))).str(), ptr,
                     {load.getAddress(), constant(*bytes)});
  return replace(LLVM::LoadOp::create(b, loc, type, where, *bytes));
}

LogicalResult KernelLowering::lowerStore(simt::StoreOp store) {
  FailureOr<unsigned> bytes = accessBytes(store, store.getValue().getType());
  if (failed(bytes))
    return failure();
  Value where = call(("store_" + spaceName(spaceOf(store.getAddress()))).str(), ptr,
                     {store.getAddress(), constant(*bytes)});
  LLVM::StoreOp::create(b, loc, store.getValue(), where, *bytes);
  store.erase();
  return success();
}

LogicalResult KernelLowering::lowerAtomic(simt::AtomicOp atomic) {
  Type type = atomic.getValue().getType();
  if (type.isF32() && atomic.getKind() == simt::Rmw::Or)
    return atomic.emitOpError("needs integers for 'or'");
  Type word = b.getIntegerType(type.getIntOrFloatBitWidth());
  Value value = bits(atomic.getValue(), word);
  if (word == i32)
    value = LLVM::ZExtOp::create(b, loc, i64, value);
  Value old = call("atomic", i64,
                   {atomic.getAddress(), value, constantOf(atomic.getKind()),
                    constantOf(atomic.getOrdering()), constantOf(atomic.getScope()),
                    constantOf(spaceOf(atomic.getAddress())), constant(type.isF32() ? 2 : type == i64)});
  if (word == i32)
    old = LLVM::TruncOp::create(b, loc, i32, old);
  return replace(bits(old, type));
}

LogicalResult KernelLowering::lowerStoreAsync(simt::StoreAsyncOp store) {
  FailureOr<unsigned> bytes = accessBytes(store, store.getValue().getType());
  if (failed(bytes))
    return failure();
  LLVM::StoreOp::create(b, loc, store.getValue(), scratch);
  return replaceByCall("store_async", {store.getAddress(), scratch, constant(*bytes), store.getBarrier()});
}

LogicalResult KernelLowering::lowerTensorLoad(simt::TensorLoadOp load) {
  SmallVector<Value> operands = {load.getDst(), load.getMap()};
  llvm::append_range(operands, load.getCoordinates());
  operands.resize(6, constant(0));
  operands.push_back(constant(load.getCoordinates().size()));
  operands.push_back(load.getBarrier());
  return replaceByCall("tensor_load", operands);
}

LogicalResult KernelLowering::lowerMemory(Operation *) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](simt::LoadOp load) { return lowerLoad(load); })
      .Case([&](simt::StoreOp store) { return lowerStore(store); })
      .Case([&](simt::StoreAsyncOp store) { return lowerStoreAsync(store); })
      .Case([&](simt::AtomicOp atomic) { return lowerAtomic(atomic); })
      .Case([&](simt::StoreRelaxedOp store) {
        Value where = call("store_relaxed", ptr, {store.getAddress()});
        LLVM::StoreOp::create(b, loc, store.getValue(), where, 16);
        return store.erase(), success();
      })
      .Case([&](simt::AwaitWordsOp await) {
        for (auto [address, result] : llvm::zip(await.getAddresses(), await.getResults())) {
          Value where = call("await_words", ptr, {address});
          result.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, result.getType(), where, 16));
        }
        return await.erase(), success();
      })
      .Case([&](simt::LoadPtrOp load) {
        Value where = call("load_global", ptr, {load.getAddress(), constant(8)});
        return replace(asSimt(LLVM::LoadOp::create(b, loc, ptr, where, 8), load.getType()));
      })
      .Case([&](simt::AfterOp after) {
        call("reads_done", none, {});
        return replace(after.getBase());
      })
      .Case([&](simt::OffsetOp offset) {
        Value bytes = offset.getBytes();
        if (bytes.getType() == i32)
          bytes = LLVM::SExtOp::create(b, loc, i64, bytes);
        Value address = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), native(offset.getBase()),
                                            ArrayRef<LLVM::GEPArg>{bytes});
        return replace(asSimt(address, offset.getType()));
      })
      .Case([&](simt::MapRankOp map) {
        return replace(asSimt(call("map_rank", ptr, {map.getBase(), map.getRank()}), map.getType()));
      })
      .Case([&](simt::BulkLoadOp copy) {
        return replaceByCall("bulk_load", {copy.getDst(), copy.getSrc(), copy.getBytes(), copy.getBarrier()});
      })
      .Case([&](simt::TensorLoadOp load) { return lowerTensorLoad(load); })
      .Case([&](simt::TensorMapAcquireOp acquire) {
        return replaceByCall("tensor_map_acquire", {acquire.getMap()});
      })
      .Case([&](simt::BulkPushOp copy) {
        return replaceByCall("bulk_push", {copy.getDst(), copy.getSrc(), copy.getBytes(), copy.getBarrier()});
      })
      .Case([&](simt::BulkStoreOp copy) {
        return replaceByCall("bulk_store", {copy.getDst(), copy.getSrc(), copy.getBytes()});
      })
      .Case([&](simt::BulkCommitOp) { return replaceByCall("bulk_commit"); })
      .Case([&](simt::BulkWaitOp wait) { return replaceByCall("bulk_wait", {constant(wait.getPending())}); })
      .Default([](Operation *op) { return op->emitOpError("has no lowering to the emulator"); });
}

//===-- Collectives -------------------------------------------------------===//
LogicalResult KernelLowering::lowerLdmatrix(simt::LdmatrixOp load) {
  call("ldmatrix", none,
       {load.getAddress(), constant(load.getNumResults()), constant(load.getTrans()), scratch});
  for (auto [i, result] : llvm::enumerate(load.getResults()))
    result.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, i32, slot(i)));
  load.erase();
  return success();
}

LogicalResult KernelLowering::lowerMma(simt::MmaOp mma) {
  unsigned index = 0;
  for (ValueRange part : {ValueRange(mma.getA()), ValueRange(mma.getB()), ValueRange(mma.getC())})
    for (Value value : part)
      LLVM::StoreOp::create(b, loc, value, slot(index++));
  call("mma", none, {scratch, constantOf(mma.getType())});
  for (auto [i, result] : llvm::enumerate(mma->getResults()))
    result.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, f32, slot(6 + i)));
  mma.erase();
  return success();
}

LogicalResult KernelLowering::lowerShuffle(simt::ShuffleOp shuffle) {
  Value result =
      call("shuffle", i32, {bits(shuffle.getValue(), i32), shuffle.getLane(), constantOf(shuffle.getMode())});
  return replace(bits(result, shuffle.getType()));
}

//===-- All ops -----------------------------------------------------------===//
LogicalResult KernelLowering::lowerOp(Operation *current) {
  op = current;
  loc = op->getLoc();
  b.setInsertionPoint(op);
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](simt::ThreadIdOp) { return replaceByArgument(kThread); })
      .Case([&](simt::CtaRankOp) { return replaceByArgument(kRank); })
      .Case([&](simt::ClusterIdOp) { return replaceByArgument(kCluster); })
      .Case([&](simt::NumClustersOp) { return replaceByArgument(kNumClusters); })
      .Case([&](simt::SharedBaseOp base) {
        return replace(asSimt(function.getArgument(kShared), base.getType()));
      })
      .Case([&](simt::FenceOp fence) { return replaceByCall("fence", {constantOf(fence.getScope())}); })
      .Case([&](simt::FenceProxyAsyncOp) { return replaceByCall("fence_proxy_async"); })
      .Case([&](simt::FenceMbarrierInitOp) { return replaceByCall("fence_mbarrier_init"); })
      .Case([&](simt::BarrierOp barrier) {
        return replaceByCall("barrier", {constant(barrier.getId()), constant(barrier.getThreads())});
      })
      .Case([&](simt::SyncWarpOp) { return replaceByCall("syncwarp"); })
      .Case([&](simt::ClusterArriveOp arrive) {
        return replaceByCall("cluster_arrive", {constant(arrive.getRelaxed())});
      })
      .Case([&](simt::ClusterWaitOp) { return replaceByCall("cluster_wait"); })
      .Case([&](simt::GridWaitOp) { return replaceByCall("grid_wait"); })
      .Case([&](simt::GridBarrierOp barrier) {
        return replaceByCall("grid_barrier", {barrier.getCounter(), barrier.getCtas()});
      })
      .Case([&](simt::GlobalTimerOp) { return replace(call("global_timer", b.getI64Type(), {})); })
      .Case([&](simt::GridLaunchOp) { return op->erase(), success(); })
      .Case([&](simt::PrefetchOp fetch) {
        return replaceByCall("prefetch", {fetch.getSrc(), fetch.getBytes()});
      })
      .Case([&](simt::MbarrierInitOp init) {
        return replaceByCall("mbarrier_init", {init.getBarrier(), init.getCount()});
      })
      .Case([&](simt::MbarrierArriveOp arrive) {
        bool inCluster = spaceOf(arrive.getBarrier()) == simt::Space::Cluster;
        return replaceByCall("mbarrier_arrive",
                             {arrive.getBarrier(), constantOf(arrive.getScope()), constant(inCluster)});
      })
      .Case([&](simt::MbarrierExpectOp expect) {
        return replaceByCall("mbarrier_expect", {expect.getBarrier(), expect.getBytes()});
      })
      .Case([&](simt::MbarrierWaitOp wait) {
        return replaceByCall("mbarrier_wait",
                             {wait.getBarrier(), wait.getParity(), constantOf(wait.getScope())});
      })
      .Case([&](simt::ShuffleOp shuffle) { return lowerShuffle(shuffle); })
      .Case([&](simt::LdmatrixOp load) { return lowerLdmatrix(load); })
      .Case([&](simt::MovmatrixOp move) { return replace(call("movmatrix", i32, {move.getValue()})); })
      .Case([&](simt::MmaOp mma) { return lowerMma(mma); })
      .Case([&](simt::Exp2Op exp) { return replace(callRaw("exp2", f32, {exp.getValue()})); })
      .Case([&](simt::Log2Op log) { return replace(callRaw("log2", f32, {log.getValue()})); })
      .Case([&](simt::RsqrtOp rsqrt) { return replace(callRaw("rsqrt", f32, {rsqrt.getValue()})); })
      .Case([&](simt::UnpackE4m3Op unpack) {
        return replace(
            callRaw("unpack_e4m3", i32, {bits32(unpack.getValue()), constantOf(unpack.getType())}));
      })
      .Case([&](simt::PackE4m3Op pack) {
        Value both = callRaw("pack_e4m3", i32, {pack.getLo(), pack.getHi()});
        return replace(LLVM::TruncOp::create(b, loc, pack.getType(), both));
      })
      .Case([&](simt::TrapOp) { return replaceByCall("trap"); })
      .Case([&](simt::ReturnOp) {
        LLVM::ReturnOp::create(b, loc, ValueRange());
        op->erase();
        return success();
      })
      .Default([&](Operation *) { return lowerMemory(op); });
}

LogicalResult KernelLowering::lower(simt::KernelOp kernel) {
  loc = kernel.getLoc();
  b.setInsertionPoint(kernel);
  auto type = LLVM::LLVMFunctionType::get(none, {ptr, ptr, ptr, i32, i32, i32, i32, ptr});
  std::string name = kernel.getSymName().str();
  SymbolTable::setSymbolName(kernel, "cfc_emu_lowered");
  function = LLVM::LLVMFuncOp::create(b, loc, name, type);
  function.getBody().takeBody(kernel.getBody());
  Block &entry = function.getBody().front();
  // Its arguments were (table, workspace).
  b.setInsertionPointToStart(&entry);
  for (unsigned i = 0; i < type.getNumParams(); ++i)
    entry.addArgument(type.getParamType(i), loc);
  for (unsigned i = 0; i < 2; ++i) {
    Value old = entry.getArgument(i);
    old.replaceAllUsesWith(asSimt(entry.getArgument(2 + kTable + i), old.getType()));
  }
  entry.eraseArguments(0, 2);
  scratch = LLVM::AllocaOp::create(b, loc, ptr, i32, constant(16), /*alignment=*/16);
  kernel.erase();

  // A loop without an access would never let another thread run.
  function.walk([&](scf::WhileOp loop) {
    op = loop;
    loc = loop.getLoc();
    b.setInsertionPointToStart(&loop.getBefore().front());
    call("poll", none, {});
  });
  SmallVector<Operation *> ops;
  function.walk([&](Operation *nested) {
    if (isa_and_present<simt::SimtDialect>(nested->getDialect()))
      ops.push_back(nested);
  });
  for (Operation *nested : ops)
    if (failed(lowerOp(nested)))
      return failure();
  return success();
}

//===-- Control flow and arithmetic ---------------------------------------===//
/// A sum has the order and the rounding that were written.
static void dropFastMath(ModuleOp module) {
  auto none = arith::FastMathFlagsAttr::get(module.getContext(), arith::FastMathFlags::none);
  module.walk([&](arith::ArithFastMathInterface op) { op->setAttr(op.getFastMathAttrName(), none); });
}

static LogicalResult lowerScf(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateSCFToControlFlowConversionPatterns(patterns);
  ConversionTarget target(*module.getContext());
  target.addIllegalDialect<scf::SCFDialect>();
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  return applyPartialConversion(module, target, std::move(patterns));
}

static LogicalResult lowerRest(ModuleOp module) {
  MLIRContext *context = module.getContext();
  LowerToLLVMOptions options(context);
  LLVMTypeConverter types(context, options);
  types.addConversion([&](simt::PtrType) { return LLVM::LLVMPointerType::get(context); });
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  index::populateIndexToLLVMConversionPatterns(types, patterns);
  populateMathToLLVMConversionPatterns(types, patterns);
  populateVectorToLLVMConversionPatterns(types, patterns);
  ub::populateUBToLLVMConversionPatterns(types, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp, UnrealizedConversionCastOp>();
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return failure();
  SmallVector<UnrealizedConversionCastOp> casts, remaining;
  module.walk([&](UnrealizedConversionCastOp cast) { casts.push_back(cast); });
  reconcileUnrealizedCasts(ArrayRef<UnrealizedConversionCastOp>(casts), &remaining);
  if (!remaining.empty())
    return remaining.front().emitError("cannot convert ")
           << remaining.front().getOperandTypes() << " to " << remaining.front().getResultTypes();
  return success();
}

std::vector<emu::Kernel> emu::describeKernels(ModuleOp module) {
  std::vector<Kernel> kernels;
  module.walk([&](simt::KernelOp op) {
    Kernel &kernel = kernels.emplace_back();
    kernel.name = op.getSymName().str();
    kernel.threads = op.getThreads();
    kernel.cluster = op.getCluster();
    kernel.sharedBytes = op.getSharedBytes();
    op.walk([&](Operation *nested) {
      auto load = dyn_cast<simt::LoadOp>(nested);
      kernel.tracksWriters |=
          isa<simt::BulkLoadOp, simt::TensorLoadOp, simt::BulkPushOp, simt::BulkStoreOp>(nested) ||
          (load && cast<simt::PtrType>(load.getAddress().getType()).isCluster());
      kernel.tracksReaders |= isa<simt::BulkLoadOp, simt::TensorLoadOp, simt::BulkPushOp>(nested);
      kernel.waitsForGrid |= isa<simt::GridWaitOp>(nested);
      kernel.isCooperative |= isa<simt::GridBarrierOp>(nested);
    });
  });
  return kernels;
}

LogicalResult emu::lowerSimtToEmu(ModuleOp module, LocationTable &locations) {
  SmallVector<simt::KernelOp> kernels;
  module.walk([&](simt::KernelOp kernel) { kernels.push_back(kernel); });
  for (simt::KernelOp kernel : kernels)
    if (failed(KernelLowering(module, locations).lower(kernel)))
      return failure();
  dropFastMath(module);
  if (failed(lowerScf(module)) || failed(lowerRest(module)))
    return failure();
  return verify(module);
}

namespace {
struct SimtToEmu : emu::impl::SimtToEmuBase<SimtToEmu> {
  void runOnOperation() override {
    emu::LocationTable locations;
    if (failed(emu::lowerSimtToEmu(getOperation(), locations)))
      signalPassFailure();
  }
};
} // namespace
