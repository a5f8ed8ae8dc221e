// A gather of a gather: every CTA ends up with all of x, and uses it.
//
// x has 3 rows of 128 numbers, one row a work item. The 8 CTAs of a cluster form a mesh of 2 x 4: CTA (r, c) reads
// the eighth 4 r + c of a row. Gathered over `column` a CTA holds a half, gathered over `row` the whole. Each CTA
// then multiplies its 12 rows of w with the whole: y[item] = w x[item]. Were one CTA's copy wrong, 12 numbers would be.
// The innermost split is gathered first: here one by remote stores, the other by a butterfly.
//
//   cfc run gather_of_gather.mlir --device=emu --input x=x.npy --input w=w.npy --output out
kernel.func @gather_of_gather(%x: memref<3x128xf16>, %w: memref<96x128xf16>, %y: memref<3x96xf32>)
    axes(item = 3 @grid, row = 2 @cta, column = 4 @cta, warp = 4 @warp) plan(ring_stages = 3) {
  kernel.for_items %i over item {
    %part = kernel.read %x at %i : memref<3x128xf16> -> !kernel.tile<128xf16, row: split(0), column: split(0)>
    %half = kernel.exchange gather %part over "column" by push : !kernel.tile<128xf16, row: split(0), column: split(0)> -> !kernel.tile<128xf16, row: split(0)>
    %whole = kernel.exchange gather %half over "row" by butterfly : !kernel.tile<128xf16, row: split(0)> -> !kernel.tile<128xf16>
    %ws = kernel.load %w rows [96] : memref<96x128xf16> -> !kernel.stream<96x128xf16, row: split(0), column: split(0)>
    %m = kernel.matmul %ws, %whole slots 1 : !kernel.stream<96x128xf16, row: split(0), column: split(0)>, !kernel.tile<128xf16> -> !kernel.tile<96xf32, row: split(0), column: split(0)>
    kernel.write %m, %y at %i : !kernel.tile<96xf32, row: split(0), column: split(0)>, memref<3x96xf32>
  }
  kernel.return
}
