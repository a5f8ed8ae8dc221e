//===- Capture.h - Writing a launch's inputs to a file ----------*- C++ -*-===//
//
// What CFC_CAPTURE asks for: one launch of each graph leaves a safetensors file that `cfc verify --replay`
// reads. Its contents are in docs/design.md, "Captured launches". A debugging aid: it waits for the device,
// says on standard error what it did, and never makes a launch fail.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_CAPTURE_H
#define CFC_RUNTIME_SRC_CAPTURE_H

#include "runtime/src/Manifest.h"
#include <functional>
#include <memory>

namespace cfc::runtime {

/// Keys of a capture's `__metadata__`, and the newest form of it that this cfc reads and writes.
inline constexpr const char *kCaptureKey = "cfc.capture";
inline constexpr int64_t kCaptureFormat = 1;

/// The tensor that ends the file: a digest of all data before it (CaptureDigest).
inline constexpr const char *kCaptureDigestName = "cfc.digest";

/// A digest of bytes that come in pieces: of each MiB the XXH3-64, chained by the XXH3-64 of the chain so far
/// and that.
class CaptureDigest {
public:
  void add(std::string_view bytes);
  uint64_t finish();

private:
  void block(std::string_view bytes);
  std::string pending; ///< less than a block
  uint64_t chain = 0;
};

/// Copies `bytes` at an address of the device to the host, behind all work that the launch waits for. Throws
/// Error.
using MemoryReader = std::function<void(void *to, uint64_t address, size_t bytes)>;

/// A launch that is about to start.
struct CapturedLaunch {
  const Manifest &manifest;   ///< what is said of the whole bundle; its graphs are not looked at
  std::string_view graphText; ///< of the bundle; empty: unknown
  const GraphSpec &graph;
  const VariantSpec &variant;     ///< that runs
  int64_t lengthHint = 0;         ///< cfc_launch_args
  uint32_t batchHint = 0;         ///< likewise
  uint32_t maxSms = 0;            ///< likewise
  uint64_t table = 0;             ///< address of the binding's table
  const MemoryReader &readMemory; ///< of the device
};

/// What the environment asks for. Thread-safe.
class Capture {
public:
  /// Nothing where CFC_CAPTURE is unset or empty, or where one of the variables makes no sense (standard
  /// error then says so).
  static std::unique_ptr<const Capture> fromEnvironment();

  /// Whether the launch that follows is the one to be written; counts it. The process counts the launches of
  /// a graph of a digest together, however often its bundle is loaded. `recorded`: it goes into a CUDA graph
  /// instead of running, so nothing can be copied: it is not counted, and standard error says so once.
  bool wants(const Manifest &manifest, const GraphSpec &graph, bool recorded) const noexcept;

  /// Writes the file, and says on standard error that it did or why not.
  void write(const CapturedLaunch &launch) const noexcept;

private:
  std::string path(const CapturedLaunch &launch) const;

  std::string folder, graphName; ///< graphName "": every graph
  uint64_t skip = 0;             ///< launches of a graph that run before the one
  bool weights = true;           ///< their bytes too, not only their names
};

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_CAPTURE_H
