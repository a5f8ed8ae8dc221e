// The attention part of the checkpoint llama_320_f16, with a generated rope table.
attn.graph @llama_320_f16(
    %x: tensor<1x320xf16>,
    %gain: tensor<320xf16> {attn.name = "model.layers.0.input_layernorm.weight"},
    %w_q: tensor<384x320xf16> {attn.name = "model.layers.0.self_attn.q_proj.weight"},
    %w_k: tensor<128x320xf16> {attn.name = "model.layers.0.self_attn.k_proj.weight"},
    %w_v: tensor<128x320xf16> {attn.name = "model.layers.0.self_attn.v_proj.weight"},
    %w_o: tensor<320x384xf16> {attn.name = "model.layers.0.self_attn.o_proj.weight"},
    %cache: !attn.kv_cache<heads = 2, dim = 64, f16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 136>)
    -> (tensor<1x320xf16>, tensor<1x320xf16>) {
  %table = attn.rope_table {base = 5.0e5, dim = 64, positions = 160}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.125}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z, %y
}
