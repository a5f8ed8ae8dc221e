//===- Taps.cpp - Values of a graph that verify looks at ------------------===//
#include "tools/lib/Taps.h"
#include "dialects/attn/Reference.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Suggest.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"

using namespace cfc;
using namespace mlir;

static DType dtypeOf(Type type) { return *parseDType(elementName(attn::elementKind(type))); }

static Type elementType(Type type) {
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return tensor.getElementType();
  if (auto cache = dyn_cast<attn::KvCacheType>(type))
    return cache.getElementType();
  return {};
}

DType cfc::coarsestType(Value value) {
  SmallVector<Value> pending = {value};
  DenseSet<Value> seen;
  while (!pending.empty()) {
    Value next = pending.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (Type element = elementType(next.getType()); element && element.isBF16())
      return DType::bf16;
    if (Operation *op = next.getDefiningOp())
      pending.append(op->operand_begin(), op->operand_end());
  }
  Type element = elementType(value.getType());
  return element ? dtypeOf(element) : DType::f16;
}

bool cfc::isLogSumExp(Value value) {
  auto attention = value.getDefiningOp<attn::AttentionOp>();
  return attention && attention.getLse() == value;
}

/// Whether a device computes the value: a generated table is data.
static bool isComputed(Value value) {
  Operation *op = value.getDefiningOp();
  return op && isa<RankedTensorType>(value.getType()) && !isa<attn::RopeTableOp>(op);
}

static Tap makeTap(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  Tap tap;
  tap.value = value;
  tap.name = "%" + attn::getValueName(value);
  if (tap.name.size() == 1)
    tap.name = value.getDefiningOp()->getName().getStringRef().str();
  tap.type = dtypeOf(type.getElementType());
  tap.coarsest = coarsestType(value);
  tap.isLog = isLogSumExp(value);
  tap.shape.assign(type.getShape().begin(), type.getShape().end());
  tap.row = tap.shape.back();
  if (auto attention = value.getDefiningOp<attn::AttentionOp>();
      attention && attention.getResult() == value) {
    tap.row = attention.getCache().getType().getVDim();
    tap.byRow = true;
  }
  return tap;
}

static void addTap(std::vector<Tap> &taps, Value value) {
  if (isComputed(value) && llvm::none_of(taps, [&](const Tap &tap) { return tap.value == value; }))
    taps.push_back(makeTap(value));
}

std::vector<Tap> cfc::defaultTaps(attn::GraphOp graph) {
  std::vector<Tap> taps;
  graph.getBody().walk([&](Operation *op) {
    if (isa<attn::AttentionOp>(op))
      for (Value result : op->getResults())
        addTap(taps, result);
    // The block's result without the residual, which would hide an error in it.
    if (isa<attn::AddOp>(op))
      for (Value operand : op->getOperands())
        if (!operand.getDefiningOp<attn::AddOp>())
          addTap(taps, operand);
  });
  for (Value value : graph.getReturn().getValues())
    addTap(taps, value);
  return taps;
}

std::vector<Tap> cfc::allTaps(attn::GraphOp graph) {
  std::vector<Tap> taps;
  graph.getBody().walk([&](Operation *op) {
    for (Value result : op->getResults())
      addTap(taps, result);
  });
  return taps;
}

void cfc::addNamedTaps(std::vector<Tap> &taps, attn::GraphOp graph, const std::string &list) {
  std::vector<Tap> all = allTaps(graph);
  std::vector<std::string> names;
  for (const Tap &tap : all)
    names.push_back(tap.name);
  for (llvm::StringRef item : llvm::split(list, ',')) {
    std::string name = item.trim().str();
    if (!name.starts_with("%"))
      name = "%" + name;
    auto it = llvm::find_if(all, [&](const Tap &tap) { return tap.name == name; });
    if (it == all.end())
      badInput("", "--tap={}: the graph computes no tensor {}{}", list, name, didYouMean(name, names));
    addTap(taps, it->value);
  }
}

OwningOpRef<ModuleOp> cfc::withTaps(attn::GraphOp graph, std::vector<Tap> &taps) {
  IRMapping mapping;
  OwningOpRef<ModuleOp> copy(cast<ModuleOp>(graph->getParentOp()->clone(mapping)));
  auto tapped = cast<attn::GraphOp>(*copy->getOps<attn::GraphOp>().begin());
  attn::ReturnOp terminator = tapped.getReturn();
  SmallVector<Value> values(terminator.getValues());
  for (Tap &tap : taps) {
    Value value = mapping.lookup(tap.value);
    if (!llvm::is_contained(values, value))
      values.push_back(value);
  }
  terminator->setOperands(values);
  SmallVector<Type> types(ValueRange(values).getTypes());
  Builder builder(graph.getContext());
  if (ArrayAttr attributes = tapped.getResAttrsAttr()) {
    SmallVector<Attribute> extended(attributes.begin(), attributes.end());
    extended.resize(values.size(), builder.getDictionaryAttr({}));
    tapped.setResAttrsAttr(builder.getArrayAttr(extended));
  }
  tapped.setFunctionTypeAttr(
      TypeAttr::get(builder.getFunctionType(tapped.getFunctionType().getInputs(), types)));
  for (Tap &tap : taps)
    tap.result = tapped.getResultName(llvm::find(values, mapping.lookup(tap.value)) - values.begin());
  return copy;
}

std::string cfc::locationText(Operation *op) {
  if (auto place = op->getLoc()->findInstanceOf<FileLineColLoc>())
    return fmt::format("{}:{}:{}", place.getFilename().str(), place.getLine(), place.getColumn());
  return "unknown place";
}
