// From rows to columns and back: every CTA reads rows, scales columns, and writes rows.
//
// 4 CTAs each hold 6 of the 24 rows of an item. By all_to_all each sends a quarter of its rows' columns to every peer
// and then holds 20 columns whole. It scales them by its 20 columns of another matrix, which is read split the same way,
// and the parts go back. Runs of 40 bytes, so one is done by remote stores and one by stores that count.
//
//   cfc run scale_columns.mlir --device=emu --input x=x.npy --input scale=scale.npy --output out
kernel.func @scale_columns(%x: memref<3x24x80xf16>, %scale: memref<24x80xf16>, %y: memref<3x24x80xf16>, %columns: memref<3x24x80xf32>)
    axes(item = 3 @grid, part = 4 @cta) plan() {
  %s = kernel.read %scale : memref<24x80xf16> -> !kernel.tile<24x80xf16, part: split(1)>
  kernel.for_items %i over item {
    %rows = kernel.read %x at %i : memref<3x24x80xf16> -> !kernel.tile<24x80xf16, part: split(0)>
    %c = kernel.exchange all_to_all %rows over "part" by push : !kernel.tile<24x80xf16, part: split(0)> -> !kernel.tile<24x80xf16, part: split(1)>
    %p = kernel.elementwise mul %c, %s : !kernel.tile<24x80xf16, part: split(1)>, !kernel.tile<24x80xf16, part: split(1)> -> !kernel.tile<24x80xf16, part: split(1)>
    kernel.write %p, %columns at %i : !kernel.tile<24x80xf16, part: split(1)>, memref<3x24x80xf32>
    %b = kernel.exchange all_to_all %p over "part" by async : !kernel.tile<24x80xf16, part: split(1)> -> !kernel.tile<24x80xf16, part: split(0)>
    %r = kernel.elementwise add %b, %rows : !kernel.tile<24x80xf16, part: split(0)>, !kernel.tile<24x80xf16, part: split(0)> -> !kernel.tile<24x80xf16, part: split(0)>
    kernel.write %r, %y at %i : !kernel.tile<24x80xf16, part: split(0)>, memref<3x24x80xf16>
  }
  kernel.return
}
