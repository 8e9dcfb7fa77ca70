"""What the worker's parts promise, each tried by itself on the processor: contract.py NAME. Exit status: 0 where it holds, 1 where it does
not, 77 where this PyTorch lacks what it is about."""

import os
import pathlib
import sys
import tempfile
import types

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy" / "gpucheck"))
import agree  # noqa: E402
from common import FORWARD, part, shape, trainer, untied, worker, write_safetensors  # noqa: E402

SETS = [{"logprobs"}, {"entropies"}, {"logprobs", "entropies"}, {"values"}, {"logprobs", "entropies", "values"}]


class Absent(Exception):
    """This PyTorch lacks what is tried."""


def models():
    """Small models: tied, untied, and with adapters beside frozen weights."""
    for tied in (True, False):
        of = shape(61, 16, 24, 2, 4, 2, 4, tied, bias=True, norm=True, value=True)
        yield f"tied {tied}", of
        yield f"tied {tied}, adapters", dict(of, lora={"rank": 2, "scale": 2.0, "targets": ["q_proj", "down_proj"]})


def ran(of, lengths, names, groups, detached=False, **options):
    """One rank's share of a round of a cut model: how often it ran the model, and what has a gradient after."""
    t = trainer(of, "cpu", dtype="float32", **options)
    t.sharded, runs, forward = True, [], t.policy.forward
    t._let_go = lambda: None  # nothing is cut in truth

    def counted(*x):
        runs.append(x)
        return forward(*x)

    t.policy.forward = counted
    bufs, up = part(of, lengths)
    up["values"] = torch.ones(sum(lengths))
    t.forward(dict(FORWARD, groups=groups, values_only=names == {"values"}), bufs)
    mine = names if lengths else ()
    t.backward({"detached": detached, "names": sorted(names)}, {k: up[k] for k in mine})
    return len(runs), sorted(k for k, p in t.trained.items() if p.grad is not None)


def idle_rank():
    """A rank that a round has no part for reduces what the others reduce, whatever has gradients."""
    for what, of in models():
        for names in SETS:
            for detached in (False, True):
                busy, idle = (ran(of, lengths, names, 1, detached)[1] for lengths in ([5, 3], []))
                assert busy and busy == idle, f"{what}, gradients of {sorted(names)}: reduced by one rank alone: {sorted(set(busy) ^ set(idle))}"


def mixed_round():
    """So does a rank whose part has gradients of fewer outputs than another's of the round."""
    for what, of in models():
        t = trainer(of, "cpu", dtype="float32")
        t.sharded, seen = True, []
        for given in ({"logprobs"}, {"values"}, set()):
            bufs, up = part(of, [4, 4])
            up["values"] = torch.ones(8)
            t.forward(FORWARD, bufs)
            t.backward({"detached": False, "names": ["logprobs", "values"]}, {k: up[k] for k in given})
            seen.append(sorted(k for k, p in t.trained.items() if p.grad is not None))
            t.discard({}, {})
        assert seen[0] and seen[0] == seen[1] == seen[2], f"{what}: {seen}"


def runs():
    """With deterministic, where each sequence is run by itself, every rank runs the model as often."""
    for what, of in models():
        counts = {n: ran(of, [4] * n, {"logprobs"}, 3, deterministic=True)[0] for n in (3, 1, 0)}
        assert set(counts.values()) == {3}, f"{what}: runs of the model by the sequences of a rank's part: {counts}"
        counts = {n: ran(of, [4] * n, {"logprobs"}, 1)[0] for n in (3, 1, 0)}
        assert set(counts.values()) == {1}, f"{what}: runs of the model by the sequences of a rank's part: {counts}"


def kernel_of(params, grads, first, second, _, counts, *, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize):
    """PyTorch's fused kernel in plain operations: fused_adam_utils.cuh takes the count as it is."""
    for p, g, m, v, count in zip(params, grads, first, second, counts):
        p.mul_(1 - lr * weight_decay)
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        down = (v.sqrt() / (1 - beta2 ** count.item()) ** 0.5).add_(eps)
        p.addcdiv_(m, down, value=-lr / (1 - beta1 ** count.item()))


