//===- cfc-opt.cpp - Runs passes one by one -------------------------------===//
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "tools/lib/Dialects.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  cfc::registerDialects(registry);
  cfc::registerPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "cfc-opt: runs cfc's passes one by one\n", registry));
}
