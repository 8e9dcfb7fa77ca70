"""Log-probabilities, entropies and sums of squared probabilities of chosen tokens, without the logits of all rows at once."""

import torch

# Logits of a chunk of rows are held at once: so many numbers.
CHUNK = 1 << 27


def chunk_of(vocabulary):
    return max(16, min(2048, CHUNK // vocabulary))


def logits_of(hidden, weight, temperature):
    return (hidden @ weight.t()).float() / temperature[:, None]


def add_product(total, a, b):
    """Adds a^T b to a float32 total."""
    if a.dtype == torch.float32:
        total.addmm_(a.t(), b)
        return
    if a.is_cuda:
        try:
            total.add_(torch.mm(a.t(), b, out_dtype=torch.float32))
            return
        except TypeError:  # before PyTorch 2.8
            pass
    total.add_(a.t() @ b)


class Distribution(torch.autograd.Function):
    """Of rows of hidden [m, d] and a head [v, d], whose logits are divided by temperature [m]: the log-probabilities of targets
    [m], the entropies and the sums of squared probabilities, all float32. With p = softmax(x) and H its entropy,

        d log p(y) / dx_j = 1{j = y} - p_j        dH / dx_j = -p_j (log p_j + H)

    Logits are computed again in the backward pass. The head is multiplied in the type of hidden."""

    @staticmethod
    def forward(ctx, hidden, head, targets, temperature, progress):
        rows, vocabulary = hidden.shape[0], head.shape[0]
        weight = head.to(hidden.dtype)
        logprobs, entropies, squares, logz = (
            torch.empty(rows, dtype=torch.float32, device=hidden.device) for _ in range(4)
        )
        step = chunk_of(vocabulary)
        for lo in range(0, rows, step):
            hi = min(lo + step, rows)
            x = logits_of(hidden[lo:hi], weight, temperature[lo:hi])
            logz[lo:hi] = x.logsumexp(1)
            x -= logz[lo:hi, None]
            p = x.exp()
            logprobs[lo:hi] = x.gather(1, targets[lo:hi, None])[:, 0]
            entropies[lo:hi] = -(x * p).sum(1)
            squares[lo:hi] = (p * p).sum(1)
            progress()
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(squares)
        ctx.save_for_backward(hidden, head, targets, temperature, logz, entropies)
        ctx.progress = progress
        return logprobs, entropies, squares

    @staticmethod
    def backward(ctx, g_logprobs, g_entropies, _):
        hidden, head, targets, temperature, logz, entropies = ctx.saved_tensors
        weight = head.to(hidden.dtype)
        d_hidden = torch.zeros_like(hidden)
        # A frozen head has no gradient, which would be the largest buffer of all.
        d_head = torch.zeros(head.shape, dtype=torch.float32, device=head.device) if ctx.needs_input_grad[1] else None
        rows, step = hidden.shape[0], chunk_of(head.shape[0])
        if g_logprobs is None and g_entropies is None:
            rows = 0
        for lo in range(0, rows, step):
            hi = min(lo + step, rows)
            x = logits_of(hidden[lo:hi], weight, temperature[lo:hi])
            x -= logz[lo:hi, None]
            p = x.exp()
            g = torch.zeros_like(x)
            if g_entropies is not None:
                g = x.add_(entropies[lo:hi, None]).mul_(p).mul_(-g_entropies[lo:hi, None])
            if g_logprobs is not None:
                g -= p.mul_(g_logprobs[lo:hi, None])
                g.scatter_add_(1, targets[lo:hi, None], g_logprobs[lo:hi, None])
            g = (g / temperature[lo:hi, None]).to(hidden.dtype)
            d_hidden[lo:hi] = g @ weight
            if d_head is not None:
                add_product(d_head, g, hidden[lo:hi])
            ctx.progress()
        return d_hidden, d_head, None, None, None
