// RUN: cfc-opt %s -split-input-file --kernel-assign-storage | FileCheck %s

// Two arrivals count for each CTA of the cluster (16 bytes), then one partial sum of 64 f32 for each of 3 items.
// CHECK: module attributes {kernel.workspace_bytes = 784 : i64, kernel.zero_bytes = 16 : i64}
// CHECK: kernel.func @first(%{{.*}}: memref<96xf16> {kernel.entry = 0 : i32, kernel.name = "x"}
// CHECK-SAME: !kernel.cache<heads = 1, dim = 64, f16> {kernel.entry = 1 : i32
// CHECK-SAME: kernel.entry = 6 : i32, kernel.name = "w"
// CHECK-SAME: kernel.entry = 7 : i32, kernel.name = "y"
// CHECK: kernel.finish {{.*}} {counters = 0 : i64, partials = 16 : i64}
kernel.func @first(%x: memref<96xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %w: memref<64x96xf16>, %y: memref<64xf32>)
    axes(item = 3 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<96xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x96xf16> -> !kernel.stream<64x32xf16, part: split(0)>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16, part: split(0)>, !kernel.tile<32xf16> -> !kernel.tile<64xf32, part: split(0), item: partial(sum)>
    kernel.finish %m over item by ordered : !kernel.tile<64xf32, part: split(0), item: partial(sum)> as %sum: !kernel.tile<64xf32, part: split(0)> {
      kernel.write %sum, %y : !kernel.tile<64xf32, part: split(0)>, memref<64xf32>
    }
  }
  kernel.return
}

// The same tensor has the same entry in a later kernel.
// CHECK: kernel.func @second(%{{.*}}: memref<64xf32> {kernel.entry = 7 : i32, kernel.name = "y"}, %{{.*}}: memref<64xf32> {kernel.entry = 8 : i32, kernel.name = "z"})
kernel.func @second(%y: memref<64xf32>, %z: memref<64xf32>) axes() plan() {
  %t = kernel.read %y : memref<64xf32> -> !kernel.tile<64xf32>
  kernel.write %t, %z : !kernel.tile<64xf32>, memref<64xf32>
  kernel.return
}

// -----

// Sums for which clusters wait are zero between launches, like the two counts.
// CHECK: module attributes {kernel.workspace_bytes = 784 : i64, kernel.zero_bytes = 784 : i64}
// CHECK: kernel.finish {{.*}} {counters = 0 : i64, finishers = 2 : i64, partials = 16 : i64}
kernel.func @waiting(%x: memref<96xf16>, %w: memref<64x96xf16>, %y: memref<64xf32>) axes(item = 3 @grid, part = 2 @cta) plan() {
  kernel.for_items %i over item {
    %t = kernel.read %x at %i : memref<96xf16> -> !kernel.tile<32xf16>
    %s = kernel.load %w rows [64] columns at %i : memref<64x96xf16> -> !kernel.stream<64x32xf16, part: split(0)>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x32xf16, part: split(0)>, !kernel.tile<32xf16> -> !kernel.tile<64xf32, part: split(0), item: partial(sum)>
    kernel.finish %m over item by ordered attributes {finishers = 2 : i64} : !kernel.tile<64xf32, part: split(0), item: partial(sum)> as %sum: !kernel.tile<64xf32, part: split(0)> {
      kernel.write %sum, %y : !kernel.tile<64xf32, part: split(0)>, memref<64xf32>
    }
  }
  kernel.return
}

// -----

// The counter of a barrier of the grid is one word.
// CHECK: module attributes {kernel.workspace_bytes = 16 : i64, kernel.zero_bytes = 16 : i64}
// CHECK: kernel.grid_sync {counter = 0 : i64}
kernel.func @sync(%y: memref<64xf32>, %z: memref<64xf32>) axes() plan() {
  kernel.grid_sync
  kernel.return
}

// -----

