"""Decoding at the shape of Qwen2.5-0.5B in PyTorch, beside BenchmarkHalfBillionDecode: tokens/s, processor time, peak memory.

    OMP_NUM_THREADS=2 /usr/bin/python3 docs/benchmarks/halfbillion.py [layers]
"""
import resource
import sys
import time

import torch

from pytorch import Model

LAYERS = int(sys.argv[1]) if len(sys.argv) > 1 else 24


def cpu():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


model = Model(vocab=151936, d=896, layers=LAYERS, heads=14, kv=2, ff=4864, bias=True)
ids = torch.randint(0, 1000, (8, 128))
with torch.no_grad():
    for batch, steps in ((1, 6), (8, 4)):
        cache = [None] * LAYERS
        model(ids[:batch], cache, last=True)
        token = torch.zeros(batch, 1, dtype=torch.long)
        wall, used = time.perf_counter(), cpu()
        for _ in range(steps):
            token = model(token, cache, last=True)[:, -1].argmax(-1, keepdim=True)
        wall, used = time.perf_counter() - wall, cpu() - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        n = batch * steps
        print(f"batch {batch}: {n / wall:.2f} tokens/s, {1000 * used / n:.0f} cpu-ms/token, peak {peak:.2f} GB", flush=True)
