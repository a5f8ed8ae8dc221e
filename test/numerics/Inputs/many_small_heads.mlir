// 71 heads on one KV head: so many that at few tokens rounding takes some beyond the usual limit.
attn.graph @many_small_heads(
    %x: tensor<1x128xf16>, %gain: tensor<128xf32>,
    %w_q: tensor<2272x128xf16>, %w_k: tensor<32x128xf16>, %w_v: tensor<32x128xf16>,
    %table: tensor<64x32xf32>, %sinks: tensor<71xf32>,
    %cache: !attn.kv_cache<heads = 1, dim = 32, f16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 64>)
    -> (tensor<1x2272xf16>, tensor<1x2272xf16>) {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.177}
  %capped = attn.attention %qr, %c, %len sinks %sinks {scale = 0.177, softcap = 3.0}
  attn.return %o, %capped
}
