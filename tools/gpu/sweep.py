#!/usr/bin/env python3
"""Times many plans of many attention blocks, to judge the planner's choice and the cost model.

    tools/gpu/sweep.py plan --work=build/gpu/sweep                # anywhere: graphs, plans, predictions
    tools/gpu/sweep.py run --work=build/gpu/sweep                 # on a GPU: compiles, verifies and times them
    tools/gpu/sweep.py report --work=build/gpu/sweep              # anywhere: the table, and results.json for fit_cost.py

`plan` writes, for each problem, the planner's choice, plans drawn by seed, and neighbours of the choice, and of these, with
one or two keys changed: all distinct and legal. `run` compiles them on all cores while one process times those that are ready: a
chain of layers, with weights and caches of their own beyond the L2, as one CUDA graph; median of 5 replays. The planner's
choice is held to a float64 reference, every other plan to the choice's bits. Results are flushed line by line to
WORK/results.jsonl (--out: another folder); a run that was ended goes on where it stopped, and a plan that hangs is
reported and left out. `report` prints, for each problem, the choice's time over the best plan's and the share of plans
predicted within 15 %.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

from blocks import Block, graph_text, make_inputs, reference, set_step

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHAIN_BYTES = 250e6  # a chain's weights and caches, at least: four times an L2
GRAPH_US = 1500  # of a captured graph, at least
REPLAYS = 5
STALLED = 40  # seconds without a result after which a plan counts as hung
KEYS = {
    "part": (1, 2, 4, 8, 16), "warps": (4, 8, 16), "ctas_per_sm": (1, 2, 3), "tile_columns": (64, 128, 256, 512),
    "ring_stages": (2, 3, 4, 5, 6, 8, 10, 12, 16), "pdl": (0, 1, 2, 3), "in_flight": (0, 1, 2, 3, 4, 6, 8),
    "prefetch": (0, 2, 4, 6, 9), "held": (0, 1, 2, 4), "joined": (0, 1), "stacked": (0, 1), "finish": ("ordered", "waiting", "reader"), "chunks": (1, 2, 4, 8, 16, "work"),
}  # fmt: skip
EXCHANGES = ("push", "async", "bulk", "butterfly")


@dataclasses.dataclass(frozen=True)
class Problem:
    block: Block
    length: int

    @property
    def name(self):
        return f"{self.block.name}_{self.length}"

    @property
    def layer_bytes(self):
        b = self.block
        return 2 * b.hidden * b.dim * 2 * (b.heads + b.kv_heads) + 4 * self.length * b.kv_heads * b.dim


def problems():
    """Twelve of hidden sizes 2048 to 8192, heads of 64 and 128, 32/32 and 64/8 heads, 512 to 32768 cached tokens."""
    shapes = ((2048, 32, 32, 64), (4096, 32, 32, 128), (4096, 64, 8, 64), (8192, 64, 8, 128))
    for hidden, heads, kv_heads, dim in shapes:
        name = f"h{hidden}_{heads}_{kv_heads}x{dim}"
        block = Block(name, hidden, heads, kv_heads, rope_base=5.0e5, dim=dim, bound=32768 + 64)
        for length in (512, 4096, 32768):
            yield Problem(block, length)


# === Plans ===


class Planner:
    """Asks cfc for plans of one problem."""

    def __init__(self, options, problem):
        self.cfc, self.problem = options.cfc, problem
        self.folder = pathlib.Path(options.work) / problem.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.graph = self.folder / "graph.mlir"
        self.graph.write_text(graph_text(problem.block, options.dtype))
        self.layout = f"--weight-layout={options.weights}"

    def ask(self, *arguments):
        """What cfc prints, or None where it refuses: a changed plan may be neither legal nor consistent."""
        done = subprocess.run([self.cfc, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode not in (0, 2, 3):
            raise RuntimeError(f"cfc {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout if done.returncode == 0 else None

    def make(self, choice):
        """The whole plan for `auto`, `random:SEED` or a plan's text."""
        if "\n" in choice:
            path = self.folder / "changed.plan"
            path.write_text(choice)
            choice = path
        return self.ask("compile", self.graph, "--emit=plan", f"--plan={choice}", f"--len={self.problem.length}", self.layout)

    def predict(self, plans):
        path = self.folder / "all.plans"
        path.write_text("".join(plans))
        arguments = (f"--compare={path}", f"--len={self.problem.length}", "--format=json")
        return json.loads(self.ask("explain", self.graph, *arguments))


