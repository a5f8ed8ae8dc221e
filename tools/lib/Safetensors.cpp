//===- Safetensors.cpp - Checkpoints in safetensors files -----------------===//
//
// u64 header size, a JSON header {"key": {"dtype", "shape", "data_offsets": [begin,
// end]}, "__metadata__": {…}}, then the data that the offsets are relative to.
//
//===----------------------------------------------------------------------===//
#include "tools/lib/Safetensors.h"
#include "tools/lib/Failure.h"
#include "tools/lib/Files.h"
#include "tools/lib/Json.h"
#include "tools/lib/Suggest.h"
#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>

using namespace cfc;
using nlohmann::json;
namespace fs = std::filesystem;

/// The largest header that the format allows.
static constexpr uint64_t maxHeaderBytes = 100'000'000;

static bool startsWithIgnoringCase(std::string_view text, std::string_view lowerPrefix) {
  return text.size() >= lowerPrefix.size() && std::equal(lowerPrefix.begin(), lowerPrefix.end(), text.begin(),
                                                         [](char a, char b) { return a == tolower(b); });
}

/// Recognises what downloads leave in place of a checkpoint.
static void refuseImpostors(std::string_view text, const std::string &path) {
  if (text.substr(0, 42) == "version https://git-lfs.github.com/spec/v1")
    badInput(path, "is a Git LFS pointer, not the file itself; fetch it with \"git lfs pull\"");
  std::string_view start = text.substr(0, 256);
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n\xef\xbb\xbf"), start.size()));
  if (startsWithIgnoringCase(start, "<!doctype") || startsWithIgnoringCase(start, "<html") ||
      startsWithIgnoringCase(start, "<?xml") || startsWithIgnoringCase(start, "<head"))
    badInput(path, "is an HTML page (an error page of a download?), not a safetensors file");
  if (text.substr(0, 4) == std::string_view("PK\x03\x04", 4))
    badInput(path, "is a zip archive (a PyTorch checkpoint?), not a safetensors file");
  if (text.substr(0, 4) == "GGUF")
    badInput(path, "is a GGUF file, not a safetensors file");
}

static size_t elementBytes(const std::string &dtype) {
  static const std::map<std::string, size_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8}};
  auto it = sizes.find(dtype);
  return it == sizes.end() ? 0 : it->second;
}

static uint64_t asUnsigned(const json &value, const std::string &where, const char *what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t(INT64_MAX))
    badInput(where, "{} must be an integer of at least 0, not {}", what, value.dump());
  return value.get<uint64_t>();
}

