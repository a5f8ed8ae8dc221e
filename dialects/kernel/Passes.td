//===- Passes.td - Passes over the kernel dialect ----------------------------===//
#ifndef CFC_KERNEL_PASSES
#define CFC_KERNEL_PASSES
include "mlir/Pass/PassBase.td"

def KernelAssignStorage : Pass<"kernel-assign-storage", "::mlir::ModuleOp"> {
  let summary = "Gives tensors their table entries and grid sums their place in the workspace";
  let description = [{
    Leaves alone what has a place already, as in kernels that were made from a graph.

    Before:
    ```mlir
    kernel.func @f(%x: memref<64xf32>, %y: memref<64xf32>) …
      kernel.finish %s over item by ordered : …
    ```
    After:
    ```mlir
    module attributes {kernel.workspace_bytes = 528 : i64, kernel.zero_bytes = 16 : i64}
    kernel.func @f(%x: memref<64xf32> {kernel.entry = 0 : i32}, %y: memref<64xf32> {kernel.entry = 1 : i32}) …
      kernel.finish %s over item by ordered attributes {counters = 0 : i64, partials = 16 : i64} : …
    ```
  }];
  let dependentDialects = ["::cfc::kernel::KernelDialect"];
}

def KernelOutlineProducer : Pass<"kernel-outline-producer", "::mlir::ModuleOp"> {
  let summary = "Gives each kernel a producer that feeds its streams in the order of their use";
  let description = [{
    Copies the loops around every consumed stream into a `kernel.producer`, so that producer and consumers
    agree on the order and the number of ring tiles by construction.

    Before:
    ```mlir
    kernel.for_items %h over head {
      %w = kernel.load %weight rows [128] at %h : memref<512x256xf16>, !kernel.item -> !kernel.stream<128x256xf16>
      %y = kernel.matmul %w, %x slots 16 : …
    }
    ```
    After:
    ```mlir
    kernel.producer {
      kernel.for_items %h over head {
        %w = kernel.load %weight rows [128] at %h : …
        kernel.feed %w : !kernel.stream<128x256xf16>
      }
    }
    kernel.for_items %h over head {
      %w = kernel.load %weight rows [128] at %h : …
      %y = kernel.matmul %w, %x slots 16 : …
    }
    ```
  }];
  let dependentDialects = ["::cfc::kernel::KernelDialect"];
  let statistics = [Statistic<"numFeeds", "feeds", "Streams fed by producers">];
}

def KernelToSimt : Pass<"kernel-to-simt", "::mlir::ModuleOp"> {
  let summary = "Lowers kernels to what one thread does";
  let description = [{
    Lays out shared memory (barriers, tiles, ring), splits each kernel into a producer warp and consumer warps and
    lowers each operation by one function. The result is a `simt.kernel` of the same name with the attribute
    `cfc.clusters`, the most clusters that have work.

    Before:
    ```mlir
    kernel.func @scale(%x: memref<64xf32>, %y: memref<64xf32>) axes() plan() {
      %t = kernel.read %x : memref<64xf32> -> !kernel.tile<64xf32>
      %u = kernel.elementwise add %t, %t : …
      kernel.write %u, %y : !kernel.tile<64xf32>, memref<64xf32>
      kernel.return
    }
    ```
    After:
    ```mlir
    simt.kernel @scale(%table: !simt.ptr<global>, %workspace: !simt.ptr<global>)
        attributes {threads = 160 : i32, cluster = 1 : i32, shared_bytes = 1280 : i64, ctas_per_sm = 1 : i32, cfc.clusters = 1 : i32} {
      %tid = simt.thread_id
      …
    ```
  }];
  let dependentDialects = ["::cfc::simt::SimtDialect", "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
                           "::mlir::math::MathDialect", "::mlir::vector::VectorDialect"];
}
#endif
