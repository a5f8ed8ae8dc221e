//===- BenchTorch.cpp - The same chain by torch.compile -------------------===//
//
// The graph's operations as JSON for tools/gpu/torch_chain.py, which is part of
// this program and runs in a python3 that may or may not have torch.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/Process.h"
#include "tools/lib/BenchBaseline.h"
#include "tools/lib/DeviceSources.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Session.h"
#include "llvm/ADT/TypeSwitch.h"
#include <nlohmann/json.hpp>

using namespace cfc;
using nlohmann::ordered_json;

static constexpr const char *baselineName = "torch.compile";
/// Compiling takes up to a minute, each case some seconds.
static constexpr auto patience = std::chrono::minutes(10);
/// What the script begins its only line of results with.
static constexpr std::string_view marker = "cfc-result: ";

namespace {
/// Writes a graph's operations down; values go by the names of arguments and by number.
class GraphWriter {
public:
  GraphWriter(attn::GraphOp graph, ordered_json &tensors) : graph(graph), tensors(tensors) {
    for (mlir::BlockArgument argument : graph.getBody().getArguments())
      names[argument] = graph.getArgName(argument.getArgNumber()).str();
  }

  /// Gives what the script does not know, or "". It must never time less work than there is.
  std::string write(ordered_json &description) {
    description["operations"] = ordered_json::array();
    for (mlir::Operation &op : graph.getBody().front().without_terminator()) {
      if (isa<attn::RopeTableOp>(op))
        continue;
      if (std::string what = unknown(&op); !what.empty())
        return what;
      description["operations"].push_back(operation(&op));
    }
    for (mlir::Value value : graph.getReturn().getValues())
      description["results"].push_back(nameOf(value));
    return "";
  }

private:
  const std::string &nameOf(mlir::Value value) {
    std::string &name = names[value];
    if (name.empty())
      name = fmt::format("%{}", names.size());
    return name;
  }

  static ordered_json dtypeOf(mlir::Value value) {
    auto type = mlir::dyn_cast<mlir::RankedTensorType>(value.getType());
    if (!type)
      return nullptr;
    mlir::Type element = type.getElementType();
    return element.isF16() ? "f16" : element.isBF16() ? "bf16" : "f32";
  }

  /// Which option of an operation the script has no way for, or "".
  static std::string unknown(mlir::Operation *op) {
    if (auto attention = mlir::dyn_cast<attn::AttentionOp>(op)) {
      if (attention.getSoftcap())
        return "softcaps";
      if (attention.getSinks())
        return "sinks";
      if (attention.hasBias())
        return "biases of scores";
      if (attention.getKScale() || attention.getVScale())
        return "scales of caches";
      if (attention.getQueries())
        return "several query tokens of a request";
      if (attention.getWindow() && attention.getLse())
        return "windows together with an lse";
      return "";
    }
    if (auto append = mlir::dyn_cast<attn::KvAppendOp>(op))
      return append.getKScale() || append.getVScale() ? "scales of caches" : "";
    bool known = mlir::isa<attn::RmsNormOp, attn::LayerNormOp, attn::LinearOp, attn::RopeOp, attn::AddOp>(op);
    return known ? "" : op->getName().getStringRef().str();
  }

