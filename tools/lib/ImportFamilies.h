//===- ImportFamilies.h - How each family of models attends ---------------===//
//
// One description for all families, filled in from config.json as Hugging
// Face's modelling code reads it.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "tools/lib/ImportConfig.h"

namespace cfc {

/// A norm of rows.
struct NormSpec {
  enum Kind { Rms, Layer };
  Kind kind = Rms;
  double eps = 1e-6;
  double offset = 0; ///< added to the gain
  bool gain = true;  ///< has a weight in the checkpoint
  bool bias = false;
};

/// Where q and k are normed before the rotation.
enum class QkNorm { None, ByHead, Whole };

/// The angles of one layer: position * frequency i, for i below dim / 2.
struct RopeSpec {
  std::string type = "default"; ///< default, linear, llama3 or yarn; any other is not known to the generator
  std::string where;            ///< the part of config.json, for messages
  double theta = 10000;
  int64_t dim = 0; ///< elements of a head that are rotated, the first ones
  double factor = 1;
  double lowFrequency = 1, highFrequency = 4; ///< llama3
  double betaFast = 32, betaSlow = 1;         ///< yarn
  double attentionFactor = 1;                 ///< yarn: of cos and sin
  bool truncate = true;                       ///< yarn: bounds of the ramp are whole numbers
  int64_t originalPositions = 0;              ///< llama3, yarn
};

/// The attention block of one layer.
struct AttentionBlock {
  std::string modelType;
  int64_t layer = 0, layers = 0;
  int64_t hidden = 0, heads = 0, kvHeads = 0, dim = 0;
  int64_t positions = 0; ///< max_position_embeddings
  std::optional<NormSpec> inputNorm, postNorm;
  QkNorm qkNorm = QkNorm::None;
  NormSpec qkNormSpec;
  bool qkvBias = false, outputBias = false;
  bool fusedQkv = false; ///< qkv_proj: rows of q, then k, then v
  std::string outputName = "o_proj";
  bool sinks = false;
  bool parallel = false; ///< the MLP takes the same input
  double scale = 1;
  std::optional<int64_t> window; ///< tokens, with the query's own
  std::optional<double> softcap;
  double residualMultiplier = 1; ///< of the attention's result where it is added to the input
  RopeSpec rope;
};

/// The block of a layer. Throws Failure: 2 for a bad config.json or a layer that is not there, 3 for an
/// architecture or an option that is not known. A type of rope that the table generator does not know is
/// refused unless `anyRope`.
AttentionBlock readBlock(const std::string &folder, int64_t layer, bool anyRope);

/// The model types that are known: "gemma2, gemma3, …".
std::string knownModelTypes();

} // namespace cfc
