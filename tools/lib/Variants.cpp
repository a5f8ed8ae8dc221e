//===- Variants.cpp - Bundles of several plans and of several graphs ------===//
//
// Variants of a graph share the table, and all that is in a bundle the workspace,
// so each must know what the others need: all are lowered once to find out, then
// compiled with that in common. A bundle's manifest holds what they share, so that
// any of them can be made again.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Variants.h"
#include "dialects/attn/Attn.h"
#include "runtime/src/Bundle.h"
#include "runtime/src/BundleWriter.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Machines.h"
#include "tools/lib/Suggest.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

using namespace cfc;
using runtime::GraphSpec, runtime::MapSpec, runtime::VariantCondition;

namespace {
/// A variant on its way into a bundle.
struct Variant {
  VariantCondition when;
  std::string plan, hash, machine;
};

/// What a bundle is put together from.
struct Parts {
  runtime::Manifest manifest;
  std::vector<runtime::SectionContent> texts, plans, cubins;

  static void add(std::vector<runtime::SectionContent> &sections, const char *kind, std::string content) {
    sections.push_back({runtime::sectionName(kind, sections.size()), std::move(content)});
  }
};

/// One graph with its variants.
class GraphCompiler {
public:
  GraphCompiler(Compiler &compiler, const Source &source, const BuildOptions &options)
      : compiler(compiler), source(source), options(options) {}
  /// Plans all variants. `planned`: how many variants other graphs have.
  void plan(const VariantOptions &wanted, size_t planned);
  size_t count() const { return variants.size(); }
  uint64_t zeroBytes() const { return shared.zeroBytes; }
  /// Compiles them with a workspace whose first bytes, as many, are zero between launches. Returns what the
  /// manifest says of the graph.
  GraphSpec compile(uint64_t zeroBytes, Parts &parts);

private:
  void plan(const std::string &machine, const std::string *smaller, std::optional<int64_t> length,
            VariantCondition when);
  void share(const GraphSpec &graph);
  void add(Parts &parts, size_t index, CompiledGraph compiled);

  Compiler &compiler;
  const Source &source;
  const BuildOptions &options;
  size_t before = 0;
  std::vector<Variant> variants;
  SharedLayout shared;
  runtime::Manifest manifest; ///< of this graph alone
};
} // namespace

static const GraphSpec &onlyGraph(const CompiledGraph &compiled) { return compiled.manifest.graphs.at(0); }

static bool sameMap(const MapSpec &a, const MapSpec &b) {
  return a.tensor == b.tensor && a.field == b.field && a.box == b.box && a.swizzle == b.swizzle;
}

/// What callers bind, as text.
static std::string signatureOf(GraphSpec graph) {
  graph.maps.clear();
  graph.variants.clear();
  graph.workspace = {};
  runtime::Manifest manifest;
  manifest.graphs.push_back(std::move(graph));
  return runtime::toJson(manifest);
}

/// The longest length that the graph allows; nothing where it has none. Fails (2) where --variant-lengths do
/// not ascend up to it.
static std::optional<int64_t> longestLength(Compiler &compiler, attn::GraphOp graph,
                                            const std::vector<int64_t> &lengths) {
  std::optional<int64_t> bound;
  mlir::Location where = graph.getLoc();
  for (mlir::BlockArgument argument : graph.getBody().getArguments())
    if (auto type = mlir::dyn_cast<attn::LengthsType>(argument.getType()); type && type.getCapacity() > bound)
      bound = type.getCapacity(), where = argument.getLoc();
  int64_t before = 0;
  for (int64_t length : lengths)
    if (!bound || length <= std::exchange(before, length) || length >= *bound) {
      std::string text = fmt::format("--variant-lengths={}: ", fmt::join(lengths, ","));
      text += !bound ? "this graph has no lengths"
                     : fmt::format("they ascend, from 1 to below {}, the longest of this graph", *bound);
      mlir::emitError(where) << text;
      compiler.fail(int(Exit::BadInput), "--variant-lengths are out of bound");
    }
  return bound;
}

void GraphCompiler::plan(const VariantOptions &wanted, size_t planned) {
  before = planned;
  std::vector<std::string> machines = {options.machine};
  machines.insert(machines.end(), wanted.machines.begin(), wanted.machines.end());
  std::optional<int64_t> longest = longestLength(compiler, source.graph(), wanted.lengths);
  for (size_t i = 0; i < machines.size(); ++i) {
    const std::string *smaller = i + 1 < machines.size() ? &machines[i + 1] : nullptr;
    for (int64_t length : wanted.lengths)
      plan(machines[i], smaller, length, {length, {}, 0});
    plan(machines[i], smaller, wanted.any() ? longest : options.length, {});
  }
}

