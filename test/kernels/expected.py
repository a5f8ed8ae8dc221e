#!/usr/bin/env python3
"""Inputs and expected outputs of the kernels in templates/kernels, computed in double precision.

    expected.py make NAME DIR              writes DIR/in/*.npy and DIR/expected/*.npy
    expected.py compare NAME DIR           compares DIR/out with what it should be; exit 1 where they differ
    expected.py run FILE.mlir DIR [SEED]…  does all of it with `cfc run`, once for each seed (0)
    expected.py all DIR [SEED]…            the same for every kernel in templates/kernels; tells all that fail

    --device=emu|gpu   where `run` and `all` run (emu)

The function named after a file gives its inputs, and its outputs with the difference that is allowed: 0 where all
sums are exact, else a part of the output's root of mean square that leaves room for the rounding of its types.
"""
import glob
import math
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import expected_exchanges
from arrays import Random, bf16, dot, f16, f32, round_f32, rows
from runner import compare, run, write_arrays

F32_SUM, F16, BF16 = 2e-5, 4e-3, 3e-2  # differences allowed: sums in f32, and what is rounded to f16 or bf16


def gather_of_gather(random):
    x, w = random.normal("f16", 3, 128), random.normal("f16", 96, 128, scale=0.1)
    y = [dot(row, item) for item in rows(x) for row in rows(w)]
    return {"x": x, "w": w}, {"y": (("f32", (3, 96), y), F32_SUM)}


def max_over_cluster(random):
    x = random.normal("f32", 900, mean=-1.0)
    items = [(x[2] + [0.0] * 100)[200 * i : 200 * i + 200] for i in range(5)]
    outputs = {"largest": (("f32", (5,), [max(item) for item in items]), 0)}
    outputs["sum"] = (("f32", (5,), [math.fsum(item) for item in items]), F32_SUM)
    return {"x": x}, outputs


def matmul_grid_sum(random):
    x, w = random.normal("bf16", 336), random.normal("bf16", 80, 336, scale=0.1)
    bias = random.normal("f32", 80)
    y = [dot(row, x[2]) + b for row, b in zip(rows(w), bias[2])]
    return {"x": x, "w": w, "bias": bias}, {"y": (("f32", (80,), y), F32_SUM)}


matmul_grid_sum_atomic = matmul_grid_sum  # only the order of its sum differs


def bulk_push(random):
    x, w = random.normal("f16", 9, 64, mean=0.5), random.normal("f16", 64, 64, scale=0.2)
    y = [dot(row, item) for item in rows(x) for row in rows(w)]
    sums = [math.fsum(item) for item in rows(x)]
    return {"x": x, "w": w}, {"y": (("f32", (9, 64), y), F32_SUM), "sum": (("f32", (9,), sums), F32_SUM)}


