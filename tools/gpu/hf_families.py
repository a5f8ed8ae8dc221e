"""Attention blocks that `cfc import` writes, against transformers' own decoder layers with random weights.

Of each family a model of two layers is made, saved and imported; each layer, its MLP replaced by zero, computes in
float64 what is right. A graph that cfc refuses to compile is listed, and is no failure.

    python3 tools/gpu/hf_families.py                        # compiled, on the GPU, at true sizes
    python3 tools/gpu/hf_families.py --tiny --batch=1,3 --page=0,16
    python3 tools/gpu/hf_families.py --graph                # the graph's meaning: no GPU, nothing is compiled
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time

import torch
import transformers

from graph_in_torch import Graph, named_tensor
from hf_models import FAMILIES, Family, layer_result

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMITS = {torch.float16: 1e-3, torch.bfloat16: 8e-3}  # relative L2 of a row


def relative(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


#===- The graph's meaning ---------------------------------------------------


def check_graph(family, layer, lengths):
    """The imported graph in float64; only angles, which transformers takes in float32, differ."""
    graph = Graph(family.graph_text(layer, f"--batch={len(lengths)}"))
    x, (k_rows, v_rows) = family.inputs(len(lengths), max(lengths) + 1)
    tensors = {a.ssa: named_tensor(family.checkpoint, a.name) for a in graph.arguments.values() if a.is_weight}
    tensors |= {"x": x, "pos": torch.tensor(lengths)}
    (result,), (k_new, v_new) = graph.run(tensors, k_rows, v_rows, lengths)
    worst = 0.0
    for request, length in enumerate(lengths):
        expected = layer_result(family.model, layer, x[request].double(), k_rows[request], v_rows[request], length)
        for found, value in zip((result[request], k_new[request], v_new[request]), expected):
            worst = max(worst, relative(found, value))
    return worst


def check_graphs(options):
    failures = []
    for name in options.families:
        family = Family(name, True, torch.bfloat16, options, "cpu")
        for layer in range(2):
            worst = check_graph(family, layer, [0, 1, 15, 16, 17, 100])
            if not worst < 1e-5:
                failures.append(f"{name} layer {layer}: relative L2 {worst:.1e}")
            print(f"{name} layer {layer}: relative L2 {worst:.1e}", flush=True)
    return failures


#===- Compiled, on the GPU --------------------------------------------------


class Refused(Exception):
    """cfc cannot compile the graph (exit code 3)."""


def compile_graph(options, family, layer, batch, page, capacity):
    """The graph, and the path of its bundle."""
    text = family.graph_text(layer, f"--batch={batch}", f"--page={page}", f"--capacity={capacity}")
    stem = family.folder / f"layer{layer}_b{batch}_p{page}"
    source, bundle = stem.with_suffix(".mlir"), stem.with_suffix(".cfk")
    source.write_text(text)
    command = [options.cfc, "compile", str(source), "-o", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 3:
        raise Refused(done.stderr.strip().splitlines()[0])
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return Graph(text), bundle


class Binding:
    """A bundle bound to the checkpoint's tensors and to caches that `step` fills."""

    def __init__(self, options, family, graph, bundle, batch, page, rows):
        from cfc_loader import Bundle

        self.batch, self.page, self.device = batch, page, family.device
        heads, dim = family.cache_shape
        self.pages_each = -(-rows // page) if page else 0
        shape = (batch * self.pages_each, heads, page, dim) if page else (batch, heads, rows, dim)
        self.caches = [torch.empty(shape, dtype=family.dtype, device=self.device) for _ in range(2)]
        arguments = graph.arguments.values()
        self.tensors = {a.name: named_tensor(family.checkpoint, a.name) for a in arguments if a.is_weight}
        self.small = {a.ssa: torch.zeros(a.shape, dtype=a.dtype, device=self.device) for a in arguments
                      if a.shape and not a.is_weight}
        self.small["len"] = torch.zeros(batch, dtype=torch.int32, device=self.device)
        self.result = torch.empty(batch, family.config.hidden_size, dtype=family.dtype, device=self.device)
        cache = tuple(part if page or batch > 1 else part[0] for part in self.caches)
        self.bundle = Bundle(str(bundle), library=options.library)
        self.binding = self.bundle.bind(self.tensors | self.small | {"cache": cache, "result0": self.result})
        self.workspace = self.bundle.workspace(self.device)

    def step(self, x, rows, lengths):
        """Runs one step; returns the result and the new rows of K and V by request. Rows behind a length are NaN."""
        self.small["x"].copy_(x)
        slots = list(lengths)
        for cache in self.caches:
            cache.fill_(float("nan"))
        if self.page:
            order = torch.randperm(len(self.caches[0]), device=self.device).view(self.batch, -1)
            self.small["pages"].zero_()
            self.small["pages"][:, : self.pages_each] = order
            slots = [int(order[r, n // self.page]) * self.page + n % self.page for r, n in enumerate(lengths)]
        for cache, given in zip(self.caches, rows):
            for request, length in enumerate(lengths):
                for first in range(0, length, self.page or max(length, 1)):
                    count = min(self.page or length, length - first)
                    block = order[request, first // self.page] if self.page else request
                    cache[block, :, :count] = given[request, :, first : first + count]
        for name, value in ("pos", lengths), ("len", lengths), ("slot", slots):
            self.small[name].copy_(torch.tensor(value))
        self.result.fill_(float("nan"))
        self.binding.launch(self.workspace)
        if bits := self.binding.status(clear=True):
            raise RuntimeError(f"device status {bits}")
        places = [divmod(slot, self.page) if self.page else (request, slot) for request, slot in enumerate(slots)]
        new = [[cache[block, :, offset] for block, offset in places] for cache in self.caches]
        return self.result, *new


def check_compiled(options, family, layer, batch, page, job, eager):
    """Compares at all lengths. Returns the failures."""
    title = f"{family.name} layer {layer} batch {batch} page {page}"
    try:
        graph, bundle = job.result()
    except Refused as refusal:
        print(f"{title}: refused: {refusal}", flush=True)
        return []
    lengths = options.len
    most = max(lengths) + 1
    binding = Binding(options, family, graph, bundle, batch, page, most)
    x, rows = family.inputs(batch, most)
    worst, peer, failures = 0.0, 0.0, []
    for shift in range(len(lengths) if batch < len(lengths) else 2):
        now = [lengths[(request + shift) % len(lengths)] for request in range(batch)]
        found = binding.step(x, rows, now)
        for request, length in enumerate(now):
            given = rows[0][request], rows[1][request], length
            expected = layer_result(family.model, layer, x[request].double(), *given)
            for name, value, ours in zip(("result", "k", "v"), expected, (part[request] for part in found)):
                error = relative(ours, value)
                worst = max(worst, error)
                if not error <= LIMITS[family.dtype]:
                    failures.append(f"{title} length {length}: {name}: relative L2 {error:.1e}")
            if eager and batch == 1:
                peer = max(peer, relative(layer_result(eager, layer, x[request], *given)[0], expected[0]))
    beside = f" (transformers eager {peer:.1e})" if peer else ""
    print(f"{title}: relative L2 {worst:.1e}{beside}{'  FAILED' if failures else ''}", flush=True)
    return failures


def check_families(options):
    sys.path.insert(0, str(ROOT / "templates/embed/python"))
    print(f"{torch.cuda.get_device_name()}, lengths {','.join(map(str, options.len))}")
    pool, failures = concurrent.futures.ThreadPoolExecutor(os.cpu_count()), []
    capacity = max(options.len) + 1
    for name in options.families:
        for dtype in options.dtypes:
            family = Family(name, options.tiny, dtype, options, "cuda")
            eager = family.eager()
            jobs = {(layer, batch, page): pool.submit(compile_graph, options, family, layer, batch, page, capacity)
                    for layer in range(2) for batch in options.batch for page in options.page}
            for (layer, batch, page), job in jobs.items():
                failures += check_compiled(options, family, layer, batch, page, job, eager)
            del family, eager
            torch.cuda.empty_cache()
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(item) for item in text.split(",")]  # noqa: E731
    types = {"f16": torch.float16, "bf16": torch.bfloat16}
    parser.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the cfc program (build/bin/cfc)")
    library = "build/lib/libcfc_runtime.so.1"
    parser.add_argument("--library", default=str(ROOT / library), help=f"the runtime ({library})")
    parser.add_argument("--work", default=str(ROOT / "build/gpu/families"), help="folder for models (build/gpu/families)")
    parser.add_argument("--families", default=list(FAMILIES), type=lambda text: text.split(","),
                        help=f"of {', '.join(FAMILIES)} (all)")
    parser.add_argument("--dtypes", default=[torch.bfloat16], type=lambda text: [types[t] for t in text.split(",")],
                        help="of f16, bf16 (bf16)")
    parser.add_argument("--tiny", action="store_true", help="sizes for quick checks instead of true ones")
    parser.add_argument("--len", default=[0, 1, 63, 64, 65, 1000, 5000], type=numbers,
                        help="cached tokens (0,1,63,64,65,1000,5000)")
    parser.add_argument("--batch", default=[1, 3, 8, 33], type=numbers, help="requests (1,3,8,33)")
    parser.add_argument("--page", default=[0, 64], type=numbers, help="tokens of a page, 0: contiguous (0,64)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and inputs (1)")
    parser.add_argument("--graph", action="store_true", help="run the graph in PyTorch, tiny sizes, on the CPU")
    options = parser.parse_args()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    started = time.monotonic()
    with torch.no_grad():
        failures = check_graphs(options) if options.graph else check_families(options)
    for failure in failures[:20]:
        print("FAILED:", failure)
    verdict = f"{len(failures)} FAILED" if failures else "passed"
    print(f"hf_families: {verdict} ({time.monotonic() - started:.0f} s)")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
