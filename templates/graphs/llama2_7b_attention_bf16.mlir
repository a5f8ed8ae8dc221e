// The attention block of Llama 2 7B for one new token, in bf16; llama2_7b_attention.mlir is the same in f16.
attn.graph @llama2_7b_attention_bf16(
    %x: tensor<1x4096xbf16>,             // hidden state of the new token
    %gain: tensor<4096xbf16>,
    %w_q: tensor<4096x4096xbf16>, %w_k: tensor<4096x4096xbf16>, %w_v: tensor<4096x4096xbf16>,
    %w_o: tensor<4096x4096xbf16>,
    %table: tensor<16384x128xf32>,       // cos | sin by position
    %cache: !attn.kv_cache<heads = 32, dim = 128, bf16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 16384>)
    -> tensor<1x4096xbf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.08838834764831845}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
