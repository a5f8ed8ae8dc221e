//===- Nvrtc.cpp - CUDA C++ to cubins at run time -------------------------===//
#include "tools/lib/Nvrtc.h"
#include "tools/lib/DeviceSources.h"
#include "tools/lib/Failure.h"
#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/ranges.h>

namespace fs = std::filesystem;
using namespace cfc;

using Status = int; // nvrtcResult; 0 is success
using ProgramHandle = struct _nvrtcProgram *;

/// What cfc uses of NVRTC; all of it is in every version since CUDA 11.1.
struct Nvrtc::Library {
  Status (*nvrtcVersion)(int *major, int *minor);
  const char *(*nvrtcGetErrorString)(Status status);
  Status (*nvrtcCreateProgram)(ProgramHandle *program, const char *text, const char *name, int headers,
                               const char *const *headerTexts, const char *const *headerNames);
  Status (*nvrtcDestroyProgram)(ProgramHandle *program);
  Status (*nvrtcCompileProgram)(ProgramHandle program, int count, const char *const *options);
  Status (*nvrtcGetCUBINSize)(ProgramHandle program, size_t *bytes);
  Status (*nvrtcGetCUBIN)(ProgramHandle program, char *cubin);
  Status (*nvrtcGetProgramLogSize)(ProgramHandle program, size_t *bytes);
  Status (*nvrtcGetProgramLog)(ProgramHandle program, char *log);

  void check(Status status, std::string_view what) const {
    if (status != 0)
      internalError("NVRTC: {}: {}", what, nvrtcGetErrorString(status));
  }
};

//===----------------------------------------------------------------------===//
// Finding the library
//===----------------------------------------------------------------------===//

/// Newest first, for a driver that runs what any of them makes. The last is whatever is installed.
static constexpr const char *libraryNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

/// Every library of these names under `folder`, at most four folders down: wheels unpack to
/// `nvidia/<name>/lib`.
static void addBelow(const fs::path &folder, int depth, std::vector<std::string> &found) {
  std::error_code error;
  for (const char *name : libraryNames)
    if (fs::exists(folder / name, error))
      found.push_back((folder / name).string());
  std::vector<fs::path> children;
  for (const auto &entry : fs::directory_iterator(folder, error))
    if (depth > 0 && entry.is_directory(error))
      children.push_back(entry.path());
  std::sort(children.begin(), children.end());
  for (const fs::path &child : children)
    addBelow(child, depth - 1, found);
}

/// Paths and names for dlopen, in the order in which they are tried. `looked` is for the message.
static std::vector<std::string> candidates(std::string &looked) {
  if (const char *given = std::getenv("CFC_NVRTC"); given && *given) {
    looked = "";
    return {given};
  }
  std::error_code error;
  fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path() / "cuda";
  std::vector<std::string> found;
  addBelow(beside, 4, found);
  found.insert(found.end(), std::begin(libraryNames), std::end(libraryNames));
  for (const char *folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"})
    addBelow(folder, 0, found);
  looked = fmt::format("; looked in {}, the system's library path and /usr/local/cuda", beside.string());
  return found;
}

template <typename Function> static bool resolve(void *handle, const char *symbol, Function &function) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));
  return function != nullptr;
}

/// Fills in the table. The library stays open until the process ends. On failure `why` has the reason.
static bool load(const std::string &path, Nvrtc::Library &library, std::string &why) {
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    why = dlerror();
    return false;
  }
  bool complete = true;
#define CFC_NVRTC_FUNCTION(name) complete = complete && resolve(handle, #name, library.name)
  CFC_NVRTC_FUNCTION(nvrtcVersion);
  CFC_NVRTC_FUNCTION(nvrtcGetErrorString);
  CFC_NVRTC_FUNCTION(nvrtcCreateProgram);
  CFC_NVRTC_FUNCTION(nvrtcDestroyProgram);
  CFC_NVRTC_FUNCTION(nvrtcCompileProgram);
  CFC_NVRTC_FUNCTION(nvrtcGetCUBINSize);
  CFC_NVRTC_FUNCTION(nvrtcGetCUBIN);
  CFC_NVRTC_FUNCTION(nvrtcGetProgramLogSize);
  CFC_NVRTC_FUNCTION(nvrtcGetProgramLog);
#undef CFC_NVRTC_FUNCTION
  if (!complete)
    why = path + ": not NVRTC, or older than CUDA 11.1";
  return complete;
}

Nvrtc Nvrtc::open() {
  std::string looked;
  std::vector<std::string> tried;
  auto library = std::make_shared<Library>();
  for (const std::string &path : candidates(looked)) {
    std::string why;
    if (!load(path, *library, why)) {
      tried.push_back(why);
      continue;
    }
    Nvrtc nvrtc(library);
    nvrtc.file = path;
    int major = 0, minor = 0;
    library->check(library->nvrtcVersion(&major, &minor), "asking for the version");
    nvrtc.release = fmt::format("{}.{}", major, minor);
    return nvrtc;
  }
  cannotRun("", "no NVRTC, which compiles CUDA C++ at run time ({}){}; CFC_NVRTC=FILE names one",
            fmt::join(tried, "; "), looked);
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

namespace {
/// A program of NVRTC, given back at the end of its scope.
class CudaProgram {
public:
  CudaProgram(const Nvrtc::Library &library, const std::string &name, const std::string &text)
      : library(library) {
    std::vector<const char *> texts, names;
    for (const DeviceSource &source : deviceSources()) {
      if (!source.name.ends_with(".h"))
        continue;
      texts.push_back(source.text.data());
      names.push_back(source.name.data());
    }
    library.check(library.nvrtcCreateProgram(&handle, text.c_str(), name.c_str(), int(texts.size()),
                                             texts.data(), names.data()),
                  "making a program");
  }
  ~CudaProgram() { library.nvrtcDestroyProgram(&handle); }
  CudaProgram(const CudaProgram &) = delete;
  CudaProgram &operator=(const CudaProgram &) = delete;

  Status compile(const std::vector<std::string> &options) {
    std::vector<const char *> pointers;
    for (const std::string &option : options)
      pointers.push_back(option.c_str());
    return library.nvrtcCompileProgram(handle, int(pointers.size()), pointers.data());
  }

  std::string log() const {
    size_t bytes = 0;
    if (library.nvrtcGetProgramLogSize(handle, &bytes) != 0 || bytes == 0)
      return "";
    std::string text(bytes, '\0');
    library.check(library.nvrtcGetProgramLog(handle, text.data()), "reading the log");
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n'))
      text.pop_back();
    return text;
  }

  std::string cubin() const {
    size_t bytes = 0;
    library.check(library.nvrtcGetCUBINSize(handle, &bytes), "asking for the size of a cubin");
    std::string content(bytes, '\0');
    library.check(library.nvrtcGetCUBIN(handle, content.data()), "reading a cubin");
    return content;
  }

private:
  const Nvrtc::Library &library;
  ProgramHandle handle = nullptr;
};
} // namespace

std::string Nvrtc::compile(const std::string &name, std::string_view text, const std::string &arch,
                           const std::vector<std::string> &options) const {
  CudaProgram program(*library, name, std::string(text));
  std::vector<std::string> all = {"--gpu-architecture=" + arch, "--std=c++17"};
  all.insert(all.end(), options.begin(), options.end());
  if (Status status = program.compile(all); status != 0) {
    std::string log = program.log();
    internalError("NVRTC {} ({}) cannot compile {} for {}: {}{}{}", release, file, name, arch,
                  library->nvrtcGetErrorString(status), log.empty() ? "" : "\n", log);
  }
  return program.cubin();
}
