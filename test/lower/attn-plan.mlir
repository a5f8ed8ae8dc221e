// The plan is text with named keys, for each kernel and each operation. The details of the choice are in
// PlanTest; here: every key is there, a seed draws, a file's choices stay.
// RUN: cfc-opt %s --attn-plan | FileCheck %s
// RUN: cfc-opt %s --attn-plan=plan=random:7 | FileCheck %s --check-prefix=RANDOM
// RUN: cfc-opt %s --attn-plan=plan=random:7 > %t.a && cfc-opt %s --attn-plan=plan=random:7 > %t.b && cmp %t.a %t.b
// RUN: cfc-opt %s --attn-plan=plan=%inputs/attn-plan.plan | FileCheck %s --check-prefix=GIVEN
// RUN: cfc-opt %s --attn-fuse=cut-after=o --attn-plan | FileCheck %s --check-prefix=CUT
// RUN: cfc-opt %s --attn-plan=machine=h100 | FileCheck %s

// CHECK: attn.plan = "graph small hash = {{[0-9a-f]+}}
// CHECK-SAME: kernel 0: part = {{[0-9]+}}, warps = {{4|8|16}}, ctas_per_sm = {{[123]}}, ring_stages = {{[0-9]+}}, in_flight = {{[0-9]+}}, prefetch = {{[0-9]+}}, prefetch_later = {{[0-9]+}}, tile_columns = {{[0-9]+}}
// CHECK-NOT: kernel 1
// CHECK-SAME: op rms_norm(%n): kernel = 0
// CHECK-SAME: op linear(%q, %k, %v): kernel = 0, split =
// CHECK-SAME: op kv_append(%c): kernel = 0
// CHECK-SAME: op attention(%o): kernel = 0, reduce =
// CHECK-SAME: op linear(%y): kernel = 0, finish = {{ordered|waiting}}

// RANDOM: attn.plan = "graph small hash = {{[0-9a-f]+}}
// RANDOM-SAME: kernel 0: part =

// GIVEN: kernel 0: part = 4, warps = 8, ctas_per_sm = 1
// GIVEN-SAME: split = columns, reduce = butterfly
// GIVEN-SAME: op attention(%o): kernel = 0, reduce = push

// The output projection in a kernel of its own has blocks of rows as items.
// CUT: kernel 0: {{.*}}kernel 1: {{[^:]*}}rows_per_item =
// CUT-SAME: op attention(%o): kernel = 0
// CUT-SAME: op linear(%y): kernel = 1, split = rows
attn.graph @small(%x: tensor<1x256xf16>, %gain: tensor<256xf16>, %w_q: tensor<256x256xf16>, %w_k: tensor<256x256xf16>,
    %w_v: tensor<256x256xf16>, %w_o: tensor<256x256xf16>, %cache: !attn.kv_cache<heads = 4, dim = 64, f16>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 256>) -> tensor<1x256xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%w_o]
  attn.return %y
}
