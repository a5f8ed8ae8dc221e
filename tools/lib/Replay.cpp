//===- Replay.cpp - Launches that an engine captured ----------------------===//
#include "tools/lib/Replay.h"
#include "runtime/src/Bundle.h"
#include "runtime/src/Capture.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Json.h"
#include "tools/lib/Tensor.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/ranges.h>

using namespace cfc;
using nlohmann::json;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// A member of the metadata, of the wanted kind.
static const json &member(const json &object, const char *key, json::value_t kind, const std::string &where) {
  const char *kinds = kind == json::value_t::object    ? "an object"
                      : kind == json::value_t::string  ? "a string"
                      : kind == json::value_t::boolean ? "true or false"
                                                       : "an integer";
  if (!object.is_object() || !object.contains(key))
    badInput(where, "\"{}\" is missing", key);
  const json &value = object[key];
  bool good = kind == json::value_t::number_integer ? value.is_number_integer() : value.type() == kind;
  if (!good)
    badInput(where, "\"{}\" must be {}, not {}", key, kinds, value.type_name());
  return value;
}

/// An integer of the metadata from `least` to 2^40, far above any cache.
static int64_t number(const json &object, const char *key, int64_t least, const std::string &where) {
  const json &value = member(object, key, json::value_t::number_integer, where);
  bool large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(1) << 40;
  if (large || value.get<int64_t>() < least)
    badInput(where, "\"{}\" is {}", key, value.dump());
  return value.get<int64_t>();
}

Replay::Replay(const std::string &path) : file(path) {
  if (!file.metadata().count(runtime::kCaptureKey))
    badInput(path, "is no capture: its metadata has no \"{}\"; CFC_CAPTURE=DIR makes the runtime write some",
             runtime::kCaptureKey);
  readMetadata(); // first, as a newer form may have another digest
  checkDigest();
  readPages();
}

/// Of the data, which is one run of bytes; a garbled header is found by what it says.
void Replay::checkDigest() const {
  StoredTensor last = file.stored(runtime::kCaptureDigestName);
  if (last.bytes.size() != 8)
    badInput(path(), "is garbled: its digest has {} bytes", last.bytes.size());
  const char *begin = last.bytes.data();
  for (const std::string &key : file.keys())
    begin = std::min(begin, file.stored(key).bytes.data());
  runtime::CaptureDigest digest;
  digest.add({begin, size_t(last.bytes.data() - begin)});
  uint64_t expected;
  std::memcpy(&expected, last.bytes.data(), sizeof expected);
  if (digest.finish() != expected)
    badInput(path(), "is garbled: its data has another digest than when it was written");
}

void Replay::readMetadata() {
  std::string where = fmt::format("{}: __metadata__: \"{}\"", path(), runtime::kCaptureKey);
  json notes = parseJson(file.metadata().at(runtime::kCaptureKey), where);
  int64_t format = number(notes, "format", 1, where);
  if (format > runtime::kCaptureFormat)
    cannotRun(path(), "is a capture of form {}; this cfc reads up to {}: use a newer one", format,
              runtime::kCaptureFormat);
  try {
    manifest = runtime::parseManifest(member(notes, "manifest", json::value_t::object, where).dump());
  } catch (const runtime::Error &error) {
    throw cfc::Failure(Exit(error.failure.exitCode()), path(), error.failure.message);
  }
  if (manifest.graphs.size() != 1 || graph().variants.size() != 1)
    badInput(where, "describes {} graphs; a capture has one, and one variant", manifest.graphs.size());
  textDigest = member(notes, "graph_digest", json::value_t::string, where);
  hasWeights = member(notes, "weights", json::value_t::boolean, where);
  sms = number(member(notes, "hints", json::value_t::object, where), "max_sms", 0, where);
  const json &all = member(notes, "caches", json::value_t::object, where);
  for (const runtime::TensorSpec &spec : graph().tensors)
    if (spec.kind == runtime::TensorKind::KvCache)
      readCache(spec, member(all, spec.name.c_str(), json::value_t::object, where));
}

