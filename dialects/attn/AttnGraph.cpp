//===- AttnGraph.cpp - attn.graph: reading, writing, checking --------------===//
//
// `attn.graph @name(%x: type, …) -> type { … }`. The arguments' SSA names are
// what a caller binds tensors by, so they are kept as attributes.
// verifyGraphFile holds the checks that a whole file must pass before it is
// compiled, beyond what each operation checks on its own.
//
//===----------------------------------------------------------------------===//
#include "dialects/attn/Attn.h"
#include "dialects/attn/AttnAssembly.h"
#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace cfc::attn;

//===-- Reading -----------------------------------------------------------===//

// Stores the SSA name of an argument as its tensor name, unless it was given one.
static ParseResult nameArgument(OpAsmParser &parser, OpAsmParser::Argument &argument) {
  StringRef ssaName = argument.ssaName.name;
  if (ssaName.empty())
    return parser.emitError(parser.getCurrentLocation(), "needs named arguments, as in '%x: type'");
  NamedAttrList attrs(argument.attrs);
  if (!attrs.get(kNameAttr))
    attrs.set(kNameAttr, parser.getBuilder().getStringAttr(ssaName.drop_front()));
  argument.attrs = attrs.getDictionary(parser.getContext());
  return success();
}

// The word where the parser stands: a source's buffer ends with 0.
static StringRef wordAt(SMLoc loc) {
  const char *begin = loc.getPointer(), *end = begin;
  while (llvm::isAlnum(*end) || *end == '_')
    ++end;
  return {begin, static_cast<size_t>(end - begin)};
}

// Adds to what MLIR says of a type that it does not know which there are.
static void hintTypes(OpAsmParser &parser, Diagnostic &diagnostic) {
  std::string text = diagnostic.str();
  bool isOfDialect = StringRef(text).contains("type `") && StringRef(text).contains("in dialect `attn`");
  if (!isOfDialect && text != "expected non-function type")
    return;
  StringRef word =
      isOfDialect ? StringRef(text).split('`').second.split('`').first : wordAt(parser.getCurrentLocation());
  StringRef near = nearestName(word, isOfDialect ? ArrayRef<StringRef>{"kv_cache", "lengths"}
                                                 : ArrayRef<StringRef>{"tensor", "f16", "bf16", "f32", "i32",
                                                                       "i64", "kv_cache", "lengths"});
  Diagnostic &note = diagnostic.attachNote();
  if (!word.empty())
    note << "'" << word << "' is no type here";
  if (bool isOurs = near == "kv_cache" || near == "lengths"; !near.empty())
    note << "; did you mean '" << (isOurs ? "!attn." : "") << near << "'?";
  note << (word.empty()   ? "there"
           : near.empty() ? "; there"
                          : " There")
       << " are tensor<1x4096xf16>, of f16, bf16, f32, i32 or i64; !attn.kv_cache<heads = 8, dim = 128, f16> "
          "and "
          "!attn.lengths<1, capacity = 8192>";
}

// A graph's last operation is what it returns.
static ParseResult checkEnd(OpAsmParser &parser, Region &body) {
  constexpr StringLiteral message = "the graph does not end with attn.return, which names its results";
  if (body.empty() || body.front().empty())
    return parser.emitError(parser.getNameLoc(), "has no operations: ") << message;
  Operation &last = body.front().back();
  return isa<ReturnOp>(last) ? success() : ParseResult(mlir::emitError(last.getLoc()) << message);
}

ParseResult GraphOp::parse(OpAsmParser &parser, OperationState &state) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<Type> resultTypes;
  SmallVector<DictionaryAttr> resultAttrs;
  bool isVariadic = false;
  if (parser.parseSymbolName(name, getSymNameAttrName(state.name), state.attributes))
    return failure();
  {
    ScopedDiagnosticHandler hints(parser.getContext(), [&](Diagnostic &diagnostic) {
      hintTypes(parser, diagnostic);
      return failure(); // others report it
    });
    if (function_interface_impl::parseFunctionSignatureWithArguments(
            parser, /*allowVariadic=*/false, arguments, isVariadic, resultTypes, resultAttrs))
      return failure();
  }

  GraphScope scope;
  SmallVector<Type> argumentTypes;
  for (OpAsmParser::Argument &argument : arguments) {
    if (nameArgument(parser, argument))
      return failure();
    scope.define(argument.ssaName.name.drop_front(), argument.ssaName.number, argument.type);
    argumentTypes.push_back(argument.type);
  }
  auto type = builder.getFunctionType(argumentTypes, resultTypes);
  state.addAttribute(getFunctionTypeAttrName(state.name), TypeAttr::get(type));
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  call_interface_impl::addArgAndResultAttrs(builder, state, arguments, resultAttrs,
                                            getArgAttrsAttrName(state.name), getResAttrsAttrName(state.name));
  Region &body = *state.addRegion();
  return failure(parser.parseRegion(body, arguments) || checkEnd(parser, body));
}

