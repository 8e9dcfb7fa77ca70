"""Log-probabilities, entropies and sums of squared probabilities of chosen tokens, without the logits of all rows at once."""

import torch
import weir_kernels


class Plain:
    """The arithmetic of a chunk of rows, an operation at a time."""

    name = "plain"
    CHUNK, ROWS = 1 << 27, 2048  # logits of a chunk, which are held several times over, in float32; its rows at most

    @staticmethod
    def keeps(hidden, vocabulary):
        """Whether the logits of all rows are kept for the backward pass."""
        return False

    @staticmethod
    def measure(logits, temperature, targets):
        """Log-probabilities of targets, entropies, sums of squares and log-normalizers of rows of logits, in float32."""
        x = logits.float() / temperature[:, None]
        logz = x.logsumexp(1)
        x -= logz[:, None]
        p = x.exp()
        return x.gather(1, targets[:, None])[:, 0], -(x * p).sum(1), (p * p).sum(1), logz

    @staticmethod
    def slope(logits, temperature, targets, logz, entropies, g_logprobs, g_entropies):
        """The gradient with respect to logits, in their type, given those of log-probabilities and entropies."""
        x = logits.float() / temperature[:, None] - logz[:, None]
        p = x.exp()
        g = x.add_(entropies[:, None]).mul_(p).mul_(-g_entropies[:, None])
        g -= p.mul_(g_logprobs[:, None])
        g.scatter_add_(1, targets[:, None], g_logprobs[:, None])
        return g.div_(temperature[:, None]).to(logits.dtype)


def measure_in_two_passes(logits, temperature, targets):
    """What Plain.measure is, in sums that a compiler makes in two readings of the logits."""
    x = logits.float() * temperature.reciprocal()[:, None]
    top = x.amax(1)
    x = x - top[:, None]
    e = x.exp()
    total = e.sum(1)
    spread = total.log()
    chosen = x.gather(1, targets[:, None])[:, 0]
    return chosen - spread, spread - (x * e).sum(1) / total, (e * e).sum(1) / (total * total), top + spread


def slope_in_one_pass(logits, temperature, targets, logz, entropies, g_logprobs, g_entropies):
    """What Plain.slope is, in the place of the logits: a compiler makes one loop of it."""
    cold = temperature.reciprocal()[:, None]
    x = logits.float() * cold - logz[:, None]
    chosen = torch.arange(logits.shape[1], device=logits.device)[None] == targets[:, None]
    g = torch.where(chosen, g_logprobs[:, None], 0.0) - x.exp() * ((x + entropies[:, None]) * g_entropies[:, None] + g_logprobs[:, None])
    return logits.copy_(g * cold)


class Fused:
    """The same arithmetic by torch.compile: a chunk's logits are read twice forward, and once backward, where their gradient takes their
    place. The logits of all rows are kept for the backward pass where there is room: they are not computed again then."""

    name = "fused"
    CHUNK, ROWS = 5 << 27, 4096
    SPARE = 0.12  # of the device's memory, which kept logits leave free

    def __init__(self):
        self._measure = torch.compile(measure_in_two_passes)
        self._slope = torch.compile(slope_in_one_pass)

    def measure(self, logits, *more):
        return self._measure(rows_differ(logits), *map(rows_differ, more))

    def slope(self, logits, *more):
        return self._slope(rows_differ(logits), *map(rows_differ, more))

    def keeps(self, hidden, vocabulary):
        if hidden.device.type != "cuda":
            return False
        free, all_of_it = torch.cuda.mem_get_info(hidden.device)
        free += torch.cuda.memory_reserved(hidden.device) - torch.cuda.memory_allocated(hidden.device)
        return free - hidden.shape[0] * vocabulary * hidden.element_size() > self.SPARE * all_of_it


class Kernels(Fused):
    """The same by kernels of our own: one reading forward, and one backward."""

    def __init__(self):
        if weir_kernels.triton is None:
            raise RuntimeError("there is no Triton")

    def measure(self, logits, temperature, targets):
        return weir_kernels.measure(logits, temperature, targets)

    def slope(self, logits, *more):
        return weir_kernels.slope(logits, *(x.contiguous() for x in more))


def rows_differ(x):
    """Has a compiler make code for any number of rows, and for this number of columns alone."""
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return x


def choose(options, shape, compute, device):
    """The arithmetic to use: kernels or a compiled function on a GPU, where it agrees with the plain one on a small example. Bits that do
    not depend on a row's company are the plain one's. Returns it, and why the compiled one was passed over, "" where nobody asked for it."""
    if device.type != "cuda" or options["deterministic"]:
        return Plain(), ""
    passed = []
    for way in (Kernels, Fused):
        try:
            fused = way()
            why = disagreement(fused, shape, compute, device)
        except Exception as e:  # a compiler may be missing, and fails in any way
            why = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else 'no reason'}"[:300]
        if not why:
            return fused, "; ".join(passed)
        passed.append(f"{way.__name__}: {why}")
    return Plain(), "; ".join(passed)


