#!/usr/bin/env python3
"""Times a chain of Llama 2 7B attention blocks on a GPU: bundles of cfc beside torch.compile, in one process.

    tools/gpu/time_chain.py --library build/lib/libcfc_runtime.so.1 --lengths 1024,4096 a.cfk b.cfk

Eight layers with weights and caches of their own (so that nothing stays in the L2), each block's input being the block
before's output, replayed as one CUDA graph; the median of 30 replays after a warm-up of two seconds. The floor is the
bytes of weights and cached rows over the bandwidth of a 4 GB read in the same run. The bundles must be of
templates/graphs/llama2_7b_attention.mlir. Prints microseconds a block and the ratio to the floor.
"""
import argparse
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "templates", "embed", "python"))
import cfc_loader  # noqa: E402

HIDDEN, HEADS, DIM, LAYERS, REPEATS = 4096, 32, 128, 8, 4


def milliseconds(function, runs):
    """Median time of a call on the current stream."""
    times = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def read_bandwidth(device):
    """Bytes a second of one pass over 4 GB."""
    data = torch.zeros(1 << 30, dtype=torch.float32, device=device)
    return data.numel() * 4 / (milliseconds(lambda: torch.amax(data), 20) * 1e-3)


def warm_up(device):
    a = torch.randn(8192, 8192, device=device).half()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        a @ a
        torch.cuda.synchronize()


def make_layers(length, device):
    torch.manual_seed(0)
    random = lambda *shape: torch.randn(*shape, device=device)
    weights = ("w_q", "w_k", "w_v", "w_o")
    return [{"weights": {w: (random(HIDDEN, HIDDEN) / 64).half() for w in weights},
             "cache": tuple(random(HEADS, length + 64, DIM).half() for _ in "kv")} for _ in range(LAYERS)]


def time_graph(launch_chain):
    """Microseconds a block of a chain that `launch_chain` puts on the current stream."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            launch_chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(REPEATS):
            launch_chain()
    for _ in range(100):
        graph.replay()
    return milliseconds(graph.replay, 30) * 1e3 / (REPEATS * LAYERS)


def time_bundle(path, library, layers, common, device):
    bundle = cfc_loader.Bundle(path, library)
    workspace = bundle.workspace(device)
    x = [torch.randn(1, HIDDEN, device=device).half()] + [torch.empty(1, HIDDEN, device=device).half() for _ in layers]
    packed = lambda weights: {w: bundle.pack(w, t) if bundle.packed_bytes(w)[0] else t for w, t in weights.items()}
    blocks = [bundle.bind({**common, **packed(layer["weights"]), "cache": layer["cache"], "x": x[i], "result0": x[i + 1]})
              for i, layer in enumerate(layers)]
    return time_graph(lambda: [block.launch(workspace) for block in blocks])


def time_torch(layers, common, length, device):
    def block(x, gain, wqkv, wo, k, v, cos, sin):
        f = x.float()
        n = (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).half() * gain
        q, kn, vn = (n @ wqkv.t()).view(3, HEADS, 1, DIM).unbind(0)
        turn = lambda t: (t * cos + torch.cat((-t[..., DIM // 2:], t[..., :DIM // 2]), -1) * sin).half()
        k[:, length:length + 1], v[:, length:length + 1] = turn(kn), vn
        o = torch.nn.functional.scaled_dot_product_attention(turn(q)[None], k[None, :, :length + 1], v[None, :, :length + 1])
        return x + o.reshape(1, HIDDEN) @ wo.t()

    compiled = torch.compile(block)
    cos, sin = common["table"][length, :DIM // 2].repeat(2), common["table"][length, DIM // 2:].repeat(2)
    stacked = [torch.cat([layer["weights"][w] for w in ("w_q", "w_k", "w_v")]) for layer in layers]
    start = torch.randn(1, HIDDEN, device=device).half()

    def chain():
        x = start
        for layer, wqkv in zip(layers, stacked):
            x = compiled(x, common["gain"], wqkv, layer["weights"]["w_o"], *layer["cache"], cos, sin)

    return time_graph(chain)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*")
    parser.add_argument("--library", default="libcfc_runtime.so.1")
    parser.add_argument("--lengths", default="1024,4096,16300")
    parser.add_argument("--no-torch", action="store_true", help="leave out torch.compile")
    arguments = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device())
    warm_up(device)
    bandwidth = read_bandwidth(device)
    print(f"{torch.cuda.get_device_name(device)}: 4 GB read at {bandwidth / 1e12:.2f} TB/s")
    for length in map(int, arguments.lengths.split(",")):
        layers = make_layers(length, device)
        number = lambda value, dtype: torch.tensor([value], dtype=dtype, device=device)
        common = {"gain": torch.ones(HIDDEN, device=device).half(), "table": torch.randn(16384, DIM, device=device),
                  "pos": number(length, torch.int32), "slot": number(length, torch.int64), "len": number(length, torch.int32)}
        floor = (4 * HIDDEN * HIDDEN * 2 + 4 * length * HEADS * DIM) / bandwidth * 1e6
        rows = [(os.path.basename(b), time_bundle(b, arguments.library, layers, common, device)) for b in arguments.bundles]
        if not arguments.no_torch:
            rows.append(("torch.compile", time_torch(layers, common, length, device)))
        for name, us in rows:
            print(f"length {length:6d}  {name:28s} {us:8.2f} us  {us / floor:5.2f} of the floor of {floor:.1f} us")


if __name__ == "__main__":
    main()
