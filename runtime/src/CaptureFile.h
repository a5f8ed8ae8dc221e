//===- CaptureFile.h - What a captured launch's file holds ------*- C++ -*-===//
#ifndef CFC_RUNTIME_SRC_CAPTUREFILE_H
#define CFC_RUNTIME_SRC_CAPTUREFILE_H

#include "runtime/src/BundleWriter.h"
#include "runtime/src/Capture.h"
#include "runtime/src/SafetensorsHeader.h"
#include "runtime/src/Tensors.h"

namespace cfc::runtime {

/// The inputs of a launch as a safetensors file. The constructor reads what says which rows of caches are in
/// use; write() reads the rest piece by piece. Both throw Error.
class CaptureFile {
public:
  CaptureFile(const CapturedLaunch &launch, bool weights);

  void write(const ContentWriter &write) const;
  uint64_t bytes() const;                         ///< of all tensors
  size_t tensors() const { return items.size(); } ///< in the file
  /// "cache: 38 of 256 rows, …", or "" where there is no cache.
  const std::string &summary() const { return cacheSummary; }

private:
  /// Rows 0 to `count` of a block of a cache are in use.
  struct Run {
    uint64_t block = 0, count = 0;
  };
  /// K or V of a cache.
  struct Rows {
    uint64_t base = 0, row = 0; ///< address, bytes of a token of a head
    uint64_t heads = 0, strideHead = 0, strideToken = 0, strideBlock = 0;
    std::vector<Run> runs;
  };
  /// One tensor of the file.
  struct Item {
    std::string name, dtype;
    std::vector<int64_t> shape;
    uint64_t elementBytes = 1, address = 0; ///< address: of what lies without gaps
    std::optional<Rows> rows = {};
    std::string content = {}; ///< of what lies in host memory
    std::optional<PackedLayout> packed = {};
    uint64_t bytes() const;
  };

  void readTable();
  std::vector<int64_t> integers(const std::string &tensor) const;
  std::vector<Run> usedRows(const TensorSpec &cache, const BoundTensor &bound) const;
  void addTensor(const TensorSpec &spec, const BoundTensor &bound);
  void addCache(const TensorSpec &spec, const BoundTensor &bound);
  std::string metadata() const;
  std::string header() const;
  void writeRows(const Rows &rows, const ContentWriter &write) const;
  void readRows(const Rows &rows, uint64_t block, uint64_t first, uint64_t count, std::string &out) const;
  void writeMemory(uint64_t address, uint64_t bytes, const ContentWriter &write) const;

  const CapturedLaunch &launch;
  const bool weights;
  std::vector<BoundTensor> bound; ///< as the table has it
  std::vector<Item> items;
  std::string cacheSummary;
};

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_CAPTUREFILE_H
