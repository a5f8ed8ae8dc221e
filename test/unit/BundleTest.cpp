// Bundles: the round trip, and that nothing damaged, newer or lying gets through.
#include "RuntimeFixture.h"
#include "Scratch.h"
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace cfc::runtime;
using namespace cfc::runtime::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string packed() { return packBundle(smallSections()); }

/// The failure that parsing gives; CFC_OK if it gives none.
Failure failureOf(const std::string &bytes, const ReadOptions &options = {}) {
  try {
    parseBundle(bytes, "test.cfk", options);
    return {};
  } catch (...) {
    return currentFailure();
  }
}

/// The failure for a manifest that `change` was applied to.
template <class Change> Failure failureWith(Change &&change) {
  Json json = Json::parse(toJson(smallManifest()));
  change(json);
  return failureOf(packBundle(sectionsWith(json.dump())));
}

/// How many files and folders a folder holds.
size_t count(const Scratch &folder) {
  return std::distance(fs::directory_iterator(folder.folder), fs::directory_iterator());
}

std::string contentOf(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("a bundle comes back as it was written") {
  Bundle bundle = parseBundle(packed(), "test.cfk");
  CHECK(bundle.manifestText() == toJson(smallManifest()));
  CHECK(toJson(bundle.manifest) == toJson(smallManifest()));
  CHECK(bundle.graphText(bundle.graph("")) == "attn.graph @block");
  CHECK(bundle.planText(bundle.graph(""), 0) == "plan");
  CHECK(bundle.cubin(0) == "first cubin");
  CHECK(bundle.cubin(1) == "second cubin");
  for (const Section &section : bundle.sections)
    CHECK(section.offset % kSectionAlign == 0);
  CHECK(&bundle.graph("") == &bundle.graph("block"));
  CHECK_THROWS_WITH(bundle.graph("blok"), Contains("did you mean 'block'?"));
}

TEST_CASE("texts and plans are numbered over all graphs") {
  Manifest manifest = smallManifest();
  VariantSpec second = manifest.graphs[0].variants[0];
  second.planHash = "second";
  manifest.graphs[0].variants.push_back(second);
  manifest.graphs.push_back(smallManifest().graphs[0]);
  manifest.graphs[1].name = "other";
  std::vector<SectionContent> sections = sectionsWith(toJson(manifest));
  sections.push_back({"graph.1", "attn.graph @other"});
  sections.push_back({"plan.1", "plan of the second variant"});
  sections.push_back({"plan.2", "plan of the other graph"});
  Bundle bundle = parseBundle(packBundle(sections), "test.cfk");
  CHECK(bundle.graphText(bundle.graph("block")) == "attn.graph @block");
  CHECK(bundle.graphText(bundle.graph("other")) == "attn.graph @other");
  CHECK(bundle.planText(bundle.graph("block"), 1) == "plan of the second variant");
  CHECK(bundle.planText(bundle.graph("other"), 0) == "plan of the other graph");
  CHECK(bundle.planText(bundle.graph("other"), 1).empty());
}

TEST_CASE("every truncated bundle is refused") {
  std::string whole = packed();
  for (size_t size = 0; size < whole.size(); ++size) {
    for (bool digests : {true, false}) {
      ReadOptions options;
      options.checkDigests = digests;
      Failure failure = failureOf(whole.substr(0, size), options);
      INFO("size " << size);
      REQUIRE(failure.status == CFC_INVALID_BUNDLE);
      REQUIRE_THAT(failure.message, Contains("test.cfk: "));
    }
  }
  CHECK(failureOf(whole + '\0').status == CFC_INVALID_BUNDLE);
}

TEST_CASE("every flipped byte is found") {
  std::string whole = packed();
  for (size_t at = 0; at < whole.size(); ++at)
    for (int bits : {0x01, 0x80, 0xff}) {
      std::string flipped = whole;
      flipped[at] ^= bits;
      INFO("byte " << at << " xor " << bits);
      REQUIRE(failureOf(flipped).status == CFC_INVALID_BUNDLE);
    }
}

TEST_CASE("what is no bundle is named") {
  CHECK_THAT(failureOf("").message, Contains("empty"));
  CHECK_THAT(failureOf("<!DOCTYPE html><html>").message, Contains("web page"));
  CHECK_THAT(failureOf("version https://git-lfs.github.com/spec/v1\noid").message,
             Contains("Git LFS pointer"));
  CHECK_THAT(failureOf("attn.graph @x() {}").message, Contains("not a cfc bundle"));
  CHECK_THAT(failureOf("CFCB").message, Contains("truncated"));
}

TEST_CASE("a huge file that is no bundle is named, not read") {
  const uint64_t huge = uint64_t(10) << 40; // sparse: takes no room
  Scratch folder;
  std::string whole = packed();
  std::string manySections = patched<uint32_t>(whole, 12, 0xffffffff);
  std::pair<std::string, const char *> cases[] = {
      {"", "not a cfc bundle"},
      {"attn.graph @x() {}", "not a cfc bundle"},
      {whole.substr(0, 8), "container version 0"},
      {whole.substr(0, 40), "digest of the header"},
      {manySections, "a table of 4294967295 sections"},
      {whole, "bytes follow the last section"},
  };
  for (const auto &[start, message] : cases) {
    std::string path = folder.write("huge.cfk", start);
    if (::truncate(path.c_str(), huge) != 0) {
      WARN("the file system takes no file of 10 TB");
      return;
    }
    Failure failure;
    CHECK_FALSE(readBundle(path, failure));
    CHECK(failure.status == CFC_INVALID_BUNDLE);
    CHECK(failure.exitCode() == 2);
    CHECK_THAT(failure.message, Contains(path + ": ") && Contains(message));
  }
}

TEST_CASE("newer containers and schemas are unsupported, not garbled") {
  Failure container = failureOf(patched<uint32_t>(packed(), 8, 2));
  CHECK(container.status == CFC_UNSUPPORTED_VERSION);
  CHECK(container.exitCode() == 3);
  Failure schema = failureWith([](Json &json) { json = Json{{"schema", 4}}; });
  CHECK(schema.status == CFC_UNSUPPORTED_VERSION);
  CHECK_THAT(schema.message, Contains("schema is 4"));
  CHECK(failureOf(patched<uint32_t>(packed(), 8, 0)).status == CFC_INVALID_BUNDLE);
}

TEST_CASE("other architectures are unsupported") {
  for (const char *target : {"sm_80", "sm_100a", "gfx942", "sm_", "sm_90b", "sm_99999999999"}) {
    Failure failure = failureWith([&](Json &json) { json["target"] = target; });
    INFO(target);
    CHECK(failure.status == CFC_UNSUPPORTED_DEVICE);
    CHECK_THAT(failure.message, Contains(target));
  }
  Manifest manifest = smallManifest();
  manifest.target = "sm_80";
  ReadOptions print;
  print.checkTarget = false;
  CHECK(failureOf(packBundle(smallSections(manifest)), print).status == CFC_OK);
  std::optional<Target> target = parseTarget("sm_90a");
  REQUIRE(target);
  CHECK((target->major == 9 && target->minor == 0 && target->exact));
  CHECK(parseTarget("sm_120")->major == 12);
}

TEST_CASE("lying section tables are refused") {
  std::string whole = packed();
  auto entry = [](size_t section, size_t field) { return kHeaderBytes + section * kEntryBytes + field; };
  auto refused = [&](const std::string &bytes, const char *text) {
    Failure failure = failureOf(bytes);
    CHECK(failure.status == CFC_INVALID_BUNDLE);
    CHECK_THAT(failure.message, Contains(text));
  };
  for (uint64_t lie : {whole.size() + 1, ~size_t(0), ~size_t(0) - 15, size_t(1) << 63})
    for (size_t section : {0, 2, 4}) {
      refused(patched(whole, entry(section, 32), lie), "truncated: section");
      refused(patched(whole, entry(section, 40), lie), "truncated: section");
    }
  // offset + size wraps around to a small number
  uint64_t offset = 0;
  whole.copy(reinterpret_cast<char *>(&offset), 8, entry(1, 32));
  refused(patched(whole, entry(1, 40), uint64_t(0) - offset + 8), "truncated: section");
  refused(patched<uint64_t>(whole, entry(1, 32), 0), "overlaps");
  refused(patched<uint64_t>(whole, entry(1, 32), kHeaderBytes), "overlaps");
  refused(patched(whole, entry(1, 32), offset - 16), "overlaps");
  refused(patched<uint64_t>(whole, entry(1, 40), 1), "padding before section");
  refused(patched<uint64_t>(whole, entry(4, 40), 1), "follow the last section");
  refused(patched<uint32_t>(whole, 12, 0xffffffff), "garbled: a table of 4294967295 sections");
  refused(patched<uint32_t>(whole, 12, 0), "follow the last section");
  std::string twice = whole;
  twice.replace(entry(4, 0), 8, "cubin.0\0", 8);
  refused(patched<uint32_t>(twice, 8, 1), "two sections are named 'cubin.0'");
  std::string garbled = whole;
  garbled[entry(3, 20)] = 'x';
  refused(patched<uint32_t>(garbled, 8, 1), "section 3 has a garbled name");
}

TEST_CASE("missing sections are named") {
  for (const char *name : {"manifest", "graph", "plan", "cubin.1"}) {
    std::vector<SectionContent> sections = smallSections();
    std::erase_if(sections, [&](const SectionContent &section) { return section.name == name; });
    Failure failure = failureOf(packBundle(sections));
    CHECK(failure.status == CFC_INVALID_BUNDLE);
    CHECK_THAT(failure.message, Contains(name) && Contains("missing"));
  }
}

TEST_CASE("garbled manifests are refused with the place") {
  auto refused = [](auto change, const char *text) {
    Failure failure = failureWith(change);
    CHECK(failure.status == CFC_INVALID_BUNDLE);
    CHECK_THAT(failure.message, Contains(text));
  };
  for (const char *text :
       {"", "{", "[]", "null", "{\"schema\": \"1\"}", "{\"schema\": 1", "\xff", "{\"schema\": 1e99}"})
    CHECK(failureOf(packBundle(sectionsWith(text))).status == CFC_INVALID_BUNDLE);
  CHECK_THAT(failureOf(packBundle(sectionsWith(std::string(100000, '[')))).message,
             Contains("nested deeper"));
  auto graph = [](Json &json) -> Json & { return json["graphs"][0]; };
  auto kernel = [&](Json &json) -> Json & { return graph(json)["variants"][0]["kernels"][1]; };
  refused([&](Json &json) { json.erase("ptxas"); }, "'ptxas' is missing");
  refused([&](Json &json) { json["schema"] = 0; }, "schema: 0 is not in 1");
  refused([&](Json &json) { json["schema"] = uint64_t(1) << 63; }, "schema: 9223372036854775808");
  refused([&](Json &json) { json["graphs"] = Json::array(); }, "graphs: is empty");
  refused([&](Json &json) { json["graphs"].push_back(graph(json)); }, "a second graph 'block'");
  refused([&](Json &json) { graph(json)["tensors"][1]["name"] = "x"; },
          "graphs[0].tensors[1]: a second tensor 'x'");
  refused([&](Json &json) { graph(json)["tensors"][0]["dtype"] = "f8"; },
          "graphs[0].tensors[0].dtype: 'f8' is none");
  refused([&](Json &json) { graph(json)["tensors"][0]["align"] = 24; }, "not a power of two");
  refused([&](Json &json) { graph(json)["tensors"][0]["shape"] = {1, -4}; }, "shape[1]: -4 is not in");
  refused([&](Json &json) { graph(json)["tensors"][0]["shape"] = {int64_t(1) << 40, int64_t(1) << 40}; },
          "the size is too large");
  refused([&](Json &json) { graph(json)["tensors"][0]["name"] = "a\nb"; }, "control characters");
  refused([&](Json &json) { graph(json)["table"][0]["tensor"] = "y"; }, "there is no tensor 'y'");
  refused([&](Json &json) { graph(json)["table"][0]["field"] = "k_pointer"; }, "has no field 'k_pointer'");
  refused([&](Json &json) { graph(json)["table"][1] = graph(json)["table"][0]; }, "listed twice");
  refused([&](Json &json) { graph(json)["maps"][0]["tensor"] = "y"; },
          "maps[0].tensor: there is no tensor 'y'");
  refused([&](Json &json) { graph(json)["maps"][0]["field"] = "k_pointer"; }, "has no field 'k_pointer'");
  refused([&](Json &json) { graph(json)["maps"][1]["field"] = "capacity"; }, "'capacity' points to nothing");
  refused([&](Json &json) { graph(json)["maps"][0]["tensor"] = "len"; }, "'len' has 1 dimensions");
  refused([&](Json &json) { graph(json)["maps"][0]["box"] = {64, 8, 1}; },
          "maps[0].box: has 3 dimensions, 'pointer' of 'w_q' has 2");
  refused([&](Json &json) { graph(json)["maps"][1]["box"] = {16, 64}; }, "'k_pointer' of 'cache' has 3");
  refused([&](Json &json) { graph(json)["maps"][0]["box"] = {64, 257}; }, "box[1]: 257 is not in 1 to 256");
  refused([&](Json &json) { graph(json)["maps"][0]["box"] = {64, 0}; }, "box[1]: 0 is not in 1 to 256");
  refused([&](Json &json) { graph(json)["maps"][1]["box"] = {12, 64, 1}; }, "rows of 24 bytes");
  refused([&](Json &json) { graph(json)["maps"][0]["box"] = {32, 8}; }, "a swizzle of 128 needs rows of 128");
  refused([&](Json &json) { graph(json)["maps"][0]["swizzle"] = 64; }, "64 is neither 0 nor 128");
  refused([&](Json &json) { graph(json)["maps"][1]["box"] = {128, 256, 256}; }, "more than one copy takes");
  refused([&](Json &json) { graph(json)["workspace"]["zero_bytes"] = 2048; },
          "zero_bytes 2048 is more than bytes");
  refused([&](Json &json) { kernel(json)["threads"] = 1025; },
          "kernels[1].threads: 1025 is not in 1 to 1024");
  refused([&](Json &json) { kernel(json)["threads"] = 1.5; }, "not an integer");
  refused([&](Json &json) { kernel(json)["cluster"] = 16; }, "needs non_portable");
  refused([&](Json &json) { kernel(json)["cubin"] = 7; }, "'cubin.7', which is missing");
  refused([&](Json &json) { kernel(json)["non_portable"] = 1; }, "not true or false");
}

TEST_CASE("a manifest without tensor maps is read") {
  Json json = Json::parse(toJson(smallManifest()));
  json["graphs"][0].erase("maps");
  CHECK(parseManifest(json.dump()).graphs[0].maps.empty());
}

TEST_CASE("variants have conditions, and one has none") {
  Manifest manifest = smallManifest();
  std::vector<VariantSpec> &variants = manifest.graphs[0].variants;
  CHECK_THAT(toJson(manifest), !Contains("when"));
  VariantSpec usual = variants[0];
  variants[0].when = {1024, 4, 30};
  variants[0].planHash = "short";
  variants[0].simtDigest = "0123456789abcdef";
  CHECK_THROWS_WITH(parseManifest(toJson(manifest)), Contains("graphs[0].variants: each has a condition"));
  variants.push_back(usual);
  std::string text = toJson(manifest);
  Manifest read = parseManifest(text);
  CHECK(toJson(read) == text);
  CHECK((read.graphs[0].variants[0].when == VariantCondition{1024, 4, 30}));
  CHECK(read.graphs[0].variants[1].when.always());

  auto refused = [&](const Json &when, const char *why) {
    Json json = Json::parse(text);
    json["graphs"][0]["variants"][0]["when"] = when;
    INFO(why);
    CHECK_THROWS_WITH(parseManifest(json.dump()), Contains("graphs[0].variants[0].when") && Contains(why));
  };
  refused({{"max_length", 0}}, "max_length: 0 is not in 1");
  refused({{"max_batch", "4"}}, "max_batch: is string, not an integer");
  refused({{"min_clusters", -1}}, "min_clusters: -1 is not in 1");
  refused({{"min_length", 1}}, "'min_length' is none of 'max_length', 'max_batch', 'min_clusters'");
  refused(7, "is number, not an object");
}

TEST_CASE("packed weights and early launches are optional") {
  Manifest manifest = smallManifest();
  GraphSpec &graph = manifest.graphs[0];
  CHECK_THAT(toJson(manifest), !Contains("layout") && !Contains("column_group") && !Contains("pdl") &&
                                   !Contains("cooperative"));
  graph.tensors[1].layout = Layout::Packed;
  graph.tensors[1].columnGroup = 32;
  graph.maps.erase(graph.maps.begin());
  graph.variants[0].kernels[1].pdl = graph.variants[0].kernels[1].cooperative = true;
  std::string text = toJson(manifest);
  Manifest read = parseManifest(text);
  CHECK(toJson(read) == text);
  CHECK(rowOrTensorBytes(read.graphs[0].tensors[1]) == 2 * 8192); // two groups, each padded to 64 columns

  auto refused = [&](auto change, const char *why) {
    Json json = Json::parse(text);
    change(json["graphs"][0]);
    INFO(why);
    CHECK_THROWS_WITH(parseManifest(json.dump()), Contains(why));
  };
  refused([](Json &g) { g["tensors"][1]["layout"] = "tiled"; }, "'tiled' is none of 'native', 'packed'");
  refused([](Json &g) { g["tensors"][1]["layout"] = "native"; },
          "column_group: only packed weights have one");
  refused([](Json &g) { g["tensors"][1]["column_group"] = 65; }, "65 is not in 1 to 64");
  refused([](Json &g) { g["tensors"][1]["column_group"] = 0; }, "0 is not in 1 to 64");
  refused([](Json &g) { g["tensors"][1]["role"] = "input"; }, "'w_q' is no weight of 2 dimensions");
  refused([](Json &g) { g["tensors"][1]["dtype"] = "f32"; }, "'w_q' is no weight of 2 dimensions");
  refused([](Json &g) { g["tensors"][1]["shape"] = {1, int64_t(1) << 46}; }, "the size is too large");
  refused(
      [](Json &g) {
        g["maps"][0] = {{"tensor", "w_q"}, {"field", "pointer"}, {"box", {64, 8}}, {"swizzle", 128}};
      },
      "'w_q' is packed, which no tensor map can say");
  refused([](Json &g) { g["variants"][0]["kernels"][0]["pdl"] = 1; }, "pdl: is number, not true or false");
  refused([](Json &g) { g["variants"][0]["kernels"][1]["cooperative"] = 1; },
          "cooperative: is number, not true or false");
}

TEST_CASE("what says which rows of a cache are in use is optional") {
  Manifest manifest = smallManifest();
  CHECK_THAT(toJson(manifest), !Contains("lengths") && !Contains("slots") && !Contains("block_table"));
  manifest.graphs[0].tensors[2].lengths = "len";
  std::string text = toJson(manifest);
  CHECK(parseManifest(text).graphs[0].tensors[2].lengths == "len");
  auto refused = [&](const char *key, const char *value, const char *why) {
    Json json = Json::parse(text);
    json["graphs"][0]["tensors"][2][key] = value;
    INFO(why);
    CHECK_THROWS_WITH(parseManifest(json.dump()), Contains("graphs[0].tensors[2]") && Contains(why));
  };
  refused("lengths", "lens", "there is no tensor 'lens'");
  refused("lengths", "", "is empty");
  refused("slots", "x", "'x' is no list of integers");
  refused("slots", "cache", "'cache' is no list of integers");
  refused("block_table", "len", "'cache' has no pages");
}

TEST_CASE("what a generated table is computed from is optional") {
  Manifest manifest = smallManifest();
  CHECK_THAT(toJson(manifest), !Contains("rope"));
  TensorSpec &table = manifest.graphs[0].tensors[0];
  table.dtype = CFC_F32;
  table.align = 16;
  table.rope =
      cfc::RopeTable{.base = 5e5, .scaling = cfc::RopeStretch::Yarn, .factor = 32, .truncate = false};
  std::string text = toJson(manifest);
  Manifest read = parseManifest(text);
  CHECK(toJson(read) == text);
  CHECK(read.graphs[0].tensors[0].rope->dim == table.shape[1]);
  CHECK(read.graphs[0].tensors[0].rope->factor == 32);

  auto refused = [&](auto change, const char *why) {
    Json json = Json::parse(text);
    change(json["graphs"][0]["tensors"][0]);
    INFO(why);
    CHECK_THROWS_WITH(parseManifest(json.dump()), Contains("graphs[0].tensors[0].rope") && Contains(why));
  };
  refused([](Json &t) { t["dtype"] = "i32"; },
          "is no input of 2 dimensions and floating point, of even width");
  refused([](Json &t) { t["shape"] = {4, 7}; },
          "is no input of 2 dimensions and floating point, of even width");
  refused([](Json &t) { t["role"] = "output"; },
          "is no input of 2 dimensions and floating point, of even width");
  refused([](Json &t) { t["rope"]["base"] = 0; }, "0 is not a number from 1 on");
  refused([](Json &t) { t["rope"]["base"] = "1"; }, "is string, not a number");
  refused([](Json &t) { t["rope"]["factor"] = 0; }, "0 is not a number from");
  refused([](Json &t) { t["rope"]["scaling"] = "ntk"; },
          "'ntk' is none of 'none', 'linear', 'llama3', 'yarn'");
  refused([](Json &t) { t["rope"]["truncate"] = 1; }, "not true or false");
  refused([](Json &t) { t["rope"] = 1; }, "is number, not an object");
}

TEST_CASE("the description shows all of the manifest") {
  Json json = Json::parse(toJson(smallManifest()));
  json["graphs"][0]["future"] = "unheard of";
  Bundle bundle = parseBundle(packBundle(sectionsWith(json.dump())), "test.cfk");
  std::string text = describeBundle(bundle);
  for (const char *part : {"sm_90a", "13.0.88", "0123456789abcdef", "block_k1_1a2b3c4d", "shape=[64,64]",
                           "bound=128", "cubin.1", "box=[64,8] field=pointer swizzle=128 tensor=w_q",
                           "zero_bytes=256", "shared_bytes=112000", "stride_token", "unheard of"})
    CHECK_THAT(text, Contains(part));
}

TEST_CASE("files are written in one step") {
  Scratch folder;
  std::string path = folder.path("a.cfk");
  REQUIRE_FALSE(writeBundle(path, smallSections()));
  CHECK(contentOf(path) == packed());
  CHECK(looksLikeBundle(path));
  Failure failure;
  CHECK(readBundle(path, failure));
  REQUIRE_FALSE(writeFileAtomically(path, "shorter"));
  CHECK(contentOf(path) == "shorter");
  CHECK_FALSE(looksLikeBundle(path));
  CHECK(count(folder) == 1);

  SECTION("through a link, which stays one") {
    fs::create_symlink("a.cfk", folder.path("link"));
    REQUIRE_FALSE(writeFileAtomically(folder.path("link"), "through"));
    CHECK(contentOf(path) == "through");
    CHECK(fs::is_symlink(folder.path("link")));
  }
  SECTION("errors leave nothing behind") {
    CHECK_THAT(writeFileAtomically(folder.folder, "x")->message, Contains("directory"));
    CHECK(writeFileAtomically(folder.path("none/b.cfk"), "x")->status == CFC_FILE_ERROR);
    CHECK(writeFileAtomically(folder.path("slash/"), "x")->status == CFC_FILE_ERROR);
    CHECK(writeFileAtomically("", "x")->status == CFC_FILE_ERROR);
    CHECK_THAT(writeFileAtomically("/dev/full", std::string(1 << 20, 'x'))->message, Contains("No space"));
    CHECK_FALSE(writeFileAtomically("/dev/null", "x"));
    CHECK(fs::is_character_file("/dev/null"));
    CHECK(count(folder) == 1);
  }
  SECTION("a write that fails half way keeps the old file") {
    rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    rlimit small = {1000, old.rlim_max};
    auto handler = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    std::optional<Failure> result = writeFileAtomically(path, std::string(100000, 'x'));
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    REQUIRE(result);
    CHECK(result->exitCode() == 2);
    CHECK(contentOf(path) == "shorter");
    CHECK(count(folder) == 1);
  }
}

TEST_CASE("files that cannot be read say why") {
  Scratch folder;
  Failure failure;
  CHECK_FALSE(readBundle(folder.path("none.cfk"), failure));
  CHECK_THAT(failure.message, Contains("none.cfk") && Contains("No such file"));
  CHECK_FALSE(readBundle(folder.folder, failure));
  CHECK_THAT(failure.message, Contains("is a directory"));
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK_FALSE(readBundle(folder.path("pipe"), failure)); // and does not wait for a writer
  CHECK(failure.status == CFC_FILE_ERROR);
}

TEST_CASE("section names are checked when packing") {
  CHECK_THROWS_AS(packBundle({{"", ""}}), Error);
  CHECK_THROWS_AS(packBundle({{"a", ""}, {"a", ""}}), Error);
  CHECK_THROWS_AS(packBundle({{std::string(32, 'a'), ""}}), Error);
  CHECK_NOTHROW(packBundle({{std::string(31, 'a'), ""}}));
}
