"""Launches in a captured CUDA graph, runs that repeat, and launches on two streams at a time.

  - A torch.cuda.CUDAGraph captures one launch and is replayed while the hidden state, length, slot and position change
    in device memory; every replay must give the bits of a fresh launch of another binding.
  - 100 replays of one step give the same bits.
  - cfc_rebind moves the captured launch to other weights and caches.
  - Two streams launch the block at the same time, each with a workspace and results of its own; the bits stay.

    python3 tools/gpu/captured_graph.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1
"""
import torch

import harness
from blocks import make_inputs, set_step
from harness import TORCH_DTYPES, same_bits


def steps(block, lengths):
    """(length, position, slot) of each step, with slots and positions that differ from the length."""
    for index, length in enumerate(lengths):
        yield length, min(length + 3 * (index % 2), block.bound - 1), length + 2 * (index % 2)


class Check:
    """One block and type: a binding that is captured, and the inputs of its steps."""

    def __init__(self, shared, block, dtype, path):
        self.shared, self.block, self.path, self.failures = shared, block, path, []
        self.name = f"{block.name} {dtype}"
        options = shared.options
        self.tensors = make_inputs(block, TORCH_DTYPES[dtype], shared.device, options.seed, max(options.len) + 4)
        self.rows = tuple(cache.clone() for cache in self.tensors["cache"])
        self.program = harness.Program(shared, path, self.tensors)
        self.states = torch.randn(len(options.len), block.hidden, device=shared.device).to(self.tensors["x"].dtype)

    def own_tensors(self):
        """Run-time values and caches of their own; the weights are shared."""
        own = {name: self.tensors[name].clone() for name in ("x", "pos", "slot", "len")}
        return {**self.tensors, **own, "cache": tuple(torch.empty_like(part) for part in self.rows)}

    def expect(self, condition, what):
        if not condition:
            self.failures.append(f"{self.name}: {what}")

    def prepare(self, tensors, index, step):
        set_step(tensors, self.rows, *step)
        tensors["x"].copy_(self.states[index : index + 1])

    def capture(self):
        # Once before the capture, as torch asks for; the first step's values are in place.
        self.prepare(self.tensors, 0, next(steps(self.block, self.shared.options.len)))
        self.program.launch()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.program.launch()

    def replay(self):
        self.program.results["result0"].fill_(float("nan"))
        self.graph.replay()
        return self.program.results["result0"].clone()

    def check_replays(self):
        """Replays of all steps, each against a fresh launch of another binding. Keeps what is right."""
        tensors = self.own_tensors()
        fresh, self.right = harness.Program(self.shared, self.path, tensors), []
        for index, step in enumerate(steps(self.block, self.shared.options.len)):
            self.prepare(tensors, index, step)
            self.right.append(fresh.run()["result0"])
            self.prepare(self.tensors, index, step)
            result = self.replay()
            self.expect(same_bits(result, self.right[-1]), f"length {step[0]}: the replay has other bits")
            caches = zip(self.tensors["cache"], tensors["cache"])
            self.expect(all(same_bits(a, b) for a, b in caches), f"length {step[0]}: the caches differ")

    def check_repeats(self, count):
        index = len(self.right) - 1
        self.prepare(self.tensors, index, list(steps(self.block, self.shared.options.len))[index])
        different = sum(not same_bits(self.replay(), self.right[index]) for _ in range(count))
        self.expect(not different, f"{different} of {count} replays have other bits")

    def check_rebind(self):
        """After a rebind the captured launch uses other weights and caches; the old ones are not read or written."""
        old = {name: self.tensors[name] for name in ("gain", "w_q", "w_k", "w_v", "w_o", "table", "cache")}
        new = {name: value.clone() for name, value in old.items() if name != "cache"}
        new["cache"] = tuple(torch.empty_like(part) for part in self.rows)
        self.program.binding.rebind(new)
        self.tensors.update(new)
        for value in old.values():
            for part in value if isinstance(value, tuple) else (value,):
                part.fill_(float("nan"))
        before = [part.clone() for part in old["cache"]]
        for index, step in enumerate(steps(self.block, self.shared.options.len)):
            self.prepare(self.tensors, index, step)
            self.expect(same_bits(self.replay(), self.right[index]), f"length {step[0]}: other bits after a rebind")
        self.expect(all(same_bits(a, b) for a, b in zip(old["cache"], before)), "the old cache changed after a rebind")

    def check_streams(self, count):
        """Two streams launch at the same time; neither disturbs the other."""
        index = len(self.right) - 1
        step, lanes = list(steps(self.block, self.shared.options.len))[index], []
        for _ in range(2):
            stream, tensors = torch.cuda.Stream(), self.own_tensors()
            self.prepare(tensors, index, step)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                lanes.append((stream, harness.Program(self.shared, self.path, tensors)))
        torch.cuda.synchronize()
        results = []
        for _ in range(count):
            for stream, program in lanes:
                with torch.cuda.stream(stream):
                    program.launch()
                    results.append(program.results["result0"].clone())
        torch.cuda.synchronize()
        different = sum(not same_bits(result, self.right[index]) for result in results)
        self.expect(not different, f"{different} of {len(results)} launches on two streams have other bits")

    def run(self, count):
        self.capture()
        self.check_replays()
        self.check_repeats(count)
        self.check_rebind()
        self.check_streams(count)
        self.expect(not self.program.binding.status(), "the sticky status is set")
        verdict = f"{len(self.failures)} FAILED" if self.failures else "all bits equal"
        done = f"{len(self.right)} captured steps, {count} repeats, a rebind, {count} launches on each of two streams"
        print(f"{self.name}: {done}: {verdict}", flush=True)
        return self.failures


def main():
    arguments = harness.parser(__doc__)
    harness.add_lengths(arguments, "0,1,129,5,1000,4096,128,2000")
    arguments.add_argument("--repeat", type=int, default=100, help="launches that must give the same bits (100)")
    options = arguments.parse_args()
    shared, failures = harness.Harness(options), []
    jobs = {case: shared.compile(*case) for case in shared.cases()}
    for (block, dtype), bundle in jobs.items():
        failures += Check(shared, block, dtype, bundle.result()).run(options.repeat)
    shared.finish(failures)


if __name__ == "__main__":
    main()
