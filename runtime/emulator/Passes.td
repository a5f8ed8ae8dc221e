//===- Passes.td - The emulator's pass ------------------------------------===//
#ifndef CFC_EMU_PASSES
#define CFC_EMU_PASSES
include "mlir/Pass/PassBase.td"

def SimtToEmu : Pass<"simt-to-emu", "::mlir::ModuleOp"> {
  let summary = "Lowers simt kernels to the LLVM dialect with calls into the CPU emulator";
  let description = [{
    Every `simt.kernel` becomes an `llvm.func` of one thread. Its first argument is the thread's fiber; table,
    workspace and what the thread knows of itself (thread, rank, cluster, number of clusters, shared memory) follow.
    An op that touches memory, other threads or the hardware's units becomes a call of `cfc_emu_...`, which ends with
    the id of the op's source location. Loads and stores ask the emulator where the value is. Pointers into all
    spaces are host addresses. Fast-math flags are dropped: a sum has the order and the rounding that were written.

    An access of more than 16 bytes and an op without a lowering are reported where they stand.

    Before:
    ```mlir
    simt.kernel @k(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
        attributes {threads = 32 : i32, cluster = 2 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
      %one = arith.constant 1 : i32
      %shared = simt.shared_base
      %peer = simt.map_rank %shared, %one
      simt.store %one, %peer : i32, !simt.ptr<cluster>
      simt.return
    }
    ```
    After (locations 0 and 1):
    ```mlir
    llvm.func @k(%fiber: !llvm.ptr, %table: !llvm.ptr, %workspace: !llvm.ptr, %thread: i32, %rank: i32,
                 %cluster: i32, %clusters: i32, %shared: !llvm.ptr) {
      %one = llvm.mlir.constant(1 : i32) : i32
      %l0 = llvm.mlir.constant(0 : i32) : i32
      %peer = llvm.call @cfc_emu_map_rank(%fiber, %shared, %one, %l0) : (!llvm.ptr, !llvm.ptr, i32, i32) -> !llvm.ptr
      %bytes = llvm.mlir.constant(4 : i32) : i32
      %l1 = llvm.mlir.constant(1 : i32) : i32
      %at = llvm.call @cfc_emu_store_cluster(%fiber, %peer, %bytes, %l1) : (!llvm.ptr, !llvm.ptr, i32, i32) -> !llvm.ptr
      llvm.store %one, %at {alignment = 4 : i64} : i32, !llvm.ptr
      llvm.return
    }
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect",
                           "::mlir::vector::VectorDialect"];
}
#endif
