"""Runs a bundle of `cfc compile` on torch tensors, through libcfc_runtime.

    bundle = Bundle("llama2_7b_attention.cfk")
    binding = bundle.bind({"x": x, "w_q": w_q, ..., "cache": (k, v), "result0": out})
    workspace = bundle.workspace(device)          # one a stream
    binding.launch(workspace)                     # on torch's current stream; may be captured in a CUDA graph

A KV cache is a pair of tensors [heads, capacity, dim] whose last dimension is contiguous; use .transpose() for
caches that keep tokens outermost. One of several requests is [requests, heads, capacity, dim], one with pages
[pages, heads, tokens of a page, dim]. A weight that `cfc pack` has packed is Packed(buffer, shape). Errors of the runtime are raised as CfcError with its message.
"""
import ctypes
import dataclasses
import json
import os

import torch

_DTYPES = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.int32: 4, torch.int64: 5,
           torch.float8_e4m3fn: 6}
_TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
UNSUPPORTED_SIZE = 0x33  # a status: more requests or tokens than the bundle serves
_P, _U32, _U64, _I64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64


class CfcError(RuntimeError):
    """A failed call. `status` may be UNSUPPORTED_SIZE. `exit_code` is 2 for bad input, 3 for what this machine cannot run, 4 for other failures."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.exit_code = status, status >> 4


@dataclasses.dataclass(frozen=True)
class Packed:
    """A weight in the layout of `cfc pack`: its bytes, padding included, and the weight's own shape."""

    buffer: torch.Tensor
    shape: tuple

    dtype, device = property(lambda self: self.buffer.dtype), property(lambda self: self.buffer.device)


class _Struct(ctypes.Structure):
    """Fills in `size`, the first field of every struct of the runtime."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


class _Tensor(_Struct):
    _fields_ = [("size", _U64), ("name", ctypes.c_char_p), ("dtype", _U32), ("rank", _U32), ("shape", ctypes.POINTER(_I64)),
                ("data", _P), ("bytes", _U64), ("k", _P), ("v", _P), ("stride_head", _I64), ("stride_token", _I64),
                ("capacity", _I64), ("layout", _U32), ("reserved", _U32), ("stride_block", _I64), ("blocks", _I64),
                ("v_stride_head", _I64), ("v_stride_token", _I64), ("v_stride_block", _I64), ("v_bytes", _U64)]


class _Limits(_Struct):
    _fields_ = [("size", _U64), ("max_length", _U64), ("max_batch", _U32), ("reserved", _U32)]


class _BindOptions(_Struct):
    _fields_ = [("size", _U64), ("plan_hash", ctypes.c_char_p), ("max_sms", _U32), ("flags", _U32),
                ("device", ctypes.c_int32), ("reserved", _U32)]


class _LaunchArgs(_Struct):
    _fields_ = [("size", _U64), ("workspace", _P), ("workspace_bytes", _U64), ("length_hint", _I64), ("batch_hint", _U32),
                ("max_sms", _U32)]


class _PackArgs(_Struct):
    _fields_ = [("size", _U64), ("destination", _P), ("destination_bytes", _U64), ("scratch", _P), ("scratch_bytes", _U64)]


class _DeviceStatus(_Struct):
    _fields_ = [("size", _U64), ("flags", _U32), ("bits", _U32)]


class _Library:
    """The functions of libcfc_runtime; a failed one raises CfcError."""

    def __init__(self, path):
        self._lib = ctypes.CDLL(path)
        self._lib.cfc_last_error.restype = ctypes.c_char_p
        for name in ("cfc_unload", "cfc_unbind"):
            getattr(self._lib, name).argtypes, getattr(self._lib, name).restype = [_P], None

    def __getattr__(self, name):
        function = getattr(self._lib, "cfc_" + name)

        def call(*arguments):
            status = function(*arguments)
            if status:
                raise CfcError(status, self._lib.cfc_last_error().decode())

        return call if function.restype is ctypes.c_int else function


def _stream(device):
    return _P(torch.cuda.current_stream(device).cuda_stream)


def _describe_cache(name, item, k, v, paged):
    """Fills in a cache's pointers and strides."""
    fits = k.dim() in (3, 4) and k.shape[:-1] == v.shape[:-1] and k.dtype == v.dtype and k.stride(-1) == v.stride(-1) == 1
    if not fits or (k.shape == v.shape and k.stride() != v.stride()):
        raise ValueError(f"cache '{name}': k and v must be alike, [heads, capacity, dim] or [requests or pages, heads, tokens, "
                         "dim], dim contiguous")
    size = k.element_size()
    item.k, item.v, item.capacity = k.data_ptr(), v.data_ptr(), 0 if paged else k.shape[-2]
    item.stride_head, item.stride_token = k.stride(-3) * size, k.stride(-2) * size
    if k.shape != v.shape:
        item.v_stride_head, item.v_stride_token = v.stride(-3) * size, v.stride(-2) * size
    if k.dim() == 4:
        item.blocks, item.stride_block = k.shape[0], k.stride(0) * size
        item.v_stride_block = v.stride(0) * size if k.shape != v.shape else 0
    return item


