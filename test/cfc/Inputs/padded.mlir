// Weights whose rows and columns are no multiples of 64; of w_o each head has 80 columns, so it stays native.
attn.graph @padded(%x: tensor<1x160xf16>, %gain: tensor<160xf16>,
    %w_q: tensor<160x160xf16>, %w_k: tensor<80x160xf16>, %w_v: tensor<80x160xf16>, %w_o: tensor<160x160xf16>,
    %table: tensor<160x80xf32>, %cache: !attn.kv_cache<heads = 1, dim = 80, f16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 136>) -> tensor<1x160xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.1}
  %y = attn.linear %o, [%w_o]
  attn.return %y
}