/// A plan is for its machine where more clusters are resident than on the next smaller one: cards of a kind
/// differ by some.
static int64_t clustersBeyond(const BuildOptions &options, const GraphSpec &graph, const std::string &machine,
                              const std::string &smaller) {
  int64_t least = INT64_MAX;
  for (const runtime::KernelSpec &kernel : graph.variants.at(0).kernels) {
    int64_t here = machineFor(machine, options.maxSms).resident(kernel.cluster, kernel.ctasPerSm);
    int64_t there = machineFor(smaller, options.maxSms).resident(kernel.cluster, kernel.ctasPerSm);
    if (there >= here)
      badInput("",
               "--variant-machines: {} holds {} clusters of {} CTAs at a time, no fewer than {}: it needs no "
               "variant of its own",
               smaller, there, kernel.cluster, machine.empty() ? "the target's usual machine" : machine);
    least = std::min(least, there + 1);
  }
  return least;
}

/// Whether a launch that `narrow` is for may take `wide` just as well.
static bool covers(const VariantCondition &wide, const VariantCondition &narrow) {
  bool lengths = !wide.maxLength || (narrow.maxLength && *narrow.maxLength <= *wide.maxLength);
  return lengths && wide.minClusters <= narrow.minClusters;
}

/// `auto`, or of random:SEED the seed behind that of the variant before.
static std::string planChoice(const std::string &given, size_t index) {
  constexpr std::string_view random = "random:";
  uint64_t seed = 0;
  if (!given.starts_with(random) ||
      std::from_chars(given.data() + random.size(), given.data() + given.size(), seed).ec != std::errc())
    return given;
  return fmt::format("{}{}", random, seed + index);
}

void GraphCompiler::plan(const std::string &machine, const std::string *smaller,
                         std::optional<int64_t> length, VariantCondition when) {
  BuildOptions build = options;
  build.machine = machine;
  build.length = length;
  build.plan = planChoice(options.plan, before + variants.size());
  CompiledGraph compiled = cfc::build(compiler, *source.module, build, Stage::Simt);
  const GraphSpec &graph = onlyGraph(compiled);
  std::string hash = graph.variants.at(0).planHash;
  if (smaller)
    when.minClusters = clustersBeyond(options, graph, machine, *smaller);
  if (!variants.empty() && variants.back().hash == hash && covers(when, variants.back().when)) {
    variants.back().when = when; // one plan for both
    return;
  }
  if (manifest.graphs.empty())
    manifest = compiled.manifest;
  else if (signatureOf(graph) != signatureOf(manifest.graphs[0]))
    internalError("two variants of '{}' want different tensors", graph.name);
  share(graph);
  variants.push_back({when, compiled.planText, hash, machine});
}

void GraphCompiler::share(const GraphSpec &graph) {
  for (const MapSpec &map : graph.maps)
    if (std::none_of(shared.maps.begin(), shared.maps.end(),
                     [&](const MapSpec &other) { return sameMap(map, other); }))
      shared.maps.push_back(map);
  shared.zeroBytes = std::max(shared.zeroBytes, graph.workspace.zeroBytes);
}

/// Takes over what a variant brings: code, plan, launch shapes.
void GraphCompiler::add(Parts &parts, size_t index, CompiledGraph compiled) {
  GraphSpec &graph = manifest.graphs.at(0);
  const GraphSpec &made = onlyGraph(compiled);
  if (made.maps.size() != shared.maps.size() || made.workspace.zeroBytes != shared.zeroBytes)
    internalError("variant {} of '{}' does not keep to the common table or workspace", index, made.name);
  graph.workspace.bytes = std::max(graph.workspace.bytes, made.workspace.bytes);
  runtime::Manifest &all = parts.manifest;
  all.ptx = std::max(all.ptx, compiled.manifest.ptx);
  all.ptxas = compiled.manifest.ptxas;
  all.driverMin = std::max(all.driverMin, compiled.manifest.driverMin);
  runtime::VariantSpec variant = made.variants.at(0);
  variant.when = variants[index].when;
  variant.simtDigest = compiled.manifest.simtDigest;
  for (runtime::KernelSpec &kernel : variant.kernels)
    kernel.cubin += uint32_t(parts.cubins.size());
  graph.variants.push_back(std::move(variant));
  Parts::add(parts.plans, "plan", compiled.planText);
  for (std::string &cubin : compiled.cubins)
    parts.cubins.push_back({fmt::format("cubin.{}", parts.cubins.size()), std::move(cubin)});
}

