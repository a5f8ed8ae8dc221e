"""Writes the examples of a dialect's reference page as graphs that cfc-opt reads, and fails for operations without one.

An example that is no graph becomes the body of one, whose arguments are those below that it names.
"""
import pathlib
import re
import sys

ACTIVATION, WEIGHT, VECTOR, SCALE = "tensor<1x256xf16>", "tensor<256x256xf16>", "tensor<256xf16>", "tensor<1xf32>"
ARGUMENTS = {
    **dict.fromkeys(("x", "y", "q", "k", "v"), ACTIVATION),
    **dict.fromkeys(("w_q", "w_k", "w_v", "w_o"), WEIGHT),
    **dict.fromkeys(("gain", "bias", "b_q", "b_k", "b_v"), VECTOR),
    **dict.fromkeys(("k_scale", "v_scale"), SCALE),
    **dict.fromkeys(("cache", "c"), "!attn.kv_cache<heads = 4, dim = 64, f16>"),
    "pool": "!attn.kv_cache<heads = 4, dim = 64, page = 16, f16>",
    "len": "!attn.lengths<1, capacity = 256>",
    "block_table": "tensor<1x17xi32>",
    "table": "tensor<256x64xf32>",
    "pos": "tensor<1xi32>",
    "slot": "tensor<1xi64>",
    "starts": "tensor<2xi32>",
    "bits": "tensor<1xi64>",
    "sinks": "tensor<4xf16>",
    "slopes": "tensor<4xf32>",
}


def graph(example):
    if example.startswith("attn.graph"):
        return example
    made = {name for left in re.findall(r"^ *((?:%\w+, )*%\w+) = ", example, re.M) for name in re.findall(r"%(\w+)", left)}
    made |= {name for names in re.findall(r"bias\((.*?)\)", example) for name in re.findall(r"%(\w+)", names)}
    used = [name for name in dict.fromkeys(re.findall(r"%(\w+)", example)) if name not in made]
    arguments = ", ".join(f"%{name}: {ARGUMENTS[name]}" for name in used)
    return f"attn.graph @example({arguments}) {{\n{example}  attn.return\n}}\n"


page = pathlib.Path(sys.argv[1]).read_text()
examples = []
for section in re.split(r"^### ", page, flags=re.M)[1:]:
    found = re.findall(r"^```mlir\n(.*?)^```$", section, re.M | re.S)
    operation = re.match(r"`(attn\.\w+)`", section)
    if operation and not any(re.search(rf"\b{operation[1]}\b", example) for example in found):
        sys.exit(f"{operation[1]} has no example")
    examples += found
print("// -----\n".join(map(graph, examples)), end="")
