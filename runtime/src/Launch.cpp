//===- Launch.cpp - How a variant's kernels are launched --------------------===//
//
// Asks the driver how many clusters fit with the kernel's own block size and shared memory: cards and
// contexts differ (GPCs of unequal size, MPS, green contexts), and a wrong number would be found only at
// launch.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Launch.h"
#include <algorithm>

namespace cfc::runtime {
namespace {

/// A launch as the driver takes it.
struct LaunchConfig {
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{};

  LaunchConfig(const KernelSpec &kernel, uint32_t clusters, CUstream stream) {
    config.gridX = clusters * kernel.cluster;
    config.blockX = kernel.threads;
    config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
    config.sharedBytes = kernel.sharedBytes;
    config.stream = stream;
    config.attributes = attributes;
    auto &size = add(kLaunchClusterDimension).cluster;
    size[0] = kernel.cluster;
    size[1] = size[2] = 1;
    if (kernel.pdl)
      add(kLaunchProgrammaticSerialization).programmaticSerialization = 1;
  }
  LaunchConfig(const LaunchConfig &) = delete; // the config points to the attributes

private:
  decltype(CUlaunchAttribute::value) &add(int id) {
    CUlaunchAttribute &attribute = attributes[config.attributeCount++];
    attribute.id = id;
    return attribute.value;
  }
};

/// Prepares one kernel in the current context.
class KernelSetup {
public:
  KernelSetup(const Bundle &bundle, const KernelSpec &spec, ContextModules &modules)
      : bundle(bundle), spec(spec), modules(modules), function(modules.function(bundle, spec)) {}

  KernelLaunch prepare(uint32_t maxSms) {
    checkResources();
    setAttributes();
    uint32_t resident = residentClusters();
    uint32_t allowed = allowedClusters(maxSms);
    return {&spec, function, resident, std::min({spec.clusters, resident, allowed})};
  }

private:
  const Bundle &bundle;
  const KernelSpec &spec;
  ContextModules &modules;
  CUfunction function;

  int attribute(FunctionAttribute which) const {
    int value = 0;
    check(driver().cuFuncGetAttribute(&value, which, function),
          fmt::format("asking kernel '{}' for an attribute", spec.name));
    return value;
  }

  void checkResources() const {
    int threads = attribute(kFunctionMaxThreads);
    if (spec.threads > uint32_t(threads))
      fail(CFC_UNSUPPORTED_DEVICE, "{}: kernel '{}' needs {} threads a block / limit {}", bundle.source,
           spec.name, spec.threads, threads);
    int limit = deviceAttribute(kDeviceSharedPerBlockOptIn, modules.device);
    uint64_t needed = uint64_t(spec.sharedBytes) + attribute(kFunctionStaticShared);
    if (needed > uint64_t(std::max(limit, 0)))
      fail(CFC_UNSUPPORTED_DEVICE, "{}: kernel '{}' needs {} bytes of shared memory a block / limit {}",
           bundle.source, spec.name, needed, limit);
    // Without .reqnctapercluster, cluster instructions are illegal instructions.
    int width = attribute(kFunctionRequiredClusterWidth);
    if (spec.cluster > 1 ? uint32_t(width) != spec.cluster : width > 1)
      fail(CFC_INVALID_BUNDLE, "{}: kernel '{}' is compiled for clusters of {}, the manifest says {}",
           bundle.source, spec.name, width, spec.cluster);
  }

  void setAttributes() const {
    const Driver &cuda = driver();
    check(cuda.cuFuncSetAttribute(function, kFunctionMaxDynamicShared, spec.sharedBytes),
          fmt::format("giving kernel '{}' {} bytes of shared memory", spec.name, spec.sharedBytes));
    if (spec.nonPortable)
      check(cuda.cuFuncSetAttribute(function, kFunctionNonPortableClusterAllowed, 1),
            fmt::format("allowing kernel '{}' clusters of {}", spec.name, spec.cluster));
  }

  uint32_t residentClusters() const {
    LaunchConfig launch(spec, spec.clusters, nullptr);
    int clusters = 0;
    check(driver().cuOccupancyMaxActiveClusters(&clusters, function, &launch.config),
          fmt::format("asking how many clusters of kernel '{}' fit", spec.name));
    if (clusters <= 0)
      fail(CFC_UNSUPPORTED_DEVICE,
           "{}: kernel '{}': no cluster of {} blocks with {} bytes of shared memory and {} threads each fits "
           "on "
           "device {}: required 1 cluster / limit 0",
           bundle.source, spec.name, spec.cluster, spec.sharedBytes, spec.threads, modules.device);
    return clusters;
  }

  /// The driver may put each CTA on an SM of its own, so N SMs are surely kept with at most N CTAs.
  uint32_t allowedClusters(uint32_t maxSms) const {
    uint32_t all = deviceAttribute(kDeviceSmCount, modules.device);
    if (maxSms == 0 || maxSms >= all)
      return spec.clusters;
    if (maxSms < spec.cluster)
      fail(CFC_UNSUPPORTED_DEVICE, "{}: kernel '{}' needs {} SMs for one cluster / limit {} (max_sms)",
           bundle.source, spec.name, spec.cluster, maxSms);
    return maxSms / spec.cluster;
  }
};

VariantLaunch prepareVariant(const Bundle &bundle, const VariantSpec &variant, ContextModules &modules,
                             uint32_t maxSms) {
  VariantLaunch launch{&variant, {}};
  for (const KernelSpec &kernel : variant.kernels)
    launch.kernels.push_back(KernelSetup(bundle, kernel, modules).prepare(maxSms));
  return launch;
}

} // namespace

VariantLaunch chooseVariant(const Bundle &bundle, const GraphSpec &graph, ContextModules &modules,
                            const cfc_bind_options &options) {
  std::string reasons;
  std::vector<std::string_view> hashes;
  for (const VariantSpec &variant : graph.variants) {
    hashes.push_back(variant.planHash);
    if (options.plan_hash && variant.planHash != options.plan_hash)
      continue;
    try {
      return prepareVariant(bundle, variant, modules, options.max_sms);
    } catch (const Error &error) { // another variant may fit
      if (error.failure.status != CFC_UNSUPPORTED_DEVICE)
        throw;
      reasons += (reasons.empty() ? "" : "\n") + error.failure.message;
    }
  }
  if (reasons.empty())
    fail(CFC_INVALID_ARGUMENT, "{}: graph '{}' has no variant with plan hash '{}'; it has {}", bundle.source,
         graph.name, options.plan_hash, fmt::join(hashes, ", "));
  fail(CFC_UNSUPPORTED_DEVICE, "{}", reasons);
}

CUresult startKernel(const KernelLaunch &kernel, CUdeviceptr table, CUdeviceptr workspace, CUstream stream) {
  LaunchConfig launch(*kernel.spec, kernel.clusters, stream);
  void *parameters[] = {&table, &workspace};
  return driver().cuLaunchKernelEx(&launch.config, kernel.function, parameters, nullptr);
}

} // namespace cfc::runtime
