//===- Machines.h - What this machine's GPU offers ------------------------===//
#pragma once
#include "compiler/plan/Machine.h"
#include <string>

namespace cfc {

/// What CompileOptions::machine takes for a value of --machine: "" and known names as they are, JSON for a
/// file, for `native` and where `maxSms` limits it. Throws Failure: 2 for a bad description (the nearest name
/// is given), 3 where native finds no GPU.
std::string machineText(const std::string &option, int64_t maxSms = 0);

/// The machine for a value of --machine, h200 for "", of which plans use at most `maxSms` SMs (0: all).
Machine machineFor(const std::string &option, int64_t maxSms = 0);

/// GPU 0, asked through its driver.
struct Native {
  Machine machine;
  std::string device, driver; ///< "NVIDIA H200", "13.0"
  int major = 0, minor = 0;   ///< compute capability
  uint64_t memory = 0;        ///< bytes
};
Native askDevice();

} // namespace cfc
