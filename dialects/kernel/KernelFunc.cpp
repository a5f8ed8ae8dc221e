//===- KernelFunc.cpp - kernel.func, kernel.for_items, kernel.finish ----------===//
//
// Parsing, printing and verification of the operations that hold regions.
//
//===----------------------------------------------------------------------===//
#include "dialects/kernel/KernelChecks.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"
#include "llvm/ADT/StringExtras.h"
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

//===-- kernel.func: verification -----------------------------------------------===//

/// Most workers of a warp, cta and grid axis: limits of the hardware, and what loops over items count to.
static constexpr int64_t kMaxWarps = 16, kMaxCtas = 16, kMaxItems = int64_t(1) << 24;

static LogicalResult verifyAxes(FuncOp func) {
  llvm::StringSet<> names;
  for (AxisAttr a : func.getAxes().getAsRange<AxisAttr>()) {
    if (!names.insert(a.getName().getValue()).second)
      return func.emitOpError("declares axis ") << a.getName() << " twice";
    if (a.getSize() < 1)
      return func.emitOpError("axis ")
             << a.getName() << " has size " << a.getSize() << "; at least 1 is needed";
    if (a.getLevel() != Level::Grid && !llvm::isPowerOf2_64(a.getSize()))
      return func.emitOpError("axis ")
             << a.getName() << " has size " << a.getSize() << "; powers of two are possible";
    if (a.getLevel() == Level::Grid && a.getSize() > kMaxItems)
      return func.emitOpError("axis ")
             << a.getName() << " has " << a.getSize() << " items; up to " << kMaxItems << " are possible";
    // Before they are multiplied: products must not overflow.
    if (a.getLevel() == Level::Cta && a.getSize() > kMaxCtas)
      return func.emitOpError("has ") << a.getSize() << " CTAs a cluster; 16 are the most";
    if (a.getLevel() == Level::Warp && a.getSize() > kMaxWarps)
      return func.emitOpError("has ") << a.getSize() << " consumer warps; 4, 8 or 16 are possible";
  }
  if (func.clusterSize() > kMaxCtas)
    return func.emitOpError("has ") << func.clusterSize() << " CTAs a cluster; 16 are the most";
  int64_t warps = func.consumerWarps();
  if (warps != 4 && warps != 8 && warps != 16)
    return func.emitOpError("has ") << warps << " consumer warps; 4, 8 or 16 are possible";
  return success();
}

namespace {
struct PlanKey {
  StringRef name;
  int64_t least, most;
};
} // namespace

static LogicalResult verifyPlan(FuncOp func) {
  // How deep the ring may be is up to the layout of shared memory.
  static const PlanKey known[] = {{"ring_stages", INT64_MIN, INT64_MAX},
                                  {"in_flight", 0, 64},
                                  {"prefetch", 0, 64},
                                  {"prefetch_later", 0, 64},
                                  {"held", 0, 64},
                                  {"tile_columns", 0, 1 << 20},
                                  {"ctas_per_sm", 1, 32},
                                  {"clusters", 0, 1 << 24},
                                  {"lets_next", 0, 2},
                                  {"pdl", 0, 3}};
  for (NamedAttribute a : func.getPlan()) {
    const PlanKey *key = llvm::find_if(known, [&](const PlanKey &k) { return k.name == a.getName(); });
    if (key == std::end(known))
      return func.emitOpError("has an unknown plan key '")
             << a.getName().getValue()
             << "'; known are ring_stages, in_flight, prefetch, prefetch_later, held, tile_columns, "
                "ctas_per_sm, "
                "clusters, lets_next and pdl";
    auto value = dyn_cast<IntegerAttr>(a.getValue());
    if (!value || !value.getType().isInteger(64))
      return func.emitOpError("plan key '") << key->name << "' needs an integer, not " << a.getValue();
    if (value.getInt() < key->least || value.getInt() > key->most)
      return func.emitOpError("plan key '") << key->name << "' is " << value.getInt() << "; " << key->least
                                            << " to " << key->most << " are possible";
  }
  // A ring has a multiple of the sets of warps.
  int64_t stages = func.planValue("ring_stages", 0), inFlight = func.planValue("in_flight", 0);
  if (stages > 0 && static_cast<uint64_t>(inFlight) > llvm::alignTo(stages, func.consumerWarps() / 4))
    return func.emitOpError("plan key 'in_flight' is ")
           << inFlight << " with ring_stages = " << stages << "; no more tiles are copied at a time";
  return success();
}

/// Requests of a cache, and tokens of a page, at most.
static constexpr int64_t kMaxRequests = 64, kMaxPage = 256;

