"""Steps of attention whose answers need no reference: exact.py write KIND FOLDER, then cfc run, then exact.py check KIND FOLDER.

empty   a batch of three: the first request has cached tokens, the second is idle, the third's cache is empty
window  a window of one token: only the new one is attended; the cache is full of NaN
rotate  the cache gets the rotated key: a row of zeros and one quarter turn
"""
import math
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "kernels"))
from arrays import Random, read_npy, write_npy

mode, kind, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
HEADS, DIM, CAPACITY = 2, 32, 128
BATCH = 3 if kind == "empty" else 1
WINDOW = ", window = 1" if kind == "window" else ""
ROTATE = kind == "rotate"
WIDTH = HEADS * DIM
LENGTHS = {"empty": [70, 9, 0], "window": [100], "rotate": [0]}[kind]
SLOTS = [70, -1, 0] if kind == "empty" else LENGTHS

GRAPH = f"""attn.graph @exact(%q: tensor<{BATCH}x{WIDTH}xf16>, %k: tensor<{BATCH}x{WIDTH}xf16>, %v: tensor<{BATCH}x{WIDTH}xf16>,
    %table: tensor<4x{DIM}xf32>, %pos: tensor<{BATCH}xi32>,
    %cache: !attn.kv_cache<heads = {HEADS}, dim = {DIM}, f16>, %slot: tensor<{BATCH}xi64>,
    %len: !attn.lengths<{BATCH}, capacity = {CAPACITY}>) -> (tensor<{BATCH}x{WIDTH}xf16>, tensor<{BATCH}x{HEADS}xf32>) {{
  {"%kr = attn.rope %k, %table at %pos {style = half_split}" if ROTATE else ""}
  %c = attn.kv_append %cache, {"%kr" if ROTATE else "%k"}, %v at %slot
  %o, %lse = attn.attention %q, %c, %len {{scale = 0.25{WINDOW}}}
  attn.return %o, %lse
}}
"""


def inputs():
    random, shape = Random(7), (BATCH, WIDTH)
    values = {name: random.normal("f16", *shape) for name in "qkv"}
    blocks = (BATCH,) if BATCH > 1 else ()
    for part in "kv":
        kind_, where, rows = random.normal("f16", *blocks, HEADS, CAPACITY, DIM)
        for i in range(len(rows)):
            request, token = i // (HEADS * CAPACITY * DIM), i // DIM % CAPACITY
            if WINDOW or token >= LENGTHS[request]:
                rows[i] = math.nan
        values[f"cache.{part}"] = kind_, where, rows
    values["len"] = "i32", (BATCH,), LENGTHS
    values["slot"] = "i64", (BATCH,), SLOTS
    if ROTATE:  # at position 2 every pair makes a quarter turn: (a, b) becomes (-b, a)
        values["pos"] = "i32", (1,), [2]
        values["table"] = "f32", (4, DIM), [float((i >= DIM // 2) == (row == 2)) for row in range(4) for i in range(DIM)]
    return values


def row_of(values, request, head):
    first = (request * HEADS + head) * DIM
    return values[first : first + DIM]


def appended(cache, request, head, slot):
    first = ((request * HEADS + head) * CAPACITY + slot) * DIM
    return cache[first : first + DIM]


def check():
    given = inputs()
    found = {path.stem: read_npy(path)[2] for path in (folder / "out").glob("*.npy")}
    for request, (length, slot) in enumerate(zip(LENGTHS, SLOTS)):
        for head in range(HEADS):
            output = row_of(found["result0"], request, head)
            lse = found["result1"][request * HEADS + head]
            key, value = (row_of(given[name][2], request, head) for name in "kv")
            if slot < 0:
                assert output == [0] * DIM and lse == -math.inf, "an idle request has the output 0 and the lse -inf"
                continue
            if ROTATE:
                key = [-x for x in key[DIM // 2 :]] + key[: DIM // 2]
            assert appended(found["cache.k"], request, head, slot) == key, "the key in the cache"
            assert appended(found["cache.v"], request, head, slot) == value, "the value in the cache"
            if WINDOW or length == 0:
                assert output == value, "only the new token is attended"
                score = 0.25 * sum(a * b for a, b in zip(row_of(given["q"][2], request, head), key))
                assert abs(lse - score) < 1e-4, f"lse {lse}, should be {score}"
            else:
                assert output != value and all(map(math.isfinite, output))
    for part in ("cache.k", "cache.v"):  # nothing but the new rows is written
        for i, (before, after) in enumerate(zip(given[part][2], found[part])):
            request, token = i // (HEADS * CAPACITY * DIM), i // DIM % CAPACITY
            same = before == after or (before != before and after != after)
            assert same or token == SLOTS[request], f"{part}: token {token} of request {request} was written"
    print("exact")


if mode == "write":
    folder.mkdir(parents=True, exist_ok=True)
    text = GRAPH if ROTATE else GRAPH.replace(f"%table: tensor<4x{DIM}xf32>, %pos: tensor<{BATCH}xi32>,\n", "")
    (folder / "graph.mlir").write_text(text)
    for name, value in inputs().items():
        write_npy(folder / f"{name}.npy", value)
else:
    check()
