//===- Source.h - The GRAPH or BUNDLE that a command is given -------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/src/Bundle.h"
#include "tools/lib/Inputs.h"
#include "llvm/Support/SourceMgr.h"
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace cfc {

namespace attn {
class GraphOp;
}

/// An MLIR context with every dialect, whose diagnostics are printed as `file:line:col: error: …` with the
/// line and a caret on standard error.
class Compiler {
public:
  Compiler();
  ~Compiler();
  Compiler(const Compiler &) = delete;
  Compiler &operator=(const Compiler &) = delete;

  mlir::MLIRContext &context() { return *mlirContext; }
  /// Parses and verifies; `name` is the file in diagnostics. Throws Failure (2), after the diagnostics.
  mlir::OwningOpRef<mlir::ModuleOp> parse(std::string text, const std::string &name);
  /// Throws a Failure; `summary` is its text where no diagnostic has said what is wrong.
  [[noreturn]] void fail(int exitCode, const std::string &summary) const;

private:
  std::unique_ptr<mlir::MLIRContext> mlirContext;
  llvm::SourceMgr sources;
  std::unique_ptr<mlir::SourceMgrDiagnosticHandler> handler;
  std::unique_ptr<mlir::ScopedDiagnosticHandler> counter;
  unsigned errors = 0;
  std::set<std::string> warnings; ///< that were printed, each once
};

/// A file that has been read: a graph (attn dialect), kernels (kernel dialect) or a bundle with its graph.
struct Source {
  std::string path;
  std::string text; ///< of the graph or kernels; of a bundle, the graph in it
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<runtime::Bundle> bundle;
  std::string graphName; ///< of the bundle's graph

  /// The graph, or null for a file of kernels.
  attn::GraphOp graph() const;
  /// The bundle's graph that was chosen.
  const runtime::GraphSpec &bundleGraph() const { return bundle->graph(graphName); }
  /// The file's name without folder and extension.
  std::string stem() const;
};

/// Reads GRAPH or BUNDLE, and changes a graph by `settings` (--set). Of a bundle it reads the graph of the
/// name `graph`, which may be "" where there is one. Throws Failure: 2 for a bad file, 3 for a bundle of a
/// newer schema or another architecture.
Source readSource(Compiler &compiler, const std::string &path, const std::vector<std::string> &settings = {},
                  const std::string &graph = "");

/// Names of the graphs of a bundle; none where the file is no bundle.
std::vector<std::string> graphNames(const std::string &path);

/// What the program wants to be given, in the order of its arguments, and what each is for by its uses in
/// `module`, a graph or kernels.
std::vector<InputSpec> inputSpecs(mlir::ModuleOp module, const runtime::GraphSpec &graph);

/// The text of a module, without locations.
std::string moduleText(mlir::ModuleOp module);

} // namespace cfc
