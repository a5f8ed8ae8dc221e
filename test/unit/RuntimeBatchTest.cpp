// An engine with a bundle for several batch sizes, through the C interface: weights packed once, one pool of
// pages, one workspace, a binding of each graph. Behind the driver table, launches run on the emulator.
#include "EmulatedLaunch.h"
#include "RuntimeHost.h"
#include "dialects/attn/Elements.h"
#include "tools/lib/Batches.h"
#include "tools/lib/Build.h"
#include <map>

using namespace cfc::runtime;
using namespace cfc::runtime::test;

namespace {
constexpr int64_t kMost = 4, kPage = 16, kColumns = 4, kPool = 20, kHidden = 64, kRow = 32;

constexpr const char *kGraph = R"(attn.graph @block(%x: tensor<2x64xf16>, %gain: tensor<64xf16>,
    %w_q: tensor<64x64xf16>, %w_k: tensor<32x64xf16>, %w_v: tensor<32x64xf16>, %w_o: tensor<64x64xf16>,
    %cache: !attn.kv_cache<heads = 1, dim = 32, page = 16, f16>, %pages: tensor<2x4xi32>,
    %slot: tensor<2xi64>, %len: !attn.lengths<2, capacity = 60>) -> tensor<2x64xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o = attn.attention %q, %c, %len pages %pages {scale = 0.2}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
})";

/// The graph for batches of 1, 2 and 4, compiled for the emulator, and as a bundle whose cubin is empty.
class Compiled {
public:
  Compiled() {
    cfc::Source source;
    source.path = "block.mlir";
    source.text = kGraph;
    source.module = compiler.parse(kGraph, "block.mlir");
    std::vector<cfc::Source> sources = cfc::sourcesForBatches(compiler, source, {1, 2, kMost});
    uint64_t zeroBytes = 0;
    for (const cfc::Source &one : sources)
      zeroBytes = std::max(zeroBytes, compile(one, {}).manifest.graphs[0].workspace.zeroBytes);
    std::vector<SectionContent> sections = {{"cubin.0", "none"}};
    for (const cfc::Source &one : sources) {
      size_t index = manifest.graphs.size();
      cfc::CompiledGraph compiled = compile(one, {{}, zeroBytes});
      auto program = cfc::emu::Program::compile(*compiled.simt);
      if (!program)
        FAIL(llvm::toString(program.takeError()));
      std::shared_ptr<cfc::emu::Program> shared = std::move(*program);
      GraphSpec graph = compiled.manifest.graphs[0];
      for (const KernelSpec &kernel : graph.variants[0].kernels) {
        programs[kernel.name] = shared;
        clusters[kernel.name] = int(kernel.cluster);
      }
      if (manifest.graphs.empty())
        manifest = compiled.manifest, manifest.graphs.clear();
      manifest.graphs.push_back(graph);
      sections.push_back({sectionName("graph", index), one.text});
      sections.push_back({sectionName("plan", index), compiled.planText});
      kept.push_back(std::move(compiled));
    }
    sections.insert(sections.begin(), {"manifest", toJson(manifest)});
    bundle = packBundle(sections);
  }

  std::string bundle;
  Manifest manifest;
  std::map<std::string, std::shared_ptr<cfc::emu::Program>> programs; ///< by kernel
  std::map<std::string, int> clusters;

private:
  cfc::CompiledGraph compile(const cfc::Source &source, const cfc::SharedLayout &shared) {
    cfc::BuildOptions options;
    options.weightLayout = "packed";
    options.shared = shared;
    return cfc::build(compiler, *source.module, options, cfc::Stage::Simt);
  }

  cfc::Compiler compiler;
  std::vector<cfc::CompiledGraph> kept;
};

Compiled &compiledOnce() {
  static Compiled once;
  return once;
}

/// Memory of the engine: buffers for the largest batch, and what each graph is bound to.
class Engine {
public:
  Engine() {
    fake->width = [this](const std::string &kernel) { return compiled.clusters.at(kernel); };
    fake->onAllocate = [this](void *memory, size_t bytes) { emulated.addRegion(memory, bytes, "memory"); };
    fake->onLaunch = [this](const FakeLaunch &launch) { run(launch); };
    cfc_load_options options{};
    options.size = sizeof options;
    options.memory = compiled.bundle.data();
    options.memory_bytes = compiled.bundle.size();
    check(cfc_load("batches.cfk", &options, &bundle));
    for (const TensorSpec &spec : compiled.manifest.graphs.back().tensors) // of the largest batch
      allocate(spec);
    packWeights();
    args.size = sizeof args;
    check(cfc_workspace_size(bundle, nullptr, nullptr, &args.workspace_bytes, nullptr));
    args.workspace = fakeMemory(args.workspace_bytes);
    check(cfc_workspace_init(args.workspace, args.workspace_bytes, nullptr));
    for (const GraphSpec &graph : compiled.manifest.graphs)
      bind(graph);
  }