def stepped(update, steps=4):
    """Parameters and moments after some steps of an optimizer, a part of no rows among them."""
    optimizer = worker().optimizer.Optimizer(torch.device("cpu"), torch.float32)
    optimizer.update = update
    generator = torch.Generator().manual_seed(4)
    params = {k: torch.randn(n, 3, generator=generator) for k, n in (("a", 5), ("b", 1), ("none", 0), ("value_head.weight", 1))}
    options = {
        "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "clip_norm": 1.0, "learning_rate": 1e-2, "value_learning_rate": 3e-2,
        "weight_decay": 0.1, "matrices": {"a": True, "b": False, "none": True, "value_head.weight": True},
    }  # fmt: skip
    for i in range(steps):
        grads = {k: torch.randn(p.shape, generator=generator) for k, p in params.items()}
        assert optimizer.step(params, grads, 0.5 + i, options, lambda: None)
    return [*params.values(), *(x for k in params for x in optimizer.of(k, params[k]))]


def hold_fused():
    """Holds the fused steps to the plain ones."""
    module = worker().optimizer
    why = module.disagreement(torch.device("cpu"))
    assert not why, f"the fused optimizer is never used: {why}"
    for a, b in zip(stepped(module.fused_steps), stepped(module.plain_steps)):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6), (a - b).abs().max().item()


def fused_rule():
    """The fused steps are the plain ones, by a stand-in that counts as PyTorch's kernel does."""
    before = getattr(torch, "_fused_adamw_", None)
    torch._fused_adamw_ = kernel_of
    try:
        hold_fused()
    finally:
        torch._fused_adamw_ = before


def fused_kernel():
    """And by the kernel itself, on the processor."""
    if not hasattr(torch, "_fused_adamw_"):
        raise Absent("fused AdamW")
    try:
        x = [torch.ones(1)]
        torch._fused_adamw_(x, x, x, x, [], x, lr=0.0, beta1=0.9, beta2=0.9, weight_decay=0.0, eps=1.0, amsgrad=False, maximize=False)
    except NotImplementedError:
        raise Absent("fused AdamW for the processor") from None
    hold_fused()


def varlen():
    """Attention over packed sequences gets the key heads as they are where it takes them, and a copy for each query head elsewhere."""
    attention = worker().attention
    of, seen = {"heads": 6, "kv_heads": 2, "head_dim": 4}, []

    def kernel(q, k, v, bounds, causal, takes):
        seen.append(k.shape[1])
        if k.shape[1] != q.shape[1] and not takes:
            raise ValueError("as many key heads as query heads")
        lengths = (bounds[1:] - bounds[:-1]).tolist()
        assert causal
        return attention.plain(q, k, v, attention.Packing(lengths, q.device))

    def newest(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, *, window_size=(-1, -1), enable_gqa=False):
        return kernel(q, k, v, cu_seq_q, window_size == (-1, 0), enable_gqa)

    def older(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False):
        return kernel(q, k, v, cu_seq_q, is_causal, False)

    def silent(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False):
        out = kernel(q, k, v, cu_seq_q, is_causal, True)
        return out if k.shape[1] == q.shape[1] else out * 2

    before = attention.candidates
    for function, heads, passed in ((newest, 2, 0), (older, 6, 1), (silent, 6, 1)):
        attention.candidates = lambda name, f=function: attention.varlen_of(f) if name == "varlen" else before(name)
        try:
            name, way, over = attention.choose("varlen", of, torch.float32, torch.device("cpu"))
        finally:
            attention.candidates = before
        assert name == "varlen" and len(over) == passed, (function.__name__, over)
        q, k = torch.randn(9, 6, 4), torch.randn(9, 2, 4)
        packing = attention.Packing([4, 5], q.device)
        assert torch.allclose(way(q, k, k, packing), attention.plain(q, k, k, packing), atol=1e-6)
        assert seen[-1] == heads, (function.__name__, seen[-1])


class Far:
    """Numbers on a GPU, as far as running_sums looks."""

    is_cuda, device = True, torch.device("cpu")

    def __init__(self, x):
        self.x, self.asked = x, []

    def cpu(self):
        self.asked.append("cpu")
        return self.x

    def cumsum(self, dim):
        self.asked.append("cumsum")
        return self.x.cumsum(dim)