//===-- Writing -----------------------------------------------------------===//

void GraphOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn set) {
  for (BlockArgument argument : region.getArguments())
    if (StringRef name = getArgName(argument.getArgNumber()); isSsaName(name))
      set(argument, name);
}

// Prints `%x: type {…}`, without the tensor name where the SSA name says it.
static void printArgument(OpAsmPrinter &printer, GraphOp graph, BlockArgument argument) {
  std::string ssaName;
  llvm::raw_string_ostream stream(ssaName);
  printer.printOperand(argument, stream);
  SmallVector<NamedAttribute> attrs;
  if (DictionaryAttr all = function_interface_impl::getArgAttrDict(graph, argument.getArgNumber()))
    llvm::copy(all, std::back_inserter(attrs));
  llvm::erase_if(attrs, [&](NamedAttribute attr) {
    auto name = dyn_cast<StringAttr>(attr.getValue());
    return attr.getName() == kNameAttr && name && name.getValue() == StringRef(ssaName).drop_front();
  });
  printer.printRegionArgument(argument, attrs);
}

void GraphOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << '(';
  llvm::interleaveComma(getBody().getArguments(), printer,
                        [&](BlockArgument argument) { printArgument(printer, *this, argument); });
  printer << ')';
  if (!getResultTypes().empty()) {
    printer << " -> (";
    llvm::interleaveComma(llvm::enumerate(getResultTypes()), printer, [&](auto indexed) {
      printer << indexed.value();
      if (DictionaryAttr attrs = function_interface_impl::getResultAttrDict(*this, indexed.index()))
        printer.printOptionalAttrDict(attrs.getValue());
    });
    printer << ')';
  }
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getSymNameAttrName(), getFunctionTypeAttrName(), getArgAttrsAttrName(), getResAttrsAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

//===-- Names -------------------------------------------------------------===//

StringRef GraphOp::getArgName(unsigned index) {
  auto name = getArgAttrOfType<StringAttr>(index, kNameAttr);
  return name ? name.getValue() : StringRef();
}

std::string GraphOp::getResultName(unsigned index) {
  auto name = getResultAttrOfType<StringAttr>(index, kNameAttr);
  return name ? name.getValue().str() : ("result" + Twine(index)).str();
}

ReturnOp GraphOp::getReturn() { return cast<ReturnOp>(getBody().front().getTerminator()); }

//===-- Checks of the operation -------------------------------------------===//

static bool isPlainName(StringRef name) {
  return !name.empty() && !llvm::isDigit(name[0]) &&
         llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

// Whether the sizes are known and positive and 64 bits can count the bytes.
static bool hasFixedSize(RankedTensorType tensor) {
  int64_t elements = 1;
  if (!tensor.hasStaticShape() || tensor.getRank() == 0)
    return false;
  for (int64_t size : tensor.getShape())
    if (size < 1 || llvm::MulOverflow(elements, size, elements) || elements > (int64_t(1) << 40))
      return false;
  return true;
}

// Tensors of fixed sizes, caches and lengths can be bound by a caller.
static bool isBindable(Type type) {
  if (isa<KvCacheType, LengthsType>(type))
    return true;
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !hasFixedSize(tensor))
    return false;
  Type element = tensor.getElementType();
  return element.isF16() || element.isBF16() || element.isF32() || element.isSignlessInteger(32) ||
         element.isSignlessInteger(64);
}

/// An attribute without a dialect's prefix, or with this one's, means something here, or is a mistake.
static LogicalResult checkKnown(GraphOp graph, StringRef name, ArrayRef<StringRef> known, StringRef what) {
  bool isOurs = !name.contains('.') || name.starts_with("attn.");
  if (!isOurs || llvm::is_contained(known, name))
    return success();
  return graph.emitOpError("knows no attribute '")
         << name << "' of " << what << "; there is " << known.front();
}

LogicalResult GraphOp::verify() {
  if (!isPlainName(getSymName()))
    return emitOpError("is called '")
           << getSymName() << "'; kernels are named after it: use letters, digits and _";
  for (BlockArgument argument : getBody().getArguments())
    if (!isBindable(argument.getType()))
      return mlir::emitError(argument.getLoc())
             << "argument %" << getArgName(argument.getArgNumber()) << " is " << argument.getType()
             << "; a tensor of fixed, positive sizes of f16, bf16, f32, i32 or i64, a cache or lengths is "
                "needed";
  for (NamedAttribute attr : (*this)->getDiscardableAttrs())
    if (failed(checkKnown(*this, attr.getName(), {kMostRequestsAttr, "attn.plan"}, "the graph")))
      return failure();
  for (BlockArgument argument : getBody().getArguments())
    if (DictionaryAttr attrs = function_interface_impl::getArgAttrDict(*this, argument.getArgNumber()))
      for (NamedAttribute attr : attrs)
        if (failed(checkKnown(*this, attr.getName(), {kNameAttr}, "an argument")))
          return failure();
  auto most = (*this)->getAttr(kMostRequestsAttr);
  auto number = dyn_cast_or_null<IntegerAttr>(most);
  constexpr int64_t kMost = 1 << 20;
  if (most &&
      (!number || !number.getType().isSignlessInteger(64) || number.getInt() < 1 || number.getInt() > kMost))
    return emitOpError("has ") << kMostRequestsAttr << " = " << most << "; a number of requests, 1 to "
                               << kMost << ", is needed";
  return success();
}

