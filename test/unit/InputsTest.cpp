//===- InputsTest.cpp - --input and --weights -------------------------------===//
#include "tools/lib/Inputs.h"
#include "Scratch.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Npy.h"

using namespace cfc;

static const std::vector<InputSpec> specs = {
    {"x", DType::f16, DataRole::Activation, {1, 4}},
    {"w_q", DType::f16, DataRole::Weight, {8, 4}},
    {"cache", DType::f16, DataRole::Cache, {}, 2, 4},
    {"len", DType::i32, DataRole::Length, {1}, 0, 0, 64},
};

static TensorMap resolve(std::vector<std::string> inputs, std::string weights = "") {
  return resolveInputs(specs, {std::move(inputs), std::move(weights)}, {7, 5, 16});
}

static std::string save(const Scratch &scratch, const std::string &name, DType type,
                        std::vector<int64_t> shape) {
  Tensor t(type, shape);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set(i, double(i));
  return scratch.write(name, npyContent(t));
}

TEST_CASE("inputs: random data follows the request") {
  TensorMap all = resolve({});
  CHECK(all.size() == 5);
  CHECK(all.at("len").get(0) == 5);
  CHECK(all.at("cache.k").shape == std::vector<int64_t>{2, 16, 4});
  CHECK(all.at("cache.k").get(0) != all.at("cache.v").get(0));
  CHECK(resolve({"random:3"}).at("x").get(0) != all.at("x").get(0));
  CHECK(resolve({"random:7"}).at("x").get(0) == all.at("x").get(0));
}

TEST_CASE("inputs: files, caches and the rest random") {
  Scratch scratch;
  std::string x = save(scratch, "x.npy", DType::f16, {1, 4}),
              k = save(scratch, "k.npy", DType::f16, {2, 9, 4});
  TensorMap all = resolve({"x=" + x, "cache.k=" + k, "cache.v=" + k, "random"});
  CHECK(all.at("x").get(3) == 3);
  CHECK(all.at("cache.v").get(70) == 70);
}

TEST_CASE("inputs: bad ones are refused") {
  Scratch scratch;
  std::string x = save(scratch, "x.npy", DType::f16, {1, 4}),
              k = save(scratch, "k.npy", DType::f16, {2, 9, 4}),
              other = save(scratch, "other.npy", DType::f16, {2, 8, 4}),
              wide = save(scratch, "wide.npy", DType::f32, {1, 4}),
              flat = save(scratch, "flat.npy", DType::f16, {4}),
              len = save(scratch, "len.npy", DType::i64, {1});
  CHECK_FAILS(resolve({"w_k=" + x}), Exit::BadInput, "there is no tensor \"w_k\"; did you mean \"w_q\"?");
  CHECK_FAILS(resolve({"x=" + x, "x=" + x}), Exit::BadInput, "\"x\" is given twice");
  CHECK_FAILS(resolve({"x=" + x}), Exit::BadInput, "the tensor \"w_q\" (tensor<8x4xf16>) is missing");
  CHECK_FAILS(resolve({"x=" + wide}), Exit::BadInput,
              "wide.npy: error: \"x\" must be tensor<1x4xf16>; it is tensor<1x4xf32>; convert it: "
              "a.astype(numpy.float16)");
  CHECK_FAILS(resolve({"x=" + flat}), Exit::BadInput, "must be tensor<1x4xf16>; it is tensor<4xf16>");
  CHECK_FAILS(resolve({"len=" + len}), Exit::BadInput, "numpy.int32");
  CHECK_FAILS(resolve({"cache=" + k}), Exit::BadInput, "give its two tensors as cache.k and cache.v");
  CHECK_FAILS(resolve({"cache.k=" + x}), Exit::BadInput, "must have the shape [2 heads, tokens, 4]");
  CHECK_FAILS(resolve({"random", "cache.k=" + k, "cache.v=" + other}), Exit::BadInput,
              "the same number of tokens");
  CHECK_FAILS(resolve({"random", "cache.k=" + k}), Exit::BadInput, "\"cache.v\"");
  CHECK_FAILS(resolve({"x"}), Exit::BadInput, "expected NAME=FILE.npy");
  CHECK_FAILS(resolve({"=" + x}), Exit::BadInput, "expected NAME=FILE.npy");
  CHECK_FAILS(resolve({"x="}), Exit::BadInput, "expected NAME=FILE.npy");
  CHECK_FAILS(resolve({"x=random:abc"}), Exit::BadInput, "the seed must be an integer");
  CHECK_FAILS(resolve({"random", "random:1"}), Exit::BadInput, "given twice");
  CHECK_FAILS(resolve({"x=" + scratch.path("none.npy")}), Exit::BadInput, "no such file");
  CHECK_FAILS(resolve({"x=a.txt"}), Exit::BadInput, "must end in .npy or .safetensors");
}

TEST_CASE("inputs: weights by name") {
  Scratch scratch;
  std::string header = "{\"w_q\": {\"dtype\": \"F16\", \"shape\": [8, 4], \"data_offsets\": [0, 64]}}";
  auto file = [](const std::string &header, size_t bytes) {
    std::string size(8, '\0');
    size[0] = char(header.size());
    return size + header + std::string(bytes, '\0');
  };
  std::string path = scratch.write("w.safetensors", file(header, 64));
  CHECK(resolve({"random"}, path).at("w_q").get(0) == 0);
  CHECK(resolve({"random", "w_q=" + path + ":w_q"}).at("w_q").get(0) == 0);
  CHECK_FAILS(resolve({"random", "w_q=" + path + ":w_k"}), Exit::BadInput, "did you mean \"w_q\"?");
  CHECK_FAILS(resolve({}, path), Exit::BadInput, "the tensor \"x\"");
  header.replace(header.find("w_q"), 3, "v_q");
  path = scratch.write("v.safetensors", file(header, 64));
  CHECK_FAILS(resolve({"random"}, path), Exit::BadInput, "holds no tensor of this graph");
}

TEST_CASE("inputs: float32 files serve bf16 tensors where nothing is lost") {
  Scratch scratch;
  std::vector<InputSpec> one = {{"x", DType::bf16, DataRole::Activation, {1, 2}}};
  Tensor t(DType::f32, {1, 2});
  t.set(0, 1.5);
  t.set(1, -2);
  TensorMap all = resolveInputs(one, {{"x=" + scratch.write("x.npy", npyContent(t))}, ""}, {});
  CHECK(all.at("x").type == DType::bf16);
  CHECK(all.at("x").get(0) == 1.5);
  t.set(1, 1.0001);
  std::string path = scratch.write("x.npy", npyContent(t));
  CHECK_FAILS(resolveInputs(one, {{"x=" + path}, ""}, {}), Exit::BadInput, "save it as bfloat16");
}
