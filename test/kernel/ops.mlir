// Kernels read back as they are written.
// RUN: cfc-opt %s | cfc-opt | FileCheck %s
// RUN: cfc-opt %s --mlir-print-op-generic | cfc-opt | FileCheck %s

// CHECK-LABEL: kernel.func @block
// CHECK-SAME: kernel.name = "x"
// CHECK-SAME: kernel.output
// CHECK-SAME: axes(head = 2 @grid, part = 4 @cta, warp = 4 @warp) plan(ctas_per_sm = 2, ring_stages = 5)
kernel.func @block(%x: memref<128xf16>, %w: memref<384x128xf16>, %y: memref<128xf32> {kernel.output})
    axes(head = 2 @grid, part = 4 @cta, warp = 4 @warp) plan(ring_stages = 5, ctas_per_sm = 2) {
  // CHECK: kernel.read
  %t = kernel.read %x : memref<128xf16> -> !kernel.tile<128xf16>
  // CHECK: kernel.for_items %[[H:.*]] over head {
  kernel.for_items %h over head {
    // CHECK: kernel.load %{{.*}} rows [192] at %[[H]] {{.*}} -> <192x128xf16, part: split(0)>
    %s = kernel.load %w rows [192] at %h : memref<384x128xf16> -> !kernel.stream<192x128xf16, part: split(0)>
    // CHECK: kernel.matmul {{.*}} slots 16 {{.*}} -> <192xf16, part: split(0)>
    %m = kernel.matmul %s, %t slots 16 : !kernel.stream<192x128xf16, part: split(0)>, !kernel.tile<128xf16> -> !kernel.tile<192xf16, part: split(0)>
    // CHECK: kernel.exchange {{ ?}}gather {{.*}} over "part" by {{ ?}}push
    %g = kernel.exchange gather %m over "part" by push : !kernel.tile<192xf16, part: split(0)> -> !kernel.tile<192xf16>
    // CHECK: kernel.extract {{.*}} from 64
    %e = kernel.extract %g from 64 : !kernel.tile<192xf16> -> !kernel.tile<64xf16>
    // CHECK: -> <128xf32, part: split(0), head: partial(sum)>
    %u = kernel.load %w rows [128] columns at %h : memref<384x128xf16> -> !kernel.stream<128x64xf16, part: split(0)>
    %p = kernel.matmul %u, %e slots 1 : !kernel.stream<128x64xf16, part: split(0)>, !kernel.tile<64xf16> -> !kernel.tile<128xf32, part: split(0), head: partial(sum)>
    // CHECK: kernel.finish {{.*}} over head by ordered {{.*}} as %{{.*}}: !kernel.tile<128xf32, part: split(0)> {
    kernel.finish %p over head by ordered : !kernel.tile<128xf32, part: split(0), head: partial(sum)> as %sum: !kernel.tile<128xf32, part: split(0)> {
      // CHECK: kernel.write
      kernel.write %sum, %y : !kernel.tile<128xf32, part: split(0)>, memref<128xf32>
    }
  }
  kernel.return
}
