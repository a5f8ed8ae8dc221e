// RUN: cfc-opt %s --attn-to-kernel | FileCheck %s

// Where a cluster is one CTA, and items have as many rows of each weight, all weights are one stream: short ones would
// leave consumer warps, and their part of the ring, idle.
// CHECK-LABEL: kernel.func @stacked_k0(
// CHECK: kernel.for_items %[[I:.*]] over rows
// CHECK: %[[S:.*]] = kernel.load %{{.*}}, %{{.*}} rows [64, 16] at %[[I]] : {{.*}} -> <80x64xf16>
// CHECK: %[[M:.*]] = kernel.matmul %[[S]], %{{.*}} slots 16 : {{.*}} -> <80xf16>
// CHECK: %[[Q:.*]] = kernel.extract %[[M]] from 0 : {{.*}} -> <64xf16>
// CHECK: %[[K:.*]] = kernel.extract %[[M]] from 64 : {{.*}} -> <16xf16>
// CHECK: kernel.write %[[Q]], %{{.*}} at %[[I]]
// CHECK: kernel.write %[[K]], %{{.*}} at %[[I]]
attn.graph @stacked(%x: tensor<1x64xf16>, %w_q: tensor<256x64xf16>, %w_k: tensor<64x64xf16>)
    -> (tensor<1x256xf16>, tensor<1x64xf16>) attributes {attn.plan =
    "graph stacked\0Akernel 0: part = 1, warps = 8, ctas_per_sm = 1, ring_stages = 4, tile_columns = 64, rows_per_item = 64\0Aop linear(%q, %k): kernel = 0, split = rows"} {
  %q, %k = attn.linear %x, [%w_q, %w_k]
  attn.return %q, %k
}
