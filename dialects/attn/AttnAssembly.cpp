//===- AttnAssembly.cpp - Reading and writing operations of a graph --------===//
//
// Common grammar:
//   results `=` `attn.op` operands (`{` name `=` value, … `}`)? (`:` result types)?
// The result types are written only where they differ from what the operands
// imply. Attributes take plain numbers and words; unknown ones are errors,
// except those of a dialect (with a dot in their name).
//
//===----------------------------------------------------------------------===//
#include "dialects/attn/AttnAssembly.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace cfc::attn;

//===-- GraphScope --------------------------------------------------------===//

static thread_local GraphScope *innermost = nullptr;

GraphScope::GraphScope() : outer(innermost) { innermost = this; }
GraphScope::~GraphScope() { innermost = outer; }
GraphScope *GraphScope::current() { return innermost; }

void GraphScope::define(StringRef name, unsigned number, Type type) {
  SmallVector<Type, 1> &group = types[name];
  if (group.size() <= number)
    group.resize(number + 1);
  group[number] = type;
}

Type GraphScope::lookup(StringRef name, unsigned number) const {
  auto it = types.find(name);
  return it == types.end() || number >= it->second.size() ? Type() : it->second[number];
}

StringRef GraphScope::nearest(StringRef name) const {
  return nearestName(name, llvm::to_vector(types.keys()));
}

//===-- Reading -----------------------------------------------------------===//

namespace {

enum class Form { Number, Integer, Flag, Style, Scaling };
struct Field {
  StringRef name;
  Form form;
};
struct Operand {
  Type type;
  SMLoc loc;
  StringRef name;
};

// Reads one operation: operands, then attributes, then results.
class OpReader {
public:
  OpReader(OpAsmParser &parser, OperationState &state) : parser(parser), state(state) {}

  ParseResult operand(Operand &operand);
  // `[` operand, … `]`
  ParseResult operands(SmallVectorImpl<Operand> &list);
  // Nothing, or operand, …
  ParseResult optionalOperands();
  // Nothing, or the word and so many operands; tells whether they are there.
  ParseResult clause(StringRef word, unsigned count, bool &isThere);
  // A region whose arguments have these types, and that sees the values before it.
  ParseResult region(ArrayRef<Type> argumentTypes);
  ParseResult attributes(ArrayRef<Field> fields);
  ParseResult results(ArrayRef<Type> inferred);

private:
  ParseResult resolve(const OpAsmParser::UnresolvedOperand &use, Operand &operand);
  ParseResult attribute(ArrayRef<Field> fields);
  FailureOr<Attribute> value(Field field);
  FailureOr<Attribute> word(Form form);
  FailureOr<Attribute> flag(StringRef name);
  InFlightDiagnostic error(SMLoc loc, const Twine &message) { return parser.emitError(loc, message); }

  OpAsmParser &parser;
  OperationState &state;
};

} // namespace

ParseResult OpReader::operand(Operand &operand) {
  OpAsmParser::UnresolvedOperand use;
  return failure(parser.parseOperand(use) || resolve(use, operand));
}

ParseResult OpReader::optionalOperands() {
  OpAsmParser::UnresolvedOperand use;
  OptionalParseResult first = parser.parseOptionalOperand(use);
  if (!first.has_value())
    return success();
  Operand operand;
  if (*first || resolve(use, operand))
    return failure();
  while (succeeded(parser.parseOptionalComma()))
    if (this->operand(operand))
      return failure();
  return success();
}

ParseResult OpReader::clause(StringRef word, unsigned count, bool &isThere) {
  isThere = succeeded(parser.parseOptionalKeyword(word));
  for (unsigned i = 0; isThere && i < count; ++i) {
    Operand operand;
    if ((i && parser.parseComma()) || this->operand(operand))
      return failure();
  }
  return success();
}

ParseResult OpReader::region(ArrayRef<Type> argumentTypes) {
  SmallVector<OpAsmParser::Argument> arguments;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseArgumentList(arguments, AsmParser::Delimiter::Paren))
    return failure();
  if (arguments.size() != argumentTypes.size())
    return error(loc, "has ") << arguments.size() << " arguments here; " << argumentTypes.size()
                              << " are needed";
  for (auto [argument, type] : llvm::zip_equal(arguments, argumentTypes))
    argument.type = type;
  return parser.parseRegion(*state.addRegion(), arguments);
}

