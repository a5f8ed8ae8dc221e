// CFC_CAPTURE through the fake driver, and what Replay makes of the files.
#include "RuntimeHost.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Replay.h"
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace cfc::runtime;
using namespace cfc::runtime::test;
using cfc::InputSpec;
using cfc::Replay;
using cfc::TensorMap;
namespace fs = std::filesystem;

namespace {

/// The environment of a capture into a folder of its own.
class Environment {
public:
  explicit Environment(const std::string &name = "CFC_CAPTURE_GRAPH", const std::string &value = "") {
    folder = fs::temp_directory_path() / fmt::format("cfc-capture-{}-{}", ::getpid(), count++);
    names = {"CFC_CAPTURE", name};
    ::setenv("CFC_CAPTURE", folder.c_str(), 1);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const std::string &name : names)
      ::unsetenv(name.c_str());
    fs::remove_all(folder);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    if (fs::exists(folder))
      for (auto &entry : fs::directory_iterator(folder))
        found.push_back(entry.path().string());
    return found;
  }

  fs::path folder;

private:
  static inline int count = 0;
  std::vector<std::string> names;
};

/// The small graph's manifest, whose cache says what is in use.
Manifest usedManifest() {
  Manifest manifest = smallManifest();
  manifest.graphs[0].tensors[2].lengths = "len";
  return manifest;
}

/// Different numbers everywhere.
void fill(void *memory, size_t bytes, uint16_t first) {
  for (size_t i = 0; i < bytes / 2; ++i)
    static_cast<uint16_t *>(memory)[i] = uint16_t(first + i % 0x3000);
}

void launch(const BindingPtr &binding, const cfc_launch_args &args) {
  REQUIRE(cfc_launch(binding.get(), &args, nullptr) == CFC_OK);
}

InputSpec inputSpec(const TensorSpec &tensor) {
  InputSpec spec;
  spec.name = tensor.name;
  spec.type = tensor.dtype == CFC_F16   ? cfc::DType::f16
              : tensor.dtype == CFC_I32 ? cfc::DType::i32
                                        : cfc::DType::i64;
  spec.role = tensor.kind == TensorKind::KvCache ? cfc::DataRole::Cache
              : tensor.role == Role::Weight      ? cfc::DataRole::Weight
                                                 : cfc::DataRole::Activation;
  spec.shape = tensor.shape;
  spec.heads = tensor.heads;
  spec.dim = tensor.dim;
  spec.vDim = tensor.dimOfV();
  spec.requests = tensor.requests;
  spec.page = tensor.page;
  spec.pages = tensor.pages;
  return spec;
}

std::vector<InputSpec> specsOf(const GraphSpec &graph) {
  std::vector<InputSpec> specs;
  for (const TensorSpec &tensor : graph.tensors)
    if (tensor.role != Role::Output)
      specs.push_back(inputSpec(tensor));
  return specs;
}

std::string failureOf(const std::function<void()> &body, cfc::Exit code = cfc::Exit::BadInput) {
  try {
    body();
  } catch (const cfc::Failure &failure) {
    CHECK(failure.code == code);
    return failure.what();
  }
  FAIL("nothing failed");
  return "";
}

