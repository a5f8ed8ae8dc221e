//===- Machine.h - The numbers that the planner uses ------------------------===//
#pragma once
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace cfc {

/// What a GPU offers. As JSON: an object with these fields by the names in Machine.cpp; what is left out
/// has the value of `h200`.
struct Machine {
  std::string name = "h200";
  int64_t sms = 132;
  int64_t sharedBytes = 232448;      ///< shared memory of a CTA at most, bytes
  int64_t sharedBytesPerSm = 233472; ///< of an SM, bytes
  int64_t sharedReserved = 1024;     ///< of each CTA by the driver, bytes
  double bandwidth = 4.6e12;         ///< bytes of memory read a second
  double smBandwidth = 8.3e10;       ///< the same by one SM with a full ring
  double ctaBandwidth = 8e10;        ///< bytes a second that the consumers of a CTA take from a ring tile
  double tileNs = 100;               ///< what they spend on a tile besides
  double copyNs = 38;                ///< an SM starts a bulk copy every so many ns
  double launchUs = 2.5;             ///< from one kernel's end to the next's start
  double exchangeUs = 2.5;           ///< an exchange in a cluster
  double roundUs = 0.9;              ///< each further round of an exchange
  double gridExchangeUs = 3.7;       ///< a sum over the grid, through L2
  double normUs = 2.3;               ///< until a norm of the input is done
  /// By CTAs per SM, then by cluster size: clusters that fit at a time.
  std::map<int64_t, std::map<int64_t, int64_t>> residentClusters;

  /// Clusters of `size` CTAs that fit at `ctasPerSm`; 0 where they cannot be.
  int64_t resident(int64_t size, int64_t ctasPerSm) const;
  /// Most shared memory of a CTA where `ctasPerSm` share an SM.
  int64_t sharedLimit(int64_t ctasPerSm) const;
  std::string toJson() const;
};

/// A machine that the compiler knows: `h200` or `h100`.
std::optional<Machine> knownMachine(llvm::StringRef name);

/// Reads a description; `file` is for messages. On failure `error` is `file:line:column: error: …` or
/// `file: error: …` (exit code 2).
std::optional<Machine> parseMachine(llvm::StringRef json, llvm::StringRef file, std::string &error);

/// A known machine's name, or a path of a description. `native` is for who can ask a device.
std::optional<Machine> loadMachine(llvm::StringRef nameOrPath, std::string &error);

} // namespace cfc
