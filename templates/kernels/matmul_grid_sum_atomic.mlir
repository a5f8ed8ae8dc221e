// The same as matmul_grid_sum.mlir by atomic sums: no partial sums in memory, and an order that changes from run to run.
//
// Results may differ in their last bits between runs; `--deterministic` graphs never use this algorithm.
//
//   cfc run matmul_grid_sum_atomic.mlir --device=emu --input x=x.npy --input w=w.npy --input bias=bias.npy --output out
kernel.func @matmul_grid_sum_atomic(%x: memref<336xbf16>, %w: memref<80x336xbf16>, %bias: memref<80xf32>, %y: memref<80xf32>)
    axes(item = 7 @grid, part = 2 @cta, warp = 4 @warp) plan(ring_stages = 2, tile_columns = 32) {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<336xbf16> -> !kernel.tile<48xbf16>
    %ws = kernel.load %w rows [80] columns at %i : memref<80x336xbf16> -> !kernel.stream<80x48xbf16, part: split(0)>
    %m = kernel.matmul %ws, %t slots 1 : !kernel.stream<80x48xbf16, part: split(0)>, !kernel.tile<48xbf16> -> !kernel.tile<80xf32, part: split(0), item: partial(sum)>
    kernel.finish %m over item by atomic : !kernel.tile<80xf32, part: split(0), item: partial(sum)> as %sum: !kernel.tile<80xf32, part: split(0)> {
      %b = kernel.read %bias : memref<80xf32> -> !kernel.tile<80xf32, part: split(0)>
      %r = kernel.elementwise add %sum, %b : !kernel.tile<80xf32, part: split(0)>, !kernel.tile<80xf32, part: split(0)> -> !kernel.tile<80xf32, part: split(0)>
      kernel.write %r, %y : !kernel.tile<80xf32, part: split(0)>, memref<80xf32>
    }
  }
  kernel.return
}
