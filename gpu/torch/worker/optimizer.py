"""AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2) on this rank's part of each parameter."""

import math

import torch


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


def choose(device, dtype):
    """The fused kernel where it is there and agrees with the plain step on a small example, for float32 on a GPU. Returns its name, its
    function and why the fused one was passed over."""
    if device.type != "cuda" or dtype != torch.float32:
        return "plain", plain_steps, ""
    why = disagreement(device)
    return ("plain", plain_steps, why) if why else ("fused", fused_steps, "")


class Optimizer:
    """Moments are there from the first step, or once they are loaded or saved; missing ones are zeros."""

    def __init__(self, device, dtype):
        self.name, self.update, self.passed = choose(device, dtype)
        self.moments = {}
        self.steps = 0

    def of(self, name, like):
        if name not in self.moments:
            self.moments[name] = tuple(torch.zeros(like.shape, dtype=torch.float32, device=like.device) for _ in range(2))
        return self.moments[name]

    def reset(self):
        self.moments, self.steps = {}, 0

    @torch.no_grad()
    def step(self, params, grads, norm, options, tick):
        """Steps params, by name, along grads, whose global norm is given; False where that is not finite."""
        if not math.isfinite(norm):
            return False
        self.steps += 1
        common = options_of(options, self.steps, norm)
        for (lr, decay), names in self._alike(params, options).items():
            columns = [[params[n] for n in names]]
            columns += [[self.of(n, params[n])[i] for n in names] for i in range(2)]
            self.update(*columns, [grads[n] for n in names], dict(common, lr=lr, decay=decay), tick)
        return True

    def _alike(self, params, options):
        """The names of parameters by their learning rate and decay. A rank that has no row of one has nothing to do for it."""
        out = {}
        for name, p in params.items():
            lr = options["learning_rate"]
            if name == "value_head.weight" and options["value_learning_rate"] > 0:
                lr = options["value_learning_rate"]
            decay = options["weight_decay"] if options["matrices"][name] else 0.0
            if p.numel():
                out.setdefault((lr, decay), []).append(name)
        return out
