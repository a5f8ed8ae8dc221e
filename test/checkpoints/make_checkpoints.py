#!/usr/bin/env python3
"""Makes the checkpoints in this folder and the answers that transformers gives on them.

Each is a Llama of one layer, saved by transformers as it saves any model, with `cases.safetensors`: inputs of the
layer's input norm, attention and residual, and their outputs for several lengths of the cache, computed by
transformers' own modules in float32 on the stored weights. cfc has no part in it.

    python -m venv venv && venv/bin/pip install torch==2.15.0 transformers==4.57.*
    venv/bin/python test/checkpoints/make_checkpoints.py

(transformers 5 refuses a hidden size that is no multiple of the heads; 4.57 takes it, as the model code does.)
Only the attention's tensors matter: vocabulary and MLP are as small as they can be, to keep the files small.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

LENGTHS = (0, 1, 17, 64, 130)
CAPACITY = 136  # rows of the caches; those from the length on hold values that must not be read
TABLE_ROWS = 160

CHECKPOINTS = {
    # As many KV heads as heads; bf16 in several files by an index.
    "llama_256_bf16": dict(
        hidden=256, heads=4, kv_heads=4, dtype=torch.bfloat16, shard="200KB", theta=10000.0, shift=0, seed=1
    ),
    # GQA at 3 to 1, and a hidden size that is not heads x dim; f16 in one file.
    "llama_320_f16": dict(
        hidden=320, heads=6, kv_heads=2, dtype=torch.float16, shard="5GB", theta=500000.0, shift=7, seed=2
    ),
}


def make_model(spec):
    """A model with seeded weights that give logits with a standard deviation of about 1."""
    config = LlamaConfig(
        hidden_size=spec["hidden"],
        num_attention_heads=spec["heads"],
        num_key_value_heads=spec["kv_heads"],
        head_dim=64,
        num_hidden_layers=1,
        intermediate_size=8,
        vocab_size=8,
        max_position_embeddings=TABLE_ROWS,
        rms_norm_eps=1e-5,
        rope_theta=spec["theta"],
        attn_implementation="eager",
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(spec["seed"])
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("layernorm.weight") or name.endswith("norm.weight"):
                parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)
    return model.to(spec["dtype"])


def answer(model, x, k_rows, v_rows, length, position):
    """The block's result and the appended rows for the first `length` rows of the cache."""
    layer = model.model.layers[0]
    cache = DynamicCache(config=model.config)
    if length:
        cache.update(k_rows[None, :, :length], v_rows[None, :, :length], 0)
    positions = torch.tensor([[position]])
    angles = model.model.rotary_emb(x[None], positions)
    attended, _ = layer.self_attn(
        layer.input_layernorm(x[None]), position_embeddings=angles, attention_mask=None, past_key_values=cache
    )
    keys, values = cache.layers[0].keys, cache.layers[0].values
    assert keys.shape[2] == length + 1
    return (x[None] + attended)[0], keys[0, :, length], values[0, :, length]


def make_cases(folder, spec):
    """Inputs in the checkpoint's type and float32 answers, by name."""
    dtype = spec["dtype"]
    # Loaded anew: a model that was converted has rounded its rope frequencies too.
    exact = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    torch.manual_seed(spec["seed"] + 100)
    rows = (spec["kv_heads"], CAPACITY, 64)
    k_rows, v_rows = torch.randn(rows).to(dtype), torch.randn(rows).to(dtype)
    angles = exact.model.rotary_emb(torch.zeros(1, 1, 1), torch.arange(TABLE_ROWS)[None])
    tensors = {"cache.k": k_rows, "cache.v": v_rows}
    tensors["table"] = torch.cat([part[0, :, :32] for part in angles], dim=1)
    for length in LENGTHS:
        position = length + spec["shift"]
        x = torch.randn(1, spec["hidden"]).to(dtype)
        with torch.no_grad():
            y, k, v = answer(exact, x.float(), k_rows.float(), v_rows.float(), length, position)
        case = f"len{length}."
        tensors[case + "x"] = x
        tensors[case + "pos"] = torch.tensor([position], dtype=torch.int32)
        tensors[case + "slot"] = torch.tensor([length], dtype=torch.int64)
        tensors[case + "len"] = torch.tensor([length], dtype=torch.int32)
        tensors[case + "y"] = y
        tensors[case + "k"] = k
        tensors[case + "v"] = v
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def main():
    here = pathlib.Path(__file__).parent
    for name, spec in CHECKPOINTS.items():
        folder = here / name
        model = make_model(spec)
        model.save_pretrained(folder, max_shard_size=spec["shard"], safe_serialization=True)
        save_file(make_cases(folder, spec), folder / "cases.safetensors")
        (folder / "generation_config.json").unlink(missing_ok=True)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{name}: {size / 1000:.0f} kB in {len(list(folder.iterdir()))} files")
        index = folder / "model.safetensors.index.json"
        if index.exists():
            print("  sharded:", sorted(set(json.loads(index.read_text())["weight_map"].values())))


if __name__ == "__main__":
    main()
