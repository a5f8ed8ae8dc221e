// Two kernels in a row: the second reads what the first wrote, under the same name.
//
// The first multiplies by rows split over 2 CTAs, the second adds the input and normalizes: out = rms_norm(x + w x). One
// kernel could not: its clusters would have to wait for each other. `hidden` is an output as well: whatever is written is.
//
//   cfc run two_kernels.mlir --device=emu --input x=x.npy --input w=w.npy --input gain=gain.npy --output out
kernel.func @project(%x: memref<96xf16>, %w: memref<96x96xf16>, %hidden: memref<96xf32>)
    axes(item = 3 @grid, part = 2 @cta) plan() {
  %t = kernel.read %x : memref<96xf16> -> !kernel.tile<96xf16>
  kernel.for_items %i over item {
    %ws = kernel.load %w rows [32] at %i : memref<96x96xf16> -> !kernel.stream<32x96xf16, part: split(0)>
    %m = kernel.matmul %ws, %t slots 3 : !kernel.stream<32x96xf16, part: split(0)>, !kernel.tile<96xf16> -> !kernel.tile<32xf32, part: split(0)>
    kernel.write %m, %hidden at %i : !kernel.tile<32xf32, part: split(0)>, memref<96xf32>
  }
  kernel.return
}
kernel.func @add_and_norm(%x: memref<96xf16>, %hidden: memref<96xf32>, %gain: memref<96xf32>, %out: memref<96xf16>) axes() plan() {
  %t = kernel.read %x : memref<96xf16> -> !kernel.tile<96xf32>
  %h = kernel.read %hidden : memref<96xf32> -> !kernel.tile<96xf32>
  %s = kernel.elementwise add %t, %h : !kernel.tile<96xf32>, !kernel.tile<96xf32> -> !kernel.tile<96xf32>
  %n = kernel.rms_norm %s, %gain eps 1.0e-6 : !kernel.tile<96xf32>, memref<96xf32> -> !kernel.tile<96xf16>
  kernel.write %n, %out : !kernel.tile<96xf16>, memref<96xf16>
  kernel.return
}
