//===- NumericsHarness.cpp - Compiles graphs and runs them on the emulator -===//
#include "test/unit/NumericsHarness.h"
#include "dialects/attn/Attn.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Verify.h"
#include <catch2/catch.hpp>
#include <cstring>

using namespace cfc;
using namespace cfc::test;

//===-- Graphs --------------------------------------------------------------===//

std::string Block::text() const {
  std::string arguments, biases;
  auto argument = [&](const std::string &name, const std::string &type) {
    arguments += fmt::format("{}%{}: {}", arguments.empty() ? "" : ", ", name, type);
  };
  int64_t valueDim = vDim ? vDim : dim, q = heads * dim, kv = kvHeads * dim, o = heads * valueDim;
  int64_t values = kvHeads * valueDim;
  argument("x", fmt::format("tensor<1x{}x{}>", hidden, act));
  argument("gain", fmt::format("tensor<{}x{}>", hidden, gain));
  for (auto [name, rows] : {std::pair("w_q", q), {"w_k", kv}, {"w_v", values}})
    argument(name, fmt::format("tensor<{}x{}x{}>", rows, hidden, weight));
  argument("w_o", fmt::format("tensor<{}x{}x{}>", hidden, o, weight));
  if (bias) {
    for (auto [name, size] : {std::pair("b_q", q), {"b_k", kv}, {"b_v", values}})
      argument(name, fmt::format("tensor<{}x{}>", size, weight));
    biases = " bias [%b_q, %b_k, %b_v]";
  }
  bool generated = table == "generated";
  if (!generated)
    argument("table", fmt::format("tensor<{}x{}x{}>", capacity, dim, table));
  std::string ofV = valueDim == dim ? "" : fmt::format("v_dim = {}, ", valueDim);
  argument("cache", fmt::format("!attn.kv_cache<heads = {}, dim = {}, {}{}>", kvHeads, dim, ofV, cache));
  argument("pos", "tensor<1xi32>");
  argument("slot", "tensor<1xi64>");
  argument("len", fmt::format("!attn.lengths<1, capacity = {}>", capacity));
  return fmt::format(
      R"(attn.graph @block({0})
    -> (tensor<1x{1}x{2}>, tensor<1x{1}x{2}> {{attn.name = "y"}}, tensor<1x{3}x{2}> {{attn.name = "o"}}, tensor<1x{4}xf32> {{attn.name = "lse"}}) {{
  {5}
  %n = attn.rms_norm %x, %gain {{eps = 1.0e-5}}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]{6}
  %qr, %kr = attn.rope %q, %k, %table at %pos {{style = {7}}}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o, %lse = attn.attention %qr, %c, %len {{scale = {8}}}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z, %y, %o, %lse
}})",
      arguments, hidden, act, o, heads,
      generated
          ? fmt::format("%table = attn.rope_table {{base = 10000, dim = {}, positions = {}}}", dim, capacity)
          : "",
      biases, style, 1 / std::sqrt(double(dim)));
}

DType Block::coarsest() const {
  return act == "bf16" || weight == "bf16" || cache == "bf16" || table == "bf16" ? DType::bf16 : DType::f16;
}

static BuildOptions withPlan(const std::string &plan, bool deterministic) {
  BuildOptions options;
  options.plan = plan;
  options.deterministic = deterministic;
  return options;
}

Graph::Graph(const std::string &text) : context(std::make_unique<Compiler>()) {
  parsed = context->parse(text, "graph.mlir");
  REQUIRE(op());
  // The tensors are the same for every plan: one that is quickly made.
  std::unique_ptr<Device> device = makeEmulatorDevice();
  Program program = makeProgram(*context, module(), withPlan("random:0", true), *device);
  inputList = inputSpecs(module(), program.graph);
}

attn::GraphOp Graph::op() const {
  auto graphs = module().getOps<attn::GraphOp>();
  return graphs.empty() ? attn::GraphOp() : *graphs.begin();
}

TensorMap Graph::inputs(uint64_t seed, int64_t length, int64_t capacity) const {
  TensorMap tensors;
  for (const InputSpec &spec : inputList) {
    addRandom(tensors, spec, {seed, length, capacity});
    if (!spec.isCache())
      continue;
    for (const char *part : {".k", ".v"}) {
      Tensor &cache = tensors.at(spec.name + part);
      int64_t dim = cache.shape.back();
      if (cache.type == DType::f8E4M3FN) {
        for (int64_t head = 0; head < spec.heads; ++head)
          std::fill(cache.as<uint8_t>() + (head * capacity + length) * dim,
                    cache.as<uint8_t>() + (head + 1) * capacity * dim, uint8_t(0x7f));
        continue;
      }
      for (int64_t head = 0; head < spec.heads; ++head)
        std::fill(cache.as<uint16_t>() + (head * capacity + length) * dim,
                  cache.as<uint16_t>() + (head + 1) * capacity * dim, uint16_t(0x7ffb));
    }
  }
  return tensors;
}

