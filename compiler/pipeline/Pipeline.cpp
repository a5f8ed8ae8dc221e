//===- Pipeline.cpp - From a graph to cubins --------------------------------------===//
//
// attn graph → plan → kernels → simt → PTX → cubins. A source in the kernel
// dialect enters at the second arrow.
//
//===----------------------------------------------------------------------===//
#include "compiler/pipeline/Pipeline.h"
#include "compiler/emit/Assembler.h"
#include "compiler/emit/Emit.h"
#include "compiler/lower/AttnPlan.h"
#include "compiler/lower/AttnToKernel.h"
#include "compiler/lower/KernelLayout.h"
#include "compiler/lower/KernelPasses.h"
#include "compiler/pipeline/Manifest.h"
#include "compiler/pipeline/SharedLayout.h"
#include "compiler/plan/Planner.h"
#include "dialects/attn/Attn.h"
#include "dialects/kernel/Kernel.h"
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"
#include <chrono>

using namespace mlir;
using namespace cfc;

namespace {
constexpr int kBadInput = 2, kCannotRun = 3, kInternal = 4;

/// In the place of a plan, in bundles too.
constexpr const char *kHandwritten = "handwritten kernels: their plan is in them\n";

/// Adds the time since its construction to the list of `-v`.
class PhaseTimer {
public:
  PhaseTimer(const CompileOptions &options, std::string phase)
      : times(options.times), phase(std::move(phase)), start(std::chrono::steady_clock::now()) {}
  ~PhaseTimer() {
    if (times)
      times->push_back(
          {phase,
           std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count()});
  }

private:
  std::vector<std::pair<std::string, double>> *times;
  std::string phase;
  std::chrono::steady_clock::time_point start;
};

/// One compilation; each step fills in more of `result`.
class Compilation {
public:
  Compilation(const CompileOptions &options, int &exitCode) : options(options), exitCode(exitCode) {}
  LogicalResult run(ModuleOp source);
  CompiledGraph result;

private:
  LogicalResult checkTarget(ModuleOp source);
  LogicalResult planAndLower(attn::GraphOp graph);
  LogicalResult checkHandwritten(ModuleOp source);
  LogicalResult checkFits(kernel::FuncOp func);
  LogicalResult lowerToSimt(StringRef name);
  LogicalResult emit();
  LogicalResult fail(int code) { return exitCode = code, failure(); }
  LogicalResult fail(int code, const Twine &message) {
    emitError(UnknownLoc::get(result.attn ? result.attn->getContext() : result.kernel->getContext()))
        << message;
    return fail(code);
  }

  const CompileOptions &options;
  int &exitCode;
  std::string planHash = "handwritten";
  Machine machine;
};
} // namespace

LogicalResult Compilation::checkTarget(ModuleOp source) {
  std::optional<runtime::Target> target = runtime::parseTarget(options.target);
  auto at = UnknownLoc::get(source.getContext());
  if (!target)
    return emitError(at) << "unknown target '" << options.target << "': sm_90a is possible", fail(kBadInput);
  if (target->major < 9)
    return emitError(at) << "target " << options.target
                         << " has no clusters or bulk copies: sm_90a (compute capability 9.0) is required",
           fail(kCannotRun);
  if (options.target != "sm_90a")
    return emitError(at) << "target " << options.target << " is not supported: sm_90a is possible",
           fail(kCannotRun);
  return success();
}

/// The machine that the options name: a known name, a description, or the target's usual one.
static std::optional<Machine> machineOf(const CompileOptions &options, std::string &error) {
  StringRef text = options.machine;
  if (text.empty())
    return knownMachine("h200");
  if (text.ltrim().starts_with("{"))
    return parseMachine(text, "machine", error);
  return loadMachine(text, error);
}

