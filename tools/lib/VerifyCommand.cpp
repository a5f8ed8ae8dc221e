//===- VerifyCommand.cpp - cfc verify -------------------------------------===//
#include "tools/lib/BatchBits.h"
#include "tools/lib/Bisect.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Variants.h"
#include "tools/lib/Verify.h"
#include <charconv>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

using namespace cfc;

namespace {
struct VerifyArguments {
  std::string source, device = "auto", lengths, replay;
  bool json = false;
  std::optional<int64_t> batches;
  VerifyOptions verify;
};
} // namespace

static std::vector<int64_t> parseLengths(const std::string &text) {
  std::vector<int64_t> lengths;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    int64_t value = 0;
    auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc() || stop != text.data() + end || value < 0)
      badInput("", "--len={}: expected lengths such as 0,1,37,4096", text);
    lengths.push_back(value);
    begin = end + 1;
  }
  return lengths;
}

/// "; GPU reference 3.1e-04, 2.0e-03; references 2.1e-15 apart": the same two errors as against the CPU's.
static std::string secondText(const Check &check) {
  if (!check.second)
    return "";
  const SecondOpinion &second = *check.second;
  const Comparison &c = second.comparison;
  bool isLog = check.tap && check.tap->isLog;
  std::string errors = isLog ? "" : fmt::format("{:.1e}, ", c.relativeL2);
  return fmt::format("; GPU reference {}{:.1e}{}; references {:.1e} apart{}", errors, c.largest,
                     c.passed ? "" : " MISMATCH", second.between,
                     second.agree ? "" : ", which is TOO FAR: one of them is wrong");
}

/// "limit 1e-03", or of a row with a limit of its own "limit raised to 2.1e-03".
static std::string limitText(double usual, double factor) {
  return factor > 1 ? fmt::format("limit raised to {:.1e}", usual * factor)
                    : fmt::format("limit {:.0e}", usual);
}

static std::string checkText(const Check &check) {
  const Comparison &c = check.comparison, &failed = check.decisive();
  bool isLog = check.tap && check.tap->isLog;
  std::string relative = isLog ? "absolute"
                               : fmt::format("relative L2 {:.1e} ({})", c.relativeL2,
                                             limitText(check.tolerance.relativeL2, c.relativeFactor));
  std::string text = fmt::format("  {:<16} {:<33} largest {:.1e} ({})  {}{}\n", check.name, relative,
                                 c.largest, limitText(check.tolerance.element, c.elementFactor),
                                 c.passed ? "ok" : "MISMATCH", secondText(check));
  if (c.raised)
    text += fmt::format("  {:<16} {} head{} with limits raised to what rounding explains, relative L2 up to "
                        "{:.1e}\n",
                        "", c.raised, c.raised == 1 ? " passes only" : "s pass only", c.raisedMost);
  if (!failed.passed && failed.worst >= 0)
    text += fmt::format("  {:<16} worst at {}: expected {:.6g}, found {:.6g}\n", "",
                        indexText(failed.worst, check.shape), failed.expected, failed.found);
  return text;
}

static std::string caseText(const CaseResult &result) {
  std::string text = fmt::format("length {}:\n", result.length);
  for (const Check &check : result.checks)
    text += checkText(check);
  for (const std::vector<std::string> &lines : {result.notes, result.faults})
    for (const std::string &line : lines)
      text += fmt::format("  {}\n", line);
  return text;
}

namespace {
/// What was found about one variant of a bundle, or about the only program.
struct VariantRun {
  std::unique_ptr<Verifier> verifier; ///< the results point into it
  std::vector<CaseResult> results;

  bool passed() const {
    return std::all_of(results.begin(), results.end(), [](const CaseResult &r) { return r.passed(); });
  }
  size_t comparisons() const {
    size_t count = 0;
    for (const CaseResult &result : results)
      count += result.checks.size();
    return count;
  }
  /// "1a2b3c4d", or "1a2b3c4d (lengths up to 1024)".
  std::string name() const {
    const Program &program = verifier->program();
    if (program.graph.variants.size() < 2)
      return program.planHash;
    return fmt::format("{} ({})", program.planHash,
                       conditionText(program.graph.variants[program.variant].when));
  }
};
} // namespace

/// "; at most 12 clusters at a time" on the emulator, where a machine was asked for.
static std::string residencyText(const Program &program) {
  return program.resident.empty()
             ? ""
             : fmt::format("; at most {} clusters at a time", fmt::join(program.resident, ", "));
}

