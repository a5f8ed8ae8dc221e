"""Writes the graph of an attention of several requests: REQUESTS HEADS GROUP DIM PAGE (0: no pages) [DIM_OF_V]."""
import sys

requests, heads, group, dim, page = map(int, sys.argv[1:6])
v_dim = int(sys.argv[6]) if len(sys.argv) > 6 else dim
q, kv, v, o = heads * group * dim, heads * dim, heads * v_dim, heads * group * v_dim
capacity = 300
pages = -(-(capacity + 4) // page) if page else 0
cache = f"!attn.kv_cache<heads = {heads}, dim = {dim}, {f'v_dim = {v_dim}, ' if v_dim != dim else ''}{f'page = {page}, ' if page else ''}f16>"
table = f", %pages: tensor<{requests}x{pages}xi32>" if page else ""
print(
    f"""attn.graph @batch(%q: tensor<{requests}x{q}xf16>, %k: tensor<{requests}x{kv}xf16>, %v: tensor<{requests}x{v}xf16>,
    %x: tensor<{requests}x{o}xf16>, %pos: tensor<{requests}xi32>, %cache: {cache}, %slot: tensor<{requests}xi64>,
    %len: !attn.lengths<{requests}, capacity = {capacity}>{table})
    -> (tensor<{requests}x{o}xf16>, tensor<{requests}x{heads * group}xf32>) {{
  %t = attn.rope_table {{base = 10000.0, dim = {dim}, positions = 512}}
  %qr, %kr = attn.rope %q, %k, %t at %pos {{style = half_split}}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o, %lse = attn.attention %qr, %c, %len {'pages %pages ' if page else ''}{{scale = 0.2}}
  %y = attn.add %o, %x
  attn.return %y, %lse
}}"""
)
