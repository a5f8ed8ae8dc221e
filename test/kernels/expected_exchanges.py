"""Inputs and expected outputs of the kernels in templates/kernels that show exchanges; expected.py says how they are used."""
import math

from arrays import bf16, dot, f16, f32, round_f32, rows

F32_SUM, F16, BF16 = 2e-5, 4e-3, 3e-2


def products(w, x):
    """w x, for each row of x after another."""
    return [dot(row, item) for item in x for row in rows(w)]


def scatter_and_gather(random):
    x, w = random.normal("f16", 5, 256), random.normal("f16", 72, 256, scale=0.1)
    bias = random.normal("f32", 72)
    sums = products(w, rows(x))
    y = [(s + bias[2][i % 72]) ** 2 for i, s in enumerate(sums)]
    outputs = {"y": (("f32", (5, 72), y), F32_SUM), "halves": (("f16", (5, 72), y), F16)}
    outputs["sums"] = (("f32", (5, 72), sums), F32_SUM)
    return {"x": x, "w": w, "bias": bias}, outputs


def scale_columns(random):
    x, scale = random.normal("f16", 3, 24, 80), random.normal("f16", 24, 80)
    columns = [round_f32("f16", v * scale[2][i % 1920]) for i, v in enumerate(x[2])]
    y = [round_f32("f16", p + v) for p, v in zip(columns, x[2])]
    outputs = {"columns": (("f32", (3, 24, 80), columns), 0), "y": (("f16", (3, 24, 80), y), 0)}
    return {"x": x, "scale": scale}, outputs


def heads_to_tokens(random):
    x, extra = random.normal("bf16", 16, 128), random.normal("bf16", 16, 128)
    y = [f32(bf16(f32(v * v)) + r) for v, r in zip(x[2], extra[2])]
    return {"x": x, "rows": extra}, {"y": (("f32", (16, 128), y), 0)}


def softmax(query, keys, values, scale):
    """Output and log-sum-exp of one query; 0 and -inf without keys."""
    if not keys:
        return [0.0] * len(query), -math.inf
    scores = [scale * dot(query, key) for key in keys]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    return [dot(weights, column) / total for column in zip(*values)], top + math.log(total)


