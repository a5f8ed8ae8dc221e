//===- EmulatorTest.cpp - simt kernels on the emulator ---------------------===//
//
// Correct kernels give the right values for every seed, with and without chaos,
// and do what the counters say.
//
//===----------------------------------------------------------------------===//
#include "EmulatorFixture.h"
#include "dialects/attn/Elements.h"
#include <cmath>
#include <cstring>

using namespace cfc::emu;
using namespace emutest;

namespace emutest {

Outcome runRing(const Program &program, const Options &options) {
  constexpr unsigned tiles = 11;
  Buffers b;
  auto *input = b.tensor<float>(tiles * 128, "input");
  auto *output = b.tensor<float>(128, "output");
  b.entry(tiles);
  for (unsigned i = 0; i < tiles * 128; ++i)
    input[i] = static_cast<float>(i % 1000 + 1);
  Outcome out{program.launch("ring", 1, b.table, b.table, b.memory, options)};
  for (unsigned i = 0; i < 128; ++i) {
    float sum = 0;
    for (unsigned t = 0; t < tiles; ++t)
      sum += input[t * 128 + i];
    out.valuesRight &= output[i] == sum;
  }
  out.valuesRight &= b.memory.guardsIntact();
  return out;
}

static Outcome runPushes(const char *kernel, const Program &program, const Options &options) {
  constexpr unsigned clusters = 3;
  Buffers b;
  auto *output = b.tensor<float>(clusters * 4 * 3 * 64, "output");
  Outcome out{program.launch(kernel, clusters, b.table, b.table, b.memory, options)};
  for (unsigned row = 0; row < clusters * 4 * 3; ++row)
    for (unsigned t = 0; t < 64; ++t)
      out.valuesRight &= output[row * 64 + t] == 15.0f * static_cast<float>(t + 1 + row % 3);
  return out;
}

Outcome runPush(const Program &program, const Options &options) {
  return runPushes("push", program, options);
}

Outcome runStoreAsync(const Program &program, const Options &options) {
  return runPushes("store_async", program, options);
}

Outcome runPull(const Program &program, const Options &options) {
  Buffers b;
  auto *output = b.tensor<int32_t>(64, "output");
  Outcome out{program.launch("pull", 1, b.table, b.table, b.memory, options)};
  for (int i = 0; i < 64; ++i)
    out.valuesRight &= output[i] == (i < 32 ? 100 + i : i - 32);
  return out;
}

Outcome runBulkPush(const Program &program, const Options &options) {
  Buffers b;
  auto *output = b.tensor<float>(128, "output");
  Outcome out{program.launch("bulk_push", 1, b.table, b.table, b.memory, options)};
  for (unsigned i = 0; i < 128; ++i)
    out.valuesRight &= output[i] == static_cast<float>(1000 + 2 * (i % 64));
  return out;
}

Outcome runLastArriver(const Program &program, const Options &options) {
  constexpr unsigned clusters = 9;
  Buffers b;
  auto *output = b.tensor<float>(64, "output");
  auto *workspace = static_cast<char *>(b.memory.allocate(256 + clusters * 256, 256, "workspace"));
  std::memset(workspace, 0, 256);
  Outcome out{program.launch("last_arriver", clusters, b.table, workspace, b.memory, options)};
  for (unsigned t = 0; t < 64; ++t)
    out.valuesRight &= output[t] == static_cast<float>(3600 + clusters * t);
  out.valuesRight &= workspace[0] == 0;
  return out;
}

Outcome runGridBarrier(const Program &program, const Options &options) {
  constexpr unsigned clusters = 5, ctas = 2 * clusters;
  Buffers b;
  auto *output = b.tensor<float>(64, "output");
  auto *workspace = static_cast<char *>(b.memory.allocate(256 + 4096 + ctas * 256, 256, "workspace"));
  std::memset(workspace, 0, 256);
  Outcome out{program.launch("grid_barrier", clusters, b.table, workspace, b.memory, options)};
  for (unsigned t = 0; t < 64; ++t)
    out.valuesRight &= output[t] == 45.0f * ctas; // 0 + … + 9, in each CTA, added up once more
  out.valuesRight &= workspace[0] == 0;
  return out;
}

} // namespace emutest

static void checkSeeds(const char *name, Outcome (*run)(const Program &, const Options &)) {
  auto program = compile(readModule(name));
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Options options;
    options.seed = seed;
    options.chaos = seed != 0;
    Outcome outcome = run(*program, options);
    INFO("seed " << seed << "\n" << text(outcome.report));
    REQUIRE(outcome.report.ok);
    REQUIRE(outcome.valuesRight);
  }
}

