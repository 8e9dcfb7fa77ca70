"""What the ranks of a group do together: they meet, share the model's parameters out, and add their gradients up."""

import datetime
import os

import torch
import torch.distributed as dist
from weir_folders import rows_of

BUCKET = 1 << 26


def meet(hello, device):
    """Joins the other ranks. Rank 0 keeps the store in which they find each other."""
    if hello["world"] == 1:
        return
    patience = datetime.timedelta(seconds=hello["patience"])
    store = hello.pop("_store", None) or dist.TCPStore(
        hello["host"], hello["port"], hello["world"], False, timeout=patience
    )
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", store=store, rank=hello["rank"], world_size=hello["world"], timeout=patience
    )


def open_store(hello):
    """Rank 0's store, on a port that the system picks."""
    patience = datetime.timedelta(seconds=hello["patience"])
    store = dist.TCPStore(hello["host"], 0, hello["world"], True, timeout=patience, wait_for_workers=False)
    hello["_store"] = store
    return store.port


def settle_memory():
    """Has PyTorch's memory of a GPU grow in place: parts differ in length from round to round, and pieces of other lengths would be left
    over. Nothing of it where the user has settings of their own, or PyTorch does not know them yet. It is read when a GPU is first
    used."""
    version = tuple(int("".join(c for c in x if c.isdigit()) or 0) for x in torch.__version__.split(".")[:2])
    if version >= (2, 1) and not {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"


def dtype_of(name, device):
    """The type of the products."""
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def build(make, options, world, compute, device):
    """Makes the model on the device: whole on every rank, or cut by fully_shard. Returns it, and whether it is cut. make gets the device, and
    whether the model is whole."""
    wanted = options["shard"]
    if wanted == "none" or wanted == "auto" and (world == 1 or device.type != "cuda"):
        return compiled(make(device, True), options), False
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except Exception as e:  # an old PyTorch on a new Python fails in ways of its own
        if wanted == "fsdp":
            raise ValueError(f"torch.shard: fsdp: this PyTorch has no fully_shard: {e}") from None
        return compiled(make(device, True), options), False
    policy = make(torch.device("meta"), False)
    compiled(policy, options)
    mesh = dist.device_mesh.init_device_mesh(device.type, (world,))
    for block in policy.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(compute, torch.float32, cast_forward_inputs=False))
    # The embedding, the last norm and the head are gathered as they are stored: their gradients are then summed as without a cut.
    fully_shard(policy, mesh=mesh, mp_policy=MixedPrecisionPolicy(None, torch.float32, cast_forward_inputs=False))
    policy.to_empty(device=device)
    policy.rotary.device = device
    policy.rotary.cos = policy.rotary.sin = torch.empty(0, len(policy.rotary.speeds), device=device)
    for module in cut_modules(policy):
        add_only(module, device)
    return policy, True


def cut_modules(policy):
    """The modules whose parameters fully_shard has cut."""
    return [m for m in policy.modules() if hasattr(m, "reshard")]


def cut_again(policy):
    """Lets go of gathered parameters, which fully_shard would take for those of the next pass."""
    for module in cut_modules(policy):
        module.reshard()


def add_only(module, device):
    """Has a module's gradients be sums over the ranks: what they are divided by is in the loss already. A factor of one is told to
    the collective operation itself, which gloo cannot do, unless it is to be a plain sum."""
    plain_sum = getattr(module, "set_force_sum_reduction_for_comms", None)
    if plain_sum is not None:
        plain_sum(True)
    elif device.type == "cpu":
        raise ValueError(
            f"torch.shard: fsdp: PyTorch {torch.__version__} cannot add gradients up on the processor: set it to none, or install a newer one"
        )
    for name in ("set_gradient_divide_factor", "set_reduce_scatter_divide_factor"):
        if hasattr(module, name):
            getattr(module, name)(1.0)
            return


def compiles(options, head, world):
    """What torch.compile auto is: always where the head's arithmetic is compiled too, which shows that the compiler works on this device, and
    the model is not cut."""
    return "always" if head == "fused" and (world == 1 or options["shard"] == "none") else "never"


def compiled(policy, options):
    """Has PyTorch compile the blocks, where the options ask for it."""
    if options["compile"] == "always":
        if not hasattr(policy.model.layers[0], "compile"):
            raise ValueError("torch.compile: this PyTorch cannot compile a module in place")
        policy.attention = torch.compiler.disable(policy.attention)
        for block in policy.model.layers:
            block.compile()
    return policy


def local(x):
    """This rank's part of a tensor that is cut, or the tensor."""
    return x.to_local() if hasattr(x, "to_local") else x


def part(whole, rank, world):
    """Rank's rows, as fully_shard cuts them."""
    lo, hi = rows_of(whole.shape[0], rank, world)
    return whole[lo:hi]


def gather(x, like, world):
    """The whole of a tensor that is cut as the parameter like is."""
    size = -(-like.shape[0] // world)
    room = x.new_zeros(size, *x.shape[1:])
    room[: x.shape[0]] = x
    parts = [torch.empty_like(room) for _ in range(world)]
    dist.all_gather(parts, room)
    return torch.cat(parts)[: like.shape[0]]


def add_up(tensors, world, tick):
    """Sums tensors over the ranks, in place, in buckets that are the same on each."""
    if world == 1:
        return
    bucket, size = [], 0
    for x in [*tensors, None]:
        if bucket and (x is None or size + x.numel() > BUCKET or x.dtype != bucket[0].dtype):
            flat = torch.cat([y.reshape(-1) for y in bucket])
            dist.all_reduce(flat)
            at = 0
            for y in bucket:
                y.copy_(flat[at : at + y.numel()].view_as(y))
                at += y.numel()
            bucket, size = [], 0
            tick()
        if x is not None:
            bucket.append(x)
            size += x.numel()


def norm(grads, whole, sharded, device):
    """The global L2 norm of gradients that may be cut, and of such as are whole on every rank."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for part in norms(grads, device):
        total += part.double().square().sum()
    if sharded:
        dist.all_reduce(total)
    for g in whole:
        total += g.double().square().sum()
    return total.sqrt().item()


def norms(grads, device):
    """The norms of tensors, in pieces: on a GPU in one reading of all of them where this PyTorch can, in float32; elsewhere each in float64."""
    if device.type == "cuda" and not torch.are_deterministic_algorithms_enabled():
        try:
            kinds = [[g for g in grads if g.dtype == kind] for kind in (torch.float32, torch.bfloat16)]
            return [torch.stack(torch._foreach_norm(some, 2, dtype=torch.float32)) for some in kinds if some]
        except (TypeError, RuntimeError, AttributeError):  # this PyTorch has no such form
            pass
    return [torch.linalg.vector_norm(g, dtype=torch.float64) for g in grads]
