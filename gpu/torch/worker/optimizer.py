"""AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2) on this rank's part of each parameter."""

import math

import torch
import weir_kernels


def plain_step(p, m, v, g, o):
    """One step on a float32 or bfloat16 parameter with float32 moments; g is scaled in place."""
    g = g.float().mul_(o["scale"])
    m.mul_(o["beta1"]).add_(g, alpha=1 - o["beta1"])
    v.mul_(o["beta2"]).addcmul_(g, g, value=1 - o["beta2"])
    down = v.sqrt().mul_(1 / math.sqrt(o["corr2"])).add_(o["eps"])
    if p.dtype == torch.float32:
        p.mul_(1 - o["lr"] * o["decay"]).addcdiv_(m, down, value=-o["lr"] / o["corr1"])
        return
    whole = p.float().mul_(1 - o["lr"] * o["decay"]).addcdiv_(m, down, value=-o["lr"] / o["corr1"])
    p.copy_(whole)


def plain_steps(params, m, v, grads, o, tick):
    """One step on each of several parameters that have the same options."""
    for one in zip(params, m, v, grads):
        plain_step(*one, o)
        tick()


def fused_steps(params, m, v, grads, o, tick):
    """The same by PyTorch's fused kernel, in one call. The kernel takes its count for that of the step which it makes: whoever calls
    it has counted already."""
    if o["scale"] != 1:
        torch._foreach_mul_(grads, o["scale"])
    count = torch.full((), float(o["step"]), dtype=torch.float32, device=params[0].device)
    torch._fused_adamw_(
        params, grads, m, v, [], [count] * len(params), lr=o["lr"], beta1=o["beta1"], beta2=o["beta2"], weight_decay=o["decay"],
        eps=o["eps"], amsgrad=False, maximize=False,
    )  # fmt: skip
    tick()


def copied_step(p, m, v, g, copy, o):
    """Plain_step in one pass over a parameter's memory, for a compiler; the new weights go to a copy in its type as well. o is what numbers_of
    gives."""
    scale, beta1, rest1, beta2, rest2, corr2, eps, keep, lr = o.unbind()
    g = g.float() * scale
    m.mul_(beta1).add_(g * rest1)
    v.mul_(beta2).add_(g * g * rest2)
    p.mul_(keep).sub_(lr * m / (v.sqrt() * corr2 + eps))
    copy.copy_(p)


def numbers_of(o, device):
    """The numbers of a step as copied_step reads them."""
    return torch.tensor(
        [
            o["scale"], o["beta1"], 1 - o["beta1"], o["beta2"], 1 - o["beta2"], 1 / math.sqrt(o["corr2"]), o["eps"], 1 - o["lr"] * o["decay"],
            o["lr"] / o["corr1"],
        ],
        dtype=torch.float32,
    ).to(device)  # fmt: skip


class Copying:
    """Steps of weights that have copies, a compiled pass each."""

    def __init__(self):
        self.step = torch.compile(copied_step)

    def __call__(self, params, m, v, grads, copies, o, tick):
        numbers = numbers_of(o, params[0].device)
        for columns in zip(params, m, v, grads, copies):
            width = math.gcd(columns[0].numel(), 1024)
            flat = [x.view(-1, width) for x in columns]
            for x in flat:
                torch._dynamo.maybe_mark_dynamic(x, 0)
            self.step(*flat, numbers)
            tick()


class Launching:
    """The same by a kernel of our own, whose launch costs less than the call of a compiled function."""

    def __init__(self):
        if weir_kernels.triton is None:
            raise RuntimeError("there is no Triton")

    def __call__(self, params, m, v, grads, copies, o, tick):
        numbers = numbers_of(o, params[0].device)
        for columns in zip(params, m, v, grads, copies):
            weir_kernels.step(*columns, numbers)
            tick()


def plain_copying(params, m, v, grads, copies, o, tick):
    """The same by plain steps."""
    plain_steps(params, m, v, grads, o, tick)
    for p, copy in zip(params, copies):
        copy.copy_(p)


def options_of(o, steps, norm):
    """What all parameters have in common at a step of so many: clip_norm and the gradient's norm make the scale."""
    clip = o["clip_norm"]
    return {
        "beta1": o["beta1"], "beta2": o["beta2"], "eps": o["epsilon"], "step": steps, "corr1": 1 - o["beta1"] ** steps,
        "corr2": 1 - o["beta2"] ** steps, "scale": clip / norm if clip > 0 and norm > clip else 1.0,
    }  # fmt: skip


