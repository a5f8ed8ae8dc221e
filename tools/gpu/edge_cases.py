"""Logits and run-time values at the edge of what a block takes.

Attention alone, at 32 heads of 128, against float64: all logits near -2900; one of +2900; 16,384 equal values of 150,
which must give 150. A whole block: an idle request (slot -1) writes nothing and gives its residual; a slot, length or
position in device memory that is out of bound is skipped or clamped, sets the sticky status and touches nothing else.

    python3 tools/gpu/edge_cases.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1
"""
import torch

import harness
from blocks import graph_text, make_inputs, set_step
from harness import LIMITS, TORCH_DTYPES, relative_l2, same_bits

HEADS, DIM, TOKENS = 32, 128, 16384
SCALE = DIM**-0.5
# The planner's choice, and plans of several kernels, which may append and attend in different ones.
PLANS = ("auto", "random:2", "random:7")
LENGTH_BIT, SLOT_BIT, POSITION_BIT = 1, 2, 4


def attention_text(dtype):
    row = f"tensor<1x{HEADS * DIM}x{dtype}>"
    return f"""\
attn.graph @attention_{dtype}(
    %q: {row}, %cache: !attn.kv_cache<heads = {HEADS}, dim = {DIM}, {dtype}>,
    %len: !attn.lengths<1, capacity = {TOKENS}>) -> {row} {{
  %o = attn.attention %q, %cache, %len {{scale = {SCALE!r}}}
  attn.return %o
}}
"""


def extreme_inputs(device):
    """(what, length, q, k, v) of each case, in float32. A query of 16 and keys of 16.02 give a logit of 2900."""
    rows, extreme = (HEADS, TOKENS, DIM), 2900 / (16 * DIM * SCALE)
    query, noise = torch.full((1, HEADS * DIM), 16.0, device=device), torch.randn(rows, device=device)
    values = torch.randn(rows, device=device)
    yield "logits near -2900", 1000, query, noise / 16 - extreme, values
    one = noise / 16
    one[:, 777] = extreme
    yield "one logit of +2900", 1000, query, one, values
    flat = torch.full(rows, 150.0, device=device)
    yield "16384 values of 150", TOKENS, query / 16, noise, flat
    yield "16384 values of 150, equal logits", TOKENS, query / 16, torch.zeros_like(noise), flat


def check_softmax(shared, dtype, path):
    torch.manual_seed(shared.options.seed)
    kind, failures = TORCH_DTYPES[dtype], []
    tensors = {"q": torch.zeros(1, HEADS * DIM, dtype=kind, device=shared.device)}
    tensors["cache"] = tuple(torch.zeros(HEADS, TOKENS, DIM, dtype=kind, device=shared.device) for _ in range(2))
    tensors["len"] = torch.zeros(1, dtype=torch.int32, device=shared.device)
    program = harness.Program(shared, path, tensors)
    for what, length, q, k, v in extreme_inputs(shared.device):
        for target, given in zip((tensors["q"], *tensors["cache"]), (q, k, v)):
            target.copy_(given)
        tensors["len"].fill_(length)
        for cache in tensors["cache"]:
            cache[:, length:] = float("nan")
        found = program.run()["result0"].view(HEADS, DIM)
        keys, values = (cache[:, :length].double() for cache in tensors["cache"])
        logits = keys @ tensors["q"].double().view(HEADS, DIM, 1) * SCALE
        expected = (logits.softmax(dim=1).transpose(1, 2) @ values).view(HEADS, DIM)
        error, exact = relative_l2(found, expected, by_row=True), bool((found == 150).all())
        if not error <= LIMITS[dtype][0] or ("150" in what and not exact):
            failures.append(f"attention {dtype}: {what}: relative L2 {error:.2e}")
        extent = f"logits {logits.min().item():.1f} to {logits.max().item():.1f}"
        print(f"attention {dtype}: {what} ({extent}): relative L2 {error:.1e}", flush=True)
    return failures


