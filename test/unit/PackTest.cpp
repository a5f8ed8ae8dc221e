//===- PackTest.cpp - Packed checkpoints ------------------------------------===//
#include "tools/lib/Pack.h"
#include "Scratch.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Inputs.h"
#include <cstring>

using namespace cfc;
using runtime::PackedLayout;

namespace {
const PackedLayout kPlain{128, 64, 0}, kGrouped{70, 160, 80};

std::string entry(const std::string &key, const std::string &dtype, const std::string &shape, uint64_t begin,
                  uint64_t end) {
  return fmt::format("\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", key, dtype, shape,
                     begin, end);
}

std::string file(const std::string &header, const std::string &data) {
  std::string content;
  for (int i = 0; i < 8; ++i)
    content += char(header.size() >> 8 * i);
  return content + header + data;
}

/// Elements that all differ.
std::string dataOf(uint64_t bytes, unsigned first) {
  std::string data;
  for (uint64_t i = 0; i < bytes / 2; ++i) {
    uint16_t element = uint16_t(first + i);
    data.append(reinterpret_cast<const char *>(&element), 2);
  }
  return data;
}

/// plain [128, 64] f16, grouped [70, 160] bf16, and two tensors that nothing packs.
std::string nativeFile() {
  uint64_t plain = kPlain.nativeBytes(), grouped = plain + kGrouped.nativeBytes();
  return file("{\"__metadata__\":{\"format\":\"pt\"}," + entry("odd", "BOOL", "[3]", 0, 3) + "," +
                  entry("plain", "F16", "[128,64]", 3, 3 + plain) + "," +
                  entry("grouped", "BF16", "[70,160]", 3 + plain, 3 + grouped) + "," +
                  entry("norm", "F32", "[2]", 3 + grouped, 11 + grouped) + "}",
              "abc" + dataOf(plain, 1) + dataOf(grouped - plain, 2) + "normnorm");
}

const std::vector<Repacking> kPack = {{"plain", kPlain}, {"grouped", kGrouped}};
const std::vector<Repacking> kUnpack = {{"plain", std::nullopt}, {"grouped", std::nullopt}};

void write(const std::string &path, const std::string &from, const std::vector<Repacking> &repackings) {
  Checkpoint checkpoint(from);
  writeRepacked(path, checkpoint, repackings, [](const std::string &, uint64_t, uint64_t) {});
}

bool sameBytes(const Tensor &a, const Tensor &b) {
  return a.type == b.type && a.shape == b.shape && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

InputSpec weight(const std::string &name, DType type, std::vector<int64_t> shape) {
  InputSpec spec;
  spec.name = name;
  spec.type = type;
  spec.role = DataRole::Weight;
  spec.shape = std::move(shape);
  return spec;
}
} // namespace

TEST_CASE("packed checkpoints: there and back") {
  Scratch scratch;
  std::string native = scratch.write("native.safetensors", nativeFile());
  write(scratch.path("packed.safetensors"), native, kPack);
  write(scratch.path("back.safetensors"), scratch.path("packed.safetensors"), kUnpack);

  SafetensorsFile before(native), packed(scratch.path("packed.safetensors")),
      back(scratch.path("back.safetensors"));
  CHECK(packed.keys() == before.keys());
  CHECK(packed.packedLayout("plain") == kPlain);
  CHECK(packed.packedLayout("grouped") == kGrouped);
  CHECK_FALSE(packed.packedLayout("norm"));
  CHECK(packed.stored("odd").bytes == "abc");
  CHECK(packed.stored("norm").bytes == "normnorm");
  CHECK(packed.metadata() == before.metadata());
  for (auto [key, layout] : {std::pair("plain", kPlain), std::pair("grouped", kGrouped)}) {
    INFO(key);
    Tensor there = packed.get(key), here = before.get(key);
    CHECK(there.packed == layout);
    CHECK(there.shape == std::vector<int64_t>{2, layout.columnBlocks(), 64, 64});
    CHECK(nativeShape(there) == here.shape);
    bool right = true;
    for (int64_t row = 0; row < layout.rows; ++row)
      for (int64_t column = 0; column < layout.columns; ++column)
        right &= std::memcmp(there.data() + layout.offset(row, column),
                             here.data() + 2 * (row * layout.columns + column), 2) == 0;
    CHECK(right);
    // Large elements come first, so all are aligned.
    CHECK(reinterpret_cast<uintptr_t>(there.data()) % 2 == 0);
    CHECK(sameBytes(back.get(key), here));
    CHECK_FALSE(back.packedLayout(key));
  }
  CHECK(back.metadata() == before.metadata());
}

TEST_CASE("packed checkpoints: a tensor goes from any layout to any other") {
  Scratch scratch;
  SafetensorsFile native(scratch.write("native.safetensors", nativeFile()));
  Tensor weight = native.get("grouped");
  PackedLayout ungrouped = kGrouped;
  ungrouped.columnGroup = 0;
  Tensor grouped = inLayout(weight, kGrouped), other = inLayout(grouped, ungrouped);
  CHECK(other.packed == ungrouped);
  CHECK(sameBytes(other, inLayout(weight, ungrouped)));
  CHECK(sameBytes(inLayout(other, std::nullopt), weight));
  CHECK(inLayout(grouped, kGrouped).data() == grouped.data()); // nothing to do
}

TEST_CASE("packed checkpoints: only whole files get a name") {
  Scratch scratch;
  std::string native = scratch.write("native.safetensors", nativeFile()),
              out = scratch.write("out.safetensors", "old");
  Checkpoint checkpoint(native);
  auto stop = [](const std::string &key, uint64_t, uint64_t) {
    if (key == "odd")
      throw Failure(Exit::CheckFailed, "", "stopped");
  };
  CHECK_FAILS(writeRepacked(out, checkpoint, kPack, stop), Exit::CheckFailed, "stopped");
  std::ifstream file(out);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  CHECK(content == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.folder), {}) == 2);
  CHECK_FAILS(write(scratch.path("none/out.safetensors"), native, kPack), Exit::BadInput,
              "there is no folder");
}

