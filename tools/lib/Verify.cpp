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

  /// Compares what was found with both. `get` finds the value in a result; `row`, `byRow`: see compare.
  template <typename Get>
  void compare(Check &check, const Tensor &found, int64_t row, bool byRow, bool isLog, Get get) const;
};
} // namespace cfc

bool CaseResult::passed() const {
  return faults.empty() && std::all_of(checks.begin(), checks.end(), [](auto &c) { return c.passed(); });
}

template <typename Get>
void ReferenceRun::compare(Check &check, const Tensor &found, int64_t row, bool byRow, bool isLog,
                           Get get) const {
  auto distance = [&](const std::vector<double> &expected, const Tensor &values, Tolerance tolerance) {
    return isLog ? compareLogs(expected, values, tolerance)
                 : cfc::compare(expected, values, row, byRow, tolerance);
  };
  const std::vector<double> &first = get(result);
  check.comparison = distance(first, found, check.tolerance);
  if (!second)
    return;
  const std::vector<double> &other = get(*second);
  Tensor values(DType::f64, check.shape);
  std::copy(other.begin(), other.end(), values.as<double>());
  Comparison apart = distance(first, values, between);
  check.second = {distance(other, found, check.tolerance), apart.largest, apart.passed};
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
  BuildOptions build = source.bundle ? optionsOf(*source.bundle, options.build) : options.build;
  build.plan = planFor(plain.planText, tappedGraph);
  tapped = makeProgram(compiler, *tappedModule, build, device);
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// Positions that every rope table of the graph has.
static int64_t positionsOf(attn::GraphOp graph) {
  int64_t positions = INT32_MAX;
  graph.getBody().walk([&](attn::RopeOp op) {
    positions = std::min<int64_t>(positions, op.getTable().getType().getDimSize(0));
  });
  return positions;
}

/// Whether the input differs from case to case, or is changed by a launch.
static bool changes(const InputSpec &spec) {
  return spec.isCache() || spec.role == DataRole::Length || spec.role == DataRole::Slot ||
         spec.role == DataRole::Position;
}

/// The lengths that the command line gives, by the names of their tensors.
static TensorMap givenLengths(const std::vector<InputSpec> &specs, const InputOptions &given, uint64_t seed) {
  std::vector<InputSpec> found;
  InputOptions options;
  for (const std::string &text : given.inputs) {
    std::vector<std::string> name = namedInputs({{text}, ""});
    for (const InputSpec &spec : specs)
      if (spec.role == DataRole::Length && !name.empty() && name[0] == spec.name) {
        found.push_back(spec);
        options.inputs.push_back(text);
      }
  }
  return found.empty() ? TensorMap() : resolveInputs(found, options, {seed, 0, 0});
}

/// Tokens that the smallest cache has room for.
int64_t Verifier::capacity() const {
  int64_t tokens = INT64_MAX;
  for (const InputSpec &spec : specs)
    if (spec.isCache())
      tokens = std::min(tokens, fixed.at(spec.name + ".k").shape[1]);
  return tokens;
}

/// A slot that the user does not give is that of a row behind the length: there must be one, else the
/// request would be idle, and an idle request shows nothing.
void Verifier::requireRoom() {
  bool hasSlot = std::any_of(specs.begin(), specs.end(), [&](const InputSpec &spec) {
    return spec.role == DataRole::Slot && std::find(named.begin(), named.end(), spec.name) == named.end();
  });
  if (!hasSlot)
    return;
  mustAppend = true;
  int64_t tokens = capacity();
  if (!options.lengthsGiven && !lengthIsNamed)
    std::erase_if(cases, [&](int64_t length) { return length >= tokens; });
  for (int64_t length : cases)
    if (std::clamp<int64_t>(length, 0, bound) >= tokens)
      badInput("",
               "the given cache has room for {} tokens: none is left for the new one behind a length of {}",
               tokens, length);
}

void Verifier::makeInputs() {
  specs = inputSpecs(*source.module, plain.graph);
  std::string lengthName;
  for (const InputSpec &spec : specs)
    if (spec.role == DataRole::Length) {
      bound = std::min(bound, spec.bound.value_or(INT32_MAX));
      lengthName = spec.name;
    }
  for (int64_t length : options.lengths) {
    if (length < 0 || length > bound)
      badInput("", "--len={}: this graph's lengths go from 0 to {}", length, bound);
    cases.push_back(length);
  }
  bool hasLength = !lengthName.empty();
  if (!options.lengthsGiven)
    std::erase_if(cases, [&](int64_t length) { return length > bound; });
  if (!hasLength)
    cases = {0}; // nothing depends on a length
  named = namedInputs(options.inputs);
  lengthIsNamed = std::find(named.begin(), named.end(), lengthName) != named.end();
  if (lengthIsNamed && options.lengthsGiven)
    badInput("", "--len and --input {} both give the lengths", lengthName);
  TensorMap lengths = givenLengths(specs, options.inputs, options.seed);
  if (lengthIsNamed)
    cases = {int64_t(lengths.at(lengthName).get(0))};
  int64_t longest = *std::max_element(cases.begin(), cases.end());
  for (auto &[name, tensor] : lengths)
    for (int64_t i = 0; i < tensor.elements(); ++i)
      longest = std::max(longest, int64_t(tensor.get(i)));
  InputOptions inputs = options.inputs;
  if (std::find(inputs.inputs.begin(), inputs.inputs.end(), "random") == inputs.inputs.end())
    inputs.inputs.push_back("random");
  // Rows behind the largest length, so that slots can differ from lengths.
  fixed = resolveInputs(specs, inputs, {options.seed, 0, std::clamp<int64_t>(longest, 0, bound) + 4});
  for (auto &[name, tensor] : fixed)
    tensor = inLayout(tensor, std::nullopt); // as the reference reads it
  requireRoom();
  TensorMap same;
  for (const InputSpec &spec : specs)
    if (!changes(spec))
      same[spec.name] = fixed.at(spec.name);
  unchanging.upload(same, plain.graph);
  if (deviceReference)
    unchanging.upload(same); // it reads native weights
}

TensorMap Verifier::caseInputs(size_t index) const {
  TensorMap inputs = fixed;
  int64_t length = cases[index];
  int64_t used = std::clamp<int64_t>(length, 0, bound); // a given length may be out of bound
  // In every other case position, slot and length differ, so that none can be taken for another.
  int64_t shift = index % 2;
  auto isNamed = [&](const std::string &name) {
    return std::find(named.begin(), named.end(), name) != named.end();
  };
  auto set = [&](const std::string &name, int64_t value) {
    Tensor tensor(inputs.at(name).type, inputs.at(name).shape);
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, double(value));
    inputs.at(name) = tensor;
  };
  for (const InputSpec &spec : specs) {
    if (!spec.isCache() && isNamed(spec.name))
      continue;
    if (spec.role == DataRole::Length)
      set(spec.name, length);
    else if (spec.role == DataRole::Slot)
      set(spec.name, std::min(used + 2 * shift, capacity() - 1));
    else if (spec.role == DataRole::Position)
      set(spec.name, std::min(used + 3 * shift, positionsOf(graph) - 1));
    if (!spec.isCache())
      continue;
    for (const std::string &name : {spec.name + ".k", spec.name + ".v"}) {
      // A copy, because the program appends to it. What lies behind the length must not be read: it is NaN.
      const Tensor &source = fixed.at(name);
      Tensor copy(source.type, source.shape);
      std::memcpy(copy.mutableData(), source.data(), source.bytes());
      int64_t rows = std::min(used, source.shape[1]);
      if (!isNamed(name) && !isNamed(spec.name))
        for (int64_t head = 0; head < source.shape[0]; ++head)
          std::fill(copy.as<uint16_t>() + (head * source.shape[1] + rows) * source.shape[2],
                    copy.as<uint16_t>() + (head + 1) * source.shape[1] * source.shape[2], uint16_t(0x7ffb));
      inputs.at(name) = copy;
    }
  }
  return inputs;
}

