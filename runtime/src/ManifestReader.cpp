//===- ManifestReader.cpp - JSON to Manifest --------------------------------===//
//
// Every value is checked where it is read, and named by its path (graphs[0].tensors[2].align) when it is
// wrong: a bundle whose digests are right may still have been written by something else. What is accepted
// here never makes later code overflow or index outside of an array.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Manifest.h"
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace cfc::runtime {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;
/// Sizes above this are taken for garbage; it keeps sums of a few of them far from overflow.
constexpr int64_t kMaxBytes = int64_t(1) << 48;
/// An mbarrier counts fewer bytes than this.
constexpr int64_t kMaxBoxBytes = 1 << 20;

/// A JSON value and its path.
struct Node {
  const Json &value;
  std::string path;

  template <class... Args> [[noreturn]] void wrong(fmt::format_string<Args...> text, Args &&...args) const {
    fail(CFC_INVALID_BUNDLE, "manifest: {}: {}", path.empty() ? "top level" : path,
         fmt::format(text, std::forward<Args>(args)...));
  }

  Node at(const char *key) const {
    if (!value.is_object())
      wrong("is {}, not an object", value.type_name());
    auto found = value.find(key);
    if (found == value.end())
      wrong("'{}' is missing", key);
    return {*found, path.empty() ? key : fmt::format("{}.{}", path, key)};
  }

  bool has(const char *key) const { return value.is_object() && value.contains(key); }

  std::vector<Node> items(size_t least) const {
    if (!value.is_array())
      wrong("is {}, not an array", value.type_name());
    if (value.size() < least)
      wrong("is empty");
    std::vector<Node> nodes;
    for (size_t i = 0; i < value.size(); ++i)
      nodes.push_back({value[i], fmt::format("{}[{}]", path, i)});
    return nodes;
  }

  int64_t integer(int64_t least, int64_t most) const {
    if (!value.is_number_integer())
      wrong("is {}, not an integer", value.type_name());
    bool tooLarge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX);
    if (tooLarge || value.get<int64_t>() < least || value.get<int64_t>() > most)
      wrong("{} is not in {} to {}", value.dump(), least, most);
    return value.get<int64_t>();
  }

  double number(double least) const {
    if (!value.is_number())
      wrong("is {}, not a number", value.type_name());
    double result = value.get<double>();
    if (!std::isfinite(result) || result < least)
      wrong("{} is not a number from {} on", value.dump(), least);
    return result;
  }

  uint64_t alignment() const {
    int64_t align = integer(1, 4096);
    if (align & (align - 1))
      wrong("{} is not a power of two", align);
    return align;
  }

  bool boolean() const {
    if (!value.is_boolean())
      wrong("is {}, not true or false", value.type_name());
    return value.get<bool>();
  }

  std::string text() const {
    if (!value.is_string())
      wrong("is {}, not a string", value.type_name());
    std::string text = value.get<std::string>();
    if (text.size() > 1024)
      wrong("is {} characters long", text.size());
    if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; }))
      wrong("contains control characters");
    return text;
  }

  std::string nonEmptyText() const {
    std::string result = text();
    if (result.empty())
      wrong("is empty");
    return result;
  }

  template <class Enum> Enum oneOf(std::initializer_list<std::pair<const char *, Enum>> choices) const {
    std::string word = text(), list;
    for (const auto &[choice, result] : choices) {
      if (word == choice)
        return result;
      list += fmt::format("{}'{}'", list.empty() ? "" : ", ", choice);
    }
    wrong("'{}' is none of {}", word, list);
  }
};

int64_t multiply(const Node &node, int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product) || product > kMaxBytes)
    node.wrong("the size is too large");
  return product;
}

