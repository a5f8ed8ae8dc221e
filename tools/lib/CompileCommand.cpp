//===- CompileCommand.cpp - cfc compile -----------------------------------===//
#include "dialects/attn/Attn.h"
#include "tools/lib/Batches.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Files.h"
#include "tools/lib/HeaderWriter.h"
#include "tools/lib/Suggest.h"
#include "tools/lib/Variants.h"
#include <filesystem>
#include <unistd.h>

using namespace cfc;

namespace {
struct CompileArguments {
  std::string graph, output, emit = "bundle", dumpFolder;
  VariantOptions variants;
  std::vector<int64_t> batches;
  BuildOptions build;
};

/// A value of --emit: how far to compile, and what the file is called.
struct Emission {
  const char *name;
  Stage stage;
  const char *extension;
  bool binary;
};
constexpr Emission emissions[] = {{"bundle", Stage::Cubin, ".cfk", true},
                                  {"attn", Stage::Plan, ".attn.mlir", false},
                                  {"kernel", Stage::Kernel, ".kernel.mlir", false},
                                  {"simt", Stage::Simt, ".simt.mlir", false},
                                  {"llvm", Stage::Llvm, ".ll", false},
                                  {"ptx", Stage::Ptx, ".ptx", false},
                                  {"cubin", Stage::Cubin, ".cubin", true},
                                  {"plan", Stage::Plan, ".plan", false},
                                  {"header", Stage::Simt, ".h", false}};
} // namespace

static const Emission &emissionNamed(const std::string &name) {
  std::vector<std::string> names;
  for (const Emission &emission : emissions) {
    if (name == emission.name)
      return emission;
    names.push_back(emission.name);
  }
  badInput("", "--emit={}: there are {}{}", name, fmt::join(names, ", "), didYouMean(name, names));
}

/// The content of what was asked for.
static std::string content(const Emission &emission, CompiledGraph &compiled, const Source &source) {
  std::string_view name = emission.name;
  if (name == "bundle")
    return bundleContent(compiled, source.text);
  if (name == "attn" && !compiled.attn)
    badInput(source.path, "holds kernels: there is no attn level to emit");
  if (name == "attn")
    return moduleText(*compiled.attn);
  if (name == "kernel")
    return moduleText(*compiled.kernel);
  if (name == "simt")
    return moduleText(*compiled.simt);
  if (name == "llvm")
    return compiled.llvm;
  if (name == "ptx")
    return compiled.ptx;
  if (name == "plan")
    return compiled.planText;
  if (name == "header")
    return headerText(compiled.manifest);
  if (compiled.cubins.size() != 1)
    internalError("the program has {} cubins", compiled.cubins.size());
  return compiled.cubins.front();
}

/// Every stage that was reached, as FOLDER/STEM.….
static void dump(const std::string &folder, CompiledGraph &compiled, const Source &source) {
  makeFolder(folder);
  std::string stem = folder + "/" + source.stem();
  auto write = [&](const char *extension, const std::string &text) {
    if (!text.empty())
      writeFile(stem + extension, text);
  };
  if (compiled.attn)
    write(".attn.mlir", moduleText(*compiled.attn));
  if (compiled.kernel)
    write(".kernel.mlir", moduleText(*compiled.kernel));
  if (compiled.simt)
    write(".simt.mlir", moduleText(*compiled.simt));
  write(".plan", compiled.planText);
  write(".ll", compiled.llvm);
  write(".ptx", compiled.ptx);
  for (const std::string &cubin : compiled.cubins)
    write(".cubin", cubin);
  if (!compiled.cubins.empty())
    write(".json", runtime::toJson(compiled.manifest));
}

/// The bundle of several variants or batches.
static std::string severalPlans(Compiler &compiler, const CompileArguments &arguments, const Source &source,
                                const std::vector<Source> &batches) {
  const char *options =
      arguments.variants.any() ? "--variant-lengths and --variant-machines" : "--batch=N,N,…";
  if (arguments.variants.any() && arguments.build.length)
    badInput("", "--len plans for one length: leave it out beside {}", options);
  if (arguments.emit != "bundle" || !arguments.dumpFolder.empty())
    badInput("", "{} make{} a bundle of several plans; {} shows one", options,
             arguments.variants.any() ? "" : "s",
             arguments.emit == "bundle" ? "--dump-dir" : "--emit=" + arguments.emit);
  std::vector<const Source *> sources;
  for (const Source &batch : batches)
    sources.push_back(&batch);
  if (sources.empty())
    sources.push_back(&source);
  return compileBundle(compiler, sources, arguments.build, arguments.variants);
}

