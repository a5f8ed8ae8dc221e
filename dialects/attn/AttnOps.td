//===- AttnOps.td - The attn dialect: graphs of LLM operations ------------===//
//
// A graph reads like the model: tensors, value semantics, no decision about
// the machine. Activations are [requests, features]; a weight is row-major
// [out, in]. Every result is rounded to its declared type. Reference.h defines
// each operation in float64; docs/design.md fixes lengths, slots and rounding.
//
// In `attn.graph` operations name their operands only: types follow from the
// arguments. A trailing `: type` gives a result another element type.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_ATTN_OPS
#define CFC_ATTN_OPS
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::cfc::attn";
  let summary = "Graphs of LLM operations on tensors";
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"]; // in biases of scores
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = [{
    // Answers a misspelt operation with the nearest name.
    std::optional<ParseOpHook> getParseOperationHook(::llvm::StringRef name) const override;
  }];
}

//===-- Types and attributes ----------------------------------------------===//
class Attn_Type<string name, string typeMnemonic> : TypeDef<Attn_Dialect, name> {
  let mnemonic = typeMnemonic;
  let genVerifyDecl = 1;
}
def Attn_KvCache : Attn_Type<"KvCache", "kv_cache"> {
  let summary = "K and V of the tokens so far: `!attn.kv_cache<heads = 32, dim = 128, f16>`";
  let description = [{
    `heads` KV heads a token. K has `dim` elements a head, V `vDim` (`v_dim = 64` where they differ). With `page = 16`
    tokens lie in pages of a pool, in the order that a block table says; without, a request's tokens lie in one row of
    blocks of its own. Prints as `<heads = 8, dim = 128, v_dim = 64, page = 16, f16>`. Where the rows lie (two base
    pointers, strides, capacity) is known when the buffers are bound.
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$dim, "int64_t":$vDim, "int64_t":$page,
    "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// Elements of a token's K and V.
    int64_t getKWidth() const { return getHeads() * getDim(); }
    int64_t getVWidth() const { return getHeads() * getVDim(); }
    /// Whether tokens lie in pages (of `page` tokens; 0: they do not).
    bool isPaged() const { return getPage() != 0; }
  }];
}
def Attn_Lengths : Attn_Type<"Lengths", "lengths"> {
  let summary = "tokens in the cache before this step, by request: `!attn.lengths<1, capacity = 16384>`";
  let description = [{ In memory: `count` 32-bit integers, each from 0 to `capacity`. }];
  let parameters = (ins "int64_t":$count, "int64_t":$capacity);
  let assemblyFormat = "`<` $count `,` `capacity` `=` $capacity `>`";
}

def Attn_RopeStyle : I32EnumAttr<"RopeStyle", "which elements form a pair", [
  I32EnumAttrCase<"HalfSplit", 0, "half_split">,     // i and i + dim / 2 (Llama as in transformers)
  I32EnumAttrCase<"Interleaved", 1, "interleaved">   // 2 i and 2 i + 1
]> {
  let cppNamespace = "::cfc::attn";
  let genSpecializedAttr = 0;
}
def Attn_RopeStyleAttr : EnumAttr<Attn_Dialect, Attn_RopeStyle, "rope_style"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_RopeScaling : I32EnumAttr<"RopeScaling", "how a table stretches positions beyond those of the training", [
  I32EnumAttrCase<"None", 0, "none">,
  I32EnumAttrCase<"Linear", 1, "linear">,
  I32EnumAttrCase<"Llama3", 2, "llama3">,
  I32EnumAttrCase<"Yarn", 3, "yarn">
]> {
  let cppNamespace = "::cfc::attn";
  let genSpecializedAttr = 0;
}
def Attn_RopeScalingAttr : EnumAttr<Attn_Dialect, Attn_RopeScaling, "rope_scaling"> {
  let assemblyFormat = "`<` $value `>`";
}

