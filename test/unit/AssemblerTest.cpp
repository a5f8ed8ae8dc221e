//===- AssemblerTest.cpp - ptxas: found, too old, broken, slow --------------===//
#include "compiler/emit/Assembler.h"
#include "Scratch.h"
#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace cfc;
using Catch::Contains;

namespace {

const char kVersion[] =
    "[ \"$1\" = --version ] && { echo 'Cuda compilation tools, release 12.4, V12.4.99'; exit 0; }\n";
const char kPtx[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() .reqntid 32, 1, 1\n{ ret; }\n";

/// Temporary files go to the test's own folder; programs are shell scripts in it.
struct Fakes : Scratch {
  Fakes() {
    setenv("TMPDIR", folder.c_str(), 1);
    unsetenv("CFC_PTXAS_TIMEOUT");
    unsetenv("CFC_PTXAS");
  }
  ~Fakes() { unsetenv("TMPDIR"); }
  std::string script(const std::string &body) const {
    std::string file = write("ptxas", "#!/bin/sh\n" + body);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
  /// Files that the assembler left, by suffix.
  int left(const std::string &suffix) const {
    int count = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      count += entry.path().filename().string().starts_with("cfc-") && entry.path().extension() == suffix;
    return count;
  }
};

EmitResult<Assembler> find(const std::string &path, int ptxVersion = 80) {
  AssemblerOptions options;
  options.ptxas = path;
  options.ptxVersion = ptxVersion;
  return Assembler::find(options);
}

/// The failure of assembling one text with this program.
EmitFailure failure(const std::string &path) {
  auto assembler = find(path);
  REQUIRE(std::holds_alternative<Assembler>(assembler));
  auto cubins = std::get<Assembler>(assembler).assemble({{"k", kPtx}});
  REQUIRE(std::holds_alternative<EmitFailure>(cubins));
  return std::get<EmitFailure>(cubins);
}

/// Whether the process whose number is in the file still runs. One that nobody has reaped does not.
bool isAlive(const std::string &pidFile) {
  std::string pid, name, state;
  std::ifstream(pidFile) >> pid;
  for (int i = 0; i != 100; ++i) {
    state.clear();
    std::ifstream("/proc/" + pid + "/stat") >> pid >> name >> state;
    if (state.empty() || state == "Z")
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

} // namespace

TEST_CASE("a named ptxas that is not there") {
  Fakes fakes;
  EmitFailure option = std::get<EmitFailure>(find(fakes.path("none")));
  CHECK(option.exitCode == 3);
  CHECK_THAT(option.message, Contains("--ptxas=" + fakes.path("none")));
  setenv("CFC_PTXAS", fakes.path("other").c_str(), 1);
  EmitFailure environment = std::get<EmitFailure>(find(""));
  CHECK(environment.exitCode == 3);
  CHECK_THAT(environment.message, Contains("CFC_PTXAS=" + fakes.path("other")));
  unsetenv("CFC_PTXAS");
}

TEST_CASE("a ptxas that is too old for the PTX") {
  Fakes fakes;
  std::string old = fakes.script("echo 'Cuda compilation tools, release 11.8, V11.8.89'\n");
  EmitFailure failure = std::get<EmitFailure>(find(old));
  CHECK(failure.exitCode == 3);
  CHECK_THAT(failure.message,
             Contains("version 11.8.89") && Contains("PTX 8.0 for sm_90a needs 12.0 or newer"));
  // New enough for some PTX, not for other.
  std::string newer = fakes.script(kVersion);
  CHECK(std::get<Assembler>(find(newer, 84)).version() == "12.4.99");
  CHECK_THAT(std::get<EmitFailure>(find(newer, 86)).message, Contains("needs 12.7 or newer"));
}

TEST_CASE("a program that is no ptxas") {
  Fakes fakes;
  EmitFailure failure = std::get<EmitFailure>(find(fakes.script("echo hello\n")));
  CHECK(failure.exitCode == 4);
  CHECK_THAT(failure.message, Contains("does not say its version") && Contains("hello"));
}

TEST_CASE("a ptxas that fails keeps the PTX for a report") {
  Fakes fakes;
  EmitFailure rejected = failure(fakes.script(std::string(kVersion) + "echo 'ptxas fatal: no'; exit 255\n"));
  CHECK(rejected.exitCode == 4);
  CHECK_THAT(rejected.message,
             Contains("exit status 255") && Contains("ptxas fatal: no") && Contains(".ptx"));
  CHECK(fakes.left(".ptx") == 1);
  EmitFailure crashed = failure(fakes.script(std::string(kVersion) + "kill -SEGV $$\n"));
  CHECK(crashed.exitCode == 4);
  CHECK_THAT(crashed.message, Contains("crashed (signal 11"));
  EmitFailure empty = failure(fakes.script(std::string(kVersion) + "exit 0\n"));
  CHECK_THAT(empty.message, Contains("wrote no cubin"));
  CHECK(fakes.left(".cubin") == 0);
}

TEST_CASE("a ptxas that hangs is stopped with all its children") {
  Fakes fakes;
  setenv("CFC_PTXAS_TIMEOUT", "1", 1);
  std::string hanging =
      fakes.script(std::string(kVersion) + "sleep 100 & echo $! > " + fakes.path("pid") + "\nwait\n");
  EmitFailure slow = failure(hanging);
  unsetenv("CFC_PTXAS_TIMEOUT");
  CHECK(slow.exitCode == 4);
  CHECK_THAT(slow.message, Contains("took over 1 s and was stopped"));
  CHECK_FALSE(isAlive(fakes.path("pid")));
  CHECK(fakes.left(".cubin") == 0);
}

TEST_CASE("Ctrl-C leaves neither ptxas nor its file") {
  Fakes fakes;
  std::string hanging =
      fakes.script(std::string(kVersion) + "sleep 100 & echo $! > " + fakes.path("pid") + "\nwait\n");
  pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    auto assembler = find(hanging);
    std::get<Assembler>(assembler).assemble({{"k", kPtx}, {"l", kPtx}});
    _exit(0);
  }
  for (int i = 0; i != 500 && !std::filesystem::exists(fakes.path("pid")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
  CHECK_FALSE(isAlive(fakes.path("pid")));
  CHECK(fakes.left(".cubin") == 0);
}

TEST_CASE("several texts with the ptxas of this machine") {
  auto assembler = find("");
  if (std::holds_alternative<EmitFailure>(assembler)) {
    WARN("skipped: " + std::get<EmitFailure>(assembler).message);
    return;
  }
  Fakes fakes;
  auto cubins = std::get<Assembler>(assembler).assemble({{"a", kPtx}, {"b", kPtx}, {"c", kPtx}});
  REQUIRE(std::holds_alternative<std::vector<std::string>>(cubins));
  CHECK(std::get<std::vector<std::string>>(cubins).size() == 3);
  for (const std::string &cubin : std::get<std::vector<std::string>>(cubins))
    CHECK(cubin.compare(1, 3, "ELF") == 0);
  CHECK(fakes.left(".cubin") + fakes.left(".ptx") == 0);
}
