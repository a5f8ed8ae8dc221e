attn.graph @norms_beside_linear(
    %x: tensor<55x64xbf16>,
    %n_gain: tensor<64xf32>,
    %w_q: tensor<64x64xbf16>,
    %b_q: tensor<64xbf16>,
    %w_k: tensor<64x64xbf16>,
    %b_k: tensor<64xbf16>,
    %w_v: tensor<64x64xbf16>,
    %b_v: tensor<64xbf16>,
    %qn_gain: tensor<64xf32>,
    %kn_gain: tensor<64xf32>) -> (tensor<55x64xbf16>, tensor<55x64xbf16>, tensor<55x64xbf16>) {
  %n = attn.rms_norm %x, %n_gain {eps = 1.0e-5, offset = 1.0}
  %q = attn.linear %n, [%w_q] bias [%b_q] : tensor<55x64xbf16>
  %k = attn.linear %n, [%w_k] bias [%b_k] : tensor<55x64xbf16>
  %v = attn.linear %n, [%w_v] bias [%b_v] : tensor<55x64xbf16>
  %qn = attn.rms_norm %q, %qn_gain {eps = 1.0e-5}
  %kn = attn.rms_norm %k, %kn_gain {eps = 1.0e-5}
  attn.return %qn, %kn, %v
}
