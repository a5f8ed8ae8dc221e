// Three weights of different heights in one stream, items that overhang them, and views of the results.
//
// An item takes 24 rows of a, 8 of b and 16 of c, as a fused projection takes a head's rows of its weights. 5 items
// overhang: a has 120 rows, b 37, c 70. The rows that are not there are not read, and their results not written.
//
//   cfc run stacked_weights.mlir --device=emu --input x=x.npy --input a=a.npy --input b=b.npy --input c=c.npy --output out
kernel.func @stacked_weights(%x: memref<136xf16>, %a: memref<120x136xf16>, %b: memref<37x136xf16>, %c: memref<70x136xf16>,
    %ya: memref<120xf32>, %yb: memref<37xf32>, %yc: memref<70xf16>)
    axes(item = 5 @grid, part = 8 @cta, warp = 4 @warp) plan(ring_stages = 2, tile_columns = 48) {
  %t = kernel.read %x : memref<136xf16> -> !kernel.tile<136xf16>
  kernel.for_items %i over item {
    %ws = kernel.load %a, %b, %c rows [24, 8, 16] at %i : memref<120x136xf16>, memref<37x136xf16>, memref<70x136xf16> -> !kernel.stream<48x136xf16, part: split(0)>
    %m = kernel.matmul %ws, %t slots 3 : !kernel.stream<48x136xf16, part: split(0)>, !kernel.tile<136xf16> -> !kernel.tile<48xf32, part: split(0)>
    %g = kernel.exchange gather %m over "part" by push : !kernel.tile<48xf32, part: split(0)> -> !kernel.tile<48xf32>
    %va = kernel.extract %g from 0 : !kernel.tile<48xf32> -> !kernel.tile<24xf32>
    %vb = kernel.extract %g from 24 : !kernel.tile<48xf32> -> !kernel.tile<8xf32>
    %vc = kernel.extract %g from 32 : !kernel.tile<48xf32> -> !kernel.tile<16xf32>
    kernel.write %va, %ya at %i : !kernel.tile<24xf32>, memref<120xf32>
    kernel.write %vb, %yb at %i : !kernel.tile<8xf32>, memref<37xf32>
    kernel.write %vc, %yc at %i : !kernel.tile<16xf32>, memref<70xf16>
  }
  kernel.return
}
