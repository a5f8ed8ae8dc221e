//===- Assembler.cpp - PTX to cubins through ptxas --------------------------===//
//
// The program, not nvJitLink: that one assembles relocatably and loses the
// alignment of shared memory. Texts go in on standard input, cubins come out in
// a temporary file that is removed in every case.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/Assembler.h"
#include "compiler/emit/Process.h"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace cfc {
namespace {

struct Version {
  int major = 0, minor = 0;
  bool operator<(const Version &other) const {
    return major != other.major ? major < other.major : minor < other.minor;
  }
  std::string text() const { return fmt::format("{}.{}", major, minor); }
};

/// The first CUDA release whose ptxas knows a PTX version (NVIDIA's PTX ISA, "Release notes").
Version cudaFor(int ptxVersion) {
  struct {
    int ptx;
    Version cuda;
  } const releases[] = {{80, {12, 0}}, {81, {12, 1}}, {82, {12, 2}}, {83, {12, 3}}, {84, {12, 4}},
                        {85, {12, 5}}, {86, {12, 7}}, {87, {12, 8}}, {88, {12, 9}}, {90, {13, 0}}};
  for (const auto &release : releases)
    if (ptxVersion <= release.ptx)
      return release.cuda;
  return {13, 1};
}

//===-- Where to look -------------------------------------------------------===//

bool isProgram(const fs::path &path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

fs::path ownFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

/// `bin/ptxas` under `folder`, at most three folders down: Python wheels unpack to `nvidia/<name>/bin`.
void addBelow(const fs::path &folder, int depth, std::vector<std::string> &found) {
  if (isProgram(folder / "bin" / "ptxas"))
    found.push_back((folder / "bin" / "ptxas").string());
  if (depth == 0)
    return;
  std::error_code error;
  std::vector<fs::path> children;
  for (const auto &entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error))
      children.push_back(entry.path());
  std::sort(children.begin(), children.end());
  for (const fs::path &child : children)
    addBelow(child, depth - 1, found);
}

void addFromPath(std::vector<std::string> &found) {
  const char *path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && isProgram(fs::path(folder) / "ptxas"))
      found.push_back((fs::path(folder) / "ptxas").string());
}

std::vector<std::string> searchedPrograms() {
  std::vector<std::string> found;
  addBelow(ownFolder().parent_path() / "cuda", 3, found);
  addFromPath(found);
  if (isProgram("/usr/local/cuda/bin/ptxas"))
    found.push_back("/usr/local/cuda/bin/ptxas");
  return found;
}

//===-- What to say ---------------------------------------------------------===//

EmitFailure notFound(const AssemblerOptions &options) {
  return {3,
          fmt::format("no ptxas found, which makes the cubins (PTX {}.{} needs the one of CUDA {} or newer); "
                      "looked in {}, PATH and /usr/local/cuda/bin. tools/quickstart.sh installs one; "
                      "--ptxas=PATH or CFC_PTXAS names another",
                      options.ptxVersion / 10, options.ptxVersion % 10, cudaFor(options.ptxVersion).text(),
                      (ownFolder().parent_path() / "cuda").string())};
}

EmitFailure tooOld(const AssemblerOptions &options, const std::string &file, const std::string &release) {
  return {3, fmt::format("{} is too old: version {}, and PTX {}.{} for {} needs {} or newer; "
                         "--ptxas=PATH or CFC_PTXAS names another",
                         file, release, options.ptxVersion / 10, options.ptxVersion % 10, options.target,
                         cudaFor(options.ptxVersion).text())};
}

/// The first lines of what a program said, for a message.
std::string excerpt(const std::string &output) {
  std::istringstream lines(output);
  std::string text, line;
  for (int i = 0; i != 5 && std::getline(lines, line); ++i)
    text += "\n  " + line;
  return text;
}

/// How the run ended, as a sentence about `file`; empty if it succeeded.
std::string complaint(const std::string &file, const ProcessResult &run, int timeoutSeconds) {
  switch (run.end) {
  case ProcessResult::End::Exited:
    return run.code == 0 ? "" : fmt::format("{} failed with exit status {}", file, run.code);
  case ProcessResult::End::Killed:
    return fmt::format("{} crashed (signal {}: {})", file, run.code, strsignal(run.code));
  case ProcessResult::End::TimedOut:
    return fmt::format("{} took over {} s and was stopped", file, timeoutSeconds);
  case ProcessResult::End::NotStarted:
    return fmt::format("{} cannot be run: {}", file, std::strerror(run.code));
  case ProcessResult::End::Interrupted:
    return "interrupted";
  }
  return "";
}

//===-- Versions and files --------------------------------------------------===//

/// "… release 13.0, V13.0.88" gives "13.0.88"; empty where there is no such thing.
std::string parseRelease(const std::string &output) {
  size_t at = output.find(", V");
  if (at == std::string::npos)
    return "";
  at += 3;
  return output.substr(at, output.find_first_not_of("0123456789.", at) - at);
}

