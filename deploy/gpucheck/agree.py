"""Ways of computing the same that must agree: attention, recomputation, compilation, sharding, the head, sampler and trainer."""

import os
import pathlib
import socket
import types

import torch
from common import BACKWARD, FORWARD, ROOT, Failed, Nothing, NotRun, compare, hello, off, once, part, small, trainer, untied, worker

LENGTHS = [33, 1, 70, 128, 5]


def dtypes(s):
    """The types of products to check, each with the tolerance between two ways."""
    return {"float32": 1e-4, **({"bfloat16": 6e-2} if s.device == "cuda" else {})}


def attention(s):
    out, missing = {}, []
    for dtype, tolerance in dtypes(s).items():
        of = small()
        bufs, up = part(of, LENGTHS)
        want = once(trainer(of, s.device, dtype=dtype, attention="plain"), bufs, up)
        for name in ("sdpa", "varlen"):
            try:
                t = trainer(of, s.device, dtype=dtype, attention=name)
            except ValueError as e:  # this PyTorch or this type has none, or the probe refused it
                missing.append(f"{name} in {dtype}: {e}")
                continue
            out[f"{name} {dtype}"] = compare(f"{name} in {dtype}", once(t, bufs, up), want, tolerance)
    if not out:
        raise NotRun("; ".join(missing)[:300])
    return f"against plain: {', '.join(out)}", out, missing


def recompute(s):
    out = {}
    for dtype, tolerance in dtypes(s).items():
        bufs, up = part(small(), LENGTHS)
        want = once(trainer(small(), s.device, dtype=dtype), bufs, up)
        out[dtype] = compare("recomputation", once(trainer(small(), s.device, dtype=dtype, recompute=True), bufs, up), want, tolerance)
    return "against kept activations", out


def compile(s):  # noqa: A001 the step's name
    if not hasattr(torch, "compile"):
        raise NotRun(f"PyTorch {torch.__version__} has no torch.compile")
    bufs, up = part(small(), LENGTHS)
    want = once(trainer(small(), s.device, dtype="float32"), bufs, up)
    return "against uncompiled blocks", compare("a compiled model", once(trainer(small(), s.device, dtype="float32", compile="always"), bufs, up), want, 1e-3)


def lora(s):
    """Adapters against the weights with these added: outputs, and gradients by dB = scale dW A^T, dA = scale B^T dW."""
    out, scale, targets = {}, 2.0, ["q_proj", "v_proj", "down_proj"]
    for dtype, tolerance in dtypes(s).items():
        bufs, up = part(small(), LENGTHS)
        low = trainer(dict(small(), lora={"rank": 4, "scale": scale, "targets": targets}), s.device, dtype=dtype)
        whole, pairs = trainer(small(), s.device, dtype=dtype), {}
        for name, p in whole.params.items():
            p.data.copy_(low.params[name].data)
        for i, (name, p) in enumerate(sorted(low.trained.items())):
            g = torch.Generator().manual_seed(i)
            p.data.copy_(0.05 * torch.randn(p.shape, generator=g))
            pairs.setdefault(name.removeprefix("base_model.model.").rpartition(".lora_")[0], {})[name[-8]] = name
        for module, ab in pairs.items():
            a, b = low.params[ab["A"]].data, low.params[ab["B"]].data
            whole.params[module + ".weight"].data.add_(scale * b @ a)
        whole.rewritten()
        got, want = once(low, bufs, up), once(whole, bufs, up)
        gradients = {}
        for module, ab in pairs.items():
            a, b, dw = low.params[ab["A"]].data.cpu(), low.params[ab["B"]].data.cpu(), want[1][module + ".weight"]
            gradients[ab["A"]], gradients[ab["B"]] = scale * b.t() @ dw, scale * dw @ a.t()
        out[dtype] = compare(f"LoRA in {dtype}", got, (want[0], gradients), tolerance)
    return f"adapters of {', '.join(targets)} against merged weights", out


