//===- KernelOps.td - The kernel dialect: one fused kernel ------------------===//
//
// A kernel declares named axes of workers. A value has one state per axis:
// replicated, split along a dimension, or partial (a summand of a sum, a max
// or an online softmax). Only `exchange` (and `finish`, over the grid) changes
// a state. Every decision is visible here; nothing is decided below.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_KERNEL_OPS
#define CFC_KERNEL_OPS
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Kernel_Dialect : Dialect {
  let name = "kernel";
  let cppNamespace = "::cfc::kernel";
  let summary = "One fused kernel: axes, distributed tiles, streams and exchanges";
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = "void registerKernelTypes();";
}

class Kernel_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::cfc::kernel";
  let genSpecializedAttr = 0;
}
class Kernel_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Kernel_Dialect, info, mnemonic> {
  let assemblyFormat = "$value";
}
def Kernel_Level : Kernel_Enum<"Level", "scope that an axis' workers share", [
  I32EnumAttrCase<"Warp", 0, "warp">, I32EnumAttrCase<"Cta", 1, "cta">, I32EnumAttrCase<"Grid", 2, "grid">]>;
def Kernel_StateKind : Kernel_Enum<"StateKind", "state over an axis", [
  I32EnumAttrCase<"Split", 0, "split">, I32EnumAttrCase<"Sum", 1, "sum">,
  I32EnumAttrCase<"Max", 2, "max">, I32EnumAttrCase<"Softmax", 3, "softmax">]>;
def Kernel_ExchangeKind : Kernel_Enum<"ExchangeKind", "change of state over an axis", [
  I32EnumAttrCase<"Reduce", 0, "reduce">,                 // partial to replicated
  I32EnumAttrCase<"Gather", 1, "gather">,                 // split to replicated
  I32EnumAttrCase<"ReduceScatter", 2, "reduce_scatter">,  // partial to split
  I32EnumAttrCase<"AllToAll", 3, "all_to_all">]>;         // split along one dimension to split along another
def Kernel_Algorithm : Kernel_Enum<"Algorithm", "how an exchange is done", [
  I32EnumAttrCase<"Push", 0, "push">,            // cta: one round of remote stores
  I32EnumAttrCase<"Butterfly", 1, "butterfly">,  // cta: log2 N rounds of doubling
  I32EnumAttrCase<"Bulk", 2, "bulk">,            // cta: one round of bulk copies
  I32EnumAttrCase<"Ordered", 3, "ordered">,      // grid: partials in the workspace, the last arriver merges
  I32EnumAttrCase<"Atomic", 4, "atomic">,        // grid: atomic sums, the last arriver finishes
  I32EnumAttrCase<"Async", 5, "async">,          // cta: one round of remote stores that count themselves
  I32EnumAttrCase<"Scatter", 6, "scatter">]>;    // cta: a reduce by async stores in 2 rounds, part by part
def Kernel_Elementwise : Kernel_Enum<"ElementwiseKind", "elementwise operation", [
  I32EnumAttrCase<"Add", 0, "add">, I32EnumAttrCase<"Mul", 1, "mul">, I32EnumAttrCase<"Max", 2, "max">]>;
def Kernel_RopeStyle : Kernel_Enum<"RopeStyle", "which elements form a pair", [
  I32EnumAttrCase<"HalfSplit", 0, "half_split">,     // (i, i + dim / 2)
  I32EnumAttrCase<"Interleaved", 1, "interleaved">]>; // (2 i, 2 i + 1)
def Kernel_ExchangeKindAttr : Kernel_EnumAttr<Kernel_ExchangeKind, "exchange_kind">;
def Kernel_AlgorithmAttr : Kernel_EnumAttr<Kernel_Algorithm, "algorithm">;
def Kernel_ElementwiseAttr : Kernel_EnumAttr<Kernel_Elementwise, "elementwise_kind">;
def Kernel_RopeStyleAttr : Kernel_EnumAttr<Kernel_RopeStyle, "rope_style">;

def Kernel_Axis : AttrDef<Kernel_Dialect, "Axis"> {
  let mnemonic = "axis";
  let summary = "a named axis of `size` workers at a level";
  let parameters = (ins "::mlir::StringAttr":$name, "int64_t":$size, EnumParameter<Kernel_Level>:$level);
  let assemblyFormat = "`<` $name `,` $size `,` $level `>`";
}
def Kernel_State : AttrDef<Kernel_Dialect, "State"> {
  let mnemonic = "state";
  let summary = "what a value is over one axis: split along `dim`, or a summand";
  let parameters = (ins "::mlir::StringAttr":$axis, EnumParameter<Kernel_StateKind>:$kind, "int64_t":$dim);
  let assemblyFormat = "`<` $axis `,` $kind `,` $dim `>`";
  let extraClassDeclaration = [{ bool isPartial() const { return getKind() != StateKind::Split; } }];
}

