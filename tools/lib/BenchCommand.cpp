//===- BenchCommand.cpp - cfc bench ---------------------------------------===//
#include "compiler/plan/Explain.h"
#include "tools/lib/BenchBaseline.h"
#include "tools/lib/BenchExchange.h"
#include "tools/lib/BenchReport.h"
#include "tools/lib/BenchStream.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Machines.h"
#include "tools/lib/Variants.h"
#include <charconv>
#include <nlohmann/json.hpp>

using namespace cfc;

namespace {
struct BenchArguments {
  std::string source, lengths, cacheOrder = "head";
  std::string exchanges, level, bytes, sizes, algorithms;
  std::optional<int64_t> layers;
  int64_t replays = 30;
  bool json = false, baseline = false;
  BuildOptions build;
};
} // namespace

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// The words between the commas; none of an empty text.
static std::vector<std::string> words(const std::string &text) {
  std::vector<std::string> result;
  if (text.empty())
    return result;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    result.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

static std::vector<int64_t> numbers(const std::string &text, const char *option, const char *example) {
  std::vector<int64_t> result;
  for (const std::string &word : words(text)) {
    int64_t value = 0;
    auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || stop != word.data() + word.size() || value < 0)
      badInput("", "--{}={}: expected numbers such as {}", option, text, example);
    result.push_back(value);
  }
  return result;
}

/// Options that belong to the other form of the command.
static void checkForm(const BenchArguments &arguments) {
  bool exchange = !arguments.exchanges.empty();
  if (exchange && !arguments.source.empty())
    badInput("", "--exchange times an exchange alone: it takes no graph");
  if (!exchange && arguments.source.empty())
    badInput("", "cfc bench: GRAPH|BUNDLE or --exchange is required");
  auto belongs = [&](const char *option, bool given, bool toExchange) {
    if (given && toExchange != exchange)
      badInput("", "--{} {}", option, toExchange ? "goes with --exchange" : "does not go with --exchange");
  };
  belongs("level", !arguments.level.empty(), true);
  belongs("bytes", !arguments.bytes.empty(), true);
  belongs("size", !arguments.sizes.empty(), true);
  belongs("algorithm", !arguments.algorithms.empty(), true);
  belongs("len", !arguments.lengths.empty(), false);
  belongs("layers", arguments.layers.has_value(), false);
  belongs("max-sms", arguments.build.maxSms != 0, false);
  belongs("baseline", arguments.baseline, false);
  belongs("cache-order", arguments.cacheOrder != "head", false);
  if (arguments.cacheOrder != "head" && arguments.cacheOrder != "token")
    badInput("", "--cache-order={}: there are head and token", arguments.cacheOrder);
  if (arguments.layers && (*arguments.layers < 1 || *arguments.layers > 1024))
    badInput("", "--layers={}: a chain has 1 to 1024 layers", *arguments.layers);
  if (arguments.replays < 3 || arguments.replays > 100000)
    badInput("", "--replays={}: 3 to 100000 replays can be timed", arguments.replays);
}

static ExchangeOptions exchangeOptions(const BenchArguments &arguments) {
  ExchangeOptions options;
  options.kinds = words(arguments.exchanges == "all" ? "" : arguments.exchanges);
  options.algorithms = words(arguments.algorithms);
  if (!arguments.level.empty())
    options.level = arguments.level;
  options.sizes = numbers(arguments.sizes, "size", "2,4,8,16");
  options.bytes = numbers(arguments.bytes, "bytes", "256,4096,65536");
  return options;
}

namespace {
/// What a graph says about lengths.
struct LengthLimits {
  int64_t requests = 1;
  std::optional<int64_t> bound; ///< tokens; nothing: the graph has no lengths
  std::optional<int64_t> room;  ///< cached tokens that block tables leave room for behind them, if they do
};
} // namespace

static LengthLimits limitsOf(attn::GraphOp graph) {
  LengthLimits limits;
  for (mlir::BlockArgument argument : graph.getBody().getArguments())
    if (auto type = mlir::dyn_cast<attn::LengthsType>(argument.getType())) {
      limits.bound = std::min<int64_t>(limits.bound.value_or(INT32_MAX), type.getCapacity());
      limits.requests = std::max<int64_t>(limits.requests, type.getCount());
    }
  graph.getBody().walk([&](attn::AttentionOp op) {
    if (!op.getPages())
      return;
    auto cache = mlir::cast<attn::KvCacheType>(op.getCache().getType());
    int64_t columns = mlir::cast<mlir::RankedTensorType>(op.getPages().getType()).getDimSize(1);
    int64_t newTokens = mlir::cast<mlir::RankedTensorType>(op.getQ().getType()).getDimSize(0) /
                        op.getLen().getType().getCount();
    int64_t room = columns * cache.getPage() - (op.getAppend() ? newTokens : 0);
    limits.room = std::min(limits.room.value_or(room), room);
  });
  return limits;
}

