// RUN: cfc-opt %s -split-input-file --kernel-assign-storage --kernel-outline-producer --kernel-to-simt --cse --canonicalize | FileCheck %s

// What depends on an item's request is on its way before its tiles are read, and the rotations while they are: position and
// slot, words of q and k, then cosine and sine, and only then are q and k stored.
// CHECK-LABEL: simt.kernel @requests
// CHECK: simt.grid_wait
// CHECK: scf.for
// CHECK: %[[POSITION:.*]] = simt.load {{.*}} -> i32
// CHECK: simt.load {{.*}} -> i64
// CHECK-NOT: simt.store
// CHECK-COUNT-2: simt.load {{.*}} : <global> -> vector<4xi32>
// CHECK-NOT: simt.store
// CHECK: arith.maxsi %[[POSITION]]
// CHECK: %[[COS:.*]] = simt.load {{.*}} -> f32
// CHECK: %[[SIN:.*]] = simt.load {{.*}} -> f32
// CHECK-NOT: simt.load
// CHECK-COUNT-2: simt.store {{.*}} : vector<4xi32>, <shared>
// CHECK: simt.barrier
// Both rotations use them, and nothing of the request is loaded again.
// CHECK-NOT: simt.load {{.*}} : <global>
// CHECK: arith.mulf %{{.*}}, %[[SIN]]
// CHECK-NOT: simt.load {{.*}} : <global>
// CHECK: simt.barrier
// CHECK-NOT: simt.load {{.*}} : <global>
// CHECK: arith.mulf %{{.*}}, %[[SIN]]
// CHECK-NOT: simt.load {{.*}} : <global>
// CHECK: simt.return
kernel.func @requests(%q: memref<128xf16>, %k: memref<128xf16>, %v: memref<128xf16>, %pos: memref<2xi32>, %table: memref<64x64xf32>, %slot: memref<2xi64>, %c: !kernel.cache<heads = 1, dim = 64, requests = 2, f16>, %o: memref<128xf16>) axes(head = 2 @grid) plan(pdl = 1) {
  kernel.for_items %i over head {
    %x = kernel.read %q at %i : memref<128xf16> -> !kernel.tile<64xf16>
    %y = kernel.read %k at %i : memref<128xf16> -> !kernel.tile<64xf16>
    %kr = kernel.rope half_split %y, %table position %pos at %i : !kernel.tile<64xf16>, memref<64x64xf32>, memref<2xi32>, !kernel.item -> !kernel.tile<64xf16>
    %qr = kernel.rope half_split %x, %table position %pos at %i : !kernel.tile<64xf16>, memref<64x64xf32>, memref<2xi32>, !kernel.item -> !kernel.tile<64xf16>
    kernel.append %kr, %y to %c slot %slot at %i : !kernel.tile<64xf16>, !kernel.tile<64xf16>, !kernel.cache<heads = 1, dim = 64, requests = 2, f16>, memref<2xi64>, !kernel.item
    kernel.write %qr, %o at %i : !kernel.tile<64xf16>, memref<128xf16>
  }
  kernel.return
}

// -----

// A position that is not of the item's request alone is loaded where it is used, behind the barrier of the reads.
// CHECK-LABEL: simt.kernel @mixed
// CHECK: scf.for
// CHECK-COUNT-2: simt.load {{.*}} : <global> -> vector<4xi32>
// CHECK: simt.barrier
// CHECK: simt.load {{.*}} -> i32
// CHECK: simt.barrier
// CHECK: simt.load {{.*}} -> i32
kernel.func @mixed(%q: memref<256xf16>, %k: memref<256xf16>, %pos: memref<2xi32>, %table: memref<64x64xf32>, %o: memref<256xf16>, %p: memref<256xf16>) axes(head = 4 @grid) plan(pdl = 1) {
  kernel.for_items %i over head {
    %outer = kernel.outer %i of 2
    %inner = kernel.inner %i of 2
    %x = kernel.read %q at %i : memref<256xf16> -> !kernel.tile<64xf16>
    %y = kernel.read %k at %i : memref<256xf16> -> !kernel.tile<64xf16>
    %kr = kernel.rope half_split %y, %table position %pos at %inner : !kernel.tile<64xf16>, memref<64x64xf32>, memref<2xi32>, !kernel.item -> !kernel.tile<64xf16>
    %qr = kernel.rope half_split %x, %table position %pos at %outer : !kernel.tile<64xf16>, memref<64x64xf32>, memref<2xi32>, !kernel.item -> !kernel.tile<64xf16>
    kernel.write %kr, %p at %i : !kernel.tile<64xf16>, memref<256xf16>
    kernel.write %qr, %o at %i : !kernel.tile<64xf16>, memref<256xf16>
  }
  kernel.return
}
