"""Overlapped launches (programmatic dependent launch) change no bit.

    python3 tools/gpu/pdl_bits.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1

Each plan is compiled with pdl = 0 and pdl = 1 in every kernel. Chains of layers, each layer's input being the result of
the one before, run at every length, launched and as a captured graph, several times without a pause in between; results
and caches of all layers must have the bits of the chain without overlap.
"""
import torch

import harness
from blocks import graph_text
from harness import same_bits
from layers import Chain


def start(shared, block, dtype):
    """Starts compiling all plans. Returns pairs of jobs (without, with overlap) by the plan's name."""
    name, jobs = f"{block.name}_{dtype}", {}
    graph = shared.write(f"{name}.mlir", graph_text(block, dtype))
    for plan in ["auto", *(f"random:{seed}" for seed in range(1, shared.options.plans + 1))]:
        text, pair = shared.cfc("compile", graph, f"--plan={plan}", "--emit=plan", "-o", "-"), []
        for value in (0, 1):
            file = f"{name}_{plan.replace(':', '')}_pdl{value}"
            path = shared.write(f"{file}.plan", harness.plan_with_pdl(text, value))
            pair.append(shared.compile_plan(graph, path, f"{file}.cfk"))
        jobs[plan] = pair
    return jobs


def kernels_of(shared, path):
    return shared.load(path).manifest["graphs"][0]["variants"][0]["kernels"]


def check_plan(shared, block, dtype, without, overlapped):
    """Compares two bundles. Returns what differs."""
    options, failures = shared.options, []
    marked = [[kernel.get("pdl", False) for kernel in kernels_of(shared, path)] for path in (without, overlapped)]
    if any(marked[0]) or not all(marked[1]):
        failures.append("the manifests do not say which kernels may start early")
    chains = [
        Chain(shared, block, dtype, path, options.layers, max(options.len) + 4, options.seed)
        for path in (without, overlapped)
    ]
    for length in options.len:
        expected = []
        for chain in chains:
            chain.prepare(length, min(length + 3, block.bound - 1), length + 2)
            chain.poison()
            for run in range(options.repeat):
                chain.launch()
            found = [value.clone() for value in chain.values()]
            expected = expected or found
            if not all(same_bits(a, b) for a, b in zip(found, expected)):
                failures.append(f"length {length}: launches have other bits")
            graph = chain.capture()
            chain.poison()
            for run in range(options.repeat):
                graph.replay()
            if not all(same_bits(a, b) for a, b in zip(chain.values(), expected)):
                failures.append(f"length {length}: replays have other bits")
    torch.cuda.synchronize()
    failures += ["the sticky status is set" for chain in chains for layer in chain.layers if layer.binding.status()]
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
        found = []
        for plan, (without, overlapped) in plans.items():
            wrong = check_plan(shared, block, dtype, without.result(), overlapped.result())
            found += [f"{block.name} {dtype} {plan}: {what}" for what in wrong]
        verdict = f"{len(found)} FAILED" if found else "all bits equal"
        print(f"{block.name} {dtype}: {len(plans)} plans with and without overlap: {verdict}", flush=True)
        failures += found
    shared.finish(failures)


if __name__ == "__main__":
    main()
