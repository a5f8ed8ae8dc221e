// The C interface up to binding: arguments, names, types, shapes, pointers, and what the device must offer.
#include "RuntimeHost.h"
#include "runtime/src/Maps.h"
#include <cstring>
#include <thread>

using namespace cfc::runtime;
using namespace cfc::runtime::test;
using Catch::Matchers::Contains;

extern "C" int cfcHeaderTest(void);

namespace {

/// Binding fails with `status` and a message that contains `text`.
void refused(const BundlePtr &bundle, const Tensors &tensors, cfc_status status, const std::string &text,
             const cfc_bind_options *options = nullptr) {
  cfc_binding *binding = nullptr;
  CHECK(cfc_bind(bundle.get(), nullptr, tensors.list.data(), tensors.list.size(), options, &binding) ==
        status);
  CHECK(binding == nullptr);
  CHECK_THAT(cfc_last_error(), Contains(text));
}

} // namespace

TEST_CASE("the header is C") { CHECK(cfcHeaderTest() == 0); }

TEST_CASE("bundles load from memory and need no device") {
  BundlePtr bundle = loadSmall();
  const char *json = nullptr;
  REQUIRE(cfc_bundle_manifest(bundle.get(), &json) == CFC_OK);
  CHECK(json == toJson(smallManifest()));
  size_t bytes = 0, align = 0;
  REQUIRE(cfc_workspace_size(bundle.get(), nullptr, nullptr, &bytes, &align) == CFC_OK);
  CHECK((bytes == 1024 && align == 256));
  cfc_limits limits{};
  limits.size = sizeof limits;
  limits.max_length = 129;
  CHECK(cfc_workspace_size(bundle.get(), "block", &limits, &bytes, nullptr) == CFC_UNSUPPORTED_SIZE);
  CHECK_THAT(cfc_last_error(), Contains("max_length is 129, the graph's bound is 128"));
  CHECK(cfc_workspace_size(bundle.get(), "blocks", nullptr, &bytes, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Contains("did you mean 'block'?"));
}

TEST_CASE("null and odd arguments are refused") {
  cfc_bundle *bundle = nullptr;
  CHECK(cfc_load(nullptr, nullptr, &bundle) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_load("x", nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_bundle_manifest(nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_workspace_size(nullptr, nullptr, nullptr, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_graph_for(nullptr, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_bind(nullptr, nullptr, nullptr, 0, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_rebind(nullptr, nullptr, 0, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_launch(nullptr, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_device_status_get(nullptr, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_workspace_init(nullptr, 16, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_kernel_count(nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_kernel_info_get(nullptr, 0, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Contains("cfc_kernel_info_get: binding is null"));

  cfc_load_options options{};
  CHECK(cfc_load("x", &options, &bundle) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Contains("set it to sizeof(cfc_load_options)"));
  options.size = sizeof options;
  options.flags = 0x80;
  CHECK(cfc_load("x", &options, &bundle) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Contains("unknown bits: 0x80"));
}

TEST_CASE("a newer caller is served unless it uses what is new") {
  struct {
    cfc_load_options old{};
    uint64_t added = 0;
  } newer;
  newer.old.size = sizeof newer;
  cfc_bundle *bundle = nullptr;
  CHECK(cfc_load("/nowhere", &newer.old, &bundle) == CFC_FILE_ERROR);
  newer.added = 1;
  CHECK(cfc_load("/nowhere", &newer.old, &bundle) == CFC_UNSUPPORTED_VERSION);
}

TEST_CASE("a flipped byte passes only where digests are not asked for") {
  std::string bytes = packBundle(smallSections());
  bytes.back() ^= 1;
  cfc_load_options options{};
  options.size = sizeof options;
  options.memory = bytes.data();
  options.memory_bytes = bytes.size();
  cfc_bundle *bundle = nullptr;
  CHECK(cfc_load("mine", &options, &bundle) == CFC_INVALID_BUNDLE);
  CHECK_THAT(cfc_last_error(), Contains("mine: garbled: the digest of section 'cubin.1'"));
  options.flags = CFC_LOAD_NO_DIGESTS;
  REQUIRE(cfc_load("mine", &options, &bundle) == CFC_OK);
  cfc_unload(bundle);
}

TEST_CASE("the tensors of a call are checked by name") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  SECTION("all there") {
    bindSmall(bundle, tensors);
    return;
  }
  SECTION("missing") {
    tensors.list.pop_back();
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "a tensor is missing: 'len'");
    tensors.list.pop_back();
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "tensors are missing: 'cache', 'len'");
  }
  SECTION("misnamed") {
    tensors["w_q"].name = "wq";
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "there is no tensor 'wq'; did you mean 'w_q'?");
    tensors["wq"].name = nullptr;
    cfc_binding *binding = nullptr;
    CHECK(cfc_bind(bundle.get(), nullptr, tensors.list.data(), 5, nullptr, &binding) == CFC_INVALID_ARGUMENT);
    CHECK_THAT(cfc_last_error(), Contains("has no name"));
  }
  SECTION("repeated") {
    tensors.list.push_back(tensors["x"]);
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "tensor 'x': is given twice");
  }
  SECTION("wrong type") {
    tensors["x"].dtype = CFC_BF16;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "tensor 'x': its type is bf16, the graph wants f16");
    tensors["x"].dtype = 99;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "99 (not a cfc_dtype)");
  }
  SECTION("wrong shape") {
    tensors["x"].shape = tensors.square;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "its shape is [64, 64], the graph wants [1, 64]");
    tensors["x"].shape = nullptr;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "shape is null");
    tensors["x"].rank = 4000000000u;
    tensors["x"].shape = tensors.row;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "rank is 4000000000");
  }
  SECTION("null pointers") {
    for (const char *name : {"x", "w_q", "len", "result0"}) {
      void *kept = std::exchange(tensors[name].data, nullptr);
      refused(bundle, tensors, CFC_INVALID_ARGUMENT, fmt::format("tensor '{}': data is null", name));
      tensors[name].data = kept;
    }
    tensors["cache"].v = nullptr;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "tensor 'cache': v is null");
  }
  SECTION("misaligned") {
    tensors["x"].data = static_cast<char *>(tensors["x"].data) + 8;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "is not aligned to 16 bytes");
  }
  SECTION("too small") {
    tensors["w_q"].bytes = 8191;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "its buffer has 8191 bytes, 8192 are needed");
  }
  SECTION("sizes that differ") {
    tensors.list[2].size = sizeof(cfc_tensor) + 8;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "has size 104, the first one 96");
    tensors.list[0].size = 0;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "cfc_tensor.size is 0");
  }
  SECTION("no array") {
    cfc_binding *binding = nullptr;
    CHECK(cfc_bind(bundle.get(), nullptr, nullptr, 3, nullptr, &binding) == CFC_INVALID_ARGUMENT);
  }
  SECTION("overlapping results") {
    tensors["result0"].data = tensors["x"].data;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "overlaps that of 'x'");
    tensors["result0"].data = static_cast<char *>(tensors["cache"].v) + 8192 - 16;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "overlaps that of 'cache'");
  }
  CHECK(fake->hostAllocations == 0);
  CHECK(fake->launches.empty());
}