static nlohmann::ordered_json runJson(const VariantRun &run, bool bisect) {
  nlohmann::ordered_json json = {{"plan", run.verifier->program().planHash}, {"passed", run.passed()}};
  for (const CaseResult &result : run.results) {
    nlohmann::ordered_json entry = {{"length", result.length},
                                    {"passed", result.passed()},
                                    {"notes", result.notes},
                                    {"faults", result.faults}};
    for (const Check &check : result.checks)
      entry["checks"].push_back(checkJson(check));
    json["cases"].push_back(entry);
  }
  if (nlohmann::ordered_json first = bisect ? bisectJson(run.results) : nullptr; !first.is_null())
    json["first_wrong"] = std::move(first);
  return json;
}

/// What was found of one graph, at its lengths or with one captured launch.
static nlohmann::ordered_json graphJson(const std::string &device, const Source &source, const Replay *replay,
                                        const std::vector<VariantRun> &runs, bool passed, bool bisect) {
  nlohmann::ordered_json json = {{"device", device}};
  if (source.bundle && source.bundle->manifest.graphs.size() > 1)
    json["graph"] = source.graphName;
  if (replay)
    json["replay"] = replay->path();
  if (runs.size() == 1) {
    json.update(runJson(runs.front(), bisect));
    return json;
  }
  json["passed"] = passed;
  for (const VariantRun &run : runs)
    json["variants"].push_back(runJson(run, bisect));
  return json;
}

/// Plan hashes of what to check: a bundle's variants, unless one is named; "" is the only program.
static std::vector<std::string> variantsToCheck(const Source &source, const VerifyOptions &options) {
  if (!source.bundle || !options.build.variant.empty() || !options.kernels.empty())
    return {options.build.variant};
  std::vector<std::string> hashes;
  for (const runtime::VariantSpec &variant : source.bundleGraph().variants)
    hashes.push_back(variant.planHash);
  return hashes;
}

/// Notes where a result has other bits than in the first variant.
static void compareBits(const VariantRun &first, CaseResult &result, size_t index) {
  for (const auto &[name, digest] : result.bits) {
    auto expected = first.results[index].bits.find(name);
    if (expected != first.results[index].bits.end() && expected->second != digest)
      result.faults.push_back(
          fmt::format("{} has other bits than with variant {}; --deterministic forbids it", name,
                      first.verifier->program().planHash));
  }
}

/// Checks one variant at every length; prints as it goes unless `quiet`.
static VariantRun verifyVariant(std::unique_ptr<Verifier> made, const VariantRun *first, bool quiet) {
  VariantRun run{std::move(made), {}};
  Verifier &verifier = *run.verifier;
  if (!quiet)
    print(fmt::format("plan: {}{}\n", run.name(), residencyText(verifier.program())));
  for (const std::string &note : verifier.notes())
    fmt::print(stderr, "note: {}\n", note);
  for (size_t i = 0; i < verifier.lengths().size(); ++i) {
    Progress progress;
    progress.show(
        fmt::format("length {} ({} of {})", verifier.lengths()[i], i + 1, verifier.lengths().size()));
    run.results.push_back(verifier.check(i));
    if (first)
      compareBits(*first, run.results.back(), i);
    progress.clear();
    if (!quiet)
      print(caseText(run.results.back()));
  }
  return run;
}

static std::string summary(const std::vector<VariantRun> &runs) {
  size_t comparisons = 0, lengths = runs.front().results.size();
  for (const VariantRun &run : runs)
    comparisons += run.comparisons();
  bool sameBits = !runs.front().results.front().bits.empty();
  std::string variants = runs.size() == 1 ? ""
                                          : fmt::format(" of {} variants{}", runs.size(),
                                                        sameBits ? ", whose bits are the same" : "");
  return fmt::format("verified: {} comparison{} at {} length{}{}; nothing else was written\n", comparisons,
                     comparisons == 1 ? "" : "s", lengths, lengths == 1 ? "" : "s", variants);
}

/// The captured launches to check, which fit the source.
static std::vector<Replay> replaysFor(const VerifyArguments &arguments, const Source &source) {
  if (arguments.replay.empty())
    return {};
  if (!arguments.lengths.empty() || !arguments.verify.inputs.inputs.empty())
    badInput("", "--replay gives all inputs: --len and --input do not go with it");
  attn::GraphOp graph = source.graph();
  if (!graph)
    badInput(source.path, "holds kernels: verify needs a graph, whose reference says what is right");
  std::vector<Replay> replays = openReplays(arguments.replay, graph.getSymName().str());
  if (!source.bundle)
    return replays;
  std::string digest = runtime::digestText(source.bundle->graphText(source.bundleGraph()));
  for (const Replay &replay : replays) {
    replay.requireFit(source.bundleGraph(), graph.getSymName().str(), source.path);
    if (!replay.graphDigest().empty() && replay.graphDigest() != digest)
      badInput(
          replay.path(),
          "was captured from a graph of digest {}, that of {} has {}: replay it with the bundle that it was "
          "captured from, or with a graph file, whose text may differ",
          replay.graphDigest(), source.path, digest);
  }
  return replays;
}

