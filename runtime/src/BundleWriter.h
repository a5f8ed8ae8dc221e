//===- BundleWriter.h - Writing a bundle ------------------------*- C++ -*-===//
//
// Packs sections into the container of docs/design.md and writes files so that a reader never sees half of
// one.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_BUNDLEWRITER_H
#define CFC_RUNTIME_SRC_BUNDLEWRITER_H

#include "runtime/src/Error.h"
#include <functional>
#include <optional>

namespace cfc::runtime {

/// One section to be written. Names have 1 to 31 printable characters and are used once.
struct SectionContent {
  std::string name;
  std::string content;
};

/// The container as bytes. Throws Error for a bad name.
std::string packBundle(const std::vector<SectionContent> &sections);

/// Packs and writes; nothing where it worked.
std::optional<Failure> writeBundle(const std::string &path, const std::vector<SectionContent> &sections);

/// Writes `content` to `path` in one step: into a nameless or temporary file in the same folder, flushed to
/// the disk, then renamed over `path`. On failure (a full disk too) the old file stays and nothing new is
/// left. Follows symbolic links. An existing file that is not a regular one (a pipe, /dev/stdout) is written
/// directly.
std::optional<Failure> writeFileAtomically(const std::string &path, std::string_view content);

/// The same for content that is not in memory as a whole: `produce` is called once and gives it in pieces.
/// Throws Error, or what `produce` throws.
using ContentWriter = std::function<void(std::string_view piece)>;
using ContentProducer = std::function<void(const ContentWriter &write)>;
void produceFileAtomically(const std::string &path, const ContentProducer &produce);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_BUNDLEWRITER_H
