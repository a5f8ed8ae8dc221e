//===- ToolsBaseTest.cpp - Conversions, test data, comparisons, files -------===//
#include "Scratch.h"
#include "tools/lib/Compare.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include "tools/lib/Random.h"
#include "tools/lib/Suggest.h"
#include <cmath>
#include <limits>
#include <sys/stat.h>

using namespace cfc;

TEST_CASE("elements are rounded once, to nearest even") {
  // A double just above a tie must not fall back to it on the way through float.
  Tensor t(DType::f16, {1});
  t.set(0, 1.0 + 0x1p-11 + 0x1p-40);
  CHECK(t.get(0) == 1.0 + 0x1p-10);
  t.set(0, 1.0 + 0x1p-11 - 0x1p-40);
  CHECK(t.get(0) == 1.0);
  Tensor b(DType::bf16, {1});
  b.set(0, -1.0 - 0x1p-8 - 0x1p-45);
  CHECK(b.get(0) == -1.0 - 0x1p-7);
  Tensor d(DType::f64, {1});
  d.set(0, 0.1);
  CHECK(d.get(0) == 0.1);
}

TEST_CASE("random data has the moments that its role asks for") {
  Tensor w(DType::f16, {1024, 1024});
  fillRandom(w, 0, "w", distributionFor(DataRole::Weight, w.shape));
  double sum = 0, squares = 0, smallest = 0, largest = 0;
  for (int64_t i = 0; i < w.elements(); ++i) {
    double x = w.get(i);
    sum += x;
    squares += x * x;
    smallest = std::min(smallest, x);
    largest = std::max(largest, x);
  }
  CHECK(std::abs(sum / 1048576) < 1e-4);
  CHECK(std::sqrt(squares / 1048576) == Approx(1.0 / 32).epsilon(0.01));
  CHECK(largest - smallest > 6.0 / 32);
  Tensor g(DType::f32, {4096});
  fillRandom(g, 0, "g", distributionFor(DataRole::Gain, g.shape));
  CHECK(g.get(0) == Approx(0.8).margin(0.32));
}

TEST_CASE("random data is the same on every machine, and differs by seed, name and index") {
  Tensor a(DType::f32, {70000}), b(DType::f32, {70000});
  fillRandom(a, 1, "a", {});
  CHECK(a.as<uint32_t>()[0] == 0xbfbb97b5);
  CHECK(a.as<uint32_t>()[69999] == 0xbf3d601a);
  fillRandom(b, 1, "a", {});
  CHECK(std::equal(a.data(), a.data() + a.bytes(), b.data()));
  fillRandom(b, 2, "a", {});
  CHECK(a.get(0) != b.get(0));
  fillRandom(b, 1, "b", {});
  CHECK(a.get(0) != b.get(0));
  CHECK(a.get(0) != a.get(1));
}

TEST_CASE("a rope table") {
  Tensor t(DType::f32, {8, 4});
  fillRopeTable(t);
  CHECK(t.get(0) == 1);
  CHECK(t.get(2) == 0);
  CHECK(t.get(4 * 3 + 0) == Approx(std::cos(3.0)));
  CHECK(t.get(4 * 3 + 3) == Approx(std::sin(0.03)));
}

TEST_CASE("comparison finds the worst element") {
  std::vector<double> expected = {1, -1, 1, -1, 2, 2, 2, 2};
  Tensor found(DType::f32, {2, 4});
  for (int i = 0; i < 8; ++i)
    found.set(i, expected[size_t(i)]);
  Tolerance tolerance = {1e-3, 8e-3};
  Comparison same = compare(expected, found, 4, false, tolerance);
  CHECK(same.passed);
  CHECK(same.worst == -1);
  found.set(6, 2.125);
  Comparison off = compare(expected, found, 4, false, tolerance);
  CHECK(!off.passed);
  CHECK(off.worst == 6);
  CHECK(off.largest == Approx(0.0625));
  CHECK(off.relativeL2 == Approx(0.125 / std::sqrt(20.0)));
  CHECK(compare(expected, found, 4, true, tolerance).relativeL2 == Approx(0.125 / 4));
  CHECK(indexText(6, {2, 4}) == "[1, 2]");
}

