#include "RuntimeFixture.h"

namespace cfc::runtime::test {

static TensorSpec tensor(std::string name, Role role, cfc_dtype dtype, std::vector<int64_t> shape,
                         uint64_t align) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.dtype = dtype;
  spec.shape = std::move(shape);
  spec.align = align;
  return spec;
}

static KernelSpec kernel(std::string name, uint32_t cubin, uint32_t cluster, uint32_t clusters) {
  KernelSpec spec;
  spec.name = std::move(name);
  spec.cubin = cubin;
  spec.threads = 160;
  spec.cluster = cluster;
  spec.clusters = clusters;
  spec.sharedBytes = 112000;
  spec.ctasPerSm = 2;
  return spec;
}

Manifest smallManifest() {
  GraphSpec graph;
  graph.name = "block";
  graph.tensors = {tensor("x", Role::Input, CFC_F16, {1, 64}, 16),
                   tensor("w_q", Role::Weight, CFC_F16, {64, 64}, 16)};
  TensorSpec cache = tensor("cache", Role::InOut, CFC_F16, {}, 16);
  cache.kind = TensorKind::KvCache;
  cache.heads = 2;
  cache.dim = 16;
  graph.tensors.push_back(cache);
  graph.tensors.push_back(tensor("len", Role::Input, CFC_I32, {1}, 4));
  graph.tensors.back().bound = 128;
  graph.tensors.push_back(tensor("result0", Role::Output, CFC_F16, {1, 64}, 16));
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    for (Field field : tableFields(graph.tensors[i]))
      graph.table.push_back({i, field});
  graph.maps = {{1, Field::Pointer, {64, 8}, 128},
                {2, Field::KPointer, {16, 64, 1}, 0},
                {2, Field::VPointer, {16, 64, 1}, 0}};
  graph.workspace = {1024, 256, 256};
  graph.variants = {
      {"1a2b3c4d", {kernel("block_k0_1a2b3c4d", 0, 4, 32), kernel("block_k1_1a2b3c4d", 1, 1, 128)}}};

  Manifest manifest;
  manifest.compiler = "0.1.0";
  manifest.target = "sm_90a";
  manifest.ptx = "8.0";
  manifest.ptxas = "13.0.88";
  manifest.driverMin = 12000;
  manifest.simtDigest = "0123456789abcdef";
  manifest.graphs = {graph};
  return manifest;
}

std::vector<SectionContent> sectionsWith(const std::string &manifestText) {
  return {{"manifest", manifestText},
          {"graph", "attn.graph @block"},
          {"plan", "plan"},
          {"cubin.0", "first cubin"},
          {"cubin.1", "second cubin"}};
}

std::vector<SectionContent> smallSections(const Manifest &manifest) { return sectionsWith(toJson(manifest)); }

} // namespace cfc::runtime::test
