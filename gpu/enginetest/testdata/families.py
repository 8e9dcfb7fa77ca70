"""Numbers that every engine must agree with, from PyTorch in float64: the outputs, the gradients and one step of AdamW of
small models of each family. Written with PyTorch 1.13.1.

    python3 gpu/enginetest/testdata/families.py < gpu/enginetest/testdata/families.in.json > gpu/enginetest/testdata/families.json

Input is a JSON array of {"name", "config"}, the configuration being gpu.Config's; the output is as long. Weights, tokens and
the outputs' gradients are formulas (draw below) of dyadic fractions, which float32 holds exactly.
"""
import json
import math
import sys
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
STEP = dict(lr=1e-2, value_lr=3e-2, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.1, clip=0.5)


def draw(n, seed):
    """n numbers in [-0.5, 0.5), multiples of 1/8192, from a linear congruential generator."""
    x, out = (seed * 2654435761 + 12345) % 2**32, []
    for _ in range(n):
        x = (x * 1664525 + 1013904223) % 2**32
        out.append((x >> 19) / 8192 - 0.5)
    return torch.tensor(out)


def layout(c):
    d, hd, ff = c["hidden_size"], head_dim(c), c["intermediate_size"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    out = [("model.embed_tokens.weight", (c["vocab_size"], d))]
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        out.append((p + "input_layernorm.weight", (d,)))
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            out.append((p + f"self_attn.{name}_proj.weight", (rows, d)))
            if c.get("qkv_bias"):
                out.append((p + f"self_attn.{name}_proj.bias", (rows,)))
        out.append((p + "self_attn.o_proj.weight", (d, q)))
        if c.get("qk_norm"):
            out += [(p + f"self_attn.{name}_norm.weight", (hd,)) for name in "qk"]
        out += [(p + "post_attention_layernorm.weight", (d,)), (p + "mlp.gate_proj.weight", (ff, d)),
                (p + "mlp.up_proj.weight", (ff, d)), (p + "mlp.down_proj.weight", (d, ff))]
    out.append(("model.norm.weight", (d,)))
    if not c["tie_word_embeddings"]:
        out.append(("lm_head.weight", (c["vocab_size"], d)))
    if c.get("value_head"):
        out.append(("value_head.weight", (1, d)))
    return out


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def weights(c):
    out = {}
    for i, (name, shape) in enumerate(layout(c)):
        w = draw(math.prod(shape), i)
        out[name] = (w + 1 if "norm" in name else w).reshape(shape).clone().requires_grad_()
    return out


def rms(c, x, gain):
    return x * (x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]).rsqrt() * gain


def frequencies(c):
    hd = head_dim(c)
    freq = 1.0 / c["rope_theta"] ** (torch.arange(0, hd, 2).double() / hd)
    s = c.get("rope_scaling")
    if not s:
        return freq
    wavelength = 2 * math.pi / freq
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    original = s["original_max_position_embeddings"]
    smooth = (original / wavelength - low) / (high - low)
    mixed = (1 - smooth) * freq / s["factor"] + smooth * freq
    out = torch.where(wavelength > original / low, freq / s["factor"], mixed)
    return torch.where(wavelength < original / high, freq, out)


def rope(c, x):
    """x [heads, T, hd], the halves of a head being the real and the imaginary parts."""
    angle = torch.arange(x.shape[1]).double()[:, None] * frequencies(c)
    cos, sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def hidden(c, W, tokens):
    T, hd, H, KV = len(tokens), head_dim(c), c["num_attention_heads"], c["num_key_value_heads"]
    x = W["model.embed_tokens.weight"][tokens]
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."

        def heads(name, n):
            y = torch.nn.functional.linear(h, W[p + f"self_attn.{name}_proj.weight"], W.get(p + f"self_attn.{name}_proj.bias"))
            y = y.view(T, n, hd)
            gain = W.get(p + f"self_attn.{name}_norm.weight")
            return (y if gain is None else rms(c, y, gain)).transpose(0, 1)

        h = rms(c, x, W[p + "input_layernorm.weight"])
        q, k, v = rope(c, heads("q", H)), rope(c, heads("k", KV)), heads("v", KV)
        k, v = k.repeat_interleave(H // KV, 0), v.repeat_interleave(H // KV, 0)
        s = q @ k.transpose(1, 2) / math.sqrt(hd) + torch.full((T, T), -math.inf).triu(1)
        x = x + (s.softmax(-1) @ v).transpose(0, 1).reshape(T, H * hd) @ W[p + "self_attn.o_proj.weight"].T
        h = rms(c, x, W[p + "post_attention_layernorm.weight"])
        gate, up = h @ W[p + "mlp.gate_proj.weight"].T, h @ W[p + "mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ W[p + "mlp.down_proj.weight"].T
    return rms(c, x, W["model.norm.weight"])


def sequences(c):
    v = c["vocab_size"]
    return [[(7 * i * i + 3) % v for i in range(11)], [(11 * i + 5) % v for i in range(17)]], [0.75, 1.5]


def golden(c):
    W = weights(c)
    head = W[("model.embed_tokens" if c["tie_word_embeddings"] else "lm_head") + ".weight"]
    seqs, temps = sequences(c)
    out = dict(logprobs=[], entropies=[], values=[])
    logits = []
    for tokens, temp in zip(seqs, temps):
        h = hidden(c, W, torch.tensor(tokens))
        logits.append((h[-1] @ head.T).tolist())
        logp = (h[:-1] @ head.T / temp).log_softmax(-1)
        out["logprobs"] += [torch.zeros(1), logp.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]]
        out["entropies"] += [torch.zeros(1), -(logp.exp() * logp).sum(-1)]
        if c.get("value_head"):
            out["values"] += [torch.zeros(1), (h[:-1] @ W["value_head.weight"].T)[:, 0]]
    out = {k: torch.cat(x) for k, x in out.items() if x}
    sum((draw(len(o), 100 + i) * o).sum() for i, o in enumerate(out.values())).backward()
    gradients = {n: w.grad.clone() for n, w in W.items()}
    matrices = [w for n, w in W.items() if w.dim() == 2 and n != "value_head.weight"]
    groups = [dict(params=matrices, weight_decay=STEP["weight_decay"]),
              dict(params=[w for w in W.values() if w.dim() == 1], weight_decay=0.0)]
    if c.get("value_head"):
        groups.append(dict(params=[W["value_head.weight"]], lr=STEP["value_lr"], weight_decay=STEP["weight_decay"]))
    opt = torch.optim.AdamW(groups, lr=STEP["lr"], betas=STEP["betas"], eps=STEP["eps"])
    norm = float(torch.nn.utils.clip_grad_norm_(list(W.values()), STEP["clip"]))
    opt.step()
    flat = lambda x: [float(f"{v:.9g}") for v in x.detach().flatten().tolist()]
    return dict(config=c, sequences=seqs, temperatures=temps, logits=[flat(torch.tensor(x)) for x in logits],
                outputs={k: flat(x) for k, x in out.items()}, norm=norm,
                gradients={n: flat(g) for n, g in gradients.items()}, weights={n: flat(w) for n, w in W.items()})


out = [dict(name=m["name"], **golden(m["config"])) for m in json.load(sys.stdin)]
print("[" + ",\n".join(json.dumps(m, separators=(",", ":")) for m in out) + "]")
