"""Causal attention within the sequences of a packed row, by what this PyTorch and this device offer."""

import inspect
import math

import torch
import torch.nn.functional as F


class Packing:
    """Where the sequences of a packed row of tokens lie. No sequence is empty."""

    def __init__(self, lengths, device):
        self.lengths = lengths
        self.count = len(lengths)
        self.longest = max(lengths)
        self.total = sum(lengths)
        self.positions = torch.cat([torch.arange(n) for n in lengths]).to(device)
        sequence = torch.repeat_interleave(torch.arange(self.count), torch.tensor(lengths)).to(device)
        # The place of each token where every sequence has room for the longest.
        self.slots = sequence * self.longest + self.positions
        self.bounds = torch.tensor([0] + lengths).cumsum(0).to(device=device, dtype=torch.int32)


class Rotary:
    """Cosines and sines of the positions seen so far, of angles that are computed in float64."""

    def __init__(self, speeds, device):
        self.speeds = torch.tensor(speeds, dtype=torch.float64)
        self.device = device
        self.cos = self.sin = torch.empty(0, len(speeds), device=device)

    def at(self, positions, longest):
        if longest > self.cos.shape[0]:
            angles = torch.arange(max(longest, 2 * self.cos.shape[0]), dtype=torch.float64)[:, None] * self.speeds[None]
            self.cos = angles.cos().float().to(self.device)
            self.sin = angles.sin().float().to(self.device)
        return self.cos[positions], self.sin[positions]


def rotate(x, cos, sin):
    """Turns the heads [rows, heads, width] to their rows' positions; pair j is elements j and j + width/2."""
    a, b = x.float().chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def plain(q, k, v, packing):
    """The products written out, over sequences padded to the longest."""
    rows, heads, width = q.shape
    kv = k.shape[1]
    s, t = packing.count, packing.longest

    def pad(x):
        if s * t == rows:
            return x.view(s, t, x.shape[1], width).transpose(1, 2)
        room = x.new_zeros(s * t, x.shape[1], width).index_copy(0, packing.slots, x)
        return room.view(s, t, x.shape[1], width).transpose(1, 2)

    q, k, v = pad(q).reshape(s, kv, heads // kv, t, width), pad(k).unsqueeze(2), pad(v).unsqueeze(2)
    scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(width)
    later = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
    weights = scores.masked_fill(later, float("-inf")).softmax(-1).to(v.dtype)
    out = (weights @ v).reshape(s, heads, t, width).transpose(1, 2).reshape(s * t, heads, width)
    return out if s * t == rows else out[packing.slots]


def repeated(x, heads):
    """Gives each query head its key head."""
    times = heads // x.shape[1]
    return x if times == 1 else x.repeat_interleave(times, 1)


def sdpa(q, k, v, packing):
    """PyTorch's scaled_dot_product_attention, a sequence at a time."""
    k, v = repeated(k, q.shape[1]), repeated(v, q.shape[1])
    out, at = [], 0
    for n in packing.lengths:
        part = [x[at : at + n].transpose(0, 1)[None] for x in (q, k, v)]
        out.append(F.scaled_dot_product_attention(*part, is_causal=True)[0].transpose(0, 1))
        at += n
    return torch.cat(out)


def varlen_of(function):
    """The ways to PyTorch's attention over packed sequences, whose arguments have changed from version to version: with the key heads
    as they are, which newer ones take, and with a key head for each query head."""
    takes = inspect.signature(function).parameters
    if "is_causal" in takes:
        more = {"is_causal": True}
    elif "window_size" in takes:
        more = {"window_size": (-1, 0)}
    else:
        raise RuntimeError("varlen_attn has neither is_causal nor window_size")
    shared = {"enable_gqa": True} if "enable_gqa" in takes else {}

    def grouped(q, k, v, packing):
        return function(q, k, v, packing.bounds, packing.bounds, packing.longest, packing.longest, **more, **shared)

    def each(q, k, v, packing):
        k, v = repeated(k, q.shape[1]), repeated(v, q.shape[1])
        return function(q, k, v, packing.bounds, packing.bounds, packing.longest, packing.longest, **more)

    return [grouped, each]


def candidates(name):
    """The ways to the attention of a name, the cheapest first, or an error that says what is missing."""
    if name == "plain":
        return [plain]
    if name == "sdpa":
        if not hasattr(F, "scaled_dot_product_attention"):
            raise RuntimeError("this PyTorch has no scaled_dot_product_attention")
        return [sdpa]
    from torch.nn.attention.varlen import varlen_attn

    return varlen_of(varlen_attn)


def choose(name, shape, dtype, device):
    """The attention to use: the named one, or, for auto, the first that agrees with the plain products on a small example,
    forward and backward. Returns its name, the function and why others were passed over."""
    if name == "auto":
        names = ["varlen", "sdpa", "plain"] if device.type == "cuda" else ["plain"]
    else:
        names = [name]
    passed = []
    for n in names:
        try:
            ways = candidates(n)
        except Exception as e:  # an import may fail in any way
            passed.append(f"{n}: {e}")
            continue
        for function in ways:
            try:
                if n != "plain":
                    check(function, shape, dtype, device)
                return n, function, passed
            except Exception as e:  # whatever a probe meets, the next way is tried
                passed.append(f"{n}{'' if function is ways[-1] else ' with the key heads as they are'}: {e}")
    raise ValueError(f"torch.attention: {name} cannot be used here: {'; '.join(passed)}")


def check(function, shape, dtype, device):
    """Compares an attention with the plain products."""
    lengths = [5, 17, 1]
    packing = Packing(lengths, device)
    generator = torch.Generator().manual_seed(1)

    def draw(heads):
        x = torch.randn(sum(lengths), heads, shape["head_dim"], generator=generator)
        return x.to(device=device, dtype=dtype).requires_grad_()

    inputs = draw(shape["heads"]), draw(shape["kv_heads"]), draw(shape["kv_heads"])
    results = []
    for f in (function, plain):
        out = f(*inputs, packing)
        results.append([out, *torch.autograd.grad(out.float().square().sum(), inputs)])
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    for a, b in zip(*results):
        off = (a - b).float().abs().max().item() / max(1.0, b.float().abs().max().item())
        if not off <= tolerance:
            raise RuntimeError(f"it is off by {off:.2g} from the plain products")