static LogicalResult verifyArgument(FuncOp func, Type type) {
  if (auto cache = dyn_cast<CacheType>(type)) {
    Type e = cache.getElementType();
    if (cache.getHeads() < 1 || cache.getHeads() > kMaxItems || cache.getDim() < 1 || cache.getDim() > 1024 ||
        cache.getVDim() < 1 || cache.getVDim() > 1024 || cache.getRequests() < 1 ||
        cache.getRequests() > kMaxItems || cache.getPage() < 0 || cache.getPage() > 65536 ||
        (!e.isF16() && !e.isBF16() && !isa<Float8E4M3FNType>(e)))
      return func.emitOpError(
                 "takes caches of f16, bf16 or f8E4M3FN with at least one head of 1 to 1024 elements, not ")
             << type;
    if (cache.getRequests() < 1 || cache.getRequests() > kMaxRequests || cache.getPage() < 0 ||
        cache.getPage() > kMaxPage)
      return func.emitOpError("takes caches of 1 to ")
             << kMaxRequests << " requests, with pages of up to " << kMaxPage << " tokens, not " << type;
    return success();
  }
  auto memory = dyn_cast<MemRefType>(type);
  if (!memory || !memory.hasStaticShape() || !memory.getLayout().isIdentity())
    return func.emitOpError("takes memrefs of static shape and !kernel.cache, not ") << type;
  Type e = memory.getElementType();
  if (!e.isF16() && !e.isBF16() && !e.isF32() && !e.isSignlessInteger(32) && !e.isSignlessInteger(64))
    return func.emitOpError("takes memory of f16, bf16, f32, i32 and i64, not ") << type;
  return checkShape(func, memory.getShape(), kMaxElements);
}

/// The operation of the kernel's own block that `op` is or lies in.
static Operation *topLevel(Operation *op) {
  while (!isa<FuncOp>(op->getParentOp()))
    op = op->getParentOp();
  return op;
}

bool cfc::kernel::isBehindGridSync(Operation *op, Operation *earlier) {
  Operation *last = topLevel(op);
  for (Operation *one = topLevel(earlier); one && one != last; one = one->getNextNode())
    if (isa<GridSyncOp>(one))
      return one->isBeforeInBlock(last);
  return false;
}

/// Whether a kernel.grid_sync stands between two operations of a kernel.
static bool isOrdered(Operation *a, Operation *b) { return isBehindGridSync(a, b) || isBehindGridSync(b, a); }

/// Only kernel.grid_sync orders the clusters of a kernel: what one writes another cannot read before, under
/// whatever name. Streams, gains and rotations are read ahead of it.
static LogicalResult verifyArgumentUses(FuncOp func) {
  llvm::StringSet<> names;
  for (BlockArgument arg : func.getArguments()) {
    auto name = func.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr);
    if (name && !names.insert(name.getValue()).second)
      return func.emitOpError("has two arguments with the name ") << name;
    for (Operation *write : arg.getUsers())
      for (Operation *other : arg.getUsers()) {
        if (!isa<WriteOp, LeaveOp>(write) || write->getName() == other->getName())
          continue;
        if (!isa<WriteOp, ReadOp, LeaveOp, MergeStatesOp, AttendNewOp>(other))
          return write->emitOpError("writes memory that this kernel also reads, by ")
                 << other->getName()
                 << " ahead of all barriers: write to another tensor, or read it as a tile "
                 << "behind a kernel.grid_sync or in a kernel of its own";
        if (!isOrdered(write, other))
          return write->emitOpError(
              "writes memory that this kernel also reads: other CTAs may read before or after; "
              "write to another tensor, put a kernel.grid_sync between, or read in a kernel of its own");
      }
  }
  return success();
}

LogicalResult FuncOp::verify() {
  if (getFunctionType().getNumResults())
    return emitOpError("returns nothing: results are memory that it writes");
  auto isNameCharacter = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  if (getSymName().empty() || llvm::isDigit(getSymName()[0]) || !llvm::all_of(getSymName(), isNameCharacter))
    return emitOpError("is called '")
           << getSymName() << "', which becomes a name in PTX: use letters, digits and _";
  if (failed(verifyAxes(*this)) || failed(verifyPlan(*this)))
    return failure();
  for (Type t : getArgumentTypes())
    if (failed(verifyArgument(*this, t)))
      return failure();
  return success();
}

