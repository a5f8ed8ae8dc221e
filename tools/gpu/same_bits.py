"""The same bits for every plan: cluster sizes 1, 2, 4, 8 and 16, and plans drawn by seed, one kernel or several.

For each block and type, every plan's bundle runs at every length, several times, on the same inputs as the planner's
own choice. The result and both caches, byte by byte, must be equal to those of the first run.

    python3 tools/gpu/same_bits.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1 --plans=30
"""
import harness
import plan_text
from blocks import graph_text, make_inputs, set_step
from harness import TORCH_DTYPES, same_bits

PARTS = (1, 2, 4, 8, 16)


def start_plans(shared, block, dtype, count):
    """Starts compiling the block with every plan. Returns the jobs by the plan's name."""
    name = f"{block.name}_{dtype}"
    graph = shared.write(f"{name}.mlir", graph_text(block, dtype))
    chosen = shared.cfc("compile", graph, "--emit=plan", "-o", "-")
    plans = {"auto": "auto"}
    for part in PARTS:
        plans[f"part={part}"] = shared.write(f"{name}_part{part}.plan", plan_text.plan_with(chosen, part))
    plans.update({f"random:{seed}": f"random:{seed}" for seed in range(1, count + 1)})
    jobs = {}
    for plan, argument in plans.items():
        jobs[plan] = shared.compile_plan(graph, argument, f"{name}_{plan.replace(':', '').replace('=', '')}.cfk")
    return jobs


def run_plan(program, tensors, rows, lengths, bound, repeat):
    """Runs at every length `repeat` times. Yields (length, run, [result, k, v])."""
    for index, length in enumerate(lengths):
        for run in range(repeat):
            set_step(tensors, rows, length, min(length + 3 * (index % 2), bound - 1), length + 2 * (index % 2))
            result = program.run()["result0"]
            yield length, run, [result, *tensors["cache"]]


def check_block(shared, block, dtype, jobs):
    """Compares all plans of a block. Returns the failures."""
    options, failures, expected = shared.options, [], {}
    capacity = max(options.len) + 4
    tensors = make_inputs(block, TORCH_DTYPES[dtype], shared.device, options.seed, capacity)
    rows = tuple(cache.clone() for cache in tensors["cache"])
    kernels = {}
    for plan, job in jobs.items():
        try:
            program = harness.Program(shared, job.result(), tensors)
        except Exception as error:  # the other plans are still worth a run
            failures.append(f"{block.name} {dtype} {plan}: {error}")
            continue
        kernels[len(program.kernels)] = kernels.get(len(program.kernels), 0) + 1
        for length, run, values in run_plan(program, tensors, rows, options.len, block.bound, options.repeat):
            first = expected.setdefault(length, [value.clone() for value in values])
            for name, value, wanted in zip(("result", "cache.k", "cache.v"), values, first):
                if not same_bits(value, wanted):
                    failures.append(f"{block.name} {dtype} {plan} length {length} run {run}: {name} has other bits")
        if program.binding.status():
            failures.append(f"{block.name} {dtype} {plan}: status {program.binding.status()}")
    counts = ", ".join(f"{count} of {number} kernel(s)" for number, count in sorted(kernels.items()))
    print(f"{block.name} {dtype}: plans: {counts}; {len(options.len)} lengths x {options.repeat} runs", end="; ")
    print(f"{len(failures)} FAILED" if failures else "all bits equal", flush=True)
    return failures


def main():
    arguments = harness.parser(__doc__)
    harness.add_lengths(arguments, "0,1,5,127,128,129,1000,4096,16384")
    arguments.add_argument("--plans", type=int, default=30, help="plans drawn by seed, for each block and type (30)")
    arguments.add_argument("--repeat", type=int, default=3, help="runs of each plan at each length (3)")
    options = arguments.parse_args()
    shared, failures = harness.Harness(options), []
    jobs = {case: start_plans(shared, *case, options.plans) for case in shared.cases()}
    for (block, dtype), plans in jobs.items():
        failures += check_block(shared, block, dtype, plans)
    shared.finish(failures)


if __name__ == "__main__":
    main()