void Replay::readCache(const runtime::TensorSpec &spec, const json &notes) {
  std::string where = fmt::format("{}: cache \"{}\"", path(), spec.name);
  Cache &cache = caches[spec.name];
  cache.capacity = number(notes, "capacity", 1, where);
  cache.blocks = number(notes, "blocks", 1, where);
  StoredTensor rows = file.stored(spec.name + ".rows");
  if (rows.dtype != "I64" || rows.shape.size() != 2 || rows.shape[1] != 2)
    badInput(where, "its rows are {} of {}; they are pairs of I64", shapeText(rows.shape), rows.dtype);
  std::vector<int64_t> list = integers(spec.name + ".rows");
  int64_t most = spec.page ? spec.page : cache.capacity, sum = 0;
  for (size_t i = 0; i < list.size(); i += 2) {
    Run run = {list[i], list[i + 1]};
    bool ascends = cache.runs.empty() || cache.runs.back().block < run.block;
    if (run.block < 0 || run.block >= cache.blocks || run.count < 0 || run.count > most || !ascends)
      badInput(where,
               "rows 0 to {} of block {} are in use: there are {} blocks of {} rows, in ascending order",
               run.count, run.block, cache.blocks, most);
    cache.runs.push_back(run);
    sum += run.count;
  }
  for (auto [part, dim] : {std::pair(".k", spec.dim), {".v", spec.dimOfV()}}) {
    std::vector<int64_t> shape = {sum, spec.heads, dim};
    StoredTensor stored = file.stored(spec.name + part);
    if (stored.shape != shape)
      badInput(where, "\"{}{}\" has the shape {}; {} rows are {}", spec.name, part, shapeText(stored.shape),
               sum, shapeText(shape));
  }
}

/// Pages get new numbers in the same order, so that entries out of the pool are clamped to the same ones.
void Replay::readPages() {
  for (const runtime::TensorSpec &spec : graph().tensors)
    if (isPool(spec))
      for (const Run &run : caches.at(spec.name).runs)
        pages[run.block] = 0;
  int64_t next = 0;
  for (auto &page : pages)
    page.second = next++;
}

/// The elements of a tensor of integers.
std::vector<int64_t> Replay::integers(const std::string &tensor) const {
  Tensor found = file.get(tensor);
  if (isFloat(found.type))
    badInput(path(), "\"{}\" must hold integers; it is {}", tensor, typeText(found.type, found.shape));
  std::vector<int64_t> values(size_t(found.elements()));
  for (size_t i = 0; i < values.size(); ++i) // the file's bytes need not be aligned
    if (found.type == DType::i64) {
      std::memcpy(&values[i], found.data() + 8 * i, 8);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, found.data() + 4 * i, 4);
      values[i] = narrow;
    }
  return values;
}

const std::string &Replay::kernelDigest() const {
  const std::string &own = graph().variants.front().simtDigest;
  return own.empty() ? manifest.simtDigest : own;
}

std::string Replay::describe() const {
  return fmt::format("launch of graph '{}' (plan {})", graph().name, planHash());
}

//===----------------------------------------------------------------------===//
// Whether it fits
//===----------------------------------------------------------------------===//

/// "tensor<1x4096xf16>", "kv_cache<heads = 8, dim = 128, page = 16, f16> of 4 requests".
static std::string specText(const runtime::TensorSpec &spec) {
  const char *type = runtime::name(spec.dtype);
  if (spec.kind == runtime::TensorKind::Tensor)
    return fmt::format("tensor<{}{}{}>", shapeText(spec.shape), spec.shape.empty() ? "" : "x", type);
  std::string text = fmt::format("kv_cache<heads = {}, dim = {}", spec.heads, spec.dim);
  if (spec.dimOfV() != spec.dim)
    text += fmt::format(", v_dim = {}", spec.dimOfV());
  if (spec.page)
    text += fmt::format(", page = {}", spec.page);
  return text + fmt::format(", {}> of {} request{}", type, spec.requests, spec.requests == 1 ? "" : "s");
}

