"""A chain of layers: one block bound several times, each with weights and caches of its own, its input being the
result of the layer before. What decoding does, and where kernels of overlapped launches meet."""
import torch

import harness
from blocks import make_inputs, set_step
from harness import TORCH_DTYPES


class Chain:
    """`count` layers of a bundle, with one workspace, for one stream."""

    def __init__(self, shared, block, dtype, path, count, capacity, seed):
        self.layers, self.rows, tensors = [], [], None
        for layer in range(count):
            own = make_inputs(block, TORCH_DTYPES[dtype], shared.device, seed + layer, capacity)
            if tensors:
                own["x"] = self.layers[-1].results["result0"]
                own.update({name: tensors[name] for name in ("pos", "slot", "len", "table")})
            tensors = own
            self.rows.append(tuple(cache.clone() for cache in own["cache"]))
            self.layers.append(harness.Program(shared, path, own))
            self.layers[-1].tensors = own
        for layer in self.layers:
            layer.workspace = self.layers[0].workspace

    def prepare(self, length, position, slot):
        for layer, rows in zip(self.layers, self.rows):
            set_step(layer.tensors, rows, length, position, slot)

    def launch(self):
        for layer in self.layers:
            layer.launch()

    def values(self):
        """Results and caches of all layers, which later launches overwrite."""
        return [part for layer in self.layers for part in (layer.results["result0"], *layer.tensors["cache"])]

    def poison(self):
        for layer in self.layers:
            layer.results["result0"].fill_(float("nan"))

    def capture(self, then=lambda: None):
        """A graph of one pass through the layers, and of `then`. The values of a step are in place."""
        self.launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.launch()
            then()
        return graph
