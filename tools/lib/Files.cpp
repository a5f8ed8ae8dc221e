//===- Files.cpp - Reading and writing files safely -----------------------===//
#include "tools/lib/Files.h"
#include "tools/lib/Failure.h"
#include <atomic>
#include <cerrno>
#include <csignal>
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
// Temporary files: a fixed table, because a signal handler may read nothing else
//===----------------------------------------------------------------------===//

namespace {
struct TemporarySlot {
  std::atomic<int> state{0}; // 0 free, 1 being filled, 2 names a file
  char path[4096];
};
TemporarySlot temporaries[64];
} // namespace

static void removeTemporaries(int signal) {
  for (TemporarySlot &slot : temporaries)
    if (slot.state.load() == 2)
      unlink(slot.path);
  const char text[] = "\ncfc: interrupted\n";
  [[maybe_unused]] ssize_t ignored = write(2, text, sizeof text - 1);
  _exit(128 + signal);
}

void cfc::installSignalHandlers() {
  struct sigaction action = {};
  action.sa_handler = removeTemporaries;
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    sigaction(signal, &action, nullptr);
  // A closed pipe is an error of write, which is reported, and no silent death.
  signal(SIGPIPE, SIG_IGN);
}

static int claimSlot(const std::string &path) {
  if (path.size() >= sizeof temporaries[0].path)
    return -1;
  for (int i = 0; i < 64; ++i) {
    int expected = 0;
    if (temporaries[i].state.compare_exchange_strong(expected, 1)) {
      std::memcpy(temporaries[i].path, path.c_str(), path.size() + 1);
      temporaries[i].state.store(2);
      return i;
    }
  }
  return -1;
}

[[noreturn]] static void failOnOutput(const std::string &path, int error) {
  if (error == ENOSPC || error == EDQUOT)
    cannotRun(path,
              "no space is left on the disk: nothing was written; free some space or choose another folder");
  badInput(path, "cannot be written: {}", std::strerror(error));
}

TemporaryFile::TemporaryFile(const std::string &folder, const std::string &stem)
    : name((folder.empty() ? "." : folder) + "/." + stem + ".XXXXXX") {
  fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0)
    failOnOutput(folder.empty() ? "." : folder, errno);
  slot = claimSlot(name);
}

TemporaryFile::~TemporaryFile() {
  if (fd >= 0)
    close(fd);
  if (!name.empty())
    unlink(name.c_str());
  if (slot >= 0)
    temporaries[slot].state.store(0);
}

void TemporaryFile::renameTo(const std::string &target) {
  // mkostemp makes a private file; an output has the permissions that any program would give it.
  mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, 0666 & ~mask);
  int closed = close(fd);
  fd = -1;
  if (closed != 0 || rename(name.c_str(), target.c_str()) != 0)
    failOnOutput(target, errno);
  name.clear();
}

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

static void writeAll(int fd, std::string_view content, const std::string &path) {
  while (!content.empty()) {
    ssize_t n = write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      failOnOutput(path, errno);
    content.remove_prefix(size_t(n));
  }
}

void cfc::writeFile(const std::string &path, std::string_view content) {
  if (path == "-")
    return writeAll(1, content, "standard output");
  checkOutputPath(path, "");
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0)
      failOnOutput(path, errno);
    std::shared_ptr<void> closer(nullptr, [fd](void *) { close(fd); });
    return writeAll(fd, content, path);
  }
  // A link keeps pointing where it points: its target is replaced.
  std::error_code error;
  std::string target = fs::is_symlink(path, error) ? fs::canonical(path, error).string() : path;
  TemporaryFile file(folderOf(target), fs::path(target).filename().string());
  writeAll(file.descriptor(), content, path);
  file.renameTo(target);
}

void cfc::makeFolder(const std::string &path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    badInput(path, "cannot make this folder: {}", error.message());
  if (!fs::is_directory(path, error))
    badInput(path, "is a file, not a folder");
}
