// Runs one step of templates/graphs/small_attention.mlir on the current device, with zeros for data, captured
// in a CUDA graph:
//
//   cfc compile templates/graphs/small_attention.mlir -o small.cfk
//   g++ -std=c++17 example.cpp -I ../../../runtime/include -I $CUDA/include -L LIB -lcfc_runtime -L
//   $CUDA/lib64 -lcudart
//   ./a.out small.cfk
//
// An engine does the same with its own buffers. Everything but the launch is done once.
#include "cfc.hpp"
#include <cstdio>
#include <cuda_runtime_api.h>

using cfc_embed::cache;
using cfc_embed::tensor;

static void cuda(cudaError_t status) {
  if (status != cudaSuccess)
    throw std::runtime_error(cudaGetErrorString(status));
}

/// Device memory that frees itself, filled with zeros.
class Buffer {
public:
  explicit Buffer(size_t bytes) {
    cuda(cudaMalloc(&data, bytes));
    cuda(cudaMemset(data, 0, bytes));
  }
  ~Buffer() { cudaFree(data); }
  Buffer(const Buffer &) = delete;
  operator void *() const { return data; }

private:
  void *data = nullptr;
};

static void run(const char *path) {
  cudaStream_t stream;
  cuda(cudaStreamCreate(&stream));
  cfc_embed::Bundle bundle(path);

  const std::vector<int64_t> row = {1, 256}, vector = {256}, square = {256, 256}, rope = {256, 64}, one = {1};
  const int64_t capacity = 256, tokenBytes = 64 * 2, headBytes = capacity * tokenBytes;
  Buffer x(512), gain(1024), q(131072), k(131072), v(131072), o(131072), table(65536), keys(4 * headBytes),
      values(4 * headBytes), pos(4), slot(8), len(4), result(512);
  cfc_embed::Binding binding = bundle.bind({
      tensor("x", CFC_F16, row, x),
      tensor("gain", CFC_F32, vector, gain),
      tensor("w_q", CFC_F16, square, q),
      tensor("w_k", CFC_F16, square, k),
      tensor("w_v", CFC_F16, square, v),
      tensor("w_o", CFC_F16, square, o),
      tensor("table", CFC_F32, rope, table),
      cache("cache", CFC_F16, keys, values, headBytes, tokenBytes, capacity),
      tensor("pos", CFC_I32, one, pos),
      tensor("slot", CFC_I64, one, slot),
      tensor("len", CFC_I32, one, len),
      tensor("result0", CFC_F16, row, result),
  });
  size_t bytes = bundle.workspaceBytes();
  Buffer workspace(bytes ? bytes : 1); // cudaMalloc aligns to 256 bytes, which is enough for every bundle
  cfc_embed::check(cfc_workspace_init(workspace, bytes, stream));

  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  binding.launch(workspace, bytes, stream);
  cuda(cudaStreamEndCapture(stream, &graph));
  cuda(cudaGraphInstantiate(&exec, graph, 0));
  cuda(cudaGraphLaunch(exec, stream));
  cuda(cudaStreamSynchronize(stream));
  std::printf("done; device status %u\n", binding.deviceStatus(stream));
}

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s BUNDLE\n", argv[0]);
    return 2;
  }
  try {
    run(argv[1]);
  } catch (const cfc_embed::Error &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return CFC_EXIT_CODE(error.status());
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 4;
  }
}
