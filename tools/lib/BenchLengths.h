//===- BenchLengths.h - How many tokens the requests of a case have -------===//
//
//   --len=1024,8192,ragged:1-8192:7
//
// A number gives it to every request; `ragged` draws one for each, by seed.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cfc {

/// Cached tokens of the requests of a case.
struct RequestLengths {
  /*implicit*/ RequestLengths(int64_t length) : text(std::to_string(length)), tokens{length} {}
  RequestLengths(std::string text, std::vector<int64_t> tokens)
      : text(std::move(text)), tokens(std::move(tokens)) {}

  std::string text;            ///< as on the command line
  std::vector<int64_t> tokens; ///< of each request; only one number: of all

  bool isRagged() const { return tokens.size() > 1; }
  int64_t of(int64_t request) const { return tokens[size_t(request) % tokens.size()]; }
  int64_t longest() const;
  int64_t sum(int64_t requests) const;
  /// The mean, rounded up: what a plan is made for.
  int64_t mean() const;
  /// 1 where all are alike.
  double longestOverMean() const;
  /// "8192 cached tokens", "32 requests of 1 to 8192 cached tokens: 17, 4021, …".
  std::string describe(int64_t requests) const;
};

/// The cases of --len for a graph of that many requests; none of an empty text. Fails (2) for what is neither
/// a number nor a range.
std::vector<RequestLengths> parseRequestLengths(const std::string &text, int64_t requests);

/// Where the requests' rows lie in a pool of pages: as many pages as they need with the new tokens of each,
/// in random order.
class PagePool {
public:
  PagePool(const RequestLengths &lengths, int64_t requests, int64_t page, int64_t newTokens = 1);

  int64_t pages() const { return int64_t(order.size()); }
  /// Pages of a request's tokens and of the new ones.
  int64_t pagesOf(int64_t request) const;
  /// The `index`-th page of a request.
  int64_t at(int64_t request, int64_t index) const { return order[size_t(first[size_t(request)] + index)]; }
  /// The flat slot of a request's token.
  int64_t slot(int64_t request, int64_t token) const {
    return at(request, token / page) * page + token % page;
  }

private:
  RequestLengths lengths;
  int64_t page, newTokens;    ///< newTokens: of a request
  std::vector<int64_t> first; ///< by request: of its pages in `order`
  std::vector<int64_t> order;
};

} // namespace cfc
