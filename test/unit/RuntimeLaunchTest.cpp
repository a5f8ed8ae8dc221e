// The C interface from launching on: order and sizes, rebinding in stream order, devices, threads, the sticky
// word.
#include "RuntimeHost.h"
#include "Scratch.h"
#include "runtime/emulator/TensorMap.h"
#include "templates/embed/cpp/cfc.hpp"
#include <atomic>
#include <cstring>
#include <thread>

using namespace cfc::runtime;
using namespace cfc::runtime::test;
using Catch::Matchers::Contains;

static uint64_t address(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

TEST_CASE("kernels are launched in order with the clusters that fit") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  fake->resident = [](const std::string &, unsigned cluster) { return cluster == 4 ? 30 : 264; };
  SECTION("limited by residency and by work") {
    BindingPtr binding = bindSmall(bundle, tensors);
    REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
    fake->flush();
    REQUIRE(fake->launches.size() == 2);
    const FakeLaunch &first = fake->launches[0], &second = fake->launches[1];
    CHECK(first.kernel == "block_k0_1a2b3c4d");
    CHECK((first.grid == 120 && first.cluster == 4 && first.threads == 160 && first.shared == 112000));
    CHECK(second.kernel == "block_k1_1a2b3c4d");
    CHECK((second.grid == 128 && second.cluster == 1));
    CHECK(first.workspace == address(workspace.args.workspace));
    CHECK(first.table == second.table);
    const cfc_tensor &cache = tensors["cache"];
    CHECK(std::vector(first.entries.begin(), first.entries.begin() + 9) ==
          std::vector<uint64_t>{address(tensors["x"].data), address(tensors["w_q"].data), address(cache.k),
                                address(cache.v), uint64_t(cache.stride_head), uint64_t(cache.stride_token),
                                128, address(tensors["len"].data), address(tensors["result0"].data)});
    CHECK(fake->attributes.at({"block_k0_1a2b3c4d", kFunctionMaxDynamicShared}) == 112000);
    size_t count = 0;
    REQUIRE(cfc_kernel_count(binding.get(), &count) == CFC_OK);
    CHECK(count == 2);
    cfc_kernel_info info{};
    info.size = sizeof info;
    REQUIRE(cfc_kernel_info_get(binding.get(), 0, &info) == CFC_OK);
    CHECK((info.grid == 120 && info.resident_clusters == 30 && info.clusters == 32));
    CHECK(cfc_kernel_info_get(binding.get(), 2, &info) == CFC_INVALID_ARGUMENT);
  }
  SECTION("limited by the SMs that the caller allows") {
    cfc_bind_options options = bindOptions();
    options.max_sms = 66;
    BindingPtr binding = bindSmall(bundle, tensors, &options);
    REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
    fake->flush();
    CHECK(fake->launches[0].grid == 64);
    CHECK(fake->launches[1].grid == 66);
  }
}

/// Launches the two kernels of a small bundle once.
static void launchSmall(FakeDriver &fake, const Manifest &manifest) {
  BundlePtr bundle = loadSmall(manifest);
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->flush();
  REQUIRE(fake->launches.size() == 2);
}

TEST_CASE("clusters: size 16 gets the non-portable attribute") {
  FakeDriver fake;
  Tensors tensors;
  Manifest manifest = smallManifest();
  KernelSpec &kernel = manifest.graphs[0].variants[0].kernels[0];
  kernel.cluster = 16;
  kernel.nonPortable = true;
  fake->width = [](const std::string &name) { return name.find("_k0_") != name.npos ? 16 : 1; };
  BundlePtr wide = loadSmall(manifest);
  BindingPtr binding = bindSmall(wide, tensors);
  CHECK(fake->attributes.at({kernel.name, kFunctionNonPortableClusterAllowed}) == 1);
  CHECK(fake->attributes.count({"block_k1_1a2b3c4d", kFunctionNonPortableClusterAllowed}) == 0);
}

