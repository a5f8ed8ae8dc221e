"""Requests with several query tokens have the bits in a batch that they have alone: runs a batch, by trees, with
seeded counts and lengths, and then each request in a graph of its own. queries_bits.py SEED [fp8]"""
import pathlib
import random
import struct
import subprocess
import sys

HEADS, GROUP, DIM, ROOM = 2, 2, 32, 160
seed, fp8 = int(sys.argv[1]), sys.argv[2:]
r = random.Random(seed)
requests = r.randint(2, 4)
counts = [r.choice((1, 2, 3, 5, 8)) for _ in range(requests)]
lengths = [r.choice((0, 1, 63, 64, r.randint(0, 150))) for _ in range(requests)]


def write(path, kind, shape, values):
    header = str({"descr": f"<{kind}", "fortran_order": False, "shape": tuple(shape)}).ljust(181).encode() + b"\n"
    code = {"f2": "e", "f4": "f", "i4": "i", "i8": "q"}[kind]
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{code}", *values))


def rows(count, width):
    return [[r.gauss(0, 1) for _ in range(width)] for _ in range(count)]


def cached(count):
    """Numbers that caches of both types hold exactly."""
    return [max(-1.875, min(1.875, round(r.gauss(0, 1) * 8) / 8)) for _ in range(count)]


def tree(count):
    bits = []
    for i in range(count):
        parent = r.randint(-1, i - 1)
        bits.append((bits[parent] if parent >= 0 else 0) | 1 << i)
    return bits


data = []  # of each request
for count in counts:
    data.append({"q": rows(count, HEADS * GROUP * DIM), "k": rows(count, HEADS * DIM), "v": rows(count, HEADS * DIM), "mask": tree(count),
                 "cache": [cached(HEADS * ROOM * DIM) for _ in "kv"]})  # fmt: skip


def run(members, folder, plan):
    """The bytes of the rows of each of these requests, which make up a batch."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens, n = sum(counts[m] for m in members), len(members)
    script = pathlib.Path(__file__).with_name("queries_graph.py")
    graph = subprocess.run([sys.executable, script, *map(str, (n, tokens, HEADS, GROUP, DIM)), "mask", "lse", *fp8], capture_output=True, text=True, check=True)
    (folder / "g.mlir").write_text(graph.stdout)
    flat = lambda name: [x for m in members for row in data[m][name] for x in row]
    starts = [sum(counts[m] for m in members[:i]) for i in range(n + 1)]
    tensors = {
        "q": ("f2", (tokens, HEADS * GROUP * DIM), flat("q")), "k": ("f2", (tokens, HEADS * DIM), flat("k")), "v": ("f2", (tokens, HEADS * DIM), flat("v")),
        "mask": ("i8", (tokens,), [b for m in members for b in data[m]["mask"]]), "starts": ("i4", (n + 1,), starts),
        "len": ("i4", (n,), [lengths[m] for m in members]),
        "slot": ("i8", (tokens,), [lengths[m] + i for m in members for i in range(counts[m])]),
    }  # fmt: skip
    for side, name in enumerate(("cache.k", "cache.v")):
        shape = (HEADS, ROOM, DIM) if n == 1 else (n, HEADS, ROOM, DIM)
        tensors[name] = ("f4" if fp8 else "f2", shape, [x for m in members for x in data[m]["cache"][side]])
    if fp8:
        tensors |= {"k_scale": ("f4", (HEADS,), [0.03, 0.02]), "v_scale": ("f4", (1,), [0.025])}
    arguments = ["cfc", "run", folder / "g.mlir", "--device=emu", f"--plan={plan}", f"--seed={seed}", "--output", folder / "out"]
    for name, (kind, shape, values) in tensors.items():
        write(folder / f"{name}.npy", kind, shape, values)
        arguments += ["--input", f"{name}={folder / name}.npy"]
    subprocess.run([str(a) for a in arguments], check=True, stdout=subprocess.DEVNULL)
    found = []
    for name, bytes_of_row in (("result0", HEADS * GROUP * DIM * 2), ("result1", HEADS * GROUP * 4)):
        content = (folder / "out" / f"{name}.npy").read_bytes()[-tokens * bytes_of_row :]
        found.append([content[starts[i] * bytes_of_row : starts[i + 1] * bytes_of_row] for i in range(n)])
    return list(zip(*found))


work = pathlib.Path(f"bits{seed}")
together = run(list(range(requests)), work / "batch", "auto")
for m in range(requests):
    alone = run([m], work / str(m), f"random:{seed + m}")
    if alone[0] != together[m]:
        sys.exit(f"request {m} of {requests} ({counts[m]} tokens behind {lengths[m]}) has other bits in the batch than alone")
print(f"the same bits: {counts} tokens behind {lengths}")
