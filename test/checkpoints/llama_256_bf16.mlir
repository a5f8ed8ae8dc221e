// The attention part of the checkpoint llama_256_bf16: its tensors by their names there.
attn.graph @llama_256_bf16(
    %x: tensor<1x256xbf16>,
    %gain: tensor<256xbf16> {attn.name = "model.layers.0.input_layernorm.weight"},
    %w_q: tensor<256x256xbf16> {attn.name = "model.layers.0.self_attn.q_proj.weight"},
    %w_k: tensor<256x256xbf16> {attn.name = "model.layers.0.self_attn.k_proj.weight"},
    %w_v: tensor<256x256xbf16> {attn.name = "model.layers.0.self_attn.v_proj.weight"},
    %w_o: tensor<256x256xbf16> {attn.name = "model.layers.0.self_attn.o_proj.weight"},
    %table: tensor<160x64xf32>,
    %cache: !attn.kv_cache<heads = 4, dim = 64, bf16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 136>)
    -> (tensor<1x256xbf16>, tensor<1x256xbf16>) {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z, %y
}
