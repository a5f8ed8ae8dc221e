//===- BatchBits.cpp - A request's bits alone and in every batch ----------===//
//
// All programs of a bundle share one set of requests: the rows of the graph for
// the most of them. A launch takes some, puts them into rows of its own graph, and
// leaves the other rows idle, with NaN where activations would be.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/BatchBits.h"
#include "dialects/attn/Attn.h"
#include "runtime/src/Bundle.h"
#include "tools/lib/Batches.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Pack.h"
#include "tools/lib/Session.h"
#include "tools/lib/Verify.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/ranges.h>
#include <random>
#include <set>

using namespace cfc;

namespace {
/// A number from 0 to n - 1, the same on every machine.
int64_t below(std::mt19937_64 &random, int64_t n) { return int64_t(random() % uint64_t(n)); }

/// One variant of one graph on the device.
struct Loaded {
  std::unique_ptr<Source> source; ///< of the graph, which its variants share the text of
  Program program;
  std::vector<InputSpec> specs;
  std::optional<DeviceTensors> tensors;
  std::unique_ptr<Executable> executable;

  int64_t batch() const { return program.graph.batch; }
  std::string name() const {
    return fmt::format("graph {} (batch {}, plan {})", program.graph.name, batch(), program.planHash);
  }
};

/// The requests of a draw: rows of the tensors of the largest graph.
struct Draw {
  std::vector<int64_t> requests; ///< rows that are not idle
  std::vector<int64_t> lengths;  ///< of all rows
  TensorMap tensors;             ///< with as many rows, and the block tables of the draw
};

using Digests = std::map<std::string, uint64_t>; ///< of a request, by what was computed

class BatchBits {
public:
  BatchBits(Compiler &compiler, const std::string &path, Device &device, const BatchBitsOptions &options);
  bool run();

private:
  void load(const std::string &graph);
  void makeTensors();
  bool isByRow(const std::string &name) const { return byRow.count(name) != 0; }
  const InputSpec *cacheOf(const InputSpec &slot) const;
  Draw draw(uint64_t index);
  int64_t drawLength(std::mt19937_64 &random) const;
  void sharePrefixes(Draw &draw, std::mt19937_64 &random) const;
  int64_t lengthOfIdle(int64_t row) const;
  Tensor rowsOf(const InputSpec &spec, const Draw &draw, const std::vector<int64_t> &rows) const;
  Tensor blocksOf(const InputSpec &spec, const std::string &name, const std::vector<int64_t> &rows) const;
  std::map<int64_t, Digests> launch(Loaded &loaded, const Draw &draw, const std::vector<int64_t> &rows);
  std::string check(uint64_t index);

