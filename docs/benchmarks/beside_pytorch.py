"""A training step and sampling by PyTorch 2's own kernels (scaled_dot_product_attention, linear, cross_entropy, fused AdamW) and by gpu/native, in turn,
on one thread each, in tokens for a second of processor time.

    make python-torch
    $WEIR_PYTHON docs/benchmarks/beside_pytorch.py               # --rounds 3 --seconds 4 --widths d128,d256,d896

bfloat16 is autocast over float32 weights in training, and weights of bfloat16 in sampling, by both.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
# As gpu/native/besidepytorch_test.go has them.
SHAPES = {
    "d128": dict(vocab=512, d=128, layers=4, heads=4, kv=2, ff=384, batch=16, length=128),
    "d256": dict(vocab=512, d=256, layers=6, heads=8, kv=4, ff=768, batch=16, length=128),
    "d896": dict(vocab=512, d=896, layers=2, heads=14, kv=2, ff=4864, batch=4, length=128),
}
SLOTS, PROMPT, STEPS = 16, 16, 48


class Block(torch.nn.Module):
    def __init__(self, d, heads, kv, ff):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, d // heads
        self.first, self.second = torch.nn.RMSNorm(d, 1e-5), torch.nn.RMSNorm(d, 1e-5)
        self.qkv = torch.nn.Linear(d, (heads + 2 * kv) * self.size, bias=False)
        self.out = torch.nn.Linear(d, d, bias=False)
        self.up, self.down = torch.nn.Linear(d, 2 * ff, bias=False), torch.nn.Linear(ff, d, bias=False)

    def forward(self, x, cos, sin, cache, start):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, n, -1, self.size).transpose(1, 2).split([self.heads, self.kv, self.kv], 1)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        if cache is not None:
            cache[0][:, :, start : start + n], cache[1][:, :, start : start + n] = k, v
            k, v = cache[0][:, :, : start + n], cache[1][:, :, : start + n]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=n > 1, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, -1))
        gate, up = self.up(self.second(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Model(torch.nn.Module):
    def __init__(self, vocab, d, layers, heads, kv, ff, **_):
        super().__init__()
        self.table = torch.nn.Embedding(vocab, d)
        self.blocks = torch.nn.ModuleList(Block(d, heads, kv, ff) for _ in range(layers))
        self.norm = torch.nn.RMSNorm(d, 1e-5)
        half = d // heads // 2
        angles = torch.arange(256)[:, None] * 10000 ** (-torch.arange(half) / half)
        self.angles = angles.cos(), angles.sin()

    def forward(self, ids, cache=None, start=0):
        x = self.table(ids)
        cos, sin = (a[start : start + ids.shape[1]].to(x.dtype) for a in self.angles)
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin, None if cache is None else cache[i], start)
        x = self.norm(x if cache is None else x[:, -1:])
        return F.linear(x, self.table.weight)


def training(s, half):
    model = Model(**s)
    made = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, s["vocab"], (s["batch"], s["length"]))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = model(ids[:, :-1])
        F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        made.step()
        made.zero_grad()

    return step, s["batch"] * s["length"]


def sampling(s, half):
    model = Model(**s)
    model = model.bfloat16() if half else model
    size = s["d"] // s["heads"]
    cache = [[torch.zeros(SLOTS, s["kv"], 128, size, dtype=model.table.weight.dtype) for _ in range(2)] for _ in range(s["layers"])]

    @torch.no_grad()
    def sample():
        ids = torch.zeros(SLOTS, PROMPT, dtype=torch.long)
        for i in range(STEPS):
            logits = model(ids, cache, 0 if i == 0 else PROMPT + i - 1)[:, -1]
            ids = torch.multinomial(logits.float().softmax(-1), 1)

    return sample, SLOTS * STEPS


def rate(call, tokens, seconds):
    call()
    begun, n = time.process_time(), 0
    while n < 2 or time.process_time() - begun < seconds:
        call()
        n += 1
    return tokens * n / (time.process_time() - begun)


def native(binary, cell, seconds):
    out = subprocess.run(
        [binary, "-test.run", "^$", "-test.bench", f"BesidePyTorch/{cell}$", "-test.benchtime", f"{max(2, int(seconds))}x"],
        capture_output=True, text=True, check=True, cwd=ROOT / "gpu/native", env=dict(os.environ, GOMAXPROCS="1"),
    )  # fmt: skip
    return 1000 / float(re.search(r"([\d.e-]+) cpu-ms/token", out.stdout)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of processor time for each figure of PyTorch, and as many calls of gpu/native")
    parser.add_argument("--widths", default=",".join(SHAPES))
    parser.add_argument("--what", default="train,decode")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    binary = os.path.join(tempfile.mkdtemp(), "native.test")
    subprocess.run(["go", "test", "-c", "-o", binary, "./gpu/native"], cwd=ROOT, check=True)
    print(f"PyTorch {torch.__version__}, load {os.getloadavg()[0]:.0f}; tokens a processor second, median of {given.rounds}; the ratio's least and most")
    for width in given.widths.split(","):
        for what in given.what.split(","):
            made = training if what == "train" else sampling
            for dtype in ("float32", "bfloat16"):
                call, tokens = made(SHAPES[width], dtype == "bfloat16")
                pairs = [(native(binary, f"{what}/{width}/{dtype}", given.seconds), rate(call, tokens, given.seconds)) for _ in range(given.rounds)]
                own, other, ratios = (sorted(x) for x in ([a for a, _ in pairs], [b for _, b in pairs], [a / b for a, b in pairs]))
                print(
                    f"{width} {what:6} {dtype:8}  gpu/native {statistics.median(own):9.0f}  PyTorch {statistics.median(other):9.0f}"
                    f"  ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True,
                )  # fmt: skip


main()
