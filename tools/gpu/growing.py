"""One captured CUDA graph of a batch is replayed while lengths grow and pages are added.

    python3 tools/gpu/growing.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1
    python3 tools/gpu/growing.py --small --steps=14 --every=5 --page=4 --device=emu    # no GPU: the logic of this script

The attention block of Llama 3 8B for 8 requests, in pages of 16 tokens from a shuffled pool. A launch is captured once,
before any request has a token. Each step writes hidden states, lengths, positions and slots to device memory, gives a
request whose length has filled its pages one more of the pool in the block table, and replays the graph, which appends
to the cache by itself. Requests are idle at times; the first never is, and grows to the last step. Every 500th step, and the
last, is held to a float64 reference (graph_in_torch.py) over what the cache holds: results and appended rows of all requests. In
between results must be finite, and at the end the whole pool must have NaN where nobody has appended.

With --device=emu each step is a run of `cfc run`, which takes the cache that the step before has left.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import time

import torch

from graph_in_torch import Graph

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Largest relative L2 of a request's result or new rows.
LIMITS = {"f16": 1e-3, "bf16": 8e-3}


def graph_text(hidden, heads, kv_heads, dim, batch, page, columns, bound, dtype):
    q, kv = heads * dim, kv_heads * dim
    return f"""\
