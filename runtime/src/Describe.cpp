//===- Describe.cpp - A bundle as text --------------------------------------===//
//
// Prints the manifest as it stands in the file rather than as the structs hold it: keys that this version
// does not know are shown too. Objects of plain values take one line each, so a list of tensors reads as a
// table.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Bundle.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace cfc::runtime {

using Json = nlohmann::ordered_json;

static std::string scalarText(const Json &value) {
  if (value.is_string())
    return value.get<std::string>();
  return value.dump();
}

/// True if the value fits on a line: a scalar, or an array of scalars.
static bool isFlat(const Json &value) {
  return !value.is_structured() ||
         (value.is_array() &&
          std::none_of(value.begin(), value.end(), [](const Json &v) { return v.is_structured(); }));
}

static bool isRow(const Json &value) {
  return value.is_object() && std::all_of(value.begin(), value.end(), isFlat);
}

static std::string rowText(const Json &row) {
  std::string text;
  for (const auto &[key, value] : row.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, scalarText(value));
  return text;
}

/// The depth is bounded: the bundle was parsed with a limit.
static void printTree(std::string &out, const Json &value, int indent) {
  auto printChild = [&](const std::string &label, const Json &child) {
    if (isFlat(child)) {
      out += fmt::format("{:{}}{} {}\n", "", indent, label, scalarText(child));
    } else if (isRow(child)) {
      out += fmt::format("{:{}}{} {}\n", "", indent, label, rowText(child));
    } else {
      out += fmt::format("{:{}}{}\n", "", indent, label);
      printTree(out, child, indent + 2);
    }
  };
  if (value.is_object()) {
    for (const auto &[key, child] : value.items())
      printChild(key + ":", child);
    return;
  }
  for (const Json &child : value)
    printChild("-", child);
}

std::string describeBundle(const Bundle &bundle) {
  std::string out = fmt::format("bundle: {}\nbytes: {}\nsections:\n", bundle.source, bundle.data.size());
  for (const Section &section : bundle.sections)
    out += fmt::format("  {:<12} offset={} bytes={} xxh3={:016x}\n", section.name, section.offset,
                       section.size, section.digest);
  out += "manifest:\n";
  printTree(out, Json::parse(bundle.manifestText()), 2);
  return out;
}

} // namespace cfc::runtime
