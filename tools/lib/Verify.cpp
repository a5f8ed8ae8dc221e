//===- Verify.cpp - Comparing a program with the float64 reference --------===//
//
// Two programs run at every length: the graph's own, whose results are
// compared, and one that returns the taps too. With --deterministic what both
// return must have the same bits.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Verify.h"
#include "compiler/emit/Assembler.h"
#include "compiler/lower/AttnToKernel.h"
#include "compiler/plan/Plan.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Pack.h"
#include "tools/lib/Suggest.h"
#include <algorithm>
#include <cstring>
#include <future>
#include <set>

using namespace cfc;

namespace cfc {
/// The references' answers for one case.
struct ReferenceRun {
  const TensorMap &inputs;
  attn::ReferenceResult result;
  std::optional<attn::ReferenceResult> second = {};
  /// How far apart the references may be: far above what the order of double sums explains, far below the
  /// error of a float.
  Tolerance between = {1e-9, 1e-9};

  /// How a value is compared.
  enum Kind { Numbers, Rows, Logs, Stored };
  /// Compares what was found with both. `get` finds the value in a result; `row`, `factors`: see
  /// cfc::compare.
  template <typename Get>
  void compare(Check &check, const Tensor &found, int64_t row, Kind kind, Get get,
               const std::vector<double> &factors = {}) const;
  /// Compares what was found for a tap, whose value `get` finds.
  template <typename Get> void compareTap(Check &check, const Tensor &found, const Tap &tap, Get get) const;
};
} // namespace cfc

bool CaseResult::passed() const {
  return faults.empty() && std::all_of(checks.begin(), checks.end(), [](auto &c) { return c.passed(); });
}

template <typename Get>
void ReferenceRun::compare(Check &check, const Tensor &found, int64_t row, Kind kind, Get get,
                           const std::vector<double> &factors) const {
  auto distance = [&](const std::vector<double> &expected, const Tensor &values, Tolerance tolerance,
                      std::span<const double> factors) {
    if (kind == Logs)
      return compareLogs(expected, values, tolerance);
    if (kind == Stored && values.type == DType::f8E4M3FN)
      return compareRounded(expected, values, row, tolerance);
    return cfc::compare(expected, values, row, kind == Rows, tolerance, factors);
  };
  const std::vector<double> &first = get(result);
  check.comparison = distance(first, found, check.tolerance, factors);
  if (!second)
    return;
  const std::vector<double> &other = get(*second);
  Tensor values(DType::f64, check.shape);
  std::copy(other.begin(), other.end(), values.as<double>());
  Comparison apart = distance(first, values, between, {});
  check.second = {distance(other, found, check.tolerance, factors), apart.largest, apart.passed};
}

