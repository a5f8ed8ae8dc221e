//===- Verify.h - Comparing a program with the float64 reference ----------===//
#pragma once
#include "dialects/attn/Reference.h"
#include "tools/lib/Build.h"
#include "tools/lib/Compare.h"
#include "tools/lib/DeviceReference.h"
#include "tools/lib/Replay.h"
#include "tools/lib/Session.h"
#include "tools/lib/Taps.h"
#include <map>
#include <optional>

namespace cfc {

/// Tensors and caches as the float64 reference takes them; they point into `inputs`.
attn::ReferenceInputs referenceInputs(const std::vector<InputSpec> &specs, const TensorMap &inputs);

/// Positions that every rope table of the graph has.
int64_t positionsOf(attn::GraphOp graph);

struct VerifyOptions {
  std::vector<int64_t> lengths; ///< tokens in the cache, one case each
  bool lengthsGiven = false;    ///< by --len
  std::string taps;             ///< of --tap
  std::string kernels;          ///< file of kernels to check in place of those that the compiler writes
  bool bisect = false;
  uint64_t seed = 0;
  InputOptions inputs;
  const Replay *replay = nullptr; ///< a captured launch, the only case; `lengths` are not looked at
  BuildOptions build;
  /// What runs the second reference. Null: kernels by NVRTC on a GPU, no second reference on the emulator.
  DeviceKernels *referenceKernels = nullptr;
};

/// What the second reference, which runs on the GPU, says about a value.
struct SecondOpinion {
  Comparison comparison; ///< of what the program computed with the second reference
  double between = 0;    ///< how far the references are apart, like Comparison::largest
  bool agree = true;     ///< whether that is what the order of double sums explains
  bool passed() const { return comparison.passed && agree; }
};

/// One comparison of one case.
struct Check {
  std::string name; ///< "%y", "cache.k row 5"
  std::vector<int64_t> shape;
  Comparison comparison;
  Tolerance tolerance;
  const Tap *tap = nullptr; ///< null for rows of a cache
  std::optional<SecondOpinion> second = {};
  mlir::Operation *append = nullptr; ///< of rows of a cache: what appends them
  bool passed() const { return comparison.passed && (!second || second->passed()); }
  /// The comparison that failed, if one did.
  const Comparison &decisive() const {
    return comparison.passed && second && !second->comparison.passed ? second->comparison : comparison;
  }
};

/// What was found at one length.
struct CaseResult {
  int64_t length = 0;
  std::vector<Check> checks;
  std::vector<std::string> notes;  ///< what is worth knowing, and no fault
  std::vector<std::string> faults; ///< what changed that should not have, a wrong status, differing bits
  /// Digests of what the graph's own program left, by name; nothing where the plan does not fix the bits.
  std::map<std::string, uint64_t> bits;
  bool passed() const;
};

/// Runs a graph on a device, length by length.
class Verifier {
public:
  Verifier(Compiler &compiler, const Source &source, Device &device, VerifyOptions options);

  /// The lengths to check: those of the options, or the one that the inputs give.
  const std::vector<int64_t> &lengths() const { return cases; }
  const Program &program() const { return plain; }
  /// Why less is compared than could be.
  const std::vector<std::string> &notes() const { return whyLess; }
  CaseResult check(size_t index);

private:
  bool deterministic() const;
  void useKernels();
  void keepResultTaps();
  void makeTapped();
  void makeInputs();
  void replayInputs();
  void uploadUnchanging();
  void makeSecondReference();
  void requireRoom();
  int64_t capacity() const;
  TensorMap caseInputs(size_t index) const;
  void drawQueries(TensorMap &inputs, size_t index) const;
  bool hasQuery(const InputSpec &cache, const TensorMap &inputs, int64_t r, bool choosesSlots) const;
  Tensor poisonedCache(const InputSpec &spec, const std::string &name, const TensorMap &inputs,
                       const std::vector<int64_t> &used) const;
  /// A program in the device. What its launches change are tensors of its own.
  struct Loaded {
    Program *program;
    std::optional<DeviceTensors> tensors = {};
    std::unique_ptr<Executable> executable = {};
  };
  void prepare(Loaded &loaded, const TensorMap &inputs);
  attn::ReferenceResult evaluateFirst(const TensorMap &inputs, const TensorMap *outputs);
  void evaluateSecond(CaseResult &result, struct ReferenceRun &reference, bool stored);
  void launch(const std::vector<Loaded *> &all, uint64_t seed);
  void checkRows(CaseResult &result, const TensorMap &outputs, const struct ReferenceRun &reference);
  void checkTaps(CaseResult &result, const TensorMap &outputs, const struct ReferenceRun &reference);
  void checkPlain(CaseResult &result, const TensorMap &outputs, const TensorMap &tapped,
                  const struct ReferenceRun &reference);

  Compiler &compiler;
  const Source &source;
  Device &device;
  VerifyOptions options;
  attn::GraphOp graph;
  std::vector<Tap> tapList;
  std::vector<std::string> whyLess;
  Program plain, tapped;
  mlir::OwningOpRef<mlir::ModuleOp> tappedModule, kernelModule;
  std::vector<InputSpec> specs;
  TensorMap fixed; ///< inputs that are the same in every case, and caches
  std::vector<int64_t> cases;
  std::vector<std::string> named; ///< inputs that the user gave
  bool lengthIsNamed = false;     ///< the user gave the lengths as a tensor
  bool mustAppend = false;        ///< verify chooses a slot, so that some request is not idle
  int64_t bound = INT32_MAX;      ///< largest length
  std::unique_ptr<NvrtcKernels> nvrtcKernels;
  std::unique_ptr<DeviceReference> deviceReference; ///< null where only the CPU reference is used
  DeviceTensors unchanging;                         ///< inputs that are the same in every case
  Loaded plainLoaded{&plain}, tappedLoaded{&tapped};
};

} // namespace cfc
