//===- GraphsTest.cpp - Graphs and devices ---------------------------------===//
//
// Field reports about captured graphs and overlapped launches. Two devices and two threads are in
// RuntimeLaunchTest.cpp, by the same prefix.
//
//===----------------------------------------------------------------------===//
#include "RuntimeEngine.h"

using namespace cfc::runtime;
using namespace cfc::runtime::test;
using Catch::Matchers::Contains;

TEST_CASE("graphs: captured at one cache length, replayed at another") {
  Compiled compiled({"auto"});
  Engine engine(compiled);
  engine.step(37, 37, 37);
  engine.bind();
  std::vector<uint16_t> first = engine.result();
  engine.fake->capturing = true;
  engine.launch();
  engine.fake->capturing = false;
  for (int length : {100, 0, 255, 38}) {
    INFO("length " << length);
    engine.step(length, length, length);
    engine.fake->replay();
    engine.fake->flush();
    const uint16_t *out = engine.data<uint16_t>("result0");
    std::vector<uint16_t> replayed(out, out + engine.elementsOf("result0"));
    CHECK(replayed != first);
    CHECK(engine.result() == replayed); // launched at that length
  }
}

/// PTX and manifest of small_attention in several kernels, all with `pdl` or none.
static cfc::CompiledGraph compiledWith(int pdl) {
  static mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::DialectRegistry registry;
  cfc::registerDialects(registry);
  cfc::registerPipelineDialects(registry);
  context.appendDialectRegistry(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(smallAttention(), &context);
  REQUIRE(module);
  cfc::CompileOptions options;
  options.last = cfc::Stage::Ptx;
  options.plan = fmt::format("graph small_attention\nkernel 0: pdl = {0}\n", pdl);
  int exitCode = 0;
  auto compiled = cfc::compile(*module, options, exitCode);
  REQUIRE(mlir::succeeded(compiled));
  return std::move(*compiled);
}

TEST_CASE("graphs: overlapped launches and the wait in the kernel come together") {
  for (int pdl : {0, 1}) {
    CAPTURE(pdl);
    cfc::CompiledGraph compiled = compiledWith(pdl);
    // One entry a kernel: what lies between two of them is the first one's.
    for (const KernelSpec &kernel : compiled.manifest.graphs[0].variants[0].kernels) {
      CAPTURE(kernel.name);
      size_t begin = compiled.ptx.find(".entry " + kernel.name),
             end = compiled.ptx.find(".entry ", begin + 1);
      REQUIRE(begin != std::string::npos);
      std::string text = compiled.ptx.substr(begin, end - begin);
      CHECK(kernel.pdl == (text.find("griddepcontrol.wait") != std::string::npos));
    }
    CHECK(compiled.manifest.graphs[0].variants[0].kernels[0].pdl == (pdl == 1));
  }
}