ParseResult OpReader::resolve(const OpAsmParser::UnresolvedOperand &use, Operand &operand) {
  GraphScope *scope = GraphScope::current();
  if (!scope)
    return error(use.location, "must be inside attn.graph");
  StringRef name = use.name.drop_front();
  Type type = scope->lookup(name, use.number);
  if (!type) {
    InFlightDiagnostic diag = error(use.location, "uses ") << use.name << ", which is not defined before it";
    if (StringRef near = scope->nearest(name); !near.empty() && near != name)
      diag << "; did you mean %" << near << "?";
    return diag;
  }
  operand = {type, use.location, use.name};
  return parser.resolveOperand(use, type, state.operands);
}

ParseResult OpReader::operands(SmallVectorImpl<Operand> &list) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                        [&] { return operand(list.emplace_back()); });
}

ParseResult OpReader::attributes(ArrayRef<Field> fields) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::OptionalBraces,
                                        [&] { return attribute(fields); });
}

ParseResult OpReader::attribute(ArrayRef<Field> fields) {
  SMLoc loc = parser.getCurrentLocation();
  std::string name;
  if (parser.parseKeywordOrString(&name))
    return failure();
  if (state.attributes.get(name))
    return error(loc, "has '") << name << "' twice";
  const Field *field = llvm::find_if(fields, [&](const Field &f) { return f.name == name; });
  FailureOr<Attribute> attr;
  if (field != fields.end()) {
    if (parser.parseEqual() || failed(attr = value(*field)))
      return failure();
  } else if (StringRef(name).contains('.')) {
    attr = parser.getBuilder().getUnitAttr();
    if (succeeded(parser.parseOptionalEqual()) && parser.parseAttribute(*attr))
      return failure();
  } else {
    SmallVector<StringRef> known = llvm::map_to_vector(fields, [](const Field &f) { return f.name; });
    InFlightDiagnostic diag = error(loc, "has no attribute '") << name << "'";
    if (StringRef near = nearestName(name, known); !near.empty())
      diag << "; did you mean '" << near << "'?";
    else if (!known.empty())
      diag << "; it has " << llvm::join(known, ", ");
    return diag;
  }
  state.addAttribute(name, *attr);
  return success();
}

FailureOr<Attribute> OpReader::value(Field field) {
  if (field.form == Form::Style || field.form == Form::Scaling)
    return word(field.form);
  if (field.form == Form::Flag)
    return flag(field.name);
  SMLoc loc = parser.getCurrentLocation();
  Builder &builder = parser.getBuilder();
  Attribute attr;
  if (parser.parseAttribute(attr))
    return failure();
  auto integer = dyn_cast<IntegerAttr>(attr);
  if (integer && integer.getType().isSignlessInteger(64)) {
    int64_t number = integer.getInt();
    if (field.form == Form::Number)
      return Attribute(builder.getF64FloatAttr(static_cast<double>(number)));
    return Attribute(builder.getI64IntegerAttr(number));
  }
  if (auto number = dyn_cast<FloatAttr>(attr); number && field.form == Form::Number)
    return Attribute(builder.getF64FloatAttr(number.getValueAsDouble()));
  error(loc, "needs ") << (field.form == Form::Number ? "a number" : "an integer") << " as '" << field.name
                       << "', not " << attr;
  return failure();
}

// A word of an enumeration.
FailureOr<Attribute> OpReader::word(Form form) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  if (form == Form::Style) {
    if (std::optional<RopeStyle> style = symbolizeRopeStyle(word))
      return Attribute(RopeStyleAttr::get(parser.getContext(), *style));
  } else if (std::optional<RopeScaling> scaling = symbolizeRopeScaling(word)) {
    return Attribute(RopeScalingAttr::get(parser.getContext(), *scaling));
  }
  SmallVector<StringRef> known = {"half_split", "interleaved"};
  if (form == Form::Scaling)
    known = {"none", "linear", "llama3", "yarn"};
  InFlightDiagnostic diag = error(loc, form == Form::Style ? "has no style '" : "has no scaling '")
                            << word << "'";
  StringRef near = nearestName(word, known), last = known.pop_back_val();
  if (near.empty())
    diag << "; it has " << llvm::join(known, ", ") << " and " << last;
  else
    diag << "; did you mean '" << near << "'?";
  return failure();
}

