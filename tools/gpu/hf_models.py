"""Models of every family that `cfc import` knows, with random weights, by transformers; and what their layers compute."""
import copy
import inspect
import math
import pathlib
import subprocess

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

TINY = dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=8192)
YARN = dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=4096)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)
LAYERS = ["sliding_attention", "full_attention"]


def sizes(hidden, heads, kv_heads, dim, positions=8192):
    return dict(hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim,
                max_position_embeddings=positions)


# Name: (model type, what makes the family, tiny changes, true sizes).
FAMILIES = {
    "llama2": ("llama", {}, {}, sizes(4096, 32, 32, 128)),
    "llama3": ("llama", dict(rope_theta=5e5, rope_scaling=LLAMA3),
               dict(rope_scaling=LLAMA3 | dict(original_max_position_embeddings=32)), sizes(4096, 32, 8, 128)),
    "mistral": ("mistral", dict(sliding_window=4096), dict(sliding_window=16), sizes(4096, 32, 8, 128)),
    "qwen2": ("qwen2", dict(rope_theta=1e6), {}, sizes(3584, 28, 4, 128)),
    "qwen2_window": ("qwen2", dict(rope_theta=1e6, use_sliding_window=True, sliding_window=4096, max_window_layers=1),
                     dict(sliding_window=16), sizes(3584, 28, 4, 128)),
    "qwen3": ("qwen3", dict(rope_theta=1e6), {}, sizes(4096, 32, 8, 128)),
    "gemma2": ("gemma2", dict(layer_types=LAYERS, query_pre_attn_scalar=256),
               dict(sliding_window=16, query_pre_attn_scalar=24, attn_logit_softcapping=3.0), sizes(3584, 16, 8, 256)),
    "gemma3": ("gemma3_text", dict(layer_types=LAYERS, sliding_window=1024, query_pre_attn_scalar=256,
                                   rope_scaling=dict(rope_type="linear", factor=8.0)),
               dict(sliding_window=16), sizes(2560, 8, 4, 256)),
    "phi2": ("phi", dict(partial_rotary_factor=0.4), dict(num_key_value_heads=4, partial_rotary_factor=0.5),
             sizes(2560, 32, 32, 80)),
    "phi3": ("phi3", dict(sliding_window=2047), dict(sliding_window=16), sizes(3072, 32, 32, 96)),
    "phi4_mini": ("phi3", dict(partial_rotary_factor=0.75), dict(head_dim=16), sizes(3072, 24, 8, 128)),
    "granite": ("granite", dict(attention_multiplier=0.0078125, residual_multiplier=0.22, rope_theta=1e7),
                dict(attention_multiplier=0.11), sizes(4096, 32, 8, 128)),
    "olmo": ("olmo", {}, {}, sizes(4096, 32, 32, 128)),
    "olmo2": ("olmo2", dict(rope_theta=5e5), {}, sizes(4096, 32, 32, 128)),
    "olmo3": ("olmo3", dict(rope_theta=5e5, layer_types=LAYERS, rope_scaling=YARN | dict(factor=8.0, truncate=True)),
              dict(sliding_window=16, rope_scaling=YARN | dict(truncate=True, original_max_position_embeddings=32)),
              sizes(4096, 32, 32, 128)),
    "gpt_oss": ("gpt_oss", dict(layer_types=LAYERS, rope_theta=150000.0, rope_scaling=YARN),
                dict(sliding_window=16, rope_scaling=YARN | dict(original_max_position_embeddings=32)),
                sizes(2880, 64, 8, 64)),
}


class NoMlp(torch.nn.Module):
    """In place of an MLP: adds nothing to the residual."""

    def __init__(self, gives_scores):
        super().__init__()
        self.gives_scores = gives_scores

    def forward(self, x):
        zero = torch.zeros_like(x)
        return (zero, None) if self.gives_scores else zero


def sharpen(attention, config):
    """Larger queries, by a power of two: logits of standard deviation 2, so that a few tokens decide the result and not
    a mean over thousands of them."""
    dim = attention.head_dim
    factor = 2.0 ** round(math.log2(2 / (attention.scaling * dim**0.5)))
    if hasattr(attention, "q_norm"):
        gain = attention.q_norm.weight
        gain.copy_((gain + 1) * factor - 1 if config.model_type.startswith("gemma") else gain * factor)
    elif hasattr(attention, "q_proj"):
        for parameter in attention.q_proj.parameters():
            parameter.mul_(factor)
    else:
        attention.qkv_proj.weight[: config.num_attention_heads * dim].mul_(factor)


