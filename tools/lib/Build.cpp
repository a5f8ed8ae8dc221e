//===- Build.cpp - Compiling for the commands -----------------------------===//
#include "tools/lib/Build.h"
#include "dialects/attn/Attn.h"
#include "runtime/src/BundleWriter.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include "tools/lib/Machines.h"
#include "tools/lib/Suggest.h"
#include "tools/lib/Variants.h"
#include <algorithm>

using namespace cfc;

static CompileOptions compileOptions(const BuildOptions &options, Stage last) {
  CompileOptions result;
  result.target = options.target;
  result.machine = machineText(options.machine, options.maxSms);
  result.deterministic = options.deterministic;
  result.profile = options.profile;
  result.ptxas = options.ptxas;
  result.weightLayout = options.weightLayout;
  result.length = options.length;
  result.longest = options.longest;
  result.shared = options.shared;
  result.last = last;
  if (options.plan == "auto" || options.plan.starts_with("random:") ||
      options.plan.find('\n') != std::string::npos) {
    result.plan = options.plan;
    result.planName = options.planName;
  } else {
    result.plan = MappedFile::open(options.plan)->text();
    result.planName = options.plan;
    if (result.plan.find('\n') == std::string::npos)
      result.plan += '\n';
  }
  return result;
}

CompiledGraph cfc::build(Compiler &compiler, mlir::ModuleOp module, const BuildOptions &options, Stage last) {
  if (const std::string &layout = options.weightLayout;
      !layout.empty() && layout != "native" && layout != "packed")
    badInput("", "--weight-layout={}: native and packed are known{}", layout,
             didYouMean(layout, {"native", "packed"}));
  CompileOptions compile = compileOptions(options, last);
  std::vector<std::pair<std::string, double>> times;
  if (options.verbose)
    compile.times = &times;
  int exitCode = int(Exit::Internal);
  auto compiled = cfc::compile(module, compile, exitCode);
  for (auto &[phase, milliseconds] : times)
    fmt::print(stderr, "{:>9.1f} ms  {}\n", milliseconds, phase);
  if (mlir::failed(compiled))
    compiler.fail(exitCode, "the compilation failed");
  return std::move(*compiled);
}

std::optional<int64_t> cfc::lengthBound(Compiler &compiler, attn::GraphOp graph,
                                        std::optional<int64_t> given) {
  if (given.value_or(0) < 0)
    badInput("", "--len={}: a length is 0 or more", *given);
  mlir::BlockArgument longest;
  std::optional<int64_t> bound;
  for (mlir::BlockArgument argument : graph.getBody().getArguments())
    if (auto lengths = mlir::dyn_cast<attn::LengthsType>(argument.getType()))
      if (!bound || lengths.getCapacity() > *bound)
        longest = argument, bound = lengths.getCapacity();
  if (!given || (bound && *given <= *bound))
    return bound;
  if (bound)
    mlir::emitError(longest.getLoc())
        << "--len=" << *given << ": this graph's lengths go from 0 to " << *bound;
  else
    graph.emitError("--len=") << *given << ": this graph has no lengths";
  compiler.fail(int(Exit::BadInput), "--len is out of bound");
}

BuildOptions cfc::optionsOf(const Source &source, BuildOptions options) {
  const runtime::Bundle &bundle = *source.bundle;
  const runtime::GraphSpec &graph = source.bundleGraph();
  if (options.plan != "auto")
    badInput(bundle.source, "is a bundle, which has its plan: --plan is for graphs");
  if (!options.weightLayout.empty())
    badInput(bundle.source,
             "is a bundle, which reads its weights as it was compiled to: --weight-layout is for graphs");
  // The plan decides; it may have been made with --no-deterministic.
  options.deterministic = false;
  options.target = bundle.manifest.target;
  options.plan = bundle.planText(graph, variantIndex(graph, options.variant, bundle.source));
  options.planName = bundle.source + " (plan)";
  if (options.plan.find('\n') == std::string::npos)
    options.plan += '\n';
  return options;
}

