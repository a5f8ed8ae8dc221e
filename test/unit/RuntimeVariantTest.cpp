// Which variant a launch takes, and on how many multiprocessors it runs: by the context, by the binding, by
// the launch.
#include "RuntimeHost.h"
#include "templates/embed/cpp/cfc.hpp"

using namespace cfc::runtime;
using namespace cfc::runtime::test;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

namespace {

/// The small graph's variant again with another hash and condition.
VariantSpec variant(const std::string &hash, VariantCondition when) {
  VariantSpec result = smallManifest().graphs[0].variants[0];
  result.planHash = hash;
  result.when = when;
  for (KernelSpec &kernel : result.kernels)
    kernel.name = kernel.name.substr(0, kernel.name.rfind('_') + 1) + hash;
  return result;
}

Manifest withVariants(std::vector<VariantSpec> variants) {
  Manifest manifest = smallManifest();
  manifest.graphs[0].variants = std::move(variants);
  return manifest;
}

/// By length, by batch, and for all.
Manifest manyVariants() {
  return withVariants({variant("short", {64, {}, 0}), variant("middle", {100, {}, 0}),
                       variant("few", {{}, 2, 0}), variant("usual", {})});
}

/// What a binding does with some hints.
struct Chooser {
  FakeDriver &fake;
  BindingPtr binding;
  Workspace workspace{};

  std::string variant(int64_t length, uint32_t batch = 0, uint32_t maxSms = 0) {
    workspace.args.length_hint = length;
    workspace.args.batch_hint = batch;
    workspace.args.max_sms = maxSms;
    const char *hash = nullptr;
    REQUIRE(cfc_variant_for(binding.get(), &workspace.args, &hash) == CFC_OK);
    // The launch takes the same.
    fake->launches.clear();
    REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
    fake->flush();
    REQUIRE(fake->launches.size() == 2);
    CHECK_THAT(fake->launches[0].kernel, EndsWith(hash));
    CHECK_THAT(fake->launches[1].kernel, EndsWith(hash));
    return hash;
  }
};

using Grids = std::pair<unsigned, unsigned>;

} // namespace

TEST_CASE("a launch takes the first variant whose condition its hints satisfy") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall(manyVariants());
  Tensors tensors;
  Chooser chooser{fake, bindSmall(bundle, tensors)};
  CHECK(fake->modulesLoaded == 2); // one for each cubin, whatever the number of variants
  const std::pair<int64_t, const char *> lengths[] = {{1, "short"},    {64, "short"},  {65, "middle"},
                                                      {100, "middle"}, {101, "usual"}, {INT64_MAX, "usual"},
                                                      {0, "usual"},    {-1, "usual"},  {INT64_MIN, "usual"}};
  for (auto [length, hash] : lengths) {
    INFO(length);
    CHECK(chooser.variant(length) == hash);
  }
  CHECK(chooser.variant(101, 2) == "few");
  CHECK(chooser.variant(101, 3) == "usual");
  CHECK(chooser.variant(1, 1) == "short");
  // Without hints, as callers of the first version.
  chooser.workspace.args.length_hint = 1;
  chooser.workspace.args.size = offsetof(cfc_launch_args, length_hint);
  const char *hash = nullptr;
  REQUIRE(cfc_variant_for(chooser.binding.get(), &chooser.workspace.args, &hash) == CFC_OK);
  CHECK(std::string(hash) == "usual");
  REQUIRE(cfc_variant_for(chooser.binding.get(), nullptr, &hash) == CFC_OK);
  CHECK(std::string(hash) == "usual");
  cfc_kernel_info info{};
  info.size = sizeof info;
  REQUIRE(cfc_kernel_info_get(chooser.binding.get(), 0, &info) == CFC_OK);
  CHECK(std::string(info.plan_hash) == "usual");
}

TEST_CASE("choosing asks nothing of the driver") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall(manyVariants());
  Tensors tensors;
  Chooser chooser{fake, bindSmall(bundle, tensors)};
  fake->record = true;
  CHECK(chooser.variant(64) == "short");
  CHECK(fake->calls == std::vector<std::string>{"cuLaunchKernelEx", "cuLaunchKernelEx"});
}

TEST_CASE("one variant can be asked for") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall(manyVariants());
  Tensors tensors;
  cfc_bind_options options = bindOptions();
  options.plan_hash = "middle";
  Chooser chooser{fake, bindSmall(bundle, tensors, &options)};
  CHECK(chooser.variant(1) == "middle");
  CHECK(chooser.variant(0) == "middle");
}

TEST_CASE("variants that do not run here are not taken") {
  FakeDriver fake;
  Manifest manifest = manyVariants();
  Tensors tensors;
  fake->sharedLimit = 101376;
  auto shrink = [&](size_t index) {
    for (KernelSpec &kernel : manifest.graphs[0].variants[index].kernels)
      kernel.sharedBytes = 50000;
  };
  SECTION("the usual one runs") {
    shrink(3);
    Chooser chooser{fake, bindSmall(loadSmall(manifest), tensors)};
    CHECK(chooser.variant(1) == "usual");
  }
  SECTION("only some for other launches run: they are right too") {
    shrink(0);
    shrink(1);
    Chooser chooser{fake, bindSmall(loadSmall(manifest), tensors)};
    CHECK(chooser.variant(1) == "short");
    CHECK(chooser.variant(0) == "middle");
    CHECK(chooser.variant(1000) == "middle");
  }
}

