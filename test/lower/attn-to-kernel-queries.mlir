// RUN: cfc-opt %s --attn-plan --attn-to-kernel | FileCheck %s

// Several query tokens a request: what makes K runs before, and attention takes K and V of all tokens from memory. Items
// are heads of query tokens; the cache has the requests.
// CHECK-LABEL: kernel.func @queries_k0(
// CHECK: kernel.rope
// CHECK: kernel.append {{.*}} queries {{.*}} !kernel.cache<heads = 1, dim = 64, requests = 2, f16>
// CHECK-NOT: kernel.attend
// CHECK-LABEL: kernel.func @queries_k1(
// CHECK-SAME: axes(head = 6 @grid
// CHECK: kernel.load_cache {{.*}} queries {{.*}} mask {{.*}} requests = 2, f16>
// CHECK: kernel.attend_new {{.*}} memref<384xf16>, memref<384xf16>, memref<6xi64>
attn.graph @queries(%q: tensor<6x128xf16>, %k: tensor<6x64xf16>, %v: tensor<6x64xf16>, %table: tensor<64x64xf32>, %pos: tensor<6xi32>,
    %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %slot: tensor<6xi64>, %len: !attn.lengths<2, capacity = 64>,
    %starts: tensor<3xi32>, %mask: tensor<6xi64>) -> tensor<6x128xf16> {
  %r = attn.rope %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %r, %v at %slot queries %starts
  %o = attn.attention %q, %c, %len queries %starts mask %mask {scale = 0.125}
  attn.return %o
}
