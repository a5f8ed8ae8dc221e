#!/usr/bin/env python3
"""Fits the constants of the cost model to measured plans and prints a machine description.

    tools/gpu/fit_cost.py results.json --hold=0.33 --out=templates/machines/h200.json

RESULTS are files of tools/gpu/sweep.py. The fields of --fields are fitted by least squares on log(predicted /
measured), with weights that tame outliers and a pull towards the description that the fit starts from, so that a field
that no plan depends on stays. --hold keeps some problems aside (a share, or names); for those too, and for each
problem, it prints the share of plans that are predicted within 15 % and how much slower than the best measured plan the
plan with the best prediction is. The model itself is that of `cfc explain --compare`.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIELDS = ("sm_bandwidth memory_us crowd box_ns blend tile_ns block_ns sum_tile_ns segment_ns segment_block_ns group_ns "
          "set_share sets_us launch_us launch_end_us launch_pdl_us pdl_crowded end_us tail_us early_us cooperative_us grid_sync_us finish_us waiting_us token_bandwidth load_us skew").split()
LIMIT = 0.15  # of an error that is good enough
PULL = 1e-3  # weight of the fields' own logarithms beside that of all plans' errors


class Problem:
    """Plans of a graph for one length, and what they took."""

    def __init__(self, folder, index, entry):
        self.name, self.length = entry["name"], entry["length"]
        self.graph, self.plans = folder / f"{index}.mlir", folder / f"{index}.plans"
        self.graph.write_text(entry["graph"])
        self.plans.write_text("\n".join(result["plan"] for result in entry["results"]))
        self.measured = [result["us"] for result in entry["results"]]

    def predict(self, cfc, machine):
        command = [cfc, "explain", self.graph, f"--len={self.length}", f"--compare={self.plans}", "--format=json",
                   f"--machine={machine}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
        return [entry["us"] for entry in json.loads(done.stdout)]


class Model:
    """cfc's cost model, with fields of the description scaled."""

    def __init__(self, cfc, start, folder):
        self.cfc, self.start, self.folder, self.calls = cfc, start, folder, 0
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def machine(self, fields, factors):
        """The description whose fields are exp(factor) times as large."""
        return {**self.start, **{name: self.start[name] * math.exp(x) for name, x in zip(fields, factors)}}

    def submit(self, problems, fields, factors):
        """Starts to predict all problems' plans."""
        self.calls += 1
        path = self.folder / f"machine{self.calls}.json"
        path.write_text(json.dumps(self.machine(fields, factors)))
        return [self.pool.submit(problem.predict, self.cfc, path) for problem in problems]

    @staticmethod
    def errors(problems, futures):
        """log(predicted / measured) of all problems' plans."""
        return [math.log(us / measured)
                for problem, future in zip(problems, futures) for us, measured in zip(future.result(), problem.measured)]


def solve(a, b):
    """x of a x = b, by Gaussian elimination; a is symmetric and positive definite."""
    n, rows = len(b), [list(row) + [value] for row, value in zip(a, b)]
    for i in range(n):
        for j in range(i + 1, n):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i])]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][j] * x[j] for j in range(i + 1, n))) / rows[i][i]
    return x


def fit(model, problems, fields, rounds):
    """Levenberg-Marquardt over the logarithms of the fields. Each problem counts alike; errors beyond 15 % count by
    their size, not its square."""
    n, x, damping, step = len(fields), [0.0] * len(fields), 1e-2, 0.03
    share = [1 / len(p.measured) / len(problems) for p in problems for _ in p.measured]
    weight = lambda errors: [w / max(1, abs(e) / LIMIT) for w, e in zip(share, errors)]  # noqa: E731
    dot = lambda w, a, b: sum(x * y * z for x, y, z in zip(w, a, b))  # noqa: E731
    cost = lambda errors, at: dot(weight(errors), errors, errors) + PULL * sum(v * v for v in at) / n  # noqa: E731

    errors = model.errors(problems, model.submit(problems, fields, x))
    for number in range(rounds):
        moved = [model.submit(problems, fields, [v + step * (i == j) for j, v in enumerate(x)]) for i in range(n)]
        slopes = [[(b - a) / step for a, b in zip(errors, model.errors(problems, f))] for f in moved]
        w = weight(errors)
        normal = [[dot(w, a, b) + (PULL / n if i == j else 0) for j, b in enumerate(slopes)] for i, a in enumerate(slopes)]
        right = [-dot(w, a, errors) - PULL / n * v for a, v in zip(slopes, x)]
        for _ in range(6):
            damped = [[v * (1 + damping * (i == j)) for j, v in enumerate(row)] for i, row in enumerate(normal)]
            trial = [v + min(0.5, max(-0.5, d)) for v, d in zip(x, solve(damped, right))]
            found = model.errors(problems, model.submit(problems, fields, trial))
            gain = cost(errors, x) - cost(found, trial)
            if gain > 0:
                break
            damping *= 4
        else:
            break
        done = gain < 1e-3 * cost(errors, x)
        x, errors, damping = trial, found, damping / 3
        rms = math.sqrt(sum(e * e for e in errors) / len(errors))
        print(f"step {number + 1}: errors of {rms:.1%}", file=sys.stderr)
        if done:
            break
    return x


