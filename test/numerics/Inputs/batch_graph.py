"""Writes the graph of an attention of several requests: REQUESTS HEADS GROUP DIM PAGE (0: no pages) [DIM_OF_V] [fp8 [ACT [OPTIONS]]].
`fp8`: the cache is of that type, with a scale of K for each head and one of V; ACT is that of the activations."""
import sys

fp8 = sys.argv.index("fp8") if "fp8" in sys.argv else 0
more = sys.argv[fp8 + 1 :] if fp8 else []
act, options = more[0] if more else "f16", more[1] if len(more) > 1 else ""
numbers = list(map(int, sys.argv[1:fp8] if fp8 else sys.argv[1:]))
requests, heads, group, dim, page = numbers[:5]
v_dim = numbers[5] if len(numbers) > 5 else dim
q, kv, v, o = heads * group * dim, heads * dim, heads * v_dim, heads * group * v_dim
capacity = 300
pages = -(-(capacity + 4) // page) if page else 0
cache = f"!attn.kv_cache<heads = {heads}, dim = {dim}, {f'v_dim = {v_dim}, ' if v_dim != dim else ''}{f'page = {page}, ' if page else ''}{'f8E4M3FN' if fp8 else 'f16'}>"
scales = f", %k_scale: tensor<{heads}xf32>, %v_scale: tensor<1xf32>" if fp8 else ""
by = " scales %k_scale, %v_scale" if fp8 else ""
table = f", %pages: tensor<{requests}x{pages}xi32>" if page else ""
print(
    f"""attn.graph @batch(%q: tensor<{requests}x{q}x{act}>, %k: tensor<{requests}x{kv}x{act}>, %v: tensor<{requests}x{v}x{act}>,
    %x: tensor<{requests}x{o}x{act}>, %pos: tensor<{requests}xi32>, %cache: {cache}, %slot: tensor<{requests}xi64>,
    %len: !attn.lengths<{requests}, capacity = {capacity}>{table}{scales})
    -> (tensor<{requests}x{o}x{act}>, tensor<{requests}x{heads * group}xf32>) {{
  %t = attn.rope_table {{base = 10000.0, dim = {dim}, positions = 512}}
  %qr, %kr = attn.rope %q, %k, %t at %pos {{style = half_split}}
  %c = attn.kv_append %cache, %kr, %v at %slot{by}
  %o, %lse = attn.attention %qr, %c, %len {'pages %pages' if page else ''}{by} {{scale = 0.2{options}}}
  %y = attn.add %o, %x
  attn.return %y, %lse
}}"""
)