def _describe(name, value, paged=()):
    """The runtime's view of a tensor or of a cache's (k, v), and the strides and pointers in it."""
    first = value[0] if isinstance(value, tuple) else value
    if first.dtype not in _DTYPES:
        raise TypeError(f"tensor '{name}': cfc has no type for {first.dtype}")
    item = _Tensor(name=name.encode(), dtype=_DTYPES[first.dtype])
    if isinstance(value, tuple):
        return _describe_cache(name, item, *value, name in paged)
    buffer = value.buffer if isinstance(value, Packed) else value
    if not buffer.is_contiguous():
        raise ValueError(f"tensor '{name}' is not contiguous")
    item.layout, item.rank = isinstance(value, Packed), len(value.shape)
    item.shape = (_I64 * max(item.rank, 1))(*value.shape)
    item.data, item.bytes = buffer.data_ptr(), buffer.numel() * buffer.element_size()
    return item


def _device_of(tensors):
    devices = [(t[0] if isinstance(t, tuple) else t).device for t in tensors.values()]
    device = next((device for device in devices if device.type == "cuda"), None)
    if device is None:
        raise ValueError("no tensor is on a CUDA device")
    return device


def _array(tensors, paged):
    return (_Tensor * len(tensors))(*(_describe(name, value, paged) for name, value in tensors.items()))


class Bundle:
    """A loaded bundle. `manifest` is its manifest as a dict."""

    def __init__(self, path, library=os.environ.get("CFC_RUNTIME", "libcfc_runtime.so.1")):
        self._lib, self._handle = _Library(library), _P()
        self._lib.load(os.fsencode(path), None, ctypes.byref(self._handle))
        text = ctypes.c_char_p()
        self._lib.bundle_manifest(self._handle, ctypes.byref(text))
        self.manifest = json.loads(text.value)
        self._paged = {t["name"] for graph in self.manifest["graphs"] for t in graph["tensors"] if "page" in t}
        self._tables = {}

    def graph_for(self, batch, length=0):
        """Name of the graph for so many requests of so many cached tokens (0: any), of a bundle of several batches. A
        CfcError of status UNSUPPORTED_SIZE says that the bundle serves fewer."""
        limits, name = _Limits(max_batch=batch, max_length=length), ctypes.c_char_p()
        self._lib.graph_for(self._handle, ctypes.byref(limits), ctypes.byref(name))
        return name.value.decode()

    def bind(self, tensors, graph=None, max_sms=0, plan_hash=None):
        """Binds every operand and result of `graph` (None: the only one), all on one device, by name. `plan_hash`:
        launches take that variant alone. Tables of rotations that the graph generates may be left out: all bindings
        of this Bundle on a device share one copy."""
        device = _device_of(tensors)
        missing = {name: self._table(spec, device, graph) for name, spec in self._generated(graph) if name not in tensors}
        return Binding(self, {**tensors, **missing}, graph, max_sms, plan_hash)

    def _generated(self, graph):
        """(name, tensor of the manifest) of what follows from the graph alone."""
        graphs = [spec for spec in self.manifest["graphs"] if graph in (None, spec["name"])]
        return [(t["name"], t) for spec in graphs[:1] for t in spec["tensors"] if "rope" in t]

    def _table(self, spec, device, graph):
        key = json.dumps(spec["rope"], sort_keys=True), spec["dtype"], tuple(spec["shape"]), device
        if key not in self._tables:
            table = torch.empty(spec["shape"], dtype=_TYPES[spec["dtype"]], device="cpu")
            self._lib.generate(self._handle, graph.encode() if graph else None, spec["name"].encode(),
                               _P(table.data_ptr()), _U64(table.numel() * table.element_size()))
            self._tables[key] = table.to(device)
        return self._tables[key]

    def workspace(self, device, graph=None):
        """A workspace, ready for launches of `graph` (None: of any) on the current stream of `device`."""
        size, align = ctypes.c_size_t(), ctypes.c_size_t()
        name = graph.encode() if graph else None
        self._lib.workspace_size(self._handle, name, None, ctypes.byref(size), ctypes.byref(align))
        memory = torch.empty(size.value + align.value, dtype=torch.uint8, device=device)
        start = -memory.data_ptr() % align.value
        memory = memory[start:start + size.value]
        self._lib.workspace_init(_P(memory.data_ptr()), ctypes.c_size_t(size.value), _stream(device))
        return memory

    def packed_bytes(self, name, graph=None):
        """Bytes of a weight when it is packed, 0 if the graph reads it as it is; and the bytes of scratch memory that
        packing it in place takes, 0 if that is not possible."""
        size, scratch = _U64(), _U64()
        self._lib.packed_bytes(self._handle, graph.encode() if graph else None, name.encode(), ctypes.byref(size),
                               ctypes.byref(scratch))
        return size.value, scratch.value

    def pack(self, name, weight, out=None, graph=None):
        """Packs a weight on torch's current stream into the tensor `out`: None makes one, the weight itself packs it
        where it lies. Returns the Packed that bind takes."""
        if out is None:
            out = torch.empty(self.packed_bytes(name, graph)[0] // weight.element_size(), dtype=weight.dtype,
                              device=weight.device)
        self._convert(self._lib.pack, name, weight, out, graph)
        return Packed(out, tuple(weight.shape))

    def unpack(self, name, packed, out=None, graph=None):
        """The way back. Returns the native weight; with the packed weight's buffer as `out` it stays where it lies."""
        if out is None:
            out = torch.empty(packed.shape, dtype=packed.dtype, device=packed.device)
        self._convert(self._lib.unpack, name, packed, out, graph)
        return out.view(packed.shape)

    def _convert(self, function, name, value, out, graph):
        args = _PackArgs(destination=out.data_ptr(), destination_bytes=out.numel() * out.element_size())
        function(self._handle, graph.encode() if graph else None, ctypes.byref(_describe(name, value)), ctypes.byref(args),
                 _stream(out.device))

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.unload(self._handle)


