// An engine's way through the C interface with a compiled graph on the emulator.
#include "RuntimeEngine.h"

using namespace cfc::runtime;
using namespace cfc::runtime::test;

namespace {

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

} // namespace

TEST_CASE("a compiled graph runs through the C interface") {
  Engine engine(onePlan());
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
}

TEST_CASE("weights packed in place give the bits of native ones") {
  std::vector<uint16_t> native;
  {
    Engine engine(onePlan());
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
  Engine engine(onePlan());
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
