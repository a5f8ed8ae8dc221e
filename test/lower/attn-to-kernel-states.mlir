// RUN: cfc-opt %s -split-input-file --attn-to-kernel | FileCheck %s

// Chunks of heads that whoever reads the result merges. Each CTA of a cluster gets, and leaves, the states of its own heads;
// the first chunk of a head does what is done once for it. Nothing is counted.
// CHECK: module attributes {kernel.workspace_bytes = 10752 : i64, kernel.zero_bytes = 0 : i64}
// CHECK-LABEL: kernel.func @appended_k0(
// CHECK-SAME: %[[S:arg[0-9]+]]: memref<2x5x4x66xf32> {kernel.name = "o.softmax", kernel.workspace = 0 : i64}
// CHECK-SAME: axes(chunk = 8 @grid, part = 2 @cta
// CHECK: kernel.for_items %[[I:.*]] over chunk
// CHECK: %[[C:.*]] = kernel.inner %[[I]] of 4
// CHECK: %[[H:.*]] = kernel.outer %[[I]] of 4
// CHECK: %[[R:.*]] = kernel.rope
// CHECK-NOT: kernel.write
// CHECK: %[[P:.*]] = kernel.attend {{.*}} -> <4x66xf32, part: partial(softmax), chunk: partial(softmax)>
// CHECK: %[[X:.*]] = kernel.exchange reduce_scatter %[[P]] over "part" by async : {{.*}} -> <4x66xf32, chunk: partial(softmax), part: split(0)>
// CHECK-NEXT: kernel.leave %[[X]] to %[[S]] at %[[H]] part %[[C]] :
// CHECK-NEXT: kernel.first %[[C]] {
// CHECK-NEXT: kernel.write %[[R]], %{{.*}} at %[[H]] : <64xf16>, memref<128xf16>
// CHECK-NEXT: kernel.append %[[R]], %{{.*}} at %[[H]]
// CHECK-NEXT: %[[E:.*]] = kernel.empty_state %[[X]] : {{.*}} -> <4x66xf32, part: split(0)>
// CHECK-NEXT: %[[N:.*]] = kernel.attend_new %[[E]], {{.*}} -> <4x66xf32, part: split(0)>
// CHECK-NEXT: kernel.leave %[[N]] to %[[S]] at %[[H]] :
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-LABEL: kernel.func @appended_k1(
// CHECK-SAME: %[[S:arg[0-9]+]]: memref<2x5x4x66xf32> {kernel.name = "o.softmax", kernel.workspace = 0 : i64}
// CHECK: %[[M:.*]] = kernel.merge_states %[[S]] new_last : memref<2x5x4x66xf32> -> <8x66xf32>
// CHECK-NEXT: %[[O:result.*]], %{{.*}} = kernel.normalize %[[M]] : !kernel.tile<8x66xf32> -> <512xf16>, <8xf32>
// CHECK-NEXT: kernel.for_items
// CHECK: kernel.matmul %{{.*}}, %[[O]] slots 2
attn.graph @appended(%q: tensor<1x512xf16>, %k: tensor<1x128xf16>, %v: tensor<1x128xf16>, %table: tensor<64x64xf32>, %pos: tensor<1xi32>, %wo: tensor<96x512xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 64, f16>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 64>)
    -> (tensor<1x96xf16>, tensor<1x128xf16>) attributes {attn.plan =
    "graph appended\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 4\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Aop rope(%r): kernel = 0\0Aop kv_append(%c): kernel = 0\0Aop attention(%o): kernel = 0, reduce = async, finish = reader\0Aop linear(%y): kernel = 1, split = rows"} {
  %r = attn.rope %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %r, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  attn.return %y, %r
}

// -----

// Without an append no state of a new token. What is returned the first that reads the states stores; the other has it for itself.
// CHECK-LABEL: kernel.func @returned_k0(
// CHECK-SAME: memref<2x4x4x66xf32> {kernel.name = "o.softmax"
// CHECK: kernel.leave
// CHECK-NEXT: kernel.first %{{.*}} {
// CHECK-NEXT: kernel.write %{{.*}} : <256xf16>, memref<512xf16>
// CHECK-NEXT: }
// CHECK-LABEL: kernel.func @returned_k1(
// CHECK-SAME: %[[ON:arg[0-9]+]]: memref<512xf16> {kernel.entry = {{[0-9]+}} : i32, kernel.name = "result2", kernel.output}
// CHECK-SAME: %[[LN:arg[0-9]+]]: memref<8xf32> {kernel.entry = {{[0-9]+}} : i32, kernel.name = "result4", kernel.output}
// CHECK: %[[M:.*]] = kernel.merge_states %{{.*}} : memref<2x4x4x66xf32> -> <8x66xf32>
// CHECK-NEXT: %[[O:result.*]], %[[L:lse.*]] = kernel.normalize %[[M]]
// CHECK-NEXT: kernel.write %[[O]], %[[ON]] : <512xf16>, memref<512xf16>
// CHECK-NEXT: kernel.write %[[L]], %[[LN]] : <8xf32>, memref<8xf32>
// CHECK-LABEL: kernel.func @returned_k2(
// CHECK: kernel.merge_states
// CHECK-NEXT: kernel.normalize
// CHECK-NEXT: kernel.for_items
// CHECK-NOT: memref<512xf16>
// CHECK: kernel.write {{.*}}memref<40xf16>
attn.graph @returned(%q: tensor<1x512xf16>, %table: tensor<64x64xf32>, %pos: tensor<1xi32>, %wo: tensor<96x512xf16>, %w2: tensor<40x512xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> (tensor<1x96xf16>, tensor<1x40xf16>, tensor<1x512xf16>, tensor<1x512xf16>, tensor<1x8xf32>) attributes {attn.plan =
    "graph returned\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 4\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Akernel 2: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Aop rope(%r): kernel = 0\0Aop attention(%o, %lse): kernel = 0, reduce = push, finish = reader\0Aop linear(%y): kernel = 1, split = rows\0Aop linear(%z): kernel = 2, split = rows"} {
  %r = attn.rope %q, %table at %pos {style = half_split}
  %o, %lse = attn.attention %r, %cache, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  %z = attn.linear %o, [%w2]
  attn.return %y, %z, %o, %r, %lse
}

// -----

// Three query heads a cluster of 2 cannot share: each CTA has the whole softmax, of which the first one's is stored. Nothing is
// done once for a head.
// CHECK-LABEL: kernel.func @indivisible_k0(
// CHECK: kernel.exchange reduce %{{.*}} over "part" by push : {{.*}} -> <3x66xf32, chunk: partial(softmax)>
// CHECK-NEXT: kernel.leave %{{.*}} : !kernel.tile<3x66xf32, chunk: partial(softmax)>, memref<2x2x3x66xf32>
// CHECK-NOT: kernel.first
// CHECK-LABEL: kernel.func @indivisible_k1(
// CHECK: kernel.merge_states %{{.*}} : memref<2x2x3x66xf32> -> <6x66xf32>
attn.graph @indivisible(%q: tensor<1x384xf16>, %wo: tensor<96x384xf16>, %cache: !attn.kv_cache<heads = 2, dim = 64, f16>, %len: !attn.lengths<1, capacity = 64>)
    -> tensor<1x96xf16> attributes {attn.plan =
    "graph indivisible\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 2\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16\0Aop attention(%o): kernel = 0, reduce = push, finish = reader\0Aop linear(%y): kernel = 1, split = rows"} {
  %o = attn.attention %q, %cache, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  attn.return %y
}

// -----

// In one launch: the states of every CTA are there behind the barrier. Operations behind the attention are the first chunk's, too.
// CHECK-LABEL: kernel.func @joined_k0(
// CHECK: kernel.leave
// CHECK-NEXT: kernel.first
// CHECK-NEXT: kernel.append
// CHECK: kernel.leave
// CHECK-NEXT: kernel.read
// CHECK-NEXT: kernel.elementwise add
// CHECK-NEXT: kernel.write
// CHECK-NEXT: }
// CHECK: kernel.grid_sync
// CHECK-NEXT: kernel.merge_states
attn.graph @joined(%q: tensor<1x256xf16>, %k: tensor<1x128xf16>, %v: tensor<1x128xf16>, %e: tensor<1x128xf16>, %table: tensor<64x64xf32>, %pos: tensor<1xi32>, %wo: tensor<96x256xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 64, f16>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 64>)
    -> (tensor<1x96xf16>, tensor<1x128xf16>) attributes {attn.plan =
    "graph joined\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, chunks = 16\0Akernel 1: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 16, joined = 1\0Aop rope(%r): kernel = 0\0Aop kv_append(%c): kernel = 0\0Aop attention(%o): kernel = 0, reduce = push, finish = reader\0Aop add(%a): kernel = 0\0Aop linear(%y): kernel = 1, split = rows"} {
  %r = attn.rope %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %r, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.125}
  %a = attn.add %r, %e
  %y = attn.linear %o, [%wo]
  attn.return %y, %a
}
