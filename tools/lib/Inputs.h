//===- Inputs.h - Tensors that a command line names -----------------------===//
//
//   --input NAME=FILE.npy | FILE.safetensors[:KEY] | random[:SEED]
//   --input random[:SEED]           every tensor that nothing else names
//   --weights DIR | FILE.safetensors   keys are tensor names
//
// A cache NAME is given as two tensors NAME.k and NAME.v. For one request their shape is [heads, tokens, dim]
// and the number of tokens is its capacity; for several [requests, heads, tokens, dim]; with pages [pages of
// the pool, heads, tokens of a page, dim].
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/RopeTable.h"
#include "tools/lib/Random.h"
#include "tools/lib/Tensor.h"
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cfc {

/// A tensor that a program wants before it runs.
struct InputSpec {
  std::string name;
  DType type = DType::f16;
  DataRole role = DataRole::Activation;
  std::vector<int64_t> shape; ///< of a tensor
  int64_t heads = 0, dim = 0; ///< of a cache
  int64_t vDim = 0;           ///< of a cache: of V; 0: as of K
  int64_t requests = 1;       ///< of a cache, its slots and its block table
  /// Of a cache with pages, its slots and its block table: tokens of a page (0: no pages), pages of a request
  /// at most, and the name of the block table.
  int64_t page = 0, pages = 0;
  std::string table;
  /// Of a cache and its block table: tokens of a request that attentions look at, the newest; nothing: all.
  std::optional<int64_t> window;
  /// Where requests have several query tokens: how many there are in all, of caches too, and of what has one
  /// for each the tensor with the starts.
  int64_t rows = 0;
  std::string queries;
  std::optional<int64_t> bound;  ///< largest value of a length (tokens)
  std::optional<RopeTable> rope; ///< of a rope table that the graph generates: nobody gives it
  bool isCache() const { return role == DataRole::Cache; }
  /// Whether verify gives it another value in each case, or a launch changes it.
  bool changesByCase() const {
    return isCache() || role == DataRole::Length || role == DataRole::Slot || role == DataRole::Position ||
           role == DataRole::Starts || role == DataRole::Mask;
  }
  /// Of a cache: whether its tensors have blocks (requests' rows, or pages) as their first dimension.
  bool hasBlocks() const { return requests > 1 || page > 0; }
  /// The shape of a cache's .k, or .v, of that many blocks of `tokens`.
  std::vector<int64_t> cacheShape(bool isV, int64_t blocks, int64_t tokens) const;
  /// New tokens that a request may have.
  int64_t newTokens() const { return std::max<int64_t>(rows, 1); }
};

/// A cache's tensor as the program sees it, dense; of .k or .v.
struct CacheLayout {
  int64_t blocks = 1, tokens = 0;                           ///< tokens of a block
  int64_t row = 0;                                          ///< bytes of a token of a head
  int64_t strideToken = 0, strideHead = 0, strideBlock = 0; ///< bytes

  CacheLayout(const InputSpec &spec, const Tensor &tensor);
  /// Byte at which a row begins.
  int64_t at(int64_t block, int64_t head, int64_t token) const {
    return block * strideBlock + head * strideHead + token * strideToken;
  }
};

/// What the command line said.
struct InputOptions {
  std::vector<std::string> inputs; ///< values of --input
  std::string weights;             ///< value of --weights, or empty
};

/// What random data means where it depends on the request.
struct RandomOptions {
  uint64_t seed = 0;
  int64_t length = 0;   ///< tokens in the cache: also the position and the slot of the new one
  int64_t capacity = 0; ///< tokens that a random cache has room for: more than `length`
};

/// Tensors by name; caches as NAME.k and NAME.v. Weights from a packed checkpoint are still packed.
using TensorMap = std::map<std::string, Tensor>;

/// Every tensor of `specs`, from where the options say. Throws Failure (2) for a name that no spec has (the
/// nearest is named), one that is given twice or not at all, and a tensor of another type or shape, naming
/// the file and both.
TensorMap resolveInputs(const std::vector<InputSpec> &specs, const InputOptions &options,
                        const RandomOptions &random);

/// The tensor as the spec wants it, packed or not; `name` is the spec's, with .k or .v for a cache. Fails (2)
/// with `where`, the file, for another type or shape.
Tensor checkedInput(Tensor tensor, const InputSpec &spec, const std::string &name, const std::string &where);

/// The tensor that NAME=FILE.npy or NAME=FILE.safetensors[:KEY] names (--expect).
Tensor readTensor(const std::string &text);

/// Names that the options give a tensor for, each once per mention.
std::vector<std::string> namedInputs(const InputOptions &options);

/// Random data for one spec: one tensor, or NAME.k and NAME.v, added to `tensors`. A pool has its requests'
/// pages in random order, and some that nobody uses; entries of a block table that nobody reads are out of
/// the pool.
void addRandom(TensorMap &tensors, const InputSpec &spec, const RandomOptions &random);

} // namespace cfc
