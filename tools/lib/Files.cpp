//===- Files.cpp - Reading and writing files safely -----------------------===//
#include "tools/lib/Files.h"
#include "runtime/src/BundleWriter.h"
#include "tools/lib/Failure.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace cfc;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

std::shared_ptr<const MappedFile> MappedFile::open(const std::string &path) {
  // Non-blocking: a pipe without a writer would make open wait for ever.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    badInput(path, "{}", errno == ENOENT ? "no such file" : std::strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    badInput(path, "{}", S_ISDIR(info.st_mode) ? "is a folder, not a file" : "is not a regular file");
  }
  size_t size = size_t(info.st_size);
  void *memory = size ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  close(fd);
  if (memory == MAP_FAILED)
    badInput(path, "cannot be read: {}", std::strerror(errno));
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const std::byte *>(memory), size));
}

MappedFile::~MappedFile() {
  if (length)
    munmap(const_cast<std::byte *>(begin), length);
}

std::string cfc::readStandardInput() {
  std::string content;
  char buffer[65536];
  for (;;) {
    ssize_t n = read(0, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      badInput("standard input", "cannot be read: {}", std::strerror(errno));
    if (n == 0)
      return content;
    content.append(buffer, size_t(n));
  }
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static std::string folderOf(const std::string &path) {
  std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void cfc::checkOutputPath(const std::string &path, const std::string &input) {
  if (path == "-")
    return;
  struct stat output, source;
  if (stat(path.c_str(), &output) == 0) {
    if (S_ISDIR(output.st_mode))
      badInput(path, "is a folder; name a file to write, for example {}/out.cfk", path);
    if (!input.empty() && stat(input.c_str(), &source) == 0 && source.st_dev == output.st_dev &&
        source.st_ino == output.st_ino)
      badInput(path, "is the input itself; choose another name for the output");
    if (access(path.c_str(), W_OK) != 0)
      badInput(path, "cannot be written: {}", std::strerror(errno));
    if (!S_ISREG(output.st_mode))
      return;
  }
  std::string folder = folderOf(path);
  if (stat(folder.c_str(), &output) != 0 || !S_ISDIR(output.st_mode))
    badInput(path, "cannot be written: there is no folder {}", folder);
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    badInput(path, "cannot be written: the folder {}: {}", folder, std::strerror(errno));
}

static void writeStandardOutput(std::string_view content) {
  while (!content.empty()) {
    ssize_t n = write(1, content.data(), content.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      badInput("standard output", "cannot be written: {}", std::strerror(errno));
    content.remove_prefix(size_t(n));
  }
}

void cfc::writeFile(const std::string &path, std::string_view content) {
  if (path == "-")
    return writeStandardOutput(content);
  checkOutputPath(path, "");
  if (auto failure = runtime::writeFileAtomically(path, content))
    throw Failure(Exit(failure->exitCode()), "", failure->message);
}

void cfc::writeFile(const std::string &path, const runtime::ContentProducer &produce) {
  checkOutputPath(path, "");
  runtime::produceFileAtomically(path, produce);
}

void cfc::makeFolder(const std::string &path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    badInput(path, "cannot make this folder: {}", error.message());
  if (!fs::is_directory(path, error))
    badInput(path, "is a file, not a folder");
}