std::string contentOf(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

TEST_CASE("the first launch of a graph is captured") {
  FakeDriver fake;
  Environment environment;
  Manifest manifest = usedManifest();
  BundlePtr bundle = loadSmall(manifest);
  Tensors tensors;
  for (cfc_tensor &tensor : tensors.list)
    for (void *memory : {tensor.data, tensor.k, tensor.v})
      if (memory)
        fill(memory, tensor.bytes, uint16_t(0x100 * (&tensor - tensors.list.data()) + (memory == tensor.v)));
  *static_cast<int32_t *>(tensors["len"].data) = 5;
  BindingPtr binding = bindSmall(bundle, tensors);
  Workspace workspace;
  workspace.args.length_hint = 7;
  launch(binding, workspace.args);
  std::vector<std::string> files = environment.files();
  REQUIRE(files.size() == 1);
  CHECK_THAT(files[0], Catch::Contains("/block-1a2b3c4d-") && Catch::EndsWith(".safetensors"));
  launch(binding, workspace.args);
  CHECK(environment.files() == files);
  CHECK(fake->launches.empty()); // only copies were waited for
  fake->flush();
  CHECK(fake->launches.size() == 4); // two kernels each

  Replay replay(files[0]);
  CHECK(replay.graph().name == "block");
  CHECK(replay.planHash() == "1a2b3c4d");
  CHECK(replay.kernelDigest() == "0123456789abcdef");
  CHECK(replay.graphDigest() == digestText("attn.graph @block"));
  replay.requireFit(manifest.graphs[0], "block", "small.cfk");
  TensorMap inputs = replay.inputs(specsOf(manifest.graphs[0]), "");
  CHECK(inputs.size() == 5);
  for (const char *name : {"x", "w_q", "len"})
    CHECK(std::memcmp(inputs.at(name).data(), tensors[name].data, inputs.at(name).bytes()) == 0);
  for (const char *part : {"cache.k", "cache.v"}) {
    const cfc::Tensor &dense = inputs.at(part);
    CHECK(dense.shape == std::vector<int64_t>{2, 5, 16});
    void *from = part[6] == 'k' ? tensors["cache"].k : tensors["cache"].v;
    for (int64_t head = 0; head < 2; ++head)
      CHECK(std::memcmp(dense.data() + head * 5 * 32,
                        static_cast<char *>(from) + head * Tensors::kCapacity * 32, 5 * 32) == 0);
  }

  SECTION("again for another folder, rebound, of no length") {
    Environment other;
    BundlePtr again = loadSmall(manifest);
    BindingPtr rebound = bindSmall(again, tensors);
    cfc_tensor moved = tensors["x"];
    moved.data = fakeMemory(128);
    fill(moved.data, 128, 0x1234);
    REQUIRE(cfc_rebind(rebound.get(), &moved, 1, nullptr) == CFC_OK);
    *static_cast<int32_t *>(tensors["len"].data) = -3;
    launch(rebound, workspace.args);
    REQUIRE(other.files().size() == 1);
    TensorMap found = Replay(other.files()[0]).inputs(specsOf(manifest.graphs[0]), "");
    CHECK(std::memcmp(found.at("x").data(), moved.data, 128) == 0);
    CHECK(found.at("cache.k").shape == std::vector<int64_t>{2, 1, 16});
    CHECK(found.at("cache.k").as<uint16_t>()[0] == 0x7ffb);
    CHECK(found.at("len").as<int32_t>()[0] == -3);
  }
  SECTION("it does not fit another graph") {
    GraphSpec other = manifest.graphs[0];
    other.tensors[0].shape = {1, 128};
    CHECK_THAT(
        failureOf([&] { replay.requireFit(other, other.name, "other.cfk"); }),
        Catch::Contains("does not fit graph 'block' of other.cfk: \"x\" is tensor<1x64xf16> in the capture "
                        "and tensor<1x128xf16> in the graph"));
    other = manifest.graphs[0];
    other.tensors[2].page = 16;
    CHECK_THAT(failureOf([&] { replay.requireFit(other, other.name, "other.cfk"); }),
               Catch::Contains("page = 16"));
    other = manifest.graphs[0];
    other.name = "mlp";
    CHECK_THAT(failureOf([&] { replay.requireFit(other, other.name, "other.cfk"); }),
               Catch::Contains("the names differ"));
    CHECK_THAT(failureOf([&] { cfc::openReplays(environment.folder, "mlp"); }),
               Catch::Contains("holds no capture of graph 'mlp', but of 'block'"));
    CHECK(cfc::openReplays(environment.folder, "block").size() == 1);
    CHECK_THAT(failureOf([&] { replay.inputs(specsOf(manifest.graphs[0]), "weights"); }),
               Catch::Contains("holds the weights"));
  }
  SECTION("no part of a file is taken for a capture") {
    std::string good = contentOf(files[0]), path = environment.folder / "bad.safetensors";
    for (size_t bytes = 0; bytes < good.size(); bytes += 1 + bytes / 7) {
      std::ofstream(path, std::ios::binary) << good.substr(0, bytes);
      failureOf([&] { Replay bad(path); });
    }
    auto garbled = [&](const std::string &from, const std::string &to) {
      std::string text = good;
      size_t at = text.find(from);
      REQUIRE(at != text.npos);
      REQUIRE(from.size() == to.size());
      text.replace(at, from.size(), to);
      std::ofstream(path, std::ios::binary) << text;
    };
    garbled("cfc.capture", "cfc.picture");
    CHECK_THAT(failureOf([&] { Replay bad(path); }), Catch::Contains("is no capture"));
    garbled("\\\"format\\\":1", "\\\"format\\\":9");
    CHECK_THAT(failureOf([&] { Replay bad(path); }, cfc::Exit::CannotRun), Catch::Contains("of form 9"));
    garbled("\\\"capacity\\\":128", "\\\"capacity\\\":  4");
    CHECK_THAT(failureOf([&] { Replay bad(path); }), Catch::Contains("rows 0 to 5 of block 0 are in use"));
    garbled("\\\"capacity\\\":128", "\\\"capacity\\\": {}");
    CHECK_THAT(failureOf([&] { Replay bad(path); }), Catch::Contains("must be an integer, not object"));
    garbled("\\\"heads\\\":2", "\\\"heads\\\":3");
    CHECK_THAT(failureOf([&] { Replay bad(path); }), Catch::Contains("\"cache.k\" has the shape 5x2x16"));
    garbled("\\\"cluster\\\":4", "\\\"cluster\\\":0");
    CHECK_THAT(failureOf([&] { Replay bad(path); }), Catch::Contains("bad.safetensors: error: manifest: "));
    for (size_t at : {good.size() - 1, good.size() - 9, good.size() - 3000}) {
      std::string text = good;
      text[at] ^= 1;
      std::ofstream(path, std::ios::binary) << text;
      CHECK_THAT(failureOf([&] { Replay bad(path); }), Catch::Contains("is garbled"));
    }
    garbled("\"cache.rows\"", "\"cache.lows\"");
    CHECK_THAT(failureOf([&] { Replay bad(path); }), Catch::Contains("holds no tensor \"cache.rows\""));
    garbled("\"w_q\":{\"dtype", "\"w_p\":{\"dtype");
    CHECK_THAT(failureOf([&] { Replay(path).inputs(specsOf(manifest.graphs[0]), ""); }),
               Catch::Contains("holds no tensor \"w_q\""));
  }
}

TEST_CASE("what the environment says of captures") {
  FakeDriver fake;
  Tensors tensors;
  *static_cast<int32_t *>(tensors["len"].data) = 2;
  Workspace workspace;
  auto launches = [&](const Environment &environment, int count) {
    BundlePtr bundle = loadSmall(usedManifest());
    BindingPtr binding = bindSmall(bundle, tensors);
    for (int i = 0; i < count; ++i)
      launch(binding, workspace.args);
    fake->flush();
    return environment.files().size();
  };
  SECTION("launches to skip") {
    Environment environment("CFC_CAPTURE_SKIP", "2");
    CHECK(launches(environment, 2) == 0);
    CHECK(launches(environment, 1) == 1); // counted on, though the bundle was loaded again
    CHECK(launches(environment, 3) == 1);
  }
  SECTION("the graph") {
    Environment environment("CFC_CAPTURE_GRAPH", "mlp");
    CHECK(launches(environment, 2) == 0);
    Environment other("CFC_CAPTURE_GRAPH", "block");
    CHECK(launches(other, 2) == 1);
  }
  SECTION("no weights") {
    Environment environment("CFC_CAPTURE_WEIGHTS", "0");
    REQUIRE(launches(environment, 1) == 1);
    Replay replay(environment.files()[0]);
    CHECK_THAT(failureOf([&] { replay.inputs(specsOf(replay.graph()), ""); }),
               Catch::Contains("was captured without weights (CFC_CAPTURE_WEIGHTS=0), such as \"w_q\""));
  }
  SECTION("nonsense") {
    CHECK(launches(Environment("CFC_CAPTURE_SKIP", "-1"), 1) == 0);
    CHECK(launches(Environment("CFC_CAPTURE_SKIP", "2x"), 3) == 0);
    CHECK(launches(Environment("CFC_CAPTURE_WEIGHTS", "no"), 1) == 0);
    CHECK(launches(Environment("CFC_CAPTURE", ""), 1) == 0);
  }
  SECTION("a folder that cannot be: the launch goes on") {
    CHECK(launches(Environment("CFC_CAPTURE", "/proc/self/no/folder"), 1) == 0);
    CHECK(fake->launches.size() == 2);
  }
  SECTION("a stream that is recorded") {
    Environment environment;
    BundlePtr bundle = loadSmall(usedManifest());
    BindingPtr binding = bindSmall(bundle, tensors);
    fake->capturing = true;
    launch(binding, workspace.args);
    launch(binding, workspace.args);
    fake->capturing = false;
    CHECK(environment.files().empty());
    CHECK(fake->graph.size() == 4); // two kernels each and nothing else
    launch(binding, workspace.args);
    CHECK(environment.files().size() == 1);
  }
}

namespace {

/// Two requests, pages of 4 tokens, at most 3 each; V has another dim; [page, token, head, dim] with gaps.
struct Paged {
  static constexpr int64_t kPages = 9, kHeads = 2, kDim = 16, kVDim = 8;
  Manifest manifest = smallManifest();
  int64_t row[2] = {1, 64}, square[2] = {64, 64}, two[1] = {2}, table[2] = {2, 3};
  std::vector<cfc_tensor> tensors;

  Paged() {
    GraphSpec &graph = manifest.graphs[0];
    graph.maps.clear();
    TensorSpec &cache = graph.tensors[2];
    cache.vDim = kVDim;
    cache.requests = 2;
    cache.page = 4;
    cache.pages = 3;
    cache.lengths = "len";
    cache.slots = "slot";
    cache.blockTable = "pages";
    graph.tensors[3].shape = {2};
    graph.tensors[3].bound = 10;
    TensorSpec slots = graph.tensors[3], pages = graph.tensors[3];
    slots.name = "slot", slots.dtype = CFC_I64, slots.align = 8, slots.bound.reset();
    pages.name = "pages", pages.shape = {2, 3}, pages.bound.reset();
    graph.tensors.insert(graph.tensors.end() - 1, {slots, pages});
    graph.table.clear();
    for (size_t i = 0; i < graph.tensors.size(); ++i)
      for (Field field : tableFields(graph.tensors[i]))
        graph.table.push_back({i, field});
    tensors = {Tensors::tensor("x", CFC_F16, row, 2, 128, 0),
               Tensors::tensor("w_q", CFC_F16, square, 2, 8192, 0),
               cacheOf(),
               Tensors::tensor("len", CFC_I32, two, 1, 8, 0),
               Tensors::tensor("slot", CFC_I64, two, 1, 16, 0),
               Tensors::tensor("pages", CFC_I32, table, 2, 24, 0),
               Tensors::tensor("result0", CFC_F16, row, 2, 128, 0)};
  }

  /// Each element of K is its row's number, of V that and 4096.
  static cfc_tensor cacheOf() {
    cfc_tensor cache{};
    cache.size = sizeof cache;
    cache.name = "cache";
    cache.dtype = CFC_F16;
    cache.stride_head = 48; // a gap of 16 bytes
    cache.stride_token = 96;
    cache.stride_block = 400;
    cache.v_stride_head = 16;
    cache.v_stride_token = 640; // far apart
    cache.v_stride_block = 2560;
    cache.blocks = kPages;
    cache.k = fakeMemory(400 * kPages);
    cache.v = fakeMemory(2560 * kPages);
    for (int64_t page = 0; page < kPages; ++page)
      for (int64_t token = 0; token < 4; ++token)
        for (int64_t head = 0; head < kHeads; ++head) {
          auto *k = reinterpret_cast<uint16_t *>(static_cast<char *>(cache.k) + page * 400 + token * 96 +
                                                 head * 48);
          auto *v = reinterpret_cast<uint16_t *>(static_cast<char *>(cache.v) + page * 2560 + token * 640 +
                                                 head * 16);
          std::fill_n(k, kDim, number(page, head, token));
          std::fill_n(v, kVDim, uint16_t(4096 + number(page, head, token)));
        }
    return cache;
  }
  static uint16_t number(int64_t page, int64_t head, int64_t token) {
    return uint16_t(page * 100 + head * 10 + token);
  }

  /// Captures a launch and gives its inputs.
  TensorMap inputs(const Environment &environment, std::vector<int32_t> lengths, std::vector<int64_t> slots,
                   std::vector<int32_t> pages) {
    std::memcpy(tensors[3].data, lengths.data(), 8);
    std::memcpy(tensors[4].data, slots.data(), 16);
    std::memcpy(tensors[5].data, pages.data(), 24);
    BundlePtr bundle = loadSmall(manifest);
    cfc_binding *made = nullptr;
    cfc_status status = cfc_bind(bundle.get(), nullptr, tensors.data(), tensors.size(), nullptr, &made);
    INFO(cfc_last_error());
    REQUIRE(status == CFC_OK);
    BindingPtr binding(made);
    Workspace workspace;
    launch(binding, workspace.args);
    REQUIRE(environment.files().size() == 1);
    return Replay(environment.files()[0]).inputs(specsOf(manifest.graphs[0]), "");
  }
};

/// The first element of a row of a dense pool.
uint16_t at(const cfc::Tensor &pool, int64_t page, int64_t head, int64_t token) {
  return pool.as<uint16_t>()[((page * pool.shape[1] + head) * pool.shape[2] + token) * pool.shape[3]];
}

template <class T> std::vector<T> list(const cfc::Tensor &tensor) {
  return {tensor.as<T>(), tensor.as<T>() + tensor.elements()};
}

} // namespace

TEST_CASE("of a pool only the pages in use are captured") {
  FakeDriver fake;
  Environment environment;
  Paged paged;
  SECTION("two requests that share a page") {
    TensorMap inputs = paged.inputs(environment, {6, 9}, {4 * 7 + 2, 4 * 3 + 1}, {5, 7, 1000, 5, 2, 3});
    // Pages 2, 3, 5, 7 are 0, 1, 2, 3.
    CHECK(list<int32_t>(inputs.at("pages")) == std::vector<int32_t>{2, 3, INT32_MAX, 2, 0, 1});
    CHECK(list<int64_t>(inputs.at("slot")) == std::vector<int64_t>{4 * 3 + 2, 4 * 1 + 1});
    CHECK(list<int32_t>(inputs.at("len")) == std::vector<int32_t>{6, 9});
    const cfc::Tensor &k = inputs.at("cache.k"), &v = inputs.at("cache.v");
    CHECK(k.shape == std::vector<int64_t>{4, 2, 4, 16});
    CHECK(v.shape == std::vector<int64_t>{4, 2, 4, 8});
    int64_t old[] = {2, 3, 5, 7}, used[] = {4, 1, 4, 2};
    for (int64_t page = 0; page < 4; ++page)
      for (int64_t head = 0; head < 2; ++head)
        for (int64_t token = 0; token < 4; ++token) {
          INFO("page " << page << ", head " << head << ", token " << token);
          bool isUsed = token < used[page];
          uint16_t number = Paged::number(old[page], head, token);
          CHECK(at(k, page, head, token) == (isUsed ? number : 0x7ffb));
          CHECK(at(v, page, head, token) == (isUsed ? 4096 + number : 0x7ffb));
        }
  }
  SECTION("values out of bound stay so, and lead to the same pages when clamped") {
    TensorMap inputs = paged.inputs(environment, {INT32_MAX, -5}, {4 * 9, -1}, {-2, 9, 4, 8, 8, 8});
    // A length is at most 10: entries -2, 9 and 4 count, as pages 0, 8 and 4.
    CHECK(list<int32_t>(inputs.at("pages")) == std::vector<int32_t>{-2, 9, 1, -1, INT32_MAX, -1});
    CHECK(list<int64_t>(inputs.at("slot")) == std::vector<int64_t>{36, -1});
    CHECK(list<int32_t>(inputs.at("len")) == std::vector<int32_t>{INT32_MAX, -5});
    const cfc::Tensor &k = inputs.at("cache.k");
    REQUIRE(k.shape[0] == 3);
    CHECK(at(k, 0, 1, 3) == Paged::number(0, 1, 3));
    CHECK(at(k, 1, 1, 1) == Paged::number(4, 1, 1));
    CHECK(at(k, 1, 1, 2) == 0x7ffb);
    CHECK(at(k, 2, 0, 0) == Paged::number(8, 0, 0));
  }
  SECTION("nothing in use") {
    TensorMap inputs = paged.inputs(environment, {0, 0}, {-1, -1}, {0, 1, 2, 3, 4, 5});
    CHECK(inputs.at("cache.k").shape == std::vector<int64_t>{1, 2, 4, 16});
    CHECK(at(inputs.at("cache.k"), 0, 1, 3) == 0x7ffb);
  }
}
