//===- KernelFunc.cpp - kernel.func, kernel.for_items, kernel.finish ----------===//
//
// Parsing, printing and verification of the operations that hold regions.
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/Kernel.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace cfc::kernel;

//===-- kernel.func -----------------------------------------------------------===//

/// `axes` `(` name `=` size `@` level, … `)`
static ParseResult parseAxes(OpAsmParser &parser, SmallVectorImpl<Attribute> &axes) {
  if (failed(parser.parseOptionalKeyword("axes")))
    return success();
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&]() -> ParseResult {
    std::string name;
    int64_t size;
    StringRef word;
    if (parser.parseKeywordOrString(&name) || parser.parseEqual() || parser.parseInteger(size))
      return failure();
    StringAttr levelSymbol;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseSymbolName(levelSymbol))
      return failure();
    word = levelSymbol.getValue();
    std::optional<Level> level = symbolizeLevel(word);
    if (!level)
      return parser.emitError(loc, "unknown level '@") << word << "': levels are @warp, @cta and @grid";
    axes.push_back(AxisAttr::get(parser.getContext(), parser.getBuilder().getStringAttr(name), size, *level));
    return success();
  });
}

/// `plan` `(` key `=` integer, … `)`
static ParseResult parsePlan(OpAsmParser &parser, NamedAttrList &plan) {
  if (failed(parser.parseOptionalKeyword("plan")))
    return success();
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&]() -> ParseResult {
    std::string key;
    int64_t value;
    if (parser.parseKeywordOrString(&key) || parser.parseEqual() || parser.parseInteger(value))
      return failure();
    plan.set(key, parser.getBuilder().getI64IntegerAttr(value));
    return success();
  });
}

ParseResult FuncOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &b = parser.getBuilder();
  StringAttr name;
  SmallVector<OpAsmParser::Argument> args;
  SmallVector<Attribute> axes;
  NamedAttrList plan;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(), result.attributes) ||
      parser.parseArgumentList(args, AsmParser::Delimiter::Paren, /*allowType=*/true, /*allowAttrs=*/true) ||
      parseAxes(parser, axes) || parsePlan(parser, plan) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  SmallVector<Type> types;
  SmallVector<Attribute> argAttrs;
  for (OpAsmParser::Argument &arg : args) {
    types.push_back(arg.type);
    // The SSA name is the tensor's name unless one is given.
    NamedAttrList attrs(arg.attrs);
    if (!attrs.get(kNameAttr) && !llvm::isDigit(arg.ssaName.name.drop_front().front()))
      attrs.set(kNameAttr, b.getStringAttr(arg.ssaName.name.drop_front()));
    argAttrs.push_back(attrs.getDictionary(b.getContext()));
  }
  result.addAttribute(getFunctionTypeAttrName(result.name), TypeAttr::get(b.getFunctionType(types, {})));
  if (!args.empty())
    result.addAttribute(getArgAttrsAttrName(result.name), b.getArrayAttr(argAttrs));
  result.addAttribute(getAxesAttrName(result.name), b.getArrayAttr(axes));
  result.addAttribute(getPlanAttrName(result.name), plan.getDictionary(b.getContext()));
  return parser.parseRegion(*result.addRegion(), args);
}

void FuncOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << "(";
  llvm::interleaveComma(getArguments(), printer, [&](BlockArgument arg) {
    DictionaryAttr attrs = getArgAttrDict(arg.getArgNumber());
    printer.printRegionArgument(arg, attrs ? attrs.getValue() : ArrayRef<NamedAttribute>());
  });
  printer << ") axes(";
  llvm::interleaveComma(getAxes().getAsRange<AxisAttr>(), printer, [&](AxisAttr a) {
    printer << a.getName().getValue() << " = " << a.getSize() << " @" << stringifyLevel(a.getLevel());
  });
  printer << ") plan(";
  llvm::interleaveComma(getPlan(), printer, [&](NamedAttribute a) {
    printer << a.getName().getValue() << " = " << cast<IntegerAttr>(a.getValue()).getInt();
  });
  printer << ")";
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getSymNameAttrName(), getFunctionTypeAttrName(), getArgAttrsAttrName(),
                            getResAttrsAttrName(), getAxesAttrName(), getPlanAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/true);
}

AxisAttr FuncOp::axis(StringRef name) {
  for (AxisAttr a : getAxes().getAsRange<AxisAttr>())
    if (a.getName().getValue() == name)
      return a;
  return {};
}

/// Product of the sizes of the axes of `level`.
static int64_t workers(FuncOp func, Level level) {
  int64_t n = 1;
  for (AxisAttr a : func.getAxes().getAsRange<AxisAttr>())
    if (a.getLevel() == level)
      n *= a.getSize();
  return n;
}

int64_t FuncOp::clusterSize() { return workers(*this, Level::Cta); }

int64_t FuncOp::consumerWarps() {
  bool declared =
      llvm::any_of(getAxes().getAsRange<AxisAttr>(), [](AxisAttr a) { return a.getLevel() == Level::Warp; });
  return declared ? workers(*this, Level::Warp) : 4;
}

