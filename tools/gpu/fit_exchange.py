#!/usr/bin/env python3
"""Fits the exchange constants of the cost model to measured exchanges and prints how well each case is predicted.

    build/bin/cfc bench --exchange=reduce,gather --json > exchanges.json
    tools/gpu/fit_exchange.py exchanges.json [MORE...] [--out=templates/machines/h200.json]

The model is that of exchangeUs in compiler/plan/CostExchange.cpp, without load_us and sets_us: an exchange over N CTAs, each with P bytes,
takes

    latency of the algorithm + latency of each further peer + bytes sent / peer_bandwidth + bytes merged / merge_bandwidth

| algorithm | latency                           | payloads sent                    | merged (reduce) |
| push      | push_us + (N-2) peer_us           | N-1                              | N               |
| bulk      | bulk_us + (N-2) peer_us           | N-1                              | N               |
| async     | async_us + (N-2) peer_us          | N-1; gather: N, its own part too | N               |
| scatter   | scatter_us + (N-2) peer_us        | (2N-1) / N, in two rounds        | 1               |
| butterfly | push_us + (log2 N - 1) round_us   | log2 N; gather: N-1              | 2 log2 N        |

Least squares on log(predicted / measured), from the constants of --machine on. Every case counts alike. --out rewrites
these fields of a machine description and leaves all else as it is.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

from fit_cost import ROOT, solve

FIELDS = "push_us async_us bulk_us scatter_us round_us peer_us peer_bandwidth merge_bandwidth".split()


def cost(machine, case):
    """Microseconds of an exchange alone."""
    n, algorithm, merges = case["size"], case["algorithm"], case["exchange"] == "reduce"
    rounds, further, sent, merged = math.log2(n), n - 2, n - 1, n
    if algorithm == "butterfly":
        us = machine["push_us"] + (rounds - 1) * machine["round_us"]
        sent, merged = (rounds if merges else n - 1), 2 * rounds
    else:
        us = machine[f"{algorithm}_us"] + further * machine["peer_us"]
        if algorithm == "scatter":
            sent, merged = (2 * n - 1) / n, 1
        elif algorithm == "async" and not merges:
            sent = n
    us += 1e6 * case["bytes"] * sent / machine["peer_bandwidth"]
    return us + (1e6 * case["bytes"] * merged / machine["merge_bandwidth"] if merges else 0)


def errors(machine, cases):
    return [math.log(cost(machine, case) / case["us"]) for case in cases]


def fit(start, cases, rounds=50):
    """Levenberg-Marquardt over the logarithms of the fields."""
    machine, damping, step, n = dict(start), 1e-3, 1e-4, len(FIELDS)
    moved = lambda by: {**machine, **{f: machine[f] * math.exp(x) for f, x in zip(FIELDS, by)}}  # noqa: E731
    now = errors(machine, cases)
    for _ in range(rounds):
        slopes = [[(b - a) / step for a, b in zip(now, errors(moved([step * (i == j) for j in range(n)]), cases))]
                  for i in range(n)]
        # A field that no case depends on stays.
        normal = [[sum(x * y for x, y in zip(a, b)) + (i == j) * 1e-9 for j, b in enumerate(slopes)]
                  for i, a in enumerate(slopes)]
        right = [-sum(x * e for x, e in zip(a, now)) for a in slopes]
        damped = [[v * (1 + damping * (i == j)) for j, v in enumerate(row)] for i, row in enumerate(normal)]
        trial = moved([min(0.5, max(-0.5, d)) for d in solve(damped, right)])
        found = errors(trial, cases)
        gain = sum(e * e for e in now) - sum(e * e for e in found)
        if gain <= 0:
            damping *= 4
            continue
        machine, now, damping = trial, found, damping / 3
        if gain < 1e-9:
            break
    return machine


def load(paths):
    """The measured cases that the planner has: reductions and gathers over clusters."""
    entries = [entry for path in paths for entry in json.loads(pathlib.Path(path).read_text())["exchanges"]]
    return [e for e in entries if e["level"] == "cta" and e["exchange"] in ("reduce", "gather") and e.get("us", 0) > 0]


def report(machine, cases):
    """Errors by exchange and algorithm, and what the algorithm with the best prediction costs over the best."""
    print(f"{'exchange':18s} {'cases':>5} {'rms':>6} {'worst':>16}")
    for kind, algorithm in sorted({(c["exchange"], c["algorithm"]) for c in cases}):
        part = [c for c in cases if (c["exchange"], c["algorithm"]) == (kind, algorithm)]
        found = errors(machine, part)
        error, worst = max(zip(found, part), key=lambda pair: abs(pair[0]))
        print(f"{kind + ' ' + algorithm:18s} {len(part):5d} {math.sqrt(sum(e * e for e in found) / len(found)):6.1%} "
              f"{math.expm1(error):+7.1%} at {worst['size']} x {worst['bytes']}")
    found = errors(machine, cases)
    print(f"{'all':18s} {len(cases):5d} {math.sqrt(sum(e * e for e in found) / len(found)):6.1%}")
    groups = {}
    for case in cases:
        groups.setdefault((case["exchange"], case["size"], case["bytes"]), []).append(case)
    lost = [min(group, key=lambda c: cost(machine, c))["us"] / min(c["us"] for c in group) for group in groups.values()]
    right = sum(ratio < 1.001 for ratio in lost)
    print(f"choice: {right} of {len(lost)} the fastest, {sum(lost) / len(lost) - 1:.1%} slower on average, "
          f"at most {max(lost) - 1:.1%}")


def rewrite(path, machine):
    """Sets the fields in the text of a description, which keeps its order and its form."""
    text = path.read_text()
    for field in FIELDS:
        text, count = re.subn(rf'("{field}": )[-+.0-9eE]+', lambda m: m[1] + f"{machine[field]:.3g}", text)
        if count != 1:
            sys.exit(f"error: {path} has no number {field}")
    path.write_text(text)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("results", nargs="+", help="what cfc bench --exchange --json printed")
    arguments.add_argument("--cfc", default=str(ROOT / "build/bin/cfc"), help="the cfc program (build/bin/cfc)")
    arguments.add_argument("--machine", default="h200", help="the description to start from (h200)")
    arguments.add_argument("--no-fit", action="store_true", help="only print how well that one predicts")
    arguments.add_argument("--out", type=pathlib.Path, help="a description whose fields are rewritten")
    options = arguments.parse_args()
    done = subprocess.run([options.cfc, "machine", f"--machine={options.machine}", "--json"], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(done.stderr)
    cases = load(options.results)
    if not cases:
        sys.exit("error: there is no reduce or gather over clusters in these results")
    start = json.loads(done.stdout)
    machine = start if options.no_fit else fit(start, cases)
    machine.update({field: float(f"{machine[field]:.3g}") for field in FIELDS})
    report(machine, cases)
    for field in FIELDS:
        print(f'  "{field}": {machine[field]:.3g},')
    if options.out:
        rewrite(options.out, machine)


if __name__ == "__main__":
    main()
