// One of eight ranks of the attention block of Llama 3 70B: its result is a summand of all ranks' sum, which then gets
// the residual.
attn.graph @llama3_70b_rank(
    %x: tensor<1x8192xbf16>, %gain: tensor<8192xbf16>,
    %w_q: tensor<1024x8192xbf16>, %w_k: tensor<128x8192xbf16>, %w_v: tensor<128x8192xbf16>,
    %w_o: tensor<8192x1024xbf16>,
    %cache: !attn.kv_cache<heads = 1, dim = 128, bf16>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = 16384>)
    -> tensor<1x8192xbf16> {
  %table = attn.rope_table {base = 5.0e5, dim = 128, positions = 16384}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {scale = 0.08838834764831845}
  %y = attn.linear %o, [%w_o]
  attn.return %y
}
