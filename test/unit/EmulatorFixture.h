//===- EmulatorFixture.h - Runs small simt kernels on the emulator ---------===//
#pragma once
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "runtime/emulator/Emulator.h"
#include "llvm/Support/raw_ostream.h"
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <sstream>

namespace emutest {

inline std::string readModule(const std::string &name) {
  std::ifstream file(std::string(CFC_EMULATOR_TESTS) + "/" + name + ".mlir");
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// `text` with every `from` replaced; there must be one.
inline std::string mutate(std::string text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

inline std::unique_ptr<cfc::emu::Program> compile(const std::string &text) {
  static mlir::DialectRegistry registry = [] {
    mlir::DialectRegistry r;
    r.insert<cfc::simt::SimtDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
             mlir::scf::SCFDialect>();
    return r;
  }();
  mlir::MLIRContext context(registry);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &context, "test.mlir");
  REQUIRE(module);
  llvm::Expected<std::unique_ptr<cfc::emu::Program>> program = cfc::emu::Program::compile(*module);
  if (!program)
    FAIL(llvm::toString(program.takeError()));
  return std::move(*program);
}

inline std::string text(const cfc::emu::Report &report) {
  std::string out;
  llvm::raw_string_ostream os(out);
  report.print(os);
  return out;
}

/// A table whose entries begin at byte 64, and the tensors that it names.
struct Buffers {
  cfc::emu::Memory memory;
  char *table = static_cast<char *>(memory.allocate(256, 64, "table", /*zeroed=*/true));
  unsigned entries = 0;

  void entry(uint64_t value) { std::memcpy(table + 64 + 8 * entries++, &value, 8); }
  template <typename T> T *tensor(size_t count, const char *name, bool zeroed = false) {
    auto *data = static_cast<T *>(memory.allocate(count * sizeof(T), 16, name, zeroed));
    entry(reinterpret_cast<uint64_t>(data));
    return data;
  }
};

/// One run: the report, and whether the values were right.
struct Outcome {
  cfc::emu::Report report;
  bool valuesRight = true;
  bool good() const { return report.ok && valuesRight; }
};

Outcome runRing(const cfc::emu::Program &program, const cfc::emu::Options &options);
Outcome runPush(const cfc::emu::Program &program, const cfc::emu::Options &options);
Outcome runStoreAsync(const cfc::emu::Program &program, const cfc::emu::Options &options);
Outcome runPull(const cfc::emu::Program &program, const cfc::emu::Options &options);
Outcome runBulkPush(const cfc::emu::Program &program, const cfc::emu::Options &options);
Outcome runLastArriver(const cfc::emu::Program &program, const cfc::emu::Options &options);
Outcome runGridBarrier(const cfc::emu::Program &program, const cfc::emu::Options &options);

} // namespace emutest
