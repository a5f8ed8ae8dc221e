//===- ExplainCommand.cpp - cfc explain -----------------------------------===//
#include "compiler/lower/AttnPlan.h"
#include "compiler/plan/Planner.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Machines.h"
#include <optional>

using namespace cfc;

namespace {
struct ExplainArguments {
  std::string source, format = "text";
  std::optional<int64_t> length;
  BuildOptions build;
};
} // namespace

/// The length to predict for: the one given, which the graph must allow, or 4096 tokens or as many as it
/// allows.
static int64_t lengthFor(attn::GraphOp graph, std::optional<int64_t> given) {
  std::optional<int64_t> bound;
  for (mlir::BlockArgument argument : graph.getBody().getArguments())
    if (auto lengths = mlir::dyn_cast<attn::LengthsType>(argument.getType()))
      bound = std::min(bound.value_or(INT32_MAX), lengths.getCapacity());
  if (given && !bound)
    badInput("", "--len={}: this graph has no lengths", *given);
  if (given && *given > *bound)
    badInput("", "--len={}: this graph's lengths go from 0 to {}", *given, *bound);
  return given.value_or(std::min<int64_t>(4096, bound.value_or(4096)));
}

static Exit explainCommand(const ExplainArguments &arguments) {
  if (arguments.format != "text")
    badInput("", "--format={}: there is only text", arguments.format);
  if (arguments.length && *arguments.length < 0)
    badInput("", "--len={}: a length is 0 or more", *arguments.length);
  Compiler compiler;
  Source source = readSource(compiler, arguments.source, arguments.build.sets);
  attn::GraphOp graph = source.graph();
  if (!graph)
    badInput(arguments.source, "holds kernels, in which every decision can be read; explain is for graphs");
  BuildOptions options = source.bundle ? optionsOf(*source.bundle, arguments.build) : arguments.build;
  CompiledGraph compiled = build(compiler, *source.module, options, Stage::Plan);
  std::string error;
  auto plan = parsePlan(compiled.planText, "plan", error);
  if (!plan)
    internalError("the plan of the compilation cannot be read: {}", error);
  print(
      explain(graph, *plan, machineFor(options.machine), lengthFor(graph, arguments.length), sharedBytesOf));
  return Exit::Done;
}

void cfc::addExplainCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App *command = app.add_subcommand("explain", "Print the plan, phase by phase, and its predicted cost");
  command->add_option("SOURCE", arguments->source, "A graph or a bundle")
      ->required()
      ->option_text("GRAPH|BUNDLE");
  command->add_option("--format", arguments->format, "How to print it (text)")->option_text("text");
  command
      ->add_option("--len", arguments->length,
                   "Tokens in the cache that the prediction assumes (4096, or the graph's bound)")
      ->option_text("N");
  addBuildOptions(*command, arguments->build);
  command->footer("Example:\n  cfc explain templates/graphs/llama2_7b_attention.mlir --len=16384");
  command->callback([arguments, &action] { action = [arguments] { return explainCommand(*arguments); }; });
}