def neighbour(plan, rng):
    """A plan with one or two keys changed; maybe not legal."""
    for _ in range(rng.choice((1, 1, 2))):
        places = list(re.finditer(r"\b(part|warps|ctas_per_sm|tile_columns|ring_stages|in_flight|prefetch|held|pdl|joined|chunks|gather|reduce|finish|split) = (\w+)", plan))
        place = rng.choice(places)
        key, value = place.groups()
        if key == "split":
            other = {"rows": "columns, reduce = async", "columns": "rows, gather = async"}[value]
            head = plan[: place.start()] + f"split = {other}"
            plan = head + re.sub(r"^, (gather|reduce) = \w+", "", plan[place.end():])
            continue
        values = [v for v in map(str, KEYS.get(key, EXCHANGES)) if v != value]
        plan = plan[: place.start()] + f"{key} = {rng.choice(values)}" + plan[place.end():]
    return plan


def plan_problem(options, problem):
    """Writes WORK/NAME/plans.json: [{plan, hash, us, pick}], the planner's choice first."""
    planner, rng = Planner(options, problem), random.Random(f"{options.seed} {problem.name}")
    pick = planner.make("auto")
    if pick is None:
        raise RuntimeError(f"{problem.name}: there is no legal plan")
    plans, near, tries = {pick: None}, [pick], 0
    while len(plans) <= options.plans and tries < 20 * options.plans:
        tries += 1
        if len(plans) <= options.plans // 2:
            plan = planner.make(f"random:{rng.randrange(1 << 32)}")
        else:  # the choice has too few neighbours, so theirs count too
            plan = planner.make(neighbour(rng.choice(near), rng))
            near += [plan] if plan and plan not in plans else []
        if plan:
            plans.setdefault(plan)
    found = [{**entry, "text": plan, "pick": plan == pick} for plan, entry in zip(plans, planner.predict(plans))]
    (planner.folder / "plans.json").write_text(json.dumps(found, indent=1))
    return f"{problem.name}: {len(found)} plans of {tries} tries; the choice {found[0]['plan']} should take {found[0]['us']:.1f} us"


def plan(options):
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for text in pool.map(lambda problem: plan_problem(options, problem), options.problems):
            print(text, flush=True)


# === Timing: a process of its own ===


class Layers:
    """A problem's tensors, one set for each layer, and what the planner's choice computed of them."""

    def __init__(self, options, problem):
        import torch

        self.torch, self.problem = torch, problem
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[options.dtype]
        count = max(3, math.ceil(CHAIN_BYTES / problem.layer_bytes))
        capacity = problem.length + 64
        self.layers = [make_inputs(problem.block, self.dtype, self.device, seed, capacity) for seed in range(count)]
        self.rows = [cache.clone() for cache in self.layers[0]["cache"]]
        for layer in self.layers:
            layer["table"] = self.layers[0]["table"]
            set_step(layer, layer["cache"], problem.length, problem.length, problem.length)
        hidden = problem.block.hidden
        self.states = [torch.empty(1, hidden, dtype=self.dtype, device=self.device) for _ in range(count + 1)]
        self.states[0].copy_(self.layers[0]["x"])
        self.packed = [{} for _ in self.layers]
        self.expected = None

    def weights(self, bundle, index):
        """A layer's tensors as the bundle wants them; a weight is packed once for all bundles."""
        tensors = dict(self.layers[index])
        for spec in bundle.manifest["graphs"][0]["tensors"]:
            if spec.get("layout") != "packed":
                continue
            name = spec["name"]
            if name not in self.packed[index]:
                self.packed[index][name] = bundle.pack(name, tensors[name])
            tensors[name] = self.packed[index][name]
        return tensors

    def bind(self, bundle):
        return [
            bundle.bind({**self.weights(bundle, i), "x": self.states[i], "result0": self.states[i + 1]})
            for i in range(len(self.layers))
        ]

    def run_first(self, binding, workspace):
        """What one launch of the first layer leaves: the result and the cache's new rows."""
        new, cache = self.problem.length, self.layers[0]["cache"]
        self.states[1].fill_(float("nan"))
        for part in cache:
            part[:, new] = float("nan")
        binding.launch(workspace)
        return [self.states[1].clone(), *(part[:, new].clone() for part in cache)]

    def wrong(self, binding, workspace, is_pick):
        """What is wrong with a plan; None: nothing."""
        torch, found = self.torch, self.run_first(binding, workspace)
        if not is_pick:
            same = all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(found, self.expected))
            return None if same else "other bits than the planner's choice"
        length = self.problem.length
        right = reference(self.problem.block, self.layers[0], self.rows, length, length)
        limit = 1e-3 if self.dtype == torch.float16 else 8e-3
        for what, value in zip(("result", "k", "v"), found):
            expected = right[what].reshape(value.shape)
            error = ((value.double() - expected).norm() / expected.norm()).item()
            if not error <= limit:
                return f"{what} is off by {error:.1e}, relative L2"
        self.expected = found
        return None

    def time(self, bindings, workspace):
        """Microseconds a layer: the median of some replays of a chain."""
        torch, stream = self.torch, self.torch.cuda.Stream()
        bytes_a_us = 4e6
        repeats = max(1, math.ceil(GRAPH_US / (len(bindings) * self.problem.layer_bytes / bytes_a_us)))

        def chain():
            for binding in bindings:
                binding.launch(workspace)

        with torch.cuda.stream(stream):
            chain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repeats):
                chain()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
        for _ in range(2):
            graph.replay()
        for i, event in enumerate(events):
            event.record()
            if i < REPLAYS:
                graph.replay()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in zip(events, events[1:])]
        return statistics.median(times) * 1e3 / (repeats * len(bindings))


