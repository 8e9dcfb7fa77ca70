"""Weights and moments in files: safetensors are read as they are, and written as Weir has laid them out."""

import json
import os
import struct

import torch

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
PIECE = 1 << 24


def rows_of(count, rank, world):
    """Where a rank's rows begin and end, as fully_shard cuts them."""
    size = -(-count // world)
    return min(rank * size, count), min((rank + 1) * size, count)


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

    def read(self, name, share=(0, 1), shape=None):
        """A tensor on the processor, in the type it is stored in; of a tensor that ranks share, given as rank and number, this rank's rows
        alone are read. shape is the tensor's, where the file may have another of as many numbers."""
        path, begin, size, dtype, stored = self.at[name]
        shape = list(stored if shape is None else shape)
        if share[1] > 1:
            lo, hi = rows_of(shape[0], *share)
            row = size // shape[0] if shape[0] else 0
            begin, size, shape[0] = begin + lo * row, (hi - lo) * row, hi - lo
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


class Ferry:
    """Copies tensors of a device into memory of their own on the processor, by two pieces of memory that the device can reach by itself:
    it fills one while the other is emptied. What carry returns is whole after finish."""

    def __init__(self, device, piece=1 << 26):
        pinned = device.type == "cuda"
        self.rooms = [torch.empty(piece, dtype=torch.uint8, pin_memory=pinned) for _ in range(2)]
        self.filled = [torch.cuda.Event() if pinned else None for _ in range(2)]
        self.waiting = [None, None]  # where each piece's bytes go
        self.turn = 0

    def carry(self, tensor):
        to = torch.empty(tensor.shape, dtype=tensor.dtype)
        if not tensor.numel():
            return to
        here, there = tensor.contiguous().reshape(-1).view(torch.uint8), to.reshape(-1).view(torch.uint8)
        piece = self.rooms[0].numel()
        for lo in range(0, here.numel(), piece):
            k, self.turn = self.turn, 1 - self.turn
            self._empty(k)
            part = here[lo : lo + piece]
            self.rooms[k][: part.numel()].copy_(part, non_blocking=True)
            if self.filled[k] is not None:
                self.filled[k].record()
            self.waiting[k] = there[lo : lo + piece]
        return to

    def _empty(self, k):
        if self.waiting[k] is None:
            return
        if self.filled[k] is not None:
            self.filled[k].synchronize()
        self.waiting[k].copy_(self.rooms[k][: self.waiting[k].numel()])
        self.waiting[k] = None

    def finish(self):
        self._empty(self.turn)
        self._empty(1 - self.turn)


class Copies:
    """The same where the device is the processor: copies, and nothing to wait for."""

    def carry(self, tensor):
        return tensor.clone()

    def finish(self):
        pass


def ferry(device):
    return Ferry(device) if device.type == "cuda" else Copies()


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
