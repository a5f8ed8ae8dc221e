"""What the checks on a GPU share: options, compiling, binding torch tensors, comparing."""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time

import torch

import plan_text
from blocks import BLOCKS, DTYPES, graph_text

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "templates/embed/python"))
from cfc_loader import Bundle  # noqa: E402

TORCH_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
# Largest relative L2, and largest error of an element in units of its row's rms.
LIMITS = {"f16": (1e-3, 8e-3), "bf16": (8e-3, 6e-2)}


def parser(description):
    """An argument parser with the options that every check has."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the cfc program (build/bin/cfc)")
    library = "build/lib/libcfc_runtime.so.1"
    result.add_argument("--library", default=str(ROOT / library), help=f"the runtime ({library})")
    result.add_argument("--work", default=str(ROOT / "build/gpu"), help="folder for graphs and bundles (build/gpu)")
    result.add_argument("--blocks", default=",".join(BLOCKS), help=f"of {', '.join(BLOCKS)} (all)")
    result.add_argument("--dtypes", default=",".join(DTYPES), help="of f16, bf16 (both)")
    result.add_argument("--seed", type=int, default=1, help="seed of the inputs (1)")
    return result


def add_lengths(arguments, default):
    numbers = lambda text: [int(item) for item in text.split(",")]  # noqa: E731
    arguments.add_argument("--len", type=numbers, default=numbers(default), help=f"tokens in the cache ({default})")


class Harness:
    """Compiles graphs with the program that the options name, in parallel, and loads bundles with their runtime."""

    def __init__(self, options):
        if not torch.cuda.is_available():
            sys.exit("error: torch sees no GPU")
        self.options, self.work = options, pathlib.Path(options.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.started = time.monotonic()
        torch.backends.cuda.matmul.allow_tf32 = False
        print(f"{torch.cuda.get_device_name(self.device)}, torch {torch.__version__}, CUDA {torch.version.cuda}")

    def cases(self):
        """(block, dtype's name) of the options."""
        return [(BLOCKS[b], d) for b in self.options.blocks.split(",") for d in self.options.dtypes.split(",")]

    def cfc(self, *arguments):
        """Runs cfc and returns what it printed. Raises with its message where it fails."""
        done = subprocess.run([self.options.cfc, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"cfc {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def write(self, name, text):
        path = self.work / name
        path.write_text(text)
        return path

    def compile(self, block, dtype, inside=False):
        """Starts compiling a block with the planner's choice. `.result()` is the bundle's path."""
        name = f"{block.name}_{dtype}{'_inside' if inside else ''}"
        graph = self.write(f"{name}.mlir", graph_text(block, dtype, inside))
        return self.pool.submit(self._compile, graph, f"{name}.cfk")

    def compile_plan(self, graph, plan, name):
        """Starts compiling the file `graph` with the file `plan` to the bundle `name`."""
        return self.compile_with(graph, name, "--plan", plan)

    def compile_with(self, graph, name, *arguments):
        """Starts compiling the file `graph` to the bundle `name` with more arguments."""
        return self.pool.submit(self._compile, graph, name, *arguments)

    def _compile(self, graph, name, *arguments):
        path = self.work / name
        self.cfc("compile", graph, "-o", path, *arguments)
        return path

    def load(self, path):
        return Bundle(str(path), library=self.options.library)

    def compile_starts(self, graph, name, text, values):
        """Starts compiling the file `graph` with the full plan `text` and each of the values of pdl (plan_text.py).
        Returns the jobs by value, and says which values the plan refuses."""
        jobs = {}
        for value in values:
            path = self.work / f"{name}_pdl{value}.plan"
            try:
                plan_text.write_pdl_plan(self.options.cfc, graph, text, value, path)
            except plan_text.Refused as why:
                print(f"{name}: pdl {value} skipped: {why}", flush=True)
                continue
            jobs[value] = self.compile_plan(graph, path, f"{name}_pdl{value}.cfk")
        return jobs

    def finish(self, failures):
        """Prints the summary and ends the program."""
        for failure in failures[:20]:
            print("FAILED:", failure)
        verdict = f"{len(failures)} FAILED" if failures else "passed"
        print(f"{pathlib.Path(sys.argv[0]).stem}: {verdict} ({time.monotonic() - self.started:.0f} s)")
        sys.exit(1 if failures else 0)


class Program:
    """A bundle bound to tensors, with results of its own. `plan_hash`: that variant of it alone."""

    def __init__(self, harness, path, tensors, plan_hash=None):
        self.bundle = harness.load(path)
        graph = self.bundle.manifest["graphs"][0]
        self.results = {
            spec["name"]: torch.empty(spec["shape"], dtype=TORCH_DTYPES[spec["dtype"]], device=harness.device)
            for spec in graph["tensors"]
            if spec["role"] == "output"
        }
        self.kernels = [kernel["name"] for kernel in graph["variants"][0]["kernels"]]
        self.variants = graph["variants"]
        self.binding = self.bundle.bind({**tensors, **self.results}, plan_hash=plan_hash)
        self.workspace = self.bundle.workspace(harness.device)

    def launch(self, **hints):
        self.binding.launch(self.workspace, **hints)

    def run(self, **hints):
        """Launches into poisoned results and returns copies of them."""
        for result in self.results.values():
            result.fill_(float("nan"))
        self.launch(**hints)
        return {name: result.clone() for name, result in self.results.items()}


def same_bits(a, b):
    """Whether two tensors hold the same bytes (NaN or not)."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def relative_l2(found, expected, by_row=False):
    """|found - expected| / |expected|; with `by_row` the largest over the rows (heads)."""
    error = (found.double() - expected).flatten(0 if not by_row else 1)
    size = expected.flatten(0 if not by_row else 1)
    return (error.norm(dim=-1) / size.norm(dim=-1)).max().item()


def largest_error(found, expected):
    """The largest error of an element in units of its row's rms."""
    rms = expected.square().mean(dim=-1, keepdim=True).sqrt()
    return ((found.double() - expected).abs() / rms).max().item()