  ordered_json operation(mlir::Operation *op) {
    ordered_json entry;
    entry["name"] = op->getName().stripDialect().str();
    llvm::TypeSwitch<mlir::Operation *>(op)
        .Case([&](attn::RmsNormOp norm) {
          entry["eps"] = norm.getEps().convertToDouble();
          entry["offset"] = norm.getOffsetValue();
          operands(entry, {norm.getX(), norm.getGain()});
        })
        .Case([&](attn::LayerNormOp norm) {
          entry["eps"] = norm.getEps().convertToDouble();
          operands(entry, {norm.getX()});
          if (norm.getGain())
            operands(entry, {norm.getGain()});
          if (norm.getBias())
            operands(entry, {norm.getBias()});
        })
        .Case([&](attn::LinearOp linear) { this->linear(entry, linear); })
        .Case([&](attn::RopeOp rope) { this->rope(entry, rope); })
        .Case([&](attn::KvAppendOp append) {
          operands(entry, {append.getCache(), append.getK(), append.getV()});
        })
        .Case([&](attn::AttentionOp attention) {
          entry["scale"] = attention.getScale().convertToDouble();
          entry["window"] = attention.getWindow().value_or(0);
          entry["appended"] = attention.getAppend() ? 1 : 0;
          entry["heads"] = attention.getQueryHeads();
          operands(entry, {attention.getQ(), attention.getCache()});
        })
        .Case([&](attn::AddOp add) {
          entry["scale"] = add.getFactor();
          operands(entry, {add.getLhs(), add.getRhs()});
        });
    for (mlir::Value result : op->getResults()) {
      entry["results"].push_back(nameOf(result));
      entry["dtypes"].push_back(dtypeOf(result));
    }
    return entry;
  }

  void operands(ordered_json &entry, llvm::ArrayRef<mlir::Value> values) {
    for (mlir::Value value : values)
      entry["operands"].push_back(nameOf(value));
  }

  /// Weights of one operation lie in one matrix there, as an engine would have them: one product.
  void linear(ordered_json &entry, attn::LinearOp op) {
    operands(entry, {op.getX()});
    std::string weights = stack(op.getWeights()),
                biases = op.getBiases().empty() ? "" : stack(op.getBiases());
    entry["operands"].push_back(weights);
    if (!biases.empty())
      entry["operands"].push_back(biases);
    for (mlir::Value weight : op.getWeights())
      entry["rows"].push_back(rowsOf(weight));
  }

  static int64_t rowsOf(mlir::Value value) {
    return mlir::cast<mlir::RankedTensorType>(value.getType()).getDimSize(0);
  }

  /// The name of a new tensor that holds all of `parts`, which are arguments of the graph.
  std::string stack(mlir::OperandRange parts) {
    std::string first = nameOf(parts[0]);
    if (parts.size() == 1)
      return first;
    ordered_json spec = tensors[first];
    int64_t rows = 0;
    for (mlir::Value part : parts) {
      rows += rowsOf(part);
      stacked.push_back(nameOf(part));
    }
    spec["shape"][0] = rows;
    tensors[first + " …"] = spec;
    return first + " …";
  }

  void rope(ordered_json &entry, attn::RopeOp op) {
    entry["head_dim"] = op.getHeadSize();
    entry["interleaved"] = op.getStyle() == attn::RopeStyle::Interleaved;
    for (mlir::Value value : op.getValues())
      entry["operands"].push_back(nameOf(value));
    auto made = op.getTable().getDefiningOp<attn::RopeTableOp>();
    if (made) // the script makes no table: one row of numbers is as good
      tensors[nameOf(op.getTable())] = {{"kind", "table"},
                                        {"dtype", dtypeOf(op.getTable())},
                                        {"shape", {made.getPositions(), made.getDim()}},
                                        {"own", false},
                                        {"mean", 0},
                                        {"deviation", 1}};
    entry["operands"].push_back(nameOf(op.getTable()));
  }

public:
  std::vector<std::string> stacked; ///< tensors that the script needs only as parts of others

private:
  attn::GraphOp graph;
  ordered_json &tensors;
  llvm::DenseMap<mlir::Value, std::string> names;
};
} // namespace

static ordered_json tensorJson(const InputSpec &input) {
  if (input.isCache())
    return {{"kind", "cache"},
            {"dtype", nameOf(input.type)},
            {"heads", input.heads},
            {"dim", input.dim},
            {"v_dim", input.vDim ? input.vDim : input.dim},
            {"page", input.page},
            {"own", true}};
  Distribution distribution = distributionFor(input.role, input.shape);
  return {{"kind", input.role == DataRole::RopeTable ? "table" : "tensor"},
          {"dtype", nameOf(input.type)},
          {"shape", input.shape},
          {"own", isOfModel(input.role)},
          {"mean", distribution.mean},
          {"deviation", distribution.deviation}};
}