std::string cfc::bundleContent(const CompiledGraph &compiled, const std::string &graphText) {
  std::vector<runtime::SectionContent> sections = {
      {"manifest", runtime::toJson(compiled.manifest)}, {"graph", graphText}, {"plan", compiled.planText}};
  for (size_t i = 0; i < compiled.cubins.size(); ++i)
    sections.push_back({fmt::format("cubin.{}", i), compiled.cubins[i]});
  return runtime::packBundle(sections);
}

mlir::ModuleOp Program::kernels(const Source &source) const {
  return !source.graph() && compiled && compiled->kernel ? compiled->kernel.get() : source.module.get();
}

/// Lets the emulator hold no more than the machine that was asked for, and a GPU use no more SMs.
static void limit(Program &program, const BuildOptions &options, const Device &device) {
  Machine machine = machineFor(options.machine, options.maxSms);
  program.maxSms = uint32_t(options.maxSms);
  program.resident.clear();
  if (!device.isEmulator() || (options.machine.empty() && !options.maxSms))
    return;
  for (const runtime::KernelSpec &kernel : program.graph.variants.at(program.variant).kernels) {
    int64_t resident = machine.resident(kernel.cluster, kernel.ctasPerSm);
    if (resident < 1)
      cannotRun("", "kernel {} needs clusters of {} CTAs at {} a SM: {} holds none", kernel.name,
                kernel.cluster, kernel.ctasPerSm, machine.name);
    program.resident.push_back(uint32_t(resident));
  }
}

/// The only graph of a manifest.
static const runtime::GraphSpec &onlyGraph(const runtime::Manifest &manifest) {
  if (manifest.graphs.size() != 1)
    internalError("the manifest has {} graphs", manifest.graphs.size());
  return manifest.graphs.front();
}

Program cfc::makeProgram(Compiler &compiler, mlir::ModuleOp module, const BuildOptions &options,
                         const Device &device) {
  Program program;
  program.compiled = build(compiler, module, options, device.isEmulator() ? Stage::Simt : Stage::Cubin);
  program.graph = onlyGraph(program.compiled->manifest);
  program.simt = *program.compiled->simt;
  program.planText = program.compiled->planText;
  program.planHash = program.graph.variants.at(0).planHash;
  if (!device.isEmulator())
    program.bundle = bundleContent(*program.compiled, moduleText(module));
  limit(program, options, device);
  return program;
}

/// The program of a bundle's variant, from the bundle's graph and plan.
static Program rebuild(Compiler &compiler, const Source &source, BuildOptions options, const Device &device,
                       size_t variant) {
  const runtime::Bundle &bundle = *source.bundle;
  const runtime::GraphSpec &graph = source.bundleGraph();
  if (graph.variants.size() > 1 || bundle.manifest.graphs.size() > 1)
    options.shared = {graph.maps, graph.workspace.zeroBytes};
  Program program = makeProgram(compiler, *source.module, options, device);
  const std::string &own = graph.variants[variant].simtDigest;
  const std::string &expected = own.empty() ? bundle.manifest.simtDigest : own;
  if (program.compiled->manifest.simtDigest != expected)
    cannotRun(source.path,
              "was made by another version of the compiler: its program has the digest {}, this cfc makes {} "
              "of its graph "
              "and plan; compile the graph again, or run the bundle on a GPU",
              expected, program.compiled->manifest.simtDigest);
  return program;
}

Program cfc::makeProgram(Compiler &compiler, const Source &source, const BuildOptions &options,
                         const Device &device) {
  if (!source.bundle && !options.variant.empty())
    badInput(source.path, "is no bundle and has one plan: --variant is for bundles");
  if (!source.bundle)
    return makeProgram(compiler, *source.module, options, device);
  const runtime::Bundle &bundle = *source.bundle;
  const runtime::GraphSpec &graph = source.bundleGraph();
  size_t variant = variantIndex(graph, options.variant, bundle.source);
  BuildOptions bundleOptions = optionsOf(source, options);
  Program program;
  if (device.isEmulator()) {
    program = rebuild(compiler, source, bundleOptions, device, variant);
  } else {
    program.bundle = bundle.data;
    program.planText = bundle.planText(graph, variant);
  }
  program.graph = graph;
  program.graphText = bundle.graphText(graph);
  program.variant = variant;
  program.planHash = graph.variants[variant].planHash;
  limit(program, options, device);
  return program;
}
