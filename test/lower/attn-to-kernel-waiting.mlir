// Sums for which clusters wait: as many finishers as there are items at most, and as rows can be shared out to.
// RUN: cfc-opt %s --attn-plan=plan=%inputs/waiting.plan --attn-to-kernel | FileCheck %s

// Two counts, then 4 partial sums of 256 f32: all of it zero between launches.
// CHECK: kernel.zero_bytes = 4352 : i64
// CHECK: kernel.finish {{.*}} over head by ordered attributes {counters = 0 : i64, finishers = 4 : i64, partials = 256 : i64}
attn.graph @small(%x: tensor<1x256xf16>, %gain: tensor<256xf16>, %w_q: tensor<256x256xf16>, %w_k: tensor<256x256xf16>,
    %w_v: tensor<256x256xf16>, %w_o: tensor<256x256xf16>, %cache: !attn.kv_cache<heads = 4, dim = 64, f16>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 64>) -> tensor<1x256xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