TEST_CASE("clusters: the driver is asked with the launch's own threads and shared memory") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  BindingPtr binding = bindSmall(bundle, tensors);
  Manifest manifest = smallManifest();
  const KernelSpec &kernel = manifest.graphs[0].variants[0].kernels[0];
  const CUlaunchConfig &asked = fake->asked.at(kernel.name);
  CHECK(asked.blockX == kernel.threads);
  CHECK(asked.sharedBytes == kernel.sharedBytes);
  CHECK(asked.gridX % kernel.cluster == 0);
}

TEST_CASE("clusters: the grid counts blocks") {
  FakeDriver fake;
  fake->resident = [](const std::string &, unsigned cluster) { return cluster == 4 ? 5 : 264; };
  launchSmall(fake, smallManifest());
  CHECK(fake->launches[0].grid == 5 * 4);
  CHECK(fake->launches[0].cluster == 4);
}

TEST_CASE("graphs: only kernels that wait by themselves are launched early") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  manifest.graphs[0].variants[0].kernels[1].pdl = true;
  launchSmall(fake, manifest);
  CHECK_FALSE(fake->launches[0].pdl);
  CHECK(fake->launches[1].pdl);
  CHECK(fake->launches[0].cluster == 4);
  CHECK(fake->launches[1].cluster == 1);
}

TEST_CASE("kernels whose CTAs wait for each other are launched so that all run at a time") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  manifest.graphs[0].variants[0].kernels[0].cooperative = true;
  manifest.graphs[0].variants[0].kernels[0].pdl = true;
  fake->resident = [](const std::string &, unsigned) { return 3; };
  launchSmall(fake, manifest);
  CHECK(fake->launches[0].cooperative);
  CHECK(fake->launches[0].pdl);
  CHECK(fake->launches[0].cluster == 4);
  CHECK(fake->launches[0].grid <= 3 * 4);
  CHECK_FALSE(fake->launches[1].cooperative);
}

TEST_CASE("a launch only launches") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  fake->record = true;
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  CHECK(fake->calls == std::vector<std::string>{"cuLaunchKernelEx", "cuLaunchKernelEx"});
}

TEST_CASE("the workspace is checked") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  auto refused = [&](const cfc_launch_args *args, const char *text) {
    CHECK(cfc_launch(binding.get(), args, nullptr) == CFC_INVALID_ARGUMENT);
    CHECK_THAT(cfc_last_error(), Contains(text));
  };
  refused(nullptr, "the workspace is null, 1024 bytes are needed");
  workspace.args.workspace_bytes = 1023;
  refused(&workspace.args, "the workspace has 1023 bytes, 1024 are needed");
  workspace.args.workspace_bytes = 1024;
  workspace.args.workspace = static_cast<char *>(workspace.args.workspace) + 128;
  refused(&workspace.args, "is not aligned to 256 bytes");
  CHECK(fake->queue.empty());

  Workspace other;
  REQUIRE(cfc_workspace_init(other.args.workspace, 1024, nullptr) == CFC_OK);
  fake->flush();
  CHECK(std::string(static_cast<char *>(other.args.workspace), 1024) == std::string(1024, '\0'));
}

TEST_CASE("a failed launch names the kernel") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  fake->failLaunch = 719;
  CHECK(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_DRIVER_ERROR);
  CHECK_THAT(cfc_last_error(),
             Contains("graph 'block': launching kernel 'block_k0_1a2b3c4d': CUDA_ERROR_FAKE"));
}

TEST_CASE("rebinding happens in stream order") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  std::vector<uint64_t> expected = {address(tensors["x"].data)};
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  // More rebindings than slots that were allocated ahead, all before the first one runs.
  for (int i = 0; i < 5; ++i) {
    cfc_tensor x = tensors["x"];
    x.data = fakeMemory(128);
    expected.push_back(address(x.data));
    REQUIRE(cfc_rebind(binding.get(), &x, 1, nullptr) == CFC_OK);
    REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  }
  CHECK(fake->hostAllocations == 5);
  fake->flush();
  REQUIRE(fake->launches.size() == 12);
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(fake->launches[2 * i].entries[0] == expected[i]);
    CHECK(fake->launches[2 * i].entries[1] == address(tensors["w_q"].data)); // not named, so it stays
  }
  // Slots are used again once their copies are done.
  for (int i = 0; i < 5; ++i) {
    REQUIRE(cfc_rebind(binding.get(), tensors.list.data(), tensors.list.size(), nullptr) == CFC_OK);
    fake->flush();
  }
  CHECK(fake->hostAllocations == 5);
}

