//===- ImportGraph.cpp - The graph of an attention block as text ----------===//
#include "tools/lib/Failure.h"
#include "tools/lib/Import.h"
#include "tools/lib/Suggest.h"
#include <algorithm>
#include <fmt/ranges.h>

using namespace cfc;

/// A float as MLIR spells it, with a point, to the last bit.
static std::string floatText(double value) {
  std::string text = fmt::format("{}", value);
  size_t end = std::min(text.find('e'), text.size());
  return text.find('.') < end ? text : text.substr(0, end) + ".0" + text.substr(end);
}

namespace {
/// Rows or columns of a tensor, or all of it.
struct Part {
  int dim = 0;
  int64_t first = 0, count = 0;
};

/// Writes one graph: arguments as their tensors are looked up, operations behind them.
class GraphWriter {
public:
  GraphWriter(const AttentionBlock &block, Checkpoint &checkpoint, const ImportOptions &options)
      : block(block), checkpoint(checkpoint), options(options) {
    shareHeads();
    findPrefix();
  }
  std::string write();

private:
  void shareHeads();
  void findPrefix();
  void refuseUnboundTensors() const;
  std::string comment() const;

  std::string bind(const std::string &name, const std::string &key, std::vector<int64_t> shape,
                   Part part = {}, bool isMatrix = true);
  std::string norm(const std::string &result, const std::string &gain, const std::string &input,
                   const NormSpec &spec, const std::string &key, int64_t width);
  void project(const std::string &input);
  void normQk();
  void rotate();
  void addCache();
  void attend();
  std::string output();

