// Two attention blocks in a row, each with its own weights and cache; position, slot and length are shared.
attn.graph @two_blocks(
    %x: tensor<1x256xf16>,
    %gain_0: tensor<256xf32>,
    %w_q_0: tensor<256x256xf16>, %w_k_0: tensor<256x256xf16>, %w_v_0: tensor<256x256xf16>,
    %w_o_0: tensor<256x256xf16>,
    %cache_0: !attn.kv_cache<heads = 4, dim = 64, f16>,
    %gain_1: tensor<256xf32>,
    %w_q_1: tensor<256x256xf16>, %w_k_1: tensor<256x256xf16>, %w_v_1: tensor<256x256xf16>,
    %w_o_1: tensor<256x256xf16>,
    %cache_1: !attn.kv_cache<heads = 4, dim = 64, f16>,
    %table: tensor<256x64xf32>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 256>)
    -> tensor<1x256xf16> {
  %n_0 = attn.rms_norm %x, %gain_0 {eps = 1.0e-5}
  %q_0, %k_0, %v_0 = attn.linear %n_0, [%w_q_0, %w_k_0, %w_v_0]
  %qr_0, %kr_0 = attn.rope %q_0, %k_0, %table at %pos {style = half_split}
  %c_0 = attn.kv_append %cache_0, %kr_0, %v_0 at %slot
  %o_0 = attn.attention %qr_0, %c_0, %len {scale = 0.125}
  %y_0 = attn.linear %o_0, [%w_o_0]
  %z_0 = attn.add %x, %y_0

  %n_1 = attn.rms_norm %z_0, %gain_1 {eps = 1.0e-5}
  %q_1, %k_1, %v_1 = attn.linear %n_1, [%w_q_1, %w_k_1, %w_v_1]
  %qr_1, %kr_1 = attn.rope %q_1, %k_1, %table at %pos {style = half_split}
  %c_1 = attn.kv_append %cache_1, %kr_1, %v_1 at %slot
  %o_1 = attn.attention %qr_1, %c_1, %len {scale = 0.125}
  %y_1 = attn.linear %o_1, [%w_o_1]
  %z_1 = attn.add %z_0, %y_1
  attn.return %z_1
}
