//===- Cli.cpp - Reading the command line, and the handlers of last resort ===//
#include "runtime/src/Error.h"
#include "tools/lib/Commands.h"
#include "tools/lib/Files.h"
#include "tools/lib/Suggest.h"
#include "llvm/Support/ErrorHandling.h"
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/resource.h>
#include <unistd.h>

using namespace cfc;

static constexpr const char *version = CFC_VERSION;

//===----------------------------------------------------------------------===//
// Shared options and output
//===----------------------------------------------------------------------===//

CLI::Option *cfc::addRepeated(CLI::App &command, const std::string &name, std::vector<std::string> &values,
                              const std::string &help) {
  // One value each time: `--set a=1 GRAPH` must not swallow the graph.
  return command.add_option(name, values, help)->allow_extra_args(false)->take_all();
}

void cfc::addBuildOptions(CLI::App &command, BuildOptions &options) {
  command.add_option("--target", options.target, "Instruction set (sm_90a)")->option_text("ARCH");
  command
      .add_option("--machine", options.machine,
                  "Numbers that the planner uses: a name, a description, or this machine")
      ->option_text("NAME|FILE.json|native");
  command.add_option("--max-sms", options.maxSms, "Plan for, and run on, at most so many SMs (0: all)")
      ->option_text("N");
  command.add_option("--plan", options.plan, "Plan to use: the best, a file, or one drawn by seed")
      ->option_text("auto|FILE|random:SEED");
  // Where --weights names a checkpoint, the layout has its long name only.
  bool hasCheckpoint = command.get_option_no_throw("--weights");
  command
      .add_option(hasCheckpoint ? "--weight-layout" : "--weights,--weight-layout", options.weightLayout,
                  "How kernels read weights: as checkpoints have them, or as \"cfc pack\" writes them")
      ->option_text("native|packed");
  addRepeated(command, "--set", options.sets,
              "A bound of the graph: LENGTH.capacity, the most cached tokens of a length")
      ->option_text("NAME=VALUE");
  command.add_flag("--deterministic,!--no-deterministic", options.deterministic,
                   "Same bits for every plan, variant and run (default)");
  command
      .add_option(
          "--ptxas", options.ptxas,
          "Assembler to use; else $CFC_PTXAS, the folder cuda beside cfc's folder, PATH, /usr/local/cuda")
      ->option_text("PATH");
  command.add_flag("--profile", options.profile,
                   "Kernels leave the time after each operation in the workspace");
  command.add_flag("-v,--verbose", options.verbose, "Print phases and their times to standard error");
}

void cfc::addSeedOption(CLI::App &command, uint64_t &seed) {
  auto read = [&seed](const std::string &text) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc() || end != text.data() + text.size())
      badInput("", "--seed={}: the seed is a number from 0 to 2^64 - 1", text);
  };
  command
      .add_option_function<std::string>("--seed", read,
                                        "Seed of random inputs and of the emulator's order of threads (0)")
      ->option_text("N");
}

void cfc::addDeviceOption(CLI::App &command, std::string &device) {
  command
      .add_option("--device", device,
                  "Where it runs: a GPU if there is one, a GPU, or the emulator on the CPU")
      ->option_text("auto|gpu|emu");
}

void cfc::addInputOptions(CLI::App &command, InputOptions &options) {
  addRepeated(command, "--input", options.inputs,
              "A tensor; a cache is NAME.k and NAME.v, [heads, tokens, dim]; \"random\" alone: all that "
              "nothing else names")
      ->option_text("NAME=FILE.npy|FILE.safetensors[:KEY]|random[:SEED]");
  command.add_option("--weights", options.weights, "Tensors by name from a checkpoint")
      ->option_text("DIR|FILE.safetensors");
}

void cfc::print(std::string_view text) { writeFile("-", text); }

void Progress::show(const std::string &text) {
  static const bool person = isatty(2);
  if (!person)
    return;
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
  shown = true;
}

void Progress::clear() {
  if (shown)
    fmt::print(stderr, "\r\x1b[K");
  shown = false;
}

//===----------------------------------------------------------------------===//
// Handlers of last resort: exit code 4 and what to report
//===----------------------------------------------------------------------===//

static std::string commandLine;

/// What to report after a message about an internal error or a tool that failed.
static void askForReport() {
  fmt::print(stderr, "note: please report it with the input and this line:\nnote: cfc {}: {}\n", version,
             commandLine);
}

static void reportInternal(const char *what) {
  fmt::print(stderr, "error: internal error: {}\nnote: this is a fault of cfc, not of your input\n", what);
  askForReport();
}

static void onCrash(int signal) {
  // Little is safe here; the process is lost anyway, and a message is worth more than none.
  reportInternal(signal == SIGSEGV  ? "invalid memory access or stack overflow"
                 : signal == SIGFPE ? "arithmetic fault"
                                    : "aborted");
  _exit(int(Exit::Internal));
}

static void onFatalError(void *, const char *reason, bool) {
  reportInternal(reason);
  _exit(int(Exit::Internal));
}

/// Ctrl-C: nothing half-written has a name (writeFile), so there is nothing to remove.
static void onInterrupt(int signal) {
  const char text[] = "\ncfc: interrupted\n";
  [[maybe_unused]] ssize_t ignored = write(2, text, sizeof text - 1);
  _exit(128 + signal);
}

static void installSignalHandlers() {
  struct sigaction interrupt = {};
  interrupt.sa_handler = onInterrupt;
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    sigaction(signal, &interrupt, nullptr);
  // A closed pipe is an error of write, which is reported, and no silent death.
  signal(SIGPIPE, SIG_IGN);

  static char stack[65536]; // a stack overflow leaves none to run a handler on
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = onCrash;
  action.sa_flags = SA_ONSTACK | int(SA_RESETHAND);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigaction(signal, &action, nullptr);
  llvm::install_fatal_error_handler(onFatalError);
  llvm::install_bad_alloc_error_handler(onFatalError);
}

