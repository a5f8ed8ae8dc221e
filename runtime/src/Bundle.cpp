//===- Bundle.cpp - Reading a bundle ----------------------------------------===//
//
// Checks in the order in which they can be trusted: the magic, the digest of the header and table, the ranges
// of the sections, their digests, then the manifest. Bytes between sections must be zero and nothing may
// follow the last one, so every byte of the file is either digested or known.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Bundle.h"
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cfc::runtime {

static_assert(std::endian::native == std::endian::little, "bundles are read in place");

uint64_t digest64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::string digestText(std::string_view bytes) { return fmt::format("{:016x}", digest64(bytes)); }

template <class T> static T readAt(std::string_view data, size_t offset) {
  T value;
  std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

//===----------------------------------------------------------------------===//
// Sections
//===----------------------------------------------------------------------===//

/// What a file without the magic seems to be, for the message.
static std::string guessFileType(std::string_view data) {
  if (data.empty())
    return "the file is empty";
  if (data.starts_with("version https://git-lfs"))
    return "this is a Git LFS pointer: fetch the file itself";
  size_t start = data.find_first_not_of(" \t\r\n");
  if (start != data.npos && data[start] == '<')
    return "this looks like a web page";
  if (data.starts_with(std::string_view(kMagic, std::min(data.size(), sizeof kMagic))))
    return "truncated: the file ends inside the header";
  return "not a cfc bundle: it does not start with CFCBNDL";
}

static std::string readName(std::string_view data, size_t offset, size_t index) {
  std::string_view field = data.substr(offset, kNameBytes);
  std::string_view name = field.substr(0, field.find('\0'));
  auto printable = [](unsigned char c) { return c > 32 && c < 127; };
  bool padded = field.substr(name.size()).find_first_not_of('\0') == field.npos;
  if (name.empty() || !padded || !std::all_of(name.begin(), name.end(), printable))
    fail(CFC_INVALID_BUNDLE, "section {} has a garbled name", index);
  return std::string(name);
}

/// Bytes up to the end of the header, the section table and their digest; `data` starts with the header.
static uint64_t headBytes(std::string_view data) {
  uint32_t count = readAt<uint32_t>(data, 12);
  if (count > kMaxSections)
    fail(CFC_INVALID_BUNDLE, "garbled: a table of {} sections; there are at most {}", count, kMaxSections);
  return kHeaderBytes + uint64_t(count) * kEntryBytes + 8;
}

/// Reads the section table. `data` is the file or at least its head.
static std::vector<Section> readTable(std::string_view data) {
  if (!data.starts_with(std::string_view(kMagic, sizeof kMagic)))
    fail(CFC_INVALID_BUNDLE, "{}", guessFileType(data));
  if (data.size() < kHeaderBytes)
    fail(CFC_INVALID_BUNDLE, "truncated: the file ends inside the header");
  uint32_t version = readAt<uint32_t>(data, 8), count = readAt<uint32_t>(data, 12);
  uint64_t tableEnd = headBytes(data) - 8;
  bool complete = data.size() >= tableEnd + 8;
  bool intact = complete && readAt<uint64_t>(data, tableEnd) == digest64(data.substr(0, tableEnd));
  // Newer versions keep the form of the header and the table, so an intact one is newer, else it is garbled.
  if (version != kContainerVersion && intact && version > kContainerVersion)
    fail(CFC_UNSUPPORTED_VERSION,
         "container version {}, this runtime reads up to {}: use a newer cfc runtime", version,
         kContainerVersion);
  if (version != kContainerVersion)
    fail(CFC_INVALID_BUNDLE, "garbled: container version {} in a damaged header", version);
  if (!complete)
    fail(CFC_INVALID_BUNDLE, "truncated: the table of {} sections ends at byte {}, the file at {}", count,
         tableEnd + 8, data.size());
  if (!intact)
    fail(CFC_INVALID_BUNDLE, "garbled: the digest of the header and section table does not match");
  std::vector<Section> sections;
  for (size_t i = 0; i < count; ++i) {
    size_t at = kHeaderBytes + i * kEntryBytes;
    sections.push_back({readName(data, at, i), readAt<uint64_t>(data, at + 32),
                        readAt<uint64_t>(data, at + 40), readAt<uint64_t>(data, at + 48)});
  }
  return sections;
}

static std::vector<const Section *> inFileOrder(const std::vector<Section> &sections) {
  std::vector<const Section *> order;
  for (const Section &section : sections)
    order.push_back(&section);
  std::stable_sort(order.begin(), order.end(), [](const Section *a, const Section *b) {
    return std::pair(a->offset, a->size) < std::pair(b->offset, b->size);
  });
  return order;
}

/// Sections lie behind the table, inside the file, do not overlap, and nothing follows the last one.
static void checkRanges(uint64_t fileBytes, const std::vector<Section> &sections) {
  std::set<std::string_view> names;
  for (const Section &section : sections) {
    if (!names.insert(section.name).second)
      fail(CFC_INVALID_BUNDLE, "two sections are named '{}'", section.name);
    if (section.offset > fileBytes || section.size > fileBytes - section.offset)
      fail(CFC_INVALID_BUNDLE, "truncated: section '{}' needs {} bytes at {}, the file has {}", section.name,
           section.size, section.offset, fileBytes);
  }
  uint64_t end = kHeaderBytes + sections.size() * kEntryBytes + 8;
  for (const Section *section : inFileOrder(sections)) {
    if (section->offset < end)
      fail(CFC_INVALID_BUNDLE, "section '{}' at byte {} overlaps what ends at {}", section->name,
           section->offset, end);
    end = section->offset + section->size;
  }
  if (end != fileBytes)
    fail(CFC_INVALID_BUNDLE, "{} bytes follow the last section", fileBytes - end);
}

/// Only zeros lie between the sections, whose ranges were checked.
static void checkPadding(std::string_view data, const std::vector<Section> &sections) {
  uint64_t end = kHeaderBytes + sections.size() * kEntryBytes + 8;
  for (const Section *section : inFileOrder(sections)) {
    if (data.substr(end, section->offset - end).find_first_not_of('\0') != data.npos)
      fail(CFC_INVALID_BUNDLE, "garbled: the padding before section '{}' is not zero", section->name);
    end = section->offset + section->size;
  }
}

static void checkDigests(std::string_view data, const std::vector<Section> &sections) {
  for (const Section &section : sections)
    if (digest64(data.substr(section.offset, section.size)) != section.digest)
      fail(CFC_INVALID_BUNDLE, "garbled: the digest of section '{}' does not match", section.name);
}

//===----------------------------------------------------------------------===//
// Bundle
//===----------------------------------------------------------------------===//

/// The manifest agrees with the other sections and with what this runtime runs.
static void checkManifest(const Bundle &bundle, const ReadOptions &options) {
  std::optional<Target> target = parseTarget(bundle.manifest.target);
  if (options.checkTarget && (!target || target->major != 9 || target->minor != 0))
    fail(CFC_UNSUPPORTED_DEVICE,
         "the bundle is for '{}', this runtime runs bundles for sm_90a: compile with --target=sm_90a",
         bundle.manifest.target);
  for (const GraphSpec &graph : bundle.manifest.graphs)
    for (const VariantSpec &variant : graph.variants)
      for (const KernelSpec &kernel : variant.kernels)
        if (!bundle.section(fmt::format("cubin.{}", kernel.cubin)))
          fail(CFC_INVALID_BUNDLE, "kernel '{}' is in section 'cubin.{}', which is missing", kernel.name,
               kernel.cubin);
}

std::optional<std::string_view> Bundle::section(std::string_view name) const {
  for (const Section &section : sections)
    if (section.name == name)
      return std::string_view(data).substr(section.offset, section.size);
  return std::nullopt;
}

std::string sectionName(std::string_view kind, size_t index) {
  return index ? fmt::format("{}.{}", kind, index) : std::string(kind);
}

std::string_view Bundle::graphText(const GraphSpec &graph) const {
  return section(sectionName("graph", &graph - manifest.graphs.data())).value_or("");
}

std::string_view Bundle::planText(const GraphSpec &graph, size_t variant) const {
  for (const GraphSpec *before = manifest.graphs.data(); before != &graph; ++before)
    variant += before->variants.size();
  return section(sectionName("plan", variant)).value_or("");
}

std::string_view Bundle::cubin(uint32_t index) const {
  return section(fmt::format("cubin.{}", index)).value_or("");
}

const GraphSpec &Bundle::graph(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const GraphSpec &graph : manifest.graphs) {
    if (graph.name == name)
      return graph;
    names.push_back(graph.name);
  }
  if (name.empty() && names.size() == 1)
    return manifest.graphs.front();
  if (name.empty())
    fail(CFC_INVALID_ARGUMENT, "{}: the bundle has {} graphs; name one of: {}", source, names.size(),
         fmt::join(names, ", "));
  fail(CFC_INVALID_ARGUMENT, "{}: there is no graph '{}'{}", source, name, suggestion(name, names));
}

Bundle parseBundle(std::string data, std::string source, const ReadOptions &options) {
  Bundle bundle{std::move(source), std::move(data), {}, {}};
  try {
    std::string_view bytes = bundle.data;
    bundle.sections = readTable(bytes);
    checkRanges(bytes.size(), bundle.sections);
    checkPadding(bytes, bundle.sections);
    if (options.checkDigests)
      checkDigests(bytes, bundle.sections);
    for (const char *required : {"manifest", "graph", "plan"})
      if (!bundle.section(required))
        fail(CFC_INVALID_BUNDLE, "section '{}' is missing", required);
    bundle.manifest = parseManifest(bundle.manifestText());
    checkManifest(bundle, options);
  } catch (Error &error) {
    fail(error.failure.status, "{}: {}", bundle.source, error.failure.message);
  }
  return bundle;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

namespace {
/// An open file that closes itself.
struct OpenFile {
  int handle;
  explicit OpenFile(const std::string &path)
      : handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (handle >= 0)
      ::close(handle);
  }
  OpenFile(const OpenFile &) = delete;
};
} // namespace

/// Appends what follows in the file until `data` has `bytes` or the file ends.
static void readUpTo(const OpenFile &file, const std::string &path, size_t bytes, std::string &data) {
  size_t done = data.size();
  data.resize(bytes);
  while (done < bytes) {
    ssize_t count = ::read(file.handle, data.data() + done, bytes - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      fail(CFC_FILE_ERROR, "{}: {}", path, std::strerror(errno));
    if (count == 0)
      break; // it shrank: the table will say what is missing
    done += count;
  }
  data.resize(done);
}

/// Reads the head of a file of `fileBytes` and checks that it is a bundle's, of just that size: a huge file
/// that is no bundle is told as such, not by what its size does to memory.
static std::string readHead(const OpenFile &file, const std::string &path, uint64_t fileBytes) {
  constexpr uint64_t kStartBytes = 4096; // enough to guess what else it may be
  std::string head;
  readUpTo(file, path, std::min(fileBytes, kStartBytes), head);
  try {
    if (head.size() >= kHeaderBytes && head.starts_with(std::string_view(kMagic, sizeof kMagic)))
      readUpTo(file, path, std::max(head.size(), std::min(fileBytes, headBytes(head))), head);
    checkRanges(fileBytes, readTable(head));
  } catch (Error &error) {
    if (error.failure.status == CFC_FILE_ERROR)
      throw;
    fail(error.failure.status, "{}: {}", path, error.failure.message);
  }
  return head;
}

static std::string readFile(const std::string &path) {
  OpenFile file(path);
  struct stat info;
  if (file.handle < 0 || fstat(file.handle, &info) != 0)
    fail(CFC_FILE_ERROR, "{}: {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) // a pipe or a device could block or never end
    fail(CFC_FILE_ERROR, "{}: {}", path, S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file");
  std::string data = readHead(file, path, info.st_size);
  readUpTo(file, path, info.st_size, data);
  return data;
}

Bundle loadBundle(const std::string &path, const ReadOptions &options) {
  return parseBundle(readFile(path), path, options);
}

std::optional<Bundle> readBundle(const std::string &path, Failure &failure, const ReadOptions &options) {
  try {
    return loadBundle(path, options);
  } catch (...) {
    failure = currentFailure();
    return std::nullopt;
  }
}

bool looksLikeBundle(const std::string &path) {
  OpenFile file(path);
  char start[sizeof kMagic];
  return file.handle >= 0 && ::read(file.handle, start, sizeof start) == ssize_t(sizeof start) &&
         std::memcmp(start, kMagic, sizeof start) == 0;
}

} // namespace cfc::runtime