/// Weights are native where nothing is said.
void readLayout(const Node &node, TensorSpec &tensor) {
  if (node.has("layout"))
    tensor.layout =
        node.at("layout").oneOf({std::pair{"native", Layout::Native}, {kPackedLayoutName, Layout::Packed}});
  if (tensor.layout == Layout::Native) {
    if (node.has("column_group"))
      node.at("column_group").wrong("only packed weights have one");
    return;
  }
  if (tensor.kind != TensorKind::Tensor || tensor.role != Role::Weight || tensor.shape.size() != 2 ||
      elementBytes(tensor.dtype) != PackedLayout::kElementBytes)
    node.at("layout").wrong("'{}' is no weight of 2 dimensions and 16-bit elements, and cannot be packed",
                            tensor.name);
  if (node.has("column_group"))
    tensor.columnGroup = node.at("column_group").integer(1, tensor.shape[1]);
  // The native size is at most kMaxBytes, and padding makes it at most 4096 times that.
  if (tensor.packed().bytes() > uint64_t(kMaxBytes))
    node.wrong("the size is too large");
}

/// What a table of rotations is computed from. What is not said is as in RopeTable.
RopeTable readRope(const Node &node, const TensorSpec &tensor) {
  if (tensor.kind != TensorKind::Tensor || tensor.role != Role::Input || tensor.shape.size() != 2 ||
      tensor.shape[1] % 2 || (tensor.dtype != CFC_F32 && tensor.dtype != CFC_F16 && tensor.dtype != CFC_BF16))
    node.wrong("'{}' is no input of 2 dimensions and floating point, of even width", tensor.name);
  RopeTable rope;
  rope.dim = tensor.shape[1];
  rope.base = node.at("base").number(1);
  rope.scaling = node.at("scaling").oneOf({std::pair{"none", RopeStretch::None},
                                           {"linear", RopeStretch::Linear},
                                           {"llama3", RopeStretch::Llama3},
                                           {"yarn", RopeStretch::Yarn}});
  for (auto [key, value, least] : {std::tuple("factor", &rope.factor, 1e-30),
                                   {"original_positions", &rope.originalPositions, 0},
                                   {"low_freq_factor", &rope.lowFreqFactor, 1e-30},
                                   {"high_freq_factor", &rope.highFreqFactor, 1e-30},
                                   {"beta_fast", &rope.betaFast, 1e-30},
                                   {"beta_slow", &rope.betaSlow, 1e-30},
                                   {"attention_factor", &rope.attentionFactor, -1e30}})
    if (node.has(key))
      *value = node.at(key).number(least);
  if (node.has("truncate"))
    rope.truncate = node.at("truncate").boolean();
  return rope;
}

/// The names of the tensors that say what of a cache is in use.
void readUses(const Node &node, TensorSpec &cache) {
  for (auto [key, user] :
       {std::pair("lengths", &cache.lengths), {"slots", &cache.slots}, {"block_table", &cache.blockTable}})
    if (node.has(key))
      *user = node.at(key).nonEmptyText();
  if (!cache.blockTable.empty() && !cache.page)
    node.at("block_table").wrong("'{}' has no pages: 'page' is missing", cache.name);
}

/// Each of those is a tensor of integers.
void checkUses(const Node &node, const GraphSpec &graph, const TensorSpec &cache) {
  for (auto [key, user] :
       {std::pair("lengths", &cache.lengths), {"slots", &cache.slots}, {"block_table", &cache.blockTable}}) {
    if (user->empty())
      continue;
    auto tensor = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                               [name = user](const TensorSpec &spec) { return spec.name == *name; });
    if (tensor == graph.tensors.end())
      node.at(key).wrong("there is no tensor '{}'", *user);
    bool table = user == &cache.blockTable;
    if ((tensor->dtype != CFC_I32 && tensor->dtype != CFC_I64) || tensor->kind != TensorKind::Tensor ||
        tensor->shape.size() != (table ? 2 : 1))
      node.at(key).wrong("'{}' is no {} of integers", *user, table ? "table" : "list");
  }
}

