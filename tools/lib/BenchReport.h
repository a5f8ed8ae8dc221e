//===- BenchReport.h - What cfc bench prints ------------------------------===//
#pragma once
#include "tools/lib/BenchChain.h"
#include "tools/lib/Failure.h"
#include <nlohmann/json_fwd.hpp>

namespace cfc {

/// Rows of cells as text: columns are aligned, the first to the left, others to the right.
std::string tableText(const std::vector<std::vector<std::string>> &rows, const std::string &indent);

/// A failure as part of a sentence.
std::string reasonOf(const Failure &failure);

nlohmann::ordered_json toJson(const Spread &spread);
/// The device and what its memory does, as the first line and as JSON.
std::string deviceText(const BenchGpu &gpu, size_t passBytes, double bandwidth);
nlohmann::ordered_json deviceJson(const BenchGpu &gpu, size_t passBytes, double bandwidth);

/// The same work done by other means.
struct BaselineResult {
  std::string name;
  std::optional<Spread> us; ///< of a block
  std::string problem;      ///< where it could not be timed: why
};

/// One case of --len.
struct BenchCase {
  struct Kernel {
    std::string name;
    uint32_t grid, cluster, threads, sharedBytes;
  };
  std::optional<RequestLengths> lengths; ///< absent where the graph has none
  int64_t requests = 1;
  int64_t layers = 0;
  std::string plan;
  std::vector<Kernel> kernels;
  BlockBytes bytes;
  double floorUs = 0;
  std::optional<double> predictedUs;
  Spread block, stream;
  std::vector<BaselineResult> baselines;
};

/// All cases of a graph.
struct BenchReport {
  std::string graph;
  std::string input, output; ///< of the chain; `input` is empty where there is none
  bool tokenMajor = false;
  int64_t requests = 1, page = 0; ///< of the caches; 0: no pages
  int64_t replays = 0;
  std::vector<BenchCase> cases;
};

/// What is common to all cases.
std::string headText(const BenchReport &report);
std::string caseText(const BenchCase &result);
nlohmann::ordered_json toJson(const BenchReport &report);

} // namespace cfc