  ~Engine() {
    for (auto &[name, binding] : bindings)
      cfc_unbind(binding);
    cfc_unload(bundle);
  }

  static void check(cfc_status status) {
    INFO(cfc_last_error());
    REQUIRE(status == CFC_OK);
  }

  template <class T> T *data(const std::string &name) { return static_cast<T *>(buffers.at(name).data); }

  /// The smallest graph for so many requests.
  std::string graphFor(size_t requests) {
    cfc_limits limits{};
    limits.size = sizeof limits;
    limits.max_batch = uint32_t(requests);
    const char *name = nullptr;
    check(cfc_graph_for(bundle, &limits, &name));
    return name;
  }

  /// Writes what a launch for these requests reads; one of -1 is idle.
  void prepare(const std::vector<int> &requests) {
    for (int64_t row = 0; row < kMost; ++row)
      place(row, row < int64_t(requests.size()) ? requests[size_t(row)] : -1);
  }

  void launch(const std::string &graph) { check(cfc_launch(bindings.at(graph), &args, nullptr)); }

  /// The first rows of the result, once all launches are done.
  std::vector<std::vector<uint16_t>> results(size_t count) {
    fake->flush();
    std::vector<std::vector<uint16_t>> rows;
    for (size_t row = 0; row < count; ++row) {
      const uint16_t *begin = data<uint16_t>("result0") + row * kHidden;
      rows.emplace_back(begin, begin + kHidden);
    }
    return rows;
  }

  /// Serves these requests by the smallest graph, whose name is left in `graph`.
  std::vector<std::vector<uint16_t>> step(const std::vector<int> &requests, std::string &graph) {
    graph = graphFor(requests.size());
    prepare(requests);
    launch(graph);
    return results(requests.size());
  }

  std::vector<int64_t> lengths = {3, 20, 37}; ///< of the requests; each has pages of its own
  FakeDriver fake;

private:
  struct Buffer {
    void *data = nullptr, *v = nullptr;
    uint64_t bytes = 0;
  };

  /// Request `request` gets row `row` of the batch.
  void place(int64_t row, int request) {
    int64_t length = request < 0 ? 11 : lengths[size_t(request)];
    for (int64_t c = 0; c < kHidden; ++c)
      data<uint16_t>("x")[row * kHidden + c] =
          request < 0 ? 0x7e00 : cfc::toHalf(float((request + 2) * (c % 7) - 5) * 0.1f);
    for (int64_t c = 0; c < kColumns; ++c)
      data<int32_t>("pages")[row * kColumns + c] =
          request < 0 || c > length / kPage ? INT32_MAX : int32_t(pageOf(request, c));
    data<int32_t>("len")[row] = int32_t(length);
    data<int64_t>("slot")[row] = request < 0 ? -1 : pageOf(request, length / kPage) * kPage + length % kPage;
  }
  static int64_t pageOf(int request, int64_t c) { return (7 * (request * kColumns + c) + 3) % kPool; }

  void allocate(const TensorSpec &spec) {
    Buffer &buffer = buffers[spec.name];
    uint64_t row = rowOrTensorBytes(spec);
    buffer.bytes = spec.kind == TensorKind::KvCache ? kPool * kPage * row : row;
    uint64_t count = buffer.bytes / elementBytes(spec.dtype);
    for (void **memory : {&buffer.data, &buffer.v}) {
      *memory = fakeMemory(buffer.bytes);
      for (uint64_t i = 0; i < count && spec.dtype == CFC_F16; ++i)
        static_cast<uint16_t *>(*memory)[i] =
            cfc::toHalf((float((i * 2654435761u) % 1000) / 1000 - 0.5f) * 0.4f);
    }
  }

  cfc_tensor tensorOf(const TensorSpec &spec) {
    const Buffer &buffer = buffers.at(spec.name);
    cfc_tensor tensor{};
    tensor.size = sizeof tensor;
    tensor.name = spec.name.c_str();
    tensor.dtype = spec.dtype;
    tensor.bytes = buffer.bytes;
    if (spec.kind == TensorKind::KvCache) {
      tensor.k = buffer.data;
      tensor.v = buffer.v;
      tensor.stride_token = kRow * 2;
      tensor.stride_head = kPage * tensor.stride_token;
      tensor.blocks = kPool;
      return tensor;
    }
    tensor.rank = uint32_t(spec.shape.size());
    tensor.shape = spec.shape.data();
    tensor.data = buffer.data;
    tensor.layout = uint32_t(spec.layout);
    return tensor;
  }

