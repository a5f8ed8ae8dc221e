//===- ImportFamilies.cpp - How each family of models attends -------------===//
//
// A family is a function that reads config.json with the defaults of Hugging
// Face's configuration class, for hub files leave out what equals them. What a
// family does not read is refused where its name says that it may be about
// attention: a wrong block is worse than none.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/ImportFamilies.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Suggest.h"
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

using namespace cfc;

//===----------------------------------------------------------------------===//
// Parts that families share
//===----------------------------------------------------------------------===//

namespace {
/// Defaults of a configuration class. kvHeads 0: as many as heads; dim 0: hidden / heads.
struct Sizes {
  int64_t hidden, layers, heads, kvHeads, dim, positions;
};
} // namespace

static void readSizes(Options &options, AttentionBlock &block, const Sizes &sizes) {
  block.hidden = options.count("hidden_size", sizes.hidden);
  block.layers = options.count("num_hidden_layers", sizes.layers);
  block.heads = options.count("num_attention_heads", sizes.heads);
  block.kvHeads = options.optionalCount("num_key_value_heads", sizes.kvHeads ? sizes.kvHeads : block.heads)
                      .value_or(block.heads); // null means as many
  int64_t dim = sizes.dim ? sizes.dim : block.hidden / block.heads;
  if (!options.has("head_dim") && dim == 0)
    badInput(options.where(), "\"num_attention_heads\" ({}) is more than \"hidden_size\" ({})", block.heads,
             block.hidden);
  block.dim = options.count("head_dim", dim);
  block.positions = options.count("max_position_embeddings", sizes.positions);
  block.scale = std::pow(double(block.dim), -0.5);
  if (block.heads % block.kvHeads)
    badInput(options.where(), "\"num_attention_heads\" ({}) is no multiple of \"num_key_value_heads\" ({})",
             block.heads, block.kvHeads);
  if (block.layer >= block.layers)
    badInput(options.where(), "the model has layers 0 to {}; there is no layer {}", block.layers - 1,
             block.layer);
}

static NormSpec rmsNorm(Options &options, double defaultEps, double offset = 0) {
  return {NormSpec::Rms, options.positive("rms_norm_eps", defaultEps), offset, true, false};
}

/// Whether layer_types, or the family's own rule where it is absent, gives this layer a window.
static bool isSliding(Options &options, const AttentionBlock &block, bool byRule) {
  auto types = options.texts("layer_types");
  if (!types)
    return byRule;
  if (int64_t(types->size()) != block.layers)
    badInput(options.where(), "\"layer_types\" has {} entries for {} layers", types->size(), block.layers);
  const std::string &type = (*types)[size_t(block.layer)];
  if (type != "full_attention" && type != "sliding_attention")
    cannotRun(options.where(),
              "\"layer_types\" makes layer {} \"{}\"; full_attention and sliding_attention are supported",
              block.layer, type);
  return type == "sliding_attention";
}

//===----------------------------------------------------------------------===//
// Rope
//===----------------------------------------------------------------------===//

static void readYarn(Options &options, RopeSpec &rope) {
  rope.betaFast = options.optionalPositive("beta_fast").value_or(32);
  rope.betaSlow = options.optionalPositive("beta_slow").value_or(1);
  rope.truncate = options.flag("truncate", true);
  auto magnitude = [&](double weight) {
    return rope.factor <= 1 ? 1.0 : 0.1 * weight * std::log(rope.factor) + 1.0;
  };
  double mscale = options.number("mscale", 0.0), mscaleAllDim = options.number("mscale_all_dim", 0.0);
  double inferred =
      mscale != 0 && mscaleAllDim != 0 ? magnitude(mscale) / magnitude(mscaleAllDim) : magnitude(1);
  rope.attentionFactor = options.positive("attention_factor", inferred);
}

