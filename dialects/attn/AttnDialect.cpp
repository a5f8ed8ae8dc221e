//===- AttnDialect.cpp - Registration, types and names of attn -------------===//
#include "dialects/attn/Attn.h"
#include "dialects/attn/AttnAssembly.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace cfc::attn;

#include "dialects/attn/AttnDialect.cpp.inc"
#include "dialects/attn/AttnEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/attn/AttnAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/attn/AttnTypes.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.cpp.inc"

void AttnDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/AttnOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/attn/AttnTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/attn/AttnAttrs.cpp.inc"
      >();
}

static ParseResult rejectOperation(OpAsmParser &parser, OperationState &state) {
  SmallVector<StringRef> known;
  for (RegisteredOperationName op : parser.getContext()->getRegisteredOperations())
    if (op.getDialectNamespace() == "attn")
      known.push_back(op.getStringRef());
  StringRef wrong = state.name.getStringRef();
  InFlightDiagnostic diag = parser.emitError(parser.getNameLoc(), "is unknown");
  if (StringRef near = nearestName(wrong, known); !near.empty())
    diag << "; did you mean '" << near << "'?";
  return diag;
}

// Called only for operations that are not registered.
std::optional<Dialect::ParseOpHook> AttnDialect::getParseOperationHook(StringRef) const {
  return ParseOpHook(rejectOperation);
}

//===-- Types -------------------------------------------------------------===//

/// `, name = number`, or nothing and `otherwise` where another name or the element type follows.
static ParseResult parseOption(AsmParser &parser, StringRef name, int64_t &value) {
  if (failed(parser.parseOptionalKeyword(name)))
    return success();
  return failure(parser.parseEqual() || parser.parseInteger(value) || parser.parseComma());
}

Type KvCacheType::parse(AsmParser &parser) {
  int64_t heads = 0, dim = 0, vDim = -1, page = -1;
  SMLoc loc = parser.getCurrentLocation();
  Type element;
  if (parser.parseLess() || parser.parseKeyword("heads") || parser.parseEqual() ||
      parser.parseInteger(heads) || parser.parseComma() || parser.parseKeyword("dim") ||
      parser.parseEqual() || parser.parseInteger(dim) || parser.parseComma() ||
      parseOption(parser, "v_dim", vDim) || parseOption(parser, "page", page) || parser.parseType(element) ||
      parser.parseGreater())
    return {};
  if (page == 0) // what no `page` means
    return parser.emitError(loc, "a page has at least 1 token; leave `page` out for a cache without pages"),
           Type();
  return parser.getChecked<KvCacheType>(loc, parser.getContext(), heads, dim, vDim == -1 ? dim : vDim,
                                        page == -1 ? 0 : page, element);
}

void KvCacheType::print(AsmPrinter &printer) const {
  printer << "<heads = " << getHeads() << ", dim = " << getDim();
  if (getVDim() != getDim())
    printer << ", v_dim = " << getVDim();
  if (isPaged())
    printer << ", page = " << getPage();
  printer << ", " << getElementType() << '>';
}

LogicalResult KvCacheType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t heads, int64_t dim,
                                  int64_t vDim, int64_t page, Type elementType) {
  constexpr int64_t most = 65536;
  if (heads < 1 || dim < 1 || heads > most || dim > most)
    return emitError() << "a cache has 1 to " << most << " heads of 1 to " << most
                       << " elements, not heads = " << heads << ", dim = " << dim;
  if (vDim < 1 || vDim > most)
    return emitError() << "a cache has heads of V of 1 to " << most << " elements, not v_dim = " << vDim;
  if (page < 0 || page > most)
    return emitError() << "a page has 1 to " << most << " tokens, not " << page;
  if (!elementType.isF16() && !elementType.isBF16() && !isa<Float8E4M3FNType>(elementType))
    return emitError() << "a cache holds f16, bf16 or f8E4M3FN, not " << elementType;
  return success();
}

LogicalResult LengthsType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t count,
                                  int64_t capacity) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (count < 1)
    return emitError() << "lengths of at least 1 request are needed, not " << count;
  if (capacity < 1 || capacity > most)
    return emitError() << "a capacity is from 1 to " << most << " tokens, not " << capacity;
  return success();
}

RankedTensorType cfc::attn::linearResultType(RankedTensorType x, RankedTensorType weight) {
  return RankedTensorType::get({x.getDimSize(0), weight.getDimSize(0)}, x.getElementType());
}

RankedTensorType cfc::attn::attentionType(RankedTensorType q, KvCacheType cache) {
  return RankedTensorType::get({q.getDimSize(0), q.getDimSize(1) / cache.getDim() * cache.getVDim()},
                               q.getElementType());
}

RankedTensorType cfc::attn::logSumExpType(RankedTensorType q, KvCacheType cache) {
  return RankedTensorType::get({q.getDimSize(0), q.getDimSize(1) / cache.getDim()},
                               Float32Type::get(q.getContext()));
}

RankedTensorType cfc::attn::ropeTableType(MLIRContext *context, int64_t positions, int64_t dim) {
  return RankedTensorType::get({positions, dim}, Float32Type::get(context));
}

