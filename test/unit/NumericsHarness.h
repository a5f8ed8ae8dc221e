//===- NumericsHarness.h - Compiles graphs and runs them on the emulator ---===//
//
// For tests of numbers: a graph is compiled with a plan, launched with given
// tensors, and its answers are held against the float64 reference or against
// the bits of another plan.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/attn/Reference.h"
#include "tools/lib/Build.h"
#include "tools/lib/Compare.h"
#include "tools/lib/Session.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cfc::test {

/// An attention block: norm, projections, rope, append, attention, projection, residual.
struct Block {
  int64_t heads = 4, kvHeads = 4, dim = 32, hidden = 128;
  std::string act = "f16", weight = "f16", cache = "f16", gain = "f32";
  std::string table = "f32"; ///< or "generated"
  std::string style = "half_split";
  bool bias = false;
  int64_t vDim = 0;       ///< 0: dim
  int64_t capacity = 256; ///< of the lengths, and the positions of the table

  /// The graph's text. It returns the block's result with and without (`y`) the residual, the attention
  /// output `o` and its `lse`.
  std::string text() const;
  /// The loosest element type that takes part.
  DType coarsest() const;
};

/// A graph and what it wants to be given.
class Graph {
public:
  explicit Graph(const std::string &text);
  mlir::ModuleOp module() const { return *parsed; }
  attn::GraphOp op() const;
  Compiler &compiler() const { return *context; }
  /// Seeded data for every input. Caches have `capacity` tokens and NaN from token `length` on; length, slot
  /// and position are `length`.
  TensorMap inputs(uint64_t seed, int64_t length, int64_t capacity) const;
  /// What the reference says of these inputs. `outputs`: it takes the rows that a program has stored there.
  attn::ReferenceResult reference(const TensorMap &inputs, const TensorMap *outputs = nullptr) const;
  const std::vector<InputSpec> &specs() const { return inputList; }

private:
  std::unique_ptr<Compiler> context;
  mlir::OwningOpRef<mlir::ModuleOp> parsed;
  std::vector<InputSpec> inputList;
};

/// A graph compiled with one plan, on an emulator of its own.
class GraphRun {
public:
  /// `mutate` may change the module of simt.kernels before it is compiled.
  using Mutate = std::function<void(mlir::ModuleOp, const runtime::GraphSpec &)>;
  GraphRun(const Graph &graph, const std::string &plan, bool deterministic = true, const Mutate &mutate = {});
  /// Results and caches after a launch. Throws where the emulator finds a fault; fails the test where a guard
  /// zone was written.
  TensorMap launch(const TensorMap &inputs, uint64_t seed);
  /// The sticky status since the last call.
  uint32_t takeStatus() { return executable->takeStatus(); }
  const std::string &planText() const { return program.planText; }
  size_t numKernels() const { return program.graph.variants.front().kernels.size(); }
  /// CTAs in a cluster of each kernel.
  std::vector<unsigned> clusterSizes() const;
  /// The names of the results, in order.
  std::vector<std::string> results() const;

private:
  std::unique_ptr<Device> device;
  Program program;
  DeviceTensors tensors;
  std::unique_ptr<Executable> executable;
};

/// What of the last launch's outputs differs from the reference, or "": results and appended rows by
/// `tolerance` (f32 results are logarithms: their absolute error; stored f8: compareRounded, and results are
/// those of what was stored), the caches' other rows and the status, which is taken, by their bits.
std::string mismatch(const Graph &graph, GraphRun &run, const TensorMap &inputs, const TensorMap &outputs,
                     Tolerance tolerance);

/// The names of outputs whose bits differ, or "".
std::string differingBits(const TensorMap &ours, const TensorMap &theirs);

/// Changes seeded data so that almost everything cancels in every sum of a block: between the halves of the
/// columns, of the heads and of the `length` tokens. What is left shows the order of the sums, where a result
/// in 16 bits otherwise hides it. Goes by the names of Block's tensors.
void makeSensitive(TensorMap &inputs, int64_t length);

/// Sets every element.
void fill(Tensor &tensor, double value);
/// A tensor of integers with one element, as slots, lengths and positions are.
void setScalar(TensorMap &inputs, const std::string &name, int64_t value);

} // namespace cfc::test
