//===- Safetensors.h - Checkpoints in safetensors files -------------------===//
#pragma once
#include "runtime/src/SafetensorsHeader.h"
#include "tools/lib/Tensor.h"
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace cfc {

class MappedFile;
using runtime::kLayoutKey, runtime::kPackedKey;

/// A tensor of any dtype as it lies in a file.
struct StoredTensor {
  std::string dtype; ///< as the file spells it
  std::vector<int64_t> shape;
  std::string_view bytes;
};

/// One mapped .safetensors file whose header has been checked: offsets in bounds, without overlap or holes,
/// of the size that dtype and shape say, each key once. Throws Failure (2) naming the file and the key.
class SafetensorsFile {
public:
  explicit SafetensorsFile(const std::string &path);

  const std::string &path() const { return name; }
  std::vector<std::string> keys() const;
  bool contains(const std::string &key) const { return entries.count(key) != 0; }
  /// The tensor, in the mapped file. Fails (2) for a key that is not there (the nearest is named) and for a
  /// dtype that cfc does not compute with.
  Tensor get(const std::string &key) const;
  /// The same for any dtype. The bytes live as long as this object.
  StoredTensor stored(const std::string &key) const;
  /// How a weight is packed, or nothing.
  std::optional<runtime::PackedLayout> packedLayout(const std::string &key) const;
  /// `__metadata__`, but for what it says of packed weights.
  const std::map<std::string, std::string> &metadata() const { return notes; }

private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;
    std::optional<runtime::PackedLayout> packed;
  };
  const Entry &entry(const std::string &key) const;
  void readMetadata(const nlohmann::json &metadata);
  void readPacked();

  std::string name;
  std::shared_ptr<const MappedFile> file;
  size_t dataStart = 0;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> notes;
};

/// What `--weights` names: one file, a folder with model.safetensors or one .safetensors file, or a folder
/// whose model.safetensors.index.json spreads the keys over shards. Shards are opened when a key of theirs is
/// asked for. A name may also be that of a part of a tensor, as Python would cut it: KEY[first:last] are rows
/// (or elements of a tensor of one dimension), KEY[:, first:last] columns. A key that is spelt so in a file
/// comes first.
class Checkpoint {
public:
  explicit Checkpoint(const std::string &path);

  const std::string &path() const { return name; }
  std::vector<std::string> keys() const;
  /// Whether the tensor, or the one that a part is cut from, is there.
  bool contains(const std::string &key) const;
  /// The tensor or part; columns are copied. Fails (2) for a part that is not in its tensor, or of a packed
  /// one.
  Tensor get(const std::string &key);
  /// The same for any dtype, of whole tensors.
  StoredTensor stored(const std::string &key);
  /// How a weight is packed; parts are native.
  std::optional<runtime::PackedLayout> packedLayout(const std::string &key);
  /// Of all files together; where two name the same, the first counts.
  std::map<std::string, std::string> metadata();
  /// Paths of all files, each once.
  std::vector<std::string> paths() const;

private:
  bool holds(const std::string &key) const { return fileOf.count(key) != 0; }
  SafetensorsFile &holding(const std::string &key);
  void readIndex(const std::string &folder, const std::string &indexPath);
  SafetensorsFile &open(const std::string &file);

  std::string name;
  std::map<std::string, std::string> fileOf; // key to path
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
};

} // namespace cfc
