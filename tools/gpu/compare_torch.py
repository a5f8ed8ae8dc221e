"""Errors of cfc and of PyTorch on the same inputs, against a float64 reference in PyTorch.

For each block, type and length: the block's result, the result without the residual (y), the attention output (the
worst head) and the appended rows. "eager" is PyTorch op by op, as model code is written; "sdpa" is the same with
scaled_dot_product_attention (for comparison only). cfc must keep its limits (relative L2 at most 1e-3 in f16, 8e-3 in
bf16; no element's error above 8e-3 or 6e-2 of its row's rms) and stay within 1.5 times eager's relative L2.

    python3 tools/gpu/compare_torch.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1
"""
import harness
from blocks import make_inputs, reference, set_step, torch_block
from harness import LIMITS, TORCH_DTYPES, largest_error, relative_l2

RATIO = 1.5
VALUES = ("result", "y", "attention", "k", "v")


def compiled_values(block, programs, tensors, slot):
    """What the compiled block and the one that also returns what lies inside compute, by value; and a fault."""
    plain, inside = (program.run() for program in programs)
    found = {"result": plain["result0"], "y": inside.get("y", plain["result0"]), "attention": inside["attention"]}
    found["attention"] = found["attention"].view(-1, block.dim)
    found["k"], found["v"] = (cache[:, slot].clone() for cache in tensors["cache"])
    same = harness.same_bits(plain["result0"], inside["result0"])
    return found, "" if same else "the result has other bits when the graph returns more values"


def check_case(block, dtype, length, programs, tensors, rows):
    """Compares one case. Returns the relative L2 of cfc, eager and sdpa by value, and the failures."""
    # Position and slot differ from the length, so that none can be taken for another.
    position, slot = min(length + 3, block.bound - 1), length + 2
    set_step(tensors, rows, length, position, slot)
    expected = reference(block, tensors, rows, length, position)
    found, fault = compiled_values(block, programs, tensors, slot)
    eager = torch_block(block, tensors, rows, length, position)
    fused = torch_block(block, tensors, rows, length, position, fused=True)
    case, errors = f"{block.name} {dtype} length {length}", {}
    failures = [f"{case}: {fault}"] if fault else []
    limit, element_limit = LIMITS[dtype]
    for name in VALUES:
        by_row = name == "attention"
        errors[name] = [relative_l2(values[name], expected[name], by_row) for values in (found, eager, fused)]
        (ours, peer, _), element = errors[name], largest_error(found[name], expected[name])
        # Written so that NaN fails.
        if not ours <= limit or not element <= element_limit or not ours <= RATIO * peer:
            failures.append(f"{case}: {name}: relative L2 {ours:.2e} (eager {peer:.2e}), largest {element:.2e}")
    return errors, failures


def print_row(block, dtype, length, errors, ratio, verdict=""):
    cells = "  ".join(" ".join(f"{error:.1e}" for error in errors[name]) for name in VALUES)
    print(f"{block.name:<16}{dtype:<5}{length:>6}  {cells}  {ratio:.2f} {verdict}", flush=True)


def ratio_of(errors):
    """The largest ratio of cfc's error to eager's."""
    return max(ours / peer if peer else 0.0 for ours, peer, _ in errors.values())


def main():
    arguments = harness.parser(__doc__)
    harness.add_lengths(arguments, "0,1,5,127,128,129,1000,4096,16384")
    options = arguments.parse_args()
    shared, failures = harness.Harness(options), []
    jobs = {case: [shared.compile(*case, inside) for inside in (False, True)] for case in shared.cases()}
    print("relative L2 of cfc, eager, sdpa; last: the largest ratio of cfc to eager; all: the largest over the lengths")
    print(f"{'block':<16}{'type':<5}{'length':>6}  " + "  ".join(f"{name:<23}" for name in VALUES) + "  ratio")
    for (block, dtype), bundles in jobs.items():
        tensors = make_inputs(block, TORCH_DTYPES[dtype], shared.device, options.seed, max(options.len) + 4)
        rows = tuple(cache.clone() for cache in tensors["cache"])
        programs = [harness.Program(shared, bundle.result(), tensors) for bundle in bundles]
        largest, ratio = {}, 0.0
        for length in options.len:
            errors, wrong = check_case(block, dtype, length, programs, tensors, rows)
            failures += wrong
            print_row(block, dtype, length, errors, ratio_of(errors), "FAILED" if wrong else "")
            ratio = max(ratio, ratio_of(errors))
            for name, row in errors.items():
                largest[name] = [max(pair) for pair in zip(row, largest.get(name, row))]
        print_row(block, dtype, "all", largest, ratio)
        failures += [f"{block.name} {dtype}: status {p.binding.status()}" for p in programs if p.binding.status()]
    shared.finish(failures)


if __name__ == "__main__":
    main()
