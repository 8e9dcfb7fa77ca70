"""Weights and moments in files: safetensors are read as they are, and written as Weir has laid them out."""

import json
import os
import struct

import torch

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
PIECE = 1 << 24


class Files:
    """The tensors of a folder's files, whose headers Weir has checked. Numbers are read when asked for."""

    def __init__(self, folder, names):
        self.at = {}
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                (size,) = struct.unpack("<Q", f.read(8))
                header = json.loads(f.read(size))
            header.pop("__metadata__", None)
            for tensor, entry in header.items():
                begin, end = entry["data_offsets"]
                self.at[tensor] = (path, 8 + size + begin, end - begin, TYPES[entry["dtype"]], entry["shape"])

    def read(self, name):
        """A tensor on the processor, in the type it is stored in."""
        path, begin, size, dtype, shape = self.at[name]
        data = bytearray(size)
        with open(path, "rb", buffering=0) as f:
            f.seek(begin)
            view, at = memoryview(data), 0
            while at < size:
                n = f.readinto(view[at : at + PIECE])
                if not n:
                    raise OSError(f"{path}: cut short within {name}")
                at += n
        if not size:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).view(shape)

    def finite(self, name):
        return bool(torch.isfinite(self.read(name)).all())


def write(folder, files, tensors):
    """Writes files whose headers are given; tensors has the numbers of each on the processor, in order. Returns nothing: the
    sizes follow from the headers."""
    for file, numbers in zip(files, tensors):
        path = os.path.join(folder, file["name"])
        with open(path, "xb", buffering=0) as f:
            put(f, file["head"])
            for t in numbers:
                put(f, raw(t))


def put(f, data):
    view, at = memoryview(data), 0
    while at < len(view):
        at += f.write(view[at : at + PIECE])


def raw(tensor):
    """A tensor's bytes, without a copy where it is whole and on the processor."""
    tensor = tensor.contiguous().reshape(-1)
    if tensor.numel() == 0:
        return b""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    try:
        return memoryview(tensor.numpy()).cast("B")
    except (RuntimeError, ImportError):  # without NumPy
        data = bytearray(tensor.numel() * tensor.element_size())
        torch.frombuffer(data, dtype=tensor.dtype).copy_(tensor)
        return data
