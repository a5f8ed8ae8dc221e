// Three requests whose cache has pages of 8 tokens.
attn.graph @paged(
    %q: tensor<3x128xf16>, %k: tensor<3x64xf16>, %v: tensor<3x64xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 32, page = 8, f16>,
    %pages: tensor<3x8xi32>, %slot: tensor<3xi64>, %len: !attn.lengths<3, capacity = 64>)
    -> tensor<3x128xf16> {
  %c = attn.kv_append %cache, %k, %v at %slot
  %o = attn.attention %q, %c, %len pages %pages {scale = 0.25}
  attn.return %o
}