//===-- Types -------------------------------------------------------------===//
class Kernel_Type<string name, string mnemonic_> : TypeDef<Kernel_Dialect, name> { let mnemonic = mnemonic_; }
class Kernel_Distributed<string name, string mnemonic_> : Kernel_Type<name, mnemonic_> {
  // Prints as <384x4096xf16, part: split(0), head: sum>; axes that are not named are replicated.
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType,
                        ArrayRefParameter<"::cfc::kernel::StateAttr">:$states);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    int64_t getNumElements() const {
      int64_t n = 1;
      for (int64_t d : getShape()) n *= d;
      return n;
    }
    unsigned getElementBytes() const { return getElementType().getIntOrFloatBitWidth() / 8; }
  }];
}
def Kernel_Tile : Kernel_Distributed<"Tile", "tile"> {
  let summary = "on-chip value; `shape` is the whole value, each worker holds its part";
}
def Kernel_Stream : Kernel_Distributed<"Stream", "stream"> {
  let summary = "weight matrix [rows, columns] that arrives tile by tile through the ring; consumed once, in order";
}
def Kernel_KvStream : Kernel_Type<"KvStream", "kv_stream"> {
  let summary = "cached K and V of one head, in segments of 64 tokens; groups of segments may be split over a cta axis";
  // Prints as <128, f16, part: split(0)>, or <128, v_dim = 64, f16> where V's rows have another length.
  let parameters = (ins "int64_t":$dim, "int64_t":$vDim, "::mlir::Type":$elementType,
                        ArrayRefParameter<"::cfc::kernel::StateAttr">:$states);
  let hasCustomAssemblyFormat = 1;
}
def Kernel_Cache : Kernel_Type<"Cache", "cache"> {
  let summary = "K and V rows in global memory, [block, head, token, dim] by run-time strides";
  let description = [{
    `<heads = 8, dim = 128, v_dim = 64, requests = 4, page = 16, f16>`; left out: v_dim = dim, one request, no pages. A
    block is a request's rows, or a page. Table entries: docs/design.md.
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$dim, "int64_t":$vDim, "int64_t":$requests, "int64_t":$page,
    "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// Whether tokens lie in pages (of `page` tokens; 0: they do not).
    bool isPaged() const { return getPage() != 0; }
    /// Whether there are several blocks: then entries 5 and 6 are stride_block and blocks.
    bool hasBlocks() const { return isPaged() || getRequests() > 1; }
    /// Whether V has strides of its own: the last three entries, v_stride_head, v_stride_token, v_stride_block.
    bool hasVStrides() const { return getVDim() != getDim(); }
    int64_t firstVStride() const { return hasBlocks() ? 7 : 5; }
  }];
}
def Kernel_Item : Kernel_Type<"Item", "item"> {
  let summary = "index of the work item at hand";
  }
def Kernel_Work : Kernel_Type<"Work", "work"> {
  let summary = "shares of the heads of all requests, one for each cluster (kernel.work_list)";
}
def Kernel_Mem : MemRefOf<[F16, BF16, F32, I32, I64]>;

class Kernel_Op<string mnemonic, list<Trait> traits = []> : Op<Kernel_Dialect, mnemonic, traits>;