class Attn_Tensor<int rank, list<string> elements, string what> : Type<And<[
    CPred<"::llvm::isa<::mlir::RankedTensorType>($_self)">,
    CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).hasStaticShape()">,
    CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == " # rank>,
    Or<!foreach(e, elements, CPred<
      "::llvm::cast<::mlir::RankedTensorType>($_self).getElementType()." # e>)>]>,
    what, "::mlir::RankedTensorType">;
defvar Half = ["isF16()", "isBF16()"];
defvar Float = ["isF16()", "isBF16()", "isF32()"];
def Attn_Activation : Attn_Tensor<2, Half, "an activation, tensor<TxN x f16 or bf16>">;
def Attn_Weight : Attn_Tensor<2, Half, "a weight, tensor<OUTxIN x f16 or bf16>">;
def Attn_Bias : Attn_Tensor<1, Half, "a bias, tensor<OUT x f16 or bf16>">;
def Attn_Gain : Attn_Tensor<1, Float, "a gain, tensor<N x f16, bf16 or f32>">;
def Attn_Table : Attn_Tensor<2, Float, "a rope table, tensor<POSITIONSxDIM x f16, bf16 or f32>">;
def Attn_Positions : Attn_Tensor<1, ["isSignlessInteger(32)"], "positions, tensor<Txi32>">;
def Attn_Slots : Attn_Tensor<1, ["isSignlessInteger(64)"], "cache slots, tensor<Txi64>">;
def Attn_BlockTable : Attn_Tensor<2, ["isSignlessInteger(32)"], "a block table, tensor<BxPAGESxi32>">;
def Attn_Starts : Attn_Tensor<1, ["isSignlessInteger(32)"], "starts of query tokens, tensor<(B+1)xi32>">;
def Attn_Mask : Attn_Tensor<1, ["isSignlessInteger(64)"], "bits of a mask, tensor<Txi64>">;
def Attn_Sinks : Attn_Tensor<1, Float, "sinks, tensor<QUERY_HEADS x f16, bf16 or f32>">;
def Attn_Scale : Attn_Tensor<1, ["isF32()"], "a scale, tensor<1xf32> or tensor<HEADSxf32>">;
def Attn_LogSumExp : Attn_Tensor<2, ["isF32()"], "a log-sum-exp, tensor<TxHEADSxf32>">;

class Attn_Op<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits> {
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}
// An operation with results: they print under the names that they were parsed with.
class Attn_ValueOp<string mnemonic, list<Trait> traits, list<string> asmMethods = ["getAsmResultNames"]>
    : Attn_Op<mnemonic, traits # [HasParent<"GraphOp">,
                                  DeclareOpInterfaceMethods<OpAsmOpInterface, asmMethods>]> {
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn set) { nameResults(*this, set); }
  }];
}

