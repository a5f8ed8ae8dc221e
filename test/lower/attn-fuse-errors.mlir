// What no fusion can change is refused where it stands, with what is possible.
// RUN: cfc-opt %s -verify-diagnostics -split-input-file --attn-fuse
// RUN: not cfc-opt %source/templates/graphs/small_attention.mlir --attn-fuse=cut-after=nn 2>&1 | FileCheck %s --check-prefix=CUT
// CUT: error: cannot cut after %nn: no operation makes it

attn.graph @tokens(%x: tensor<65x64xf16>, %w: tensor<64x64xf16>) -> tensor<65x64xf16> {
  // expected-error @+1 {{works on 65 tokens; 1 to 64 are possible}}
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
attn.graph @columns(%x: tensor<1x60xf16>, %w: tensor<64x60xf16>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has weights of 60 columns; multiples of 8 (rows of 16 bytes) are possible}}
  %y = attn.linear %x, [%w]
  attn.return %y
}
// -----
attn.graph @dim(%q: tensor<1x88xf16>, %cache: !attn.kv_cache<heads = 2, dim = 44, f16>,
    %len: !attn.lengths<1, capacity = 64>) -> tensor<1x88xf16> {
  // expected-error @+1 {{has heads of 44 elements; multiples of 8 up to 256 are possible}}
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}
// -----
attn.graph @latent(%q: tensor<1x1152xf16>, %cache: !attn.kv_cache<heads = 1, dim = 576, f16>,
    %len: !attn.lengths<1, capacity = 64>) -> tensor<1x1152xf16> {
  // expected-error @+1 {{has heads of 576 elements; multiples of 8 up to 256 are possible}}
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}
// -----
attn.graph @group(%q: tensor<1x4128xf16>, %cache: !attn.kv_cache<heads = 1, dim = 32, f16>,
    %len: !attn.lengths<1, capacity = 64>) -> tensor<1x4128xf16> {
  // expected-error @+1 {{has 129 query heads for each KV head; up to 128 are possible}}
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}
// -----
attn.graph @order(%x: tensor<1x64xf16>, %gain: tensor<64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  %n = attn.rms_norm %x, %gain {attn.kernel = 1, eps = 1.0e-5}
  // expected-error @+1 {{the plan puts linear(%y) into kernel 0; its operands are made in kernel 1}}
  %y = attn.linear %n, [%w] {attn.kernel = 0}
  attn.return %y
}
// -----
attn.graph @does_not_fit(%x: tensor<1x64xf16>, %gain: tensor<64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  %y = attn.linear %x, [%w]
  // expected-error @+1 {{the plan puts rms_norm(%n) into kernel 0, but rms_norm(%n) needs %y whole in every CTA; the kernel makes it in slices}}
  %n = attn.rms_norm %y, %gain {attn.kernel = 0, eps = 1.0e-5}
  attn.return %n
}
// -----
// expected-error @+1 {{the plan has no operation in kernel 0; kernels are numbered from 0 without gaps}}
attn.graph @gap(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>) -> tensor<1x64xf16> {
  %y = attn.linear %x, [%w] {attn.kernel = 1}
  attn.return %y
}
// -----
attn.graph @f8(%q: tensor<1x44xf16>, %cache: !attn.kv_cache<heads = 1, dim = 44, v_dim = 64, f8E4M3FN>, %s: tensor<1xf32>,
    %len: !attn.lengths<1, capacity = 64>) -> tensor<1x64xf16> {
  // expected-error @+1 {{has heads of 44 elements; multiples of 8 up to 256 are possible}}
  %o = attn.attention %q, %cache, %len scales %s, %s {scale = 0.125}
  attn.return %o
}
// -----
attn.graph @requests(%q: tensor<6x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %starts: tensor<66xi32>,
    %len: !attn.lengths<65, capacity = 64>) -> tensor<6x64xf16> {
  // expected-error @+1 {{serves 65 requests; 1 to 64 are possible}}
  %o = attn.attention %q, %cache, %len queries %starts {scale = 0.125}
  attn.return %o
}
// -----
attn.graph @query_tokens(%q: tensor<65x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %starts: tensor<3xi32>,
    %len: !attn.lengths<2, capacity = 64>) -> tensor<65x64xf16> {
  // expected-error @+1 {{works on 65 tokens; 1 to 64 are possible}}
  %o = attn.attention %q, %cache, %len queries %starts {scale = 0.125}
  attn.return %o
}
// -----
attn.graph @same_kernel(%q: tensor<6x64xf16>, %table: tensor<64x64xf32>, %pos: tensor<6xi32>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>,
    %slot: tensor<6xi64>, %starts: tensor<3xi32>, %len: !attn.lengths<2, capacity = 64>) -> tensor<6x64xf16> {
  %k = attn.rope %q, %table at %pos {style = half_split, attn.kernel = 0}
  %c = attn.kv_append %cache, %k, %k at %slot queries %starts {attn.kernel = 0}
  // expected-error @+1 {{the plan puts attention(%o) into kernel 0, but attention(%o) needs %k of every query token of a request; the kernel that makes them comes before}}
  %o = attn.attention %q, %c, %len queries %starts {scale = 0.125, attn.kernel = 0}
  attn.return %o
}