/// The scaling that `options` describe: `rope_scaling` or `rope_parameters`.
static void readScaling(Options &options, const AttentionBlock &block, bool anyRope, RopeSpec &rope) {
  rope.where = options.where();
  rope.type = options.text("rope_type", options.text("type", "default"));
  options.ignore({"type", "rope_theta", "partial_rotary_factor"});
  if (rope.type == "su" || (rope.type == "yarn" && block.modelType == "phi3"))
    rope.type = "longrope"; // as older files of Phi 3 call it
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3" && rope.type != "yarn") {
    if (anyRope)
      return;
    cannotRun(rope.where,
              "the rope type \"{}\" is not known; default, linear, llama3 and yarn are, and with "
              "--rope-table=argument the caller gives the table of any type",
              rope.type);
  }
  rope.originalPositions = options.count("original_max_position_embeddings", block.positions);
  if (rope.type == "yarn" && !options.has("factor")) {
    options.ignore({"factor"});
    rope.factor = double(block.positions) / double(rope.originalPositions);
  } else if (rope.type != "default") {
    rope.factor = options.positive("factor");
  }
  if (rope.type == "llama3") {
    rope.lowFrequency = options.positive("low_freq_factor");
    rope.highFrequency = options.positive("high_freq_factor");
    if (rope.highFrequency <= rope.lowFrequency)
      badInput(rope.where, "\"high_freq_factor\" ({}) must be above \"low_freq_factor\" ({})",
               rope.highFrequency, rope.lowFrequency);
  }
  if (rope.type == "yarn")
    readYarn(options, rope);
  if (auto unknown = options.unread(); !unknown.empty())
    cannotRun(rope.where, "\"{}\" is not known for the rope type \"{}\"", unknown.begin()->first, rope.type);
}

/// The angles of the block's layer. `theta` is the default of rope_theta, `localKey` that of layers with a
/// window where they have a base of their own; `scaleLocal`: they are scaled as all others are.
static void readRope(Options &options, AttentionBlock &block, bool anyRope, double theta, double partial = 1,
                     const char *localKey = nullptr, double localTheta = 0, bool scaleLocal = true) {
  bool local = block.window.has_value();
  RopeSpec &rope = block.rope;
  rope.where = options.where();
  std::optional<Options> scaling = options.object("rope_scaling");
  std::optional<Options> parameters = options.object("rope_parameters");
  double base = options.positive("rope_theta", theta);
  if (localKey) {
    double localBase = options.positive(localKey, localTheta);
    base = local ? localBase : base;
  }
  bool byLayer = false;
  if (parameters && (parameters->has("full_attention") || parameters->has("sliding_attention"))) {
    byLayer = true;
    parameters = parameters->object(local ? "sliding_attention" : "full_attention");
  }
  std::optional<Options> source = scaling ? scaling : parameters;
  if (source) {
    base = source->positive("rope_theta", base);
    partial = source->positive("partial_rotary_factor", partial);
  }
  rope.theta = base;
  if (partial > 1)
    badInput(options.where(), "\"partial_rotary_factor\" must be at most 1; it is {}", partial);
  rope.dim = int64_t(double(block.dim) * partial);
  if (rope.dim < 2 || rope.dim % 2)
    badInput(options.where(), "{} of the {} elements of a head would be rotated; an even number is needed",
             rope.dim, block.dim);
  if (source && (byLayer || !local || scaleLocal))
    readScaling(*source, block, anyRope, rope);
}

//===----------------------------------------------------------------------===//
// Families
//===----------------------------------------------------------------------===//

static void readLlama(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {4096, 32, 32, 0, 0, 2048});
  block.inputNorm = rmsNorm(options, 1e-6);
  block.qkvBias = block.outputBias = options.flag("attention_bias", false);
  readRope(options, block, anyRope, 10000);
}

static void readMistral(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {4096, 32, 32, 8, 0, 131072});
  block.inputNorm = rmsNorm(options, 1e-6);
  block.window = options.optionalCount("sliding_window", 4096);
  readRope(options, block, anyRope, 10000);
}

/// Qwen 2 and 3: a window from the layer max_window_layers on, where it is switched on at all.
static void readQwenWindow(Options &options, AttentionBlock &block) {
  bool use = options.flag("use_sliding_window", false);
  auto window = options.optionalCount("sliding_window", 4096);
  int64_t first = options.index("max_window_layers", 28);
  if (isSliding(options, block, use && window && block.layer >= first) && use)
    block.window = window;
}

static void readQwen2(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {4096, 32, 32, 32, 0, 32768});
  block.inputNorm = rmsNorm(options, 1e-6);
  block.qkvBias = true;
  readQwenWindow(options, block);
  readRope(options, block, anyRope, 10000);
}

static void readQwen3(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {4096, 32, 32, 32, 128, 32768});
  block.inputNorm = block.qkNormSpec = rmsNorm(options, 1e-6);
  block.qkNorm = QkNorm::ByHead;
  block.qkvBias = block.outputBias = options.flag("attention_bias", false);
  readQwenWindow(options, block);
  readRope(options, block, anyRope, 10000);
}

