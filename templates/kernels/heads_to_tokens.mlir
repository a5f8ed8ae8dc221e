// Sequence parallelism in small: 8 CTAs hold one head of every token, then two tokens with all their heads.
//
// The matrix has a row for each of 16 tokens and 8 heads of 16 numbers side by side. Each CTA multiplies its head's
// columns by itself, the parts change hands by bulk copies, one of 32 bytes for each token, and each CTA adds what only
// whole tokens have: a row of another matrix. One cluster, no kernel.for_items.
//
//   cfc run heads_to_tokens.mlir --device=emu --input x=x.npy --input rows=rows.npy --output out
kernel.func @heads_to_tokens(%x: memref<16x128xbf16>, %rows: memref<16x128xbf16>, %y: memref<16x128xf32>)
    axes(part = 8 @cta, warp = 8 @warp) plan() {
  %t = kernel.read %x : memref<16x128xbf16> -> !kernel.tile<16x128xbf16, part: split(1)>
  %q = kernel.elementwise mul %t, %t : !kernel.tile<16x128xbf16, part: split(1)>, !kernel.tile<16x128xbf16, part: split(1)> -> !kernel.tile<16x128xbf16, part: split(1)>
  %whole = kernel.exchange all_to_all %q over "part" by bulk : !kernel.tile<16x128xbf16, part: split(1)> -> !kernel.tile<16x128xbf16, part: split(0)>
  %r = kernel.read %rows : memref<16x128xbf16> -> !kernel.tile<16x128xbf16, part: split(0)>
  %s = kernel.elementwise add %whole, %r : !kernel.tile<16x128xbf16, part: split(0)>, !kernel.tile<16x128xbf16, part: split(0)> -> !kernel.tile<16x128xf32, part: split(0)>
  kernel.write %s, %y : !kernel.tile<16x128xf32, part: split(0)>, memref<16x128xf32>
  kernel.return
}
