//===- Files.h - Reading and writing files safely -------------------------===//
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace cfc {

/// A regular file mapped for reading. Throws Failure (2) where it is missing, a directory or unreadable.
class MappedFile {
public:
  static std::shared_ptr<const MappedFile> open(const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  const std::byte *data() const { return begin; }
  size_t size() const { return length; }
  std::string_view text() const { return {reinterpret_cast<const char *>(begin), length}; }

private:
  MappedFile(const std::byte *begin, size_t length) : begin(begin), length(length) {}
  const std::byte *begin;
  size_t length;
};

/// Everything that comes on standard input.
std::string readStandardInput();

/// Fails (2) where `path` cannot be an output: a directory, in no existing folder, unwritable, or the same
/// file as `input`. Called before the work starts, so that a bad output name costs nothing.
void checkOutputPath(const std::string &path, const std::string &input);

/// Writes all of `content` or leaves `path` as it was: to a temporary file beside it, which then takes its
/// name.
/// "-" and what is no regular file (a pipe, /dev/null) are written in place. A full disk fails with 3.
void writeFile(const std::string &path, std::string_view content);

/// The same for content that does not fit into memory: `produce` gives it in pieces. `path` is a file.
void writeFile(const std::string &path,
               const std::function<void(const std::function<void(std::string_view)> &write)> &produce);

/// Creates the folder and its parents.
void makeFolder(const std::string &path);

} // namespace cfc
