//===- Context.h - A bundle's kernels in CUDA contexts ----------*- C++ -*-===//
//
// A bundle loads its cubins once into each context that it is bound in. A context is known by its id, not its
// address: a new one may get the address of a destroyed one.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_CONTEXT_H
#define CFC_RUNTIME_SRC_CONTEXT_H

#include "runtime/src/Bundle.h"
#include "runtime/src/Capture.h"
#include "runtime/src/Driver.h"
#include <map>
#include <memory>
#include <mutex>

namespace cfc::runtime {

/// The modules of one bundle in one context. Thread-safe.
class ContextModules {
public:
  /// `retained`: the context is the device's primary one, retained for us and released at the end.
  ContextModules(CUcontext context, unsigned long long id, CUdevice device, bool retained);
  ~ContextModules();
  ContextModules(const ContextModules &) = delete;
  ContextModules &operator=(const ContextModules &) = delete;

  /// The kernel's function; loads its cubin at first use. The context is current.
  CUfunction function(const Bundle &bundle, const KernelSpec &kernel);
  /// The function of PTX text that the runtime brings along, one text for all calls; null where the driver
  /// has no compiler for it. The context is current.
  CUfunction textFunction(const char *ptx, const char *name);
  /// Copies to the device and waits for it, without touching any stream of the user. The context is current.
  void upload(CUdeviceptr to, const void *from, size_t bytes);

  /// False once the context was destroyed, and with it all that was made in it.
  bool alive() const;

  const CUcontext context;
  const unsigned long long id;
  const CUdevice device;

private:
  const bool retained;
  std::mutex mutex;
  std::map<uint32_t, CUmodule> modules; ///< by cubin
  CUmodule textModule = nullptr;
  CUstream stream = nullptr; ///< for uploads
};

/// A loaded bundle with what was made of it on devices.
class LoadedBundle {
public:
  explicit LoadedBundle(Bundle read) : bundle(std::move(read)), manifestText(bundle.manifestText()) {}

  /// The modules in the context that the options ask for: the device's primary one, or the current one.
  /// Checks that the bundle runs on its device and driver. The result lives as long as this object.
  ContextModules &modulesFor(const cfc_bind_options &options) const;

  const Bundle bundle;
  const std::string manifestText; ///< ends with a zero byte
  const std::unique_ptr<const Capture> capture =
      Capture::fromEnvironment(); ///< null: nothing is to be written

private:
  mutable std::mutex mutex;
  mutable std::map<unsigned long long, std::unique_ptr<ContextModules>> contexts; ///< by context id
};

} // namespace cfc::runtime

/// The C handle: bindings share the bundle, so that it may be unloaded before them.
struct cfc_bundle {
  std::shared_ptr<const cfc::runtime::LoadedBundle> loaded;
};

#endif // CFC_RUNTIME_SRC_CONTEXT_H
