//===- DeviceReferenceTest.cpp - The kernels of templates/device ------------===//
//
// Both the reference kernels and the unfused chain run on the host here, and
// are compared with the float64 reference on random inputs. With a GPU and
// NVRTC, `DeviceReferenceTest "[gpu]"` does the same there, at full size too.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/DeviceReference.h"
#include "HostKernels.h"
#include "compiler/lower/AttnToKernel.h"
#include "tools/lib/BaselineChain.h"
#include "tools/lib/Build.h"
#include "tools/lib/DeviceSources.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Verify.h"
#include <catch2/catch.hpp>
#include <cstring>

using namespace cfc;
using Catch::Contains;

namespace {
/// Where a token is appended and what is attended.
struct Case {
  int64_t length, slot, position;
};

runtime::Role roleOf(const std::string &name) {
  return name == "weight"   ? runtime::Role::Weight
         : name == "inout"  ? runtime::Role::InOut
         : name == "output" ? runtime::Role::Output
                            : runtime::Role::Input;
}

/// The tensors of a graph as its program would bind them. Nothing is compiled: references take more than the
/// compiler does.
runtime::GraphSpec signatureOf(attn::GraphOp graph) {
  runtime::GraphSpec signature;
  for (const TensorInfo &info : tensorsOf(graph)) {
    runtime::TensorSpec &spec = signature.tensors.emplace_back();
    spec.name = info.name;
    spec.role = roleOf(info.role);
    spec.dtype = *runtime::dtypeFromName(elementName(attn::elementKind(info.element)));
    spec.shape.assign(info.shape.begin(), info.shape.end());
    if (info.kind != "kv_cache")
      continue;
    spec.kind = runtime::TensorKind::KvCache;
    spec.heads = info.heads;
    spec.dim = info.dim;
    spec.vDim = info.vDim;
    spec.requests = info.requests;
    spec.page = info.page;
    spec.pages = info.pages;
  }
  return signature;
}

/// A graph with inputs in the host's memory.
class Example {
public:
  /// A graph of templates/graphs, or another one by its text. Its tensors are on `where`; null: in host
  /// memory.
  explicit Example(const std::string &name, const char *text = nullptr, Device *where = nullptr)
      : source(text ? ofText(text) : readSource(compiler, CFC_GRAPHS "/" + name + ".mlir")),
        device(where ? where : emulator.get()) {
    for (const runtime::TensorSpec &tensor : signature.tensors)
      hasCache |= tensor.kind == runtime::TensorKind::KvCache;
  }

  attn::GraphOp graph() { return source.graph(); }

  void set(Case c) {
    inputs = resolveInputs(specs, {}, {7, std::max<int64_t>(c.length, 0), capacity});
    for (const InputSpec &spec : specs) {
      int64_t value = spec.role == DataRole::Length     ? c.length
                      : spec.role == DataRole::Slot     ? c.slot
                      : spec.role == DataRole::Position ? c.position
                                                        : INT64_MIN;
      if (value == INT64_MIN)
        continue;
      Tensor tensor(spec.type, spec.shape);
      for (int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, double(value));
      inputs[spec.name] = tensor;
    }
    tensors.upload(inputs);
  }
  std::vector<cfc_tensor> bindings() { return tensors.bindings(signature); }
  TensorMap outputs() { return tensors.outputs(signature); }
  void poisonResults() { tensors.poisonResults(signature); }

  attn::ReferenceResult expected(const std::function<void(attn::AppendedRow &)> &stored = {}) {
    attn::ReferenceInputs given = referenceInputs(specs, inputs);
    given.stored = stored;
    auto result = attn::evaluate(graph(), given, 1);
    REQUIRE(mlir::succeeded(result));
    return std::move(*result);
  }

