"""Graphs with options of every kind: variants.py KIND [WINDOW]."""
import sys


BIAS = """ bias(%head, %query, %key) {
    %slope = attn.at %slopes[%head]
    %distance = arith.subi %key, %query : index
    %far = arith.constant -40 : index
    %isFar = arith.cmpi slt, %distance, %far : index
    %narrow = arith.index_cast %distance : index to i32
    %f = arith.sitofp %narrow : i32 to f32
    %b = arith.mulf %slope, %f : f32
    %least = arith.constant -2.5 : f32
    %limited = arith.select %isFar, %least, %b : f32
    attn.yield %limited
  }"""


def attention(batch, options, heads=2, group=3, dim=24, window=0, page=0):
    """Attention of `batch` requests with an append."""
    width, kv = heads * group * dim, heads * dim
    text = f"""attn.graph @attention(%q: tensor<{batch}x{width}xf16>, %k: tensor<{batch}x{kv}xf16>, %v: tensor<{batch}x{kv}xf16>,
    %cache: !attn.kv_cache<heads = {heads}, dim = {dim}{f', page = {page}' if page else ''}, f16>, %slot: tensor<{batch}xi64>,
    %pages: tensor<{batch}x200xi32>, %sinks: tensor<{heads * group}xbf16>, %slopes: tensor<{heads * group}xf32>,
    %len: !attn.lengths<{batch}, capacity = 1500>) -> (tensor<{batch}x{width}xf16>, tensor<{batch}x{heads * group}xf32>) {{
  %c = attn.kv_append %cache, %k, %v at %slot
  %o, %lse = attn.attention %q, %c, %len{' pages %pages' if page else ''}{' sinks %sinks' if 'sinks' in options else ''}
    {{scale = 0.25{f', window = {window}' if window else ''}{', softcap = 1.5' if 'softcap' in options else ''}}}{BIAS if 'bias' in options else ''}
  attn.return %o, %lse
}}"""
    return text


def block(norm, tokens=1):
    """A block with norms by head, biases, and heads of which a part is rotated."""
    t = tokens
    scale = " {scale = 0.22}" if norm == "plain" else ""
    first = {"layer": "attn.layer_norm %x, %gain, %bias {eps = 1.0e-5}", "plain": "attn.layer_norm %x {eps = 1.0e-5}",
             "offset": "attn.rms_norm %x, %gain {eps = 1.0e-5, offset = 1}"}[norm]
    return f"""attn.graph @block(%x: tensor<{t}x104xf16>, %gain: tensor<104xf16>, %bias: tensor<104xf16>, %w_q: tensor<96x104xf16>,
    %w_k: tensor<48x104xf16>, %w_v: tensor<48x104xf16>, %b_q: tensor<96xf16>, %b_k: tensor<48xf16>, %b_v: tensor<48xf16>,
    %q_gain: tensor<24xf32>, %k_gain: tensor<24xf16>, %w_o: tensor<104x96xf16>, %b_o: tensor<104xf16>,
    %cache: !attn.kv_cache<heads = 2, dim = 24, f16>, %pos: tensor<{t}xi32>, %slot: tensor<{t}xi64>,
    %len: !attn.lengths<{t}, capacity = 300>) -> tensor<{t}x104xf16> {{
  %n = {first}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v] bias [%b_q, %b_k, %b_v]
  %qn = attn.rms_norm %q, %q_gain {{eps = 1.0e-5, offset = 1}}
  %kn = attn.rms_norm %k, %k_gain {{eps = 1.0e-5}}
  %table = attn.rope_table {{base = 10000, dim = 16, positions = 320, scaling = yarn, factor = 4, original_positions = 80}}
  %qr, %kr = attn.rope %qn, %kn, %table at %pos {{style = half_split, head_dim = 24}}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {{scale = 0.1}}
  %y = attn.linear %o, [%w_o] bias [%b_o]
  %z = attn.add %x, %y{scale}
  attn.return %z
}}"""


kind, number = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
print({"layer": lambda: block("layer"), "offset": lambda: block("offset"), "plain": lambda: block("plain"), "tokens": lambda: block("offset", 3),
       "window": lambda: attention(1, [], window=number), "softcap": lambda: attention(1, ["softcap"]),
       "sinks": lambda: attention(1, ["sinks"]),
       "bias": lambda: attention(1, ["bias"], group=10),
       "all": lambda: attention(5, ["sinks", "softcap", "bias"], window=number, page=16)}[kind]())
