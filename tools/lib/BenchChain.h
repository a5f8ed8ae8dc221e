//===- BenchChain.h - A chain of layers through the C runtime -------------===//
//
// Each layer has weights and caches of its own, so many that the L2 holds none of
// them when its turn comes; everything else is shared. Each block's input is the
// buffer that the block before wrote, where the graph has an operand of the shape
// and type of its first result.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/src/Manifest.h"
#include "tools/lib/BenchFiller.h"
#include "tools/lib/BenchLengths.h"
#include "tools/lib/Inputs.h"
#include "tools/lib/Tensor.h"
#include <map>
#include <optional>

namespace cfc {

/// Bytes of memory that a block must move for requests of these lengths: each weight once, the rows of the
/// rope table that are used, cached rows (of a window those in it) and new ones, activations in and out,
/// entries of block tables that lead to them.
struct BlockBytes {
  double weights = 0, cache = 0, activations = 0;
  double total() const { return weights + cache + activations; }
};
BlockBytes blockBytes(const runtime::GraphSpec &graph, const std::vector<InputSpec> &inputs,
                      const RequestLengths &lengths);

/// The operand that a chain feeds with the first result of the block before; null where there is none.
const runtime::TensorSpec *chainedInput(const runtime::GraphSpec &graph,
                                        const std::vector<InputSpec> &inputs);

struct ChainOptions {
  RequestLengths lengths = 0;    ///< cached tokens
  bool tokenMajor = false;       ///< blocks of caches are [token, head, dim], else [head, token, dim]
  std::optional<int64_t> layers; ///< else so many that their bytes exceed the L2 four times, at least 8
  uint32_t maxSms = 0;           ///< use at most this many SMs; 0: all
  BenchFiller *filler = nullptr; ///< fills the tensors; null: the chain makes one of its own
};

class BenchChain {
public:
  /// Allocates and fills everything and binds every layer. `bundle` is a whole bundle file. Throws where
  /// given layers do not fit into the memory (3).
  BenchChain(BenchGpu &gpu, const runtime::GraphSpec &graph, std::string_view bundle,
             const std::vector<InputSpec> &inputs, const ChainOptions &options);
  ~BenchChain();
  BenchChain(const BenchChain &) = delete;
  BenchChain &operator=(const BenchChain &) = delete;

  int64_t layers() const { return int64_t(bindings.size()); }
  /// Puts one launch of every layer on the stream.
  void launch();
  /// What each layer is bound to.
  const std::vector<std::vector<cfc_tensor>> &tensors() const { return bound; }
  /// The variant that launches take for this length.
  const std::string &plan() const { return planHash; }
  /// How the kernels of a layer are launched.
  std::vector<cfc_kernel_info> kernels() const;
  /// What is wrong with the values once the chain has run: a last result that is not finite, a length out of
  /// bound; or "".
  std::string complaint();
  /// Why the layers may stay in the L2, or "".
  const std::string &note() const { return text; }

private:
  void release();
  cfc_binding *bind(const std::vector<cfc_tensor> &tensors);
  cfc_launch_args launchArguments() const;
  void makeLayer(BenchFiller &filler);
  int64_t layersFor(const ChainOptions &options);
  size_t layerBytes() const;
  bool isOwn(const runtime::TensorSpec &spec) const;
  const InputSpec *inputOf(const std::string &name) const;
  runtime::CUdeviceptr allocate(size_t bytes, const std::string &what);
  cfc_tensor describe(const runtime::TensorSpec &spec) const;
  void packRandom(const runtime::TensorSpec &spec, runtime::CUdeviceptr to, Distribution distribution,
                  BenchFiller &filler);
  int64_t tokensOf(const runtime::TensorSpec &cache) const;
  int64_t blocksOf(const runtime::TensorSpec &cache) const;
  uint64_t cacheBytes(const runtime::TensorSpec &cache, uint64_t row) const;
  uint64_t bufferBytes(const runtime::TensorSpec &spec) const;
  cfc_tensor cacheTensor(const runtime::TensorSpec &spec, BenchFiller &filler);
  runtime::CUdeviceptr filledCache(const runtime::TensorSpec &spec, uint64_t bytes, BenchFiller &filler);
  Tensor indices(const InputSpec &input) const;
  runtime::CUdeviceptr filledTensor(const runtime::TensorSpec &spec, BenchFiller &filler);
  runtime::CUdeviceptr sharedTensor(const runtime::TensorSpec &spec, BenchFiller &filler);

  BenchGpu &gpu;
  const runtime::GraphSpec &graph;
  const std::vector<InputSpec> &inputs;
  ChainOptions options;
  int64_t newTokens = 1; ///< of a request at most
  int64_t capacity = 0;  ///< tokens of a request in a cache without pages
  std::vector<std::unique_ptr<GpuMemory>> memory;
  std::map<std::string, runtime::CUdeviceptr> shared; ///< by tensor
  runtime::CUdeviceptr lastResult = 0;                ///< the first result of the last layer made
  cfc_bundle *loaded = nullptr;
  void *workspace = nullptr;
  size_t workspaceBytes = 0;
  std::vector<cfc_binding *> bindings;
  std::vector<std::vector<cfc_tensor>> bound; ///< by layer
  std::string planHash, text;
};

} // namespace cfc
