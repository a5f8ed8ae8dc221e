//===- BundleWriter.cpp - Packing a bundle ----------------------------------===//
//
// The table first, with all offsets known beforehand, then the contents at multiples of 16 bytes with zeros
// between them.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/BundleWriter.h"
#include "runtime/src/Bundle.h"
#include <algorithm>
#include <set>

namespace cfc::runtime {

template <class T> static void append(std::string &out, T value) {
  out.append(reinterpret_cast<const char *>(&value), sizeof value);
}

static uint64_t alignUp(uint64_t offset) {
  return (offset + kSectionAlign - 1) / kSectionAlign * kSectionAlign;
}

static void checkNames(const std::vector<SectionContent> &sections) {
  std::set<std::string_view> names;
  for (const SectionContent &section : sections) {
    const std::string &name = section.name;
    bool printable = std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 32 && c < 127; });
    if (name.empty() || name.size() >= kNameBytes || !printable || !names.insert(name).second)
      fail(CFC_INTERNAL_ERROR, "'{}' cannot name a section, or is used twice", name);
  }
}

std::string packBundle(const std::vector<SectionContent> &sections) {
  checkNames(sections);
  if (sections.size() > kMaxSections)
    fail(CFC_UNSUPPORTED_VERSION, "{} sections; a bundle holds at most {}", sections.size(), kMaxSections);
  std::string out(kMagic, sizeof kMagic);
  append<uint32_t>(out, kContainerVersion);
  append<uint32_t>(out, sections.size());
  uint64_t end = kHeaderBytes + sections.size() * kEntryBytes + 8;
  for (const SectionContent &section : sections) {
    uint64_t offset = alignUp(end);
    out.append(section.name).append(kNameBytes - section.name.size(), '\0');
    append<uint64_t>(out, offset);
    append<uint64_t>(out, section.content.size());
    append<uint64_t>(out, digest64(section.content));
    end = offset + section.content.size();
  }
  append<uint64_t>(out, digest64(out));
  out.reserve(end);
  for (const SectionContent &section : sections)
    out.append(alignUp(out.size()) - out.size(), '\0').append(section.content);
  return out;
}

std::optional<Failure> writeBundle(const std::string &path, const std::vector<SectionContent> &sections) {
  try {
    return writeFileAtomically(path, packBundle(sections));
  } catch (...) {
    return currentFailure();
  }
}

} // namespace cfc::runtime
