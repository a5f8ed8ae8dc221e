// RUN: cfc-opt %s --kernel-assign-storage --kernel-outline-producer --kernel-to-simt --cse --canonicalize | FileCheck %s

// CHECK-LABEL: simt.kernel @matmul(%arg0: !simt.ptr<global>, %arg1: !simt.ptr<global>)
// Four consumer warps and the producer; one cluster of two.
// CHECK-SAME: cfc.clusters = 1 : i32, cluster = 2 : i32
// CHECK-SAME: threads = 160 : i32
// Barriers of the ring: one arrival fills a slot, four (one a consumer warp) free it.
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-DAG: %[[FOUR:.*]] = arith.constant 4 : i32
// CHECK: simt.mbarrier_init %{{.*}}, %[[ONE]]
// CHECK: simt.mbarrier_init %{{.*}}, %[[FOUR]]
// CHECK: simt.fence_mbarrier_init
// CHECK: simt.barrier 0, 160
// CHECK: simt.cluster_arrive relaxed
// The producer acquires the tensor map, waits for a free slot, arms it and copies boxes.
// CHECK: simt.tensor_map_acquire
// CHECK: simt.mbarrier_wait {{ ?}}cta
// CHECK: simt.mbarrier_arrive_expect_tx
// CHECK: simt.tensor_load
// The consumers wait until the peer is there, multiply, push their rows to the peer, and wait for the peer's.
// CHECK: simt.cluster_wait
// CHECK: simt.ldmatrix
// CHECK: simt.mma {{ ?}}f16
// CHECK: simt.map_rank
// CHECK: simt.store %{{.*}}, %{{.*}} : {{.*}}, <cluster>
// CHECK: simt.mbarrier_arrive {{ ?}}cluster
// CHECK: simt.mbarrier_wait {{ ?}}cluster
// Then all that the peer sends is there: it may leave first.
// CHECK-NOT: simt.cluster_arrive
// CHECK: simt.return
kernel.func @matmul(%x: memref<64xf16>, %w: memref<64x64xf16>, %y: memref<64xf16>) axes(part = 2 @cta) plan(ring_stages = 2) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16>
  %s = kernel.load %w rows [64] : memref<64x64xf16> -> !kernel.stream<64x64xf16, part: split(0)>
  %m = kernel.matmul %s, %t slots 16 : !kernel.stream<64x64xf16, part: split(0)>, !kernel.tile<64xf16> -> !kernel.tile<64xf16, part: split(0)>
  %g = kernel.exchange gather %m over "part" by push : !kernel.tile<64xf16, part: split(0)> -> !kernel.tile<64xf16>
  kernel.write %g, %y : !kernel.tile<64xf16>, memref<64xf16>
  kernel.return
}

// As many axes as joined kernels may need: a worker's coordinate is still that of its axis in the cluster.
// CHECK-LABEL: simt.kernel @many_axes
// CHECK-DAG: %[[SIXTEEN:.*]] = arith.constant 16 : i32
// CHECK-DAG: %[[WORKERS:.*]] = arith.constant 4 : i32
// CHECK: %[[RANK:.*]] = simt.cta_rank
// CHECK: %[[PART:.*]] = arith.remui %[[RANK]], %[[WORKERS]] : i32
// CHECK: arith.muli %[[PART]], %[[SIXTEEN]] : i32
kernel.func @many_axes(%x: memref<64xf16>, %y: memref<64xf16>) axes(part = 4 @cta, a = 2 @grid, b = 2 @grid, c = 2 @grid, d = 2 @grid, e = 2 @grid, f = 2 @grid) {
  %t = kernel.read %x : memref<64xf16> -> !kernel.tile<64xf16, part: split(0)>
  kernel.write %t, %y : !kernel.tile<64xf16, part: split(0)>, memref<64xf16>
  kernel.return
}