TEST_CASE("A ring of bulk loads feeds a consumer") { checkSeeds("ring", runRing); }
TEST_CASE("CTAs of a cluster push to each other") { checkSeeds("push", runPush); }
TEST_CASE("CTAs of a cluster push by stores that count") { checkSeeds("store_async", runStoreAsync); }
TEST_CASE("CTAs of a cluster read each other's shared memory") { checkSeeds("pull", runPull); }
TEST_CASE("CTAs exchange by bulk copies") { checkSeeds("bulk_push", runBulkPush); }
TEST_CASE("The last cluster to arrive adds the partial sums") { checkSeeds("last_arriver", runLastArriver); }

TEST_CASE("All CTAs of a grid wait for each other") { checkSeeds("grid_barrier", runGridBarrier); }

TEST_CASE("Counters tell what an exchange does") {
  auto program = compile(readModule("push"));
  Counters counters = runPush(*program, {}).report.counters;
  // Per CTA: three rounds, three peers, 64 threads.
  CHECK(counters.max(Counter::RemoteStores) == 3 * 3 * 64);
  CHECK(counters.max(Counter::RemoteStoreBytes) == 3 * 3 * 64 * 4);
  CHECK(counters.max(Counter::RemoteArrives) == 3 * 3);
  CHECK(counters.max(Counter::ClusterWaits) == 3);
  CHECK(counters[Counter::RemoteArrives] == 12 * 9);
  std::string printed;
  llvm::raw_string_ostream os(printed);
  counters.print(os);
  CHECK(printed.find("remote_stores") != std::string::npos);
}

TEST_CASE("The number of resident clusters is drawn from one up") {
  auto program = compile(readModule("last_arriver"));
  unsigned fewest = ~0u, most = 0;
  for (uint64_t seed = 1; seed < 60; ++seed) {
    Options options;
    options.seed = seed;
    unsigned resident = runLastArriver(*program, options).report.residentClusters;
    fewest = std::min(fewest, resident);
    most = std::max(most, resident);
  }
  CHECK(fewest == 1);
  CHECK(most == 9);
}

//===-- ldmatrix, mma, movmatrix ------------------------------------------===//
static uint16_t toHalf(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }
static uint16_t toBf16(float value) { return std::bit_cast<uint32_t>(value) >> 16; }

static void checkTiles(const std::string &module, uint16_t (*convert)(float)) {
  auto program = compile(module);
  Buffers b;
  auto *a = b.tensor<uint16_t>(256, "a");
  auto *bt = b.tensor<uint16_t>(128, "b");
  auto *d = b.tensor<float>(128, "d");
  auto *t = b.tensor<uint32_t>(64, "t");
  auto valueA = [](unsigned m, unsigned k) { return static_cast<float>(int(m * 16 + k) % 13 - 6) * 0.25f; };
  auto valueB = [](unsigned n, unsigned k) { return static_cast<float>(int(n * 7 + k * 3) % 11 - 5) * 0.5f; };
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned k = 0; k < 16; ++k)
      a[m * 16 + k] = convert(valueA(m, k));
  for (unsigned n = 0; n < 8; ++n)
    for (unsigned k = 0; k < 16; ++k)
      bt[n * 16 + k] = convert(valueB(n, k));
  Report report = program->launch("tiles", 1, b.table, b.table, b.memory, {});
  INFO(text(report));
  REQUIRE(report.ok);
  CHECK(report.counters[Counter::Mma] == 1);
  CHECK(report.counters[Counter::Ldmatrix] == 3);
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned n = 0; n < 8; ++n) {
      float sum = 0;
      for (unsigned k = 0; k < 16; ++k)
        sum += valueA(m, k) * valueB(n, k);
      CHECK(d[m * 8 + n] == sum);
    }
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned row = lane / 4, column = 2 * (lane % 4);
    uint32_t transposed = a[column * 16 + row] | uint32_t(a[(column + 1) * 16 + row]) << 16;
    CHECK(t[lane] == transposed);
    CHECK(t[32 + lane] == transposed);
  }
}

TEST_CASE("ldmatrix and mma and movmatrix in f16") { checkTiles(readModule("tiles"), toHalf); }
TEST_CASE("ldmatrix and mma and movmatrix in bf16") {
  checkTiles(mutate(readModule("tiles"), "mma f16", "mma bf16"), toBf16);
}

