//===- Process.h - Runs one program with a time limit ----------------------===//
//
// The program runs in a process group of its own. The group is killed when the
// time is over, when this process gets SIGINT, SIGTERM or SIGHUP, and (the
// program itself) when this process dies in any other way.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace cfc {

struct ProcessResult {
  enum class End { Exited, Killed, TimedOut, NotStarted, Interrupted };
  End end = End::NotStarted;
  int code = 0;       ///< exit status, signal number or errno, as `end` says
  std::string output; ///< stdout and stderr, at most 64 KB
};

/// Runs `argv` (argv[0] is a path) with `input` on its standard input. If a signal ends this process
/// meanwhile, `outputFile` (may be empty) is removed. May be called by several threads at once.
ProcessResult runProcess(const std::vector<std::string> &argv, const std::string &input,
                         const std::string &outputFile, std::chrono::milliseconds timeout);

} // namespace cfc
