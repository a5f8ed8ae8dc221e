//===- RuntimePackTest.cpp - Packing weights on a device --------------------===//
//
// The fake driver runs no kernels: here it is given one, which does on the host what the text of
// PackingKernel.h does on a GPU.
//
//===----------------------------------------------------------------------===//
#include "RuntimeHost.h"
#include "runtime/src/Packing.h"
#include "runtime/src/PackingKernel.h"
#include <cstring>
#include <numeric>

using namespace cfc::runtime;
using namespace cfc::runtime::test;

namespace {
using Elements = std::vector<uint16_t>;

int moves = 0; // kernels launched

/// The packing kernel, thread by thread.
CUresult moveChunks(const CUlaunchConfig *config, CUfunction, void **parameters, void **) {
  std::array<uint64_t, 9> p;
  for (size_t i = 0; i < p.size(); ++i)
    p[i] = *static_cast<uint64_t *>(parameters[i]);
  PackedLayout layout{int64_t(p[2]), int64_t(p[3]), int64_t(p[4])};
  CHECK((p[5] == uint64_t(layout.groupBlocks()) && p[6] == uint64_t(layout.columnBlocks())));
  CHECK((p[7] == layout.bytes() / 16 && uint64_t(config->gridX) * config->blockX >= p[7]));
  CHECK((config->gridY == 1 && config->gridZ == 1 && config->blockY == 1 && config->blockZ == 1));
  for (uint64_t i = 0; i < p[7]; ++i) {
    PackedChunk chunk = packedChunk(layout, i);
    char *native = reinterpret_cast<char *>(p[0]) + 2 * (chunk.row * layout.columns + chunk.column);
    char *packed = reinterpret_cast<char *>(p[1]) + 16 * i;
    size_t bytes = size_t(chunk.elements) * 2;
    if (p[8]) {
      std::memcpy(native, packed, bytes);
      continue;
    }
    std::memcpy(packed, native, bytes);
    std::memset(packed + bytes, 0, 16 - bytes);
  }
  ++moves;
  return kCudaSuccess;
}

/// The fake driver with that kernel; work on streams is done at once.
class PackingDriver {
public:
  PackingDriver() : table(driver()) {
    moves = 0;
    table.cuLaunchKernelEx = moveChunks;
    table.cuMemcpyDtoDAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
      std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
      return kCudaSuccess + 0;
    };
    setDriverForTests(&table);
  }

  FakeDriver fake; // made first

private:
  Driver table;
};

/// w_q is packed and exact, w_o packed in groups of 80 columns and padded; x is native.
Manifest packedManifest() {
  Manifest manifest = smallManifest();
  GraphSpec &graph = manifest.graphs[0];
  graph.tensors[1].shape = {256, 192};
  graph.tensors[1].layout = Layout::Packed;
  TensorSpec padded = graph.tensors[1];
  padded.name = "w_o";
  padded.shape = {70, 160};
  padded.columnGroup = 80;
  graph.tensors.push_back(padded);
  graph.table.push_back({graph.tensors.size() - 1, Field::Pointer});
  graph.maps.clear();
  return manifest;
}

const PackedLayout kExact{256, 192, 0}, kPadded{70, 160, 80};

/// A weight in device memory, with guards around it.
struct Weight {
  explicit Weight(const PackedLayout &layout) : layout(layout), native(layout.nativeBytes() / 2) {
    std::iota(native.begin(), native.end(), uint16_t(1));
    packed.resize(layout.bytes() / 2);
    pack(layout, native.data(), packed.data());
    memory = static_cast<char *>(fakeMemory(layout.bytes() + 512));
    std::memset(memory, 0x55, layout.bytes() + 512);
    data = memory + 256;
  }

  Weight &put(const Elements &elements) {
    return std::memcpy(data, elements.data(), elements.size() * 2), *this;
  }
  /// Whether it holds these elements, and nothing else around them.
  bool holds(const Elements &elements) const {
    std::string before(256, 0x55), after(layout.bytes() + 256 - elements.size() * 2, 0x55);
    return std::memcmp(data, elements.data(), elements.size() * 2) == 0 &&
           before == std::string(memory, 256) &&
           after == std::string(data + elements.size() * 2, after.size());
  }

  cfc_tensor tensor(const char *name, cfc_layout is) {
    shape[0] = layout.rows, shape[1] = layout.columns;
    cfc_tensor result{};
    result.size = sizeof result;
    result.name = name;
    result.dtype = CFC_F16;
    result.rank = 2;
    result.shape = shape;
    result.data = data;
    result.layout = is;
    return result;
  }

