//===- Bundle.h - Reading a bundle ------------------------------*- C++ -*-===//
//
// The container of docs/design.md: a header, a table of named sections, their contents. Reading checks all of
// it before anything is used: no byte of a file goes unchecked, so that a single flipped bit is found.
//
// This library (CfcBundle) needs no CUDA; `cfc info`, the emulator and the runtime share it.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_BUNDLE_H
#define CFC_RUNTIME_SRC_BUNDLE_H

#include "runtime/src/Manifest.h"

namespace cfc::runtime {

/// Sizes in the container, in bytes.
inline constexpr char kMagic[8] = {'C', 'F', 'C', 'B', 'N', 'D', 'L', '\0'};
inline constexpr uint32_t kContainerVersion = 1;
inline constexpr size_t kHeaderBytes = 16;
inline constexpr size_t kEntryBytes = 56;
inline constexpr size_t kNameBytes = 32;
inline constexpr uint32_t kMaxSections = 65536;
/// The writer starts each section at a multiple of this; the reader accepts any offset.
inline constexpr size_t kSectionAlign = 16;

struct Section {
  std::string name;
  uint64_t offset = 0, size = 0, digest = 0;
};

struct Bundle {
  std::string source; ///< path, for messages
  std::string data;   ///< the whole file
  std::vector<Section> sections;
  Manifest manifest;

  /// The content of a section, or nothing where there is none of that name.
  std::optional<std::string_view> section(std::string_view name) const;
  std::string_view manifestText() const { return section("manifest").value_or(""); }
  /// The text of a graph of the manifest: section graph, graph.1, graph.2, …
  std::string_view graphText(const GraphSpec &graph) const;
  /// The plan of a variant. Sections plan, plan.1, plan.2, … hold those of all variants of the first graph,
  /// then those of the second, and so on.
  std::string_view planText(const GraphSpec &graph, size_t variant) const;
  std::string_view cubin(uint32_t index) const;
  /// The graph of that name, or the only one for "". Throws Error with the nearest name.
  const GraphSpec &graph(std::string_view name) const;
};

/// Name of a section of which there may be several: KIND, KIND.1, KIND.2, …
std::string sectionName(std::string_view kind, size_t index);

struct ReadOptions {
  bool checkDigests = true; ///< of the sections' content
  bool checkTarget = true;  ///< refuse an architecture that this runtime cannot run (off for printing)
};

/// XXH3-64, the digest used in bundles and for the simt module.
uint64_t digest64(std::string_view bytes);
/// The same as 16 lowercase hex digits.
std::string digestText(std::string_view bytes);

/// Reads a bundle; throws Error with the path in its message.
Bundle loadBundle(const std::string &path, const ReadOptions &options = {});
/// The same from memory; `source` names it in messages.
Bundle parseBundle(std::string data, std::string source, const ReadOptions &options = {});

/// The same for callers that do without exceptions: nothing and `failure` filled in where it fails.
std::optional<Bundle> readBundle(const std::string &path, Failure &failure, const ReadOptions &options = {});

/// True if the file starts with a bundle's magic: tells a bundle from a graph in text form.
bool looksLikeBundle(const std::string &path);

/// All that the manifest and the section table say, as text for people. Executes nothing.
std::string describeBundle(const Bundle &bundle);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_BUNDLE_H
