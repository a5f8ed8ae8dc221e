// The largest logit over the grid, and the sum of all: two reductions that the last CTA to arrive finishes.
//
// 11 items of 40 rows each make logits w x, which are all negative, so that a 0 from nowhere would win. 4 CTAs share an
// item's rows. A CTA folds its rows, the cluster reduces, and the grid: the max in item order, the sum by atomic adds.
//
//   cfc run largest_logit.mlir --device=emu --input x=x.npy --input w=w.npy --output out
kernel.func @largest_logit(%x: memref<64xbf16>, %w: memref<440x64xbf16>, %logits: memref<440xf32>, %largest: memref<1xf32>, %sum: memref<1xf32>)
    axes(item = 11 @grid, part = 4 @cta, warp = 4 @warp) plan(ring_stages = 2) {
  %t = kernel.read %x : memref<64xbf16> -> !kernel.tile<64xbf16>
  kernel.for_items %i over item {
    %ws = kernel.load %w rows [40] at %i : memref<440x64xbf16> -> !kernel.stream<40x64xbf16, part: split(0)>
    %m = kernel.matmul %ws, %t slots 2 : !kernel.stream<40x64xbf16, part: split(0)>, !kernel.tile<64xbf16> -> !kernel.tile<40xf32, part: split(0)>
    kernel.write %m, %logits at %i : !kernel.tile<40xf32, part: split(0)>, memref<440xf32>
    %f = kernel.fold max %m : !kernel.tile<40xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(max), item: partial(max)>
    %a = kernel.fold add %m : !kernel.tile<40xf32, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum), item: partial(sum)>
    %fc = kernel.exchange reduce %f over "part" by async : !kernel.tile<1xf32, part: partial(max), item: partial(max)> -> !kernel.tile<1xf32, item: partial(max)>
    %ac = kernel.exchange reduce %a over "part" by butterfly : !kernel.tile<1xf32, part: partial(sum), item: partial(sum)> -> !kernel.tile<1xf32, item: partial(sum)>
    kernel.finish %fc over item by ordered : !kernel.tile<1xf32, item: partial(max)> as %top: !kernel.tile<1xf32> {
      kernel.write %top, %largest : !kernel.tile<1xf32>, memref<1xf32>
    }
    kernel.finish %ac over item by atomic : !kernel.tile<1xf32, item: partial(sum)> as %all: !kernel.tile<1xf32> {
      kernel.write %all, %sum : !kernel.tile<1xf32>, memref<1xf32>
    }
  }
  kernel.return
}
