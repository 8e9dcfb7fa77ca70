"""AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2) on this rank's part of each parameter."""

import math

import torch


def plain_step(p, m, v, g, o):
    """One step on float32 or bfloat16 parameters with float32 moments; g is scaled in place."""
    g = g.float().mul_(o["scale"])
    m.mul_(o["beta1"]).add_(g, alpha=1 - o["beta1"])
    v.mul_(o["beta2"]).addcmul_(g, g, value=1 - o["beta2"])
    down = v.sqrt().mul_(1 / math.sqrt(o["corr2"])).add_(o["eps"])
    if p.dtype == torch.float32:
        p.mul_(1 - o["lr"] * o["decay"]).addcdiv_(m, down, value=-o["lr"] / o["corr1"])
        return
    whole = p.float().mul_(1 - o["lr"] * o["decay"]).addcdiv_(m, down, value=-o["lr"] / o["corr1"])
    p.copy_(whole)


def fused_step(p, m, v, g, o):
    """The same by PyTorch's fused kernel, which counts steps from o["step"]."""
    if o["scale"] != 1:
        g.mul_(o["scale"])
    count = torch.tensor(float(o["step"]) - 1, device=p.device)
    torch._fused_adamw_(
        [p], [g], [m], [v], [], [count], lr=o["lr"], beta1=o["beta1"], beta2=o["beta2"], weight_decay=o["decay"],
        eps=o["eps"], amsgrad=False, maximize=False,
    )  # fmt: skip


def choose(device, dtype):
    """The fused kernel where it is there and agrees with the plain step on a small example. Returns its name and function."""
    if device.type != "cuda" or dtype != torch.float32 or not hasattr(torch, "_fused_adamw_"):
        return "plain", plain_step
    o = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.1, "scale": 0.5, "step": 3}
    o["corr1"], o["corr2"] = 1 - 0.9**3, 1 - 0.95**3
    try:
        results = []
        for step in (fused_step, plain_step):
            state = [torch.linspace(-1, 1, 64, device=device) for _ in range(4)]
            state[2] = state[2].square()
            step(state[0], state[1], state[2], state[3], o)
            results.append(state[:3])
        if all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(*results)):
            return "fused", fused_step
    except Exception:  # an interface of PyTorch's own, which may change
        pass
    return "plain", plain_step


class Optimizer:
    """Moments are there from the first step, or once they are loaded or saved; missing ones are zeros."""

    def __init__(self, device, dtype):
        self.name, self.update = choose(device, dtype)
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
        clip = options["clip_norm"]
        self.steps += 1
        common = {
            "beta1": options["beta1"], "beta2": options["beta2"], "eps": options["epsilon"], "step": self.steps,
            "corr1": 1 - options["beta1"] ** self.steps, "corr2": 1 - options["beta2"] ** self.steps,
            "scale": clip / norm if clip > 0 and norm > clip else 1.0,
        }  # fmt: skip
        for name, p in params.items():
            lr = options["learning_rate"]
            if name == "value_head.weight" and options["value_learning_rate"] > 0:
                lr = options["value_learning_rate"]
            m, v = self.of(name, p)
            self.update(p, m, v, grads[name], dict(common, lr=lr, decay=options["weight_decay"] if options["matrices"][name] else 0.0))
            tick()
        return True
