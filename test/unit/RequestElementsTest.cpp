//===- RequestElementsTest.cpp - Which element of an argument an item takes -------===//
//
// Slots, lengths and positions of an item's request are loaded ahead of its tiles. Where memory has more of
// them than there are requests, or fewer items than heads, it must still be the element that the operation
// takes.
//
//===----------------------------------------------------------------------===//
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "test/unit/KernelHarness.h"
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cfc;
using namespace cfc::test;

namespace {
/// A cache of `requests` times two heads, and a kernel over `items` of them with `elements` in memory.
struct Case {
  int requests, items, elements;
  std::vector<double> each;   ///< what the elements are
  std::vector<double> wanted; ///< of each item
};

std::string cacheType(const Case &c) {
  return fmt::format("!kernel.cache<heads = 2, dim = 64, {}f16>",
                     c.requests > 1 ? fmt::format("requests = {}, ", c.requests) : "");
}

/// Each item appends a row of ones.
std::string appendKernel(const Case &c) {
  return fmt::format(R"(
kernel.func @append(%k: memref<{0}xf16>, %slot: memref<{1}xi64>, %c: {2}) axes(head = {3} @grid) plan() {{
  kernel.for_items %i over head {{
    %x = kernel.read %k at %i : memref<{0}xf16> -> !kernel.tile<64xf16>
    kernel.append %x, %x to %c slot %slot at %i : !kernel.tile<64xf16>, !kernel.tile<64xf16>, {2}, memref<{1}xi64>, !kernel.item
  }}
  kernel.return
}})",
                     64 * c.items, c.elements, cacheType(c), c.items);
}

/// Each item attends as many tokens as a length says.
std::string attendKernel(const Case &c) {
  return fmt::format(R"(
kernel.func @attend(%q: memref<{0}xf16>, %len: memref<{1}xi32>, %c: {2}, %y: memref<{0}xf32>) axes(head = {3} @grid) plan() {{
  kernel.for_items %i over head {{
    %x = kernel.read %q at %i : memref<{0}xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %i bound 256 : {2}, memref<{1}xi32>, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %x, %kv scale 0.125 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32>
    %o, %l = kernel.normalize %p : !kernel.tile<1x66xf32> -> !kernel.tile<64xf32>, !kernel.tile<1xf32>
    kernel.write %o, %y at %i : !kernel.tile<64xf32>, memref<{0}xf32>
  }}
  kernel.return
}})",
                     64 * c.items, c.elements, cacheType(c), c.items);
}

std::vector<Case> slotCases() {
  return {{2, 4, 2, {3, 5}, {3, 3, 5, 5}},       // one a request
          {2, 4, 4, {3, 5, 7, 9}, {3, 3, 5, 5}}, // more than requests
          {2, 2, 2, {3, 5}, {3, 3}},             // the first request's heads alone
          {1, 2, 2, {3, 5}, {3, 3}}};            // of one request the first
}

/// Whether each item's row lies where it should, and no other was written.
bool appendsWhereWanted(const Case &c, const std::function<void(mlir::ModuleOp)> &mutate = {}) {
  KernelRun run(appendKernel(c), mutate);
  int64_t rows = run.capacity, heads = 2 * c.requests;
  std::vector<double> zeros(heads * rows * 64, 0), wanted = zeros;
  for (size_t item = 0; item < c.wanted.size(); ++item)
    std::fill_n(wanted.begin() + (item * rows + int64_t(c.wanted[item])) * 64, 64, 1.0);
  run.set("k", std::vector<double>(64 * c.items, 1));
  run.set("slot", c.each);
  run.set("c.k", zeros);
  run.set("c.v", zeros);
  return run.launch(1).ok && run.get("c.k") == wanted && run.get("c.v") == wanted;
}

/// Divides by one what was divided by two.
void takeOthers(mlir::ModuleOp module) {
  module.walk([](mlir::arith::DivUIOp op) { op.replaceAllUsesWith(op.getLhs()); });
  module.walk([](mlir::arith::ShRUIOp op) { op.replaceAllUsesWith(op.getLhs()); });
}
} // namespace

TEST_CASE("an item appends at the slot of its request", "[kernel]") {
  for (const Case &c : slotCases()) {
    CAPTURE(c.requests, c.items, c.elements);
    CHECK(appendsWhereWanted(c));
  }
  CHECK_FALSE(appendsWhereWanted(slotCases().front(), takeOthers));
}

TEST_CASE("an item attends as many tokens as its request has", "[kernel]") {
  for (Case c :
       {Case{2, 4, 2, {5, 130}, {5, 5, 130, 130}}, Case{2, 4, 4, {5, 130, 33, 200}, {5, 5, 130, 130}},
        Case{2, 2, 2, {70, 130}, {70, 70}}, Case{1, 2, 2, {70, 130}, {70, 70}}}) {
    CAPTURE(c.requests, c.items, c.elements);
    KernelRun run(attendKernel(c));
    int64_t rows = run.capacity, heads = 2 * c.requests;
    // Without keys all tokens count alike: the result is the mean of the tokens' numbers.
    std::vector<double> keys(heads * rows * 64, 0), values = keys;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = double(i / 64 % rows);
    run.set("q", std::vector<double>(64 * c.items, 1));
    run.set("len", c.each);
    run.set("c.k", keys);
    run.set("c.v", values);
    auto report = run.launch(1);
    INFO(textOf(report));
    REQUIRE(report.ok);
    std::vector<double> got = run.get("y");
    for (size_t item = 0; item < c.wanted.size(); ++item)
      CHECK(got[64 * item] == Approx((c.wanted[item] - 1) / 2).epsilon(1e-3));
  }
}
