//===- KernelHarness.cpp - Runs kernel.funcs on the emulator -------------------===//
#include "test/unit/KernelHarness.h"
#include "compiler/lower/KernelPasses.h"
#include "compiler/pipeline/Manifest.h"
#include "dialects/attn/Elements.h"
#include "dialects/kernel/Kernel.h"
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "runtime/emulator/WriteTensorMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include <catch2/catch.hpp>
#include <cstring>

using namespace cfc;
using namespace cfc::test;

std::string cfc::test::textOf(const emu::Report &report) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  report.print(stream);
  return text;
}

KernelRun::KernelRun(const std::string &text, const std::function<void(mlir::ModuleOp)> &mutate)
    : context(std::make_unique<mlir::MLIRContext>()) {
  context->loadDialect<kernel::KernelDialect, simt::SimtDialect, mlir::arith::ArithDialect,
                       mlir::math::MathDialect, mlir::scf::SCFDialect>();
  module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
  REQUIRE(module);
  mlir::PassManager storage(context.get());
  storage.addPass(kernel::createKernelAssignStorage());
  REQUIRE(succeeded(storage.run(*module)));
  graph = describeKernels(*module, "test");
  mlir::PassManager lowering(context.get());
  lowering.addPass(kernel::createKernelOutlineProducer());
  lowering.addPass(kernel::createKernelToSimt());
  lowering.addPass(mlir::createCSEPass());
  lowering.addPass(mlir::createCanonicalizerPass());
  REQUIRE(succeeded(lowering.run(*module)));
  graph.maps = describeMaps(*module, graph);
  if (mutate)
    mutate(*module);
  auto compiled = emu::Program::compile(*module);
  if (!compiled)
    FAIL(llvm::toString(compiled.takeError()));
  program = std::move(*compiled);
}

KernelRun::~KernelRun() = default;

/// Buffers, table and workspace, on first use: `capacity` may be set before.
void KernelRun::allocate() {
  if (table)
    return;
  table = memory.allocate(runtime::tableBytes(graph), 256, "table", /*zeroed=*/true);
  workspace = memory.allocate(std::max<size_t>(graph.workspace.bytes, 16), 256, "workspace");
  std::memset(workspace, 0, graph.workspace.zeroBytes);
  auto add = [&](const std::string &name, size_t elements, cfc_dtype dtype) {
    size_t size = elements * runtime::elementBytes(dtype);
    buffers[name] = {memory.allocate(size, 256, name), size, dtype};
    return reinterpret_cast<uint64_t>(buffers[name].data);
  };
  std::vector<runtime::BoundTensor> bound;
  for (const runtime::TensorSpec &t : graph.tensors) {
    runtime::BoundTensor &b = bound.emplace_back();
    if (t.kind == runtime::TensorKind::Tensor) {
      b.data = add(t.name, runtime::rowOrTensorBytes(t) / runtime::elementBytes(t.dtype), t.dtype);
      continue;
    }
    int64_t tokens = t.page ? t.page : capacity;
    b.blocks = t.page ? pool : t.requests;
    b.k = add(t.name + ".k", b.blocks * t.heads * tokens * t.dim, t.dtype);
    b.v = add(t.name + ".v", b.blocks * t.heads * tokens * t.dimOfV(), t.dtype);
    b.capacity = capacity;
    uint64_t k = runtime::rowOrTensorBytes(t), v = runtime::rowBytesOfV(t);
    int64_t token = tokensOutside ? t.heads : 1, head = tokensOutside ? 1 : tokens;
    b.strideToken = k * token, b.strideHead = k * head, b.strideBlock = k * tokens * t.heads;
    b.vStrideToken = v * token, b.vStrideHead = v * head, b.vStrideBlock = v * tokens * t.heads;
  }
  std::vector<char> image = runtime::tableImage(graph, bound, emu::writeTensorMap);
  std::memcpy(table, image.data(), image.size());
}

const KernelRun::Buffer &KernelRun::buffer(const std::string &name) const {
  auto it = buffers.find(name);
  if (it == buffers.end())
    FAIL("no tensor " << name);
  return it->second;
}

static ElementKind elementKind(cfc_dtype dtype) {
  switch (dtype) {
  case CFC_F16:
    return ElementKind::F16;
  case CFC_BF16:
    return ElementKind::BF16;
  case CFC_F32:
    return ElementKind::F32;
  case CFC_I32:
    return ElementKind::I32;
  default:
    return ElementKind::I64;
  }
}

void KernelRun::set(const std::string &name, const std::vector<double> &values) {
  allocate();
  const Buffer &b = buffer(name);
  auto packed = llvm::find_if(graph.tensors, [&](const runtime::TensorSpec &t) {
    return t.name == name && t.layout == runtime::Layout::Packed;
  });
  std::vector<char> native(values.size() * runtime::elementBytes(b.dtype));
  for (size_t i = 0; i < values.size(); ++i)
    fromDouble(elementKind(b.dtype), values[i], &native[i * runtime::elementBytes(b.dtype)]);
  if (packed != graph.tensors.end()) {
    REQUIRE(native.size() == packed->packed().nativeBytes());
    return runtime::pack(packed->packed(), native.data(), b.data);
  }
  REQUIRE(native.size() == b.size);
  std::memcpy(b.data, native.data(), native.size());
}

std::vector<double> KernelRun::get(const std::string &name) const {
  const Buffer &b = buffer(name);
  std::vector<double> values(b.size / runtime::elementBytes(b.dtype));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        toDouble(elementKind(b.dtype), static_cast<char *>(b.data) + i * runtime::elementBytes(b.dtype));
  return values;
}

std::vector<uint8_t> KernelRun::bytes(const std::string &name) const {
  const Buffer &b = buffer(name);
  const auto *data = static_cast<const uint8_t *>(b.data);
  return {data, data + b.size};
}

emu::Report KernelRun::launch(uint64_t seed, unsigned residentClusters, unsigned clusters) {
  allocate();
  emu::Options options;
  options.seed = seed;
  options.residentClusters = residentClusters;
  emu::Report last;
  for (const runtime::KernelSpec &k : describeLaunches(*module)) {
    // As on a machine where not all fit: a cluster then takes several items.
    unsigned most = clusters           ? clusters
                    : residentClusters ? residentClusters
                    : seed % 3         ? seed % 3
                                       : k.clusters;
    last = program->launch(k.name, std::min<unsigned>(k.clusters, most), table, workspace, memory, options);
    if (!last.ok)
      return last;
  }
  return last;
}

bool KernelRun::workspaceIsReady() const {
  const auto *bytes = static_cast<const uint8_t *>(workspace);
  for (uint64_t i = 0; i < graph.workspace.zeroBytes; ++i)
    if (bytes[i])
      return false;
  return true;
}

uint32_t KernelRun::status() const {
  uint32_t word;
  std::memcpy(&word, table, sizeof word);
  return word;
}