TensorSpec readTensor(const Node &node) {
  TensorSpec tensor;
  tensor.name = node.at("name").nonEmptyText();
  tensor.kind =
      node.at("kind").oneOf({std::pair{"tensor", TensorKind::Tensor}, {"kv_cache", TensorKind::KvCache}});
  tensor.role = node.at("role").oneOf({std::pair{"input", Role::Input},
                                       {"weight", Role::Weight},
                                       {"inout", Role::InOut},
                                       {"output", Role::Output}});
  tensor.dtype = node.at("dtype").oneOf({std::pair{"f16", CFC_F16},
                                         {"bf16", CFC_BF16},
                                         {"f32", CFC_F32},
                                         {"i32", CFC_I32},
                                         {"i64", CFC_I64},
                                         {"f8E4M3FN", CFC_F8E4M3FN}});
  tensor.align = node.at("align").alignment();
  if (tensor.align < elementBytes(tensor.dtype))
    node.at("align").wrong("{} is less than an element", tensor.align);
  int64_t bytes = elementBytes(tensor.dtype);
  if (tensor.kind == TensorKind::KvCache) {
    tensor.heads = node.at("heads").integer(1, 1 << 20);
    tensor.dim = node.at("dim").integer(1, 1 << 20);
    if (node.has("v_dim"))
      tensor.vDim = node.at("v_dim").integer(1, 1 << 20);
    if (node.has("requests"))
      tensor.requests = node.at("requests").integer(1, 1 << 20);
    if (node.has("page"))
      tensor.page = node.at("page").integer(1, 1 << 20);
    if (node.has("pages"))
      tensor.pages = node.at("pages").integer(1, INT32_MAX);
    if (tensor.pages && !tensor.page)
      node.at("pages").wrong("'{}' has no pages: 'page' is missing", tensor.name);
    readUses(node, tensor);
  } else {
    for (const Node &extent : node.at("shape").items(0)) {
      if (tensor.shape.size() == 16)
        node.at("shape").wrong("has more than 16 extents");
      tensor.shape.push_back(extent.integer(1, kMaxBytes));
      bytes = multiply(extent, bytes, tensor.shape.back());
    }
  }
  if (node.has("bound"))
    tensor.bound = node.at("bound").integer(0, INT64_MAX);
  readLayout(node, tensor);
  if (node.has("rope"))
    tensor.rope = readRope(node.at("rope"), tensor);
  return tensor;
}

/// A tensor of the graph and one of its fields.
TableEntry readEntry(const Node &item, const GraphSpec &graph) {
  std::string tensorName = item.at("tensor").text();
  auto tensor = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                             [&](const TensorSpec &spec) { return spec.name == tensorName; });
  if (tensor == graph.tensors.end())
    item.at("tensor").wrong("there is no tensor '{}'", tensorName);
  Field field = item.at("field").oneOf({std::pair{"pointer", Field::Pointer},
                                        {"k_pointer", Field::KPointer},
                                        {"v_pointer", Field::VPointer},
                                        {"stride_head", Field::StrideHead},
                                        {"stride_token", Field::StrideToken},
                                        {"capacity", Field::Capacity},
                                        {"stride_block", Field::StrideBlock},
                                        {"blocks", Field::Blocks},
                                        {"v_stride_head", Field::VStrideHead},
                                        {"v_stride_token", Field::VStrideToken},
                                        {"v_stride_block", Field::VStrideBlock}});
  std::vector<Field> fields = tableFields(*tensor);
  if (std::find(fields.begin(), fields.end(), field) == fields.end())
    item.at("field").wrong("tensor '{}' has no field '{}'", tensorName, name(field));
  return {size_t(tensor - graph.tensors.begin()), field};
}

std::vector<TableEntry> readTable(const Node &node, const GraphSpec &graph) {
  std::vector<TableEntry> table;
  std::set<std::pair<size_t, Field>> seen;
  for (const Node &item : node.items(0)) {
    TableEntry entry = readEntry(item, graph);
    if (!seen.insert({entry.tensor, entry.field}).second)
      item.wrong("'{}' of tensor '{}' is listed twice", name(entry.field), graph.tensors[entry.tensor].name);
    table.push_back(entry);
  }
  return table;
}