class Binding:
    """The buffers of one graph on one device. Keeps its tensors alive."""

    def __init__(self, bundle, tensors, graph, max_sms, plan_hash):
        self._lib, self._handle, self._tensors, self._paged = bundle._lib, _P(), dict(tensors), bundle._paged
        self.device = _device_of(tensors)
        plan = plan_hash.encode() if plan_hash else None
        options = _BindOptions(plan_hash=plan, max_sms=max_sms, flags=1, device=self.device.index)
        torch.cuda.current_stream(self.device)  # makes sure that torch has opened the device
        self._lib.bind(bundle._handle, graph.encode() if graph else None, _array(tensors, bundle._paged),
                       ctypes.c_size_t(len(tensors)), ctypes.byref(options), ctypes.byref(self._handle))

    def launch(self, workspace, **hints):
        """Starts the kernels on torch's current stream of the binding's device. Hints: length_hint (tokens, the
        longest) and batch_hint (requests that are not idle) pick the bundle's best variant, max_sms is a limit;
        results do not depend on them."""
        args = _LaunchArgs(workspace=workspace.data_ptr(), workspace_bytes=workspace.numel(), **hints)
        self._lib.launch(self._handle, ctypes.byref(args), _stream(self.device))

    def variant_for(self, **hints):
        """Plan hash of the variant that a launch with these hints takes."""
        args, text = _LaunchArgs(**hints), ctypes.c_char_p()
        self._lib.variant_for(self._handle, ctypes.byref(args), ctypes.byref(text))
        return text.value.decode()

    def rebind(self, tensors):
        """Replaces the named tensors in stream order; captured graphs see it. The old ones may still be in use by
        work that was launched before: keep them until it is done."""
        self._lib.rebind(self._handle, _array(tensors, self._paged), ctypes.c_size_t(len(tensors)), _stream(self.device))
        self._tensors.update(tensors)

    def status(self, clear=False):
        """Waits, then gives the sticky bits: 1 a length, 2 a slot, 4 a position, 8 a page was out of its bound."""
        status = _DeviceStatus(flags=1 if clear else 0)
        self._lib.device_status_get(self._handle, _stream(self.device), ctypes.byref(status))
        return status.bits

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.unbind(self._handle)
