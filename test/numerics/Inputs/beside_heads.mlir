// An addition of rows that three heads do not divide, beside the attention.
attn.graph @beside_heads(%x: tensor<2x8xf16>, %q: tensor<2x48xf16>, %cache: !attn.kv_cache<heads = 3, dim = 16, f16>,
                         %len: !attn.lengths<2, capacity = 64>) -> (tensor<2x8xf16>, tensor<2x48xf16>) {
  %n = attn.add %x, %x
  %o = attn.attention %q, %cache, %len {scale = 0.25}
  attn.return %n, %o
}
