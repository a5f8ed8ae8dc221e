//===- SimtOps.td - The simt dialect: one GPU thread ----------------------===//
//
// What one thread of a kernel does, with nothing left to decide: loads and
// stores by memory space, mbarriers, bulk copies, warp collectives, fences.
// Control flow and arithmetic are scf, arith and math. `simt-to-nvvm` and
// `simt-to-emu` lower the same module for the GPU and for the emulator.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_SIMT_OPS
#define CFC_SIMT_OPS
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Simt_Dialect : Dialect {
  let name = "simt";
  let cppNamespace = "::cfc::simt";
  let summary = "One GPU thread: memory spaces, mbarriers, bulk copies, warp collectives";
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

class Simt_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::cfc::simt";
  let genSpecializedAttr = 0;
}
class Simt_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Simt_Dialect, info, mnemonic> {
  let assemblyFormat = "$value";
}

def Simt_Space : Simt_Enum<"Space", "memory space", [
  I32EnumAttrCase<"Global", 0, "global">,
  I32EnumAttrCase<"Shared", 1, "shared">,    // this CTA's shared memory
  I32EnumAttrCase<"Cluster", 2, "cluster">   // any CTA of the cluster: a mapped shared address
]>;
def Simt_Scope : Simt_Enum<"Scope", "who sees it", [
  I32EnumAttrCase<"Cta", 0, "cta">, I32EnumAttrCase<"Cluster", 1, "cluster">,
  I32EnumAttrCase<"Gpu", 2, "gpu">, I32EnumAttrCase<"System", 3, "sys">]>;
def Simt_Ordering : Simt_Enum<"Ordering", "memory order", [
  I32EnumAttrCase<"Relaxed", 0, "relaxed">, I32EnumAttrCase<"Acquire", 1, "acquire">,
  I32EnumAttrCase<"Release", 2, "release">, I32EnumAttrCase<"AcqRel", 3, "acq_rel">]>;
def Simt_Rmw : Simt_Enum<"Rmw", "read-modify-write", [
  I32EnumAttrCase<"Add", 0, "add">, I32EnumAttrCase<"Max", 1, "max">,
  I32EnumAttrCase<"Or", 2, "or">, I32EnumAttrCase<"Exch", 3, "exch">]>;
def Simt_ShuffleMode : Simt_Enum<"ShuffleMode", "which lane is read", [
  I32EnumAttrCase<"Xor", 0, "xor">, I32EnumAttrCase<"Idx", 1, "idx">]>;
def Simt_MmaType : Simt_Enum<"MmaType", "operand type of mma", [
  I32EnumAttrCase<"F16", 0, "f16">, I32EnumAttrCase<"Bf16", 1, "bf16">]>;
def Simt_ScopeAttr : Simt_EnumAttr<Simt_Scope, "scope">;
def Simt_OrderingAttr : Simt_EnumAttr<Simt_Ordering, "ordering">;
def Simt_RmwAttr : Simt_EnumAttr<Simt_Rmw, "rmw">;
def Simt_ShuffleModeAttr : Simt_EnumAttr<Simt_ShuffleMode, "shuffle_mode">;
def Simt_MmaTypeAttr : Simt_EnumAttr<Simt_MmaType, "mma_type">;

def Simt_Ptr : TypeDef<Simt_Dialect, "Ptr"> {
  let mnemonic = "ptr";
  let summary = "address in one memory space";
  let parameters = (ins EnumParameter<Simt_Space>:$space);
  let assemblyFormat = "`<` $space `>`";
  let extraClassDeclaration = [{
    bool isGlobal() const { return getSpace() == Space::Global; }
    bool isShared() const { return getSpace() == Space::Shared; }
    bool isCluster() const { return getSpace() == Space::Cluster; }
  }];
}
class Simt_PtrIn<string space> : Type<And<[CPred<"::llvm::isa<::cfc::simt::PtrType>($_self)">,
    CPred<"::llvm::cast<::cfc::simt::PtrType>($_self).is" # space # "()">]>, space # " pointer">;
def Simt_Global : Simt_PtrIn<"Global">;
def Simt_Shared : Simt_PtrIn<"Shared">, BuildableType<
    "::cfc::simt::PtrType::get($_builder.getContext(), ::cfc::simt::Space::Shared)">;
def Simt_Cluster : Simt_PtrIn<"Cluster">, BuildableType<
    "::cfc::simt::PtrType::get($_builder.getContext(), ::cfc::simt::Space::Cluster)">;
def Simt_SharedOrCluster : AnyTypeOf<[Simt_Shared, Simt_Cluster]>;
// 8- to 128-bit scalars and short vectors: what one ld or st moves.
def Simt_Word : AnyTypeOf<[I8, I16, I32, I64, F16, BF16, F32, F64, VectorOfLengthAndType<[2, 4, 8], [F16, BF16, F32, I32, I16]>]>;

class Simt_Op<string mnemonic, list<Trait> traits = []> : Op<Simt_Dialect, mnemonic, traits>;

//===-- Kernel ------------------------------------------------------------===//
def Simt_KernelOp : Simt_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove]> {
  let summary = "entry point: run by every thread of the grid";
  let description = [{
    Takes `(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)`.
    `threads`: block size in x; `cluster`: CTAs a cluster; `shared_bytes`:
    dynamic shared memory a CTA; `ctas_per_sm`: minimum CTAs an SM (bounds registers).
    The grid is `num_clusters * cluster` CTAs in x.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
    OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs,
    I32Attr:$threads, I32Attr:$cluster, I64Attr:$shared_bytes, I32Attr:$ctas_per_sm);
  let regions = (region AnyRegion:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
  }];
}
def Simt_ReturnOp : Simt_Op<"return", [Pure, Terminator, ParentOneOf<["KernelOp"]>]> {
  let summary = "end of a thread";
  let assemblyFormat = "attr-dict";
}

