// Recursive halving over 16 CTAs: in 4 rounds each gets the whole sum of 3 of the 48 rows.
//
// In the first round a CTA sends its partner half of its rows, in the second a quarter, … The lowest bit of the rank
// comes first, so the sum has the order that every other way has: with small integers exactly the same bits, in f16 too
// as long as nothing is rounded. The f16 summand is rounded in each round here, and once by push.
//
//   cfc run halving_sum.mlir --device=emu --input x=x.npy --input w=w.npy --output out
kernel.func @halving_sum(%x: memref<6x256xf16>, %w: memref<48x256xf16>, %y: memref<6x48xf32>, %rounds: memref<6x48xf16>, %once: memref<6x48xf16>)
    axes(item = 6 @grid, part = 16 @cta, warp = 4 @warp) plan(ring_stages = 4) {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<6x256xf16> -> !kernel.tile<256xf16, part: split(0)>
    %ws = kernel.load %w rows [48] : memref<48x256xf16> -> !kernel.stream<48x256xf16, part: split(1)>
    %m = kernel.matmul %ws, %t slots 16 : !kernel.stream<48x256xf16, part: split(1)>, !kernel.tile<256xf16, part: split(0)> -> !kernel.tile<48xf32, part: partial(sum)>
    %s = kernel.exchange reduce_scatter %m over "part" by butterfly : !kernel.tile<48xf32, part: partial(sum)> -> !kernel.tile<48xf32, part: split(0)>
    kernel.write %s, %y at %i : !kernel.tile<48xf32, part: split(0)>, memref<6x48xf32>
    %h = kernel.cast %m : !kernel.tile<48xf32, part: partial(sum)> -> !kernel.tile<48xf16, part: partial(sum)>
    %r = kernel.exchange reduce_scatter %h over "part" by butterfly : !kernel.tile<48xf16, part: partial(sum)> -> !kernel.tile<48xf16, part: split(0)>
    kernel.write %r, %rounds at %i : !kernel.tile<48xf16, part: split(0)>, memref<6x48xf16>
    %o = kernel.exchange reduce_scatter %h over "part" by push : !kernel.tile<48xf16, part: partial(sum)> -> !kernel.tile<48xf16, part: split(0)>
    kernel.write %o, %once at %i : !kernel.tile<48xf16, part: split(0)>, memref<6x48xf16>
  }
  kernel.return
}