//===-- Graph -------------------------------------------------------------===//
def Attn_GraphOp : Attn_Op<"graph", [FunctionOpInterface, IsolatedFromAbove, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one compiled unit: its arguments and results are the tensors that a caller binds";
  let description = [{
    An argument's tensor name is its SSA name, or the argument attribute `attn.name`; it is always stored
    there. Results are named `result0`, `result1`, … or by the result attribute `attn.name`.
    ```mlir
    attn.graph @block(%x: tensor<1x256xf16>, %w: tensor<512x256xf16> {attn.name = "up_proj.weight"})
        -> (tensor<1x512xf16> {attn.name = "up"}) attributes {most_requests = 8} {
      %y = attn.linear %x, [%w]
      attn.return %y
    }
    ```
    `most_requests`, optional, is the most rows (requests, or query tokens) of any graph in which a request is to have the
    same bits as in this one. `cfc compile --batch` sets it; who compiles graphs one by one gives it by hand.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
    OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region SizedRegion<1>:$body);
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
    /// Tensor name of an argument; empty if a builder gave none.
    ::llvm::StringRef getArgName(unsigned index);
    /// Tensor name of a result: `result<index>` unless named.
    std::string getResultName(unsigned index);
    /// The terminator.
    ReturnOp getReturn();
  }];
}
def Attn_ReturnOp : Attn_Op<"return", [Pure, Terminator, HasParent<"GraphOp">]> {
  let summary = "the graph's results";
  let description = [{
    The last operation of a graph. It returns computed values, each once; caches are updated in place.
    ```mlir
    attn.graph @sums(%x: tensor<1x256xf16>, %y: tensor<1x256xf16>) -> (tensor<1x256xf16>, tensor<1x256xf16>) {
      %a = attn.add %x, %y
      %b = attn.add %a, %y
      attn.return %a, %b
    }
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$values);
}

//===-- Operations --------------------------------------------------------===//
def Attn_RmsNormOp : Attn_ValueOp<"rms_norm", [Pure]> {
  let summary = "x / sqrt(mean(x^2) + eps) * (offset + gain), by row";
  let description = [{
    A gain of fewer elements than a row has norms each part of that many by itself, with the same gain: what QK norm
    does by head. `offset = 1.0` is Gemma's (1 + gain).
    ```mlir
    %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
    %g = attn.rms_norm %x, %gain {eps = 1.0e-6, offset = 1.0}
    ```
  }];
  let arguments = (ins Attn_Activation:$x, Attn_Gain:$gain, F64Attr:$eps, OptionalAttr<F64Attr>:$offset);
  let results = (outs Attn_Activation:$result);
  let extraClassDeclaration = [{
    double getOffsetValue() { return getOffset() ? getOffset()->convertToDouble() : 0; }
    /// Elements that are normed together.
    int64_t getWidth() { return getGain().getType().getDimSize(0); }
    /// Whether a row is more than that.
    bool isGrouped() { return getWidth() != getX().getType().getDimSize(1); }
  }];
}
def Attn_LayerNormOp : Attn_ValueOp<"layer_norm", [Pure, AttrSizedOperandSegments]> {
  let summary = "(x - mean(x)) / sqrt(variance(x) + eps) * gain + bias, by row";
  let description = [{
    With a gain and a bias, with a gain, or with neither.
    ```mlir
    %a = attn.layer_norm %x, %gain, %bias {eps = 1.0e-5}
    %b = attn.layer_norm %x, %gain {eps = 1.0e-5}
    %c = attn.layer_norm %x {eps = 1.0e-5}
    ```
  }];
  let arguments = (ins Attn_Activation:$x, Optional<Attn_Gain>:$gain, Optional<Attn_Gain>:$bias, F64Attr:$eps);
  let results = (outs Attn_Activation:$result);
}
def Attn_LinearOp : Attn_ValueOp<"linear", [Pure, AttrSizedOperandSegments]> {
  let summary = "x times each weight's transpose, plus its bias: one stacked projection";
  let description = [{
    Weights and biases are immutable: a kernel may load them before its inputs are ready. Results have the type of x,
    unless they are given another.
    ```mlir
    %q, %k, %v = attn.linear %x, [%w_q, %w_k, %w_v] bias [%b_q, %b_k, %b_v]
    %y = attn.linear %x, [%w_o] : tensor<1x256xbf16>
    ```
  }];
  let arguments = (ins Attn_Activation:$x, Variadic<Attn_Weight>:$weights, Variadic<Attn_Bias>:$biases);
  let results = (outs Variadic<Attn_Activation>:$results);
}
def Attn_RopeOp : Attn_ValueOp<"rope", [Pure]> {
  let summary = "rotates the pairs of every head by the angles of a position";
  let description = [{
    One or two values (q, k). A row of the table is cos (dim / 2) | sin (dim / 2). (a, b) becomes
    (a cos - b sin, b cos + a sin). Heads have `head_dim` elements, as many as the table is wide where it is left out;
    of wider heads the first are rotated, and the others stay as they are.
    ```mlir
    %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
    %p = attn.rope %q, %table at %pos {style = interleaved, head_dim = 128}
    ```
  }];
  let arguments = (ins Variadic<Attn_Activation>:$values, Attn_Table:$table, Attn_Positions:$pos,
    Attn_RopeStyleAttr:$style, OptionalAttr<I64Attr>:$head_dim);
  let results = (outs Variadic<Attn_Activation>:$results);
  let extraClassDeclaration = [{
    /// Elements of a head that are rotated: the first ones.
    int64_t getRotatedDim() { return getTable().getType().getDimSize(1); }
    /// Elements of a head.
    int64_t getHeadSize() { return getHeadDim() ? *getHeadDim() : getRotatedDim(); }
  }];
}
def Attn_RopeTableOp : Attn_ValueOp<"rope_table", [Pure]> {
  let summary = "cos | sin of position * base^(-2 i / dim), by position";
  let description = [{
    ```mlir
    %plain = attn.rope_table {base = 10000, dim = 64, positions = 4096}
    %table = attn.rope_table {base = 500000, dim = 128, positions = 8192, scaling = llama3, factor = 8,
                              original_positions = 8192, low_freq_factor = 1, high_freq_factor = 4}
    ```
    With a scaling the frequencies f are those of Hugging Face transformers
    (src/transformers/modeling_rope_utils.py), in float64:

    | scaling | frequency | attributes |
    |---|---|---|
    | `linear` | f / factor | `factor` |
    | `llama3` | f / factor where 2 pi / f > original_positions / low_freq_factor; f where it is < original_positions / high_freq_factor; in between (1 - s) f / factor + s f, s = (original_positions f / 2 pi - low_freq_factor) / (high_freq_factor - low_freq_factor) | `factor`, `original_positions`, `low_freq_factor`, `high_freq_factor` |
    | `yarn` | f r / factor + f (1 - r), r = (i - low) / (high - low) in 0 to 1; low and high are dim ln(original_positions / (2 pi b)) / (2 ln base) for b = `beta_fast` (32) and `beta_slow` (1), rounded down and up unless `truncate = false`, within 0 and dim - 1. All entries are multiplied by `attention_factor` (0.1 ln(factor) + 1) | `factor`, `original_positions` |
  }];
  let arguments = (ins F64Attr:$base, I64Attr:$dim, I64Attr:$positions, OptionalAttr<Attn_RopeScalingAttr>:$scaling,
    OptionalAttr<F64Attr>:$factor, OptionalAttr<I64Attr>:$original_positions, OptionalAttr<F64Attr>:$low_freq_factor,
    OptionalAttr<F64Attr>:$high_freq_factor, OptionalAttr<F64Attr>:$beta_fast, OptionalAttr<F64Attr>:$beta_slow,
    OptionalAttr<F64Attr>:$attention_factor, OptionalAttr<BoolAttr>:$truncate);
  let results = (outs Attn_Table:$result);
  let extraClassDeclaration = [{
    /// What its entries are computed from.
    ::cfc::RopeTable describe();
  }];
}
def Attn_KvAppendOp : Attn_ValueOp<"kv_append", [AttrSizedOperandSegments, MemoryEffects<[MemWrite]>]> {
  let summary = "writes the new tokens' K and V, rounded to the cache's type, at their slots";
  let description = [{
    ```mlir
    %c = attn.kv_append %cache, %k, %v at %slot
    ```
    The result is the cache with the new tokens. A slot is a token's index within its request's rows (row t of K and V
    is request t's) or, where the cache has pages, page * page size + offset in the pool. Slot -1: the request is idle.

    `at %slot queries %starts`, of the attention that follows: rows [starts[r], starts[r + 1]) are request r's, and each
    has a slot of its own. Rows of no request are not written, whatever their slot.

    `scales %k_scale, %v_scale`, of each KV head or one for all: the cache holds k / k_scale and v / v_scale. An f8E4M3FN
    cache saturates at 448.
    ```mlir
    %c = attn.kv_append %cache, %k, %v at %slot queries %starts scales %k_scale, %v_scale
    ```
  }];
  let arguments = (ins Attn_KvCache:$cache, Attn_Activation:$k, Attn_Activation:$v, Attn_Slots:$slot,
    Optional<Attn_Starts>:$queries, Optional<Attn_Scale>:$k_scale, Optional<Attn_Scale>:$v_scale);
  let results = (outs Attn_KvCache:$result);
}
def Attn_AttentionOp : Attn_ValueOp<"attention", [Pure, AttrSizedOperandSegments],
                                    ["getAsmResultNames", "getAsmBlockArgumentNames"]> {
  let summary = "softmax(scale q K^T) V by head over the cache";
  let description = [{
    ```mlir
    %o = attn.attention %q, %cache, %len {scale = 0.125}
    %p, %lse = attn.attention %q, %pool, %len pages %block_table {scale = 0.125, window = 4096, softcap = 50.0}
    ```
    Row r of q is request r's. Over its first `len` tokens and, where the cache comes from `kv_append`, the new one.
    Query head h reads KV head h / (query heads / KV heads). A second result is ln(sum(exp(scale q k))) by query head.

    `pages`, where the cache has pages: token t of request r lies in page `block_table[r, t / page]` of the pool. Entries
    of pages behind the length are not read; an entry outside of the pool counts as the nearest in it. A table whose
    rows hold fewer tokens than the lengths' capacity bounds them instead: a longer length counts as that many tokens and
    sets the status, as one above the capacity does. `cfc` warns of such a table.

    `queries %starts` (i32, one more than requests): rows [starts[r], starts[r + 1]) are the new tokens of request r, none
    where it is idle. Row i of n has position base + i; base is the length where the tokens are appended, and the length
    less n where the cache already holds them. It attends the positions up to its own. Of the rows of no request the
    result is 0. `mask %bits` (i64, one a row): row i attends what lies before base, and the request's new token j where
    bit j is set, so branches of a tree do not see each other. A token with slot -1 is idle: its row is 0, and nobody
    attends it. `window` and bias count positions, whatever the mask.
    ```mlir
    %o = attn.attention %q, %cache, %len queries %starts mask %bits sinks %sinks scales %k_scale, %v_scale
         {scale = 0.125}
    ```

    A score is s = scale q k. `softcap = c` makes it c tanh(s / c). Then the bias is added, and then only the last
    `window = W` tokens are attended, the newest among them. The position of the query is that of the newest token.

    `sinks %s` (of each query head): the softmax's sum has exp(sink) as one term more, to which no value belongs; so has
    the second result. Where no token is attended the result is 0 and the second -inf, with or without.
    `scales %k_scale, %v_scale`: the cache's K and V are multiplied by them, as `kv_append` has divided.

    `bias(%head, %query, %key) { … attn.yield %b }` computes what is added to a score, f32, of the query head and the
    positions of query and key (`index`), by operations of `arith` and `math` on scalars; `attn.at %t[%head]` reads an
    argument of the graph. ALiBi:
    ```mlir
    %o = attn.attention %q, %c, %len {scale = 0.125} bias(%head, %query, %key) {
      %slope = attn.at %slopes[%head]
      %distance = arith.subi %key, %query : index
      %i = arith.index_cast %distance : index to i32
      %f = arith.sitofp %i : i32 to f32
      %b = arith.mulf %slope, %f : f32
      attn.yield %b
    }
    ```
  }];
  let arguments = (ins Attn_Activation:$q, Attn_KvCache:$cache, Attn_Lengths:$len,
    Optional<Attn_BlockTable>:$pages, Optional<Attn_Starts>:$queries, Optional<Attn_Mask>:$mask,
    Optional<Attn_Sinks>:$sinks, Optional<Attn_Scale>:$k_scale, Optional<Attn_Scale>:$v_scale, F64Attr:$scale, OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$softcap);
  let regions = (region AnyRegion:$bias);
  let hasRegionVerifier = 1;
  let results = (outs Attn_Activation:$result, Optional<Attn_LogSumExp>:$lse);
  let extraClassDeclaration = [{
    int64_t getQueryHeads() { return getQ().getType().getDimSize(1) / getCache().getType().getDim(); }
    /// Query heads that share a KV head.
    int64_t getGroup() { return getQueryHeads() / getCache().getType().getHeads(); }
    /// The append whose tokens are attended too, or null.
    KvAppendOp getAppend();
    /// Whether the scores get a bias.
    bool hasBias() { return !getBias().empty(); }
  }];
}
def Attn_AtOp : Attn_Op<"at", [Pure, HasParent<"AttentionOp">]> {
  let summary = "an element of a graph's argument, in the bias of an attention";
  let description = [{
    The index must lie in the tensor: a constant's, and that of the query's head, is checked.
    ```mlir
    %o = attn.attention %q, %cache, %len {scale = 0.125} bias(%head, %query, %key) {
      %slope = attn.at %slopes[%head]
      attn.yield %slope
    }
    ```
  }];
  let arguments = (ins Attn_Gain:$tensor, Index:$index);
  let results = (outs AnyFloat:$result);
}
def Attn_YieldOp : Attn_Op<"yield", [Pure, Terminator, HasParent<"AttentionOp">]> {
  let summary = "what the bias of an attention adds to a score";
  let description = [{
    The last operation of a bias; the value is an f32.
    ```mlir
    %o = attn.attention %q, %cache, %len {scale = 0.125} bias(%head, %query, %key) {
      %b = arith.constant -0.5 : f32
      attn.yield %b
    }
    ```
  }];
  let arguments = (ins F32:$value);
}
def Attn_AddOp : Attn_ValueOp<"add", [Pure]> {
  let summary = "element-wise sum: x + scale y";
  let description = [{
    Without a scale x + y.
    ```mlir
    %sum = attn.add %x, %y
    %scaled = attn.add %x, %y {scale = 0.22}
    ```
  }];
  let arguments = (ins Attn_Activation:$lhs, Attn_Activation:$rhs, OptionalAttr<F64Attr>:$scale);
  let results = (outs Attn_Activation:$result);
  let extraClassDeclaration = [{
    /// What the second operand is multiplied with.
    double getFactor() { return getScale() ? getScale()->convertToDouble() : 1.0; }
  }];
}
#endif
