attn.graph @columns(%x: tensor<1x512xf16>, %gain: tensor<512xf16>, %w_q: tensor<128x512xf16>, %w_k: tensor<64x512xf16>, %w_v: tensor<64x512xf16>, %w_o: tensor<512x128xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 32, f16>, %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 300>) -> tensor<1x512xf16> {
  %table = attn.rope_table {base = 5.0e5, dim = 32, positions = 364}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.1767766952966369}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