/// What the script is given; a text where it cannot do the graph: why.
static ordered_json describe(const BaselineRequest &request) {
  ordered_json description = {{"token_major", request.tokenMajor}, {"replays", request.replays}};
  ordered_json tensors = ordered_json::object();
  for (const InputSpec &input : request.inputs)
    if (!input.rope && (input.isCache() || isFloat(input.type)))
      tensors[input.name] = tensorJson(input);
  GraphWriter writer(request.graph, tensors);
  if (std::string what = writer.write(description); !what.empty())
    return fmt::format("tools/gpu/torch_chain.py does not know {}", what);
  for (const std::string &name : writer.stacked)
    tensors.erase(name);
  description["tensors"] = std::move(tensors);
  const runtime::TensorSpec *chained = chainedInput(request.tensors, request.inputs);
  description["chained"] = chained ? ordered_json(chained->name) : ordered_json(nullptr);
  int64_t requests = 1;
  for (const InputSpec &input : request.inputs)
    requests = std::max(requests, input.isCache() ? input.requests : 1);
  for (const auto &[lengths, layers] : request.cases) {
    std::vector<int64_t> tokens;
    for (int64_t r = 0; r < requests; ++r)
      tokens.push_back(lengths.of(r));
    description["cases"].push_back({{"lengths", tokens}, {"layers", layers}});
  }
  return description;
}

/// Runs the script; its result, or a text that says why there is none.
static ordered_json runScript(const std::string &description) {
  const DeviceSource *script = findDeviceSource("torch_chain.py");
  if (!script)
    internalError("torch_chain.py is not part of the program");
  ProcessResult run =
      runProcess({"/usr/bin/env", "python3", "-", description}, std::string(script->text), "", patience);
  if (run.end == ProcessResult::End::Interrupted)
    throw Failure(Exit::Interrupted, "");
  size_t at = run.output.rfind(marker);
  if (at != std::string::npos) {
    std::string line = run.output.substr(at + marker.size());
    ordered_json result = ordered_json::parse(line.substr(0, line.find('\n')), nullptr, false);
    if (!result.is_discarded())
      return result;
  }
  if (run.end == ProcessResult::End::TimedOut)
    return {{"problem", fmt::format("no answer after {} minutes", patience.count())}};
  if (run.end == ProcessResult::End::NotStarted || run.code == 127)
    return {{"problem", "there is no python3"}};
  size_t last = run.output.find_last_not_of('\n');
  std::string text = last == std::string::npos ? "" : run.output.substr(0, last + 1);
  return {{"problem", fmt::format("python3 failed: {}", text.substr(text.rfind('\n') + 1))}};
}

static BaselineResult resultOf(const ordered_json &entry) {
  BaselineResult result{entry.value("name", baselineName), std::nullopt, ""};
  if (entry.contains("median"))
    result.us = Spread{entry["median"], entry["min"], entry["p10"], entry["p90"]};
  else
    result.problem = entry.value("problem", "no result");
  return result;
}

std::vector<std::vector<BaselineResult>> cfc::timeTorch(const BaselineRequest &request) {
  ordered_json description = describe(request), results;
  if (description.is_string())
    results = {{"problem", description}};
  else
    results = runScript(description.dump());
  std::vector<std::vector<BaselineResult>> baselines(request.cases.size());
  for (size_t i = 0; i < request.cases.size(); ++i) {
    if (results.is_array() && i < results.size())
      for (const ordered_json &entry : results[i])
        baselines[i].push_back(resultOf(entry));
    else
      baselines[i].push_back(resultOf(results.is_object() ? results : ordered_json::object()));
  }
  return baselines;
}