TEST_CASE("variants by resident clusters") {
  FakeDriver fake;
  // k0 has work for 32 clusters of 4, k1 for 128 of 1.
  BundlePtr bundle = loadSmall(withVariants({variant("large", {{}, {}, 32}), variant("small", {})}));
  Tensors tensors;
  SECTION("as many as wanted") {
    Chooser chooser{fake, bindSmall(bundle, tensors)};
    CHECK(chooser.variant(0) == "large");
    CHECK(chooser.variant(0, 0, 128) == "large");
    CHECK(fake->launches[0].grid == 128);
    CHECK(chooser.variant(0, 0, 127) == "small"); // 31 clusters of 4
    CHECK(fake->launches[0].grid == 124);
    CHECK(fake->launches[1].grid == 127);
  }
  SECTION("fewer") {
    fake->resident = [](const std::string &, unsigned cluster) { return cluster == 4 ? 31 : 264; };
    Chooser chooser{fake, bindSmall(bundle, tensors)};
    CHECK(chooser.variant(0) == "small");
  }
  SECTION("more than have work") {
    BundlePtr more = loadSmall(withVariants({variant("large", {{}, {}, 66}), variant("small", {})}));
    Chooser chooser{fake, bindSmall(more, tensors)};
    CHECK(chooser.variant(0) == "large");
    CHECK(fake->launches[0].grid == 128);
    fake->resident = [](const std::string &, unsigned cluster) { return int(260 / cluster); };
    Chooser fewer{fake, bindSmall(more, tensors)};
    CHECK(fewer.variant(0) == "small");
  }
}

TEST_CASE("a launch may have a limit of its own") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  cfc_bind_options options = bindOptions();
  options.max_sms = 64;
  Chooser chooser{fake, bindSmall(bundle, tensors, &options)};
  auto grids = [&](uint32_t maxSms) {
    chooser.variant(0, 0, maxSms);
    return Grids(fake->launches[0].grid, fake->launches[1].grid);
  };
  CHECK(grids(0) == Grids(64, 64));
  CHECK(grids(100) == Grids(64, 64)); // not more than bound
  CHECK(grids(30) == Grids(28, 30));
  CHECK(grids(4) == Grids(4, 4));
  chooser.workspace.args.max_sms = 3;
  CHECK(cfc_launch(chooser.binding.get(), &chooser.workspace.args, nullptr) == CFC_UNSUPPORTED_DEVICE);
  CHECK_THAT(cfc_last_error(), Contains("need 4 SMs for one cluster / limit 3 (max_sms of the launch)"));
  const char *hash = nullptr;
  CHECK(cfc_variant_for(chooser.binding.get(), &chooser.workspace.args, &hash) == CFC_UNSUPPORTED_DEVICE);
}

TEST_CASE("a limit may leave room for another variant only") {
  FakeDriver fake;
  VariantSpec narrow = variant("narrow", {16, {}, 0});
  narrow.kernels.erase(narrow.kernels.begin()); // k1 alone, whose CTAs are in no clusters
  Manifest manifest = withVariants({narrow, variant("usual", {})});
  Tensors tensors;
  Workspace workspace;
  BindingPtr binding = bindSmall(loadSmall(manifest), tensors);
  workspace.args.max_sms = 3;
  REQUIRE(cfc_launch(binding.get(), &workspace.args, nullptr) == CFC_OK);
  fake->flush();
  REQUIRE(fake->launches.size() == 1);
  CHECK(fake->launches[0].kernel == "block_k1_narrow");
  CHECK(fake->launches[0].grid == 3);
}

TEST_CASE("the context says how many multiprocessors there are") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall();
  Tensors tensors;
  auto grids = [&](uint32_t maxSms = 0) {
    cfc_bind_options options = bindOptions();
    options.max_sms = maxSms;
    Chooser chooser{fake, bindSmall(bundle, tensors, &options)};
    chooser.variant(0);
    return Grids(fake->launches[0].grid, fake->launches[1].grid);
  };
  CHECK(grids() == Grids(128, 128));
  fake->contextSms = 132; // all of the device
  CHECK(grids() == Grids(128, 128));
  // A green context of 24 SMs, whose driver answers for the whole device: two CTAs an SM.
  fake->contextSms = 24;
  CHECK(grids() == Grids(48, 48));
  CHECK(grids(100) == Grids(48, 48)); // no limit at all there
  CHECK(grids(16) == Grids(16, 16));
  // The driver's own answer is less.
  fake->resident = [](const std::string &, unsigned cluster) { return cluster == 4 ? 5 : 40; };
  CHECK(grids() == Grids(20, 40));
  // MPS and MIG lower the device's own number.
  fake->contextSms = 0;
  fake->sms = 16;
  CHECK(grids(16) == Grids(20, 40));
  CHECK(grids(15) == Grids(12, 15));
}

TEST_CASE("the C++ layer passes hints on") {
  FakeDriver fake;
  BundlePtr bundle = loadSmall(manyVariants());
  Tensors tensors;
  Workspace workspace;
  cfc_embed::Binding binding(bindSmall(bundle, tensors).release());
  cfc_embed::LaunchOptions options;
  options.lengthHint = 64;
  options.maxSms = 16;
  CHECK(std::string(binding.variantFor(options)) == "short");
  binding.launch(workspace.args.workspace, 1024, nullptr, options);
  fake->flush();
  REQUIRE(fake->launches.size() == 2);
  CHECK(fake->launches[0].kernel == "block_k0_short");
  CHECK(fake->launches[0].grid == 16);
}
