"""Packing weights on the device: cfc_pack and cfc_unpack against numpy, and blocks that read packed weights.

  - Weights of many shapes, also padded and in groups of columns, are packed out of place and in place with scratch
    memory of several sizes; the bytes are those of a numpy reference, nothing around them changes, and unpacking
    restores every bit. One weight has more than 4 GB.
  - Blocks compiled with --weights=packed give the bits of those with native weights, whether their weights were
    packed out of place or in place.

CUDA_DISABLE_PTX_JIT=1 takes the driver's compiler away: the runtime then packs through host memory.

    python3 tools/gpu/packing.py --cfc build/bin/cfc --library build/lib/libcfc_runtime.so.1
"""
import ctypes
import json
import struct

import numpy
import torch

import harness
from blocks import graph_text, make_inputs, set_step
from harness import TORCH_DTYPES, same_bits

import cfc_loader

# (rows, columns, columns of a group or 0)
SHAPES = (
    (64, 64, 0), (1, 1, 0), (1, 4096, 0), (65, 63, 0), (63, 65, 0), (7, 131, 0), (4095, 4097, 0), (4096, 4096, 0),
    (4096, 11008, 0), (70, 160, 80), (4096, 2560, 80), (128, 192, 96), (64, 256, 128), (65, 100, 40),
)
LARGE = (65536, 40960, 0)
GUARD, GUARD_VALUE = 4096, 0xA5


