//===- NpyTest.cpp - Good and bad npy files --------------------------------===//
#include "tools/lib/Npy.h"
#include "Scratch.h"
#include "tools/lib/Failure.h"

using namespace cfc;

static std::string npy(const std::string &header, const std::string &data, char major = 1) {
  std::string content = std::string("\x93NUMPY") + major + '\0';
  size_t size = header.size();
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i)
    content += char(size >> 8 * i);
  return content + header + data;
}

static std::string header(const std::string &descr, const std::string &shape,
                          const std::string &fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

TEST_CASE("npy: every version and type is read") {
  Scratch scratch;
  for (char major : {1, 2, 3}) {
    Tensor t = readNpy(scratch.write("a.npy", npy(header("<i4", "(2, 3)"), std::string(24, '\1'), major)));
    CHECK(t.shape == std::vector<int64_t>{2, 3});
    CHECK(t.type == DType::i32);
    CHECK(t.get(5) == 0x01010101);
  }
  CHECK(readNpy(scratch.write("b.npy", npy(header("|V2", "(1,)"), std::string("\x80\x3f", 2)))).get(0) ==
        1.0);
  CHECK(readNpy(scratch.write("c.npy", npy(header("<f2", "(0, 4)"), ""))).elements() == 0);
}

TEST_CASE("npy: what is written is read back") {
  Scratch scratch;
  for (DType type : {DType::f16, DType::f32, DType::f64, DType::i32, DType::i64}) {
    Tensor t(type, {3, 5});
    for (int i = 0; i < 15; ++i)
      t.set(i, i - 7);
    std::string content = npyContent(t);
    CHECK(content.find('\n') % 64 == 63);
    Tensor back = readNpy(scratch.write("t.npy", content));
    CHECK(back.type == type);
    CHECK(back.shape == t.shape);
    for (int i = 0; i < 15; ++i)
      CHECK(back.get(i) == i - 7);
  }
  Tensor b(DType::bf16, {1});
  b.set(0, 3.140625);
  Tensor wide = readNpy(scratch.write("b.npy", npyContent(b)));
  CHECK(wide.type == DType::f32);
  CHECK(wide.get(0) == 3.140625);
}

TEST_CASE("npy: bad files are refused") {
  Scratch scratch;
  auto refuse = [&](const std::string &content, const std::string &part) {
    std::string path = scratch.write("bad.npy", content);
    CHECK_FAILS(readNpy(path), Exit::BadInput, part);
    CHECK_FAILS(readNpy(path), Exit::BadInput, path);
  };
  refuse("", "not an npy file");
  refuse("\x93NUMPY", "truncated");
  refuse("hello world, I am no array", "not an npy file");
  refuse(npy(header("<f4", "(2,)"), "12345678", 4), "version 4.0");
  refuse(npy(header("<f4", "(2, 2)", "True"), std::string(16, 0)), "Fortran order");
  refuse(npy(header(">f4", "(2,)"), "12345678"), "big-endian");
  refuse(npy(header("<f4", "()"), "1234"), "0-d");
  refuse(npy(header("<c8", "(1,)"), "12345678"), "dtype \"<c8\"");
  refuse(npy(header("<f4", "(2,)"), "1234567"), "truncated");
  refuse(npy(header("<f4", "(2,)"), "123456789"), "left over");
  refuse(npy(header("<f4", "(-1,)"), ""), "expected a dimension");
  refuse(npy(header("<f4", "(9223372036854775807,)"), ""), "too large");
  refuse(npy(header("<f4", "(4611686018427387904, 4611686018427387904)"), ""), "impossible shape");
  refuse(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"), "records");
  refuse(npy("{'descr': '<f4', 'shape': (1,), }", "1234"), "lacks \"fortran_order\"");
  refuse(npy("{'descr': '<f4', 'descr': '<f4'}", ""), "twice");
  refuse(npy("{'descr': '<f4'", ""), "garbled at byte 25");
  refuse(npy("{'desc", ""), "garbled");
  refuse(npy("{'other': 1}", ""), "unknown key");
  refuse(npy(header("<f4", "(1,)"), "1234").substr(0, 30), "truncated");
  CHECK_FAILS(readNpy(scratch.path("none.npy")), Exit::BadInput, "no such file");
  CHECK_FAILS(readNpy(scratch.folder), Exit::BadInput, "is a folder");
}

TEST_CASE("npy: a file cut anywhere is refused") {
  Scratch scratch;
  std::string whole = npy(header("<f4", "(2,)"), "12345678");
  for (size_t n = 0; n < whole.size(); ++n)
    CHECK_FAILS(readNpy(scratch.write("cut.npy", whole.substr(0, n))), Exit::BadInput, "cut.npy: error: ");
}