def optimizer(s):
    """The fused steps against the plain ones; on a GPU a trainer must have them."""
    module = worker().optimizer
    if s.device == "cuda":
        said = trainer(small(), s.device).describe()
        if said["optimizer"] != "fused":
            raise Failed(f"the optimizer is {said['optimizer']}: {said['passed_over']}")
    why = module.disagreement(torch.device(s.device))
    if why and s.device == "cpu":
        raise NotRun(f"PyTorch {torch.__version__} has no fused AdamW for the processor: {why}")
    if why:
        raise Failed(f"the fused optimizer: {why}")
    return "the fused steps against the plain ones", {}


def deterministic(s):
    """With deterministic algorithms alone: a part packed in two ways has the same bits, and a token can be drawn."""
    before, out = torch.are_deterministic_algorithms_enabled(), {}
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        for dtype in dtypes(s):
            whole = once(trainer(small(), s.device, dtype=dtype, deterministic=True), *part(small(), LENGTHS))
            again = once(trainer(small(), s.device, dtype=dtype, deterministic=True), *part(small(), LENGTHS))
            first, n = part(small(), LENGTHS)[0], LENGTHS[0]
            first = {k: x[: {"offsets": 2, "temperature": 1}.get(k, n)] for k, x in first.items()}
            alone = dict(trainer(small(), s.device, dtype=dtype, deterministic=True).forward(FORWARD, first))
            same = all(torch.equal(a[k], b[k]) for a, b in zip(whole, again) for k in b)
            same = same and all(torch.equal(whole[0][k][:n], alone[k]) for k in alone)
            if not same:
                raise Failed(f"the same part in {dtype} has other bits in other company, or a second time")
            out[dtype] = "the same bits"
        item = types.SimpleNamespace(temperature=1.0, u=0.5, top=0)
        worker().sampler.draw(torch.randn(1, 1000, device=s.device), [item])
    finally:
        torch.use_deterministic_algorithms(before)
    return "the same bits twice and in other company, and a drawn token", out


def gradcheck(s):
    """The head's own source, its types widened to float64, under PyTorch's gradcheck; and as it is, against autograd in float64."""
    source = (ROOT / "gpu" / "torch" / "worker" / "head.py").read_text(encoding="utf-8")
    worker()  # the modules that the source imports
    wide = types.ModuleType("wide")
    exec(source.replace("torch.float32", "torch.float64").replace(".float()", ".double()"), wide.__dict__)
    out = {}
    for device in {"cpu", s.device}:
        g = torch.Generator().manual_seed(2)
        hidden, head = torch.randn(19, 7, generator=g).double().to(device), torch.randn(23, 7, generator=g).double().to(device)
        targets, temperature = torch.randint(0, 23, (19,), generator=g).to(device), (0.5 + torch.rand(19, generator=g)).double().to(device)
        hidden.requires_grad_()
        head.requires_grad_()

        def run(h, w):
            return wide.Distribution.apply(h, w, targets, temperature, wide.Plain(), lambda: None)[:2]

        if not torch.autograd.gradcheck(run, (hidden, head), raise_exception=False):
            torch.autograd.gradcheck(run, (hidden, head))  # says where
        logits = hidden @ head.t() / temperature[:, None]
        lp = logits.log_softmax(-1)
        want = [lp.gather(1, targets[:, None])[:, 0], -(lp * lp.exp()).sum(1), lp.exp().square().sum(1)]
        up = [torch.randn(19, generator=g).double().to(device) for _ in range(2)]
        grads = torch.autograd.grad(want[:2], (hidden, head), up)
        h, w = hidden.detach().float().requires_grad_(), head.detach().float().requires_grad_()
        got = worker().head.Distribution.apply(h, w, targets, temperature.float(), worker().head.Plain(), lambda: None)
        back = torch.autograd.grad(got[:2], (h, w), [u.float() for u in up])
        out[device] = max(off(a, b) for a, b in zip([*got, *back], [*want, *grads]))
        if not out[device] <= 1e-4:
            raise Failed(f"the head in float32 is off by {out[device]:.2g} on {device}", **out)
    return "float64 by gradcheck; float32 against float64", out