//===-- Structure -----------------------------------------------------------===//
def Kernel_FuncOp : Kernel_Op<"func", [FunctionOpInterface, IsolatedFromAbove]> {
  let summary = "one kernel: axes(name = size @level, …) plan(key = value, …)";
  let description = [{
    Arguments are tensors in global memory (`memref`, row-major) and caches. Plan keys (i64):
    `ring_stages` (rounded up to a multiple of the sets of 4 consumer warps, which take tiles in turn) `in_flight` (of them, being copied at a time; 0 = all),
    `prefetch` (tiles behind the ring, of the first stream if its weights are packed, that go to the L2 once the kernel before has ended), `prefetch_later` (likewise of each stream of packed weights behind the first, as soon as all before it has been started), `held` (tiles of each set, of the first stream if those are weights times one token, that its warps keep in registers before the kernel before has ended, at most all but the last of its first rows: the ring then has as many more; `pdl` 1 or 2, and neither a sum over items nor a work list) and `tile_columns` (weights: columns of a ring tile; 0 = chosen), `ctas_per_sm`.
    `pdl`: how the kernel starts (programmatic dependent launch). 0: when the one before it has ended. 1: while that one runs; until it
    has ended only weights are streamed. 2: likewise, but cached tokens are streamed too, and lengths, slots, starts, masks and block tables read for
    it: it needs a kernel before it, and none of the file may write any of that, but for its own append behind the last of the tokens. 3: as soon as that one's CTAs end. `lets_next`: when the kernel lets the next one
    start, if that one's `pdl` is not 0. 0: when its CTAs end; 1: at once, which is the default where `pdl` is not 0; 2: when it has waited for
    the kernel before it, so that no other is left: what `pdl` = 2 of the next one needs, as does 0. The block has (warp axis + 1) warps: the last is the producer.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
    OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs,
    TypedArrayAttrBase<Kernel_Axis, "axes">:$axes, DictionaryAttr:$plan);
  let regions = (region AnyRegion:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
    /// The axis called `name`, or null.
    ::cfc::kernel::AxisAttr axis(::llvm::StringRef name);
    /// CTAs in a cluster: the product of the cta axes.
    int64_t clusterSize();
    /// Consumer warps: the product of the warp axes (4 where there is none).
    int64_t consumerWarps();
    /// Plan value `key`, or `fallback`.
    int64_t planValue(::llvm::StringRef key, int64_t fallback);
  }];
}
def Kernel_ReturnOp : Kernel_Op<"return", [Pure, Terminator, ParentOneOf<["FuncOp"]>]> {
  let summary = "end of a kernel";
  let assemblyFormat = "attr-dict";
}
def Kernel_YieldOp : Kernel_Op<"yield", [Pure, Terminator, ParentOneOf<["ForItemsOp", "FirstOp", "FinishOp", "ProducerOp"]>]> {
  let summary = "end of a region";
  let assemblyFormat = "attr-dict";
}
def Kernel_WorkListOp : Kernel_Op<"work_list", [MemoryEffects<[MemRead]>, AttrSizedOperandSegments]> {
  let summary = "shares out the cached tokens of all requests among the clusters that run, by the lengths in memory";
  let description = [{
    All work is a sequence of units: request by request, head by head, `groups` of segments each. A unit costs the segments
    of its group, the first one of a head three more. Of n clusters cluster i takes the units before which a cost from
    i / n to (i + 1) / n of the whole lies: some heads it has whole, at most two in part. Operands and `window` as of
    kernel.load_cache: what a window leaves out costs nothing. With `queries` there are `rows` query tokens, each of which has
    the heads of a request.
  }];
  let arguments = (ins Kernel_Cache:$cache, Kernel_Mem:$length, Optional<Kernel_Mem>:$slot, Optional<Kernel_Mem>:$queries,
                       DefaultValuedAttr<I64Attr, "0">:$rows, I64Attr:$bound, UnitAttr:$masked,
                       DefaultValuedAttr<I64Attr, "0">:$window, DefaultValuedAttr<I64Attr, "16">:$groups);
  let results = (outs Kernel_Work:$result);
  let assemblyFormat = "$cache `tokens` $length (`slot` $slot^)? (`queries` $queries^ `rows` $rows)? (`masked` $masked^)? `bound` $bound attr-dict `:` type(operands)";
  let hasVerifier = 1;
}
def Kernel_ForItemsOp : Kernel_Op<"for_items", [SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "runs the body for each item of a grid axis that this cluster takes";
  let description = [{
    `kernel.for_items %h, %share over head by %work`: for each head of a request of which this cluster has a share, and the
    share: a run of the head's groups of segments. Clusters are one CTA with 4 consumer warps.
  }];
  let arguments = (ins StrAttr:$axis, Optional<Kernel_Work>:$work);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Value getItem() { return getBody().getArgument(0); }
    /// With a work list: the share of the item.
    ::mlir::Value getShare() { return getWork() ? ::mlir::Value(getBody().getArgument(1)) : ::mlir::Value(); }
  }];
}

