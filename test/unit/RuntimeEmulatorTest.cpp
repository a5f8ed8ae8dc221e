// An engine's way through the C interface with a compiled graph: behind the driver table, launches run on the
// emulator, so the kernels really read the table, the workspace and the buffers.
#include "RuntimeHost.h"
#include "compiler/pipeline/Pipeline.h"
#include "dialects/attn/Elements.h"
#include "mlir/Parser/Parser.h"
#include "runtime/emulator/Emulator.h"
#include "tools/lib/Dialects.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

using namespace cfc::runtime;
using namespace cfc::runtime::test;

namespace {

/// templates/graphs/small_attention.mlir compiled for the emulator, and as a bundle whose cubin is empty.
/// Several plans give variants: each but the last is for lengths up to 16, 32, …. `weights`: their layout.
class Compiled {
public:
  explicit Compiled(const std::vector<std::string> &plans, std::string weights = "native")
      : weights(std::move(weights)) {
    mlir::DialectRegistry registry;
    cfc::registerDialects(registry);
    cfc::registerPipelineDialects(registry);
    context.appendDialectRegistry(registry);
    std::ifstream file(CFC_GRAPHS "/small_attention.mlir");
    text << file.rdbuf();
    for (const std::string &plan : plans) { // what they share
      GraphSpec alone = compile(plan, {}).manifest.graphs.front();
      shared.maps.insert(shared.maps.begin(), alone.maps.begin(), alone.maps.end());
      shared.zeroBytes = std::max(shared.zeroBytes, alone.workspace.zeroBytes) + 256;
    }
    for (size_t i = 0; i < plans.size(); ++i)
      add(compile(plans[i], plans.size() > 1 ? shared : cfc::SharedLayout()),
          i + 1 < plans.size() ? 16 << i : 0);
    bundle = packBundle(
        {{"manifest", toJson(manifest)}, {"graph", text.str()}, {"plan", planText}, {"cubin.0", "none"}});
  }

  const GraphSpec &graph() const { return manifest.graphs.front(); }
  cfc::emu::Program &program(const std::string &kernel) { return *programs.at(kernel); }

  std::string bundle;

private:
  cfc::CompiledGraph compile(const std::string &plan, const cfc::SharedLayout &common) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text.str(), &context);
    REQUIRE(module);
    cfc::CompileOptions options;
    options.last = cfc::Stage::Simt;
    options.plan = plan;
    options.shared = common;
    options.weightLayout = weights;
    int exitCode = 0;
    auto compiled = cfc::compile(*module, options, exitCode);
    REQUIRE(mlir::succeeded(compiled));
    return std::move(*compiled);
  }

  void add(cfc::CompiledGraph compiled, int64_t maxLength) {
    VariantSpec variant = compiled.manifest.graphs.front().variants.front();
    if (maxLength)
      variant.when.maxLength = maxLength;
    auto made = cfc::emu::Program::compile(*compiled.simt);
    if (!made)
      FAIL(llvm::toString(made.takeError()));
    std::shared_ptr<cfc::emu::Program> program = std::move(*made);
    for (const KernelSpec &kernel : variant.kernels)
      programs[kernel.name] = program;
    planText = compiled.planText;
    if (manifest.graphs.empty()) {
      manifest = compiled.manifest;
      manifest.graphs[0].variants.clear();
    }
    const GraphSpec &own = compiled.manifest.graphs.front();
    WorkspaceSpec &workspace = manifest.graphs[0].workspace;
    CHECK(own.maps.size() == manifest.graphs[0].maps.size());
    CHECK(own.workspace.zeroBytes == workspace.zeroBytes);
    workspace.bytes = std::max(workspace.bytes, own.workspace.bytes);
    manifest.graphs[0].variants.push_back(variant);
    kept.push_back(std::move(compiled));
  }

  const std::string weights;
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  std::stringstream text;
  cfc::SharedLayout shared;
  Manifest manifest;
  std::string planText;
  std::map<std::string, std::shared_ptr<cfc::emu::Program>> programs; ///< by kernel
  std::vector<cfc::CompiledGraph> kept;
};

