attn.graph @ratio(%q: tensor<1x160xf16>, %cache: !attn.kv_cache<heads = 2, dim = 32, f16>, %len: !attn.lengths<1, capacity = 64>) -> tensor<1x160xf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %o
}
