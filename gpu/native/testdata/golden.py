"""Numbers that gpu/native must agree with, from PyTorch: outputs, gradients and three optimizer steps of a
small Llama block stack, in float64. Written with PyTorch 1.13.1.

    python3 gpu/native/testdata/golden.py > gpu/native/testdata/golden.json
    python3 gpu/native/testdata/golden.py lora > gpu/native/testdata/golden_lora.json

With lora every matrix of a block is frozen and has an adapter of rank 3 and alpha 6, named as PEFT names them.
Weights and upstream gradients are formulas (wave below), so that the file holds results alone. Tensors are
summarized by two inner products with fixed waves.
"""
import json
import math
import sys
import torch

torch.set_default_dtype(torch.float64)
CFG = dict(model_type="llama", vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
           num_attention_heads=4, num_key_value_heads=2, head_dim=8, rope_theta=10000.0, rms_norm_eps=1e-5,
           tie_word_embeddings=False, max_position_embeddings=64, value_head=True)
V, D, FF, L, H, KV, HD = (CFG[k] for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                           "num_attention_heads", "num_key_value_heads", "head_dim"))


def wave(n, seed):
    """sin(i * i * 0.01 + i * 0.37 + seed), rounded to float32."""
    return torch.tensor([math.sin(i * i * 0.01 + i * 0.37 + seed) for i in range(n)]).float().double()


shapes = [("model.embed_tokens.weight", (V, D))]
for l in range(L):
    p = f"model.layers.{l}."
    shapes += [(p + "input_layernorm.weight", (D,)), (p + "self_attn.q_proj.weight", (H * HD, D)),
               (p + "self_attn.k_proj.weight", (KV * HD, D)), (p + "self_attn.v_proj.weight", (KV * HD, D)),
               (p + "self_attn.o_proj.weight", (D, H * HD)), (p + "post_attention_layernorm.weight", (D,)),
               (p + "mlp.gate_proj.weight", (FF, D)), (p + "mlp.up_proj.weight", (FF, D)),
               (p + "mlp.down_proj.weight", (D, FF))]
shapes += [("model.norm.weight", (D,)), ("lm_head.weight", (V, D)), ("value_head.weight", (1, D))]
W = {}
for i, (name, shape) in enumerate(shapes):
    w = wave(math.prod(shape), i)
    w = (1 + 0.25 * w if len(shape) == 1 else 0.25 * w).float().double()
    W[name] = w.reshape(shape).clone().requires_grad_()

LORA = "lora" in sys.argv
RANK, ALPHA = 3, 6
ADAPTERS = {}
if LORA:
    for n, (name, shape) in enumerate((n, s) for n, s in shapes if n.endswith("_proj.weight")):
        module = "base_model.model." + name.removesuffix(".weight")
        for i, (part, size) in enumerate((("lora_A", (RANK, shape[1])), ("lora_B", (shape[0], RANK)))):
            w = (0.25 * wave(math.prod(size), 1000 + 2 * n + i)).float().double()
            ADAPTERS[f"{module}.{part}.weight"] = w.reshape(size).clone().requires_grad_()
TRAINED = {**ADAPTERS, "value_head.weight": W["value_head.weight"]} if LORA else W


def matrix(name):
    """The matrix as it acts: with its adapter."""
    if not LORA:
        return W[name]
    module = "base_model.model." + name.removesuffix(".weight")
    return W[name] + ALPHA / RANK * ADAPTERS[module + ".lora_B.weight"] @ ADAPTERS[module + ".lora_A.weight"]


def rms(x, gain):
    return gain * x / torch.sqrt((x * x).mean(-1, keepdim=True) + CFG["rms_norm_eps"])


def rope(x):
    """x [heads, T, HD]: pair (j, j + HD/2) is one complex number turned by pos * theta^(-2j/HD)."""
    t = torch.arange(x.shape[1]).double()[:, None]
    angle = t * CFG["rope_theta"] ** (-2 * torch.arange(HD // 2).double() / HD)
    z = torch.polar(torch.ones_like(angle), angle) * torch.complex(x[..., :HD // 2], x[..., HD // 2:])
    return torch.cat((z.real, z.imag), -1)


def hidden(tokens):
    x = W["model.embed_tokens.weight"][tokens]
    T = len(tokens)
    for l in range(L):
        w = lambda n: (matrix if n.endswith("_proj") else W.get)(f"model.layers.{l}.{n}.weight")
        h = rms(x, w("input_layernorm"))
        split = lambda y, n: y.view(T, n, HD).transpose(0, 1)
        q = rope(split(h @ w("self_attn.q_proj").T, H))
        k = rope(split(h @ w("self_attn.k_proj").T, KV)).repeat_interleave(H // KV, 0)
        v = split(h @ w("self_attn.v_proj").T, KV).repeat_interleave(H // KV, 0)
        s = q @ k.transpose(1, 2) / math.sqrt(HD)
        s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        x = x + (s.softmax(-1) @ v).transpose(0, 1).reshape(T, H * HD) @ w("self_attn.o_proj").T
        h = rms(x, w("post_attention_layernorm"))
        x = x + (torch.nn.functional.silu(h @ w("mlp.gate_proj").T) * (h @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    return rms(x, W["model.norm.weight"])


SEQS = [[(7 * i * i + 3) % V for i in range(13)], [(11 * i + 5) % V for i in range(21)]]
TEMPS = [0.75, 1.5]


def forward():
    out = [[], [], []]
    for tokens, temp in zip(SEQS, TEMPS):
        h = hidden(torch.tensor(tokens))[:-1]
        logp = (h @ W["lm_head.weight"].T / temp).log_softmax(-1)
        rows = (logp.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0], -(logp.exp() * logp).sum(-1),
                (h @ W["value_head.weight"].T)[:, 0])
        for o, r in zip(out, rows):
            o.append(torch.cat((torch.zeros(1), r)))
    return [torch.cat(o) for o in out]


def loss():
    return sum((wave(len(o), 100 + i) * o).sum() for i, o in enumerate(forward()))


def summary(t):
    flat = t.detach().flatten()
    return [float(flat @ wave(len(flat), 0.5)), float(flat @ wave(len(flat), 1.5))]


outputs = [o.tolist() for o in forward()]
loss().backward()
gradients = {n: summary(w.grad) for n, w in TRAINED.items()}
groups = [dict(params=[w for n, w in TRAINED.items() if w.dim() == 2 and n != "value_head.weight"], lr=1e-2, weight_decay=0.1),
          dict(params=[w for n, w in TRAINED.items() if w.dim() == 1], lr=1e-2, weight_decay=0.0),
          dict(params=[W["value_head.weight"]], lr=3e-2, weight_decay=0.1)]
groups = [g for g in groups if g["params"]]
opt = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-4)
norms = []
for _ in range(3):
    opt.zero_grad()
    loss().backward()
    norms.append(float(torch.nn.utils.clip_grad_norm_(list(TRAINED.values()), 0.5)))
    opt.step()
print(json.dumps(dict(config=CFG, sequences=SEQS, temperatures=TEMPS, logprobs=outputs[0], entropies=outputs[1],
                      values=outputs[2], gradients=gradients, norms=norms,
                      weights={n: summary(w) for n, w in TRAINED.items()}), indent=1))
