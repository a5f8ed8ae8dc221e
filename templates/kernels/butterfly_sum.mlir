// A sum over 16 CTAs by a butterfly of 4 rounds, 6 items: every CTA of the cluster gets the same bits.
//
// CTA r multiplies columns [16 r, 16 r + 16) of w with its part of x: a summand of y[item] = w x[item]. The sum travels
// once as f32 and once rounded to f16, half the bytes. With rank r contributing 2^r / 2 the sum is (2^16 - 1) / 2.
//
//   cfc run butterfly_sum.mlir --device=emu --input x=x.npy --input w=w.npy --output out
kernel.func @butterfly_sum(%x: memref<6x256xf16>, %w: memref<40x256xf16>, %y: memref<6x40xf32>, %rounded: memref<6x40xf16>)
    axes(item = 6 @grid, part = 16 @cta, warp = 4 @warp) plan(ring_stages = 4) {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<6x256xf16> -> !kernel.tile<256xf16, part: split(0)>
    %ws = kernel.load %w rows [40] : memref<40x256xf16> -> !kernel.stream<40x256xf16, part: split(1)>
    %m = kernel.matmul %ws, %t slots 16 : !kernel.stream<40x256xf16, part: split(1)>, !kernel.tile<256xf16, part: split(0)> -> !kernel.tile<40xf32, part: partial(sum)>
    %sum = kernel.exchange reduce %m over "part" by butterfly : !kernel.tile<40xf32, part: partial(sum)> -> !kernel.tile<40xf32>
    %h = kernel.cast %m : !kernel.tile<40xf32, part: partial(sum)> -> !kernel.tile<40xf16, part: partial(sum)>
    %half = kernel.exchange reduce %h over "part" by butterfly : !kernel.tile<40xf16, part: partial(sum)> -> !kernel.tile<40xf16>
    kernel.write %sum, %y at %i : !kernel.tile<40xf32>, memref<6x40xf32>
    kernel.write %half, %rounded at %i : !kernel.tile<40xf16>, memref<6x40xf16>
  }
  kernel.return
}