Compiled &onePlan() {
  static Compiled once({"auto"});
  return once;
}

Compiled &packedPlan() {
  static Compiled once({"auto"}, "packed");
  return once;
}

Compiled &threePlans() {
  static Compiled once({"random:3", "random:11", "auto"});
  return once;
}

/// The engine: its buffers, its workspace, and the emulator as its GPU.
class Engine {
public:
  explicit Engine(Compiled &compiled = onePlan()) : compiled(compiled) {
    fake->width = [this](const std::string &kernel) { return int(spec(kernel).cluster); };
    fake->onAllocate = [this](void *memory, size_t bytes) { emulated.addRegion(memory, bytes, "memory"); };
    fake->onLaunch = [this](const FakeLaunch &launch) { run(launch); };
    load();
    makeTensors();
  }

  ~Engine() {
    cfc_unbind(binding);
    cfc_unload(bundle);
  }

  cfc_tensor &operator[](std::string_view name) {
    for (cfc_tensor &tensor : tensors)
      if (tensor.name == name)
        return tensor;
    FAIL("no tensor " << name);
    return tensors.front();
  }

  template <class T> T *data(std::string_view name) { return static_cast<T *>((*this)[name].data); }

  /// Position, slot and length of the next step.
  void step(int32_t position, int64_t slot, int32_t length) {
    *data<int32_t>("pos") = position;
    *data<int64_t>("slot") = slot;
    *data<int32_t>("len") = length;
  }

  /// Packs in place what the kernels read packed. Through host memory: this GPU runs no kernel of the
  /// runtime.
  size_t packWeights() {
    fake->failModule = kCudaErrorJitCompilerNotFound;
    size_t packed = 0;
    for (cfc_tensor &tensor : tensors) {
      uint64_t bytes = 0;
      REQUIRE(cfc_packed_bytes(bundle, nullptr, tensor.name, &bytes, nullptr) == CFC_OK);
      if (!bytes)
        continue;
      cfc_status status = cfc_pack(bundle, nullptr, &tensor, nullptr, nullptr);
      INFO(cfc_last_error());
      REQUIRE(status == CFC_OK);
      tensor.layout = CFC_LAYOUT_PACKED;
      ++packed;
    }
    fake->failModule = 0;
    return packed;
  }

  void bind() {
    cfc_status status = tryBind(&binding);
    INFO(cfc_last_error());
    REQUIRE(status == CFC_OK);
  }

  cfc_status tryBind(cfc_binding **made) {
    return cfc_bind(bundle, nullptr, tensors.data(), tensors.size(), nullptr, made);
  }

  void launch(int64_t lengthHint = 0) {
    workspace.length_hint = lengthHint;
    REQUIRE(cfc_launch(binding, &workspace, nullptr) == CFC_OK);
  }

  uint32_t status() {
    cfc_device_status result{};
    result.size = sizeof result;
    result.flags = CFC_DEVICE_STATUS_CLEAR;
    REQUIRE(cfc_device_status_get(binding, nullptr, &result) == CFC_OK);
    return result.bits;
  }

  /// Launches, waits, and gives the result.
  std::vector<uint16_t> result(int64_t lengthHint = 0) {
    launch(lengthHint);
    fake->flush();
    const uint16_t *out = data<uint16_t>("result0");
    return {out, out + 256};
  }

  FakeDriver fake;
  cfc_binding *binding = nullptr;
  std::vector<cfc_tensor> tensors;

private:
  const KernelSpec &spec(const std::string &name) {
    for (const VariantSpec &variant : graph().variants)
      for (const KernelSpec &kernel : variant.kernels)
        if (kernel.name == name)
          return kernel;
    throw std::runtime_error("no kernel " + name);
  }

  const GraphSpec &graph() { return compiled.graph(); }