//===----------------------------------------------------------------------===//
// The command line
//===----------------------------------------------------------------------===//

static std::vector<std::string> optionNames(const CLI::App &command) {
  std::vector<std::string> names;
  for (const CLI::Option *option : command.get_options())
    for (const std::string &name : option->get_lnames())
      names.push_back("--" + name);
  return names;
}

/// Says which word was not expected, and which was probably meant.
static Exit reportUnexpected(const CLI::App &app) {
  const CLI::App *command = &app;
  if (auto chosen = app.get_subcommands(); !chosen.empty())
    command = chosen.front();
  std::vector<std::string> rest = app.remaining(true);
  std::string word = rest.empty() ? "" : rest.front();
  std::string where = command == &app ? "cfc" : "cfc " + command->get_name();
  if (word.starts_with("-"))
    fmt::print(stderr, "error: {}: unknown option {}{}\n", where, word,
               didYouMean(word.substr(0, word.find('=')), optionNames(*command)));
  else
    fmt::print(stderr, "error: {}: unexpected argument \"{}\"\n", where, word);
  fmt::print(stderr, "note: {} --help shows what there is\n", where);
  return Exit::BadInput;
}

/// A first word that is no command is refused before CLI11 takes it for something else.
static void checkCommand(const CLI::App &app, int argc, const char *const *argv) {
  if (argc < 2 || argv[1][0] == '-')
    return;
  std::vector<std::string> names;
  for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) == names.end())
    badInput("", "there is no command \"{}\"{} (cfc --help lists them)", argv[1], didYouMean(argv[1], names));
}

/// An option that takes a value and has none, or an empty one, is refused: CLI11's words name a type of C++,
/// and an empty text would count as if the option were not there.
static void checkValues(const CLI::App &app, int argc, const char *const *argv) {
  auto chosen = app.get_subcommands(
      [&](const CLI::App *command) { return argc > 1 && command->get_name() == argv[1]; });
  if (chosen.empty())
    return;
  const CLI::App *command = chosen.front();
  auto valueOf = [&](const std::string &word) {
    const CLI::Option *option = word.starts_with("-") ? command->get_option_no_throw(word) : nullptr;
    return option && option->get_items_expected_max() > 0 ? option : nullptr;
  };
  for (int i = 2; i < argc; ++i) {
    std::string word = argv[i], before = argv[i - 1];
    if (word.empty() && !valueOf(before))
      badInput("", "cfc {}: an argument is empty", command->get_name());
    std::string name = word.empty() ? before : word.ends_with("=") ? word.substr(0, word.size() - 1) : word;
    bool hasNone = word.empty() || word.ends_with("=") || i + 1 == argc;
    if (const CLI::Option *option = hasNone ? valueOf(name) : nullptr)
      badInput("", "cfc {}: {} has no value; it takes {}", command->get_name(), name,
               option->get_option_text());
  }
}

static Exit runCommand(int argc, const char *const *argv) {
  CLI::App app("cfc: an ahead-of-time compiler of attention graphs to fused GPU kernels", "cfc");
  app.set_version_flag("--version", fmt::format("cfc {}", version));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done; 1 a check failed; 2 bad usage or input; 3 this target or machine cannot run it;\n"
      "4 an internal error or a tool that failed; 130 after Ctrl-C.\n\n"
      "Example:\n  cfc verify templates/graphs/llama2_7b_attention.mlir --device=emu\n");
  Action action;
  addCompileCommand(app, action);
  addRunCommand(app, action);
  addVerifyCommand(app, action);
  addBenchCommand(app, action);
  addExplainCommand(app, action);
  addImportCommand(app, action);
  addPackCommand(app, action);
  addInfoCommand(app, action);
  addMachineCommand(app, action);
  checkCommand(app, argc, argv);
  checkValues(app, argc, argv);
  if (argc < 2) {
    fmt::print(stderr, "{}error: a command is needed\n", app.help());
    return Exit::BadInput;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError &) {
    return reportUnexpected(app);
  } catch (const CLI::Success &request) {
    app.exit(request); // --help and --version
    return Exit::Done;
  } catch (const CLI::ParseError &error) {
    auto chosen = app.get_subcommands();
    std::string where = chosen.empty() ? "cfc" : "cfc " + chosen.front()->get_name();
    fmt::print(stderr, "error: {}: {}\nnote: {} --help shows what there is\n", where, error.what(), where);
    return Exit::BadInput;
  }
  return action();
}

int cfc::runCfc(int argc, const char *const *argv) {
  for (int i = 1; i < argc; ++i)
    commandLine += (i > 1 ? " " : "") + std::string(argv[i]);
  installSignalHandlers();
  try {
    return int(runCommand(argc, argv));
  } catch (const Failure &failure) {
    // An empty message: diagnostics have said it.
    if (failure.code == Exit::Internal && *failure.what())
      reportInternal(failure.what());
    else if (failure.code == Exit::Internal)
      askForReport();
    else if (*failure.what())
      fmt::print(stderr, "{}\n", failure.what());
    return int(failure.code);
  } catch (const runtime::Error &error) {
    if (error.failure.status == CFC_INTERNAL_ERROR)
      reportInternal(error.what());
    else
      fmt::print(stderr, "error: {}\n", error.what());
    return error.failure.exitCode();
  } catch (const std::bad_alloc &) {
    fmt::print(stderr, "error: this machine has too little memory for it\n");
    return int(Exit::CannotRun);
  } catch (const std::exception &error) {
    reportInternal(error.what());
    return int(Exit::Internal);
  }
}