/// Token `slot` of every head, head by head.
static Tensor rowOf(const Tensor &cache, int64_t slot);

attn::ReferenceResult Graph::reference(const TensorMap &inputs, const TensorMap *outputs) const {
  attn::ReferenceInputs given = referenceInputs(inputList, inputs);
  if (outputs)
    given.stored = [&](attn::AppendedRow &row) {
      for (auto [part, bytes] : {std::pair(".k", &row.kBytes), std::pair(".v", &row.vBytes)}) {
        if (row.slot < 0)
          continue;
        Tensor found = rowOf(outputs->at(row.cache + part), row.slot);
        std::memcpy(bytes->data(), found.data(), bytes->size());
      }
    };
  auto result = attn::evaluate(op(), given, 1);
  REQUIRE(mlir::succeeded(result));
  return std::move(*result);
}

//===-- Runs ----------------------------------------------------------------===//

GraphRun::GraphRun(const Graph &graph, const std::string &plan, bool deterministic, const Mutate &mutate)
    : device(makeEmulatorDevice()),
      program(makeProgram(graph.compiler(), graph.module(), withPlan(plan, deterministic), *device)),
      tensors(*device) {
  if (mutate)
    mutate(program.simt, program.graph);
}

TensorMap GraphRun::launch(const TensorMap &inputs, uint64_t seed) {
  INFO(planText());
  tensors.upload(inputs);
  if (!executable)
    executable = device->load(program.image());
  executable->bind(tensors.bindings(program.graph));
  tensors.poisonResults(program.graph);
  executable->launch(seed);
  auto broken = device->brokenGuard();
  CHECK_FALSE(broken);
  return tensors.outputs(program.graph);
}

std::vector<unsigned> GraphRun::clusterSizes() const {
  std::vector<unsigned> sizes;
  for (const runtime::KernelSpec &kernel : program.graph.variants.front().kernels)
    sizes.push_back(unsigned(kernel.cluster));
  return sizes;
}

std::vector<std::string> GraphRun::results() const {
  std::vector<std::string> names;
  for (const runtime::TensorSpec &spec : program.graph.tensors)
    if (spec.role == runtime::Role::Output)
      names.push_back(spec.name);
  return names;
}

//===-- Comparisons ---------------------------------------------------------===//

Tensor rowOf(const Tensor &cache, int64_t slot) {
  Tensor row(cache.type, {cache.shape[0], cache.shape[2]});
  size_t bytes = size_t(cache.shape[2]) * sizeOf(cache.type);
  for (int64_t head = 0; head < cache.shape[0]; ++head)
    std::memcpy(row.mutableData() + size_t(head) * bytes,
                cache.data() + size_t(head * cache.shape[1] + slot) * bytes, bytes);
  return row;
}

static void putRow(Tensor &cache, int64_t slot, const Tensor &row) {
  size_t bytes = size_t(cache.shape[2]) * sizeOf(cache.type);
  for (int64_t head = 0; head < cache.shape[0]; ++head)
    std::memcpy(cache.mutableData() + size_t(head * cache.shape[1] + slot) * bytes,
                row.data() + size_t(head) * bytes, bytes);
}

static Tensor copyOf(const Tensor &tensor) {
  Tensor copy(tensor.type, tensor.shape);
  std::memcpy(copy.mutableData(), tensor.data(), tensor.bytes());
  return copy;
}

static std::string describe(const std::string &what, const Comparison &c) {
  return fmt::format("{}: relative L2 {:.2e}, largest {:.2e}, at {} expected {}, found {}\n", what,
                     c.relativeL2, c.largest, c.worst, c.expected, c.found);
}

