attn.graph @two_requests(
    %x: tensor<2x128xf16>, %gain: tensor<128xf16>, %w_q: tensor<128x128xf16>, %w_k: tensor<64x128xf16>,
    %w_v: tensor<64x128xf16>, %w_o: tensor<128x128xf16>, %cache: !attn.kv_cache<heads = 2, dim = 32, page = 16, f16>,
    %pages: tensor<2x16xi32>, %slot: tensor<2xi64>, %len: !attn.lengths<2, capacity = 256>) -> tensor<2x128xf16> {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %c = attn.kv_append %cache, %k, %v at %slot
  %o = attn.attention %q, %c, %len pages %pages {scale = 0.17677669529663687}
  %y = attn.linear %o, [%w_o]
  attn.return %y
}
