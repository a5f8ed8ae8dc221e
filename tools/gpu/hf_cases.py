"""The compiled cases of hf_families.py: a graph of a family's layer, run at ragged lengths, beside transformers' layer."""
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import torch

from graph_in_torch import Graph, named_tensor
from hf_models import Family, layer_result

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMITS = {torch.float16: 1e-3, torch.bfloat16: 8e-3}  # relative L2 of a row
PART = 2  # times that: of the block alone, to whose error the roundings of all its values add up


@dataclasses.dataclass(frozen=True)
class Case:
    size: str  # tiny, true
    family: str
    dtype: str  # f16, bf16
    layer: int
    batch: int
    page: int  # tokens, 0: contiguous

    @property
    def key(self):
        return f"{self.size} {self.family} {self.dtype} layer {self.layer} batch {self.batch} page {self.page}"


@dataclasses.dataclass
class Worst:
    """The largest errors of a case, and what was beyond a limit."""

    result: float = 0.0  # relative L2 of a row of the result, of K and of V
    part: float = 0.0  # without the last rounding, relative to what the block adds to x
    peer: float = 0.0  # as `part`, of transformers in the model's own type
    faults: list = dataclasses.field(default_factory=list)


def relative(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


def relative_part(found, expected, x, dtype):
    """x does not count in what the error is divided by, and the rounding of the sum, which nobody avoids, is taken off
    as an error of its own (squares add up), with a quarter more: values next to a middle are rounded the other way."""
    error, rounding = ((row.double() - expected).norm() for row in (found, expected.to(dtype)))
    return float((error.square() - (1.25 * rounding).square()).clamp(min=0).sqrt() / (expected - x.double()).norm())


class Refused(Exception):
    """cfc cannot compile the graph (exit code 3)."""


def compile_graph(options, family, case, capacity):
    """The graph, and the path of its bundle."""
    text = family.graph_text(case.layer, f"--batch={case.batch}", f"--page={case.page}", f"--capacity={capacity}")
    stem = family.folder / f"layer{case.layer}_b{case.batch}_p{case.page}"
    source, bundle = stem.with_suffix(".mlir"), stem.with_suffix(".cfk")
    source.write_text(text)
    command = [options.cfc, "compile", str(source), "-o", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 3:
        raise Refused(done.stderr.strip().splitlines()[0])
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[:1000]}")
    return Graph(text), bundle


class OnGpu:
    """A bundle bound to the buffers of a `Step` through the ctypes loader."""

    def __init__(self, options, family, graph, bundle, step):
        sys.path.insert(0, str(ROOT / "templates/embed/python"))
        from cfc_loader import Bundle

        weights = {a.name: named_tensor(family.checkpoint, a.name) for a in graph.arguments.values() if a.is_weight}
        cache = tuple(part if part.dim() == 4 and step.has_blocks else part[0] for part in step.caches)
        self.bundle = Bundle(str(bundle), library=options.library)
        self.binding = self.bundle.bind(weights | step.small | {"cache": cache, "result0": step.result})
        self.workspace = self.bundle.workspace(step.device)

    def run(self):
        self.binding.launch(self.workspace)
        if bits := self.binding.status(clear=True):
            raise RuntimeError(f"device status {bits}")


class OnEmulator:
    """The same by `cfc run`, through files: for trying this program without a GPU, at tiny sizes."""

    def __init__(self, options, family, graph, bundle, step):
        self.step, self.out = step, family.folder / "out"
        self.command = [options.cfc, "run", str(bundle), "--device=emu", f"--weights={family.folder}", f"--output={self.out}"]

    def run(self):
        from safetensors.torch import save_file

        step = self.step
        parts = (part if step.has_blocks else part[0] for part in step.caches)
        tensors = dict(step.small) | dict(zip(("cache.k", "cache.v"), parts))
        file = self.out.with_suffix(".in.safetensors")
        save_file({name: value.contiguous() for name, value in tensors.items()}, file)
        inputs = [f"--input={name}={file}:{name}" for name in tensors] + ["--input=random"]
        done = subprocess.run(self.command + inputs, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"cfc run: exit {done.returncode}: {(done.stderr or done.stdout).strip()[:1000]}")
        self.read("result0", step.result)
        for name, cache in zip(("cache.k", "cache.v"), step.caches):
            self.read(name, cache)

    def read(self, name, target):
        import numpy

        found = torch.from_numpy(numpy.load(self.out / f"{name}.npy"))
        target.copy_(found.view(target.shape).to(target.dtype))


class Step:
    """The buffers of one case. `fill` makes them ready for a step, `check_rest` sees that nothing else was written."""

    def __init__(self, family, graph, case, rows):
        self.case, self.dtype, self.device = case, family.dtype, family.device
        heads, dim = family.cache_shape
        self.pages_each = -(-rows // case.page) if case.page else 0
        shape = (case.batch * self.pages_each, heads, case.page, dim) if case.page else (case.batch, heads, rows, dim)
        self.has_blocks = bool(case.page) or case.batch > 1
        self.caches = [torch.empty(shape, dtype=family.dtype, device=self.device) for _ in range(2)]
        self.small = {a.ssa: torch.zeros(a.shape, dtype=a.dtype, device=self.device) for a in graph.arguments.values()
                      if a.shape and not a.is_weight}
        self.small["len"] = torch.zeros(case.batch, dtype=torch.int32, device=self.device)
        self.result = torch.empty(case.batch, family.config.hidden_size, dtype=family.dtype, device=self.device)

    def fill(self, x, rows, lengths):
        """Rows behind a length, pages that nobody has and the result are NaN. Pages come in any order."""
        page, self.small["x"][:] = self.case.page, x
        slots = list(lengths)
        if page:
            order = torch.randperm(len(self.caches[0])).view(self.case.batch, -1)
            self.small["pages"].zero_()
            self.small["pages"][:, : self.pages_each] = order
            slots = [int(order[r, n // page]) * page + n % page for r, n in enumerate(lengths)]
        for cache, given in zip(self.caches, rows):
            cache.fill_(float("nan"))
            for request, length in enumerate(lengths):
                if not page:
                    cache[request, :, :length] = given[request, :, :length]
                elif length:
                    count = -(-length // page)
                    padded = torch.full_like(given[request, :, :1], float("nan")).repeat(1, count * page, 1)
                    padded[:, :length] = given[request, :, :length]
                    cache[order[request, :count]] = padded.unflatten(1, (count, page)).transpose(0, 1)
        for name, value in ("pos", lengths), ("len", lengths), ("slot", slots):
            self.small[name].copy_(torch.tensor(value))
        self.result.fill_(float("nan"))
        self.places = [divmod(slot, page) if page else (request, slot) for request, slot in enumerate(slots)]
        self.before = [cache.clone() for cache in self.caches]

    def new_rows(self):
        return [[cache[block, :, offset] for block, offset in self.places] for cache in self.caches]

    def rest_changed(self):
        blocks, offsets = (torch.tensor(part, device=self.device) for part in zip(*self.places))
        for cache, before in zip(self.caches, self.before):
            before[blocks, :, offsets] = cache[blocks, :, offsets]
            if not torch.equal(cache.nan_to_num(7e4), before.nan_to_num(7e4)):
                return True
        return False


class Reference:
    """transformers' answers, each computed once for all batches and kinds of cache."""

    def __init__(self, family, batch, rows):
        self.family, self.known, self.peers = family, {}, {}
        self.x, self.rows = family.inputs(batch, rows)
        self.eager = family.eager()

    def expected(self, layer, request, length):
        key = layer, request, length
        if key not in self.known:
            x = self.x[request].double()
            self.known[key] = layer_result(self.family.model, layer, x, *self.of(request), length)
        return self.known[key]

    def peer(self, layer, request, length):
        key = layer, request, length
        if key not in self.peers:
            found = layer_result(self.eager, layer, self.x[request], *self.of(request), length)[0]
            expected = self.expected(layer, request, length)[0]
            self.peers[key] = relative_part(found, expected, self.x[request], self.family.dtype)
        return self.peers[key]

    def of(self, request):
        return self.rows[0][request], self.rows[1][request]


def run_case(options, reference, case, graph, bundle):
    """Steps at all lengths, in turn over the requests. Returns Worst."""
    family, lengths, worst = reference.family, options.len, Worst()
    step = Step(family, graph, case, max(lengths) + 1)
    program = (OnEmulator if options.device == "emu" else OnGpu)(options, family, graph, bundle, step)
    rows = [part[: case.batch] for part in reference.rows]
    for shift in range(len(lengths) if case.batch < len(lengths) else 2):
        now = [lengths[(request + shift) % len(lengths)] for request in range(case.batch)]
        step.fill(reference.x[: case.batch], rows, now)
        program.run()
        if step.rest_changed():
            worst.faults.append(f"shift {shift}: other rows of the cache were written")
        found = step.result, *step.new_rows()
        for request, length in enumerate(now):
            expected = reference.expected(case.layer, request, length)
            compare_request(worst, case, reference, request, length, expected, [part[request] for part in found])
    return worst


def compare_request(worst, case, reference, request, length, expected, found):
    dtype = reference.family.dtype
    errors = {name: relative(ours, value) for name, value, ours in zip(("result", "k", "v"), expected, found)}
    part = relative_part(found[0], expected[0], reference.x[request], dtype)
    worst.result = max(worst.result, *errors.values())
    worst.part = max(worst.part, part)
    if case.batch == 1:
        worst.peer = max(worst.peer, reference.peer(case.layer, request, length))
    for name, error in (errors | {"block alone": part / PART}).items():
        if not error <= LIMITS[dtype]:
            worst.faults.append(f"request {request} length {length}: {name}: relative L2 {error:.1e}")


def same_layers(family):
    """Whether both layers have the same graph but for the names of their weights."""
    first, second = (re.sub(r"layer_?s?[._]?\d+", "layer", family.graph_text(layer)) for layer in range(2))
    return first == second


#===- The worker ------------------------------------------------------------


class Results:
    """The file of results: a line of a case as it starts, and one as it ends."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def write(self, state, case, text=""):
        line = f"{state}\t{case.key}\t{text}".replace("\n", " ")
        self.file.write(line + "\n")
        if state != "start":
            print(line.replace("\t", "  "), flush=True)


def prepare(options, cases, results):
    """Models and bundles of all cases, (case, family, future of its graph and bundle); compiling goes on behind."""
    pool, families, jobs, alike = concurrent.futures.ThreadPoolExecutor(options.jobs or os.cpu_count()), {}, [], {}
    for case in cases:
        name = case.size, case.family, case.dtype
        try:
            if name not in families:
                families[name] = None
                dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[case.dtype]
                device = "cpu" if options.device == "emu" else "cuda"
                families[name] = Family(case.family, case.size == "tiny", dtype, options, device)
                alike[name] = same_layers(families[name])
            family = families[name]
            if family is None:
                raise RuntimeError("the model could not be made")
            if case.layer and alike[name]:
                results.write("same", case, "as layer 0")
                continue
            jobs.append((case, family, pool.submit(compile_graph, options, family, case, max(options.len) + 1)))
        except Exception as error:  # noqa: BLE001: the next case may be fine
            results.write("error", case, repr(error)[:500])
    return jobs


def run_cases(options, cases, results):
    """Runs all; whatever happens to one is written down. Returns False if the device is lost."""
    reference, batch = None, max(case.batch for case in cases)
    for case, family, job in prepare(options, cases, results):
        if job.done() and isinstance(job.exception(), Refused):
            results.write("refused", case, str(job.exception()))
            continue
        results.write("start", case)
        try:
            graph, bundle = job.result()
            if reference is None or reference.family is not family:
                reference = None
                reference = Reference(family, batch, max(options.len) + 1)
            worst = run_case(options, reference, case, graph, bundle)
        except Refused as refusal:
            results.write("refused", case, str(refusal))
        except Exception as error:  # noqa: BLE001
            results.write("error", case, f"{type(error).__name__}: {error}"[:500])
            if options.device != "emu" and device_is_lost():
                return False
        else:
            numbers = f"{worst.result:.1e}\t{worst.part:.1e}\t{worst.peer:.1e}"
            results.write("FAILED" if worst.faults else "ok", case, "\t".join([numbers, *worst.faults[:3]]))
    return True


def device_is_lost():
    """After a fault of a kernel every call of its context fails."""
    try:
        torch.cuda.synchronize()
        return False
    except Exception:  # noqa: BLE001
        return True
