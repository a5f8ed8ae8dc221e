//===- Suggest.cpp - The nearest name to a misspelt one -------------------===//
#include "tools/lib/Suggest.h"
#include <algorithm>
#include <numeric>

/// Insertions, deletions, substitutions and swaps of neighbours each count 1.
static size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> older, old(b.size() + 1), row(b.size() + 1);
  std::iota(old.begin(), old.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({old[j] + 1, row[j - 1] + 1, old[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], older[j - 2] + 1);
    }
    older = std::move(old);
    old = row;
  }
  return old[b.size()];
}

std::string cfc::nearestName(std::string_view name, const std::vector<std::string> &candidates) {
  std::string best;
  size_t bestDistance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string &candidate : candidates) {
    // Half of a short name may not change: "x" is not a misspelt "q".
    size_t distance = editDistance(name, candidate);
    if (distance < bestDistance && distance * 2 <= std::max(name.size(), candidate.size())) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

std::string cfc::didYouMean(std::string_view name, const std::vector<std::string> &candidates) {
  std::string nearest = nearestName(name, candidates);
  return nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?";
}
