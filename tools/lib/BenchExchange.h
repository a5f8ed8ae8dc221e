//===- BenchExchange.h - Times one exchange alone -------------------------===//
#pragma once
#include "compiler/plan/Machine.h"
#include "tools/lib/BenchGpu.h"
#include "tools/lib/Build.h"
#include <nlohmann/json_fwd.hpp>

namespace cfc {

/// One exchange: `bytes` is what a CTA holds before it.
struct ExchangeCase {
  std::string kind, level, algorithm; ///< "reduce", "cta", "push"
  int64_t size = 0, bytes = 0;        ///< CTAs that exchange, bytes of each
};

/// Values of --exchange, --level, --algorithm, --size and --bytes; empty lists and words mean all that there
/// are, or the usual ones.
struct ExchangeOptions {
  std::vector<std::string> kinds, algorithms;
  std::string level = "cta";
  std::vector<int64_t> sizes, bytes;
};

/// Every combination that exists, in the order of the options. Fails (2) for a word that is unknown or an
/// algorithm that no exchange of the level has, and for sizes and bytes that cannot be.
std::vector<ExchangeCase> exchangeCases(const ExchangeOptions &options);

/// The kernel that does the exchange: over a cluster once for each of `repeats` work items, over the grid
/// `repeats` times one after another.
std::string exchangeKernel(const ExchangeCase &which, int64_t repeats);

/// The kernels that "with a launch" is made of: one that does the exchange once in each of `clusters`; where
/// what it takes is made by a product, also one that only makes it, and one that only reads as many bytes.
/// The time of the first, with reading in place of the product, is what one exchange costs with its launch.
std::vector<std::string> launchKernels(const ExchangeCase &which, int64_t clusters);

struct ExchangeResult {
  ExchangeCase which;
  int64_t groups = 0;   ///< that exchange at a time
  double us = 0;        ///< of one exchange among many in a kernel
  Spread launch;        ///< of a kernel that reads its part, exchanges once and ends
  std::string problem;  ///< why there is no time, or ""
  bool fastest = false; ///< of all algorithms for this exchange, size and bytes
};

using ExchangeProgress = std::function<void(const std::string &)>; ///< is told what is at hand

/// The kernels of all cases, each compiled once, on all cores. No GPU is used.
class ExchangeKernels {
public:
  /// `machine` says how many clusters run at a time.
  ExchangeKernels(const std::vector<ExchangeCase> &cases, const Machine &machine, const BuildOptions &build,
                  const ExchangeProgress &progress);
  ~ExchangeKernels();

  /// What is known without a GPU: what cannot be compiled has its `problem`.
  const std::vector<ExchangeResult> &compiled() const { return results; }
  std::vector<ExchangeResult> time(BenchGpu &gpu, int64_t replays, const ExchangeProgress &progress) const;

private:
  class Binaries;
  std::vector<ExchangeResult> results;
  std::unique_ptr<Binaries> binaries;
};

std::string exchangeText(const std::vector<ExchangeResult> &results);
nlohmann::ordered_json toJson(const std::vector<ExchangeResult> &results);

} // namespace cfc
