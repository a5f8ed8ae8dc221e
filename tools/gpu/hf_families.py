#!/usr/bin/env python3
"""Attention blocks that `cfc import` writes, against transformers' own decoder layers with random weights.

Of each family a model of two layers is made, saved and imported; each layer, its MLP replaced by zero, computes in
float64 what is right. Every case ends in a line of WORK/results.txt; a case whose kernels fault or hang costs the others
nothing, and the same command goes on where it was stopped. At the end stands a table in markdown. A graph that cfc
refuses to compile is listed, and is no failure.

    python3 tools/gpu/hf_families.py --cfc cfc --library libcfc_runtime.so.1   # all, on the GPU
    python3 tools/gpu/hf_families.py --quick                                   # a few cases of each family
    python3 tools/gpu/hf_families.py --sizes=tiny --families=llama3,gpt_oss --batch=1,3 --page=0,16
    python3 tools/gpu/hf_families.py --graph          # the graph's meaning: no GPU, nothing is compiled
    python3 tools/gpu/hf_families.py --device=emu --sizes=tiny --len=0,1,17 --batch=1,3   # the emulator; slow

Tiny models run at all lengths, in all batches, contiguous and paged; true sizes each batch and each kind of cache,
unless --batch and --page are given: then all pairs of them.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import time

import torch
import transformers

from graph_in_torch import Graph, named_tensor
from hf_cases import Case, Results, relative, run_cases
from hf_models import FAMILIES, Family, layer_result

ROOT = pathlib.Path(__file__).resolve().parents[2]
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
LOST = 75  # exit code of a worker whose device is lost
QUICK = ["llama2", "llama3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "granite", "olmo2", "gpt_oss"]
TRUE_PAIRS = [(1, 0), (3, 64), (8, 0), (33, 64)]  # (batch, page)


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
    failures = 0
    for name in options.families:
        family = Family(name, True, torch.bfloat16, options, "cpu")
        for layer in range(2):
            worst = check_graph(family, layer, [0, 1, 15, 16, 17, 100])
            failures += not worst < 1e-5
            print(f"{name} layer {layer}: relative L2 {worst:.1e}{'' if worst < 1e-5 else '  FAILED'}", flush=True)
    return failures


#===- Cases -----------------------------------------------------------------


def chosen_cases(options):
    """In the order in which they run: what takes longest to compile first."""
    cases = []
    for size in options.sizes:
        batches, pages = options.batch or [1, 3, 8, 33], options.page or [0, 64]
        pairs = [(batch, page) for batch in batches for page in pages]
        if size == "true" and not options.batch and not options.page:
            pairs = TRUE_PAIRS
        if options.quick:
            pairs = [(3, 64)] if size == "true" else [(1, 0), (8, 64)]
        for family in options.families:
            for dtype in options.dtypes:
                cases += [Case(size, family, dtype, layer, *pair) for layer in range(2) for pair in pairs]
    return cases


def read_results(path):
    """Key of a case: (state, rest of its last line)."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        state, key, *rest = line.split("\t")
        found[key] = state, rest
    return found


def work(options, cases, path):
    """The worker: all cases without a line. A case that another worker only started is left as it is."""
    done = read_results(path)
    rest = [case for case in cases if case.key not in done]
    return 0 if not rest or run_cases(options, rest, Results(path)) else LOST


def supervise(options, cases, path):
    """Starts workers until nothing is left: a new one where the device was lost, a kernel hung or a worker died."""
    started = time.monotonic()
    results = Results(path)
    while True:
        command, known = [sys.executable, "-u", *sys.argv, "--worker"], len(read_results(path))
        worker, size, changed = subprocess.Popen(command), -1, time.monotonic()
        while worker.poll() is None:
            time.sleep(0.2)
            now = time.monotonic()
            if path.stat().st_size != size:
                size, changed = path.stat().st_size, now
            if now - changed > options.stall or now - started > options.limit:
                worker.kill()
                worker.wait()
        found = read_results(path)
        for case in cases:
            if found.get(case.key, ("",))[0] == "start":
                why = "no end within the limit" if now - started > options.limit else f"worker ended with {worker.returncode}"
                results.write("error", case, f"the case did not end: {why}")
        missing = [case for case in cases if case.key not in read_results(path)]
        if not missing or worker.returncode == 0 or now - started > options.limit:
            return [case.key for case in missing]
        if len(found) == known:
            print(f"error: the worker ended with {worker.returncode} before its first case")
            return [case.key for case in missing]


#===- The table -------------------------------------------------------------


