// The largest element and the sum of each row, over 8 CTAs.
//
// Each CTA folds its eighth of a row to one number, a summand of the row's: partial(max) and partial(sum). One is reduced
// by a butterfly of 3 rounds, the other by one round of remote stores; both live in one loop over 5 rows.
// The last row is only half there: past the end of x a tile is 0.
//
//   cfc run max_over_cluster.mlir --device=emu --input x=x.npy --output out
kernel.func @max_over_cluster(%x: memref<900xf32>, %largest: memref<5xf32>, %sum: memref<5xf32>)
    axes(row = 5 @grid, part = 8 @cta) plan() {
  kernel.for_items %r over row {
    %t = kernel.read %x at %r : memref<900xf32> -> !kernel.tile<200xf32, part: split(0)>
    %m = kernel.fold max %t : !kernel.tile<200xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(max)>
    %s = kernel.fold add %t : !kernel.tile<200xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
    %mm = kernel.exchange reduce %m over "part" by butterfly : !kernel.tile<1xf32, part: partial(max)> -> !kernel.tile<1xf32>
    %ss = kernel.exchange reduce %s over "part" by push : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1xf32>
    kernel.write %mm, %largest at %r : !kernel.tile<1xf32>, memref<5xf32>
    kernel.write %ss, %sum at %r : !kernel.tile<1xf32>, memref<5xf32>
  }
  kernel.return
}
