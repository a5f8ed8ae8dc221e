// Bundles of several graphs: which one an engine takes for its batch, and what they share.
#include "RuntimeHost.h"
#include <cstddef>
#include <fmt/format.h>

using namespace cfc::runtime;
using namespace cfc::runtime::test;
using Catch::Matchers::Contains;

TEST_CASE("the graph for a number of requests is the smallest that serves them") {
  Manifest manifest = smallManifest();
  for (int64_t batch : {4, 2, 8}) {
    GraphSpec graph = smallManifest().graphs[0];
    graph.name = fmt::format("block_b{}", batch);
    graph.batch = batch;
    graph.workspace.bytes = uint64_t(1024 * batch);
    manifest.graphs.push_back(graph);
  }
  CHECK(parseManifest(toJson(manifest)).graphs[3].batch == 8);
  BundlePtr bundle = loadSmall(manifest);
  cfc_limits limits{};
  limits.size = sizeof limits;
  const char *name = nullptr;
  auto graphFor = [&](uint32_t batch) {
    limits.max_batch = batch;
    REQUIRE(cfc_graph_for(bundle.get(), &limits, &name) == CFC_OK);
    return std::string(name);
  };
  CHECK(graphFor(0) == "block");
  CHECK(graphFor(1) == "block");
  CHECK(graphFor(2) == "block_b2");
  CHECK(graphFor(3) == "block_b4");
  CHECK(graphFor(8) == "block_b8");
  REQUIRE(cfc_graph_for(bundle.get(), nullptr, &name) == CFC_OK);
  CHECK(std::string(name) == "block");

  // What no graph serves has a status of its own, by which an engine falls back.
  limits.max_batch = 9;
  CHECK(cfc_graph_for(bundle.get(), &limits, &name) == CFC_UNSUPPORTED_SIZE);
  CHECK_THAT(cfc_last_error(),
             Contains("graph 'block_b8', the bundle's largest: max_batch is 9, the graph serves 8"));
  CHECK(CFC_EXIT_CODE(CFC_UNSUPPORTED_SIZE) == 3);
  CHECK(cfc_status_name(CFC_UNSUPPORTED_SIZE) == std::string("CFC_UNSUPPORTED_SIZE"));
  limits.max_batch = 2;
  limits.max_length = 129;
  CHECK(cfc_graph_for(bundle.get(), &limits, &name) == CFC_UNSUPPORTED_SIZE);
  CHECK_THAT(cfc_last_error(), Contains("max_length is 129, the graph's bound is 128"));

  manifest.graphs[1].tensors[0].bound = 64; // of positions, say
  bundle = loadSmall(manifest);
  limits.max_batch = 4;
  limits.max_length = 65;
  CHECK(graphFor(4) == "block_b8");
  limits.max_length = 64;
  CHECK(graphFor(4) == "block_b4");

  // One workspace serves all graphs.
  size_t bytes = 0, align = 0;
  limits.max_length = 128;
  limits.max_batch = 8;
  REQUIRE(cfc_workspace_size(bundle.get(), nullptr, &limits, &bytes, &align) == CFC_OK);
  CHECK((bytes == 8192 && align == 256));
  REQUIRE(cfc_workspace_size(bundle.get(), "block_b2", nullptr, &bytes, &align) == CFC_OK);
  CHECK(bytes == 2048);
  CHECK(cfc_workspace_size(bundle.get(), "block_b2", &limits, &bytes, &align) == CFC_UNSUPPORTED_SIZE);
  limits.max_batch = 9;
  CHECK(cfc_workspace_size(bundle.get(), nullptr, &limits, &bytes, &align) == CFC_UNSUPPORTED_SIZE);

  // Callers that know no max_batch are served as ever.
  limits.size = offsetof(cfc_limits, max_batch);
  REQUIRE(cfc_graph_for(bundle.get(), &limits, &name) == CFC_OK);
  CHECK(std::string(name) == "block");
}
