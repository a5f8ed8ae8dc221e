//===- Manifest.cpp - What a bundle says about itself -----------------------===//
//
// Names of the enumerations, sizes, and the manifest's way out to JSON. Reading is in ManifestReader.cpp.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Manifest.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace cfc::runtime {

using Json = nlohmann::ordered_json;

const char *name(cfc_dtype dtype) {
  switch (dtype) {
  case CFC_F16:
    return "f16";
  case CFC_BF16:
    return "bf16";
  case CFC_F32:
    return "f32";
  case CFC_I32:
    return "i32";
  case CFC_I64:
    return "i64";
  case CFC_F8E4M3FN:
    return "f8E4M3FN";
  }
  return "unknown";
}

const char *name(Role role) {
  switch (role) {
  case Role::Input:
    return "input";
  case Role::Weight:
    return "weight";
  case Role::InOut:
    return "inout";
  case Role::Output:
    return "output";
  }
  return "unknown";
}

const char *name(Layout layout) { return layout == Layout::Packed ? kPackedLayoutName : "native"; }

const char *name(Field field) {
  switch (field) {
  case Field::Pointer:
    return "pointer";
  case Field::KPointer:
    return "k_pointer";
  case Field::VPointer:
    return "v_pointer";
  case Field::StrideHead:
    return "stride_head";
  case Field::StrideToken:
    return "stride_token";
  case Field::Capacity:
    return "capacity";
  case Field::StrideBlock:
    return "stride_block";
  case Field::Blocks:
    return "blocks";
  case Field::VStrideHead:
    return "v_stride_head";
  case Field::VStrideToken:
    return "v_stride_token";
  case Field::VStrideBlock:
    return "v_stride_block";
  }
  return "unknown";
}

std::optional<cfc_dtype> dtypeFromName(std::string_view text) {
  for (cfc_dtype dtype : {CFC_F16, CFC_BF16, CFC_F32, CFC_I32, CFC_I64, CFC_F8E4M3FN})
    if (text == name(dtype))
      return dtype;
  return std::nullopt;
}

uint64_t elementBytes(cfc_dtype dtype) {
  switch (dtype) {
  case CFC_F16:
  case CFC_BF16:
    return 2;
  case CFC_F32:
  case CFC_I32:
    return 4;
  case CFC_I64:
    return 8;
  case CFC_F8E4M3FN:
    return 1;
  }
  return 1;
}

uint64_t rowOrTensorBytes(const TensorSpec &tensor) {
  if (tensor.layout == Layout::Packed)
    return tensor.packed().bytes();
  uint64_t elements = tensor.kind == TensorKind::KvCache ? tensor.dim : 1;
  for (int64_t extent : tensor.shape)
    elements *= extent;
  return elements * elementBytes(tensor.dtype);
}

uint64_t rowBytesOfV(const TensorSpec &cache) { return cache.dimOfV() * elementBytes(cache.dtype); }

std::vector<Field> tableFields(const TensorSpec &tensor) {
  if (tensor.kind == TensorKind::Tensor)
    return {Field::Pointer};
  std::vector<Field> fields = {Field::KPointer, Field::VPointer, Field::StrideHead, Field::StrideToken,
                               Field::Capacity};
  if (tensor.hasBlocks())
    fields.insert(fields.end(), {Field::StrideBlock, Field::Blocks});
  if (tensor.dimOfV() != tensor.dim)
    fields.insert(fields.end(), {Field::VStrideHead, Field::VStrideToken, Field::VStrideBlock});
  return fields;
}

std::optional<Target> parseTarget(std::string_view text) {
  if (!text.starts_with("sm_"))
    return std::nullopt;
  text.remove_prefix(3);
  bool exact = text.ends_with('a');
  if (exact)
    text.remove_suffix(1);
  if (text.size() < 2 || text.size() > 3 || text.find_first_not_of("0123456789") != text.npos)
    return std::nullopt;
  int number = 0;
  for (char digit : text)
    number = number * 10 + (digit - '0');
  return Target{number / 10, number % 10, exact};
}

static const char *name(RopeStretch scaling) {
  switch (scaling) {
  case RopeStretch::None:
    return "none";
  case RopeStretch::Linear:
    return "linear";
  case RopeStretch::Llama3:
    return "llama3";
  case RopeStretch::Yarn:
    return "yarn";
  }
  return "unknown";
}

/// What a table of rotations is computed from; its dim is that of the tensor.
static Json ropeJson(const RopeTable &rope) {
  Json json = {{"base", rope.base}, {"scaling", name(rope.scaling)}};
  RopeTable usual;
  for (auto [key, value, absent] : {std::tuple("factor", rope.factor, usual.factor),
                                    {"original_positions", rope.originalPositions, usual.originalPositions},
                                    {"low_freq_factor", rope.lowFreqFactor, usual.lowFreqFactor},
                                    {"high_freq_factor", rope.highFreqFactor, usual.highFreqFactor},
                                    {"beta_fast", rope.betaFast, usual.betaFast},
                                    {"beta_slow", rope.betaSlow, usual.betaSlow},
                                    {"attention_factor", rope.attentionFactor, usual.attentionFactor}})
    if (value != absent)
      json[key] = value;
  if (!rope.truncate)
    json["truncate"] = false;
  return json;
}

