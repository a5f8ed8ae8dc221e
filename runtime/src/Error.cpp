//===- Error.cpp - How the runtime reports failures -------------------------===//
//
// The exception-to-status border, the message of each thread, and the search for the nearest name.
//
//===----------------------------------------------------------------------===//
#include "runtime/src/Error.h"
#include <algorithm>
#include <new>
#include <numeric>

namespace cfc::runtime {

Failure currentFailure() noexcept {
  try {
    throw;
  } catch (Error &error) {
    return std::move(error.failure);
  } catch (const std::bad_alloc &) {
    return {CFC_OUT_OF_MEMORY, {}}; // no message: there may be no memory for one
  } catch (const std::exception &error) {
    try {
      return {CFC_INTERNAL_ERROR, fmt::format("internal error of the cfc runtime: {}", error.what())};
    } catch (...) {
      return {CFC_INTERNAL_ERROR, {}};
    }
  } catch (...) {
    return {CFC_INTERNAL_ERROR, {}};
  }
}

static std::string &threadMessage() {
  thread_local std::string message;
  return message;
}

void setLastError(const Failure &failure) noexcept {
  try {
    std::string &message = threadMessage();
    if (!failure.message.empty())
      message = failure.message;
    else // both fit into the small buffer's capacity or fail into the catch below
      message = failure.status == CFC_OUT_OF_MEMORY ? "out of memory" : "internal error";
  } catch (...) {
    threadMessage().clear();
  }
}

const char *lastError() noexcept { return threadMessage().c_str(); }

/// The number of characters to insert, delete or change to get from `a` to `b`.
static size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string suggestion(std::string_view name, const std::vector<std::string_view> &candidates) {
  if (name.size() > 256)
    return {};
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  std::string_view nearest;
  for (std::string_view candidate : candidates) {
    size_t distance = editDistance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest.empty() ? std::string() : fmt::format("; did you mean '{}'?", nearest);
}

} // namespace cfc::runtime
