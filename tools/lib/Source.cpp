//===- Source.cpp - The GRAPH or BUNDLE that a command is given -----------===//
#include "tools/lib/Source.h"
#include "compiler/lower/AttnToKernel.h"
#include "compiler/pipeline/Pipeline.h"
#include "dialects/attn/Attn.h"
#include "mlir/Parser/Parser.h"
#include "tools/lib/Dialects.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include "tools/lib/Roles.h"
#include "tools/lib/Session.h"
#include "tools/lib/Settings.h"
#include "tools/lib/Suggest.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <filesystem>
#include <fmt/ranges.h>

using namespace cfc;
using namespace mlir;

static std::string severityText(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Error:
    return "error: ";
  case DiagnosticSeverity::Warning:
    return "warning: ";
  default:
    return "note: ";
  }
}

Compiler::Compiler() {
  DialectRegistry registry;
  registerDialects(registry);
  registerPipelineDialects(registry);
  mlirContext = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  mlirContext->printOpOnDiagnostic(false);
  handler = std::make_unique<SourceMgrDiagnosticHandler>(sources, mlirContext.get(), llvm::errs());
  counter = std::make_unique<ScopedDiagnosticHandler>(mlirContext.get(), [this](Diagnostic &diagnostic) {
    errors += diagnostic.getSeverity() == DiagnosticSeverity::Error;
    // A graph is checked where it is read, compiled, and made for each batch.
    if (diagnostic.getSeverity() == DiagnosticSeverity::Warning && !warnings.insert(diagnostic.str()).second)
      return success();
    if (!isa<UnknownLoc>(diagnostic.getLocation()))
      return failure(); // the other handler shows the line
    std::string text = diagnostic.str();
    // A plan's or a machine's error says `file:line:column: error:` itself.
    bool complete = StringRef(text).starts_with("error: ") || StringRef(text).contains(": error: ");
    if (!complete)
      text = severityText(diagnostic.getSeverity()) + text;
    llvm::errs() << text << '\n';
    return success();
  });
}

Compiler::~Compiler() = default;

