// The attention block of Llama 3 8B where 4 requests try 32 tokens in all, as trees: `%starts` says which rows are whose,
// bit j of a row's `%mask` whether it sees its request's new token j. Rows lie in pages of 16 tokens.
attn.graph @llama3_8b_attention_speculation(
    %x: tensor<32x4096xbf16>, %gain: tensor<4096xbf16>,
    %w_q: tensor<4096x4096xbf16>, %w_k: tensor<1024x4096xbf16>, %w_v: tensor<1024x4096xbf16>,
    %w_o: tensor<4096x4096xbf16>,
    %cache: !attn.kv_cache<heads = 8, dim = 128, page = 16, bf16>,
    %pages: tensor<4x528xi32>, %starts: tensor<5xi32>, %mask: tensor<32xi64>,
    %pos: tensor<32xi32>, %slot: tensor<32xi64>, %len: !attn.lengths<4, capacity = 8192>)
    -> tensor<32x4096xbf16> {
  %table = attn.rope_table {base = 5.0e5, dim = 128, positions = 8448}
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {style = half_split}
  %c = attn.kv_append %cache, %kr, %v at %slot queries %starts
  %o = attn.attention %qr, %c, %len pages %pages queries %starts mask %mask {scale = 0.08838834764831845}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}
