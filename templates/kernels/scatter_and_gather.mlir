// A sum over 8 CTAs in two halves: each CTA sums its own rows of all summands, then all gather the sums.
//
// The columns of w are split, so each CTA has a summand of all 72 rows of y[item] = w x[item]. By reduce_scatter it
// sends each peer only the 9 rows that are the peer's, an eighth of what a reduce sends; by gather it sends its 9 sums.
// Between the two it works on 9 rows instead of 72: here it adds the bias and squares. Both ways are stores that count
// their bytes at the peer's barrier: nobody fences, nobody arrives. Where there is nothing to do in between, a reduce by
// scatter is both in one: here it gives the sums themselves.
//
//   cfc run scatter_and_gather.mlir --device=emu --input x=x.npy --input w=w.npy --input bias=bias.npy --output out
kernel.func @scatter_and_gather(%x: memref<5x256xf16>, %w: memref<72x256xf16>, %bias: memref<72xf32>, %y: memref<5x72xf32>, %halves: memref<5x72xf16>, %sums: memref<5x72xf32>)
    axes(item = 5 @grid, part = 8 @cta, warp = 4 @warp) plan(ring_stages = 3) {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<5x256xf16> -> !kernel.tile<256xf16, part: split(0)>
    %ws = kernel.load %w rows [72] : memref<72x256xf16> -> !kernel.stream<72x256xf16, part: split(1)>
    %m = kernel.matmul %ws, %t slots 8 : !kernel.stream<72x256xf16, part: split(1)>, !kernel.tile<256xf16, part: split(0)> -> !kernel.tile<72xf32, part: partial(sum)>
    %s = kernel.exchange reduce_scatter %m over "part" by async : !kernel.tile<72xf32, part: partial(sum)> -> !kernel.tile<72xf32, part: split(0)>
    %whole = kernel.exchange reduce %m over "part" by scatter : !kernel.tile<72xf32, part: partial(sum)> -> !kernel.tile<72xf32>
    kernel.write %whole, %sums at %i : !kernel.tile<72xf32>, memref<5x72xf32>
    %b = kernel.read %bias : memref<72xf32> -> !kernel.tile<72xf32, part: split(0)>
    %a = kernel.elementwise add %s, %b : !kernel.tile<72xf32, part: split(0)>, !kernel.tile<72xf32, part: split(0)> -> !kernel.tile<72xf32, part: split(0)>
    %q = kernel.elementwise mul %a, %a : !kernel.tile<72xf32, part: split(0)>, !kernel.tile<72xf32, part: split(0)> -> !kernel.tile<72xf32, part: split(0)>
    %all = kernel.exchange gather %q over "part" by async : !kernel.tile<72xf32, part: split(0)> -> !kernel.tile<72xf32>
    kernel.write %all, %y at %i : !kernel.tile<72xf32>, memref<5x72xf32>
    %h = kernel.cast %all : !kernel.tile<72xf32> -> !kernel.tile<72xf16>
    kernel.write %h, %halves at %i : !kernel.tile<72xf16>, memref<5x72xf16>
  }
  kernel.return
}