FailureOr<Attribute> OpReader::flag(StringRef name) {
  SMLoc loc = parser.getCurrentLocation();
  if (succeeded(parser.parseOptionalKeyword("true")))
    return Attribute(parser.getBuilder().getBoolAttr(true));
  if (succeeded(parser.parseOptionalKeyword("false")))
    return Attribute(parser.getBuilder().getBoolAttr(false));
  error(loc, "needs true or false as '") << name << "'";
  return failure();
}

// Adds the result types, makes the results known to the operations that follow, and keeps their names.
ParseResult OpReader::results(ArrayRef<Type> inferred) {
  SmallVector<Type> types;
  SMLoc loc = parser.getCurrentLocation();
  if (succeeded(parser.parseOptionalColon())) {
    if (parser.parseTypeList(types))
      return failure();
    if (types.size() != inferred.size())
      return error(loc, "has ") << types.size() << " types for " << inferred.size() << " results";
  } else {
    types.assign(inferred.begin(), inferred.end());
  }
  state.addTypes(types);
  SmallVector<StringRef> names;
  for (auto [index, type] : llvm::enumerate(types)) {
    auto [name, number] = parser.getResultName(index);
    names.push_back(number == 0 ? name : StringRef());
    if (GraphScope *scope = GraphScope::current(); scope && !name.empty())
      scope->define(name, number, type);
  }
  if (!names.empty() && !names.front().empty())
    state.attributes.set(kNamesAttr, parser.getBuilder().getStrArrayAttr(names));
  return success();
}

// The operand as a tensor of that rank; the verifier checks its element type.
static FailureOr<RankedTensorType> tensor(OpAsmParser &parser, const Operand &operand, int64_t rank) {
  auto type = dyn_cast<RankedTensorType>(operand.type);
  if (type && type.getRank() == rank)
    return type;
  parser.emitError(operand.loc, "needs a tensor of ") << rank << (rank == 1 ? " dimension" : " dimensions")
                                                      << " here; " << operand.name << " is " << operand.type;
  return failure();
}

// How many operands of each kind there are.
template <typename Op> static void setSegments(OperationState &state, ArrayRef<int32_t> sizes) {
  llvm::copy(sizes, state.getOrAddProperties<typename Op::Properties>().operandSegmentSizes.begin());
}

ParseResult ReturnOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  return failure(read.optionalOperands() || read.attributes({}));
}

ParseResult RmsNormOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  Operand x, gain;
  if (read.operand(x) || parser.parseComma() || read.operand(gain) ||
      read.attributes({{"eps", Form::Number}, {"offset", Form::Number}}))
    return failure();
  return read.results(x.type);
}

ParseResult LayerNormOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  Operand x, gain, bias;
  if (read.operand(x))
    return failure();
  if (succeeded(parser.parseOptionalComma()) && read.operand(gain))
    return failure();
  if (gain.type && succeeded(parser.parseOptionalComma()) && read.operand(bias))
    return failure();
  if (read.attributes({{"eps", Form::Number}}))
    return failure();
  setSegments<LayerNormOp>(state, {1, gain.type ? 1 : 0, bias.type ? 1 : 0});
  return read.results(x.type);
}

ParseResult LinearOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  Operand x;
  SmallVector<Operand> weights, biases;
  if (read.operand(x) || parser.parseComma() || read.operands(weights))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("bias")) && read.operands(biases))
    return failure();
  if (read.attributes({}))
    return failure();
  FailureOr<RankedTensorType> input = tensor(parser, x, 2);
  if (failed(input))
    return failure();
  SmallVector<Type> types;
  for (const Operand &weight : weights) {
    FailureOr<RankedTensorType> type = tensor(parser, weight, 2);
    if (failed(type))
      return failure();
    types.push_back(linearResultType(*input, *type));
  }
  setSegments<LinearOp>(state,
                        {1, static_cast<int32_t>(weights.size()), static_cast<int32_t>(biases.size())});
  return read.results(types);
}

ParseResult RopeOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  SmallVector<Operand> values;
  Operand pos;
  auto one = [&] { return read.operand(values.emplace_back()); };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(one) || parser.parseKeyword("at") || read.operand(pos) ||
      read.attributes({{"style", Form::Style}, {"head_dim", Form::Integer}}))
    return failure();
  if (values.size() < 2 || values.size() > 3)
    return parser.emitError(loc, "takes one or two values and a table, not ") << values.size() << " operands";
  values.pop_back(); // the table
  return read.results(llvm::map_to_vector(values, [](const Operand &value) { return value.type; }));
}

