//===- KernelMutants.h - Faults put into lowered kernels -----------------------===//
#pragma once
#include "dialects/simt/Simt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "test/unit/KernelHarness.h"
#include <catch2/catch.hpp>

namespace cfc::test {

using Mutation = std::function<void(mlir::ModuleOp)>;

/// The operations of a kind for which `which` holds. A mutant without one is none: fails.
template <typename Op, typename Which> std::vector<Op> findOps(mlir::ModuleOp module, Which which) {
  std::vector<Op> found;
  module.walk([&](Op op) {
    if (which(op))
      found.push_back(op);
  });
  REQUIRE(!found.empty());
  return found;
}
template <typename Op> std::vector<Op> findOps(mlir::ModuleOp module) {
  return findOps<Op>(module, [](Op) { return true; });
}

template <typename Op, typename Which> void eraseOps(mlir::ModuleOp module, Which which) {
  for (Op op : findOps<Op>(module, which))
    op.erase();
}

/// Whether `value` is the integer `number`.
inline bool isConstant(mlir::Value value, int64_t number) {
  llvm::APInt is;
  return mlir::matchPattern(value, mlir::m_ConstantInt(&is)) && is.getSExtValue() == number;
}

/// Puts an i32 constant before `op`.
inline mlir::Value constantBefore(mlir::Operation *op, int32_t number) {
  mlir::OpBuilder b(op);
  return mlir::arith::ConstantOp::create(b, op->getLoc(), b.getI32IntegerAttr(number));
}

/// Whether a report of `reports` has a finding of `kind`.
inline bool reported(const std::vector<emu::Report> &reports, emu::FindingKind kind) {
  for (const emu::Report &report : reports)
    for (const emu::Finding &finding : report.findings)
      if (finding.kind == kind)
        return true;
  for (const emu::Report &report : reports)
    UNSCOPED_INFO(textOf(report));
  return false;
}

} // namespace cfc::test
