"""What the plugins of vLLM and SGLang share: a version's files in the shared memory of the machine, mapped and checked beside sampling.

These lines stand in each plugin in the place of its import of this module.
"""

import json
import math
import mmap
import os
import struct
import threading

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
MOST_HEADER = 100_000_000
PAGE = 4096


class Refused(Exception):
    """A version that this worker cannot take from shared memory."""


def read_header(read, size, name):
    """The tensors of a safetensors file as (name, type, shape, begin, end), in the file's order. read(begin, end) gives bytes."""
    if size < 8:
        raise Refused(f"{name} has {size} bytes")
    (length,) = struct.unpack("<Q", read(0, 8))
    if length > min(MOST_HEADER, size - 8):
        raise Refused(f"{name} is cut: its header has {length} bytes, the file {size}")
    tensors = []
    for tensor, is_ in json.loads(read(8, 8 + length)).items():
        if tensor == "__metadata__":
            continue
        begin, end = (8 + length + x for x in is_["data_offsets"])
        tensors.append((tensor, is_["dtype"], tuple(is_["shape"]), begin, end))
        if not 0 <= begin <= end <= size:
            raise Refused(f"{name} is cut: {tensor} ends at byte {end}, the file at {size}")
    return sorted(tensors, key=lambda t: t[3])


def read_shapes(folder):
    """The shapes of a model folder's tensors by name."""
    names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors")) if os.path.isdir(folder) else []
    if not names:
        raise Refused(f"the weights of {folder}, which this server loaded last, cannot be read here: it must load a folder of Weir's first")
    shapes = {}
    for name in names:
        with open(os.path.join(folder, name), "rb") as f:
            size = os.fstat(f.fileno()).st_size

            def read(begin, end):
                f.seek(begin)
                return f.read(end - begin)

            shapes.update((tensor, shape) for tensor, _, shape, _, _ in read_header(read, size, name))
    return shapes


def map_file(folder, name, size, inode, modified):
    """A private map of a file, which must be the very file that Weir wrote."""
    with open(os.path.join(folder, name), "rb") as f:
        has = os.fstat(f.fileno())
        if [has.st_size, has.st_ino, has.st_mtime_ns] != [size, inode, modified]:
            raise Refused(f"{name} in {folder} is not the file that Weir wrote: another machine, or it was changed")
        return mmap.mmap(f.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def take_tensors(data, name):
    """The tensors of a mapped file, which share its memory, in the file's order."""
    out = []
    for tensor, dtype, shape, begin, end in read_header(lambda a, b: data[a:b], len(data), name):
        if dtype not in DTYPES:
            raise Refused(f"{tensor} has numbers of type {dtype}")
        count, width = math.prod(shape), DTYPES[dtype].itemsize
        if count * width != end - begin or begin % width:
            raise Refused(f"{tensor} of {name} has {end - begin} bytes at {begin} for shape {list(shape)} of {dtype}")
        flat = torch.frombuffer(data, dtype=DTYPES[dtype], count=count, offset=begin) if count else torch.empty(0, dtype=DTYPES[dtype])
        out.append((tensor, flat.view(shape)))
    return out


def compare_shapes(have, tensors):
    """Refuses tensors that are not those of the model: a load leaves a missing tensor as it was, and a wrong shape ends it half-way."""
    new = {name: tuple(tensor.shape) for name, tensor in tensors}
    for name in sorted(have.keys() ^ new.keys()):
        raise Refused(f"{name} is {'missing' if name in have else 'none of the tensors of the model'}")
    for name, shape in new.items():
        if shape != have[name]:
            raise Refused(f"{name} has shape {list(shape)} where the model's has {list(have[name])}")


class Staged:
    """A version whose files are being mapped, or are."""

    def __init__(self, label, folder, files):
        self.label, self.tensors, self.why = label, [], None
        self.folder, self.files = folder, files
        self.thread = threading.Thread(target=self.run, name="weir-stage", daemon=True)

    def run(self):
        try:
            for name, *is_ in self.files:
                data = map_file(self.folder, name, *is_)
                self.tensors += take_tensors(data, name)
                # Reading a number of each page has the system map it now and not in the pause.
                torch.frombuffer(data, dtype=torch.uint8)[::PAGE].sum()
            compare_shapes(self.shapes, self.tensors)
        except Exception as e:
            self.tensors, self.why = [], f"{type(e).__name__}: {e}"


class Stages:
    """What a worker has staged, and the shapes of the folder that it loaded last."""

    def __init__(self):
        self.staged, self.known = None, (None, None)

    def forget(self):
        self.staged = None

    def stage(self, label, folder, files, at, fault):
        """Begins to stage a version, or says how far it is. files has a list for each: name, bytes, inode, time of change in ns.

        at is the folder that the worker loaded last, fault why the worker takes nothing from shared memory, or None."""
        staged = self.staged
        if staged is None or (staged.label, staged.folder, staged.files) != (label, folder, files):
            staged = self.staged = Staged(label, folder, files)
            try:
                if fault:
                    raise Refused(fault)
                if self.known[0] != at:
                    self.known = (at, read_shapes(at))
                staged.shapes = self.known[1]
                staged.thread.start()
            except Exception as e:
                staged.why = f"{type(e).__name__}: {e}"
        if staged.thread.is_alive():
            return {"state": "staging", "why": None}
        if staged.why:  # told once: the same version may be staged again
            self.staged = None
            return {"state": "failed", "why": staged.why}
        return {"state": "staged", "why": None}

    def take(self, label):
        """The version that is staged under a label, and is staged no more."""
        staged, self.staged = self.staged, None
        if staged is None or staged.label != label:
            raise RuntimeError(f"{label} is not staged here")
        if staged.thread.is_alive():
            staged.thread.join()
        if staged.why:
            raise RuntimeError(f"{label} is not staged here: {staged.why}")
        return staged