def head(s):
    """The compiled arithmetic of the head against the plain one, over several chunks; on a GPU a trainer must have it."""
    module, out = worker().head, {}
    if s.device == "cuda":
        said = trainer(small(), s.device).describe()
        if said["head"] != "fused":
            raise Failed(f"the head is {said['head']}: {said['passed_over']}")
    if not hasattr(torch, "compile"):
        raise NotRun(f"PyTorch {torch.__version__} has no torch.compile")
    for dtype, tolerance in dtypes(s).items():
        results, kind = [], getattr(torch, dtype)
        for ways in (module.Fused(), module.Plain()):
            ways.CHUNK = 64 * 1009
            g = torch.Generator().manual_seed(3)
            hidden, weight = (torch.randn(n, 32, generator=g).to(s.device, kind).requires_grad_() for n in (150, 1009))
            targets, temperature = torch.randint(0, 1009, (150,), generator=g).to(s.device), (0.5 + torch.rand(150, generator=g)).to(s.device)
            got = module.Distribution.apply(hidden, weight, targets, temperature, ways, lambda: None)
            up = [torch.randn(150, generator=g).to(s.device) for _ in range(2)]
            grads = torch.autograd.grad(got[:2], (hidden, weight), up)
            results.append((dict(zip(("logprobs", "entropies", "squares"), (x.detach() for x in got))), dict(zip(("hidden", "head"), grads))))
        out[dtype] = compare(f"the fused head in {dtype}", *results, 1e-4 if dtype == "float32" else 1e-2)
    return "compiled against plain", out


# fully_shard.


def rank_of(rank, world, port, device, folder, of, lengths, sharded, dtype):
    """One rank: it trains on a part of its own and leaves its gradients, put together, in a file."""
    w = worker()
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=store, rank=rank, world_size=world)
    t = w.training.Trainer(
        hello(of, device, rank, world, dtype=dtype, shard="fsdp" if sharded else "none"), torch.device(device), Nothing(), Nothing()
    )
    whole = trainer(of, "cpu", dtype=dtype).params
    with torch.no_grad():
        for name, p in t.params.items():
            x = whole[name].to(device)
            w.ranks.local(p.data).copy_(w.ranks.part(x, rank, world) if sharded else x)
    t.rewritten()
    bufs, up = part(of, lengths, seed=10 + rank)
    t.forward(FORWARD, bufs)
    t.backward(BACKWARD, up)
    grads = t.gradients()
    if sharded:
        grads = {name: w.ranks.gather(g, t.params[name], world) for name, g in grads.items()}
    else:
        w.ranks.add_up(list(grads.values()), world, lambda: None)
    if rank == 0:
        torch.save({k: g.cpu() for k, g in grads.items()}, pathlib.Path(folder) / "grads.pt")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads outlive their group now and then, and the interpreter's own end then aborts


def free_port():
    with socket.socket() as x:
        x.bind(("127.0.0.1", 0))
        return x.getsockname()[1]


def fsdp(s, world, device, sharded, dtype="float32", of=None, only=""):
    """The gradients of ranks, put together, against the sum of each alone; in bfloat16 only those that it leaves in float32."""
    of = of or small()
    torch.multiprocessing.spawn(rank_of, (world, free_port(), device, s.scratch, of, LENGTHS, sharded, dtype), world)
    got = torch.load(pathlib.Path(s.scratch) / "grads.pt")
    want = None
    for rank in range(world):
        # Cut models run on the weights themselves: the products of copies are others, which bfloat16 shows.
        _, g = once(trainer(of, "cpu", copied=False, dtype=dtype), *part(of, LENGTHS, seed=10 + rank))
        want = g if want is None else {k: want[k] + g[k] for k in g}
    far = max(off(got[k], want[k]) for k in want if only in k)
    if not far <= 1e-4:
        raise Failed(f"the gradients of {world} ranks in {dtype} are off by {far:.2g} from the sum of each alone", gradients=far)
    return {"gradients": far, "world": world}