def report(title, problems, predictions):
    print(f"{title + ':':34s} {'plans':>6} {'within 15 %':>11} {'rms':>7} {'best us':>8} {'model / best':>14}")
    within = total = 0
    for problem, predicted in zip(problems, predictions):
        errors = [math.log(us / measured) for us, measured in zip(predicted, problem.measured)]
        near = sum(abs(us / measured - 1) <= LIMIT for us, measured in zip(predicted, problem.measured))
        best, chosen = min(problem.measured), problem.measured[predicted.index(min(predicted))]
        within, total = within + near, total + len(errors)
        rms = math.sqrt(sum(e * e for e in errors) / len(errors))
        print(f"  {problem.name:32s} {len(errors):6d} {near / len(errors):11.0%} {rms:7.1%} {best:8.2f} {chosen / best:14.3f}")
    print(f"  {'all':32s} {total:6d} {within / total:11.0%}")


def load(paths, folder):
    entries = [entry for path in paths for entry in json.loads(pathlib.Path(path).read_text())["problems"]]
    return [Problem(folder, i, e) for i, e in enumerate(entries) if e["results"]]


def split(problems, hold):
    """The problems to fit, and those kept aside."""
    try:
        share = float(hold)
    except ValueError:
        names = hold.split(",")
        unknown = set(names) - {p.name for p in problems}
        if unknown:
            sys.exit(f"error: --hold names no problem: {', '.join(sorted(unknown))}")
        return [p for p in problems if p.name not in names], [p for p in problems if p.name in names]
    every = round(1 / share) if share > 0 else len(problems) + 1
    aside = [p for i, p in enumerate(problems) if i % every == every - 1]
    return [p for p in problems if p not in aside], aside


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("results", nargs="+", help="files of sweep.py")
    arguments.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the cfc program (build/bin/cfc)")
    arguments.add_argument("--machine", default="h200", help="the description to start from (h200)")
    arguments.add_argument("--fields", default=",".join(FIELDS), help="the fields to fit, or none")
    arguments.add_argument("--hold", default="0", help="problems that are not used to fit: a share or names (0)")
    arguments.add_argument("--rounds", type=int, default=12, help="steps at most (12)")
    arguments.add_argument("--out", help="file for the description (standard output)")
    options = arguments.parse_args()
    done = subprocess.run([options.cfc, "machine", f"--machine={options.machine}", "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    start = json.loads(done.stdout)
    fields = [] if options.fields == "none" else options.fields.split(",")
    if unknown := [name for name in fields if not isinstance(start.get(name), (int, float))]:
        sys.exit(f"error: no numbers of a machine description: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        problems, aside = split(load(options.results, folder), options.hold)
        model = Model(options.cfc, start, folder)
        found = fit(model, problems, fields, options.rounds) if fields else []
        for title, part in (("fitted", problems), ("kept aside", aside)):
            if part:
                report(title, part, [f.result() for f in model.submit(part, fields, found)])
        machine = model.machine(fields, found)
    digits = {name: float(f"{machine[name]:.3g}") for name in fields}
    text = json.dumps({**machine, **digits}, indent=2) + "\n"
    if options.out:
        pathlib.Path(options.out).write_text(text)
    elif fields:
        print(text, end="")


if __name__ == "__main__":
    main()
