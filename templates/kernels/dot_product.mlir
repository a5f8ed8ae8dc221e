// The smallest kernel: one CTA, no axis, no stream. dot = sum of a[i] b[i].
//
//   cfc run dot_product.mlir --device=emu --input a=a.npy --input b=b.npy --output out
kernel.func @dot_product(%a: memref<333xf32>, %b: memref<333xf16>, %dot: memref<1xf32>) axes() plan() {
  %x = kernel.read %a : memref<333xf32> -> !kernel.tile<333xf32>
  %y = kernel.read %b : memref<333xf16> -> !kernel.tile<333xf16>
  %p = kernel.elementwise mul %x, %y : !kernel.tile<333xf32>, !kernel.tile<333xf16> -> !kernel.tile<333xf32>
  %s = kernel.fold add %p : !kernel.tile<333xf32> -> !kernel.tile<1xf32>
  kernel.write %s, %dot : !kernel.tile<1xf32>, memref<1xf32>
  kernel.return
}