std::string cfc::test::mismatch(const Graph &graph, GraphRun &run, const TensorMap &inputs,
                                const TensorMap &outputs, Tolerance tolerance) {
  bool coarse = llvm::any_of(outputs, [](auto &one) { return one.second.type == DType::f8E4M3FN; });
  attn::ReferenceResult reference = graph.reference(inputs, coarse ? &outputs : nullptr);
  std::string text;
  for (auto [index, name] : llvm::enumerate(run.results())) {
    const Tensor &found = outputs.at(name);
    const std::vector<double> &expected = reference.results.at(index);
    // A logarithm near 0 has no relative error.
    Comparison c = found.type == DType::f32 ? compareLogs(expected, found, tolerance)
                                            : compare(expected, found, found.shape.back(), false, tolerance);
    if (!c.passed)
      text += describe(name, c);
  }
  TensorMap expected; // caches: as they were, with the rows that are appended
  for (const InputSpec &spec : graph.specs())
    if (spec.isCache())
      for (const char *part : {".k", ".v"})
        if (outputs.count(spec.name + part))
          expected.emplace(spec.name + part, copyOf(inputs.at(spec.name + part)));
  for (const attn::AppendedRow &row : reference.appended) {
    if (row.slot < 0)
      continue;
    for (auto [part, values] : {std::pair(".k", &row.k), {".v", &row.v}}) {
      std::string name = row.cache + part;
      Tensor found = rowOf(outputs.at(name), row.slot);
      Comparison c = coarse ? compareRounded(*values, found, found.shape[1], tolerance)
                            : compare(*values, found, found.shape[1], false, tolerance);
      if (!c.passed)
        text += describe(fmt::format("{} row {}", name, row.slot), c);
      putRow(expected.at(name), row.slot, found);
    }
  }
  for (auto &[name, cache] : expected)
    if (std::memcmp(cache.data(), outputs.at(name).data(), cache.bytes()) != 0)
      text += name + ": a row changed that nothing should write\n";
  if (uint32_t status = run.takeStatus(); status != reference.status)
    text += fmt::format("status is {}, should be {}\n", status, reference.status);
  return text;
}

std::string cfc::test::differingBits(const TensorMap &ours, const TensorMap &theirs) {
  std::string text;
  for (auto &[name, tensor] : ours) {
    const Tensor &other = theirs.at(name);
    REQUIRE(tensor.bytes() == other.bytes());
    if (std::memcmp(tensor.data(), other.data(), tensor.bytes()) != 0)
      text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

namespace {
/// Rows of 16-bit or f32 elements, one half made of the other.
struct Halves {
  Tensor &tensor;
  int64_t elements = tensor.elements();

  /// Within each block of `size` elements the second half becomes the first, negated or not. One in eight
  /// elements is off by one unit in its last place if `nudge`.
  void mirror(int64_t size, bool negate, bool nudge = false) {
    for (int64_t block = 0; block + size <= elements; block += size)
      for (int64_t i = 0; i < size / 2; ++i) {
        int64_t to = block + (size + 1) / 2 + i;
        double value = tensor.get(block + i);
        tensor.set(to, negate ? -value : value);
        if (nudge && (to * 2654435761u >> 7) % 8 == 0)
          ++tensor.as<uint16_t>()[to];
      }
  }
  void scale(double factor) {
    for (int64_t i = 0; i < elements; ++i)
      tensor.set(i, tensor.get(i) * factor);
  }
};
} // namespace

void cfc::test::makeSensitive(TensorMap &inputs, int64_t length) {
  for (auto &[name, tensor] : inputs) {
    Halves halves{tensor};
    int64_t last = tensor.shape.back();
    bool negate = name == "x" || name == "w_v" || name == "b_v" || name == "cache.v";
    if (name.starts_with("w_")) {
      halves.scale(512);
      halves.mirror(last, false, /*nudge=*/true);
    }
    if (name.starts_with("cache.")) { // [heads, tokens, dim]
      for (int64_t head = 0; head < tensor.shape[0]; ++head)
        for (int64_t token = 0; token < length / 2; ++token)
          for (int64_t d = 0; d < last; ++d) {
            int64_t from = (head * tensor.shape[1] + token) * last + d, to = from + (length + 1) / 2 * last;
            tensor.set(to, negate ? -tensor.get(from) : tensor.get(from));
            if (negate && (to * 2654435761u >> 7) % 8 == 0)
              ++tensor.as<uint16_t>()[to];
          }
      halves.mirror(halves.elements, negate);
    } else if (name != "w_o" && (name.starts_with("w_") || name.starts_with("b_") || name == "x" ||
                                 name == "q" || name == "gain")) {
      halves.mirror(halves.elements, negate);
    }
  }
}

void cfc::test::fill(Tensor &tensor, double value) {
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, value);
}

void cfc::test::setScalar(TensorMap &inputs, const std::string &name, int64_t value) {
  Tensor &tensor = inputs.at(name);
  if (tensor.type == DType::i64)
    *tensor.as<int64_t>() = value;
  else
    *tensor.as<int32_t>() = int32_t(value);
}
