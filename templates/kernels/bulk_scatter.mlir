// Every exchange of parts by bulk copies, in a loop: reduce_scatter, gather, and all_to_all both ways.
//
// Copies read a staging buffer that is written again only when all peers have theirs, and read nothing that its writer
// has not fenced. 4 CTAs: the sums of 16 rows each travel as 64 bytes; of a matrix of 16 x 64 one run of 128 bytes goes
// to each peer, and back, where rows are whole again, 4 runs of 32 bytes.
//
//   cfc run bulk_scatter.mlir --device=emu --input x=x.npy --input w=w.npy --input a=a.npy --output out
kernel.func @bulk_scatter(%x: memref<5x128xf16>, %w: memref<64x128xf16>, %a: memref<5x16x64xf16>, %y: memref<5x64xf32>, %z: memref<5x16x64xf16>)
    axes(item = 5 @grid, part = 4 @cta, warp = 8 @warp) plan(ring_stages = 2) {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<5x128xf16> -> !kernel.tile<128xf16, part: split(0)>
    %ws = kernel.load %w rows [64] : memref<64x128xf16> -> !kernel.stream<64x128xf16, part: split(1)>
    %m = kernel.matmul %ws, %t slots 4 : !kernel.stream<64x128xf16, part: split(1)>, !kernel.tile<128xf16, part: split(0)> -> !kernel.tile<64xf32, part: partial(sum)>
    %s = kernel.exchange reduce_scatter %m over "part" by bulk : !kernel.tile<64xf32, part: partial(sum)> -> !kernel.tile<64xf32, part: split(0)>
    %g = kernel.exchange gather %s over "part" by bulk : !kernel.tile<64xf32, part: split(0)> -> !kernel.tile<64xf32>
    kernel.write %g, %y at %i : !kernel.tile<64xf32>, memref<5x64xf32>
    %rows = kernel.read %a at %i : memref<5x16x64xf16> -> !kernel.tile<16x64xf16, part: split(0)>
    %c = kernel.exchange all_to_all %rows over "part" by bulk : !kernel.tile<16x64xf16, part: split(0)> -> !kernel.tile<16x64xf16, part: split(1)>
    %q = kernel.elementwise mul %c, %c : !kernel.tile<16x64xf16, part: split(1)>, !kernel.tile<16x64xf16, part: split(1)> -> !kernel.tile<16x64xf16, part: split(1)>
    %b = kernel.exchange all_to_all %q over "part" by bulk : !kernel.tile<16x64xf16, part: split(1)> -> !kernel.tile<16x64xf16, part: split(0)>
    %r = kernel.elementwise add %b, %rows : !kernel.tile<16x64xf16, part: split(0)>, !kernel.tile<16x64xf16, part: split(0)> -> !kernel.tile<16x64xf16, part: split(0)>
    kernel.write %r, %z at %i : !kernel.tile<16x64xf16, part: split(0)>, memref<5x16x64xf16>
  }
  kernel.return
}