attn.graph @growing(
    %x: tensor<{batch}x{hidden}x{dtype}>, %gain: tensor<{hidden}x{dtype}>,
    %w_q: tensor<{q}x{hidden}x{dtype}>, %w_k: tensor<{kv}x{hidden}x{dtype}>, %w_v: tensor<{kv}x{hidden}x{dtype}>,
    %w_o: tensor<{hidden}x{q}x{dtype}>,
    %cache: !attn.kv_cache<heads = {kv_heads}, dim = {dim}, page = {page}, {dtype}>,
    %pages: tensor<{batch}x{columns}xi32>,
    %pos: tensor<{batch}xi32>, %slot: tensor<{batch}xi64>, %len: !attn.lengths<{batch}, capacity = {bound}>)
    -> tensor<{batch}x{hidden}x{dtype}> {{
  %table = attn.rope_table {{base = 500000.0, dim = {dim}, positions = {bound + 1}}}
  %n = attn.rms_norm %x, %gain {{eps = 1.0e-5}}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {{style = half_split}}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len pages %pages {{scale = {dim**-0.5!r}}}
  %y = attn.linear %o, [%w_o]
  %z = attn.add %x, %y
  attn.return %z
}}
"""


class Schedule:
    """Lengths, idle requests and pages, step by step."""

    def __init__(self, batch, page, steps, seed):
        self.page, self.columns = page, -(-(steps + 1) // page)
        self.spell = min(37, max(1, steps // 10))  # steps that a request is idle
        # Some pages more than all requests can need, in random order.
        self.free = list(range(batch * self.columns + 7))
        random.Random(seed).shuffle(self.free)
        self.pool = len(self.free)
        self.lengths, self.owned = [0] * batch, [[] for _ in range(batch)]
        self.added = []  # (request, column, page) of this step

    def is_idle(self, step, request):
        return request > 0 and (step // self.spell + request) % 5 == 4

    def begin(self, step):
        """The slot of each request, -1 where it is idle, and in `added` the pages that block tables get before."""
        slots, self.added = [], []
        for request, length in enumerate(self.lengths):
            if self.is_idle(step, request):
                slots.append(-1)
                continue
            pages = self.owned[request]
            if length == len(pages) * self.page:
                pages.append(self.free.pop())
                self.added.append((request, len(pages) - 1, pages[-1]))
            slots.append(pages[length // self.page] * self.page + length % self.page)
        return slots

    def end(self, slots):
        self.lengths = [length + (slot >= 0) for length, slot in zip(self.lengths, slots)]

    def rows(self, cache, request):
        """[heads, length, dim]: the tokens of a request in a pool [pages, heads, page, dim]."""
        pages = torch.tensor(self.owned[request], dtype=torch.long, device=cache.device)
        rows = cache[pages].transpose(0, 1).flatten(1, 2)
        return rows[:, : self.lengths[request]]


class Captured:
    """The launch in a CUDA graph, through the C runtime."""

    def __init__(self, options, path, tensors, output):
        sys.path.insert(0, str(ROOT / "templates/embed/python"))
        from cfc_loader import Bundle

        self.tensors, self.output = tensors, output
        bundle = Bundle(str(path), library=options.library)
        self.binding = bundle.bind({**tensors, "result0": output})
        self.workspace = bundle.workspace(output.device)
        self.binding.launch(self.workspace)  # once before the capture, as torch asks for; all requests are idle
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.binding.launch(self.workspace)

    def replay(self):
        self.graph.replay()

    def status(self):
        return self.binding.status()


class Emulated:
    """`cfc run` on the emulator, from and to files."""

    def __init__(self, options, path, tensors, output):
        self.cfc, self.path, self.tensors, self.output = options.cfc, path, tensors, output
        self.folder, self.bits, self.seed = pathlib.Path(options.work) / "step", 0, 0

    def replay(self):
        import numpy

        self.folder.mkdir(exist_ok=True)
        inputs = {name: value for name, value in self.tensors.items() if name != "cache"}
        inputs |= dict(zip(("cache.k", "cache.v"), self.tensors["cache"]))
        command = [self.cfc, "run", self.path, "--device=emu", f"--seed={self.seed}", f"--output={self.folder}"]
        for name, value in inputs.items():
            numpy.save(self.folder / f"in.{name}.npy", value.numpy())
            command.append(f"--input={name}={self.folder}/in.{name}.npy")
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
        self.bits |= "out of its bound" in done.stderr
        self.seed += 1
        self.output.copy_(torch.from_numpy(numpy.load(self.folder / "result0.npy")))
        for name, part in zip(("cache.k", "cache.v"), self.tensors["cache"]):
            part.copy_(torch.from_numpy(numpy.load(self.folder / f"{name}.npy")))

    def status(self):
        return self.bits


class Growing:
    """The batch, its tensors in device memory, and what is right."""

    def __init__(self, options):
        self.options = options
        self.device = torch.device("cpu" if options.device == "emu" else "cuda:0")
        torch.set_default_device(self.device)
        self.dtype_name = "f16" if options.device == "emu" else options.dtype
        self.dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[self.dtype_name]
        sizes = (96, 4, 2, 32) if options.small else (4096, 32, 8, 128)
        self.hidden, self.heads, self.kv_heads, self.dim = sizes
        self.schedule = Schedule(options.batch, options.page, options.steps, options.seed)
        text = graph_text(*sizes, options.batch, options.page, self.schedule.columns, options.steps, self.dtype_name)
        self.reference = Graph(text)
        self.tensors, self.failures, self.worst = self.make_tensors(), [], 0.0
        self.output = torch.empty(options.batch, self.hidden, dtype=self.dtype)
        self.path = self.compile(text)
        kind = Emulated if options.device == "emu" else Captured
        self.program = kind(options, self.path, self.tensors, self.output)

    def compile(self, text):
        work = pathlib.Path(self.options.work)
        work.mkdir(parents=True, exist_ok=True)
        source, bundle = work / "growing.mlir", work / "growing.cfk"
        source.write_text(text)
        if self.options.device == "emu":
            return source
        subprocess.run([self.options.cfc, "compile", source, "-o", bundle, *self.options.compile], check=True)
        return bundle

    def make_tensors(self):
        options, generator = self.options, torch.Generator(self.device).manual_seed(self.options.seed)

        def normal(*shape, deviation=1.0, mean=0.0):
            return (mean + deviation * torch.randn(shape, generator=generator)).to(self.dtype)

        q, kv, hidden = self.heads * self.dim, self.kv_heads * self.dim, self.hidden
        shape = (self.schedule.pool, self.kv_heads, options.page, self.dim)
        tensors = {
            "x": normal(options.batch, hidden),
            "gain": normal(hidden, deviation=0.1, mean=1.0),
            "w_q": normal(q, hidden, deviation=hidden**-0.5),
            "w_k": normal(kv, hidden, deviation=hidden**-0.5),
            "w_v": normal(kv, hidden, deviation=hidden**-0.5),
            "w_o": normal(hidden, q, deviation=q**-0.5),
            "cache": tuple(torch.full(shape, float("nan"), dtype=self.dtype) for _ in range(2)),
            # Entries that nobody may read lead out of the pool.
            "pages": torch.full((options.batch, self.schedule.columns), 2**31 - 1, dtype=torch.int32),
            "pos": torch.zeros(options.batch, dtype=torch.int32),
            "slot": torch.full((options.batch,), -1, dtype=torch.int64),
            "len": torch.zeros(options.batch, dtype=torch.int32),
        }
        self.states = normal(97, options.batch, hidden)
        return tensors

    def expect(self, condition, what):
        if not condition:
            self.failures.append(what)

    def prepare(self, step):
        """Writes the step's values to device memory. Returns the slots."""
        slots = self.schedule.begin(step)
        for request, column, page in self.schedule.added:
            self.tensors["pages"][request, column] = page
        self.tensors["x"].copy_(self.states[step % len(self.states)])
        for name, values in (("len", self.schedule.lengths), ("pos", self.schedule.lengths), ("slot", slots)):
            self.tensors[name].copy_(torch.tensor(values, dtype=self.tensors[name].dtype, device="cpu"))
        return slots

    def expected(self, slots):
        """Results and new rows in float64, of the requests that are not idle; from the cache before the step."""
        active = [request for request, slot in enumerate(slots) if slot >= 0]
        lengths = [self.schedule.lengths[request] for request in active]
        k_rows, v_rows = ([self.schedule.rows(part, request) for request in active] for part in self.tensors["cache"])
        tensors = {name: self.tensors[name] for name in ("gain", "w_q", "w_k", "w_v", "w_o")}
        tensors |= {"x": self.tensors["x"][active], "pos": self.tensors["pos"][active]}
        (result,), new = self.reference.run(tensors, k_rows, v_rows, lengths)
        return active, result, new

    def compare(self, step, slots, active, result, new):
        limit = LIMITS[self.dtype_name]
        for index, request in enumerate(active):
            page, offset = divmod(slots[request], self.options.page)
            found = {"result": self.output[request], "k": self.tensors["cache"][0][page, :, offset],
                     "v": self.tensors["cache"][1][page, :, offset]}
            right = {"result": result[index], "k": new[0][index], "v": new[1][index]}
            for name, value in found.items():
                error = float((value.double() - right[name]).norm() / right[name].norm())
                self.worst = max(self.worst, error) if error == error else error
                self.expect(error <= limit, f"step {step}, request {request}, length {self.schedule.lengths[request]}: "
                                            f"{name} is off by {error:.1e}, relative L2 (limit {limit:.0e})")

    def step(self, step):
        slots = self.prepare(step)
        checked = step % self.options.every == 0 or step == self.options.steps
        right = self.expected(slots) if checked else None
        self.output.fill_(float("nan"))
        self.program.replay()
        if checked:
            self.compare(step, slots, *right)
            active = right[0]
            print(f"step {step}: lengths {self.schedule.lengths}, {len(active)} of {self.options.batch} requests, "
                  f"{sum(map(len, self.schedule.owned))} pages: {'FAILED' if self.failures else 'right'}", flush=True)
        else:
            active = [request for request, slot in enumerate(slots) if slot >= 0]
        self.expect(bool(torch.isfinite(self.output[active]).all()), f"step {step}: a result is not finite")
        self.schedule.end(slots)

    def check_pool(self):
        """All rows that somebody has appended are finite, all others still NaN."""
        used = torch.zeros(self.schedule.pool, self.options.page, dtype=torch.bool)
        for length, pages in zip(self.schedule.lengths, self.schedule.owned):
            for index, page in enumerate(pages):
                used[page, : length - index * self.options.page] = True
        for name, part in zip("kv", self.tensors["cache"]):
            finite = torch.isfinite(part).all(dim=3).all(dim=1)
            self.expect(bool((finite == used).all()), f"rows of {name} that nobody appended to have changed, or lack")

    def run(self):
        for step in range(self.options.steps + 1):
            self.step(step)
            if len(self.failures) > 20:
                break
        self.check_pool()
        self.expect(not self.program.status(), "the sticky status is set")
        return self.failures


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the cfc program (build/bin/cfc)")
    library = "build/lib/libcfc_runtime.so.1"
    arguments.add_argument("--library", default=str(ROOT / library), help=f"the runtime ({library})")
    arguments.add_argument("--work", default=str(ROOT / "build/gpu/growing"), help="folder for files (build/gpu/growing)")
    arguments.add_argument("--device", choices=("gpu", "emu"), default="gpu", help="emu: each step by `cfc run` (gpu)")
    arguments.add_argument("--steps", type=int, default=9000, help="the last step, and length (9000)")
    arguments.add_argument("--every", type=int, default=500, help="steps from one that is checked to the next (500)")
    arguments.add_argument("--batch", type=int, default=8, help="requests (8)")
    arguments.add_argument("--page", type=int, default=16, help="tokens of a page (16)")
    arguments.add_argument("--dtype", choices=tuple(LIMITS), default="bf16", help="(bf16; f16 on the emulator)")
    arguments.add_argument("--small", action="store_true", help="a block of hidden size 96")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--compile", action="append", default=[], metavar="OPTION", help="one more option of `cfc compile`")
    options = arguments.parse_args()
    if options.device == "gpu" and not torch.cuda.is_available():
        sys.exit("error: torch sees no GPU")
    started = time.monotonic()
    growing = Growing(options)
    failures = growing.run()
    for failure in failures[:20]:
        print("FAILED:", failure)
    print(json.dumps({"steps": options.steps, "batch": options.batch, "lengths": growing.schedule.lengths,
                      "worst_relative_l2": growing.worst, "seconds": round(time.monotonic() - started, 1)}))
    print("growing:", f"{len(failures)} FAILED" if failures else "passed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
