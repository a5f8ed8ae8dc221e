//===- KernelTypes.cpp - Types of the kernel dialect ------------------------===//
//
// Distributed types print their states in words:
//   !kernel.tile<384xf32, part: split(0), head: partial(sum)>
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/Kernel.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cfc::kernel;

#define GET_TYPEDEF_CLASSES
#include "dialects/kernel/KernelTypes.cpp.inc"

void KernelDialect::registerKernelTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/kernel/KernelTypes.cpp.inc"
      >();
}

std::optional<StateAttr> cfc::kernel::stateOver(ArrayRef<StateAttr> states, StringRef axis) {
  for (StateAttr s : states)
    if (s.getAxis().getValue() == axis)
      return s;
  return std::nullopt;
}

SmallVector<StateAttr> cfc::kernel::withoutAxis(ArrayRef<StateAttr> states, StringRef axis) {
  SmallVector<StateAttr> rest;
  llvm::copy_if(states, std::back_inserter(rest),
                [&](StateAttr s) { return s.getAxis().getValue() != axis; });
  return rest;
}

/// axis `:` (`split` `(` dim `)` | `partial` `(` op `)`)
static FailureOr<StateAttr> parseState(AsmParser &parser) {
  std::string axis;
  StringRef word;
  if (parser.parseKeywordOrString(&axis) || parser.parseColon())
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word) || parser.parseLParen())
    return failure();
  auto name = StringAttr::get(parser.getContext(), axis);
  if (word == "split") {
    int64_t dim;
    if (parser.parseInteger(dim) || parser.parseRParen())
      return failure();
    return StateAttr::get(parser.getContext(), name, StateKind::Split, dim);
  }
  if (word == "partial") {
    StringRef op;
    SMLoc opLoc = parser.getCurrentLocation();
    if (parser.parseKeyword(&op) || parser.parseRParen())
      return failure();
    std::optional<StateKind> kind = symbolizeStateKind(op);
    if (!kind || *kind == StateKind::Split)
      return parser.emitError(opLoc, "expected partial(sum), partial(max) or partial(softmax)"), failure();
    return StateAttr::get(parser.getContext(), name, *kind, -1);
  }
  return parser.emitError(loc, "expected a state: split(dimension) or partial(sum | max | softmax)"),
         failure();
}

static ParseResult parseStates(AsmParser &parser, SmallVectorImpl<StateAttr> &states) {
  while (succeeded(parser.parseOptionalComma())) {
    FailureOr<StateAttr> state = parseState(parser);
    if (failed(state))
      return failure();
    states.push_back(*state);
  }
  return parser.parseGreater();
}

static void printStates(AsmPrinter &printer, ArrayRef<StateAttr> states) {
  for (StateAttr s : states) {
    printer << ", " << s.getAxis().getValue() << ": ";
    if (s.isPartial())
      printer << "partial(" << stringifyStateKind(s.getKind()) << ")";
    else
      printer << "split(" << s.getDim() << ")";
  }
}

template <typename T> static Type parseDistributed(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type element;
  SmallVector<StateAttr> states;
  if (parser.parseLess() || parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(element) || parseStates(parser, states))
    return {};
  return T::get(parser.getContext(), shape, element, states);
}

template <typename T> static void printDistributed(AsmPrinter &printer, T type) {
  printer << "<";
  for (int64_t d : type.getShape())
    printer << d << "x";
  printer << type.getElementType();
  printStates(printer, type.getStates());
  printer << ">";
}

Type TileType::parse(AsmParser &parser) { return parseDistributed<TileType>(parser); }
void TileType::print(AsmPrinter &printer) const { printDistributed(printer, *this); }
Type StreamType::parse(AsmParser &parser) { return parseDistributed<StreamType>(parser); }
void StreamType::print(AsmPrinter &printer) const { printDistributed(printer, *this); }

/// `, name = number` where that name follows a comma that has been read.
static ParseResult parseOption(AsmParser &parser, StringRef name, int64_t &value) {
  if (failed(parser.parseOptionalKeyword(name)))
    return success();
  return failure(parser.parseEqual() || parser.parseInteger(value) || parser.parseComma());
}

Type CacheType::parse(AsmParser &parser) {
  int64_t heads = 0, dim = 0, vDim = 0, requests = 1, page = 0;
  Type element;
  if (parser.parseLess() || parser.parseKeyword("heads") || parser.parseEqual() ||
      parser.parseInteger(heads) || parser.parseComma() || parser.parseKeyword("dim") ||
      parser.parseEqual() || parser.parseInteger(dim) || parser.parseComma())
    return {};
  vDim = dim;
  if (parseOption(parser, "v_dim", vDim) || parseOption(parser, "requests", requests) ||
      parseOption(parser, "page", page) || parser.parseType(element) || parser.parseGreater())
    return {};
  return CacheType::get(parser.getContext(), heads, dim, vDim, requests, page, element);
}

void CacheType::print(AsmPrinter &printer) const {
  printer << "<heads = " << getHeads() << ", dim = " << getDim();
  if (getVDim() != getDim())
    printer << ", v_dim = " << getVDim();
  if (getRequests() != 1)
    printer << ", requests = " << getRequests();
  if (isPaged())
    printer << ", page = " << getPage();
  printer << ", " << getElementType() << '>';
}

int64_t cfc::kernel::numEntries(Type type) {
  auto cache = dyn_cast<CacheType>(type);
  return cache ? cacheEntries(cache.hasBlocks(), cache.hasVStrides()) : 1;
}

Type KvStreamType::parse(AsmParser &parser) {
  int64_t dim = 0;
  Type element;
  SmallVector<StateAttr> states;
  if (parser.parseLess() || parser.parseInteger(dim) || parser.parseComma())
    return {};
  int64_t vDim = dim;
  if (parseOption(parser, "v_dim", vDim) || parser.parseType(element) || parseStates(parser, states))
    return {};
  return KvStreamType::get(parser.getContext(), dim, vDim, element, states);
}

void KvStreamType::print(AsmPrinter &printer) const {
  printer << "<" << getDim() << ", ";
  if (getVDim() != getDim())
    printer << "v_dim = " << getVDim() << ", ";
  printer << getElementType();
  printStates(printer, getStates());
  printer << ">";
}
