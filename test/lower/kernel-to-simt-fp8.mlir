// RUN: cfc-opt %s -split-input-file --kernel-assign-storage --kernel-outline-producer --kernel-to-simt --cse --canonicalize | FileCheck %s

// Rows of 48 bytes: boxes of 128 elements, of which those behind the last dim are 0.
// CHECK: simt.maps = [{box = array<i64: 128, 64, 1>, entry = {{[0-9]+}} : i64, field = "k_pointer", swizzle = 128 : i64}, {box = array<i64: 128, 64, 1>, entry = {{[0-9]+}} : i64, field = "v_pointer", swizzle = 128 : i64}]
// CHECK-LABEL: simt.kernel @copied
// CHECK: simt.tensor_map_acquire
// CHECK: simt.tensor_load
// CHECK: simt.tensor_load
// CHECK-NOT: simt.fence_proxy_async
// Keys of 48 dims: 16 tokens of 32 bytes at a time are two A operands, the last ones one. Scales follow the product.
// CHECK: simt.ldmatrix
// CHECK-COUNT-8: simt.unpack_e4m3 {{ ?}}f16
// CHECK: simt.ldmatrix
// CHECK-COUNT-4: simt.unpack_e4m3 {{ ?}}f16
// CHECK-COUNT-3: simt.mma {{ ?}}f16
// CHECK: simt.ldmatrix {{ ?}}trans
// CHECK-COUNT-8: simt.unpack_e4m3 {{ ?}}f16
// The new token is divided and rounded.
// CHECK: arith.divf
// CHECK: simt.pack_e4m3
// CHECK: simt.store {{.*}} : i8, <shared>
kernel.func @copied(%q: memref<48xf16>, %c: !kernel.cache<heads = 1, dim = 48, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<1xf32>, %vs: memref<1xf32>, %o: memref<48xf16>) axes() plan(ring_stages = 2) {
  %x = kernel.read %q : memref<48xf16> -> !kernel.tile<48xf16>
  %kv = kernel.load_cache %c tokens %len slot %slot scales %ks, %vs bound 64 : !kernel.cache<heads = 1, dim = 48, f8E4M3FN>, memref<1xi32>, memref<1xi64>, memref<1xf32>, memref<1xf32> -> !kernel.kv_stream<48, f8E4M3FN>
  %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<48xf16>, !kernel.kv_stream<48, f8E4M3FN> -> !kernel.tile<1x50xf32>
  %k = kernel.quantize %x by %ks : !kernel.tile<48xf16>, memref<1xf32> -> !kernel.tile<48xf8E4M3FN>
  %v = kernel.quantize %x by %vs : !kernel.tile<48xf16>, memref<1xf32> -> !kernel.tile<48xf8E4M3FN>
  %a = kernel.attend_new %p, %x, %k, %v slot %slot scale 1.0 : !kernel.tile<1x50xf32>, !kernel.tile<48xf16>, !kernel.tile<48xf8E4M3FN>, !kernel.tile<48xf8E4M3FN>, memref<1xi64> -> !kernel.tile<1x50xf32>
  %y, %l = kernel.normalize %a : !kernel.tile<1x50xf32> -> !kernel.tile<48xf16>, !kernel.tile<1xf32>
  kernel.append %k, %v to %c slot %slot : !kernel.tile<48xf8E4M3FN>, !kernel.tile<48xf8E4M3FN>, !kernel.cache<heads = 1, dim = 48, f8E4M3FN>, memref<1xi64>
  kernel.write %y, %o : !kernel.tile<48xf16>, memref<48xf16>
  kernel.return
}

// -----

// Rows of 40 bytes: no tensor copies. Words of 8 bytes go through registers, what is behind them is 0; then one arrival.
// CHECK: simt.maps = []
// CHECK-LABEL: simt.kernel @threads
// CHECK-NOT: simt.tensor_map_acquire
// CHECK: simt.mbarrier_wait
// CHECK: simt.load {{.*}} : <global> -> vector<2xi32>
// CHECK: arith.select {{.*}} : vector<2xi32>
// CHECK: simt.store {{.*}} : vector<2xi32>, <shared>
// CHECK: simt.fence_proxy_async
// CHECK-NEXT: simt.syncwarp
// CHECK: simt.mbarrier_arrive {{ ?}}cta
// CHECK-NOT: simt.mbarrier_arrive_expect_tx
// CHECK: simt.unpack_e4m3
kernel.func @threads(%q: memref<40xf16>, %c: !kernel.cache<heads = 1, dim = 40, f8E4M3FN>, %slot: memref<1xi64>, %len: memref<1xi32>, %ks: memref<1xf32>, %vs: memref<1xf32>, %o: memref<40xf16>) axes() plan(ring_stages = 2) {
  %x = kernel.read %q : memref<40xf16> -> !kernel.tile<40xf16>
  %kv = kernel.load_cache %c tokens %len slot %slot scales %ks, %vs bound 64 : !kernel.cache<heads = 1, dim = 40, f8E4M3FN>, memref<1xi32>, memref<1xi64>, memref<1xf32>, memref<1xf32> -> !kernel.kv_stream<40, f8E4M3FN>
  %p = kernel.attend %x, %kv scale 1.0 : !kernel.tile<40xf16>, !kernel.kv_stream<40, f8E4M3FN> -> !kernel.tile<1x42xf32>
  %k = kernel.quantize %x by %ks : !kernel.tile<40xf16>, memref<1xf32> -> !kernel.tile<40xf8E4M3FN>
  %v = kernel.quantize %x by %vs : !kernel.tile<40xf16>, memref<1xf32> -> !kernel.tile<40xf8E4M3FN>
  %a = kernel.attend_new %p, %x, %k, %v slot %slot scale 1.0 : !kernel.tile<1x42xf32>, !kernel.tile<40xf16>, !kernel.tile<40xf8E4M3FN>, !kernel.tile<40xf8E4M3FN>, memref<1xi64> -> !kernel.tile<1x42xf32>
  %y, %l = kernel.normalize %a : !kernel.tile<1x42xf32> -> !kernel.tile<40xf16>, !kernel.tile<1xf32>
  kernel.append %k, %v to %c slot %slot : !kernel.tile<40xf8E4M3FN>, !kernel.tile<40xf8E4M3FN>, !kernel.cache<heads = 1, dim = 40, f8E4M3FN>, memref<1xi64>
  kernel.write %y, %o : !kernel.tile<40xf16>, memref<40xf16>
  kernel.return
}
