// A matrix times a vector whose sum goes over the grid: y = w x + bias, the order of the sum fixed.
//
// Item i multiplies columns [48 i, 48 i + 48) of w with its 48 numbers of x; the item that arrives last merges all
// partial sums in item order, adds the bias and writes. Nothing waits, so it does not matter which clusters run when,
// and every run gives the same bits.
//
//   cfc run matmul_grid_sum.mlir --device=emu --input x=x.npy --input w=w.npy --input bias=bias.npy --output out
kernel.func @matmul_grid_sum(%x: memref<336xbf16>, %w: memref<80x336xbf16>, %bias: memref<80xf32>, %y: memref<80xf32>)
    axes(item = 7 @grid, part = 2 @cta, warp = 4 @warp) plan(ring_stages = 2, tile_columns = 32) {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<336xbf16> -> !kernel.tile<48xbf16>
    %ws = kernel.load %w rows [80] columns at %i : memref<80x336xbf16> -> !kernel.stream<80x48xbf16, part: split(0)>
    %m = kernel.matmul %ws, %t slots 1 : !kernel.stream<80x48xbf16, part: split(0)>, !kernel.tile<48xbf16> -> !kernel.tile<80xf32, part: split(0), item: partial(sum)>
    kernel.finish %m over item by ordered : !kernel.tile<80xf32, part: split(0), item: partial(sum)> as %sum: !kernel.tile<80xf32, part: split(0)> {
      %b = kernel.read %bias : memref<80xf32> -> !kernel.tile<80xf32, part: split(0)>
      %r = kernel.elementwise add %sum, %b : !kernel.tile<80xf32, part: split(0)>, !kernel.tile<80xf32, part: split(0)> -> !kernel.tile<80xf32, part: split(0)>
      kernel.write %r, %y : !kernel.tile<80xf32, part: split(0)>, memref<80xf32>
    }
  }
  kernel.return
}
