//===- Assembler.h - PTX to cubins through ptxas ----------------------------===//
//
// Finds NVIDIA's ptxas and runs it, several at once. Free of LLVM.
//
//===----------------------------------------------------------------------===//
#pragma once
#include <string>
#include <variant>
#include <vector>

namespace cfc {

/// Why there is no result. `exitCode` is the program's: 3 for a ptxas that is missing or too old, 4 for one
/// that failed, 130 after a signal. `message` is complete but for `error: `.
struct EmitFailure {
  int exitCode;
  std::string message;
};
template <typename T> using EmitResult = std::variant<T, EmitFailure>;

struct AssemblerOptions {
  std::string ptxas;             ///< --ptxas: this file and no other; empty: search
  std::string target = "sm_90a"; ///< instruction set
  int ptxVersion = 80;           ///< what the PTX needs: 80 is 8.0
  int timeoutSeconds = 60;       ///< of one run; the environment's CFC_PTXAS_TIMEOUT overrides it
};

/// One text to assemble; the name is for messages.
struct PtxText {
  std::string name;
  std::string text;
};

class Assembler {
public:
  /// Takes the first that is there and new enough: the option, CFC_PTXAS (these two or nothing), the folder
  /// `cuda` beside the program's, PATH, /usr/local/cuda/bin.
  static EmitResult<Assembler> find(const AssemblerOptions &options);

  /// One cubin for each text, assembled in parallel. PTX that ptxas fails on is kept in a file that the
  /// message names.
  EmitResult<std::vector<std::string>> assemble(const std::vector<PtxText> &texts) const;

  const std::string &path() const { return file; }
  const std::string &version() const { return release; } ///< "13.0.88"

private:
  Assembler(AssemblerOptions options, std::string file, std::string release)
      : options(std::move(options)), file(std::move(file)), release(std::move(release)) {}
  EmitResult<std::string> assembleOne(const PtxText &text) const;

  AssemblerOptions options;
  std::string file, release;
};

} // namespace cfc