static Json tensorJson(const TensorSpec &tensor) {
  bool cache = tensor.kind == TensorKind::KvCache;
  Json json = {{"name", tensor.name},
               {"kind", cache ? "kv_cache" : "tensor"},
               {"role", name(tensor.role)},
               {"dtype", name(tensor.dtype)}};
  if (cache) {
    json["heads"] = tensor.heads;
    json["dim"] = tensor.dim;
    if (tensor.dimOfV() != tensor.dim)
      json["v_dim"] = tensor.vDim;
    if (tensor.requests > 1)
      json["requests"] = tensor.requests;
    if (tensor.page)
      json["page"] = tensor.page;
    if (tensor.pages)
      json["pages"] = tensor.pages;
    if (!tensor.lengths.empty())
      json["lengths"] = tensor.lengths;
    if (!tensor.slots.empty())
      json["slots"] = tensor.slots;
    if (!tensor.blockTable.empty())
      json["block_table"] = tensor.blockTable;
  } else {
    json["shape"] = tensor.shape;
  }
  if (tensor.bound)
    json["bound"] = *tensor.bound;
  json["align"] = tensor.align;
  if (tensor.layout != Layout::Native)
    json["layout"] = name(tensor.layout);
  if (tensor.columnGroup)
    json["column_group"] = tensor.columnGroup;
  if (tensor.rope)
    json["rope"] = ropeJson(*tensor.rope);
  return json;
}

static Json kernelJson(const KernelSpec &kernel) {
  Json json = {{"name", kernel.name},
               {"cubin", kernel.cubin},
               {"threads", kernel.threads},
               {"cluster", kernel.cluster},
               {"clusters", kernel.clusters},
               {"shared_bytes", kernel.sharedBytes},
               {"ctas_per_sm", kernel.ctasPerSm},
               {"non_portable", kernel.nonPortable}};
  if (kernel.pdl)
    json["pdl"] = true;
  if (kernel.cooperative)
    json["cooperative"] = true;
  return json;
}

static Json variantJson(const VariantSpec &variant) {
  Json json = {{"plan_hash", variant.planHash}};
  const VariantCondition &when = variant.when;
  if (when.maxLength)
    json["when"]["max_length"] = *when.maxLength;
  if (when.maxBatch)
    json["when"]["max_batch"] = *when.maxBatch;
  if (when.minClusters)
    json["when"]["min_clusters"] = when.minClusters;
  if (!variant.simtDigest.empty())
    json["simt_digest"] = variant.simtDigest;
  json["kernels"] = Json::array();
  for (const KernelSpec &kernel : variant.kernels)
    json["kernels"].push_back(kernelJson(kernel));
  return json;
}

static Json graphJson(const GraphSpec &graph) {
  Json json;
  json["name"] = graph.name;
  if (graph.batch != 1)
    json["batch"] = graph.batch;
  json["tensors"] = Json::array();
  for (const TensorSpec &tensor : graph.tensors)
    json["tensors"].push_back(tensorJson(tensor));
  json["table"] = Json::array();
  for (const TableEntry &entry : graph.table)
    json["table"].push_back({{"tensor", graph.tensors.at(entry.tensor).name}, {"field", name(entry.field)}});
  json["maps"] = Json::array();
  for (const MapSpec &map : graph.maps)
    json["maps"].push_back({{"tensor", graph.tensors.at(map.tensor).name},
                            {"field", name(map.field)},
                            {"box", map.box},
                            {"swizzle", map.swizzle}});
  json["workspace"] = {{"bytes", graph.workspace.bytes},
                       {"zero_bytes", graph.workspace.zeroBytes},
                       {"align", graph.workspace.align}};
  json["variants"] = Json::array();
  for (const VariantSpec &variant : graph.variants)
    json["variants"].push_back(variantJson(variant));
  return json;
}

/// Whether an older runtime would take a cache for one of another form.
static bool isNewCache(const TensorSpec &tensor) {
  return tensor.kind == TensorKind::KvCache &&
         (tensor.hasBlocks() || tensor.dimOfV() != tensor.dim || tensor.dtype == CFC_F8E4M3FN);
}

/// The oldest schema that says all of a manifest.
static int64_t needsSchema(const Manifest &manifest) {
  for (const GraphSpec &graph : manifest.graphs)
    if (std::any_of(graph.tensors.begin(), graph.tensors.end(), isNewCache))
      return 3;
  for (const GraphSpec &graph : manifest.graphs)
    for (const VariantSpec &variant : graph.variants)
      for (const KernelSpec &kernel : variant.kernels)
        if (kernel.cooperative)
          return 2;
  return 1;
}

std::string toJson(const Manifest &manifest) {
  Json json = {{"schema", needsSchema(manifest)},   {"compiler", manifest.compiler},
               {"target", manifest.target},         {"ptx", manifest.ptx},
               {"ptxas", manifest.ptxas},           {"driver_min", manifest.driverMin},
               {"simt_digest", manifest.simtDigest}};
  json["graphs"] = Json::array();
  for (const GraphSpec &graph : manifest.graphs)
    json["graphs"].push_back(graphJson(graph));
  return json.dump(1);
}

} // namespace cfc::runtime
