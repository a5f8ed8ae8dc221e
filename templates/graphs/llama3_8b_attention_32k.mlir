// The attention block of Llama 3 8B for one new token behind up to 32768.
attn.graph @llama3_8b_attention_32k(
    %x: tensor<1x4096xbf16>, %gain: tensor<4096xbf16>,
    %w_q: tensor<4096x4096xbf16>, %w_k: tensor<1024x4096xbf16>, %w_v: tensor<1024x4096xbf16>,
    %w_o: tensor<4096x4096xbf16>,
    %cache: !attn.kv_cache<heads = 8, dim = 128, bf16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 32768>)
    -> tensor<1x4096xbf16> {
  %table = attn.rope_table {base = 5.0e5, dim = 128, positions = 32768}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.08838834764831845}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