  template <typename... Args> void op(fmt::format_string<Args...> text, Args &&...args) {
    body.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  void argument(const std::string &name, const std::string &type) {
    arguments.push_back(fmt::format("%{}: {}", name, type));
  }
  bool isShare() const { return options.ranks > 1; }

  const AttentionBlock &block;
  Checkpoint &checkpoint;
  const ImportOptions &options;
  std::string prefix;                                             ///< "model.layers.0."
  std::string dtype;                                              ///< of activations
  int64_t heads = 0, kvHeads = 0, firstHead = 0, firstKvHead = 0; ///< of this rank
  std::string q = "%q", k = "%k";                                 ///< as far as they have come
  std::set<std::string> bound;
  std::vector<std::string> arguments, body;
};
} // namespace

void GraphWriter::shareHeads() {
  int64_t ranks = options.ranks;
  if (block.heads % ranks)
    cannotRun("", "--tp={}/{}: {} heads cannot be shared equally; use a divisor of {}", options.rank, ranks,
              block.heads, block.heads);
  if (block.kvHeads % ranks && ranks % block.kvHeads)
    cannotRun("", "--tp={}/{}: {} KV heads can neither be shared nor copied equally", options.rank, ranks,
              block.kvHeads);
  if (isShare() && block.qkNorm == QkNorm::Whole)
    cannotRun(
        "",
        "--tp={}/{}: {} norms all of q and k, which takes a sum over the ranks in the middle of the block; "
        "only --tp=0/1 is supported",
        options.rank, ranks, block.modelType);
  heads = block.heads / ranks;
  kvHeads = std::max<int64_t>(block.kvHeads / ranks, 1); // copied where there are fewer than ranks
  firstHead = options.rank * heads;
  firstKvHead = options.rank * block.kvHeads / ranks;
}

void GraphWriter::findPrefix() {
  std::string layer = fmt::format("layers.{}.", block.layer);
  std::string probe = fmt::format("self_attn.{}.weight", block.outputName);
  for (const char *root : {"model.", "language_model.model.", "model.language_model.", ""})
    if (checkpoint.contains(root + layer + probe)) {
      prefix = root + layer;
      return;
    }
  std::string expected = "model." + layer + probe;
  badInput(checkpoint.path(), "holds no tensor \"{}\"{}", expected, didYouMean(expected, checkpoint.keys()));
}

/// What the attention has beside what the graph reads would change its result.
void GraphWriter::refuseUnboundTensors() const {
  for (const std::string &key : checkpoint.keys())
    if (key.starts_with(prefix + "self_attn.") && !bound.count(key) && !key.ends_with(".rotary_emb.inv_freq"))
      cannotRun(checkpoint.path(),
                "holds \"{}\", which an attention of {} with this config.json does not have", key,
                block.modelType);
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

/// Adds an argument for a tensor of the checkpoint, whose shape there is `shape`, and returns its SSA name.
std::string GraphWriter::bind(const std::string &name, const std::string &key, std::vector<int64_t> shape,
                              Part part, bool isMatrix) {
  std::string full = prefix + key;
  StoredTensor stored = checkpoint.stored(full);
  bound.insert(full);
  std::string where = fmt::format("{}: tensor \"{}\"", checkpoint.path(), full);
  if (checkpoint.packedLayout(full))
    badInput(where, "is packed; cfc import reads native weights");
  if (stored.shape != shape)
    badInput(where, "is {}; by config.json it must be {}", shapeText(stored.shape), shapeText(shape));
  static const std::map<std::string, std::string> types = {{"F16", "f16"}, {"BF16", "bf16"}, {"F32", "f32"}};
  auto type = types.find(stored.dtype);
  if (type == types.end() || (isMatrix && type->second == "f32"))
    cannotRun(where,
              "is of {}; weights of F16 and BF16 are supported: convert the model first, with "
              "model.to(torch.bfloat16).save_pretrained(…)",
              stored.dtype);
  std::string tensorName = full;
  int64_t extent = shape[size_t(part.dim)];
  if (part.count && part.count != extent) {
    tensorName += fmt::format("[{}{}:{}]", part.dim ? ":, " : "", part.first, part.first + part.count);
    shape[size_t(part.dim)] = part.count;
  }
  argument(name, fmt::format("tensor<{}x{}> {{attn.name = \"{}\"}}", fmt::join(shape, "x"), type->second,
                             tensorName));
  return "%" + name;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

std::string GraphWriter::norm(const std::string &result, const std::string &gain, const std::string &input,
                              const NormSpec &spec, const std::string &key, int64_t width) {
  std::string operands = input;
  if (spec.gain)
    operands += ", " + bind(gain, key + ".weight", {width}, {}, /*isMatrix=*/false);
  if (spec.bias)
    operands += ", " + bind(gain + "_bias", key + ".bias", {width}, {}, /*isMatrix=*/false);
  std::string offset = spec.offset != 0 ? ", offset = " + floatText(spec.offset) : "";
  op("%{} = attn.{} {} {{eps = {}{}}}", result, spec.kind == NormSpec::Rms ? "rms_norm" : "layer_norm",
     operands, floatText(spec.eps), offset);
  return "%" + result;
}

void GraphWriter::project(const std::string &input) {
  int64_t dim = block.dim, all = block.heads * dim, kv = block.kvHeads * dim;
  int64_t fused = all + 2 * kv;
  struct Projection {
    std::string name, key;
    int64_t rows; ///< of the checkpoint's tensor
    Part part;
  };
  Part qPart{0, firstHead * dim, heads * dim}, kPart{0, firstKvHead * dim, kvHeads * dim}, vPart = kPart;
  if (block.fusedQkv) {
    kPart.first += all;
    vPart.first += all + kv;
  }
  auto key = [&](const char *own) { return std::string("self_attn.") + (block.fusedQkv ? "qkv_proj" : own); };
  const Projection projections[] = {{"q", key("q_proj"), block.fusedQkv ? fused : all, qPart},
                                    {"k", key("k_proj"), block.fusedQkv ? fused : kv, kPart},
                                    {"v", key("v_proj"), block.fusedQkv ? fused : kv, vPart}};
  std::vector<std::string> weights, biases;
  for (const Projection &p : projections)
    weights.push_back(bind("w_" + p.name, p.key + ".weight", {p.rows, block.hidden}, p.part));
  if (block.qkvBias)
    for (const Projection &p : projections)
      biases.push_back(bind("b_" + p.name, p.key + ".bias", {p.rows}, p.part));
  op("%q, %k, %v = attn.linear {}, [{}]{}", input, fmt::join(weights, ", "),
     biases.empty() ? "" : fmt::format(" bias [{}]", fmt::join(biases, ", ")));
}

void GraphWriter::normQk() {
  if (block.qkNorm == QkNorm::None)
    return;
  bool whole = block.qkNorm == QkNorm::Whole; // else one gain for all heads
  q = norm("q_normed", "q_gain", q, block.qkNormSpec, "self_attn.q_norm",
           whole ? heads * block.dim : block.dim);
  k = norm("k_normed", "k_gain", k, block.qkNormSpec, "self_attn.k_norm",
           whole ? kvHeads * block.dim : block.dim);
}

void GraphWriter::rotate() {
  const RopeSpec &rope = block.rope;
  if (options.ropeArgument) {
    argument("rope_table", fmt::format("tensor<{}x{}xf32>", options.capacity, rope.dim));
  } else {
    std::string scaling;
    auto add = [&](const char *key, const std::string &value) {
      scaling += fmt::format(", {} = {}", key, value);
    };
    if (rope.type != "default") {
      add("scaling", rope.type);
      add("factor", floatText(rope.factor));
    }
    if (rope.type == "llama3" || rope.type == "yarn")
      add("original_positions", fmt::format("{}", rope.originalPositions));
    if (rope.type == "llama3") {
      add("low_freq_factor", floatText(rope.lowFrequency));
      add("high_freq_factor", floatText(rope.highFrequency));
    }
    if (rope.type == "yarn") {
      add("beta_fast", floatText(rope.betaFast));
      add("beta_slow", floatText(rope.betaSlow));
      add("attention_factor", floatText(rope.attentionFactor));
      if (!rope.truncate)
        add("truncate", "false");
    }
    op("%rope_table = attn.rope_table {{base = {}, dim = {}, positions = {}{}}}", floatText(rope.theta),
       rope.dim, options.capacity, scaling);
  }
  op("%q_rotated, %k_rotated = attn.rope {}, {}, %rope_table at %pos {{style = half_split{}}}", q, k,
     rope.dim == block.dim ? "" : fmt::format(", head_dim = {}", block.dim));
  q = "%q_rotated";
  k = "%k_rotated";
}

void GraphWriter::addCache() {
  std::string cacheDtype = options.cacheDtype.empty() ? dtype : options.cacheDtype;
  std::string page = options.page ? fmt::format(", page = {}", options.page) : "";
  argument("cache",
           fmt::format("!attn.kv_cache<heads = {}, dim = {}{}, {}>", kvHeads, block.dim, page, cacheDtype));
  if (cacheDtype == "f8E4M3FN")
    for (const char *name : {"k_scale", "v_scale"})
      argument(name, fmt::format("tensor<{}xf32>", kvHeads));
  if (options.page)
    argument("pages", fmt::format("tensor<{}x{}xi32>", options.batch,
                                  (options.capacity + options.page - 1) / options.page));
  argument("pos", fmt::format("tensor<{}xi32>", options.batch));
  argument("slot", fmt::format("tensor<{}xi64>", options.batch));
  argument("len", fmt::format("!attn.lengths<{}, capacity = {}>", options.batch, options.capacity));
}

void GraphWriter::attend() {
  bool scaled = options.cacheDtype == "f8E4M3FN";
  std::string scales = scaled ? " scales %k_scale, %v_scale" : "", clauses;
  if (options.page)
    clauses += " pages %pages";
  if (block.sinks)
    clauses += " sinks " + bind("sinks", "self_attn.sinks", {block.heads}, {0, firstHead, heads}, false);
  std::string attributes = "scale = " + floatText(block.scale);
  if (block.window)
    attributes += fmt::format(", window = {}", *block.window);
  if (block.softcap)
    attributes += ", softcap = " + floatText(*block.softcap);
  op("%appended = attn.kv_append %cache, {}, %v at %slot{}", k, scales);
  op("%attended = attn.attention {}, %appended, %len{}{} {{{}}}", q, clauses, scales, attributes);
}

/// The output projection and what follows it; returns the result.
std::string GraphWriter::output() {
  Part columns{1, firstHead * block.dim, heads * block.dim};
  std::string key = "self_attn." + block.outputName, bias;
  std::string weight = bind("w_o", key + ".weight", {block.hidden, block.heads * block.dim}, columns);
  // The ranks' results are added: one of them brings the bias.
  if (block.outputBias && options.rank == 0)
    bias = fmt::format(" bias [{}]", bind("b_o", key + ".bias", {block.hidden}));
  bound.insert(prefix + key + ".bias");
  op("%projected = attn.linear %attended, [{}]{}", weight, bias);
  if (isShare())
    return "%projected";
  std::string value = "%projected";
  if (block.postNorm)
    value = norm("output_normed", "output_gain", value, *block.postNorm, "post_attention_layernorm",
                 block.hidden);
  op("%sum = attn.add %x, {}{}", value,
     block.residualMultiplier != 1 ? fmt::format(" {{scale = {}}}", floatText(block.residualMultiplier))
                                   : "");
  return "%sum";
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

std::string GraphWriter::comment() const {
  std::string text =
      fmt::format("// The attention block of layer {} of {} of a {} model, written by cfc import.\n",
                  block.layer, block.layers, block.modelType);
  if (isShare()) {
    std::string rest = block.postNorm ? "post norm and residual come" : "the residual comes";
    if (block.residualMultiplier != 1)
      rest += fmt::format(" (times {})", floatText(block.residualMultiplier));
    text += fmt::format(
        "// Rank {} of {}: query heads {} to {}, KV heads {} to {}. What the ranks return is to be "
        "added; {} after that.\n",
        options.rank, options.ranks, firstHead, firstHead + heads - 1, firstKvHead, firstKvHead + kvHeads - 1,
        rest);
  }
  if (block.parallel)
    text += "// The MLP takes the same normed input; its result is to be added too.\n";
  return text;
}

std::string GraphWriter::write() {
  StoredTensor output = checkpoint.stored(fmt::format("{}self_attn.{}.weight", prefix, block.outputName));
  dtype = !options.dtype.empty() ? options.dtype : output.dtype == "F16" ? "f16" : "bf16";
  std::string activation = fmt::format("tensor<{}x{}x{}>", options.batch, block.hidden, dtype);
  argument("x", activation);
  std::string input = "%x";
  if (block.inputNorm)
    input = norm("normed", "gain", input, *block.inputNorm, "input_layernorm", block.hidden);
  project(input);
  normQk();
  rotate();
  attend();
  std::string result = this->output();
  addCache();
  refuseUnboundTensors();
  std::string name = block.modelType + "_attention";
  if (isShare())
    name += fmt::format("_rank{}_of_{}", options.rank, options.ranks);
  return fmt::format("{}attn.graph @{}(\n    {})\n    -> {} {{\n  {}\n  attn.return {}\n}}\n", comment(),
                     name, fmt::join(arguments, ",\n    "), activation, fmt::join(body, "\n  "), result);
}

std::string cfc::attentionGraph(const AttentionBlock &block, Checkpoint &checkpoint,
                                const ImportOptions &options) {
  return GraphWriter(block, checkpoint, options).write();
}
