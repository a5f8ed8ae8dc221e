//===- Machine.h - The numbers that the planner uses ------------------------===//
#pragma once
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cfc {

/// What a GPU offers. As JSON: an object with the fields of Machine.cpp, where each is explained; what a
/// description leaves out is as on the `h200`. Descriptions that the compiler knows by name are the files of
/// templates/machines.
struct Machine {
  std::string name, about;
  int64_t sms = 0;
  int64_t smsLimit = 0; ///< use at most so many SMs; 0: all
  int64_t registersPerSm = 0, sharedBytes = 0, sharedBytesPerSm = 0, sharedReserved = 0;
  // Memory.
  double bandwidth = 0, boxBandwidth = 0, smBandwidth = 0, memoryUs = 0, airBytes = 0, crowd = 0, copyNs = 0,
         boxNs = 0, blend = 0;
  // Consumers: a set is four warps that take ring tiles together.
  double tileNs = 0, blockNs = 0, sumTileNs = 0, segmentNs = 0, segmentBlockNs = 0, groupNs = 0, setShare = 0,
         setsUs = 0;
  // Around the streams.
  double launchUs = 0, launchEndUs = 0, launchPdlUs = 0, pdlCrowded = 0, cooperativeUs = 0, endUs = 0,
         tailUs = 0, earlyUs = 0, gridSyncUs = 0, normUs = 0, normColumnNs = 0, elementsUs = 0,
         attendNewUs = 0, finishUs = 0, waitingUs = 0, sumBandwidth = 0, stateBandwidth = 0,
         tokenBandwidth = 0, atomicRate = 0;
  // Exchanges in a cluster.
  double pushUs = 0, asyncUs = 0, bulkUs = 0, scatterUs = 0, roundUs = 0, peerUs = 0, peerBandwidth = 0,
         mergeBandwidth = 0, loadUs = 0, skew = 0;
  /// By CTAs per SM, then by cluster size: clusters that fit at a time. `resident` reads it.
  std::map<int64_t, std::map<int64_t, int64_t>> residentClusters;

  /// SMs that plans may use.
  int64_t usableSms() const { return smsLimit ? std::min(sms, smsLimit) : sms; }
  /// Clusters of `size` CTAs that fit at `ctasPerSm`; 0 where they cannot be. A limit of N SMs is N CTAs, as
  /// for the runtime's max_sms: the driver may give each an SM of its own.
  int64_t resident(int64_t size, int64_t ctasPerSm) const;
  /// CTAs of the largest cluster of which one fits; 0: none does.
  int64_t largestCluster(int64_t ctasPerSm) const;
  /// Most shared memory of a CTA where `ctasPerSm` share an SM.
  int64_t sharedLimit(int64_t ctasPerSm) const;
  std::string toJson() const;
  /// The fields with their meaning, one a line.
  std::string describe() const;
};

/// Names of the machines that the compiler knows.
std::vector<std::string> knownMachineNames();
/// One of them.
std::optional<Machine> knownMachine(llvm::StringRef name);

/// Reads a description; `file` is for messages. On failure `error` is `file:line:column: error: …` (exit code
/// 2), without a place where something is missing.
std::optional<Machine> parseMachine(llvm::StringRef json, llvm::StringRef file, std::string &error);

/// A known machine's name, or a path of a description. `native` is for who can ask a device.
std::optional<Machine> loadMachine(llvm::StringRef nameOrPath, std::string &error);

} // namespace cfc
