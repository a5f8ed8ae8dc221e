//===- Commands.h - The commands of cfc -----------------------------------===//
#pragma once
#include "tools/lib/Build.h"
#include "tools/lib/Failure.h"
#include <CLI/CLI.hpp>
#include <functional>

namespace cfc {

/// What a command does once its options are read.
using Action = std::function<Exit()>;

/// Each adds one command to `app`; when it is chosen, it sets `action`.
void addCompileCommand(CLI::App &app, Action &action);
void addRunCommand(CLI::App &app, Action &action);
void addVerifyCommand(CLI::App &app, Action &action);
void addBenchCommand(CLI::App &app, Action &action);
void addExplainCommand(CLI::App &app, Action &action);
void addImportCommand(CLI::App &app, Action &action);
void addPackCommand(CLI::App &app, Action &action);
void addInfoCommand(CLI::App &app, Action &action);
void addMachineCommand(CLI::App &app, Action &action);

/// --target, --machine, --plan, --set, --[no-]deterministic, --profile, --ptxas, -v.
void addBuildOptions(CLI::App &command, BuildOptions &options);
/// --device.
void addDeviceOption(CLI::App &command, std::string &device);
/// --seed.
void addSeedOption(CLI::App &command, uint64_t &seed);
/// --input, --weights.
void addInputOptions(CLI::App &command, InputOptions &options);
/// An option that may be repeated, one value each time.
CLI::Option *addRepeated(CLI::App &command, const std::string &name, std::vector<std::string> &values,
                         const std::string &help);

/// Writes to standard output; fails where it cannot (a full disk, a closed pipe).
void print(std::string_view text);

/// A progress line on standard error, only where a person sees it; the destructor removes it.
class Progress {
public:
  void show(const std::string &text);
  void clear();
  ~Progress() { clear(); }

private:
  bool shown = false;
};

/// Runs cfc. Never throws; returns the exit code.
int runCfc(int argc, const char *const *argv);

} // namespace cfc
