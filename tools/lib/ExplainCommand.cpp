//===- ExplainCommand.cpp - cfc explain -----------------------------------===//
#include "compiler/lower/AttnPlan.h"
#include "compiler/plan/Explain.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Files.h"
#include "tools/lib/Machines.h"
#include "tools/lib/Suggest.h"
#include "tools/lib/Variants.h"
#include <nlohmann/json.hpp>
#include <optional>

using namespace cfc;

namespace {
struct ExplainArguments {
  std::string source, format = "text", plans;
  std::optional<int64_t> length;
  BuildOptions build;
};
} // namespace

static Plan readPlan(const std::string &text, const std::string &file) {
  std::string error;
  std::optional<Plan> plan = parsePlan(text, file, error);
  if (!plan)
    throw Failure(Exit::BadInput, error);
  return *plan;
}

/// The plans of a file, one behind another; each begins with its graph.
static std::vector<Plan> readPlans(const std::string &path) {
  std::string text = "\n" + std::string(MappedFile::open(path)->text());
  std::vector<Plan> plans;
  constexpr std::string_view first = "\ngraph ";
  for (size_t begin = text.find(first); begin != std::string::npos;) {
    size_t end = text.find(first, begin + 1);
    // Empty lines in the place of what is before it: its lines have the numbers that they have in the file.
    std::string before(std::count(text.begin(), text.begin() + std::ptrdiff_t(begin), '\n'), '\n');
    plans.push_back(readPlan(before + text.substr(begin + 1, end - begin - 1) + "\n", path));
    begin = end;
  }
  if (plans.empty())
    badInput(path, "holds no plan: one begins with 'graph NAME hash = …'");
  return plans;
}

/// Fails where no kernel can be so, as a compilation with this plan does.
static void requirePossible(Compiler &compiler, const ExplainArguments &arguments, attn::GraphOp graph,
                            const Plan &plan, const Machine &machine, int64_t length) {
  PlanOptions options;
  options.given = plan;
  options.deterministic = arguments.build.deterministic;
  options.length = length;
  int exitCode = 0;
  if (mlir::succeeded(planGraph(graph, machine, options, exitCode)))
    return;
  std::optional<PlanPlace> place = plan.places.find("graph", "");
  fmt::print(stderr, "note: of the plan {} at {}:{}\n", plan.shortHash(), arguments.plans,
             place ? place->line : 1);
  compiler.fail(exitCode, "the plan is not possible");
}

/// What the cost model says about each plan of a file, which it does not choose.
static std::string comparePlans(Compiler &compiler, const ExplainArguments &arguments, attn::GraphOp graph,
                                const Machine &machine, int64_t length) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::string text;
  for (const Plan &plan : readPlans(arguments.plans)) {
    std::optional<double> us = predictPlan(graph, plan, machine, length);
    if (!us)
      badInput(arguments.plans, "has plan {}, which is not a whole plan of @{}", plan.shortHash(),
               graph.getSymName().str());
    requirePossible(compiler, arguments, graph, plan, machine, length);
    json.push_back({{"plan", plan.shortHash()}, {"us", *us}});
    text += fmt::format("{:>9.2f} us  {}\n", *us, plan.shortHash());
  }
  return arguments.format == "json" ? json.dump(2) + "\n" : text;
}

/// The plan of the bundle's variant, or the one that the graph gets for this length.
static Plan planToExplain(Compiler &compiler, const Source &source, BuildOptions options, int64_t length) {
  if (source.bundle)
    options = optionsOf(source, options);
  else if (!options.variant.empty())
    badInput(source.path, "is no bundle and has one plan: --variant is for bundles");
  options.length = length;
  return readPlan(build(compiler, *source.module, options, Stage::Plan).planText, "plan");
}

static Exit explainCommand(const ExplainArguments &arguments) {
  if (const std::string &format = arguments.format; format != "text" && format != "json" && format != "svg")
    badInput("", "--format={}: there are text, json and svg{}", format,
             didYouMean(format, {"text", "json", "svg"}));
  if (!arguments.plans.empty() && arguments.format == "svg")
    badInput("", "--compare prints times, as text or json: an svg shows one plan");
  Compiler compiler;
  Source source = readSource(compiler, arguments.source, arguments.build.sets, arguments.build.graph);
  attn::GraphOp graph = source.graph();
  if (!graph)
    badInput(arguments.source, "holds kernels, in which every decision can be read; explain is for graphs");
  // 4096 tokens, or as many as the graph allows.
  int64_t bound = lengthBound(compiler, graph, arguments.length).value_or(4096);
  int64_t length = arguments.length.value_or(std::min<int64_t>(4096, bound));
  Machine machine = machineFor(arguments.build.machine, arguments.build.maxSms);
  if (!arguments.plans.empty()) {
    print(comparePlans(compiler, arguments, graph, machine, length));
    return Exit::Done;
  }
  Plan plan = planToExplain(compiler, source, arguments.build, length);
  std::optional<Explanation> explanation = explainPlan(graph, plan, machine, length, sharedBytesOf);
  if (!explanation)
    internalError("the plan {} of the compilation is not one of the graph", plan.shortHash());
  print(arguments.format == "json"  ? explanationJson(*explanation)
        : arguments.format == "svg" ? explanationSvg(*explanation)
                                    : explanationText(*explanation));
  return Exit::Done;
}

void cfc::addExplainCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App *command = app.add_subcommand("explain", "Print the plan, phase by phase, and its predicted cost");
  command->add_option("SOURCE", arguments->source, "A graph or a bundle")
      ->required()
      ->option_text("GRAPH|BUNDLE");
  command->add_option("--format", arguments->format, "How to print it (text); svg is a timeline")
      ->option_text("text|json|svg");
  command
      ->add_option("--len", arguments->length,
                   "Tokens in the cache that plan and prediction assume (4096, or the graph's bound)")
      ->option_text("N");
  command
      ->add_option("--compare", arguments->plans,
                   "Print the predicted time of each plan of this file, which holds one behind another")
      ->option_text("FILE");
  addVariantOption(*command, arguments->build);
  addBuildOptions(*command, arguments->build);
  command->footer("Example:\n  cfc explain templates/graphs/llama2_7b_attention.mlir --len=16384\n"
                  "  cfc explain block.cfk --format=svg > block.svg");
  command->callback([arguments, &action] { action = [arguments] { return explainCommand(*arguments); }; });
}