def time_plans(options):
    """Reads lines `NAME HASH PICK PATH` and answers each with a line of JSON."""
    sys.path.insert(0, str(ROOT / "templates/embed/python"))
    from cfc_loader import Bundle, CfcError

    def time_one(layers, path, is_pick):
        try:
            bundle = Bundle(path, library=options.library)
            workspace, bindings = bundle.workspace(layers.device), layers.bind(bundle)
            wrong = layers.wrong(bindings[0], workspace, is_pick)
            return {"wrong": wrong} if wrong else {"measured": round(layers.time(bindings, workspace), 3)}
        except CfcError as error:
            return {"wrong": str(error)}

    known, layers = {problem.name: problem for problem in problems()}, None
    for line in sys.stdin:
        name, is_pick, path = line.split(" ", 2)
        if layers is None or layers.problem.name != name:
            layers = None  # frees the memory
            layers = Layers(options, known[name])
        print(json.dumps(time_one(layers, path.strip(), is_pick == "1")), flush=True)


class Timer:
    """The process that times. It starts anew after a plan that hangs or ends it."""

    def __init__(self, options):
        self.command = [sys.executable, "-u", __file__, "time", f"--library={options.library}", f"--dtype={options.dtype}"]
        self.process, self.pool, self.pick = None, concurrent.futures.ThreadPoolExecutor(1), None

    def time(self, problem, entry, bundle):
        if entry["pick"]:
            self.pick = bundle
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if not entry["pick"]:  # whose bits the plan is held to
                self.ask(problem, True, self.pick)
        return self.ask(problem, entry["pick"], bundle)

    def ask(self, problem, is_pick, bundle):
        line = ""
        try:
            self.process.stdin.write(f"{problem.name} {int(is_pick)} {bundle}\n")
            self.process.stdin.flush()
            line = self.pool.submit(self.process.stdout.readline).result(timeout=STALLED)
        except (BrokenPipeError, concurrent.futures.TimeoutError):
            pass
        if line:
            return json.loads(line)
        self.stop()
        return {"wrong": "hangs, or ended the process that timed it"}

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


# === The run ===


