// RUN: cfc-opt %s -split-input-file --attn-to-kernel | FileCheck %s

// A head's segments of one KV head lie in 128 groups, of two heads or two requests in 32, of more in 16, which are not said.
// A softmax of each is in the workspace where clusters have shares of heads: here of 2 requests, 32 x 66 x 4 bytes each.
// CHECK: module attributes {kernel.workspace_bytes = 17152 : i64, kernel.zero_bytes = 256 : i64}
// CHECK-LABEL: kernel.func @requests_k0(
// CHECK: kernel.work_list {{.*}} bound 64 {groups = 32 : i64} :
// CHECK: kernel.load_cache {{.*}} bound 64 {groups = 32 : i64} :
// CHECK-LABEL: kernel.func @one_k0(
// CHECK: kernel.load_cache {{.*}} bound 64 {groups = 128 : i64} :
// With a graph for 8 requests whose bits are the same there are as many groups as in that one.
// CHECK-LABEL: kernel.func @one_of_eight_k0(
// CHECK: kernel.load_cache {{.*}} bound 64 :
// CHECK-LABEL: kernel.func @two_k0(
// CHECK: kernel.load_cache {{.*}} bound 64 {groups = 32 : i64} :
// CHECK-LABEL: kernel.func @three_k0(
// CHECK: kernel.load_cache {{.*}} bound 64 :
attn.graph @requests(%q: tensor<2x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<2, capacity = 64>)
    -> tensor<2x64xf16> attributes {attn.plan =
    "graph requests\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = work\0Aop attention(%o): kernel = 0, reduce = push"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}

// -----

attn.graph @one(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x64xf16> attributes {attn.plan =
    "graph one\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64\0Aop attention(%o): kernel = 0, reduce = push"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}

// -----

attn.graph @one_of_eight(%q: tensor<1x64xf16>, %cache: !attn.kv_cache<heads = 1, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x64xf16> attributes {most_requests = 8 : i64, attn.plan =
    "graph one_of_eight\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64\0Aop attention(%o): kernel = 0, reduce = push"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}

// -----

attn.graph @two(%q: tensor<1x128xf16>, %cache: !attn.kv_cache<heads = 2, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x128xf16> attributes {attn.plan =
    "graph two\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64\0Aop attention(%o): kernel = 0, reduce = push"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}

// -----

attn.graph @three(%q: tensor<1x192xf16>, %cache: !attn.kv_cache<heads = 3, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x192xf16> attributes {attn.plan =
    "graph three\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64\0Aop attention(%o): kernel = 0, reduce = push"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o
}