def can_shard():
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except Exception as e:
        return f"PyTorch {torch.__version__} has no fully_shard: {type(e).__name__}"
    return ""


def fsdp_one(s):
    if can_shard():
        raise NotRun(can_shard())
    if s.device != "cuda":
        raise NotRun("there is no GPU")
    return "fully_shard at world 1 over nccl", fsdp(s, 1, "cuda", True)


def fsdp_gloo(s):
    os.environ.update(CUDA_VISIBLE_DEVICES="", GLOO_SOCKET_IFNAME="lo")  # else fully_shard takes to the GPU
    if can_shard():
        raise NotRun(f"{can_shard()}; whole copies over gloo at world 4 agree: off by {fsdp(s, 4, 'cpu', False)['gradients']:.2g}")
    low = {k: fsdp(s, 2, "cpu", True, "bfloat16", untied(), k)["gradients"] for k in ("embed_tokens", "lm_head")}
    return "fully_shard at world 4 over gloo; in bfloat16 the embedding's and the head's gradients", dict(fsdp(s, 4, "cpu", True), bfloat16=low)


# The sampler.


def sampler(s):
    """Tokens drawn at two temperatures, a token a call, and the trainer's log-probabilities of them from the same weights."""
    w, out = worker(), {}
    of = small()
    for dtype, tolerance in dtypes(s).items():
        t = trainer(of, s.device, dtype=dtype)
        x = w.sampler.Sampler(hello(of, s.device, dtype=dtype), torch.device(s.device), Nothing(), Nothing())
        for name, p in x.params.items():
            p.data.copy_(t.params[name].data)
        g = torch.Generator().manual_seed(5)
        seqs = [torch.randint(0, of["vocab"], (n,), generator=g).int() for n in (3, 9, 1, 30)]
        temps, said, held = [1.0, 0.6, 1.0, 1.3], [[] for _ in seqs], [0] * len(seqs)
        for _ in range(24):
            fresh = [q[h:] for q, h in zip(seqs, held)]
            n = len(seqs)
            answer = dict(x.extend({"moves": []}, {
                "slots": torch.arange(n, dtype=torch.int32), "starts": torch.tensor(held, dtype=torch.int32),
                "counts": torch.tensor([len(f) for f in fresh], dtype=torch.int32), "sample": torch.ones(n, dtype=torch.uint8),
                "temperature": torch.tensor(temps), "u": torch.rand(n, generator=g, dtype=torch.float64), "top": torch.zeros(n, dtype=torch.int32),
                "tokens": torch.cat(fresh),
            }))  # fmt: skip
            held = [len(q) for q in seqs]
            seqs = [torch.cat([q, answer["tokens"][i : i + 1]]) for i, q in enumerate(seqs)]
            for i in range(n):
                said[i].append(answer["logprobs"][i].item())
        bufs = {
            "tokens": torch.cat(seqs), "mask": torch.ones(sum(map(len, seqs)), dtype=torch.uint8),
            "offsets": torch.tensor([0] + [len(q) for q in seqs]).cumsum(0).int(), "temperature": torch.tensor(temps),
        }  # fmt: skip
        lp, at, far = dict(t.forward(dict(FORWARD, keep=False), bufs))["logprobs"], 0, []
        for q, mine in zip(seqs, said):
            at += len(q)
            far.append((lp[at - len(mine) : at] - torch.tensor(mine)).abs())
        far = torch.cat(far)
        out[dtype] = {"mean": far.mean().item(), "max": far.max().item(), "tokens": far.numel()}
        if not out[dtype]["max"] <= (1e-3 if dtype == "float32" else 0.2) or not out[dtype]["mean"] <= (1e-4 if dtype == "float32" else 0.03):
            raise Failed(f"sampler and trainer differ in {dtype} by {out[dtype]['max']:.2g} at most", **out)
    return "log-probabilities of drawn tokens, in nats", out
