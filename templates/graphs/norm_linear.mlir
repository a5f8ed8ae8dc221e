// A norm and the projections behind it.
attn.graph @norm_linear(
    %x: tensor<1x512xf16>, %gain: tensor<512xf16>, %w_a: tensor<512x512xf16>, %w_b: tensor<256x512xf16>)
    -> (tensor<1x512xf16> {attn.name = "a"}, tensor<1x256xf16> {attn.name = "b"}) {
  %n = attn.rms_norm %x, %gain {eps = 1.0e-5}
  %a, %b = attn.linear %n, [%w_a, %w_b]
  attn.return %a, %b
}