TEST_CASE("weights must lie as the graph was compiled for them") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  GraphSpec &graph = manifest.graphs[0];
  Tensors tensors;
  SECTION("native") {
    tensors["w_q"].layout = CFC_LAYOUT_PACKED;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "bind it as it was before `cfc pack`");
    tensors["w_q"].layout = 2;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "its layout is 2 (not a cfc_layout)");
    tensors["w_q"].layout = CFC_LAYOUT_NATIVE;
    tensors["cache"].layout = CFC_LAYOUT_PACKED;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "tensor 'cache': it cannot be packed");
  }
  SECTION("packed, with padding") {
    graph.tensors[1].layout = Layout::Packed;
    graph.tensors[1].shape = {65, 64};
    graph.maps.erase(graph.maps.begin());
    int64_t shape[] = {65, 64};
    tensors["w_q"].shape = shape;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT,
            "tensor 'w_q': it is bound as a native weight");
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "pack it (`cfc pack`");
    tensors["w_q"].layout = CFC_LAYOUT_PACKED;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "has 8192 bytes, 16384 are needed");
    tensors["w_q"].data = fakeMemory(16384);
    tensors["w_q"].bytes = 16384;
    bindSmall(loadSmall(manifest), tensors);
    // The padding is the weight's: a result may not lie there.
    tensors["result0"].data = static_cast<char *>(tensors["w_q"].data) + 16384 - 128;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "overlaps that of 'w_q'");
  }
}