//===-- Who am I ----------------------------------------------------------===//
class Simt_Register<string mnemonic, string what> : Simt_Op<mnemonic, [Pure]> {
  let summary = what;
  let results = (outs I32:$result);
  let assemblyFormat = "attr-dict";
}
def Simt_ThreadIdOp : Simt_Register<"thread_id", "thread in its CTA (%tid.x)">;
def Simt_CtaRankOp : Simt_Register<"cta_rank", "CTA in its cluster (%cluster_ctarank)">;
def Simt_ClusterIdOp : Simt_Register<"cluster_id", "cluster in the grid (%clusterid.x)">;
def Simt_NumClustersOp : Simt_Register<"num_clusters", "clusters in the grid (%nclusterid.x)">;

def Simt_GlobalTimerOp : Simt_Op<"global_timer"> {
  let summary = "nanoseconds on a clock that all SMs share (%globaltimer)";
  let results = (outs I64:$result);
  let assemblyFormat = "attr-dict";
}

//===-- Addresses ---------------------------------------------------------===//
def Simt_SharedBaseOp : Simt_Op<"shared_base", [Pure]> {
  let summary = "start of this CTA's dynamic shared memory, aligned to 1024 bytes";
  let results = (outs Simt_Shared:$result);
  let assemblyFormat = "attr-dict";
}
def Simt_OffsetOp : Simt_Op<"offset", [Pure, AllTypesMatch<["base", "result"]>]> {
  let summary = "address `bytes` after `base`";
  let arguments = (ins Simt_Ptr:$base, AnyTypeOf<[I32, I64]>:$bytes);
  let results = (outs Simt_Ptr:$result);
  let assemblyFormat = "$base `,` $bytes attr-dict `:` type($base) `,` type($bytes)";
}
def Simt_AfterOp : Simt_Op<"after", [AllTypesMatch<["base", "result"]>]> {
  let summary = "the address `base`, known only when `values` are: the ldmatrix reads that they were made from are done";
  let description = [{
    An arrival at such an address comes after the reads, also in the eyes of bulk copies that wait for it: a proxy fence
    would in addition wait for everything else that the thread has under way. All lanes of the warp execute it.
  }];
  let arguments = (ins Simt_Ptr:$base, Variadic<AnyTypeOf<[I32, F32]>>:$values);
  let results = (outs Simt_Ptr:$result);
  let assemblyFormat = "$base `,` $values attr-dict `:` type($base) `,` type($values)";
}
def Simt_MapRankOp : Simt_Op<"map_rank", [Pure]> {
  let summary = "the same shared address in CTA `rank` of the cluster (mapa)";
  let arguments = (ins Simt_Shared:$base, I32:$rank);
  let results = (outs Simt_Cluster:$result);
  let assemblyFormat = "$base `,` $rank attr-dict";
}

