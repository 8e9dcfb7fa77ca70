"""Kernels in Triton, which comes with PyTorch for GPUs: passes over memory that a compiler of whole functions makes slower."""

import torch

try:
    import triton
    import triton.language as tl
except Exception:  # an import may fail in any way: there are other ways then
    triton = None

if triton is not None:

    @triton.jit
    def measure_kernel(logits, temperature, targets, logprobs, entropies, squares, logz, columns, BLOCK: tl.constexpr):
        """A row's sums in one reading: each lane has a maximum of its own, and sums relative to it."""
        row = tl.program_id(0)
        base = logits + row.to(tl.int64) * columns
        cold = 1.0 / tl.load(temperature + row)
        lanes = tl.arange(0, BLOCK)
        top = tl.full([BLOCK], -1e30, tl.float32)
        total, mean, square = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        for lo in range(0, columns, BLOCK):
            there = lo + lanes < columns
            x = tl.load(base + lo + lanes, mask=there, other=-1e30).to(tl.float32) * cold
            new = tl.maximum(top, tl.where(there, x, -1e30))
            d = top - new
            a = tl.exp(d)
            e = tl.where(there, tl.exp(x - new), 0.0)
            mean = a * (mean + d * total) + tl.where(there, x - new, 0.0) * e
            total = a * total + e
            square = a * a * square + e * e
            top = new
        most = tl.max(top, 0)
        d = top - most
        a = tl.exp(d)
        mean = tl.sum(a * (mean + d * total), 0)
        square = tl.sum(a * a * square, 0)
        total = tl.sum(a * total, 0)
        spread = tl.log(total)
        chosen = tl.load(base + tl.load(targets + row)).to(tl.float32) * cold
        tl.store(logprobs + row, chosen - most - spread)
        tl.store(entropies + row, spread - mean / total)
        tl.store(squares + row, square / (total * total))
        tl.store(logz + row, most + spread)

    @triton.jit
    def slope_kernel(logits, temperature, targets, logz, entropies, g_logprobs, g_entropies, columns, BLOCK: tl.constexpr):
        """A piece of a row of logits gives way to its gradient."""
        row = tl.program_id(0)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        there = at < columns
        base = logits + row.to(tl.int64) * columns
        cold = 1.0 / tl.load(temperature + row)
        up, spread = tl.load(g_logprobs + row), tl.load(g_entropies + row)
        x = tl.load(base + at, mask=there, other=0.0).to(tl.float32) * cold - tl.load(logz + row)
        g = -tl.exp(x) * ((x + tl.load(entropies + row)) * spread + up)
        g += tl.where(at == tl.load(targets + row), up, 0.0)
        tl.store(base + at, (g * cold).to(logits.dtype.element_ty), mask=there)

    @triton.jit
    def step_kernel(p, m, v, g, copy, numbers, count, BLOCK: tl.constexpr):
        """A piece of a parameter's step of AdamW; numbers are those of numbers_of."""
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        there = at < count
        grad = tl.load(g + at, mask=there, other=0.0).to(tl.float32) * tl.load(numbers)
        first = tl.load(m + at, mask=there, other=0.0) * tl.load(numbers + 1) + grad * tl.load(numbers + 2)
        second = tl.load(v + at, mask=there, other=0.0) * tl.load(numbers + 3) + grad * grad * tl.load(numbers + 4)
        down = tl.sqrt(second) * tl.load(numbers + 5) + tl.load(numbers + 6)
        new = tl.load(p + at, mask=there, other=0.0) * tl.load(numbers + 7) - tl.load(numbers + 8) * first / down
        tl.store(m + at, first, mask=there)
        tl.store(v + at, second, mask=there)
        tl.store(p + at, new, mask=there)
        tl.store(copy + at, new.to(copy.dtype.element_ty), mask=there)


def measure(logits, temperature, targets):
    """Log-probabilities of targets, entropies, sums of squares and log-normalizers of rows of logits."""
    rows, columns = logits.shape
    out = [torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(4)]
    if rows:
        measure_kernel[(rows,)](logits, temperature, targets, *out, columns, BLOCK=2048, num_warps=8)
    return out


def slope(logits, temperature, targets, logz, entropies, g_logprobs, g_entropies):
    """The gradient with respect to logits, in their place."""
    rows, columns = logits.shape
    if rows:
        grid = (rows, triton.cdiv(columns, 2048))
        slope_kernel[grid](logits, temperature, targets, logz, entropies, g_logprobs, g_entropies, columns, BLOCK=2048, num_warps=4)
    return logits


def step(p, m, v, g, copy, numbers):
    """A step of AdamW on a parameter, and its copy."""
    step_kernel[(triton.cdiv(p.numel(), 1024),)](p, m, v, g, copy, numbers, p.numel(), BLOCK=1024, num_warps=4)