class _LoadOptions(cfc_loader._Struct):
    _fields_ = [("size", ctypes.c_uint64), ("memory", ctypes.c_char_p), ("memory_bytes", ctypes.c_uint64),
                ("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


def name_of(shape):
    return "w_" + "_".join(map(str, shape))


def bundle_of(content, shapes, dtype):
    """A bundle's content whose graph reads packed weights of these shapes. Its kernels stay, and are not launched; the
    manifest keeps its size, so that only its own digest is wrong."""
    (count,) = struct.unpack_from("<I", content, 12)
    for entry in range(count):
        name, offset, size, _ = struct.unpack_from("<32sQQQ", content, 16 + 56 * entry)
        if name.rstrip(b"\0") == b"manifest":
            break
    manifest = json.loads(content[offset : offset + size])
    tensors = []
    for rows, columns, group in shapes:
        tensors.append({"name": name_of((rows, columns, group)), "kind": "tensor", "role": "weight", "dtype": dtype,
                        "shape": [rows, columns], "align": 16, "layout": "packed"})
        if group:
            tensors[-1]["column_group"] = group
    manifest["graphs"][0].update(tensors=tensors, table=[], maps=[])
    text = json.dumps(manifest, separators=(",", ":")).encode()
    assert len(text) <= size, f"the manifest has room for {size} bytes, {len(text)} are needed"
    return content[:offset] + text.ljust(size) + content[offset + size :]


class ShapeBundle(cfc_loader.Bundle):
    """A bundle from memory, without its digests."""

    def __init__(self, content, library):
        self._lib, self._handle = cfc_loader._Library(library), ctypes.c_void_p()
        options = _LoadOptions(memory=content, memory_bytes=len(content), flags=1)
        self._lib.load(b"shapes", ctypes.byref(options), ctypes.byref(self._handle))

    def in_place(self, function, name, weight, scratch):
        """Converts with the caller's scratch memory, a tensor of bytes or None."""
        args = cfc_loader._PackArgs()
        if scratch is not None:
            args.scratch, args.scratch_bytes = scratch.data_ptr(), scratch.numel()
        item = cfc_loader._describe(name, weight)
        function(self._handle, None, ctypes.byref(item), ctypes.byref(args), cfc_loader._stream(weight.device))


def reference(weight, group):
    """The packed form of a numpy array of 16-bit words."""
    rows, columns = weight.shape
    group = group or columns
    groups, blocks = -(-columns // group), -(-group // 64)
    padded = numpy.zeros((-(-rows // 64) * 64, groups, blocks * 64), weight.dtype)
    for index in range(groups):
        part = weight[:, index * group : (index + 1) * group]
        padded[:rows, index, : part.shape[1]] = part
    # [row of blocks, block, row, chunk, element]
    chunks = padded.reshape(-1, 64, groups * blocks, 8, 8).transpose(0, 2, 1, 3, 4)
    order = numpy.arange(8)[None, :] ^ (numpy.arange(64)[:, None] % 8)
    return numpy.take_along_axis(chunks, order[None, None, :, :, None], axis=3).reshape(-1)


class Guarded:
    """Device memory of some 16-bit elements between guard zones."""

    def __init__(self, elements, dtype, device):
        self.memory = torch.full((2 * elements + 2 * GUARD,), GUARD_VALUE, dtype=torch.uint8, device=device)
        self.tensor = self.memory[GUARD : GUARD + 2 * elements].view(dtype)

    def intact(self):
        return bool((self.memory[:GUARD] == GUARD_VALUE).all() and (self.memory[-GUARD:] == GUARD_VALUE).all())


class Shape:
    """All ways to pack one weight."""

    def __init__(self, shared, bundle, shape, dtype):
        self.shared, self.bundle, self.failures = shared, bundle, []
        (self.rows, self.columns, self.group), self.dtype, self.key = shape, TORCH_DTYPES[dtype], name_of(shape)
        self.name = f"{self.rows}x{self.columns} in groups of {self.group or self.columns} {dtype}"
        self.elements = self.rows * self.columns
        size, self.scratch = bundle.packed_bytes(self.key)
        self.packed_elements = size // 2
        native = self.new(self.elements)
        # Every bit pattern, NaNs too.
        native.tensor.view(torch.int16).random_(-(2**15), 2**15)
        self.native, self.weight = native, native.tensor.view(self.rows, self.columns)

    def new(self, elements):
        return Guarded(elements, self.dtype, self.shared.device)

    def expect(self, what, condition):
        if not condition:
            self.failures.append(f"{self.name}: {what}")

    def words(self, tensor):
        return tensor.view(torch.int16).cpu().numpy()

    def check_packed(self, what, buffer):
        """Panel by panel, all of them or, of a large weight, the first, the last and some between."""
        panels = -(-self.rows // 64)
        chosen = range(panels) if panels < 1024 else sorted({0, 1, panels // 2, panels - 2, panels - 1})
        size = self.packed_elements // panels
        for panel in chosen:
            expected = reference(self.words(self.weight[64 * panel : 64 * panel + 64]), self.group)
            if not numpy.array_equal(self.words(buffer[size * panel : size * (panel + 1)]), expected):
                self.expect(f"{what}: panel {panel} differs from the reference", False)
                return

    def check_out_of_place(self):
        out, back = self.new(self.packed_elements), self.new(self.elements)
        packed = self.bundle.pack(self.key, self.weight, out.tensor)
        self.check_packed("out of place", out.tensor)
        self.bundle.unpack(self.key, packed, back.tensor)
        self.expect("unpacking out of place gives other bits", same_bits(back.tensor, self.native.tensor))
        self.expect("bytes around a weight changed", out.intact() and back.intact() and self.native.intact())

    def check_odd_address(self):
        """A native weight may begin at any element."""
        shifted, out = self.new(self.elements + 1), self.new(self.packed_elements)
        weight = shifted.tensor[1:].view(self.rows, self.columns)
        weight.copy_(self.weight)
        packed = self.bundle.pack(self.key, weight, out.tensor)
        self.check_packed("from an odd address", out.tensor)
        weight.zero_()
        self.bundle.unpack(self.key, packed, shifted.tensor[1:])
        self.expect("unpacking to an odd address gives other bits", same_bits(weight, self.weight))
        self.expect("bytes around a shifted weight changed", shifted.intact() and out.intact())

    def check_in_place(self):
        if not self.scratch:
            try:
                self.bundle.pack(self.key, self.weight, self.weight)
            except cfc_loader.CfcError as error:
                self.expect(f"in place: exit code {error.exit_code}, not 2", error.exit_code == 2)
            else:
                self.expect("in place: a padded weight was not refused", False)
            return
        buffer = self.new(self.elements)
        weight = buffer.tensor.view(self.rows, self.columns)
        for panels in (None, 1, 3):
            scratch = panels and torch.empty(panels * self.scratch, dtype=torch.uint8, device=self.shared.device)
            weight.copy_(self.weight)
            self.bundle.in_place(self.bundle._lib.pack, self.key, weight, scratch)
            self.check_packed(f"in place, {panels} panels of scratch", buffer.tensor)
            packed = cfc_loader.Packed(buffer.tensor, (self.rows, self.columns))
            self.bundle.in_place(self.bundle._lib.unpack, self.key, packed, scratch)
            self.expect("unpacking in place gives other bits", same_bits(weight, self.weight))
        self.expect("bytes around a weight in place changed", buffer.intact())

    def rate(self):
        """GB a second, read and written, of the second of two packings."""
        out = self.new(self.packed_elements)
        for _ in range(2):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self.bundle.pack(self.key, self.weight, out.tensor)
            end.record()
        torch.cuda.synchronize()
        return 2 * (self.elements + self.packed_elements) / begin.elapsed_time(end) / 1e6

    def check(self, odd_address=True):
        self.check_out_of_place()
        if odd_address:
            self.check_odd_address()
        self.check_in_place()
        verdict = f"{len(self.failures)} FAILED" if self.failures else "as the reference"
        print(f"{self.name}: {verdict}, {self.rate():.0f} GB/s", flush=True)
        return self.failures


class PackedBlock:
    """A block with packed weights beside the same with native ones."""

    def __init__(self, shared, block, dtype, native, packed):
        self.name, self.block, self.shared, self.failures = f"{block.name} {dtype}", block, shared, []
        self.tensors = make_inputs(block, TORCH_DTYPES[dtype], shared.device, shared.options.seed, block.bound + 4)
        self.rows = tuple(cache.clone() for cache in self.tensors["cache"])
        self.native = harness.Program(shared, native, self.tensors)
        self.bundle = shared.load(packed)
        self.names = [spec["name"] for spec in self.bundle.manifest["graphs"][0]["tensors"] if "layout" in spec]
        self.path = packed

    def compare(self, what, program):
        for length in (0, 129, 4096):
            results = []
            for which in (self.native, program):
                set_step(self.tensors, self.rows, length, length, length)
                results.append(which.run()["result0"])
            if not same_bits(*results):
                self.failures.append(f"{self.name}: {what}, length {length}: other bits than with native weights")

    def check(self):
        if not self.names:
            return [f"{self.name}: no weight is packed"]
        packed = {name: self.bundle.pack(name, self.tensors[name]) for name in self.names}
        self.compare("out of place", harness.Program(self.shared, self.path, {**self.tensors, **packed}))
        own = {name: self.tensors[name].clone() for name in self.names}
        moved = {name: self.bundle.pack(name, own[name], own[name]) for name in self.names}
        self.compare("in place", harness.Program(self.shared, self.path, {**self.tensors, **moved}))
        for name in self.names:
            self.bundle.unpack(name, moved[name], moved[name].buffer)
            if not same_bits(own[name], self.tensors[name]):
                self.failures.append(f"{self.name}: unpacking {name} in place gives other bits")
        verdict = f"{len(self.failures)} FAILED" if self.failures else "the same bits"
        print(f"{self.name}: {len(self.names)} packed weights: {verdict}", flush=True)
        return self.failures


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--small", action="store_true", help="leave the weight of more than 4 GB out")
    options = parser.parse_args()
    shared, failures, jobs = harness.Harness(options), [], []
    for block, dtype in shared.cases():
        graph = shared.write(f"{block.name}_{dtype}.mlir", graph_text(block, dtype))
        packed = shared.pool.submit(shared._compile, graph, f"{block.name}_{dtype}_packed.cfk", "--weights=packed")
        jobs.append((block, dtype, shared.compile(block, dtype), packed))
    content = jobs[0][2].result().read_bytes()
    shapes = SHAPES if options.small else (*SHAPES, LARGE)
    for dtype in options.dtypes.split(","):
        bundle = ShapeBundle(bundle_of(content, shapes, dtype), options.library)
        for shape in shapes if dtype == "f16" else SHAPES:
            failures += Shape(shared, bundle, shape, dtype).check(odd_address=shape != LARGE)
    for block, dtype, native, packed in jobs:
        failures += PackedBlock(shared, block, dtype, native.result(), packed.result()).check()
    shared.finish(failures)


if __name__ == "__main__":
    main()
