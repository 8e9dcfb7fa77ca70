"""The engine benchmark's shapes in PyTorch, for comparison: forward, training step and decoding in tokens/s.

    apt-get install python3-torch libopenblas0-pthread
    OMP_NUM_THREADS=2 /usr/bin/python3 docs/benchmarks/pytorch.py

Beside it: go test ./gpu/native -run '^$' -bench .
Without libopenblas0-pthread PyTorch uses the reference BLAS, several times slower.
"""
import math
import sys
import time

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(2)

SHAPES = {
    "d128": dict(vocab=512, d=128, layers=4, heads=4, kv=2, ff=384, batch=32, length=128),
    "d256": dict(vocab=512, d=256, layers=6, heads=8, kv=4, ff=768, batch=32, length=128),
    "demo": dict(vocab=1562, d=64, layers=3, heads=2, kv=2, ff=128, batch=64, length=48),
}


class Model(torch.nn.Module):
    def __init__(self, vocab, d, layers, heads, kv, ff, bias=False, **_):
        super().__init__()
        self.h, self.kv, self.hd = heads, kv, d // heads
        self.emb = torch.nn.Embedding(vocab, d)
        self.layers = torch.nn.ModuleList()
        for _ in range(layers):
            m = torch.nn.Module()
            m.q = torch.nn.Linear(d, heads * self.hd, bias=bias)
            m.k = torch.nn.Linear(d, kv * self.hd, bias=bias)
            m.v = torch.nn.Linear(d, kv * self.hd, bias=bias)
            m.o = torch.nn.Linear(heads * self.hd, d, bias=False)
            m.g = torch.nn.Linear(d, ff, bias=False)
            m.u = torch.nn.Linear(d, ff, bias=False)
            m.dn = torch.nn.Linear(ff, d, bias=False)
            m.n1 = torch.nn.Parameter(torch.ones(d))
            m.n2 = torch.nn.Parameter(torch.ones(d))
            self.layers.append(m)
        self.norm = torch.nn.Parameter(torch.ones(d))

    @staticmethod
    def rms(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def rope(self, x, start):
        n, half = x.shape[-2], self.hd // 2
        freq = 10000 ** (-torch.arange(0, half, dtype=torch.float32) / half)
        angle = torch.arange(start, start + n, dtype=torch.float32)[:, None] * freq
        c, s = angle.cos(), angle.sin()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def forward(self, ids, cache=None, last=False):
        b, n = ids.shape
        x = self.emb(ids)
        start = 0 if cache is None or cache[0] is None else cache[0][0].shape[2]
        for i, m in enumerate(self.layers):
            y = self.rms(x, m.n1)
            q = self.rope(m.q(y).view(b, n, self.h, self.hd).transpose(1, 2), start)
            k = self.rope(m.k(y).view(b, n, self.kv, self.hd).transpose(1, 2), start)
            v = m.v(y).view(b, n, self.kv, self.hd).transpose(1, 2)
            if cache is not None:
                if cache[i] is not None:
                    k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
                cache[i] = (k, v)
            r = self.h // self.kv
            k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
            att = q @ k.transpose(-1, -2) / math.sqrt(self.hd)
            if n > 1:
                att = att + torch.full((n, k.shape[2]), -1e9).triu(k.shape[2] - n + 1)
            x = x + m.o((att.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
            y = self.rms(x, m.n2)
            x = x + m.dn(F.silu(m.g(y)) * m.u(y))
        x = self.rms(x, self.norm)
        if last:
            x = x[:, -1:]
        return x @ self.emb.weight.T


def rate(f, tokens, seconds=4.0):
    f()
    n, t = 0, time.perf_counter()
    while time.perf_counter() - t < seconds:
        f()
        n += 1
    return tokens * n / (time.perf_counter() - t)


def main():
    for name, s in SHAPES.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        model = Model(**s)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
        ids = torch.randint(0, s["vocab"], (s["batch"], s["length"]))

        def forward():
            with torch.no_grad():
                model(ids).log_softmax(-1)

        def train():
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()

        tokens = s["batch"] * s["length"]
        out = {"forward": rate(forward, tokens), "train": rate(train, tokens)}
        for b in (1, 16, 64):
            def decode():
                cache = [None] * s["layers"]
                with torch.no_grad():
                    model(ids[:1, :16].repeat(b, 1), cache, last=True)
                    tok = torch.zeros(b, 1, dtype=torch.long)
                    for _ in range(48):
                        logits = model(tok, cache, last=True)[:, -1]
                        tok = torch.multinomial(logits.softmax(-1), 1)
            out[f"decode{b}"] = rate(decode, 48 * b)
        print(f"{name:6s} threads={torch.get_num_threads()} " + " ".join(f"{k}={v:.0f}" for k, v in out.items()), flush=True)


if __name__ == "__main__":
    main()