  PackedLayout layout;
  Elements native, packed;
  char *memory, *data;
  int64_t shape[2];
};

cfc_pack_args argsOf(void *destination = nullptr, void *scratch = nullptr, uint64_t scratchBytes = 0) {
  cfc_pack_args args{};
  args.size = sizeof args;
  args.destination = destination;
  args.scratch = scratch;
  args.scratch_bytes = scratchBytes;
  return args;
}

CUstream stream() { return reinterpret_cast<CUstream>(uintptr_t(0x77)); }

/// There and back: out of place for both weights, in place for the exact one with and without a scratch.
void checkAllWays(const BundlePtr &bundle) {
  for (auto [name, layout] : {std::pair("w_q", kExact), std::pair("w_o", kPadded)}) {
    INFO(name);
    Weight from(layout), to(layout), back(layout);
    from.put(from.native);
    cfc_tensor native = from.tensor(name, CFC_LAYOUT_NATIVE), packed = to.tensor(name, CFC_LAYOUT_PACKED);
    cfc_pack_args args = argsOf(to.data);
    REQUIRE(cfc_pack(bundle.get(), nullptr, &native, &args, stream()) == CFC_OK);
    CHECK(from.holds(from.native));
    CHECK(to.holds(from.packed));
    args = argsOf(back.data);
    REQUIRE(cfc_unpack(bundle.get(), nullptr, &packed, &args, stream()) == CFC_OK);
    CHECK(to.holds(from.packed));
    CHECK(back.holds(from.native));
  }
  for (uint64_t panels : {0, 1, 3, 100}) {
    INFO(panels << " panels of scratch memory");
    Weight weight(kExact);
    weight.put(weight.native);
    cfc_tensor tensor = weight.tensor("w_q", CFC_LAYOUT_NATIVE);
    uint64_t bytes = panels * kExact.panelBytes();
    cfc_pack_args args =
        argsOf(panels == 1 ? weight.data : nullptr, panels ? fakeMemory(bytes) : nullptr, bytes);
    REQUIRE(cfc_pack(bundle.get(), "block", &tensor, &args, nullptr) == CFC_OK);
    CHECK(weight.holds(weight.packed));
    tensor.layout = CFC_LAYOUT_PACKED;
    REQUIRE(cfc_unpack(bundle.get(), "block", &tensor, panels ? &args : nullptr, nullptr) == CFC_OK);
    CHECK(weight.holds(weight.native));
  }
}
} // namespace

TEST_CASE("packing on a device: with the kernel") {
  PackingDriver driver;
  {
    BundlePtr bundle = loadSmall(packedManifest());
    checkAllWays(bundle);
    CHECK(driver.fake->modulesLoaded == 1); // compiled once
    // Out of place one launch each; in place one for each part of 256 rows.
    CHECK(moves == 4 + 2 * (1 + 4 + 2 + 1));
  }
  CHECK(driver.fake->modulesAlive == 0);
}

TEST_CASE("packing on a device: through the host where the driver compiles nothing") {
  FakeDriver fake;
  fake->failModule = kCudaErrorJitCompilerNotFound;
  BundlePtr bundle = loadSmall(packedManifest());
  checkAllWays(bundle);
  fake->failModule = 999;
  Weight weight(kExact);
  cfc_tensor tensor = weight.tensor("w_q", CFC_LAYOUT_NATIVE);
  CHECK(cfc_pack(bundle.get(), nullptr, &tensor, nullptr, nullptr) == CFC_DRIVER_ERROR);
  CHECK_THAT(cfc_last_error(), Catch::Contains("compiling a kernel of the runtime"));
}