def running_sums():
    """Deterministic sums of a GPU's numbers are made on the processor, since PyTorch refuses its own, and are those sums."""
    sampler, x = worker().sampler, torch.rand(3, 500, dtype=torch.float64)
    for deterministic, way in ((False, "cumsum"), (True, "cpu")):
        torch.use_deterministic_algorithms(deterministic)
        try:
            far = Far(x)
            assert torch.equal(sampler.running_sums(far), x.cumsum(1)) and torch.equal(sampler.running_sums(x), x.cumsum(1))
        finally:
            torch.use_deterministic_algorithms(False)
        assert far.asked == [way], (deterministic, far.asked)


def slices():
    """A rank of a cut model reads its own rows of a file, and not a byte beside them."""
    folders, ranks = worker().folders, worker().ranks
    tensors = {"w": torch.randn(7, 6), "b": torch.arange(9.0), "flat": torch.arange(12.0), "none": torch.zeros(0, 3)}
    shapes = {"w": [7, 6], "b": [9], "flat": [4, 3], "none": [0, 3]}
    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(os.path.join(folder, "x.safetensors"), tensors)
        files, taken = folders.Files(folder, ["x.safetensors"]), []

        def counted(*x, **y):
            f = open(*x, **y)

            class Counted:
                def __enter__(self):
                    return self

                def __exit__(self, *_):
                    f.close()

                def seek(self, at):
                    f.seek(at)

                def readinto(self, view):
                    n = f.readinto(view)
                    taken.append(n)
                    return n

            return Counted()

        folders.open = counted
        for world in (1, 2, 3, 8):
            for name, shape_of in shapes.items():
                whole, parts = tensors[name].bfloat16().view(shape_of), []
                for rank in range(world):
                    taken.clear()
                    got = files.read(name, (rank, world), shape_of)
                    assert torch.equal(got, ranks.part(whole, rank, world)), (name, rank, world)
                    assert sum(taken) == 2 * got.numel(), f"{name}: rank {rank} of {world} read {sum(taken)} bytes for {got.numel()} numbers"
                    parts.append(got)
                assert torch.equal(torch.cat(parts), whole), (name, world)


def head_in_one_pass():
    """The gradient of the head that is written for a compiler is that of the plain steps, and autograd's."""
    head = worker().head
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        g = torch.Generator().manual_seed(4)
        logits, temperature = (3 * torch.randn(7, 301, generator=g)).to(dtype), 0.5 + torch.rand(7, generator=g)
        targets, up = torch.randint(0, 301, (7,), generator=g), [torch.randn(7, generator=g) for _ in range(2)]
        lp, entropies, _, logz = head.Plain.measure(logits, temperature, targets)
        x = (logits.float() / temperature[:, None]).requires_grad_()
        p = x.log_softmax(1)
        (want,) = torch.autograd.grad([p.gather(1, targets[:, None])[:, 0], -(p * p.exp()).sum(1)], x, up)
        want = want / temperature[:, None]
        for way in (head.Plain.slope, head.slope_in_one_pass):
            got = way(logits, temperature, targets, logz, entropies, *up)
            off = (got.float() - want).abs().max().item() / want.abs().max().item()
            assert got.dtype == dtype and off <= tolerance, (way.__name__, dtype, off)
        assert (lp - p.detach().gather(1, targets[:, None])[:, 0]).abs().max() <= 1e-5


def compile_auto():
    """torch.compile auto compiles blocks where the head's arithmetic could be compiled and the model is whole, and nowhere else."""
    compiles = worker().ranks.compiles
    for head, shard, world, want in (
        ("fused", "auto", 1, "always"), ("fused", "none", 4, "always"), ("fused", "auto", 4, "never"), ("plain", "auto", 1, "never"),
    ):  # fmt: skip
        assert compiles({"shard": shard}, head, world) == want, (head, shard, world)
    assert trainer(untied(), "cpu", compile="auto").describe()["compile"] == "never"


