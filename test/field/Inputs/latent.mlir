attn.graph @ratio(%q: tensor<1x576xf16>, %cache: !attn.kv_cache<heads = 1, dim = 576, v_dim = 512, f16>, %len: !attn.lengths<1, capacity = 64>) -> tensor<1x512xf16> {
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %o
}
