//===- TensorLoadTest.cpp - Boxes of tensors on the emulator ----------------===//
//
// Boxes inside, across and outside of tensors of 2 and 3 dimensions arrive as
// the map says; faulty uses are caught with a location.
//
//===----------------------------------------------------------------------===//
#include "EmulatorFixture.h"
#include "runtime/emulator/TensorMap.h"

using namespace cfc::emu;
using namespace emutest;

namespace {

using Place = std::array<int32_t, 3>;

/// A tensor, the box of its map, and where the copy begins.
struct Case {
  uint32_t rank, elementBytes;
  std::array<uint64_t, 3> size, stride;
  std::array<uint32_t, 3> box;
  uint32_t swizzle;
  Place at;

  uint32_t rowBytes() const { return box[0] * elementBytes; }
  uint32_t boxBytes() const { return rowBytes() * box[1] * (rank == 3 ? box[2] : 1); }
  /// From the first byte to behind the last element; nothing behind may be read.
  size_t tensorBytes() const {
    size_t bytes = size[0] * elementBytes + (size[1] - 1) * stride[1];
    return rank == 3 ? bytes + (size[2] - 1) * stride[2] : bytes;
  }
};

/// 72 columns of f16 in rows of 160 bytes, 13 rows.
Case matrix(std::array<uint32_t, 3> box, uint32_t swizzle, Place at) {
  return {2, 2, {72, 13, 1}, {2, 160, 0}, box, swizzle, at};
}
/// 10 tokens of 3 heads of 32 f32.
Case cache(bool headOutside, std::array<uint32_t, 3> box, uint32_t swizzle, Place at) {
  std::array<uint64_t, 3> stride = {4, 3 * 128, 128};
  if (headOutside)
    stride = {4, 128, 10 * 128};
  return {3, 4, {32, 10, 3}, stride, box, swizzle, at};
}

/// Bytes of the tensor differ from each other and from 0.
unsigned char contentOf(size_t byte) { return static_cast<unsigned char>(byte % 251 + 1); }

unsigned char expectedByte(const Case &c, uint32_t row, uint32_t byte) {
  int64_t at[3] = {c.at[0] + int64_t(byte / c.elementBytes), c.at[1] + int64_t(row % c.box[1]),
                   c.rank == 3 ? c.at[2] + int64_t(row / c.box[1]) : 0};
  size_t address = byte % c.elementBytes;
  for (unsigned i = 0; i < c.rank; ++i) {
    if (at[i] < 0 || uint64_t(at[i]) >= c.size[i])
      return 0;
    address += at[i] * c.stride[i];
  }
  return contentOf(address);
}

EmulatedTensorMap mapOf(const Case &c, const void *tensor) {
  EmulatedTensorMap map = {};
  map.magic = EmulatedTensorMap::kMagic;
  map.base = reinterpret_cast<uint64_t>(tensor);
  map.rank = c.rank;
  map.elementBytes = c.elementBytes;
  std::copy(c.size.begin(), c.size.end(), map.size);
  std::copy(c.stride.begin(), c.stride.end(), map.stride);
  std::copy(c.box.begin(), c.box.end(), map.box);
  map.swizzle = c.swizzle;
  return map;
}

std::string module(uint32_t rank) {
  std::string text = readModule("tensor_load");
  return rank == 3 ? mutate(text, "[%x, %y]", "[%x, %y, %z]") : text;
}

Outcome run(const Program &program, const Case &c, const Options &options = {},
            void (*change)(EmulatedTensorMap &) = nullptr) {
  Buffers b;
  auto *output = b.tensor<unsigned char>(c.boxBytes(), "output");
  b.entry(uint32_t(c.at[0]) | uint64_t(uint32_t(c.at[1])) << 32);
  b.entry(uint32_t(c.at[2]) | uint64_t(c.boxBytes()) << 32);
  auto *tensor = static_cast<unsigned char *>(b.memory.allocate(c.tensorBytes(), 16, "tensor"));
  for (size_t i = 0; i < c.tensorBytes(); ++i)
    tensor[i] = contentOf(i);
  EmulatedTensorMap map = mapOf(c, tensor);
  if (change)
    change(map);
  std::memcpy(b.table + 128, &map, sizeof map);
  Outcome out{program.launch("tensor_load", 1, b.table, b.table, b.memory, options)};
  for (uint32_t i = 0; i < c.boxBytes(); ++i) {
    uint32_t row = i / c.rowBytes(), byte = i % c.rowBytes();
    if (c.swizzle)
      byte ^= row % 8 * 16;
    out.valuesRight &= output[i] == expectedByte(c, row, byte);
  }
  return out;
}

/// A fault that every seed shows, at the op.
void caught(const std::string &text, const Case &c, FindingKind kind, const std::string &message,
            void (*change)(EmulatedTensorMap &) = nullptr) {
  auto program = compile(text);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Options options;
    options.seed = seed;
    Report report = run(*program, c, options, change).report;
    INFO(emutest::text(report));
    REQUIRE(!report.ok);
    CHECK(report.findings[0].kind == kind);
    CHECK_THAT(report.findings[0].message, Catch::Matchers::Contains(message));
    CHECK_THAT(report.findings[0].location, Catch::Matchers::StartsWith("test.mlir:"));
  }
}

} // namespace