SafetensorsFile::SafetensorsFile(const std::string &path) : name(path), file(MappedFile::open(path)) {
  std::string_view text = file->text();
  refuseImpostors(text, path);
  if (text.size() < 8)
    badInput(path, "is truncated: {} bytes hold no safetensors header", text.size());
  uint64_t headerBytes;
  std::memcpy(&headerBytes, text.data(), 8);
  if (headerBytes > maxHeaderBytes)
    badInput(path,
             "is not a safetensors file: its first 8 bytes give a header of {} bytes; at most {} are allowed",
             headerBytes, maxHeaderBytes);
  if (headerBytes > text.size() - 8)
    badInput(path, "is truncated: its header needs {} bytes, {} are left", headerBytes, text.size() - 8);
  if (headerBytes == 0 || text[8] != '{')
    badInput(path, "is not a safetensors file: its header does not begin with '{{'");
  dataStart = 8 + headerBytes;
  uint64_t dataBytes = text.size() - dataStart;

  json header = parseJson(text.substr(8, headerBytes), path);
  for (auto &[key, value] : header.items()) {
    if (key == "__metadata__") {
      readMetadata(value);
      continue;
    }
    std::string where = fmt::format("{}: tensor \"{}\"", path, key);
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2)
      badInput(where, "needs a dtype, a shape and two data_offsets");
    Entry entry;
    entry.dtype = value["dtype"];
    for (const json &dim : value["shape"])
      entry.shape.push_back(int64_t(asUnsigned(dim, where, "a dimension")));
    entry.begin = asUnsigned(value["data_offsets"][0], where, "an offset");
    entry.end = asUnsigned(value["data_offsets"][1], where, "an offset");
    if (entry.begin > entry.end || entry.end > dataBytes)
      badInput(where, "its data lies at bytes {} to {}, the file has {} bytes of data{}", entry.begin,
               entry.end, dataBytes, entry.begin > entry.end ? "" : ": truncated, or the offsets lie");
    size_t size = elementBytes(entry.dtype);
    if (!size)
      badInput(where, "has the unknown dtype \"{}\"", entry.dtype);
    auto elements = checkedElements(entry.shape, size);
    if (!elements || uint64_t(*elements) * size != entry.end - entry.begin)
      badInput(where, "{} of shape {} does not take the {} bytes that its offsets give", entry.dtype,
               shapeText(entry.shape), entry.end - entry.begin);
    entries.emplace(key, std::move(entry));
  }

  std::vector<const std::pair<const std::string, Entry> *> order;
  for (auto &entry : entries)
    order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto *a, auto *b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t end = 0;
  const std::string *previous = nullptr;
  for (auto *entry : order) {
    if (entry->second.begin < end)
      badInput(path, "the tensors \"{}\" and \"{}\" overlap", *previous, entry->first);
    if (entry->second.begin > end)
      badInput(path, "bytes {} to {} of the data belong to no tensor", end, entry->second.begin);
    end = entry->second.end;
    previous = &entry->first;
  }
  if (end != dataBytes)
    badInput(path, "the last {} bytes belong to no tensor", dataBytes - end);
  readPacked();
}

void SafetensorsFile::readMetadata(const json &metadata) {
  std::string where = name + ": __metadata__";
  if (!metadata.is_object())
    badInput(where, "must be an object");
  for (auto &[key, value] : metadata.items()) {
    if (!value.is_string())
      badInput(where, "\"{}\" must be a string", key);
    notes[key] = value.get<std::string>();
  }
}

/// The layout that the metadata gives a weight; `where` names both.
static runtime::PackedLayout readLayout(const json &weight, const std::string &where) {
  // Far above any weight, and far below what would overflow.
  constexpr uint64_t limit = uint64_t(1) << 24;
  auto extent = [&](const json &value, const char *what) {
    uint64_t number = asUnsigned(value, where, what);
    if (number == 0 || number > limit)
      badInput(where, "{} must be from 1 to {}, not {}", what, limit, number);
    return int64_t(number);
  };
  if (!weight.is_object() || !weight.contains("shape") || !weight["shape"].is_array() ||
      weight["shape"].size() != 2)
    badInput(where, "needs a shape of two extents");
  runtime::PackedLayout layout;
  layout.rows = extent(weight["shape"][0], "an extent");
  layout.columns = extent(weight["shape"][1], "an extent");
  if (weight.contains("column_group"))
    layout.columnGroup = extent(weight["column_group"], "column_group");
  return layout;
}

void SafetensorsFile::readPacked() {
  auto layout = notes.extract(kLayoutKey), weights = notes.extract(kPackedKey);
  std::string where = name + ": __metadata__";
  if (!layout && !weights)
    return;
  if (!layout || !weights)
    badInput(where, "\"{}\" and \"{}\" belong together; one is missing", kLayoutKey, kPackedKey);
  if (layout.mapped() != runtime::kPackedLayoutName)
    cannotRun(
        where,
        "the weights are in the layout \"{}\", this cfc knows \"{}\": unpack them with what packed them",
        layout.mapped(), runtime::kPackedLayoutName);
  where += fmt::format(": \"{}\"", kPackedKey);
  json list = parseJson(weights.mapped(), where);
  if (!list.is_object())
    badInput(where, "must be an object");
  for (auto &[key, value] : list.items()) {
    auto found = entries.find(key);
    if (found == entries.end())
      badInput(where, "names \"{}\", which the file does not hold", key);
    std::string weight = fmt::format("{}: tensor \"{}\"", where, key);
    Entry &entry = found->second;
    entry.packed = readLayout(value, weight);
    std::vector<int64_t> shape = packedShape(*entry.packed);
    if (elementBytes(entry.dtype) != 2 || entry.shape != shape)
      badInput(weight, "packed it would be {} of 2-byte elements; it is {} of {}", shapeText(shape),
               shapeText(entry.shape), entry.dtype);
  }
}