/// Map `index` of the small graph's table as the kernel saw it: 9 entries, then the maps at byte 256.
static cfc::emu::EmulatedTensorMap mapOf(const FakeLaunch &launch, size_t index) {
  cfc::emu::EmulatedTensorMap map;
  std::memcpy(&map, reinterpret_cast<const char *>(launch.entries.data()) + 256 - 64 + index * 128,
              sizeof map);
  return map;
}

TEST_CASE("tensor maps lie behind the entries and follow rebindings") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  std::vector<cfc_tensor> moved = {tensors["w_q"], tensors["cache"]};
  moved[0].data = fakeMemory(64 * 64 * 2);
  moved[1].capacity = 32; // tokens outside of heads
  moved[1].stride_head = 48;
  moved[1].stride_token = 128;
  REQUIRE(cfc_rebind(binding.get(), moved.data(), moved.size(), nullptr) == CFC_OK);
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->flush();
  REQUIRE(fake->launches.size() == 4);
  for (bool rebound : {false, true}) {
    const FakeLaunch &launch = fake->launches[rebound ? 2 : 0];
    CHECK(launch.entries.size() == (256 + 3 * 128 - 64) / 8);
    auto w = mapOf(launch, 0), k = mapOf(launch, 1), v = mapOf(launch, 2);
    for (const auto &map : {w, k, v})
      CHECK(map.magic == cfc::emu::EmulatedTensorMap::kMagic);
    CHECK(w.base == address(rebound ? moved[0].data : tensors["w_q"].data));
    CHECK((w.rank == 2 && w.size[0] == 64 && w.size[1] == 64 && w.stride[1] == 128));
    CHECK((w.box[0] == 64 && w.box[1] == 8 && w.swizzle == 128));
    CHECK(k.base == address(tensors["cache"].k));
    CHECK(v.base == address(tensors["cache"].v));
    CHECK((v.rank == 3 && v.size[0] == 16 && v.size[1] == (rebound ? 32u : 128u) && v.size[2] == 2));
    CHECK((v.stride[1] == (rebound ? 128u : 32u) && v.stride[2] == (rebound ? 48u : 128u * 32)));
    CHECK((v.box[0] == 16 && v.box[1] == 64 && v.box[2] == 1 && v.swizzle == 0));
  }
}

TEST_CASE("caches of f8 have tensor maps of bytes") {
  FakeDriver fake;
  Manifest manifest = smallManifest();
  manifest.graphs[0].tensors[2].dtype = CFC_F8E4M3FN;
  BundlePtr bundle = loadSmall(manifest);
  Tensors tensors;
  cfc_tensor &cache = tensors["cache"];
  cache.dtype = CFC_F8E4M3FN;
  cache.stride_token = 16;
  cache.stride_head = 128 * 16;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->flush();
  auto k = mapOf(fake->launches[0], 1);
  CHECK((k.elementBytes == 1 && k.stride[0] == 1 && k.stride[1] == 16 && k.stride[2] == 128 * 16));
  CHECK((k.box[0] == 16 && k.size[0] == 16 && k.size[1] == 128));
}