ParseResult RopeTableOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  SMLoc loc = parser.getCurrentLocation();
  if (read.attributes({{"base", Form::Number},
                       {"dim", Form::Integer},
                       {"positions", Form::Integer},
                       {"scaling", Form::Scaling},
                       {"factor", Form::Number},
                       {"original_positions", Form::Integer},
                       {"low_freq_factor", Form::Number},
                       {"high_freq_factor", Form::Number},
                       {"beta_fast", Form::Number},
                       {"beta_slow", Form::Number},
                       {"attention_factor", Form::Number},
                       {"truncate", Form::Flag}}))
    return failure();
  auto dim = dyn_cast_or_null<IntegerAttr>(state.attributes.get("dim"));
  auto positions = dyn_cast_or_null<IntegerAttr>(state.attributes.get("positions"));
  if (!dim || !positions)
    return parser.emitError(loc, "needs {base, dim, positions}");
  if (dim.getInt() < 1 || positions.getInt() < 1)
    return parser.emitError(loc, "needs dim and positions above 0");
  return read.results(ropeTableType(parser.getContext(), positions.getInt(), dim.getInt()));
}

ParseResult KvAppendOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  Operand cache, k, v, slot;
  bool queries, scales;
  if (read.operand(cache) || parser.parseComma() || read.operand(k) || parser.parseComma() ||
      read.operand(v) || parser.parseKeyword("at") || read.operand(slot) ||
      read.clause("queries", 1, queries) || read.clause("scales", 2, scales) || read.attributes({}))
    return failure();
  setSegments<KvAppendOp>(state, {1, 1, 1, 1, queries, scales, scales});
  return read.results(cache.type);
}

ParseResult AttentionOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  Operand q, cache, len;
  bool pages, queries, mask, sinks, scales;
  if (read.operand(q) || parser.parseComma() || read.operand(cache) || parser.parseComma() ||
      read.operand(len) || read.clause("pages", 1, pages) || read.clause("queries", 1, queries) ||
      read.clause("mask", 1, mask) || read.clause("sinks", 1, sinks) || read.clause("scales", 2, scales) ||
      read.attributes({{"scale", Form::Number}, {"window", Form::Integer}, {"softcap", Form::Number}}))
    return failure();
  setSegments<AttentionOp>(state, {1, 1, 1, pages, queries, mask, sinks, scales, scales});
  FailureOr<RankedTensorType> type = tensor(parser, q, 2);
  auto cacheType = dyn_cast<KvCacheType>(cache.type);
  if (failed(type))
    return failure();
  if (!cacheType)
    return parser.emitError(cache.loc, "needs a cache here; ") << cache.name << " is " << cache.type;
  SmallVector<Type> types = {attentionType(*type, cacheType)};
  if (parser.getNumResults() == 2)
    types.push_back(logSumExpType(*type, cacheType));
  Type index = parser.getBuilder().getIndexType();
  if (failed(parser.parseOptionalKeyword("bias")))
    state.addRegion();
  else if (read.region({index, index, index}))
    return failure();
  return read.results(types);
}

ParseResult AtOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  Operand values;
  OpAsmParser::UnresolvedOperand index;
  if (read.operand(values) || parser.parseLSquare() || parser.parseOperand(index) || parser.parseRSquare() ||
      parser.resolveOperand(index, parser.getBuilder().getIndexType(), state.operands) || read.attributes({}))
    return failure();
  FailureOr<RankedTensorType> type = tensor(parser, values, 1);
  if (failed(type))
    return failure();
  state.addTypes(type->getElementType());
  return success();
}

ParseResult YieldOp::parse(OpAsmParser &parser, OperationState &state) {
  OpAsmParser::UnresolvedOperand value;
  return failure(parser.parseOperand(value) ||
                 parser.resolveOperand(value, parser.getBuilder().getF32Type(), state.operands));
}

