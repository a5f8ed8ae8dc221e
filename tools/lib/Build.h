//===- Build.h - Compiling for the commands -------------------------------===//
#pragma once
#include "compiler/pipeline/Pipeline.h"
#include "tools/lib/Device.h"
#include "tools/lib/Source.h"

namespace cfc {

/// The options that every command that compiles has.
struct BuildOptions {
  std::string target = "sm_90a", machine, plan = "auto", ptxas;
  std::string planName = "plan"; ///< where the plan's text comes from, for messages
  std::string weightLayout;      ///< native or packed; "": as the plan says, and native where it says nothing
  std::vector<std::string> sets;
  std::string graph;             ///< name of a bundle's graph; "": the only one
  std::string variant;           ///< plan hash of a bundle's variant; "": the one that is for all launches
  std::optional<int64_t> length; ///< cached tokens to plan for; nothing: the planner's choice
  double longest = 2;            ///< tokens of the longest request over the mean
  int64_t maxSms = 0;            ///< plan for, and run on, at most so many SMs; 0: all
  SharedLayout shared;           ///< of the variants of a bundle
  bool deterministic = true, verbose = false, profile = false;
};

/// The most cached tokens that any of a graph's lengths allows; nothing where it has none. Fails (2) where
/// `given`, a value of --len, is not among them.
std::optional<int64_t> lengthBound(Compiler &compiler, attn::GraphOp graph,
                                   std::optional<int64_t> given = std::nullopt);

/// Compiles a module up to `last`. Throws Failure, after the diagnostics. With `verbose`, phases and times go
/// to standard error.
CompiledGraph build(Compiler &compiler, mlir::ModuleOp module, const BuildOptions &options, Stage last);

/// The options that reproduce what a bundle's graph was made with: its target, its plan. Fails (2) where the
/// options name others.
BuildOptions optionsOf(const Source &source, BuildOptions options);

/// A whole bundle file. `graphText` is the source.
std::string bundleContent(const CompiledGraph &compiled, const std::string &graphText);

/// A program ready to be loaded on a device.
struct Program {
  runtime::GraphSpec graph;
  std::optional<CompiledGraph> compiled; ///< absent where a bundle's own code runs on a GPU
  std::string bundle;                    ///< absent on the emulator
  mlir::ModuleOp simt;
  std::string planText, planHash;
  size_t variant = 0; ///< of graph.variants: the one that runs
  uint32_t maxSms = 0;
  /// Clusters of each kernel that run at a time on the machine that was asked for; empty: any.
  std::vector<uint32_t> resident;
  std::string_view graphText; ///< of the bundle that it comes from, which outlives it

  Image image() { return {&graph, simt ? &simt : nullptr, bundle, variant, maxSms, resident, graphText}; }
  /// Where the uses of the arguments can be seen: the graph, or the kernels with their tensors' names.
  mlir::ModuleOp kernels(const Source &source) const;
};

/// What `device` needs to run `source`: a bundle's own code, or a fresh compilation. Checks that a bundle's
/// graph and plan still give the program that it was made of (3).
Program makeProgram(Compiler &compiler, const Source &source, const BuildOptions &options,
                    const Device &device);

/// The same for a graph made from a source's.
Program makeProgram(Compiler &compiler, mlir::ModuleOp module, const BuildOptions &options,
                    const Device &device);

} // namespace cfc
