// The second attention's cache is as it was given, and nobody appends to it.
attn.graph @two_attentions(
    %x: tensor<1x128xf16>, %w_q: tensor<128x128xf16>, %w_k: tensor<128x128xf16>, %w_v: tensor<128x128xf16>,
    %w_o: tensor<128x128xf16>, %a: !attn.kv_cache<heads = 2, dim = 64, f16>, %b: !attn.kv_cache<heads = 2, dim = 64, f16>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 256>) -> tensor<1x128xf16> {
  %q, %k, %v = attn.linear %x, [%w_q, %w_k, %w_v]
  %c = attn.kv_append %a, %k, %v at %slot
  %o = attn.attention %q, %c, %len {scale = 0.125}
  %p = attn.attention %q, %b, %len {scale = 0.125}
  %s = attn.add %o, %p
  %y = attn.linear %s, [%w_o]
  attn.return %y
}
