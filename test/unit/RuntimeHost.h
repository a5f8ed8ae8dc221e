//===- RuntimeHost.h - What an engine does, in small ------------*- C++ -*-===//
#ifndef CFC_TEST_UNIT_RUNTIMEHOST_H
#define CFC_TEST_UNIT_RUNTIMEHOST_H

#include "FakeDriver.h"
#include "RuntimeFixture.h"
#include <catch2/catch.hpp>
#include <memory>

namespace cfc::runtime::test {

struct Unload {
  void operator()(cfc_bundle *bundle) const { cfc_unload(bundle); }
  void operator()(cfc_binding *binding) const { cfc_unbind(binding); }
};
using BundlePtr = std::unique_ptr<cfc_bundle, Unload>;
using BindingPtr = std::unique_ptr<cfc_binding, Unload>;

inline BundlePtr loadSmall(const Manifest &manifest = smallManifest()) {
  std::string bytes = packBundle(smallSections(manifest));
  cfc_load_options options{};
  options.size = sizeof options;
  options.memory = bytes.data();
  options.memory_bytes = bytes.size();
  cfc_bundle *bundle = nullptr;
  cfc_status status = cfc_load(nullptr, &options, &bundle);
  INFO(cfc_last_error());
  REQUIRE(status == CFC_OK);
  return BundlePtr(bundle);
}

/// The tensors of the small graph with buffers on one device, in an order that is not the graph's.
struct Tensors {
  static constexpr int64_t kCapacity = 128;
  int64_t row[2] = {1, 64}, square[2] = {64, 64}, one[1] = {1};
  std::vector<cfc_tensor> list;

  explicit Tensors(int device = 0) {
    list = {tensor("result0", CFC_F16, row, 2, 128, device), tensor("x", CFC_F16, row, 2, 128, device),
            tensor("w_q", CFC_F16, square, 2, 64 * 64 * 2, device), cache(device),
            tensor("len", CFC_I32, one, 1, 4, device)};
  }
  Tensors(const Tensors &) = delete;

  static cfc_tensor tensor(const char *name, cfc_dtype dtype, const int64_t *shape, uint32_t rank,
                           uint64_t bytes, int device) {
    cfc_tensor result{};
    result.size = sizeof result;
    result.name = name;
    result.dtype = dtype;
    result.rank = rank;
    result.shape = shape;
    result.data = fakeMemory(bytes, device);
    result.bytes = bytes;
    return result;
  }

  static cfc_tensor cache(int device) {
    cfc_tensor result{};
    result.size = sizeof result;
    result.name = "cache";
    result.dtype = CFC_F16;
    result.bytes = 2 * kCapacity * 16 * 2;
    result.k = fakeMemory(result.bytes, device);
    result.v = fakeMemory(result.bytes, device);
    result.stride_token = 16 * 2;
    result.stride_head = kCapacity * 16 * 2;
    result.capacity = kCapacity;
    return result;
  }

  cfc_tensor &operator[](std::string_view name) {
    for (cfc_tensor &tensor : list)
      if (tensor.name == name)
        return tensor;
    FAIL("no tensor " << name);
    return list.front();
  }
};

inline cfc_bind_options bindOptions() {
  cfc_bind_options options{};
  options.size = sizeof options;
  return options;
}

inline BindingPtr bindSmall(const BundlePtr &bundle, const Tensors &tensors,
                            const cfc_bind_options *options = nullptr) {
  cfc_binding *binding = nullptr;
  cfc_status status =
      cfc_bind(bundle.get(), "block", tensors.list.data(), tensors.list.size(), options, &binding);
  INFO(cfc_last_error());
  REQUIRE(status == CFC_OK);
  return BindingPtr(binding);
}

/// A workspace and the arguments of a launch with it.
struct Workspace {
  cfc_launch_args args{};
  explicit Workspace(int device = 0) {
    args.size = sizeof args;
    args.workspace = fakeMemory(1024, device);
    args.workspace_bytes = 1024;
  }
};

} // namespace cfc::runtime::test

#endif // CFC_TEST_UNIT_RUNTIMEHOST_H
