"""Cases of tools/property.py: attention graphs drawn by a seed, their inputs, and ways to make them smaller."""
import dataclasses
import itertools
import random
import struct

KINDS = ("f16", "bf16")
GAINS = ("f16", "bf16", "f32")
PAGES = (1, 2, 4, 5, 8, 16, 16, 24, 32, 64, 64, 100, 128, 256)
BUDGET = 9e5  # products, roughly, of one launch: a case takes about a second


@dataclasses.dataclass(frozen=True)
class Case:
    """One case. Every field's default is the plainest choice; options that are off are "" or 0."""

    seed: int
    plan: int = -1  # -1: the planner's own
    order: int = 0  # of threads, and of random inputs
    layout: str = "native"
    max_sms: int = 0
    lengths: tuple = (0,)
    idle: tuple = (False,)
    counts: tuple = ()  # query tokens of each request, and those of nobody behind them; (): one each
    mask: bool = False  # of trees of query tokens
    late: int = 0  # how far slots lie behind lengths; positions do half as much again
    shared: int = 0  # requests whose first pages are the first request's
    capacity: int = 64
    page: int = 0
    # Sizes.
    hidden: int = 64
    heads: int = 1
    group: int = 1
    dim: int = 32
    v_dim: int = 32
    out: int = 64  # columns of the output projection
    layers: int = 1
    # Types: of x and the result, of q, k and v, of weights, of the cache.
    act: str = "f16"
    inner: str = "f16"
    weight: str = "f16"
    cache: str = "f16"
    scales: str = ""  # of the cache, which f8 has: heads, one, mixed
    gain: str = "f16"
    # Operations.
    attention: bool = True
    source: str = "inputs"  # of q, k, v: inputs, stacked (one linear), apart (three)
    norm: str = ""  # of x: rms, offset, layer, layer_bias
    bias: bool = False
    qk_norm: str = ""  # heads, rows
    rope: str = ""  # both, q, k
    style: str = "half_split"
    rotated: int = 32
    table: str = "none"  # an argument of a type, or the scaling of a generated one
    append: bool = True
    window: int = 0
    softcap: float = 0
    sinks: str = ""
    score_bias: str = ""  # alibi, distance
    lse: bool = False
    project: bool = False
    out_bias: bool = False
    post_norm: str = ""
    residual: bool = False
    returned: tuple = ()  # values that the graph returns beside its result

    @property
    def requests(self):
        return len(self.lengths)

    @property
    def tokens(self):
        """Rows of the activations."""
        return sum(self.counts) if self.counts else self.requests

    @property
    def rows(self):
        """(request, number among its tokens) of each row; the request is None where it is nobody's."""
        counts = self.counts or (1,) * self.requests + (0,)
        return [(request if request < self.requests else None, i) for request, count in enumerate(counts) for i in range(count)]

    @property
    def new(self):
        """New tokens of a request at most."""
        return max(1, *self.counts, 1)

    @property
    def longest(self):
        return max(self.lengths)

    @property
    def pages(self):
        """Columns of the block table."""
        return -(-(self.capacity + 3 + self.new) // self.page)

    def cost(self):
        wide, kv = self.heads * self.group, self.heads
        weights = 0
        if self.source != "inputs":
            weights += self.hidden * self.dim * (wide + kv) + self.hidden * kv * self.v_dim
        if self.project:
            weights += self.out * wide * self.v_dim
        cached = sum(64 * -(-length // 64) + 64 for length in self.lengths) if self.attention else 0
        attend = cached * kv * (self.dim + self.v_dim) * (1 + self.group // 8) * self.new
        return self.layers * (weights * (1 + self.tokens // 8) + attend) + self.tokens * self.hidden * 8

    def scale(self):
        """Such that rounding q and k alone stays well below the limits, whatever the norm before them and however few the
        tokens: logits of computed q and k deviate by about 0.3."""
        if self.source == "inputs":
            return self.dim**-0.5
        by_norm = 0.5 if self.qk_norm else {"": 0.3, "offset": 0.1}.get(self.norm, 0.5)
        return self.dim**-0.5 * by_norm / self.layers

    def build_options(self):
        plan = f"random:{self.plan}" if self.plan >= 0 else "auto"
        options = [f"--plan={plan}"]
        if self.layout != "native":
            options.append("--weight-layout=packed")
        if self.max_sms:
            options.append(f"--max-sms={self.max_sms}")
        return options

    def features(self):
        """Names of what the case shows."""
        names = {self.source, f"cache {self.cache}", self.layout}
        for field in ("norm", "qk_norm", "score_bias", "post_norm"):
            if getattr(self, field):
                names.add(f"{field.replace('_', ' ')} {getattr(self, field)}")
        for field in ("bias", "rope", "scales", "window", "softcap", "sinks", "lse", "residual", "shared", "late"):
            if getattr(self, field):
                names.add(field)
        if self.attention:
            names |= {"pages"} if self.page else set()
            names |= {"idle"} if any(self.idle) and self.append else set()
            names |= {"grouped"} if self.group > 1 else set()
            names |= {"other v_dim"} if self.v_dim != self.dim else set()
            names |= {"no append"} if not self.append else set()
            names |= {"queries"} if self.counts else set()
            names |= {"mask"} if self.mask else set()
            names.add("1 request" if self.requests == 1 else "requests")
        else:
            names.add("linears of 1 token" if self.tokens == 1 else "linears of tokens")
        names |= {"partial rope"} if self.rope and self.rotated != self.dim else set()
        names |= {f"rope table {self.table}"} if self.rope else set()
        return names

    def describe(self):
        """Fields that are not the plainest, but the seed."""
        changed = [f"{f.name} = {getattr(self, f.name)}" for f in dataclasses.fields(self)[1:] if getattr(self, f.name) != f.default]
        return ", ".join(changed) or "the plainest case"

    def graph(self):
        return GraphWriter(self).text()


# === Graphs ===


class GraphWriter:
    def __init__(self, case):
        self.case, self.arguments, self.lines, self.values = case, {}, [], {}

    def argument(self, name, kind):
        self.arguments[name] = kind
        return f"%{name}"

    def tensor(self, name, kind, *shape):
        return self.argument(name, f"tensor<{'x'.join(map(str, shape))}x{kind}>")

    def value(self, name, width, kind, text):
        """A line that makes `name`; its type is known to `returned`."""
        self.lines.append(f"  %{name} = {text}")
        return self.known(name, width, kind)

    def known(self, name, width, kind):
        self.values[name] = (width, kind)
        return f"%{name}"

    def row(self, width, kind):
        return f"tensor<{self.case.tokens}x{width}x{kind}>"

    def norm(self, name, x, width, kind, how, gain_width=None):
        """A norm of `x`, as a field of the case says."""
        if how == "layer_plain":
            return self.value(name, width, kind, f"attn.layer_norm {x} {{eps = 1.0e-5}}")
        gain = self.tensor(f"{name}_gain", self.case.gain, gain_width or width)
        if how in ("layer", "layer_bias"):
            bias = f", {self.tensor(f'{name}_shift', self.case.gain, width)}" if how == "layer_bias" else ""
            return self.value(name, width, kind, f"attn.layer_norm {x}, {gain}{bias} {{eps = 1.0e-5}}")
        offset = ", offset = 1.0" if how == "offset" else ""
        return self.value(name, width, kind, f"attn.rms_norm {x}, {gain} {{eps = 1.0e-5{offset}}}")

    def linear(self, names, x, columns, widths, biased, kinds):
        case = self.case
        weights = [self.tensor(f"w_{n}", case.weight, w, columns) for n, w in zip(names, widths)]
        text = f"attn.linear {x}, [{', '.join(weights)}]"
        if biased:
            biases = [self.tensor(f"b_{n}", case.weight, w) for n, w in zip(names, widths)]
            text += f" bias [{', '.join(biases)}]"
        types = ", ".join(self.row(w, k) for w, k in zip(widths, kinds))
        self.lines.append(f"  {', '.join('%' + n for n in names)} = {text} : {types}")
        return [self.known(n, w, k) for n, w, k in zip(names, widths, kinds)]

    def qkv(self, x, suffix):
        case = self.case
        names = [n + suffix for n in ("q", "k", "v")]
        widths = [case.heads * case.group * case.dim, case.heads * case.dim, case.heads * case.v_dim]
        if case.source == "inputs":
            return [self.tensor(n, case.inner, case.tokens, w) for n, w in zip(names, widths)], widths
        if case.source == "stacked":
            return self.linear(names, x, case.hidden, widths, case.bias, [case.inner] * 3), widths
        made = [self.linear([n], x, case.hidden, [w], case.bias, [case.inner])[0] for n, w in zip(names, widths)]
        return made, widths

    def rotate(self, q, k, widths, suffix):
        case = self.case
        positions = case.longest + 8
        if case.table in GAINS:
            table = self.tensor("table", case.table, positions, case.rotated)
        else:
            scaling = {"none": "", "linear": ", scaling = linear, factor = 4.0",
                       "llama3": ", scaling = llama3, factor = 8.0, original_positions = 64, low_freq_factor = 1.0, high_freq_factor = 4.0",
                       "yarn": ", scaling = yarn, factor = 4.0, original_positions = 64"}[case.table]  # fmt: skip
            table = "%table"
            if not suffix:
                self.lines.append(f"  %table = attn.rope_table {{base = 10000.0, dim = {case.rotated}, positions = {positions}{scaling}}}")
        position = self.tensor("pos", "i32", case.tokens)
        head = f", head_dim = {case.dim}" if case.rotated != case.dim else ""
        chosen = [n for n in ("q", "k") if case.rope in ("both", n)]
        given = {"q": q, "k": k}
        names = [f"{n}r{suffix}" for n in chosen]
        self.lines.append(f"  {', '.join('%' + n for n in names)} = attn.rope {', '.join(given[n] for n in chosen)}, "
                          f"{table} at {position} {{style = {case.style}{head}}}")  # fmt: skip
        for name, n in zip(names, chosen):
            given[n] = self.known(name, widths[0] if n == "q" else widths[1], case.inner)
        return given["q"], given["k"]

    def score_bias(self):
        if not self.case.score_bias:
            return ""
        if self.case.score_bias == "alibi":
            slopes = self.tensor("slopes", "f32", self.case.heads * self.case.group)
            slope = f"    %slope = attn.at {slopes}[%head]\n"
        else:
            slope = "    %slope = arith.constant 0.03125 : f32\n"
        return (f" bias(%head, %query, %key) {{\n{slope}    %distance = arith.subi %key, %query : index\n"
                "    %i = arith.index_cast %distance : index to i32\n    %f = arith.sitofp %i : i32 to f32\n"
                "    %b = arith.mulf %slope, %f : f32\n    attn.yield %b\n  }")  # fmt: skip

    def attend(self, q, k, v, suffix):
        case = self.case
        page = f", page = {case.page}" if case.page else ""
        other = f", v_dim = {case.v_dim}" if case.v_dim != case.dim else ""
        cache = self.argument(f"cache{suffix}", f"!attn.kv_cache<heads = {case.heads}, dim = {case.dim}{other}{page}, {case.cache}>")
        scales = ""
        if case.scales or case.cache == "f8E4M3FN":
            one = {"one": (1, 1), "heads": (case.heads, case.heads)}.get(case.scales, (case.heads, 1))
            scales = f" scales {self.tensor('k_scale', 'f32', one[0])}, {self.tensor('v_scale', 'f32', one[1])}"
        queries = f" queries {self.tensor('starts', 'i32', case.requests + 1)}" if case.counts else ""
        if case.append:
            slot = self.tensor("slot", "i64", case.tokens)
            self.lines.append(f"  %c{suffix} = attn.kv_append {cache}, {k}, {v} at {slot}{queries}{scales}")
            cache = f"%c{suffix}"
        length = self.argument("len", f"!attn.lengths<{case.requests}, capacity = {case.capacity}>")
        pages = f" pages {self.tensor('pages', 'i32', case.requests, case.pages)}" if case.page else ""
        queries += f" mask {self.tensor('mask', 'i64', case.tokens)}" if case.mask else ""
        sinks = f" sinks {self.tensor('sinks', case.sinks, case.heads * case.group)}" if case.sinks else ""
        options = f"scale = {case.scale():.6f}"
        options += f", window = {case.window}" if case.window else ""
        options += f", softcap = {case.softcap}" if case.softcap else ""
        wide = case.heads * case.group
        names = f"%o{suffix}, %lse{suffix}" if case.lse else f"%o{suffix}"
        self.lines.append(f"  {names} = attn.attention {q}, {cache}, {length}{pages}{queries}{sinks}{scales} {{{options}}}{self.score_bias()}")
        if case.lse:
            self.known(f"lse{suffix}", wide, "f32")
        return self.known(f"o{suffix}", wide * case.v_dim, case.inner)

    def layer(self, x, suffix):
        case = self.case
        h = x
        if case.source != "inputs" and case.norm:
            h = self.norm(f"n{suffix}", x, case.hidden, case.act, case.norm)
        (q, k, v), widths = self.qkv(h, suffix)
        if case.qk_norm:
            q, k = (self.norm(f"{n}n{suffix}", value, width, case.inner, "rms", case.dim if case.qk_norm == "heads" else None)
                    for n, value, width in (("q", q, widths[0]), ("k", k, widths[1])))  # fmt: skip
        if case.rope:
            q, k = self.rotate(q, k, widths, suffix)
        result, width, kind = q, widths[0], case.inner
        if case.attention:
            result, width = self.attend(q, k, v, suffix), case.heads * case.group * case.v_dim
        elif case.source != "inputs":
            self.must_return = [k, v]
        if case.project:
            result, width, kind = self.linear([f"y{suffix}"], result, width, [case.out], case.out_bias, [case.act])[0], case.out, case.act
            if case.post_norm:
                result = self.norm(f"p{suffix}", result, width, kind, case.post_norm)
        if case.residual and case.project:
            result = self.value(f"z{suffix}", width, kind, f"attn.add {x}, {result}")
        return result

    def text(self):
        case = self.case
        self.must_return = []
        x = f"%x" if case.source == "inputs" and not (case.project and case.residual) else self.tensor("x", case.act, case.tokens, case.hidden)
        for layer in range(case.layers):
            x = self.layer(x, str(layer) if layer else "")
        wanted = [x, *self.must_return]
        wanted += [f"%{name}" for name in case.returned if name in self.values]
        wanted = [name for name in dict.fromkeys(wanted) if name[1:] in self.values] or [x]
        types = ", ".join(self.row(*self.values[name[1:]]) for name in wanted)
        arguments = ",\n    ".join(f"%{name}: {kind}" for name, kind in self.arguments.items())
        body = "\n".join(self.lines)
        return f"attn.graph @case{case.seed}(\n    {arguments}) -> ({types}) {{\n{body}\n  attn.return {', '.join(wanted)}\n}}\n"


# === Inputs ===


def write_npy(path, kind, shape, values):
    descr, code = {"i32": ("<i4", "i"), "i64": ("<i8", "q")}[kind]
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    path.write_bytes(data + struct.pack(f"<{len(values)}{code}", *values))


def block_table(case):
    """Rows of pages: each request's own in random order, but for first pages that are the first request's. Entries that
    nobody reads are out of the pool."""
    r = random.Random(f"pages {case.seed}")
    each = min(-(-(case.longest + 3 + case.new) // case.page), case.pages)
    own = list(range(case.requests * each))
    r.shuffle(own)
    rows = []
    for request, length in enumerate(case.lengths):
        used = min(-(-(length + case.late + case.new) // case.page), case.pages)
        row = own[request * each : request * each + used]
        if 0 < request <= case.shared:  # whole pages to which neither appends
            whole = min(length, case.lengths[0]) // case.page
            row[:whole] = rows[0][:whole]
        rows.append(row + [r.choice((-1, 2**31 - 1)) for _ in range(case.pages - len(row))])
    return rows


def masks(case):
    """A tree of each request's query tokens: bits of a token's ancestors and its own. Nobody's rows have any."""
    r, bits = random.Random(f"masks {case.seed}"), []
    for request, i in case.rows:
        parent = r.randint(max(-1, i - 3), i - 1) if i else -1
        bits.append((bits[len(bits) - i + parent] if parent >= 0 else 0) | 1 << i if request is not None else r.getrandbits(63))
    return [b - (1 << 64) if b >> 63 else b for b in bits]


def write_inputs(case, folder):
    """Writes the graph and what it is run with; the arguments of cfc verify."""
    (folder / "graph.mlir").write_text(case.graph())
    arguments = [folder / "graph.mlir", "--device=emu", *case.build_options(), f"--seed={case.order}"]
    table = block_table(case) if case.page and case.attention else None

    def add(name, kind, shape, values):
        write_npy(folder / f"{name}.npy", kind, shape, values)
        arguments.append(f"--input={name}={folder / name}.npy")

    if case.attention:
        add("len", "i32", (case.requests,), case.lengths)
        if table:
            add("pages", "i32", (case.requests, case.pages), [page for row in table for page in row])
        if case.counts:
            add("starts", "i32", (case.requests + 1,), list(itertools.accumulate(case.counts[:-1], initial=0)))
        if case.mask:
            add("mask", "i64", (case.tokens,), masks(case))
        if case.append:
            slots = []
            for request, i in case.rows:
                if request is None:
                    slots.append(-99)  # nobody looks at it
                    continue
                token = case.lengths[request] + case.late + i
                if table:
                    token = table[request][token // case.page] * case.page + token % case.page
                slots.append(-1 if case.idle[request] else token)
            add("slot", "i64", (case.tokens,), slots)
    if case.rope and (case.append or case.rope != "k" or not case.attention or "kr" in case.returned):
        add("pos", "i32", (case.tokens,), [0 if r is None else case.lengths[r] + i + case.late * 3 // 2 for r, i in case.rows])
    return arguments


# === Drawing ===


class Draw:
    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(f"property {seed}")

    def pick(self, *values):
        return self.random.choice(values)

    def chance(self, per_cent):
        return self.random.random() * 100 < per_cent

    def between(self, low, high):
        return self.random.randint(low, high)

    def sometimes(self, per_cent, *values, otherwise=""):
        return self.pick(*values) if self.chance(per_cent) else otherwise

    def sizes(self):
        dim = self.pick(32, 64, 64, 128, 128, 8 * self.between(4, 32))
        heads, group = self.pick(1, 1, 2, 2, 3, 4, 5, 8), self.pick(1, 1, 2, 3, 4, 5, 7, 8, self.between(1, 16), self.between(1, 128))
        v_dim = self.sometimes(15, 8 * self.between(4, 32), otherwise=dim)
        hidden = self.pick(64, 128, 256, 8 * self.between(8, 64))
        return {"dim": dim, "heads": heads, "group": group, "v_dim": v_dim, "hidden": hidden, "out": hidden}

    def lengths(self, tokens, page):
        ends = [0, 1, 63, 64, 65, 127, 128, 129, *([page - 1, page, page + 1] if page else [])]
        most = self.pick(3, 70, 140, 300, 600)
        return tuple(self.pick(min(self.pick(*ends), most), self.between(0, most)) for _ in range(tokens))

    def requests(self, attention, linears):
        if not attention:
            return self.pick(1, 1, 2, 3, 5, 8, 9, 16, 17, 33, 64, self.between(1, 64))
        if linears:
            return self.pick(1, 1, 1, 1, 2, 3, 4, 8, 9, self.between(1, 33))
        return self.pick(1, 1, 2, 3, 4, 5, 8, 16, 33, self.between(1, 33))

    def types(self):
        act = self.pick(*KINDS)
        mixed = self.chance(20)
        inner, weight, cache = (self.pick(*KINDS) if mixed else act for _ in range(3))
        cache = self.sometimes(12, "f8E4M3FN", otherwise=cache)
        scales = self.pick("heads", "one", "mixed") if cache == "f8E4M3FN" or self.chance(3) else ""
        return {"act": act, "inner": inner, "weight": weight, "cache": cache, "scales": scales, "gain": self.pick(*GAINS)}

    def batch(self, attention, linears):
        tokens = self.requests(attention, linears)
        page = self.pick(*PAGES) if attention and self.chance(35) else 0
        lengths = self.lengths(tokens, page)
        longest = max(lengths)
        return {"page": page, "lengths": lengths, "idle": tuple(self.chance(15) for _ in lengths),
                "late": self.pick(0, 2), "shared": self.between(0, tokens - 1) if page and self.chance(40) else 0,
                "capacity": max(1, longest + self.pick(0, 1, 60, 300) if page else longest + self.pick(0, 1, 100, 5000, 100000))}  # fmt: skip

    def queries(self, requests, lengths):
        """Query tokens of each request, and of nobody: 64 at most. A cache that holds them already has that many."""
        most = self.pick(1, 2, 4, 8, 64)
        counts, left = [], 64
        for _ in range(requests):
            counts.append(min(self.pick(0, 1, self.between(0, most)), left))
            left -= counts[-1]
        counts.append(self.sometimes(20, min(3, left), otherwise=0))
        if not sum(counts):
            counts[0] = 1
        return {"counts": tuple(counts), "mask": self.chance(40)}

    def rope(self, dim):
        if not self.chance(60):
            return {}
        rotated = self.sometimes(30, 8 * self.between(1, dim // 8), 2 * self.between(1, dim // 2), otherwise=dim)
        return {"rope": self.pick("both", "both", "both", "q", "k"), "style": self.pick("half_split", "interleaved"), "rotated": rotated,
                "table": self.pick("none", "none", "linear", "llama3", "yarn", *GAINS)}  # fmt: skip

    def scores(self):
        return {"window": self.sometimes(20, 1, 2, 63, 64, 65, self.between(1, 400), otherwise=0), "softcap": self.sometimes(15, 1.5, 30.0, otherwise=0),
                "sinks": self.sometimes(15, *GAINS), "score_bias": self.sometimes(7, "alibi", "distance"), "lse": self.chance(25),
                "append": self.chance(85)}  # fmt: skip

    def case(self):
        attention = self.chance(85)
        source = self.pick("inputs", "stacked", "stacked", "apart") if attention else self.pick("stacked", "apart")
        project = source != "inputs" and self.chance(80) if attention else self.chance(50)
        linears = source != "inputs" or project
        fields = {"attention": attention, "source": source, "project": project, **self.sizes(), **self.types(), **self.batch(attention, linears)}
        if source != "inputs":
            fields |= {"norm": self.sometimes(75, *("rms", "rms", "offset", "layer", "layer_bias") * 6, "layer_plain"), "bias": self.chance(25)}
        if project:
            fields |= {"residual": self.chance(60), "out_bias": self.chance(25), "post_norm": self.sometimes(15, "rms", "offset", "layer")}
            if not fields["residual"]:
                fields["out"] = self.pick(fields["hidden"], 8 * self.between(1, 64), self.between(1, 400))
            fields["layers"] = 2 if fields["residual"] and self.chance(10) else 1
        fields |= {"qk_norm": self.sometimes(20, "heads", "heads", "rows"), **self.rope(fields["dim"])}
        if attention:
            fields |= self.scores()
        fields["returned"] = tuple(n for n in ("n", "q", "k", "qr", "kr", "o", "lse", "y") if self.chance(8))
        if fields.get("lse"):
            fields["returned"] += ("lse",)
        plan = self.random.randrange(1 << 31) if self.chance(85) else -1
        if attention and self.chance(20):
            fields |= self.queries(len(fields["lengths"]), fields["lengths"])
        return Case(seed=self.seed, plan=plan, order=self.random.randrange(1 << 31), layout=self.sometimes(35, "packed", otherwise="native"),
                    max_sms=self.sometimes(15, 8, 20, 64, otherwise=0), **fields)  # fmt: skip


def draw(seed, fields=()):
    """The case of a seed: the first one drawn that is small enough; with other `fields`, (name, value) of texts."""
    source = Draw(seed)
    while True:
        case = source.case()
        if case.cost() <= BUDGET:
            return replace(case, **dict(fields)) if fields else case


# === Shrinking ===

# Values by field, the plainest first.
PLAINER = {
    "plan": (-1,), "layers": (1,), "returned": ((),), "residual": (False,), "post_norm": ("", "rms"), "project": (False,), "source": ("inputs", "stacked"),
    "norm": ("", "rms"), "bias": (False,), "out_bias": (False,), "qk_norm": ("", "heads"), "rope": ("", "q"), "window": (0,), "softcap": (0,), "sinks": ("", "f16"),
    "counts": ((),), "mask": (False,), "score_bias": ("", "distance"), "lse": (False,), "append": (False,), "attention": (False,), "layout": ("native",), "max_sms": (0,),
    "shared": (0,), "late": (0,), "page": (0,), "group": (1,), "heads": (1,), "table": ("none",), "style": ("half_split",),
    "act": ("f16",), "inner": ("f16",), "weight": ("f16",), "cache": ("f16",), "scales": ("", "one"), "gain": ("f16",), "dim": (32,), "hidden": (64,), "out": (64,), "order": (0,),
}  # fmt: skip
SIZES = ("dim", "hidden", "out")


def plainer(case):
    """The case with one field made plainer."""
    for name, values in PLAINER.items():
        now = getattr(case, name)
        below = values[: values.index(now)] if now in values else values
        yield from (replace(case, **{name: value}) for value in below if name not in SIZES or value < now)


def valid(case):
    """Whether the fields fit together."""
    return (case.attention or case.source != "inputs") and case.rotated <= case.dim and (not case.residual or case.out == case.hidden)


def replace(case, **fields):
    """The case with some fields changed, and those that must follow."""
    if "dim" in fields:
        fields.setdefault("v_dim", fields["dim"] if case.v_dim == case.dim else case.v_dim)
        fields.setdefault("rotated", fields["dim"] if case.rotated == case.dim else min(case.rotated, fields["dim"]))
    if case.residual and "hidden" in fields:
        fields["out"] = fields["hidden"]
    if "counts" in fields and not fields["counts"]:
        fields["mask"] = False
    if "lengths" in fields:
        fields.setdefault("idle", case.idle[: len(fields["lengths"])])
        fields["shared"] = min(fields.get("shared", case.shared), len(fields["lengths"]) - 1)
    return dataclasses.replace(case, **fields)


def keep_requests(case, kept):
    counts = (*(case.counts[i] for i in kept), case.counts[-1]) if case.counts else ()
    counts = counts if sum(counts) else (1, *counts[1:]) if counts else ()
    return replace(case, lengths=tuple(case.lengths[i] for i in kept), idle=tuple(case.idle[i] for i in kept), counts=counts,
                   mask=case.mask)  # fmt: skip


def smaller(value, least, step=1):
    """Values below, the smallest first."""
    parts = [value * part // 8 // step * step for part in (4, 6, 7)]
    return [v for v in dict.fromkeys([least, *parts, value - step]) if least <= v < value]


def shrink_steps(case):
    """Smaller cases, the boldest steps first."""
    found, n = list(plainer(case)), case.requests
    if n > 1:
        found += [keep_requests(case, range(n // 2)), keep_requests(case, range(n // 2, n))]
        found += [keep_requests(case, [j for j in range(n) if j != i]) for i in range(n)]
    if any(case.idle):
        found.append(replace(case, idle=(False,) * n))
    for i, count in enumerate(case.counts):
        found += [replace(case, counts=(*case.counts[:i], less, *case.counts[i + 1 :])) for less in smaller(count, 0)
                  if less + sum(case.counts) > count]  # fmt: skip
    for length in smaller(case.longest, 0):
        found.append(replace(case, lengths=tuple(min(x, length) for x in case.lengths)))
    found += [replace(case, lengths=tuple(y if j == i else x for j, x in enumerate(case.lengths)))
              for i in range(min(n, 8)) for y in smaller(case.lengths[i], 0)]  # fmt: skip
    for name, least, step in (("group", 1, 1), ("heads", 1, 1), ("dim", 8, 8), ("v_dim", 8, 8), ("rotated", 2, 2), ("hidden", 8, 8), ("out", 1, 8),
                              ("page", 1, 1), ("window", 1, 1), ("capacity", case.longest, 1)):  # fmt: skip
        if getattr(case, name):
            found += [replace(case, **{name: value}) for value in smaller(getattr(case, name), least, step)]
    if case.v_dim != case.dim:
        found.append(replace(case, v_dim=case.dim))
    if case.rotated != case.dim:
        found.append(replace(case, rotated=case.dim))
    if case.capacity < case.longest:
        return []
    return [c for c in dict.fromkeys(found) if valid(c) and c.capacity >= c.longest and c.cost() <= case.cost() * 1.2]
