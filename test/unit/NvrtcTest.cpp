//===- NvrtcTest.cpp - Finding NVRTC, and what it compiles ----------------===//
//
// Where NVRTC is installed every file of templates/device is compiled for a
// Hopper GPU, which need not be there.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Nvrtc.h"
#include "tools/lib/DeviceSources.h"
#include "tools/lib/Failure.h"
#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>

using namespace cfc;
using Catch::Contains;

namespace {
/// CFC_NVRTC for a scope.
class Setting {
public:
  explicit Setting(const char *value) { setenv("CFC_NVRTC", value, 1); }
  ~Setting() { unsetenv("CFC_NVRTC"); }
};

std::optional<Nvrtc> installed() {
  try {
    return Nvrtc::open();
  } catch (const Failure &failure) {
    WARN(failure.what());
    return std::nullopt;
  }
}

template <typename Body> Failure failureOf(Body body) {
  try {
    body();
  } catch (const Failure &failure) {
    return failure;
  }
  FAIL("nothing failed");
  throw std::logic_error("unreachable");
}
} // namespace

TEST_CASE("a missing NVRTC is an error that names what was tried") {
  Setting setting("/nowhere/libnvrtc.so.13");
  Failure failure = failureOf([] { Nvrtc::open(); });
  CHECK(failure.code == Exit::CannotRun);
  CHECK_THAT(failure.what(), Contains("no NVRTC") && Contains("/nowhere/libnvrtc.so.13: cannot open") &&
                                 Contains("CFC_NVRTC"));
}

TEST_CASE("a library that is not NVRTC is refused") {
  Setting setting("libm.so.6");
  Failure failure = failureOf([] { Nvrtc::open(); });
  CHECK(failure.code == Exit::CannotRun);
  CHECK_THAT(failure.what(), Contains("libm.so.6: not NVRTC"));
}

TEST_CASE("the log of a text that does not compile is in the error") {
  std::optional<Nvrtc> nvrtc = installed();
  if (!nvrtc)
    return;
  Failure failure = failureOf(
      [&] { nvrtc->compile("bad.cu", "__global__ void f(int *p) {\n  *p = missing;\n}", "sm_90"); });
  CHECK(failure.code == Exit::Internal);
  CHECK_THAT(failure.what(), Contains("bad.cu(2)") && Contains("\"missing\" is undefined"));
  CHECK_THAT(failureOf([&] { nvrtc->compile("f.cu", "", "sm_1"); }).what(), Contains("sm_1"));
}

TEST_CASE("every file of templates/device compiles") {
  std::optional<Nvrtc> nvrtc = installed();
  if (!nvrtc)
    return;
  // What DeviceKernel::constants would say: each file takes the macros that it knows.
  for (const std::vector<std::string> &macros :
       {std::vector<std::string>{"-DGAIN=0", "-DTABLE=0", "-DWEIGHT=0", "-DCACHE=0", "-DGROUP=1",
                                 "-DLANES=16"},
        {"-DGAIN=2", "-DTABLE=2", "-DWEIGHT=1", "-DCACHE=1", "-DGROUP=4", "-DLANES=32"}})
    for (const DeviceSource &source : deviceSources()) {
      if (!source.name.ends_with(".cu"))
        continue;
      INFO(source.name);
      std::string cubin = nvrtc->compile(std::string(source.name), source.text, "sm_90", macros);
      CHECK(cubin.starts_with("\x7f"
                              "ELF"));
    }
}

TEST_CASE("a source is found by its name") {
  REQUIRE(findDeviceSource("linear.cu"));
  CHECK_THAT(std::string(findDeviceSource("linear.cu")->text), Contains("__global__ void linear("));
  CHECK(!findDeviceSource("nothing.cu"));
}
