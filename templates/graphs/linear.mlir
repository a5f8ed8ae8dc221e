// One projection alone.
attn.graph @linear(%x: tensor<1x512xf16>, %w: tensor<768x512xf16>) -> tensor<1x768xf16> {
  %y = attn.linear %x, [%w]
  attn.return %y
}
