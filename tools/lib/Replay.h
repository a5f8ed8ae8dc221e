//===- Replay.h - Launches that an engine captured ------------------------===//
//
// What the runtime wrote for CFC_CAPTURE (docs/design.md, "Captured launches"), as inputs for verify.
//
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/src/Manifest.h"
#include "tools/lib/Inputs.h"
#include "tools/lib/Safetensors.h"

namespace cfc {

/// Names of the graphs of which `path`, a file or a folder, holds captures.
std::vector<std::string> capturedGraphs(const std::string &path);

/// One captured launch, read and checked.
class Replay {
public:
  /// Fails (2) for a file that is no capture, truncated or garbled, and (3) for one of a newer form.
  explicit Replay(const std::string &path);

  const std::string &path() const { return file.path(); }
  const runtime::GraphSpec &graph() const { return manifest.graphs.front(); }
  const std::string &planHash() const { return graph().variants.front().planHash; }
  /// Digests of the bundle's graph text and of the kernels that ran; "" where they are not known.
  const std::string &graphDigest() const { return textDigest; }
  const std::string &kernelDigest() const;
  int64_t maxSms() const { return sms; }
  /// "launch of graph 'block' (plan 1a2b3c4d)".
  std::string describe() const;

  /// Fails (2) unless `other`, made of the graph `name`, takes the same inputs under the same names; `where`
  /// is its file.
  void requireFit(const runtime::GraphSpec &other, const std::string &name, const std::string &where) const;

  /// The inputs. Caches lie without gaps: of contiguous ones as many rows as are in use or appended to, of a
  /// pool the pages in use, which slots and block tables are changed to name; all other rows are NaN.
  /// `weights`: a checkpoint with what the capture left out.
  TensorMap inputs(const std::vector<InputSpec> &specs, const std::string &weights) const;

private:
  /// The rows of a cache that were in use: 0 to `count` of a block (a request's rows, or a page).
  struct Run {
    int64_t block = 0, count = 0;
  };
  struct Cache {
    int64_t capacity = 0, blocks = 0;
    std::vector<Run> runs;
  };
  void checkDigest() const;
  void readMetadata();
  void readCache(const runtime::TensorSpec &spec, const nlohmann::json &json);
  void readPages();
  std::vector<int64_t> integers(const std::string &tensor) const;
  bool isPool(const runtime::TensorSpec &spec) const { return spec.page > 0; }
  int64_t pageOf(int64_t page, const std::string &tensor) const;
  int64_t mostTokens(const runtime::TensorSpec &spec) const;
  int64_t tokensOf(const runtime::TensorSpec &spec) const;
  void addCache(TensorMap &tensors, const InputSpec &spec) const;
  void renamePages(TensorMap &tensors) const;

  SafetensorsFile file;
  runtime::Manifest manifest; ///< of the graph and the variant that ran
  std::string textDigest;
  bool hasWeights = true;
  int64_t sms = 0;
  std::map<std::string, Cache> caches;
  std::map<int64_t, int64_t> pages; ///< of all pools: from the engine's to the replay's
};

/// The captures that --replay names: a file, or those of a folder that are of a graph of that name. Fails (2)
/// where there is none.
std::vector<Replay> openReplays(const std::string &path, const std::string &graph);

} // namespace cfc
