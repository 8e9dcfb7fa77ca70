"""A worker's loop: it meets the other ranks, then does one operation after another, in order."""

import os
import queue
import sys
import threading
import traceback

import torch
import weir_ranks
from weir_frames import Channel, Progress


def report(e, op):
    """An error in the words of a frame. Kind io and shape leave the group as it was; any other ends it."""
    text = str(e)
    low = text.lower()
    if isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or "out of memory" in low or "allocate memory" in low:
        kind = "oom"
    elif isinstance(e, OSError) and not isinstance(e, ConnectionError):
        kind = "io"
    elif isinstance(e, ValueError):
        kind = "shape"
    elif any(x in low for x in ("gloo", "nccl", "connection closed by peer", "connection reset", "timed out waiting", "socket")):
        kind = "peer"
    else:
        kind = "internal"
    return {"kind": kind, "message": f"{type(e).__name__}: {text}", "trace": "".join(traceback.format_exception(e))[-8000:]}


def pick_device(hello):
    name = hello["options"]["device"]
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if hello["local_rank"] >= found:
            raise ValueError(f"torch.ranks: local rank {hello['local_rank']} has no GPU: PyTorch sees {found} here")
        name = f"cuda:{hello['local_rank']}"
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


class Worker:
    def __init__(self, channel):
        self.channel = channel
        self.progress = Progress(channel)
        self.part = None
        self.hello = None

    def greet(self, header, bufs):
        """Says what there is here."""
        cuda = torch.cuda.is_available()
        return {
            "pid": os.getpid(), "python": sys.version.split()[0], "executable": sys.executable, "torch": torch.__version__,
            "cuda": torch.version.cuda if cuda else None, "devices": torch.cuda.device_count() if cuda else 0,
            "nccl": bool(getattr(torch.distributed, "is_nccl_available", bool)()),
            "gloo": bool(getattr(torch.distributed, "is_gloo_available", lambda: torch.distributed.is_available())()),
        }  # fmt: skip

    def meet(self, header, bufs):
        """First of the two steps in which ranks meet: rank 0 opens the store and says its port."""
        self.hello = header
        self.progress.start(header["beat"])
        options = header["options"]
        torch.set_num_threads(max(1, options["threads"]))
        if options["deterministic"]:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        if header["rank"] == 0 and header["world"] > 1:
            return {"port": weir_ranks.open_store(header)}
        return {"port": 0}

    def open(self, header, bufs):
        """Second of the two: the ranks join, and the model is made."""
        self.hello["port"] = header["port"]
        weir_ranks.settle_memory()
        device = pick_device(self.hello)
        weir_ranks.meet(self.hello, device)
        if self.hello["role"] == "sampler":
            if self.hello["shape"].get("transformers"):
                from weir_family_sampler import FamilySampler as Part
            else:
                from weir_sampler import Sampler as Part
        else:
            from weir_training import Trainer as Part
        self.part = Part(self.hello, device, self.channel, self.progress)
        return dict(self.part.describe(), device=str(device))

    def run(self):
        frames = queue.SimpleQueue()

        def read():
            try:
                while True:
                    frames.put(self.channel.receive())
            except BaseException:  # Weir is gone, or speaks otherwise: nothing is left to do for anybody
                os._exit(3)

        threading.Thread(target=read, daemon=True).start()
        own = {"greet": self.greet, "meet": self.meet, "open": self.open}
        while True:
            header, bufs = frames.get()
            op = header["op"]
            self.progress.op = op
            try:
                do = own.get(op) or getattr(self.part, op)
                out = do(header, bufs)
                answer, buffers = (out, ()) if isinstance(out, dict) else ({}, out)
            except Exception as e:  # every error is told, and Weir decides
                answer, buffers = {"error": report(e, op)}, ()
            self.progress.op = ""
            after = answer.pop("after", None)
            self.channel.send(dict(answer, id=header["id"]), buffers)
            if after is not None:
                after()


def start(sock):
    Worker(Channel(sock)).run()