def cache_of(random, heads, pool, dim, length):
    """K and V whose rows behind `length` hold anything, and the rows in use: [k, v][head][token]."""
    cache, used = {}, []
    for part in ("k", "v"):
        kind, shape, values = random.normal("f16", heads, pool, dim)
        unused = [math.nan if i // dim % pool >= length else v for i, v in enumerate(values)]
        cache["cache." + part] = (kind, shape, unused)
        first = [head * pool * dim for head in range(heads)]
        used.append([[values[at + t * dim : at + (t + 1) * dim] for t in range(length)] for at in first])
    return cache, used


def softmax_by_heads(random):
    heads, group, dim, length = 3, 8, 32, 201
    q, w = random.normal("f16", heads * group * dim), random.normal("f16", 40, heads * group * dim, scale=0.1)
    cache, (keys, values) = cache_of(random, heads, 230, dim, length)
    out, lse = [], []
    for i in range(heads * group):
        o, l = softmax(q[2][i * dim : (i + 1) * dim], keys[i // group], values[i // group], 0.18)
        out += [f16(v) for v in o]
        lse.append(l)
    inputs = {"q": q, **cache, "len": ("i32", (1,), [length]), "w": w}
    return inputs, {"lse": (("f32", (24,), lse), F16), "y": (("f32", (40,), products(w, [out])), F16)}


def collect_and_norm(random):
    x, w = random.normal("f16", 192), random.normal("f16", 192, 192, scale=0.1)
    gain = random.normal("f32", 192, scale=0.2, mean=1.0)
    made = [f16(v) for v in products(w, [x[2]])]
    total = [a + b for a, b in zip(made, x[2])]
    scale = 1 / math.sqrt(math.fsum(v * v for v in total) / 192 + 1e-6)
    out = [v * scale * g for v, g in zip(total, gain[2])]
    outputs = {"rows": (("f16", (192,), made), F16), "out": (("f16", (192,), out), F16)}
    return {"x": x, "w": w, "gain": gain}, outputs


def largest_logit(random):
    """All logits are negative."""
    kind, shape, values = random.normal("bf16", 64)
    x = (kind, shape, [abs(v) for v in values])
    kind, shape, values = random.normal("bf16", 440, 64)
    w = (kind, shape, [-abs(v) for v in values])
    logits = products(w, [x[2]])
    return {"x": x, "w": w}, {
        "logits": (("f32", (440,), logits), F32_SUM),
        "largest": (("f32", (1,), [max(logits)]), F32_SUM),
        "sum": (("f32", (1,), [math.fsum(logits)]), F32_SUM),
    }


def three_level_sum(random):
    x, w = random.normal("f16", 640), random.normal("f16", 64, 640, scale=0.1)
    return {"x": x, "w": w}, {"y": (("f32", (64,), products(w, [x[2]])), F32_SUM)}


def async_moments(random):
    x = random.normal("f32", 4, 400, mean=-1.0)
    sums = [math.fsum(row) for row in rows(x)]
    squares = [math.fsum(v * v for v in row) for row in rows(x)]
    return {"x": x}, {
        "sum": (("f32", (4,), sums), F32_SUM),
        "squares": (("f32", (4,), squares), F32_SUM),
        "largest": (("f32", (4,), [max(row) for row in rows(x)]), 0),
    }


def halving_sum(random):
    """Small integers, so that every sum in f32 is exact; sums in f16 are rounded in each round, or once."""
    x, w = random.integers("f16", 6, 256, low=-9, high=9), random.integers("f16", 48, 256, low=-9, high=9)
    y, rounds, once = [], [], []
    for item in rows(x):
        for row in rows(w):
            parts = [dot(row[16 * r : 16 * r + 16], item[16 * r : 16 * r + 16]) for r in range(16)]
            y.append(math.fsum(parts))
            parts = [f16(p) for p in parts]
            once.append(f16(math.fsum(parts)))
            for step in (1, 2, 4, 8):
                parts = [f16(parts[r] + parts[r ^ step]) for r in range(16)]
            rounds.append(parts[0])
    shape = (6, 48)
    outputs = {"y": (("f32", shape, y), 0), "rounds": (("f16", shape, rounds), 0), "once": (("f16", shape, once), 0)}
    return {"x": x, "w": w}, outputs


def bulk_scatter(random):
    x, w = random.normal("f16", 5, 128), random.normal("f16", 64, 128, scale=0.1)
    a = random.normal("f16", 5, 16, 64)
    z = [round_f32("f16", round_f32("f16", v * v) + v) for v in a[2]]
    outputs = {"y": (("f32", (5, 64), products(w, rows(x))), F32_SUM), "z": (("f16", (5, 16, 64), z), 0)}
    return {"x": x, "w": w, "a": a}, outputs


def gated_mlp(random):
    x = random.normal("bf16", 96)
    gate, up = (random.normal("bf16", 160, 96, scale=0.1) for _ in range(2))
    down = random.normal("bf16", 96, 160, scale=0.1)
    g, u = ([bf16(v) for v in products(weight, [x[2]])] for weight in (gate, up))
    h = [bf16(a * b) for a, b in zip(g, u)]
    y = [a + b for a, b in zip(products(down, [h]), x[2])]
    return {"x": x, "gate": gate, "up": up, "down": down}, {"y": (("f32", (96,), y), BF16)}


def rotated(x, turn, dim):
    """Heads of `dim` numbers in pairs (i, i + dim / 2), rounded to f16."""
    half, out = dim // 2, list(x)
    for first in range(0, len(x), dim):
        for j in range(half):
            a, b, c, s = x[first + j], x[first + j + half], turn[j], turn[j + half]
            out[first + j], out[first + j + half] = f16(a * c - b * s), f16(b * c + a * s)
    return out


def attention_step(random):
    heads, group, dim, pool, length = 2, 2, 48, 170, 150
    q, k, v = random.normal("f16", 192), random.normal("f16", 96), random.normal("f16", 96)
    table, position = random.normal("f32", 256, dim), random.between(0, 255)
    slot = random.pick(-1, length, pool - 7)
    cache, (keys, values) = cache_of(random, heads, pool, dim, length)
    inputs = {"q": q, "k": k, "v": v, "table": table, **cache}
    inputs.update(position=("i32", (1,), [position]), slot=("i64", (1,), [slot]), len=("i32", (1,), [length]))
    turn = rows(table)[position]
    rq, rk = rotated(q[2], turn, dim), rotated(k[2], turn, dim)
    out, lse = [], []
    for i in range(heads * group):
        head = slice(i // group * dim, (i // group + 1) * dim)
        seen = (keys[i // group] + [rk[head]], values[i // group] + [v[2][head]]) if slot >= 0 else ([], [])
        o, l = softmax(rq[i * dim : (i + 1) * dim], *seen, 0.14)
        out += o
        lse.append(l)
    outputs = {"o": (("f32", (192,), out), F16), "lse": (("f32", (4,), lse), F16)}
    for name, new in (("cache.k", rk), ("cache.v", v[2])):
        kind, shape, after = cache[name][0], cache[name][1], list(cache[name][2])
        for head in range(heads if slot >= 0 else 0):
            at = (head * pool + slot) * dim
            after[at : at + dim] = new[head * dim : (head + 1) * dim]
        outputs[name] = ((kind, shape, after), F16)
    return inputs, outputs
