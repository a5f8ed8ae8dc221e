//===- BenchLengths.cpp - How many tokens the requests of a case have -----===//
#include "tools/lib/BenchLengths.h"
#include "tools/lib/Failure.h"
#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <random>

using namespace cfc;

int64_t RequestLengths::longest() const { return *std::max_element(tokens.begin(), tokens.end()); }

int64_t RequestLengths::sum(int64_t requests) const {
  int64_t total = 0;
  for (int64_t r = 0; r < requests; ++r)
    total += of(r);
  return total;
}

int64_t RequestLengths::mean() const {
  int64_t count = int64_t(tokens.size());
  return (sum(count) + count - 1) / count;
}

double RequestLengths::longestOverMean() const { return mean() > 0 ? double(longest()) / double(mean()) : 1; }

std::string RequestLengths::describe(int64_t requests) const {
  if (!isRagged())
    return requests > 1 ? fmt::format("{} requests of {} cached tokens", requests, tokens[0])
                        : fmt::format("{} cached tokens", tokens[0]);
  return fmt::format("{} requests of {} cached tokens, {} ({}) in all", requests, fmt::join(tokens, ", "),
                     sum(requests), text);
}

//===----------------------------------------------------------------------===//
// The option
//===----------------------------------------------------------------------===//

static std::optional<int64_t> parseNumber(std::string_view text) {
  int64_t value = 0;
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

/// FIRST-LAST or FIRST-LAST:SEED, behind "ragged:".
static RequestLengths parseRagged(std::string_view word, std::string_view range, int64_t requests) {
  size_t colon = std::min(range.find(':'), range.size());
  std::string_view bounds = range.substr(0, colon);
  size_t dash = std::min(bounds.find('-'), bounds.size());
  std::optional<int64_t> first = parseNumber(bounds.substr(0, dash)), last, seed = 1;
  if (dash < bounds.size())
    last = parseNumber(bounds.substr(dash + 1));
  if (colon < range.size())
    seed = parseNumber(range.substr(colon + 1));
  if (!first || !last || !seed || *last > INT32_MAX)
    badInput("", "--len={}: expected ragged:FIRST-LAST or ragged:FIRST-LAST:SEED, such as ragged:1-8192:7",
             word);
  if (*first > *last)
    badInput("", "--len={}: lengths go from the smaller number to the larger", word);
  std::mt19937_64 engine{uint64_t(*seed)};
  std::vector<int64_t> tokens(size_t(std::max<int64_t>(requests, 1)));
  for (int64_t &length : tokens)
    length = *first + int64_t(engine() % uint64_t(*last - *first + 1));
  return {fmt::format("ragged:{}-{}:{}", *first, *last, *seed), std::move(tokens)};
}

std::vector<RequestLengths> cfc::parseRequestLengths(const std::string &text, int64_t requests) {
  std::vector<RequestLengths> result;
  constexpr std::string_view ragged = "ragged:";
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string_view word = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (word.starts_with(ragged)) {
      result.push_back(parseRagged(word, word.substr(ragged.size()), requests));
      continue;
    }
    std::optional<int64_t> length = parseNumber(word);
    if (!length)
      badInput("", "--len={}: expected numbers such as 1024,4096,16384, or ragged:1-8192", text);
    result.emplace_back(*length);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Pages
//===----------------------------------------------------------------------===//

PagePool::PagePool(const RequestLengths &lengths, int64_t requests, int64_t page, int64_t newTokens)
    : lengths(lengths), page(page), newTokens(newTokens) {
  int64_t pages = 0;
  for (int64_t r = 0; r < requests; ++r) {
    first.push_back(pages);
    pages += pagesOf(r);
  }
  order.resize(size_t(pages));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 engine(1); // std::shuffle differs between libraries
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[engine() % i]);
}

int64_t PagePool::pagesOf(int64_t request) const { return (lengths.of(request) + newTokens - 1) / page + 1; }
