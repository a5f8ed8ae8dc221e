//===- InfoCommand.cpp - cfc info -----------------------------------------===//
#include "runtime/src/Bundle.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Pack.h"

using namespace cfc;

namespace {
struct InfoArguments {
  std::string bundle;
  bool json = false;
};
} // namespace

static Exit infoCommand(const InfoArguments &arguments) {
  runtime::ReadOptions options;
  options.checkTarget = false; // nothing is executed: any architecture can be shown
  runtime::Bundle bundle = runtime::loadBundle(arguments.bundle, options);
  if (arguments.json)
    print(std::string(bundle.manifestText()) + "\n");
  else
    print(runtime::describeBundle(bundle) + packingText(bundle.manifest));
  return Exit::Done;
}

void cfc::addInfoCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<InfoArguments>();
  CLI::App *command =
      app.add_subcommand("info", "Print all that a bundle says about itself; executes nothing");
  command->add_option("BUNDLE", arguments->bundle, "A .cfk file")->required();
  command->add_flag("--json", arguments->json, "Print the manifest as JSON");
  command->footer("Example:\n  cfc info block.cfk");
  command->callback([arguments, &action] { action = [arguments] { return infoCommand(*arguments); }; });
}
