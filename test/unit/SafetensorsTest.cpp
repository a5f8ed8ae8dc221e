//===- SafetensorsTest.cpp - Good and bad checkpoints -----------------------===//
#include "tools/lib/Safetensors.h"
#include "Scratch.h"
#include "tools/lib/Failure.h"

using namespace cfc;

static std::string file(const std::string &header, const std::string &data) {
  std::string content;
  for (int i = 0; i < 8; ++i)
    content += char(header.size() >> 8 * i);
  return content + header + data;
}

static std::string entry(const std::string &key, const std::string &dtype, const std::string &shape,
                         int begin, int end) {
  return "\"" + key + "\": {\"dtype\": \"" + dtype + "\", \"shape\": " + shape + ", \"data_offsets\": [" +
         std::to_string(begin) + ", " + std::to_string(end) + "]}";
}

TEST_CASE("safetensors: tensors are read where they lie") {
  Scratch scratch;
  std::string data("\x00\x3c\x00\x40\x80\x3f", 6);
  SafetensorsFile f(scratch.write("a.safetensors", file("{\"__metadata__\": {\"format\": \"pt\"}, " +
                                                            entry("b", "BF16", "[1]", 4, 6) + ", " +
                                                            entry("a", "F16", "[2, 1]", 0, 4) + "}  ",
                                                        data)));
  CHECK(f.keys() == std::vector<std::string>{"a", "b"});
  CHECK(f.get("a").get(1) == 2.0);
  CHECK(f.get("a").shape == std::vector<int64_t>{2, 1});
  CHECK(f.get("b").get(0) == 1.0);
  CHECK_FAILS(f.get("bb"), Exit::BadInput, "holds no tensor \"bb\"");
}