Version parseVersion(const std::string &release) {
  Version version;
  return std::sscanf(release.c_str(), "%d.%d", &version.major, &version.minor) == 2 ? version : Version();
}

std::string readAndRemove(const std::string &file) {
  std::ifstream stream(file, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  std::error_code error;
  fs::remove(file, error);
  return content;
}

/// A new empty file in the temporary folder; empty if there can be none.
std::string temporaryFile(const std::string &suffix) {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  std::string name = ((error ? fs::path("/tmp") : folder) / ("cfc-XXXXXX" + suffix)).string();
  int fd = mkstemps(name.data(), int(suffix.size()));
  if (fd < 0)
    return "";
  close(fd);
  return name;
}

/// "; the PTX is in FILE", for a report.
std::string keepPtx(const PtxText &text) {
  std::string file = temporaryFile(".ptx");
  std::ofstream stream(file);
  stream << text.text;
  stream.close();
  return file.empty() || !stream ? "; the PTX could not be kept" : "; the PTX is in " + file;
}

} // namespace

//===-- The interface -------------------------------------------------------===//

EmitResult<Assembler> Assembler::find(const AssemblerOptions &given) {
  AssemblerOptions options = given;
  if (const char *seconds = std::getenv("CFC_PTXAS_TIMEOUT"); seconds && std::atoi(seconds) > 0)
    options.timeoutSeconds = std::atoi(seconds);
  std::vector<std::string> candidates;
  const char *environment = std::getenv("CFC_PTXAS");
  bool isNamed = !options.ptxas.empty() || (environment && *environment);
  if (isNamed) {
    bool isOption = !options.ptxas.empty();
    std::string file = isOption ? options.ptxas : environment;
    if (!isProgram(file))
      return EmitFailure{
          3, fmt::format("{}={} is no program that can be run", isOption ? "--ptxas" : "CFC_PTXAS", file)};
    candidates.push_back(fs::absolute(file).string());
  } else {
    candidates = searchedPrograms();
  }

  EmitFailure failure = notFound(options);
  for (const std::string &file : candidates) {
    ProcessResult run = runProcess({file, "--version"}, "", "", std::chrono::seconds(options.timeoutSeconds));
    if (run.end == ProcessResult::End::Interrupted)
      return EmitFailure{130, "interrupted"};
    std::string release = parseRelease(run.output);
    if (std::string bad = complaint(file, run, options.timeoutSeconds); !bad.empty())
      failure = {4, bad + " when asked for its version" + excerpt(run.output)};
    else if (release.empty())
      failure = {4, file + " does not say its version the way ptxas does:" + excerpt(run.output)};
    else if (parseVersion(release) < cudaFor(options.ptxVersion))
      failure = tooOld(options, file, release);
    else
      return Assembler(options, file, release);
  }
  return failure;
}

EmitResult<std::string> Assembler::assembleOne(const PtxText &text) const {
  std::string output = temporaryFile(".cubin");
  if (output.empty())
    return EmitFailure{4,
                       fmt::format("no file can be made in the temporary folder: {}", std::strerror(errno))};
  // --fmad=false: the PTX says .rn everywhere, and ptxas must not contract even where it did not.
  ProcessResult run = runProcess({file, "-arch=" + options.target, "-O3", "--fmad=false", "-", "-o", output},
                                 text.text, output, std::chrono::seconds(options.timeoutSeconds));
  std::string cubin = readAndRemove(output);
  if (run.end == ProcessResult::End::Interrupted)
    return EmitFailure{130, "interrupted"};
  std::string bad = complaint(file, run, options.timeoutSeconds);
  if (bad.empty() && cubin.compare(0, 4,
                                   "\x7f"
                                   "ELF") != 0)
    bad = file + " succeeded but wrote no cubin";
  if (!bad.empty())
    return EmitFailure{
        4, fmt::format("{} on kernel '{}' (ptxas {}){}; please report it with that file and this text:{}",
                       bad, text.name, release, keepPtx(text), excerpt(run.output))};
  return cubin;
}

EmitResult<std::vector<std::string>> Assembler::assemble(const std::vector<PtxText> &texts) const {
  std::vector<EmitResult<std::string>> results(texts.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < texts.size();)
      results[i] = assembleOne(texts[i]);
  };
  std::vector<std::thread> threads;
  size_t workers = std::min<size_t>(texts.size(), std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 1; i < workers; ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();

  std::vector<std::string> cubins;
  for (EmitResult<std::string> &result : results) {
    if (auto *failure = std::get_if<EmitFailure>(&result))
      return *failure;
    cubins.push_back(std::get<std::string>(std::move(result)));
  }
  return cubins;
}

} // namespace cfc
