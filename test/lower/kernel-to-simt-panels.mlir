// An item takes a panel of one of the stacked weights: its number says which, and where the panel begins in it.
// RUN: cfc-opt %s -split-input-file --kernel-assign-storage --kernel-outline-producer --kernel-to-simt --cse --canonicalize | FileCheck %s

// Of native weights each has a tensor map, and both are acquired: of items 0 to 2 the first one's is used.
// CHECK-LABEL: simt.kernel @native
// CHECK: %[[MAP_Q:.*]] = simt.offset %[[TABLE:.*]], %c128_i32
// CHECK: simt.tensor_map_acquire %[[MAP_Q]]
// CHECK: %[[MAP_K:.*]] = simt.offset %[[TABLE]], %c256_i32
// CHECK: simt.tensor_map_acquire %[[MAP_K]]
// CHECK: scf.for %[[I:[a-z0-9]+]] =
// CHECK: %[[ROW_Q:.*]] = arith.muli %[[I]], %c64_i32
// CHECK: %[[OF_K:.*]] = arith.addi %[[I]], %c-3_i32
// CHECK: %[[ROW_K:.*]] = arith.muli %[[OF_K]], %c64_i32
// CHECK: %[[IS_K:.*]] = arith.cmpi sge, %[[I]], %c3_i32
// CHECK: %[[MAP:.*]] = arith.select %[[IS_K]], %[[MAP_K]], %[[MAP_Q]]
// CHECK: %[[ROW:.*]] = arith.select %[[IS_K]], %[[ROW_K]], %[[ROW_Q]]
// CHECK: simt.tensor_load %{{.*}}, %[[MAP]][%c0_i32, %[[ROW]]]
// The bias and the result are those of the same weight.
// CHECK: scf.for %[[C:[a-z0-9]+]] =
// CHECK: %[[CONSUMES_K:.*]] = arith.cmpi sge, %[[C]], %c3_i32
// CHECK: %[[BIAS:.*]] = arith.select %[[CONSUMES_K]], %{{.*}}, %{{.*}} : !simt.ptr<global>
// CHECK: %[[FIRST:.*]] = arith.select %[[CONSUMES_K]], %{{.*}}, %{{.*}} : i32
// CHECK: %[[BYTES:.*]] = simt.offset %[[BIAS]]
// CHECK: simt.load %{{.*}} : <global> -> vector<4xi32>
// CHECK: %[[RESULT:.*]] = arith.select %[[CONSUMES_K]], %{{.*}}, %{{.*}} : !simt.ptr<global>
// CHECK: arith.addi %[[FIRST]], %
// CHECK: %[[AT:.*]] = simt.offset %[[RESULT]]
// CHECK: simt.store %{{.*}}, %[[AT]] : f32, <global>
kernel.func @native(%x: memref<64xf16>, %w_q: memref<192x64xf16>, %w_k: memref<64x64xf16>, %b_q: memref<192xf32>, %b_k: memref<64xf32>, %q: memref<192xf32>, %k: memref<64xf32>) axes(panel = 4 @grid) plan(ring_stages = 2) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    %s = kernel.load %w_q, %w_k rows [64] panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<64x64xf16>
    %m = kernel.matmul %s, %t slots 2 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
    %b = kernel.read %b_q, %b_k at %i : memref<192xf32>, memref<64xf32> -> !kernel.tile<64xf32>
    %y = kernel.elementwise add %m, %b : !kernel.tile<64xf32>, !kernel.tile<64xf32> -> !kernel.tile<64xf32>
    kernel.write %y, %q, %k at %i : !kernel.tile<64xf32>, memref<192xf32>, memref<64xf32>
  }
  kernel.return
}

// -----

