// RUN: cfc-opt %s --kernel-assign-storage --kernel-outline-producer --kernel-to-simt --cse --canonicalize | FileCheck %s

// With `held` consumers wait for the first tiles of the first stream, read them and give their slots back before
// they wait for the last kernel. In the first item and block of rows they multiply what they hold.
// CHECK-LABEL: simt.kernel @held
// The producer waits for nothing but its ring.
// CHECK: simt.tensor_load
// CHECK-NOT: simt.grid_wait
// CHECK: %[[HELD:.*]]:16 = scf.if {{.*}} -> (i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32)
// CHECK: simt.mbarrier_wait
// CHECK-COUNT-4: simt.ldmatrix
// CHECK: simt.after
// CHECK: simt.mbarrier_arrive
// CHECK: scf.yield
// CHECK: } else {
// CHECK-NEXT: scf.yield
// CHECK: simt.grid_wait
// CHECK: scf.for
// CHECK: scf.if {{.*}} -> (i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32)
// CHECK-NEXT: scf.yield %[[HELD]]#0, %[[HELD]]#1
// CHECK: } else {
// CHECK: simt.mbarrier_wait
// CHECK-COUNT-4: simt.ldmatrix
// CHECK: simt.mbarrier_arrive
// CHECK: scf.yield
// CHECK-COUNT-4: simt.mma
// The second tile comes by the ring.
// CHECK: simt.mbarrier_wait
// CHECK-COUNT-4: simt.ldmatrix
// CHECK-COUNT-4: simt.mma
// CHECK: simt.mbarrier_arrive
kernel.func @held(%x: memref<128xf16> {kernel.entry = 0 : i32}, %w: memref<128x128xf16> {kernel.entry = 1 : i32}, %y: memref<128xf32> {kernel.entry = 2 : i32}) axes(item = 2 @grid) plan(ring_stages = 2, tile_columns = 64, pdl = 1, held = 5) {
  %t = kernel.read %x : memref<128xf16> -> !kernel.tile<128xf16>
  kernel.for_items %i over item {
    %s = kernel.load %w rows [64] at %i : memref<128x128xf16> -> !kernel.stream<64x128xf16>
    %m = kernel.matmul %s, %t slots 1 : !kernel.stream<64x128xf16>, !kernel.tile<128xf16> -> !kernel.tile<64xf32>
    kernel.write %m, %y at %i : !kernel.tile<64xf32>, memref<128xf32>
  }
  kernel.return
}