def Kernel_GridSyncOp : Kernel_Op<"grid_sync", []> {
  let summary = "every CTA waits until all CTAs of the grid have come here: what any has written, all may read behind it";
  let description = [{
    Stands outside of loops over items. The launch is cooperative: all its clusters run at a time. Streams go on: the ring
    is filled with what is consumed behind the barrier, so nothing of that may be written before it, nor rows of a cache appended
    that the stream takes: it ends before them where it has the append's slot. `counter` is a byte offset in the workspace.
  }];
  let arguments = (ins DefaultValuedAttr<I64Attr, "-1">:$counter);
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def Kernel_OuterOp : Kernel_Op<"outer", [Pure]> {
  let summary = "item / n, where n items in a row are the parts of one whole: the whole";
  let arguments = (ins Kernel_Item:$item, I64Attr:$of);
  let results = (outs Kernel_Item:$result);
  let assemblyFormat = "$item `of` $of attr-dict";
  let hasVerifier = 1;
}
def Kernel_InnerOp : Kernel_Op<"inner", [Pure]> {
  let summary = "item mod n, where n items in a row are the parts of one whole: which of them";
  let arguments = (ins Kernel_Item:$item, I64Attr:$of);
  let results = (outs Kernel_Item:$result);
  let assemblyFormat = "$item `of` $of attr-dict";
  let hasVerifier = 1;
}

def Kernel_FirstOp : Kernel_Op<"first", [SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "runs the body in the items that have the first part, %part = 0, of a whole: what is done once for each";
  let description = [{
    `%part` is a kernel.inner. The body may write to the kernel.outer of the same item.
  }];
  let arguments = (ins Kernel_Item:$part);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$part attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Kernel_ProducerOp : Kernel_Op<"producer", [SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "what the producer warp runs: the kernel's loops with the feeds of every stream, in the consumers' order";
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
}
def Kernel_FeedOp : Kernel_Op<"feed", []> {
  let summary = "copies the tiles of a stream into the ring; `slots` as in the matmul that takes them, `pieces` as in the kernel.finish that sums its rows, `heads`: query heads of the attend";
  let arguments = (ins AnyTypeOf<[Kernel_Stream, Kernel_KvStream]>:$stream, DefaultValuedAttr<I64Attr, "1">:$slots,
                       DefaultValuedAttr<I64Attr, "1">:$pieces, DefaultValuedAttr<I64Attr, "1">:$heads);
  let assemblyFormat = "$stream `slots` $slots (`pieces` $pieces^)? (`heads` $heads^)? attr-dict `:` type($stream)";
}

//===-- Global memory ---------------------------------------------------------===//
def Kernel_ReadOp : Kernel_Op<"read", [MemoryEffects<[MemRead]>, AttrSizedOperandSegments]> {
  let summary = "copies a tile from memory; `at %item`: elements [item * n, item * n + n) of the memory, n the tile's size";
  let description = [{
    Of several tokens, memory [tokens, width]: `rows` gives a tile [tokens, n], with zeros where it has more rows, and `columns` a
    tile [n, tokens]; n of the width's columns, from item * n on with `at %item`, zeros past the width. The tile's first token is the memory's `from`.

    Of several memories, one behind the other, item i has elements, or columns, [i * n, i * n + n) of all: each memory has a
    multiple of n, so they are those of one. Beside the kernel.load of the same panels these are biases:
    `kernel.read %b_q, %b_k at %i : memref<192xf16>, memref<64xf16> -> <64xf16>`.
  }];
  let arguments = (ins Variadic<Kernel_Mem>:$memories, Optional<Kernel_Item>:$item, UnitAttr:$rows, UnitAttr:$columns,
                       DefaultValuedAttr<I64Attr, "0">:$from);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$memories (`rows` $rows^)? (`columns` $columns^)? (`from` $from^)? (`at` $item^)? attr-dict `:` type($memories) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The memory, or the first of several.
    ::mlir::TypedValue<::mlir::MemRefType> getMemory() {
      return ::llvm::cast<::mlir::TypedValue<::mlir::MemRefType>>(getMemories().front());
    }
  }];
}
def Kernel_WriteOp : Kernel_Op<"write", [MemoryEffects<[MemWrite]>, AttrSizedOperandSegments]> {
  let summary = "copies a tile to memory, converting; elements past the memory's end are dropped; replicated: one worker writes; `rows`, `columns`, `from` and several memories as in kernel.read";
  let arguments = (ins Kernel_Tile:$tile, Variadic<Kernel_Mem>:$memories, Optional<Kernel_Item>:$item, UnitAttr:$rows,
                       UnitAttr:$columns, DefaultValuedAttr<I64Attr, "0">:$from);
  let assemblyFormat = "$tile `,` $memories (`rows` $rows^)? (`columns` $columns^)? (`from` $from^)? (`at` $item^)? attr-dict `:` type($tile) `,` type($memories)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The memory, or the first of several.
    ::mlir::TypedValue<::mlir::MemRefType> getMemory() {
      return ::llvm::cast<::mlir::TypedValue<::mlir::MemRefType>>(getMemories().front());
    }
  }];
}
def Kernel_LeaveOp : Kernel_Op<"leave", [MemoryEffects<[MemWrite]>]> {
  let summary = "leaves an online softmax in memory [heads, states, rows, dim + 2], at %head, for a kernel.merge_states";
  let description = [{
    `part %part`: that of a part of the head's tokens, state %part of the head. Else the one of the new tokens, in a kernel.first:
    the last state of the head. Each CTA stores what it has; of a whole softmax the first one of the cluster.
  }];
  let arguments = (ins Kernel_Tile:$state, Kernel_Mem:$memory, Kernel_Item:$head, Optional<Kernel_Item>:$part);
  let assemblyFormat = "$state `to` $memory `at` $head (`part` $part^)? attr-dict `:` type(operands)";
  let hasVerifier = 1;
}
def Kernel_MergeStatesOp : Kernel_Op<"merge_states", [MemoryEffects<[MemRead]>]> {
  let summary = "merges what kernel.leave left in memory [heads, states, rows, dim + 2]: tile [heads * rows, dim + 2]";
  let description = [{
    By the left-balanced tree over the states of each head; with `new_last` the last of them, the new tokens', behind the tree.
  }];
  let arguments = (ins Kernel_Mem:$memory, UnitAttr:$new_last);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$memory (`new_last` $new_last^)? attr-dict `:` type($memory) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// States of a head that the tree merges.
    int64_t numParts() { return ::llvm::cast<::mlir::MemRefType>(getMemory().getType()).getDimSize(1) - getNewLast(); }
  }];
}
def Kernel_LoadOp : Kernel_Op<"load", [MemoryEffects<[MemRead]>, AttrSizedOperandSegments]> {
  let summary = "streams rows of one or several weights [out, in]";
  let description = [{
    Stacks `rows[i]` rows of weight i. `at %item`: rows [item * rows[i], …) of each; `columns at %item`: all rows, columns
    [item * c, item * c + c) with c the stream's columns. Rows past a weight's end are not read and their results are undefined.

    With `panels` the rows of all weights, one weight behind the other, are cut into panels of R, the one number of `rows`:
    item i has rows [i * R, i * R + R) of all. Each weight has a multiple of R rows, so they are those of one. Of the four items of
    `kernel.load %w_q, %w_k rows [64] panels at %i : memref<192x128xf16>, memref<64x128xf16> -> <64x128xf16>`
    the last one has all of %w_k.
  }];
  let arguments = (ins Variadic<Kernel_Mem>:$weights, DenseI64ArrayAttr:$rows, UnitAttr:$columns, UnitAttr:$panels,
                       Optional<Kernel_Item>:$item);
  let results = (outs Kernel_Stream:$result);
  let assemblyFormat = "$weights `rows` $rows (`columns` $columns^)? (`panels` $panels^)? (`at` $item^)? attr-dict `:` type($weights) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_LoadCacheOp : Kernel_Op<"load_cache", [MemoryEffects<[MemRead]>, AttrSizedOperandSegments]> {
  let summary = "streams the first `length` cached tokens of head `item`; none where the request is idle (`slot` negative)";
  let description = [{
    Of a cache of several requests item r * heads + h is head h of request r, and `length` and `slot` have an element for each request.
    `pages` [requests, pages of a request] says where pages of a paged cache lie; one outside of the pool counts as the nearest in it.
    Segments of a head are 64 tokens, and lie in `groups` (16, 32, 64 or 128) of as many consecutive segments each (docs/design.md, "Order of sums").
    `chunk`, a kernel.inner: only that part of the groups; the head is then the kernel.outer of the same item.
    Or a share of the item (kernel.for_items … by %work).
    `window`, where it is not 0: of the cached tokens and the new one (where there is a slot) the last so many. Segments before
    them are not streamed, and the groups are cut over the others.
    `queries` [requests + 1]: of several query tokens a request, the first row of each request's, and the end of the last's. Item
    t * heads + h is head h for token t, whose request follows from them; `slot` has an element for each token. Without `slot`
    the cache holds the new tokens already: token i of n sees all but the last n - i - 1, or those that bit j of its element
    of `mask` says, of new token j.
    `scales`, f32 in memory, one or one for each head: attention multiplies K and V by them. A cache of f8E4M3FN has some.
  }];
  let arguments = (ins Kernel_Cache:$cache, Kernel_Mem:$length, Optional<Kernel_Mem>:$slot, Optional<Kernel_Mem>:$pages,
                       Optional<Kernel_Mem>:$queries, Optional<Kernel_Mem>:$mask, Optional<Kernel_Mem>:$k_scale, Optional<Kernel_Mem>:$v_scale,
                       Optional<Kernel_Item>:$item, Optional<Kernel_Item>:$chunk, I64Attr:$bound,
                       DefaultValuedAttr<I64Attr, "0">:$window, DefaultValuedAttr<I64Attr, "16">:$groups);
  let results = (outs Kernel_KvStream:$result);
  let assemblyFormat = "$cache `tokens` $length (`slot` $slot^)? (`pages` $pages^)? (`queries` $queries^)? (`mask` $mask^)? (`scales` $k_scale^ `,` $v_scale)? (`at` $item^)? (`chunk` $chunk^)? `bound` $bound attr-dict `:` type(operands) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Chunks of a head, each of an item.
    int64_t numChunks() { return getChunk() && !isShare() ? itemsOf(getChunk()) : 1; }
    /// Whether the tokens are those of a share of a work list.
    bool isShare() { return getChunk() && ::mlir::isa<::mlir::BlockArgument>(getChunk()); }
  }];
}
def Kernel_AppendOp : Kernel_Op<"append", [MemoryEffects<[MemWrite]>, AttrSizedOperandSegments]> {
  let summary = "stores a token's K and V of head `item` in row `slot`; a negative slot stores nothing";
  let description = [{
    Items, requests and `queries` are those of kernel.load_cache. In a paged cache slot p * page + i is row i of page p.
    What a cache of f8E4M3FN gets is a kernel.quantize.
  }];
  let arguments = (ins Kernel_Tile:$k, Kernel_Tile:$v, Kernel_Cache:$cache, Kernel_Mem:$slot, Optional<Kernel_Mem>:$queries,
                       Optional<Kernel_Item>:$item);
  let assemblyFormat = "$k `,` $v `to` $cache `slot` $slot (`queries` $queries^)? (`at` $item^)? attr-dict `:` type(operands)";
  let hasVerifier = 1;
}

