//===- EmulatedLaunch.h - A driver's launch, on the emulator ----*- C++ -*-===//
#ifndef CFC_TEST_UNIT_EMULATEDLAUNCH_H
#define CFC_TEST_UNIT_EMULATEDLAUNCH_H

#include "FakeDriver.h"
#include "runtime/emulator/Emulator.h"
#include "llvm/Support/raw_ostream.h"
#include <catch2/catch.hpp>
#include <string>

namespace cfc::runtime::test {

/// Runs what was given to the fake driver by the emulated program; `seed` gives the order of threads. Fails
/// the test with the report where that is not right.
inline void runOnEmulator(cfc::emu::Program &program, const FakeLaunch &launch, cfc::emu::Memory &memory,
                          uint64_t seed) {
  cfc::emu::Options options;
  options.seed = seed;
  cfc::emu::Report report =
      program.launch(launch.kernel, launch.grid / launch.cluster, reinterpret_cast<void *>(launch.table),
                     reinterpret_cast<void *>(launch.workspace), memory, options);
  std::string text;
  llvm::raw_string_ostream stream(text);
  report.print(stream);
  INFO(text);
  CHECK(report.ok);
}

} // namespace cfc::runtime::test

#endif // CFC_TEST_UNIT_EMULATEDLAUNCH_H