  int64_t capacity = 150; ///< tokens that caches have room for
  Compiler compiler;
  Source source;
  std::unique_ptr<Device> emulator = makeEmulatorDevice();
  runtime::GraphSpec signature = signatureOf(graph());
  std::vector<InputSpec> specs = inputSpecs(*source.module, signature);
  TensorMap inputs;
  Device *device;
  DeviceTensors tensors{*device};
  bool hasCache = false;

private:
  Source ofText(const char *text) {
    Source made;
    made.path = "example.mlir";
    made.text = text;
    made.module = compiler.parse(text, made.path);
    return made;
  }
};

void checkClose(const std::vector<double> &found, const std::vector<double> &expected) {
  Tensor values(DType::f64, {int64_t(found.size())});
  std::copy(found.begin(), found.end(), values.as<double>());
  Comparison c = compare(expected, values, int64_t(expected.size()), false, {1e-12, 1e-11});
  INFO("relative L2 " << c.relativeL2 << ", largest " << c.largest << " at " << c.worst << ": expected "
                      << c.expected << ", found " << c.found);
  CHECK(c.passed);
}

void checkReference(Example &example, DeviceKernels &kernels) {
  attn::ReferenceResult expected = example.expected();
  DeviceReference reference(*example.device, kernels, example.graph());
  std::vector<cfc_tensor> bindings = example.bindings();
  example.poisonResults();
  TensorMap before = example.outputs();
  attn::ReferenceResult found = reference.evaluate(bindings);
  for (auto &[value, numbers] : found.values) {
    INFO("%" << attn::getValueName(value));
    checkClose(numbers, expected.values.find(value)->second);
  }
  REQUIRE(found.results.size() == expected.results.size());
  for (size_t i = 0; i < found.results.size(); ++i)
    checkClose(found.results[i], expected.results[i]);
  REQUIRE(found.appended.size() == expected.appended.size());
  for (size_t i = 0; i < found.appended.size(); ++i) {
    CHECK(found.appended[i].slot == expected.appended[i].slot);
    CHECK(found.appended[i].cache == expected.appended[i].cache);
    checkClose(found.appended[i].k, expected.appended[i].k);
    CHECK(found.appended[i].kBytes == expected.appended[i].kBytes);
    CHECK(found.appended[i].vBytes == expected.appended[i].vBytes);
  }
  CHECK(found.status == expected.status);
  CHECK(!example.device->brokenGuard());
  // It leaves the caller's tensors alone.
  for (auto &[name, tensor] : example.outputs())
    CHECK(std::memcmp(tensor.data(), before.at(name).data(), tensor.bytes()) == 0);
}

/// What the chain wrote, with limits for a chain of rounded values.
void checkChain(Example &example, DeviceKernels &kernels, int64_t tunedLength, int sms) {
  attn::ReferenceResult expected = example.expected();
  BaselineChain chain(example.graph(), kernels, tunedLength, sms);
  auto workspace =
      reinterpret_cast<void *>(example.device->allocate(chain.workspaceBytes() + 1, 256, "workspace"));
  std::vector<cfc_tensor> bindings = example.bindings();
  example.poisonResults();
  TensorMap before = example.outputs();
  chain.launch(bindings, workspace, nullptr);
  kernels.wait(nullptr);
  TensorMap after = example.outputs();
  auto values = example.graph().getReturn().getValues();
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor &found = after.at(example.graph().getResultName(unsigned(i)));
    Tolerance limit = toleranceFor(coarsestType(values[i]));
    Comparison r = isLogSumExp(values[i])
                       ? compareLogs(expected.results[i], found, limit)
                       : compare(expected.results[i], found, found.shape.back(), false, limit);
    INFO("result " << i << ": relative L2 " << r.relativeL2 << ", largest " << r.largest);
    CHECK(r.passed);
  }
  for (const attn::AppendedRow &row : expected.appended)
    for (auto [part, numbers] : {std::pair(".k", &row.k), std::pair(".v", &row.v)}) {
      const Tensor &old = before.at(row.cache + part), &now = after.at(row.cache + part);
      int64_t dim = now.shape[2];
      double worst = 0;
      int64_t foreign = 0;
      for (int64_t i = 0; i < now.elements(); ++i) {
        int64_t head = i / dim / now.shape[1], token = i / dim % now.shape[1];
        if (token != row.slot)
          foreign += now.as<uint16_t>()[i] != old.as<uint16_t>()[i];
        else
          worst = std::max(worst, std::abs(now.get(i) - (*numbers)[size_t(head * dim + i % dim)]));
      }
      CHECK(foreign == 0);
      CHECK(worst < toleranceFor(now.type).element * 2);
    }
  CHECK(!example.device->brokenGuard());
}

