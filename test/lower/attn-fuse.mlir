// Operations are grouped into as few kernels as what they need of their operands allows.
// RUN: cfc-opt %s -split-input-file --attn-fuse | FileCheck %s
// RUN: cfc-opt %source/templates/graphs/small_attention.mlir --attn-fuse=cut-after=n,o | FileCheck %s --check-prefix=CUT
// CUT: attn.rms_norm {{.*}}attn.kernel = 0
// CUT: attn.linear {{.*}}attn.kernel = 1
// CUT: attn.attention {{.*}}attn.kernel = 1
// CUT: attn.linear {{.*}}attn.kernel = 2
// CUT: attn.add {{.*}}attn.kernel = 2

// A whole block, its residual included, is one kernel; the norm of the next block needs all of its result.
// CHECK-LABEL: attn.graph @two_norms
// CHECK: attn.rms_norm %x, %gain {attn.kernel = 0
// CHECK: attn.linear %n, [%w] {attn.kernel = 0
// CHECK: attn.rms_norm %y, %gain {attn.kernel = 1
// CHECK: attn.add %n, %m {attn.kernel = 1
attn.graph @two_norms(%x: tensor<1x64xf16>, %gain: tensor<64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %y = attn.linear %n, [%w]
  %m = attn.rms_norm %y, %gain {eps = 1.0e-5}
  %z = attn.add %n, %m
  attn.return %z
}
// -----
// A linear of a slice sums over the heads only behind attention, whose order of sums is by heads.
// CHECK-LABEL: attn.graph @linear_of_q
// CHECK: attn.linear %n, [%w_q] {attn.kernel = 0
// CHECK: attn.linear %q, [%w_s] {attn.kernel = 1
// CHECK: attn.attention %q, %cache, %len {attn.kernel = 0
// CHECK: attn.linear %o, [%w_s] {attn.kernel = 0
// CHECK: attn.add %s, %y {attn.kernel = 1
attn.graph @linear_of_q(%x: tensor<1x64xf16>, %w_q: tensor<64x64xf16>, %w_s: tensor<64x64xf16>, %gain: tensor<64xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 32, f16>, %len: !attn.lengths<1, capacity = 64>) -> tensor<1x64xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q = attn.linear %n, [%w_q]
  %s = attn.linear %q, [%w_s]
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  %y = attn.linear %o, [%w_s]
  %z = attn.add %s, %y
  attn.return %z
}
// -----
// Two caches with other numbers of heads do not share a kernel's items. What nobody uses is in no kernel.
// CHECK-LABEL: attn.graph @two_caches
// CHECK: attn.kv_append %a, %k, %v at %slot {attn.kernel = 0
// CHECK: attn.kv_append %b, %k, %v at %slot {attn.kernel = 1
// CHECK: %unused = attn.add %k, %v{{$}}
// CHECK: attn.add %v, %v {attn.kernel = 0
attn.graph @two_caches(%k: tensor<1x64xf16>, %v: tensor<1x64xf16>, %a: !attn.kv_cache<heads = 2, dim = 32, f16>,
    %b: !attn.kv_cache<heads = 4, dim = 16, f16>, %slot: tensor<1xi64>, %n: tensor<1x64xf16>) -> tensor<1x64xf16> {
  %ca = attn.kv_append %a, %k, %v at %slot
  %cb = attn.kv_append %b, %k, %v at %slot
  %unused = attn.add %k, %v
  %z = attn.add %v, %v
  attn.return %z
}
// -----
// A kernel that an operation already has stays.
// CHECK-LABEL: attn.graph @given
// CHECK: attn.rms_norm %x, %gain {attn.kernel = 0
// CHECK: attn.linear %n, [%w] {attn.kernel = 1
attn.graph @given(%x: tensor<1x64xf16>, %gain: tensor<64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %y = attn.linear %n, [%w] {attn.kernel = 1}
  attn.return %y
}