/// What Gemma 2 and 3 share.
static void readGemma(Options &options, AttentionBlock &block, int64_t positions) {
  readSizes(options, block, {2304, 26, 8, 4, 256, positions});
  block.inputNorm = block.postNorm = block.qkNormSpec = rmsNorm(options, 1e-6, 1);
  block.qkvBias = block.outputBias = options.flag("attention_bias", false);
  block.scale = std::pow(options.positive("query_pre_attn_scalar", 256), -0.5);
}

static void readGemma2(Options &options, AttentionBlock &block, bool anyRope) {
  readGemma(options, block, 8192);
  options.ignore({"sliding_window_size"}); // in some files beside sliding_window; never read
  auto window = options.optionalCount("sliding_window", 4096);
  if (isSliding(options, block, block.layer % 2 == 0))
    block.window = window;
  block.softcap = options.optionalPositive("attn_logit_softcapping", 50);
  readRope(options, block, anyRope, 10000);
}

static void readGemma3(Options &options, AttentionBlock &block, bool anyRope) {
  readGemma(options, block, 131072);
  block.qkNorm = QkNorm::ByHead;
  auto window = options.optionalCount("sliding_window", 4096);
  int64_t pattern = options.count("sliding_window_pattern", options.count("_sliding_window_pattern", 6));
  if (isSliding(options, block, (block.layer + 1) % pattern != 0))
    block.window = window;
  readRope(options, block, anyRope, 1e6, 1, "rope_local_base_freq", 1e4, /*scaleLocal=*/false);
}

static void readPhi(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {2048, 24, 32, 0, 0, 2048});
  block.inputNorm = NormSpec{NormSpec::Layer, options.positive("layer_norm_eps", 1e-5), 0, true, true};
  block.qkvBias = block.outputBias = true;
  block.outputName = "dense";
  block.parallel = true;
  readRope(options, block, anyRope, 10000, options.positive("partial_rotary_factor", 0.5));
}

static void readPhi3(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {3072, 32, 32, 0, 0, 4096});
  block.inputNorm = rmsNorm(options, 1e-5);
  block.fusedQkv = true;
  block.window = options.optionalCount("sliding_window", std::nullopt);
  options.ignore({"original_max_position_embeddings"}); // of longrope
  options.neutral("full_attn_mod", 1);
  readRope(options, block, anyRope, 10000, options.positive("partial_rotary_factor", 1));
}

static void readGranite(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {4096, 32, 32, 0, 0, 2048});
  block.inputNorm = rmsNorm(options, 1e-6);
  block.qkvBias = block.outputBias = options.flag("attention_bias", false);
  block.scale = options.positive("attention_multiplier", 1);
  block.residualMultiplier = options.positive("residual_multiplier", 1);
  readRope(options, block, anyRope, 10000);
}

static void readOlmo(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {4096, 32, 32, 0, 0, 2048});
  block.inputNorm = NormSpec{NormSpec::Layer, 1e-5, 0, /*gain=*/false, false};
  options.ignore({"rms_norm_eps", "layer_norm_eps"}); // its norm has a fixed one
  block.qkvBias = block.outputBias = options.flag("attention_bias", false);
  readRope(options, block, anyRope, 10000);
}

/// What OLMo 2 and 3 share: norms of whole q and k, and of the result instead of the input.
static void readOlmoNorms(Options &options, AttentionBlock &block) {
  readSizes(options, block, {4096, 32, 32, 0, 0, 2048});
  block.postNorm = block.qkNormSpec = rmsNorm(options, 1e-5);
  block.qkNorm = QkNorm::Whole;
  block.qkvBias = block.outputBias = options.flag("attention_bias", false);
}

static void readOlmo2(Options &options, AttentionBlock &block, bool anyRope) {
  readOlmoNorms(options, block);
  readRope(options, block, anyRope, 10000);
}

static void readOlmo3(Options &options, AttentionBlock &block, bool anyRope) {
  readOlmoNorms(options, block);
  auto window = options.optionalCount("sliding_window", 4096);
  if (isSliding(options, block, (block.layer + 1) % 4 != 0))
    block.window = window;
  readRope(options, block, anyRope, 500000, 1, nullptr, 0, /*scaleLocal=*/false);
}

