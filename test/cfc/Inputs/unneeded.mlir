attn.graph @unneeded(%x: tensor<1x32xf16>, %w_q: tensor<16x32xf16>, %w_k: tensor<16x32xf16>, %w_v: tensor<16x32xf16>, %pos: tensor<1xi32>,
    %cache: !attn.kv_cache<heads = 1, dim = 16, f16>, %len: !attn.lengths<1, capacity = 64>) -> tensor<1x16xf16> {
  %q = attn.linear %x, [%w_q]
  %k = attn.linear %x, [%w_k]
  %v = attn.linear %x, [%w_v]
  %table = attn.rope_table {base = 10000, dim = 16, positions = 80}
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %o = attn.attention %qr, %cache, %len {scale = 0.25}
  attn.return %o
}
