//===- Import.h - Graphs of Hugging Face models ---------------------------===//
#pragma once
#include "tools/lib/ImportFamilies.h"
#include "tools/lib/Safetensors.h"

namespace cfc {

/// What the user chooses about a graph, beside the model.
struct ImportOptions {
  int64_t rank = 0, ranks = 1; ///< share of a tensor-parallel model
  int64_t batch = 1;           ///< requests
  int64_t capacity = 0;        ///< tokens that a request may have; 0: the model's max_position_embeddings
  int64_t page = 0;            ///< tokens of a page; 0: contiguous caches
  std::string dtype;           ///< f16 or bf16, of activations; empty: that of the weights
  std::string cacheDtype;      ///< f16, bf16 or f8E4M3FN; empty: that of activations
  bool ropeArgument = false;   ///< the table of rotations is an argument, not generated
};

/// The text of the block's graph. Each weight is bound by `attn.name` to the checkpoint's tensor, or to a
/// part of it (Checkpoint in Safetensors.h). Throws Failure: 2 where the checkpoint lacks a tensor or has it
/// in another shape, 3 where the block cannot be shared as asked or the checkpoint holds more of the
/// attention than the family has.
std::string attentionGraph(const AttentionBlock &block, Checkpoint &checkpoint, const ImportOptions &options);

} // namespace cfc
