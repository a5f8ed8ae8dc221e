//===- ImportCommand.cpp - cfc import -------------------------------------===//
#include "tools/lib/Commands.h"
#include "tools/lib/Files.h"
#include "tools/lib/Import.h"
#include <charconv>
#include <filesystem>

using namespace cfc;

namespace {
struct ImportArguments {
  std::string folder, output = "-", block = "attention", layer = "0", share = "0/1", ropeTable = "generated";
  ImportOptions graph;
};
} // namespace

/// A whole number that is all of `text`.
static std::optional<int64_t> wholeNumber(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value)
                                                                                : std::nullopt;
}

static void readShare(const std::string &text, ImportOptions &options) {
  size_t slash = text.find('/');
  auto rank = wholeNumber(std::string_view(text).substr(0, slash));
  auto ranks =
      slash == std::string::npos ? std::nullopt : wholeNumber(std::string_view(text).substr(slash + 1));
  if (!rank || !ranks || *ranks < 1 || *ranks > 1024 || *rank >= *ranks)
    badInput("", "--tp={}: expected RANK/N, with a rank from 0 to N - 1 and at most 1024 ranks", text);
  options.rank = *rank;
  options.ranks = *ranks;
}

static void checkArguments(ImportArguments &arguments) {
  ImportOptions &options = arguments.graph;
  if (arguments.block != "attention")
    badInput("", "--block={}: the blocks that can be imported: attention", arguments.block);
  readShare(arguments.share, options);
  if (options.batch < 1 || options.batch > 64)
    badInput("", "--batch={}: a graph serves 1 to 64 requests", options.batch);
  if (options.page < 0 || options.page > 256)
    badInput("", "--page={}: a page has 1 to 256 tokens (0: contiguous caches)", options.page);
  if (options.capacity < 0 || options.capacity > INT32_MAX)
    badInput("", "--capacity={}: a request has 1 to 2^31 - 1 tokens (0: as many as the model)",
             options.capacity);
  if (!options.dtype.empty() && options.dtype != "f16" && options.dtype != "bf16")
    badInput("", "--dtype={}: activations are f16 or bf16", options.dtype);
  std::string &cache = options.cacheDtype;
  if (cache == "fp8" || cache == "f8e4m3" || cache == "fp8_e4m3")
    cache = "f8E4M3FN";
  if (!cache.empty() && cache != "f16" && cache != "bf16" && cache != "f8E4M3FN")
    badInput("", "--cache-dtype={}: caches are f16, bf16 or f8E4M3FN", cache);
  if (arguments.ropeTable != "generated" && arguments.ropeTable != "argument")
    badInput("", "--rope-table={}: expected generated or argument", arguments.ropeTable);
  options.ropeArgument = arguments.ropeTable == "argument";
}

/// The text of one layer's graph.
static std::string importLayer(const ImportArguments &arguments, const AttentionBlock &block,
                               Checkpoint &checkpoint) {
  ImportOptions options = arguments.graph;
  if (!options.capacity)
    options.capacity = block.positions;
  return attentionGraph(block, checkpoint, options);
}

/// One file a layer: layer_000.mlir, …
static void importAll(const ImportArguments &arguments, const AttentionBlock &first, Checkpoint &checkpoint) {
  if (arguments.output == "-")
    badInput("", "--layer=all: name a folder with -o; each layer becomes a file in it");
  makeFolder(arguments.output);
  for (int64_t layer = 0; layer < first.layers; ++layer) {
    AttentionBlock block = readBlock(arguments.folder, layer, arguments.graph.ropeArgument);
    std::filesystem::path file =
        std::filesystem::path(arguments.output) / fmt::format("layer_{:03}.mlir", layer);
    writeFile(file.string(), importLayer(arguments, block, checkpoint));
  }
  print(fmt::format("imported the {} layers of {}: {}\n", first.layers, arguments.folder, arguments.output));
}

static Exit importCommand(ImportArguments arguments) {
  checkArguments(arguments);
  bool all = arguments.layer == "all";
  auto layer = all ? 0 : wholeNumber(arguments.layer);
  if (!layer)
    badInput("", "--layer={}: expected the number of a layer, from 0, or all", arguments.layer);
  AttentionBlock block = readBlock(arguments.folder, *layer, arguments.graph.ropeArgument);
  if (!all)
    checkOutputPath(arguments.output, (std::filesystem::path(arguments.folder) / "config.json").string());
  Checkpoint checkpoint(arguments.folder);
  if (all)
    importAll(arguments, block, checkpoint);
  else
    writeFile(arguments.output, importLayer(arguments, block, checkpoint));
  return Exit::Done;
}

void cfc::addImportCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App *command =
      app.add_subcommand("import", "Write the graph of a Hugging Face model's attention block");
  command->add_option("HF_DIR", arguments->folder, "The model's folder: config.json and safetensors files")
      ->required();
  command->add_option("--block", arguments->block, "What to import")->option_text("attention");
  command->add_option("--layer", arguments->layer, "Which layer (0); all: a folder with a file for each")
      ->option_text("N|all");
  command
      ->add_option(
          "--tp", arguments->share,
          "One rank's share of a tensor-parallel model, without the residual; KV heads are copied where "
          "there are fewer than ranks")
      ->option_text("RANK/N");
  command->add_option("--batch", arguments->graph.batch, "Requests (1)")->option_text("B");
  command
      ->add_option("--capacity", arguments->graph.capacity,
                   "Tokens that a request may have (the model's max_position_embeddings)")
      ->option_text("TOKENS");
  command->add_option("--page", arguments->graph.page, "Paged caches: tokens of a page")->option_text("N");
  command->add_option("--dtype", arguments->graph.dtype, "Type of activations (that of the weights)")
      ->option_text("f16|bf16");
  command
      ->add_option("--cache-dtype", arguments->graph.cacheDtype,
                   "Type of the caches (that of activations); fp8 takes a scale for each KV head")
      ->option_text("f16|bf16|f8E4M3FN");
  command
      ->add_option(
          "--rope-table", arguments->ropeTable,
          "Where the rotations come from; an argument serves every type of rope, also those that cfc cannot "
          "generate")
      ->option_text("generated|argument");
  command->add_option("-o,--output", arguments->output, "File to write; \"-\" is standard output")
      ->option_text("GRAPH.mlir");
  command->footer(fmt::format("Model types: {}.\n\n"
                              "Example:\n  cfc import Llama-3-8B --capacity=8192 -o block.mlir\n"
                              "  cfc verify block.mlir --weights Llama-3-8B --device=emu\n"
                              "  cfc import Llama-3-70B --tp=0/8 --batch=8 --page=64 -o rank0.mlir",
                              knownModelTypes()));
  command->callback([arguments, &action] { action = [arguments] { return importCommand(*arguments); }; });
}