/// A box that one copy can take, of a tensor that a map can describe.
void checkMap(const Node &node, const TensorSpec &tensor, const MapSpec &map) {
  size_t rank = tensor.hasBlocks() ? 4 : 3;
  if (map.field == Field::Pointer)
    rank = tensor.shape.size();
  else if (map.field != Field::KPointer && map.field != Field::VPointer)
    node.at("field").wrong("'{}' points to nothing", name(map.field));
  if (map.field == Field::Pointer && rank != 2)
    node.at("tensor").wrong("'{}' has {} dimensions; a tensor map needs 2", tensor.name, rank);
  if (tensor.layout != Layout::Native)
    node.at("tensor").wrong("'{}' is {}, which no tensor map can say", tensor.name, name(tensor.layout));
  if (uint64_t size = elementBytes(tensor.dtype); size > 4)
    node.at("tensor").wrong("'{}' has elements of {} bytes; a tensor map takes 1, 2 or 4", tensor.name, size);
  Node box = node.at("box");
  if (map.box.size() != rank)
    box.wrong("has {} dimensions, '{}' of '{}' has {}", map.box.size(), name(map.field), tensor.name, rank);
  int64_t row = map.box.front() * int64_t(elementBytes(tensor.dtype)), bytes = row;
  for (size_t i = 1; i < rank; ++i)
    bytes *= map.box[i];
  if (row % 16 != 0)
    box.wrong("its rows of {} bytes are no multiple of 16", row);
  if (map.swizzle && row != map.swizzle)
    box.wrong("its rows are {} bytes; a swizzle of {} needs rows of {}", row, map.swizzle, map.swizzle);
  if (bytes >= kMaxBoxBytes)
    box.wrong("{} bytes are more than one copy takes", bytes);
}

std::vector<MapSpec> readMaps(const Node &node, const GraphSpec &graph) {
  std::vector<MapSpec> maps;
  for (const Node &item : node.items(0)) {
    TableEntry entry = readEntry(item, graph);
    MapSpec &map = maps.emplace_back(MapSpec{entry.tensor, entry.field, {}, 0});
    for (const Node &extent : item.at("box").items(1))
      map.box.push_back(extent.integer(1, 256));
    map.swizzle = item.at("swizzle").integer(0, 128);
    if (map.swizzle != 0 && map.swizzle != 128)
      item.at("swizzle").wrong("{} is neither 0 nor 128", map.swizzle);
    checkMap(item, graph.tensors[map.tensor], map);
  }
  return maps;
}

WorkspaceSpec readWorkspace(const Node &node) {
  WorkspaceSpec workspace;
  workspace.bytes = node.at("bytes").integer(0, kMaxBytes);
  workspace.zeroBytes = node.at("zero_bytes").integer(0, kMaxBytes);
  workspace.align = node.at("align").alignment();
  if (workspace.zeroBytes > workspace.bytes)
    node.wrong("zero_bytes {} is more than bytes {}", workspace.zeroBytes, workspace.bytes);
  return workspace;
}

KernelSpec readKernel(const Node &node) {
  KernelSpec kernel;
  kernel.name = node.at("name").nonEmptyText();
  kernel.cubin = node.at("cubin").integer(0, 9999);
  kernel.threads = node.at("threads").integer(1, 1024);
  kernel.cluster = node.at("cluster").integer(1, 16);
  kernel.clusters = node.at("clusters").integer(1, INT32_MAX / 16);
  kernel.sharedBytes = node.at("shared_bytes").integer(0, 1 << 20);
  kernel.ctasPerSm = node.at("ctas_per_sm").integer(1, 32);
  kernel.nonPortable = node.at("non_portable").boolean();
  if (node.has("pdl"))
    kernel.pdl = node.at("pdl").boolean();
  if (node.has("cooperative"))
    kernel.cooperative = node.at("cooperative").boolean();
  if (kernel.cluster > 8 && !kernel.nonPortable)
    node.wrong("a cluster of {} needs non_portable", kernel.cluster);
  return kernel;
}

