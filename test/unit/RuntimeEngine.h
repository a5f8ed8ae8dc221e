//===- RuntimeEngine.h - An engine on the emulator --------------*- C++ -*-===//
//
// An engine's way through the C interface with a compiled graph: behind the driver table, launches run on the
// emulator, so the kernels really read the table, the workspace and the buffers.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_TEST_UNIT_RUNTIMEENGINE_H
#define CFC_TEST_UNIT_RUNTIMEENGINE_H

#include "EmulatedLaunch.h"
#include "RuntimeHost.h"
#include "compiler/pipeline/Pipeline.h"
#include "dialects/attn/Elements.h"
#include "mlir/Parser/Parser.h"
#include "tools/lib/Dialects.h"
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

namespace cfc::runtime::test {

/// The text of templates/graphs/small_attention.mlir.
inline std::string smallAttention() {
  std::ifstream file(CFC_GRAPHS "/small_attention.mlir");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A graph compiled for the emulator, and as a bundle whose cubin is empty.
/// Several plans give variants: each but the last is for lengths up to 16, 32, …. `weights`: their layout.
class Compiled {
public:
  explicit Compiled(const std::vector<std::string> &plans, std::string weights = "native",
                    std::string graphText = smallAttention())
      : weights(std::move(weights)), text(std::move(graphText)) {
    mlir::DialectRegistry registry;
    cfc::registerDialects(registry);
    cfc::registerPipelineDialects(registry);
    context.appendDialectRegistry(registry);
    for (const std::string &plan : plans) { // what they share
      GraphSpec alone = compile(plan, {}).manifest.graphs.front();
      shared.maps.insert(shared.maps.begin(), alone.maps.begin(), alone.maps.end());
      shared.zeroBytes = std::max(shared.zeroBytes, alone.workspace.zeroBytes) + 256;
    }
    for (size_t i = 0; i < plans.size(); ++i)
      add(compile(plans[i], plans.size() > 1 ? shared : cfc::SharedLayout()),
          i + 1 < plans.size() ? 16 << i : 0);
    bundle = packBundle(
        {{"manifest", toJson(manifest)}, {"graph", text}, {"plan", planText}, {"cubin.0", "none"}});
  }

  const GraphSpec &graph() const { return manifest.graphs.front(); }
  cfc::emu::Program &program(const std::string &kernel) { return *programs.at(kernel); }

  std::string bundle;

private:
  cfc::CompiledGraph compile(const std::string &plan, const cfc::SharedLayout &common) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
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
  const std::string text;
  cfc::SharedLayout shared;
  Manifest manifest;
  std::string planText;
  std::map<std::string, std::shared_ptr<cfc::emu::Program>> programs; ///< by kernel
  std::vector<cfc::CompiledGraph> kept;
};

/// The engine: its buffers, its workspace, and the emulator as its GPU.
class Engine {
public:
  /// Says where a cache lies: its pointers, strides, capacity and blocks. The fake's device knows that
  /// memory.
  using Placement = std::function<void(Engine &, const TensorSpec &, cfc_tensor &)>;

  explicit Engine(Compiled &compiled, Placement place = {}) : compiled(compiled), place(std::move(place)) {
    fake->width = [this](const std::string &kernel) { return int(spec(kernel).cluster); };
    fake->onAllocate = [this](void *memory, size_t bytes) { emulated.addRegion(memory, bytes, "memory"); };
    fake->onLaunch = [this](const FakeLaunch &launch) { run(launch); };
    load();
    makeTensors();
  }

  ~Engine() {
    cfc_unbind(binding);
    cfc_unload(bundle);
    for (void *memory : borrowed) // the fake frees what is its own
      fake->memory.erase(reinterpret_cast<uintptr_t>(memory));
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
    for (cfc_tensor &tensor : tensors)
      if (std::string_view(tensor.name) == "pos")
        *static_cast<int32_t *>(tensor.data) = position;
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
    return {out, out + elementsOf("result0")};
  }

  int64_t elementsOf(std::string_view name) {
    const cfc_tensor &tensor = (*this)[name];
    return std::accumulate(tensor.shape, tensor.shape + tensor.rank, int64_t(1), std::multiplies<>());
  }

  /// Memory that lies elsewhere, and stays the caller's, becomes the device's.
  void addMemory(void *memory, size_t bytes) {
    fake->memory[reinterpret_cast<uintptr_t>(memory)] = {bytes, 0};
    emulated.addRegion(memory, bytes, "memory");
    borrowed.push_back(memory);
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
      if (spec.kind == TensorKind::KvCache && place) {
        place(*this, spec, tensor);
      } else if (spec.kind == TensorKind::KvCache) {
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
    runOnEmulator(compiled.program(launch.kernel), launch, emulated, ++seed);
  }

  Compiled &compiled;
  Placement place;
  cfc::emu::Memory emulated;
  cfc_bundle *bundle = nullptr;
  cfc_launch_args workspace{};
  std::vector<void *> borrowed;
  uint64_t random = 1, seed = 0;
};

} // namespace cfc::runtime::test

#endif // CFC_TEST_UNIT_RUNTIMEENGINE_H
