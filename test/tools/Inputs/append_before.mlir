// The query's projection comes last, so the append is in the launch before the attention's where linears are apart.
attn.graph @append_before(
    %x: tensor<1x128xf16>, %w_q: tensor<128x128xf16>, %w_k: tensor<128x128xf16>, %w_v: tensor<128x128xf16>,
    %w_o: tensor<128x128xf16>, %cache: !attn.kv_cache<heads = 2, dim = 64, f16>,
    %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 256>) -> tensor<1x128xf16> {
  %k, %v = attn.linear %x, [%w_k, %w_v]
  %c = attn.kv_append %cache, %k, %v at %slot
  %q = attn.linear %x, [%w_q]
  %o = attn.attention %q, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%w_o]
  attn.return %y
}