SmallVector<Type> cfc::attn::inferResultTypes(Operation *op) {
  using Types = SmallVector<Type>;
  return TypeSwitch<Operation *, Types>(op)
      .Case([](RmsNormOp norm) { return Types{norm.getX().getType()}; })
      .Case([](LayerNormOp norm) { return Types{norm.getX().getType()}; })
      .Case([](LinearOp linear) {
        return llvm::map_to_vector(linear.getWeights().getTypes(), [&](Type weight) -> Type {
          return linearResultType(linear.getX().getType(), cast<RankedTensorType>(weight));
        });
      })
      .Case([](RopeOp rope) { return Types(rope.getValues().getTypes()); })
      .Case([](RopeTableOp table) {
        int64_t positions = table.getPositions(), dim = table.getDim();
        return Types{ropeTableType(table.getContext(), positions, dim)};
      })
      .Case([](KvAppendOp append) { return Types{append.getCache().getType()}; })
      .Case([](AttentionOp attention) {
        RankedTensorType q = attention.getQ().getType();
        KvCacheType cache = attention.getCache().getType();
        Types types{attentionType(q, cache)};
        if (attention.getLse())
          types.push_back(logSumExpType(q, cache));
        return types;
      })
      .Case([](AddOp add) { return Types{add.getLhs().getType()}; })
      .Default([](Operation *) { return Types(); });
}

cfc::RopeTable RopeTableOp::describe() {
  cfc::RopeTable table;
  auto set = [](double &value, const std::optional<APFloat> &given) {
    if (given)
      value = given->convertToDouble();
  };
  table.base = getBase().convertToDouble();
  table.dim = getDim();
  table.scaling = static_cast<cfc::RopeStretch>(getScaling().value_or(RopeScaling::None));
  set(table.factor, getFactor());
  if (auto positions = getOriginalPositions())
    table.originalPositions = static_cast<double>(*positions);
  set(table.lowFreqFactor, getLowFreqFactor());
  set(table.highFreqFactor, getHighFreqFactor());
  set(table.betaFast, getBetaFast());
  set(table.betaSlow, getBetaSlow());
  if (table.scaling == cfc::RopeStretch::Yarn)
    table.attentionFactor = cfc::RopeTable::usualAttentionFactor(table.factor);
  set(table.attentionFactor, getAttentionFactor());
  table.truncate = getTruncate().value_or(true);
  return table;
}

SmallVector<Value> cfc::attn::operandsOf(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  for (Region &region : op->getRegions())
    region.walk([&](Operation *inner) {
      for (Value value : inner->getOperands())
        if (!region.isAncestor(value.getParentRegion()))
          values.push_back(value);
    });
  return values;
}

KvAppendOp AttentionOp::getAppend() { return getCache().getDefiningOp<KvAppendOp>(); }

//===-- Names -------------------------------------------------------------===//

bool cfc::attn::isSsaName(StringRef name) {
  if (name.empty() || (!llvm::isAlpha(name[0]) && name[0] != '_'))
    return false;
  return llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.'; });
}

StringRef cfc::attn::nearestName(StringRef name, ArrayRef<StringRef> candidates) {
  StringRef best;
  // A swap of two letters counts 2; a name of one letter is near to nothing.
  size_t most = std::min(std::max<size_t>(2, name.size() / 3), name.size() - !name.empty());
  unsigned bestDistance = most + 1;
  for (StringRef candidate : candidates) {
    unsigned distance = name.edit_distance(candidate, /*AllowReplacements=*/true, bestDistance);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

void cfc::attn::setValueNames(Operation *op, ArrayRef<std::string> names) {
  SmallVector<StringRef> refs(names.begin(), names.end());
  op->setDiscardableAttr(kNamesAttr, Builder(op->getContext()).getStrArrayAttr(refs));
}

// The names stored for an operation's results; in a group all but the first are empty.
static SmallVector<StringRef> storedNames(Operation *op) {
  SmallVector<StringRef> names(op->getNumResults());
  auto stored = op->getAttrOfType<ArrayAttr>(kNamesAttr);
  if (!stored || stored.size() != names.size())
    return names;
  for (auto [name, attr] : llvm::zip_equal(names, stored))
    if (auto string = dyn_cast<StringAttr>(attr))
      name = string.getValue();
  return names;
}

std::string cfc::attn::getValueName(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto graph = dyn_cast<GraphOp>(argument.getOwner()->getParentOp());
    return graph ? graph.getArgName(argument.getArgNumber()).str() : "";
  }
  auto result = cast<OpResult>(value);
  SmallVector<StringRef> names = storedNames(result.getOwner());
  unsigned index = result.getResultNumber(), head = index;
  while (head > 0 && names[head].empty())
    --head;
  bool group = head + 1 < names.size() && names[head + 1].empty();
  if (names[head].empty() || !group)
    return names[head].str();
  return (names[head] + "#" + Twine(index - head)).str();
}

void cfc::attn::nameResults(Operation *op, OpAsmSetValueNameFn set) {
  for (auto [result, name] : llvm::zip_equal(op->getResults(), storedNames(op)))
    if (isSsaName(name))
      set(result, name);
}
