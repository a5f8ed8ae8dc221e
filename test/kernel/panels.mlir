// Items that take panels of stacked weights: what belongs to one of several memories, which one the item says.
// RUN: cfc-opt %s | cfc-opt | FileCheck %s
// RUN: cfc-opt %s --mlir-print-op-generic | cfc-opt | FileCheck %s

// CHECK-LABEL: kernel.func @panels
// CHECK: kernel.for_items %[[I:.*]] over panel
// CHECK: kernel.load %{{.*}}, %{{.*}} rows [64] panels at %[[I]] : memref<192x64xf16>, memref<64x64xf16> -> <64x64xf16, part: split(1)>
// CHECK: kernel.read %{{.*}}, %{{.*}} at %[[I]] : memref<192xf16>, memref<64xf16> -> <64xf16, part: split(0)>
// CHECK: kernel.write %{{.*}}, %{{.*}}, %{{.*}} at %[[I]] : <64xf32, part: split(0)>, memref<192xf32>, memref<64xf32>
kernel.func @panels(%x: memref<64xf16>, %w_q: memref<192x64xf16>, %w_k: memref<64x64xf16>, %b_q: memref<192xf16>, %b_k: memref<64xf16>, %q: memref<192xf32>, %k: memref<64xf32>)
    axes(panel = 4 @grid, part = 2 @cta) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    %s = kernel.load %w_q, %w_k rows [64] panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(1)>
    %m = kernel.matmul %s, %t slots 2 : !kernel.stream<64x64xf16, part: split(1)>, !kernel.tile<64xf16> -> !kernel.tile<64xf32, part: partial(sum)>
    %r = kernel.exchange reduce_scatter %m over "part" by async : !kernel.tile<64xf32, part: partial(sum)> -> !kernel.tile<64xf32, part: split(0)>
    %b = kernel.read %b_q, %b_k at %i : memref<192xf16>, memref<64xf16> -> !kernel.tile<64xf16, part: split(0)>
    %y = kernel.elementwise add %r, %b : !kernel.tile<64xf32, part: split(0)>, !kernel.tile<64xf16, part: split(0)> -> !kernel.tile<64xf32, part: split(0)>
    kernel.write %y, %q, %k at %i : !kernel.tile<64xf32, part: split(0)>, memref<192xf32>, memref<64xf32>
  }
  kernel.return
}

// Of several tokens an item has columns of one of the memories.
// CHECK-LABEL: kernel.func @columns
// CHECK: kernel.read %{{.*}}, %{{.*}} columns from 1 at %[[I:.*]] : memref<4x96xf16>, memref<4x32xf16> -> <32x3xf16>
// CHECK: kernel.write %{{.*}}, %{{.*}}, %{{.*}} columns from 1 at %[[I]] : <32x3xf16>, memref<4x96xf16>, memref<4x32xf16>
kernel.func @columns(%a: memref<4x96xf16>, %b: memref<4x32xf16>, %c: memref<4x96xf16>, %d: memref<4x32xf16>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    %t = kernel.read %a, %b columns from 1 at %i : memref<4x96xf16>, memref<4x32xf16> -> !kernel.tile<32x3xf16>
    kernel.write %t, %c, %d columns from 1 at %i : !kernel.tile<32x3xf16>, memref<4x96xf16>, memref<4x32xf16>
  }
  kernel.return
}