  Compiler &compiler;
  const std::string &path;
  Device &device;
  const BatchBitsOptions &options;
  std::vector<std::unique_ptr<Loaded>> programs; ///< by ascending batch
  std::set<std::string> byRow;                   ///< arguments with a row for each request
  TensorMap master;                              ///< of the largest graph
  DeviceTensors shared;                          ///< weights and all else that requests share
  int64_t longest = 0, positions = INT32_MAX;
  size_t launches = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

BatchBits::BatchBits(Compiler &compiler, const std::string &path, Device &device,
                     const BatchBitsOptions &options)
    : compiler(compiler), path(path), device(device), options(options), shared(device) {
  std::vector<std::string> names = graphNames(path);
  if (names.empty() || !options.build.graph.empty())
    names = {options.build.graph};
  for (const std::string &name : names)
    load(name);
  std::stable_sort(programs.begin(), programs.end(),
                   [](const auto &a, const auto &b) { return a->batch() < b->batch(); });
  makeTensors();
  for (auto &loaded : programs) {
    loaded->tensors.emplace(shared);
    loaded->executable = device.load(loaded->program.image());
  }
}

void BatchBits::load(const std::string &name) {
  auto read = [&] { return std::make_unique<Source>(readSource(compiler, path, options.build.sets, name)); };
  std::unique_ptr<Source> first = read();
  if (!first->graph())
    badInput(path, "holds kernels: --batches is for graphs");
  for (auto attention : first->graph().getBody().getOps<attn::AttentionOp>())
    if (attention.getQueries())
      badInput(
          path,
          "has several query tokens a request: --batches is for graphs with one token, a row of each, for "
          "every request");
  std::vector<std::string> hashes = {options.build.variant};
  if (first->bundle && options.build.variant.empty()) {
    hashes.clear();
    for (const runtime::VariantSpec &variant : first->bundleGraph().variants)
      hashes.push_back(variant.planHash);
  }
  for (const std::string &hash : hashes) {
    auto loaded = std::make_unique<Loaded>();
    loaded->source = first ? std::move(first) : read();
    BuildOptions build = options.build;
    build.variant = hash;
    loaded->program = makeProgram(compiler, *loaded->source, build, device);
    loaded->specs = inputSpecs(*loaded->source->module, loaded->program.graph);
    programs.push_back(std::move(loaded));
  }
}

/// The tensors of the largest graph; what has no row for each request goes to the device once.
void BatchBits::makeTensors() {
  const Loaded &largest = *programs.back();
  attn::GraphOp graph = largest.source->graph();
  for (const std::string &name : namesByRequest(graph))
    byRow.insert(name);
  positions = positionsOf(graph);
  int64_t bound = INT32_MAX, room = INT32_MAX;
  for (const InputSpec &spec : largest.specs) {
    if (!spec.isCache() && isByRow(spec.name) && spec.shape.at(0) != largest.batch())
      badInput(
          path,
          "\"{}\" has {} rows for {} requests: --batches is for graphs with one token, a row of each, for "
          "every request",
          spec.name, spec.shape[0], largest.batch());
    bound = std::min(bound, spec.bound.value_or(INT32_MAX));
    if (spec.page)
      room = std::min(room, spec.page * std::max<int64_t>(spec.pages, 1) - 1);
  }
  if (options.length && (*options.length < 0 || *options.length > std::min(bound, room)))
    badInput("", "--len={}: lengths of this graph go from 0 to {}", *options.length, std::min(bound, room));
  longest = options.length.value_or(std::min({bound, room, int64_t(200)}));
  master = resolveInputs(largest.specs, {{"random"}, options.weights},
                         {options.seed, 0, std::min(longest + 4, room + 1)});
  TensorMap fixed;
  for (const InputSpec &spec : largest.specs)
    if (!spec.isCache() && !isByRow(spec.name))
      fixed[spec.name] = inLayout(master.at(spec.name), std::nullopt);
  shared.upload(fixed, largest.program.graph);
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

/// Often a length at which something changes: none, one, whole pages and segments, as many as there may be.
int64_t BatchBits::drawLength(std::mt19937_64 &random) const {
  int64_t page = 64;
  for (const InputSpec &spec : programs.back()->specs)
    page = spec.page ? spec.page : page;
  int64_t length = below(random, longest + 1);
  switch (below(random, 10)) {
  case 0:
    return 0;
  case 1:
    return std::min<int64_t>(1, longest);
  case 2:
    return longest;
  case 3:
  case 4:
    return std::clamp<int64_t>(length / page * page - 1 + below(random, 3), 0, longest);
  default:
    return length;
  }
}

/// Some requests begin with the pages of the one before, as far as neither appends to them.
void BatchBits::sharePrefixes(Draw &draw, std::mt19937_64 &random) const {
  for (const InputSpec &spec : programs.back()->specs) {
    if (spec.role != DataRole::BlockTable)
      continue;
    Tensor table(spec.type, spec.shape);
    std::memcpy(table.mutableData(), master.at(spec.name).data(), table.bytes());
    int64_t columns = spec.shape.at(1);
    for (size_t r = 1; r < draw.lengths.size(); ++r) {
      int64_t common = std::min(draw.lengths[r - 1], draw.lengths[r]) / spec.page;
      for (int64_t c = 0; c < common && random() % 3 != 0; ++c)
        table.set(int64_t(r) * columns + c, table.get(int64_t(r - 1) * columns + c));
    }
    draw.tensors[spec.name] = std::move(table);
  }
}

const InputSpec *BatchBits::cacheOf(const InputSpec &slot) const {
  for (const InputSpec &spec : programs.back()->specs)
    if (spec.isCache() && spec.page == slot.page && spec.table == slot.table)
      return &spec;
  return nullptr;
}

Draw BatchBits::draw(uint64_t index) {
  std::mt19937_64 random(options.seed * 1000003 + index);
  Draw draw;
  int64_t rows = programs.back()->batch();
  for (int64_t r = 0; r < rows; ++r)
    draw.lengths.push_back(drawLength(random));
  for (int64_t r = 0; r < rows; ++r)
    if (below(random, 5) != 0)
      draw.requests.push_back(r);
  if (draw.requests.empty())
    draw.requests.push_back(below(random, rows));
  sharePrefixes(draw, random);
  int64_t ahead = below(random, 3);
  for (const InputSpec &spec : programs.back()->specs) {
    if (spec.isCache() || !isByRow(spec.name) || draw.tensors.count(spec.name))
      continue;
    Tensor tensor(spec.type, spec.shape);
    for (int64_t r = 0; r < rows; ++r) {
      int64_t length = draw.lengths[size_t(r)], slot = std::min(length + ahead, longest + 3);
      if (spec.role == DataRole::Length)
        tensor.set(r, double(length));
      else if (spec.role == DataRole::Position)
        tensor.set(r, double(std::min(length + 3 * ahead, positions - 1)));
      else if (spec.role == DataRole::Slot && !spec.page)
        tensor.set(r, double(slot));
      else if (spec.role == DataRole::Slot) {
        slot = std::min(slot, spec.page * spec.pages - 1);
        const Tensor &table = draw.tensors.at(spec.table);
        tensor.set(r, table.get(r * table.shape.at(1) + slot / spec.page) * double(spec.page) +
                          double(slot % spec.page));
      }
    }
    if (spec.role == DataRole::Activation)
      fillRandom(tensor, options.seed + index, spec.name, distributionFor(spec.role, spec.shape));
    draw.tensors[spec.name] = std::move(tensor);
  }
  return draw;
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// Where a slot says that a request is idle its length says nothing, and may be any.
int64_t BatchBits::lengthOfIdle(int64_t row) const {
  bool hasSlots = std::any_of(programs.back()->specs.begin(), programs.back()->specs.end(),
                              [](const InputSpec &spec) { return spec.role == DataRole::Slot; });
  return hasSlots ? (37 * row + 5) % (longest + 1) : 0;
}

/// The rows of an argument; `rows`: which request has each row of the graph, -1 where it is idle.
Tensor BatchBits::rowsOf(const InputSpec &spec, const Draw &draw, const std::vector<int64_t> &rows) const {
  const Tensor &all = draw.tensors.at(spec.name);
  Tensor tensor(spec.type, spec.shape);
  int64_t width = tensor.elements() / int64_t(rows.size());
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t c = 0; c < width; ++c) {
      double idle = spec.role == DataRole::Slot         ? -1
                    : spec.role == DataRole::Activation ? NAN
                    : spec.role == DataRole::BlockTable ? double(INT32_MAX)
                    : spec.role == DataRole::Length     ? double(lengthOfIdle(int64_t(r)))
                                                        : 0;
      tensor.set(int64_t(r) * width + c, rows[r] < 0 ? idle : all.get(rows[r] * width + c));
    }
  return tensor;
}

/// A cache's .k or .v: the pool as it is, or the rows of the requests, and NaN for those that are idle.
Tensor BatchBits::blocksOf(const InputSpec &spec, const std::string &name,
                           const std::vector<int64_t> &rows) const {
  const Tensor &all = master.at(name);
  if (spec.page)
    return all;
  const InputSpec *largest = nullptr;
  for (const InputSpec &other : programs.back()->specs)
    if (other.name == spec.name)
      largest = &other;
  CacheLayout layout(*largest, all);
  size_t bytes = size_t(layout.strideBlock);
  std::vector<int64_t> shape = all.shape;
  if (largest->hasBlocks())
    shape.erase(shape.begin());
  if (spec.hasBlocks())
    shape.insert(shape.begin(), int64_t(rows.size()));
  Tensor tensor(all.type, shape);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::byte *to = tensor.mutableData() + r * bytes;
    if (rows[r] < 0)
      std::memset(to, 0x7f, bytes); // NaN in every type of a cache
    else
      std::memcpy(to, all.data() + size_t(rows[r]) * bytes, bytes);
  }
  return tensor;
}

static uint64_t digestOf(const Tensor &tensor, size_t offset, size_t bytes, uint64_t before = 0) {
  std::string text(reinterpret_cast<const char *>(tensor.data()) + offset, bytes);
  text.append(reinterpret_cast<const char *>(&before), sizeof before);
  return runtime::digest64(text);
}

/// Runs a program once. What each request got, by request.
std::map<int64_t, Digests> BatchBits::launch(Loaded &loaded, const Draw &draw,
                                             const std::vector<int64_t> &rows) {
  TensorMap inputs;
  for (const InputSpec &spec : loaded.specs) {
    if (spec.isCache())
      for (const char *part : {".k", ".v"})
        inputs[spec.name + part] = blocksOf(spec, spec.name + part, rows);
    else if (isByRow(spec.name))
      inputs[spec.name] = rowsOf(spec, draw, rows);
  }
  const runtime::GraphSpec &graph = loaded.program.graph;
  loaded.tensors->upload(inputs);
  loaded.executable->bind(loaded.tensors->bindings(graph));
  loaded.tensors->poisonResults(graph);
  loaded.executable->launch(options.seed + launches++);
  TensorMap outputs = loaded.tensors->outputs(graph);
  std::map<int64_t, Digests> found;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] < 0)
      continue;
    Digests &digests = found[rows[r]];
    for (const runtime::TensorSpec &spec : graph.tensors)
      if (spec.role == runtime::Role::Output) {
        const Tensor &tensor = outputs.at(spec.name);
        size_t bytes = tensor.bytes() / rows.size();
        digests[spec.name] = digestOf(tensor, r * bytes, bytes);
      }
    for (const InputSpec &slot : loaded.specs) {
      const InputSpec *cache = slot.role == DataRole::Slot ? cacheOf(slot) : nullptr;
      if (!cache)
        continue;
      int64_t at = int64_t(inputs.at(slot.name).get(int64_t(r)));
      for (const char *part : {".k", ".v"}) {
        const Tensor &tensor = outputs.at(cache->name + part);
        InputSpec own = *cache;
        own.requests = loaded.batch();
        CacheLayout layout(own, tensor);
        int64_t block = slot.page ? at / slot.page : int64_t(r), token = slot.page ? at % slot.page : at;
        uint64_t &digest = digests[cache->name + part + " row"];
        for (int64_t head = 0; head < cache->heads; ++head)
          digest = digestOf(tensor, size_t(layout.at(block, head, token)), size_t(layout.row), digest);
      }
    }
  }
  return found;
}

