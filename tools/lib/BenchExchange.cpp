//===- BenchExchange.cpp - Times one exchange alone -----------------------===//
//
// A kernel of the kernel dialect does the exchange many times, another once; the
// difference over the number is the time of one, without the launch and without
// what makes the value. Clusters exchange at the same time on all SMs, one CTA on
// each, as they do in a fused kernel.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/BenchExchange.h"
#include "tools/lib/BenchChain.h"
#include "tools/lib/BenchReport.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Suggest.h"
#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

using namespace cfc;
using nlohmann::ordered_json;

/// Rounds of a cluster in the kernel that repeats, at least: few where a CTA has more than `manyBytes`.
static constexpr int64_t manyRounds = 64, fewRounds = 24, manyBytes = 8192;
/// Sums over the grid in the kernel that repeats: code grows with those.
static constexpr int64_t manySums = 9;
/// Items beyond all clusters that fit anywhere.
static constexpr int64_t mostClusters = 264;
/// CTAs of an item whose sum over the grid is scattered.
static constexpr int64_t scatterCtas = 4;
static constexpr int64_t largestBytes = int64_t(1) << 24;

namespace {
/// What an exchange is called, where it exists and by which algorithms.
struct Known {
  std::string kind, level;
  std::vector<std::string> algorithms;
};
} // namespace