// Each run of items counts its arrivals apart; a partial of each item lies behind the counters.
// CHECK: module attributes {kernel.workspace_bytes = 40 : i64, kernel.zero_bytes = 16 : i64}
// CHECK: kernel.finish {{.*}} attributes {counters = 0 : i64, each = 2 : i64, partials = 16 : i64}
kernel.func @runs(%x: memref<6x8xf32>, %y: memref<3xf32>) axes(item = 6 @grid) plan() {
  kernel.for_items %i over item {
    %h = kernel.outer %i of 2
    %t = kernel.read %x at %i : memref<6x8xf32> -> !kernel.tile<8xf32>
    %f = kernel.fold add %t : !kernel.tile<8xf32> -> !kernel.tile<1xf32, item: partial(sum)>
    kernel.finish %f over item by ordered attributes {each = 2 : i64} : !kernel.tile<1xf32, item: partial(sum)> as %s: !kernel.tile<1xf32> {
      kernel.write %s, %y at %h : !kernel.tile<1xf32>, memref<3xf32>
    }
  }
  kernel.return
}

// -----

// The second loop's stream has the append's slot, and ends there.
// CHECK-LABEL: kernel.func @joined
kernel.func @joined(%x: memref<64xf16>, %q: memref<64xf16>, %c: !kernel.cache<heads = 1, dim = 64, f16>, %s: memref<1xi64>, %l: memref<1xi32>, %y: memref<64xf16>) axes(head = 1 @grid, head2 = 1 @grid) plan(pdl = 1) {
  kernel.for_items %h over head {
    %k = kernel.read %x at %h : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.append %k, %k to %c slot %s at %h : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi64>, !kernel.item
  }
  // CHECK: kernel.grid_sync {counter = 0
  kernel.grid_sync
  kernel.for_items %h over head2 {
    %t = kernel.read %q at %h : memref<64xf16> -> !kernel.tile<64xf16>
    // CHECK: kernel.load_cache
    %kv = kernel.load_cache %c tokens %l slot %s at %h bound 128 : !kernel.cache<heads = 1, dim = 64, f16>, memref<1xi32>, memref<1xi64>, !kernel.item -> <64, f16>
    %o = kernel.attend %t, %kv scale 1.25e-01 : !kernel.tile<64xf16>, <64, f16> -> !kernel.tile<1x66xf32>
    %r, %e = kernel.normalize %o : !kernel.tile<1x66xf32> -> !kernel.tile<64xf16>, !kernel.tile<1xf32>
    kernel.write %r, %y at %h : !kernel.tile<64xf16>, memref<64xf16>
  }
  kernel.return
}

// -----

// What an early kernel streams may lie right behind what another writes.
// CHECK-LABEL: module attributes {kernel.workspace_bytes = 1024
// CHECK: kernel.func @early_behind
module attributes {kernel.workspace_bytes = 1024 : i64, kernel.zero_bytes = 0 : i64} {
  kernel.func @early_behind(%x: memref<8xf16> {kernel.entry = 0 : i32}, %w: memref<8x8xf16> {kernel.name = "w", kernel.workspace = 256 : i64}, %y: memref<8xf32> {kernel.entry = 1 : i32}) axes() plan(pdl = 1) {
    %t = kernel.read %x : memref<8xf16> -> !kernel.tile<8xf16>
    %s = kernel.load %w rows [8] : memref<8x8xf16> -> !kernel.stream<8x8xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<8x8xf16>, !kernel.tile<8xf16> -> !kernel.tile<8xf32>
    kernel.write %m, %y : !kernel.tile<8xf32>, memref<8xf32>
    kernel.return
  }
  kernel.func @late_part(%v: memref<64xf16> {kernel.entry = 2 : i32}, %a: memref<64xf16> {kernel.name = "a", kernel.workspace = 128 : i64}, %b: memref<64xf16> {kernel.name = "b", kernel.workspace = 384 : i64}) axes() plan() {
    %t = kernel.read %v : memref<64xf16> -> !kernel.tile<64xf16>
    kernel.write %t, %a : !kernel.tile<64xf16>, memref<64xf16>
    kernel.write %t, %b : !kernel.tile<64xf16>, memref<64xf16>
    kernel.return
  }
}