  /// Once, in place, for no graph in particular. Through host memory: this GPU runs no kernel of the runtime.
  void packWeights() {
    fake->failModule = kCudaErrorJitCompilerNotFound;
    size_t packed = 0;
    for (const TensorSpec &spec : compiled.manifest.graphs.front().tensors) {
      uint64_t bytes = 0;
      check(cfc_packed_bytes(bundle, nullptr, spec.name.c_str(), &bytes, nullptr));
      cfc_tensor weight = tensorOf(spec);
      weight.layout = CFC_LAYOUT_NATIVE;
      Buffer &buffer = buffers.at(spec.name);
      if (!bytes)
        continue;
      Buffer target{fakeMemory(bytes), nullptr, bytes};
      cfc_pack_args to{};
      to.size = sizeof to;
      to.destination = target.data;
      to.destination_bytes = bytes;
      weight.bytes = 0;
      check(cfc_pack(bundle, nullptr, &weight, &to, nullptr));
      buffer = target;
      ++packed;
    }
    fake->failModule = 0;
    CHECK(packed == 4);
  }

  void bind(const GraphSpec &graph) {
    std::vector<cfc_tensor> tensors;
    for (const TensorSpec &spec : graph.tensors)
      tensors.push_back(tensorOf(spec));
    check(
        cfc_bind(bundle, graph.name.c_str(), tensors.data(), tensors.size(), nullptr, &bindings[graph.name]));
  }

  void run(const FakeLaunch &launch) {
    runOnEmulator(*compiled.programs.at(launch.kernel), launch, emulated, ++seed);
  }

  Compiled &compiled = compiledOnce();
  cfc::emu::Memory emulated;
  cfc_bundle *bundle = nullptr;
  cfc_launch_args args{};
  std::map<std::string, Buffer> buffers;
  std::map<std::string, cfc_binding *> bindings; ///< by graph
  uint64_t seed = 0;
};
} // namespace

TEST_CASE("an engine serves each step by the smallest graph, with one packing, one pool and one workspace") {
  Engine engine;
  std::string graph;
  std::vector<std::vector<uint16_t>> alone;
  for (int request = 0; request < 3; ++request) {
    alone.push_back(engine.step({request}, graph)[0]);
    CHECK(graph == "block_b1");
    for (uint16_t bits : alone.back())
      REQUIRE(std::isfinite(cfc::halfToFloat(bits)));
  }
  CHECK(alone[0] != alone[1]);
  auto same = [&](const std::vector<int> &requests, const std::string &expected) {
    std::vector<std::vector<uint16_t>> rows = engine.step(requests, graph);
    CHECK(graph == expected);
    for (size_t row = 0; row < requests.size(); ++row)
      if (requests[row] >= 0)
        CHECK(rows[row] == alone[size_t(requests[row])]);
  };
  // Graphs take turns with the workspace.
  same({2, 0}, "block_b2");
  same({1, 2, 0}, "block_b4");
  same({1}, "block_b1");
  same({-1, 0, -1, 2}, "block_b4");
  same({0, 1}, "block_b2");
}

TEST_CASE("a captured launch of a batch follows its requests into new pages") {
  Engine engine;
  engine.lengths = {10, 14, 27};
  engine.prepare({-1, -1, -1, -1});
  engine.fake->capturing = true;
  engine.launch("block_b4");
  engine.fake->capturing = false;
  for (int step = 0; step < 12; ++step) {
    INFO("step " << step);
    bool idle = step / 4 % 3 == 2;
    std::vector<int> requests = {2, 0, -1, idle ? -1 : 1};
    engine.prepare(requests);
    engine.fake->replay();
    std::vector<std::vector<uint16_t>> replayed = engine.results(kMost);
    // A step that is done again appends the same rows.
    for (size_t row = 0; row < requests.size(); ++row) {
      std::string graph;
      if (requests[row] >= 0)
        CHECK(engine.step({requests[row]}, graph)[0] == replayed[row]);
    }
    for (int request : requests)
      if (request >= 0)
        ++engine.lengths[size_t(request)];
  }
  CHECK(engine.lengths[0] == 22);
  CHECK(engine.lengths[1] == 22);
  CHECK(engine.lengths[2] == 39);
}
