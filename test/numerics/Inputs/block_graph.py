"""Writes the graph of a small attention block of several requests: REQUESTS PAGE (0: no pages) [WINDOW] [fp8]. `fp8`:
the cache is of that type, with one scale of K and one of V for each head."""
import sys

fp8 = "fp8" in sys.argv
if fp8:
    sys.argv.remove("fp8")

requests, page = map(int, sys.argv[1:3])
window = f", window = {sys.argv[3]}" if len(sys.argv) > 3 else ""
capacity = 400
pages = -(-(capacity + 4) // page) if page else 0
table = f"\n    %pages: tensor<{requests}x{pages}xi32>," if page else ""
scales = "\n    %k_scale: tensor<1xf32>, %v_scale: tensor<2xf32>," if fp8 else ""
by = " scales %k_scale, %v_scale" if fp8 else ""
print(
    f"""attn.graph @block(
    %x: tensor<{requests}x96xbf16>, %gain: tensor<96xbf16>,
    %w_q: tensor<128x96xbf16>, %w_k: tensor<64x96xbf16>, %w_v: tensor<64x96xbf16>, %w_o: tensor<96x128xbf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 32, {f'page = {page}, ' if page else ''}{'f8E4M3FN' if fp8 else 'bf16'}>,{table}{scales}
    %pos: tensor<{requests}xi32>, %slot: tensor<{requests}xi64>, %len: !attn.lengths<{requests}, capacity = {capacity}>)
    -> tensor<{requests}x96xbf16> {{
  %table = attn.rope_table {{base = 10000, dim = 32, positions = 512}}
  %n = attn.rms_norm %x, %gain {{eps = 1.0e-5}}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {{style = half_split}}
  %c = attn.kv_append %cache, %kr, %v at %slot{by}
  %o = attn.attention %qr, %c, %len {'pages %pages' if page else ''}{by} {{scale = 0.2{window}}}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}}"""
)
