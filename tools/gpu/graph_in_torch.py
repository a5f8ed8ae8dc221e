"""Runs the text of a graph of the attn dialect in float64 with PyTorch, as `cfc import` writes it.

It shows that an imported graph means what the model does before anything is compiled: the operations are written down
here once more, from docs/reference/attn.md. Values between operations are not rounded.
"""
import math
import re

import torch

TORCH_TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i64": torch.int64}


def named_tensor(checkpoint, name):
    """A tensor of `checkpoint` (a mapping), or the part that a name such as KEY[0:64] or KEY[:, 0:64] cuts from it."""
    part = re.fullmatch(r"(.*)\[(:, )?(\d+):(\d+)\]", name)
    if name in checkpoint or not part:
        return checkpoint[name]
    key, columns, first, last = part[1], part[2], int(part[3]), int(part[4])
    return checkpoint[key][:, first:last].contiguous() if columns else checkpoint[key][first:last]


class Argument:
    """`name` is the tensor's; a cache has heads, dim and page (0: contiguous)."""

    def __init__(self, ssa, type_text, attributes):
        self.ssa, self.type = ssa, type_text
        named = re.search(r'attn\.name = "([^"]*)"', attributes or "")
        self.name, self.is_weight = (named[1], True) if named else (ssa, False)
        numbers = {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", type_text)}
        self.heads, self.dim, self.page = (numbers.get(key, 0) for key in ("heads", "dim", "page"))
        self.capacity = numbers.get("capacity")
        shape = re.match(r"tensor<((?:\d+x)+)(\w+)>", type_text)
        self.shape = [int(extent) for extent in shape[1].split("x")[:-1]] if shape else None
        self.dtype = TORCH_TYPES.get(shape[2]) if shape else None


class Graph:
    def __init__(self, text):
        lines = [line.split("//")[0].rstrip() for line in text.splitlines()]
        text = "\n".join(line for line in lines if line)
        self.name = re.search(r"attn\.graph @(\w+)\(", text)[1]
        head, body = text.split(" {\n", 1) if "-> " not in text else re.split(r"\n\s*-> [^\n]* \{\n", text, maxsplit=1)
        found = re.findall(r"%(\w+): (tensor<[^>]*>|!attn\.\w+<[^>]*>)(?: (\{[^}]*\}))?", head)
        self.arguments = {ssa: Argument(ssa, kind, attributes) for ssa, kind, attributes in found}
        self.operations = [line.strip() for line in body.splitlines() if line.strip() not in ("", "}")]

    def run(self, tensors, k_rows, v_rows, lengths):
        """`tensors`: by SSA name, weights included. `k_rows[r]`, `v_rows[r]`: [heads, length, dim] of request r.
        Returns the results and, of each request, the new rows of K and V."""
        values = {ssa: tensor.double() if tensor.is_floating_point() else tensor for ssa, tensor in tensors.items()}
        new_rows = None
        for line in self.operations:
            if line.startswith("attn.return"):
                return [values[name] for name in re.findall(r"%(\w+)", line)], new_rows
            results, name, rest = re.match(r"(.*) = attn\.(\w+) (.*)", line).groups()
            operands, attributes = rest, ""
            if rest.endswith("}"):
                operands, attributes = rest[:-1].rsplit("{", 1)
            options = dict(re.findall(r"(\w+) = ([^,]+)", attributes))
            results = re.findall(r"%(\w+)", results)
            if name == "kv_append":
                cache, k, v = re.findall(r"%(\w+)", operands)[:3]
                heads = self.arguments[cache].heads
                new_rows = [values[part].unflatten(1, (heads, -1)) for part in (k, v)]
                continue
            if name == "attention":
                found = [self.attention(values, operands, options, k_rows, v_rows, new_rows, lengths)]
            else:
                found = getattr(self, name)(values, operands, options)
            values.update(zip(results, found))

    @staticmethod
    def rms_norm(values, operands, options):
        x, gain = (values[name] for name in re.findall(r"%(\w+)", operands))
        groups = x.unflatten(1, (-1, len(gain)))
        scaled = groups * torch.rsqrt(groups.pow(2).mean(-1, keepdim=True) + float(options["eps"]))
        return [(scaled * (float(options.get("offset", 0)) + gain)).flatten(1)]

    @staticmethod
    def layer_norm(values, operands, options):
        x, *rest = (values[name] for name in re.findall(r"%(\w+)", operands))
        return [torch.nn.functional.layer_norm(x, x.shape[-1:], *rest, eps=float(options["eps"]))]

    @staticmethod
    def linear(values, operands, options):
        x, weights, _, biases = re.fullmatch(r"%(\w+), \[([^]]*)\]( bias \[([^]]*)\])?\s*", operands).groups()
        weights, biases = (re.findall(r"%(\w+)", part or "") for part in (weights, biases))
        products = [values[x] @ values[weight].T for weight in weights]
        return [product + values[bias] for product, bias in zip(products, biases)] if biases else products

    @staticmethod
    def add(values, operands, options):
        left, right = (values[name] for name in re.findall(r"%(\w+)", operands))
        return [left + float(options.get("scale", 1)) * right]

    @staticmethod
    def rope_table(values, operands, options):
        number = {key: float(value) for key, value in options.items() if re.fullmatch(r"[\d.e+-]+", value)}
        dim, base = int(number["dim"]), number["base"]
        frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        scaling, factor, magnitude = options.get("scaling"), number.get("factor", 1.0), 1.0
        if scaling == "linear":
            frequencies /= factor
        elif scaling == "llama3":
            turns = number["original_positions"] * frequencies / (2 * math.pi)
            low, high = number["low_freq_factor"], number["high_freq_factor"]
            smooth = ((turns - low) / (high - low)).clamp(0, 1)
            frequencies *= (1 - smooth) / factor + smooth
        elif scaling == "yarn":
            bounds = [dim * math.log(number["original_positions"] / (number[key] * 2 * math.pi)) / (2 * math.log(base))
                      for key in ("beta_fast", "beta_slow")]
            if options.get("truncate") != "false":
                bounds = [math.floor(bounds[0]), math.ceil(bounds[1])]
            low, high = max(bounds[0], 0), min(bounds[1], dim - 1)
            high += 0.001 if low == high else 0
            ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
            frequencies *= ramp / factor + (1 - ramp)
            magnitude = number["attention_factor"]
        angles = torch.arange(int(number["positions"]), dtype=torch.float64)[:, None] * frequencies
        return [torch.cat([angles.cos(), angles.sin()], dim=1) * magnitude]

    @staticmethod
    def rope(values, operands, options):
        assert options["style"] == "half_split"
        *names, table, pos = re.findall(r"%(\w+)", operands)
        width = values[table].shape[1]
        cos, sin = values[table][values[pos].long()][:, None].chunk(2, dim=-1)
        results = []
        for name in names:
            heads = values[name].unflatten(1, (-1, int(options.get("head_dim", width))))
            a, b, rest = heads.split([width // 2, width // 2, heads.shape[-1] - width], dim=-1)
            results.append(torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1).flatten(1))
        return results

    @staticmethod
    def attention(values, operands, options, k_rows, v_rows, new_rows, lengths):
        q = values[re.match(r"%(\w+)", operands)[1]]
        sinks = re.search(r"sinks %(\w+)", operands)
        k_new, v_new = new_rows
        rows = []
        for request, length in enumerate(lengths):
            k, v = (torch.cat([old[request].double()[:, :length], new[request][:, None]], dim=1)
                    for old, new in ((k_rows, k_new), (v_rows, v_new)))
            heads = q[request].unflatten(0, (k.shape[0], -1, k.shape[2]))
            scores = torch.einsum("hgd,htd->hgt", heads, k) * float(options["scale"])
            if "softcap" in options:
                scores = float(options["softcap"]) * torch.tanh(scores / float(options["softcap"]))
            if "window" in options:
                scores[..., : max(length + 1 - int(options["window"]), 0)] = -math.inf
            if sinks:
                scores = torch.cat([scores, values[sinks[1]].reshape(scores.shape[0], -1, 1)], dim=-1)
            weights = scores.softmax(-1)[..., : k.shape[1]]
            rows.append(torch.einsum("hgt,htd->hgd", weights, v).flatten())
        return torch.stack(rows)
