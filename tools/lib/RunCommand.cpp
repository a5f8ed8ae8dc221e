//===- RunCommand.cpp - cfc run -------------------------------------------===//
#include "tools/lib/Commands.h"
#include "tools/lib/Compare.h"
#include "tools/lib/Files.h"
#include "tools/lib/Npy.h"
#include "tools/lib/Session.h"
#include "tools/lib/Suggest.h"
#include "tools/lib/Variants.h"
#include <chrono>
#include <cmath>

using namespace cfc;

namespace {
struct RunArguments {
  std::string source, device = "auto", output;
  InputOptions inputs;
  std::vector<std::string> expected;
  std::optional<int64_t> length;
  uint64_t seed = 0;
  BuildOptions build;
};
} // namespace

/// Tokens in the cache where random data is asked for: what the option says, else 128 or the largest that
/// fits.
static RandomOptions randomOptions(const RunArguments &arguments, const std::vector<InputSpec> &specs) {
  int64_t bound = INT32_MAX;
  for (const InputSpec &spec : specs)
    if (spec.bound)
      bound = std::min(bound, *spec.bound);
  if (arguments.length && (*arguments.length < 0 || *arguments.length > bound))
    badInput("", "--len={}: lengths go from 0 to {}", *arguments.length, bound);
  RandomOptions random;
  random.seed = arguments.seed;
  random.length = arguments.length.value_or(std::min<int64_t>(bound, 128));
  random.capacity = random.length + 1;
  return random;
}

/// "min -3.1  max 3.2  mean 0.01  rms 1  first 0.2 -0.3 …".
static std::string statistics(const Tensor &tensor) {
  double smallest = INFINITY, largest = -INFINITY, sum = 0, squares = 0;
  int64_t finite = 0, n = tensor.elements();
  for (int64_t i = 0; i < n; ++i) {
    double x = tensor.get(i);
    if (!std::isfinite(x))
      continue;
    ++finite;
    smallest = std::min(smallest, x);
    largest = std::max(largest, x);
    sum += x;
    squares += x * x;
  }
  std::string text;
  if (finite)
    text = fmt::format("min {:.4g}  max {:.4g}  mean {:.4g}  rms {:.4g}  ", smallest, largest,
                       sum / double(finite), std::sqrt(squares / double(finite)));
  if (finite < n)
    text += fmt::format("{} of {} not finite  ", n - finite, n);
  text += "first";
  for (int64_t i = 0; i < std::min<int64_t>(n, 4); ++i)
    text += fmt::format(" {:.4g}", tensor.get(i));
  return text;
}

static std::string warnings(uint32_t status) {
  std::string text;
  for (auto [bit, what] :
       {std::pair(CFC_DEVICE_LENGTH_OUT_OF_BOUND, "length"), std::pair(CFC_DEVICE_SLOT_OUT_OF_BOUND, "slot"),
        std::pair(CFC_DEVICE_POSITION_OUT_OF_BOUND, "position"),
        std::pair(CFC_DEVICE_PAGE_OUT_OF_BOUND, "page")})
    if (status & bit)
      text += fmt::format("warning: a {} was out of its bound; it was clamped or skipped\n", what);
  return text;
}