def copies():
    """A model that runs on copies of its float32 weights has the gradients of one that does not, sums those of several passes, steps its
    float32 weights, and has copies of them after."""
    for of in (dict(untied(), value_head=True), shape(61, 16, 24, 2, 4, 2, 4, True, norm=True)):
        bufs, up = part(of, [5, 9, 1])
        t, apart = (trainer(of, "cpu", dtype="bfloat16", attention="plain", deterministic=x) for x in (False, True))
        assert t.store is not None and apart.store is None and set(t.params) == set(apart.params)
        results = [agree.once(x, bufs, up) for x in (t, apart)]
        agree.compare("a model of copies", *results, 8e-2)
        doubled = {k: 2 * g for k, g in results[0][1].items()}
        t.forward(FORWARD, bufs)
        t.backward({"detached": False, "names": ["logprobs", "entropies"]}, up)
        for k, g in t.gradients().items():
            assert g.dtype == torch.float32 and agree.off(g, doubled[k]) <= 1e-2, k
        before, options = {k: p.clone() for k, p in t.params.items()}, {
            "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "clip_norm": 1.0, "learning_rate": 1e-2, "value_learning_rate": 0, "weight_decay": 0.1,
        }  # fmt: skip
        shapes = {k: list(p.shape) for k, p in {**t.params, "value_head.weight": torch.zeros(1, 1)}.items()}
        assert not t.step({"options": options, "shapes": shapes}, {})["skipped"]
        assert all(not torch.equal(p, before[k]) for k, p in t.params.items())
        assert all(torch.equal(p.detach(), t.store.masters[k].to(p.dtype)) for k, p in t.store.leaves.items())
        assert all(x.shape == t.params[k].shape for k in t.params for x in t._moments(k))


def kernels():
    """The kernels do what the plain steps do, by Triton's interpreter, whose bfloat16 is not rounded as a GPU's: the optimizer's copies are
    left out."""
    w = worker()
    if w.kernels.triton is None or not hasattr(w.kernels.triton.runtime, "interpreter"):
        raise Absent("Triton with an interpreter")
    cpu = torch.device("cpu")
    for kind in (torch.float32, torch.bfloat16):
        for vocabulary in (100, 3008, 5000):
            why = w.head.disagreement(w.head.Kernels(), {"vocab": vocabulary}, kind, cpu)
            assert not why, (kind, vocabulary, why)

    def steps(params, m, v, grads, copied, o, tick):
        w.optimizer.Launching()(params, m, v, grads, copied, o, tick)
        for p, copy in zip(params, copied):
            copy.copy_(p)

    why = w.optimizer.copying_disagreement(steps, cpu, torch.bfloat16)
    assert not why, why


def ferry():
    """Tensors that are carried by pieces are the tensors, of every type and length, and none of the device's memory is shared."""
    folders = worker().folders
    wanted = [torch.randn(n, 3).to(dtype) for n in (0, 1, 5, 40) for dtype in (torch.float32, torch.bfloat16)]
    wanted += [torch.randn(()), torch.randn(9, 7).t(), torch.randn(33)]
    for piece in (8, 24, 1 << 12):
        f = folders.Ferry(torch.device("cpu"), piece)
        got = [f.carry(x) for x in wanted]
        f.finish()
        assert f.waiting == [None, None]
        for a, b in zip(got, wanted):
            assert a.dtype == b.dtype and torch.equal(a, b), (piece, b.shape)
            assert not b.numel() or a.data_ptr() != b.data_ptr()
    x = torch.ones(3)
    assert folders.ferry(x.device).carry(x).data_ptr() != x.data_ptr()


def memory():
    """PyTorch takes the settings for its memory that the worker gives it, and those of the user before them."""
    seen = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    if seen is None:
        raise Absent("way to tell its allocator's settings")
    os.environ.pop("PYTORCH_ALLOC_CONF", None)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:100"
    worker().ranks.settle_memory()
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:100"
    del os.environ["PYTORCH_CUDA_ALLOC_CONF"]
    worker().ranks.settle_memory()
    assert seen() == "expandable_segments:True", seen()


def half_sums():
    """Ranks that cut a model in bfloat16 sum the embedding's and the head's gradients in float32, as one that is whole does."""
    if agree.can_shard():
        raise Absent("fully_shard")
    with tempfile.TemporaryDirectory() as scratch:
        for of in (untied(), dict(untied(), tied=True)):
            for name in ("embed_tokens", "lm_head")[: 1 if of["tied"] else 2]:
                print(name, agree.fsdp(types.SimpleNamespace(scratch=scratch), 2, "cpu", True, "bfloat16", of, name))


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.update(CUDA_VISIBLE_DEVICES="", GLOO_SOCKET_IFNAME="lo", TRITON_INTERPRET="1")
    try:
        globals()[sys.argv[1]]()
    except Absent as e:
        print(f"PyTorch {torch.__version__} has no {e}")
        sys.exit(77)