//===-- Other ops ---------------------------------------------------------===//
static std::string kernel(const std::string &body, unsigned threads = 32, unsigned shared = 256) {
  return "simt.kernel @k(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>) attributes {threads = " +
         std::to_string(threads) + " : i32, cluster = 1 : i32, shared_bytes = " + std::to_string(shared) +
         R"( : i64, ctas_per_sm = 1 : i32} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %c64 = arith.constant 64 : i32
    %thread = simt.thread_id
    %shared = simt.shared_base
    %entry = simt.offset %table, %c64 : !simt.ptr<global>, i32
    %output = simt.load_ptr %entry : !simt.ptr<global> -> !simt.ptr<global>
    %at = arith.muli %thread, %c4 : i32
    %place = simt.offset %output, %at : !simt.ptr<global>, i32
    )" + body +
         "\n simt.return }";
}

TEST_CASE("Shuffles and approximate functions and conversions") {
  auto program = compile(kernel(R"(
    %c8 = arith.constant 8 : i32
    %c5 = arith.constant 5 : i32
    %x = arith.sitofp %thread : i32 to f32
    %other = simt.shuffle xor %x, %c8 : f32
    %fifth = simt.shuffle idx %thread, %c5 : i32
    %f = arith.sitofp %fifth : i32 to f32
    %scaled = arith.mulf %other, %f : f32
    %power = simt.exp2 %scaled
    %log = simt.log2 %power
    %one = arith.constant 1.0 : f32
    %positive = arith.addf %log, %one : f32
    %rsqrt = simt.rsqrt %positive
    %half = arith.truncf %rsqrt : f32 to f16
    %brain = arith.truncf %rsqrt : f32 to bf16
    %half32 = arith.extf %half : f16 to f32
    %brain32 = arith.extf %brain : bf16 to f32
    %sum = arith.addf %half32, %brain32 : f32
    simt.store %sum, %place : f32, !simt.ptr<global>)"));
  Buffers b;
  auto *output = b.tensor<float>(32, "output");
  Report report = program->launch("k", 1, b.table, b.table, b.memory, {});
  INFO(text(report));
  REQUIRE(report.ok);
  for (unsigned i = 0; i < 32; ++i) {
    float exponent = 5.0f * static_cast<float>(i ^ 8);
    float expected = exponent < 128 ? 2.0f / std::sqrt(exponent + 1.0f) : 0.0f;
    CHECK(output[i] == Approx(expected).epsilon(0.004));
  }
}

/// The number that 8 bits of sign, 4 of exponent and 3 of mantissa are, by its definition.
static double e4m3(unsigned bits) {
  unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7)
    return NAN;
  double size = exponent ? std::ldexp(8 + mantissa, int(exponent) - 10) : std::ldexp(mantissa, -9);
  return bits & 128 ? -size : size;
}

/// Nearest even among all numbers, the largest for what is beyond.
static unsigned nearestE4m3(double x) {
  if (std::isnan(x))
    return 0x7f;
  unsigned best = 0;
  for (unsigned bits = 1; bits < 0x7f; ++bits) {
    double now = std::abs(e4m3(bits) - std::abs(x)), before = std::abs(e4m3(best) - std::abs(x));
    if (now < before || (now == before && bits % 2 == 0) || std::isinf(x))
      best = bits;
  }
  return best | (std::signbit(x) ? 128 : 0);
}

TEST_CASE("Numbers of 8 bits: all of them, and what is between and beyond them") {
  auto program = compile(kernel(R"(
    %four = arith.constant 4 : i32
    %fourth = arith.muli %at, %four : i32
    %from = simt.offset %output, %fourth : !simt.ptr<global>, i32
    %second = simt.offset %from, %four : !simt.ptr<global>, i32
    %third = simt.offset %second, %four : !simt.ptr<global>, i32
    %a = simt.load %from : !simt.ptr<global> -> f32
    %b = simt.load %second : !simt.ptr<global> -> f32
    %given = simt.load %third : !simt.ptr<global> -> i32
    %two = arith.trunci %given : i32 to i16
    %packed = simt.pack_e4m3 %a, %b
    %wide = arith.extui %packed : i16 to i32
    %unpacked = simt.unpack_e4m3 f16 %two
    %brain = simt.unpack_e4m3 bf16 %two
    simt.store %wide, %from : i32, !simt.ptr<global>
    simt.store %unpacked, %second : i32, !simt.ptr<global>
    simt.store %brain, %third : i32, !simt.ptr<global>)"));
  std::vector<float> numbers = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f,
                                448, 464,  465,      1e30f,     -449, 1e-30f};
  for (unsigned bits = 0; bits < 0x7e; ++bits) { // around the middle of two neighbours
    auto middle = static_cast<float>((e4m3(bits) + e4m3(bits + 1)) / 2);
    for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f), float(e4m3(bits))})
      numbers.insert(numbers.end(), {x, -x});
  }
  numbers.resize((numbers.size() + 63) / 64 * 64, 1.0f);
  for (size_t first = 0; first < numbers.size(); first += 64) {
    Buffers b;
    auto *output = b.tensor<uint32_t>(128, "output");
    for (unsigned i = 0; i < 32; ++i) {
      std::memcpy(output + 4 * i, &numbers[first + 2 * i], 8);
      output[4 * i + 2] = (first + 2 * i) % 256 | ((first + 2 * i + 1) % 256) << 8;
    }
    Report report = program->launch("k", 1, b.table, b.table, b.memory, {});
    INFO(text(report));
    REQUIRE(report.ok);
    for (unsigned i = 0; i < 64; ++i) {
      unsigned packed = output[4 * (i / 2)] >> 8 * (i % 2) & 255,
               half = output[4 * (i / 2) + 1] >> 16 * (i % 2);
      INFO(numbers[first + i]);
      CHECK(packed == nearestE4m3(numbers[first + i]));
      double wanted = e4m3((first + i) % 256), found = cfc::halfToFloat(uint16_t(half));
      CHECK((found == wanted || (std::isnan(found) && std::isnan(wanted))));
      double brain = cfc::bfloatToFloat(uint16_t(output[4 * (i / 2) + 2] >> 16 * (i % 2)));
      CHECK((brain == wanted || (std::isnan(brain) && std::isnan(wanted))));
      CHECK(std::signbit(found) == (!std::isnan(wanted) && std::signbit(wanted)));
    }
  }
}

