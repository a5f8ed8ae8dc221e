//===- BaselineChain.h - A graph as a chain of unfused kernels -------------===//
//
// What cfc's kernels are compared with: one launch for each operation, with the
// kernels of templates/device/fast_*.cu. Only rope and the append of what it
// rotates share a launch, and attention takes a second one to merge its splits.
// Values lie in memory between the launches, rounded to their types.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "cfc/runtime.h"
#include "dialects/attn/Attn.h"
#include "templates/device/fast.h"
#include "tools/lib/DeviceKernels.h"
#include "llvm/ADT/DenseMap.h"
#include <functional>

namespace cfc {

class BaselineChain {
public:
  /// Compiles the kernels of a graph. `length` is the number of cached tokens to tune for: it decides the
  /// splits of attention, not the results. `sms` is the number of SMs. Throws Failure (3) for a graph of more
  /// than one request, and for columns and head dimensions that the kernels do not take.
  BaselineChain(attn::GraphOp graph, DeviceKernels &kernels, int64_t length, int sms);

  /// Device memory, aligned to 256 bytes, for values between the operations. Layers that run one after
  /// another may share it.
  size_t workspaceBytes() const { return bytes; }
  /// Kernels that a launch of the chain starts.
  size_t launches() const { return steps.size(); }
  /// Their names, in order.
  std::vector<std::string> kernelNames() const;

  /// Puts the chain on a stream. `tensors` binds the graph's tensors and generated tables as cfc_bind takes
  /// them. Neither allocates nor waits: it may be captured.
  void launch(const std::vector<cfc_tensor> &tensors, void *workspace, CUstream stream) const;

private:
  /// Where the tensors of one launch lie.
  struct Binding;
  /// One kernel; `put` fills in its parameter and starts it.
  struct Step {
    DeviceKernel kernel;
    std::function<void(const Step &, const Binding &, CUstream)> put;
  };

  void add(attn::RmsNormOp op);
  void add(attn::LinearOp op);
  void add(attn::RopeOp op);
  void add(attn::KvAppendOp op);
  void add(attn::AttentionOp op);
  void add(attn::AddOp op);
  void addRopeAppend(attn::RopeOp rope, attn::KvAppendOp append);
  /// Appends a step whose parameter `fill` makes for a binding.
  template <typename Parameter>
  void addStep(DeviceKernel kernel, LaunchShape shape, std::function<Parameter(const Binding &)> fill);
  void reserve(mlir::Value value);
  size_t reserve(size_t size);

  DeviceKernels &kernels;
  int64_t length;
  int sms;
  size_t bytes = 0;
  llvm::DenseMap<mlir::Value, std::string> names; ///< of tensors that a caller binds
  llvm::DenseMap<mlir::Value, size_t> offsets;    ///< of other values in the workspace
  llvm::SmallVector<attn::KvAppendOp> appended;   ///< appends that a step does already
  std::vector<Step> steps;
};

} // namespace cfc