TEST_CASE("packing on a device: what it takes is known without one") {
  BundlePtr bundle = loadSmall(packedManifest());
  uint64_t bytes = 1, scratch = 1;
  REQUIRE(cfc_packed_bytes(bundle.get(), nullptr, "w_q", &bytes, &scratch) == CFC_OK);
  CHECK((bytes == 256 * 192 * 2 && scratch == 64 * 192 * 2));
  REQUIRE(cfc_packed_bytes(bundle.get(), "block", "w_o", &bytes, &scratch) == CFC_OK);
  CHECK((bytes == 2 * 4 * 8192 && scratch == 0)); // two rows of blocks, two blocks a group
  REQUIRE(cfc_packed_bytes(bundle.get(), nullptr, "x", &bytes, nullptr) == CFC_OK);
  CHECK(bytes == 0);
  CHECK(cfc_packed_bytes(bundle.get(), nullptr, "w_p", &bytes, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Catch::Contains("there is no tensor 'w_p'; did you mean 'w_"));
  CHECK(cfc_packed_bytes(bundle.get(), nullptr, nullptr, &bytes, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_packed_bytes(bundle.get(), nullptr, "x", nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_packed_bytes(nullptr, nullptr, "x", &bytes, nullptr) == CFC_INVALID_ARGUMENT);
}

TEST_CASE("packing on a device: bad arguments") {
  PackingDriver driver;
  BundlePtr bundle = loadSmall(packedManifest());
  Weight exact(kExact), padded(kPadded), other(kExact);
  auto refuse = [&](cfc_tensor tensor, const cfc_pack_args &args, const char *part, bool unpacking = false) {
    INFO(part);
    cfc_status status = unpacking ? cfc_unpack(bundle.get(), nullptr, &tensor, &args, nullptr)
                                  : cfc_pack(bundle.get(), nullptr, &tensor, &args, nullptr);
    CHECK(status == CFC_INVALID_ARGUMENT);
    CHECK_THAT(cfc_last_error(), Catch::Contains(part));
  };
  cfc_tensor good = exact.tensor("w_q", CFC_LAYOUT_NATIVE), packed = exact.tensor("w_q", CFC_LAYOUT_PACKED);
  refuse(packed, argsOf(), "graph 'block', tensor 'w_q': its layout is 1: it is packed already");
  refuse(good, argsOf(), "its layout is 0: it is native already", /*unpacking=*/true);
  refuse(exact.tensor("w_r", CFC_LAYOUT_NATIVE), argsOf(), "no tensor 'w_r'; did you mean 'w_q'?");
  refuse(exact.tensor("x", CFC_LAYOUT_NATIVE), argsOf(), "in native layout: there is nothing to pack");
  refuse(exact.tensor("x", CFC_LAYOUT_PACKED), argsOf(), "there is nothing to unpack", /*unpacking=*/true);
  refuse(padded.tensor("w_o", CFC_LAYOUT_NATIVE), argsOf(),
         "it cannot be packed in place: packed it has 65536 bytes, native 22400");
  refuse(exact.tensor("w_o", CFC_LAYOUT_NATIVE), argsOf(),
         "its shape is [256, 192], the graph wants [70, 160]");
  refuse(good, argsOf(exact.data + 256), "overlap");
  refuse(good, argsOf(other.data + 8), "tensor 'w_q': data");
  refuse(good, argsOf(nullptr, other.data, kExact.panelBytes() - 1),
         "scratch has 24575 bytes, 24576 are needed");
  refuse(good, argsOf(nullptr, other.data + 8, kExact.panelBytes()), "not an address aligned to 16 bytes");
  refuse(good, argsOf(nullptr, exact.data + 4096, kExact.panelBytes()), "overlap");
  cfc_pack_args small = argsOf(other.data);
  small.destination_bytes = kExact.bytes() - 1;
  refuse(good, small, "98304 are needed");
  cfc_tensor bf16 = good, odd = good;
  bf16.dtype = CFC_BF16;
  refuse(bf16, argsOf(), "its type is bf16, the graph wants f16");
  odd.data = exact.data + 2; // any element may begin a native weight, not a packed one
  refuse(odd, argsOf(), "not aligned to 16 bytes");
  Weight target(kExact);
  std::memcpy(exact.data + 2, exact.native.data(), kExact.nativeBytes());
  cfc_pack_args away = argsOf(target.data);
  CHECK(cfc_pack(bundle.get(), nullptr, &odd, &away, nullptr) == CFC_OK);
  CHECK(target.holds(exact.packed));

  CHECK(cfc_pack(bundle.get(), nullptr, nullptr, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_pack(nullptr, nullptr, &good, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK(cfc_pack(bundle.get(), "blok", &good, nullptr, nullptr) == CFC_INVALID_ARGUMENT);
  cfc_pack_args unsized{};
  CHECK(cfc_pack(bundle.get(), nullptr, &good, &unsized, nullptr) == CFC_INVALID_ARGUMENT);
  CHECK_THAT(cfc_last_error(), Catch::Contains("cfc_pack_args.size is 0"));
  Weight far(kExact);
  cfc_pack_args elsewhere = argsOf(fakeMemory(kExact.bytes(), 1));
  refuse(good, elsewhere, "lies on device 1");
  static uint64_t host[65536];
  refuse(good, argsOf(host), "is not memory that the device can reach");
}