//===-- Memory ------------------------------------------------------------===//
def Simt_LoadOp : Simt_Op<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "weak load; `global` also reads what a pointer stored in memory names (i64)";
  let arguments = (ins Simt_Ptr:$address);
  let results = (outs Simt_Word:$result);
  let assemblyFormat = "$address attr-dict `:` type($address) `->` type($result)";
}
def Simt_StoreOp : Simt_Op<"store", [MemoryEffects<[MemWrite]>]> {
  let summary = "weak store; remote where the address is in `cluster`";
  let arguments = (ins Simt_Word:$value, Simt_Ptr:$address);
  let assemblyFormat = "$value `,` $address attr-dict `:` type($value) `,` type($address)";
}
def Simt_StoreAsyncOp : Simt_Op<"store_async"> {
  let summary = "st.async: stores 4, 8 or 16 bytes in a CTA of the cluster and completes as many on `barrier` of that CTA";
  let description = [{
    Needs no fence and no arrival: whoever has waited for the barrier's phase, at cluster scope, sees the bytes. Until
    then nobody may touch them.
  }];
  let arguments = (ins AnyTypeOf<[I32, VectorOfLengthAndType<[2, 4], [I32]>]>:$value, Simt_Cluster:$address, Simt_Cluster:$barrier);
  let assemblyFormat = "$value `,` $address `,` $barrier attr-dict `:` type($value)";
}
def Simt_StoreRelaxedOp : Simt_Op<"store_relaxed", [MemoryEffects<[MemWrite]>]> {
  let summary = "st.relaxed.gpu of 16 bytes: words for which threads of other CTAs wait by await_words";
  let arguments = (ins VectorOfLengthAndType<[4], [I32]>:$value, Simt_Global:$address);
  let assemblyFormat = "$value `,` $address attr-dict `:` type($value) `,` type($address)";
}
def Simt_AwaitWordsOp : Simt_Op<"await_words"> {
  let summary = "waits until none of the four 32-bit words at any of `addresses` is 0, and gives them";
  let description = [{
    ld.relaxed.gpu: each word is there or is not; nothing else that its writer has done can be relied on. All loads are
    under way before the first is waited for. The program knows that the writers have started.
  }];
  let arguments = (ins Variadic<Simt_Global>:$addresses);
  let results = (outs Variadic<VectorOfLengthAndType<[4], [I32]>>:$results);
  let assemblyFormat = "$addresses attr-dict `:` type($addresses) `->` type($results)";
  let hasVerifier = 1;
}
def Simt_LoadPtrOp : Simt_Op<"load_ptr", [MemoryEffects<[MemRead]>]> {
  let summary = "loads a global address stored in global memory (8 bytes)";
  let arguments = (ins Simt_Global:$address);
  let results = (outs Simt_Global:$result);
  let assemblyFormat = "$address attr-dict `:` type($address) `->` type($result)";
}
def Simt_AtomicOp : Simt_Op<"atomic", [MemoryEffects<[MemRead, MemWrite]>, AllTypesMatch<["value", "result"]>]> {
  let summary = "atomic read-modify-write of i32, i64 or f32; gives the old value";
  let arguments = (ins Simt_RmwAttr:$kind, Simt_OrderingAttr:$ordering, Simt_ScopeAttr:$scope,
                       Simt_Ptr:$address, AnyTypeOf<[I32, I64, F32]>:$value);
  let results = (outs AnyTypeOf<[I32, I64, F32]>:$result);
  let assemblyFormat = "$kind $ordering $scope $address `,` $value attr-dict `:` type($address) `,` type($value)";
}

//===-- Fences and barriers -----------------------------------------------===//
class Simt_Sync<string mnemonic, string what, dag args = (ins), string format = "attr-dict"> : Simt_Op<mnemonic> {
  let summary = what;
  let arguments = args;
  let assemblyFormat = format;
}
def Simt_FenceOp : Simt_Sync<"fence", "fence.acq_rel at a scope", (ins Simt_ScopeAttr:$scope), "$scope attr-dict">;
def Simt_FenceProxyAsyncOp : Simt_Sync<"fence_proxy_async",
  "orders this thread's generic accesses to shared memory before later bulk copies (fence.proxy.async.shared::cta)">;
def Simt_FenceMbarrierInitOp : Simt_Sync<"fence_mbarrier_init",
  "makes mbarrier initialisation visible to the cluster (fence.mbarrier_init.release.cluster)">;
def Simt_BarrierOp : Simt_Sync<"barrier", "bar.sync of `threads` threads at named barrier `id`",
  (ins I32Attr:$id, I32Attr:$threads), "$id `,` $threads attr-dict">;
def Simt_SyncWarpOp : Simt_Sync<"syncwarp", "bar.warp.sync of all 32 lanes">;
def Simt_ClusterArriveOp : Simt_Sync<"cluster_arrive",
  "barrier.cluster.arrive.release.aligned; `relaxed`: orders nothing, enough behind a fence_mbarrier_init",
  (ins UnitAttr:$relaxed), "(`relaxed` $relaxed^)? attr-dict">;
