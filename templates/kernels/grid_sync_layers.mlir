// Three layers in one launch: every CTA waits, twice, until all have written what the next layer reads.
//
// out = rms_norm(w2 (w1 x) + x). The rows of each product are dealt to all clusters, with other numbers of items; the norm is
// made by every cluster, and one writes it. The weights of the second layer come while the first ends: streams do not
// wait. The same in kernels of its own is two_kernels.mlir. All CTAs of such a launch run at a time: it is cooperative.
//
//   cfc run grid_sync_layers.mlir --device=emu --input x=x.npy --input w1=w1.npy --input w2=w2.npy --input gain=gain.npy --output out
kernel.func @grid_sync_layers(%x: memref<96xf16>, %w1: memref<160x96xf16>, %hidden: memref<160xf16>, %w2: memref<96x160xf16>,
                              %sum: memref<96xf32>, %gain: memref<96xf32>, %out: memref<96xf16>)
    axes(up = 5 @grid, down = 3 @grid, part = 2 @cta) plan(in_flight = 2, ring_stages = 3) {
  %t = kernel.read %x : memref<96xf16> -> !kernel.tile<96xf16>
  kernel.for_items %i over up {
    %a = kernel.load %w1 rows [32] at %i : memref<160x96xf16> -> !kernel.stream<32x96xf16, part: split(0)>
    %m = kernel.matmul %a, %t slots 3 : !kernel.stream<32x96xf16, part: split(0)>, !kernel.tile<96xf16> -> !kernel.tile<32xf16, part: split(0)>
    kernel.write %m, %hidden at %i : !kernel.tile<32xf16, part: split(0)>, memref<160xf16>
  }
  kernel.grid_sync
  %h = kernel.read %hidden : memref<160xf16> -> !kernel.tile<160xf16>
  kernel.for_items %i over down {
    %b = kernel.load %w2 rows [32] at %i : memref<96x160xf16> -> !kernel.stream<32x160xf16, part: split(0)>
    %m = kernel.matmul %b, %h slots 5 : !kernel.stream<32x160xf16, part: split(0)>, !kernel.tile<160xf16> -> !kernel.tile<32xf32, part: split(0)>
    %r = kernel.read %x at %i : memref<96xf16> -> !kernel.tile<32xf32, part: split(0)>
    %s = kernel.elementwise add %m, %r : !kernel.tile<32xf32, part: split(0)>, !kernel.tile<32xf32, part: split(0)> -> !kernel.tile<32xf32, part: split(0)>
    kernel.write %s, %sum at %i : !kernel.tile<32xf32, part: split(0)>, memref<96xf32>
  }
  kernel.grid_sync
  %all = kernel.read %sum : memref<96xf32> -> !kernel.tile<96xf32>
  %n = kernel.rms_norm %all, %gain eps 1.0e-6 : !kernel.tile<96xf32>, memref<96xf32> -> !kernel.tile<96xf16>
  kernel.write %n, %out : !kernel.tile<96xf16>, memref<96xf16>
  kernel.return
}
