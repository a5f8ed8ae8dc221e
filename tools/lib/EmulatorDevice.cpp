//===- EmulatorDevice.cpp - Programs on the CPU ---------------------------===//
#include "mlir/IR/BuiltinOps.h"
#include "runtime/emulator/Emulator.h"
#include "runtime/emulator/WriteTensorMap.h"
#include "runtime/src/Capture.h"
#include "tools/lib/Device.h"
#include "tools/lib/Failure.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <cstring>

using namespace cfc;

/// Where not all clusters that have work fit on a machine, fewer are launched and each takes several items:
/// how many is drawn from the seed. Seed 0: as many as may be.
static unsigned clustersBy(uint64_t seed, unsigned most) {
  return seed ? 1 + (seed * 0x9E3779B97F4A7C15ull >> 33) % most : most;
}

namespace {
class EmulatorExecutable : public Executable {
public:
  EmulatorExecutable(emu::Memory &memory, const Image &image)
      : memory(memory), graph(*image.graph), variant(image.variant), resident(image.resident),
        graphText(image.graphText) {
    auto compiled = emu::Program::compile(*image.simt);
    if (!compiled)
      internalError("the emulator cannot run this program: {}", llvm::toString(compiled.takeError()));
    program = std::move(*compiled);
    table = static_cast<char *>(memory.allocate(runtime::tableBytes(graph), 256, "table", /*zeroed=*/true));
    workspace = static_cast<char *>(
        memory.allocate(std::max<uint64_t>(graph.workspace.bytes, 1), graph.workspace.align, "workspace"));
    std::memset(workspace, 0, graph.workspace.zeroBytes);
  }

  void bind(const std::vector<cfc_tensor> &tensors) override {
    std::vector<runtime::BoundTensor> bound;
    for (auto &tensor : runtime::checkTensors(graph, tensors.data(), tensors.size(), /*all=*/true))
      bound.push_back(*tensor);
    std::vector<char> image = runtime::tableImage(graph, bound, emu::writeTensorMap);
    std::copy(image.begin() + runtime::kTableHeaderBytes, image.end(), table + runtime::kTableHeaderBytes);
  }

  void launch(uint64_t seed) override {
    if (variant >= graph.variants.size())
      internalError("the graph '{}' has no variant {}", graph.name, variant);
    captureInputs();
    const std::vector<runtime::KernelSpec> &kernels = graph.variants[variant].kernels;
    for (size_t i = 0; i < kernels.size(); ++i) {
      const runtime::KernelSpec &kernel = kernels[i];
      emu::Options options;
      options.seed = seed;
      unsigned most = i < resident.size() ? std::min(kernel.clusters, resident[i]) : kernel.clusters;
      if (kernel.cooperative)
        most = std::min(most, emu::mostClusters(kernel.threads, kernel.cluster));
      emu::Report report =
          program->launch(kernel.name, clustersBy(seed, most), table, workspace, memory, options);
      if (!report.ok)
        throw Failure(Exit::CheckFailed, "kernel " + kernel.name,
                      "the emulator found a fault\n" + text(report));
      // Every launch leaves the counters as it found them.
      auto used =
          std::find_if(workspace, workspace + graph.workspace.zeroBytes, [](char c) { return c != 0; });
      if (used != workspace + graph.workspace.zeroBytes)
        throw Failure(
            Exit::CheckFailed, "kernel " + kernel.name,
            fmt::format("left a counter at byte {} of the workspace that is not zero", used - workspace));
    }
  }

  uint32_t takeStatus() override {
    uint32_t bits;
    std::memcpy(&bits, table, sizeof bits);
    std::memset(table, 0, sizeof bits);
    return bits;
  }

private:
  /// As the runtime does it on a GPU (CFC_CAPTURE).
  void captureInputs() const {
    runtime::Manifest manifest; // of what is compiled, no more than the graph is known
    if (!capture || !capture->wants(manifest, graph, /*recorded=*/false))
      return;
    runtime::MemoryReader read = [](void *to, uint64_t address, size_t bytes) {
      std::memcpy(to, reinterpret_cast<const void *>(address), bytes);
    };
    capture->write({manifest, graphText, graph, graph.variants[variant], 0, 0, 0,
                    reinterpret_cast<uintptr_t>(table), read});
  }

  static std::string text(const emu::Report &report) {
    std::string result;
    llvm::raw_string_ostream stream(result);
    report.print(stream);
    while (!result.empty() && result.back() == '\n')
      result.pop_back();
    return result;
  }

  emu::Memory &memory;
  const runtime::GraphSpec &graph;
  const size_t variant;
  const std::vector<uint32_t> resident;
  const std::string_view graphText;
  const std::unique_ptr<const runtime::Capture> capture = runtime::Capture::fromEnvironment();
  std::unique_ptr<emu::Program> program;
  char *table, *workspace;
};

class EmulatorDevice : public Device {
public:
  std::string describe() const override { return "the emulator"; }
  bool isEmulator() const override { return true; }
  uintptr_t allocate(size_t bytes, size_t align, const std::string &name) override {
    return reinterpret_cast<uintptr_t>(memory.allocate(std::max<size_t>(bytes, 1), align, name));
  }
  void upload(uintptr_t to, const void *from, size_t bytes) override {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  }
  void download(void *to, uintptr_t from, size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
  }
  std::optional<std::string> brokenGuard() override {
    std::string where;
    return memory.guardsIntact(&where) ? std::nullopt : std::optional(where);
  }
  std::unique_ptr<Executable> load(const Image &image) override {
    return std::make_unique<EmulatorExecutable>(memory, image);
  }

private:
  emu::Memory memory;
};
} // namespace

std::unique_ptr<Device> cfc::makeEmulatorDevice() { return std::make_unique<EmulatorDevice>(); }
