//===- AtomicFile.cpp - Writing a file in one step --------------------------===//
//
// Where the file system can, the new file has no name until it is complete (O_TMPFILE), so that not even a
// killed process leaves anything behind. Elsewhere it has a temporary name, removed on failure.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/BundleWriter.h"
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace cfc::runtime {
namespace {

/// The error of the last system call, with the path that the user gave.
[[noreturn]] void failWithErrno(const std::string &path, int error = errno) {
  fail(CFC_FILE_ERROR, "{}: cannot write: {}", path, std::strerror(error));
}

void writeAll(int handle, std::string_view content, const std::string &path) {
  while (!content.empty()) {
    ssize_t count = ::write(handle, content.data(), content.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      failWithErrno(path);
    content.remove_prefix(count);
  }
}

/// The file under construction. Unless it was published, its destructor leaves nothing of it.
class NewFile {
public:
  NewFile(const std::string &path, const std::string &target) : path(path), target(target) {
    static std::atomic<unsigned> counter{0};
    temporary = fmt::format("{}.{}.{}.tmp", target, ::getpid(), counter++);
    size_t slash = target.rfind('/');
    std::string folder = slash == target.npos ? "." : target.substr(0, slash + 1);
    handle = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (handle >= 0)
      return;
    handle = ::open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (handle < 0)
      failWithErrno(path);
    named = true;
  }

  ~NewFile() {
    if (handle >= 0)
      ::close(handle);
    if (named)
      ::unlink(temporary.c_str());
  }
  NewFile(const NewFile &) = delete;

  void write(std::string_view content) { writeAll(handle, content, path); }

  void publish() {
    if (::fsync(handle) != 0 && errno != EINVAL && errno != ENOTSUP) // delayed writes fail here
      failWithErrno(path);
    if (!named) {
      std::string self = fmt::format("/proc/self/fd/{}", handle);
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) != 0)
        failWithErrno(path);
      named = true;
    }
    int status = ::close(handle);
    handle = -1;
    if (status != 0 || ::rename(temporary.c_str(), target.c_str()) != 0)
      failWithErrno(path);
    named = false;
  }

private:
  const std::string &path, &target;
  std::string temporary;
  int handle = -1;
  bool named = false;
};

/// Where the path leads if it is a symbolic link to something that exists, else the path.
std::string followLinks(const std::string &path) {
  std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), std::free);
  return real ? std::string(real.get()) : path;
}

void writeInPlace(const std::string &path, const ContentProducer &produce) {
  int handle = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (handle < 0)
    failWithErrno(path);
  try {
    produce([&](std::string_view content) { writeAll(handle, content, path); });
  } catch (...) {
    ::close(handle);
    throw;
  }
  if (::close(handle) != 0)
    failWithErrno(path);
}

} // namespace

void produceFileAtomically(const std::string &path, const ContentProducer &produce) {
  struct stat info;
  bool exists = ::stat(path.c_str(), &info) == 0;
  if (path.empty() || path.back() == '/' || (exists && S_ISDIR(info.st_mode)))
    failWithErrno(path, path.empty() ? ENOENT : EISDIR);
  if (exists && !S_ISREG(info.st_mode))
    return writeInPlace(path, produce);
  std::string target = followLinks(path);
  if (exists && ::access(target.c_str(), W_OK) != 0)
    failWithErrno(path); // renaming over it would work, but it was protected for a reason
  NewFile file(path, target);
  produce([&](std::string_view content) { file.write(content); });
  file.publish();
}

std::optional<Failure> writeFileAtomically(const std::string &path, std::string_view content) {
  try {
    produceFileAtomically(path, [&](const ContentWriter &write) { write(content); });
    return std::nullopt;
  } catch (...) {
    return currentFailure();
  }
}

} // namespace cfc::runtime