def make_model(name, tiny, dtype, seed, device="cpu"):
    """A float32 model of two layers with seeded weights that are exact in `dtype`."""
    kind, family, tiny_changes, true_sizes = FAMILIES[name]
    options = dict(num_hidden_layers=2, intermediate_size=8, vocab_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    if kind == "gpt_oss":
        options |= dict(num_local_experts=2, num_experts_per_tok=1)
    options |= family | (TINY | tiny_changes if tiny else true_sizes)
    config = AutoConfig.for_model(kind, **options)
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.dim() > 1:
                noise *= parameter.shape[-1] ** -0.5
            elif not key.endswith("sinks"):
                noise *= 0.1
            if "norm" in key and key.endswith("weight") and not kind.startswith("gemma"):
                noise += 1
            parameter.copy_(noise.to(dtype).float())
        for layer in model.model.layers:
            sharpen(layer.self_attn, config)
            for parameter in layer.self_attn.parameters():
                parameter.copy_(parameter.to(dtype).float())
    return model


def angles(model, layer, x, positions):
    """cos and sin as the model's own forward gives them to the layer, by keyword."""
    base, attention = model.model, layer.self_attn
    kind = getattr(attention, "layer_type", getattr(attention, "attention_type", None))
    if hasattr(base, "rotary_embs"):
        return {"position_embeddings": base.rotary_embs[kind](x, positions)}
    if hasattr(base, "rotary_emb_local"):
        return {"position_embeddings_global": base.rotary_emb(x, positions),
                "position_embeddings_local": base.rotary_emb_local(x, positions)}
    if "layer_type" in inspect.signature(base.rotary_emb.forward).parameters:
        return {"position_embeddings": base.rotary_emb(x, positions, kind)}
    return {"position_embeddings": base.rotary_emb(x, positions)}


def window_of(model, layer):
    if hasattr(layer.self_attn, "sliding_window"):
        return layer.self_attn.sliding_window
    return model.config.sliding_window if model.config.model_type in ("mistral", "phi3") else None


def layer_result(model, index, x, k_rows, v_rows, length):
    """transformers' answer for one request: the result and the appended rows of K and V."""
    layer, dtype = model.model.layers[index], x.dtype
    cache = DynamicCache()
    if length:
        cache.update(k_rows[None, :, :length].to(dtype), v_rows[None, :, :length].to(dtype), index)
    mask = torch.zeros(1, 1, 1, length + 1, dtype=dtype, device=x.device)
    if window := window_of(model, layer):
        mask[..., : max(length + 1 - window, 0)] = torch.finfo(dtype).min
    positions = torch.tensor([[length]], device=x.device)
    found = layer(x[None, None], attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True,
                  cache_position=positions[0], **angles(model, layer, x[None, None], positions))
    found = found[0] if isinstance(found, tuple) else found
    rows = cache.layers[index]
    assert rows.keys.shape[2] == length + 1, "transformers appended no row"
    return found.reshape(-1), rows.keys[0, :, length], rows.values[0, :, length]


def without_mlps(model):
    for layer in model.model.layers:
        layer.mlp = NoMlp(model.config.model_type == "gpt_oss")
    return model


class Family:
    """A saved model of random weights, and its exact layers."""

    def __init__(self, name, tiny, dtype, options, device):
        self.name, self.options, self.dtype, self.device = name, options, dtype, torch.device(device)
        self.folder = pathlib.Path(options.work) / f"{name}_{'tiny' if tiny else 'true'}_{str(dtype).split('.')[1]}"
        model = make_model(name, tiny, dtype, options.seed, self.device)
        self.config = model.config
        copy.deepcopy(model).to(dtype).save_pretrained(self.folder)
        self.model = without_mlps(model.to(device).double())
        self.checkpoint = {}
        for file in self.folder.glob("*.safetensors"):
            self.checkpoint.update(load_file(file, device=str(device)))

    def graph_text(self, layer, *arguments):
        command = [self.options.cfc, "import", str(self.folder), f"--layer={layer}", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def eager(self):
        """The same model in its own type, as transformers loads it: angles stay in float32."""
        model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=self.dtype, attn_implementation="eager")
        return without_mlps(model.to(self.device).eval())

    @property
    def cache_shape(self):
        """KV heads and head dim."""
        config = self.config
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return config.num_key_value_heads, dim

    def inputs(self, batch, capacity):
        """x, and rows of K and V [batch, heads, capacity, dim]."""
        heads, dim = self.cache_shape
        x = torch.randn(batch, self.config.hidden_size, device=self.device).to(self.dtype)
        return x, [torch.randn(batch, heads, capacity, dim, device=self.device).to(self.dtype) for _ in range(2)]
