"""Bundles with several variants: the same bits from each of them, chosen by hand, by hint, or kept by a captured graph.

    python3 tools/gpu/variants.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1

For each block and type the bundle holds one plan for each range of lengths. At every length
  - each variant, bound alone, gives the bits of the variant that is for all launches;
  - a launch with the right hint, with none, and with a hint that is far off gives them too;
  - a hint chooses the variant whose condition it satisfies.
A graph that was captured with the shortest variant is replayed while the length grows far past what that is for.
"""
import torch

import harness
from blocks import graph_text, make_inputs, set_step
from harness import TORCH_DTYPES, same_bits


def expected_variant(variants, length):
    """Plan hash of the variant that a launch with this hint is to take."""
    for variant in variants:
        if length <= variant.get("when", {}).get("max_length", length):
            return variant["plan_hash"]
    raise AssertionError("no variant is for all launches")


class Check:
    """One block and type."""

    def __init__(self, shared, block, dtype, path):
        self.shared, self.block, self.failures, self.comparisons = shared, block, [], 0
        self.name, options = f"{block.name} {dtype}", shared.options
        self.tensors = make_inputs(block, TORCH_DTYPES[dtype], shared.device, options.seed, max(options.len) + 4)
        self.rows = tuple(cache.clone() for cache in self.tensors["cache"])
        self.chosen = harness.Program(shared, path, self.tensors)
        self.variants = self.chosen.variants
        hashes = [variant["plan_hash"] for variant in self.variants]
        self.alone = {name: harness.Program(shared, path, self.tensors, name) for name in hashes}

    def expect(self, condition, what):
        self.comparisons += 1
        if not condition:
            self.failures.append(f"{self.name}: {what}")

    def prepare(self, length):
        set_step(self.tensors, self.rows, length, min(length + 3, self.block.bound - 1), length + 2)

    def run(self, program, length, **hints):
        self.prepare(length)
        return [program.run(**hints)["result0"], *(part.clone() for part in self.tensors["cache"])]

    def same(self, found, right):
        return all(same_bits(a, b) for a, b in zip(found, right))

    def check_length(self, length):
        usual = next(v["plan_hash"] for v in self.variants if "when" not in v)
        right = self.run(self.alone[usual], length)
        for name, program in self.alone.items():
            self.expect(self.same(self.run(program, length), right), f"length {length}, variant {name}: other bits")
        for hint in (length, 0, 1, self.block.bound):
            found = self.run(self.chosen, length, length_hint=hint)
            self.expect(self.same(found, right), f"length {length}, hint {hint}: other bits")
        wanted = expected_variant(self.variants, length) if length else usual
        taken = self.chosen.binding.variant_for(length_hint=length)
        self.expect(taken == wanted, f"hint {length} takes {taken}, not {wanted}")
        limited = self.run(self.chosen, length, length_hint=length, max_sms=self.shared.options.max_sms)
        self.expect(self.same(limited, right), f"length {length}, at most {self.shared.options.max_sms} SMs: other bits")
        return right

    def check_capture(self, rights):
        """The graph keeps the variant of the shortest length."""
        shortest = min(rights)
        self.prepare(shortest)
        self.chosen.launch(length_hint=max(shortest, 1))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.chosen.launch(length_hint=max(shortest, 1))
        for length, right in rights.items():
            self.prepare(length)
            self.chosen.results["result0"].fill_(float("nan"))
            graph.replay()
            found = [self.chosen.results["result0"], *self.tensors["cache"]]
            self.expect(self.same(found, right), f"captured at {shortest}, replayed at {length}: other bits")

    def check(self):
        rights = {length: self.check_length(length) for length in self.shared.options.len}
        self.check_capture(rights)
        for name, program in {"chosen": self.chosen, **self.alone}.items():
            self.expect(not program.binding.status(), f"{name}: the sticky status is set")
        conditions = ", ".join(f"{v['plan_hash']} {v.get('when', 'always')}" for v in self.variants)
        verdict = f"{len(self.failures)} FAILED" if self.failures else "all bits equal"
        print(f"{self.name}: {conditions}: {self.comparisons} comparisons: {verdict}", flush=True)
        return self.failures


def main():
    arguments = harness.parser(__doc__)
    harness.add_lengths(arguments, "0,1,129,1000,1024,1025,4096,8192,8193,16384")
    arguments.add_argument("--ranges", default="1024,8192", help="of --variant-lengths (1024,8192)")
    arguments.add_argument("--max-sms", type=int, default=64, help="limit of some launches (64)")
    options = arguments.parse_args()
    shared, failures, jobs = harness.Harness(options), [], {}
    for block, dtype in shared.cases():
        name = f"{block.name}_{dtype}"
        graph = shared.write(f"{name}.mlir", graph_text(block, dtype))
        jobs[block, dtype] = shared.compile_with(graph, f"{name}_variants.cfk", "--variant-lengths", options.ranges)
    for (block, dtype), bundle in jobs.items():
        failures += Check(shared, block, dtype, bundle.result()).check()
    shared.finish(failures)


if __name__ == "__main__":
    main()
