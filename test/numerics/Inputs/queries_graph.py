"""Writes a graph of attention of several query tokens a request: REQUESTS TOKENS HEADS GROUP DIM [page=N] [window=N]
[v_dim=N] [mask] [lse] [bias] [sinks] [stored] [block] [fp8]. `stored`: the cache holds the new tokens already; `block`: projections,
rotation and residual around it; `fp8`: the cache is of that type, with a scale of K for each head and one of V."""
import sys

requests, tokens, heads, group, dim = map(int, sys.argv[1:6])
words = dict((word + "=1").split("=")[:2] for word in sys.argv[6:])
page, v_dim, window = int(words.get("page", 0)), int(words.get("v_dim", dim)), words.get("window")
q_width, k_width, v_width, o_width = heads * group * dim, heads * dim, heads * v_dim, heads * group * v_dim
hidden, bound = 64, 1024
cache = f"!attn.kv_cache<heads = {heads}, dim = {dim}" + (f", v_dim = {v_dim}" if v_dim != dim else "")
cache += (f", page = {page}" if page else "") + (", f8E4M3FN>" if "fp8" in words else ", f16>")
scales = " scales %k_scale, %v_scale" if "fp8" in words else ""
arguments = [f"%cache: {cache}", f"%len: !attn.lengths<{requests}, capacity = {bound}>", f"%starts: tensor<{requests + 1}xi32>"]
if scales:
    arguments += [f"%k_scale: tensor<{heads}xf32>", "%v_scale: tensor<1xf32>"]
lines, source, clauses = [], "%cache", ""
if "block" in words:
    arguments += [f"%x: tensor<{tokens}x{hidden}xf16>", f"%gain: tensor<{hidden}xf16>", f"%pos: tensor<{tokens}xi32>",
                  f"%table: tensor<4096x{dim}xf32>", f"%w_o: tensor<{hidden}x{o_width}xf16>"]
    arguments += [f"%w_{n}: tensor<{w}x{hidden}xf16>" for n, w in (("q", q_width), ("k", k_width), ("v", v_width))]
    lines += ["%n = attn.rms_norm %x, %gain {eps = 1.0e-5}", "%a, %b, %v = attn.linear %n, [%w_q, %w_k, %w_v]",
              "%q, %k = attn.rope %a, %b, %table at %pos {style = half_split}"]
else:
    arguments += [f"%q: tensor<{tokens}x{q_width}xf16>"]
    if "stored" not in words:
        arguments += [f"%k: tensor<{tokens}x{k_width}xf16>", f"%v: tensor<{tokens}x{v_width}xf16>"]
if "stored" not in words:
    arguments += [f"%slot: tensor<{tokens}xi64>"]
    lines += [f"%c = attn.kv_append %cache, %k, %v at %slot queries %starts{scales}"]
    source = "%c"
if page:
    arguments += [f"%pages: tensor<{requests}x{-(-(bound + tokens + 3) // page)}xi32>"]
    clauses += " pages %pages"
clauses += " queries %starts"
if "mask" in words:
    arguments += [f"%mask: tensor<{tokens}xi64>"]
    clauses += " mask %mask"
if "sinks" in words:
    arguments += [f"%sinks: tensor<{heads * group}xf32>"]
    clauses += " sinks %sinks"
names = "%o, %lse" if "lse" in words else "%o"
options = "scale = 0.2" + (f", window = {window}" if window else "")
line = f"{names} = attn.attention %q, {source}, %len{clauses}{scales} {{{options}}}"
if "bias" in words:
    line += """ bias(%head, %query, %key) {
    %d = arith.subi %key, %query : index
    %i = arith.index_cast %d : index to i32
    %f = arith.sitofp %i : i32 to f32
    %slope = arith.constant 0.05 : f32
    %p = arith.mulf %slope, %f : f32
    attn.yield %p
  }"""
lines += [line]
result = "%o"
results = [(result, f"tensor<{tokens}x{o_width}xf16>")]
if "block" in words:
    lines += ["%y = attn.linear %o, [%w_o]", "%z = attn.add %x, %y"]
    results = [("%z", f"tensor<{tokens}x{hidden}xf16>")]
if "lse" in words:
    results += [("%lse", f"tensor<{tokens}x{heads * group}xf32>")]
print(f"attn.graph @queries({', '.join(arguments)}) -> ({', '.join(t for _, t in results)}) {{")
print("".join(f"  {line}\n" for line in lines) + f"  attn.return {', '.join(v for v, _ in results)}\n}}")
