"""Numbers and files for tests of kernels, in plain Python: rounding to f16, bf16 and f32, and numpy's file format.

An array is a tuple (kind, shape, values): kind is "f16", "bf16", "f32", "i32" or "i64", values a flat list.
"""
import ast
import math
import random
import struct

DESCR = {"f16": "<f2", "bf16": "<V2", "f32": "<f4", "i32": "<i4", "i64": "<i8"}
CODES = {"f16": "e", "f32": "f", "i32": "i", "i64": "q"}


def f32(x):
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def f16(x):
    try:
        return struct.unpack("<e", struct.pack("<e", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def bf16_bits(x):
    """Bits of the bf16 that is nearest to x, which an f32 holds; ties go to even."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    if x != x:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16(x):
    return struct.unpack("<f", struct.pack("<I", bf16_bits(f32(x)) << 16))[0]


def rounded(kind, x):
    return {"f16": f16, "bf16": bf16, "f32": f32}[kind](x)


def round_f32(kind, x):
    """x as a computation in f32 leaves it, rounded to `kind`."""
    return rounded(kind, f32(x))


class Random:
    """Random arrays; one seed gives the same in every Python."""

    def __init__(self, seed):
        self.source = random.Random(seed)

    def normal(self, kind, *shape, scale=1.0, mean=0.0):
        n = math.prod(shape)
        return kind, shape, [rounded(kind, self.source.gauss(mean, scale)) for _ in range(n)]

    def integers(self, kind, *shape, low=-3, high=3):
        return kind, shape, [float(self.source.randint(low, high)) for _ in range(math.prod(shape))]

    def pick(self, *choices):
        return self.source.choice(choices)

    def between(self, low, high):
        return self.source.randint(low, high)


def rows(array):
    """The rows of a matrix."""
    _, (count, width), values = array
    return [values[i * width : (i + 1) * width] for i in range(count)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def write_npy(path, array):
    kind, shape, values = array
    if kind == "bf16":
        data = b"".join(struct.pack("<H", bf16_bits(v)) for v in values)
    else:
        data = struct.pack(f"<{len(values)}{CODES[kind]}", *values)
    text = repr({"descr": DESCR[kind], "fortran_order": False, "shape": tuple(shape)})
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)


def read_npy(path):
    with open(path, "rb") as file:
        content = file.read()
    assert content[:8] == b"\x93NUMPY\x01\x00", f"{path} is no npy file of version 1"
    length = struct.unpack("<H", content[8:10])[0]
    header = ast.literal_eval(content[10 : 10 + length].decode())
    assert not header["fortran_order"]
    kind = {descr: kind for kind, descr in DESCR.items()}[header["descr"].replace("|V2", "<V2")]
    shape, data = header["shape"], content[10 + length :]
    n = math.prod(shape)
    if kind == "bf16":
        return kind, shape, [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in struct.unpack(f"<{n}H", data)]
    return kind, shape, list(struct.unpack(f"<{n}{CODES[kind]}", data))


def largest_difference(found, want):
    """Largest difference of two lists, in units of `want`'s root of mean square; inf where one is not finite."""
    size = math.sqrt(math.fsum(x * x for x in want if math.isfinite(x)) / max(len(want), 1)) or 1.0
    worst = 0.0
    for x, y in zip(found, want):
        if x == y or (x != x and y != y):
            continue
        difference = abs(x - y)
        worst = max(worst, difference / size if math.isfinite(difference) else math.inf)
    return worst
