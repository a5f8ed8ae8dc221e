"""Exchanges as the cost model predicts them, for fit_exchange.py and against `cfc explain`.

    exchange_costs.py compare TOOLS_GPU MACHINE.json GRAPH.mlir    both say the same, for every algorithm and size
    exchange_costs.py times TOOLS_GPU MACHINE.json                 what cfc bench would print on such a machine
"""
import json
import re
import subprocess
import sys

command, tools, machine_file = sys.argv[1:4]
sys.path.insert(0, tools)
import fit_exchange  # noqa: E402

with open(machine_file) as file:
    machine = json.load(file)
reduces, gathers = ["push", "async", "scatter", "butterfly", "bulk"], ["push", "async", "butterfly", "bulk"]
if command == "times":
    cases = [{"exchange": kind, "level": "cta", "size": size, "bytes": n, "algorithm": algorithm}
             for kind, algorithms in (("reduce", reduces), ("gather", gathers)) for algorithm in algorithms
             for size in (2, 4, 8, 16) for n in (256, 4096, 32768)]
    exchanges = [{**case, "us": fit_exchange.cost(machine, case)} for case in cases]
    # A case that does not fit, and what the planner does not use.
    exchanges += [{**cases[0], "problem": "too large"}, {**cases[0], "exchange": "reduce_scatter", "us": 1e6}]
    print(json.dumps({"exchanges": exchanges}))
    sys.exit()

compared = 0
for size in (2, 4, 8, 16):
    for kind, algorithms in (("reduce", reduces), ("gather", gathers)):
        for algorithm in algorithms:
            split = "columns" if kind == "reduce" else "rows"
            with open("one.plan", "w") as plan:
                plan.write(f"graph llama2_7b_attention\nkernel 0: part = {size}\n"
                           f"op linear(%q, %k, %v): kernel = 0, split = {split}, {kind} = {algorithm}\n")
            done = subprocess.run(["cfc", "explain", sys.argv[4], "--plan=one.plan", f"--machine={machine_file}", "--format=json"],
                                  capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{size} {kind} {algorithm}: {done.stderr}")
            phase = next(p for p in json.loads(done.stdout)["kernels"][0]["phases"]
                         if p["kind"] == "exchange" and p["what"].startswith("linear(%q"))
            found = re.search(r"(\d+) bytes a CTA by (\w+)", phase["what"])
            case = {"exchange": kind, "size": size, "bytes": int(found[1]), "algorithm": found[2]}
            assert found[2] == algorithm, (algorithm, phase)
            assert abs(fit_exchange.cost(machine, case) / phase["us"] - 1) < 1e-3, (case, phase)
            compared += 1
print(f"{compared} exchanges agree")