LogicalResult FuncOp::verifyRegions() {
  if (!getBody().hasOneBlock() || getBody().front().empty() || !isa<ReturnOp>(getBody().front().back()))
    return emitOpError("needs one block that ends with kernel.return");
  WalkResult foreign = getBody().walk([&](Operation *op) -> WalkResult {
    bool isBias = isa<AttendOp, AttendNewOp>(op->getParentOp()); // scalars; attn's verifier says which
    if (isBias || (op->getDialect() == getOperation()->getDialect() && !isa<FuncOp>(op)))
      return WalkResult::advance();
    return op->emitOpError("cannot stand in a kernel.func");
  });
  return failure(foreign.wasInterrupted() || failed(verifyArgumentUses(*this)));
}

//===-- kernel.for_items -------------------------------------------------------===//

ParseResult ForItemsOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::Argument> items;
  OpAsmParser::UnresolvedOperand work;
  std::string axis;
  if (parser.parseArgumentList(items, AsmParser::Delimiter::None) || parser.parseKeyword("over") ||
      parser.parseKeywordOrString(&axis))
    return failure();
  for (OpAsmParser::Argument &item : items)
    item.type = ItemType::get(parser.getContext());
  if (succeeded(parser.parseOptionalKeyword("by")) &&
      (parser.parseOperand(work) ||
       parser.resolveOperand(work, WorkType::get(parser.getContext()), result.operands)))
    return failure();
  result.addAttribute(getAxisAttrName(result.name), parser.getBuilder().getStringAttr(axis));
  Region *body = result.addRegion();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) || parser.parseRegion(*body, items))
    return failure();
  ensureTerminator(*body, parser.getBuilder(), result.location);
  return success();
}

void ForItemsOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printOperands(getBody().getArguments());
  printer << " over " << getAxis();
  if (getWork())
    printer << " by " << getWork();
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
  auto isItem = [](BlockArgument argument) { return isa<ItemType>(argument.getType()); };
  if (getBody().getNumArguments() != (getWork() ? 2 : 1) || !llvm::all_of(getBody().getArguments(), isItem))
    return emitOpError(getWork() ? "has two block arguments, the item and its share"
                                 : "has one block argument, the item");
  auto list = getWork() ? getWork().getDefiningOp<WorkListOp>() : WorkListOp();
  if (!getWork())
    return success();
  auto cache = list ? cast<CacheType>(list.getCache().getType()) : CacheType();
  int64_t rows = list && list.getQueries() ? list.getRows() : list ? cache.getRequests() : 0;
  if (!list || cache.getHeads() * rows != axis.getSize())
    return emitOpError("shares out ") << axis.getSize() << " items by a kernel.work_list of as many heads";
  if (func.clusterSize() != 1 || func.consumerWarps() != 4)
    return emitOpError("shares out heads to clusters of one CTA with 4 consumer warps");
  return success();
}

//===-- kernel.outer and kernel.inner ------------------------------------------===//

/// Of an item of a loop, or of the whole that items are parts of; `of` divides them.
static LogicalResult verifyPartOfItem(Operation *op, Value item, int64_t of) {
  if (!isa<BlockArgument>(item) && !item.getDefiningOp<OuterOp>())
    return op->emitOpError("takes the item of a kernel.for_items, or a kernel.outer of it");
  if (int64_t items = itemsOf(item); of < 1 || items % of)
    return op->emitOpError("divides ")
           << items << " items into runs of " << of << ", which does not divide them";
  return success();
}
LogicalResult OuterOp::verify() { return verifyPartOfItem(*this, getItem(), getOf()); }
LogicalResult InnerOp::verify() { return verifyPartOfItem(*this, getItem(), getOf()); }

//===-- kernel.grid_sync -------------------------------------------------------===//

LogicalResult GridSyncOp::verify() {
  if (!isa_and_present<FuncOp>((*this)->getParentOp()))
    return emitOpError("stands outside of loops: CTAs take different numbers of items");
  return success();
}

//===-- kernel.finish ------------------------------------------------------------===//

ParseResult FinishOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::UnresolvedOperand tile;
  OpAsmParser::Argument sum;
  std::string axis;
  StringRef word;
  Type type;
  if (succeeded(parser.parseOptionalKeyword("gather")))
    result.addAttribute(getGatherAttrName(result.name), parser.getBuilder().getUnitAttr());
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
  printer << (getGather() ? " gather " : " ") << getTile() << " over " << getAxis() << " by "
          << stringifyAlgorithm(getAlgorithm());
  SmallVector<StringRef> elided = {getAxisAttrName(), getAlgorithmAttrName(), getGatherAttrName()};
  if (getPieces() == 1)
    elided.push_back(getPiecesAttrName());
  if (getFinishers() == 0)
    elided.push_back(getFinishersAttrName());
  if (!getEach())
    elided.push_back(getEachAttrName());
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), elided);
  printer << " : " << getTile().getType() << " as ";
  printer.printRegionArgument(getBody().getArgument(0));
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
}
