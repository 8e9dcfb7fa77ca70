#!/usr/bin/env python3
"""Makes a small model folder with random weights, as Transformers would save one: make.py FAMILY DIALECT FOLDER [SEED [WIDTH LAYERS]].

FAMILY is llama, qwen2 or qwen3; DIALECT is 4 or 5, the major version of Transformers. The tokenizer is byte-level BPE whose
merges are learnt here, with the family's pattern, added tokens and chat template.
"""
import json
import os
import sys

import numpy as np

import common

TEXT = (
    "what is the capital of sweden ? the capital of sweden is stockholm. which country has the number four ? "
    "Add two and three, then say the sum. Question: how many? Answer: twelve. user assistant system tool "
) * 4
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<bos>", "<search>", "</search>", "<info>", "</info>", "<answer>", "</answer>"]


def alphabet():
    """The characters that stand for the 256 bytes, as GPT-2 chose them."""
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, more = {}, 0
    for b in range(256):
        if b in shown:
            out[b] = chr(b)
        else:
            out[b], more = chr(256 + more), more + 1
    return out


def learn(count):
    """Byte-level BPE: the commonest pair within words first."""
    chars = alphabet()
    words = {}
    for word in TEXT.replace(" ", " \0").split("\0"):
        for piece in ([word] if word == word.rstrip() else [word.rstrip()]):
            key = tuple(chars[b] for b in (" " + piece).encode())
            words[key] = words.get(key, 0) + 1
    merges = []
    while len(merges) < count:
        pairs = {}
        for word, n in words.items():
            for a, b in zip(word, word[1:]):
                pairs[a, b] = pairs.get((a, b), 0) + n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        merged = {}
        for word, n in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i : i + 2] == best:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] = merged.get(tuple(out), 0) + n
        words = merged
    vocab = {c: i for i, c in enumerate(sorted(chars.values()))}
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    return vocab, merges


def tokenizer(family, vocab, merges):
    pattern = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1) if family == "llama" else QWEN
    added = [
        {"id": len(vocab) + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": t in CONTROL}
        for i, t in enumerate(CONTROL + TAGS)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None if family == "llama" else {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "" if family != "llama" else None,
            "end_of_word_suffix": "" if family != "llama" else None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": family == "llama", "vocab": vocab, "merges": [list(m) for m in merges],
        },
    }, added


def config(family, dialect, vocab_size, ids, width, layers):
    c = {
        "architectures": [{"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family] + "ForCausalLM"],
        "attention_dropout": 0.0, "bos_token_id": ids["<|endoftext|>"], "eos_token_id": ids["<|im_end|>"], "hidden_act": "silu",
        "hidden_size": width, "initializer_range": 0.02, "intermediate_size": 2 * width, "max_position_embeddings": 512,
        "model_type": family, "num_attention_heads": 4, "num_hidden_layers": layers, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "tie_word_embeddings": family != "llama", "use_cache": True, "vocab_size": vocab_size,
    }
    rope = {"rope_type": "default"}
    if family == "llama":
        c["eos_token_id"] = [ids["<|endoftext|>"], ids["<|im_end|>"]]
        c.update(attention_bias=False, mlp_bias=False, pretraining_tp=1, head_dim=width // 4)
        rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    else:
        c.update(use_sliding_window=False, sliding_window=None, max_window_layers=layers)
    if family == "qwen3":
        c.update(attention_bias=False, head_dim=width // 2)
    if dialect == "5":
        c.update(dtype="bfloat16", transformers_version="5.1.0", rope_parameters={**rope, "rope_theta": 10000.0})
        if family != "llama":
            c["layer_types"] = ["full_attention"] * layers
    else:
        c.update(torch_dtype="bfloat16", transformers_version="4.51.0", rope_theta=10000.0, rope_scaling=rope if family == "llama" else None)
    return c


def tensors(c, rng):
    d, ff = c["hidden_size"], c["intermediate_size"]
    hd = c.get("head_dim") or d // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    normal = lambda *shape: rng.standard_normal(shape) * 0.3 / np.sqrt(shape[-1] / 8)
    gain = lambda n: 1 + 0.1 * rng.standard_normal(n)
    out = [("model.embed_tokens.weight", "BF16", normal(c["vocab_size"], d))]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            out.append((f"{p}self_attn.{name}_proj.weight", "BF16", normal(rows, d)))
            if c["model_type"] == "qwen2":
                out.append((f"{p}self_attn.{name}_proj.bias", "BF16", 0.2 * rng.standard_normal(rows)))
        out.append((f"{p}self_attn.o_proj.weight", "BF16", normal(d, q)))
        if c["model_type"] == "qwen3":
            out += [(f"{p}self_attn.q_norm.weight", "BF16", gain(hd)), (f"{p}self_attn.k_norm.weight", "BF16", gain(hd))]
        out += [(f"{p}mlp.gate_proj.weight", "BF16", normal(ff, d)), (f"{p}mlp.up_proj.weight", "BF16", normal(ff, d)),
                (f"{p}mlp.down_proj.weight", "BF16", normal(d, ff))]
        out += [(f"{p}input_layernorm.weight", "F32", gain(d)), (f"{p}post_attention_layernorm.weight", "F32", gain(d))]
    out.append(("model.norm.weight", "F32", gain(d)))
    if not c["tie_word_embeddings"]:
        out.append(("lm_head.weight", "BF16", normal(c["vocab_size"], d)))
    return out


def main():
    family, dialect, folder = sys.argv[1:4]
    seed, width, layers = (int(x) for x in (sys.argv[4:7] + ["1", "32", "2"][len(sys.argv) - 4 :]))
    os.makedirs(folder)
    put = lambda name, v: open(os.path.join(folder, name), "w").write(v if isinstance(v, str) else json.dumps(v, indent=2, ensure_ascii=False) + "\n")
    vocab, merges = learn(120)
    text, added = tokenizer(family, vocab, merges)
    ids = {t["content"]: t["id"] for t in added}
    size = (len(vocab) + len(added) + 15) // 16 * 16  # padded, as published models are
    c = config(family, dialect, size, ids, width, layers)
    put("config.json", c)
    put("generation_config.json", {"bos_token_id": ids["<|endoftext|>"], "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "temperature": 0.7, "top_p": 0.8})
    put("tokenizer.json", text)
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "bos_token": None, "pad_token": "<|endoftext|>",
             "model_max_length": 512, "clean_up_tokenization_spaces": False,
             "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added}}
    if dialect == "5":
        put("chat_template.jinja", TEMPLATE)
    else:
        about["chat_template"] = TEMPLATE
        put("special_tokens_map.json", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
        put("added_tokens.json", ids)
    put("tokenizer_config.json", about)
    put("vocab.json", json.dumps(vocab, ensure_ascii=False))
    put("merges.txt", "#version: 0.2\n" + "\n".join(" ".join(m) for m in merges) + "\n")
    put("LICENSE", "Made for tests.\n")
    made = tensors(c, np.random.default_rng(seed))
    half = len(made) // 2
    where = {}
    for name, part in (("model-00001-of-00002.safetensors", made[half:]), ("model-00002-of-00002.safetensors", made[:half])):
        common.write(os.path.join(folder, name), part)
        where.update({t[0]: name for t in part})
    total = sum(common.SIZES[t[1]] * t[2].size for t in made)
    put("model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})


main()
