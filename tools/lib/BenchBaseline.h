//===- BenchBaseline.h - The same work done by other means ----------------===//
#pragma once
#include "dialects/attn/Attn.h"
#include "tools/lib/BenchReport.h"

namespace cfc {

/// The cases to time, and how.
struct BaselineRequest {
  attn::GraphOp graph;
  const runtime::GraphSpec &tensors;
  const std::vector<InputSpec> &inputs;
  std::vector<std::pair<RequestLengths, int64_t>> cases; ///< (cached tokens, layers)
  bool tokenMajor = false;
  int64_t replays = 30;
};

/// One kernel for each operation, or nearly (tools/lib/BaselineChain.h), on the layers of `chain`.
BaselineResult timeUnfused(BenchGpu &gpu, const BenchChain &chain, attn::GraphOp graph, int64_t length,
                           int64_t replays);

/// torch.compile in a CUDA graph, and with FlashInfer's attention where python3 has it, by
/// tools/gpu/torch_chain.py in a process of its own: the results of each case.
std::vector<std::vector<BaselineResult>> timeTorch(const BaselineRequest &request);

} // namespace cfc
