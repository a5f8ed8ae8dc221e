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
  CUlaunchAttribute attributes[3] = {};
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
    if (kernel.cooperative)
      add(kLaunchCooperative).cooperative = 1;
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
      : bundle(bundle), spec(spec), modules(modules), function(modules.function(bundle, spec)),
        sms(contextSms(modules.context, modules.device)) {}

  KernelLaunch prepare(uint32_t maxSms) {
    checkResources();
    setAttributes();
    uint32_t resident = residentClusters();
    return {&spec, function, resident, std::min(resident, allowedClusters(maxSms))};
  }

private:
  const Bundle &bundle;
  const KernelSpec &spec;
  ContextModules &modules;
  CUfunction function;
  uint32_t sms; ///< of the context

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
    // Where the context has a part of the device, the driver's answer may still be for all of it.
    uint64_t most = std::max<uint64_t>(uint64_t(sms) * spec.ctasPerSm / spec.cluster, 1);
    bool part = sms < uint32_t(deviceAttribute(kDeviceSmCount, modules.device));
    return part ? uint32_t(std::min<uint64_t>(clusters, most)) : uint32_t(clusters);
  }

  /// The driver may put each CTA on an SM of its own, so N SMs are surely kept with at most N CTAs.
  uint32_t allowedClusters(uint32_t maxSms) const {
    if (maxSms == 0 || maxSms >= sms)
      return UINT32_MAX;
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

std::vector<VariantLaunch> prepareVariants(const Bundle &bundle, const GraphSpec &graph,
                                           ContextModules &modules, const cfc_bind_options &options) {
  std::vector<VariantLaunch> prepared;
  std::string reasons;
  std::vector<std::string_view> hashes;
  for (const VariantSpec &variant : graph.variants) {
    hashes.push_back(variant.planHash);
    if (options.plan_hash && variant.planHash != options.plan_hash)
      continue;
    try {
      prepared.push_back(prepareVariant(bundle, variant, modules, options.max_sms));
    } catch (const Error &error) { // another variant may fit
      if (error.failure.status != CFC_UNSUPPORTED_DEVICE)
        throw;
      reasons += (reasons.empty() ? "" : "\n") + error.failure.message;
    }
  }
  if (!prepared.empty())
    return prepared;
  if (reasons.empty())
    fail(CFC_INVALID_ARGUMENT, "{}: graph '{}' has no variant with plan hash '{}'; it has {}", bundle.source,
         graph.name, options.plan_hash, fmt::join(hashes, ", "));
  fail(CFC_UNSUPPORTED_DEVICE, "{}", reasons);
}

static bool hasRoom(const VariantLaunch &variant, uint32_t maxSms) {
  return std::all_of(variant.kernels.begin(), variant.kernels.end(),
                     [&](const KernelLaunch &kernel) { return kernel.room(maxSms) > 0; });
}

/// What is unknown satisfies no condition.
static bool suits(const VariantLaunch &variant, const LaunchHints &hints) {
  const VariantCondition &when = variant.spec->when;
  if (when.maxLength && (hints.length <= 0 || hints.length > *when.maxLength))
    return false;
  if (when.maxBatch && (hints.batch == 0 || hints.batch > *when.maxBatch))
    return false;
  return std::all_of(variant.kernels.begin(), variant.kernels.end(), [&](const KernelLaunch &kernel) {
    return kernel.room(hints.maxSms) >= when.minClusters;
  });
}

const VariantLaunch &chooseVariant(const std::vector<VariantLaunch> &variants, const LaunchHints &hints) {
  const VariantLaunch *last = nullptr;
  for (const VariantLaunch &variant : variants) {
    if (!hasRoom(variant, hints.maxSms))
      continue;
    if (suits(variant, hints))
      return variant;
    last = &variant;
  }
  if (last) // those for all launches do not run here
    return *last;
  uint32_t needed = UINT32_MAX;
  for (const VariantLaunch &variant : variants) {
    uint32_t cluster = 0;
    for (const KernelLaunch &kernel : variant.kernels)
      cluster = std::max(cluster, kernel.spec->cluster);
    needed = std::min(needed, cluster);
  }
  fail(CFC_UNSUPPORTED_DEVICE, "the kernels need {} SMs for one cluster / limit {} (max_sms of the launch)",
       needed, hints.maxSms);
}

CUresult startKernel(const KernelLaunch &kernel, uint32_t clusters, CUdeviceptr table, CUdeviceptr workspace,
                     CUstream stream) {
  LaunchConfig launch(*kernel.spec, clusters, stream);
  void *parameters[] = {&table, &workspace};
  return driver().cuLaunchKernelEx(&launch.config, kernel.function, parameters, nullptr);
}

} // namespace cfc::runtime