/// Runs one draw; what was wrong, or "".
std::string BatchBits::check(uint64_t index) {
  Draw drawn = draw(index);
  std::mt19937_64 random(options.seed * 7919 + index);
  std::map<int64_t, Digests> alone;
  for (int64_t request : drawn.requests) {
    std::vector<int64_t> rows(size_t(programs.front()->batch()), -1);
    rows[size_t(below(random, int64_t(rows.size())))] = request;
    alone.merge(launch(*programs.front(), drawn, rows));
  }
  std::string faults;
  for (const std::unique_ptr<Loaded> &each : programs) {
    Loaded &loaded = *each;
    std::vector<int64_t> rows = drawn.requests;
    rows.resize(std::max(rows.size(), size_t(loaded.batch())), -1);
    for (size_t i = rows.size(); i > 1; --i) // any rows; of more requests than the graph takes some
      std::swap(rows[i - 1], rows[size_t(below(random, int64_t(i)))]);
    rows.resize(size_t(loaded.batch()));
    for (const auto &[request, digests] : launch(loaded, drawn, rows))
      for (const auto &[name, digest] : digests)
        if (digest != alone.at(request).at(name))
          faults += fmt::format("  {}: {} of request {}, length {}, has other bits than alone in {}\n",
                                loaded.name(), name, request, drawn.lengths[size_t(request)],
                                programs.front()->name());
    if (uint32_t status = loaded.executable->takeStatus())
      faults += fmt::format("  {}: the status word says that something was out of bound: {:#x}\n",
                            loaded.name(), status);
  }
  if (auto broken = device.brokenGuard())
    faults += fmt::format("  a program wrote outside of its buffers: {}\n", *broken);
  std::vector<int64_t> lengths;
  for (int64_t request : drawn.requests)
    lengths.push_back(drawn.lengths[size_t(request)]);
  print(fmt::format("batch {}: lengths {}{}\n{}", index, fmt::join(lengths, " "),
                    faults.empty() ? "" : " MISMATCH", faults));
  return faults;
}

bool BatchBits::run() {
  std::set<int64_t> batches;
  for (const auto &loaded : programs)
    batches.insert(loaded->batch());
  print(fmt::format("batches: {} programs, for {} requests of 0 to {} tokens\n", programs.size(),
                    fmt::join(batches, ", "), longest));
  bool passed = true;
  for (int64_t i = 0; i < options.draws; ++i) {
    Progress progress;
    progress.show(fmt::format("batch {} of {}", i + 1, options.draws));
    passed &= check(uint64_t(i)).empty();
  }
  print(passed
            ? fmt::format("verified: {} batch{} in {} launches; every request has the same bits alone and in "
                          "every batch and plan\n",
                          options.draws, options.draws == 1 ? "" : "es", launches)
            : std::string("MISMATCH\n"));
  return passed;
}

bool cfc::verifyBatchBits(Compiler &compiler, const std::string &path, Device &device,
                          const BatchBitsOptions &options) {
  return BatchBits(compiler, path, device, options).run();
}
