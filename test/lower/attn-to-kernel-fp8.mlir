// RUN: cfc-opt %s -split-input-file --attn-plan --attn-to-kernel | FileCheck %s

// Caches with scales: the new token's row is rounded once, and both the append and the attention take that.
// CHECK-LABEL: kernel.func @one_k0(
// CHECK-SAME: %[[KS:arg[0-9]+]]: memref<2xf32> {{{[^}]*}}kernel.name = "k_scale"
// CHECK: kernel.for_items %[[H:.*]] over head
// CHECK: %[[K:.*]] = kernel.quantize %{{.*}} by %[[KS]] at %[[H]] : !kernel.tile<40xf16>, memref<2xf32>, !kernel.item -> <40xf8E4M3FN>
// CHECK: %[[V:.*]] = kernel.quantize %{{.*}} by %[[VS:.*]] at %[[H]] : !kernel.tile<24xf16>, memref<1xf32>, !kernel.item -> <24xf8E4M3FN>
// CHECK: kernel.append %[[K]], %[[V]] to
// CHECK: kernel.load_cache {{.*}} scales %[[KS]], %[[VS]] at %[[H]]
// CHECK: kernel.attend_new {{.*}}, %[[K]], %[[V]] slot
attn.graph @one(%q: tensor<1x160xf16>, %k: tensor<1x80xf16>, %v: tensor<1x48xf16>, %cache: !attn.kv_cache<heads = 2, dim = 40, v_dim = 24, f8E4M3FN>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 64>, %k_scale: tensor<2xf32>, %v_scale: tensor<1xf32>) -> tensor<1x96xf16> {
  %c = attn.kv_append %cache, %k, %v at %slot scales %k_scale, %v_scale
  %o = attn.attention %q, %c, %len scales %k_scale, %v_scale {scale = 0.125}
  attn.return %o
}

// -----

// K and V may be one value with two scales.
// CHECK-LABEL: kernel.func @same_k0(
// CHECK-SAME: %[[KS:arg[0-9]+]]: memref<1xf32> {{{[^}]*}}kernel.name = "ks"
// CHECK-SAME: %[[VS:arg[0-9]+]]: memref<1xf32> {{{[^}]*}}kernel.name = "vs"
// CHECK: %[[K:.*]] = kernel.quantize %[[X:.*]] by %[[KS]] {{.*}} !kernel.tile<64xf16>
// CHECK: %[[V:.*]] = kernel.quantize %[[X]] by %[[VS]]
// CHECK: kernel.append %[[K]], %[[V]]
attn.graph @same(%k: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %slot: tensor<1xi64>, %ks: tensor<1xf32>, %vs: tensor<1xf32>,
    %len: !attn.lengths<1, capacity = 64>) -> tensor<1x64xf16> {
  %c = attn.kv_append %cache, %k, %k at %slot scales %ks, %vs
  %o = attn.attention %k, %c, %len scales %ks, %vs {scale = 0.125}
  attn.return %o
}

// -----

// Of several query tokens attention takes all rows from memory, and rounds them as the append did.
// CHECK-LABEL: kernel.func @queries_k0(
// CHECK: kernel.quantize
// CHECK: kernel.append {{.*}}!kernel.tile<64xf8E4M3FN>
// CHECK-LABEL: kernel.func @queries_k1(
// CHECK: kernel.load_cache {{.*}} queries %{{.*}} scales
// CHECK-NOT: kernel.quantize
// CHECK: kernel.attend_new {{.*}} memref<384xf16>, memref<384xf16>, memref<6xi64>
attn.graph @queries(%q: tensor<6x128xf16>, %k: tensor<6x64xf16>, %v: tensor<6x64xf16>, %table: tensor<64x64xf32>, %pos: tensor<6xi32>,
    %cache: !attn.kv_cache<heads = 1, dim = 64, f8E4M3FN>, %slot: tensor<6xi64>, %len: !attn.lengths<2, capacity = 64>,
    %starts: tensor<3xi32>, %ks: tensor<1xf32>, %vs: tensor<1xf32>) -> tensor<6x128xf16> {
  %r = attn.rope %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %r, %v at %slot queries %starts scales %ks, %vs
  %o = attn.attention %q, %c, %len queries %starts scales %ks, %vs {scale = 0.125}
  attn.return %o
}