const char *graphs[] = {"attention_only",       "gqa_small",       "linear",
                        "norm_linear",          "no_residual",     "q_second_user",
                        "returns_intermediate", "small_attention", "two_blocks"};

/// Head dimension 80, mixed types, outputs that are no multiple of a block's, an append whose K is an
/// argument.
const char *oddText = R"(
attn.graph @odd(%x: tensor<1x88xbf16>, %gain: tensor<88xbf16>, %w: tensor<328x88xbf16>, %w2: tensor<320x88xbf16>,
    %bias: tensor<328xf16>, %bias2: tensor<320xbf16>, %k: tensor<1x160xf16>, %v: tensor<1x160xbf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 80, bf16>, %slot: tensor<1xi64>,
    %len: !attn.lengths<1, capacity = 150>) -> (tensor<1x328xbf16>, tensor<1x320xbf16>, tensor<1x4xf32>) {
  %n = attn.rms_norm %x, %gain {eps = 0.5}
  %a, %q = attn.linear %n, [%w, %w2] bias [%bias, %bias2]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o, %lse = attn.attention %q, %c, %len {scale = 0.1}
  attn.return %a, %o, %lse
})";
} // namespace

TEST_CASE("every operation of the dialect has a kernel") {
  Compiler compiler;
  compiler.context().loadDialect<attn::AttnDialect>();
  int count = 0;
  for (mlir::RegisteredOperationName op : compiler.context().getRegisteredOperations()) {
    llvm::StringRef name = op.getStringRef();
    if (!name.consume_front("attn.") || name == "graph" || name == "return" || name == "at" ||
        name == "yield")
      continue;
    INFO(name.str());
    ++count;
    const DeviceSource *source = findDeviceSource(name.str() + ".cu");
    REQUIRE(source);
    CHECK_THAT(std::string(source->text), Contains("extern \"C\" __global__ void " + name.str()));
  }
  CHECK(count >= 7);
}

TEST_CASE("the reference's kernels agree with the float64 reference") {
  HostKernels kernels;
  for (const char *name : graphs) {
    Example example(name);
    std::vector<Case> cases = {{0, 0, 0}, {37, 39, 40}, {130, 130, 131}};
    if (!example.hasCache)
      cases.resize(1);
    for (const Case &c : cases) {
      INFO(name << ", length " << c.length);
      example.set(c);
      checkReference(example, kernels);
    }
  }
}

TEST_CASE("what is out of bound or idle is the same in both references") {
  HostKernels kernels;
  Example example("small_attention");
  for (const Case &c : {Case{5, -1, 5}, Case{100000, 7, 7}, Case{-3, 7, 7}, Case{5, 150, 5}, Case{5, -2, 5},
                        Case{5, int64_t(1) << 40, 5}, Case{5, 6, -1}, Case{5, 6, 256}}) {
    INFO("length " << c.length << ", slot " << c.slot << ", position " << c.position);
    example.set(c);
    checkReference(example, kernels);
  }
}

TEST_CASE("the unfused chain computes what the graph says") {
  HostKernels kernels;
  for (const char *name : graphs) {
    Example example(name);
    std::vector<Case> cases = {{0, 0, 0}, {130, 131, 132}};
    if (!example.hasCache)
      cases.resize(1);
    for (const Case &c : cases)
      for (int sms : {1, 132}) {
        INFO(name << ", length " << c.length << ", tuned for " << sms << " SMs");
        example.set(c);
        checkChain(example, kernels, 130, sms);
      }
  }
}