LogicalResult Compilation::planAndLower(attn::GraphOp graph) {
  std::string error;
  PlanOptions planning;
  planning.deterministic = options.deterministic;
  planning.length = {options.length.value_or(planning.length.tokens), options.longest};
  planning.weights = options.weightLayout == "packed" ? Layout::Packed : Layout::Native;
  StringRef text = options.plan;
  if (text.consume_front("random:")) {
    uint64_t seed;
    if (text.getAsInteger(10, seed))
      return fail(kBadInput, "--plan=random:" + text + ": the seed is a number from 0 to 2^64 - 1");
    planning.randomSeed = seed;
  } else if (text != "auto") {
    planning.given = parsePlan(text, options.planName, error);
    if (!planning.given)
      return fail(kBadInput, error);
    if (!options.weightLayout.empty()) // who asks for both wants the plan with that layout
      for (KernelPlan &kernel : planning.given->kernels)
        kernel.weights = planning.weights;
  }
  FailureOr<Plan> plan = failure();
  {
    PhaseTimer timer(options, "plan");
    plan = planGraph(graph, machine, planning, exitCode);
    if (failed(plan))
      return failure();
  }
  result.planText = plan->print();
  planHash = plan->shortHash();
  if (options.last == Stage::Plan)
    return success();
  PhaseTimer timer(options, "attn to kernel");
  FailureOr<OwningOpRef<ModuleOp>> kernels = lowerToKernels(graph, *plan, exitCode);
  if (failed(kernels))
    return failure();
  result.kernel = std::move(*kernels);
  for (auto func : result.kernel->getOps<kernel::FuncOp>())
    func.setSymName((func.getSymName() + "_" + planHash).str());
  return success();
}

/// Says which tensors tell what of a cache is in use, where it is one of each kind for all attentions.
static void describeUses(runtime::TensorSpec &cache, const TensorInfo &info,
                         const llvm::DenseMap<Value, std::string> &names) {
  for (const auto *values : {&info.lengths, &info.slots, &info.blockTables})
    if (values->size() > 1 || (!values->empty() && !names.contains(values->front())))
      return;
  for (auto [values, name] : {std::pair(&info.lengths, &cache.lengths),
                              {&info.slots, &cache.slots},
                              {&info.blockTables, &cache.blockTable}})
    if (!values->empty())
      *name = names.lookup(values->front());
}

/// Requests that a graph serves: as many as it has lengths, else rows.
static int64_t batchOf(attn::GraphOp graph) {
  for (Type type : graph.getArgumentTypes())
    if (auto lengths = dyn_cast<attn::LengthsType>(type))
      return lengths.getCount();
  auto result = dyn_cast<RankedTensorType>(graph.getResultTypes().front());
  return result ? result.getDimSize(0) : 1;
}

/// Shapes, roles and bounds as the graph has them; kernels know tensors as flat memory.
static void describeAsInGraph(runtime::GraphSpec &spec, attn::GraphOp graph) {
  spec.batch = batchOf(graph);
  std::map<std::string, TensorInfo> infos;
  llvm::DenseMap<Value, std::string> names;
  for (TensorInfo &info : tensorsOf(graph)) {
    infos.emplace(info.name, info);
    names.try_emplace(info.value, info.name); // an argument may be returned too
  }
  for (runtime::TensorSpec &tensor : spec.tensors) {
    auto it = infos.find(tensor.name);
    if (it == infos.end())
      continue;
    const TensorInfo &info = it->second;
    tensor.shape.assign(info.shape.begin(), info.shape.end());
    tensor.pages = info.pages;
    describeUses(tensor, info, names);
    if (info.bound && info.role == "input")
      tensor.bound = info.bound;
    if (info.role == "generated")
      tensor.rope = info.rope;
    tensor.role = info.role == "input"    ? runtime::Role::Input
                  : info.role == "weight" ? runtime::Role::Weight
                  : info.role == "inout"  ? runtime::Role::InOut
                  : info.role == "output" ? runtime::Role::Output
                                          : runtime::Role::Input; // a generated table: whoever binds makes it
  }
}