/// A condition that is not known could not be kept: it is an error.
VariantCondition readCondition(const Node &node) {
  VariantCondition when;
  if (!node.value.is_object())
    node.wrong("is {}, not an object", node.value.type_name());
  for (const auto &[key, value] : node.value.items()) {
    Node limit = node.at(key.c_str());
    if (key == "max_length")
      when.maxLength = limit.integer(1, INT64_MAX);
    else if (key == "max_batch")
      when.maxBatch = limit.integer(1, INT32_MAX);
    else if (key == "min_clusters")
      when.minClusters = limit.integer(1, INT32_MAX / 16);
    else
      node.wrong("'{}' is none of 'max_length', 'max_batch', 'min_clusters'", key);
  }
  return when;
}

VariantSpec readVariant(const Node &node) {
  VariantSpec variant;
  variant.planHash = node.at("plan_hash").nonEmptyText();
  for (const Node &kernel : node.at("kernels").items(1))
    variant.kernels.push_back(readKernel(kernel));
  if (node.has("when"))
    variant.when = readCondition(node.at("when"));
  if (node.has("simt_digest"))
    variant.simtDigest = node.at("simt_digest").text();
  return variant;
}

GraphSpec readGraph(const Node &node) {
  GraphSpec graph;
  graph.name = node.at("name").nonEmptyText();
  if (node.has("batch"))
    graph.batch = node.at("batch").integer(1, 1 << 20);
  std::set<std::string> names;
  for (const Node &item : node.at("tensors").items(1)) {
    graph.tensors.push_back(readTensor(item));
    if (!names.insert(graph.tensors.back().name).second)
      item.wrong("a second tensor '{}'", graph.tensors.back().name);
  }
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    checkUses(node.at("tensors").items(1)[i], graph, graph.tensors[i]);
  graph.table = readTable(node.at("table"), graph);
  if (node.has("maps")) // bundles of earlier compilers have none
    graph.maps = readMaps(node.at("maps"), graph);
  graph.workspace = readWorkspace(node.at("workspace"));
  for (const Node &item : node.at("variants").items(1))
    graph.variants.push_back(readVariant(item));
  if (std::none_of(graph.variants.begin(), graph.variants.end(),
                   [](const VariantSpec &variant) { return variant.when.always(); }))
    node.at("variants").wrong("each has a condition; one must be for all launches");
  return graph;
}

Json parseJson(std::string_view text) {
  auto limitDepth = [](int depth, Json::parse_event_t, Json &) {
    if (depth > kMaxDepth)
      fail(CFC_INVALID_BUNDLE, "manifest: nested deeper than {} levels", kMaxDepth);
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), limitDepth);
  } catch (const Json::exception &error) {
    fail(CFC_INVALID_BUNDLE, "manifest: not JSON: {}", error.what());
  }
}

} // namespace

Manifest parseManifest(std::string_view text) {
  Json json = parseJson(text);
  Node root{json, ""};
  int64_t schema = root.at("schema").integer(1, INT64_MAX);
  if (schema > kSchema)
    fail(CFC_UNSUPPORTED_VERSION,
         "the bundle's schema is {}, this runtime reads up to {}: use a newer cfc runtime, or compile again",
         schema, kSchema);
  Manifest manifest;
  manifest.compiler = root.at("compiler").text();
  manifest.target = root.at("target").nonEmptyText();
  manifest.ptx = root.at("ptx").text();
  manifest.ptxas = root.at("ptxas").text();
  manifest.driverMin = root.at("driver_min").integer(0, INT32_MAX);
  manifest.simtDigest = root.at("simt_digest").text();
  std::set<std::string> names;
  for (const Node &item : root.at("graphs").items(1)) {
    manifest.graphs.push_back(readGraph(item));
    if (!names.insert(manifest.graphs.back().name).second)
      item.wrong("a second graph '{}'", manifest.graphs.back().name);
  }
  return manifest;
}

} // namespace cfc::runtime