def butterfly_sum(random):
    """Small integers, so that every sum in f32 is exact; the one in f16 is rounded in each of its rounds."""
    x, w = random.integers("f16", 6, 256), random.integers("f16", 40, 256)
    w[2][:256] = [1.0] * 256
    x[2][:256] = [2.0 ** (i // 16 - 1) if i % 16 == 0 else 0.0 for i in range(256)]
    y, halves = [], []
    for item in rows(x):
        for row in rows(w):
            parts = [dot(row[16 * r : 16 * r + 16], item[16 * r : 16 * r + 16]) for r in range(16)]
            y.append(math.fsum(parts))
            parts = [f16(p) for p in parts]
            for step in (1, 2, 4, 8):
                parts = [f16(parts[r] + parts[r ^ step]) for r in range(16)]
            halves.append(parts[0])
    assert y[0] == (2**16 - 1) / 2
    return {"x": x, "w": w}, {"y": (("f32", (6, 40), y), 0), "rounded": (("f16", (6, 40), halves), 0)}


def norm(x, gain, eps):
    scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
    return [v * scale * g for v, g in zip(x, gain)]


def norm_matmul_columns(random):
    x, gain = random.normal("bf16", 512, scale=3.0), random.normal("bf16", 512, scale=0.2, mean=1.0)
    w = random.normal("bf16", 40, 512, scale=0.1)
    n = [bf16(v) for v in norm(x[2], gain[2], 1e-5)]
    return {"x": x, "gain": gain, "w": w}, {"y": (("bf16", (40,), [bf16(dot(row, n)) for row in rows(w)]), BF16)}


def rope_both_styles(random):
    heads, dim, half = 3, 20, 10
    x, table = random.normal("f16", 4, 60), random.normal("f32", 32, dim)
    position = random.between(0, 31)
    turn = rows(table)[position]
    halves, pairs = [0.0] * 240, [0.0] * 240
    for head in range(4 * heads):
        for j in range(half):
            c, s = turn[j], turn[j + half]
            for out, first, second in ((halves, j, j + half), (pairs, 2 * j, 2 * j + 1)):
                a, b = x[2][head * dim + first], x[2][head * dim + second]
                out[head * dim + first] = a * c - b * s
                out[head * dim + second] = b * c + a * s
    inputs = {"x": x, "table": table, "position": ("i32", (1,), [position])}
    return inputs, {"halves": (("f16", (4, 60), halves), F16), "pairs": (("f32", (4, 60), pairs), F32_SUM)}


def two_kernels(random):
    x, w = random.normal("f16", 96), random.normal("f16", 96, 96, scale=0.1)
    gain = random.normal("f32", 96, scale=0.2, mean=1.0)
    hidden = [dot(row, x[2]) for row in rows(w)]
    out = norm([a + b for a, b in zip(x[2], hidden)], gain[2], 1e-6)
    return {"x": x, "w": w, "gain": gain}, {
        "hidden": (("f32", (96,), hidden), F32_SUM),
        "out": (("f16", (96,), out), F16),
    }


def grid_sync_layers(random):
    x, gain = random.normal("f16", 96), random.normal("f32", 96, scale=0.2, mean=1.0)
    w1, w2 = random.normal("f16", 160, 96, scale=0.1), random.normal("f16", 96, 160, scale=0.1)
    hidden = [dot(row, x[2]) for row in rows(w1)]
    total = [dot(row, [f16(h) for h in hidden]) + a for row, a in zip(rows(w2), x[2])]
    out = norm(total, gain[2], 1e-6)
    return {"x": x, "w1": w1, "w2": w2, "gain": gain}, {
        "hidden": (("f16", (160,), hidden), F16),
        "sum": (("f32", (96,), total), F16),
        "out": (("f16", (96,), out), F16),
    }


def softmax_split(random):
    heads, group, dim, pool, length = 2, 3, 80, 170, 150
    q = random.normal("f16", heads * group * dim)
    cache = {}
    for part in ("k", "v"):
        kind, shape, values = random.normal("f16", heads, pool, dim)
        unused = [math.nan if i // dim % pool >= length else v for i, v in enumerate(values)]
        cache[part] = (kind, shape, unused)
    out, lse = [], []
    for head in range(heads):
        first = head * pool * dim
        keys, values = ([c[2][first + t * dim : first + (t + 1) * dim] for t in range(length)] for c in cache.values())
        for g in range(group):
            query = q[2][(head * group + g) * dim : (head * group + g + 1) * dim]
            scores = [0.11 * dot(query, key) for key in keys]
            top = max(scores)
            weights = [math.exp(s - top) for s in scores]
            total = math.fsum(weights)
            out += [dot(weights, column) / total for column in zip(*values)]
            lse.append(top + math.log(total))
    inputs = {"q": q, "cache.k": cache["k"], "cache.v": cache["v"], "len": ("i32", (1,), [length])}
    return inputs, {"o": (("f32", (heads * group * dim,), out), F16), "lse": (("f32", (heads * group,), lse), F16)}


def cast_chain(random):
    a, b = random.normal("bf16", 203), random.normal("f32", 203)
    r = []
    for x, y in zip(a[2], b[2]):
        r.append(f32(bf16(max(round_f32("f16", x + y), x)) * y))
    return {"a": a, "b": b}, {"r": (("f32", (203,), r), 0), "s": (("f16", (203,), [f16(v) for v in r]), 0)}


def dot_product(random):
    a, b = random.normal("f32", 333, mean=0.3), random.normal("f16", 333, mean=0.5)
    return {"a": a, "b": b}, {"dot": (("f32", (1,), [dot(a[2], b[2])]), F32_SUM)}


def stacked_weights(random):
    x = random.normal("f16", 136)
    weights = {name: random.normal("f16", n, 136, scale=0.1) for name, n in (("a", 120), ("b", 37), ("c", 70))}
    y = {name: [dot(row, x[2]) for row in rows(w)] for name, w in weights.items()}
    return {"x": x, **weights}, {
        "ya": (("f32", (120,), y["a"]), F32_SUM),
        "yb": (("f32", (37,), y["b"]), F32_SUM),
        "yc": (("f16", (70,), y["c"]), F16),
    }


def case_of(name):
    name = os.path.splitext(os.path.basename(name))[0]
    return globals().get(name) or getattr(expected_exchanges, name)


def run_seeds(name, folder, seeds, device):
    """Whether all seeds gave what is expected."""
    case = case_of(name)
    for seed in seeds or ["0"]:
        inputs, outputs = case(Random(int(seed) + 1))
        problem = run(name, folder, inputs, outputs, seed, device=device)
        print(f"{case.__name__} seed {seed}: {problem or 'ok'}", flush=True)
        if problem:
            return False
    return True


def main(arguments):
    device = next((a.split("=", 1)[1] for a in arguments if a.startswith("--device=")), "emu")
    arguments = [a for a in arguments if not a.startswith("--device=")]
    least = {"make": 3, "compare": 3, "run": 3, "all": 2}
    if not arguments or len(arguments) < least.get(arguments[0], 99):
        sys.exit(__doc__)
    verb = arguments[0]
    if verb == "all":
        folder, seeds = arguments[1], arguments[2:]
        here = os.path.dirname(os.path.abspath(__file__))
        kernels = sorted(glob.glob(os.path.join(here, "..", "..", "templates", "kernels", "*.mlir")))
        failed = [k for k in kernels if not run_seeds(k, folder, seeds, device)]
        print(f"{len(kernels) - len(failed)} of {len(kernels)} kernels give what is expected")
        return 1 if failed else 0
    name, folder = arguments[1:3]
    if verb == "run":
        return 0 if run_seeds(name, folder, arguments[3:], device) else 1
    inputs, outputs = case_of(name)(Random(1))
    if verb == "make":
        write_arrays(os.path.join(folder, "in"), inputs)
        write_arrays(os.path.join(folder, "expected"), {key: array for key, (array, _) in outputs.items()})
        return 0
    lines, good = compare(os.path.join(folder, "out"), outputs)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
