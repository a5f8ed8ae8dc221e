// A chain of elementwise operations through f16, bf16 and f32, with a ragged tail.
//
// 203 numbers in 5 items of 42 (21 a CTA): the last item has 35. r = bf16(max(f16(a + b), a)) * b, rounded after each
// step; past the end of memory a read gives 0 and a write is dropped.
//
//   cfc run cast_chain.mlir --device=emu --input a=a.npy --input b=b.npy --output out
kernel.func @cast_chain(%a: memref<203xbf16>, %b: memref<203xf32>, %r: memref<203xf32>, %s: memref<203xf16>)
    axes(item = 5 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over item {
    %ta = kernel.read %a at %i : memref<203xbf16> -> !kernel.tile<42xbf16, part: split(0)>
    %tb = kernel.read %b at %i : memref<203xf32> -> !kernel.tile<42xf32, part: split(0)>
    %sum = kernel.elementwise add %ta, %tb : !kernel.tile<42xbf16, part: split(0)>, !kernel.tile<42xf32, part: split(0)> -> !kernel.tile<42xf16, part: split(0)>
    %top = kernel.elementwise max %sum, %ta : !kernel.tile<42xf16, part: split(0)>, !kernel.tile<42xbf16, part: split(0)> -> !kernel.tile<42xf32, part: split(0)>
    %cut = kernel.cast %top : !kernel.tile<42xf32, part: split(0)> -> !kernel.tile<42xbf16, part: split(0)>
    %product = kernel.elementwise mul %cut, %tb : !kernel.tile<42xbf16, part: split(0)>, !kernel.tile<42xf32, part: split(0)> -> !kernel.tile<42xf32, part: split(0)>
    kernel.write %product, %r at %i : !kernel.tile<42xf32, part: split(0)>, memref<203xf32>
    kernel.write %product, %s at %i : !kernel.tile<42xf32, part: split(0)>, memref<203xf16>
  }
  kernel.return
}
