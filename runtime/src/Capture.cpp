//===- Capture.cpp - Writing a launch's inputs to a file --------------------===//
#include "runtime/src/Capture.h"
#include "runtime/src/CaptureFile.h"
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace cfc::runtime {
namespace {

namespace fs = std::filesystem;

/// One line on standard error, in one piece.
template <class... Args> void say(fmt::format_string<Args...> text, Args &&...args) {
  std::string line = "cfc: " + fmt::format(text, std::forward<Args>(args)...) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// What became of a graph's launches in this process.
struct Progress {
  uint64_t launches = 0;
  bool recordedSaid = false;
};

std::mutex progressMutex;

Progress &progressOf(const std::string &folder, const Manifest &manifest, const GraphSpec &graph) {
  static std::map<std::tuple<std::string, std::string, std::string>, Progress> all;
  return all[{folder, manifest.simtDigest, graph.name}];
}

/// A graph's name as a part of a file's.
std::string fileName(std::string text) {
  for (char &c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.')
      c = '_';
  return text.substr(0, 100);
}

} // namespace

std::unique_ptr<const Capture> Capture::fromEnvironment() {
  auto capture = std::make_unique<Capture>();
  capture->folder = variable("CFC_CAPTURE");
  if (capture->folder.empty())
    return nullptr;
  capture->graphName = variable("CFC_CAPTURE_GRAPH");
  std::string skip = variable("CFC_CAPTURE_SKIP"), weights = variable("CFC_CAPTURE_WEIGHTS");
  const char *end = skip.data() + skip.size();
  auto parsed = std::from_chars(skip.data(), end, capture->skip);
  if (!skip.empty() && (parsed.ec != std::errc() || parsed.ptr != end)) {
    say("CFC_CAPTURE_SKIP={} is no number of launches: nothing is captured", skip);
    return nullptr;
  }
  if (!weights.empty() && weights != "0" && weights != "1") {
    say("CFC_CAPTURE_WEIGHTS={} is neither 0 nor 1: nothing is captured", weights);
    return nullptr;
  }
  capture->weights = weights != "0";
  return capture;
}

bool Capture::wants(const Manifest &manifest, const GraphSpec &graph, bool recorded) const noexcept {
  if (!graphName.empty() && graph.name != graphName)
    return false;
  try {
    std::lock_guard lock(progressMutex);
    Progress &progress = progressOf(folder, manifest, graph);
    if (!recorded)
      return progress.launches++ == skip;
    if (progress.launches <= skip && !std::exchange(progress.recordedSaid, true))
      say("a launch of graph '{}' is not captured: its stream is recorded into a CUDA graph, and nothing can "
          "be "
          "copied; launch it once without",
          graph.name);
  } catch (...) { // out of memory
  }
  return false;
}

/// A name that no file has.
std::string Capture::path(const CapturedLaunch &launch) const {
  std::string stem = fmt::format("{}/{}-{}-{}", folder, fileName(launch.graph.name),
                                 fileName(launch.variant.planHash), ::getpid());
  std::string path = stem + ".safetensors";
  for (int i = 2; fs::exists(path); ++i)
    path = fmt::format("{}-{}.safetensors", stem, i);
  return path;
}

void Capture::write(const CapturedLaunch &launch) const noexcept {
  try {
    std::error_code ignored; // writing says what is wrong
    fs::create_directories(folder, ignored);
    CaptureFile file(launch, weights);
    std::string name = path(launch);
    produceFileAtomically(name, [&](const ContentWriter &write) { file.write(write); });
    say("captured launch {} of graph '{}' in {}: {} tensors, {:.1f} MB{}{}{}", skip + 1, launch.graph.name,
        name, file.tensors(), double(file.bytes()) / 1e6, file.summary().empty() ? "" : ", ", file.summary(),
        weights ? "" : ", no weights");
  } catch (...) {
    Failure failure = currentFailure();
    std::fprintf(stderr, "cfc: graph '%s' is not captured: %s; the launch goes on\n",
                 launch.graph.name.c_str(), failure.message.c_str());
  }
}

} // namespace cfc::runtime