LogicalResult GraphOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (!isa<AttnDialect>(op.getDialect()) || isa<GraphOp>(op))
      return op.emitError("'") << op.getName() << "' cannot be in a graph: only attn's operations can";
  if (!isa<ReturnOp>(getBody().front().back()))
    return emitOpError("must end with attn.return");
  return success();
}

LogicalResult ReturnOp::verify() {
  ArrayRef<Type> declared = cast<GraphOp>((*this)->getParentOp()).getResultTypes();
  if (declared.size() != getNumOperands())
    return emitOpError("has ") << getNumOperands() << " values; the graph declares " << declared.size();
  for (auto [index, type, value] : llvm::enumerate(declared, getValues()))
    if (type != value.getType())
      return emitOpError("value ") << index << " is " << value.getType() << "; the graph declares " << type;
  return success();
}

//===-- Checks of a file --------------------------------------------------===//

static LogicalResult checkNames(GraphOp graph) {
  llvm::StringMap<Location> seen;
  auto check = [&](StringRef name, Location loc, StringRef what) -> LogicalResult {
    if (name.empty())
      return emitError(loc) << "an " << what << " has no name";
    auto [it, isNew] = seen.try_emplace(name, loc);
    if (isNew)
      return success();
    InFlightDiagnostic diag = emitError(loc) << what << " '" << name << "' has the name of another tensor";
    diag.attachNote(it->second) << "the other is here";
    return diag;
  };
  for (BlockArgument argument : graph.getBody().getArguments())
    if (failed(check(graph.getArgName(argument.getArgNumber()), argument.getLoc(), "argument")))
      return failure();
  for (unsigned i = 0, n = graph.getResultTypes().size(); i < n; ++i)
    if (failed(check(graph.getResultName(i), graph.getReturn().getLoc(), "result")))
      return failure();
  return success();
}

// A result is a tensor of its own that some operation computes.
static LogicalResult checkResults(GraphOp graph) {
  ReturnOp op = graph.getReturn();
  if (op.getValues().empty())
    return graph.emitError("graph @") << graph.getSymName() << " returns nothing; return at least one value";
  llvm::SmallPtrSet<Value, 4> seen;
  for (Value value : op.getValues()) {
    std::string name = getValueName(value);
    if (isa<KvCacheType>(value.getType()))
      return op.emitError("%") << name << " is a cache; caches are updated in place and not returned";
    if (isa<BlockArgument>(value))
      return op.emitError("%") << name << " is an argument; only computed values are returned";
    if (!seen.insert(value).second)
      return op.emitError("%") << name << " is returned twice";
  }
  return success();
}

// A cache is updated in place, so a second append to the same buffers has no older value to start from.
static LogicalResult checkAppends(GraphOp graph) {
  llvm::SmallDenseMap<Value, KvAppendOp> appends;
  for (auto append : graph.getBody().getOps<KvAppendOp>()) {
    Value cache = append.getCache();
    if (auto before = cache.getDefiningOp<KvAppendOp>())
      cache = before.getCache();
    auto [it, isNew] = appends.try_emplace(cache, append);
    if (isNew)
      continue;
    InFlightDiagnostic diag = append.emitError("%")
                              << getValueName(cache)
                              << " is appended to twice; a graph appends to a cache once";
    diag.attachNote(it->second.getLoc()) << "the first is here";
    return diag;
  }
  return success();
}

static void warnUnused(GraphOp graph) {
  for (BlockArgument argument : graph.getBody().getArguments())
    if (argument.use_empty())
      emitWarning(argument.getLoc()) << "argument %" << graph.getArgName(argument.getArgNumber())
                                     << " is not used";
  for (Operation &op : graph.getBody().front())
    if (op.getNumResults() && op.use_empty() && !isa<KvAppendOp>(op))
      op.emitWarning("%") << getValueName(op.getResult(0)) << " is not used";
}

LogicalResult cfc::attn::verifyGraphFile(ModuleOp module) {
  GraphOp first;
  for (auto graph : module.getOps<GraphOp>()) {
    if (first) {
      InFlightDiagnostic diag = graph.emitError("a second graph, @")
                                << graph.getSymName() << "; a file holds one";
      diag.attachNote(first.getLoc()) << "the first, @" << first.getSymName() << ", is here";
      return diag;
    }
    first = graph;
  }
  if (!first)
    return module.emitError("the file holds no attn.graph");
  if (failed(checkResults(first)) || failed(checkNames(first)) || failed(checkAppends(first)))
    return failure();
  warnUnused(first);
  return success();
}
