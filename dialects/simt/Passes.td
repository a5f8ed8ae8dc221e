//===- Passes.td - Passes over simt modules --------------------------------===//
#ifndef CFC_SIMT_PASSES
#define CFC_SIMT_PASSES
include "mlir/Pass/PassBase.td"

def SimtToNvvm : Pass<"simt-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "Lowers simt kernels to the LLVM and NVVM dialects for sm_90a";
  let description = [{
    Every `simt.kernel` becomes an `llvm.func` with the launch bounds as NVVM attributes; structured control flow
    becomes branches; simt, arith, math and vector ops become LLVM or NVVM ops, or inline PTX where LLVM has no
    faithful form. Pointers into `global`, `shared` and `cluster` memory are LLVM's address spaces 1, 3 and 7.
    Fast-math flags are dropped: a sum has the order and the rounding that were written.

    An op without a lowering (`math.exp`, a call) is reported where it stands and nothing is changed.

    Before:
    ```mlir
    simt.kernel @k(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
        attributes {threads = 128 : i32, cluster = 2 : i32, shared_bytes = 1024 : i64, ctas_per_sm = 1 : i32} {
      %one = arith.constant 1 : i32
      %shared = simt.shared_base
      %peer = simt.map_rank %shared, %one
      simt.store %one, %peer : i32, !simt.ptr<cluster>
      simt.return
    }
    ```
    After:
    ```mlir
    llvm.mlir.global external @cfc_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
    llvm.func @k(%arg0: !llvm.ptr<1>, %arg1: !llvm.ptr<1>) attributes {nvvm.kernel,
        nvvm.reqntid = array<i32: 128, 1, 1>, nvvm.cluster_dim = array<i32: 2, 1, 1>, nvvm.minctasm = 1 : i32} {
      %0 = llvm.mlir.constant(1 : i32) : i32
      %1 = llvm.mlir.addressof @cfc_shared : !llvm.ptr<3>
      %2 = nvvm.mapa %1, %0 : !llvm.ptr<3> -> !llvm.ptr<7>
      llvm.store %0, %2 {alignment = 4 : i64} : i32, !llvm.ptr<7>
      llvm.return
    }
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect"];
}

def EmitPtx : Pass<"emit-ptx", "::mlir::ModuleOp"> {
  let summary = "Prints the PTX of a simt module";
  let description = [{
    Runs `simt-to-nvvm` on a copy, LLVM's O3 and its NVPTX backend, and prints the PTX to standard output. The module
    itself does not change.

    Before:
    ```mlir
    simt.kernel @k(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
        attributes {threads = 32 : i32, cluster = 1 : i32, shared_bytes = 0 : i64, ctas_per_sm = 1 : i32} {
      simt.return
    }
    ```
    After:
    ```
    .visible .entry k(.param .u64 .ptr .global .align 1 k_param_0, .param .u64 .ptr .global .align 1 k_param_1)
    .reqntid 32, 1, 1
    .minnctapersm 1
    .reqnctapercluster 1, 1, 1
    { ret; }
    ```
  }];
  let options = [
    Option<"printLlvm", "llvm", "bool", "false", "print the optimised LLVM IR instead">,
    Option<"verbose", "verbose", "bool", "false", "print the time of each phase to standard error">
  ];
}
#endif
