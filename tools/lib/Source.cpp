//===- Source.cpp - The GRAPH or BUNDLE that a command is given -----------===//
#include "tools/lib/Source.h"
#include "compiler/lower/AttnToKernel.h"
#include "compiler/pipeline/Pipeline.h"
#include "dialects/attn/Attn.h"
#include "mlir/Parser/Parser.h"
#include "tools/lib/Dialects.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include "tools/lib/Session.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <filesystem>

using namespace cfc;
using namespace mlir;

Compiler::Compiler() {
  DialectRegistry registry;
  registerDialects(registry);
  registerPipelineDialects(registry);
  mlirContext = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  mlirContext->printOpOnDiagnostic(false);
  handler = std::make_unique<SourceMgrDiagnosticHandler>(sources, mlirContext.get(), llvm::errs());
}

Compiler::~Compiler() = default;

void Compiler::fail(int exitCode, const std::string &summary) const {
  throw Failure(Exit(exitCode), "", summary);
}

/// MLIR's parser recurses: text that nests far deeper than any program is refused before it can exhaust the
/// stack.
static void checkNesting(std::string_view text, const std::string &name) {
  constexpr int limit = 200;
  int depth = 0, line = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\n')
      ++line;
    else if (c == '/' && i + 1 < text.size() && text[i + 1] == '/')
      i = std::min(text.find('\n', i), text.size()) - 1;
    else if (c == '(' || c == '[' || c == '{' || c == '<')
      ++depth;
    else if (c == ')' || c == ']' || c == '}' || (c == '>' && (i == 0 || text[i - 1] != '-')))
      --depth;
    if (depth > limit)
      badInput(fmt::format("{}:{}", name, line), "brackets are nested deeper than {} levels", limit);
  }
}

OwningOpRef<ModuleOp> Compiler::parse(std::string text, const std::string &name) {
  if (text.find('\0') != std::string::npos)
    badInput(name, "is neither a graph nor a bundle: it holds bytes that are no text");
  checkNesting(text, name);
  // The handler finds lines by buffer; each parse has buffers of its own.
  auto manager = std::make_shared<llvm::SourceMgr>();
  manager->AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text, name), llvm::SMLoc());
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text, name), llvm::SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(manager, ParserConfig(mlirContext.get()));
  if (!module)
    fail(int(Exit::BadInput), name + " could not be read");
  bool hasGraph = !module->getOps<attn::GraphOp>().empty();
  if (hasGraph && failed(attn::verifyGraphFile(*module)))
    fail(int(Exit::BadInput), name + " is not a valid graph");
  if (module->getBody()->empty())
    badInput(name, "is empty: a graph file holds one attn.graph");
  return module;
}

attn::GraphOp Source::graph() const {
  ModuleOp file = module.get();
  auto graphs = file.getOps<attn::GraphOp>();
  return graphs.empty() ? attn::GraphOp() : *graphs.begin();
}

std::string Source::stem() const { return std::filesystem::path(path).stem().string(); }

Source cfc::readSource(Compiler &compiler, const std::string &path) {
  Source source;
  source.path = path;
  if (runtime::looksLikeBundle(path)) {
    source.bundle = runtime::loadBundle(path);
    source.text = source.bundle->graphText();
    source.module = compiler.parse(source.text, path + " (graph)");
    return source;
  }
  source.text = path == "-" ? readStandardInput() : std::string(MappedFile::open(path)->text());
  if (path.ends_with(".cfk"))
    badInput(path, "is not a bundle: it does not begin with CFCBNDL; was it cut or garbled?");
  source.module = compiler.parse(source.text, path);
  return source;
}

std::string cfc::moduleText(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream);
  stream << '\n';
  return text;
}

//===----------------------------------------------------------------------===//
// What the inputs are for
//===----------------------------------------------------------------------===//

/// The role that a graph's argument has by its uses.
static DataRole roleOf(Value argument) {
  if (isa<attn::KvCacheType>(argument.getType()))
    return DataRole::Cache;
  if (isa<attn::LengthsType>(argument.getType()))
    return DataRole::Length;
  for (OpOperand &use : argument.getUses()) {
    Operation *op = use.getOwner();
    if (auto norm = dyn_cast<attn::RmsNormOp>(op); norm && norm.getGain() == argument)
      return DataRole::Gain;
    if (auto linear = dyn_cast<attn::LinearOp>(op)) {
      if (llvm::is_contained(linear.getWeights(), argument))
        return DataRole::Weight;
      if (llvm::is_contained(linear.getBiases(), argument))
        return DataRole::Bias;
    }
    if (auto rope = dyn_cast<attn::RopeOp>(op)) {
      if (rope.getTable() == argument)
        return DataRole::RopeTable;
      if (rope.getPos() == argument)
        return DataRole::Position;
    }
    if (auto append = dyn_cast<attn::KvAppendOp>(op); append && append.getSlot() == argument)
      return DataRole::Slot;
  }
  return DataRole::Activation;
}

std::vector<InputSpec> cfc::inputSpecs(const Source &source, const runtime::GraphSpec &graph) {
  std::map<std::string, DataRole> roles;
  std::map<std::string, double> bases; // of generated tables
  if (attn::GraphOp op = source.graph()) {
    for (BlockArgument argument : op.getBody().getArguments())
      roles[op.getArgName(argument.getArgNumber()).str()] = roleOf(argument);
    for (const TensorInfo &tensor : tensorsOf(op))
      if (tensor.role == "generated")
        bases[tensor.name] = tensor.base;
  }
  std::vector<InputSpec> specs;
  for (const runtime::TensorSpec &tensor : graph.tensors) {
    if (tensor.role == runtime::Role::Output)
      continue;
    InputSpec spec;
    spec.name = tensor.name;
    spec.type = dtypeOf(tensor.dtype);
    spec.shape = tensor.shape;
    spec.heads = tensor.heads;
    spec.dim = tensor.dim;
    spec.bound = tensor.bound;
    if (auto base = bases.find(tensor.name); base != bases.end())
      spec.base = base->second;
    auto role = roles.find(tensor.name);
    if (tensor.kind == runtime::TensorKind::KvCache)
      spec.role = DataRole::Cache;
    else if (role != roles.end())
      spec.role = role->second;
    specs.push_back(std::move(spec));
  }
  return specs;
}