  void load() {
    cfc_load_options options{};
    options.size = sizeof options;
    options.memory = compiled.bundle.data();
    options.memory_bytes = compiled.bundle.size();
    cfc_status status = cfc_load("small.cfk", &options, &bundle);
    INFO(cfc_last_error());
    REQUIRE(status == CFC_OK);
    size_t bytes = 0, align = 0;
    REQUIRE(cfc_workspace_size(bundle, nullptr, nullptr, &bytes, &align) == CFC_OK);
    REQUIRE(align <= 256);
    workspace.size = sizeof workspace;
    workspace.workspace = fakeMemory(bytes);
    workspace.workspace_bytes = bytes;
    REQUIRE(cfc_workspace_init(workspace.workspace, bytes, nullptr) == CFC_OK);
  }

  /// Small values from a fixed sequence; zeros for integers and results.
  void fill(const TensorSpec &spec, void *memory, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      float value = (float(random >> 40) / float(1 << 24) - 0.5f) * 0.4f;
      if (spec.dtype == CFC_F16)
        static_cast<uint16_t *>(memory)[i] = cfc::toHalf(value);
      else if (spec.dtype == CFC_F32)
        static_cast<float *>(memory)[i] = value;
    }
  }

  void makeTensors() {
    for (const TensorSpec &spec : graph().tensors) {
      cfc_tensor tensor{};
      tensor.size = sizeof tensor;
      tensor.name = spec.name.c_str();
      tensor.dtype = spec.dtype;
      uint64_t row = rowOrTensorBytes(spec);
      if (spec.kind == TensorKind::KvCache) {
        tensor.capacity = 256;
        tensor.stride_token = int64_t(row);
        tensor.stride_head = tensor.capacity * tensor.stride_token;
        tensor.bytes = uint64_t(spec.heads * tensor.stride_head);
        for (void **memory : {&tensor.k, &tensor.v})
          fill(spec, *memory = fakeMemory(tensor.bytes), tensor.bytes / 2);
      } else {
        tensor.rank = uint32_t(spec.shape.size());
        tensor.shape = spec.shape.data();
        tensor.data = fakeMemory(row);
        fill(spec, tensor.data, row / elementBytes(spec.dtype));
      }
      tensors.push_back(tensor);
    }
  }

  /// One launch on the emulator, every time in another order of threads.
  void run(const FakeLaunch &launch) {
    cfc::emu::Options options;
    options.seed = ++seed;
    cfc::emu::Report report =
        compiled.program(launch.kernel)
            .launch(launch.kernel, launch.grid / launch.cluster, reinterpret_cast<void *>(launch.table),
                    reinterpret_cast<void *>(launch.workspace), emulated, options);
    std::string text;
    llvm::raw_string_ostream stream(text);
    report.print(stream);
    INFO(text);
    CHECK(report.ok);
  }

  Compiled &compiled;
  cfc::emu::Memory emulated;
  cfc_bundle *bundle = nullptr;
  cfc_launch_args workspace{};
  uint64_t random = 1, seed = 0;
};

} // namespace

TEST_CASE("a compiled graph runs through the C interface") {
  Engine engine;
  engine.step(37, 37, 37);
  engine.bind();
  std::vector<uint16_t> first = engine.result();
  for (uint16_t bits : first)
    REQUIRE(std::isfinite(cfc::halfToFloat(bits)));
  CHECK(engine.status() == 0);
  // The workspace is ready for the next launch, and the bits do not depend on the order of threads.
  CHECK(engine.result() == first);

  SECTION("with fewer clusters at a time") {
    cfc_unbind(std::exchange(engine.binding, nullptr));
    engine.fake->resident = [](const std::string &, unsigned) { return 1; };
    engine.bind();
    CHECK(engine.result() == first);
    CHECK(engine.fake->launches.back().grid == engine.fake->launches.back().cluster);
  }
  SECTION("rebinding a result") {
    cfc_tensor moved = engine["result0"];
    void *old = moved.data;
    moved.data = fakeMemory(512);
    std::memset(old, 0, 512);
    REQUIRE(cfc_rebind(engine.binding, &moved, 1, nullptr) == CFC_OK);
    engine["result0"] = moved;
    CHECK(engine.result() == first);
    CHECK(std::vector<uint16_t>(256, 0) ==
          std::vector<uint16_t>(static_cast<uint16_t *>(old), static_cast<uint16_t *>(old) + 256));
  }
  SECTION("captured at one length, replayed at another") {
    engine.fake->capturing = true;
    engine.launch();
    engine.fake->capturing = false;
    engine.step(100, 100, 100);
    engine.fake->replay();
    engine.fake->flush();
    const uint16_t *out = engine.data<uint16_t>("result0");
    std::vector<uint16_t> replayed(out, out + 256);
    CHECK(replayed != first);
    CHECK(engine.result() == replayed);
  }
}

