//===- Cost.h - What a kernel costs, before it is built ---------------------===//
#pragma once
#include "compiler/plan/Fusion.h"
#include "compiler/plan/Machine.h"

namespace cfc {

/// The choices for one kernel and, in their order, for its operations.
struct KernelChoice {
  KernelPlan kernel;
  llvm::SmallVector<OpPlan, 8> ops;
};

/// A part of a kernel's work.
struct Phase {
  std::string what;
  double bytes = 0; ///< of memory read and written over the whole grid
  double us = 0;    ///< time that it adds
};

struct KernelCost {
  int64_t items = 1, resident = 1, waves = 1;
  double bytes = 0, us = 0;
  std::vector<Phase> phases;
};

/// Predicted time of one launch for a cache of `length` tokens. Phases are listed only if `describe`.
KernelCost predict(const KernelShape &shape, const KernelChoice &choice, const Machine &machine,
                   int64_t length, bool describe = false);

/// Estimate of a CTA's shared memory in bytes: tiles, buffers of exchanges and the ring.
int64_t estimateShared(const KernelShape &shape, const KernelChoice &choice);

/// Why an operation cannot be spread over the cluster as chosen, or "" if it can.
std::string checkSplit(const KernelShape &shape, const KernelPlan &kernel, mlir::Operation *op,
                       const OpPlan &plan);

/// Whether an operation has a choice of that kind in its kernel.
bool hasSplit(const KernelShape &shape, mlir::Operation *op);
bool hasGather(const KernelShape &shape, mlir::Operation *op, Split split);
bool hasReduce(const KernelShape &shape, mlir::Operation *op, Split split);
bool hasFinish(const KernelShape &shape, mlir::Operation *op);

} // namespace cfc