void Replay::requireFit(const runtime::GraphSpec &other, const std::string &name,
                        const std::string &where) const {
  std::map<std::string, std::string> captured, wanted;
  for (auto [spec, texts] : {std::pair(&graph(), &captured), {&other, &wanted}})
    for (const runtime::TensorSpec &tensor : spec->tensors)
      if (tensor.role != runtime::Role::Output)
        (*texts)[tensor.name] = specText(tensor);
  std::string difference;
  for (auto &[tensor, text] : captured)
    if (!wanted.count(tensor))
      difference = fmt::format("it has \"{}\", {}, which the graph does not take", tensor, text);
    else if (wanted[tensor] != text)
      difference =
          fmt::format("\"{}\" is {} in the capture and {} in the graph", tensor, text, wanted[tensor]);
  for (auto &[tensor, text] : wanted)
    if (!captured.count(tensor))
      difference = fmt::format("it has no \"{}\", {}", tensor, text);
  if (graph().name != name && difference.empty())
    difference = "the names differ";
  if (!difference.empty())
    badInput(path(),
             "holds a {}, which does not fit graph '{}' of {}: {}; replay it with the graph or bundle that "
             "it was captured from",
             describe(), name, where, difference);
}

/// The captures of a folder, or the file itself.
static std::vector<std::string> captureFiles(const std::string &path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return {path};
  std::vector<std::string> files;
  for (auto &entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == ".safetensors" &&
        SafetensorsFile(entry.path().string()).metadata().count(runtime::kCaptureKey))
      files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> cfc::capturedGraphs(const std::string &path) {
  std::vector<std::string> names;
  for (const std::string &file : captureFiles(path))
    if (std::string name = Replay(file).graph().name;
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  return names;
}

std::vector<Replay> cfc::openReplays(const std::string &path, const std::string &graph) {
  std::error_code error;
  std::vector<Replay> replays;
  if (!fs::is_directory(path, error)) {
    replays.emplace_back(path);
    return replays;
  }
  std::vector<std::string> others;
  for (const std::string &file : captureFiles(path)) {
    Replay replay(file);
    if (replay.graph().name == graph)
      replays.push_back(std::move(replay));
    else if (std::find(others.begin(), others.end(), replay.graph().name) == others.end())
      others.push_back(replay.graph().name);
  }
  if (replays.empty())
    badInput(path, "holds no capture of graph '{}'{}", graph,
             others.empty() ? "; CFC_CAPTURE=DIR makes the runtime write some"
                            : fmt::format(", but of '{}'", fmt::join(others, "', '")));
  return replays;
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// The replay's number of a page that `tensor` names.
int64_t Replay::pageOf(int64_t page, const std::string &tensor) const {
  auto found = pages.find(page);
  if (found == pages.end())
    badInput(path(), "\"{}\" names page {}, which the file does not hold", tensor, page);
  return found->second;
}

/// What longer lengths are clamped to.
int64_t Replay::mostTokens(const runtime::TensorSpec &spec) const {
  int64_t most = caches.at(spec.name).capacity;
  for (const runtime::TensorSpec &lengths : graph().tensors)
    if (lengths.name == spec.lengths)
      most = std::min(most, lengths.bound.value_or(most));
  return most;
}

/// Tokens that a contiguous cache has room for: those in use, and those that are appended. Out of its bound
/// stays what was.
int64_t Replay::tokensOf(const runtime::TensorSpec &spec) const {
  const Cache &cache = caches.at(spec.name);
  int64_t tokens = 1;
  for (const Run &run : cache.runs)
    tokens = std::max(tokens, run.count);
  if (!spec.slots.empty())
    for (int64_t slot : integers(spec.slots))
      if (slot < cache.capacity)
        tokens = std::max(tokens, slot + 1);
  return spec.lengths.empty() ? cache.capacity : tokens;
}

/// Elements that no kernel may read: NaN in every type of a cache.
static Tensor poisoned(DType type, const std::vector<int64_t> &shape, const std::string &where) {
  if (!checkedElements(shape, sizeOf(type)))
    badInput(where, "a cache of shape {} is too large", shapeText(shape));
  Tensor tensor(type, shape);
  if (sizeOf(type) == 2)
    std::fill_n(tensor.as<uint16_t>(), tensor.elements(), uint16_t(0x7ffb));
  else
    std::memset(tensor.mutableData(), 0x7f, tensor.bytes());
  return tensor;
}

void Replay::addCache(TensorMap &tensors, const InputSpec &input) const {
  const runtime::TensorSpec &spec = *std::find_if(graph().tensors.begin(), graph().tensors.end(),
                                                  [&](const auto &one) { return one.name == input.name; });
  const Cache &cache = caches.at(spec.name);
  int64_t blocks = isPool(spec) ? std::max<int64_t>(int64_t(pages.size()), 1) : spec.requests;
  int64_t tokens = isPool(spec) ? spec.page : tokensOf(spec);
  for (bool isV : {false, true}) {
    std::string name = spec.name + (isV ? ".v" : ".k");
    Tensor stored = file.get(name);
    if (stored.type != input.type)
      badInput(path(), "\"{}\" must be {}; it is {}", name, nameOf(input.type), nameOf(stored.type));
    Tensor dense = poisoned(input.type, input.cacheShape(isV, blocks, tokens), path());
    CacheLayout layout(input, dense);
    const std::byte *from = stored.data();
    for (const Run &run : cache.runs) {
      int64_t block = isPool(spec) ? pages.at(run.block) : run.block;
      if (block >= blocks)
        badInput(path(), "rows of request {} of \"{}\" are in use; the graph serves {}", block, spec.name,
                 blocks);
      for (int64_t token = 0; token < run.count; ++token)
        for (int64_t head = 0; head < spec.heads; ++head, from += layout.row)
          std::memcpy(dense.mutableData() + layout.at(block, head, token), from, size_t(layout.row));
    }
    tensors[name] = std::move(dense);
  }
}

static Tensor integerTensor(const Tensor &like, const std::vector<int64_t> &values) {
  Tensor tensor(like.type, like.shape);
  for (size_t i = 0; i < values.size(); ++i)
    if (like.type == DType::i64)
      tensor.as<int64_t>()[i] = values[i];
    else
      tensor.as<int32_t>()[i] = int32_t(values[i]);
  return tensor;
}

/// Slots and block tables of pools in the new numbers of pages. What nobody looks at leads out of the pool.
void Replay::renamePages(TensorMap &tensors) const {
  std::map<std::string, std::vector<int64_t>> renamed;
  for (const runtime::TensorSpec &spec : graph().tensors) {
    if (!isPool(spec))
      continue;
    int64_t blocks = caches.at(spec.name).blocks;
    if (!spec.slots.empty() && !renamed.count(spec.slots)) {
      std::vector<int64_t> slots = integers(spec.slots);
      for (int64_t &slot : slots)
        if (slot >= 0 && slot / spec.page < blocks)
          slot = pageOf(slot / spec.page, spec.slots) * spec.page + slot % spec.page;
      renamed[spec.slots] = slots;
    }
    if (spec.blockTable.empty() || spec.lengths.empty() || renamed.count(spec.blockTable))
      continue;
    std::vector<int64_t> table = integers(spec.blockTable), lengths = integers(spec.lengths);
    int64_t most = mostTokens(spec);
    size_t columns = lengths.empty() ? 0 : table.size() / lengths.size();
    for (size_t i = 0; i < table.size() && columns; ++i) {
      bool isUsed = int64_t(i % columns) * spec.page < std::min(lengths.at(i / columns), most);
      if (!isUsed)
        table[i] = i % 2 ? -1 : INT32_MAX;
      else if (table[i] >= 0 && table[i] < blocks)
        table[i] = pageOf(table[i], spec.blockTable);
    }
    renamed[spec.blockTable] = table;
  }
  for (auto &[name, values] : renamed)
    if (auto found = tensors.find(name); found != tensors.end())
      found->second = integerTensor(found->second, values);
}

TensorMap Replay::inputs(const std::vector<InputSpec> &specs, const std::string &weights) const {
  TensorMap tensors;
  std::vector<InputSpec> missing;
  for (const InputSpec &spec : specs) {
    if (spec.isCache())
      addCache(tensors, spec);
    else if (file.contains(spec.name))
      tensors[spec.name] = checkedInput(file.get(spec.name), spec, spec.name, path());
    else
      missing.push_back(spec);
  }
  renamePages(tensors);
  if (missing.empty()) {
    if (!weights.empty())
      badInput(path(), "holds the weights: --weights is for captures without (CFC_CAPTURE_WEIGHTS=0)");
    return tensors;
  }
  if (hasWeights)
    badInput(path(), "holds no tensor \"{}\"", missing.front().name);
  if (weights.empty())
    badInput(path(),
             "was captured without weights (CFC_CAPTURE_WEIGHTS=0), such as \"{}\": give them with --weights",
             missing.front().name);
  tensors.merge(resolveInputs(missing, {{}, weights}, {}));
  return tensors;
}
