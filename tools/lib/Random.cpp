//===- Random.cpp - Seeded test data --------------------------------------===//
#include "tools/lib/Random.h"
#include "dialects/attn/Elements.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>

using namespace cfc;

Distribution cfc::distributionFor(DataRole role, const std::vector<int64_t> &shape) {
  switch (role) {
  case DataRole::Weight:
    return {0, shape.empty() || shape.back() == 0 ? 1 : 1 / std::sqrt(double(shape.back()))};
  case DataRole::Bias:
    return {0, 0.1};
  case DataRole::Gain:
    return {0.8, 0.08};
  case DataRole::Scale:
    return {0.6, 0.05};
  case DataRole::Slope:
    return {0.03, 0.01};
  default:
    return {0, 1};
  }
}

/// The finaliser of splitmix64: every bit of the result depends on every bit of the argument.
static inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static uint64_t keyOf(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed + 0x9e3779b97f4a7c15);
  for (char c : name)
    key = mix(key + uint8_t(c) + 0x9e3779b97f4a7c15);
  return key;
}

/// Runs body(begin, end) over parts of [0, n) on all cores.
template <typename Body> static void parallelFor(int64_t n, Body body) {
  int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 16);
  threads = std::min(threads, n / 65536 + 1);
  std::vector<std::thread> pool;
  for (int64_t t = 1; t < threads; ++t)
    pool.emplace_back(body, n * t / threads, n * (t + 1) / threads);
  body(0, n / threads);
  for (std::thread &thread : pool)
    thread.join();
}

// The two conversions of Elements.h for the finite numbers below 2^15 that are made here, without branches: a
// block has 67 million weights.
static inline uint16_t smallHalf(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 31 << 15, magnitude = bits & 0x7fffffff;
  uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Adding 1/2 leaves the bits of a subnormal f16 at the end of the mantissa, rounded.
  uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  return static_cast<uint16_t>(sign | (magnitude < 113u << 23 ? subnormal : normal));
}

static inline uint16_t smallBfloat(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename Store>
static void generate(int64_t n, uint64_t key, Distribution distribution, Store store) {
  // The sum of four uniform 16-bit numbers has mean 131070 and deviation sqrt((2^32 - 1) / 3).
  float scale = float(distribution.deviation / std::sqrt(4294967295.0 / 3));
  float mean = float(distribution.mean);
  parallelFor(n, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint64_t h = mix(key + uint64_t(i) * 0x9e3779b97f4a7c15);
      int32_t sum =
          int32_t(h & 0xffff) + int32_t(h >> 16 & 0xffff) + int32_t(h >> 32 & 0xffff) + int32_t(h >> 48);
      store(i, mean + float(sum - 131070) * scale);
    }
  });
}

void cfc::fillRandom(Tensor &tensor, uint64_t seed, std::string_view name, Distribution distribution) {
  int64_t n = tensor.elements();
  uint64_t key = keyOf(seed, name);
  switch (tensor.type) {
  case DType::f16:
    return generate(n, key, distribution,
                    [p = tensor.as<uint16_t>()](int64_t i, float x) { p[i] = smallHalf(x); });
  case DType::bf16:
    return generate(n, key, distribution,
                    [p = tensor.as<uint16_t>()](int64_t i, float x) { p[i] = smallBfloat(x); });
  case DType::f32:
    return generate(n, key, distribution, [p = tensor.as<float>()](int64_t i, float x) { p[i] = x; });
  case DType::f64:
    return generate(n, key, distribution, [p = tensor.as<double>()](int64_t i, float x) { p[i] = x; });
  case DType::f8E4M3FN:
    return generate(n, key, distribution,
                    [p = tensor.as<uint8_t>()](int64_t i, float x) { p[i] = toE4m3(x); });
  case DType::i32:
  case DType::i64:
    for (int64_t i = 0; i < n; ++i)
      tensor.set(i, std::round(distribution.mean));
  }
}

void cfc::fillRopeTable(Tensor &table, RopeTable rope) {
  int64_t width = table.shape.back(), rows = width ? table.elements() / width : 0;
  rope.dim = width;
  std::vector<double> frequency = ropeFrequencies(rope);
  parallelFor(rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      ropeRow(rope, frequency, row, [&](int64_t i, double value) { table.set(row * width + i, value); });
  });
}
