#!/usr/bin/env python3
"""Random kernels: legal in every choice, awkward in shape, exact in every sum.

    random_kernels.py FIRST COUNT DIR   makes the kernels of COUNT seeds from FIRST on, runs each with `cfc run` under
                                        two orders of threads and compares; exit 1, and DIR keeps it, at the first
                                        that differs
    random_kernels.py show SEED         prints one

A kernel is drawn operation by operation: whatever fits the tiles that are there. Numbers are small integers and stay
within what their type holds exactly, so that results must be equal, whatever the order of sums. Beside the text grows a
list of functions that compute the same in Python: a tile's value is the list of all its elements, or, where it is
partial over some axes, a dictionary from the workers' coordinates on them to their summands.
"""
import itertools
import math
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from arrays import Random
from runner import run

EXACT = {"f16": 2048, "bf16": 256, "f32": 1 << 24}  # integers up to this are exact
BYTES = {"f16": 2, "bf16": 2, "f32": 4}


class Tile:
    """A tile of `n` elements, none above `bound`; `states` are (axis, "split" | "sum" | "max"), in the type's order."""

    def __init__(self, name, kind, n, states, bound):
        self.name, self.kind, self.n, self.states, self.bound = name, kind, n, tuple(states), bound

    def type(self):
        words = [f"{axis}: {'split(0)' if state == 'split' else f'partial({state})'}" for axis, state in self.states]
        return f"!kernel.tile<{', '.join([f'{self.n}x{self.kind}', *words])}>"

    def partial(self):
        return [axis for axis, state in self.states if state != "split"]

    def splits(self):
        return [axis for axis, state in self.states if state == "split"]


