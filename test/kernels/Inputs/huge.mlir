kernel.func @huge(%x: memref<60000xf32>, %y: memref<60000xf32>) axes() plan() {
  %t = kernel.read %x : memref<60000xf32> -> !kernel.tile<60000xf32>
  kernel.write %t, %y : !kernel.tile<60000xf32>, memref<60000xf32>
  kernel.return
}
