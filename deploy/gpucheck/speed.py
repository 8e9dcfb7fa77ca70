"""Speed: a training step of the worker beside that of plain PyTorch and of transformers, and how long weights take to travel."""

import gc
import pathlib
import time

import torch
import torch.nn.functional as F
from common import BACKWARD, FORWARD, Failed, Nothing, NotRun, fill, head_of, hello, need, part, shape, trainer, worker
from torch import nn

SHAPES = {
    "05b": lambda: shape(151936, 896, 4864, 24, 14, 2, 64, True, bias=True),
    "15b": lambda: shape(151936, 1536, 8960, 28, 12, 2, 128, True, bias=True),
    "7b": lambda: shape(152064, 3584, 18944, 28, 28, 4, 128, False, bias=True),
}
TINY = {
    "05b": lambda: shape(500, 64, 128, 2, 4, 2, 16, True, bias=True),
    "15b": lambda: shape(500, 96, 192, 2, 4, 2, 24, True, bias=True),
    "7b": lambda: shape(500, 128, 256, 2, 4, 2, 32, False, bias=True),
}
# Products of bfloat16 with dense operands, in the makers' tables.
PEAKS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
STEP = {
    "learning_rate": 1e-5, "value_learning_rate": 0, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.01, "clip_norm": 1.0,
}  # fmt: skip


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def timed(device, f, times):
    """Seconds of the fastest of some runs, after one that is not counted, and the peak of memory."""
    f()
    wait(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        f()
        wait(device)
        best = min(best, time.perf_counter() - began)
    return best, torch.cuda.max_memory_allocated() if device == "cuda" else None


def peak(device):
    """The rate of the device's products: what its maker says, and what a large product reaches."""
    if device != "cuda":
        return None, None
    a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    seconds, _ = timed(device, lambda: a @ a, 10)
    name = torch.cuda.get_device_name(0)
    return next((v for k, v in PEAKS.items() if k in name), None), 2 * 8192**3 / seconds


def work(of, lengths, passes):
    """Floating-point operations: products with matrices, and causal attention. passes is 1 forward, 3 with backward."""
    d, width = of["hidden"], of["heads"] * of["head_dim"]
    matrices = of["layers"] * (2 * d * width + 2 * d * of["kv_heads"] * of["head_dim"] + 3 * d * of["intermediate"]) + d * of["vocab"]
    return passes * (2 * matrices * sum(lengths) + of["layers"] * sum(2 * n * n * width for n in lengths))


def row(of, lengths, passes, seconds, memory, said, reached):
    flops = work(of, lengths, passes) / seconds
    out = {"tokens/s": round(sum(lengths) / seconds, 1), "seconds": round(seconds, 5), "TFLOP/s": round(flops / 1e12, 3)}
    if memory is not None:
        out["peak GiB"] = round(memory / 2**30, 2)
    out["MFU"] = round(flops / said, 4) if said else "not run: no GPU, or its rate is not known here"
    out["share of the measured product"] = round(flops / reached, 4) if reached else "not run: no GPU"
    return out


def where(step):
    """The kernels that take most of a step's time on the GPU, in milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)[:14]
    return {e.key[:70]: [round(e.self_device_time_total / 1e3, 2), e.count] for e in rows}


def guarded(f):
    """A row, or why there is none."""
    try:
        return f()
    except NotRun as e:
        return f"not run: {e}"
    except Exception as e:
        if "out of memory" not in str(e).lower():
            raise
        return "not run: out of memory"
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class Plain(nn.Module):
    """The same shape as one writes it in PyTorch: modules of its own, its attention, the whole row of logits."""

    class Block(nn.Module):
        def __init__(self, s):
            super().__init__()
            d, w, kv = s["hidden"], s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
            self.s, self.one, self.two = s, nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
            self.q, self.k, self.v = (nn.Linear(d, n, bias=s["qkv_bias"]) for n in (w, kv, kv))
            self.o, self.gate = nn.Linear(w, d, bias=False), nn.Linear(d, s["intermediate"], bias=False)
            self.up, self.down = nn.Linear(d, s["intermediate"], bias=False), nn.Linear(s["intermediate"], d, bias=False)

        def forward(self, x, cos, sin):
            def norm(x, g):
                return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.s["eps"])).to(x.dtype) * g.to(x.dtype)

            def turn(x):
                a, b = x.chunk(2, -1)
                return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

            b, n, _ = x.shape
            y = norm(x, self.one)
            q, k, v = (p(y).view(b, n, -1, self.s["head_dim"]).transpose(1, 2) for p in (self.q, self.k, self.v))
            times = self.s["heads"] // self.s["kv_heads"]
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, n, -1))
            y = norm(x, self.two)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s["vocab"], s["hidden"])
        self.blocks = nn.ModuleList(Plain.Block(s) for _ in range(s["layers"]))
        self.speeds = torch.tensor(s["rope_speeds"])

    def forward(self, ids):
        angles = torch.arange(ids.shape[1])[:, None] * self.speeds[None].cpu()
        cos, sin = angles.cos().to(ids.device), angles.sin().to(ids.device)
        x = self.embed(ids)
        for b in self.blocks:
            x = b(x, cos, sin)
        return x @ self.embed.weight.t().to(x.dtype)


def stepper(model, logits_of, of, lengths, device):
    """A plain step: cross entropy, backward, clipping, fused AdamW, under autocast on a GPU; rows of equal length as a batch."""
    ids = torch.randint(0, of["vocab"], (len(lengths), lengths[0]), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **({"fused": True} if device == "cuda" else {}))

    def step():
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits = logits_of(ids)
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure(s, name, tokens):
    of = (TINY if s.tiny else SHAPES)[name]()
    length = 64 if s.tiny else 2048
    lengths = [length] * (tokens // 2048)
    said, reached = peak(s.device)
    train, times = name != "7b", 2
    out = {}

    def ours(**changes):
        def f():
            low = changes.pop("lora", None)
            t = trainer(dict(of, lora=low) if low else of, s.device, **changes)
            bufs, up = part(of, lengths)
            trains = train or low

            def step():
                t.forward(dict(FORWARD, keep=bool(trains)), bufs)
                if trains:
                    t.backward(BACKWARD, up)
                    t.step({"options": STEP, "shapes": {k: list(p.shape) for k, p in t.params.items()}}, {})

            said_of = {k: v for k, v in t.describe().items() if k in ("attention", "optimizer", "head") or v and k == "passed_over"}
            measured = row(of, lengths, 3 if train else 2 if low else 1, *timed(s.device, step, times), said, reached)
            return dict(measured, **said_of, **({"where": where(step)} if s.device == "cuda" and not changes.get("recompute") else {}))

        return f

    def plain():
        if not hasattr(F, "scaled_dot_product_attention"):
            raise NotRun(f"PyTorch {torch.__version__} has no scaled_dot_product_attention")
        model = Plain(of).to(s.device)
        return row(of, lengths, 3, *timed(s.device, stepper(model, model, of, lengths, s.device), times), said, reached)

    def theirs():
        transformers = need("transformers")
        config = transformers.Qwen2Config(
            vocab_size=of["vocab"], hidden_size=of["hidden"], intermediate_size=of["intermediate"], num_hidden_layers=of["layers"],
            num_attention_heads=of["heads"], num_key_value_heads=of["kv_heads"], tie_word_embeddings=of["tied"], max_position_embeddings=32768,
        )  # fmt: skip
        with torch.device(s.device):
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float()
        model.train()
        return row(of, lengths, 3, *timed(s.device, stepper(model, lambda ids: model(input_ids=ids, use_cache=False).logits, of, lengths, s.device), times), said, reached)

    if train:
        out["worker"] = guarded(ours())
        if hasattr(torch, "compile"):
            out["worker, compiled blocks"] = guarded(ours(compile="always"))
        out["worker, recompute"] = guarded(ours(recompute=True))
        out["plain PyTorch"] = guarded(plain)
        out["transformers"] = guarded(theirs)
    else:
        out["worker, forward alone"] = guarded(ours(masters=False))
        # Gradients of the weights themselves are not computed: two passes' work.
        low = {"rank": 16, "scale": 2.0, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
        out["worker, LoRA"] = guarded(ours(masters=False, recompute=True, lora=low))
    done = {k: v for k, v in out.items() if isinstance(v, dict)}
    if not any(k.startswith("worker") for k in done):
        raise Failed(f"no step of the worker could be measured: {out}", **out)
    why = ", ".join(f"{k} {v['tokens/s']:.0f} tokens/s" for k, v in done.items())
    missing = [f"{k}: {v.removeprefix('not run: ')}" for k, v in out.items() if isinstance(v, str)]
    return why, dict(out, tokens=sum(lengths), sizes="tiny: no measure" if s.tiny else "full"), missing


def speed_05b_4k(s):
    return measure(s, "05b", 4096)


def speed_05b_16k(s):
    return measure(s, "05b", 16384)


def speed_15b_4k(s):
    return measure(s, "15b", 4096)


def speed_15b_16k(s):
    return measure(s, "15b", 16384)


def speed_7b_4k(s):
    return measure(s, "7b", 4096)


def speed_7b_16k(s):
    return measure(s, "7b", 16384)


def swap(s):
    """Export of the trainer's weights into a folder as bfloat16, and the sampler's swap to it, at each shape that is trained."""
    w, out = worker(), {}
    for name in ("05b", "15b"):
        of = (TINY if s.tiny else SHAPES)[name]()
        t = trainer(of, s.device)
        folder = pathlib.Path(s.scratch) / name
        folder.mkdir()
        head = torch.tensor(list(head_of(t.params)), dtype=torch.uint8)
        file = {"name": "model.safetensors", "head": len(head), "tensors": list(t.params), "merged": False, "dtype": "BF16"}
        began = time.perf_counter()
        answer = t.save({"id": 1, "dir": str(folder), "dtype": "BF16", "files": [file]}, {"heads": head})
        copied = time.perf_counter() - began
        answer["after"].__self__.run()  # the thread's work, here
        written = time.perf_counter() - began
        if "error" in t.channel.said[-1]:
            raise Failed(f"export: {t.channel.said[-1]['error']['message']}")
        x = w.sampler.Sampler(hello(of, s.device), torch.device(s.device), Nothing(), Nothing())
        fill(x.params, seed=9)
        began = time.perf_counter()
        x.prepare({"id": 2, "dir": str(folder), "files": [file["name"]], "number": 1, "keep": ""}, {})["after"].__self__.run()
        prepared = time.perf_counter() - began
        if "error" in x.channel.said[-1]:
            raise Failed(f"swap: {x.channel.said[-1]['error']['message']}")
        began = time.perf_counter()
        x.commit({"number": 1}, {})
        wait(s.device)
        paused = time.perf_counter() - began
        for k, p in x.params.items():
            if not torch.equal(p.to(torch.bfloat16), t.params[k].detach().to(torch.bfloat16)):
                raise Failed(f"{k} is not what was exported")
        size = sum(p.numel() for p in t.params.values()) * 2 / 2**30
        out[name] = {k: round(v, 4) for k, v in {"training stands": copied, "written": written, "read": prepared, "sampling stands": paused, "GiB": size}.items()}
        del t, x
        gc.collect()
    return "; ".join(f"{k}: export {v['written']} s, swap {v['sampling stands']} s" for k, v in out.items()), out
