//===- Failure.h - How a command ends early -------------------------------===//
//
// The code of tools/lib that is free of MLIR throws a Failure for anything that
// the user has to hear about; the one handler is in Cli.cpp. A Failure never
// passes through a frame of MLIR or LLVM, which are built without exceptions.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <utility>

namespace cfc {

/// The exit codes of every cfc program.
enum class Exit : int {
  Done = 0,
  CheckFailed = 1, ///< a comparison found a mismatch
  BadInput = 2,    ///< bad usage or bad input
  CannotRun = 3,   ///< valid, but this target or machine cannot run it
  Internal = 4,    ///< an internal error, or a tool that failed
  Interrupted = 130,
};

/// A message for the user and the exit code that goes with it. `where` is a file, or `file: tensor "x"`.
class Failure : public std::runtime_error {
public:
  Failure(Exit code, std::string where, const std::string &text)
      : std::runtime_error(where.empty() ? "error: " + text : where + ": error: " + text), code(code) {}
  /// A message that says `error:` itself.
  Failure(Exit code, const std::string &message) : std::runtime_error(message), code(code) {}
  Exit code;
};

/// Ends the command with exit code 2 and a message about `where` (may be empty).
template <typename... Args>
[[noreturn]] void badInput(const std::string &where, fmt::format_string<Args...> text, Args &&...args) {
  throw Failure(Exit::BadInput, where, fmt::format(text, std::forward<Args>(args)...));
}

/// Ends the command with exit code 3: the text names the limit and what would work.
template <typename... Args>
[[noreturn]] void cannotRun(const std::string &where, fmt::format_string<Args...> text, Args &&...args) {
  throw Failure(Exit::CannotRun, where, fmt::format(text, std::forward<Args>(args)...));
}

/// Ends the command with exit code 4: an error that is not the user's.
template <typename... Args>
[[noreturn]] void internalError(fmt::format_string<Args...> text, Args &&...args) {
  throw Failure(Exit::Internal, "", fmt::format(text, std::forward<Args>(args)...));
}

} // namespace cfc