TEST_CASE("callers of the first version have no layout") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  Tensors tensors;
  // As an array of the old struct: 88 bytes apart, with garbage where the new fields would be.
  std::string bytes;
  for (cfc_tensor &tensor : tensors.list) {
    tensor.size = offsetof(cfc_tensor, layout);
    bytes.append(reinterpret_cast<const char *>(&tensor), tensor.size);
  }
  auto status = [&](const BundlePtr &bundle) {
    cfc_binding *binding = nullptr;
    cfc_status result = cfc_bind(bundle.get(), nullptr, reinterpret_cast<const cfc_tensor *>(bytes.data()),
                                 tensors.list.size(), nullptr, &binding);
    cfc_unbind(binding);
    return result;
  };
  CHECK(status(loadSmall(manifest)) == CFC_OK);
  manifest.graphs[0].tensors[1].layout = Layout::Packed;
  manifest.graphs[0].maps.clear();
  CHECK(status(loadSmall(manifest)) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Contains("cfc pack"));
}

TEST_CASE("tables that a graph generates need no device") {
  Manifest manifest = smallManifest();
  TensorSpec &spec = manifest.graphs[0].tensors[0];
  spec.dtype = CFC_F32;
  spec.align = 16;
  spec.shape = {3, 4};
  spec.rope = cfc::RopeTable{.base = 100, .attentionFactor = 2};
  BundlePtr bundle = loadSmall(manifest);
  std::vector<float> table(12, -1);
  const char *name = spec.name.c_str();
  REQUIRE(cfc_generate(bundle.get(), nullptr, name, table.data(), 48) == CFC_OK);
  for (int position = 0; position < 3; ++position)
    for (int i = 0; i < 2; ++i) { // 100^(-2 i / 4) radians a position
      double angle = position * (i ? 0.1 : 1.0);
      CHECK(table[size_t(4 * position + i)] == Approx(2 * std::cos(angle)).margin(1e-6));
      CHECK(table[size_t(4 * position + 2 + i)] == Approx(2 * std::sin(angle)).margin(1e-6));
    }
  auto refused = [&](cfc_status status, const char *why) {
    CHECK(status == CFC_INVALID_ARGUMENT);
    CHECK_THAT(cfc_last_error(), Contains(why));
  };
  refused(cfc_generate(bundle.get(), nullptr, name, table.data(), 40), "has 48 bytes, not 40");
  refused(cfc_generate(bundle.get(), nullptr, "w_q", table.data(), 48), "do not follow from the graph");
  refused(cfc_generate(bundle.get(), nullptr, "w_x", table.data(), 48), "did you mean 'w_q'?");
  refused(cfc_generate(bundle.get(), "blok", name, table.data(), 48), "did you mean 'block'?");
  refused(cfc_generate(nullptr, nullptr, name, table.data(), 48), "cfc_generate: bundle is null");
  refused(cfc_generate(bundle.get(), nullptr, nullptr, table.data(), 48), "cfc_generate: tensor is null");
  refused(cfc_generate(bundle.get(), nullptr, name, nullptr, 48), "cfc_generate: data is null");
}