TEST_CASE("a bad rebinding changes nothing") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  cfc_tensor bad = tensors["x"];
  bad.data = tensors["result0"].data;
  CHECK(cfc_rebind(binding.get(), &bad, 1, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Contains("overlaps"));
  bad = tensors["x"];
  bad.name = "y";
  CHECK(cfc_rebind(binding.get(), &bad, 1, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(fake->queue.empty());
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->flush();
  CHECK(fake->launches[0].entries[0] == address(tensors["x"].data));
}

TEST_CASE("captured graphs see rebindings, and keep their own") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  fake->capturing = true;
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  cfc_tensor captured = tensors["x"];
  captured.data = fakeMemory(128);
  REQUIRE(cfc_rebind(binding.get(), &captured, 1, nullptr) == CFC_OK);
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->capturing = false;
  CHECK(fake->launches.empty());
  for (int i = 0; i < 4; ++i) {
    cfc_tensor outside = tensors["x"];
    outside.data = fakeMemory(128);
    REQUIRE(cfc_rebind(binding.get(), &outside, 1, nullptr) == CFC_OK);
    fake->replay();
    fake->flush();
    REQUIRE(fake->launches.size() == 4u * (i + 1));
    CHECK(fake->launches[4 * i].entries[0] == address(outside.data));
    CHECK(fake->launches[4 * i + 2].entries[0] == address(captured.data));
  }
  // What the captured rebinding did not name is not taken back to what it was at the capture.
  std::vector<cfc_tensor> others = {tensors["w_q"], tensors["cache"]};
  others[0].data = fakeMemory(64 * 64 * 2);
  others[1].capacity = 32;
  REQUIRE(cfc_rebind(binding.get(), others.data(), others.size(), nullptr) == CFC_OK);
  fake->flush();
  fake->launches.clear();
  fake->replay();
  fake->flush();
  REQUIRE(fake->launches.size() == 4);
  const FakeLaunch &replayed = fake->launches[2];
  CHECK(replayed.entries[0] == address(captured.data));
  CHECK(replayed.entries[1] == address(others[0].data));
  CHECK(mapOf(replayed, 0).base == address(others[0].data));
  CHECK(mapOf(replayed, 1).size[1] == 32);
}

TEST_CASE("a captured rebinding that is never replayed changes nothing") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  fake->capturing = true;
  cfc_tensor captured = tensors["x"];
  captured.data = fakeMemory(128);
  REQUIRE(cfc_rebind(binding.get(), &captured, 1, nullptr) == CFC_OK);
  fake->capturing = false;
  cfc_tensor outside = tensors["w_q"];
  outside.data = fakeMemory(64 * 64 * 2);
  REQUIRE(cfc_rebind(binding.get(), &outside, 1, nullptr) == CFC_OK);
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->flush();
  REQUIRE(fake->launches.size() == 2);
  CHECK(fake->launches[0].entries[0] == address(tensors["x"].data));
  CHECK(fake->launches[0].entries[1] == address(outside.data));
}

TEST_CASE("the sticky word is read, kept and cleared") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(bundle, tensors);
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->flush();
  cfc_device_status status{};
  status.size = sizeof status;
  REQUIRE(cfc_device_status_get(binding.get(), nullptr, &status) == CFC_OK);
  CHECK(status.bits == 0);
  uint32_t bits = CFC_DEVICE_SLOT_OUT_OF_BOUND | CFC_DEVICE_LENGTH_OUT_OF_BOUND;
  std::memcpy(reinterpret_cast<void *>(fake->launches[0].table), &bits, sizeof bits);
  REQUIRE(cfc_rebind(binding.get(), tensors.list.data(), tensors.list.size(), nullptr) == CFC_OK);
  REQUIRE(cfc_device_status_get(binding.get(), nullptr, &status) == CFC_OK);
  CHECK(status.bits == 3);
  status.flags = CFC_DEVICE_STATUS_CLEAR;
  REQUIRE(cfc_device_status_get(binding.get(), nullptr, &status) == CFC_OK);
  CHECK(status.bits == 3);
  REQUIRE(cfc_device_status_get(binding.get(), nullptr, &status) == CFC_OK);
  CHECK(status.bits == 0);
}

