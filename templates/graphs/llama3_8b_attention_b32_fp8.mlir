// The attention block of Llama 3 8B for 32 requests whose rows lie in pages of 64 tokens, in f8E4M3FN with a scale of K and of
// V for each head: half the bytes of the caches in bf16.
attn.graph @llama3_8b_attention_b32_fp8(
    %x: tensor<32x4096xbf16>, %gain: tensor<4096xbf16>,
    %w_q: tensor<4096x4096xbf16>, %w_k: tensor<1024x4096xbf16>, %w_v: tensor<1024x4096xbf16>,
    %w_o: tensor<4096x4096xbf16>,
    %cache: !attn.kv_cache<heads = 8, dim = 128, page = 64, f8E4M3FN>,
    %k_scale: tensor<8xf32>, %v_scale: tensor<8xf32>,
    %pages: tensor<32x132xi32>,           // pages of each request, in order
    %pos: tensor<32xi32>, %slot: tensor<32xi64>, %len: !attn.lengths<32, capacity = 8192>)
    -> tensor<32x4096xbf16> {
  %table = attn.rope_table {base = 5.0e5, dim = 128, positions = 8192}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot scales %k_scale, %v_scale
  %o = attn.attention %qr, %c, %len pages %pages scales %k_scale, %v_scale {scale = 0.08838834764831845}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