/// The variant that ran, where the bundle still has it.
static void chooseCaptured(BuildOptions &build, const Source &source, const Replay &replay) {
  if (!source.bundle)
    return;
  if (!build.maxSms)
    build.maxSms = replay.maxSms();
  if (!build.variant.empty())
    return;
  const runtime::Bundle &bundle = *source.bundle;
  for (const runtime::VariantSpec &variant : source.bundleGraph().variants) {
    if (variant.planHash != replay.planHash())
      continue;
    build.variant = variant.planHash;
    const std::string &digest = variant.simtDigest.empty() ? bundle.manifest.simtDigest : variant.simtDigest;
    if (!replay.kernelDigest().empty() && replay.kernelDigest() != digest)
      fmt::print(stderr, "note: other kernels were captured: of digest {}, here {}\n", replay.kernelDigest(),
                 digest);
    return;
  }
  fmt::print(stderr, "note: {} has no variant of plan {}, which was captured\n", source.path,
             replay.planHash());
}

/// One object whatever was checked: of several graphs or captured launches, whether all are right, and each.
static std::string jsonText(std::vector<nlohmann::ordered_json> &&found, bool passed) {
  nlohmann::ordered_json json;
  if (found.size() == 1)
    json = std::move(found.front());
  else
    json = {{"passed", passed}, {"runs", std::move(found)}};
  return json.dump(2) + "\n";
}

/// Checks the source at its lengths, or with one captured launch. Whether all is right. With --json, what was
/// found goes to `found` and is not printed.
static bool verifyRuns(Compiler &compiler, const Source &source, Device &device, VerifyArguments arguments,
                       const Replay *replay, std::vector<nlohmann::ordered_json> &found) {
  if (replay) {
    chooseCaptured(arguments.verify.build, source, *replay);
    arguments.verify.replay = replay;
    if (!arguments.json)
      print(fmt::format("replay: {}: {}\n", replay->path(), replay->describe()));
  }
  std::vector<VariantRun> runs;
  bool passed = true;
  for (const std::string &variant : variantsToCheck(source, arguments.verify)) {
    arguments.verify.build.variant = variant;
    runs.push_back(verifyVariant(std::make_unique<Verifier>(compiler, source, device, arguments.verify),
                                 runs.empty() ? nullptr : &runs.front(), arguments.json));
    passed &= runs.back().passed();
    if (arguments.verify.bisect && !arguments.json)
      print(bisectText(runs.back().results));
  }
  if (arguments.json)
    found.push_back(graphJson(device.describe(), source, replay, runs, passed, arguments.verify.bisect));
  else
    print(passed ? summary(runs) : "MISMATCH\n");
  return passed;
}

/// The graphs of a bundle to check: the one that is named, those that were captured, else all; "" is the
/// only graph of a file.
static std::vector<std::string> graphsToCheck(const VerifyArguments &arguments) {
  const std::string &given = arguments.verify.build.graph;
  std::vector<std::string> names = graphNames(arguments.source);
  if (!given.empty() || names.size() < 2)
    return {given};
  if (arguments.replay.empty())
    return names;
  std::vector<std::string> captured = capturedGraphs(arguments.replay);
  std::erase_if(names, [&](const std::string &name) {
    return std::find(captured.begin(), captured.end(), name) == captured.end();
  });
  if (names.empty())
    badInput(arguments.replay, "holds no capture of a graph of {}", arguments.source);
  return names;
}

/// Checks one graph. Its name is printed where there are several.
static bool verifyGraph(VerifyArguments arguments, const std::string &graph, bool several,
                        std::vector<nlohmann::ordered_json> &found) {
  Compiler compiler;
  Source source = readSource(compiler, arguments.source, arguments.verify.build.sets, graph);
  std::vector<Replay> replays = replaysFor(arguments, source);
  std::string why, target = source.bundle ? source.bundle->manifest.target : arguments.verify.build.target;
  std::unique_ptr<Device> device = openDevice(parseDeviceChoice(arguments.device), target, why);
  if (!arguments.json)
    print(fmt::format("device: {}{}\n", device->describe(), why.empty() ? "" : " (" + why + ")"));
  if (!arguments.json && several)
    print(fmt::format("graph: {}\n", graph));
  if (replays.empty())
    return verifyRuns(compiler, source, *device, arguments, nullptr, found);
  bool passed = true;
  for (const Replay &replay : replays)
    passed &= verifyRuns(compiler, source, *device, arguments, &replay, found);
  return passed;
}

