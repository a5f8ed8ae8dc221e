#!/usr/bin/env python3
"""Random kernels that append to a cache and attend to it, in every way to split the tokens over a cluster.

    random_attention.py FIRST COUNT DIR   runs the kernels of COUNT seeds from FIRST on and compares with a softmax in
                                          double precision; exit 1, and DIR keeps the file, at the first that differs
    random_attention.py show SEED         prints one

Unused rows of the cache hold NaN. Results may differ by 4e-3 of their rms in f16, 5e-2 in bf16 or in a mix, whose keys are
rounded to bf16.
"""
import math
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from arrays import Random, dot
from runner import run

LIMIT = {"f16": 4e-3, "bf16": 5e-2}


def softmax(query, keys, values, scale, dim):
    """The weighted mean of values and the log of the sum of exp(score); 0 and -inf over no token."""
    if not keys:
        return [0.0] * dim, -math.inf
    scores = [scale * dot(query, key) for key in keys]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    return [dot(weights, column) / total for column in zip(*values)], top + math.log(total)


class Attention:
    def __init__(self, seed):
        r = Random(seed)
        self.seed, self.random = seed, r
        self.heads, self.group = r.pick(1, 2, 3), r.pick(1, 2, 3, 4, 8)
        self.dim = r.pick(16, 32, 64, 80, 96, 128, 144, 256)
        self.items = r.pick(self.heads, self.heads, 0)
        self.length = r.pick(0, 1, 15, 63, 64, 65, 100, 127, 128, 129, 200, 300, r.between(0, 400))
        self.pool = self.length + r.pick(1, 2, 70)
        sizes = r.pick((), (1,), (2,), (4,), (8,), (16,), (2, 2), (4, 2), (2, 8))
        self.axes = [(f"c{i}", size) for i, size in enumerate(sizes)]
        self.split = [axis for axis, _ in self.axes if r.pick(True, True, True, False)]
        r.source.shuffle(self.split)
        self.kind, self.query_kind = r.pick("f16", "bf16"), r.pick("f16", "bf16", "f32")
        self.warps, self.stages = r.pick(4, 8, 16), r.pick(2, 2, 3, 5)
        self.new, self.idle = r.pick(True, False), r.pick(False, False, False, True)
        self.spread = r.pick(0.3, 1.0)
        self.scale = r.pick(0.3, 1.0, 2.0) / self.spread**2 / math.sqrt(self.dim)  # scores of this size
        self.groups = r.pick(16, 32, 64, 128)

    def arrays(self):
        r, n = self.random, max(self.items, 1)
        inputs = {"q": r.normal(self.query_kind, n * self.group * self.dim, scale=self.spread)}
        for part in ("k", "v"):
            kind, shape, values = r.normal(self.kind, self.heads, self.pool, self.dim, scale=self.spread)
            unused = [math.nan if i // self.dim % self.pool >= self.length else v for i, v in enumerate(values)]
            inputs["cache." + part] = (kind, shape, unused)
            if self.new:
                inputs["new_" + part] = r.normal(self.kind, n * self.dim, scale=self.spread)
        inputs["len"] = ("i32", (1,), [self.length])
        inputs["slot"] = ("i64", (1,), [-1 if self.idle else self.length])
        return inputs

    def expected(self, inputs):
        n, dim, pool, out, lse = max(self.items, 1), self.dim, self.pool, [], []
        rows = {part: list(inputs["cache." + part][2]) for part in ("k", "v")}
        for head in range(n):
            tokens = {}
            for part in ("k", "v"):
                first = head * pool * dim
                count = 0 if self.idle else self.length
                tokens[part] = [rows[part][first + t * dim : first + (t + 1) * dim] for t in range(count)]
                if self.new and not self.idle:
                    row = inputs["new_" + part][2][head * dim : (head + 1) * dim]
                    tokens[part].append(row)
                    rows[part][first + self.length * dim : first + (self.length + 1) * dim] = row
            for g in range(self.group):
                at = (head * self.group + g) * dim
                result, log = softmax(inputs["q"][2][at : at + dim], tokens["k"], tokens["v"], self.scale, dim)
                out += result
                lse.append(log)
        limit = LIMIT["f16" if "bf16" not in (self.kind, self.query_kind) else "bf16"]
        outputs = {"o": (("f32", (len(out),), out), limit), "lse": (("f32", (len(lse),), lse), limit)}
        if self.new:
            for part in ("k", "v"):
                outputs["cache." + part] = ((self.kind, (self.heads, pool, dim), rows[part]), 0)
        return outputs

    def exchanges(self, tile):
        """Reduces `tile` over its axes, in a random order and by random algorithms."""
        r, lines = self.random, []
        left = list(self.split)
        bulk = self.group * (self.dim + 2) * 4 % 16 == 0
        while left:
            axis = r.pick(*left)
            rest = [a for a in left if a != axis]
            algorithm = r.pick(*["push", "butterfly", "async"] + ["bulk"] * bulk)
            lines.append(
                f'    %r{len(rest)} = kernel.exchange reduce %{tile} over "{axis}" by {algorithm} : '
                f"{self.state(left)} -> {self.state(rest)}"
            )
            tile, left = f"r{len(rest)}", rest
        return lines, tile

    def state(self, axes):
        words = [f"{self.group}x{self.dim + 2}xf32", *(f"{axis}: partial(softmax)" for axis in axes)]
        return f"!kernel.tile<{', '.join(words)}>"

    def build(self):
        n, g, d = max(self.items, 1), self.group, self.dim
        at, item = (" at %i", ", !kernel.item") if self.items else ("", "")
        cache, row = f"!kernel.cache<heads = {self.heads}, dim = {d}, {self.kind}>", f"!kernel.tile<{d}x{self.kind}>"
        q = f"!kernel.tile<{g * d}x{self.query_kind}>"
        kv = f"!kernel.kv_stream<{', '.join([str(d), self.kind, *(f'{axis}: split(0)' for axis in self.split)])}>"
        arguments = [f"%q: memref<{n * g * d}x{self.query_kind}>", f"%cache: {cache}"]
        lines = [f"    %qt = kernel.read %q{at} : memref<{n * g * d}x{self.query_kind}> -> {q}"]
        if self.new:
            memory = f"memref<{n * d}x{self.kind}>"
            arguments += [f"%new_k: {memory}", f"%new_v: {memory}"]
            lines += [f"    %{x} = kernel.read %new_{x}{at} : {memory} -> {row}" for x in "kv"]
            types = f"{row}, {row}, {cache}, memref<1xi64>{item}"
            lines.append(f"    kernel.append %k, %v to %cache slot %slot{at} : {types}")
        arguments += ["%len: memref<1xi32>", "%slot: memref<1xi64>"]
        arguments += [f"%o: memref<{n * g * d}xf32>", f"%lse: memref<{n * g}xf32>"]
        bound = self.random.pick(self.length + 1, 1000)
        lines.append(
            f"    %kv = kernel.load_cache %cache tokens %len slot %slot{at} bound {bound} {{groups = {self.groups} : i64}} : "
            f"{cache}, memref<1xi32>, memref<1xi64>{item} -> {kv}"
        )
        lines.append(f"    %p = kernel.attend %qt, %kv scale {self.scale} : {q}, {kv} -> {self.state(self.split)}")
        exchanges, tile = self.exchanges("p")
        lines += exchanges
        whole = self.state(())
        if self.new:
            lines.append(
                f"    %n = kernel.attend_new %{tile}, %qt, %k, %v slot %slot scale {self.scale} : "
                f"{whole}, {q}, {row}, {row}, memref<1xi64> -> {whole}"
            )
            tile = "n"
        results = f"!kernel.tile<{g * d}xf32>, !kernel.tile<{g}xf32>"
        lines.append(f"    %y, %l = kernel.normalize %{tile} : {whole} -> {results}")
        lines.append(f"    kernel.write %y, %o{at} : !kernel.tile<{g * d}xf32>, memref<{n * g * d}xf32>")
        lines.append(f"    kernel.write %l, %lse{at} : !kernel.tile<{g}xf32>, memref<{n * g}xf32>")
        axes = [f"{axis} = {size} @cta" for axis, size in self.axes] + [f"w = {self.warps} @warp"]
        if self.items:
            axes.append(f"head = {self.items} @grid")
            lines = ["  kernel.for_items %i over head {", *lines, "  }"]
        head = f"kernel.func @attention{self.seed}({', '.join(arguments)})"
        mesh = f"    axes({', '.join(axes)}) plan(ring_stages = {self.stages}) {{"
        return "\n".join([head, mesh, *lines, "  kernel.return", "}", ""])


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "show":
        print(Attention(int(arguments[1])).build(), end="")
        return 0
    if len(arguments) != 3:
        sys.exit(__doc__)
    first, count, folder = int(arguments[0]), int(arguments[1]), arguments[2]
    os.makedirs(folder, exist_ok=True)
    for seed in range(first, first + count):
        attention = Attention(seed)
        text, inputs = attention.build(), attention.arrays()
        source = os.path.join(folder, f"attention{seed}.mlir")
        with open(source, "w") as file:
            file.write(text)
        problem = run(source, os.path.join(folder, "run"), inputs, attention.expected(inputs), seed)
        if problem and problem.startswith("exit 3\n"):
            problem = None  # more shared memory than there is
        if problem:
            print(f"attention{seed}: {problem}\n{text}")
            return 1
        os.remove(source)
        heads = f"{attention.heads} x {attention.group} heads of {attention.dim}"
        print(f"attention{seed} ok: length {attention.length}, {heads}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
