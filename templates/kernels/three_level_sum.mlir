// A sum over three levels: along the columns of a mesh of CTAs, along its rows, and over the grid.
//
// Each of 5 items multiplies 128 columns of w; the 8 CTAs of a cluster, a mesh of 2 x 4, share them. By recursive halving
// over `column` a CTA gets a quarter of the rows; the two CTAs of a column then push their summands of those to each
// other, and the grid's sum is finished by the CTAs of the cluster that arrives last, each its own 16 of the 64 rows.
//
//   cfc run three_level_sum.mlir --device=emu --input x=x.npy --input w=w.npy --output out
kernel.func @three_level_sum(%x: memref<640xf16>, %w: memref<64x640xf16>, %y: memref<64xf32>)
    axes(item = 5 @grid, row = 2 @cta, column = 4 @cta, warp = 4 @warp) plan(ring_stages = 2) {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<640xf16> -> !kernel.tile<128xf16, row: split(0), column: split(0)>
    %ws = kernel.load %w rows [64] columns at %i : memref<64x640xf16> -> !kernel.stream<64x128xf16, row: split(1), column: split(1)>
    %m = kernel.matmul %ws, %t slots 8 : !kernel.stream<64x128xf16, row: split(1), column: split(1)>, !kernel.tile<128xf16, row: split(0), column: split(0)> -> !kernel.tile<64xf32, row: partial(sum), column: partial(sum), item: partial(sum)>
    %a = kernel.exchange reduce_scatter %m over "column" by butterfly : !kernel.tile<64xf32, row: partial(sum), column: partial(sum), item: partial(sum)> -> !kernel.tile<64xf32, row: partial(sum), item: partial(sum), column: split(0)>
    %b = kernel.exchange reduce %a over "row" by push : !kernel.tile<64xf32, row: partial(sum), item: partial(sum), column: split(0)> -> !kernel.tile<64xf32, item: partial(sum), column: split(0)>
    kernel.finish %b over item by ordered : !kernel.tile<64xf32, item: partial(sum), column: split(0)> as %sum: !kernel.tile<64xf32, column: split(0)> {
      kernel.write %sum, %y : !kernel.tile<64xf32, column: split(0)>, memref<64xf32>
    }
  }
  kernel.return
}
