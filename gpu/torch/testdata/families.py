"""Tiny folders of other families with drawn weights, what Transformers makes of a step on them, and what it reads of an exported one."""

import json
import os
import pathlib
import random
import struct
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.utils import logging

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy" / "gpucheck"))
from common import Nothing, hello, worker  # noqa: E402

logging.disable_progress_bar()
torch.set_num_threads(1)
BASE = dict(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
EXPERTS = dict(num_experts_per_tok=2)
FAMILIES = {
    "gemma2": ("gemma2", dict(head_dim=8, sliding_window=8, query_pre_attn_scalar=8, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3": ("gemma3_text", dict(head_dim=8, sliding_window=8, query_pre_attn_scalar=8, layer_types=["sliding_attention", "full_attention"])),
    "mistral": ("mistral", dict(head_dim=8, sliding_window=8)),
    "phi3": ("phi3", {}),
    "phi4": ("phi3", dict(partial_rotary_factor=0.5, tie_word_embeddings=True)),
    "olmo2": ("olmo2", {}),
    "smollm3": ("smollm3", dict(no_rope_layers=[1, 0])),
    "granite": ("granite", dict(logits_scaling=4.0, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3)),
    "qwen3_moe": ("qwen3_moe", dict(head_dim=8, num_experts=4, moe_intermediate_size=16, **EXPERTS)),
    # Its noise is for its own training: Weir adds none.
    "mixtral": ("mixtral", dict(num_local_experts=4, router_jitter_noise=0.1, **EXPERTS)),
    "granitemoe": ("granitemoe", dict(num_local_experts=4, **EXPERTS)),
    "gpt_neox": ("gpt_neox", {}),
    "glm4": ("glm4", dict(head_dim=8)),
    "yarn": ("llama", dict(rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, rope_theta=1e4))),
}


def make(name, folder, dtype):
    kind, more = FAMILIES[name]
    torch.manual_seed(5)
    net = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind].from_dict(dict(BASE, **more)))
    with torch.no_grad():
        for p in net.parameters():
            p.normal_(0, 0.25)
    net.to(getattr(torch, dtype)).save_pretrained(folder)
    return sorted(net.state_dict())


def read(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def sequences(q):
    bounds = q["offsets"]
    return [(q["tokens"][lo:hi], q["mask"][lo:hi], t, lo) for lo, hi, t in zip(bounds, bounds[1:], q["temperature"]) if hi > lo]


def measured(net, q):
    """Log-probabilities, entropies and sums of squares of a part, and the loss that the given gradients are those of."""
    n = len(q["tokens"])
    out = {k: [0.0] * n for k in ("logprobs", "entropies", "squares")}
    loss = torch.zeros(())
    for tokens, mask, temperature, lo in sequences(q):
        logits = net(torch.tensor([tokens])).logits[0].float() / temperature
        logp = logits.log_softmax(-1)
        for i in range(1, len(tokens)):
            if not mask[i]:
                continue
            row = logp[i - 1]
            entropy = -(row.exp() * row).sum()
            out["logprobs"][lo + i], out["entropies"][lo + i], out["squares"][lo + i] = row[tokens[i]].item(), entropy.item(), row.exp().square().sum().item()
            loss = loss + q["up_logprobs"][lo + i] * row[tokens[i]] + q["up_entropies"][lo + i] * entropy
    return out, loss


def step(net, q):
    decayed = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() <= 1]
    o = q["options"]
    made = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=o["decay"]), dict(params=others, weight_decay=0.0)], lr=o["lr"], betas=(0.9, 0.95), eps=1e-6
    )
    norms, first = [], {}
    for _ in range(2):
        outputs, loss = measured(net, q)
        made.zero_grad()
        loss.backward()
        first = first or {k: torch.zeros_like(p) if p.grad is None else p.grad.clone() for k, p in net.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), o["clip"]).item())
        made.step()
    return outputs, norms, first


def sampled(net, tokens):
    with torch.no_grad():
        return net(torch.tensor([tokens])).logits[0, -1].float().log_softmax(-1).tolist()


def files_of(folder):
    return sorted(f for f in os.listdir(folder) if f.endswith(".safetensors"))


