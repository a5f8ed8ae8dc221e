//===- Batches.cpp - One graph for several batch sizes --------------------===//
//
// A graph is written for one number of requests. Every tensor with a row for each
// of them is found by its uses; another batch has other sizes there and is else
// the same graph, so its weights are the same tensors in memory.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Batches.h"
#include "compiler/plan/Fusion.h"
#include "dialects/attn/Attn.h"
#include "tools/lib/Failure.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/ranges.h>

using namespace cfc;
using namespace mlir;

/// Whether this use of an argument reads a row for each request.
static bool isByRequest(Value argument, Operation *user) {
  auto isOneOf = [&](auto... values) { return ((values == argument) || ...); };
  if (auto norm = dyn_cast<attn::RmsNormOp>(user))
    return isOneOf(norm.getX());
  if (auto norm = dyn_cast<attn::LayerNormOp>(user))
    return isOneOf(norm.getX());
  if (auto linear = dyn_cast<attn::LinearOp>(user))
    return isOneOf(linear.getX());
  if (auto rope = dyn_cast<attn::RopeOp>(user))
    return isOneOf(rope.getPos()) || llvm::is_contained(rope.getValues(), argument);
  if (auto append = dyn_cast<attn::KvAppendOp>(user))
    return isOneOf(append.getK(), append.getV(), append.getSlot());
  if (auto attention = dyn_cast<attn::AttentionOp>(user))
    return isOneOf(attention.getQ(), attention.getLen(), attention.getPages());
  return isa<attn::AddOp>(user);
}

static bool isByRequest(BlockArgument argument) {
  return llvm::any_of(argument.getUsers(), [&](Operation *user) { return isByRequest(argument, user); });
}

std::vector<std::string> cfc::namesByRequest(attn::GraphOp graph) {
  std::vector<std::string> names;
  for (BlockArgument argument : graph.getBody().getArguments())
    if (isByRequest(argument))
      names.push_back(attn::getValueName(argument));
  return names;
}

static int64_t rowsOf(Type type) {
  if (auto lengths = dyn_cast<attn::LengthsType>(type))
    return lengths.getCount();
  return cast<RankedTensorType>(type).getDimSize(0);
}

static Type withRows(Type type, int64_t rows) {
  if (auto lengths = dyn_cast<attn::LengthsType>(type))
    return attn::LengthsType::get(type.getContext(), rows, lengths.getCapacity());
  auto tensor = cast<RankedTensorType>(type);
  llvm::SmallVector<int64_t> shape(tensor.getShape());
  shape.front() = rows;
  return RankedTensorType::get(shape, tensor.getElementType());
}

/// Gives every value with a row for each request `batch` rows.
static LogicalResult setBatch(attn::GraphOp graph, int64_t batch) {
  for (auto attention : graph.getBody().getOps<attn::AttentionOp>())
    if (attention.getQueries())
      return attention.emitError(
          "has several query tokens a request; --batch is for graphs with one token, a row "
          "of each, for every request");
  BlockArgument first;
  for (BlockArgument argument : graph.getBody().getArguments()) {
    if (!isByRequest(argument))
      continue;
    if (first && rowsOf(argument.getType()) != rowsOf(first.getType()))
      return emitError(argument.getLoc())
             << "%" << attn::getValueName(argument) << " has " << rowsOf(argument.getType()) << " rows, %"
             << attn::getValueName(first) << " " << rowsOf(first.getType())
             << "; --batch is for graphs with one token, a row of each, for every request";
    first = first ? first : argument;
  }
  for (BlockArgument argument : graph.getBody().getArguments())
    if (isByRequest(argument))
      argument.setType(withRows(argument.getType(), batch));
  for (Operation &op : graph.getBody().front())
    if (!isa<attn::RopeTableOp, attn::KvAppendOp>(op))
      for (Value result : op.getResults())
        result.setType(withRows(result.getType(), batch));
  graph.setFunctionType(FunctionType::get(graph.getContext(), graph.getBody().getArgumentTypes(),
                                          llvm::to_vector(graph.getReturn().getOperandTypes())));
  return success();
}

/// NAME_bN of NAME, or of NAME_bM.
static std::string nameForBatch(llvm::StringRef name, int64_t batch) {
  llvm::StringRef number = name.rsplit("_b").second, stem = name;
  if (!number.empty() && llvm::all_of(number, llvm::isDigit))
    stem = name.rsplit("_b").first;
  return fmt::format("{}_b{}", stem.str(), batch);
}

/// Says how many requests the largest graph serves, where that is not this one.
static void setMostRequests(attn::GraphOp graph, int64_t batch, int64_t most) {
  if (auto given = graph->getAttrOfType<IntegerAttr>(attn::kMostRequestsAttr))
    most = std::max(most, given.getInt());
  if (most > batch)
    graph->setAttr(attn::kMostRequestsAttr, Builder(graph).getI64IntegerAttr(most));
  else
    graph->removeAttr(attn::kMostRequestsAttr);
}

Source cfc::sourceForBatch(Compiler &compiler, const Source &source, int64_t batch, int64_t most) {
  ModuleOp file = source.module.get();
  OwningOpRef<ModuleOp> module = file.clone();
  attn::GraphOp graph = *module->getOps<attn::GraphOp>().begin();
  if (failed(setBatch(graph, batch)))
    compiler.fail(int(Exit::BadInput), "the graph has no batch to set");
  setMostRequests(graph, batch, most);
  graph.setSymName(nameForBatch(graph.getSymName(), batch));
  Source result;
  result.path = source.path;
  result.text = moduleText(*module);
  // Read again, so that it is checked as any other graph.
  result.module = compiler.parse(result.text, fmt::format("{} (--batch={})", source.path, batch));
  return result;
}

std::vector<Source> cfc::sourcesForBatches(Compiler &compiler, const Source &source,
                                           const std::vector<int64_t> &batches) {
  for (size_t i = 0; i < batches.size(); ++i)
    if (batches[i] < 1 || (i && batches[i] <= batches[i - 1]))
      badInput("", "--batch={}: numbers of requests ascend, from 1 on", fmt::join(batches, ","));
  if (!batches.empty() && batches.back() > kMostTokens)
    cannotRun("", "--batch={}: graphs of up to {} requests are possible", fmt::join(batches, ","),
              kMostTokens);
  if (!batches.empty() && !source.graph())
    badInput(source.path, "holds kernels, whose sizes are fixed: --batch is for graphs");
  std::vector<Source> sources;
  for (int64_t batch : batches)
    sources.push_back(sourceForBatch(compiler, source, batch, batches.back()));
  return sources;
}
