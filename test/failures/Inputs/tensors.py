"""Writes good and bad tensor files for templates/graphs/linear.mlir into the current folder."""
import json
import pathlib
import struct


def npy(name, descr, shape, data, fortran=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    pathlib.Path(name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def safetensors(name, tensors):
    header, offset = {}, 0
    for key, (dtype, shape, data) in tensors.items():
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())
    pathlib.Path(name).write_bytes(content)
    return content


npy("x.npy", "<f2", "(1, 512)", bytes(1024))
npy("wide.npy", "<f4", "(1, 512)", bytes(2048))
npy("short.npy", "<f2", "(1, 511)", bytes(1022))
npy("fortran.npy", "<f2", "(1, 512)", bytes(1024), fortran=True)
npy("big.npy", ">f2", "(1, 512)", bytes(1024))
npy("scalar.npy", "<f2", "()", bytes(2))
whole = safetensors("w.safetensors", {"w": ("F16", [768, 512], bytes(768 * 512 * 2))})
pathlib.Path("cut.safetensors").write_bytes(whole[:5000])
pathlib.Path("lfs.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
pathlib.Path("page.safetensors").write_text("<!doctype html><title>Not found</title>")
for folder, file in (("shards", "two.safetensors"), ("outside", "../w.safetensors")):
    pathlib.Path(folder).mkdir()
    pathlib.Path(folder, "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": file}}))
