//===- Launch.h - How a variant's kernels are launched ----------*- C++ -*-===//
//
// Decides, when binding, which variant runs in a context and with how many clusters; starts kernels later
// without deciding anything.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_LAUNCH_H
#define CFC_RUNTIME_SRC_LAUNCH_H

#include "runtime/src/Context.h"

namespace cfc::runtime {

/// One kernel, ready to be started.
struct KernelLaunch {
  const KernelSpec *spec = nullptr;
  CUfunction function = nullptr;
  uint32_t resident = 0; ///< clusters that the context holds at a time
  uint32_t clusters = 0; ///< that are launched
  uint32_t grid() const { return clusters * spec->cluster; }
};

/// A variant, ready to be started.
struct VariantLaunch {
  const VariantSpec *spec = nullptr;
  std::vector<KernelLaunch> kernels;
};

/// The first variant of the graph (or the one that the options name) that runs in the context, which is
/// current. Throws Error with "required / limit" where none does.
VariantLaunch chooseVariant(const Bundle &bundle, const GraphSpec &graph, ContextModules &modules,
                            const cfc_bind_options &options);

/// Starts one kernel with the parameters (table, workspace).
CUresult startKernel(const KernelLaunch &kernel, CUdeviceptr table, CUdeviceptr workspace, CUstream stream);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_LAUNCH_H
