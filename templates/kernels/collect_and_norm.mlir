// A gather over the grid that never waits: the last CTA to arrive has all rows and norms them.
//
// 6 items each make 32 rows of y = w x; 2 CTAs share an item's rows and gather them. Items leave what they made in the
// workspace; whoever arrives last collects all 192 rows, adds x and norms: what takes a second kernel elsewhere
// (two_kernels.mlir). The rows travel as f16, and are written as they are too.
//
//   cfc run collect_and_norm.mlir --device=emu --input x=x.npy --input w=w.npy --input gain=gain.npy --output out
kernel.func @collect_and_norm(%x: memref<192xf16>, %w: memref<192x192xf16>, %gain: memref<192xf32>, %rows: memref<192xf16>, %out: memref<192xf16>)
    axes(item = 6 @grid, part = 2 @cta, warp = 4 @warp) plan(ring_stages = 4) {
  %t = kernel.read %x : memref<192xf16> -> !kernel.tile<192xf16>
  kernel.for_items %i over item {
    %ws = kernel.load %w rows [32] at %i : memref<192x192xf16> -> !kernel.stream<32x192xf16, part: split(0)>
    %m = kernel.matmul %ws, %t slots 4 : !kernel.stream<32x192xf16, part: split(0)>, !kernel.tile<192xf16> -> !kernel.tile<32xf16, part: split(0)>
    %g = kernel.exchange gather %m over "part" by push : !kernel.tile<32xf16, part: split(0)> -> !kernel.tile<32xf16>
    kernel.write %g, %rows at %i : !kernel.tile<32xf16>, memref<192xf16>
    kernel.finish gather %g over item by ordered : !kernel.tile<32xf16> as %all: !kernel.tile<192xf16> {
      %again = kernel.read %x : memref<192xf16> -> !kernel.tile<192xf16>
      %s = kernel.elementwise add %all, %again : !kernel.tile<192xf16>, !kernel.tile<192xf16> -> !kernel.tile<192xf32>
      %n = kernel.rms_norm %s, %gain eps 1.0e-6 : !kernel.tile<192xf32>, memref<192xf32> -> !kernel.tile<192xf16>
      kernel.write %n, %out : !kernel.tile<192xf16>, memref<192xf16>
    }
  }
  kernel.return
}
