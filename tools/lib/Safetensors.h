//===- Safetensors.h - Checkpoints in safetensors files -------------------===//
#pragma once
#include "tools/lib/Tensor.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cfc {

class MappedFile;

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

private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;
  };
  std::string name;
  std::shared_ptr<const MappedFile> file;
  size_t dataStart = 0;
  std::map<std::string, Entry> entries;
};

/// What `--weights` names: one file, a folder with model.safetensors or one .safetensors file, or a folder
/// whose model.safetensors.index.json spreads the keys over shards. Shards are opened when a key of theirs is
/// asked for.
class Checkpoint {
public:
  explicit Checkpoint(const std::string &path);

  const std::string &path() const { return name; }
  std::vector<std::string> keys() const;
  bool contains(const std::string &key) const { return fileOf.count(key) != 0; }
  Tensor get(const std::string &key);

private:
  void readIndex(const std::string &folder, const std::string &indexPath);
  SafetensorsFile &open(const std::string &file);

  std::string name;
  std::map<std::string, std::string> fileOf; // key to path
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
};

} // namespace cfc