def Simt_ClusterWaitOp : Simt_Sync<"cluster_wait", "barrier.cluster.wait.acquire.aligned">;
def Simt_GridBarrierOp : Simt_Op<"grid_barrier"> {
  let summary = "waits until a thread of each of `ctas` CTAs, the whole grid, has come here; release, then acquire, at gpu scope";
  let description = [{
    `counter` is a 32-bit word that is 0 before and after: it counts those that have come, then those that have gone on,
    and wraps (`red.inc`); so it serves one barrier of a launch. The launch is cooperative, so that all CTAs run at a time.
  }];
  let arguments = (ins Simt_Global:$counter, I32:$ctas);
  let assemblyFormat = "$counter `,` $ctas attr-dict `:` type($counter)";
}
def Simt_GridWaitOp : Simt_Sync<"grid_wait", "griddepcontrol.wait">;
def Simt_GridLaunchOp : Simt_Sync<"grid_launch", "griddepcontrol.launch_dependents">;

//===-- mbarriers ---------------------------------------------------------===//
def Simt_MbarrierInitOp : Simt_Sync<"mbarrier_init", "initialises a barrier for `count` arrivals a phase",
  (ins Simt_Shared:$barrier, I32:$count), "$barrier `,` $count attr-dict">;
def Simt_MbarrierArriveOp : Simt_Op<"mbarrier_arrive"> {
  let summary = "one arrival, release at `scope`; remote where the barrier is in `cluster`";
  let arguments = (ins Simt_ScopeAttr:$scope, Simt_SharedOrCluster:$barrier);
  let assemblyFormat = "$scope $barrier attr-dict `:` type($barrier)";
}
def Simt_MbarrierExpectOp : Simt_Sync<"mbarrier_arrive_expect_tx",
  "one arrival (release.cta) that also expects `bytes` of asynchronous copies in this phase",
  (ins Simt_Shared:$barrier, I32:$bytes), "$barrier `,` $bytes attr-dict">;
def Simt_MbarrierWaitOp : Simt_Sync<"mbarrier_wait",
  "blocks until the phase of `parity` (0 or 1, i32) has completed; acquire at `scope`",
  (ins Simt_ScopeAttr:$scope, Simt_Shared:$barrier, I32:$parity), "$scope $barrier `,` $parity attr-dict">;

//===-- Bulk copies: 16-byte aligned addresses and sizes --------------------===//
def Simt_BulkLoadOp : Simt_Sync<"bulk_load",
  "cp.async.bulk global to shared; completes `bytes` on `barrier`; `once`: nobody reads them again soon (evict first)",
  (ins Simt_Shared:$dst, Simt_Global:$src, I32:$bytes, Simt_Shared:$barrier, UnitAttr:$once),
  "$dst `,` $src `,` $bytes `,` $barrier (`once` $once^)? attr-dict `:` type($src)">;
def Simt_PrefetchOp : Simt_Sync<"prefetch", "cp.async.bulk.prefetch.L2: `bytes` from `src` on are read soon, once",
  (ins Simt_Global:$src, I32:$bytes), "$src `,` $bytes attr-dict `:` type($src)">;
def Simt_TensorLoadOp : Simt_Op<"tensor_load"> {
  let summary = "cp.async.bulk.tensor global to shared: the box of the tensor map at `map` whose first element is at `coordinates`";
  let description = [{
    2 to 4 coordinates, innermost first, in elements. Elements outside of the tensor are 0. Always completes the bytes of
    a whole box on `barrier`. `dst` is aligned to 1024 bytes where the map swizzles, else to 128. A map that memory
    holds must have been acquired by `tensor_map_acquire` in this thread. `once`: nobody reads the box again soon.
  }];
  let arguments = (ins Simt_Shared:$dst, Simt_Global:$map, Variadic<I32>:$coordinates, Simt_Shared:$barrier, UnitAttr:$once);
  let assemblyFormat = "$dst `,` $map `[` $coordinates `]` `,` $barrier (`once` $once^)? attr-dict `:` type($map)";
  let hasVerifier = 1;
}
def Simt_TensorMapAcquireOp : Simt_Sync<"tensor_map_acquire",
  "makes the tensor map at `map` (128 bytes), written before this kernel, visible to this thread's tensor_load (fence.proxy.tensormap::generic.acquire.gpu)",
  (ins Simt_Global:$map), "$map attr-dict `:` type($map)">;
