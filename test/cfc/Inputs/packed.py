"""Compares two checkpoints tensor by tensor: `packed.py NATIVE OTHER`, each a .safetensors file or a folder of them.

What OTHER says is packed must be so by the definition of docs/design.md, and the rest be the same. Prints both kinds.
"""
import json
import pathlib
import struct
import sys


def read(path):
    """Tensors as (dtype, shape, bytes) by key, and the metadata."""
    path = pathlib.Path(path)
    tensors, metadata = {}, {}
    for file in sorted(path.glob("model*.safetensors")) if path.is_dir() else [path]:
        content = file.read_bytes()
        size = struct.unpack_from("<Q", content)[0]
        assert size % 8 == 0 or path.is_dir(), "the data is not aligned"
        header = json.loads(content[8 : 8 + size])
        metadata.update(header.pop("__metadata__", {}))
        for key, entry in header.items():
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[key] = (entry["dtype"], entry["shape"], content[begin:end])
    return tensors, metadata


def pack(data, rows, columns, group):
    blocks = -(-group // 64)
    per_row = -(-columns // group) * blocks
    result = bytearray(-(-rows // 64) * per_row * 8192)
    for row in range(rows):
        for column in range(columns):
            inside = column % group
            block = row // 64 * per_row + column // group * blocks + inside // 64
            at = 8192 * block + 128 * (row % 64) + 16 * (inside % 64 // 8 ^ row % 8) + 2 * (inside % 8)
            result[at : at + 2] = data[2 * (row * columns + column) :][:2]
    return [-(-rows // 64), per_row, 64, 64], bytes(result)


native, notes = read(sys.argv[1])
other, other_notes = read(sys.argv[2])
layout, packed = other_notes.pop("cfc.layout", "packed"), json.loads(other_notes.pop("cfc.packed", "{}"))
assert layout == "packed" and other_notes == notes, (layout, other_notes, notes)
assert native.keys() == other.keys()
for key, (dtype, shape, data) in sorted(native.items()):
    kind = "same"
    if key in packed:
        assert packed[key]["shape"] == shape, key
        group = packed[key].get("column_group", shape[1])
        shape, data = pack(data, *shape, group)
        kind = f"packed in groups of {group}"
    assert other[key] == (dtype, shape, data), f"{key} differs"
    print(f"{key}: {kind}")
