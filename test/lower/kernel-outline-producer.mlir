// RUN: cfc-opt %s --kernel-outline-producer | FileCheck %s

// The producer runs the consumers' loops and feeds each stream where it is taken.
// CHECK-LABEL: kernel.func @two_streams
// CHECK: kernel.producer
// CHECK-NEXT: %[[A:.*]] = kernel.load %arg1 rows [64]
// CHECK-NEXT: kernel.feed %[[A]] slots 16
// CHECK-NEXT: kernel.for_items %[[I:.*]] over item {
// CHECK-NEXT: %[[B:.*]] = kernel.load %arg1 rows [32] at %[[I]]
// CHECK-NEXT: kernel.feed %[[B]] slots 4
// CHECK-NEXT: }
// CHECK-NEXT: }
// The consumers stay as they were.
// CHECK: kernel.matmul {{.*}} slots 16
// CHECK: kernel.for_items
// CHECK: kernel.matmul {{.*}} slots 4
kernel.func @two_streams(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf32>) axes(item = 2 @grid) plan() {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16>
  %m = kernel.matmul %s, %t slots 16 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over item {
    %u = kernel.load %w rows [32] at %i : memref<64x64xf16> -> !kernel.stream<32x64xf16>
    %n = kernel.matmul %u, %m slots 4 : !kernel.stream<32x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<32xf32>
    kernel.write %n, %y at %i : !kernel.tile<32xf32>, memref<64xf32>
  }
  kernel.return
}

// Without streams there is no producer.
// CHECK-LABEL: kernel.func @no_stream
// CHECK-NOT: kernel.producer
kernel.func @no_stream(%x: memref<64xf16>, %y: memref<64xf16>) axes(item = 2 @grid) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<64xf16> -> !kernel.tile<32xf16>
    kernel.write %t, %y at %i : !kernel.tile<32xf16>, memref<64xf16>
  }
  kernel.return
}

// What tells the parts of an item apart goes with the load.
// CHECK-LABEL: kernel.func @chunks
// CHECK: kernel.producer
// CHECK-NEXT: kernel.for_items %[[I:.*]] over chunk {
// CHECK-NEXT: %[[H:.*]] = kernel.outer %[[I]] of 4
// CHECK-NEXT: %[[C:.*]] = kernel.inner %[[I]] of 4
// CHECK-NEXT: %[[KV:.*]] = kernel.load_cache {{.*}} at %[[H]] chunk %[[C]]
// CHECK-NEXT: kernel.feed %[[KV]]
// CHECK-NEXT: }
kernel.func @chunks(%q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %len: memref<1xi32>, %o: memref<64xf16>) axes(chunk = 4 @grid) plan() {
  kernel.for_items %i over chunk {
    %h = kernel.outer %i of 4
    %n = kernel.inner %i of 4
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    %kv = kernel.load_cache %c tokens %len at %h chunk %n bound 64 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, !kernel.item, !kernel.item -> !kernel.kv_stream<64, f16>
    %p = kernel.attend %t, %kv scale 1.0 : !kernel.tile<64xf16>, !kernel.kv_stream<64, f16> -> !kernel.tile<1x66xf32, chunk: partial(softmax)>
    kernel.finish %p over chunk by ordered attributes {each = 4 : i64} : !kernel.tile<1x66xf32, chunk: partial(softmax)> as %s: !kernel.tile<1x66xf32> {
      %y, %l = kernel.normalize %s : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
      kernel.write %y, %o at %h : !kernel.tile<64xf16>, memref<64xf16>
    }
  }
  kernel.return
}