TEST_CASE("head dimensions, types and sizes that are not round") {
  HostKernels kernels;
  Example example("odd", oddText);
  for (const Case &c : {Case{0, 0, 0}, Case{65, 66, 0}, Case{130, 140, 0}, Case{5, -1, 0}}) {
    INFO("length " << c.length << ", slot " << c.slot);
    example.set(c);
    checkReference(example, kernels);
    checkChain(example, kernels, c.length, 132);
  }
}

namespace {
/// Five requests; `page` and `pages` are text of the cache's type and of the attention.
std::string batchText(const std::string &page, const std::string &pages) {
  return "attn.graph @batch(%q: tensor<5x96xf16>, %k: tensor<5x32xf16>, %v: tensor<5x48xbf16>, %slot: "
         "tensor<5xi64>,\n"
         "    %cache: !attn.kv_cache<heads = 2, dim = 16, v_dim = 24" +
         page +
         ", bf16>, %t: tensor<5x10xi32>,\n"
         "    %len: !attn.lengths<5, capacity = 40>) -> (tensor<5x144xf16>, tensor<5x6xf32>) {\n"
         "  %c = attn.kv_append %cache, %k, %v at %slot\n"
         "  %o, %lse = attn.attention %q, %c, %len" +
         pages + " {scale = 0.3}\n  attn.return %o, %lse\n}";
}

void setNumbers(Example &example, const std::string &name, const std::vector<double> &numbers) {
  Tensor &old = example.inputs.at(name), tensor(old.type, old.shape);
  for (size_t i = 0; i < numbers.size(); ++i)
    tensor.set(int64_t(i), numbers[i]);
  old = tensor;
}
} // namespace

TEST_CASE("requests, pages and another dim of V are the same in both references") {
  HostKernels kernels;
  for (bool isPaged : {false, true}) {
    INFO((isPaged ? "pages of 4" : "contiguous"));
    Example example("batch", batchText(isPaged ? ", page = 4" : "", isPaged ? " pages %t" : "").c_str());
    example.capacity = 30;
    example.set({29, 29, 0});
    Tensor slots = example.inputs.at("slot");
    checkReference(example, kernels); // all at 29
    setNumbers(example, "len", {29, 0, 17, 5, 8});
    setNumbers(example, "slot", {slots.get(0), slots.get(1), -1, slots.get(3), 100000});
    example.tensors.upload(example.inputs);
    checkReference(example, kernels);
    CHECK(example.expected().status == attn::SlotOutOfBound);
    if (!isPaged)
      continue;
    Tensor &table = example.inputs.at("t");
    std::vector<double> entries;
    for (int64_t i = 0; i < table.elements(); ++i)
      entries.push_back(i == 2 ? -9 : i == 31 ? 1e6 : table.get(i));
    setNumbers(example, "t", entries);
    example.tensors.upload(example.inputs);
    checkReference(example, kernels);
    CHECK(example.expected().status == (attn::SlotOutOfBound | attn::PageOutOfBound));
  }
}