TEST_CASE("safetensors: bad files are refused") {
  Scratch scratch;
  auto refuse = [&](const std::string &content, const std::string &part) {
    std::string path = scratch.write("bad.safetensors", content);
    CHECK_FAILS(SafetensorsFile{path}, Exit::BadInput, part);
    CHECK_FAILS(SafetensorsFile{path}, Exit::BadInput, path);
  };
  refuse("", "truncated");
  refuse("1234567", "truncated");
  refuse(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "at most 100000000");
  refuse(std::string("\x40\0\0\0\0\0\0\0{}", 10), "header needs 64 bytes");
  refuse(file("", ""), "does not begin with '{'");
  refuse(file("[1]", ""), "does not begin with '{'");
  refuse(file("{\"a\": ", ""), "JSON is garbled");
  refuse(file("{\"a\": 3}", ""), "tensor \"a\": error: needs a dtype");
  refuse(file("{" + entry("a", "F16", "[4]", 0, 8) + "}", "1234"), "the offsets lie");
  refuse(file("{" + entry("a", "F16", "[2]", 4, 0) + "}", "1234"), "bytes 4 to 0");
  refuse(file("{" + entry("a", "F16", "[2]", -4, 0) + "}", "1234"), "an offset must be an integer");
  refuse(file("{" + entry("a", "F16", "[3]", 0, 4) + "}", "1234"), "does not take the 4 bytes");
  refuse(file("{" + entry("a", "F16", "[1.5]", 0, 4) + "}", "1234"), "a dimension must be");
  refuse(file("{" + entry("a", "F16", "[4611686018427387904, 8]", 0, 4) + "}", "1234"), "does not take");
  refuse(file("{" + entry("a", "Q9", "[2]", 0, 4) + "}", "1234"), "unknown dtype \"Q9\"");
  refuse(file("{" + entry("a", "F16", "[2]", 0, 4) + ", " + entry("b", "F16", "[2]", 2, 6) + "}", "123456"),
         "overlap");
  refuse(file("{" + entry("a", "F16", "[2]", 0, 4) + ", " + entry("b", "F16", "[2]", 0, 4) + "}", "1234"),
         "overlap");
  refuse(file("{" + entry("a", "F16", "[2]", 2, 6) + "}", "123456"),
         "bytes 0 to 2 of the data belong to no tensor");
  refuse(file("{" + entry("a", "F16", "[2]", 0, 4) + "}", "123456"), "the last 2 bytes");
  refuse(file("{" + entry("a", "F16", "[2]", 0, 4) + ", " + entry("a", "F16", "[2]", 4, 8) + "}", "12345678"),
         "the key \"a\" appears twice");
  refuse("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "Git LFS pointer");
  refuse("\n <!DOCTYPE html><html>not found</html>", "HTML page");
  refuse("<html>", "HTML page");
  refuse(std::string("PK\x03\x04zipzipzip"), "zip archive");
  refuse(file(std::string(20000, '[').replace(0, 1, "{"), ""), "JSON is garbled");
}

TEST_CASE("safetensors: a file cut anywhere is refused") {
  Scratch scratch;
  std::string whole = file("{" + entry("a", "F16", "[2]", 0, 4) + "}", "1234");
  for (size_t n = 0; n < whole.size(); ++n)
    CHECK_FAILS(SafetensorsFile(scratch.write("cut.safetensors", whole.substr(0, n))), Exit::BadInput,
                "cut.safetensors");
}

TEST_CASE("safetensors: a dtype that cfc does not use matters only when it is asked for") {
  Scratch scratch;
  SafetensorsFile f(scratch.write("a.safetensors", file("{" + entry("a", "U8", "[4]", 0, 4) + "}", "1234")));
  CHECK_FAILS(f.get("a"), Exit::BadInput, "has dtype U8");
}

TEST_CASE("checkpoint: shards by index") {
  Scratch scratch;
  scratch.write("c/one.safetensors",
                file("{" + entry("a", "F32", "[1]", 0, 4) + "}", std::string("\0\0\x80\x3f", 4)));
  scratch.write("c/two.safetensors",
                file("{" + entry("b", "F32", "[1]", 0, 4) + "}", std::string("\0\0\0\x40", 4)));
  auto index = [&](const std::string &map) {
    return scratch.write("c/model.safetensors.index.json",
                         "{\"metadata\": {}, \"weight_map\": {" + map + "}}");
  };
  std::string folder = scratch.path("c");
  std::string path = index("\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"");
  Checkpoint checkpoint(folder);
  CHECK(checkpoint.keys() == std::vector<std::string>{"a", "b"});
  CHECK(checkpoint.get("b").get(0) == 2);
  CHECK(Checkpoint(path).get("a").get(0) == 1);
  CHECK_FAILS(checkpoint.get("c"), Exit::BadInput, "holds no tensor \"c\"");

  index("\"a\": \"one.safetensors\", \"b\": \"three.safetensors\"");
  CHECK_FAILS(Checkpoint{folder}, Exit::BadInput, "three.safetensors");
  index("\"a\": \"two.safetensors\"");
  CHECK_FAILS(Checkpoint(folder).get("a"), Exit::BadInput, "two.safetensors: error: holds no tensor \"a\"");
  for (std::string bad : {"../c/one.safetensors", "/etc/passwd", "x/../../one.safetensors", ""}) {
    index("\"a\": \"" + bad + "\"");
    CHECK_FAILS(Checkpoint{folder}, Exit::BadInput, "points outside its folder");
  }
  index("\"a\": 3");
  CHECK_FAILS(Checkpoint{folder}, Exit::BadInput, "does not name a file");
  index("\"a\": \"one.safetensors\", \"a\": \"two.safetensors\"");
  CHECK_FAILS(Checkpoint{folder}, Exit::BadInput, "appears twice");
  scratch.write("c/model.safetensors.index.json", "[]");
  CHECK_FAILS(Checkpoint{folder}, Exit::BadInput, "no \"weight_map\" object");
}

TEST_CASE("checkpoint: a folder without an index") {
  Scratch scratch;
  std::filesystem::create_directory(scratch.path("d"));
  CHECK_FAILS(Checkpoint(scratch.path("d")), Exit::BadInput, "no .safetensors file");
  std::string content = file("{" + entry("a", "F16", "[1]", 0, 2) + "}", "12");
  scratch.write("d/x.safetensors", content);
  CHECK(Checkpoint(scratch.path("d")).contains("a"));
  scratch.write("d/y.safetensors", content);
  CHECK_FAILS(Checkpoint(scratch.path("d")), Exit::BadInput, "several .safetensors files");
  scratch.write("d/model.safetensors", content);
  CHECK(Checkpoint(scratch.path("d")).contains("a"));
  CHECK_FAILS(Checkpoint(scratch.path("nowhere")), Exit::BadInput, "no such file");
}
