"""Reads npy and safetensors files with Python's standard library alone; for tests."""
import ast
import json
import pathlib
import struct


def _floats(dtype, data):
    """The elements of little-endian `data` as Python numbers."""
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    code = {"F16": "e", "F32": "f", "F64": "d", "I32": "i", "I64": "q"}[dtype]
    size = struct.calcsize("<" + code)
    return list(struct.unpack(f"<{len(data) // size}{code}", data))


def read_safetensors(path):
    """{name: (shape, elements)} of one file."""
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    body = content[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["shape"], _floats(entry["dtype"], body[begin:end]))
    return tensors


def read_npy(path):
    """(shape, elements) of a little-endian file in C order."""
    content = pathlib.Path(path).read_bytes()
    assert content[:6] == b"\x93NUMPY", f"{path} is no npy file"
    (length,) = struct.unpack_from("<H" if content[6] == 1 else "<I", content, 8)
    start = 10 if content[6] == 1 else 12
    header = ast.literal_eval(content[start : start + length].decode().strip())
    names = {"<f2": "F16", "<f4": "F32", "<f8": "F64", "<i4": "I32", "<i8": "I64"}
    assert not header["fortran_order"]
    return list(header["shape"]), _floats(names[header["descr"]], content[start + length :])


def read_results(folder):
    """{name: (shape, elements)} of all that `cfc run --output FOLDER` wrote."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.suffix == ".npy":
            tensors[path.stem] = read_npy(path)
        elif path.suffix == ".safetensors":
            tensors.update(read_safetensors(path))
    return tensors


def relative_l2(ours, theirs):
    """|ours - theirs| / |theirs|."""
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    error = sum((a - b) ** 2 for a, b in zip(ours, theirs))
    return (error / sum(b**2 for b in theirs)) ** 0.5