TEST_CASE("graphs: two devices in one process, device 1 after device 0") {
  FakeDriver fake;
  fake->devices = 2;
  BundlePtr bundle = loadSmall();
  Tensors first(0), second(1);
  Workspace workspace0(0), workspace1(1);
  cfc_bind_options options = bindOptions();
  options.flags = CFC_BIND_DEVICE;
  options.device = 1;
  BindingPtr binding0 = bindSmall(bundle, first);
  BindingPtr binding1 = bindSmall(bundle, second, &options);
  CHECK(fake->modulesLoaded == 4);
  BindingPtr again = bindSmall(bundle, second, &options);
  CHECK(fake->modulesLoaded == 4); // once a context
  CHECK(fake->contextsRetained == 1);
  // The thread's context is device 0's, and stays so.
  REQUIRE(cfc_launch(binding1.get(), &workspace1.args, nullptr) == CFC_OK);
  REQUIRE(cfc_launch(binding0.get(), &workspace0.args, nullptr) == CFC_OK);
  fakeUseDevice(-1); // no current context at all
  REQUIRE(cfc_launch(binding1.get(), &workspace1.args, nullptr) == CFC_OK);
  fake->flush();
  REQUIRE(fake->launches.size() == 6);
  CHECK(fake->launches[0].device == 1);
  CHECK(fake->launches[2].device == 0);
  CHECK(fake->launches[4].device == 1);
}

TEST_CASE("without a current context the first device's is used") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  fakeUseDevice(-1);
  BindingPtr binding = bindSmall(bundle, tensors);
  CHECK(fake->contextsRetained == 1);
  binding.reset();
  bundle.reset();
  CHECK(fake->contextsRetained == 0);
}

TEST_CASE("everything is given back, in either order") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  Workspace workspace;
  size_t before = fake->memory.size();
  BindingPtr binding = bindSmall(bundle, tensors);
  CHECK(fake->memory.size() == before + 1);
  bundle.reset(); // the binding keeps what it needs
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  REQUIRE(cfc_rebind(binding.get(), tensors.list.data(), tensors.list.size(), nullptr) == CFC_OK);
  fake->flush();
  CHECK(fake->launches.size() == 2);
  binding.reset();
  CHECK(fake->memory.size() == before);
  CHECK(fake->modulesAlive == 0);
  CHECK(fake->hostAllocations == 0);
  CHECK(fake->streamsAlive == 0);
}

TEST_CASE("graphs: two threads share a bundle and a binding") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors shared;
  BindingPtr common = bindSmall(bundle, shared);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      fakeUseDevice(0);
      Workspace workspace;
      for (int i = 0; i < 20; ++i) {
        cfc_binding *own = nullptr;
        failures +=
            cfc_bind(bundle.get(), nullptr, shared.list.data(), shared.list.size(), nullptr, &own) != CFC_OK;
        failures += cfc_launch(own, &workspace.args, nullptr) != CFC_OK;
        failures += cfc_launch(common.get(), &workspace.args, nullptr) != CFC_OK;
        fake->flush();
        cfc_unbind(own);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  CHECK(failures == 0);
  CHECK(fake->modulesLoaded == 2);
  CHECK(fake->launches.size() == 8u * 20 * 4);
}

TEST_CASE("the C++ layer throws what the C interface says") {
  FakeDriver fake;
  Tensors tensors;
  Workspace workspace;
  CHECK_THROWS_WITH(cfc_embed::Bundle("/nowhere/a.cfk"), Contains("/nowhere/a.cfk: No such file"));
  Scratch scratch;
  std::string path = scratch.path("a.cfk");
  REQUIRE_FALSE(writeBundle(path, smallSections()));
  cfc_embed::Bundle bundle(path.c_str());
  CHECK(bundle.workspaceBytes() == 1024);
  CHECK_THROWS_AS(bundle.bind({}), cfc_embed::Error);
  cfc_embed::Binding binding = bundle.bind(tensors.list);
  binding.launch(workspace.args.workspace, 1024, nullptr);
  CHECK(binding.deviceStatus(nullptr) == 0);
  CHECK(fake->launches.size() == 2);
}
