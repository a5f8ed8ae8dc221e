//===- MachineCommand.cpp - cfc machine -----------------------------------===//
#include "runtime/src/Driver.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Machines.h"
#include <fmt/ranges.h>
#include <thread>

using namespace cfc;

namespace {
struct MachineArguments {
  std::string machine = "native";
  bool json = false;
};
} // namespace

/// The table of resident clusters, one line for each number of CTAs per SM.
static std::string clusterText(const Machine &machine) {
  std::string text;
  for (auto &[ctas, sizes] : machine.residentClusters) {
    text += fmt::format("  resident clusters with {} CTA{} per SM ({} bytes of shared memory each):", ctas,
                        ctas == 1 ? "" : "s", machine.sharedLimit(ctas));
    for (auto [size, clusters] : sizes)
      text += fmt::format("  {}: {}", size, clusters);
    text += "\n";
  }
  return text;
}

static std::string machineText(const Machine &machine) {
  return fmt::format("{}  SMs: {}\n  shared memory: {} bytes a CTA, {} an SM\n"
                     "  memory bandwidth: {:.2f} TB/s\n{}numbers of the planner:\n{}",
                     machine.about.empty() ? "" : "  " + machine.about + "\n", machine.sms,
                     machine.sharedBytes, machine.sharedBytesPerSm, machine.bandwidth / 1e12,
                     clusterText(machine), machine.describe());
}

static Exit machineCommand(const MachineArguments &arguments) {
  if (arguments.machine != "native") {
    Machine machine = machineFor(arguments.machine);
    print(arguments.json ? machine.toJson()
                         : fmt::format("machine {}\n{}", machine.name, machineText(machine)));
    return Exit::Done;
  }
  runtime::Failure failure;
  if (!arguments.json && runtime::probeDriver(failure) == runtime::DriverState::Absent) {
    print(fmt::format("no GPU: {}\nthe emulator runs everything on the CPU ({} cores)\n"
                      "machine descriptions: {} (cfc machine --machine=h200 shows one)\n",
                      failure.message, std::thread::hardware_concurrency(),
                      fmt::join(knownMachineNames(), ", ")));
    return Exit::Done;
  }
  Native native = askDevice();
  if (arguments.json)
    print(native.machine.toJson());
  else
    print(fmt::format("GPU 0: {}, compute capability {}.{}, {:.0f} GiB, driver for CUDA {}\n{}",
                      native.device, native.major, native.minor, double(native.memory) / (1 << 30),
                      native.driver, machineText(native.machine)));
  return Exit::Done;
}

void cfc::addMachineCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<MachineArguments>();
  CLI::App *command =
      app.add_subcommand("machine", "Show what this machine's GPU offers, or a machine description");
  command->add_option("--machine", arguments->machine, "The machine to show (native)")
      ->option_text("NAME|FILE.json|native");
  command->add_flag("--json", arguments->json, "Print a description that --machine=FILE.json reads");
  command->footer("Example:\n  cfc machine\n  cfc machine --json > mine.json\n"
                  "  cfc compile block.mlir --machine=mine.json");
  command->callback([arguments, &action] { action = [arguments] { return machineCommand(*arguments); }; });
}
