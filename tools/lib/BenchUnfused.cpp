//===- BenchUnfused.cpp - The same chain by unfused kernels ---------------===//
#include "tools/lib/BaselineChain.h"
#include "tools/lib/BenchBaseline.h"

using namespace cfc;

BaselineResult cfc::timeUnfused(BenchGpu &gpu, const BenchChain &chain, attn::GraphOp graph, int64_t length,
                                int64_t replays) {
  BaselineResult result{"unfused kernels by NVRTC", std::nullopt, ""};
  try {
    NvrtcKernels kernels;
    BaselineChain unfused(graph, kernels, length, gpu.sms());
    GpuMemory workspace(unfused.workspaceBytes(), "values between unfused kernels");
    result.name = fmt::format("unfused: {} kernels a block, by NVRTC", unfused.launches());
    result.us = gpu.time(
        [&] {
          for (const std::vector<cfc_tensor> &tensors : chain.tensors())
            unfused.launch(tensors, workspace.pointer(), gpu.stream());
        },
        chain.layers(), replays, "the unfused kernels");
  } catch (const Failure &failure) {
    if (failure.code != Exit::CannotRun)
      throw;
    result.problem = reasonOf(failure);
  }
  return result;
}