/// --batches: bits alone and in batches.
static bool verifyBatches(const VerifyArguments &arguments) {
  const VerifyOptions &verify = arguments.verify;
  if (!arguments.replay.empty() || !verify.taps.empty() || verify.bisect || !verify.kernels.empty() ||
      arguments.json || !verify.inputs.inputs.empty())
    badInput("", "--batches compares bits of requests that it draws: --replay, --tap, --bisect, --kernels, "
                 "--input and --json do not go with it");
  if (*arguments.batches < 1 || *arguments.batches > 100000)
    badInput("", "--batches={}: 1 to 100000 batches can be drawn", *arguments.batches);
  BatchBitsOptions options = {*arguments.batches, {}, verify.seed, verify.inputs.weights, verify.build};
  if (verify.lengthsGiven && verify.lengths.size() != 1)
    badInput("", "--len={}: --batches takes one number, the most tokens of a request", arguments.lengths);
  if (verify.lengthsGiven)
    options.length = verify.lengths.front();
  Compiler compiler;
  std::string why;
  std::unique_ptr<Device> device = openDevice(parseDeviceChoice(arguments.device), verify.build.target, why);
  print(fmt::format("device: {}{}\n", device->describe(), why.empty() ? "" : " (" + why + ")"));
  return verifyBatchBits(compiler, arguments.source, *device, options);
}

static Exit verifyCommand(VerifyArguments arguments) {
  parseDeviceChoice(arguments.device);
  arguments.verify.lengthsGiven = !arguments.lengths.empty();
  arguments.verify.lengths = parseLengths(arguments.lengths.empty() ? "0,1,37,130" : arguments.lengths);
  if (arguments.batches)
    return verifyBatches(arguments) ? Exit::Done : Exit::CheckFailed;
  bool passed = true;
  std::vector<nlohmann::ordered_json> found;
  std::vector<std::string> graphs = graphsToCheck(arguments);
  for (const std::string &graph : graphs)
    passed &= verifyGraph(arguments, graph, graphs.size() > 1, found);
  if (arguments.json)
    print(jsonText(std::move(found), passed));
  return passed ? Exit::Done : Exit::CheckFailed;
}

void cfc::addVerifyCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App *command = app.add_subcommand("verify", "Compare a graph or bundle with its float64 reference");
  command->add_option("SOURCE", arguments->source, "A graph or a bundle")
      ->required()
      ->option_text("GRAPH|BUNDLE");
  addDeviceOption(*command, arguments->device);
  command->add_option("--len", arguments->lengths, "Tokens in the cache, one case each (0,1,37,130)")
      ->option_text("N,N,…");
  command
      ->add_option(
          "--replay", arguments->replay,
          "Check with inputs that an engine captured (CFC_CAPTURE): a file, or all of the graph in a folder")
      ->option_text("DIR|FILE");
  command
      ->add_option(
          "--batches", arguments->batches,
          "Instead draw so many batches of requests, of up to --len tokens (200), idle ones among them, "
          "and compare each request's bits alone and in every graph and variant")
      ->option_text("N");
  command->add_option("--tap", arguments->verify.taps, "Compare these values too")->option_text("%a,%b");
  command->add_flag("--bisect", arguments->verify.bisect, "Compare every value; name the first that differs");
  command
      ->add_option("--kernels", arguments->verify.kernels,
                   "Check these kernels in place of those that cfc writes")
      ->option_text("FILE");
  addSeedOption(*command, arguments->verify.seed);
  command->add_flag(
      "--json", arguments->json,
      "Print the result as one JSON object; of several graphs or captures: \"passed\" of all, and each in "
      "\"runs\"");
  addInputOptions(*command, arguments->verify.inputs);
  addVariantOption(*command, arguments->verify.build);
  addBuildOptions(*command, arguments->verify.build);
  command->footer(
      "Example:\n  cfc verify templates/graphs/llama2_7b_attention.mlir --device=emu --len=0,1,127,1000\n"
      "  cfc verify block.mlir --plan=random:7 --bisect\n"
      "  cfc verify block.cfk --batches=20              # of cfc compile --batch=1,2,4,8\n"
      "  cfc compile block.mlir --emit=kernel > k.mlir   # edit it, then\n"
      "  cfc verify block.mlir --kernels=k.mlir\n"
      "  CFC_CAPTURE=captured my_engine; cfc verify block.cfk --replay=captured --bisect");
  command->callback([arguments, &action] { action = [arguments] { return verifyCommand(*arguments); }; });
}
