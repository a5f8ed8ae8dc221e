//===- PackCommand.cpp - cfc pack -----------------------------------------===//
#include "dialects/attn/Attn.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Files.h"
#include "tools/lib/Pack.h"
#include "tools/lib/Session.h"
#include "tools/lib/Suggest.h"

using namespace cfc;

namespace {
struct PackArguments {
  std::string source, weights, output;
  bool unpack = false;
  BuildOptions build;
};
} // namespace

/// The weights that kernels read packed: those of a bundle, or of the kernels that a graph is compiled to.
static std::vector<runtime::TensorSpec> packedWeights(PackArguments arguments) {
  Compiler compiler;
  std::vector<std::string> graphs = graphNames(arguments.source);
  // All graphs of a bundle read its weights alike.
  Source source =
      readSource(compiler, arguments.source, arguments.build.sets, graphs.empty() ? "" : graphs[0]);
  runtime::GraphSpec graph;
  if (source.bundle) {
    graph = source.bundleGraph();
  } else {
    if (source.graph())
      arguments.build.weightLayout = "packed";
    CompiledGraph compiled = build(compiler, *source.module, arguments.build, Stage::Simt);
    graph = compiled.manifest.graphs.front();
  }
  std::erase_if(graph.tensors,
                [](const runtime::TensorSpec &spec) { return spec.layout != runtime::Layout::Packed; });
  if (graph.tensors.empty())
    badInput(arguments.source, "reads no packed weight: {}",
             source.bundle ? "make the bundle with \"cfc compile --weights=packed\""
                           : "its weights stay as they are");
  return graph.tensors;
}

/// What to do with one weight of the graph.
static Repacking repackingOf(const PackArguments &arguments, const runtime::TensorSpec &spec,
                             Checkpoint &checkpoint) {
  const std::string &path = arguments.weights;
  if (!checkpoint.contains(spec.name))
    badInput(path, "holds no tensor \"{}\", which {} reads{}", spec.name, arguments.source,
             didYouMean(spec.name, checkpoint.keys()));
  std::optional<runtime::PackedLayout> now = checkpoint.packedLayout(spec.name);
  if (now && !arguments.unpack)
    badInput(path, "\"{}\" is packed already; --unpack restores it", spec.name);
  if (!now && arguments.unpack)
    badInput(path, "\"{}\" is not packed", spec.name);
  InputSpec wanted;
  wanted.name = spec.name;
  wanted.type = dtypeOf(spec.dtype);
  wanted.role = DataRole::Weight;
  wanted.shape = spec.shape;
  Tensor tensor = checkpoint.get(spec.name);
  if (tensor.type == DType::f32) // as inputs they are converted where nothing is lost, here they are not
    badInput(path, "\"{}\" is f32, {} reads {}: packing converts no types", spec.name, arguments.source,
             nameOf(wanted.type));
  checkedInput(tensor, wanted, spec.name, path);
  return {spec.name, arguments.unpack ? std::nullopt : std::optional(spec.packed())};
}

/// Without a graph, everything that is packed is unpacked.
static std::vector<Repacking> allPacked(Checkpoint &checkpoint) {
  std::vector<Repacking> repackings;
  for (const std::string &key : checkpoint.keys())
    if (checkpoint.packedLayout(key))
      repackings.push_back({key, std::nullopt});
  if (repackings.empty())
    badInput(checkpoint.path(), "holds no packed weight");
  return repackings;
}

static Exit packCommand(const PackArguments &arguments) {
  if (arguments.source.empty() && !arguments.unpack)
    badInput("", "cfc pack: name the graph or bundle whose weights are to be packed");
  if (arguments.output == "-")
    badInput("", "cfc pack: name a file with -o; a checkpoint does not go to standard output");
  checkOutputPath(arguments.output, "");
  Checkpoint checkpoint(arguments.weights);
  for (const std::string &path : checkpoint.paths())
    checkOutputPath(arguments.output, path);
  std::vector<Repacking> repackings;
  if (arguments.source.empty())
    repackings = allPacked(checkpoint);
  else
    for (const runtime::TensorSpec &spec : packedWeights(arguments))
      repackings.push_back(repackingOf(arguments, spec, checkpoint));

  Progress progress;
  uint64_t bytes = 0;
  writeRepacked(
      arguments.output, checkpoint, repackings, [&](const std::string &key, uint64_t done, uint64_t all) {
        bytes = all;
        progress.show(fmt::format("{:.1f} of {:.1f} MB, {}", double(done) / 1e6, double(all) / 1e6, key));
      });
  progress.clear();
  print(fmt::format("{} {} of {} tensors: {}, {:.1f} MB\n", arguments.unpack ? "unpacked" : "packed",
                    repackings.size(), checkpoint.keys().size(), arguments.output, double(bytes) / 1e6));
  return Exit::Done;
}

void cfc::addPackCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<PackArguments>();
  CLI::App *command =
      app.add_subcommand("pack", "Write a checkpoint whose weights are packed for a graph or bundle");
  command
      ->add_option(
          "SOURCE", arguments->source,
          "A graph or bundle, whose weights are packed; with --unpack all that are packed if it is left out")
      ->option_text("GRAPH|BUNDLE");
  command->add_option("--weights", arguments->weights, "The checkpoint; its other tensors are copied")
      ->required()
      ->option_text("DIR|FILE.safetensors");
  command->add_option("-o,--output", arguments->output, "File to write")
      ->required()
      ->option_text("OUT.safetensors");
  command->add_flag("--unpack", arguments->unpack, "The way back: write native weights");
  addBuildOptions(*command, arguments->build);
  command->footer("Example:\n  cfc compile block.mlir --weights=packed -o block.cfk\n"
                  "  cfc pack block.cfk --weights checkpoint -o packed.safetensors\n"
                  "  cfc run block.cfk --weights packed.safetensors --input random\n"
                  "  cfc pack --unpack --weights packed.safetensors -o native.safetensors");
  command->callback([arguments, &action] { action = [arguments] { return packCommand(*arguments); }; });
}