def disagreement(ways, shape, compute, device):
    """How far an arithmetic is from the plain one on a few rows of the model's vocabulary; "" where it is near enough."""
    g = torch.Generator().manual_seed(1)
    rows, vocabulary = 5, shape["vocab"]
    logits = (3 * torch.randn(rows, vocabulary, generator=g)).to(device=device, dtype=compute)
    temperature, targets = (0.5 + torch.rand(rows, generator=g)).to(device), torch.randint(0, vocabulary, (rows,), generator=g).to(device)
    up = [torch.randn(rows, generator=g).to(device) for _ in range(2)]
    want = Plain.measure(logits, temperature, targets)
    results = zip(
        [*ways.measure(logits, temperature, targets), ways.slope(logits.clone(), temperature, targets, want[3], want[1], *up)],
        [*want, Plain.slope(logits, temperature, targets, want[3], want[1], *up)],
    )
    tolerance = [1e-4] * 4 + [1e-4 if compute == torch.float32 else 1e-2]
    for (got, plain), most in zip(results, tolerance):
        off = (got.float() - plain.float()).abs().max().item() / max(1e-6, plain.float().abs().max().item())
        if not off <= most:
            return f"it is off by {off:.2g} from the plain arithmetic"
    return ""


def add_product(total, a, b):
    """Adds a^T b to a float32 total."""
    if a.dtype == torch.float32:
        total.addmm_(a.t(), b)
        return
    if a.is_cuda:
        for add in (add_in_place, add_after):
            try:
                return add(total, a, b)
            except (TypeError, RuntimeError, NotImplementedError):  # this PyTorch has no such form
                pass
    total.add_(a.t() @ b)


def add_in_place(total, a, b):
    """The product of bfloat16 operands, added in float32 as it is made."""
    torch.addmm(total, a.t(), b, out_dtype=torch.float32, out=total)


def add_after(total, a, b):
    """The product of bfloat16 operands in float32, from PyTorch 2.8 on."""
    total.add_(torch.mm(a.t(), b, out_dtype=torch.float32))


class Distribution(torch.autograd.Function):
    """Of rows of hidden [m, d] and a head [v, d], whose logits are divided by temperature [m]: the log-probabilities of targets
    [m], the entropies and the sums of squared probabilities, all float32. With p = softmax(x) and H its entropy,

        d log p(y) / dx_j = 1{j = y} - p_j        dH / dx_j = -p_j (log p_j + H)

    Logits are computed again in the backward pass, or kept where ways says so. The head is multiplied in the type of hidden. total gives
    the float32 sum to which the head's gradient is added; without it the gradient is returned."""

    @staticmethod
    def forward(ctx, hidden, head, targets, temperature, ways, progress, total=None):
        rows = hidden.shape[0]
        weight = head.to(hidden.dtype)
        outputs = [torch.empty(rows, dtype=torch.float32, device=hidden.device) for _ in range(4)]
        ctx.logits = [] if any(ctx.needs_input_grad[:2]) and ways.keeps(hidden, head.shape[0]) else None
        for lo, hi in chunks(rows, head.shape[0], ways):
            logits = hidden[lo:hi] @ weight.t()
            parts = ways.measure(logits, temperature[lo:hi], targets[lo:hi])
            if ctx.logits is not None:
                ctx.logits.append(logits)
            for x, part in zip(outputs, parts):
                x[lo:hi] = part
            progress()
        logprobs, entropies, squares, logz = outputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(squares)
        ctx.save_for_backward(hidden, head, targets, temperature, logz, entropies)
        ctx.ways, ctx.progress, ctx.total = ways, progress, total
        return logprobs, entropies, squares

    @staticmethod
    def backward(ctx, g_logprobs, g_entropies, _):
        hidden, head, targets, temperature, logz, entropies = ctx.saved_tensors
        weight = head.to(hidden.dtype)
        d_hidden = torch.zeros_like(hidden, memory_format=torch.contiguous_format)
        rows = hidden.shape[0]
        if g_logprobs is None and g_entropies is None:
            rows = 0
        # A frozen head has no gradient, which would be the largest buffer of all.
        d_head = None
        if ctx.needs_input_grad[1]:
            d_head = torch.zeros(head.shape, dtype=torch.float32, device=head.device) if ctx.total is None else ctx.total()
        g_logprobs, g_entropies = (torch.zeros_like(logz) if g is None else g for g in (g_logprobs, g_entropies))
        kept, ctx.logits = ctx.logits, None
        for i, (lo, hi) in enumerate(chunks(rows, head.shape[0], ctx.ways)):
            at = slice(lo, hi)
            logits = hidden[at] @ weight.t() if kept is None else kept[i]
            g = ctx.ways.slope(logits, temperature[at], targets[at], logz[at], entropies[at], g_logprobs[at], g_entropies[at])
            torch.mm(g, weight, out=d_hidden[at])
            if d_head is not None:
                add_product(d_head, g, hidden[at])
            if kept is not None:
                kept[i] = logits = g = None
            ctx.progress()
        return d_hidden, d_head if ctx.total is None else None, None, None, None, None, None


def chunks(rows, vocabulary, ways):
    """The bounds of the pieces of rows whose logits are held at once."""
    step = max(16, min(ways.ROWS, ways.CHUNK // vocabulary))
    step -= step % 256 if step > 256 else 0  # products of whole tiles
    return [(lo, min(lo + step, rows)) for lo in range(0, rows, step)]