// Of packed weights one bulk copy takes the whole panel.
// CHECK-LABEL: simt.kernel @packed
// CHECK-NOT: simt.tensor_map_acquire
// CHECK: scf.for %[[I:[a-z0-9]+]] =
// CHECK: %[[IS_K:.*]] = arith.cmpi sge, %[[I]], %c3_i32
// CHECK: %[[WEIGHT:.*]] = arith.select %[[IS_K]], %{{.*}}, %{{.*}} : !simt.ptr<global>
// CHECK: %[[ROW:.*]] = arith.select %[[IS_K]], %{{.*}}, %{{.*}} : i32
// CHECK: %[[PANEL:.*]] = arith.divui %[[ROW]], %c64_i32
// CHECK: %[[FROM:.*]] = simt.offset %[[WEIGHT]]
// CHECK: simt.bulk_load %{{.*}}, %[[FROM]], %c8192_i32
kernel.func @packed(%x: memref<64xf16>, %w_q: memref<192x64xf16> {kernel.layout = "packed"}, %w_k: memref<64x64xf16> {kernel.layout = "packed"}, %b_q: memref<192xf32>, %b_k: memref<64xf32>, %q: memref<192xf32>, %k: memref<64xf32>) axes(panel = 4 @grid) plan(ring_stages = 2) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    %s = kernel.load %w_q, %w_k rows [64] panels at %i : memref<192x64xf16>, memref<64x64xf16> -> !kernel.stream<64x64xf16>
    %m = kernel.matmul %s, %t slots 2 : !kernel.stream<64x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<64xf32>
    %b = kernel.read %b_q, %b_k at %i : memref<192xf32>, memref<64xf32> -> !kernel.tile<64xf32>
    %y = kernel.elementwise add %m, %b : !kernel.tile<64xf32>, !kernel.tile<64xf32> -> !kernel.tile<64xf32>
    kernel.write %y, %q, %k at %i : !kernel.tile<64xf32>, memref<192xf32>, memref<64xf32>
  }
  kernel.return
}

// -----

// Where boxes do not line up each row is copied apart, and all rows of a panel exist.
// CHECK-LABEL: simt.kernel @rows
// CHECK: simt.mbarrier_arrive_expect_tx %{{.*}}, %c512_i32
// CHECK: %[[IS_B:.*]] = arith.cmpi sge, %{{.*}}, %c2_i32
// CHECK: %[[WEIGHT:.*]] = arith.select %[[IS_B]], %{{.*}}, %{{.*}} : !simt.ptr<global>
// CHECK: simt.offset %[[WEIGHT]]
// CHECK: simt.bulk_load
kernel.func @rows(%x: memref<64xf16>, %a: memref<8x64xf16>, %b: memref<4x64xf16>, %y: memref<12xf32>) axes(panel = 3 @grid) plan(ring_stages = 2) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  kernel.for_items %i over panel {
    %s = kernel.load %a, %b rows [4] panels at %i : memref<8x64xf16>, memref<4x64xf16> -> !kernel.stream<4x64xf16>
    %m = kernel.matmul %s, %t slots 2 : !kernel.stream<4x64xf16>, !kernel.tile<64xf16> -> !kernel.tile<4xf32>
    kernel.write %m, %y at %i : !kernel.tile<4xf32>, memref<12xf32>
  }
  kernel.return
}

// -----

// Memories of several tokens differ in the distance from one token to the next.
// CHECK-LABEL: simt.kernel @columns
// CHECK: %[[IS_D:.*]] = arith.cmpi sge, %{{.*}}, %c3_i32
// CHECK: %[[WIDTH:.*]] = arith.select %[[IS_D]], %c32_i32, %c96_i32
// CHECK: %[[WIDE:.*]] = arith.extsi %[[WIDTH]] : i32 to i64
// CHECK: arith.muli %{{.*}}, %[[WIDE]] : i64
kernel.func @columns(%a: memref<4x128xf16>, %c: memref<4x96xf16>, %d: memref<4x32xf16>) axes(panel = 4 @grid) plan() {
  kernel.for_items %i over panel {
    %t = kernel.read %a columns at %i : memref<4x128xf16> -> !kernel.tile<32x4xf16>
    kernel.write %t, %c, %d columns at %i : !kernel.tile<32x4xf16>, memref<4x96xf16>, memref<4x32xf16>
  }
  kernel.return
}