def compile_plan(options, problem, entry):
    """The bundle's path, or None where the plan cannot be compiled."""
    folder = pathlib.Path(options.work) / problem.name
    path, plan_path = folder / f"{entry['plan']}.cfk", folder / f"{entry['plan']}.plan"
    if path.exists():
        return path
    plan_path.write_text(entry["text"])
    command = [options.cfc, "compile", folder / "graph.mlir", f"--plan={plan_path}", "-o", path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        print(f"{problem.name} {entry['plan']}: {done.stderr.strip()}", file=sys.stderr)
    return None if done.returncode else path


def read_results(folder):
    """{(problem, plan's hash): result}; the last line of a run that was ended may be cut."""
    results, path = {}, pathlib.Path(folder) / "results.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
            results[entry["problem"], entry["plan"]] = entry
        except (json.JSONDecodeError, KeyError):
            continue
    return results


def run(options):
    out = pathlib.Path(options.out or options.work)
    out.mkdir(parents=True, exist_ok=True)
    done, started, timer = read_results(out), time.monotonic(), Timer(options)
    queue, choice = collections.deque(), None
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, (out / "results.jsonl").open("a") as file:
        for problem in options.problems:
            entries = json.loads((pathlib.Path(options.work) / problem.name / "plans.json").read_text())
            left = [e for e in entries[: options.plans + 1] if (problem.name, e["plan"]) not in done]
            if left and not left[0]["pick"]:
                left.insert(0, entries[0])  # the others are held to its bits
            queue.extend((problem, e, pool.submit(compile_plan, options, problem, e)) for e in left)
        total = len(queue)
        while queue:
            problem, entry, bundle = queue.popleft()
            path = bundle.result()
            result = timer.time(problem, entry, path) if path else {"wrong": "does not compile"}
            line = {"problem": problem.name, **entry, **result}
            file.write(json.dumps(line) + "\n")
            file.flush()
            if result.get("wrong"):
                print(f"FAILED: {problem.name} {entry['plan']}: {result['wrong']}", flush=True)
                if entry["pick"]:  # nothing to hold the problem's other plans to
                    while queue and queue[0][0] is problem:
                        queue.popleft()[2].cancel()
            # The choice's bundle is needed again where a process that times starts anew.
            spent, choice = (choice, path) if entry["pick"] else (path, choice)
            if options.remove and spent:
                spent.unlink(missing_ok=True)
            if (total - len(queue)) % 200 == 0:
                print(f"{total - len(queue)} of {total} plans, {time.monotonic() - started:.0f} s", flush=True)
    timer.stop()
    print(f"{total} plans in {time.monotonic() - started:.0f} s")
    return report(options)


def report(options):
    """Prints the table and writes results.json, what fit_cost.py reads. Exit code 1 where a plan was wrong."""
    out, wrong, found = pathlib.Path(options.out or options.work), 0, []
    results = read_results(out)
    print(f"{'problem':24s} {'plans':>5} {'choice':>8} {'best':>8} {'choice/best':>11} {'median':>8} {'within 15 %':>11}  best plan")
    shares = []
    for problem in options.problems:
        mine = [entry for entry in results.values() if entry["problem"] == problem.name]
        timed = [entry for entry in mine if entry.get("measured")]
        wrong += len(mine) - len(timed)
        pick = next((entry for entry in timed if entry["pick"]), None)
        if not pick:
            print(f"{problem.name:24s} {'no result' if not mine else 'the choice is wrong'}")
            continue
        best = min(timed, key=lambda entry: entry["measured"])
        near = [abs(entry["us"] / entry["measured"] - 1) <= 0.15 for entry in timed]
        shares += near
        median = statistics.median(entry["measured"] for entry in timed)
        print(f"{problem.name:24s} {len(timed):5d} {pick['measured']:8.2f} {best['measured']:8.2f} "
              f"{pick['measured'] / best['measured']:11.3f} {median:8.2f} {sum(near) / len(near):11.0%}  {best['plan']}")
        found.append({"name": problem.name, "length": problem.length, "graph": graph_text(problem.block, options.dtype),
                      "results": [{"plan": e["text"], "us": e["measured"], "predicted": e["us"], "pick": e["pick"]} for e in timed]})
    if shares:
        print(f"all: {len(shares)} plans, {sum(shares) / len(shares):.0%} predicted within 15 %; {wrong} failed")
    (out / "results.json").write_text(json.dumps({"problems": found}))
    return 1 if wrong else 0


def choose(names):
    """The problems whose names begin with one of `names`."""
    every = list(problems())
    chosen = [p for p in every if not names or any(p.name.startswith(n) for n in names.split(","))]
    if not chosen:
        sys.exit(f"error: --problems={names} names none of {', '.join(p.name for p in every)}")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("plan", "run", "report", "time"), help="what to do; time: for run's own use")
    parser.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the cfc program (build/bin/cfc)")
    library = "build/lib/libcfc_runtime.so.1"
    parser.add_argument("--library", default=str(ROOT / library), help=f"the runtime ({library})")
    parser.add_argument("--work", default=str(ROOT / "build/gpu/sweep"), help="folder of graphs, plans and bundles")
    parser.add_argument("--out", help="folder of results (that of --work)")
    parser.add_argument("--problems", default="", help="names or their beginnings, with commas between them (all)")
    parser.add_argument("--plans", type=int, default=200, help="plans of a problem beside the planner's choice (200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the drawn plans (1)")
    parser.add_argument("--dtype", default="f16", choices=("f16", "bf16"), help="type of the tensors (f16)")
    parser.add_argument("--weights", default="packed", choices=("packed", "native"), help="layout of the weights (packed)")
    parser.add_argument("--jobs", type=int, default=max(1, os.cpu_count() - 1), help="processes that compile (all cores but one)")
    parser.add_argument("--remove", action="store_true", help="remove bundles once they are timed")
    options = parser.parse_args()
    options.problems = choose(options.problems)
    sys.exit({"plan": plan, "run": run, "report": report, "time": time_plans}[options.step](options))


if __name__ == "__main__":
    main()
