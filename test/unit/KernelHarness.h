//===- KernelHarness.h - Runs kernel.funcs on the emulator ---------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/emulator/Emulator.h"
#include "runtime/src/Manifest.h"
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cfc::test {

/// A report's findings as text, for messages.
std::string textOf(const emu::Report &report);

/// A module of kernels compiled for the emulator, with its tensors. Requires that everything works (Catch2).
class KernelRun {
public:
  /// `mutate` may change the module of simt.kernels before it is compiled.
  explicit KernelRun(const std::string &text, const std::function<void(mlir::ModuleOp)> &mutate = {});
  ~KernelRun();

  /// Sets a tensor; values are rounded to its type. Caches: `name.k`, `name.v` as [head][token][dim]. Weights
  /// in the layout "packed" are given native.
  void set(const std::string &name, const std::vector<double> &values);
  /// Runs all kernels in order, with `residentClusters` clusters or fewer: 0: all, one or two, by the seed.
  /// The workspace keeps its content from launch to launch. `clusters`: launch so many, of which
  /// `residentClusters` run at a time.
  emu::Report launch(uint64_t seed, unsigned residentClusters = 0, unsigned clusters = 0);
  std::vector<double> get(const std::string &name) const;
  /// Bytes of a tensor, for comparing bits.
  std::vector<uint8_t> bytes(const std::string &name) const;
  /// The counters region of the workspace is zero, as it was before the first launch.
  bool workspaceIsReady() const;
  uint32_t status() const;
  /// Tokens of every cache.
  int64_t capacity = 256;
  int64_t pool = 16;          ///< pages of caches that have pages
  bool tokensOutside = false; ///< caches are [block][token][head][dim]

private:
  struct Buffer {
    void *data = nullptr;
    size_t size = 0;
    cfc_dtype dtype = CFC_F32;
  };
  void allocate();
  const Buffer &buffer(const std::string &name) const;

  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  runtime::GraphSpec graph;
  std::unique_ptr<emu::Program> program;
  emu::Memory memory;
  std::map<std::string, Buffer> buffers;
  void *table = nullptr, *workspace = nullptr;
};

} // namespace cfc::test