/// A file of kernels holds nothing else, and leaves the producer to the compiler.
LogicalResult Compilation::checkHandwritten(ModuleOp source) {
  for (Operation &op : *source.getBody())
    if (!isa<kernel::FuncOp>(op))
      return op.emitError("a file of kernels holds kernel.funcs only"), fail(kBadInput);
  WalkResult found = source.walk([](Operation *op) -> WalkResult {
    if (!isa<kernel::ProducerOp, kernel::FeedOp>(op))
      return WalkResult::advance();
    return op->emitOpError("is what the compiler makes of the kernel's loads: leave it out");
  });
  return found.wasInterrupted() ? fail(kBadInput) : success();
}

/// The shared memory and the cluster of a kernel are there on the machine.
LogicalResult Compilation::checkFits(kernel::FuncOp func) {
  FailureOr<int64_t> shared = kernel::sharedBytes(func);
  if (failed(shared))
    return fail(kBadInput);
  int64_t perSm = func.planValue("ctas_per_sm", 1), limit = machine.sharedLimit(perSm);
  if (*shared > limit)
    return func.emitError() << "needs " << *shared << " bytes of shared memory a CTA (required); with "
                            << perSm << " a multiprocessor " << machine.name << " has " << limit
                            << " (limit): take smaller tiles or fewer ring_stages",
           fail(kCannotRun);
  if (!machine.resident(func.clusterSize(), 1))
    return func.emitError() << "needs clusters of " << func.clusterSize() << " CTAs with " << *shared
                            << " bytes of shared memory each (required); " << machine.name << " holds up to "
                            << machine.largestCluster(1) << " CTAs with up to " << limit << " (limit)",
           fail(kCannotRun);
  return success();
}

/// Room behind the workspace for the marks of time that kernels leave.
static void placeMarks(ModuleOp kernels) {
  Builder b(kernels.getContext());
  auto bytes = kernels->getAttrOfType<IntegerAttr>("kernel.workspace_bytes");
  int64_t at = llvm::alignTo(bytes ? bytes.getInt() : 0, 256);
  for (auto func : kernels.getOps<kernel::FuncOp>()) {
    func->setAttr(kernel::kProfileAttr, b.getI64IntegerAttr(at));
    at += 8 * kernel::kMaxMarks * kernel::usefulClusters(func) * func.clusterSize();
  }
  kernels->setAttr("kernel.workspace_bytes", b.getI64IntegerAttr(at));
}

LogicalResult Compilation::lowerToSimt(StringRef name) {
  PhaseTimer timer(options, "kernel to simt");
  MLIRContext *context = result.kernel->getContext();
  PassManager storage(context);
  storage.addPass(kernel::createKernelAssignStorage());
  if (failed(storage.run(*result.kernel)))
    return fail(kBadInput);
  if (options.profile)
    placeMarks(*result.kernel);
  for (auto func : result.kernel->getOps<kernel::FuncOp>())
    if (failed(checkFits(func)))
      return failure();
  if (failed(verifyLayouts(*result.kernel)))
    return fail(kBadInput);
  runtime::GraphSpec graph = describeKernels(*result.kernel, name);
  if (result.attn)
    describeAsInGraph(graph, *result.attn->getOps<attn::GraphOp>().begin());

  if (failed(shareWorkspace(*result.kernel, options.shared.zeroBytes)))
    return fail(kInternal);
  graph.workspace = describeWorkspace(*result.kernel);
  result.simt = result.kernel->clone();
  placeMaps(*result.simt, graph, options.shared.maps);
  PassManager lowering(context);
  lowering.addPass(kernel::createKernelOutlineProducer());
  lowering.addPass(kernel::createKernelToSimt());
  lowering.addPass(createCSEPass());
  lowering.addPass(createCanonicalizerPass());
  if (failed(lowering.run(*result.simt)))
    return fail(kCannotRun);
  if (failed(verify(*result.simt)))
    return fail(kInternal);
  graph.maps = describeMaps(*result.simt, graph);
  graph.variants.push_back({planHash, describeLaunches(*result.simt), {}, {}});
  result.manifest.compiler = CFC_VERSION;
  result.manifest.target = options.target;
  result.manifest.simtDigest = digestOf(*result.simt);
  result.manifest.graphs.push_back(std::move(graph));
  return success();
}

