//===- Pipeline.h - From a graph to cubins --------------------------------===//
//
// The whole compiler as one call. Tools and the emulator's tests use it; what
// they print, write or run is up to them.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/src/Manifest.h"
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mlir {
class DialectRegistry;
}

namespace cfc {

/// How far to go. Each stage includes those before it.
enum class Stage { Plan, Kernel, Simt, Llvm, Ptx, Cubin };

/// What the variants of a bundle have in common: a place for each tensor map, and counters where no variant
/// keeps anything else. A program of its own needs none of it.
struct SharedLayout {
  std::vector<runtime::MapSpec> maps; ///< in the order of the table; other maps come behind them
  uint64_t zeroBytes = 0;             ///< least size of the workspace's part that is zero between launches
};

struct CompileOptions {
  /// The instruction set.
  std::string target = "sm_90a";
  /// The numbers that the planner uses: a name ("h200"), a machine description as JSON, or "" for the
  /// target's usual machine.
  std::string machine;
  /// "auto", "random:SEED", or a plan's text. `planName` is the file it came from, for diagnostics.
  std::string plan = "auto", planName = "plan";
  bool deterministic = true;
  /// Cached tokens that the planner assumes; nothing: its own choice.
  std::optional<int64_t> length;
  double longest = 2; ///< tokens of the longest request over the mean
  SharedLayout shared;
  /// "native" or "packed": how the kernels of a graph read its weights. "": as the plan says, else native.
  std::string weightLayout;
  /// Kernels leave the time after each operation behind the workspace (docs/design.md, "Profiles").
  bool profile = false;
  Stage last = Stage::Cubin;
  /// The ptxas to use; "": $CFC_PTXAS, PATH, the usual places.
  std::string ptxas;
  /// Where (phase, milliseconds) go for `-v`; may be null.
  std::vector<std::pair<std::string, double>> *times = nullptr;
};

/// What the stages made. Fields behind the last stage are empty.
struct CompiledGraph {
  /// The source, and what each stage made of a copy of it. A source in the kernel dialect has no `attn`.
  mlir::OwningOpRef<mlir::ModuleOp> attn, kernel, simt;
  std::string planText;
  /// Names, shapes and the table from stage Simt on; the cubins' part is complete after stage Cubin.
  runtime::Manifest manifest;
  std::string llvm, ptx;
  std::vector<std::string> cubins;
};

/// Compiles a module with one attn.graph, or with kernel.funcs. What is wrong is reported through the
/// context's diagnostics; `exitCode` is then the one that a command ends with (2: bad input, 3: this target
/// or machine cannot, 4: an internal error or a tool that failed).
mlir::FailureOr<CompiledGraph> compile(mlir::ModuleOp source, const CompileOptions &options, int &exitCode);

/// Adds every dialect that `compile` may create.
void registerPipelineDialects(mlir::DialectRegistry &registry);

} // namespace cfc
