//===- Error.h - How the runtime reports failures ---------------*- C++ -*-===//
//
// Inside the runtime a failure is an exception of type Error; at the borders it becomes a status and a
// message: the C functions use guarded(), C++ users of the bundle library get a Failure.
//
//===----------------------------------------------------------------------===//
#ifndef CFC_RUNTIME_SRC_ERROR_H
#define CFC_RUNTIME_SRC_ERROR_H

#include "cfc/runtime.h"
#include <exception>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

namespace cfc::runtime {

/// A status and what to tell the user.
struct Failure {
  cfc_status status = CFC_OK;
  std::string message;
  int exitCode() const { return CFC_EXIT_CODE(status); }
};

class Error : public std::exception {
public:
  Error(cfc_status status, std::string message) : failure{status, std::move(message)} {}
  const char *what() const noexcept override { return failure.message.c_str(); }
  Failure failure;
};

template <class... Args>
[[noreturn]] void fail(cfc_status status, fmt::format_string<Args...> text, Args &&...args) {
  throw Error(status, fmt::format(text, std::forward<Args>(args)...));
}

/// Turns the exception that is being handled into a failure. Call it in a catch block only.
Failure currentFailure() noexcept;

/// Keeps the message for cfc_last_error() of this thread.
void setLastError(const Failure &failure) noexcept;
const char *lastError() noexcept;

/// Runs the body of a C function: no exception leaves it.
template <class Body> cfc_status guarded(Body &&body) noexcept {
  try {
    body();
    return CFC_OK;
  } catch (...) {
    Failure failure = currentFailure();
    setLastError(failure);
    return failure.status;
  }
}

/// "; did you mean 'x'?" for the candidate that is nearest to `name`, or "" where none is near.
std::string suggestion(std::string_view name, const std::vector<std::string_view> &candidates);

} // namespace cfc::runtime

#endif // CFC_RUNTIME_SRC_ERROR_H
