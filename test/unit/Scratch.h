//===- Scratch.h - A folder for one test's files ---------------------------===//
#pragma once
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <stdlib.h>
#include <string>

/// A new folder that goes with its contents when the test ends.
struct Scratch {
  Scratch() {
    char name[] = "/tmp/cfc-test-XXXXXX";
    folder = mkdtemp(name);
  }
  ~Scratch() { std::filesystem::remove_all(folder); }
  std::string path(const std::string &name) const { return folder + "/" + name; }
  std::string write(const std::string &name, const std::string &content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  std::string folder;
};

/// The call throws a Failure with this exit code whose text holds `part`.
#define CHECK_FAILS(call, exitCode, part)                                                                    \
  do {                                                                                                       \
    try {                                                                                                    \
      call;                                                                                                  \
      FAIL_CHECK("no failure: " #call);                                                                      \
    } catch (const cfc::Failure &failure) {                                                                  \
      CHECK(failure.code == exitCode);                                                                       \
      CHECK_THAT(failure.what(), Catch::Contains(part));                                                     \
    }                                                                                                        \
  } while (false)
