"""What the steps share: verdicts, Weir's worker as modules, models of a shape, and the programs that were carried here."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "deploy" / "bin" / "gpucheck"


class NotRun(Exception):
    """A part is missing here: the step says nothing."""


class Failed(Exception):
    """What was checked does not hold. numbers are what was seen."""

    def __init__(self, why, **numbers):
        super().__init__(why)
        self.numbers = numbers


def need(module):
    try:
        return __import__(module)
    except Exception as e:
        raise NotRun(f"{module} cannot be imported: {type(e).__name__}: {e}") from None


def program(name):
    path = BIN / name
    if not os.access(path, os.X_OK):
        raise NotRun(f"{path.relative_to(ROOT)} is not here: make gpu-check-binaries")
    return str(path)


def weir(*args, stdin=None, cwd=None, env=None):
    """Runs the carried weir and returns what it prints."""
    p = subprocess.run([program("weir"), *args], input=stdin, capture_output=True, cwd=cwd, env=env, encoding="utf-8")
    sys.stderr.write(p.stderr[-20000:])
    if p.returncode:
        raise Failed(f"weir {args[0]} ended with status {p.returncode}: {p.stderr.strip()[-300:]}")
    return p.stdout


def worker():
    """Weir's worker, its files as the modules that they are in a rank."""
    names = ["frames", "attention", "kernels", "head", "weights", "family", "model", "folders", "optimizer", "ranks", "training", "sampler", "family_sampler"]
    for name in names:
        if "weir_" + name not in sys.modules:
            path = ROOT / "gpu" / "torch" / "worker" / (name + ".py")
            spec = importlib.util.spec_from_file_location("weir_" + name, path)
            module = importlib.util.module_from_spec(spec)
            sys.modules["weir_" + name] = module
            spec.loader.exec_module(module)
    return types.SimpleNamespace(**{name: sys.modules["weir_" + name] for name in names})


def shape(vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, tied, bias=False, norm=False, theta=1e6, value=False):
    speeds = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    return {
        "vocab": vocab, "hidden": hidden, "intermediate": intermediate, "layers": layers, "heads": heads, "kv_heads": kv_heads,
        "head_dim": head_dim, "eps": 1e-6, "tied": tied, "value_head": value, "qkv_bias": bias, "qk_norm": norm, "rope_speeds": speeds,
    }  # fmt: skip


def small(norm=True):
    return shape(307, 64, 128, 3, 4, 2, 16, True, bias=not norm, norm=norm)


def untied():
    return shape(307, 64, 128, 3, 4, 2, 16, False, bias=True)


def hello(of, device, rank=0, world=1, **changes):
    options = {
        "device": device, "dtype": "auto", "masters": True, "shard": "none", "attention": "auto", "recompute": False, "compile": "never",
        "deterministic": False, "threads": max(1, min(8, (os.cpu_count() or 2) // 2)),
    }  # fmt: skip
    return {"shape": of, "options": dict(options, **changes), "rank": rank, "local_rank": 0, "world": world}


class Nothing:
    """A channel and a progress for which nobody waits. said holds what was sent."""

    def __init__(self):
        self.said = []

    def send(self, header, buffers=()):
        self.said.append(header)

    def tick(self):
        pass


@torch.no_grad()
def fill(params, seed=1):
    """Draws every tensor of a model, on the device that it is on: scaled normals, and gains about 1, of numbers that bfloat16 has."""
    for i, (name, p) in enumerate(sorted(params.items())):
        generator = torch.Generator(device=p.device).manual_seed(seed * 1000 + i)
        std = 0.02 if p.dim() == 2 and p.shape[1] > 256 else 0.15
        p.normal_(0, std, generator=generator)
        if p.dim() == 1 and "norm" in name:
            p.add_(1)
        p.copy_(p.to(torch.bfloat16))


def trainer(of, device, seed=1, copied=True, **changes):
    """A trainer of its own; without copied its model runs on the weights themselves, as one that is cut does."""
    kind = worker().training.Trainer
    if not copied:
        class kind(kind):
            def _make(self, attention):
                make = super()._make(attention)
                return lambda where, whole: make(where, False)
    t = kind(hello(of, device, **changes), torch.device(device), Nothing(), Nothing())
    fill(t.params, seed)
    t.rewritten()
    return t


def part(of, lengths, seed=1, temperature=1.0):
    """A part of sequences, and gradients for its outputs."""
    g = torch.Generator().manual_seed(seed)
    n = sum(lengths)
    offsets = torch.tensor([0] + list(lengths)).cumsum(0).int()
    bufs = {
        "tokens": torch.randint(0, of["vocab"], (n,), generator=g).int(), "mask": torch.ones(n, dtype=torch.uint8), "offsets": offsets,
        "temperature": torch.full((len(lengths),), temperature),
    }  # fmt: skip
    up = {k: torch.randn(n, generator=g) for k in ("logprobs", "entropies")}
    return bufs, up


FORWARD = {"keep": True, "values_only": False, "groups": 1}
BACKWARD = {"detached": False, "names": ["logprobs", "entropies"]}


def once(t, bufs, up):
    """One forward and backward: outputs, and gradients on the processor."""
    out = dict(t.forward(FORWARD, bufs))
    t.backward(BACKWARD, up)
    return out, {k: g.detach().float().cpu() for k, g in t.gradients().items()}


def off(a, b):
    """The largest difference of tensors, as a share of the largest number of the second."""
    return ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-12)).item()


def compare(what, got, want, tolerance):
    """Holds outputs and gradients to others', and returns how far they are off."""
    far = {"outputs": max(off(got[0][k], want[0][k]) for k in want[0]), "gradients": max(off(got[1][k], want[1][k]) for k in want[1])}
    if not max(far.values()) <= tolerance:
        raise Failed(f"{what} is off by {max(far.values()):.2g}, more than {tolerance:g}", **far)
    return far


def head_of(tensors):
    """The bytes before the numbers of a safetensors file of bfloat16."""
    head, at = {}, 0
    for name, x in tensors.items():
        head[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [at, at + 2 * x.numel()]}
        at += 2 * x.numel()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_safetensors(path, tensors):
    """Writes named tensors as bfloat16."""
    folders = worker().folders
    with open(path, "wb") as f:
        f.write(head_of(tensors))
        for x in tensors.values():
            folders.put(f, folders.raw(x.detach().to(torch.bfloat16).cpu()))
