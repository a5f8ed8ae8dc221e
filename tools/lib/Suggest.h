//===- Suggest.h - The nearest name to a misspelt one ---------------------===//
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace cfc {

/// The candidate with the smallest edit distance to `name`, or "" where none is near enough to be meant.
std::string nearestName(std::string_view name, const std::vector<std::string> &candidates);

/// `; did you mean "x"?`, or "" where nothing is near.
std::string didYouMean(std::string_view name, const std::vector<std::string> &candidates);

} // namespace cfc
