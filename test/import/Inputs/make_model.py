"""Makes the folder of a tiny model, as Hugging Face lays it out: config.json and random weights of one layer or more.

    python3 make_model.py FAMILY FOLDER [KEY=JSON …] [--drop KEY …] [--rename OLD=NEW] [--dtype f16] [--shards]

KEY=JSON changes or adds an option of config.json before the weights are made; --drop removes one that their shapes
come from, afterwards.
"""
import argparse
import array
import json
import pathlib
import random
import struct

BASE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
            max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=10000.0, intermediate_size=8, vocab_size=8)
YARN = dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=32)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
FAMILIES = {
    "llama": dict(),
    "llama3": dict(rope_theta=500000.0, rope_scaling=LLAMA3),
    "mistral": dict(sliding_window=16),
    "qwen2": dict(use_sliding_window=False, sliding_window=16, max_window_layers=1),
    "qwen3": dict(attention_bias=False, rope_theta=1000000.0),
    "gemma2": dict(query_pre_attn_scalar=24, sliding_window=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
    "gemma3_text": dict(query_pre_attn_scalar=32, sliding_window=16, sliding_window_pattern=2, rope_theta=1000000.0,
                        rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0)),
    "phi": dict(num_key_value_heads=4, partial_rotary_factor=0.5, layer_norm_eps=1e-5, qk_layernorm=False),
    "phi3": dict(sliding_window=16, partial_rotary_factor=0.75),
    "granite": dict(attention_multiplier=0.0078125, residual_multiplier=0.22, embedding_multiplier=12.0),
    "olmo": dict(clip_qkv=None),
    "olmo2": dict(),
    "olmo3": dict(sliding_window=16, rope_theta=500000.0, rope_scaling=YARN | dict(attention_factor=1.25, truncate=True)),
    "gpt_oss": dict(sliding_window=16, rope_theta=150000.0, rope_scaling=YARN, attention_bias=True,
                    quantization_config=dict(quant_method="mxfp4")),
}
MODEL_TYPES = {"llama3": "llama"}


def attention_shapes(config):
    """Names, behind `layers.N.`, and shapes of the attention's tensors and norms."""
    kind, hidden = config["model_type"], config["hidden_size"]
    heads, dim = config["num_attention_heads"], config["head_dim"]
    q, kv = heads * dim, config["num_key_value_heads"] * dim
    out = "dense" if kind == "phi" else "o_proj"
    shapes = {"self_attn.q_proj.weight": (q, hidden), "self_attn.k_proj.weight": (kv, hidden),
              "self_attn.v_proj.weight": (kv, hidden)}
    if kind == "phi3":
        shapes = {"self_attn.qkv_proj.weight": (q + 2 * kv, hidden)}
    shapes[f"self_attn.{out}.weight"] = (hidden, q)
    biased = config.get("attention_bias", False)
    for part, rows in ("q_proj", q), ("k_proj", kv), ("v_proj", kv), (out, hidden):
        if biased or kind == "phi" or (kind == "qwen2" and part != out):
            shapes[f"self_attn.{part}.bias"] = (rows,)
    if kind in ("qwen3", "gemma3_text"):
        shapes |= {f"self_attn.{part}_norm.weight": (dim,) for part in "qk"}
    if kind in ("olmo2", "olmo3"):
        shapes |= {"self_attn.q_norm.weight": (q,), "self_attn.k_norm.weight": (kv,)}
    if kind == "gpt_oss":
        shapes["self_attn.sinks"] = (heads,)
    if kind not in ("olmo", "olmo2", "olmo3"):
        shapes["input_layernorm.weight"] = (hidden,)
    if kind == "phi":
        shapes["input_layernorm.bias"] = (hidden,)
    elif kind != "olmo":
        shapes["post_attention_layernorm.weight"] = (hidden,)
    return shapes


def values(name, shape, dtype, generator):
    """Random bytes of a tensor whose products stay near 1."""
    count = 1
    for extent in shape:
        count *= extent
    deviation = shape[-1] ** -0.5 if len(shape) == 2 else 0.1
    centre = 1.0 if name.endswith("norm.weight") else 0.0
    numbers = [generator.gauss(centre, deviation) for _ in range(count)]
    if dtype == "F16":
        return struct.pack(f"<{count}e", *numbers)
    words = array.array("f", numbers).tobytes()
    return words if dtype == "F32" else b"".join(words[i + 2 : i + 4] for i in range(0, len(words), 4))


def save(path, tensors, dtype):
    header, data = {}, b""
    for name, (shape, content) in tensors.items():
        header[name] = dict(dtype=dtype, shape=list(shape), data_offsets=[len(data), len(data) + len(content)])
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--drop", action="append", default=[])
    parser.add_argument("--rename", action="append", default=[])
    parser.add_argument("--dtype", default="BF16", type=str.upper)
    parser.add_argument("--prefix", default="model.")
    parser.add_argument("--text-config", action="store_true", help="as a model of images and text has it")
    parser.add_argument("--shards", action="store_true")
    options = parser.parse_args()
    config = BASE | dict(model_type=MODEL_TYPES.get(options.family, options.family)) | FAMILIES[options.family]
    if options.family == "phi":
        del config["rms_norm_eps"]
    for change in options.changes:
        key, value = change.split("=", 1)
        config[key] = json.loads(value)
    shapes, generator = attention_shapes(config), random.Random(options.family)
    dtype = options.dtype
    tensors = {f"{options.prefix}layers.{layer}.{name}": (shape, values(name, shape, dtype, generator))
               for layer in range(config["num_hidden_layers"]) for name, shape in shapes.items()}
    for pair in options.rename:
        old, new = pair.split("=")
        tensors[new] = tensors.pop(old)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.shards:
        names, half = list(tensors), len(tensors) // 2
        parts = {"model-00001-of-00002.safetensors": names[:half], "model-00002-of-00002.safetensors": names[half:]}
        for file, part in parts.items():
            save(options.folder / file, {name: tensors[name] for name in part}, dtype)
        index = dict(metadata={}, weight_map={name: file for file, part in parts.items() for name in part})
        (options.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save(options.folder / "model.safetensors", tensors, dtype)
    for key in options.drop:
        del config[key]
    if options.text_config:
        config = dict(model_type=config["model_type"].removesuffix("_text"), text_config=config, vision_config={})
    (options.folder / "config.json").write_text(json.dumps(config, indent=1))


if __name__ == "__main__":
    main()