def Simt_BulkPushOp : Simt_Sync<"bulk_push",
  "cp.async.bulk shared to another CTA's shared; completes `bytes` on that CTA's `barrier`",
  (ins Simt_Cluster:$dst, Simt_Shared:$src, I32:$bytes, Simt_Cluster:$barrier),
  "$dst `,` $src `,` $bytes `,` $barrier attr-dict">;
def Simt_BulkStoreOp : Simt_Sync<"bulk_store", "cp.async.bulk shared to global, in the current bulk group",
  (ins Simt_Global:$dst, Simt_Shared:$src, I32:$bytes), "$dst `,` $src `,` $bytes attr-dict `:` type($dst)">;
def Simt_BulkCommitOp : Simt_Sync<"bulk_commit", "closes the current bulk group">;
def Simt_BulkWaitOp : Simt_Sync<"bulk_wait", "waits until at most `pending` bulk groups are unfinished",
  (ins I32Attr:$pending), "$pending attr-dict">;

//===-- Warp collectives: all 32 lanes take part -----------------------------===//
def Simt_ShuffleOp : Simt_Op<"shuffle", [AllTypesMatch<["value", "result"]>]> {
  let summary = "reads `value` of lane (self xor `lane`) or of lane `lane`";
  let arguments = (ins Simt_ShuffleModeAttr:$mode, AnyTypeOf<[I32, F32]>:$value, I32:$lane);
  let results = (outs AnyTypeOf<[I32, F32]>:$result);
  let assemblyFormat = "$mode $value `,` $lane attr-dict `:` type($value)";
}
def Simt_LdmatrixOp : Simt_Op<"ldmatrix", [MemoryEffects<[MemRead]>]> {
  let summary = "loads 1, 2 or 4 8x8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8";
  let arguments = (ins Simt_Shared:$address, UnitAttr:$trans);
  let results = (outs Variadic<I32>:$results);
  let assemblyFormat = "(`trans` $trans^)? $address attr-dict `:` type($results)";
  let hasVerifier = 1;
}
def Simt_MovmatrixOp : Simt_Op<"movmatrix", []> {
  let summary = "transposes an 8x8 matrix of 16-bit elements held by the warp";
  let arguments = (ins I32:$value);
  let results = (outs I32:$result);
  let assemblyFormat = "$value attr-dict";
}
def Simt_MmaOp : Simt_Op<"mma", [AttrSizedOperandSegments]> {
  let summary = "mma.sync m16n8k16, A row-major (4 registers), B column-major (2), f32 accumulators (4)";
  let arguments = (ins Simt_MmaTypeAttr:$type, Variadic<I32>:$a, Variadic<I32>:$b, Variadic<F32>:$c);
  let results = (outs F32:$d0, F32:$d1, F32:$d2, F32:$d3);
  let assemblyFormat = "$type `a` `(` $a `)` `b` `(` $b `)` `c` `(` $c `)` attr-dict";
  let hasVerifier = 1;
}

//===-- Arithmetic that arith and math lack -----------------------------------===//
class Simt_Approx<string mnemonic, string what> : Simt_Op<mnemonic, [Pure]> {
  let summary = what;
  let arguments = (ins F32:$value);
  let results = (outs F32:$result);
  let assemblyFormat = "$value attr-dict";
}
def Simt_Exp2Op : Simt_Approx<"exp2", "ex2.approx.ftz.f32">;
def Simt_Log2Op : Simt_Approx<"log2", "lg2.approx.ftz.f32">;
def Simt_RsqrtOp : Simt_Approx<"rsqrt", "rsqrt.approx.ftz.f32">;
// Two numbers travel in one instruction: 16 bits of f8E4M3FN, the first in the low byte.
def Simt_UnpackE4m3Op : Simt_Op<"unpack_e4m3", [Pure]> {
  let summary = "two f8E4M3FN as a register of two f16 (cvt.rn.f16x2.e4m3x2) or, from there, of two bf16: exactly";
  let arguments = (ins Simt_MmaTypeAttr:$type, I16:$value);
  let results = (outs I32:$result);
  let assemblyFormat = "$type $value attr-dict";
}
def Simt_PackE4m3Op : Simt_Op<"pack_e4m3", [Pure]> {
  let summary = "two f32 as two f8E4M3FN: nearest even, beyond 448 to 448; NaN stays NaN (cvt.rn.satfinite.e4m3x2.f32)";
  let arguments = (ins F32:$lo, F32:$hi);
  let results = (outs I16:$result);
  let assemblyFormat = "$lo `,` $hi attr-dict";
}
def Simt_TrapOp : Simt_Sync<"trap", "aborts the kernel">;
#endif