TEST_CASE("query tokens, trees of them and their bounds are the same in both references") {
  HostKernels kernels;
  for (std::string page : {"", ", page = 4"})
    for (bool isStored : {false, true}) {
      INFO("page '" << page << "'" << (isStored ? ", stored" : ""));
      std::string text =
          "attn.graph @queries(%q: tensor<9x64xf16>, %k: tensor<9x32xf16>, %v: tensor<9x32xf16>, %slot: "
          "tensor<9xi64>,\n"
          "    %cache: !attn.kv_cache<heads = 2, dim = 16" +
          page +
          ", f16>, %t: tensor<3x20xi32>, %starts: tensor<4xi32>, %mask: tensor<9xi64>,\n"
          "    %len: !attn.lengths<3, capacity = 60>) -> (tensor<9x64xf16>, tensor<9x4xf32>, "
          "tensor<9x64xf16>) {\n" +
          (isStored ? "" : "  %c = attn.kv_append %cache, %k, %v at %slot queries %starts\n") +
          "  %o, %lse = attn.attention %q, " + (isStored ? "%cache" : "%c") + ", %len" +
          (page.empty() ? "" : " pages %t") + " queries %starts mask %mask {scale = 0.3}\n" +
          "  %p = attn.attention %q, " + (isStored ? "%cache" : "%c") + ", %len" +
          (page.empty() ? "" : " pages %t") +
          " queries %starts {scale = 0.3, window = 7} bias(%h, %i, %j) {\n"
          "    %d = arith.subi %j, %i : index\n    %n = arith.index_cast %d : index to i32\n"
          "    %f = arith.sitofp %n : i32 to f32\n    attn.yield %f\n  }\n  attn.return %o, %lse, %p\n}";
      Example example("queries", text.c_str());
      example.inputs = resolveInputs(example.specs, {}, {7, 12, 60});
      example.tensors.upload(example.inputs);
      checkReference(example, kernels);
      CHECK(example.expected().status == 0);
      setNumbers(example, "starts", {1, 5, 4, 11});
      setNumbers(example, "len", {2, 0, 40});
      example.tensors.upload(example.inputs);
      checkReference(example, kernels);
      CHECK((example.expected().status & attn::QueryOutOfBound));
    }
}

namespace {
/// All that an operation of a graph may be told, on three requests.
const char *variantsText = R"(
attn.graph @variants(%x: tensor<3x96xf16>, %gain: tensor<24xf32>, %wide: tensor<96xbf16>, %bias: tensor<96xf16>,
    %k: tensor<3x48xf16>, %v: tensor<3x48xf16>, %cache: !attn.kv_cache<heads = 2, dim = 24, page = 8, f8E4M3FN>,
    %pos: tensor<3xi32>, %slot: tensor<3xi64>, %pages: tensor<3x20xi32>, %len: !attn.lengths<3, capacity = 150>,
    %sinks: tensor<4xbf16>, %ks: tensor<2xf32>, %vs: tensor<1xf32>, %slopes: tensor<4xf32>)
    -> (tensor<3x96xf16>, tensor<3x4xf32>, tensor<3x96xf16>) {
  %a = attn.rms_norm %x, %gain {eps = 0.5, offset = 1}
  %b = attn.layer_norm %a {eps = 0.5}
  %c = attn.layer_norm %b, %wide {eps = 0.5}
  %d = attn.layer_norm %c, %wide, %bias {eps = 0.5}
  %linear = attn.rope_table {base = 10000, dim = 16, positions = 256, scaling = linear, factor = 2}
  %llama3 = attn.rope_table {base = 500000, dim = 16, positions = 256, scaling = llama3, factor = 8,
    original_positions = 64, low_freq_factor = 1, high_freq_factor = 4}
  %yarn = attn.rope_table {base = 150000, dim = 16, positions = 256, scaling = yarn, factor = 32, original_positions = 64}
  %exact = attn.rope_table {base = 150000, dim = 16, positions = 256, scaling = yarn, factor = 32,
    original_positions = 64, truncate = false, beta_fast = 16, beta_slow = 2, attention_factor = 1.5}
  %q0 = attn.rope %d, %linear at %pos {style = half_split, head_dim = 24}
  %q1 = attn.rope %q0, %llama3 at %pos {style = interleaved, head_dim = 24}
  %q2 = attn.rope %q1, %exact at %pos {style = interleaved, head_dim = 24}
  %q, %kr = attn.rope %q2, %k, %yarn at %pos {style = half_split, head_dim = 24}
  %e = attn.kv_append %cache, %kr, %v at %slot scales %ks, %vs
  %o, %lse = attn.attention %q, %e, %len pages %pages sinks %sinks scales %ks, %vs
      {scale = 0.25, window = 70, softcap = 3} bias(%h, %i, %j) {
    %slope = attn.at %slopes[%h]
    %distance = arith.subi %j, %i : index
    %narrow = arith.index_cast %distance : index to i32
    %f = arith.sitofp %narrow : i32 to f32
    %y = arith.mulf %slope, %f : f32
    %thirty = arith.constant 30 : i32
    %far = arith.constant -1.0 : f32
    %isFar = arith.cmpi slt, %narrow, %thirty : i32
    %z = arith.select %isFar, %y, %far : f32
    attn.yield %z
  }
  attn.return %o, %lse, %d
})";
} // namespace

