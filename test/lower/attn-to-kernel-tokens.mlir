// RUN: cfc-opt %s -split-input-file --attn-to-kernel | FileCheck %s

// Several tokens: each CTA has some columns of all, sums up the squares of whole rows of some, and gets the sums of some
// rows of each stacked weight.
// CHECK-LABEL: kernel.func @columns_k0(
// CHECK-SAME: memref<3x256xf16>
// CHECK: kernel.read %{{.*}} rows : {{.*}} -> <4x256xf16, part: split(0)>
// CHECK: kernel.rms_scale
// CHECK: gather {{.*}} -> <4xf32>
// CHECK: kernel.extract {{.*}} -> <3xf32>
// CHECK: kernel.read %{{.*}} rows : {{.*}} -> <3x256xf16, part: split(1)>
// CHECK: %[[N:.*]] = kernel.rms_norm %{{.*}}, %{{.*}} scale
// CHECK: kernel.for_items %[[I:.*]] over rows
// CHECK: %[[S:.*]] = kernel.load %{{.*}}, %{{.*}} rows [64, 16] at %[[I]] : {{.*}} -> <80x256xf16, part: split(1)>
// CHECK: kernel.matmul %[[S]], %[[N]] slots 16 parts 2 : {{.*}} -> <80x3xf32, part: partial(sum)>
// CHECK: reduce_scatter {{.*}} by {{ ?}}async : {{.*}} -> <80x3xf32, part: split(0)>
// CHECK: kernel.extract %{{.*}} from 0 : {{.*}} -> <64x3xf32, part: split(0)>
// CHECK: kernel.extract %{{.*}} from 192 : {{.*}} -> <16x3xf32, part: split(0)>
// CHECK: kernel.write %{{.*}}, %{{.*}} columns at %[[I]]
attn.graph @columns(%x: tensor<3x256xf16>, %gain: tensor<256xf32>, %w_q: tensor<256x256xf16>, %w_k: tensor<64x256xf16>)
    -> (tensor<3x256xf16>, tensor<3x64xf16>) attributes {attn.plan =
    "graph columns\0Akernel 0: part = 2, warps = 8, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64\0Aop rms_norm(%n): kernel = 0\0Aop linear(%q, %k): kernel = 0, split = columns, reduce = async"} {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k = attn.linear %n, [%w_q, %w_k]
  attn.return %q, %k
}

// -----

// Without linears an item is a token.
// CHECK-LABEL: kernel.func @tokens_k0(
// CHECK: axes(token = 3 @grid
// CHECK: kernel.for_items %[[I:.*]] over token
// CHECK: kernel.read %{{.*}} at %[[I]] : memref<192xf16> -> <64xf16>
// CHECK: kernel.rms_norm {{.*}} : !kernel.tile<64xf16>
// CHECK: kernel.rope {{.*}} position %{{.*}} at %[[I]]
// CHECK: kernel.write %{{.*}} at %[[I]]
attn.graph @tokens(%x: tensor<3x64xf16>, %gain: tensor<64xf32>, %table: tensor<9x16xf32>, %pos: tensor<3xi32>)
    -> tensor<3x64xf16> attributes {attn.plan =
    "graph tokens\0Akernel 0: part = 1, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64\0Aop rms_norm(%n): kernel = 0\0Aop rope(%r): kernel = 0"} {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %r = attn.rope %n, %table at %pos {style = half_split}
  attn.return %r
}
