"""Weights of a policy version for a worker of vLLM, from files in the shared memory of the machine.

    PYTHONPATH=FOLDER vllm serve MODEL --worker-extension-cls weir_vllm.Transfer

vLLM adds the methods of Transfer to each of its workers (0.32.0, v1/worker/worker_base.py:285), and Weir calls them through POST
/collective_rpc. A version is staged while the workers sample: a thread maps its files and holds every tensor's name and shape against the
folder that the worker loaded last. Then, in a pause, it is loaded by vLLM's own reload from an iterator, as a folder is
(model_executor/model_loader/reload/inplace.py:36). Whatever cannot be taken is refused with the reason before a parameter is touched, and
Weir loads the folder instead. A load that fails raises: with data parallelism a caller sees the answers of the first engine alone, and the
errors of all (v1/engine/core_client.py:1699).
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


def restore_layers(model):
    """Gives the layers that a failed load has not reached their parameters back: else the next load takes what the failed load left."""
    from vllm.model_executor.model_loader.reload import layerwise

    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if info.can_load() and info.kernel_tensors is not None:
            layerwise._place_kernel_tensors(layer, info)
            info.reset()
    if hasattr(model, "_original_do_torchao_reload"):
        model._do_torchao_reload = model._original_do_torchao_reload


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


class Transfer:
    """What `vllm serve --worker-extension-cls weir_vllm.Transfer` adds to a worker."""

    def weir_begin(self):
        """Forgets what is staged and what a failed load left, and says why this worker takes nothing from shared memory: null if it does."""
        self._weir_staged = None
        restore_layers(self.model_runner.get_model())
        return {"state": "ready", "why": self.weir_fault()}

    def weir_fault(self):
        """Why this worker takes nothing from shared memory, or None."""
        quantization = self.model_config.quantization
        return f"its model is quantized ({quantization}): the loader of folders alone lays such weights out" if quantization else None

    def weir_stage(self, label, folder, files):
        """Begins to stage a version, or says how far it is. files has a list for each: name, bytes, inode, time of change in ns."""
        staged = self.__dict__.get("_weir_staged")
        if staged is None or staged.label != label:
            staged = self._weir_staged = Staged(label, folder, files)
            try:
                if self.weir_fault():
                    raise Refused(self.weir_fault())
                at, known = self.model_config.model, self.__dict__.get("_weir_shapes")
                if known is None or known[0] != at:
                    known = self._weir_shapes = (at, read_shapes(at))
                staged.shapes = known[1]
                staged.thread.start()
            except Exception as e:
                staged.why = f"{type(e).__name__}: {e}"
        if staged.thread.is_alive():
            return {"state": "staging", "why": None}
        if staged.why:  # told once: the same version may be staged again
            self._weir_staged = None
            return {"state": "failed", "why": staged.why}
        return {"state": "staged", "why": None}

    def weir_load(self, label):
        """Replaces the weights by the staged version's. Where it raises after it began, another load alone makes the weights whole."""
        staged, self._weir_staged = self.__dict__.get("_weir_staged"), None
        if staged is None or staged.label != label:
            raise RuntimeError(f"{label} is not staged here")
        if staged.thread.is_alive():
            staged.thread.join()
        if staged.why:
            raise RuntimeError(f"{label} is not staged here: {staged.why}")
        try:
            self.reload_weights(weights_iterator=iter(staged.tensors))
        except Exception:
            restore_layers(self.model_runner.get_model())
            raise
        return {"state": "loaded", "why": None}