template <typename Get>
void ReferenceRun::compareTap(Check &check, const Tensor &found, const Tap &tap, Get get) const {
  auto roundings = result.roundings.find(tap.value);
  bool isHeads = roundings != result.roundings.end();
  compare(check, found, tap.row,
          tap.isLog   ? Logs
          : tap.byRow ? Rows
                      : Numbers,
          get, isHeads ? headFactors(roundings->second) : std::vector<double>());
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

Verifier::Verifier(Compiler &compiler, const Source &source, Device &device, VerifyOptions given)
    : compiler(compiler), source(source), device(device), options(std::move(given)), graph(source.graph()),
      unchanging(device) {
  if (!graph)
    badInput(source.path, "holds kernels: verify needs a graph, whose reference says what is right");
  tapList = options.bisect ? allTaps(graph) : defaultTaps(graph);
  if (!options.taps.empty())
    addNamedTaps(tapList, graph, options.taps);
  if (options.kernels.empty()) {
    plain = makeProgram(compiler, source, options.build, device);
    makeTapped();
  } else {
    useKernels();
  }
  makeSecondReference();
  makeInputs();
}

/// On a GPU the kernels of templates/device are a second reference.
void Verifier::makeSecondReference() {
  DeviceKernels *kernels = options.referenceKernels;
  if (!kernels && device.isEmulator())
    return;
  if (!kernels) {
    try {
      nvrtcKernels = std::make_unique<NvrtcKernels>();
    } catch (const Failure &failure) {
      llvm::StringRef why = failure.what();
      why.consume_front("error: ");
      whyLess.push_back("compared with the CPU reference only: " + why.str());
      return;
    }
    kernels = nvrtcKernels.get();
  }
  deviceReference = std::make_unique<DeviceReference>(device, *kernels, graph);
}

/// The program is a file of kernels; they return what the graph returns and nothing else.
void Verifier::useKernels() {
  Source kernels = readSource(compiler, options.kernels);
  if (kernels.bundle || kernels.graph())
    badInput(options.kernels, "holds no kernels: --kernels takes what --emit=kernel writes");
  kernelModule = std::move(kernels.module);
  plain = makeProgram(compiler, *kernelModule, options.build, device);
  std::map<std::string, TensorInfo> known;
  std::vector<std::string> names;
  for (const TensorInfo &tensor : tensorsOf(graph)) {
    known[tensor.name] = tensor;
    names.push_back(tensor.name);
  }
  for (runtime::TensorSpec &tensor : plain.graph.tensors) {
    auto it = known.find(tensor.name);
    if (it == known.end())
      badInput(options.kernels, "has a tensor \"{}\" that the graph does not have{}", tensor.name,
               didYouMean(tensor.name, names));
    // Kernels see rows alone.
    if (tensor.kind == runtime::TensorKind::Tensor)
      tensor.shape.assign(it->second.shape.begin(), it->second.shape.end());
    // ... and no block tables' columns.
    tensor.pages = it->second.pages;
    if (mlir::isa<attn::LengthsType>(it->second.value.getType()))
      tensor.bound = it->second.bound;
  }
  keepResultTaps();
}

/// Leaves out the taps that the graph itself does not return.
void Verifier::keepResultTaps() {
  auto results = graph.getReturn().getValues();
  std::erase_if(tapList, [&](const Tap &tap) { return !llvm::is_contained(results, tap.value); });
  withTaps(graph, tapList); // for the names
}

/// The plan's text for a graph that differs in its results only.
static std::string planFor(const std::string &text, attn::GraphOp graph) {
  std::string error;
  auto plan = parsePlan(text, "plan", error);
  if (!plan)
    internalError("the plan of the compilation cannot be read: {}", error);
  plan->hash = graphHash(graph);
  return plan->print();
}

void Verifier::makeTapped() {
  if (source.bundle && !device.isEmulator()) {
    AssemblerOptions assembly;
    assembly.ptxas = options.build.ptxas;
    auto found = Assembler::find(assembly);
    if (auto *failure = std::get_if<EmitFailure>(&found)) {
      whyLess.push_back("only the graph's results are compared, because values inside need ptxas: " +
                        failure->message);
      return keepResultTaps();
    }
  }
  tappedModule = withTaps(graph, tapList);
  auto tappedGraph = *tappedModule->getOps<attn::GraphOp>().begin();
  if (tappedGraph.getFunctionType() == graph.getFunctionType())
    return;
  BuildOptions build = source.bundle ? optionsOf(source, options.build) : options.build;
  build.plan = planFor(plain.planText, tappedGraph);
  tapped = makeProgram(compiler, *tappedModule, build, device);
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Makes a program ready for a launch with these inputs.
void Verifier::prepare(Loaded &loaded, const TensorMap &inputs) {
  const runtime::GraphSpec &signature = loaded.program->graph;
  TensorMap changing;
  for (const InputSpec &spec : specs) {
    if (spec.isCache())
      for (const std::string &name : {spec.name + ".k", spec.name + ".v"})
        changing[name] = inputs.at(name);
    else if (spec.changesByCase())
      changing[spec.name] = inputs.at(spec.name);
  }
  if (!loaded.tensors)
    loaded.tensors.emplace(unchanging);
  loaded.tensors->upload(changing);
  if (!loaded.executable) {
    loaded.executable = device.load(loaded.program->image());
    loaded.executable->bind(loaded.tensors->bindings(signature));
  }
  loaded.tensors->poisonResults(signature);
}

/// Launches all programs: on the emulator, whose launches take one core each, at the same time.
void Verifier::launch(const std::vector<Loaded *> &all, uint64_t seed) {
  auto policy = device.isEmulator() ? std::launch::async : std::launch::deferred;
  std::vector<std::future<void>> launches;
  for (Loaded *loaded : all)
    launches.push_back(std::async(policy, [=] { loaded->executable->launch(seed); }));
  for (std::future<void> &done : launches)
    done.get();
}

void Verifier::checkTaps(CaseResult &result, const TensorMap &outputs, const ReferenceRun &reference) {
  for (const Tap &tap : tapList) {
    Check check = {tap.name, tap.shape, {}, toleranceFor(tap.coarsest), &tap};
    reference.compareTap(check, outputs.at(tap.result), tap,
                         [&](const attn::ReferenceResult &one) -> const std::vector<double> & {
                           auto expected = one.values.find(tap.value);
                           if (expected == one.values.end())
                             internalError("a reference has no value for {}", tap.name);
                           return expected->second;
                         });
    result.checks.push_back(check);
  }
}

/// The elements of one token of a cache, head by head.
static Tensor rowOf(const InputSpec &spec, const Tensor &cache, int64_t block, int64_t token) {
  CacheLayout layout(spec, cache);
  Tensor row(cache.type, {spec.heads, cache.shape.back()});
  for (int64_t head = 0; head < spec.heads; ++head)
    std::memcpy(row.mutableData() + head * layout.row, cache.data() + layout.at(block, head, token),
                size_t(layout.row));
  return row;
}

/// The first row of a cache that a program changed and should not have, or "". `written`: blocks and tokens.
static std::string strayWrite(const InputSpec &spec, const Tensor &before, const Tensor &after,
                              const std::set<std::pair<int64_t, int64_t>> &written) {
  CacheLayout layout(spec, before);
  for (int64_t block = 0; block < layout.blocks; ++block)
    for (int64_t head = 0; head < spec.heads; ++head)
      for (int64_t token = 0; token < layout.tokens; ++token) {
        int64_t at = layout.at(block, head, token);
        if (std::memcmp(before.data() + at, after.data() + at, size_t(layout.row)) == 0 ||
            written.count({block, token}))
          continue;
        std::string where = spec.page           ? fmt::format("page {}, ", block)
                            : spec.requests > 1 ? fmt::format("request {}, ", block)
                                                : "";
        return fmt::format("{}head {}, token {}", where, head, token);
      }
  return "";
}

/// Limits of an appended row: of what is appended, where the cache's type is coarser than those.
static Tolerance toleranceOfRow(attn::KvAppendOp append, llvm::StringRef part) {
  if (mlir::isa<mlir::Float8E4M3FNType>(append.getCache().getType().getElementType()))
    return toleranceFor(coarsestType(part == ".k" ? append.getK() : append.getV()));
  return toleranceFor(coarsestType(append.getResult()));
}

/// What a program did to the caches: appended rows have the reference's values, all others are as before.
void Verifier::checkRows(CaseResult &result, const TensorMap &outputs, const ReferenceRun &reference) {
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> written; // of each cache
  for (auto [index, row] : llvm::enumerate(reference.result.appended)) {
    if (row.slot < 0)
      continue;
    written[row.cache].insert({row.block(), row.token()});
    const InputSpec &spec =
        *llvm::find_if(specs, [&, name = row.cache](const InputSpec &one) { return one.name == name; });
    attn::KvAppendOp append = row.op;
    for (auto [part, values] :
         {std::pair(".k", &attn::AppendedRow::k), std::pair(".v", &attn::AppendedRow::v)}) {
      Tensor found = rowOf(spec, outputs.at(row.cache + part), row.block(), row.token());
      std::string request = spec.hasBlocks() ? fmt::format(" request {}", row.request) : "";
      Check check = {fmt::format("{}{}{} row {}", row.cache, part, request, row.slot),
                     found.shape,
                     {},
                     toleranceOfRow(append, part)};
      check.append = append;
      reference.compare(
          check, found, found.shape[1], ReferenceRun::Stored,
          [&, i = index, member = values](const attn::ReferenceResult &one) -> const std::vector<double> & {
            return one.appended[i].*member;
          });
      result.checks.push_back(check);
    }
  }
  for (const InputSpec &spec : specs) {
    if (!spec.isCache())
      continue;
    for (const std::string &name : {spec.name + ".k", spec.name + ".v"})
      if (std::string where =
              strayWrite(spec, reference.inputs.at(name), outputs.at(name), written[spec.name]);
          !where.empty())
        result.faults.push_back(fmt::format("{}: {} changed; nothing should write it", name, where));
  }
}

/// Whether the plan lets an operation add its partial sums in any order.
static bool sumsInAnyOrder(llvm::StringRef planText) {
  llvm::SmallVector<llvm::StringRef> lines;
  planText.split(lines, '\n');
  return llvm::any_of(lines, [](llvm::StringRef line) {
    return line.starts_with("op ") && line.contains("finish = atomic");
  });
}

/// Whether results are to have the same bits in every run.
bool Verifier::deterministic() const {
  return options.build.deterministic && !sumsInAnyOrder(plain.planText);
}

void Verifier::checkPlain(CaseResult &result, const TensorMap &outputs, const TensorMap &tappedOutputs,
                          const ReferenceRun &reference) {
  // Only what is wrong is listed: the values are those of the program with taps.
  if (!tappedOutputs.empty()) {
    CaseResult caches;
    checkRows(caches, outputs, reference);
    for (Check &check : caches.checks)
      if (!check.passed()) {
        check.name += " (without taps)";
        result.checks.push_back(check);
      }
    for (const std::string &fault : caches.faults)
      result.faults.push_back("without taps: " + fault);
  }
  unsigned index = 0;
  for (const runtime::TensorSpec &spec : plain.graph.tensors) {
    if (spec.role != runtime::Role::Output)
      continue;
    const Tensor &found = outputs.at(spec.name);
    mlir::Value value = graph.getReturn().getValues()[index];
    Check check = {spec.name, found.shape, {}, toleranceFor(coarsestType(value))};
    auto get = [&](const attn::ReferenceResult &one) -> const std::vector<double> & {
      return one.results.at(index);
    };
    auto tap = llvm::find_if(tapList, [&](const Tap &one) { return one.value == value; });
    if (tap != tapList.end())
      reference.compareTap(check, found, *tap, get);
    else // an argument, or a table of rotations
      reference.compare(check, found, found.shape.back(), ReferenceRun::Numbers, get);
    ++index;
    if (!check.passed())
      result.checks.push_back(check);
    auto other = tappedOutputs.find(spec.name);
    if (deterministic() && other != tappedOutputs.end() &&
        std::memcmp(found.data(), other->second.data(), found.bytes()) != 0)
      result.faults.push_back(fmt::format(
          "{} has other bits when the graph returns more values; --deterministic forbids it", spec.name));
  }
}

static std::string statusText(uint32_t bits) {
  std::string text;
  for (auto [bit, name] : {std::pair(1u, "length"), std::pair(2u, "slot"), std::pair(4u, "position"),
                           std::pair(8u, "page"), std::pair(16u, "start of queries")})
    if (bits & bit)
      text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "nothing" : text;
}

namespace {
/// Elements of appended rows that two references store with different bits.
struct RoundedApart {
  size_t ties = 0;   ///< the number is so close to the middle that the order of sums decides
  size_t others = 0; ///< one of the references rounds wrongly, or computed another number

  RoundedApart(const attn::ReferenceResult &first, const attn::ReferenceResult &second) {
    for (auto [one, other] : llvm::zip_equal(first.appended, second.appended)) {
      attn::KvAppendOp append = one.op;
      ElementKind kind = attn::elementKind(append.getCache().getType().getElementType());
      add(kind, one.k, one.kBytes, other.kBytes);
      add(kind, one.v, one.vBytes, other.vBytes);
    }
  }

private:
  void add(ElementKind kind, const std::vector<double> &numbers, const std::vector<uint8_t> &one,
           const std::vector<uint8_t> &other) {
    size_t bytes = elementSize(kind);
    for (size_t i = 0; i < numbers.size(); ++i)
      if (std::memcmp(&one[i * bytes], &other[i * bytes], bytes) != 0)
        ++(roundTo(kind, numbers[i] * (1 - 1e-9)) != roundTo(kind, numbers[i] * (1 + 1e-9)) ? ties : others);
  }
};
} // namespace

/// Whether a graph appends to a cache of so coarse a type that a number near a tie, rounded to the other
/// side, shows in all that is made of it: references then take the rows that the program has stored.
static bool storesCoarsely(attn::GraphOp graph) {
  auto found = graph.getBody().walk([](attn::KvAppendOp append) {
    bool coarse = mlir::isa<mlir::Float8E4M3FNType>(append.getCache().getType().getElementType());
    return coarse ? mlir::WalkResult::interrupt() : mlir::WalkResult::advance();
  });
  return found.wasInterrupted();
}

/// Asks the reference; `outputs`: of a program whose stored rows it takes, or null.
attn::ReferenceResult Verifier::evaluateFirst(const TensorMap &inputs, const TensorMap *outputs) {
  attn::ReferenceInputs given = referenceInputs(specs, inputs);
  if (outputs)
    given.stored = [&](attn::AppendedRow &row) {
      if (row.slot < 0)
        return;
      const InputSpec &spec =
          *llvm::find_if(specs, [&](const InputSpec &one) { return one.name == row.cache; });
      for (auto [part, bytes] : {std::pair(".k", &row.kBytes), std::pair(".v", &row.vBytes)}) {
        Tensor found = rowOf(spec, outputs->at(row.cache + part), row.block(), row.token());
        std::memcpy(bytes->data(), found.data(), bytes->size());
      }
    };
  auto evaluated = attn::evaluate(graph, given);
  if (mlir::failed(evaluated))
    compiler.fail(int(Exit::BadInput), "the reference cannot evaluate this graph");
  return std::move(*evaluated);
}

/// Asks the second reference. The caches are those that the program is given: it has not run yet. `stored`:
/// it takes the rows that the first reference was given.
void Verifier::evaluateSecond(CaseResult &result, ReferenceRun &reference, bool stored) {
  if (!deviceReference)
    return;
  llvm::ArrayRef<attn::AppendedRow> rows = reference.result.appended;
  reference.second =
      deviceReference->evaluate(plainLoaded.tensors->bindings(plain.graph, /*nativeWeights=*/true),
                                stored ? rows : llvm::ArrayRef<attn::AppendedRow>());
  if (reference.second->status != reference.result.status)
    result.faults.push_back(fmt::format("the references disagree on what is out of bound: {} and {}",
                                        statusText(reference.result.status),
                                        statusText(reference.second->status)));
  RoundedApart apart(reference.result, *reference.second);
  if (apart.others)
    result.faults.push_back(
        fmt::format("{} elements of the appended rows are rounded differently by the references: "
                    "one of them is wrong",
                    apart.others));
  if (apart.ties == 0)
    return;
  // What is computed from the rows differs by what one rounding explains.
  reference.between = toleranceFor(DType::f16);
  result.notes.push_back(fmt::format("{} element{} of the appended rows: the references round to different "
                                     "sides of a tie, so they are held to {:.0e} of each other",
                                     apart.ties, apart.ties == 1 ? "" : "s", reference.between.element));
}

/// The same rows, where two programs have written to the same caches.
static bool haveSameCaches(const std::vector<InputSpec> &specs, const TensorMap &ours,
                           const TensorMap &theirs) {
  return llvm::all_of(specs, [&](const InputSpec &spec) {
    auto isSame = [&](const char *part) {
      const Tensor &one = ours.at(spec.name + part), &other = theirs.at(spec.name + part);
      return std::memcmp(one.data(), other.data(), one.bytes()) == 0;
    };
    return !spec.isCache() || (isSame(".k") && isSame(".v"));
  });
}

CaseResult Verifier::check(size_t index) {
  CaseResult result;
  result.length = cases[index];
  TensorMap inputs = caseInputs(index);
  bool coarse = storesCoarsely(graph);
  ReferenceRun reference{inputs, attn::ReferenceResult()};
  if (!coarse)
    reference.result = evaluateFirst(inputs, nullptr);

  std::vector<Loaded *> all = {&plainLoaded};
  bool hasTapped = bool(tapped.simt) || !tapped.bundle.empty();
  if (hasTapped)
    all.push_back(&tappedLoaded);
  for (Loaded *loaded : all)
    prepare(*loaded, inputs);
  if (!coarse)
    evaluateSecond(result, reference, /*stored=*/false);
  launch(all, options.seed + index);
  TensorMap outputs = plainLoaded.tensors->outputs(plain.graph), tappedOutputs;
  if (hasTapped)
    tappedOutputs = tappedLoaded.tensors->outputs(tapped.graph);
  uint32_t status = plainLoaded.executable->takeStatus();
  const TensorMap &compared = hasTapped ? tappedOutputs : outputs;
  std::optional<ReferenceRun> ofPlain; // where the program without taps has stored other rows
  if (coarse) {
    prepare(plainLoaded, inputs); // caches as they were
    auto evaluate = [&](ReferenceRun &run, const TensorMap &from) {
      run.result = evaluateFirst(inputs, &from);
      evaluateSecond(result, run, /*stored=*/true);
    };
    evaluate(reference, compared);
    if (hasTapped && !haveSameCaches(specs, outputs, tappedOutputs))
      evaluate(ofPlain.emplace(ReferenceRun{inputs, attn::ReferenceResult()}), outputs);
  }
  if (mustAppend && std::none_of(reference.result.appended.begin(), reference.result.appended.end(),
                                 [](const attn::AppendedRow &row) { return row.slot >= 0; }))
    internalError("every request is idle at length {}: nothing would be compared", result.length);
  checkTaps(result, compared, reference);
  checkRows(result, compared, reference);
  checkPlain(result, outputs, tappedOutputs, ofPlain ? *ofPlain : reference);
  for (const auto &[name, tensor] : outputs)
    if (deterministic())
      result.bits[name] =
          runtime::digest64({reinterpret_cast<const char *>(tensor.data()), size_t(tensor.bytes())});
  if (status != reference.result.status)
    result.faults.push_back(fmt::format("the status word says out of bound: {}; it should say {}",
                                        statusText(status), statusText(reference.result.status)));
  if (auto broken = device.brokenGuard())
    result.faults.push_back("the program wrote outside of its buffers: " + *broken);
  return result;
}