/// Compares outputs with NAME=FILE of --expect. Returns whether all agree.
static bool checkExpected(const RunArguments &arguments, const TensorMap &outputs) {
  std::vector<InputSpec> specs;
  std::vector<std::string> names;
  for (auto &[name, tensor] : outputs)
    names.push_back(name);
  bool passed = true;
  for (const std::string &text : arguments.expected) {
    std::string name = text.substr(0, text.find('='));
    auto output = outputs.find(name);
    if (text.find('=') == std::string::npos)
      badInput("", "--expect {}: expected NAME=FILE.npy or NAME=FILE.safetensors[:KEY]", text);
    if (output == outputs.end())
      badInput("", "--expect {}: there is no output \"{}\"{}", text, name, didYouMean(name, names));
    Tensor expected = readTensor(text);
    const Tensor &found = output->second;
    if (expected.shape != found.shape)
      badInput("", "--expect {}: the output is {}, the file holds {}", text,
               typeText(found.type, found.shape), typeText(expected.type, expected.shape));
    std::vector<double> values(size_t(expected.elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = expected.get(int64_t(i));
    Tolerance tolerance = toleranceFor(found.type);
    Comparison result = compare(values, found, found.shape.back(), false, tolerance);
    passed &= result.passed;
    print(fmt::format("{}  relative L2 {:.2e} (limit {:.0e})  largest {:.2e} (limit {:.0e})  {}\n", name,
                      result.relativeL2, tolerance.relativeL2, result.largest, tolerance.element,
                      result.passed ? "ok" : "MISMATCH"));
    if (!result.passed && result.worst >= 0)
      print(fmt::format("  worst at {}: expected {:.6g}, found {:.6g}\n",
                        indexText(result.worst, found.shape), result.expected, result.found));
  }
  return passed;
}

static std::string fileName(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name + ".npy";
}

static Exit runCommand(const RunArguments &arguments) {
  DeviceChoice choice = parseDeviceChoice(arguments.device);
  Compiler compiler;
  Source source = readSource(compiler, arguments.source, arguments.build.sets, arguments.build.graph);
  std::string target = source.bundle ? source.bundle->manifest.target : arguments.build.target, why;
  std::unique_ptr<Device> device = openDevice(choice, target, why);
  print(fmt::format("device: {}{}\n", device->describe(), why.empty() ? "" : " (" + why + ")"));

  Program program = makeProgram(compiler, source, arguments.build, *device);
  if (program.graph.variants.size() > 1)
    print(fmt::format("variant: {} of {}: {} ({})\n", program.variant + 1, program.graph.variants.size(),
                      program.planHash, conditionText(program.graph.variants[program.variant].when)));
  std::vector<InputSpec> specs = inputSpecs(program.kernels(source), program.graph);
  if (arguments.inputs.inputs.empty() && arguments.inputs.weights.empty() && !specs.empty())
    print(fmt::format("inputs: random, seed {}\n", arguments.seed));
  TensorMap inputs = resolveInputs(specs, arguments.inputs, randomOptions(arguments, specs));
  if (!arguments.output.empty())
    makeFolder(arguments.output);

  DeviceTensors tensors(*device);
  tensors.upload(inputs, program.graph);
  std::unique_ptr<Executable> executable = device->load(program.image());
  executable->bind(tensors.bindings(program.graph));
  tensors.poisonResults(program.graph);
  Progress progress;
  progress.show("running on " + device->describe());
  auto start = std::chrono::steady_clock::now();
  executable->launch(arguments.seed);
  std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "{}", warnings(executable->takeStatus()));
  if (auto broken = device->brokenGuard())
    throw Failure(Exit::CheckFailed, "", "the program wrote outside of its buffers: " + *broken);

  TensorMap outputs = tensors.outputs(program.graph);
  for (auto &[name, tensor] : outputs) {
    print(fmt::format("{}: {}  {}\n", name, typeText(tensor.type, tensor.shape), statistics(tensor)));
    if (!arguments.output.empty())
      writeFile(arguments.output + "/" + fileName(name), npyContent(tensor));
  }
  if (arguments.build.verbose)
    fmt::print(stderr, "{:>9.1f} ms  launch\n", time.count());
  return checkExpected(arguments, outputs) ? Exit::Done : Exit::CheckFailed;
}

void cfc::addRunCommand(CLI::App &app, Action &action) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App *command = app.add_subcommand("run", "Run a graph, kernels or a bundle once");
  command->add_option("SOURCE", arguments->source, "A graph, kernels or a bundle")
      ->required()
      ->option_text("GRAPH|BUNDLE");
  addDeviceOption(*command, arguments->device);
  addInputOptions(*command, arguments->inputs);
  command->add_option("--output", arguments->output, "Write every output as DIR/NAME.npy")
      ->option_text("DIR");
  addRepeated(*command, "--expect", arguments->expected,
              "Compare an output with a file; exit 1 where they differ")
      ->option_text("NAME=FILE.npy|FILE.safetensors[:KEY]");
  command->add_option("--len", arguments->length, "Tokens in the cache for random inputs (128)")
      ->option_text("N");
  addSeedOption(*command, arguments->seed);
  addVariantOption(*command, arguments->build);
  addBuildOptions(*command, arguments->build);
  command->footer(
      "Example:\n  cfc run block.cfk --input x=x.npy --input random --output results\n"
      "  cfc run block.mlir --weights checkpoint --input x=x.npy --input cache=random --input random");
  command->callback([arguments, &action] { action = [arguments] { return runCommand(*arguments); }; });
}