TEST_CASE("caches are checked") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  cfc_tensor &cache = tensors["cache"];
  SECTION("tokens outside, heads inside") {
    cache.stride_head = 32;
    cache.stride_token = 64;
    bindSmall(bundle, tensors);
  }
  SECTION("one token needs no stride that fits") {
    cache.capacity = 1;
    cache.stride_token = 16;
    cache.stride_head = 32;
    bindSmall(bundle, tensors);
  }
  SECTION("overlapping rows") {
    cache.stride_token = 16;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "rows of 32 bytes overlap");
    cache.stride_token = 48;
    cache.stride_head = 32;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "rows of 32 bytes overlap");
  }
  SECTION("odd values") {
    cache.stride_token = -32;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "stride_token is -32 bytes; it must be positive");
    cache.stride_token = 40;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "not a multiple of 16");
    cache.stride_token = 32;
    cache.capacity = 0;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "capacity is 0");
    cache.capacity = INT64_MAX;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "too large");
    cache.capacity = 128;
    cache.stride_head = INT64_MAX - 15;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "too large");
  }
  SECTION("too small a buffer") {
    cache.capacity = 129;
    cache.stride_head = 129 * 32;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "each of k and v has 8192 bytes, 8256 are needed");
  }
  SECTION("k is v") {
    cache.v = cache.k;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "k and v are the same buffer");
  }
}

TEST_CASE("caches of several requests, with pages, or of another dim of V are checked") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  GraphSpec &graph = manifest.graphs[0];
  TensorSpec &spec = graph.tensors[2];
  graph.maps.clear();
  auto load = [&] {
    graph.table.clear();
    for (size_t i = 0; i < graph.tensors.size(); ++i)
      for (Field field : tableFields(graph.tensors[i]))
        graph.table.push_back({i, field});
    return loadSmall(manifest);
  };
  Tensors tensors; // 2 heads of 16, 128 tokens of 32 bytes: 8192 bytes
  cfc_tensor &cache = tensors["cache"];
  SECTION("requests") {
    spec.requests = 2;
    BundlePtr bundle = load();
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "each of k and v has 8192 bytes, 16384 are needed");
    cache.capacity = 64;
    cache.stride_head = 64 * 32;
    bindSmall(bundle, tensors); // dense: the strides of blocks follow
    cache.stride_block = 64 * 32;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "k's rows of 32 bytes overlap");
    cache.stride_block = 4096;
    cache.blocks = 1;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "it has 1 blocks, the graph serves 2 requests");
    cache.blocks = 0;
    cache.v_stride_head = 32;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "v_stride_head is 32 bytes, K's 2048");
  }
  SECTION("pages") {
    spec.page = 16;
    spec.pages = 8;
    BundlePtr bundle = load();
    cache.stride_head = 16 * 32;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT,
            "blocks is 0; the number of pages in the pool must be given");
    cache.blocks = 8;
    bindSmall(bundle, tensors);
    cache.blocks = 9;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "each of k and v has 8192 bytes, 9216 are needed");
    cache.blocks = 8;
    cache.capacity = 129;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT,
            "capacity is 129 tokens; a block table of 8 pages of 16 names 128");
    cache.capacity = 0;
    bindSmall(bundle, tensors);
  }
  SECTION("another dim of V") {
    spec.vDim = 8;
    BundlePtr bundle = load();
    bindSmall(bundle, tensors); // K's strides in proportion
    cache.v_bytes = 4000;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "v has 4000 bytes, 4096 are needed");
    cache.v_bytes = 4096;
    cache.v_stride_token = 32;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "v's rows of 16 bytes overlap");
    spec.vDim = 12;
    spec.align = 8;
    cache.v_stride_token = 0;
    cache.stride_head = 4097 * 8;
    cache.bytes = cache.v_bytes = 0;
    refused(load(), tensors, CFC_INVALID_ARGUMENT, "v_stride_head must be given: 32776 bytes of K");
  }
  SECTION("more blocks than the graph has requests: the cache of a larger batch") {
    cache.blocks = 3;
    BundlePtr bundle = load();
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "each of k and v has 8192 bytes, 24576 are needed");
    cache.capacity = 32;
    cache.stride_head = 32 * 32;
    bindSmall(bundle, tensors);
  }
}