//===-- Compute ------------------------------------------------------------===//
def Kernel_RmsNormOp : Kernel_Op<"rms_norm", [MemoryEffects<[MemRead]>, AttrSizedOperandSegments]> {
  let summary = "x * rsqrt(mean(x^2) + eps) * (offset + gain), rounded to the result's type; with `scale`, a kernel.rms_scale's result, of each row of x [tokens, n]";
  let description = [{
    `width`, where it is not 0: each so many elements of a tile [n] or [n, tokens] by themselves, with one gain of as many. `centered`: x without its
    mean, which is a layer norm; it may have no gain.
  }];
  let arguments = (ins Kernel_Tile:$x, Optional<Kernel_Mem>:$gain, Optional<Kernel_Tile>:$scale, F64Attr:$eps,
                       OptionalAttr<F64Attr>:$offset, DefaultValuedAttr<I64Attr, "0">:$width, UnitAttr:$centered);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$x (`,` $gain^)? (`scale` $scale^)? `eps` $eps attr-dict `:` type(operands) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_RmsScaleOp : Kernel_Op<"rms_scale", [Pure]> {
  let summary = "rsqrt(mean(row^2) + eps) of each row of x [tokens, n]: tile<tokens x f32>, whole or split(0) as x is";
  let arguments = (ins Kernel_Tile:$x, F64Attr:$eps);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$x `eps` $eps attr-dict `:` type($x) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_MatmulOp : Kernel_Op<"matmul", [Pure]> {
  let summary = "stream [rows, columns] times x [columns]; sums in `slots` slots merged by a tree (docs/design.md); x in f32 is rounded to the weights' type";
  let description = [{
    Of 2 to 64 tokens: times x [tokens, columns] in 16 bits, made by kernel.read, rms_norm, cast or elementwise, into [rows, tokens].
    Each token's sums have the bits that it has alone. With `parts` P the rows of stacked weights are dealt to P parts: first 1/P of
    each weight's rows, one weight after another, then the next 1/P of each, so that a reduce_scatter over P workers gives each some of all.
  }];
  let arguments = (ins Kernel_Stream:$weights, Kernel_Tile:$x, I64Attr:$slots, DefaultValuedAttr<I64Attr, "1">:$parts);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$weights `,` $x `slots` $slots (`parts` $parts^)? attr-dict `:` type($weights) `,` type($x) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_ExtractOp : Kernel_Op<"extract", [Pure]> {
  let summary = "a view of consecutive elements of a tile, from element `from`; of one split(0) over N workers, of each worker's part from `from` / N";
  let arguments = (ins Kernel_Tile:$tile, I64Attr:$from);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$tile `from` $from attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_RopeOp : Kernel_Op<"rope", [MemoryEffects<[MemRead]>]> {
  let summary = "rotates each head of a tile by row `position` of a table [positions, cos | sin]; of x [n, tokens] each token by its position";
  let description = [{
    `at %item`, of P positions for I items: by position item / (I / P). `from`: of several tokens the first one's position.
    `head`, where it is not 0: elements of a head, of which the first, as many as the table is wide, are rotated.
  }];
  let arguments = (ins Kernel_Tile:$x, Kernel_Mem:$table, Kernel_Mem:$position, Optional<Kernel_Item>:$item, Kernel_RopeStyleAttr:$style,
                       DefaultValuedAttr<I64Attr, "0">:$from, DefaultValuedAttr<I64Attr, "0">:$head);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$style $x `,` $table `position` $position (`from` $from^)? (`at` $item^)? attr-dict `:` type(operands) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Elements that are rotated of each head, and elements of a head.
    int64_t getRotated() { return ::llvm::cast<::mlir::MemRefType>(getTable().getType()).getDimSize(1); }
    int64_t getHeadSize() { return getHead() ? getHead() : getRotated(); }
  }];
}
def Kernel_AttendOp : Kernel_Op<"attend", [Pure]> {
  let summary = "online softmax of q [heads * dim] over a K/V stream: tile [heads, v_dim + 2] = (o, m, l), m in base 2; up to 128 heads";
  let description = [{
    `softcap`: a score s becomes softcap * tanh(s / softcap). `bias`: a block of (head, query, key), the query head among those of
    a request and the positions, each an index; scalar operations of arith and math and kernel.at compute what is then added, and
    kernel.yield_value gives it.
  }];
  let arguments = (ins Kernel_Tile:$q, Kernel_KvStream:$kv, F64Attr:$scale, OptionalAttr<F64Attr>:$softcap);
  let results = (outs Kernel_Tile:$result);
  let regions = (region AnyRegion:$bias);
  let assemblyFormat = "$q `,` $kv `scale` $scale (`bias` $bias^)? attr-dict `:` type($q) `,` type($kv) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_AttendNewOp : Kernel_Op<"attend_new", [MemoryEffects<[MemRead]>]> {
  let summary = "merges the token of this step into an online softmax, whole or split by heads, unless the request (`at %item`, of several) is idle";
  let description = [{
    Where the softmax is over a kernel.load_cache with `queries`, k and v are memory [tokens * heads * dim], and what is merged is
    the new tokens of the token's request up to itself, or those of its mask, but for the idle ones. Such rows become what the
    cache would hold; tiles are that already, by kernel.quantize where the kernel.load_cache has `scales`, by which they are multiplied.
  }];
  let arguments = (ins Kernel_Tile:$state, Kernel_Tile:$q, AnyTypeOf<[Kernel_Tile, Kernel_Mem]>:$k,
                       AnyTypeOf<[Kernel_Tile, Kernel_Mem]>:$v, Kernel_Mem:$slot, Optional<Kernel_Item>:$item, F64Attr:$scale,
                       OptionalAttr<F64Attr>:$softcap);
  let results = (outs Kernel_Tile:$result);
  let regions = (region AnyRegion:$bias);
  let assemblyFormat = "$state `,` $q `,` $k `,` $v `slot` $slot (`at` $item^)? `scale` $scale (`bias` $bias^)? attr-dict `:` type(operands) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether requests have several query tokens.
    bool hasQueries() { return ::mlir::isa<::mlir::MemRefType>(getK().getType()); }
    /// What streams the cached tokens of the softmax; null if it is not made in this kernel.
    LoadCacheOp getLoad();
  }];
}
def Kernel_EmptyStateOp : Kernel_Op<"empty_state", [Pure]> {
  let summary = "the softmax of no tokens: like %like, an online softmax, but whole, or split, where that is partial";
  let arguments = (ins Kernel_Tile:$like);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$like attr-dict `:` type($like) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_AtOp : Kernel_Op<"at", [MemoryEffects<[MemRead]>]> {
  let summary = "an element of memory, in a bias";
  let arguments = (ins Kernel_Mem:$memory, Index:$index);
  let results = (outs AnyFloat:$result);
  let assemblyFormat = "$memory `[` $index `]` attr-dict `:` type($memory) `->` type($result)";
}
def Kernel_YieldValueOp : Kernel_Op<"yield_value", [Pure, Terminator, ParentOneOf<["AttendOp", "AttendNewOp"]>]> {
  let summary = "what a bias adds to a score";
  let arguments = (ins F32:$value);
  let assemblyFormat = "$value attr-dict";
}
def Kernel_NormalizeOp : Kernel_Op<"normalize", [MemoryEffects<[MemRead]>, AttrSizedOperandSegments]> {
  let summary = "o / l of an online softmax [heads, dim + 2], 0 where l is 0; and lse (natural log), -inf there; whole, or split by heads";
  let description = [{
    `sinks`: logits, one for each query head, of which the sum has a term more; item i, of H items a request, has the heads from
    (i mod H) * heads on.
  }];
  let arguments = (ins Kernel_Tile:$state, Optional<Kernel_Mem>:$sinks, Optional<Kernel_Item>:$item);
  let results = (outs Kernel_Tile:$result, Kernel_Tile:$lse);
  let assemblyFormat = "$state (`sinks` $sinks^)? (`at` $item^)? attr-dict `:` type(operands) `->` type($result) `,` type($lse)";
  let hasVerifier = 1;
}
def Kernel_ElementwiseOp : Kernel_Op<"elementwise", [Pure]> {
  let summary = "a op b in f32, rounded to the result's type; of a [n, tokens] b may be [n], the same for all tokens; with `scale`, a + scale b";
  let arguments = (ins Kernel_ElementwiseAttr:$kind, Kernel_Tile:$a, Kernel_Tile:$b, OptionalAttr<F64Attr>:$scale);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$kind $a `,` $b attr-dict `:` type($a) `,` type($b) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_CastOp : Kernel_Op<"cast", [Pure]> {
  let summary = "rounds to another element type (nearest even)";
  let arguments = (ins Kernel_Tile:$tile);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$tile attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_QuantizeOp : Kernel_Op<"quantize", [MemoryEffects<[MemRead]>]> {
  let summary = "what a cache with scales holds of the row of a head: x / scale, rounded to nearest even; of f8E4M3FN at most 448";
  let description = [{
    `scale` is one f32, or one for each head: item i has head i mod their number. Only kernel.append and kernel.attend_new take a
    tile of f8E4M3FN.
  }];
  let arguments = (ins Kernel_Tile:$tile, Kernel_Mem:$scale, Optional<Kernel_Item>:$item);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$tile `by` $scale (`at` $item^)? attr-dict `:` type(operands) `->` type($result)";
  let hasVerifier = 1;
}
def Kernel_FoldOp : Kernel_Op<"fold", [Pure]> {
  let summary = "sum or max of all elements of a tile: tile<1xf32>, partial over the axes that the tile is split over, and over the items if its type says so";
  let arguments = (ins Kernel_ElementwiseAttr:$kind, Kernel_Tile:$tile);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$kind $tile attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}

//===-- Exchanges -----------------------------------------------------------===//
def Kernel_ExchangeOp : Kernel_Op<"exchange", []> {
  let summary = "changes the state of a value over one cta axis";
  let description = [{
    reduce: partial to replicated; gather: split to replicated; reduce_scatter: partial to split(0), the innermost split;
    all_to_all: split(0) to split(1) of a matrix, or back. For N workers and a tile of P bytes in a worker:

    | algorithm | how | of |
    |---|---|---|
    | push | remote stores, then an arrival of each warp that stored; 1 round | all |
    | async | the same without fence and arrival: each store counts its bytes at the peer's barrier; runs of 4 bytes or more | all |
    | bulk | a bulk copy for each run of bytes, multiples of 16; 1 round | all |
    | scatter | 2 rounds of async stores: each worker merges a part, and sends it to all; payloads too large for N of them | reduce of sums and maxima of f32 |
    | butterfly | log2 N rounds with a partner each: doubling, for reduce_scatter halving | reduce, gather(0), reduce_scatter |

    A worker sends P bytes to each peer, P / N for reduce_scatter and all_to_all, and twice P / N by scatter. The payload travels in the tile's
    element type. Sums have the order of the left-balanced tree over the workers, whatever the algorithm.
  }];
  let arguments = (ins Kernel_ExchangeKindAttr:$kind, Kernel_Tile:$tile, StrAttr:$axis, Kernel_AlgorithmAttr:$algorithm);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$kind $tile `over` $axis `by` $algorithm attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether payloads of several workers are merged into one.
    bool merges() { return getKind() == ExchangeKind::Reduce || getKind() == ExchangeKind::ReduceScatter; }
    /// Whether each worker gets another part of what a worker has.
    bool sendsParts() {
      return getKind() == ExchangeKind::ReduceScatter || getKind() == ExchangeKind::AllToAll ||
             getAlgorithm() == Algorithm::Scatter;
    }
  }];
}
def Kernel_FinishOp : Kernel_Op<"finish", [SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "reduces, or with `gather` collects, over a grid axis; the CTA that arrives last runs the body with the whole";
  let description = [{
    Of a partial sum or max that is split(0) over cta axes each CTA of a cluster finishes its own rows: a reduce_scatter.
    ordered: partials lie in the workspace and are merged by the left-balanced tree, in item order. atomic: f32 atomic
    sums. `gather`: the body gets the tiles of all items one after another, in item order. Never waits for a CTA that
    may not have started. `counters` and `partials` are byte offsets in the workspace.
    `pieces` > 1, of a matmul's rows by ordered: each CTA takes its rows in so many equal pieces, item i from piece
    i mod `pieces` on, and counts the arrivals of each, so that different items finish the pieces.
    `finishers` = F > 0, of a matmul's rows by ordered: the clusters of the last F items that begin the matmul finish 1 / F of
    the rows each, behind their last item, and wait for the partial sums of all items, if all clusters have started by then;
    the shares of those that cannot know that fall to the cluster that starts last. F is at most 32, and at most the number of items.
    `each` > 0, by ordered: each so many items in a row are a run of its own, whose last arriver runs the body; what the body
    writes goes to the kernel.outer of the item. A partial softmax is always merged by runs, of at most 16.
    `shares`: of the item's shares (kernel.for_items … by %work). A head that one cluster has whole is finished there; of others each
    group of segments leaves its softmax, and the CTA whose arrival makes them 16 merges them.
  }];
  let arguments = (ins Kernel_Tile:$tile, StrAttr:$axis, Kernel_AlgorithmAttr:$algorithm,
                       DefaultValuedAttr<I64Attr, "-1">:$counters, DefaultValuedAttr<I64Attr, "-1">:$partials,
                       UnitAttr:$gather, DefaultValuedAttr<I64Attr, "1">:$pieces, DefaultValuedAttr<I64Attr, "0">:$finishers,
                       DefaultValuedAttr<I64Attr, "0">:$each, UnitAttr:$shares);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Bytes of what all items leave in the workspace.
    int64_t partialBytes();
    /// Whether the partial sums are zero between launches.
    bool clearsPartials() { return getFinishers() || getAlgorithm() == Algorithm::Atomic; }
    /// Items that are merged into one.
    int64_t runLength();
    /// Arrivals that are counted apart, in clusters of `ctas`: 4 bytes each.
    int64_t numCounters(int64_t ctas);
  }];
}
#endif
