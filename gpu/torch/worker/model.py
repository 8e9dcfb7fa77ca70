"""The transformer that Llama, Qwen2 and Qwen3 share, in plain operations, with parameters of Hugging Face's names."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from weir_attention import Packing, Rotary, rotate
from weir_head import Distribution, Plain
from weir_weights import Embed, Pick


class Linear(nn.Module):
    """A product with a matrix [out, in], in the type of its input, and with the low-rank adapter beside it, where it has one."""

    def __init__(self, out, inputs, bias=False, norms=None, **at):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, inputs, **at))
        self.bias = nn.Parameter(torch.empty(out, **at)) if bias else None
        self.lora_A = self.lora_B = None
        self.scale = 0.0

    def adapt(self, rank, scale, device):
        """Has the matrix act as W + scale B A (Hu et al. 2021), with A [rank, in] and B [out, rank] in float32."""
        out, inputs = self.weight.shape
        self.lora_A = nn.Parameter(torch.zeros(rank, inputs, device=device))
        self.lora_B = nn.Parameter(torch.zeros(out, rank, device=device))
        self.scale = scale

    def forward(self, x):
        y = F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))
        if self.lora_A is None:
            return y
        return y + F.linear(F.linear(x, self.lora_A.to(x.dtype)) * self.scale, self.lora_B.to(x.dtype))


class Norm(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019), computed in float32."""

    def __init__(self, width, eps, norms=None, **at):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, **dict(at, dtype=norms or at["dtype"])))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)
        return (h * self.weight.float()).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, s, **at):
        super().__init__()
        d, width = s["hidden"], s["head_dim"]
        self.width = width
        self.heads = s["heads"], s["kv_heads"], s["kv_heads"]
        if s.get("joined"):
            self.qkv_proj = Linear(sum(self.heads) * width, d, s["qkv_bias"], **at)
        else:
            self.q_proj, self.k_proj, self.v_proj = (Linear(n * width, d, s["qkv_bias"], **at) for n in self.heads)
        self.joined = bool(s.get("joined"))
        self.o_proj = Linear(d, s["heads"] * width, **at)
        self.q_norm = Norm(width, s["eps"], **at) if s["qk_norm"] else None
        self.k_norm = Norm(width, s["eps"], **at) if s["qk_norm"] else None

    def project(self, x):
        """Queries, keys and values, by heads."""
        if self.joined:
            return self.qkv_proj(x).view(x.shape[0], -1, self.width).split(self.heads, 1)
        return (p(x).view(x.shape[0], -1, self.width) for p in (self.q_proj, self.k_proj, self.v_proj))

    def forward(self, x, cos, sin, attend):
        q, k, v = self.project(x)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        out = attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.o_proj(out.reshape(x.shape[0], -1))


class FeedForward(nn.Module):
    def __init__(self, s, **at):
        super().__init__()
        self.gate_proj = Linear(s["intermediate"], s["hidden"], **at)
        self.up_proj = Linear(s["intermediate"], s["hidden"], **at)
        self.down_proj = Linear(s["hidden"], s["intermediate"], **at)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, s, **at):
        super().__init__()
        self.input_layernorm = Norm(s["hidden"], s["eps"], **at)
        self.self_attn = Attention(s, **at)
        self.post_attention_layernorm = Norm(s["hidden"], s["eps"], **at)
        self.mlp = FeedForward(s, **at)

    def forward(self, x, cos, sin, attend):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Embedding(nn.Module):
    def __init__(self, rows, width, norms=None, **at):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width, **at))


class Trunk(nn.Module):
    def __init__(self, s, **at):
        super().__init__()
        self.embed_tokens = Embedding(s["vocab"], s["hidden"], **at)
        self.layers = nn.ModuleList(Block(s, **at) for _ in range(s["layers"]))
        self.norm = Norm(s["hidden"], s["eps"], **at)


class Policy(nn.Module):
    """The whole model. With copied its parameters are copies of weights that are kept elsewhere, in float32; gains are float32 here too, and
    shape's joined has the projections to queries, keys and values be a single matrix. The value head is no parameter: it is kept whole on
    every rank, and its gradient is given by hand."""

    def __init__(self, shape, compute, attention, recompute, progress, ways=None, copied=False, **at):
        super().__init__()
        self.shape, self.compute, self.attention, self.copied = shape, compute, attention, copied
        self.recompute, self.progress, self.ways = recompute, progress, ways or Plain()
        self.rotary = Rotary(shape["rope_speeds"], at["device"])
        self.sums = None  # where a leaf's float32 gradients are added up, where its weights are copies
        if copied:
            at["norms"] = torch.float32
        self.model = Trunk(shape, **at)
        if not shape["tied"]:
            self.lm_head = Linear(shape["vocab"], shape["hidden"], **at)
        if shape.get("lora"):
            self._adapt(shape["lora"], at["device"])

    def _adapt(self, lora, device):
        """Freezes the weights, and puts adapters beside the matrices of each block that have them."""
        self.requires_grad_(False)
        for block in self.model.layers:
            for part in (block.self_attn, block.mlp):
                for name, module in part.named_children():
                    if name in lora["targets"]:
                        module.adapt(lora["rank"], lora["scale"], device)

    def head(self):
        return self.model.embed_tokens.weight if self.shape["tied"] else self.lm_head.weight

    def head_name(self):
        return "model.embed_tokens.weight" if self.shape["tied"] else "lm_head.weight"

    def weights_of(self, leaf):
        """The weights that a parameter of this model is made of, from its first row on: name and number of rows each."""
        if ".qkv_proj." not in leaf:
            return [(leaf, self.get_parameter(leaf).shape[0])]
        heads = zip(("q_proj", "k_proj", "v_proj"), (self.shape["heads"], self.shape["kv_heads"], self.shape["kv_heads"]))
        return [(leaf.replace("qkv_proj", name), n * self.shape["head_dim"]) for name, n in heads]

    def _embed(self, tokens):
        weight = self.model.embed_tokens.weight
        if self.sums is None:
            return F.embedding(tokens, weight).to(self.compute)
        return Embed.apply(weight, tokens, lambda: self.sums("model.embed_tokens.weight"))

    def forward(self, tokens, lengths, rows, targets, temperature, logits):
        """Returns log-probabilities, entropies and sums of squares of targets after rows, or nothing without logits, and the
        normalized hidden states at rows."""
        packing = Packing(lengths, tokens.device)
        cos, sin = self.rotary.at(packing.positions, packing.longest)

        def attend(q, k, v):
            return self.attention(q, k, v, packing)

        x = self._embed(tokens)
        for block in self.model.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, cos, sin, attend, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, cos, sin, attend)
            self.progress()
        # No rows keep the graph whole too: a backward pass from them meets the parameters that one from rows meets.
        x = Pick.apply(x, rows) if rows.numel() else x[:0]
        hidden = self.model.norm(x)
        if not logits:
            return (), hidden
        total = None if self.sums is None else lambda: self.sums(self.head_name())
        return Distribution.apply(hidden, self.head(), targets, temperature, self.ways, self.progress, total), hidden
