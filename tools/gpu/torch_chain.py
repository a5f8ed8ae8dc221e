#!/usr/bin/env python3
"""Times a chain of an attn.graph's blocks with torch.compile in a CUDA graph: `cfc bench --baseline` runs this.

    python3 torch_chain.py DESCRIPTION

DESCRIPTION is JSON: the graph's tensors and operations, and the cases to time; cfc writes it (tools/lib/BenchTorch.cpp).
Prints one line `cfc-result: JSON`: a list with an object of microseconds a block for each case, or {"problem": …}.
Everything that PyTorch may know ahead is a constant here: lengths, positions and slots are no tensors.
"""
import json
import os
import sys
import time

if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
    print(__doc__)
    sys.exit(0 if len(sys.argv) == 2 else 2)

# What compilers print stays away from the one line that is read.
RESULT = os.fdopen(os.dup(1), "w")


def answer(result):
    print("cfc-result:", json.dumps(result), file=RESULT, flush=True)


try:
    import torch
except Exception as error:  # whatever a broken installation raises
    answer({"problem": f"python3 cannot import torch: {error}"})
    sys.exit(0)

WARM_UP_SECONDS, SETTLE_SECONDS, GRAPH_MICROSECONDS = 2, 0.2, 4000


class Block:
    """The graph as a function of tensors."""

    def __init__(self, description, length):
        self.tensors, self.length = description["tensors"], length
        self.operations, self.results = description["operations"], description["results"]
        self.dtypes = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}

    def __call__(self, given):
        values = dict(given)
        for operation in self.operations:
            outputs = getattr(self, operation["name"])(operation, *[values[name] for name in operation["operands"]])
            for name, dtype, output in zip(operation["results"], operation["dtypes"], outputs):
                values[name] = output if dtype is None else output.to(self.dtypes[dtype])
        return [values[name] for name in self.results]

    def rms_norm(self, operation, x, gain):
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + operation["eps"])
        return [(wide * scale).to(x.dtype) * gain]

    def linear(self, operation, x, weight, bias=None):
        product = torch.nn.functional.linear(x, weight, bias)
        return product.split(operation["rows"], dim=1)

    def rope(self, operation, *operands):
        *values, row = operands
        dim = row.shape[-1]
        cos, sin = row.chunk(2)

        def turn(value):
            heads = value.float().view(-1, dim)
            if operation["interleaved"]:
                a, b = heads[:, 0::2], heads[:, 1::2]
                turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=2)
            else:
                a, b = heads.chunk(2, dim=1)
                turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=1)
            return turned.reshape(value.shape)

        return [turn(value) for value in values]

    def kv_append(self, operation, cache, k, v):
        for rows, new in zip(cache, (k, v)):
            rows[:, self.length : self.length + 1] = new.view(rows.shape[0], 1, -1).to(rows.dtype)
        return [cache]

    def attention(self, operation, q, cache):
        tokens = self.length + operation["appended"]
        keys, values = (rows[None, :, :tokens] for rows in cache)
        heads = q.to(keys.dtype).view(1, -1, 1, keys.shape[-1])
        grouped = {"enable_gqa": True} if heads.shape[1] != keys.shape[1] else {}
        o = torch.nn.functional.scaled_dot_product_attention(heads, keys, values, scale=operation["scale"], **grouped)
        if len(operation["results"]) == 1:
            return [o.reshape(q.shape)]
        group = heads.shape[1] // keys.shape[1]
        scores = heads.float() @ keys.repeat_interleave(group, 1).float().transpose(2, 3) * operation["scale"]
        return [o.reshape(q.shape), scores.logsumexp(-1).view(1, -1)]

    def add(self, operation, lhs, rhs):
        return [lhs + rhs]


def make_tensor(spec, length, token_major, device):
    """Random values of a tensor as cfc's own chain has them; a rope table is the one row that is used."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[spec["dtype"]]
    if spec["kind"] == "cache":
        shape = [length + 1, spec["heads"], spec["dim"]] if token_major else [spec["heads"], length + 1, spec["dim"]]
        rows = [torch.randn(shape, device=device).to(dtype) for _ in "kv"]
        return tuple(part.transpose(0, 1) if token_major else part for part in rows)
    shape = spec["shape"][1:] if spec["kind"] == "table" else spec["shape"]
    values = torch.randn(shape, device=device) * spec["deviation"] + spec["mean"]
    return values.to(dtype)


def make_layers(description, case, device):
    make = lambda spec: make_tensor(spec, case["length"], description["token_major"], device)  # noqa: E731
    tensors = description["tensors"]
    shared = {name: make(spec) for name, spec in tensors.items() if not spec["own"]}
    own = lambda: {name: make(spec) for name, spec in tensors.items() if spec["own"]}  # noqa: E731
    return [{**shared, **own()} for _ in range(case["layers"])]


def replay_times(graph, count):
    """Microseconds of each of `count` replays, one right behind the other."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in zip(events, events[1:])]


def busy(seconds, work):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work()
        torch.cuda.synchronize()


def capture(work, repeats, stream):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            work()
    return graph


def quantile(samples, share):
    position = share * (len(samples) - 1)
    below = int(position)
    above = min(below + 1, len(samples) - 1)
    return samples[below] + (position - below) * (samples[above] - samples[below])


def time_case(description, case, device):
    torch.manual_seed(0)
    torch._dynamo.reset()
    graph_of = Block(description, case["length"])
    block = torch.compile(lambda given: graph_of(given), dynamic=False)
    layers, chained = make_layers(description, case, device), description["chained"]

    def chain():
        result = None
        for layer in layers:
            result = block({**layer, chained: result} if chained and result is not None else layer)[0]

    stream = torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                chain()
        torch.cuda.synchronize()
        graph = capture(chain, 1, stream)
        once = sorted(replay_times(graph, 3))[1]
        repeats = max(1, min(int(GRAPH_MICROSECONDS / once) + 1, 2048 // case["layers"]))
        graph = capture(chain, repeats, stream)
    busy(SETTLE_SECONDS, graph.replay)
    times = sorted(t / (repeats * case["layers"]) for t in replay_times(graph, description["replays"]))
    return {"median": quantile(times, 0.5), "min": times[0], "p10": quantile(times, 0.1), "p90": quantile(times, 0.9)}


def main():
    description = json.loads(sys.argv[1])
    if not torch.cuda.is_available():
        return answer({"problem": "torch sees no GPU"})
    device = torch.device("cuda", torch.cuda.current_device())
    a = torch.randn(8192, 8192, device=device).half()
    busy(WARM_UP_SECONDS, lambda: a @ a)
    del a
    results = []
    for case in description["cases"]:
        try:
            results.append(time_case(description, case, device))
        except Exception as error:  # a case that PyTorch cannot do is an answer too
            results.append({"problem": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"})
    answer(results)


main()
