//===- Session.h - Tensors in a device, and programs that use them --------===//
#pragma once
#include "tools/lib/Device.h"
#include "tools/lib/Inputs.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cfc {

/// The device's copy of a set of tensors. Programs that name the same tensors share them.
class DeviceTensors {
public:
  explicit DeviceTensors(Device &device) : device(device) {}

  /// Copies inputs to the device as they are; those that are there with the same size are overwritten. A
  /// weight may be there packed and native at the same time.
  void upload(const TensorMap &tensors);
  /// Copies inputs in the layouts that a program of `graph` reads.
  void upload(const TensorMap &tensors, const runtime::GraphSpec &graph);
  /// What a program of `graph` binds: inputs from upload, results in new memory where needed. With
  /// `nativeWeights` every weight is the native one, as references read it.
  std::vector<cfc_tensor> bindings(const runtime::GraphSpec &graph, bool nativeWeights = false);
  /// Fills every result of `graph` with a pattern that is NaN in every float type.
  void poisonResults(const runtime::GraphSpec &graph);
  /// A tensor as it now is; caches are NAME.k and NAME.v.
  Tensor download(const std::string &name, DType type, const std::vector<int64_t> &shape);
  /// Everything that a launch of `graph` may have changed: its results, and tensors and caches that it
  /// updates.
  TensorMap outputs(const runtime::GraphSpec &graph);

private:
  struct Buffer {
    uintptr_t data = 0;
    size_t bytes = 0;
    std::vector<int64_t> shape;
  };
  Buffer &buffer(const std::string &name, size_t bytes);

  Device &device;
  std::map<std::string, Buffer> buffers;
};

/// The weight as a program with this tensor reads it.
Tensor inLayoutOf(const runtime::TensorSpec &spec, const Tensor &weight);

/// Elements of `tensor` on the host.
DType dtypeOf(cfc_dtype type);

} // namespace cfc
