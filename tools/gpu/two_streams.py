"""Two captured graphs on two streams, and one beside large matrix products: nothing hangs, nothing differs.

    python3 tools/gpu/two_streams.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1 --seconds=60

Each graph is a chain of layers with a workspace and caches of its own, of another length, and compares its results with
the right bits on the device. Both are replayed for the given time, always with work waiting on both streams; then one is,
beside products of 8192 x 8192 matrices. A stream that ends nothing for 30 seconds counts as hung.
"""
import os
import time

import torch

import harness
import plan_text
from blocks import graph_text
from layers import Chain

PATIENCE = 30  # seconds


class Lane:
    """A stream with work that is issued in batches; two of them are in flight."""

    def __init__(self, name):
        self.name, self.stream, self.flying, self.done = name, torch.cuda.Stream(), [], 0
        self.changed = time.monotonic()

    def issue(self):
        """One batch on the lane's stream, which is current."""
        raise NotImplementedError

    def turn(self):
        """Notes what has ended and issues what there is room for. Ends the program where the stream hangs."""
        while self.flying and self.flying[0].query():
            self.flying.pop(0)
            self.done += 1
            self.changed = time.monotonic()
        while len(self.flying) < 2:
            with torch.cuda.stream(self.stream):
                self.issue()
                self.flying.append(torch.cuda.Event())
                self.flying[-1].record()
        if time.monotonic() - self.changed > PATIENCE:
            print(f"FAILED: {self.name}: nothing has ended for {PATIENCE} s: hung", flush=True)
            os._exit(1)  # waiting for the device would never end

    def drain(self):
        """Waits for what is in flight, but not for ever."""
        self.changed = time.monotonic()
        while self.flying:
            if self.flying[0].query():
                self.flying.pop(0)
                self.done += 1
            elif time.monotonic() - self.changed > PATIENCE:
                print(f"FAILED: {self.name}: the last work does not end: hung", flush=True)
                os._exit(1)
            time.sleep(0.001)


class GraphLane(Lane):
    """Replays a chain of layers that counts the elements that are not right."""

    def __init__(self, name, chain, block, length, batch):
        super().__init__(name)
        self.chain, self.batch = chain, batch
        torch.cuda.synchronize()  # the chain was made on another stream
        with torch.cuda.stream(self.stream):
            chain.prepare(length, min(length + 3, block.bound - 1), length + 2)
            chain.launch()
            self.right = [value.clone() for value in chain.values()]
            self.wrong = torch.zeros((), dtype=torch.int64, device=self.right[0].device)
            self.stream.synchronize()
            self.graph = chain.capture(self.compare)
            self.stream.synchronize()

    def compare(self):
        for found, right in zip(self.chain.values()[::3], self.right[::3]):  # results; caches at the end
            self.wrong += (found.view(torch.int16) != right.view(torch.int16)).sum()

    def issue(self):
        for _ in range(self.batch):
            self.graph.replay()

    def failures(self):
        same = all(harness.same_bits(a, b) for a, b in zip(self.chain.values(), self.right))
        found = [] if same else [f"{self.name}: a result or a cache has other bits at the end"]
        if self.wrong.item():
            found.append(f"{self.name}: {self.wrong.item()} elements of results were wrong on the way")
        if any(layer.binding.status() for layer in self.chain.layers):
            found.append(f"{self.name}: the sticky status is set")
        return found


class ProductLane(Lane):
    """Large matrix products, which fill the device."""

    def __init__(self, size, dtype):
        super().__init__("matrix products")
        self.a, self.b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
        self.c = torch.empty_like(self.a)

    def issue(self):
        for _ in range(4):
            torch.matmul(self.a, self.b, out=self.c)


def run(lanes, seconds):
    """Keeps all lanes busy for that long. Prints what was done."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for lane in lanes:
            lane.turn()
    for lane in lanes:
        lane.drain()
    torch.cuda.synchronize()
    return ", ".join(f"{lane.name}: {lane.done} batches" for lane in lanes)


# Of which plan's text each kind is made, and how kernels start; joined: CTAs wait for each other, so two launches must
# not each hold a part of the chip.
KINDS = {"pdl0": ("auto", 0), "pdl1": ("auto", 1), "pdl2": ("separate", 2), "pdl3": ("auto", 3), "joined": ("joined", None)}


def start(shared, block, dtype):
    """Starts compiling the kinds of plans that the options name. Returns jobs by kind."""
    name, jobs = f"{block.name}_{dtype}", {}
    graph, cfc = shared.write(f"{name}.mlir", graph_text(block, dtype)), shared.options.cfc
    chosen = plan_text.complete(cfc, graph, "auto")
    plans = {"auto": "auto"}
    for base, make in (("separate", plan_text.plan_separate), ("joined", plan_text.plan_joined)):
        plans[base] = shared.write(f"{name}_{base}.plan", make(chosen))
    for kind in shared.options.kinds.split(","):
        base, value = KINDS[kind]
        if value is None:
            jobs[kind] = shared.compile_plan(graph, plans[base], f"{name}_{kind}.cfk")
            continue
        text = plan_text.complete(cfc, graph, plans[base])
        jobs.update({kind: job for job in shared.compile_starts(graph, f"{name}_{base}", text, [value]).values()})
    return jobs


def check(shared, block, dtype, path, name):
    options, lanes = shared.options, []
    for index, length in enumerate(options.len[:2]):
        chain = Chain(shared, block, dtype, path, options.layers, length + 4, options.seed + 100 * index)
        lanes.append(GraphLane(f"length {length}", chain, block, length, options.batch))
    print(f"{name}: two graphs for {options.seconds:g} s: {run(lanes, options.seconds)}", flush=True)
    products = ProductLane(options.size, harness.TORCH_DTYPES[dtype])
    beside = [lanes[0], products]
    lanes[0].done = 0
    seconds = options.product_seconds or options.seconds
    print(f"{name}: beside products for {seconds:g} s: {run(beside, seconds)}", flush=True)
    failures = [failure for lane in lanes for failure in lane.failures()]
    failures += [f"{lane.name}: nothing was done" for lane in (*lanes, products) if not lane.done]
    return [f"{name}: {failure}" for failure in failures]


def main():
    arguments = harness.parser(__doc__)
    arguments.set_defaults(blocks="llama2_7b", dtypes="f16")
    harness.add_lengths(arguments, "4096,1000")
    arguments.add_argument("--seconds", type=float, default=60, help="of each of the two runs (60)")
    arguments.add_argument("--product-seconds", type=float, help="of the second run (as the first)")
    arguments.add_argument("--layers", type=int, default=4, help="layers of each graph (4)")
    arguments.add_argument("--batch", type=int, default=16, help="replays in a batch (16)")
    arguments.add_argument("--size", type=int, default=8192, help="rows and columns of the matrices (8192)")
    arguments.add_argument("--kinds", default=",".join(KINDS), help="plans: %(default)s (all)")
    options = arguments.parse_args()
    if len(options.len) < 2:
        arguments.error("--len needs two lengths")
    shared, failures = harness.Harness(options), []
    jobs = {case: start(shared, *case) for case in shared.cases()}
    for (block, dtype), plans in jobs.items():
        for kind, bundle in plans.items():
            failures += check(shared, block, dtype, bundle.result(), f"{block.name} {dtype} {kind}")
        missing = [kind for kind in options.kinds.split(",") if kind not in plans]
        failures += [f"{block.name} {dtype} {kind}: nothing was run" for kind in missing]
    shared.finish(failures)


if __name__ == "__main__":
    main()
