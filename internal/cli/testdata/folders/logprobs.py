#!/usr/bin/env python3
"""The log-probabilities of token ids, in float64: logprobs.py FOLDER, a JSON array of ids a line in, a JSON array out. The models are
written from the papers' formulas and Transformers' conventions: rotary halves, grouped keys, SwiGLU, RMSNorm before each block."""
import json
import os
import sys

import numpy as np

import common


def speeds(c, hd):
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    theta = rope.get("rope_theta", c.get("rope_theta"))
    out = theta ** -(np.arange(hd // 2, dtype=np.float64) * 2 / hd)
    if rope.get("rope_type") != "llama3":
        return out
    length = 2 * np.pi / out
    low, high = rope["original_max_position_embeddings"] / rope["low_freq_factor"], rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    blend = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    return np.where(length > low, out / rope["factor"], np.where(length < high, out, (1 - blend) * out / rope["factor"] + blend * out))


def norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rotate(x, angles):
    """x is [heads, n, hd]."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)


def forward(c, w, ids):
    heads, kv_heads, eps, n = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"], len(ids)
    hd = c.get("head_dim") or c["hidden_size"] // heads
    angles = np.arange(n)[:, None] * speeds(c, hd)
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"], eps)

        def project(name, count):
            y = h @ w[f"{p}self_attn.{name}_proj.weight"].T + w.get(f"{p}self_attn.{name}_proj.bias", 0)
            y = y.reshape(n, count, hd).transpose(1, 0, 2)
            gain = w.get(f"{p}self_attn.{name}_norm.weight")
            return y if gain is None else norm(y, gain, eps)

        q, k, v = rotate(project("q", heads), angles), rotate(project("k", kv_heads), angles), project("v", kv_heads)
        k, v = np.repeat(k, heads // kv_heads, 0), np.repeat(v, heads // kv_heads, 0)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(hd) + np.triu(np.full((n, n), -np.inf), 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = (scores / scores.sum(-1, keepdims=True)) @ v
        x = x + y.transpose(1, 0, 2).reshape(n, heads * hd) @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
    head = w["model.embed_tokens.weight"] if c.get("tie_word_embeddings") else w["lm_head.weight"]
    logits = norm(x, w["model.norm.weight"], eps) @ head.T
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    w = common.weights(folder)
    for line in sys.stdin:
        ids = json.loads(line)
        if not ids:
            print("[]")
            continue
        out = forward(c, w, ids)
        print(json.dumps([0.0] + [out[i, t] for i, t in enumerate(ids[1:])]))


main()