TEST_CASE("packed checkpoints: what the metadata says is checked") {
  Scratch scratch;
  auto refuse = [&](const std::string &metadata, Exit exit, const std::string &part) {
    std::string path =
        scratch.write("bad.safetensors",
                      file("{\"__metadata__\":" + metadata + "," + entry("w", "F16", "[1,1,64,64]", 0, 8192) +
                               "," + entry("f", "F32", "[1,1,64,32]", 8192, 16384) + "}",
                           std::string(16384, '\0')));
    CHECK_FAILS(SafetensorsFile{path}, exit, part);
    CHECK_FAILS(SafetensorsFile{path}, exit, "bad.safetensors: __metadata__");
  };
  auto packed = [](const std::string &weights) {
    return R"({"cfc.layout":"packed","cfc.packed":")" + weights + "\"}";
  };
  refuse("3", Exit::BadInput, "must be an object");
  refuse(R"({"format":3})", Exit::BadInput, "\"format\" must be a string");
  refuse(R"({"cfc.layout":"packed"})", Exit::BadInput, "belong together");
  refuse(R"({"cfc.packed":"{}"})", Exit::BadInput, "belong together");
  refuse(R"({"cfc.layout":"tiled","cfc.packed":"{}"})", Exit::CannotRun, "the layout \"tiled\"");
  refuse(packed("["), Exit::BadInput, "its JSON is garbled");
  refuse(packed("[]"), Exit::BadInput, "must be an object");
  refuse(packed(R"({\"x\":{\"shape\":[1,1]}})"), Exit::BadInput, "names \"x\", which the file does not hold");
  refuse(packed(R"({\"w\":{}})"), Exit::BadInput, "tensor \"w\": error: needs a shape of two extents");
  refuse(packed(R"({\"w\":{\"shape\":[1,1,1]}})"), Exit::BadInput, "needs a shape of two extents");
  refuse(packed(R"({\"w\":{\"shape\":[0,1]}})"), Exit::BadInput, "an extent must be from 1");
  refuse(packed(R"({\"w\":{\"shape\":[1,99999999]}})"), Exit::BadInput, "an extent must be from 1");
  refuse(packed(R"({\"w\":{\"shape\":[1,64],\"column_group\":0}})"), Exit::BadInput,
         "column_group must be from 1");
  refuse(packed(R"({\"w\":{\"shape\":[1,64],\"column_group\":32}})"), Exit::BadInput,
         "packed it would be 1x2x64x64 of 2-byte elements; it is 1x1x64x64 of F16");
  refuse(packed(R"({\"f\":{\"shape\":[1,64]}})"), Exit::BadInput, "it is 1x1x64x32 of F32");
}

TEST_CASE("packed checkpoints: as inputs") {
  Scratch scratch;
  std::string native = scratch.write("native.safetensors", nativeFile()),
              packed = scratch.path("packed.safetensors");
  write(packed, native, kPack);
  InputOptions options;
  options.weights = packed;
  TensorMap inputs = resolveInputs(
      {weight("plain", DType::f16, {128, 64}), weight("grouped", DType::bf16, {70, 160})}, options, {});
  CHECK(inputs.at("plain").packed == kPlain);
  CHECK(sameBytes(inLayout(inputs.at("grouped"), std::nullopt), SafetensorsFile(native).get("grouped")));
  CHECK_FAILS(resolveInputs({weight("plain", DType::f16, {64, 128})}, options, {}), Exit::BadInput,
              "\"plain\" must be tensor<64x128xf16>; it is tensor<128x64xf16>");
  CHECK_FAILS(resolveInputs({weight("plain", DType::bf16, {128, 64})}, options, {}), Exit::BadInput,
              "\"plain\" must be tensor<128x64xbf16>; it is tensor<128x64xf16>");
  InputSpec activation = weight("plain", DType::f16, {128, 64});
  activation.role = DataRole::Activation;
  CHECK_FAILS(resolveInputs({activation}, options, {}), Exit::BadInput, "is packed as a weight");
}

TEST_CASE("packed checkpoints: cfc info says what packing costs") {
  runtime::Manifest manifest;
  runtime::GraphSpec &graph = manifest.graphs.emplace_back();
  graph.name = "block";
  runtime::TensorSpec spec;
  spec.name = "w";
  spec.role = runtime::Role::Weight;
  spec.shape = {70, 160};
  spec.layout = runtime::Layout::Packed;
  spec.columnGroup = 80;
  graph.tensors.push_back(spec);
  spec.name = "gain";
  spec.shape = {160};
  spec.layout = runtime::Layout::Native;
  graph.tensors.push_back(spec);
  spec.name = "v";
  spec.shape = {128, 64};
  spec.columnGroup = 0;
  graph.tensors.push_back(spec);
  CHECK(packingText(manifest) ==
        "packing of weights of 'block':\n"
        "  name=w layout=packed native_bytes=22400 packed_bytes=65536 padding=192.6% in_place=no\n"
        "  name=v layout=native native_bytes=16384 packed_bytes=16384 padding=0.0% in_place=yes\n"
        "  all: native_bytes=38784 packed_bytes=81920 padding=111.2%\n");
}
