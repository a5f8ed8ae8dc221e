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
def Attn_LogSumExp : Attn_Tensor<2, ["isF32()"], "a log-sum-exp, tensor<TxHEADSxf32>">;

class Attn_Op<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits> {
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}
// An operation with results: they print under the names that they were parsed with.
class Attn_ValueOp<string mnemonic, list<Trait> traits>
    : Attn_Op<mnemonic, traits # [HasParent<"GraphOp">,
                                  DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
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
  let arguments = (ins Variadic<AnyType>:$values);
}

//===-- Operations --------------------------------------------------------===//
def Attn_RmsNormOp : Attn_ValueOp<"rms_norm", [Pure]> {
  let summary = "x / sqrt(mean(x^2) + eps) * gain, by row";
  let arguments = (ins Attn_Activation:$x, Attn_Gain:$gain, F64Attr:$eps);
  let results = (outs Attn_Activation:$result);
}
def Attn_LinearOp : Attn_ValueOp<"linear", [Pure, AttrSizedOperandSegments]> {
  let summary = "x times each weight's transpose, plus its bias: one stacked projection";
  let description = [{
    `%q, %k, %v = attn.linear %x, [%w_q, %w_k, %w_v] bias [%b_q, %b_k, %b_v]`. Weights and biases are
    immutable: a kernel may load them before its inputs are ready.
  }];
  let arguments = (ins Attn_Activation:$x, Variadic<Attn_Weight>:$weights, Variadic<Attn_Bias>:$biases);
  let results = (outs Variadic<Attn_Activation>:$results);
}
def Attn_RopeOp : Attn_ValueOp<"rope", [Pure]> {
  let summary = "rotates the pairs of every head by the angles of a position";
  let description = [{
    One or two values (q, k). A row of the table is cos (dim / 2) | sin (dim / 2); its width is the head's.
    (a, b) becomes (a cos - b sin, b cos + a sin).
  }];
  let arguments = (ins Variadic<Attn_Activation>:$values, Attn_Table:$table, Attn_Positions:$pos,
    Attn_RopeStyleAttr:$style);
  let results = (outs Variadic<Attn_Activation>:$results);
  let extraClassDeclaration = "int64_t getHeadDim() { return getTable().getType().getDimSize(1); }";
}
def Attn_RopeTableOp : Attn_ValueOp<"rope_table", [Pure]> {
  let summary = "cos | sin of position * base^(-2 i / dim), by position";
  let arguments = (ins F64Attr:$base, I64Attr:$dim, I64Attr:$positions);
  let results = (outs Attn_Table:$result);
}
def Attn_KvAppendOp : Attn_ValueOp<"kv_append", [MemoryEffects<[MemWrite]>]> {
  let summary = "writes the new tokens' K and V, rounded to the cache's type, at their slots";
  let description = [{
    The result is the cache with the new tokens. A slot is a token's index within its request's rows (row t of K and V
    is request t's) or, where the cache has pages, page * page size + offset in the pool. Slot -1: the request is idle.
  }];
  let arguments = (ins Attn_KvCache:$cache, Attn_Activation:$k, Attn_Activation:$v, Attn_Slots:$slot);
  let results = (outs Attn_KvCache:$result);
}
def Attn_AttentionOp : Attn_ValueOp<"attention", [Pure]> {
  let summary = "softmax(scale q K^T) V by head over the cache";
  let description = [{
    `%o, %lse = attn.attention %q, %cache, %len pages %block_table {scale = 0.125}`. Row r of q is request r's. Over
    its first `len` tokens and, where the cache comes from `kv_append`, the new one. Query head h reads
    KV head h / (query heads / KV heads). A second result is ln(sum(exp(scale q k))) by query head.

    `pages`, where the cache has pages: token t of request r lies in page `block_table[r, t / page]` of the pool. Entries
    of pages behind the length are not read; an entry outside of the pool counts as the nearest in it.
  }];
  let arguments = (ins Attn_Activation:$q, Attn_KvCache:$cache, Attn_Lengths:$len,
    Optional<Attn_BlockTable>:$pages, F64Attr:$scale);
  let results = (outs Attn_Activation:$result, Optional<Attn_LogSumExp>:$lse);
  let extraClassDeclaration = [{
    int64_t getQueryHeads() { return getQ().getType().getDimSize(1) / getCache().getType().getDim(); }
    /// Query heads that share a KV head.
    int64_t getGroup() { return getQueryHeads() / getCache().getType().getHeads(); }
    /// The append whose tokens are attended too, or null.
    KvAppendOp getAppend();
  }];
}
def Attn_AddOp : Attn_ValueOp<"add", [Pure]> {
  let summary = "element-wise sum";
  let arguments = (ins Attn_Activation:$lhs, Attn_Activation:$rhs);
  let results = (outs Attn_Activation:$result);
}
#endif