TEST_CASE("Atomics give the old value and add up") {
  auto program = compile(kernel(R"(
    %old = simt.atomic add relaxed gpu %output, %c1 : !simt.ptr<global>, i32
    %second = simt.offset %output, %c4 : !simt.ptr<global>, i32
    %m = simt.atomic max relaxed gpu %second, %thread : !simt.ptr<global>, i32
    %place2 = simt.offset %place, %c64 : !simt.ptr<global>, i32
    simt.store %old, %place2 : i32, !simt.ptr<global>)"));
  Buffers b;
  auto *output = b.tensor<int32_t>(48, "output", /*zeroed=*/true);
  Report report = program->launch("k", 1, b.table, b.table, b.memory, {});
  INFO(text(report));
  REQUIRE(report.ok);
  CHECK(output[0] == 32);
  CHECK(output[1] == 31);
  int32_t sum = 0;
  for (unsigned i = 0; i < 32; ++i)
    sum += output[16 + i];
  CHECK(sum == 31 * 16);
}

TEST_CASE("What cannot be lowered is an error with a location") {
  mlir::DialectRegistry registry;
  registry.insert<cfc::simt::SimtDialect, mlir::arith::ArithDialect>();
  mlir::MLIRContext context(registry);
  std::string source = kernel("%v = simt.load %output : !simt.ptr<global> -> vector<8xf32>");
  auto module = mlir::parseSourceString<mlir::ModuleOp>(source, &context, "wide.mlir");
  REQUIRE(module);
  auto program = Program::compile(*module);
  REQUIRE(!program);
  std::string message = llvm::toString(program.takeError());
  CHECK(message.find("wide.mlir") != std::string::npos);
  CHECK(message.find("at most 16") != std::string::npos);
}

TEST_CASE("Memory finds its regions and notices writes around them") {
  Memory memory;
  auto *first = static_cast<char *>(memory.allocate(100, 1, "first"));
  auto *second = static_cast<uint64_t *>(memory.allocate(64, 512, "second", /*zeroed=*/true));
  std::vector<char> own(32);
  memory.addRegion(own.data(), own.size(), "own");
  CHECK(reinterpret_cast<uintptr_t>(second) % 512 == 0);
  CHECK(second[7] == 0);
  CHECK(reinterpret_cast<uint16_t *>(first)[49] == kPoison);
  CHECK(memory.find(reinterpret_cast<uintptr_t>(own.data()) + 31)->name == "own");
  CHECK(!memory.find(reinterpret_cast<uintptr_t>(first) + 100));
  CHECK(memory.describe(reinterpret_cast<uintptr_t>(first) + 104) ==
        "4 bytes past the end of 'first' (100 bytes)");
  CHECK(memory.guardsIntact());
  first[102] = 1;
  std::string where;
  CHECK(!memory.guardsIntact(&where));
  CHECK(where == "the guard zone of 'first' was written 2 bytes past its end");
}

TEST_CASE("An unknown kernel is a finding") {
  auto program = compile(kernel(""));
  Buffers b;
  CHECK(!program->launch("nobody", 1, b.table, b.table, b.memory, {}).ok);
}
