// Bulk pushes between CTAs inside a loop over items: y[item] = w x[item], and the sum of x[item].
//
// Each of 4 CTAs pushes its quarter of the item (16 numbers, 32 bytes) to its peers by one bulk copy each; the copies
// complete on the peers' barriers. In the next round the buffers are used again, so a CTA pushes only when all peers have
// read what came before. A second exchange of another kind, a sum, lives in the same loop.
//
//   cfc run bulk_push.mlir --device=emu --input x=x.npy --input w=w.npy --output out
kernel.func @bulk_push(%x: memref<9x64xf16>, %w: memref<64x64xf16>, %y: memref<9x64xf32>, %sum: memref<9xf32>)
    axes(item = 9 @grid, part = 4 @cta, warp = 8 @warp) plan(ring_stages = 2) {
  kernel.for_items %i over item {
    %mine = kernel.read %x at %i : memref<9x64xf16> -> !kernel.tile<64xf16, part: split(0)>
    %all = kernel.exchange gather %mine over "part" by bulk : !kernel.tile<64xf16, part: split(0)> -> !kernel.tile<64xf16>
    %f = kernel.fold add %mine : !kernel.tile<64xf16, part: split(0)> -> !kernel.tile<1xf32, part: partial(sum)>
    %s = kernel.exchange reduce %f over "part" by push : !kernel.tile<1xf32, part: partial(sum)> -> !kernel.tile<1xf32>
    %ws = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(0)>
    %m = kernel.matmul %ws, %all slots 2 : !kernel.stream<64x64xf16, part: split(0)>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: split(0)>
    kernel.write %m, %y at %i : !kernel.tile<64xf32, part: split(0)>, memref<9x64xf32>
    kernel.write %s, %sum at %i : !kernel.tile<1xf32>, memref<9xf32>
  }
  kernel.return
}
