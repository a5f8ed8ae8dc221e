//===- Launch.h - How a variant's kernels are launched ----------*- C++ -*-===//
//
// When binding: which variants run in a context, and with how many clusters. When launching: which of them is
// best for what the host knows, without asking anybody.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_LAUNCH_H
#define CFC_RUNTIME_SRC_LAUNCH_H

#include "runtime/src/Context.h"
#include <algorithm>

namespace cfc::runtime {

/// One kernel, ready to be started.
struct KernelLaunch {
  const KernelSpec *spec = nullptr;
  CUfunction function = nullptr;
  uint32_t resident = 0; ///< clusters that the context holds at a time
  uint32_t allowed = 0;  ///< of those, that the binding's limit on SMs leaves

  /// Clusters that can run at a time on at most `maxSms` SMs (0: no limit of the launch). 0 where not even
  /// one fits.
  uint32_t room(uint32_t maxSms) const {
    return maxSms ? std::min(allowed, maxSms / spec->cluster) : allowed;
  }
  /// Clusters that are launched: no more than have work.
  uint32_t clusters(uint32_t maxSms) const { return std::min(spec->clusters, room(maxSms)); }
};

/// A variant, ready to be started.
struct VariantLaunch {
  const VariantSpec *spec = nullptr;
  std::vector<KernelLaunch> kernels;
};

/// What the host knows of a launch. 0: nothing.
struct LaunchHints {
  int64_t length = 0;  ///< tokens, the longest
  uint32_t batch = 0;  ///< requests that are not idle
  uint32_t maxSms = 0; ///< limit of this launch
};

/// The variants of the graph (or the one that the options name) that run in the context, which is current, in
/// the manifest's order. Throws Error with "required / limit" where none does.
std::vector<VariantLaunch> prepareVariants(const Bundle &bundle, const GraphSpec &graph,
                                           ContextModules &modules, const cfc_bind_options &options);

/// The first variant whose condition the hints satisfy; else, because all are right, another. Throws Error
/// where the limit on SMs leaves no room for any. Allocates nothing else.
const VariantLaunch &chooseVariant(const std::vector<VariantLaunch> &variants, const LaunchHints &hints);

/// Starts `clusters` of a kernel with the parameters (table, workspace).
CUresult startKernel(const KernelLaunch &kernel, uint32_t clusters, CUdeviceptr table, CUdeviceptr workspace,
                     CUstream stream);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_LAUNCH_H
