// Each graph becomes the kernels of its plan: what is whole in the prologue, slices in the items, sums over the
// items in a finish. What the planner is free to choose is left open below.
// RUN: cfc-opt %s -split-input-file --attn-plan --attn-to-kernel | FileCheck %s

// One block of rows an item; the last item overhangs. Nothing is exchanged where nobody needs whole slices.
// CHECK: module attributes {kernel.workspace_bytes = 0 : i64, kernel.zero_bytes = 0 : i64}
// CHECK-LABEL: kernel.func @bias_k0(
// CHECK-SAME: memref<1000x512xbf16> {kernel.entry = 2 : i32, kernel.name = "w"}
// CHECK-SAME: {kernel.entry = 4 : i32, kernel.name = "result0", kernel.output}
// CHECK-SAME: axes(rows = {{[0-9]+}} @grid, part = {{[0-9]+}} @cta, warp = {{4|8|16}} @warp)
// CHECK-NEXT: %[[X:.*]] = kernel.read {{.*}} -> <512xbf16>
// CHECK: kernel.for_items %[[I:.*]] over rows
// CHECK: kernel.load %{{.*}} rows [{{[0-9]+}}] at %[[I]]
// CHECK: kernel.matmul %{{.*}}, %[[X]] slots 16 {{.*}}xf32{{.*}}>
// CHECK-NOT: kernel.exchange
// CHECK: %[[B:.*]] = kernel.read {{.*}} at %[[I]] : memref<1000xbf16> -> <{{[0-9]+}}xbf16{{.*}}>
// CHECK: kernel.elementwise add %{{.*}}, %[[B]]
// CHECK: %[[R:.*]] = kernel.read {{.*}} at %[[I]] : memref<1000xbf16>
// CHECK: kernel.elementwise add %[[R]]
// CHECK: kernel.write {{.*}} at %[[I]]
attn.graph @bias(%x: tensor<1x512xbf16>, %r: tensor<1x1000xbf16>, %w: tensor<1000x512xbf16>, %b: tensor<1000xbf16>)
    -> tensor<1x1000xbf16> {
  %z = attn.linear %x, [%w] bias [%b]
  %y = attn.add %r, %z
  attn.return %y
}
// -----
// Nothing but whole values: no items. A sum of memory is read whole where a norm needs it so.
// CHECK-LABEL: kernel.func @norm_k0(
// CHECK-SAME: axes(part = 1 @cta
// CHECK-NOT: kernel.for_items
// CHECK: kernel.elementwise add {{.*}} -> <250xbf16>
// CHECK: kernel.rms_norm
// CHECK: kernel.write {{.*}} : <250xbf16>, memref<250xbf16>
// CHECK: kernel.return
attn.graph @norm(%a: tensor<1x250xbf16>, %b: tensor<1x250xf16>, %g: tensor<250xf32>) -> tensor<1x250xbf16> {
  %z = attn.add %a, %b
  %n = attn.rms_norm %z, %g {eps = 1.0e-5}
  attn.return %n
}
// -----
// The generated table is the last entry. Blocks of rows hold whole heads.
// CHECK-LABEL: kernel.func @rope_k0(
// CHECK-SAME: kernel.entry = 5 : i32, kernel.name = "generated.table"
// CHECK: kernel.rope interleaved %{{.*}} position
attn.graph @rope(%q: tensor<1x240xf16>, %k: tensor<1x120xf16>, %pos: tensor<1xi32>)
    -> (tensor<1x240xf16>, tensor<1x120xf16>) {
  %table = attn.rope_table {base = 10000, dim = 24, positions = 64}
  %a, %b = attn.rope %q, %k, %table at %pos {style = interleaved}
  attn.return %a, %b
}
// -----
// The whole block. What is appended has the cache's type.
// CHECK: module attributes {kernel.workspace_bytes = {{[1-9][0-9]*}} : i64, kernel.zero_bytes = {{[1-9][0-9]*}} : i64}
// CHECK-LABEL: kernel.func @block_k0(
// CHECK-SAME: axes(head = 2 @grid
// CHECK: %[[N:.*]] = kernel.rms_norm
// CHECK: kernel.for_items %[[H:.*]] over head
// CHECK: kernel.load %{{.*}}, %{{.*}}, %{{.*}} rows [128, 64, 64] at %[[H]]
// CHECK: kernel.matmul %{{.*}}, %[[N]] slots 16
// CHECK: %[[A:.*]] = kernel.exchange {{gather|reduce}}
// CHECK: %[[Q:.*]] = kernel.extract %[[A]] from 0
// CHECK: kernel.append %[[K:.*]], %[[V:.*]] to {{.*}} !kernel.tile<64xbf16>, !kernel.tile<64xbf16>
// CHECK: kernel.load_cache {{.*}} slot {{.*}} at %[[H]] bound 64
// CHECK: %[[P:.*]] = kernel.attend %{{.*}} -> <2x66xf32, part: partial(softmax)>
// CHECK: %[[E:.*]] = kernel.exchange reduce %[[P]]
// CHECK: kernel.attend_new %[[E]], %{{.*}}, %[[K]], %[[V]]
// CHECK: %[[O:.*]], %[[L:.*]] = kernel.normalize
// CHECK: kernel.write %[[L]], %{{.*}} at %[[H]] : <2xf32>, memref<4xf32>
// CHECK: kernel.load %{{.*}} rows [96] columns at %[[H]]
// CHECK: kernel.matmul %{{.*}}, %[[O]] slots 1 {{.*}}head: partial(sum)>
// CHECK: kernel.finish {{.*}} over head by ordered attributes {counters = 0 : i64, {{(finishers = 2 : i64, )?}}partials = 256 : i64{{(, pieces = 2 : i64)?}}}
// CHECK: kernel.cast {{.*}}<96xf16, part: split(0)>
// CHECK: kernel.elementwise add
// CHECK: kernel.write {{.*}} : <96xf16, part: split(0)>, memref<96xf16>
attn.graph @block(%x: tensor<1x96xf16>, %g: tensor<96xf16>, %wq: tensor<256x96xf16>, %wk: tensor<128x96xf16>,
    %wv: tensor<128x96xf16>, %wo: tensor<96x256xf16>, %cache: !attn.kv_cache<heads = 2, dim = 64, bf16>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 64>) -> (tensor<1x96xf16>, tensor<1x4xf32>) {
  %n = attn.rms_norm %x, %g {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%wq, %wk, %wv]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o, %lse = attn.attention %q, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%wo]
  %z = attn.add %x, %y
  attn.return %z, %lse
}
// -----
// In kernels of their own: values travel through the workspace, and the order of sums stays (2 slots: KV heads).
// Each is a launch: a cooperative one, and what comes behind it, take longer than early starts.
// CHECK-LABEL: kernel.func @cut_k0(
// CHECK-SAME: memref<128xf16> {kernel.name = "k", kernel.workspace = {{[0-9]+}} : i64}
// CHECK: kernel.write {{.*}} : <{{.*}}>, memref<128xf16>
// CHECK-LABEL: kernel.func @cut_k1(
// CHECK-SAME: memref<{{256xf16|2x[0-9]+x2x66xf32}}> {kernel.name = "o{{(.softmax)?}}", kernel.workspace = {{[0-9]+}} : i64}
// CHECK: kernel.read %{{.*}} at %{{.*}} : memref<128xf16> -> <64xf16>
// CHECK: kernel.attend_new
// CHECK-LABEL: kernel.func @cut_k2(
// CHECK: kernel.matmul {{.*}} slots 2
attn.graph @cut(%q: tensor<1x256xf16>, %x: tensor<1x96xf16>, %wk: tensor<128x96xf16>, %wv: tensor<128x96xf16>,
    %wo: tensor<96x256xf16>, %cache: !attn.kv_cache<heads = 2, dim = 64, f16>, %slot: tensor<1xi64>,
    %len: !attn.lengths<1, capacity = 64>) -> tensor<1x96xf16> {
  %k, %v = attn.linear %x, [%wk, %wv] {attn.kernel = 0}
  %c = attn.kv_append %cache, %k, %v at %slot {attn.kernel = 0}
  %o = attn.attention %q, %c, %len {attn.kernel = 1, scale = 0.125}
  %y = attn.linear %o, [%wo] {attn.kernel = 2}
  attn.return %y
}