static Exit compileCommand(const CompileArguments &arguments) {
  const Emission &emission = emissionNamed(arguments.emit);
  std::string output = arguments.output;
  Compiler compiler;
  bool isNamed = !output.empty();
  if (!isNamed)
    output =
        emission.binary ? std::filesystem::path(arguments.graph).stem().string() + emission.extension : "-";
  // An older bundle is replaced; what is none may be somebody's only copy.
  if (bool isBundle = emission.name == std::string_view("bundle");
      !isNamed && isBundle && std::filesystem::is_regular_file(output) && !runtime::looksLikeBundle(output))
    badInput(output, "is there and is no bundle: name the output with -o");
  if (output == "-" && emission.binary && isatty(1))
    badInput("", "--emit={} is no text for a terminal: name a file with -o", emission.name);
  checkOutputPath(output, arguments.graph);
  // Who has named the file knows where it is.
  auto reportWritten = [&] {
    if (output != "-" && (!isNamed || arguments.build.verbose))
      fmt::print(stderr, "wrote {}\n", output);
  };
  Source source = readSource(compiler, arguments.graph, arguments.build.sets);
  if (source.bundle)
    badInput(arguments.graph, "is a bundle, which is compiled already; \"cfc info\" shows what is in it");
  if (attn::GraphOp graph = source.graph())
    lengthBound(compiler, graph, arguments.build.length);
  else if (arguments.build.length)
    badInput(arguments.graph, "holds kernels, which have their plan: --len is for graphs");
  std::vector<Source> batches = sourcesForBatches(compiler, source, arguments.batches);
  if (arguments.variants.any() || batches.size() > 1) {
    writeFile(output, severalPlans(compiler, arguments, source, batches));
    reportWritten();
    return Exit::Done;
  }
  if (!batches.empty())
    source = std::move(batches.front());
  CompiledGraph compiled = build(compiler, *source.module, arguments.build, emission.stage);
  if (!arguments.dumpFolder.empty())
    dump(arguments.dumpFolder, compiled, source);
  writeFile(output, content(emission, compiled, source));
  reportWritten();
  return Exit::Done;
}

void cfc::addCompileCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<CompileArguments>();
  CLI::App *command =
      app.add_subcommand("compile", "Compile a graph to a bundle, or show a stage on the way");
  command->add_option("GRAPH", arguments->graph, "A graph (attn dialect) or kernels (kernel dialect)")
      ->required();
  command
      ->add_option(
          "-o,--output", arguments->output,
          "File to write; \"-\" is standard output (a bundle: GRAPH's name with .cfk, here; a text: \"-\")")
      ->option_text("FILE");
  command->add_option("--emit", arguments->emit, "What to write")
      ->option_text("bundle|attn|kernel|simt|llvm|ptx|cubin|plan|header");
  command->add_option("--dump-dir", arguments->dumpFolder, "Write every stage into this folder too")
      ->option_text("DIR");
  command
      ->add_option("--len", arguments->build.length,
                   "Cached tokens to plan for, at most the graph's bound (4096)")
      ->option_text("N");
  command
      ->add_option(
          "--batch", arguments->batches,
          "One graph for each of these numbers of requests, called NAME_bN, all of the same weights; "
          "cfc_graph_for finds the one to launch")
      ->delimiter(',')
      ->option_text("N,N,…");
  command
      ->add_option("--variant-lengths", arguments->variants.lengths,
                   "One plan for up to each of these cached tokens, and one for all; the runtime chooses by "
                   "cfc_launch_args.length_hint")
      ->delimiter(',')
      ->option_text("N,N,…");
  command
      ->add_option(
          "--variant-machines", arguments->variants.machines,
          "Smaller machines, largest first, with plans of their own; the runtime chooses by the clusters "
          "that the context holds")
      ->delimiter(',')
      ->option_text("NAME|FILE.json,…");
  addBuildOptions(*command, arguments->build);
  command->footer("Example:\n  cfc compile templates/graphs/llama2_7b_attention.mlir -o block.cfk\n"
                  "  cfc compile block.mlir --emit=plan > block.plan      # edit it, then\n"
                  "  cfc compile block.mlir --plan=block.plan -o block.cfk\n"
                  "  cfc compile block.mlir --variant-lengths=1024,8192 -o block.cfk\n"
                  "  cfc compile block.mlir --batch=1,2,4,8 --weights=packed -o block.cfk");
  command->callback([arguments, &action] { action = [arguments] { return compileCommand(*arguments); }; });
}
