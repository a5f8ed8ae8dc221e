//===- Nvrtc.h - CUDA C++ to cubins at run time ---------------------------===//
//
// NVIDIA's run-time compiler, opened when it is first needed: neither building
// nor starting cfc needs CUDA.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cfc {

class Nvrtc {
public:
  /// Opens the first library that is there and complete: CFC_NVRTC (this file or nothing), the folder `cuda`
  /// beside the program's, the system's library path, /usr/local/cuda. Throws Failure (3) that names all that
  /// was tried.
  static Nvrtc open();

  const std::string &path() const { return file; }
  const std::string &version() const { return release; } ///< "13.0"

  /// A cubin of one text for `arch`, such as "sm_90" or "sm_90a". The text may include every header of
  /// templates/device. `options` are further options of the compiler, such as "-DN=4". Throws Failure (4)
  /// with the compiler's log.
  std::string compile(const std::string &name, std::string_view text, const std::string &arch,
                      const std::vector<std::string> &options = {}) const;

  /// The table of functions; defined in Nvrtc.cpp.
  struct Library;

private:
  explicit Nvrtc(std::shared_ptr<const Library> library) : library(std::move(library)) {}
  std::shared_ptr<const Library> library;
  std::string file, release;
};

} // namespace cfc
