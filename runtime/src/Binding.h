//===- Binding.h - A graph's buffers on a device ----------------*- C++ -*-===//
//
// Owns the table in device memory and what is needed to launch. The host keeps the tensors that were named
// last, for checks only: what the table holds may differ, as captured rebindings run when they are replayed.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_BINDING_H
#define CFC_RUNTIME_SRC_BINDING_H

#include "runtime/src/Launch.h"
#include "runtime/src/Tensors.h"

namespace cfc::runtime {

/// Bytes of the table.
struct TableRange {
  size_t offset = 0, bytes = 0;
};

/// Pinned host memory from which the table is copied in stream order. A copy reads it some time later, so a
/// slot is free again only after its event; a slot whose copy was captured belongs to that graph for good.
class StagingSlots {
public:
  explicit StagingSlots(size_t bytes) : bytes(bytes) {}
  ~StagingSlots(); ///< the context is current
  StagingSlots(const StagingSlots &) = delete;
  StagingSlots &operator=(const StagingSlots &) = delete;

  /// Allocates slots ahead, so that the first rebindings need not.
  void reserve(size_t count);
  /// Copies the `ranges` of `image`, a whole table, into that at `table` in the order of `stream`; `image`
  /// may change afterwards.
  void copy(CUdeviceptr table, const std::vector<char> &image, const std::vector<TableRange> &ranges,
            CUstream stream);

private:
  struct Slot {
    void *memory = nullptr;
    CUevent copied = nullptr;
    bool used = false, captured = false;
  };
  Slot &add();
  Slot &freeSlot();

  const size_t bytes;
  std::vector<Slot> slots;
};

} // namespace cfc::runtime

/// The C handle.
struct cfc_binding {
  cfc_binding(std::shared_ptr<const cfc::runtime::LoadedBundle> loaded, const cfc::runtime::GraphSpec &graph,
              cfc::runtime::ContextModules &modules);
  ~cfc_binding();
  cfc_binding(const cfc_binding &) = delete;
  cfc_binding &operator=(const cfc_binding &) = delete;

  /// Allocates the table and fills it in. The context is current.
  void createTable();
  void rebind(const cfc_tensor *given, size_t count, CUstream stream);
  void launch(cfc::runtime::CUdeviceptr workspace, const cfc::runtime::LaunchHints &hints,
              CUstream stream) const;
  uint32_t status(CUstream stream, bool clear) const;

  const std::shared_ptr<const cfc::runtime::LoadedBundle> loaded;
  const cfc::runtime::GraphSpec &graph;
  cfc::runtime::ContextModules &modules;
  std::vector<cfc::runtime::VariantLaunch> variants; ///< that run in the context
  std::vector<cfc::runtime::BoundTensor> tensors;    ///< named last, also in a capture
  cfc::runtime::CUdeviceptr table = 0;

private:
  void capture(const cfc::runtime::VariantSpec &variant, const cfc::runtime::LaunchHints &hints,
               CUstream stream) const;

  std::optional<cfc::runtime::StagingSlots> staging; ///< nothing where the table has no entries
};

#endif // CFC_RUNTIME_SRC_BINDING_H