TEST_CASE("weights packed in place give the bits of native ones") {
  std::vector<uint16_t> native;
  {
    Engine engine;
    engine.step(37, 37, 37);
    engine.bind();
    native = engine.result();
    CHECK(engine.packWeights() == 0);
  }
  Engine engine(packedPlan());
  engine.step(37, 37, 37);
  cfc_binding *binding = nullptr;
  CHECK(engine.tryBind(&binding) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Catch::Contains("compiled for a packed one"));
  CHECK(engine.packWeights() == 4);
  engine.bind();
  CHECK(engine.result() == native);
}

TEST_CASE("variants share a table and a workspace, and give the same bits") {
  Engine engine(threePlans());
  engine.step(20, 20, 20);
  engine.bind();
  std::vector<uint16_t> usual = engine.result();
  std::string usualKernel = engine.fake->launches.back().kernel;
  // In turn on one workspace: where one has counters no other may leave sums.
  std::set<std::string> kernels;
  for (int64_t hint : {20, 1, 20, 0, 1, 100, 20, 1}) {
    INFO("hint " << hint);
    CHECK(engine.result(hint) == usual);
    kernels.insert(engine.fake->launches.back().kernel);
  }
  CHECK(kernels.size() == 3);
  CHECK(engine.fake->launches.back().kernel != usualKernel);

  SECTION("a captured launch keeps its variant while the length grows") {
    engine.fake->capturing = true;
    engine.launch(1);
    engine.fake->capturing = false;
    for (int length : {3, 16, 17, 33, 150, 255}) {
      INFO("length " << length);
      engine.step(length, length, length);
      engine.fake->replay();
      engine.fake->flush();
      CHECK(engine.fake->launches.back().kernel != usualKernel);
      const uint16_t *out = engine.data<uint16_t>("result0");
      std::vector<uint16_t> replayed(out, out + 256);
      CHECK(engine.result() == replayed);
    }
  }
}

TEST_CASE("values out of their bound set the sticky word and nothing else") {
  Engine engine;
  engine.bind();
  struct {
    int32_t position;
    int64_t slot;
    int32_t length;
    uint32_t bits;
  } steps[] = {{0, 0, 0, 0},
               {255, 255, 255, 0},
               {5, -1, 5, 0}, // idle
               {5, 5, 257, CFC_DEVICE_LENGTH_OUT_OF_BOUND},
               {5, 5, INT32_MAX, CFC_DEVICE_LENGTH_OUT_OF_BOUND},
               {5, 5, -1, CFC_DEVICE_LENGTH_OUT_OF_BOUND},
               {5, 256, 5, CFC_DEVICE_SLOT_OUT_OF_BOUND},
               {5, INT64_MAX, 5, CFC_DEVICE_SLOT_OUT_OF_BOUND},
               {256, 5, 5, CFC_DEVICE_POSITION_OUT_OF_BOUND},
               {-1, 5, 5, CFC_DEVICE_POSITION_OUT_OF_BOUND}};
  for (const auto &step : steps) {
    INFO("position " << step.position << ", slot " << step.slot << ", length " << step.length);
    engine.step(step.position, step.slot, step.length);
    engine.launch(); // the emulator fails the test for any access outside of the buffers
    CHECK(engine.status() == step.bits);
    CHECK(engine.status() == 0);
  }
}
