// A gated MLP in one kernel: y = x + down ((gate x) * (up x)), the gate without its nonlinearity.
//
// An item is 32 of the 160 inner features. Its rows of gate and up arrive as one stream whose 64 rows 4 CTAs share, are
// gathered (16 numbers, 32 bytes a CTA), multiplied, and are the input of the item's columns of down. The sum over the
// inner features is one over the grid; the CTAs of the last cluster each finish 24 rows and add x.
//
//   cfc run gated_mlp.mlir --device=emu --input x=x.npy --input gate=gate.npy --input up=up.npy --input down=down.npy --output out
kernel.func @gated_mlp(%x: memref<96xbf16>, %gate: memref<160x96xbf16>, %up: memref<160x96xbf16>, %down: memref<96x160xbf16>, %y: memref<96xf32>)
    axes(block = 5 @grid, part = 4 @cta, warp = 4 @warp) plan(ring_stages = 4) {
  %t = kernel.read %x : memref<96xbf16> -> !kernel.tile<96xbf16>
  kernel.for_items %i over block {
    %gu = kernel.load %gate, %up rows [32, 32] at %i : memref<160x96xbf16>, memref<160x96xbf16> -> !kernel.stream<64x96xbf16, part: split(0)>
    %m = kernel.matmul %gu, %t slots 2 : !kernel.stream<64x96xbf16, part: split(0)>, !kernel.tile<96xbf16> -> !kernel.tile<64xbf16, part: split(0)>
    %all = kernel.exchange gather %m over "part" by async : !kernel.tile<64xbf16, part: split(0)> -> !kernel.tile<64xbf16>
    %g = kernel.extract %all from 0 : !kernel.tile<64xbf16> -> !kernel.tile<32xbf16>
    %u = kernel.extract %all from 32 : !kernel.tile<64xbf16> -> !kernel.tile<32xbf16>
    %h = kernel.elementwise mul %g, %u : !kernel.tile<32xbf16>, !kernel.tile<32xbf16> -> !kernel.tile<32xbf16>
    %ws = kernel.load %down rows [96] columns at %i : memref<96x160xbf16> -> !kernel.stream<96x32xbf16, part: split(0)>
    %d = kernel.matmul %ws, %h slots 1 : !kernel.stream<96x32xbf16, part: split(0)>, !kernel.tile<32xbf16> -> !kernel.tile<96xf32, part: split(0), block: partial(sum)>
    kernel.finish %d over block by ordered : !kernel.tile<96xf32, part: split(0), block: partial(sum)> as %sum: !kernel.tile<96xf32, part: split(0)> {
      %again = kernel.read %x : memref<96xbf16> -> !kernel.tile<96xbf16, part: split(0)>
      %r = kernel.elementwise add %sum, %again : !kernel.tile<96xf32, part: split(0)>, !kernel.tile<96xbf16, part: split(0)> -> !kernel.tile<96xf32, part: split(0)>
      kernel.write %r, %y : !kernel.tile<96xf32, part: split(0)>, memref<96xf32>
    }
  }
  kernel.return
}
