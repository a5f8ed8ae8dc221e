kernel.func @producer(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes() plan() {
  kernel.producer {
    %u = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
    kernel.feed %u slots 1 : !kernel.stream<64x64xf16>
  }
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
  kernel.write %m, %y : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}
