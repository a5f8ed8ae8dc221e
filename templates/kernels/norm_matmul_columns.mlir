// A norm, then a matrix whose columns are split over the cluster: y = w rms_norm(x).
//
// Every CTA normalizes all of x (it is short), multiplies its quarter of the columns and pushes its summands to its
// peers. 40 rows fill two and a half of the 16-row blocks that a warp multiplies; no kernel.for_items: one cluster runs.
//
//   cfc run norm_matmul_columns.mlir --device=emu --input x=x.npy --input gain=gain.npy --input w=w.npy --output out
kernel.func @norm_matmul_columns(%x: memref<512xbf16>, %gain: memref<512xbf16>, %w: memref<40x512xbf16>, %y: memref<40xbf16>)
    axes(part = 4 @cta, warp = 8 @warp) plan(ring_stages = 3, tile_columns = 64) {
  %t = kernel.read %x : memref<512xbf16> -> !kernel.tile<512xbf16>
  %n = kernel.rms_norm %t, %gain eps 1.0e-5 : !kernel.tile<512xbf16>, memref<512xbf16> -> !kernel.tile<512xbf16>
  %ws = kernel.load %w rows [40] : memref<40x512xbf16> -> !kernel.stream<40x512xbf16, part: split(1)>
  %m = kernel.matmul %ws, %n slots 16 : !kernel.stream<40x512xbf16, part: split(1)>, !kernel.tile<512xbf16> -> !kernel.tile<40xf32, part: partial(sum)>
  %s = kernel.exchange reduce %m over "part" by push : !kernel.tile<40xf32, part: partial(sum)> -> !kernel.tile<40xf32>
  kernel.write %s, %y : !kernel.tile<40xf32>, memref<40xbf16>
  kernel.return
}