void Compiler::fail(int exitCode, const std::string &summary) const {
  throw errors ? Failure(Exit(exitCode), "") : Failure(Exit(exitCode), "", summary);
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

/// A rope of two values of which one is not needed becomes a rope of the other.
static void eraseUnusedHalf(attn::RopeOp rope) {
  if (rope.getValues().size() != 2 || llvm::none_of(rope.getResults(), [](Value v) { return v.use_empty(); }))
    return;
  unsigned kept = rope.getResult(0).use_empty() ? 1 : 0;
  OpBuilder builder(rope);
  OperationState state(rope.getLoc(), rope->getName());
  state.addOperands({rope.getValues()[kept], rope.getTable(), rope.getPos()});
  state.addTypes(rope.getResult(kept).getType());
  state.addAttributes(rope->getAttrs());
  Operation *one = builder.create(state);
  // The name of one of a group (%r#1) is no name by itself.
  std::string name = attn::getValueName(rope.getResult(kept));
  if (name.find('#') != std::string::npos)
    name.clear();
  attn::setValueNames(one, name);
  rope.getResult(kept).replaceAllUsesWith(one->getResult(0));
  rope.erase();
}

/// Operations whose results nobody needs, and values that a rope rotates for nobody, go: no kernel computes
/// them, so nobody must be asked for their inputs.
static void eraseUnused(attn::GraphOp graph) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(graph.getBody().front()))) {
    if (isa<attn::ReturnOp, attn::KvAppendOp>(op))
      continue;
    if (op.use_empty())
      op.erase();
    else if (auto rope = dyn_cast<attn::RopeOp>(op))
      eraseUnusedHalf(rope);
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
  for (auto graph : module->getOps<attn::GraphOp>())
    eraseUnused(graph);
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

/// Text that somebody may have written; more is a file of another kind.
static constexpr size_t kMaxGraphBytes = size_t(64) << 20;

/// Of a bundle the graph of that name, with its text.
static void chooseGraph(Source &source, const std::string &name) {
  const runtime::Bundle &bundle = *source.bundle;
  std::vector<std::string> names;
  for (const runtime::GraphSpec &graph : bundle.manifest.graphs)
    names.push_back(graph.name);
  if (name.empty() && names.size() > 1)
    badInput(source.path, "has {} graphs; name one by --graph: {}", names.size(), fmt::join(names, ", "));
  source.graphName = name.empty() ? names.front() : name;
  if (std::find(names.begin(), names.end(), source.graphName) == names.end())
    badInput(source.path, "has no graph \"{}\"{}; there {} {}", name, didYouMean(name, names),
             names.size() == 1 ? "is" : "are", fmt::join(names, ", "));
  source.text = bundle.graphText(source.bundleGraph());
  if (source.text.empty())
    badInput(source.path, "does not hold the text of its graph \"{}\"", source.graphName);
}

std::vector<std::string> cfc::graphNames(const std::string &path) {
  std::vector<std::string> names;
  if (runtime::looksLikeBundle(path))
    for (const runtime::GraphSpec &graph : runtime::loadBundle(path).manifest.graphs)
      names.push_back(graph.name);
  return names;
}

/// A block table that holds less than the lengths allow bounds them at run time, which may be meant.
static void warnOfTables(attn::GraphOp graph) {
  for (auto attention : graph.getBody().getOps<attn::AttentionOp>()) {
    if (!attention.getPages())
      continue;
    int64_t columns = attention.getPages().getType().getDimSize(1);
    int64_t page = attention.getCache().getType().getPage();
    int64_t capacity = attention.getLen().getType().getCapacity();
    if (columns * page < capacity)
      attention.emitWarning("%") << attn::getValueName(attention.getPages()) << " has " << columns
                                 << " pages of " << page << " tokens for a request, and %"
                                 << attn::getValueName(attention.getLen()) << " goes up to " << capacity
                                 << ": longer lengths count as " << columns * page;
  }
}

Source cfc::readSource(Compiler &compiler, const std::string &path, const std::vector<std::string> &settings,
                       const std::string &graphName) {
  Source source;
  source.path = path;
  if (runtime::looksLikeBundle(path)) {
    if (!settings.empty())
      badInput(path, "is a bundle, whose bounds are fixed: --set is for graphs");
    source.bundle = runtime::loadBundle(path);
    chooseGraph(source, graphName);
    source.module = compiler.parse(source.text, path + " (graph)");
    return source;
  }
  if (!graphName.empty())
    badInput(path, "is no bundle and has one graph: --graph is for bundles");
  if (path == "-") {
    source.text = readStandardInput();
  } else {
    auto file = MappedFile::open(path);
    if (path.ends_with(".cfk"))
      badInput(path, "is not a bundle: it does not begin with CFCBNDL; was it cut or garbled?");
    std::string_view text = file->text();
    if (text.size() > kMaxGraphBytes) // before it is copied
      badInput(path, "has {} bytes; a graph or a file of kernels has at most {}", text.size(),
               kMaxGraphBytes);
    source.text = text;
  }
  source.module = compiler.parse(source.text, path);
  attn::GraphOp graph = source.graph();
  if (!settings.empty()) {
    if (!graph)
      badInput(path, "holds kernels, whose sizes are fixed: --set is for graphs");
    applySettings(graph, settings);
    source.text = moduleText(*source.module);
  }
  if (graph)
    warnOfTables(graph);
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

/// The widest window of the attentions over each cache, by its name.
static std::map<std::string, std::optional<int64_t>> windowsOf(ModuleOp module) {
  std::map<std::string, std::optional<int64_t>> windows;
  module.walk([&](attn::AttentionOp op) {
    attn::KvAppendOp append = op.getAppend();
    std::optional<int64_t> window = op.getWindow();
    auto [it, isFirst] =
        windows.try_emplace(attn::getValueName(append ? append.getCache() : op.getCache()), window);
    if (!isFirst)
      it->second = it->second && window ? std::optional(std::max(*it->second, *window)) : std::nullopt;
  });
  return windows;
}

/// What has an element for each query token, where requests have several.
static void describeQueries(attn::AttentionOp op, std::vector<InputSpec> &specs) {
  if (!op.getQueries())
    return;
  int64_t rows = op.getQ().getType().getDimSize(0);
  std::string starts = attn::getValueName(op.getQueries());
  std::vector<std::string> names = {starts};
  if (op.getMask())
    names.push_back(attn::getValueName(op.getMask()));
  mlir::Value cache = op.getCache();
  if (attn::KvAppendOp append = op.getAppend()) {
    names.push_back(attn::getValueName(append.getSlot()));
    cache = append.getCache();
  }
  std::string cacheName = attn::getValueName(cache);
  for (InputSpec &spec : specs) {
    bool isPosition = spec.role == DataRole::Position && spec.shape == std::vector<int64_t>{rows};
    if (spec.name == cacheName)
      spec.rows = rows;
    if (!isPosition && !llvm::is_contained(names, spec.name))
      continue;
    spec.rows = rows;
    spec.queries = starts;
    spec.requests = op.getLen().getType().getCount();
  }
}

/// What slots and block tables say depends on the cache that they are for.
static void describePages(ModuleOp module, std::vector<InputSpec> &specs) {
  auto find = [&](Value value) {
    std::string name = attn::getValueName(value);
    auto it = llvm::find_if(specs, [&](const InputSpec &spec) { return spec.name == name; });
    return it == specs.end() ? nullptr : &*it;
  };
  auto root = [](Value cache) {
    while (auto append = cache.getDefiningOp<attn::KvAppendOp>())
      cache = append.getCache();
    return cache;
  };
  module.walk([&](attn::AttentionOp op) { describeQueries(op, specs); });
  module.walk([&](attn::AttentionOp op) {
    InputSpec *cache = find(root(op.getCache())), *table = op.getPages() ? find(op.getPages()) : nullptr;
    if (cache && table)
      cache->table = table->name;
    std::vector<InputSpec *> users = {table};
    if (attn::KvAppendOp append = op.getAppend())
      users.push_back(find(append.getSlot()));
    for (InputSpec *user : users)
      if (user && cache) {
        user->requests = cache->requests;
        user->page = cache->page;
        user->pages = cache->pages;
        user->table = cache->table;
      }
  });
}

std::vector<InputSpec> cfc::inputSpecs(ModuleOp module, const runtime::GraphSpec &graph) {
  std::map<std::string, DataRole> roles = rolesOf(module);
  std::map<std::string, RopeTable> generated;
  for (auto op : module.getOps<attn::GraphOp>())
    for (const TensorInfo &tensor : tensorsOf(op))
      if (tensor.role == "generated")
        generated[tensor.name] = tensor.rope;
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
    spec.vDim = tensor.dimOfV();
    spec.requests = tensor.requests;
    spec.page = tensor.page;
    spec.pages = tensor.pages;
    spec.bound = tensor.bound;
    if (auto table = generated.find(tensor.name); table != generated.end())
      spec.rope = table->second;
    auto role = roles.find(tensor.name);
    if (tensor.kind == runtime::TensorKind::KvCache)
      spec.role = DataRole::Cache;
    else if (role != roles.end())
      spec.role = role->second;
    specs.push_back(std::move(spec));
  }
  describePages(module, specs);
  auto windows = windowsOf(module);
  for (InputSpec &spec : specs)
    if (spec.isCache() && windows.count(spec.name)) {
      spec.window = windows[spec.name];
      for (InputSpec &table : specs)
        if (table.role == DataRole::BlockTable && table.name == spec.table)
          table.window = spec.window;
    }
  return specs;
}