TEST_CASE("comparison: rows with limits of their own") {
  std::vector<double> expected(12, 1);
  Tensor found(DType::f32, {3, 4});
  auto compared = [&](std::vector<double> errors, const std::vector<double> &factors) {
    for (int64_t i = 0; i < 12; ++i)
      found.set(i, 1 + errors[size_t(i) / 4]);
    return compare(expected, found, 4, true, {1e-3, 8e-3}, factors);
  };
  Comparison raised = compared({5e-4, 1.5e-3, 0}, {1, 2, 1});
  CHECK(raised.passed);
  CHECK(raised.raised == 1);
  CHECK(raised.raisedMost == Approx(1.5e-3).epsilon(1e-3));
  CHECK(raised.relativeL2 == Approx(1.5e-3).epsilon(1e-3)); // of 2e-3
  CHECK(raised.relativeFactor == 2);
  CHECK_FALSE(compared({5e-4, 1.5e-3, 0}, {}).passed);
  CHECK_FALSE(compared({5e-4, 1.5e-3, 0}, {2, 1, 2}).passed);
  // The row that is wrong is named, not the one with the largest error.
  Comparison wrong = compared({1.05e-3, 1.3e-3, 0}, {1, 2, 1});
  CHECK_FALSE(wrong.passed);
  CHECK(wrong.raised == 1);
  CHECK(wrong.relativeL2 == Approx(1.05e-3).epsilon(1e-3));
  CHECK(wrong.relativeFactor == 1);
  CHECK(wrong.worst < 4);
  Comparison within = compared({5e-4, 9e-4, 0}, {1, 2, 1});
  CHECK(within.passed);
  CHECK(within.raised == 0);

  // All together are held to the usual limit, and one in ten rows may need more.
  CHECK_FALSE(compared({9.9e-4, 1.9e-3, 9.9e-4}, {1, 2, 1}).passed);
  auto passesWith = [&](int64_t raisedRows) {
    std::vector<double> ones(160, 1), factors(40, 2);
    Tensor rows(DType::f32, {40, 4});
    for (int64_t i = 0; i < 160; ++i)
      rows.set(i, i / 4 < raisedRows ? 1 + 1.5e-3 : 1);
    return compare(ones, rows, 4, true, {1e-3, 8e-3}, factors).passed;
  };
  CHECK(passesWith(4));
  CHECK_FALSE(passesWith(5));

  // 1e-3 is 4.8 roundings of an f16 number.
  CHECK(headFactors({std::sqrt(2), 0, 4.8, 10}) == std::vector<double>{1, 1, 1, 2.07});
}

TEST_CASE("comparison: zeros, infinities and NaN must be met exactly") {
  double inf = std::numeric_limits<double>::infinity();
  auto passes = [](double expected, double found) {
    Tensor t(DType::f32, {2});
    t.set(0, found);
    t.set(1, 1);
    std::vector<double> want = {expected, 1};
    return compare(want, t, 2, true, {1e-3, 8e-3}).passed;
  };
  CHECK(passes(-inf, -inf));
  CHECK(!passes(-inf, inf));
  CHECK(!passes(-inf, 0));
  CHECK(!passes(0, NAN));
  CHECK(!passes(0, inf));
  CHECK(passes(NAN, NAN));
  Tensor zero(DType::f16, {2});
  zero.set(0, 0);
  zero.set(1, 0);
  std::vector<double> want = {0, 0};
  CHECK(compare(want, zero, 2, true, {1e-3, 8e-3}).passed);
  zero.set(1, 1e-7);
  CHECK(!compare(want, zero, 2, true, {1e-3, 8e-3}).passed);
}

TEST_CASE("elements of a coarse type are roundings of numbers near what is expected") {
  Tensor stored(DType::f8E4M3FN, {3});
  std::vector<double> numbers = {1.3, -1.0626, 500}; // neighbours: 1.25 and 1.375; -1.0625 is a tie; 448
  auto passes = [&](double first, double second, double third) {
    stored.set(0, first);
    stored.set(1, second);
    stored.set(2, third);
    return compareRounded(numbers, stored, 1, {0, 1e-3}).passed;
  };
  CHECK(passes(1.25, -1.125, 448));
  CHECK(passes(1.25, -1, 448)); // the other side of the tie
  CHECK(!passes(1.375, -1, 448));
  CHECK(!passes(1.125, -1, 448));
  CHECK(!passes(1.25, -1, 416));
  CHECK(!passes(NAN, -1, 448));
  numbers[0] = NAN;
  CHECK(passes(NAN, -1, 448));
  CHECK(!passes(0, -1, 448));
}

TEST_CASE("the nearest name") {
  std::vector<std::string> names = {"w_q", "w_k", "gain", "cache"};
  CHECK(nearestName("gian", names) == "gain");
  CHECK(nearestName("w_qq", names) == "w_q");
  CHECK(nearestName("zebra", names).empty());
  CHECK(nearestName("x", {"q"}).empty());
  CHECK(didYouMean("cahce", names) == "; did you mean \"cache\"?");
}

TEST_CASE("files are written whole or not at all") {
  Scratch scratch;
  writeFile(scratch.path("a"), "one");
  writeFile(scratch.path("a"), "two");
  CHECK(MappedFile::open(scratch.path("a"))->text() == "two");
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.folder), {}) == 1);
  CHECK_FAILS(writeFile(scratch.folder, "x"), Exit::BadInput, "is a folder");
  CHECK_FAILS(writeFile(scratch.path("no/where"), "x"), Exit::BadInput, "there is no folder");
  CHECK_FAILS(writeFile("/dev/full", "x"), Exit::BadInput, "No space left");
  CHECK_FAILS(checkOutputPath(scratch.path("a"), scratch.folder + "/../" + scratch.folder.substr(5) + "/a"),
              Exit::BadInput, "is the input itself");
  std::filesystem::create_symlink("a", scratch.path("link"));
  writeFile(scratch.path("link"), "three");
  CHECK(std::filesystem::is_symlink(scratch.path("link")));
  CHECK(MappedFile::open(scratch.path("a"))->text() == "three");
  mkfifo(scratch.path("pipe").c_str(), 0600);
  CHECK_FAILS(MappedFile::open(scratch.path("pipe")), Exit::BadInput, "is not a regular file");
}
