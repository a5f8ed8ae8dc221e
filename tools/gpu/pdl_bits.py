"""Overlapped launches (programmatic dependent launch) change no bit.

    python3 tools/gpu/pdl_bits.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1

Each plan is compiled with pdl = 0 in every kernel, and with 1, 2 (in launches behind another, else 1) and 3, as far as it
can be; beside the planner's choice and drawn ones a plan whose attention has a launch of its own. Chains of
layers, each layer's input being the result of the one before, run at every length, launched and as a captured graph,
several times without a pause in between; results and caches of all layers must have the bits of the chain without
overlap. A value that no plan of a block can have counts as a failure.
"""
import torch

import harness
import plan_text
from blocks import graph_text
from harness import same_bits
from layers import Chain


def start(shared, block, dtype):
    """Starts compiling all plans. Returns jobs by the plan's name and the value of pdl."""
    name, jobs = f"{block.name}_{dtype}", {}
    graph, cfc = shared.write(f"{name}.mlir", graph_text(block, dtype)), shared.options.cfc
    chosen = plan_text.complete(cfc, graph, "auto")
    separate = shared.write(f"{name}_separate.plan", plan_text.plan_separate(chosen))
    seeds = range(1, shared.options.plans + 1)
    for plan in ["auto", separate, *(f"random:{seed}" for seed in seeds)]:
        kind = "separate" if plan is separate else plan
        text = plan_text.complete(cfc, graph, plan)
        jobs[kind] = shared.compile_starts(graph, f"{name}_{kind.replace(':', '')}", text, plan_text.PDL_VALUES)
    return jobs


def starts_early(shared, path):
    """Whether each kernel of a bundle is launched so that it may start early."""
    kernels = shared.load(path).manifest["graphs"][0]["variants"][0]["kernels"]
    return [kernel.get("pdl", False) for kernel in kernels]


def check_plan(shared, block, dtype, bundles):
    """Compares bundles by their value of pdl with that of 0. Returns what differs."""
    options, failures, chains = shared.options, [], {}
    for value, path in sorted(bundles.items()):
        early = starts_early(shared, path)
        if any(early) if value == 0 else not all(early):
            failures.append(f"pdl {value}: the manifest does not say which kernels may start early")
        chains[value] = Chain(shared, block, dtype, path, options.layers, max(options.len) + 4, options.seed)
    for length in options.len:
        expected = []
        for value, chain in chains.items():
            chain.prepare(length, min(length + 3, block.bound - 1), length + 2)
            chain.poison()
            for run in range(options.repeat):
                chain.launch()
            found = [tensor.clone() for tensor in chain.values()]
            expected = expected or found
            if not all(same_bits(a, b) for a, b in zip(found, expected)):
                failures.append(f"pdl {value}, length {length}: launches have other bits")
            graph = chain.capture()
            chain.poison()
            for run in range(options.repeat):
                graph.replay()
            if not all(same_bits(a, b) for a, b in zip(chain.values(), expected)):
                failures.append(f"pdl {value}, length {length}: replays have other bits")
    torch.cuda.synchronize()
    for value, chain in chains.items():
        if any(layer.binding.status() for layer in chain.layers):
            failures.append(f"pdl {value}: the sticky status is set")
    return failures


def main():
    arguments = harness.parser(__doc__)
    harness.add_lengths(arguments, "0,1,129,1000,4096")
    arguments.add_argument("--plans", type=int, default=5, help="plans drawn by seed, besides the planner's (5)")
    arguments.add_argument("--layers", type=int, default=4, help="layers of the chain (4)")
    arguments.add_argument("--repeat", type=int, default=20, help="passes without a pause (20)")
    options = arguments.parse_args()
    shared, failures = harness.Harness(options), []
    jobs = {case: start(shared, *case) for case in shared.cases()}
    for (block, dtype), plans in jobs.items():
        found, compared = [], dict.fromkeys(plan_text.PDL_VALUES, 0)
        for plan, bundles in plans.items():
            wrong = check_plan(shared, block, dtype, {value: job.result() for value, job in bundles.items()})
            found += [f"{block.name} {dtype} {plan}: {what}" for what in wrong]
            for value in bundles if 0 in bundles else ():
                compared[value] += 1
        found += [f"{block.name} {dtype}: pdl {value} was compared in no plan" for value, n in compared.items() if not n]
        counts = ", ".join(f"{n} with pdl {value}" for value, n in compared.items() if value)
        verdict = f"{len(found)} FAILED" if found else "all bits equal"
        print(f"{block.name} {dtype}: {compared[0]} plans, {counts}: {verdict}", flush=True)
        failures += found
    shared.finish(failures)


if __name__ == "__main__":
    main()
