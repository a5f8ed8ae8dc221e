// RUN: cfc-opt %s -split-input-file --attn-to-kernel | FileCheck %s

// stacked = 1: an item has rows of one of the weights, which one its number says; so it has biases and results.
// CHECK-LABEL: kernel.func @panels_k0(
// CHECK-SAME: axes(rows = 5 @grid, part = 2 @cta
// CHECK: %[[N:.*]] = kernel.rms_norm
// CHECK: kernel.for_items %[[I:.*]] over rows
// CHECK: %[[S:.*]] = kernel.load %{{.*}}, %{{.*}}, %{{.*}} rows [64] panels at %[[I]] : memref<192x256xbf16>, memref<64x256xbf16>, memref<64x256xbf16> -> <64x256xbf16, part: split(1)>
// CHECK: %[[M:.*]] = kernel.matmul %[[S]], %[[N]] slots 16 parts 2 : {{.*}} -> <64xf32, part: partial(sum)>
// CHECK: %[[R:.*]] = kernel.exchange {{ ?}}reduce_scatter %[[M]] over "part" by {{ ?}}async : {{.*}} -> <64xf32, part: split(0)>
// CHECK: %[[B:.*]] = kernel.read %{{.*}}, %{{.*}}, %{{.*}} at %[[I]] : memref<192xbf16>, memref<64xbf16>, memref<64xbf16> -> <64xbf16, part: split(0)>
// CHECK: %[[Y:.*]] = kernel.elementwise add %[[R]], %[[B]] : {{.*}} -> <64xbf16, part: split(0)>
// CHECK: kernel.write %[[Y]], %{{.*}}, %{{.*}}, %{{.*}} at %[[I]] : <64xbf16, part: split(0)>, memref<192xbf16>, memref<64xbf16>, memref<64xbf16>
// CHECK-NOT: kernel.write
attn.graph @panels(%x: tensor<1x256xbf16>, %gain: tensor<256xf32>, %w_q: tensor<192x256xbf16>, %w_k: tensor<64x256xbf16>, %w_v: tensor<64x256xbf16>,
    %b_q: tensor<192xbf16>, %b_k: tensor<64xbf16>, %b_v: tensor<64xbf16>)
    -> (tensor<1x192xbf16>, tensor<1x64xbf16>, tensor<1x64xbf16>) attributes {attn.plan =
    "graph panels\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64, stacked = 1\0Aop rms_norm(%n): kernel = 0\0Aop linear(%q, %k, %v): kernel = 0, split = columns, reduce = async"} {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v] bias [%b_q, %b_k, %b_v]
  attn.return %q, %k, %v
}

// -----

// Of several tokens it has columns of one result. Here each CTA takes rows of the panel, rounded at once.
// CHECK-LABEL: kernel.func @tokens_k0(
// CHECK-SAME: axes(rows = 8 @grid, part = 2 @cta
// CHECK: kernel.for_items %[[I:.*]] over rows
// CHECK: kernel.load %{{.*}}, %{{.*}} rows [32] panels at %[[I]] : {{.*}} -> <32x64xf16, part: split(0)>
// CHECK: %[[M:.*]] = kernel.matmul {{.*}} -> <32x3xf16, part: split(0)>
// CHECK: kernel.write %[[M]], %{{.*}}, %{{.*}} columns at %[[I]] : <32x3xf16, part: split(0)>, memref<3x192xf16>, memref<3x64xf16>
attn.graph @tokens(%x: tensor<3x64xf16>, %w_q: tensor<192x64xf16>, %w_k: tensor<64x64xf16>)
    -> (tensor<3x192xf16>, tensor<3x64xf16>) attributes {attn.plan =
    "graph tokens\0Akernel 0: part = 2, warps = 4, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 32, stacked = 1\0Aop linear(%q, %k): kernel = 0, split = rows"} {
  %q, %k = attn.linear %x, [%w_q, %w_k]
  attn.return %q, %k
}