TEST_CASE("what no tensor map can say is refused") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  Tensors tensors;
  SECTION("strides") {
    manifest.graphs[0].tensors[2].align = 2;
    tensors["cache"].stride_token = 40;
    tensors["cache"].capacity = 64;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT,
            "tensor 'cache': stride_token of 40 bytes is not a multiple of 16, as a tensor map needs");
    tensors["cache"].stride_token = 32;
    tensors["cache"].stride_head = 64 * 32 + 2;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "stride_head of 2050 bytes");
  }
  SECTION("sizes") {
    GraphSpec &graph = manifest.graphs[0];
    BoundTensor cache;
    cache.strideToken = 32, cache.strideHead = uint64_t(1) << 40, cache.capacity = 64;
    CHECK_THROWS_WITH(mapGeometry(graph, graph.maps[1], cache),
                      Contains("'cache': stride_head of 1099511627776 bytes is too large for a tensor map"));
    cache.strideHead = 64 * 32, cache.capacity = (uint64_t(1) << 32) + 1;
    CHECK_THROWS_WITH(mapGeometry(graph, graph.maps[1], cache),
                      Contains("a tensor map takes 1 to 4294967296 tokens, not 4294967297"));
  }
  SECTION("addresses") {
    manifest.graphs[0].tensors[1].align = 2;
    tensors["w_q"].data = static_cast<char *>(fakeMemory(64 * 64 * 2 + 2)) + 2;
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT,
            "is not aligned to 16 bytes, as a tensor map");
  }
  SECTION("rows") {
    manifest.graphs[0].tensors[1].shape = {128, 34};
    int64_t shape[] = {128, 34};
    tensors["w_q"].shape = shape;
    tensors["w_q"].bytes = 0;
    tensors["w_q"].data = fakeMemory(128 * 34 * 2);
    refused(loadSmall(manifest), tensors, CFC_INVALID_ARGUMENT, "a row of 68 bytes is not a multiple of 16");
  }
}

TEST_CASE("memory must be the device's") {
  FakeDriver fake;
  fake->devices = 2;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  alignas(16) static char host[128];
  SECTION("host memory") {
    tensors["x"].data = host;
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "is not memory that the device can reach");
    fake->pageable = 1;
    bindSmall(bundle, tensors);
  }
  SECTION("another device's") {
    tensors["x"].data = fakeMemory(128, 1);
    refused(bundle, tensors, CFC_INVALID_ARGUMENT, "lies on device 1, the binding is on device 0");
  }
}

TEST_CASE("the device is checked before anything is loaded") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  SECTION("another architecture") {
    fake->major = 10;
    refused(bundle, tensors, CFC_UNSUPPORTED_DEVICE, "is for sm_90a, device 0 is sm_100");
  }
  SECTION("old driver") {
    fake->version = 11080;
    refused(bundle, tensors, CFC_UNSUPPORTED_VERSION, "needs a driver for CUDA 12.0, this one is for 11.8");
  }
  SECTION("no such device") {
    cfc_bind_options options = bindOptions();
    options.flags = CFC_BIND_DEVICE;
    options.device = 3;
    refused(bundle, tensors, CFC_NO_DEVICE, "there is no device 3: the driver has 1", &options);
  }
  CHECK(fake->modulesLoaded == 0);
}

