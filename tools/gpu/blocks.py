"""Attention blocks of real models: their graphs, seeded inputs, and what PyTorch computes for them.

`python3 tools/gpu/blocks.py FOLDER` writes every block's graph, in f16 and bf16, as FOLDER/NAME_DTYPE.mlir.
"""
import dataclasses
import pathlib
import sys

EPS = 1.0e-5
DTYPES = ("f16", "bf16")


@dataclasses.dataclass(frozen=True)
class Block:
    """One new token through input norm, projections, rope, cache, attention, output projection and residual."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    rope_base: float
    residual: bool = True
    dim: int = 128
    bound: int = 16384  # the longest cache and the rows of the rope table

    @property
    def scale(self):
        return self.dim**-0.5

    @property
    def values(self):
        """What a graph with `inside` returns beside the block's result."""
        return {"attention": "%o", "y": "%y"} if self.residual else {"attention": "%o"}


BLOCKS = {
    block.name: block
    for block in (
        Block("llama2_7b", hidden=4096, heads=32, kv_heads=32, rope_base=1.0e4),
        Block("llama3_8b", hidden=4096, heads=32, kv_heads=8, rope_base=5.0e5),
        # One of eight ranks of tensor parallelism: its result is a summand of all ranks' sum, which then gets
        # the residual.
        Block("llama3_70b_rank", hidden=8192, heads=8, kv_heads=1, rope_base=5.0e5, residual=False),
    )
}


def graph_text(block, dtype, inside=False):
    """The block's graph; with `inside` it also returns the attention output and the result without residual."""
    q, kv, hidden = block.heads * block.dim, block.kv_heads * block.dim, block.hidden
    row = f"tensor<1x{hidden}x{dtype}>"
    results, returned = row, "%z" if block.residual else "%y"
    if inside:
        types = {"attention": f"tensor<1x{q}x{dtype}>", "y": row}
        named = [f'{types[name]} {{attn.name = "{name}"}}' for name in block.values]
        results = f"({', '.join([row, *named])})"
        returned = ", ".join([returned, *block.values.values()])
    return f"""\
attn.graph @{block.name}_{dtype}(
    %x: {row}, %gain: tensor<{hidden}x{dtype}>,
    %w_q: tensor<{q}x{hidden}x{dtype}>, %w_k: tensor<{kv}x{hidden}x{dtype}>, %w_v: tensor<{kv}x{hidden}x{dtype}>,
    %w_o: tensor<{hidden}x{q}x{dtype}>,
    %table: tensor<{block.bound}x{block.dim}xf32>,
    %cache: !attn.kv_cache<heads = {block.kv_heads}, dim = {block.dim}, {dtype}>,
    %pos: tensor<1xi32>, %slot: tensor<1xi64>, %len: !attn.lengths<1, capacity = {block.bound}>) -> {results} {{
  %n = attn.rms_norm %x, %gain {{eps = {EPS:.1e}}}
  %q, %k, %v = attn.linear %n, [%w_q, %w_k, %w_v]
  %qr, %kr = attn.rope %q, %k, %table at %pos {{style = half_split}}
  %c = attn.kv_append %cache, %kr, %v at %slot
  %o = attn.attention %qr, %c, %len {{scale = {block.scale!r}}}
  %y = attn.linear %o, [%w_o]
{"  %z = attn.add %x, %y" + chr(10) if block.residual else ""}  attn.return {returned}
}}
"""


def rope_table(block, device):
    """cos | sin by position, rounded once from float64."""
    import torch

    exponents = torch.arange(0, block.dim, 2, dtype=torch.float64, device=device) / block.dim
    positions = torch.arange(block.bound, dtype=torch.float64, device=device)
    angles = positions[:, None] * block.rope_base**-exponents
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()