std::vector<std::string> SafetensorsFile::keys() const {
  std::vector<std::string> result;
  for (auto &entry : entries)
    result.push_back(entry.first);
  return result;
}

const SafetensorsFile::Entry &SafetensorsFile::entry(const std::string &key) const {
  auto it = entries.find(key);
  if (it == entries.end())
    badInput(name, "holds no tensor \"{}\"{}", key, didYouMean(key, keys()));
  return it->second;
}

StoredTensor SafetensorsFile::stored(const std::string &key) const {
  const Entry &found = entry(key);
  return {found.dtype, found.shape, file->text().substr(dataStart + found.begin, found.end - found.begin)};
}

std::optional<runtime::PackedLayout> SafetensorsFile::packedLayout(const std::string &key) const {
  return entry(key).packed;
}

Tensor SafetensorsFile::get(const std::string &key) const {
  const Entry &entry = this->entry(key);
  static const std::map<std::string, DType> types = {
      {"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32},         {"F64", DType::f64},
      {"I32", DType::i32}, {"I64", DType::i64},   {"F8_E4M3", DType::f8E4M3FN}};
  auto type = types.find(entry.dtype);
  if (type == types.end())
    badInput(fmt::format("{}: tensor \"{}\"", name, key),
             "has dtype {}; F16, BF16, F32, F64, I32, I64 and F8_E4M3 can be used", entry.dtype);
  Tensor tensor(type->second, entry.shape, file->data() + dataStart + entry.begin, file);
  tensor.packed = entry.packed;
  return tensor;
}

//===----------------------------------------------------------------------===//
// Checkpoints of several files
//===----------------------------------------------------------------------===//

Checkpoint::Checkpoint(const std::string &path) : name(path) {
  std::error_code error;
  std::string single = path;
  if (fs::is_directory(path, error)) {
    std::string index = path + "/model.safetensors.index.json";
    if (fs::exists(index, error)) {
      readIndex(path, index);
      return;
    }
    std::vector<std::string> found;
    for (auto &file : fs::directory_iterator(path, error))
      if (file.path().extension() == ".safetensors")
        found.push_back(file.path().string());
    single = path + "/model.safetensors";
    if (!fs::exists(single, error)) {
      if (found.size() != 1)
        badInput(path, "holds {}",
                 found.empty() ? "no .safetensors file"
                               : "several .safetensors files and no model.safetensors.index.json");
      single = found[0];
    }
  } else if (path.ends_with(".safetensors.index.json")) {
    readIndex(fs::path(path).parent_path().string(), path);
    return;
  }
  for (const std::string &key : open(single).keys())
    fileOf[key] = single;
}

void Checkpoint::readIndex(const std::string &folder, const std::string &indexPath) {
  auto text = MappedFile::open(indexPath);
  refuseImpostors(text->text(), indexPath);
  json index = parseJson(text->text(), indexPath);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    badInput(indexPath, "has no \"weight_map\" object");
  std::set<std::string> missing;
  for (auto &[key, value] : index["weight_map"].items()) {
    if (!value.is_string())
      badInput(indexPath, "the key \"{}\" does not name a file", key);
    fs::path shard = value.get<std::string>();
    if (shard.empty() || shard.is_absolute() || std::count(shard.begin(), shard.end(), ".."))
      badInput(indexPath, "the key \"{}\" points outside its folder: \"{}\"", key, shard.string());
    std::string file = (folder.empty() ? fs::path(".") : fs::path(folder)) / shard;
    std::error_code error;
    if (!fs::exists(file, error))
      missing.insert(file);
    fileOf[key] = file;
  }
  if (!missing.empty())
    badInput(indexPath, "{} of the shards that it names {} missing: {}", missing.size(),
             missing.size() == 1 ? "is" : "are", *missing.begin());
}

SafetensorsFile &Checkpoint::open(const std::string &file) {
  auto &entry = files[file];
  if (!entry)
    entry = std::make_unique<SafetensorsFile>(file);
  return *entry;
}

std::vector<std::string> Checkpoint::keys() const {
  std::vector<std::string> result;
  for (auto &entry : fileOf)
    result.push_back(entry.first);
  return result;
}

SafetensorsFile &Checkpoint::holding(const std::string &key) {
  auto it = fileOf.find(key);
  if (it == fileOf.end())
    badInput(name, "holds no tensor \"{}\"{}", key, didYouMean(key, keys()));
  return open(it->second);
}

namespace {
/// A name KEY[first:last] or KEY[:, first:last] taken apart.
struct PartName {
  std::string key;
  size_t dim = 0;
  int64_t first = 0, last = 0;
};
} // namespace

static std::optional<PartName> parsePart(const std::string &name) {
  size_t open = name.rfind('[');
  if (open == std::string::npos || open == 0 || name.back() != ']')
    return std::nullopt;
  PartName part;
  part.key = name.substr(0, open);
  std::string range = name.substr(open + 1, name.size() - open - 2);
  if (range.starts_with(":, ")) {
    part.dim = 1;
    range.erase(0, 3);
  }
  const char *end = range.data() + range.size();
  auto first = std::from_chars(range.data(), end, part.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':')
    return std::nullopt;
  auto last = std::from_chars(first.ptr + 1, end, part.last);
  if (last.ec != std::errc() || last.ptr != end)
    return std::nullopt;
  return part;
}

/// The part of a native tensor that the name says.
static Tensor cut(const Tensor &whole, const PartName &part, const std::string &where) {
  if (whole.packed)
    badInput(where, "is packed; parts are cut from native weights");
  if (part.dim >= whole.shape.size() || part.first < 0 || part.first >= part.last ||
      part.last > whole.shape[part.dim])
    badInput(where, "has the shape {}; {} {} to {} are not in it", shapeText(whole.shape),
             part.dim ? "columns" : "rows", part.first, part.last - 1);
  std::vector<int64_t> shape = whole.shape;
  shape[part.dim] = part.last - part.first;
  size_t inner = sizeOf(whole.type); // bytes of one step along the dimension
  for (size_t dim = part.dim + 1; dim < shape.size(); ++dim)
    inner *= size_t(shape[dim]);
  size_t skipped = size_t(part.first) * inner, kept = size_t(shape[part.dim]) * inner;
  if (part.dim == 0)
    return Tensor(whole.type, shape, whole.data() + skipped, std::make_shared<Tensor>(whole));
  Tensor result(whole.type, shape);
  size_t stride = size_t(whole.shape[1]) * inner;
  for (int64_t row = 0; row < shape[0]; ++row)
    std::memcpy(result.mutableData() + size_t(row) * kept, whole.data() + size_t(row) * stride + skipped,
                kept);
  return result;
}

bool Checkpoint::contains(const std::string &key) const {
  if (holds(key))
    return true;
  auto part = parsePart(key);
  return part && holds(part->key);
}

Tensor Checkpoint::get(const std::string &key) {
  auto part = holds(key) ? std::nullopt : parsePart(key);
  if (!part || !holds(part->key))
    return holding(key).get(key);
  return cut(holding(part->key).get(part->key), *part, fmt::format("{}: tensor \"{}\"", name, part->key));
}

StoredTensor Checkpoint::stored(const std::string &key) { return holding(key).stored(key); }

std::optional<runtime::PackedLayout> Checkpoint::packedLayout(const std::string &key) {
  if (!holds(key) && contains(key))
    return std::nullopt;
  return holding(key).packedLayout(key);
}

std::vector<std::string> Checkpoint::paths() const {
  std::set<std::string> result;
  for (auto &[key, path] : fileOf)
    result.insert(path);
  return {result.begin(), result.end()};
}

std::map<std::string, std::string> Checkpoint::metadata() {
  std::map<std::string, std::string> result;
  for (const std::string &path : paths())
    result.insert(open(path).metadata().begin(), open(path).metadata().end());
  return result;
}