ParseResult AddOp::parse(OpAsmParser &parser, OperationState &state) {
  OpReader read(parser, state);
  Operand lhs, rhs;
  if (read.operand(lhs) || parser.parseComma() || read.operand(rhs) ||
      read.attributes({{"scale", Form::Number}}))
    return failure();
  return read.results(lhs.type);
}

//===-- Writing -----------------------------------------------------------===//

static void printAttribute(OpAsmPrinter &printer, NamedAttribute attr) {
  printer.printKeywordOrString(attr.getName());
  if (isa<UnitAttr>(attr.getValue()))
    return;
  printer << " = ";
  if (auto style = dyn_cast<RopeStyleAttr>(attr.getValue()))
    printer << stringifyRopeStyle(style.getValue());
  else if (auto scaling = dyn_cast<RopeScalingAttr>(attr.getValue()))
    printer << stringifyRopeScaling(scaling.getValue());
  else if (auto integer = dyn_cast<IntegerAttr>(attr.getValue()); integer && integer.getType().isInteger(64))
    printer << integer.getInt();
  else if (auto number = dyn_cast<FloatAttr>(attr.getValue()); number && number.getType().isF64())
    printer.printAttributeWithoutType(attr.getValue()); // f64
  else
    printer.printAttribute(attr.getValue());
}

static void printAttributes(OpAsmPrinter &printer, Operation *op) {
  auto attrs = llvm::to_vector(llvm::make_filter_range(op->getAttrs(), [](NamedAttribute attr) {
    return attr.getName() != kNamesAttr && attr.getName() != "operandSegmentSizes";
  }));
  if (!attrs.empty()) {
    printer << " {";
    llvm::interleaveComma(attrs, printer, [&](NamedAttribute attr) { printAttribute(printer, attr); });
    printer << '}';
  }
}

// The result types, where they are not implied.
static void printTypes(OpAsmPrinter &printer, Operation *op) {
  if (!llvm::equal(op->getResultTypes(), inferResultTypes(op)))
    printer << " : " << op->getResultTypes();
}

static void printTail(OpAsmPrinter &printer, Operation *op) {
  printAttributes(printer, op);
  printTypes(printer, op);
}

template <typename Op> static void printScales(OpAsmPrinter &printer, Op op) {
  if (op.getKScale())
    printer << " scales " << op.getKScale() << ", " << op.getVScale();
}

void ReturnOp::print(OpAsmPrinter &printer) {
  if (!getValues().empty())
    printer << ' ' << getValues();
  printTail(printer, *this);
}

void RmsNormOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getX() << ", " << getGain();
  printTail(printer, *this);
}

void LayerNormOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getX();
  if (getGain())
    printer << ", " << getGain();
  if (getBias())
    printer << ", " << getBias();
  printTail(printer, *this);
}

void LinearOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getX() << ", [" << getWeights() << ']';
  if (!getBiases().empty())
    printer << " bias [" << getBiases() << ']';
  printTail(printer, *this);
}

void RopeOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getValues() << ", " << getTable() << " at " << getPos();
  printTail(printer, *this);
}

void RopeTableOp::print(OpAsmPrinter &printer) { printTail(printer, *this); }

void KvAppendOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getCache() << ", " << getK() << ", " << getV() << " at " << getSlot();
  if (getQueries())
    printer << " queries " << getQueries();
  printScales(printer, *this);
  printTail(printer, *this);
}

void AttentionOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getQ() << ", " << getCache() << ", " << getLen();
  if (getPages())
    printer << " pages " << getPages();
  if (getQueries())
    printer << " queries " << getQueries();
  if (getMask())
    printer << " mask " << getMask();
  if (getSinks())
    printer << " sinks " << getSinks();
  printScales(printer, *this);
  printAttributes(printer, *this);
  if (hasBias()) {
    printer << " bias(";
    llvm::interleaveComma(getBias().getArguments(), printer);
    printer << ") ";
    printer.printRegion(getBias(), /*printEntryBlockArgs=*/false);
  }
  printTypes(printer, *this);
}

void AttentionOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn set) {
  static constexpr StringLiteral names[] = {"head", "query", "key"};
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    set(argument, name);
}

void AtOp::print(OpAsmPrinter &printer) { printer << ' ' << getTensor() << '[' << getIndex() << ']'; }

void YieldOp::print(OpAsmPrinter &printer) { printer << ' ' << getValue(); }

void AddOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getLhs() << ", " << getRhs();
  printTail(printer, *this);
}
