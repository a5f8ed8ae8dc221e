//===- RuntimeFixture.h - A small bundle for tests --------------*- C++ -*-===//
#ifndef CFC_TEST_UNIT_RUNTIMEFIXTURE_H
#define CFC_TEST_UNIT_RUNTIMEFIXTURE_H

#include "runtime/src/Bundle.h"
#include "runtime/src/BundleWriter.h"

namespace cfc::runtime::test {

/// A graph `block`: x and result0 [1, 64] f16, w_q [64, 64] f16, cache of 2 heads of 16, len i32; tensor maps
/// of w_q, K and V; a workspace of 1024 bytes; one variant with two kernels, k0 (32 clusters of 4) and k1
/// (128 clusters of 1).
Manifest smallManifest();

/// Sections of a bundle with that manifest.
std::vector<SectionContent> smallSections(const Manifest &manifest = smallManifest());

/// The same with the manifest given as text.
std::vector<SectionContent> sectionsWith(const std::string &manifestText);

/// Writes `value` at `offset` and repairs the digest of the header and table.
template <class T> std::string patched(std::string bytes, size_t offset, T value) {
  bytes.replace(offset, sizeof value, reinterpret_cast<const char *>(&value), sizeof value);
  uint32_t count = 0;
  bytes.copy(reinterpret_cast<char *>(&count), 4, 12);
  size_t end = kHeaderBytes + size_t(count) * kEntryBytes;
  if (end + 8 <= bytes.size()) {
    uint64_t digest = digest64(std::string_view(bytes).substr(0, end));
    bytes.replace(end, 8, reinterpret_cast<const char *>(&digest), 8);
  }
  return bytes;
}

} // namespace cfc::runtime::test

#endif // CFC_TEST_UNIT_RUNTIMEFIXTURE_H