int64_t FuncOp::planValue(StringRef key, int64_t fallback) {
  auto value = getPlan().getAs<IntegerAttr>(key);
  return value ? value.getInt() : fallback;
}

LogicalResult FuncOp::verify() {
  if (getFunctionType().getNumResults())
    return emitOpError("returns nothing: results are memory that it writes");
  llvm::StringSet<> names;
  for (AxisAttr a : getAxes().getAsRange<AxisAttr>()) {
    if (!names.insert(a.getName().getValue()).second)
      return emitOpError("declares axis ") << a.getName() << " twice";
    if (a.getSize() < 1)
      return emitOpError("axis ") << a.getName() << " has size " << a.getSize() << "; at least 1 is needed";
    if (a.getLevel() != Level::Grid && !llvm::isPowerOf2_64(a.getSize()))
      return emitOpError("axis ") << a.getName() << " has size " << a.getSize()
                                  << "; powers of two are possible";
  }
  if (clusterSize() > 16)
    return emitOpError("has ") << clusterSize() << " CTAs a cluster; 16 are the most";
  int64_t warps = consumerWarps();
  if (warps != 4 && warps != 8)
    return emitOpError("has ") << warps << " consumer warps; 4 or 8 are possible";
  static const StringRef known[] = {"ring_stages", "tile_columns", "ctas_per_sm", "pdl"};
  for (NamedAttribute a : getPlan())
    if (!llvm::is_contained(known, a.getName().getValue()))
      return emitOpError("has an unknown plan key '")
             << a.getName().getValue() << "'; known are ring_stages, tile_columns, ctas_per_sm and pdl";
  for (Type t : getArgumentTypes()) {
    auto memory = dyn_cast<MemRefType>(t);
    if (isa<CacheType>(t) || (memory && memory.hasStaticShape() && memory.getLayout().isIdentity()))
      continue;
    return emitOpError("takes memrefs of static shape and !kernel.cache, not ") << t;
  }
  return success();
}

//===-- kernel.for_items -------------------------------------------------------===//

ParseResult ForItemsOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::Argument item;
  std::string axis;
  if (parser.parseArgument(item) || parser.parseKeyword("over") || parser.parseKeywordOrString(&axis))
    return failure();
  item.type = ItemType::get(parser.getContext());
  result.addAttribute(getAxisAttrName(result.name), parser.getBuilder().getStringAttr(axis));
  Region *body = result.addRegion();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) || parser.parseRegion(*body, {item}))
    return failure();
  ensureTerminator(*body, parser.getBuilder(), result.location);
  return success();
}

void ForItemsOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printOperand(getItem());
  printer << " over " << getAxis();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {getAxisAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
}

LogicalResult ForItemsOp::verify() {
  auto func = (*this)->getParentOfType<FuncOp>();
  AxisAttr axis = func ? func.axis(getAxis()) : AxisAttr();
  if (!axis || axis.getLevel() != Level::Grid)
    return emitOpError("needs a grid axis of its kernel; '") << getAxis() << "' is none";
  if ((*this)->getParentOfType<ForItemsOp>())
    return emitOpError("cannot be nested in another kernel.for_items");
  if (getBody().getNumArguments() != 1 || !isa<ItemType>(getBody().getArgument(0).getType()))
    return emitOpError("has one block argument, the item");
  return success();
}

//===-- kernel.finish ------------------------------------------------------------===//

ParseResult FinishOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::UnresolvedOperand tile;
  OpAsmParser::Argument sum;
  std::string axis;
  StringRef word;
  Type type;
  if (parser.parseOperand(tile) || parser.parseKeyword("over") || parser.parseKeywordOrString(&axis) ||
      parser.parseKeyword("by"))
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Algorithm> algorithm = symbolizeAlgorithm(word);
  if (!algorithm)
    return parser.emitError(loc, "unknown algorithm '") << word << "': ordered or atomic";
  Builder &b = parser.getBuilder();
  result.addAttribute(getAxisAttrName(result.name), b.getStringAttr(axis));
  result.addAttribute(getAlgorithmAttrName(result.name), AlgorithmAttr::get(b.getContext(), *algorithm));
  Region *body = result.addRegion();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) || parser.parseColonType(type) ||
      parser.resolveOperand(tile, type, result.operands) || parser.parseKeyword("as") ||
      parser.parseArgument(sum, /*allowType=*/true) || parser.parseRegion(*body, {sum}))
    return failure();
  ensureTerminator(*body, b, result.location);
  return success();
}

void FinishOp::print(OpAsmPrinter &printer) {
  printer << " " << getTile() << " over " << getAxis() << " by " << stringifyAlgorithm(getAlgorithm());
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {getAxisAttrName(), getAlgorithmAttrName()});
  printer << " : " << getTile().getType() << " as ";
  printer.printRegionArgument(getBody().getArgument(0));
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
}
