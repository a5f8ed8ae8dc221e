attn.graph @odd(%x: tensor<1x100xf16>, %w: tensor<64x100xf16>) -> tensor<1x64xf16> {
  %y = attn.linear %x, [%w]
  attn.return %y
}