/// Of kernels, whose tensors alone are known.
static LengthLimits limitsOf(const std::vector<InputSpec> &inputs) {
  LengthLimits limits;
  for (const InputSpec &input : inputs) {
    if (input.bound)
      limits.bound = std::min(limits.bound.value_or(INT32_MAX), *input.bound);
    if (input.isCache())
      limits.requests = std::max(limits.requests, input.requests);
  }
  return limits;
}

/// The lengths to time: those given, which the graph must allow, else the usual ones that it allows. Nothing
/// for a graph without lengths.
static std::vector<RequestLengths> lengthsFor(const LengthLimits &limits, const std::string &text) {
  std::vector<RequestLengths> given = parseRequestLengths(text, limits.requests);
  if (!limits.bound) {
    if (!given.empty())
      badInput("", "--len={}: this graph has no lengths", text);
    return given;
  }
  for (const RequestLengths &lengths : given) {
    if (lengths.longest() > *limits.bound)
      badInput("", "--len={}: this graph's lengths go from 0 to {}", lengths.text, *limits.bound);
    if (limits.room && lengths.longest() > *limits.room)
      badInput("", "--len={}: the block table's pages leave no room behind more than {} cached tokens",
               lengths.text, *limits.room);
  }
  int64_t most = std::min(*limits.bound, limits.room.value_or(INT32_MAX));
  if (given.empty())
    for (int64_t length : {1024, 4096, 16384})
      if (length <= most)
        given.emplace_back(length);
  return given.empty() ? std::vector<RequestLengths>{most} : given;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

/// Predicted microseconds of a block; nothing where the plan cannot be read against the graph.
static std::optional<double> predictBlock(attn::GraphOp graph, const std::string &planText,
                                          const Machine &machine, CacheLength length) {
  std::string error;
  std::optional<Plan> plan = parsePlan(planText, "plan", error);
  if (!graph || !plan)
    return std::nullopt;
  return predictPlan(graph, *plan, machine, length);
}

namespace {
/// A graph or bundle that is timed, from its file to the report.
class GraphBench {
public:
  explicit GraphBench(const BenchArguments &arguments)
      : arguments(arguments),
        source(readSource(compiler, arguments.source, arguments.build.sets, arguments.build.graph)) {
    if (source.bundle && arguments.build.plan != "auto")
      badInput(arguments.source, "is a bundle, which has its plan: --plan is for graphs");
  }

  Exit run() {
    if (arguments.baseline && !source.graph())
      badInput(arguments.source, "holds kernels: --baseline is for graphs");
    // A length that the graph does not have is reported before the GPU is looked for.
    std::vector<RequestLengths> lengths;
    if (attn::GraphOp graph = source.graph())
      lengths = lengthsFor(limitsOf(graph), arguments.lengths);
    BenchGpu gpu;
    // What cannot be compiled is reported before the GPU is warmed up.
    prepare(lengths.empty() ? nullptr : &lengths.front());
    if (!source.graph())
      lengths = lengthsFor(limitsOf(inputs), arguments.lengths);
    BenchStream stream(gpu, arguments.replays);
    if (!arguments.json)
      print(deviceText(gpu, stream.bytes(), stream.bandwidth()));
    if (lengths.empty())
      timeCase(gpu, stream, std::nullopt);
    for (const RequestLengths &each : lengths) {
      prepare(&each);
      timeCase(gpu, stream, each);
    }
    if (arguments.baseline) {
      addTorch();
      for (const BenchCase &result : report.cases)
        if (!arguments.json)
          print(caseText(result));
    }
    if (arguments.json) {
      nlohmann::ordered_json json = {{"device", deviceJson(gpu, stream.bytes(), stream.bandwidth())}};
      json.update(toJson(report));
      print(json.dump(2) + "\n");
    }
    return Exit::Done;
  }

private:
  /// Compiles a graph, with a plan for this length; takes a bundle's own code.
  void prepare(const RequestLengths *lengths) {
    std::string text = lengths ? lengths->text : "";
    if (prepared && (source.bundle || *prepared == text))
      return;
    prepared = text;
    if (source.bundle) {
      program.graph = source.bundleGraph();
      program.bundle = source.bundle->data;
    } else {
      BuildOptions options = arguments.build;
      if (lengths)
        options.length = lengths->mean(), options.longest = lengths->longestOverMean();
      program.compiled = build(compiler, *source.module, options, Stage::Cubin);
      program.graph = program.compiled->manifest.graphs.front();
      program.bundle = bundleContent(*program.compiled, source.text);
      program.planText = program.compiled->planText;
    }
    inputs = inputSpecs(program.kernels(source), program.graph);
    report.graph = program.graph.name;
    report.tokenMajor = arguments.cacheOrder == "token";
    report.replays = arguments.replays;
    for (const InputSpec &input : inputs)
      if (input.isCache()) {
        report.requests = input.requests;
        report.page = input.page;
      }
    if (const runtime::TensorSpec *input = chainedInput(program.graph, inputs)) {
      report.input = input->name;
      for (const runtime::TensorSpec &spec : program.graph.tensors)
        if (spec.role == runtime::Role::Output && report.output.empty())
          report.output = spec.name;
    }
  }

  /// What is timed; the text in front of the first case.
  void describeChain(const BenchChain &chain, BenchCase &result) {
    result.layers = chain.layers();
    result.plan = chain.plan();
    for (const cfc_kernel_info &kernel : chain.kernels())
      result.kernels.push_back(
          {kernel.name, kernel.grid, kernel.cluster, kernel.threads, kernel.shared_bytes});
    if (!arguments.json && report.cases.empty())
      print(headText(report));
  }

  /// The plan of a variant.
  std::string planText(const std::string &hash) const {
    if (source.bundle)
      for (size_t i = 0; i < program.graph.variants.size(); ++i)
        if (program.graph.variants[i].planHash == hash)
          return std::string(source.bundle->planText(source.bundleGraph(), i));
    return program.planText;
  }

  void timeCase(BenchGpu &gpu, BenchStream &stream, const std::optional<RequestLengths> &given) {
    Progress progress;
    progress.show(given ? fmt::format("timing --len={}", given->text) : "timing");
    RequestLengths lengths = given.value_or(0);
    BenchCase result;
    result.lengths = given;
    result.requests = report.requests;
    {
      ChainOptions options;
      options.lengths = lengths;
      options.tokenMajor = report.tokenMajor;
      options.layers = arguments.layers;
      options.maxSms = uint32_t(arguments.build.maxSms);
      BenchChain chain(gpu, program.graph, program.bundle, inputs, options);
      progress.clear();
      describeChain(chain, result);
      result.block = gpu.time([&] { chain.launch(); }, chain.layers(), arguments.replays, "the chain");
      for (const std::string &note : {chain.note(), chain.complaint()})
        if (!note.empty())
          fmt::print(stderr, "note: {}\n", note);
      if (attn::GraphOp graph = source.graph(); graph && arguments.baseline)
        result.baselines.push_back(timeUnfused(gpu, chain, graph, lengths.longest(), arguments.replays));
    }
    result.bytes = blockBytes(program.graph, inputs, lengths);
    result.floorUs = result.bytes.total() / stream.bandwidth() * 1e6;
    result.stream = stream.timeBlocks(result.bytes.total(), result.layers, arguments.replays);
    Machine machine = machineFor(arguments.build.machine, arguments.build.maxSms);
    result.predictedUs = predictBlock(source.graph(), planText(result.plan), machine,
                                      {lengths.mean(), lengths.longestOverMean()});
    if (!arguments.json && !arguments.baseline)
      print(caseText(result));
    report.cases.push_back(std::move(result));
  }

  /// One process for all cases: it starts when the chains' memory is free again.
  void addTorch() {
    BaselineRequest request{source.graph(), program.graph, inputs, {}, report.tokenMajor, arguments.replays};
    for (const BenchCase &result : report.cases)
      request.cases.push_back({result.lengths.value_or(0), result.layers});
    Progress progress;
    progress.show("timing torch.compile");
    std::vector<std::vector<BaselineResult>> results = timeTorch(request);
    for (size_t i = 0; i < results.size(); ++i)
      for (BaselineResult &result : results[i])
        report.cases[i].baselines.push_back(std::move(result));
  }

  const BenchArguments &arguments;
  Compiler compiler;
  Source source;
  Program program;
  std::optional<std::string> prepared; ///< the lengths that the program is for, as text
  std::vector<InputSpec> inputs;
  BenchReport report;
};
} // namespace

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

static Exit benchExchanges(const BenchArguments &arguments) {
  std::vector<ExchangeCase> cases = exchangeCases(exchangeOptions(arguments));
  requireGpu();
  Progress progress;
  auto show = [&](const std::string &text) { progress.show(text); };
  // Before the GPU is opened: a process that has a context takes long to start others.
  ExchangeKernels kernels(cases, askDevice().machine, arguments.build, show);
  progress.show("warming up");
  BenchGpu gpu;
  BenchStream stream(gpu, arguments.replays);
  std::vector<ExchangeResult> results = kernels.time(gpu, arguments.replays, show);
  progress.clear();
  if (arguments.json) {
    nlohmann::ordered_json json = {{"device", deviceJson(gpu, stream.bytes(), stream.bandwidth())}};
    json["exchanges"] = toJson(results);
    print(json.dump(2) + "\n");
  } else {
    print(deviceText(gpu, stream.bytes(), stream.bandwidth()) + exchangeText(results));
  }
  return Exit::Done;
}

static Exit benchCommand(const BenchArguments &arguments) {
  checkForm(arguments);
  if (!arguments.exchanges.empty())
    return benchExchanges(arguments);
  return GraphBench(arguments).run();
}

void cfc::addBenchCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App *command =
      app.add_subcommand("bench", "Time a chain of blocks, or one exchange alone, on this GPU");
  command->add_option("SOURCE", arguments->source, "A graph, kernels or a bundle")
      ->option_text("GRAPH|BUNDLE");
  command
      ->add_option("--len", arguments->lengths,
                   "Tokens in the cache, one case each: every request has them, or a number drawn by seed "
                   "(1024,4096,16384)")
      ->option_text("N|ragged:N-N[:SEED],…");
  command
      ->add_option("--layers", arguments->layers,
                   "Layers of the chain (so many that they exceed the L2 four times, at least 8)")
      ->option_text("N");
  command
      ->add_option("--cache-order", arguments->cacheOrder,
                   "Caches, and each request's rows or page, are [head, token, dim] or [token, head, dim] "
                   "(head)")
      ->option_text("head|token");
  command->add_option("--replays", arguments->replays, "Replays that are timed (30)")->option_text("N");
  command->add_flag(
      "--baseline", arguments->baseline,
      "Also time the same chain by unfused kernels, by torch.compile and with FlashInfer's attention, where "
      "python3 has them");
  command
      ->add_option("--exchange", arguments->exchanges,
                   "Time exchanges alone, many in one kernel and one with its launch")
      ->option_text("all|reduce,gather,…");
  command->add_option("--level", arguments->level, "Over a cluster's CTAs or over the grid (cta)")
      ->option_text("cta|grid");
  command->add_option("--bytes", arguments->bytes, "What a CTA holds before the exchange (256 to 65536)")
      ->option_text("N,N,…");
  command->add_option("--size", arguments->sizes, "CTAs that exchange (2,4,8,16)")->option_text("N,N,…");
  command->add_option("--algorithm", arguments->algorithms, "How (all that there are)")
      ->option_text("NAME,NAME,…");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  addGraphOption(*command, arguments->build);
  addBuildOptions(*command, arguments->build);
  command->footer(
      "Every block reads weights and caches of its own and the result of the block before; the chain is "
      "replayed\n"
      "as a CUDA graph after 2 s of warm-up. The floor is the block's bytes at the bandwidth of a 4 GB read "
      "in the\n"
      "same run. There must be a GPU: nothing is timed on the emulator.\n\n"
      "Example:\n  cfc bench templates/graphs/llama2_7b_attention.mlir --len=1024,4096 --baseline\n"
      "  cfc bench templates/graphs/llama3_8b_attention_b32.mlir --len=8192,ragged:1-8192:7\n"
      "  cfc bench --exchange=reduce,gather --size=4 --bytes=256,4096,65536");
  command->callback([arguments, &action] { action = [arguments] { return benchCommand(*arguments); }; });
}
