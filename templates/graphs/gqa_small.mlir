// Grouped queries: eight query heads of 64 share two KV heads; the projections have biases, as Qwen's do, and
// the hidden size is not heads * dim.
attn.graph @gqa_small(
    %x: tensor<1x320xbf16>,
    %gain: tensor<320xbf16>,
    %w_q: tensor<512x320xbf16>, %w_k: tensor<128x320xbf16>, %w_v: tensor<128x320xbf16>,
    %b_q: tensor<512xbf16>, %b_k: tensor<128xbf16>, %b_v: tensor<128xbf16>,
    %w_o: tensor<320x512xbf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 64, bf16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 256>)
    -> tensor<1x320xbf16> {
  %table = attn.rope_table {base = 10000, dim = 64, positions = 256}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-6}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v] bias [%b_q, %b_k, %b_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = interleaved}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