TEST_CASE("every option of an operation is the same in both references") {
  HostKernels kernels;
  Example example("variants", variantsText);
  for (const Case &c : {Case{0, 0, 0}, Case{69, 69, 70}, Case{130, 130, 200}}) {
    INFO("length " << c.length);
    example.set(c);
    checkReference(example, kernels);
  }
}

TEST_CASE("both references take the rows that a program has stored") {
  HostKernels kernels;
  Example example("variants", variantsText);
  example.set({69, 69, 70});
  attn::ReferenceResult own = example.expected();
  attn::ReferenceResult first = example.expected([](attn::AppendedRow &row) {
    row.kBytes[0] ^= 0x83; // another sign, and mantissa
    row.vBytes[5] ^= 0x82;
  });
  DeviceReference reference(*example.device, kernels, example.graph());
  attn::ReferenceResult second = reference.evaluate(example.bindings(), first.appended);
  checkClose(second.results[0], first.results[0]);
  CHECK(second.results[0] != own.results[0]);
  CHECK(second.appended[0].kBytes == first.appended[0].kBytes);
}

namespace {
/// A reference that is wrong: its kernels' parameters are changed.
class WrongKernels : public HostKernels {
public:
  using Change = std::function<void(const DeviceKernel &, void *parameter)>;
  explicit WrongKernels(Change change) : change(std::move(change)) {}
  void launch(const DeviceKernel &kernel, LaunchShape shape, const void *parameter,
              CUstream stream) override {
    change(kernel, const_cast<void *>(parameter));
    HostKernels::launch(kernel, shape, parameter, stream);
  }

private:
  Change change;
};

CaseResult verifySmall(DeviceKernels &kernels, const std::string &weights = "") {
  Compiler compiler;
  Source source = readSource(compiler, CFC_GRAPHS "/small_attention.mlir");
  std::unique_ptr<Device> device = makeEmulatorDevice();
  VerifyOptions options;
  options.lengths = {5};
  options.lengthsGiven = true;
  options.referenceKernels = &kernels;
  options.build.weightLayout = weights;
  return Verifier(compiler, source, *device, options).check(0);
}
} // namespace

TEST_CASE("verify compares with both references") {
  HostKernels kernels;
  CaseResult result = verifySmall(kernels);
  CHECK(result.passed());
  CHECK(result.notes.empty());
  REQUIRE(result.checks.size() >= 5);
  for (const Check &check : result.checks) {
    INFO(check.name);
    REQUIRE(check.second);
    CHECK(check.second->comparison.relativeL2 == Approx(check.comparison.relativeL2).epsilon(1e-6));
    CHECK(check.second->between < 1e-12);
  }
}

TEST_CASE("both references read native weights where the program reads packed ones") {
  HostKernels kernels;
  CaseResult result = verifySmall(kernels, "packed");
  CHECK(result.passed());
  CHECK(result.notes.empty());
}

TEST_CASE("verify fails where the references disagree, though the program is close to both") {
  WrongKernels kernels([](const DeviceKernel &kernel, void *parameter) {
    if (kernel.name == "rms_norm")
      static_cast<cfc_reference::RmsNorm *>(parameter)->eps *= 1.1; // 5e-7 of the result
  });
  CaseResult result = verifySmall(kernels);
  CHECK(!result.passed());
  REQUIRE(!result.checks.empty());
  const Check &check = result.checks.front();
  CHECK(check.comparison.passed);
  CHECK(check.second->comparison.passed);
  CHECK(!check.second->agree);
  CHECK(!check.passed());
}

