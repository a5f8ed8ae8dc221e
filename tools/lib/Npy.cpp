//===- Npy.cpp - numpy's file format --------------------------------------===//
//
// magic "\x93NUMPY", major, minor, header length (2 bytes in version 1, else 4),
// and the header: a Python dictionary with descr, fortran_order and shape.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Npy.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include <cstring>
#include <fmt/ranges.h>

using namespace cfc;

namespace {
struct Header {
  std::string descr;
  bool hasDescr = false, hasOrder = false, hasShape = false, fortran = false;
  std::vector<int64_t> shape;
};

/// Reads the one dictionary that an npy header is. Anything else in it is an error with its byte offset.
class HeaderParser {
public:
  HeaderParser(std::string_view text, size_t offset, const std::string &path)
      : text(text), offset(offset), path(path) {}

  Header parse() {
    expect('{');
    while (!accept('}')) {
      std::string key = string();
      expect(':');
      value(key);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skipSpace();
    if (at != text.size())
      fail("unexpected text behind the dictionary");
    if (!header.hasDescr || !header.hasOrder || !header.hasShape)
      badInput(path, "the npy header lacks \"{}\"",
               !header.hasDescr   ? "descr"
               : !header.hasOrder ? "fortran_order"
                                  : "shape");
    return header;
  }

private:
  void value(const std::string &key) {
    bool *seen = key == "descr"           ? &header.hasDescr
                 : key == "fortran_order" ? &header.hasOrder
                 : key == "shape"         ? &header.hasShape
                                          : nullptr;
    if (!seen)
      fail(fmt::format("unknown key \"{}\"", key));
    if (*seen)
      fail(fmt::format("the key \"{}\" appears twice", key));
    *seen = true;
    if (key == "descr") {
      skipSpace();
      if (at < text.size() && text[at] == '[')
        badInput(path, "holds records (a structured dtype); a plain array is needed");
      header.descr = string();
    } else if (key == "fortran_order") {
      header.fortran = boolean();
    } else {
      expect('(');
      while (!accept(')')) {
        header.shape.push_back(integer());
        if (!accept(',')) {
          expect(')');
          break;
        }
      }
    }
  }

  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t'))
      ++at;
  }
  bool accept(char c) {
    skipSpace();
    if (at == text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(fmt::format("expected '{}'", c));
  }
  std::string string() {
    skipSpace();
    char quote = at < text.size() ? text[at] : 0;
    size_t end = quote == '\'' || quote == '"' ? text.find(quote, at + 1) : std::string_view::npos;
    if (end == std::string_view::npos)
      fail("expected a string");
    std::string result(text.substr(at + 1, end - at - 1));
    at = end + 1;
    return result;
  }
  bool boolean() {
    skipSpace();
    for (std::string_view word : {"True", "False"})
      if (text.substr(at, word.size()) == word) {
        at += word.size();
        return word == "True";
      }
    fail("expected True or False");
  }
  int64_t integer() {
    skipSpace();
    int64_t result = 0;
    size_t start = at;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      if (result > (INT64_MAX - 9) / 10)
        fail("a dimension is too large");
      result = result * 10 + (text[at] - '0');
    }
    if (at == start)
      fail("expected a dimension");
    return result;
  }
  [[noreturn]] void fail(const std::string &what) {
    badInput(path, "the npy header is garbled at byte {}: {}", offset + at, what);
  }

  std::string_view text;
  size_t offset;
  const std::string &path;
  size_t at = 0;
  Header header;
};
} // namespace

static DType elementType(const std::string &descr, const std::string &path) {
  static const std::pair<std::string_view, DType> known[] = {
      {"<f2", DType::f16}, {"<f4", DType::f32},  {"<f8", DType::f64},  {"<i4", DType::i32},
      {"<i8", DType::i64}, {"|V2", DType::bf16}, {"<V2", DType::bf16}, {"bfloat16", DType::bf16}};
  for (auto [name, type] : known)
    if (name == descr)
      return type;
  if (!descr.empty() && descr[0] == '>')
    badInput(path,
             "is big-endian (dtype \"{}\"); write it little-endian: np.save(file, "
             "a.astype(a.dtype.newbyteorder('<')))",
             descr);
  badInput(path, "has dtype \"{}\"; float16, float32, float64, int32, int64 and bfloat16 (V2) can be read",
           descr);
}

Tensor cfc::readNpy(const std::string &path) {
  auto file = MappedFile::open(path);
  std::string_view text = file->text();
  if (text.size() < 6 || text.substr(0, 6) != "\x93NUMPY")
    badInput(path, "is not an npy file: it does not begin with \\x93NUMPY");
  if (text.size() < 12)
    badInput(path, "is truncated: {} bytes hold no npy header", text.size());
  int major = uint8_t(text[6]);
  if (major < 1 || major > 3)
    badInput(path, "has npy format version {}.{}; 1, 2 and 3 can be read", major, uint8_t(text[7]));
  size_t start = major == 1 ? 10 : 12;
  uint32_t headerBytes = 0;
  std::memcpy(&headerBytes, text.data() + 8, major == 1 ? 2 : 4);
  if (headerBytes > text.size() - start)
    badInput(path, "is truncated: its header should end at byte {}, the file has {}",
             start + uint64_t(headerBytes), text.size());

  Header header = HeaderParser(text.substr(start, headerBytes), start, path).parse();
  if (header.shape.empty())
    badInput(path, "holds a 0-d array (a scalar); give it a dimension: np.save(file, a.reshape(1))");
  if (header.fortran)
    badInput(path, "is in Fortran order; write it in C order: np.save(file, np.ascontiguousarray(a))");
  DType type = elementType(header.descr, path);
  auto elements = checkedElements(header.shape, sizeOf(type));
  if (!elements)
    badInput(path, "has an impossible shape ({})", shapeText(header.shape));
  size_t dataStart = start + headerBytes, needed = size_t(*elements) * sizeOf(type);
  if (text.size() - dataStart != needed)
    badInput(path, "{}: {} needs {} bytes of data, the file has {}",
             text.size() - dataStart < needed ? "is truncated" : "has bytes left over",
             typeText(type, header.shape), needed, text.size() - dataStart);
  return Tensor(type, header.shape, file->data() + dataStart, file);
}

std::string cfc::npyContent(const Tensor &tensor) {
  if (tensor.type == DType::bf16 || tensor.type == DType::f8E4M3FN) {
    Tensor wide(DType::f32, tensor.shape);
    for (int64_t i = 0, n = tensor.elements(); i < n; ++i)
      wide.set(i, tensor.get(i));
    return npyContent(wide);
  }
  std::string_view descr = tensor.type == DType::f16   ? "<f2"
                           : tensor.type == DType::f32 ? "<f4"
                           : tensor.type == DType::f64 ? "<f8"
                           : tensor.type == DType::i32 ? "<i4"
                                                       : "<i8";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                   fmt::join(tensor.shape, ", "), tensor.shape.size() == 1 ? "," : "");
  // The data starts at a multiple of 64, as numpy writes it; the header ends with a newline.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string content("\x93NUMPY\x01\x00", 8);
  content += char(header.size() & 0xff);
  content += char(header.size() >> 8);
  content += header;
  content.append(reinterpret_cast<const char *>(tensor.data()), tensor.bytes());
  return content;
}