GraphSpec GraphCompiler::compile(uint64_t zeroBytes, Parts &parts) {
  if (parts.manifest.graphs.empty())
    parts.manifest = manifest;
  GraphSpec &graph = manifest.graphs.at(0);
  graph.maps = shared.maps;
  graph.workspace.zeroBytes = shared.zeroBytes = zeroBytes;
  graph.variants.clear();
  for (size_t i = 0; i < variants.size(); ++i) {
    BuildOptions build = options;
    build.plan = variants[i].plan;
    build.machine = variants[i].machine;
    build.shared = shared;
    add(parts, i, cfc::build(compiler, *source.module, build, Stage::Cubin));
  }
  Parts::add(parts.texts, "graph", source.text);
  return graph;
}

/// Whoever binds several graphs to the same weights has them in memory once.
static void checkWeights(const GraphSpec &first, const GraphSpec &other) {
  for (const runtime::TensorSpec &weight : other.tensors)
    for (const runtime::TensorSpec &same : first.tensors)
      if (same.name == weight.name && same.layout != weight.layout)
        cannotRun("", "'{}' would be {} in graph '{}' and {} in '{}': choose one by --weight-layout",
                  same.name, runtime::name(same.layout), first.name, runtime::name(weight.layout),
                  other.name);
}

std::string cfc::compileBundle(Compiler &compiler, const std::vector<const Source *> &sources,
                               const BuildOptions &options, const VariantOptions &wanted) {
  if (!sources.front()->graph())
    badInput(sources.front()->path,
             "holds kernels, which have their plan: variants and batches are for graphs");
  if (options.plan != "auto" && !options.plan.starts_with("random:"))
    badInput("", "each variant and batch is planned: leave out --plan, or draw plans by random:SEED");
  std::vector<GraphCompiler> graphs;
  uint64_t zeroBytes = 0;
  size_t planned = 0;
  for (const Source *source : sources) {
    graphs.emplace_back(compiler, *source, options).plan(wanted, planned);
    planned += graphs.back().count();
    zeroBytes = std::max(zeroBytes, graphs.back().zeroBytes());
  }
  Parts parts;
  std::vector<GraphSpec> specs;
  for (GraphCompiler &graph : graphs) {
    specs.push_back(graph.compile(zeroBytes, parts));
    checkWeights(specs.front(), specs.back());
  }
  parts.manifest.graphs = specs;
  parts.manifest.simtDigest = specs.front().variants.at(0).simtDigest;
  std::vector<runtime::SectionContent> sections = {{"manifest", runtime::toJson(parts.manifest)}};
  for (auto *list : {&parts.texts, &parts.plans, &parts.cubins})
    sections.insert(sections.end(), list->begin(), list->end());
  return runtime::packBundle(sections);
}

std::string cfc::conditionText(const VariantCondition &when) {
  std::string text;
  auto add = [&](const std::string &condition) { text += (text.empty() ? "" : ", ") + condition; };
  if (when.maxLength)
    add(fmt::format("lengths up to {}", *when.maxLength));
  if (when.maxBatch)
    add(fmt::format("up to {} requests", *when.maxBatch));
  if (when.minClusters)
    add(fmt::format("at least {} clusters at a time", when.minClusters));
  return text.empty() ? "all launches" : text;
}

size_t cfc::variantIndex(const GraphSpec &graph, const std::string &hash, const std::string &path) {
  std::vector<std::string> hashes;
  for (size_t i = 0; i < graph.variants.size(); ++i) {
    const runtime::VariantSpec &variant = graph.variants[i];
    if (hash.empty() ? variant.when.always() : variant.planHash == hash)
      return i;
    hashes.push_back(variant.planHash);
  }
  badInput(path, "has no variant {}; there are {}{}", hash, fmt::join(hashes, ", "),
           didYouMean(hash, hashes));
}

void cfc::addVariantOption(CLI::App &command, BuildOptions &options) {
  command.add_option("--variant", options.variant, "Of a bundle with several variants, this one alone")
      ->option_text("PLAN_HASH");
  addGraphOption(command, options);
}

void cfc::addGraphOption(CLI::App &command, BuildOptions &options) {
  command
      .add_option("--graph", options.graph, "Of a bundle with several graphs (of several batches), this one")
      ->option_text("NAME");
}