LogicalResult Compilation::emit() {
  EmitOptions emission;
  emission.target = options.target;
  emission.times = options.times;
  if (options.last == Stage::Llvm) {
    auto text = emitLlvm(*result.simt, emission);
    if (!text)
      return fail(kInternal, llvm::toString(text.takeError()));
    result.llvm = std::move(*text);
    return success();
  }
  auto ptx = emitPtx(*result.simt, emission);
  if (!ptx)
    return fail(kInternal, llvm::toString(ptx.takeError()));
  result.ptx = std::move(*ptx);
  int version = requiredPtxVersion(*result.simt);
  result.manifest.ptx = llvm::formatv("{0}.{1}", version / 10, version % 10).str();
  if (options.last == Stage::Ptx)
    return success();

  PhaseTimer timer(options, "ptxas");
  AssemblerOptions assembly;
  assembly.ptxas = options.ptxas;
  assembly.target = options.target;
  assembly.ptxVersion = version;
  auto assembler = Assembler::find(assembly);
  if (auto *why = std::get_if<EmitFailure>(&assembler))
    return fail(why->exitCode, why->message);
  const auto &found = std::get<Assembler>(assembler);
  auto cubins = found.assemble({{result.manifest.graphs.front().name, result.ptx}});
  if (auto *why = std::get_if<EmitFailure>(&cubins))
    return fail(why->exitCode, why->message);
  result.cubins = std::get<std::vector<std::string>>(std::move(cubins));
  result.manifest.ptxas = found.version();
  // Cubins of a CUDA release load on every driver of its major version.
  result.manifest.driverMin = std::stoi(found.version()) * 1000;
  // Captured graphs know programmatic launches since CUDA 12.3.
  for (const runtime::KernelSpec &kernel : result.manifest.graphs.front().variants.front().kernels)
    if (kernel.pdl)
      result.manifest.driverMin = std::max(result.manifest.driverMin, 12030);
  return success();
}

LogicalResult Compilation::run(ModuleOp source) {
  if (failed(checkTarget(source)))
    return failure();
  auto graphs = llvm::to_vector(source.getOps<attn::GraphOp>());
  auto kernels = llvm::to_vector(source.getOps<kernel::FuncOp>());
  if (graphs.empty() == kernels.empty())
    return emitError(source.getLoc()) << "expected one attn.graph or some kernel.funcs", fail(kBadInput);
  std::string name, error;
  std::optional<Machine> named = machineOf(options, error);
  if (!named)
    return fail(kBadInput, error);
  machine = *named;
  if (!graphs.empty()) {
    if (failed(attn::verifyGraphFile(source)))
      return fail(kBadInput);
    result.attn = source.clone();
    name = graphs.front().getSymName();
    if (failed(planAndLower(*result.attn->getOps<attn::GraphOp>().begin())))
      return failure();
  } else {
    if (failed(checkHandwritten(source)))
      return failure();
    result.kernel = source.clone();
    name = kernels.front().getSymName();
    result.planText = kHandwritten;
    if (!options.weightLayout.empty())
      return fail(kBadInput,
                  "--weight-layout is for graphs: handwritten kernels say how they read their weights");
    if (options.plan != "auto" && options.plan != kHandwritten)
      return fail(kBadInput, "--plan is for graphs: handwritten kernels have their plan in them");
  }
  if (options.last == Stage::Plan || options.last == Stage::Kernel)
    return success();
  if (failed(lowerToSimt(name)))
    return failure();
  return options.last == Stage::Simt ? success() : emit();
}

FailureOr<CompiledGraph> cfc::compile(ModuleOp source, const CompileOptions &options, int &exitCode) {
  exitCode = kInternal;
  Compilation compilation(options, exitCode);
  if (failed(compilation.run(source)))
    return failure();
  exitCode = 0;
  return std::move(compilation.result);
}

void cfc::registerPipelineDialects(DialectRegistry &registry) {
  registry.insert<attn::AttnDialect, kernel::KernelDialect, simt::SimtDialect, arith::ArithDialect,
                  math::MathDialect, scf::SCFDialect>();
}