TEST_CASE("limits are named as required / limit") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  BundlePtr bundle = loadSmall(manifest);
  Tensors tensors;
  SECTION("no cluster fits") {
    fake->resident = [](const std::string &, unsigned cluster) { return cluster == 1 ? 264 : 0; };
    refused(bundle, tensors, CFC_UNSUPPORTED_DEVICE,
            "no cluster of 4 blocks with 112000 bytes of shared memory");
    refused(bundle, tensors, CFC_UNSUPPORTED_DEVICE, "required 1 cluster / limit 0");
  }
  SECTION("shared memory") {
    fake->sharedLimit = 101376;
    refused(bundle, tensors, CFC_UNSUPPORTED_DEVICE,
            "needs 112000 bytes of shared memory a block / limit 101376");
  }
  SECTION("threads") {
    fake->maxThreads = 128;
    refused(bundle, tensors, CFC_UNSUPPORTED_DEVICE, "needs 160 threads a block / limit 128");
  }
  SECTION("SMs") {
    cfc_bind_options options = bindOptions();
    options.max_sms = 3;
    refused(bundle, tensors, CFC_UNSUPPORTED_DEVICE, "needs 4 SMs for one cluster / limit 3", &options);
  }
  SECTION("another variant is taken") {
    VariantSpec second = manifest.graphs[0].variants[0];
    second.planHash = "small";
    second.kernels[0].sharedBytes = second.kernels[1].sharedBytes = 50000;
    manifest.graphs[0].variants.push_back(second);
    bundle = loadSmall(manifest);
    fake->sharedLimit = 101376;
    BindingPtr binding = bindSmall(bundle, tensors);
    cfc_kernel_info info{};
    info.size = sizeof info;
    REQUIRE(cfc_kernel_info_get(binding.get(), 0, &info) == CFC_OK);
    CHECK(std::string(info.plan_hash) == "small");
    cfc_bind_options options = bindOptions();
    options.plan_hash = "1a2b3c4d";
    refused(bundle, tensors, CFC_UNSUPPORTED_DEVICE, "limit 101376", &options);
    options.plan_hash = "other";
    refused(bundle, tensors, CFC_INVALID_ARGUMENT,
            "no variant with plan hash 'other'; it has 1a2b3c4d, small", &options);
  }
}

TEST_CASE("kernels that do not match the manifest are refused") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  SECTION("compiled without a cluster size") {
    fake->width = [](const std::string &) { return 0; };
    refused(bundle, tensors, CFC_INVALID_BUNDLE, "is compiled for clusters of 0, the manifest says 4");
  }
  SECTION("not a cubin") {
    fake->failModule = kCudaErrorInvalidImage;
    refused(bundle, tensors, CFC_INVALID_BUNDLE, "section 'cubin.0' is not a cubin");
  }
  SECTION("out of memory") {
    fake->failAlloc = kCudaErrorOutOfMemory;
    refused(bundle, tensors, CFC_OUT_OF_MEMORY, "allocating the table: CUDA_ERROR_FAKE (as the test wants)");
  }
  SECTION("out of pinned memory") {
    size_t before = fake->memory.size();
    fake->failHost = kCudaErrorOutOfMemory;
    refused(bundle, tensors, CFC_OUT_OF_MEMORY, "allocating host memory");
    CHECK(fake->memory.size() == before); // the table was given back
  }
}

TEST_CASE("messages belong to threads") {
  cfc_bundle *bundle = nullptr;
  CHECK(cfc_load("/nowhere/mine", nullptr, &bundle) == CFC_FILE_ERROR);
  std::string other = "unset";
  std::thread([&] { other = cfc_last_error(); }).join();
  CHECK(other.empty());
  CHECK_THAT(cfc_last_error(), Contains("/nowhere/mine"));
  CHECK(std::string(cfc_status_name(CFC_FILE_ERROR)) == "CFC_FILE_ERROR");
  CHECK(std::string(cfc_status_name(cfc_status(0x7f))) == "unknown");
}