static const std::vector<Known> &knownExchanges() {
  static const std::vector<Known> known = {
      {"reduce", "cta", {"push", "async", "scatter", "butterfly", "bulk"}},
      {"gather", "cta", {"push", "async", "butterfly", "bulk"}},
      {"reduce_scatter", "cta", {"push", "async", "butterfly", "bulk"}},
      {"all_to_all", "cta", {"push", "async", "bulk"}},
      {"reduce", "grid", {"ordered", "atomic"}},
      {"gather", "grid", {"ordered"}},
      {"reduce_scatter", "grid", {"ordered", "atomic"}},
  };
  return known;
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

static void checkWords(const std::vector<std::string> &words, const std::vector<std::string> &known,
                       const char *option, const std::string &where) {
  for (const std::string &word : words)
    if (std::find(known.begin(), known.end(), word) == known.end())
      badInput("", "--{}={}: {} there {} {}{}", option, word, where, known.size() == 1 ? "is only" : "are",
               fmt::join(known, ", "), didYouMean(word, known));
}

static std::vector<std::string> withoutRepeats(std::vector<std::string> words) {
  std::vector<std::string> result;
  for (std::string &word : words)
    if (std::find(result.begin(), result.end(), word) == result.end())
      result.push_back(std::move(word));
  return result;
}

static void checkNumbers(const ExchangeOptions &options) {
  for (int64_t size : options.sizes) {
    if (options.level == "cta" && (size < 2 || size > 16 || (size & (size - 1))))
      badInput("", "--size={}: a cluster that exchanges has 2, 4, 8 or 16 CTAs", size);
    if (size < 2 || size > 1024)
      badInput("", "--size={}: an exchange over the grid has 2 to 1024 work items", size);
  }
  for (int64_t bytes : options.bytes)
    if (bytes < 64 || bytes > largestBytes || bytes % 64)
      badInput("", "--bytes={}: a CTA holds a multiple of 64 bytes, at most {}", bytes, largestBytes);
}

std::vector<ExchangeCase> cfc::exchangeCases(const ExchangeOptions &options) {
  checkWords({options.level}, {"cta", "grid"}, "level", "for exchanges");
  std::vector<std::string> kinds, algorithms;
  for (const Known &known : knownExchanges()) {
    if (known.level != options.level)
      continue;
    kinds.push_back(known.kind);
    if (options.kinds.empty() ||
        std::find(options.kinds.begin(), options.kinds.end(), known.kind) != options.kinds.end())
      algorithms.insert(algorithms.end(), known.algorithms.begin(), known.algorithms.end());
  }
  std::string where = fmt::format("at the level {}", options.level);
  checkWords(options.kinds, kinds, "exchange", where);
  checkWords(options.algorithms, withoutRepeats(algorithms), "algorithm", where);
  checkNumbers(options);
  bool grid = options.level == "grid";
  auto orElse = [](const std::vector<int64_t> &given, std::vector<int64_t> usual) {
    return given.empty() ? usual : given;
  };
  std::vector<int64_t> sizes =
      orElse(options.sizes, grid ? std::vector<int64_t>{32, 64, 128} : std::vector<int64_t>{2, 4, 8, 16});
  std::vector<int64_t> bytes =
      orElse(options.bytes, grid ? std::vector<int64_t>{256, 1024, 4096}
                                 : std::vector<int64_t>{256, 1024, 4096, 8192, 16384, 32768, 65536});
  std::vector<ExchangeCase> cases;
  for (const std::string &kind : options.kinds.empty() ? kinds : withoutRepeats(options.kinds))
    for (const Known &known : knownExchanges()) {
      if (known.kind != kind || known.level != options.level)
        continue;
      for (int64_t size : sizes)
        for (int64_t each : bytes)
          for (const std::string &algorithm : known.algorithms)
            if (options.algorithms.empty() || std::find(options.algorithms.begin(), options.algorithms.end(),
                                                        algorithm) != options.algorithms.end())
              cases.push_back({kind, known.level, algorithm, size, each});
    }
  return cases;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// A kernel of clusters in whose loop over items nothing but `exchange` stands. `before` makes what it takes.
static std::string clusterKernel(const ExchangeCase &which, int64_t items, const std::string &arguments,
                                 const std::string &before, const std::string &exchange) {
  return fmt::format(
      "kernel.func @exchange({}) axes(item = {} @grid, part = {} @cta, one = 1 @cta, warp = 4 @warp) "
      "plan(ring_stages = 2, ctas_per_sm = 1) {{\n"
      "{}"
      "  kernel.for_items %i over item {{\n"
      "    %r = kernel.exchange {}\n"
      "  }}\n"
      "  kernel.return\n"
      "}}\n",
      arguments, items, which.size, before, exchange);
}

/// The exchange of %v that is timed.
static std::string timedExchange(const ExchangeCase &which, const std::string &from, const std::string &to) {
  return fmt::format("{} %v over \"part\" by {} : {} -> {}", which.kind, which.algorithm, from, to);
}

/// "part: partial(sum)", and before it the same over the axis of one worker, if `alone`: an exchange over
/// that axis is no code, but uses its operand.
static std::string states(const std::string &state, bool alone) {
  return (alone ? "one: " + state + ", " : "") + "part: " + state;
}

/// Moves f16: each CTA has its part of x. For all_to_all that is one row of a matrix with a row for each CTA,
/// of which every CTA gets some columns.
static std::string partsKernel(const ExchangeCase &which, int64_t items) {
  bool gathers = which.kind == "gather";
  std::string shape = gathers ? fmt::format("{}xf16", which.bytes / 2 * which.size)
                              : fmt::format("{}x{}xf16", which.size, which.bytes / 2);
  std::string from = fmt::format("!kernel.tile<{}, part: split(0)>", shape);
  std::string to = fmt::format("!kernel.tile<{}{}>", shape, gathers ? "" : ", part: split(1)");
  return clusterKernel(which, items, fmt::format("%x: memref<{}>", shape),
                       fmt::format("  %v = kernel.read %x : memref<{}> -> {}\n", shape, from),
                       timedExchange(which, from, to));
}

/// Reads as many bytes of f32 in each CTA, and exchanges nothing.
static std::string readingKernel(const ExchangeCase &which, int64_t items) {
  std::string shape = fmt::format("{}xf32", which.bytes / 4 * which.size);
  std::string from = fmt::format("!kernel.tile<{}, part: split(0), one: split(0)>", shape);
  std::string to = fmt::format("!kernel.tile<{}, part: split(0)>", shape);
  return clusterKernel(which, items, fmt::format("%x: memref<{}>", shape),
                       fmt::format("  %v = kernel.read %x : memref<{}> -> {}\n", shape, from),
                       fmt::format("gather %v over \"one\" by push : {} -> {}", from, to));
}

/// Sums f32. What makes a summand in each CTA is a product of 16 columns each. With `makesOnly` the summands
/// are made and not summed.
static std::string sumKernel(const ExchangeCase &which, int64_t items, bool makesOnly = false) {
  int64_t rows = which.bytes / 4, columns = 16 * which.size;
  std::string part = fmt::format("!kernel.tile<{}xf32, {}>", rows, states("partial(sum)", makesOnly));
  std::string stream =
      fmt::format("!kernel.stream<{}x{}xf16, {}>", rows, columns, states("split(1)", makesOnly));
  std::string factor = fmt::format("!kernel.tile<{}xf16, {}>", columns, states("split(0)", makesOnly));
  std::string weights = fmt::format("memref<{}x{}xf16>", rows, columns);
  std::string before = fmt::format("  %t = kernel.read %x : memref<{0}xf16> -> {1}\n"
                                   "  %s = kernel.load %w rows [{2}] : {3} -> {4}\n"
                                   "  %v = kernel.matmul %s, %t slots {5} : {4}, {1} -> {6}\n",
                                   columns, factor, rows, weights, stream, which.size, part);
  std::string sum =
      fmt::format("!kernel.tile<{}xf32{}>", rows, which.kind == "reduce" ? "" : ", part: split(0)");
  std::string nothing = fmt::format("reduce %v over \"one\" by push : {} -> !kernel.tile<{}xf32, {}>", part,
                                    rows, states("partial(sum)", false));
  return clusterKernel(which, items, fmt::format("%x: memref<{}xf16>, %w: {}", columns, weights), before,
                       makesOnly ? nothing : timedExchange(which, part, sum));
}

/// `count` times the same kernel.finish of %v, whose whole has the type `to`.
static std::string finishes(const ExchangeCase &which, int64_t count, const std::string &from,
                            const std::string &to, const std::string &result) {
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += fmt::format("    kernel.finish {}%v over item by {} : {} as %f{}: {} {{\n"
                        "      kernel.write %f{}, %y : {}, {}\n"
                        "    }}\n",
                        which.kind == "gather" ? "gather " : "", which.algorithm, from, i, to, i, to, result);
  return text;
}

/// Collects f16 over the grid: each item has its part of x.
static std::string gridGatherKernel(const ExchangeCase &which, int64_t count) {
  int64_t part = which.bytes / 2, whole = part * which.size;
  std::string memory = fmt::format("memref<{}xf16>", whole), from = fmt::format("!kernel.tile<{}xf16>", part);
  return fmt::format("kernel.func @exchange(%x: {0}, %y: {0}) axes(item = {1} @grid, warp = 4 @warp) "
                     "plan(ctas_per_sm = 1) {{\n"
                     "  kernel.for_items %i over item {{\n"
                     "    %v = kernel.read %x at %i : {0} -> {2}\n"
                     "{3}"
                     "  }}\n"
                     "  kernel.return\n"
                     "}}\n",
                     memory, which.size, from,
                     finishes(which, count, from, fmt::format("!kernel.tile<{}xf16>", whole), memory));
}

/// Sums f32 over the grid. For reduce_scatter items are clusters, of which each CTA sums rows of its own.
static std::string gridSumKernel(const ExchangeCase &which, int64_t count) {
  bool scatters = which.kind == "reduce_scatter";
  int64_t ctas = scatters ? scatterCtas : 1, rows = which.bytes / 4 * ctas, columns = 16 * which.size;
  std::string split = scatters ? ", part: split(0)" : "";
  std::string stream = fmt::format("!kernel.stream<{}x16xf16{}>", rows, split);
  std::string from = fmt::format("!kernel.tile<{}xf32{}, item: partial(sum)>", rows, split);
  std::string to = fmt::format("!kernel.tile<{}xf32{}>", rows, split);
  return fmt::format(
      "kernel.func @exchange(%x: memref<{0}xf16>, %w: memref<{1}x{0}xf16>, %y: memref<{1}xf32>)\n"
      "    axes(item = {2} @grid, part = {3} @cta, warp = 4 @warp) plan(ring_stages = 2, ctas_per_sm = 1) "
      "{{\n"
      "  kernel.for_items %i over item {{\n"
      "    %t = kernel.read %x at %i : memref<{0}xf16> -> !kernel.tile<16xf16>\n"
      "    %s = kernel.load %w rows [{1}] columns at %i : memref<{1}x{0}xf16> -> {4}\n"
      "    %v = kernel.matmul %s, %t slots 1 : {4}, !kernel.tile<16xf16> -> {5}\n"
      "{6}"
      "  }}\n"
      "  kernel.return\n"
      "}}\n",
      columns, rows, which.size, ctas, stream, from,
      finishes(which, count, from, to, fmt::format("memref<{}xf32>", rows)));
}

static bool isSum(const ExchangeCase &which) {
  return which.kind == "reduce" || which.kind == "reduce_scatter";
}

std::string cfc::exchangeKernel(const ExchangeCase &which, int64_t repeats) {
  if (which.level == "grid")
    return isSum(which) ? gridSumKernel(which, repeats) : gridGatherKernel(which, repeats);
  return isSum(which) ? sumKernel(which, repeats) : partsKernel(which, repeats);
}

std::vector<std::string> cfc::launchKernels(const ExchangeCase &which, int64_t clusters) {
  if (which.level == "grid")
    return {exchangeKernel(which, 1)};
  if (!isSum(which))
    return {exchangeKernel(which, clusters)};
  return {exchangeKernel(which, clusters), sumKernel(which, clusters, /*makesOnly=*/true),
          readingKernel(which, clusters)};
}

//===----------------------------------------------------------------------===//
// Timing
//===----------------------------------------------------------------------===//

namespace {
/// A compiled kernel, or why there is none.
struct ExchangeBinary {
  runtime::GraphSpec graph;
  std::string bundle, problem;
  std::vector<InputSpec> inputs;
};
} // namespace

static bool isCaseProblem(const Failure &failure) {
  return failure.code == Exit::CannotRun || failure.code == Exit::BadInput;
}

/// Compiles a kernel of this file. A case that does not fit is a line of the table, not the command's error.
static ExchangeBinary compileExchange(const std::string &text, const BuildOptions &options) {
  Compiler compiler; // outlives all modules
  ExchangeBinary binary;
  std::string complaint;
  mlir::ScopedDiagnosticHandler handler(&compiler.context(), [&](mlir::Diagnostic &diagnostic) {
    if (complaint.empty() && diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
      complaint = diagnostic.str();
    return mlir::success();
  });
  try {
    mlir::OwningOpRef<mlir::ModuleOp> module = compiler.parse(text, "exchange");
    CompiledGraph compiled = build(compiler, *module, options, Stage::Cubin);
    binary.graph = compiled.manifest.graphs.front();
    binary.bundle = bundleContent(compiled, text);
    binary.inputs = inputSpecs(*module, binary.graph);
  } catch (const Failure &failure) {
    if (!isCaseProblem(failure))
      throw Failure(failure.code, complaint.empty() ? failure.what() : "error: " + complaint);
    binary.problem = complaint.empty() ? reasonOf(failure) : complaint;
  }
  return binary;
}

/// Work items of the kernel that repeats an exchange over clusters.
static int64_t manyItems(const ExchangeCase &which) {
  return (which.bytes > manyBytes ? fewRounds : manyRounds) * (mostClusters / which.size);
}

/// The kernels of a case: the one that repeats the exchange, then launchKernels.
static std::vector<std::string> kernelsOf(const ExchangeCase &which, int64_t clusters) {
  std::vector<std::string> texts = {
      exchangeKernel(which, which.level == "grid" ? manySums : manyItems(which))};
  for (std::string &text : launchKernels(which, clusters))
    texts.push_back(std::move(text));
  return texts;
}

/// Clusters that exchange at a time: as many as there is room for with one CTA on an SM, as in kernels whose
/// rings fill the shared memory. A limit of SMs, one below all, counts CTAs.
static int64_t clustersFor(const ExchangeCase &which, const Machine &machine) {
  return std::min(machine.resident(which.size, 1), (machine.sms - 1) / which.size);
}

class cfc::ExchangeKernels::Binaries {
public:
  std::map<std::string, ExchangeBinary> byText;

  /// Compiles what is there, on all cores.
  void compile(const BuildOptions &options) {
    std::vector<std::pair<const std::string *, ExchangeBinary *>> all;
    for (auto &[text, binary] : byText)
      all.push_back({&text, &binary});
    std::vector<std::exception_ptr> errors(all.size());
    std::atomic<size_t> next = 0;
    auto work = [&] {
      for (size_t i = next++; i < all.size(); i = next++)
        try {
          *all[i].second = compileExchange(*all[i].first, options);
        } catch (...) {
          errors[i] = std::current_exception();
        }
    };
    std::vector<std::jthread> pool;
    for (unsigned t = 1; t < std::clamp(std::thread::hardware_concurrency(), 1u, 32u); ++t)
      pool.emplace_back(work);
    work();
    pool.clear(); // waits for all
    for (const std::exception_ptr &error : errors)
      if (error)
        std::rethrow_exception(error);
  }
};

ExchangeKernels::ExchangeKernels(const std::vector<ExchangeCase> &cases, const Machine &machine,
                                 const BuildOptions &build, const ExchangeProgress &progress)
    : binaries(std::make_unique<Binaries>()) {
  for (const ExchangeCase &which : cases) {
    ExchangeResult &result = results.emplace_back();
    result.which = which;
    result.groups = which.level == "grid" ? 1 : clustersFor(which, machine);
    if (result.groups < 1) {
      result.problem = fmt::format("no cluster of {} CTAs fits", which.size);
      continue;
    }
    for (const std::string &text : kernelsOf(which, result.groups))
      binaries->byText.try_emplace(text);
  }
  progress(fmt::format("compiling {} kernels", binaries->byText.size()));
  binaries->compile(build);
  for (ExchangeResult &result : results)
    if (result.problem.empty())
      for (const std::string &text : kernelsOf(result.which, result.groups))
        if (result.problem.empty())
          result.problem = binaries->byText.at(text).problem;
}

ExchangeKernels::~ExchangeKernels() = default;

namespace {
/// Times kernels, each once: what cases share is one kernel.
class Stopwatch {
public:
  Stopwatch(BenchGpu &gpu, int64_t replays) : gpu(gpu), replays(replays) {}

  /// `clusters`, if not 0, must run at a time.
  Spread time(const std::string &text, const ExchangeBinary &binary, const ExchangeCase &which,
              int64_t clusters) {
    if (auto known = times.find(text); known != times.end())
      return known->second;
    ChainOptions options;
    options.layers = 1;
    options.filler = &filler;
    options.maxSms = uint32_t(clusters ? clusters * which.size : std::max(gpu.sms() - 1, 16));
    BenchChain chain(gpu, binary.graph, binary.bundle, binary.inputs, options);
    cfc_kernel_info kernel = chain.kernels().front();
    if (clusters && kernel.grid != clusters * which.size)
      cannotRun("", "{} clusters of {} CTAs run at a time, not {}", kernel.grid / kernel.cluster, which.size,
                clusters);
    std::string what = fmt::format("{} by {}", which.kind, which.algorithm);
    return times[text] = gpu.time([&] { chain.launch(); }, 1, replays, what, pace);
  }

private:
  /// The GPU is warm, and one case like the other.
  static constexpr Pace pace = {300, 0.005};
  BenchGpu &gpu;
  int64_t replays;
  BenchFiller filler{gpu};
  std::map<std::string, Spread> times;
};
} // namespace

/// Times a case whose kernels are compiled.
static void timeExchange(Stopwatch &stopwatch, const std::map<std::string, ExchangeBinary> &binaries,
                         ExchangeResult &result) {
  const ExchangeCase &which = result.which;
  bool grid = which.level == "grid";
  std::vector<Spread> times;
  for (const std::string &text : kernelsOf(which, result.groups))
    times.push_back(stopwatch.time(text, binaries.at(text), which, grid ? 0 : result.groups));
  int64_t rounds = grid ? manySums : (manyItems(which) + result.groups - 1) / result.groups;
  result.launch = times[1];
  result.us = (times[0].median - result.launch.median) / double(rounds - 1);
  if (times.size() == 2)
    return;
  double other = times[3].median - times[2].median; // reading instead of multiplying
  for (double *value : {&result.launch.median, &result.launch.min, &result.launch.p10, &result.launch.p90})
    *value += other;
}

/// Marks the fastest algorithm of each exchange, size and number of bytes.
static void markFastest(std::vector<ExchangeResult> &results) {
  auto same = [](const ExchangeCase &a, const ExchangeCase &b) {
    return a.kind == b.kind && a.size == b.size && a.bytes == b.bytes;
  };
  for (ExchangeResult &result : results)
    result.fastest =
        result.problem.empty() &&
        std::none_of(results.begin(), results.end(), [&](const ExchangeResult &other) {
          return other.problem.empty() && same(result.which, other.which) && other.us < result.us;
        });
}

std::vector<ExchangeResult> ExchangeKernels::time(BenchGpu &gpu, int64_t replays,
                                                  const ExchangeProgress &progress) const {
  std::vector<ExchangeResult> timed = results;
  Stopwatch stopwatch(gpu, replays);
  for (size_t i = 0; i < timed.size(); ++i) {
    const ExchangeCase &which = timed[i].which;
    if (!timed[i].problem.empty())
      continue;
    progress(fmt::format("{} of {} bytes over {} by {} ({} of {})", which.kind, which.bytes, which.size,
                         which.algorithm, i + 1, timed.size()));
    try {
      timeExchange(stopwatch, binaries->byText, timed[i]);
    } catch (const Failure &failure) {
      if (!isCaseProblem(failure))
        throw;
      timed[i].problem = reasonOf(failure);
    }
  }
  markFastest(timed);
  return timed;
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

std::string cfc::exchangeText(const std::vector<ExchangeResult> &results) {
  std::vector<std::vector<std::string>> rows = {{"exchange", "level", "size", "bytes a CTA", "algorithm",
                                                 "groups", "us in a kernel", "us with a launch", ""}};
  std::vector<std::string> problems;
  for (const ExchangeResult &result : results) {
    const ExchangeCase &which = result.which;
    std::vector<std::string> row = {which.kind, which.level, std::to_string(which.size),
                                    std::to_string(which.bytes), which.algorithm};
    if (result.problem.empty()) {
      for (const std::string &cell :
           {std::to_string(result.groups), fmt::format("{:.3f}", result.us),
            fmt::format("{:.2f}", result.launch.median), std::string(result.fastest ? "fastest" : "")})
        row.push_back(cell);
    } else {
      auto known = std::find(problems.begin(), problems.end(), result.problem);
      for (const std::string &cell : {std::string(), std::string("-"), std::string("-"),
                                      fmt::format("({})", known - problems.begin() + 1)})
        row.push_back(cell);
      if (known == problems.end())
        problems.push_back(result.problem);
    }
    rows.push_back(std::move(row));
  }
  std::string text = tableText(rows, "");
  for (size_t i = 0; i < problems.size(); ++i)
    text += fmt::format("({}) {}\n", i + 1, problems[i]);
  return text;
}

ordered_json cfc::toJson(const std::vector<ExchangeResult> &results) {
  ordered_json json = ordered_json::array();
  for (const ExchangeResult &result : results) {
    const ExchangeCase &which = result.which;
    ordered_json entry = {{"exchange", which.kind},
                          {"level", which.level},
                          {"size", which.size},
                          {"bytes", which.bytes},
                          {"algorithm", which.algorithm}};
    if (result.problem.empty())
      entry.update({{"groups", result.groups},
                    {"us", result.us},
                    {"launch_us", toJson(result.launch)},
                    {"fastest", result.fastest}});
    else
      entry["problem"] = result.problem;
    json.push_back(std::move(entry));
  }
  return json;
}
