// More heads than clusters of four fit on a small machine, and little to compute for each.
attn.graph @many_heads(
    %x: tensor<1x512xf16>, %gain: tensor<512xf16>,
    %w_q: tensor<512x512xf16>, %w_k: tensor<512x512xf16>, %w_v: tensor<512x512xf16>, %w_o: tensor<512x512xf16>,
    %cache: !attn.kv_cache<heads = 32, dim = 16, f16>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 128>) -> tensor<1x512xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.25}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
