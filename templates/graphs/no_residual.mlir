// An attention block whose caller adds the residual.
attn.graph @no_residual(
    %x: tensor<1x256xf16>,
    %gain: tensor<256xf32>,
    %w_q: tensor<256x256xf16>, %w_k: tensor<256x256xf16>, %w_v: tensor<256x256xf16>,
    %w_o: tensor<256x256xf16>,
    %table: tensor<256x64xf32>,
    %cache: !attn.kv_cache<heads = 4, dim = 64, f16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 256>)
    -> tensor<1x256xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%w_o]
  attn.return %y
}
