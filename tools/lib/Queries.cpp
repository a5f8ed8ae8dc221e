//===- Queries.cpp - Rows of requests with several query tokens -----------===//
#include "tools/lib/Queries.h"
#include <algorithm>
#include <cstring>
#include <random>

using namespace cfc;

std::vector<double> cfc::evenStarts(int64_t requests, int64_t rows) {
  std::vector<double> starts;
  for (int64_t r = 0; r <= requests; ++r) {
    int64_t first = rows * r / requests;
    starts.push_back(double(first));
  }
  return starts;
}

std::vector<double> cfc::drawnStarts(int64_t requests, int64_t rows, uint64_t seed) {
  std::mt19937_64 engine(seed);
  auto below = [&](int64_t n) { return int64_t(engine() % uint64_t(n)); };
  int64_t used = rows > 2 && below(3) == 0 ? rows - below(rows / 2) : rows;
  std::vector<double> starts = {0, double(used)};
  while (int64_t(starts.size()) <= requests)
    starts.push_back(double(below(used + 1)));
  std::sort(starts.begin(), starts.end());
  if (requests >= 3) {
    int64_t idle = below(requests - 1);
    starts[size_t(idle + 1)] = starts[size_t(idle)];
  }
  return starts;
}

static std::vector<uint64_t> drawnTrees(const std::vector<double> &starts, int64_t rows, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<uint64_t> bits;
  for (int64_t row = 0; row < rows; ++row) {
    attn::QueryRow place = attn::queryRow(starts, rows, row);
    uint64_t drawn = engine();
    if (place.request < 0) {
      bits.push_back(drawn);
      continue;
    }
    // Its parent is one of the tokens before it, near ones more often, or it is a root.
    uint64_t ancestors = 0;
    if (place.index > 0 && drawn % 8 != 0) {
      int64_t near = std::min<int64_t>(place.index, 3);
      ancestors = bits[size_t(row - 1 - int64_t(drawn / 8 % uint64_t(near)))];
    }
    bits.push_back(ancestors | uint64_t(1) << place.index);
  }
  return bits;
}

Tensor cfc::startsTensor(DType type, const std::vector<double> &starts) {
  Tensor tensor(type, {int64_t(starts.size())});
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, starts[size_t(i)]);
  return tensor;
}

Tensor cfc::treesTensor(const std::vector<double> &starts, int64_t rows, uint64_t seed) {
  std::vector<uint64_t> bits = drawnTrees(starts, rows, seed);
  Tensor tensor(DType::i64, {rows});
  std::memcpy(tensor.mutableData(), bits.data(), tensor.bytes());
  return tensor;
}

std::vector<double> cfc::startsOf(const Tensor &tensor) {
  std::vector<double> starts;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    starts.push_back(tensor.get(i));
  return starts;
}