def make_inputs(block, dtype, device, seed, capacity):
    """Seeded tensors by name. Logits have a standard deviation of about 1, so that a lost tile, head or token shows.
    The caches hold `capacity` random rows; `set_step` says which of them a step may read."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape, deviation=1.0, mean=0.0):
        values = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
        return (mean + deviation * values).to(dtype)

    def weight(rows, columns):
        return normal(rows, columns, deviation=columns**-0.5)

    q, kv = block.heads * block.dim, block.kv_heads * block.dim
    tensors = {"x": normal(1, block.hidden), "gain": normal(block.hidden, deviation=0.1, mean=1.0)}
    tensors.update(w_q=weight(q, block.hidden), w_k=weight(kv, block.hidden), w_v=weight(kv, block.hidden))
    tensors.update(w_o=weight(block.hidden, q), table=rope_table(block, device))
    rows = (block.kv_heads, capacity, block.dim)
    tensors["cache"] = (normal(*rows), normal(*rows))
    tensors["pos"] = torch.zeros(1, dtype=torch.int32, device=device)
    tensors["slot"] = torch.zeros(1, dtype=torch.int64, device=device)
    tensors["len"] = torch.zeros(1, dtype=torch.int32, device=device)
    return tensors


def set_step(tensors, rows, length, position, slot):
    """Sets the run-time values and fills the caches from `rows` (a pair like the caches). Rows from `length` on are
    NaN: nothing may read them."""
    for cache, given in zip(tensors["cache"], rows):
        cache.copy_(given)
        cache[:, length:] = float("nan")
    for name, value in (("pos", position), ("slot", slot), ("len", length)):
        tensors[name].fill_(value)


def reference(block, tensors, rows, length, position):
    """The block in float64. Only the cache's new row is rounded, to the cache's type, before attention reads it."""
    import torch

    dim, group = block.dim, block.heads // block.kv_heads
    x = tensors["x"].double()
    normed = x * torch.rsqrt(x.square().mean() + EPS) * tensors["gain"].double()
    q, k, v = (torch.nn.functional.linear(normed, tensors[name].double()) for name in ("w_q", "w_k", "w_v"))
    cos, sin = tensors["table"][position].double().chunk(2)

    def rotate(value):
        first, second = value.view(-1, dim).chunk(2, dim=1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=1)

    q, k, v = rotate(q), rotate(k), v.view(-1, dim)
    stored = rows[0].dtype
    keys, values = (
        torch.cat([old[:, :length].double(), new[:, None].to(stored).double()], dim=1) for old, new in zip(rows, (k, v))
    )
    scores = q.view(block.kv_heads, group, dim) @ keys.transpose(1, 2) * block.scale
    attention = (scores.softmax(dim=2) @ values).view(block.heads, dim)
    y = torch.nn.functional.linear(attention.view(1, -1), tensors["w_o"].double())
    return {"result": x + y if block.residual else y, "y": y, "attention": attention, "k": k, "v": v}


def torch_block(block, tensors, rows, length, position, fused=False):
    """The block as engines write it in PyTorch: eager attention, or with `fused` scaled_dot_product_attention. Every
    operation rounds to the tensors' type; the norm and the softmax compute in float32."""
    import torch

    functional, dim, group = torch.nn.functional, block.dim, block.heads // block.kv_heads
    x, dtype = tensors["x"], tensors["x"].dtype
    wide = x.float()
    normed = tensors["gain"] * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(dtype)
    q, k, v = (functional.linear(normed, tensors[name]).view(-1, 1, dim) for name in ("w_q", "w_k", "w_v"))
    cos, sin = (part.repeat(2).to(dtype) for part in tensors["table"][position].chunk(2))

    def rotate(value):
        first, second = value.chunk(2, dim=-1)
        return value * cos + torch.cat([-second, first], dim=-1) * sin

    q, k = rotate(q), rotate(k)
    keys, values = (torch.cat([old[:, :length], new], dim=1) for old, new in zip(rows, (k, v)))
    keys, values = (part.repeat_interleave(group, dim=0) for part in (keys, values))
    if fused:
        attention = functional.scaled_dot_product_attention(q[None], keys[None], values[None], scale=block.scale)[0]
    else:
        scores = q @ keys.transpose(1, 2) * block.scale
        attention = scores.softmax(dim=-1, dtype=torch.float32).to(dtype) @ values
    y = functional.linear(attention.reshape(1, -1), tensors["w_o"])
    rows_of = {"attention": attention.view(-1, dim), "k": k.view(-1, dim), "v": v.view(-1, dim)}
    return {"result": x + y if block.residual else y, "y": y, **rows_of}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for block in BLOCKS.values():
        for dtype in DTYPES:
            (folder / f"{block.name}_{dtype}.mlir").write_text(graph_text(block, dtype))


if __name__ == "__main__":
    main()