def shape_of(folder):
    """A folder's model as Weir's Go side describes it to the worker."""
    config = json.load(open(os.path.join(folder, "config.json")))
    for key in ("dtype", "torch_dtype", "transformers_version"):
        config.pop(key, None)
    tensors = {}
    for name in files_of(folder):
        with open(os.path.join(folder, name), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        header.pop("__metadata__", None)
        tensors.update({name: x["shape"] for name, x in header.items()})
    return {"vocab": config["vocab_size"], "hidden": config["hidden_size"], "value_head": False, "transformers": {"config": config, "tensors": tensors}}


def drawn_part():
    """A part of several sequences, with the gradients of a loss and the options of a step."""
    r = random.Random(7)
    q = dict(tokens=[], mask=[], offsets=[0], temperature=[], up_logprobs=[], up_entropies=[], options=dict(lr=1e-2, decay=0.1, clip=1.0))
    for n in (30, 4, 0, 27, 1):
        q["tokens"] += [r.randrange(3, 61) for _ in range(n)]
        q["mask"] += [min(1, i, r.randrange(4)) for i in range(n)]
        q["up_logprobs"] += [r.gauss(0, 1) for _ in range(n)]
        q["up_entropies"] += [r.gauss(0, 1) for _ in range(n)]
        q["offsets"].append(len(q["tokens"]))
        q["temperature"].append(0.5 + r.random())
    return q


def furthest(a, b):
    return max((abs(x - y) for x, y in zip(a, b)), default=0.0)


def trained(folder, q, **options):
    """The worker's trainer after two steps, its outputs at the second, the norms and the first step's gradient."""
    of = shape_of(folder)
    t = worker().training.Trainer(hello(of, "cpu", dtype="float32", **options), torch.device("cpu"), Nothing(), Nothing())
    t.load({"dir": folder, "files": files_of(folder), "zeros": [], "moments": False, "shapes": of["transformers"]["tensors"]}, {})
    bufs = {k: torch.tensor(q[k], dtype=d) for k, d in (("tokens", torch.int32), ("mask", torch.uint8), ("offsets", torch.int32), ("temperature", torch.float32))}
    o, norms, first = q["options"], [], {}
    step = dict(learning_rate=o["lr"], value_learning_rate=0, beta1=0.9, beta2=0.95, epsilon=1e-6, weight_decay=o["decay"], clip_norm=o["clip"])
    for _ in range(2):
        out = dict(t.forward({"keep": True, "values_only": False, "groups": 1}, bufs))
        t.backward({"detached": False, "names": []}, {k: torch.tensor(q["up_" + k]) for k in ("logprobs", "entropies")})
        first = first or {k: g.clone() for k, g in t.store.gradients(True).items()}
        norms.append(t.step({"shapes": of["transformers"]["tensors"], "options": step}, {})["norm"])
    return t, out, norms, first


def drawn_by(sampler, prompts, q):
    """The log-probabilities of all tokens after prompts that grow side by side: in a piece, and token by token."""
    n, held, out = len(prompts), [len(p) - 4 - i for i, p in enumerate(prompts)], {}

    def extend(chosen, starts, pieces, moves=()):
        tokens = [t for p in pieces for t in p]
        bufs = {"slots": chosen, "starts": starts, "counts": [len(p) for p in pieces], "sample": [1] * len(chosen), "top": [61] * len(chosen), "tokens": tokens}
        bufs = {k: torch.tensor(v, dtype=torch.int32) for k, v in bufs.items()}
        bufs.update(temperature=torch.ones(len(chosen)), u=torch.full((len(chosen),), 0.5, dtype=torch.float64))
        return dict(sampler.extend({"moves": list(moves)}, bufs))

    extend(list(range(n)), [0] * n, [p[:h] for p, h in zip(prompts, held)])
    extend([n], [held[0] - 2], [[9, 8, 7]], [[n, 0, held[0] - 2]])  # a copy of a beginning, which parts from it
    for k in range(4 + n):
        alive = [i for i in range(n) if held[i] + k < len(prompts[i])]
        if alive:
            got = extend(alive, [held[i] + k for i in alive], [[prompts[i][held[i] + k]] for i in alive])
            for row, i in enumerate(alive):
                order, values = (got[x].view(len(alive), 61)[row] for x in ("top_tokens", "top_logprobs"))
                out[i] = torch.empty(61).scatter_(0, order.long(), values).tolist()
    return [out[i] for i in range(n)]


def compare(name, dtype):
    """How far the worker is from Transformers on a family, in two steps and in sampling."""
    with tempfile.TemporaryDirectory() as home:
        folder, after = os.path.join(home, "first"), os.path.join(home, "after")
        make(name, folder, dtype)
        q = drawn_part()
        prompts = [q["tokens"][:21], q["tokens"][5:14], q["tokens"][9:34]]
        of = shape_of(folder)
        s = worker().family_sampler.FamilySampler(hello(of, "cpu", dtype="float32"), torch.device("cpu"), Nothing(), Nothing())
        files = worker().folders.Files(folder, files_of(folder))
        s.prepared = {1: {k: files.read(k).float() for k in s.params}}
        s.commit({"number": 1}, {})
        drawn = drawn_by(s, prompts, q)
        net = read(folder)
        drawn_off = max(furthest(a, sampled(net, p)) for a, p in zip(drawn, prompts))
        outputs, norms, grads = step(net, q)
        t, got, got_norms, got_grads = trained(folder, q)
        again, _, again_norms, again_grads = trained(folder, q, recompute=True, attention="plain")
        net.save_pretrained(after)
        stored = worker().folders.Files(after, files_of(after))
        first = worker().folders.Files(folder, files_of(folder))
        return dict(
            names=sorted(t.params) == sorted(stored.at) == sorted(first.at),
            outputs=max(furthest(outputs[k], got[k].tolist()) for k in outputs),
            norms=max(abs(a / b - 1) for a, b in zip(norms + norms, got_norms + again_norms)),
            gradients=max((g - x[k]).abs().max().item() / norms[0] for x in (got_grads, again_grads) for k, g in grads.items()),
            weights=max((p - stored.read(k).float().view_as(p)).abs().max().item() for x in (t, again) for k, p in x.params.items()),
            moved=max((stored.read(k).float() - first.read(k).float()).abs().max().item() for k in stored.at),
            sampled=drawn_off,
        )


def main():
    q = json.load(open(sys.argv[1]))
    answers = {}
    for x in q["asks"]:
        if x["do"] == "make":
            answers[x["name"]] = make(x["name"], x["folder"], x["dtype"])
        elif x["do"] == "compare":
            answers[x["name"]] = compare(x["name"], x["dtype"])
        else:
            net = read(x["folder"])
            sums = [sampled(net, t) for t in x["sample"]]
            outputs, norms, _ = step(net, x["part"])
            state, got = dict(net.named_parameters()), dict(read(x["trained"]).named_parameters())
            off = max((state[k] - got[k]).abs().max().item() for k in state)
            moved = max((state[k] - p).abs().max().item() for k, p in read(x["folder"]).named_parameters())
            answers[x["name"]] = dict(outputs=outputs, norms=norms, sampled=sums, off=off, moved=moved, same=sorted(state) == sorted(got))
    json.dump(answers, sys.stdout, indent=0)


main()