class Kernel:
    def __init__(self, seed):
        self.random = Random(seed)
        self.seed = seed
        self.arguments, self.inputs, self.outputs = [], {}, {}
        self.lines, self.indent = [], "  "
        self.steps = []  # (items of the loop, 0 outside; number of the loop; function(item, values))
        self.tiles, self.count = [], 0
        self.written = {}
        r = self.random
        sizes = r.pick((), (2,), (4,), (8,), (16,), (2, 2), (2, 4), (4, 2), (2, 8), (4, 4), (2, 2, 2), (1, 4))
        self.axes = {f"c{i}": size for i, size in enumerate(sizes)}
        self.loops = [r.pick(1, 2, 3, 3, 5, 5, 7, 7, 12, 12, 70) for _ in range(r.pick(0, 1, 1, 1, 1, 2))]
        self.warps = r.pick(None, 4, 8, 16)
        self.plan = {"ring_stages": r.pick(2, 2, 3, 5)}
        if r.pick(True, False):
            self.plan["tile_columns"] = r.pick(0, 16, 32, 48, 80, 128, 256)
        if r.pick(True, False):
            self.plan["pdl"] = 1
        self.in_loop, self.items, self.items_axis = False, 0, None  # of the loop at hand

    def new(self, prefix="t"):
        self.count += 1
        return f"{prefix}{self.count}"

    def workers(self, axes):
        return math.prod(self.axes[axis] for axis in axes)

    def some_axes(self, of=None):
        """A random selection of cta axes, in a random order."""
        axes = [axis for axis in (self.axes if of is None else of) if self.random.pick(True, False)]
        self.random.source.shuffle(axes)
        return axes

    def argument(self, array, prefix="m"):
        name = self.new(prefix)
        kind, shape, _ = array
        self.arguments.append(f"%{name}: memref<{'x'.join(map(str, shape))}x{kind}>")
        self.inputs[name] = array
        return name

    def output(self, kind, n):
        name = self.new("y")
        self.arguments.append(f"%{name}: memref<{n}x{kind}>")
        self.outputs[name] = (kind, (n,), [None] * n)
        return name

    def memory_type(self, name):
        kind, shape, _ = self.inputs.get(name) or self.outputs[name]
        return f"memref<{'x'.join(map(str, shape))}x{kind}>"

    def add(self, tile, text, function):
        self.lines.append(f"{self.indent}%{tile.name} = {text} -> {tile.type()}")
        name = tile.name
        self.step(lambda item, values: values.__setitem__(name, function(item, values)))
        self.tiles.append(tile)
        return tile

    def step(self, function):
        self.steps.append((self.items, self.items_axis, function))

    def at(self):
        return " at %i" if self.in_loop else ""

    # Operations: each adds one if it finds what it needs, and says whether it did.

    def read(self):
        r = self.random
        axes = self.some_axes()
        n = self.workers(axes) * r.pick(1, 2, 3, 5, 8, 24, 33)
        if n % 16 and r.pick(True, True, False):
            n *= 16 * r.pick(1, 2, 4) // math.gcd(n, 16)
        if n > 512:
            return False
        by_item = self.in_loop and r.pick(True, True, False)
        whole = n * (self.items if by_item else 1)
        have = whole - r.between(0, n - 1) if by_item and r.pick(True, False) else whole + r.pick(0, 0, 3)
        memory_kind, kind = r.pick("f16", "bf16", "f32"), r.pick("f16", "bf16", "f32")
        memory = self.argument(r.integers(memory_kind, have))
        data = self.inputs[memory][2]
        tile = Tile(self.new(), kind, n, [(axis, "split") for axis in axes], 3)
        text = f"kernel.read %{memory}{' at %i' if by_item else ''} : {self.memory_type(memory)}"

        def value(item, values):
            first = item * n if by_item else 0
            return [data[i] if i < have else 0.0 for i in range(first, first + n)]

        self.add(tile, text, value)
        return True

    def elementwise(self):
        r = self.random
        a = r.pick(*self.tiles)
        if a.partial():
            return False
        b = r.pick(*[t for t in self.tiles if t.n == a.n and t.states == a.states])
        op = r.pick("add", "mul", "max")
        bound = {"add": a.bound + b.bound, "mul": a.bound * b.bound, "max": max(a.bound, b.bound)}[op]
        kinds = [kind for kind, limit in EXACT.items() if bound <= limit]
        if not kinds:
            return False
        tile = Tile(self.new(), r.pick(*kinds), a.n, a.states, bound)
        f = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y, "max": max}[op]
        text = f"kernel.elementwise {op} %{a.name}, %{b.name} : {a.type()}, {b.type()}"
        self.add(tile, text, lambda item, values: [f(x, y) for x, y in zip(values[a.name], values[b.name])])
        return True

    def cast(self):
        r = self.random
        a = r.pick(*self.tiles)
        kinds = [kind for kind, limit in EXACT.items() if a.bound <= limit and kind != a.kind]
        if not kinds:
            return False
        tile = Tile(self.new(), r.pick(*kinds), a.n, a.states, a.bound)
        self.add(tile, f"kernel.cast %{a.name} : {a.type()}", lambda item, values: values[a.name])
        return True

    def fold(self):
        r = self.random
        a = r.pick(*self.tiles)
        op, state = r.pick(("add", "sum"), ("max", "max"))
        if a.partial() or a.bound * a.n > EXACT["f32"]:
            return False
        states = [(axis, state) for axis in a.splits()]
        if self.in_loop and r.pick(True, False):
            states.append((self.items_axis, state))
        tile = Tile(self.new(), "f32", 1, states, a.bound * (a.n if op == "add" else 1))
        sizes = [self.axes[axis] for axis in a.splits()]
        part = a.n // math.prod(sizes)
        merge = sum if op == "add" else max

        def value(item, values):
            data = values[a.name]
            if not sizes:
                return [merge(data)]
            keys = itertools.product(*map(range, sizes))
            return {key: [merge(data[i * part : (i + 1) * part])] for i, key in enumerate(keys)}

        self.add(tile, f"kernel.fold {op} %{a.name} : {a.type()}", value)
        return True

    @staticmethod
    def algorithms(run, butterfly=True):
        """Of an exchange that moves runs of so many bytes."""
        return ["push"] + ["butterfly"] * butterfly + ["async"] * (run % 4 == 0) + ["bulk"] * (run % 16 == 0)

    def gather(self):
        r = self.random
        a = r.pick(*self.tiles)
        if not a.states or a.partial():
            return False
        axis = a.splits()[-1]
        algorithms = self.algorithms(a.n * BYTES[a.kind] // self.workers(a.splits()))
        tile = Tile(self.new(), a.kind, a.n, a.states[:-1], a.bound)
        text = f'kernel.exchange gather %{a.name} over "{axis}" by {r.pick(*algorithms)} : {a.type()}'
        self.add(tile, text, lambda item, values: values[a.name])
        return True

    def reduce(self):
        """A reduce or, where the parts divide, a reduce_scatter."""
        r = self.random
        partial = [t for t in self.tiles if any(axis in self.axes for axis in t.partial())]
        if not partial:
            return False
        a = r.pick(*partial)
        axis = r.pick(*[axis for axis in a.partial() if axis in self.axes])
        index, state = a.partial().index(axis), dict(a.states)[axis]
        parts = self.workers(a.splits())
        scatter = a.n % (parts * self.axes[axis]) == 0 and r.pick(True, False)
        run_bytes = a.n * BYTES[a.kind] // parts // (self.axes[axis] if scatter else 1)
        bound = a.bound * (self.axes[axis] if state == "sum" else 1)
        if bound > EXACT[a.kind]:
            return False
        states = [s for s in a.states if s[0] != axis] + [(axis, "split")] * scatter
        tile = Tile(self.new(), a.kind, a.n, states, bound)
        merge = sum if state == "sum" else max

        def value(item, values):
            groups = {}
            for key, data in values[a.name].items():
                groups.setdefault(key[:index] + key[index + 1 :], []).append(data)
            merged = {key: [merge(column) for column in zip(*parts)] for key, parts in groups.items()}
            return merged[()] if set(merged) == {()} else merged

        algorithms = self.algorithms(run_bytes)
        if not scatter and a.kind == "f32" and a.n % (parts * self.axes[axis]) == 0:
            algorithms += 2 * ["scatter"]
        kind, algorithm = "reduce_scatter" if scatter else "reduce", r.pick(*algorithms)
        self.add(tile, f'kernel.exchange {kind} %{a.name} over "{axis}" by {algorithm} : {a.type()}', value)
        return True

    def turn(self):
        """An all_to_all of a matrix, read split one way and written split the other way."""
        r = self.random
        if not self.axes:
            return False
        axis = r.pick(*self.axes)
        size, kind = self.axes[axis], r.pick("f16", "bf16", "f32")
        rows, columns = size * r.pick(1, 2, 3), size * r.pick(1, 2, 3, 4, 8)
        items = self.items if self.in_loop else 1
        memory = self.argument(r.integers(kind, items * rows, columns))
        before = r.pick(0, 1)
        run_bytes = columns // size * BYTES[kind]
        types = [f"!kernel.tile<{rows}x{columns}x{kind}, {axis}: split({dim})>" for dim in (before, 1 - before)]
        a, b, to = self.new(), self.new(), self.output(kind, items * rows * columns)
        algorithm = r.pick(*self.algorithms(run_bytes, butterfly=False))
        self.lines += [
            f"{self.indent}%{a} = kernel.read %{memory}{self.at()} : {self.memory_type(memory)} -> {types[0]}",
            f'{self.indent}%{b} = kernel.exchange all_to_all %{a} over "{axis}" by {algorithm} : {types[0]} -> {types[1]}',
            f"{self.indent}kernel.write %{b}, %{to}{self.at()} : {types[1]}, {self.memory_type(to)}",
        ]
        self.outputs[to][2][:] = self.inputs[memory][2]
        return True

    def extract(self):
        r = self.random
        a = r.pick(*self.tiles)
        if a.states or a.n < 2:
            return False
        n = r.between(1, a.n)
        first = r.between(0, a.n - n)
        tile = Tile(self.new(), a.kind, n, (), a.bound)
        text = f"kernel.extract %{a.name} from {first} : {a.type()}"
        self.add(tile, text, lambda item, values: values[a.name][first : first + n])
        tile.first = getattr(a, "first", 0) + first
        return True

    def rope(self):
        r = self.random
        a = r.pick(*self.tiles)
        dims = [d for d in (2, 4, 6, 10, 16, a.n) if a.n % d == 0 and d % 2 == 0]
        if a.states or not dims or 2 * a.bound > 256:
            return False
        dim, positions = r.pick(*dims), 5
        table = self.argument(r.integers(r.pick("f16", "f32"), positions, dim, low=-1, high=1))
        position = r.between(0, positions - 1)
        where = self.argument(("i32", (1,), [position]))
        turn, half = self.inputs[table][2][position * dim : (position + 1) * dim], dim // 2
        style = r.pick("half_split", "interleaved")
        tile = Tile(self.new(), r.pick("f16", "bf16", "f32"), a.n, (), 2 * a.bound)

        def value(item, values):
            x, y = values[a.name], [0.0] * a.n
            for head in range(0, a.n, dim):
                for j in range(half):
                    i, k = (head + j, head + j + half) if style == "half_split" else (head + 2 * j, head + 2 * j + 1)
                    y[i] = x[i] * turn[j] - x[k] * turn[j + half]
                    y[k] = x[k] * turn[j] + x[i] * turn[j + half]
            return y

        types = f"{a.type()}, {self.memory_type(table)}, memref<1xi32>"
        self.add(tile, f"kernel.rope {style} %{a.name}, %{table} position %{where} : {types}", value)
        return True

    def matmul(self):
        r = self.random
        a = r.pick(*self.tiles)
        weight_kind = r.pick("f16", "bf16")
        common = weight_kind if a.kind in (weight_kind, "f32") else "bf16"
        if a.partial() or a.n % 8 or a.bound > EXACT[common] or (getattr(a, "first", 0) % 2 and a.kind != "f32"):
            return False
        free = [axis for axis in self.axes if axis not in a.splits()]
        rest = self.some_axes(free)
        cut = r.pick(0, len(rest), r.between(0, len(rest)))
        column_axes, row_axes = a.splits() + rest[:cut], rest[cut:]
        parts = self.workers(column_axes)
        blocks = math.ceil(a.n / 16)
        if parts > 1 and (a.n % 16 or blocks % parts):
            return False
        slots = r.pick(*[s for s in range(1, blocks + 1) if s % parts == 0 and (parts == 1 or blocks % s == 0)])
        mode = r.pick("whole", "rows", "rows", "columns") if self.in_loop else "whole"
        unit = self.workers(row_axes)
        rows = [r.between(1, 40) for _ in range(r.pick(1, 1, 2, 3))]
        if r.pick(True, False):
            rows = [8 * math.ceil(n / 8) for n in rows]
        rows[-1] += -sum(rows) % unit
        bound = a.bound * a.n
        kinds = [kind for kind, limit in EXACT.items() if bound * parts <= limit]
        if not kinds or sum(rows) > 150 or (mode == "columns" and len(rows) > 1):
            return False
        width = a.n * self.items if mode == "columns" else a.n
        weights = []
        for n in rows:
            have = n
            if mode == "rows":  # items may overhang
                have = n * self.items - r.pick(0, r.between(0, n - 1))
            weights.append(self.argument(r.integers(weight_kind, have, width, low=-1, high=1), "w"))
        states = {axis: f"{axis}: split(0)" for axis in row_axes} | {axis: f"{axis}: split(1)" for axis in column_axes}
        order = [axis for axis in column_axes + row_axes]
        stream = f"!kernel.stream<{', '.join([f'{sum(rows)}x{a.n}x{weight_kind}'] + [states[axis] for axis in order])}>"
        name = self.new("s")
        where = {"whole": "", "rows": " at %i", "columns": " columns at %i"}[mode]
        self.lines.append(
            f"{self.indent}%{name} = kernel.load {', '.join('%' + w for w in weights)} rows {rows}{where} : "
            f"{', '.join(self.memory_type(w) for w in weights)} -> {stream}"
        )
        result = [(axis, "split" if axis in row_axes else "sum") for axis in order]
        if mode == "columns":
            result.append((self.items_axis, "sum"))
        tile = Tile(self.new(), "f32" if mode == "columns" else r.pick(*kinds), sum(rows), result, bound)
        data, sizes = [self.inputs[w] for w in weights], [self.axes[axis] for axis in column_axes]
        part = a.n // parts

        def value(item, values):
            x, lines = values[a.name], []
            for n, (_, (have, _), flat) in zip(rows, data):
                first = item * n if mode == "rows" else 0
                for row in range(first, first + n):
                    begin = row * width + (item * a.n if mode == "columns" else 0)
                    lines.append(flat[begin : begin + a.n] if row < have else None)

            def product(low, high):
                """None: a row that is not there gives anything."""
                rows = [line and line[low:high] for line in lines]
                return [row and sum(p * q for p, q in zip(row, x[low:high])) for row in rows]

            if not sizes:
                return product(0, a.n)
            keys = itertools.product(*map(range, sizes))
            return {key: product(i * part, (i + 1) * part) for i, key in enumerate(keys)}

        text = f"kernel.matmul %{name}, %{a.name} slots {slots} : {stream}, {a.type()}"
        self.add(tile, text, value)
        if any(have < n * self.items for n, (_, (have, _), _) in zip(rows, data)) and mode == "rows":
            self.tiles.remove(tile)  # some of its rows are undefined: it is only written
            self.write_rows(tile, rows, [d[1][0] for d in data])
        return True

    def write_rows(self, tile, rows, have):
        """Writes what a matmul of overhanging items gives, its weights apart where the whole is at hand."""
        while tile.states and not tile.partial():
            axis = tile.splits()[-1]
            whole = Tile(self.new(), tile.kind, tile.n, tile.states[:-1], tile.bound)
            text = f'kernel.exchange gather %{tile.name} over "{axis}" by push : {tile.type()}'
            self.add(whole, text, lambda item, values, t=tile: values[t.name])
            self.tiles.remove(whole)
            tile = whole
        if tile.partial():
            return
        first = 0
        for n, count in zip(rows, have):
            part = Tile(self.new(), tile.kind, n, (), tile.bound)
            text = f"kernel.extract %{tile.name} from {first} : {tile.type()}"
            self.add(part, text, lambda item, values, f=first, n=n, t=tile: values[t.name][f : f + n])
            self.tiles.remove(part)
            self.write_tile(part, count)
            first += n

    def write_tile(self, tile, have=None):
        r = self.random
        items = self.items if self.in_loop else 1
        n = have or tile.n * items - r.pick(0, r.between(0, tile.n - 1))
        kind = r.pick(*[kind for kind, limit in EXACT.items() if tile.bound <= limit])
        memory = self.output(kind, n)
        types = f"{tile.type()}, {self.memory_type(memory)}"
        self.lines.append(f"{self.indent}kernel.write %{tile.name}, %{memory}{self.at()} : {types}")
        target, in_loop = self.outputs[memory][2], self.in_loop

        def step(item, values):
            first = item * tile.n if in_loop else 0
            for i, x in enumerate(values[tile.name]):
                if first + i < n:
                    target[first + i] = x

        self.step(step)
        self.written[tile.name] = True

    def write(self):
        tile = self.random.pick(*self.tiles)
        if tile.partial() or tile.name in self.written:
            return False
        self.write_tile(tile)
        return True

    def finish(self):
        candidates = [t for t in self.tiles if t.partial() == [self.items_axis]]
        candidates = [t for t in candidates if t.kind == "f32" and t.name not in self.written]
        if not candidates or not self.in_loop:
            return False
        r = self.random
        tile = r.pick(*candidates)
        self.written[tile.name] = True
        states = [s for s in tile.states if s[0] != self.items_axis]
        largest = dict(tile.states)[self.items_axis] == "max"
        sum_tile = Tile(self.new(), "f32", tile.n, states, tile.bound * self.items)
        if sum_tile.bound > EXACT["f32"]:
            return False
        self.lines.append(
            f"{self.indent}kernel.finish %{tile.name} over {self.items_axis} by "
            f"{'ordered' if largest else r.pick('ordered', 'atomic')} : "
            f"{tile.type()} as %{sum_tile.name}: {sum_tile.type()} {{"
        )
        n = tile.n - r.pick(0, r.between(0, tile.n - 1))
        bias = self.argument(r.integers("f32", tile.n))
        b, y = self.new(), self.new()
        memory = self.output("f32", n)
        t, inner = sum_tile.type(), self.indent + "  "
        self.lines += [
            f"{inner}%{b} = kernel.read %{bias} : {self.memory_type(bias)} -> {t}",
            f"{inner}%{y} = kernel.elementwise add %{sum_tile.name}, %{b} : {t}, {t} -> {t}",
            f"{inner}kernel.write %{y}, %{memory} : {t}, {self.memory_type(memory)}",
            f"{self.indent}}}",
        ]
        target = self.outputs[memory][2]
        offset = self.inputs[bias][2]
        target[:] = offset[:n]

        def step(item, values):
            for i in range(n):
                new = values[tile.name][i]
                if largest:
                    target[i] = offset[i] + new if item == 0 else max(target[i], offset[i] + new)
                else:
                    target[i] += new

        self.step(step)
        return True

    def collect(self):
        """A finish that gathers what items have whole."""
        r = self.random
        candidates = [t for t in self.tiles if not t.states and t.n * self.items <= 4096]
        if not candidates or not self.in_loop:
            return False
        tile, all_name = r.pick(*candidates), self.new()
        n = tile.n * self.items
        memory = self.output(tile.kind, n)
        whole = f"!kernel.tile<{n}x{tile.kind}>"
        self.lines += [
            f"{self.indent}kernel.finish gather %{tile.name} over {self.items_axis} by ordered : {tile.type()} as "
            f"%{all_name}: {whole} {{",
            f"{self.indent}  kernel.write %{all_name}, %{memory} : {whole}, {self.memory_type(memory)}",
            f"{self.indent}}}",
        ]
        target = self.outputs[memory][2]

        def step(item, values):
            target[item * tile.n : (item + 1) * tile.n] = values[tile.name]

        self.step(step)
        return True

    def draw(self, count):
        operations = [self.read, self.elementwise, self.cast, self.fold, self.extract, self.rope, self.write]
        operations += [self.turn, self.collect]
        operations += 2 * [self.gather, self.reduce, self.finish] + 6 * [self.matmul]
        done, tries = 0, 0
        while done < count and tries < 60 * count:
            tries += 1
            operation = self.read if not self.tiles else self.random.pick(*operations)
            done += bool(operation())

    def build(self):
        r = self.random
        self.draw(r.between(0, 4) if self.loops else r.between(6, 16))
        for number, items in enumerate(self.loops):
            self.items, self.items_axis, outer = items, f"item{number}", list(self.tiles)
            self.lines.append(f"{self.indent}kernel.for_items %i over {self.items_axis} {{")
            self.in_loop, self.indent = True, "    "
            self.draw(r.between(4, 14))
            for tile in self.tiles:
                if tile not in outer and tile.name not in self.written and not tile.partial() and r.pick(True, False):
                    self.write_tile(tile)
            self.in_loop, self.indent, self.tiles, self.items, self.items_axis = False, "  ", outer, 0, None
            self.lines.append(f"{self.indent}}}")
            if self.tiles:
                self.draw(r.pick(0, 0, 2))
        if not self.outputs:
            tile = next((t for t in self.tiles if not t.partial()), None)
            self.write_tile(tile) if tile else None
        axes = [f"{axis} = {size} @cta" for axis, size in self.axes.items()]
        axes += [f"item{number} = {items} @grid" for number, items in enumerate(self.loops)]
        if self.warps:
            axes.append(f"w = {self.warps} @warp")
        r.source.shuffle(axes)
        plan = ", ".join(f"{key} = {value}" for key, value in self.plan.items())
        head = f"kernel.func @random{self.seed}({', '.join(self.arguments)})"
        mesh = f"    axes({', '.join(axes)}) plan({plan}) {{"
        return "\n".join([head, mesh, *self.lines, "  kernel.return", "}", ""])

    def expected(self):
        """Runs the steps in the order of the text, those of the loop once for each item."""
        values, index = {}, 0
        while index < len(self.steps):
            items, axis, _ = self.steps[index]
            end = index
            while end < len(self.steps) and self.steps[end][1] == axis:
                end += 1
            for item in range(items or 1):
                for _, _, step in self.steps[index:end]:
                    step(item, values)
            index = end
        return {name: (array, 0) for name, array in self.outputs.items()}


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "show":
        print(Kernel(int(arguments[1])).build(), end="")
        return 0
    if len(arguments) != 3:
        sys.exit(__doc__)
    first, count, folder = int(arguments[0]), int(arguments[1]), arguments[2]
    for seed in range(first, first + count):
        kernel = Kernel(seed)
        text = kernel.build()
        outputs = kernel.expected()
        if not outputs:
            continue
        os.makedirs(folder, exist_ok=True)
        source = os.path.join(folder, f"random{seed}.mlir")
        with open(source, "w") as file:
            file.write(text)
        for order in (seed, seed + 1000):
            problem = run(source, os.path.join(folder, "run"), kernel.inputs, outputs, order)
            if problem and problem.startswith("exit 3\n"):
                break  # more shared memory than there is
            if problem:
                print(f"random{seed} under order {order}: {problem}\n{text}")
                return 1
        os.remove(source)
        print(f"random{seed} ok: {len(kernel.lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
