//===- cfc.hpp - The cfc runtime for C++ ------------------------*- C++ -*-===//
//
// A thin layer over cfc/runtime.h: handles that close themselves, failures as exceptions. Copy it into an
// engine and change it as needed. C++17; needs no CUDA headers.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_HPP
#define CFC_HPP

#include <cfc/runtime.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace cfc_embed {

/// A failed call. status() tells bad input from what this machine cannot run.
class Error : public std::runtime_error {
public:
  explicit Error(cfc_status status) : std::runtime_error(cfc_last_error()), code(status) {}
  cfc_status status() const { return code; }

private:
  cfc_status code;
};

inline void check(cfc_status status) {
  if (status != CFC_OK)
    throw Error(status);
}

/// A struct of the runtime with its size filled in and all else zero.
template <class T> T make() {
  T value{};
  value.size = sizeof value;
  return value;
}

/// An operand or result: row-major elements at a device pointer. `shape` must outlive the call that uses it.
inline cfc_tensor tensor(const char *name, cfc_dtype dtype, const std::vector<int64_t> &shape, void *data) {
  cfc_tensor result = make<cfc_tensor>();
  result.name = name;
  result.dtype = dtype;
  result.rank = uint32_t(shape.size());
  result.shape = shape.data();
  result.data = data;
  return result;
}

/// A weight that `cfc pack` or the runtime has packed. `shape` is that of the weight, without padding.
inline cfc_tensor packed(const char *name, cfc_dtype dtype, const std::vector<int64_t> &shape, void *data) {
  cfc_tensor result = tensor(name, dtype, shape, data);
  result.layout = CFC_LAYOUT_PACKED;
  return result;
}

/// A KV cache of two buffers. Strides in bytes, capacity in tokens.
inline cfc_tensor cache(const char *name, cfc_dtype dtype, void *k, void *v, int64_t strideHead,
                        int64_t strideToken, int64_t capacity) {
  cfc_tensor result = make<cfc_tensor>();
  result.name = name;
  result.dtype = dtype;
  result.k = k;
  result.v = v;
  result.stride_head = strideHead;
  result.stride_token = strideToken;
  result.capacity = capacity;
  return result;
}

/// A KV cache of several requests, or of a pool of pages: `blocks` blocks, strideBlock bytes apart. Capacity:
/// tokens that a request may have. V has strides of its own only where its dim is not K's.
inline cfc_tensor blockCache(const char *name, cfc_dtype dtype, void *k, void *v, int64_t strideBlock,
                             int64_t strideHead, int64_t strideToken, int64_t blocks, int64_t capacity) {
  cfc_tensor result = cache(name, dtype, k, v, strideHead, strideToken, capacity);
  result.stride_block = strideBlock;
  result.blocks = blocks;
  return result;
}

/// What the host knows of a launch: it picks the bundle's best variant. Results do not depend on it.
struct LaunchOptions {
  int64_t lengthHint = 0; ///< tokens, the longest; 0: unknown
  uint32_t batchHint = 0; ///< requests that are not idle; 0: unknown
  uint32_t maxSms = 0;    ///< limit; 0: as bound
};

/// One layer's buffers on one device.
class Binding {
public:
  explicit Binding(cfc_binding *handle) : handle(handle, cfc_unbind) {}

  void launch(void *workspace, size_t bytes, CUstream stream, const LaunchOptions &options = {}) const {
    cfc_launch_args args = arguments(options);
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    check(cfc_launch(handle.get(), &args, stream));
  }

  /// Plan hash of the variant that such a launch takes.
  const char *variantFor(const LaunchOptions &options = {}) const {
    cfc_launch_args args = arguments(options);
    const char *hash = nullptr;
    check(cfc_variant_for(handle.get(), &args, &hash));
    return hash;
  }

  void rebind(const std::vector<cfc_tensor> &tensors, CUstream stream) {
    check(cfc_rebind(handle.get(), tensors.data(), tensors.size(), stream));
  }

  /// The CFC_DEVICE_… bits; waits for the stream.
  uint32_t deviceStatus(CUstream stream, bool clear = false) const {
    cfc_device_status status = make<cfc_device_status>();
    status.flags = clear ? CFC_DEVICE_STATUS_CLEAR : 0;
    check(cfc_device_status_get(handle.get(), stream, &status));
    return status.bits;
  }

private:
  static cfc_launch_args arguments(const LaunchOptions &options) {
    cfc_launch_args args = make<cfc_launch_args>();
    args.length_hint = options.lengthHint;
    args.batch_hint = options.batchHint;
    args.max_sms = options.maxSms;
    return args;
  }
  std::unique_ptr<cfc_binding, void (*)(cfc_binding *)> handle;
};

/// A loaded bundle; threads may share it.
class Bundle {
public:
  explicit Bundle(const char *path) : handle(load(path), cfc_unload) {}

  /// The graph for so many requests of so many cached tokens (0: any). An Error of CFC_UNSUPPORTED_SIZE says that
  /// the bundle serves fewer.
  const char *graphFor(uint32_t batch, uint64_t length = 0) const {
    cfc_limits limits = make<cfc_limits>();
    limits.max_batch = batch;
    limits.max_length = length;
    const char *graph = nullptr;
    check(cfc_graph_for(handle.get(), &limits, &graph));
    return graph;
  }

  /// Bytes of workspace that a launch needs, at this alignment; of no graph: of any.
  size_t workspaceBytes(size_t *align = nullptr, const char *graph = nullptr) const {
    size_t bytes = 0;
    check(cfc_workspace_size(handle.get(), graph, nullptr, &bytes, align));
    return bytes;
  }

  /// The values of a table of rotations that the graph generates ("rope" in the manifest): `bytes` bytes,
  /// those of the tensor. Copy it to the device once; every layer's binding may name that copy.
  std::vector<char> generate(const char *tensor, size_t bytes, const char *graph = nullptr) const {
    std::vector<char> table(bytes);
    check(cfc_generate(handle.get(), graph, tensor, table.data(), bytes));
    return table;
  }

  /// Every operand and result, once, in any order.
  Binding bind(const std::vector<cfc_tensor> &tensors, const char *graph = nullptr) const {
    cfc_binding *binding = nullptr;
    check(cfc_bind(handle.get(), graph, tensors.data(), tensors.size(), nullptr, &binding));
    return Binding(binding);
  }

private:
  static cfc_bundle *load(const char *path) {
    cfc_bundle *bundle = nullptr;
    check(cfc_load(path, nullptr, &bundle));
    return bundle;
  }
  std::unique_ptr<cfc_bundle, void (*)(cfc_bundle *)> handle;
};

} // namespace cfc_embed

#endif // CFC_HPP
