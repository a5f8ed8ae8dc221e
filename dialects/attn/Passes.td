//===- Passes.td - Passes over graphs ----------------------------------------===//
#ifndef CFC_ATTN_PASSES
#define CFC_ATTN_PASSES
include "mlir/Pass/PassBase.td"

def AttnFuse : Pass<"attn-fuse", "::mlir::ModuleOp"> {
  let summary = "Groups a graph's operations into as few kernels as possible";
  let description = [{
    Deals operations, in graph order, to the first kernel that makes their operands in a form that they can use
    (whole in every CTA, slices by item, or finished from sums over the items). The kernel of each operation is its
    attribute `attn.kernel`; where an operation has one already, it stays. `cut-after` keeps what follows an
    operation out of the kernels up to it.

    Before:
    ```mlir
    %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
    %y = attn.linear %n, [%w]
    %m = attn.rms_norm %y, %gain {eps = 1.0e-5}
    ```
    After:
    ```mlir
    %n = attn.rms_norm %x, %gain {attn.kernel = 0, eps = 1.0e-5}
    %y = attn.linear %n, [%w] {attn.kernel = 0}
    %m = attn.rms_norm %y, %gain {attn.kernel = 1, eps = 1.0e-5}
    ```
  }];
  let options = [ListOption<"cutAfter", "cut-after", "std::string", "results after whose operations a kernel ends">];
  let statistics = [Statistic<"numKernels", "kernels", "Kernels that graphs were grouped into">];
}

def AttnPlan : Pass<"attn-plan", "::mlir::ModuleOp"> {
  let summary = "Attaches a plan: every decision about a graph's kernels, as text";
  let description = [{
    Enumerates legal plans for the kernels of `attn-fuse` (or of its own fusion where that has not run), predicts
    each from the machine's numbers and attaches the best as the graph's attribute `attn.plan`. `plan=random:7` draws
    a legal plan by seed, over every choice; `plan=FILE` takes the choices of a file and plans the rest.

    Before:
    ```mlir
    attn.graph @small(%x: tensor<1x64xf16>, …) -> (tensor<1x64xf16>) { … }
    ```
    After:
    ```mlir
    attn.graph @small(%x: tensor<1x64xf16>, …) -> (tensor<1x64xf16>) attributes {attn.plan =
      "graph small hash = …\nkernel 0: part = 1, warps = 4, …\nop linear(%y): kernel = 0, split = rows\n"} { … }
    ```
  }];
  let options = [
    Option<"machine", "machine", "std::string", "\"h200\"", "a known machine's name or a JSON file">,
    Option<"plan", "plan", "std::string", "\"auto\"", "auto, random:SEED or a file">,
    Option<"deterministic", "deterministic", "bool", "true", "the same bits for every plan">];
}

def AttnToKernel : Pass<"attn-to-kernel", "::mlir::ModuleOp"> {
  let summary = "Writes the kernels that a graph's plan describes";
  let description = [{
    Replaces each graph by one `kernel.func` for each kernel of its plan, `@graph_k0`, `@graph_k1`, … in launch order.
    Arguments say where they lie: `kernel.entry` in the table of docs/design.md (arguments, then results, then
    generated tables), or `kernel.workspace` at a byte offset. The module's `kernel.workspace_bytes` and
    `kernel.zero_bytes` give the workspace's size and how much of its start is zero between launches.

    Before:
    ```mlir
    attn.graph @small(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> (tensor<1x64xf16>) attributes {attn.plan = "…"} {
      %y = attn.linear %x, [%w]
      attn.return %y
    }
    ```
    After:
    ```mlir
    kernel.func @small_k0(%x: memref<64xf16> {kernel.entry = 0 : i32}, %w: memref<64x64xf16> {kernel.entry = 1 : i32},
        %result0: memref<64xf16> {kernel.entry = 2 : i32, kernel.output}) axes(rows = 1 @grid, part = 1 @cta, …) plan(…) {
      %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
      kernel.for_items %i over rows {
        %s = kernel.load %w rows [64] at %i : …
        %y = kernel.matmul %s, %t slots 16 : …
        kernel.write %y, %result0 at %i : …
      }
      kernel.return
    }
    ```
  }];
  let dependentDialects = ["::cfc::kernel::KernelDialect"];
}
#endif
