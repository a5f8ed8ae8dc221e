"""A compiled block against transformers' own LlamaDecoderLayer, at the true size of Llama 2 7B, with random weights.

The layer's input norm, attention and residual run in float64 (what is right) and in the block's type (eager mode, the
peer). The compiled block uses the layer's weights where they lie, through the ctypes loader, and a rope table that
transformers' rotary embedding fills.

    python3 tools/gpu/transformers_layer.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1
"""
import copy

import torch
import transformers
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

import harness
from blocks import BLOCKS, EPS, set_step
from harness import LIMITS, TORCH_DTYPES, relative_l2


def make_config(block):
    config = LlamaConfig(
        hidden_size=block.hidden,
        num_attention_heads=block.heads,
        num_key_value_heads=block.kv_heads,
        head_dim=block.dim,
        intermediate_size=8,  # the MLP takes no part
        max_position_embeddings=block.bound,
        rms_norm_eps=EPS,
    )
    config._attn_implementation = "eager"
    return config


def make_layer(config, dtype, device):
    """A layer with seeded weights that give logits with a standard deviation of about 1."""
    layer = LlamaDecoderLayer(config, layer_idx=0).to(device=device, dtype=dtype).eval()
    for name, parameter in layer.named_parameters():
        noise = torch.randn(parameter.shape, device=device, dtype=torch.float32)
        norm = name.endswith("layernorm.weight")
        parameter.data.copy_(1 + 0.1 * noise if norm else noise * parameter.shape[-1] ** -0.5)
    return layer


def layer_block(layer, config, x, rows, length, angles):
    """transformers' answer in the type of `layer`: the result, the result without residual and the appended rows."""
    dtype = layer.input_layernorm.weight.dtype
    cache = DynamicCache(config=config)
    if length:
        cache.update(*(part[None, :, :length].to(dtype) for part in rows), 0)
    states = x[None].to(dtype)
    attended, _ = layer.self_attn(
        layer.input_layernorm(states),
        position_embeddings=tuple(part.to(dtype) for part in angles),
        attention_mask=None,
        past_key_values=cache,
    )
    keys, values = cache.layers[0].keys, cache.layers[0].values
    assert keys.shape[2] == length + 1, "transformers appended no row"
    return {"result": (states + attended)[0], "y": attended[0], "k": keys[0, :, length], "v": values[0, :, length]}


def block_tensors(block, layer, table, capacity, device):
    """The compiled block's operands: the layer's own weights, and caches with `capacity` random rows."""
    attention, dtype = layer.self_attn, layer.input_layernorm.weight.dtype
    tensors = {"x": torch.randn(1, block.hidden, device=device).to(dtype), "gain": layer.input_layernorm.weight.data}
    tensors.update({f"w_{part}": getattr(attention, f"{part}_proj").weight.data for part in "qkvo"})
    rows = (block.kv_heads, capacity, block.dim)
    tensors.update(table=table, cache=tuple(torch.randn(rows, device=device).to(dtype) for _ in range(2)))
    for name, kind in (("pos", torch.int32), ("slot", torch.int64), ("len", torch.int32)):
        tensors[name] = torch.zeros(1, dtype=kind, device=device)
    return tensors


def check_type(shared, block, dtype, bundles, lengths):
    """Compares at all lengths. Returns the failures."""
    torch.manual_seed(shared.options.seed)
    config, failures = make_config(block), []
    layer = make_layer(config, TORCH_DTYPES[dtype], shared.device)
    exact = copy.deepcopy(layer).double()
    positions = torch.arange(block.bound, device=shared.device)[None]
    cos, sin = LlamaRotaryEmbedding(config).to(shared.device)(torch.zeros(1, device=shared.device), positions)
    half = block.dim // 2
    table = torch.cat([cos[0, :, :half], sin[0, :, :half]], dim=1).contiguous()
    tensors = block_tensors(block, layer, table, max(lengths) + 1, shared.device)
    rows = tuple(cache.clone() for cache in tensors["cache"])
    plain, inside = (harness.Program(shared, bundle.result(), tensors) for bundle in bundles)
    for length in lengths:
        set_step(tensors, rows, length, length, length)
        angles = (cos[:, length : length + 1], sin[:, length : length + 1])
        expected = layer_block(exact, config, tensors["x"], rows, length, angles)
        eager = layer_block(layer, config, tensors["x"], rows, length, angles)
        found = {"y": inside.run()["y"], "result": plain.run()["result0"]}
        found["k"], found["v"] = (cache[:, length] for cache in tensors["cache"])
        cells = []
        for name, value in expected.items():
            ours, peer = relative_l2(found[name], value), relative_l2(eager[name], value)
            cells.append(f"{name} {ours:.1e} ({peer:.1e})")
            if not ours <= LIMITS[dtype][0]:
                failures.append(f"{dtype} length {length}: {name}: relative L2 {ours:.2e}")
        print(f"{block.name} {dtype} length {length}: relative L2 (transformers eager): {'  '.join(cells)}", flush=True)
    return failures


def main():
    arguments = harness.parser(__doc__)
    harness.add_lengths(arguments, "0,1000,4096")
    arguments.set_defaults(blocks="llama2_7b")
    options = arguments.parse_args()
    if not all(BLOCKS[name].residual for name in options.blocks.split(",")):
        arguments.error("transformers has no layer for one rank of several")
    shared, failures = harness.Harness(options), []
    print(f"transformers {transformers.__version__}")
    jobs = {case: [shared.compile(*case, inside) for inside in (False, True)] for case in shared.cases()}
    with torch.no_grad():
        for (block, dtype), bundles in jobs.items():
            failures += check_type(shared, block, dtype, bundles, options.len)
    shared.finish(failures)


if __name__ == "__main__":
    main()