TEST_CASE("verify fails where a reference rounds wrongly or sees another slot") {
  WrongKernels rounding([](const DeviceKernel &kernel, void *parameter) {
    if (kernel.name == "kv_append")
      static_cast<cfc_reference::KvAppend *>(parameter)->cacheKind = 1; // bf16 in place of f16
  });
  CaseResult result = verifySmall(rounding);
  REQUIRE(!result.faults.empty());
  CHECK_THAT(result.faults[0], Contains("rounded differently by the references"));
  WrongKernels status([](const DeviceKernel &kernel, void *parameter) {
    if (kernel.name == "rope")
      static_cast<cfc_reference::Rope *>(parameter)->positions = 3;
  });
  result = verifySmall(status);
  REQUIRE(!result.faults.empty());
  CHECK_THAT(result.faults[0], Contains("disagree on what is out of bound: nothing and position"));
}

TEST_CASE("a block's chain has one launch for each operation") {
  Example example("small_attention");
  HostKernels kernels;
  BaselineChain chain(example.graph(), kernels, 1024, 132);
  CHECK(kernels.launched.empty());
  CHECK(chain.launches() == 7);
  CHECK(chain.kernelNames() == std::vector<std::string>{"fast_rms_norm", "fast_linear", "fast_rope_append",
                                                        "fast_attention", "fast_attention_merge",
                                                        "fast_linear", "fast_add"});
}

TEST_CASE("what the chain does not take is refused") {
  Compiler compiler;
  HostKernels kernels;
  auto refuse = [&](const std::string &text) -> std::string {
    auto module = compiler.parse(text, "g.mlir");
    try {
      BaselineChain(*module->getOps<attn::GraphOp>().begin(), kernels, 0, 132);
    } catch (const Failure &failure) {
      CHECK(failure.code == Exit::CannotRun);
      return failure.what();
    }
    return "";
  };
  CHECK_THAT(refuse("attn.graph @g(%a: tensor<2x8xf16>, %b: tensor<2x8xf16>) -> tensor<2x8xf16> {\n"
                    "  %c = attn.add %a, %b {scale = 0.22}\n  attn.return %c\n}"),
             Contains("one request, not 2"));
  CHECK_THAT(refuse("attn.graph @g(%q: tensor<1x12xf16>, %c: !attn.kv_cache<heads = 1, dim = 12, f16>,\n"
                    "    %len: !attn.lengths<1, capacity = 8>) -> tensor<1x12xf16> {\n"
                    "  %o = attn.attention %q, %c, %len {scale = 1.0}\n  attn.return %o\n}"),
             Contains("multiples of 8 up to 256, not 12"));
}

// Hidden: it needs a GPU and NVRTC.
TEST_CASE("the kernels on a GPU", "[.gpu]") {
  std::unique_ptr<Device> gpu = makeGpuDevice();
  NvrtcKernels kernels;
  WARN(gpu->describe() << ", NVRTC " << kernels.compiler().version());
  std::vector<std::string> names(std::begin(graphs), std::end(graphs));
  names.insert(names.end(), {"llama2_7b_attention", "llama2_7b_attention_bf16", "llama3_8b_attention"});
  for (const std::string &name : names) {
    Example example(name, nullptr, gpu.get());
    bool isLarge = name.starts_with("llama");
    if (isLarge)
      example.capacity = 2050;
    for (const Case &c : {Case{0, 0, 0}, isLarge ? Case{2047, 2049, 2048} : Case{130, 131, 132}}) {
      INFO(name << ", length " << c.length);
      example.set(c);
      checkReference(example, kernels);
      checkChain(example, kernels, c.length, 132);
    }
  }
  Example example("odd", oddText, gpu.get());
  for (const Case &c : {Case{65, 66, 0}, Case{5, -1, 0}, Case{100000, 7, 7}, Case{5, int64_t(1) << 40, 0}}) {
    INFO("odd, length " << c.length << ", slot " << c.slot);
    example.set(c);
    checkReference(example, kernels);
    // A slot below the length: the chain may attend the new row in place of the old one.
    if (c.length < example.capacity)
      checkChain(example, kernels, 65, 132);
  }
}
