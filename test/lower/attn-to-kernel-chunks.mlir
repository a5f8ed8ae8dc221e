// RUN: cfc-opt %s --attn-to-kernel | FileCheck %s

// Chunks of heads: their last one merges them, appends, and stores what whole heads have.
// CHECK: module attributes {kernel.workspace_bytes = 4608 : i64, kernel.zero_bytes = 256 : i64}
// CHECK-LABEL: kernel.func @chunked_k0(
// CHECK-SAME: axes(chunk = 8 @grid, part = 2 @cta
// CHECK: kernel.for_items %[[I:.*]] over chunk
// CHECK: %[[C:.*]] = kernel.inner %[[I]] of 4
// CHECK: %[[H:.*]] = kernel.outer %[[I]] of 4
// CHECK: kernel.read {{.*}} at %[[H]]
// CHECK: kernel.load_cache {{.*}} at %[[H]] chunk %[[C]] bound 64 {groups = 32 : i64}
// CHECK-NOT: kernel.append
// CHECK-NOT: kernel.write
// CHECK: kernel.finish {{.*}} over chunk by ordered attributes {counters = 0 : i64, each = 4 : i64, partials = 256 : i64} : !kernel.tile<2x66xf32, chunk: partial(softmax)> as %[[S:.*]]: !kernel.tile<2x66xf32> {
// CHECK: kernel.attend_new %[[S]]
// CHECK: kernel.normalize
// CHECK: kernel.write {{.*}} at %[[H]] : <64xf16>, memref<128xf16>
// CHECK: kernel.append {{.*}} at %[[H]]
// CHECK: kernel.write {{.*}} at %[[H]] : <128xf16>, memref<256xf16>
// CHECK: }
attn.graph @chunked(%q: tensor<1x256xf16>, %k: tensor<1x128xf16>, %v: tensor<1x128xf16>, %table: tensor<64x64xf32>, %pos: tensor<1xi32>,
    %cache: !attn.kv_cache<heads = 2, dim = 64, f16>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 64>)
    -> (tensor<1x256xf16>, tensor<1x128xf16>) attributes {attn.plan =
    "graph chunked\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 4\0Aop rope(%r): kernel = 0\0Aop kv_append(%c): kernel = 0\0Aop attention(%o): kernel = 0, reduce = push"} {
  %r = attn.rope %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %r, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.125}
  attn.return %o, %r
}
