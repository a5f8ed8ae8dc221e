// Attention over a cache that someone else fills, with the log-sum-exp that merging with other parts needs.
attn.graph @attention_only(
    %q: tensor<1x512xf16>, %cache: !attn.kv_cache<heads = 2, dim = 64, f16>,
    %len: !attn.lengths<1, capacity = 1024>)
    -> (tensor<1x512xf16> {attn.name = "o"}, tensor<1x8xf32> {attn.name = "lse"}) {
  %o, %lse = attn.attention %q, %cache, %len {scale = 0.125}
  attn.return %o, %lse
}