TEST_CASE("Boxes of tensors arrive as their maps say") {
  auto two = compile(module(2)), three = compile(module(3));
  std::vector<Case> cases;
  for (Place at : std::initializer_list<Place>{{0, 0, 0},
                                               {8, 5, 0},
                                               {64, 8, 0},
                                               {40, 12, 0},
                                               {-8, -3, 0},
                                               {72, 0, 0},
                                               {0, 13, 0},
                                               {-64, 0, 0},
                                               {3, 1, 0}}) {
    cases.push_back(matrix({64, 8, 1}, 128, at));
    cases.push_back(matrix({64, 8, 1}, 0, at));
    cases.push_back(matrix({24, 16, 1}, 0, at));
  }
  for (Place at : std::initializer_list<Place>{{0, 0, 0}, {0, 6, 1}, {4, 8, 2}, {-4, -1, -1}, {0, 0, 3}})
    for (bool headOutside : {false, true}) {
      cases.push_back(cache(headOutside, {32, 4, 2}, 128, at));
      cases.push_back(cache(headOutside, {32, 9, 1}, 128, at));
      cases.push_back(cache(headOutside, {12, 4, 2}, 0, at));
    }
  for (const Case &c : cases)
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Options options;
      options.seed = seed;
      options.chaos = seed != 0;
      Outcome outcome = run(c.rank == 3 ? *three : *two, c, options);
      INFO("rank " << c.rank << ", swizzle " << c.swizzle << ", at " << c.at[0] << " " << c.at[1] << " "
                   << c.at[2] << ", seed " << seed << "\n"
                   << text(outcome.report));
      REQUIRE(outcome.report.ok);
      REQUIRE(outcome.valuesRight);
      CHECK(outcome.report.counters[Counter::TensorLoads] == 1);
      CHECK(outcome.report.counters[Counter::TensorLoadBytes] == c.boxBytes());
      CHECK(outcome.report.counters[Counter::BulkLoads] == 0);
    }
}

TEST_CASE("Mutants of a tensor load are caught") {
  const Case box = matrix({64, 8, 1}, 128, {0, 0, 0});
  SECTION("no acquire") {
    caught(mutate(module(2), "simt.tensor_map_acquire %map : !simt.ptr<global>\n", "\n"), box,
           FindingKind::ProxyOrder, "without a tensor_map_acquire");
  }
  SECTION("an acquire by another thread") {
    std::string acquire = "simt.tensor_map_acquire %map : !simt.ptr<global>\n";
    std::string moved = mutate(module(2), acquire, "\n");
    moved = mutate(moved, "  scf.if %first {\n",
                   "  %second = arith.cmpi eq, %thread, %c1 : i32\n  scf.if %second {\n" + acquire +
                       "}\n  simt.syncwarp\n  scf.if %first {\n");
    caught(moved, box, FindingKind::ProxyOrder, "without a tensor_map_acquire");
  }
  SECTION("too few bytes expected") {
    std::string fewer = mutate(module(2), "expect_tx %shared, %bytes", "expect_tx %shared, %c512");
    auto program = compile(fewer);
    bool found = false;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Options options;
      options.seed = seed;
      found |= !run(*program, box, options).good();
    }
    CHECK(found);
  }
  SECTION("a destination that is not aligned for the swizzle") {
    caught(mutate(module(2), "%c1024 = arith.constant 1024", "%c1024 = arith.constant 512"), box,
           FindingKind::Misaligned, "not aligned to 1024 bytes");
  }
  SECTION("a destination that is not aligned") {
    caught(mutate(module(2), "%c1024 = arith.constant 1024", "%c1024 = arith.constant 1088"),
           matrix({64, 8, 1}, 0, {0, 0, 0}), FindingKind::Misaligned, "not aligned to 128 bytes");
  }
  SECTION("a map at the wrong place") {
    caught(mutate(module(2), "%c128 = arith.constant 128", "%c128 = arith.constant 0"), box,
           FindingKind::Usage, "is none");
  }
  SECTION("a read before the copy is done") {
    auto program = compile(mutate(module(2), "simt.mbarrier_wait cta %shared, %c0", ""));
    bool found = false;
    for (uint64_t seed = 1; seed < 20; ++seed) {
      Options options;
      options.seed = seed;
      Report report = run(*program, box, options).report;
      found |= !report.ok && report.findings[0].kind == FindingKind::Race;
    }
    CHECK(found);
  }
  SECTION("coordinates that do not fit the map") {
    caught(module(3), box, FindingKind::Usage, "of 2 dimensions with 3 coordinates");
  }
  SECTION("a map beyond its tensor") {
    caught(module(2), matrix({64, 8, 1}, 128, {0, 8, 0}), FindingKind::OutOfBounds, "row of a box",
           [](EmulatedTensorMap &map) { map.size[1] = 14; });
  }
  SECTION("a map that the GPU would not take") {
    caught(module(2), box, FindingKind::Usage, "a stride of 168 bytes",
           [](EmulatedTensorMap &map) { map.stride[1] = 168; });
  }
}