class Bounds:
    """A block's answers to run-time values out of their bounds."""

    def __init__(self, shared, block, dtype, plan, path):
        self.block, self.name, self.failures = block, f"{block.name} {dtype}, plan {plan}", []
        self.pool = block.bound + 4  # a larger pool than the longest length, so that there are slots behind it
        self.tensors = make_inputs(block, TORCH_DTYPES[dtype], shared.device, shared.options.seed, self.pool)
        self.rows = tuple(cache.clone() for cache in self.tensors["cache"])
        self.program = harness.Program(shared, path, self.tensors)

    def run(self, length, position, slot, given=None):
        """The result, caches and status of a step. `given` replaces (length, position, slot) in device memory."""
        set_step(self.tensors, self.rows, length, position, slot)
        for name, value in zip(("len", "pos", "slot"), given or (length, position, slot)):
            self.tensors[name].fill_(value)
        before = [cache.clone() for cache in self.tensors["cache"]]
        result = self.program.run()["result0"]
        return result, [cache.clone() for cache in self.tensors["cache"]], self.program.binding.status(True), before

    def expect(self, what, condition):
        if not condition:
            self.failures.append(f"{self.name}: {what}")

    def check_idle(self, what, slot, status):
        """Nothing is written and attention gives 0, so that the residual alone is left."""
        result, after, bits, before = self.run(100, 100, 100, given=(100, 100, slot))
        residual = self.tensors["x"] if self.block.residual else torch.zeros_like(result)
        self.expect(f"{what}: the result is not the residual", torch.equal(result, residual))
        self.expect(f"{what}: a cache changed", all(same_bits(a, b) for a, b in zip(after, before)))
        self.expect(f"{what}: status {bits}, not {status}", bits == status)

    def check_clamped(self, what, legal, given, status):
        """The step acts as the legal one does."""
        result, after, bits, _ = self.run(*legal)
        self.expect(f"{what}: status {bits} of a legal step", bits == 0)
        other, other_after, bits, _ = self.run(*legal, given=given)
        self.expect(f"{what}: the result is not that of the bound", same_bits(result, other))
        self.expect(f"{what}: the caches differ", all(same_bits(a, b) for a, b in zip(after, other_after)))
        self.expect(f"{what}: status {bits}, not {status}", bits == status)

    def check(self):
        last, slot = self.block.bound, self.block.bound + 2
        self.check_idle("slot -1", -1, 0)
        self.check_idle("slot past the pool", self.pool, SLOT_BIT)
        self.check_idle("slot far past the pool", 1 << 40, SLOT_BIT)
        self.check_idle("slot -2", -2, SLOT_BIT)
        self.check_clamped("length past its bound", (last, 7, slot), (last + 1, 7, slot), LENGTH_BIT)
        self.check_clamped("huge length", (last, 7, slot), (2**31 - 1, 7, slot), LENGTH_BIT)
        self.check_clamped("negative length", (0, 7, slot), (-1, 7, slot), LENGTH_BIT)
        self.check_clamped("position past the table", (129, last - 1, slot), (129, last, slot), POSITION_BIT)
        self.check_clamped("negative position", (129, 0, slot), (129, -1, slot), POSITION_BIT)
        verdict = f"{len(self.failures)} FAILED" if self.failures else "as specified"
        print(f"{self.name}: 9 steps out of bound or idle: {verdict}", flush=True)
        return self.failures


def main():
    options = harness.parser(__doc__).parse_args()
    shared, failures = harness.Harness(options), []
    jobs = {}
    for block, dtype in shared.cases():
        graph = shared.write(f"{block.name}_{dtype}.mlir", graph_text(block, dtype))
        for plan in PLANS:
            name = f"{block.name}_{dtype}_{plan.replace(':', '')}.cfk"
            jobs[block, dtype, plan] = shared.compile_plan(graph, plan, name)
    for dtype in options.dtypes.split(","):
        graph = shared.write(f"attention_{dtype}.mlir", attention_text(dtype))
        failures += check_softmax(shared, dtype, shared.compile_plan(graph, "auto", f"attention_{dtype}.cfk").result())
    for (block, dtype, plan), bundle in jobs.items():
        failures += Bounds(shared, block, dtype, plan, bundle.result()).check()
    shared.finish(failures)


if __name__ == "__main__":
    main()
