kernel.func @deep(%x: memref<1024xf16>, %w: memref<64x1024xf16>, %y: memref<64xf32>) axes() plan(ring_stages = 8, ctas_per_sm = 2) {
  %t = kernel.read %x : memref<1024xf16> -> !kernel.tile<1024xf16>
  %s = kernel.load %w rows [64] : memref<64x1024xf16> -> !kernel.stream<64x1024xf16>
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x1024xf16>, !kernel.tile<1024xf16> -> !kernel.tile<64xf32>
  kernel.write %m, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}