def disagreement(device):
    """Why the fused kernel cannot be used on a device: it is not there, or does other steps than the plain ones on a small example of
    two parameters. "" where it can."""
    if not hasattr(torch, "_fused_adamw_"):
        return "this PyTorch has none"
    given = {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "clip_norm": 1.0}
    o = dict(options_of(given, 3, 2.0), lr=1e-2, decay=0.1)
    results = []
    try:
        for steps in (fused_steps, plain_steps):
            state = [[torch.linspace(-1, 1, n, device=device) for n in (64, 5)] for _ in range(4)]
            state[2] = [x.square() for x in state[2]]
            steps(*state, o, lambda: None)
            results.append(sum(state[:3], []))
    except Exception as e:  # an interface of PyTorch's own, which may change
        return f"{type(e).__name__}: {e}"
    off = max((a - b).abs().max().item() for a, b in zip(*results))
    return "" if off <= 1e-6 else f"it is off by {off:.2g} from the plain step"


def copying_disagreement(way, device, dtype):
    """The same of a way to step weights that have copies, with gradients in the copies' type and in float32."""
    given = {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "clip_norm": 1.0}
    o = dict(options_of(given, 3, 2.0), lr=1e-2, decay=0.1)
    results = []
    for f in (way, plain_copying):
        state = [[torch.linspace(-1, 1, n, device=device) for n in (2048, 96)] for _ in range(4)]
        state[2] = [x.square() for x in state[2]]
        state[3][0] = state[3][0].to(dtype)
        copies = [torch.zeros(n, dtype=dtype, device=device) for n in (2048, 96)]
        f(*state, copies, o, lambda: None)
        results.append(sum(state[:3], []) + [(c - p.to(dtype)).float() for c, p in zip(copies, state[0])])
    off = max((a - b).abs().max().item() for a, b in zip(*results))
    return "" if off <= 1e-6 else f"it is off by {off:.2g} from the plain step"


def choose_copying(device, dtype, compiles):
    """A pass over each, by a kernel or compiled, where a compiler works and the pass agrees with the plain steps, and why it was passed over."""
    if not compiles:
        return plain_copying, ""
    passed = []
    for kind in (Launching, Copying):
        try:
            way = kind()
            why = copying_disagreement(way, device, dtype)
        except Exception as e:  # a compiler may be missing, and fails in any way
            why = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else 'no reason'}"[:300]
        if not why:
            return way, "; ".join(passed)
        passed.append(f"{kind.__name__}: {why}")
    return plain_copying, "; ".join(passed)


def choose(device, dtype):
    """The fused kernel where it is there and agrees with the plain step on a small example, for float32 on a GPU. Returns its name, its
    function and why the fused one was passed over."""
    if device.type != "cuda" or dtype != torch.float32:
        return "plain", plain_steps, ""
    why = disagreement(device)
    return ("plain", plain_steps, why) if why else ("fused", fused_steps, "")


class Optimizer:
    """Moments are there from the first step, or once they are loaded or saved; missing ones are zeros. copies is the type of the copies
    that some weights have, None where none has any."""

    def __init__(self, device, dtype, copies=None, compiles=False):
        self.name, self.update, self.passed = choose(device, dtype)
        self.update_copied = None
        if copies is not None:
            self.update_copied, why = choose_copying(device, copies, compiles)
            self.passed = self.passed or why
        self.moments = {}
        self.steps = 0

    def of(self, name, like):
        if name not in self.moments:
            self.moments[name] = tuple(torch.zeros(like.shape, dtype=torch.float32, device=like.device) for _ in range(2))
        return self.moments[name]

    def reset(self):
        self.moments, self.steps = {}, 0

    @torch.no_grad()
    def step(self, params, grads, norm, options, tick, copies=None):
        """Steps params, by name, along grads, whose global norm is given; False where that is not finite. copies, by name, become the new
        weights too."""
        if not math.isfinite(norm):
            return False
        self.steps += 1
        copies = copies or {}
        common = options_of(options, self.steps, norm)
        for (lr, decay, copied), names in self._alike(params, options, copies).items():
            columns = [[params[n] for n in names]]
            columns += [[self.of(n, params[n])[i] for n in names] for i in range(2)]
            columns += [[grads[n] for n in names]]
            o = dict(common, lr=lr, decay=decay)
            if copied:
                self.update_copied(*columns, [copies[n] for n in names], o, tick)
            else:
                self.update(*columns, o, tick)
        return True

    def _alike(self, params, options, copies):
        """The names of parameters by their learning rate and decay, and whether they have copies. A rank that has no row of one has nothing to
        do for it."""
        out = {}
        for name, p in params.items():
            lr = options["learning_rate"]
            if name == "value_head.weight" and options["value_learning_rate"] > 0:
                lr = options["value_learning_rate"]
            decay = options["weight_decay"] if options["matrices"][name] else 0.0
            if p.numel():
                out.setdefault((lr, decay, name in copies), []).append(name)
        return out
