//===- DeviceReference.h - What a graph means, a second time ---------------===//
//
// Runs a graph operation by operation with the kernels of templates/device: the
// same definitions as the float64 reference, written a second time in another
// language, for another machine, by plain loops. What both agree on is right.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/Reference.h"
#include "dialects/attn/ReferenceMath.h"
#include "templates/device/reference.h"
#include "tools/lib/Device.h"
#include "tools/lib/DeviceKernels.h"

namespace cfc {

class DeviceReference {
public:
  /// The graph must have passed attn::evaluate, which refuses what is not defined. Both arguments live longer
  /// than this. Allocates on the device once, when the first case is evaluated.
  DeviceReference(Device &device, DeviceKernels &kernels, attn::GraphOp graph)
      : device(device), kernels(kernels), graph(graph) {}

  /// Evaluates the graph on the tensors of a device, which are bound as cfc_bind takes them and are left as
  /// they are. Values are those of attn::evaluate, but for generated tables that the graph does not return.
  /// `stored`: rows that a program has stored, which attention takes in place of its own.
  attn::ReferenceResult evaluate(const std::vector<cfc_tensor> &tensors,
                                 llvm::ArrayRef<attn::AppendedRow> stored = {});

private:
  void run(attn::RmsNormOp op);
  void run(attn::LayerNormOp op);
  void run(attn::LinearOp op);
  void run(attn::RopeOp op);
  void run(attn::RopeTableOp op);
  void run(attn::KvAppendOp op);
  void run(attn::AttentionOp op);
  void run(attn::AddOp op);

  /// Starts a kernel of `file`.cu with at least `threads` threads.
  template <typename Parameter>
  void launch(const char *file, const char *name, int64_t threads, const Parameter &parameter);
  void *buffer(const std::string &name, int64_t bytes);
  double *define(mlir::Value value);
  const cfc_tensor &argument(mlir::Value value);
  const cfc_tensor &cacheOf(mlir::Value cache);
  cfc_reference::Elements read(mlir::Value value);
  std::vector<double> toHost(mlir::Value value);
  std::tuple<const float *, const float *, int64_t> scalesOf(mlir::Value k, mlir::Value v);
  std::pair<const int *, int64_t> startsOf(mlir::Value starts);
  attn::QueryRow placeOf(mlir::Value starts, int64_t rows, int64_t row);
  const double *biasOf(attn::AttentionOp op, int64_t bound);
  void divide(std::vector<double> &rows, mlir::Value scale, int64_t heads, int64_t dim);
  void putStored(attn::KvAppendOp op, llvm::ArrayRef<attn::AppendedRow> stored);
  void getAppended(attn::KvAppendOp op, attn::ReferenceResult &result);

  Device &device;
  DeviceKernels &kernels;
  attn::GraphOp graph;
  unsigned *status = nullptr; ///< on the device
  llvm::StringMap<cfc_tensor> bound;
  llvm::StringMap<uintptr_t> buffers;           ///< by name and size
  llvm::DenseMap<mlir::Value, double *> values; ///< computed, on the device
};

} // namespace cfc