static void readGptOss(Options &options, AttentionBlock &block, bool anyRope) {
  readSizes(options, block, {2880, 36, 64, 8, 64, 131072});
  block.inputNorm = rmsNorm(options, 1e-5);
  block.qkvBias = block.outputBias = options.flag("attention_bias", true);
  block.sinks = true;
  auto window = options.optionalCount("sliding_window", 128);
  if (isSliding(options, block, block.layer % 2 == 0))
    block.window = window;
  bool scaled = options.has("rope_scaling") || options.has("rope_parameters");
  readRope(options, block, anyRope, 150000);
  if (!scaled) // the defaults of its configuration class
    block.rope.type = "yarn", block.rope.factor = 32, block.rope.truncate = false,
    block.rope.originalPositions = 4096, block.rope.attentionFactor = 0.1 * std::log(32.0) + 1;
}

using Reader = void (*)(Options &, AttentionBlock &, bool anyRope);
static const std::map<std::string, Reader> &families() {
  static const std::map<std::string, Reader> result = {
      {"gemma2", readGemma2},   {"gemma3_text", readGemma3}, {"gpt_oss", readGptOss},
      {"granite", readGranite}, {"llama", readLlama},        {"mistral", readMistral},
      {"olmo", readOlmo},       {"olmo2", readOlmo2},        {"olmo3", readOlmo3},
      {"phi", readPhi},         {"phi3", readPhi3},          {"qwen2", readQwen2},
      {"qwen3", readQwen3},
  };
  return result;
}

std::string cfc::knownModelTypes() {
  std::vector<std::string> names;
  for (auto &[name, reader] : families())
    names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

/// Refuses options that are not known and may change attention, by their names.
static void refuseUnknown(Options &options, const std::string &modelType) {
  options.ignore({"attention_dropout", "attn_pdrop", "attn_implementation", "_attn_implementation",
                  "_attn_implementation_autoset", "pretraining_tp", "mlp_bias", "lm_head_bias",
                  "tie_word_embeddings", "final_logit_softcapping", "output_attentions", "initializer_range",
                  "num_attention_heads", "max_window_layers", "num_key_value_heads", "quantization_config"});
  options.neutral("is_causal", true);
  options.neutral("partial_rotary_factor", 1);
  options.neutral("partial_rotary_factor", 1.0);
  options.neutral("position_embedding_type", "rope");
  static const char *const parts[] = {
      "attention",     "attn",    "rope",           "rotary", "qk",    "qkv",    "window", "clip",
      "alibi",         "softcap", "position_embed", "sink",   "head",  "norm",   "query",  "residual",
      "bidirectional", "causal",  "layer_types",    "bias",   "quant", "sparse", "_kv",    "latent"};
  for (auto &[key, value] : options.unread())
    if (std::any_of(std::begin(parts), std::end(parts),
                    [&key = key](const char *part) { return key.find(part) != std::string::npos; }))
      cannotRun(options.where(),
                "the option \"{}\" ({}) is not known for {}, and may change the attention block; remove it "
                "from config.json if it does not",
                key, value, modelType);
}

/// gpt-oss keeps its experts, and nothing else, in MXFP4.
static void refuseQuantized(Options &options, const std::string &modelType) {
  auto quantization = options.object("quantization_config");
  if (!quantization)
    return;
  std::string method = quantization->text("quant_method", "unknown");
  if (modelType != "gpt_oss" || method != "mxfp4")
    cannotRun(
        options.where(),
        "the weights are quantized (\"quantization_config\", {}); weights of f16 and bf16 are supported",
        method);
}

AttentionBlock cfc::readBlock(const std::string &folder, int64_t layer, bool anyRope) {
  Options options = readConfig(folder);
  AttentionBlock block;
  block.layer = layer;
  block.modelType = options.text("model_type");
  if (options.has("text_config")) { // a model of images and text
    Options text = *options.object("text_config");
    std::string textType = text.text("model_type", block.modelType + "_text");
    refuseQuantized(options, textType);
    block.modelType = textType;
    options = text;
  }
  auto family = families().find(block.modelType);
  if (family == families().end()) {
    std::vector<std::string> names;
    for (auto &[name, reader] : families())
      names.push_back(name);
    cannotRun(options.where(), "the model type \"{}\" is not known{}; those that are: {}", block.modelType,
              didYouMean(block.modelType, names), knownModelTypes());
  }
  refuseQuantized(options, block.modelType);
  family->second(options, block, anyRope);
  refuseUnknown(options, block.modelType);
  return block;
}