def worst_of(rows, column):
    numbers = [float(rest[column]) for state, rest in rows if state in ("ok", "FAILED")]
    return f"{max(numbers):.1e}" if numbers else "–"


def table(options, cases, path):
    """Markdown: a line for each family, type and size. Returns it and the number of failures."""
    found, lines, failures = read_results(path), [], 0
    lines.append("| family | sizes | type | cases | result, K, V | block alone | transformers in that type | refused |")
    lines.append("|---|---|---|---|---|---|---|---|")
    groups = dict.fromkeys((case.family, case.size, case.dtype) for case in cases)
    for group in groups:
        rows = [found.get(c.key, ("not run", [])) for c in cases if (c.family, c.size, c.dtype) == group]
        rows = [row for row in rows if row[0] != "same"]
        passed, refused = (sum(state == wanted for state, _ in rows) for wanted in ("ok", "refused"))
        failures += len(rows) - passed - refused
        cells = [*group, f"{passed} of {len(rows)}", *(worst_of(rows, column) for column in range(3)), str(refused or "")]
        lines.append(f"| {' | '.join(cells)} |")
    refusals = dict.fromkeys(rest[0] for state, rest in found.values() if state == "refused")
    lines += ["", *(f"refused: {text}" for text in refusals)] if refusals else []
    lines += [f"{state}: {key}: {' '.join(rest)}" for key, (state, rest) in found.items() if state in ("FAILED", "error")]
    return "\n".join(lines), failures


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(item) for item in text.split(",")]  # noqa: E731
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the cfc program (build/bin/cfc)")
    library = "build/lib/libcfc_runtime.so.1"
    parser.add_argument("--library", default=str(ROOT / library), help=f"the runtime ({library})")
    parser.add_argument("--work", default=str(ROOT / "build/gpu/families"),
                        help="folder for models, bundles and results.txt (build/gpu/families)")
    parser.add_argument("--families", type=names, help=f"of {', '.join(FAMILIES)} (all)")
    parser.add_argument("--sizes", type=names, default=["tiny", "true"], help="of tiny, true (both)")
    parser.add_argument("--dtypes", default=["bf16"], type=names, help="of f16, bf16 (bf16)")
    parser.add_argument("--len", type=numbers, help="cached tokens (0,1,63,64,65,1000,5000)")
    parser.add_argument("--batch", type=numbers, help="requests (1,3,8,33)")
    parser.add_argument("--page", type=numbers, help="tokens of a page, 0: contiguous (0,64)")
    parser.add_argument("--quick", action="store_true", help="one model of each family, few batches and lengths")
    parser.add_argument("--device", choices=["gpu", "emu"], default="gpu", help="where bundles run (gpu)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and inputs (1)")
    parser.add_argument("--jobs", type=int, default=0, help="graphs to compile at a time (one a core)")
    parser.add_argument("--stall", type=float, default=120, help="seconds without a result that mean a hang (120)")
    parser.add_argument("--limit", type=float, default=540, help="seconds after which no case is begun (540)")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier calls")
    parser.add_argument("--graph", action="store_true", help="run the graph in PyTorch, tiny sizes, on the CPU")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.families = options.families or (QUICK if options.quick else list(FAMILIES))
    options.len = options.len or ([0, 65, 1000] if options.quick else [0, 1, 63, 64, 65, 1000, 5000])
    for given, known in (options.families, FAMILIES), (options.sizes, ("tiny", "true")), (options.dtypes, ("f16", "bf16")):
        if unknown := set(given) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: not of {', '.join(known)}")
    if options.device == "gpu" and not options.graph and not torch.cuda.is_available():
        parser.error("torch sees no GPU; --graph and --device=emu need none")
    return options


def main():
    options = parse_options()
    cases, path = chosen_cases(options), pathlib.Path(options.work) / "results.txt"
    if options.worker:
        with torch.no_grad():
            sys.exit(work(options, cases, path))
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    started = time.monotonic()
    if options.graph:
        with torch.no_grad():
            failures = check_graphs(options)
    else:
        if options.fresh:
            shutil.rmtree(options.work, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        missing = supervise(options, cases, path)
        text, failures = table(options, cases, path)
        where = torch.cuda.get_device_name() if options.device == "gpu" else "emulator"
        print(f"\n{where}, lengths {','.join(map(str, options.len))}\n\n{text}\n")
        for key in missing:
            print(f"not run: {key}")
    verdict = f"{failures} FAILED" if failures else "passed"
    print(f"hf_families: {verdict} ({time.monotonic() - started:.0f} s)")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