static attn::HostTensor hostTensor(const Tensor &tensor) {
  attn::HostTensor host;
  host.dtype = *parseElementKind(nameOf(tensor.type));
  host.shape.assign(tensor.shape.begin(), tensor.shape.end());
  host.data = tensor.data();
  return host;
}

attn::ReferenceInputs cfc::referenceInputs(const std::vector<InputSpec> &specs, const TensorMap &inputs) {
  attn::ReferenceInputs result;
  for (const InputSpec &spec : specs) {
    if (!spec.isCache()) {
      result.tensors[spec.name] = hostTensor(inputs.at(spec.name));
      continue;
    }
    const Tensor &k = inputs.at(spec.name + ".k"), &v = inputs.at(spec.name + ".v");
    attn::HostCache cache;
    cache.k = k.data();
    cache.v = v.data();
    cache.capacity = k.shape[1];
    cache.strideToken = k.shape[2] * int64_t(sizeOf(k.type));
    cache.strideHead = cache.capacity * cache.strideToken;
    result.caches[spec.name] = cache;
  }
  return result;
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
    else if (changes(spec))
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
    reference.compare(check, outputs.at(tap.result), tap.row, tap.byRow, tap.isLog,
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
static Tensor rowOf(const Tensor &cache, int64_t slot) {
  Tensor row(cache.type, {cache.shape[0], cache.shape[2]});
  size_t bytes = size_t(cache.shape[2]) * sizeOf(cache.type);
  for (int64_t head = 0; head < cache.shape[0]; ++head)
    std::memcpy(row.mutableData() + size_t(head) * bytes,
                cache.data() + size_t(head * cache.shape[1] + slot) * bytes, bytes);
  return row;
}

/// What a program did to the caches: appended rows have the reference's values, all others are as before.
void Verifier::checkRows(CaseResult &result, const TensorMap &outputs, const ReferenceRun &reference) {
  std::map<std::string, std::vector<int64_t>> slots; // of each cache
  for (auto [index, row] : llvm::enumerate(reference.result.appended)) {
    if (row.slot < 0)
      continue;
    slots[row.cache].push_back(row.slot);
    attn::KvAppendOp append = row.op;
    for (auto [part, values] :
         {std::pair(".k", &attn::AppendedRow::k), std::pair(".v", &attn::AppendedRow::v)}) {
      Tensor found = rowOf(outputs.at(row.cache + part), row.slot);
      Check check = {fmt::format("{}{} row {}", row.cache, part, row.slot),
                     found.shape,
                     {},
                     toleranceFor(coarsestType(append.getResult()))};
      reference.compare(
          check, found, found.shape[1], false, false,
          [&, i = index, member = values](const attn::ReferenceResult &one) -> const std::vector<double> & {
            return one.appended[i].*member;
          });
      result.checks.push_back(check);
    }
  }
  for (const InputSpec &spec : specs) {
    if (!spec.isCache())
      continue;
    for (const std::string &name : {spec.name + ".k", spec.name + ".v"}) {
      const Tensor &before = reference.inputs.at(name), &after = outputs.at(name);
      size_t bytes = size_t(before.shape[2]) * sizeOf(before.type);
      for (int64_t row = 0; row < before.shape[0] * before.shape[1]; ++row) {
        int64_t token = row % before.shape[1];
        auto &written = slots[spec.name];
        if (std::find(written.begin(), written.end(), token) != written.end())
          continue;
        if (std::memcmp(before.data() + size_t(row) * bytes, after.data() + size_t(row) * bytes, bytes) !=
            0) {
          result.faults.push_back(fmt::format("{}: head {}, token {} changed; nothing should write it", name,
                                              row / before.shape[1], token));
          break;
        }
      }
    }
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
    reference.compare(check, found, found.shape.back(), false, isLogSumExp(value),
                      [&](const attn::ReferenceResult &one) -> const std::vector<double> & {
                        return one.results.at(index);
                      });
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
  for (auto [bit, name] : {std::pair(1u, "length"), std::pair(2u, "slot"), std::pair(4u, "position")})
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

/// Asks the second reference. The program has not run yet: it would append to the caches.
void Verifier::evaluateSecond(CaseResult &result, ReferenceRun &reference) {
  if (!deviceReference)
    return;
  reference.second =
      deviceReference->evaluate(plainLoaded.tensors->bindings(plain.graph, /*nativeWeights=*/true));
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

CaseResult Verifier::check(size_t index) {
  CaseResult result;
  result.length = cases[index];
  TensorMap inputs = caseInputs(index);
  auto evaluated = attn::evaluate(graph, referenceInputs(specs, inputs));
  if (mlir::failed(evaluated))
    compiler.fail(int(Exit::BadInput), "the reference cannot evaluate this graph");
  ReferenceRun reference = {inputs, std::move(*evaluated)};
  if (mustAppend && std::none_of(reference.result.appended.begin(), reference.result.appended.end(),
                                 [](const attn::AppendedRow &row) { return row.slot >= 0; }))
    internalError("every request is idle at length {}: nothing would be compared", result.length);

  std::vector<Loaded *> all = {&plainLoaded};
  bool hasTapped = bool(tapped.simt) || !tapped.bundle.empty();
  if (hasTapped)
    all.push_back(&tappedLoaded);
  for (Loaded *loaded : all)
    prepare(*loaded, inputs);
  evaluateSecond(result, reference);
  launch(all, options.seed + index);
  TensorMap outputs = plainLoaded.tensors->outputs(plain.graph), tappedOutputs;
  if (hasTapped)
    tappedOutputs = tappedLoaded.tensors->outputs(tapped.graph);
  checkTaps(result, hasTapped ? tappedOutputs : outputs, reference);
  checkRows(result, hasTapped ? tappedOutputs : outputs, reference);
  checkPlain(result, outputs, tappedOutputs, reference);
  for (const auto &[name, tensor] : outputs)
    if (deterministic())
      result.bits[name] =
          runtime::digest64({reinterpret_cast<const char *>(tensor.data()), size_t(tensor.bytes())});
  uint32_t status = plainLoaded.executable->takeStatus();
  if (status != reference.result.status)
    result.faults.push_back(fmt::format("the status word says out of bound: {}; it should say {}",
                                        statusText(status), statusText(reference.result.status)));
  if (auto broken = device.brokenGuard())
    result.faults.push_back("the program wrote outside of its buffers: " + *broken);
  return result;
}
